"""One start of the program, by its folder: its process, its output, and a way to stop it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from orchestrator.airflow.command import stop
from orchestrator.airflow.output import Ending, ending_of, run_of
from orchestrator.runtime.identity import current_process, host_name, parse_identity, provably_gone

POLL_SECONDS: Final = 0.5
"""Interval between checks of a process that cannot be waited for."""
STOP_SECONDS: Final = 60.0
"""Time limit for `orchestrate stop` to store its request. The stand-down itself may take longer."""


class Condition(Enum):
    """Whether the process of a start runs."""

    RUNNING = "running"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """It was started on another machine, or its folder cannot be read here, so its state is not known."""


class Mark(Enum):
    """A step taken for a start; stored as an empty file of that name."""

    REPORTED = "reported"
    """Its end was reported to a task: the next try makes a new start."""
    STOP_ASKED = "stop-asked"
    """It was asked to stop: the next try waits for its end and then makes a new start."""
    SIGNALLED = "signalled"
    """SIGTERM was sent to it, which happens at most once."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start.

    Attributes:
        folder: holds `command.json`, `process`, `output.jsonl`, `errors.txt` and marks.
    """

    folder: Path

    @property
    def output(self) -> Path:
        """Its standard output: JSON lines."""
        return self.folder / "output.jsonl"

    @property
    def errors(self) -> Path:
        """Its standard error."""
        return self.folder / "errors.txt"

    @property
    def process(self) -> Path:
        """File with its identity and the name of its machine, one per line; it writes this file itself."""
        return self.folder / "process"

    @property
    def command(self) -> Path:
        """File with the started command, as JSON."""
        return self.folder / "command.json"

    @property
    def host(self) -> str:
        """The machine that it was started on; empty if its process never started."""
        return _line(self.process, 1)

    def condition(self) -> Condition:
        """Whether it runs, as far as this machine can determine."""
        if not self.folder.is_dir():
            return Condition.ELSEWHERE
        text = _line(self.process, 0)
        identity = parse_identity(text)
        if identity is None or provably_gone(text):
            return Condition.GONE  # without an identity it never started: the identity is written first
        here = current_process()
        if (identity.boot, identity.namespace) == (here.boot, here.namespace):
            return Condition.RUNNING
        # The process is gone from the machine of that name: the machine or the container was restarted.
        return Condition.GONE if self.host == host_name() else Condition.ELSEWHERE

    def wait(self, seconds: float) -> None:
        """Wait until its process has ended, at most this many seconds.

        It is no child of this process, so this waits on a Linux process descriptor. Where there is none, its
        condition is polled. Where the end of the process cannot be detected, the full time is waited.
        """
        until = time.monotonic() + seconds
        identity = parse_identity(_line(self.process, 0))
        if identity is not None:
            with contextlib.suppress(OSError, AttributeError):  # gone already; or no Linux, or an old one
                descriptor = os.pidfd_open(identity.pid)
                try:
                    ends = select.poll()
                    ends.register(descriptor, select.POLLIN)
                    ends.poll(seconds * 1000)
                finally:
                    os.close(descriptor)
        while self.condition() is Condition.RUNNING and (left := until - time.monotonic()) > 0.0:
            time.sleep(min(POLL_SECONDS, left))  # there is nothing to wait on here

    def ending(self) -> Ending:
        """How it ended; valid only once the process is gone."""
        return ending_of(_text(self.output), _text(self.errors))

    def new_lines(self, offset: int) -> tuple[list[str], int]:
        """Whole lines of output from a byte offset on, and the offset after them."""
        try:
            with self.output.open("rb") as stream:
                stream.seek(offset)
                data = stream.read()
        except OSError:
            return [], offset  # not on this machine, as `condition` reports
        whole = data[: data.rfind(b"\n") + 1]
        return whole.decode("utf-8", "replace").splitlines(), offset + len(whole)

    def mark(self, mark: Mark) -> bool:
        """Set a mark; whether this call was the first to set it."""
        try:
            (self.folder / mark.value).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def marked(self, mark: Mark) -> bool:
        """Whether the mark is set."""
        return (self.folder / mark.value).exists()

    def ask_to_stop(self, environment: Mapping[str, str] | None = None) -> str:
        """Make the run stand down, without waiting for it. Returns a description of the request.

        This uses `orchestrate stop RUN`. Before there is a run, or if that fails, it sends SIGTERM, which has
        the same effect. It never sends a second signal: that makes the program leave at once, with settings
        unrestored.
        """
        if self.condition() is not Condition.RUNNING:
            return "it does not run here"
        self.mark(Mark.STOP_ASKED)
        run = run_of(_text(self.output))
        refusal = self._request_stop(run, environment) if run else "no run has begun"
        if refusal is None:
            return f"asked run {run} to stand down"
        if not self.mark(Mark.SIGNALLED):
            return f"{refusal}; it was sent SIGTERM before"
        return f"{refusal}; {self._signal()}"

    def _request_stop(self, run: str, environment: Mapping[str, str] | None) -> str | None:
        """None when the request was stored; otherwise the reason."""
        try:
            begun = json.loads(_text(self.command))
            done = subprocess.run(  # noqa: S603  (the program that the DAG names)
                [*begun["program"], *stop(run, begun["state"])],
                env={**os.environ, **(environment or {})},
                cwd=begun["directory"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=STOP_SECONDS,
            )
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            return f"`orchestrate stop {run}` could not be run: {error}"
        return None if done.returncode == 0 else f"`orchestrate stop {run}` said: {done.stderr.strip()}"

    def _signal(self) -> str:
        identity = parse_identity(_line(self.process, 0))
        if identity is None:
            return "its process is not known"
        try:
            os.kill(identity.pid, signal.SIGTERM)
        except OSError as error:
            return f"SIGTERM to process {identity.pid} failed: {error.strerror}"
        return f"sent SIGTERM to process {identity.pid}"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""  # not written yet; the same as an empty file


def _line(path: Path, number: int) -> str:
    lines = _text(path).splitlines()
    return lines[number] if len(lines) > number else ""
