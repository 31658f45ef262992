"""What a command finds around itself: environment, home, standard streams, and how it is to speak."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from orchestrator.cli.options import Output
from orchestrator.config.cluster import ClusterFile, load_cluster
from orchestrator.config.lookup import Places, Wanted, find, standard_places
from orchestrator.config.playbook import Playbook, load_playbook
from orchestrator.runtime.clock import SystemClock


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
        self.err.write(f"warning: {message}\n")

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
