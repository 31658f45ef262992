"""One start of the program, by its folder: its process, its output, and a way to stop it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from orchestrator.airflow.command import stop, with_password
from orchestrator.airflow.output import Ending, ending_of, run_of
from orchestrator.next_command import passwords_in
from orchestrator.redact import Redactor
from orchestrator.runtime.identity import parse_identity, provably_alive, provably_gone

POLL_SECONDS: Final = 0.5
"""Interval between checks of a process that cannot be waited for."""
STOP_SECONDS: Final = 60.0
"""Time limit for `orchestrate stop` to store its request. The stand-down itself may take longer."""
_OF_ONE_MACHINE: Final = frozenset(
    {
        *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay"),
        *("ramfs", "reiserfs", "tmpfs", "xfs", "zfs"),
    }
)
"""File systems that one kernel mounts at a time: it knows each lock, and what ran before its boot is gone."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OPEN_FILES: Final = Path("/proc/self/fdinfo")


class Condition(Enum):
    """Whether the process of a start runs."""

    RUNNING = "running"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """Its state is not known here: its folder is shared with another machine, or cannot be read."""


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
    """One start."""

    # holds `command.json`, `process`, `output.jsonl`, `errors.txt` and marks; `state`, closed to other
    # accounts, if the state's URL has a password
    folder: Path

    @property
    def output(self) -> Path:
        """Its standard output: JSON lines. The program holds the lock of this file to its end."""
        return self.folder / "output.jsonl"

    @property
    def errors(self) -> Path:
        """Its standard error."""
        return self.folder / "errors.txt"

    @property
    def process(self) -> Path:
        """File that it writes itself: its identity, the name of its machine, and the inode of its output."""
        return self.folder / "process"

    @property
    def command(self) -> Path:
        """File with the started command, as JSON; without passwords."""
        return self.folder / "command.json"

    @property
    def state(self) -> Path:
        """File with the state's URL, for `stop`; only if it has a password, until the end is reported."""
        return self.folder / "state"

    @property
    def host(self) -> str:
        """The machine that it was started on; empty if its process never started."""
        return _line(self.process, 1)

    def condition(self) -> Condition:
        """Whether it runs, as far as can be determined here.

        It runs as long as the lock of its output is held: behind a prefix that was killed (`sudo`), too, as
        the program gives its output to no other. If the lock is free, it has ended: in its own PID namespace,
        and on a file system whose locks are all known here, as after a reboot and from another container.
        Names of machines decide nothing: containers on the host's network share one.
        """
        try:
            if not self.folder.is_dir():
                return Condition.ELSEWHERE
            lines = self.process.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return Condition.GONE  # it never started: its identity is written first
        except OSError:
            return Condition.ELSEWHERE
        identity, _, inode, *_ = (*lines, "", "", "")
        if provably_alive(identity):
            return Condition.RUNNING
        found = self._by_lock(inode)
        return Condition.GONE if found is Condition.ELSEWHERE and provably_gone(identity) else found

    def _by_lock(self, inode: str) -> Condition:
        """The condition by the lock of its output, if that still has the inode of the file that it locked."""
        try:
            with self.output.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                is_locked_file = str(os.fstat(stream.fileno()).st_ino) == inode
                known = is_locked_file and _file_system(stream.fileno()) in _OF_ONE_MACHINE
        except BlockingIOError:
            return Condition.RUNNING
        except OSError:
            return Condition.ELSEWHERE
        return Condition.GONE if known else Condition.ELSEWHERE

    def wait(self, seconds: float) -> None:
        """Wait until its process has ended, at most this many seconds.

        It is no child of this process, so this waits on a Linux process descriptor. Where there is none, its
        condition is polled. Where the end of the process cannot be detected, the full time is waited.
        """
        until = time.monotonic() + seconds
        identity = self._pid_here()
        if identity is not None:
            with contextlib.suppress(OSError, AttributeError):  # gone already; or no Linux, or an old one
                descriptor = os.pidfd_open(identity)
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
        redact = self._redact()
        return ending_of(redact.without_known(_text(self.output)), redact(_text(self.errors)))

    def new_lines(self, offset: int) -> tuple[list[str], int]:
        """Whole lines of output from a byte offset on, and the offset after them."""
        try:
            with self.output.open("rb") as stream:
                stream.seek(offset)
                data = stream.read()
        except OSError:
            return [], offset  # not on this machine, as `condition` reports
        whole = data[: data.rfind(b"\n") + 1]
        text = self._redact().without_known(whole.decode("utf-8", "replace"))
        return text.splitlines(), offset + len(whole)

    def mark(self, mark: Mark) -> bool:
        """Set a mark; whether this call was the first to set it."""
        try:
            (self.folder / mark.value).touch(exist_ok=False)
        except FileExistsError:
            return False
        if mark is Mark.REPORTED:
            self.state.unlink(missing_ok=True)
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
        pid = self._pid_here()
        if pid is None:
            return f"{refusal}; no signal reaches it: it runs in another container, or its prefix has ended"
        if not self.mark(Mark.SIGNALLED):
            return f"{refusal}; it was sent SIGTERM before"
        return f"{refusal}; {_signal(pid)}"

    def _request_stop(self, run: str, environment: Mapping[str, str] | None) -> str | None:
        """None when the request was stored; otherwise the reason."""
        try:
            begun = json.loads(_text(self.command))
            done = subprocess.run(  # noqa: S603  (the program that the DAG names)
                [*begun["program"], *stop(run, begun["state"])],
                env={**os.environ, **(environment or {}), **with_password(_text(self.state))},
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

    def _redact(self) -> Redactor:
        return Redactor(passwords_in(_text(self.state)))

    def _pid_here(self) -> int | None:
        """Its pid; None outside its PID namespace, where the number is that of another process."""
        text = _line(self.process, 0)
        identity = parse_identity(text)
        return identity.pid if identity is not None and provably_alive(text) else None


def _signal(pid: int) -> str:
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        return f"SIGTERM to process {pid} failed: {error.strerror}"
    return f"sent SIGTERM to process {pid}"


def _file_system(descriptor: int) -> str:
    """The type of the file system of an open file; empty if it is not known.

    By the number of its mount. `st_dev` does not find it: btrfs has one number for each subvolume. Nor does a
    path: mounts cover each other, and its bytes may be of any encoding.
    """
    found = re.search(r"^mnt_id:\s*(\d+)$", _text(_OPEN_FILES / str(descriptor)), re.MULTILINE)
    for line in _text(_MOUNTS).split("\n"):
        mount, _, of_system = line.partition(" - ")
        if found is not None and mount.split(" ")[0] == found[1]:
            return of_system.partition(" ")[0]
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""  # not written yet; the same as an empty file


def _line(path: Path, number: int) -> str:
    lines = _text(path).splitlines()
    return lines[number] if len(lines) > number else ""
