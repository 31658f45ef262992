"""Cleans up after a crashed lab: its nodes outlive their owner on purpose, but not forever.

Every lab registers itself in the cache before it starts its first process. The next lab to start reads the
register. If a lab's owning process is provably gone (process id and start time, in this boot or an earlier
one), its nodes are ended and its folder is removed. A process is only signalled if its node's pid file, its
start time and the lab's folder in its command line agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.lab import nodectl
from tests.lab.errors import LabNodeError

STOP_SECONDS = 30.0
"""A lab node's data is discarded, so a node that ignores SIGTERM for this long is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that owns a lab."""

    pid: int
    start_time: int
    boot_id: str

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return self.boot_id == nodectl.boot_id() and nodectl.start_time(self.pid) == self.start_time


def register(cache: Path, directory: Path) -> None:
    """Record that this process owns the lab in a folder."""
    entry = _entry(cache, directory)
    entry.parent.mkdir(parents=True, exist_ok=True)
    me = os.getpid()
    started = nodectl.start_time(me)
    entry.write_text(
        json.dumps(
            {
                "directory": str(directory),
                "owner": {"pid": me, "start_time": started, "boot_id": nodectl.boot_id()},
            }
        ),
        encoding="utf-8",
    )


def unregister(cache: Path, directory: Path) -> None:
    """Remove a lab from the register."""
    _entry(cache, directory).unlink(missing_ok=True)


def sweep(cache: Path) -> tuple[Path, ...]:
    """End the nodes of labs whose owner is gone, and remove their folders.

    Returns:
        The removed folders.
    """
    swept = []
    for entry in sorted((cache / "labs").glob("*.json")):
        try:
            record = json.loads(entry.read_text(encoding="utf-8"))
            owner, directory = Owner(**record["owner"]), Path(record["directory"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the owner is writing or removing it now; the next sweep sees it
        if not owner.alive:
            remove(directory)
            entry.unlink(missing_ok=True)
            swept.append(directory)
    return tuple(swept)


def remove(directory: Path) -> None:
    """End every node of a lab and remove its folder.

    Raises:
        LabNodeError: a node still runs after SIGKILL; its folder is left.
    """
    nodes = [path.parent for path in directory.glob("*/launch.json")]
    for node in nodes:  # all get the signal before the first wait
        nodectl.send_and_wait(node, signal.SIGTERM, 0.0)
    for node in nodes:
        down = nodectl.send_and_wait(node, signal.SIGTERM, STOP_SECONDS)
        if not down and not nodectl.send_and_wait(node, signal.SIGKILL, STOP_SECONDS):
            raise LabNodeError(f"{node.name} of the lab in {directory} does not end, not even by SIGKILL")
    shutil.rmtree(directory, ignore_errors=True)


def _entry(cache: Path, directory: Path) -> Path:
    return cache / "labs" / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.json"
