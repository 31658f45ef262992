"""Read-ahead and queue depth of the disks behind the data: numbers, written unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orchestrator.hosts.tunables.devices import Aim, QueueTunable
from orchestrator.hosts.tunables.io_scheduler import IO_SCHEDULER
from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.model.host_facts import TOP

_PAGE_KIB: Final = 4
_READ_AHEAD: Final = range(65537)
"""KiB; 64 MiB is more than any guide recommends."""
_REQUESTS: Final = range(4, 2049)
"""The kernel raises smaller numbers to 4 (BLKDEV_MIN_RQ) and refuses most larger ones."""


def _aim(text: str, wanted: str) -> Aim:
    found = text.strip()
    if not is_number(found):
        return Aim(found=found, target=None, why="its file holds no number")
    return Aim(found=found, target=wanted)


def _number(allowed: range, step: int = 1) -> Callable[[str], str | None]:
    def faulty(word: str) -> str | None:
        if is_number(word) and int(word) in allowed and int(word) % step == 0:
            return None
        told = f"must be a whole number from {allowed.start} to {allowed.stop - 1}"
        return told + (f", in steps of {step} (a page)" if step > 1 else "")

    return faulty


READ_AHEAD: Final = QueueTunable(
    name="read_ahead_kb",
    attribute="queue/read_ahead_kb",
    aim=_aim,
    faulty=_number(_READ_AHEAD, _PAGE_KIB),
    roles=(TOP,),
)
REQUESTS: Final = QueueTunable(
    name="nr_requests",
    attribute="queue/nr_requests",
    aim=_aim,
    faulty=_number(_REQUESTS),
    # A new scheduler begins with its own queue depth (blk_mq_init_sched, elevator_init_fn).
    reset_by=IO_SCHEDULER,
)
