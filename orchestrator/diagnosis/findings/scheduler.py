"""A block-layer scheduler for desktops orders the requests of the data disk."""

from __future__ import annotations

from typing import Final

from orchestrator.model.diagnosis import Confidence, DiskUse, Finding, Number, Signs, Syndrome
from orchestrator.model.reading import Reading, Unknown

TUNABLE: Final = "io_scheduler"
FAIRNESS: Final = frozenset({"cfq", "bfq", "anticipatory"})
"""They delay requests, or idle, for fairness between processes. A store is one process: with noop instead of
cfq on SSDs a node's restart took 96 s instead of 150."""
LIGHT: Final = ("none", "noop", "mq-deadline", "deadline")
AT_WORK: Final = 1024.0
"""KiB a second that identify a data disk if the data paths are unknown: a disk with only logs moves less."""
_VIRTUAL: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""Left out if the data paths are unknown: devices on top of other disks, or without a disk."""


def find(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per disk."""
    if isinstance(signs.disks, Unknown):
        return signs.disks
    return tuple(
        _finding(signs, disk)
        for disk in signs.disks
        if disk.scheduler in FAIRNESS and any(word in disk.offered for word in LIGHT) and _counts(disk)
    )


def _counts(disk: DiskUse) -> bool:
    if disk.carries_data is not None:
        return disk.carries_data
    return disk.kib >= AT_WORK and not disk.name.startswith(_VIRTUAL)


def _finding(signs: Signs, disk: DiskUse) -> Finding:
    better = [word for word in LIGHT if word in disk.offered]
    if disk.carries_data is None:
        confidence, why = (
            Confidence.LOW,
            "it is the disk at work; set hosts.data to have the data's own disk judged",
        )
    elif disk.rotational is False:
        confidence, why = Confidence.CERTAIN, "an SSD behind the data; it gains nothing from waiting"
    else:
        confidence = Confidence.LIKELY
        why = "behind the data; the kernel takes it for rotational, which is wrong for many virtual disks"
    best = better[0] if disk.rotational is False else next((w for w in better if "deadline" in w), better[0])
    return Finding(
        syndrome=Syndrome.IO_SCHEDULER,
        nodes=(signs.node,),
        subject=disk.name,
        confidence=confidence,
        why=why,
        numbers=(
            Number(name=f"{disk.name} ({disk.scheduler}) at work", value=100 * disk.busy, unit="%", usual=""),
            Number(name="read and written", value=disk.kib, unit="KiB/s", usual=""),
        ),
        advice=f"Set the scheduler of {disk.name} to {best} instead of {disk.scheduler}.",
        tunable=TUNABLE,
    )
