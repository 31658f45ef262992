"""The starts of one task instance, each in a folder, so that a retry finds what runs already.

One lock a task instance: it is held from the look until the new process has written down who it is, by the
starter and then by the process itself, so that a starter killed in between leaves no gap.
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
from orchestrator.runtime.identity import host_name

KEPT: Final = 10
"""Starts of one task instance whose output is kept."""
LOCK_SECONDS: Final = 60.0
"""For another starter of the same task instance, or the process itself, to write down who it is."""


class AttemptError(Exception):
    """A start that cannot be made or cannot be seen: what, where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is to be started.

    Attributes:
        program: `orchestrate`, with what stands before it (`sudo -n …`).
        words: its arguments.
        state: of those arguments, for `stop`.
        environment: over the process's own; written nowhere.
        directory: the working directory; None = the worker's.
    """

    program: Sequence[str]
    words: Sequence[str]
    state: str | None = None
    environment: Mapping[str, str] | None = None
    directory: str | None = None


def token(dag: str, task: str, run: str, map_index: int = -1) -> str:
    """A folder name for a task instance: readable, and each has its own."""
    parts = (dag, task, run, str(map_index))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{dag}.{task}").strip(".-")[:80]
    return f"{readable}-{digest}"


def attempts(folder: Path) -> list[Attempt]:
    """The starts of a task instance, the oldest first."""
    if not folder.is_dir():
        return []
    numbers = sorted(int(each.name) for each in folder.iterdir() if each.name.isdecimal())
    return [Attempt(folder / str(number)) for number in numbers]


def find_or_start(folder: Path, start: Start, *, kept: int = KEPT) -> tuple[Attempt, bool]:
    """The start that runs, or has ended without a task being told; else a new one. And whether it is new.

    Args:
        folder: of the task instance.
        start: what to start if nothing is found.
        kept: starts of which the output is kept, the new one among them.

    Raises:
        AttemptError: a start runs on another machine, or a new one cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder) as lock:
            earlier = attempts(folder)
            if earlier and _stands(earlier[-1]):
                return earlier[-1], False
            for old in earlier[: 1 - kept]:
                shutil.rmtree(old.folder)
            number = int(earlier[-1].folder.name) + 1 if earlier else 1
            attempt = Attempt(folder / str(number))
            _start(attempt, start, lock)
        with _locked(folder):  # free again once the process has written down who it is, or has failed to
            return attempt, True
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AttemptError(f"orchestrate cannot be started from {folder}: {error}") from error


def _stands(last: Attempt) -> bool:
    """Whether there is nothing to start: it runs, or it came to an end that no task has been told.

    The latter is so when the worker died meanwhile. An end without a summary is no end to be told.
    """
    match last.condition():
        case Condition.RUNNING:
            return True
        case Condition.ELSEWHERE:
            raise AttemptError(
                f"this task has started orchestrate on {last.host} ({last.folder}), and from {host_name()} "
                "it cannot be checked whether it still runs: use a queue that only one machine serves"
            )
        case Condition.GONE:
            told = last.marked(Mark.REPORTED) or last.marked(Mark.STOP_ASKED)
            return not told and last.ending().summary is not None


def _start(attempt: Attempt, start: Start, lock: int) -> None:
    attempt.folder.mkdir(mode=0o700)
    begun = {"program": list(start.program), "words": list(start.words)}
    place = {"state": start.state, "directory": start.directory}
    attempt.command.write_text(json.dumps({**begun, **place}) + "\n", encoding="utf-8")
    launcher = [sys.executable, "-P", "-m", "orchestrator.airflow.launch", str(attempt.process), str(lock)]
    with attempt.output.open("wb") as output, attempt.errors.open("wb") as errors:
        subprocess.run(  # noqa: S603  (the program that the DAG names; the launcher leaves it behind)
            [*launcher, *start.program, *start.words],
            env={**os.environ, **(start.environment or {})},
            cwd=start.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            pass_fds=(lock,),
            check=False,  # what went wrong stands in its errors, as with the program itself
            timeout=LOCK_SECONDS,
        )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the task instance's lock; a child that inherits the descriptor goes on holding it."""
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
                time.sleep(0.02)  # a lock with a limit offers nothing to wait for
        yield descriptor
    finally:
        os.close(descriptor)  # not unlocked: that would take it from the child too
