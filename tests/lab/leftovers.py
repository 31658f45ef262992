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
from pathlib import Path

from tests.lab import nodectl
from tests.lab.errors import LabNodeError

STOP_SECONDS = 30.0
"""A lab node's data is discarded, so a node that ignores SIGTERM for this long is killed."""


def register(cache: Path, directory: Path) -> None:
    """Record that this process owns the lab in a folder."""
    entry = _entry(cache, directory)
    entry.parent.mkdir(parents=True, exist_ok=True)
    record = {"directory": str(directory), "owner": nodectl.identity(os.getpid())}
    entry.write_text(json.dumps(record), encoding="utf-8")


def unregister(cache: Path, directory: Path) -> None:
    """Remove a lab from the register."""
    _entry(cache, directory).unlink(missing_ok=True)


def sweep(cache: Path) -> tuple[Path, ...]:
    """End the nodes of labs whose owner is gone, remove their folders, and return these."""
    swept = []
    for entry in sorted((cache / "labs").glob("*.json")):
        try:
            record = json.loads(entry.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # the owner is writing or removing it now; the next sweep sees it
        if record["owner"] != nodectl.identity(record["owner"]["pid"]):
            swept.append(Path(record["directory"]))
            remove(swept[-1])
            entry.unlink(missing_ok=True)
    return tuple(swept)


def remove(directory: Path) -> None:
    """End every node of a lab and remove its folder."""
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
