"""The scheduler of the disks behind the data.

The names depend on the kernel: single-queue kernels offer `noop deadline cfq`, multi-queue ones `none
mq-deadline kyber bfq`. Writing a name that is not offered fails (EINVAL), so the name with the same meaning
is chosen from the disk's own list. A name without a counterpart is reported and not tried.
"""

from __future__ import annotations

from typing import Final

from orchestrator.hosts.tunables.choices import parse
from orchestrator.hosts.tunables.devices import Aim, QueueTunable
from orchestrator.model.host_facts import LEAF, MULTIPATH

WORDS: Final = ("none", "noop", "deadline", "mq-deadline", "cfq", "bfq", "kyber")
_COUNTERPART: Final = {
    "none": "noop",
    "noop": "none",
    "deadline": "mq-deadline",
    "mq-deadline": "deadline",
}


def aim(text: str, wanted: str) -> Aim:
    """Choose from what the disk offers."""
    choices = parse(text)
    if not choices.bracketed:
        return Aim(found="", target=None, why="it has no scheduler to set", settable=False)
    found = choices.current or ""
    target = chosen(wanted, choices.offered)
    if target is None:
        return Aim(found=found, target=None, why=f"{wanted} is not offered: {text.strip()}")
    return Aim(found=found, target=target)


def chosen(wanted: str, offered: tuple[str, ...]) -> str | None:
    """The wanted scheduler, or the one with the same meaning; None if the disk offers neither."""
    candidates = (wanted, _COUNTERPART.get(wanted, wanted))
    return next((name for name in candidates if name in offered), None)


def _faulty(word: str) -> str | None:
    return None if word in WORDS else f"must be one of {', '.join(WORDS)}"


IO_SCHEDULER: Final = QueueTunable(
    name="io_scheduler",
    attribute="queue/scheduler",
    aim=aim,
    faulty=_faulty,
    roles=(LEAF, MULTIPATH),
)
