"""One `orchestrate restart`, or another such command, on local processes, from files to JSON lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.integration import doomed
from tests.integration.killing import Described
from tests.integration.nursery import DOOMED

PROGRAM = (sys.executable, "-m", "orchestrator")
READING = {"plan", "diagnose", "history", "report", "tune check"}
"""Commands that change nothing, and ask for no agreement."""


@dataclass
class Extended:
    """A cluster whose file has more keys."""

    lab: Described
    more: Mapping[str, Any]

    def cluster_document(self) -> dict[str, Any]:
        """The content of its cluster file."""
        return {**self.lab.cluster_document(), **self.more}


def restart(lab: Described, folder: Path, *words: str, **more: Any) -> tuple[int, list[dict[str, Any]]]:
    """Run `orchestrate restart` to its end, as `orchestrate` below; the exit code and every JSON line."""
    return orchestrate(lab, folder, "restart", *words, **more)


def orchestrate(
    lab: Described,
    folder: Path,
    command: str,
    *words: str,
    playbook: Mapping[str, Any] | None = None,
    race: Mapping[str, str] | None = None,
    seconds: float = 1500.0,
) -> tuple[int, list[dict[str, Any]]]:
    """Run a command that changes the cluster to its end; the exit code and every JSON line."""
    told = {} if race is None else {"race": race}
    argv, env = _command_line(lab, folder, command, words, playbook=playbook, told=told)
    done = subprocess.run(  # noqa: S603  (the program under test)
        argv, env=env, capture_output=True, text=True, check=False, timeout=seconds
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    return done.returncode, lines


class Begun:
    """A command that runs while the test does something; it is ended with the block, whatever happened.

    Args: those of `orchestrate`, and
        silences: their seconds, as in `doomed.py`.
    """

    def __init__(
        self,
        lab: Described,
        folder: Path,
        command: str,
        *words: str,
        playbook: Mapping[str, Any] | None = None,
        silences: Mapping[str, float] | None = None,
    ) -> None:
        told = {} if silences is None else {"silences": silences}
        argv, env = _command_line(lab, folder, command, words, playbook=playbook, told=told)
        self._out, self._err = folder / f"{command}.jsonl", folder / f"{command}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(argv, env=env, stdout=out, stderr=err)  # noqa: S603  (as above)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        """What it has said beside the lines, such as warnings."""
        return self._err.read_text(encoding="utf-8")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def lines(self) -> list[dict[str, Any]]:
        """What it has said so far, but for a line that is being written."""
        whole, _, _ = self._out.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 600.0) -> dict[str, Any]:
        """The first such line; fails when the command ends without one, or takes too long."""
        limit = time.monotonic() + seconds
        while True:
            ended = self._process.poll() is not None
            found = next(filter(wanted, self.lines()), None)
            if found is not None:
                return found
            assert not ended, f"ended without it: {self.lines()[-1:]} {self.said}"
            assert time.monotonic() < limit, f"not within {seconds:.0f} s: {self.lines()[-3:]}"
            time.sleep(0.05)

    def end(self, seconds: float = 1500.0) -> tuple[int, list[dict[str, Any]]]:
        """Wait for its end; the exit code and every JSON line."""
        code = self._process.wait(seconds)
        assert self.lines(), self.said
        return code, self.lines()


def _command_line(
    lab: Described,
    folder: Path,
    command: str,
    words: Sequence[str],
    *,
    playbook: Mapping[str, Any] | None,
    told: Mapping[str, Any],
) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment; the files that they name are written. `told`: as in `doomed.py`."""
    book, file = folder / "book.yml", folder / "lab.yml"
    content = {
        "kind": "elasticsearch",
        "settle": {"consecutive": 2},
        "deadlines": {"hold": "15s"},
        "configuration_management": "ignore",  # as in `killing.PLAYBOOK`
    }
    book.write_text(json.dumps({**content, **(playbook or {})}), encoding="utf-8")
    file.write_text(json.dumps({**lab.cluster_document(), "playbook": str(book)}), encoding="utf-8")
    program = (sys.executable, str(DOOMED)) if told else PROGRAM
    agreed = () if command in READING else ("--yes",)
    argv = [*program, *command.split(), "--cluster", str(file), *agreed, "--output", "json", *words]
    env = {
        **os.environ,
        "HOME": str(folder),
        "ORCHESTRATE_STATE": f"sqlite:///{folder}/state.db",
        **({doomed.VARIABLE: json.dumps(told)} if told else {}),
    }
    return argv, env


def held_by(lines: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Predicate and subject of every hold in a run's output."""
    return {(line["predicate"], line["subject"]) for line in lines if line["event"] == "hold"}


def events(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The events of one name."""
    return [line for line in lines if line["event"] == name]
