"""The starts of one task instance, each in a folder, so that a retry finds a running start.

There is one lock per task instance. The starter holds it from the search until the new process has written
its identity, and the process holds it too. So a starter that is killed in between leaves no gap.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.airflow.attempt import Attempt, Condition, Mark
from orchestrator.airflow.command import with_password
from orchestrator.next_command import without_password
from orchestrator.runtime.identity import host_name

KEPT: Final = 10
"""Number of starts of one task instance whose output is kept."""
LOCK_SECONDS: Final = 60.0
"""Time limit for another starter, or the process itself, to write the process's identity."""


class AttemptError(Exception):
    """A start that cannot be made or read: what, where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The program to start.

    Raises:
        ValueError: there is a password in the program or its arguments.
    """

    program: Sequence[str]  # `orchestrate`, with any prefix (`sudo -n …`)
    words: Sequence[str]  # its arguments
    # the state URL; those arguments have it without its password, which the program gets by
    # `ORCHESTRATE_STATE`
    state: str | None = None
    environment: Mapping[str, str] | None = None  # added to the process's own; never written to a file
    directory: str | None = None  # the working directory; None = the worker's

    def __post_init__(self) -> None:
        """Refuse a password that the list of processes, a file and the task's log would have."""
        if any(without_password(word) != word for word in (*self.program, *self.words)):
            raise ValueError(
                "a URL with a password in the command line can be read by all: give it as `state`"
            )


def token(dag: str, task: str, run: str, map_index: int = -1) -> str:
    """A readable and unique folder name for a task instance."""
    parts = (dag, task, run, str(map_index))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{dag}.{task}").strip(".-")[:80]
    return f"{readable}-{digest}"


def attempts(folder: Path) -> list[Attempt]:
    """The starts of a task instance, oldest first."""
    if not folder.is_dir():
        return []
    numbers = sorted(int(each.name) for each in folder.iterdir() if each.name.isdecimal())
    return [Attempt(folder / str(number)) for number in numbers]


def find_or_start(folder: Path, start: Start, *, kept: int = KEPT) -> tuple[Attempt, bool]:
    """Return a start that runs or has an unreported end, else a new start; and whether it is new.

    Args:
        folder: the task instance's folder.
        start: what to start if nothing is found.
        kept: number of starts whose output is kept, including the new one.

    Raises:
        AttemptError: a start runs on another machine, or a new one cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder) as lock:
            earlier = attempts(folder)
            if earlier and _needs_no_start(earlier[-1]):
                return earlier[-1], False
            for old in earlier:
                old.state.unlink(missing_ok=True)
            for old in earlier[: max(0, len(earlier) + 1 - kept)]:
                shutil.rmtree(old.folder)
            number = int(earlier[-1].folder.name) + 1 if earlier else 1
            attempt = Attempt(folder / str(number))
            _start(attempt, start, lock)
        with _locked(folder):  # released once the process has written its identity, or has failed
            return attempt, True
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AttemptError(f"orchestrate cannot be started from {folder}: {error}") from error


def _needs_no_start(last: Attempt) -> bool:
    """Whether no new start is needed: it runs, or its end was not reported to a task yet.

    An end is unreported when the worker died meanwhile. An end without a summary cannot be reported.
    """
    if last.marked(Mark.REPORTED):
        return False  # it was seen to have ended, wherever that was
    match last.condition():
        case Condition.RUNNING:
            return True
        case Condition.ELSEWHERE:
            raise AttemptError(
                f"this task has started orchestrate on {last.host} ({last.folder}), and from {host_name()} "
                "it cannot be checked whether it still runs: use a queue that only one machine serves; if it "
                "has ended there, remove that folder"
            )
        case Condition.GONE:
            return not last.marked(Mark.STOP_ASKED) and last.ending().summary is not None


def _start(attempt: Attempt, start: Start, lock: int) -> None:
    attempt.folder.mkdir(mode=0o700)
    begun = {"program": list(start.program), "words": list(start.words)}
    state, secret = start.state or "", with_password(start.state or "")
    place = {"state": without_password(state), "directory": start.directory}
    attempt.command.write_text(json.dumps({**begun, **place}) + "\n", encoding="utf-8")
    if secret:
        with open(attempt.state, "x", opener=_closed_to_others, encoding="utf-8") as file:
            file.write(state)
    launcher = [sys.executable, "-P", "-m", "orchestrator.airflow.launch", str(attempt.process), str(lock)]
    with attempt.output.open("wb") as output, attempt.errors.open("wb") as errors:
        fcntl.flock(output, fcntl.LOCK_EX)  # kept by the program, as its standard output, to its end
        subprocess.run(  # noqa: S603  (the program that the DAG names; the launcher leaves it behind)
            [*launcher, *start.program, *start.words],
            env={**os.environ, **(start.environment or {}), **secret},
            cwd=start.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            pass_fds=(lock,),
            check=False,  # errors are in its error file, like those of the program
            timeout=LOCK_SECONDS,
        )


def _closed_to_others(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the task instance's lock. A child that inherits the descriptor keeps holding it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise AttemptError(f"{folder / 'lock'} is held: another try starts orchestrate") from None
                time.sleep(0.02)  # a lock with a time limit can only be polled
        yield descriptor
    finally:
        os.close(descriptor)  # not unlocked: that would release the child's lock too
