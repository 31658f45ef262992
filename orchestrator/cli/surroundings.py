"""What a command finds around itself: environment, home, standard streams, and how it is to speak."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from orchestrator.cli.options import Output
from orchestrator.config.cluster import ClusterFile, load_cluster
from orchestrator.config.lookup import Places, Wanted, find, standard_places
from orchestrator.config.playbook import Playbook, load_playbook
from orchestrator.config.tuning import load_profile
from orchestrator.errors import ExitCode
from orchestrator.hosts.tunables.registry import RULES
from orchestrator.model.tuning import TuningProfile
from orchestrator.runtime.clock import SystemClock
from orchestrator.view.jsonlines import json_line
from orchestrator.view.outlet import shown

_OUTCOMES: Final = {
    ExitCode.DONE: "done",
    ExitCode.HELD: "held",
    ExitCode.DEFECT: "failed",
    ExitCode.FAILED: "failed",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.NOT_RESTORED: "not_restored",
}
"""Exit codes of commands that drive no run, as the summary's `outcome`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Everything that a command takes from its process.

    Attributes:
        clock: the one clock of the process.
        output: text for people or JSON lines.
        out: where results go.
        err: where warnings and errors go.
    """

    environment: Mapping[str, str]
    home: Path
    clock: SystemClock
    output: Output
    out: TextIO
    err: TextIO

    @property
    def places(self) -> Places:
        """Where names are looked up."""
        return standard_places(self.environment, home=self.home)

    def warn(self, message: str) -> None:
        """Say something that does not stop the command; never on standard output."""
        self.note(f"warning: {message}")

    def say(self, text: str) -> None:
        """Write lines of results; foreign characters in them cannot drive the terminal."""
        self.out.write(shown(text, self.out) + "\n")

    def note(self, text: str) -> None:
        """Write a line that is no result; never on standard output."""
        self.err.write(shown(text, self.err) + "\n")

    def say_json(self, payload: Mapping[str, object], *, run: str | None = None) -> None:
        """Write one line of `--output json`."""
        self.out.write(json_line(payload, at=self.clock.now(), run=run) + "\n")

    def end(self, code: ExitCode, *, run: str | None = None, **more: object) -> ExitCode:
        """The last line of a command that drove no run, where JSON is asked for; its exit code."""
        if self.output is Output.JSON:
            outcome = {"event": "summary", "outcome": _OUTCOMES[code], "exit_code": int(code)}
            self.say_json({**outcome, **more}, run=run)
        return code

    def cluster(self, name: str) -> ClusterFile:
        """Read the cluster file of that name or path; its warnings are shown.

        Raises:
            ConfigError: it cannot be found or is wrong.
        """
        file = load_cluster(find(Wanted.CLUSTER, name, self.places), home=self.home)
        for warning in file.warnings:
            self.warn(warning)
        return file

    def playbook(self, name: str) -> Playbook:
        """Read the playbook of that name or path.

        Raises:
            ConfigError: it cannot be found or is wrong.
        """
        return load_playbook(find(Wanted.PLAYBOOK, name, self.places))

    def tuning_profile(self, name: str) -> TuningProfile:
        """Read the tuning profile of that name or path.

        Raises:
            ConfigError: it cannot be found or is wrong.
        """
        return load_profile(find(Wanted.TUNING, name, self.places), rules=RULES)


def surroundings(output: Output) -> Surroundings:
    """Those of this process."""
    return Surroundings(
        environment=os.environ,
        home=Path.home(),
        clock=SystemClock(),
        output=output,
        out=sys.stdout,
        err=sys.stderr,
    )
