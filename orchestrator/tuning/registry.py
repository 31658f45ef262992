"""All tunables, in the order in which they are made: one table for what is read, accepted and written.

The order settles conflicts. tuned and ktune come first, since stopping them restores the values that they
once found. numad comes before huge pages (its own option `-H` changes khugepaged's pace). A disk's scheduler
comes before the depth of its queue, which the kernel resets with the scheduler. Tunables that count only at
the node's next start come last. The script of the next boot comes before them all: from then on a boot is
right, at whatever change this program ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from orchestrator.model.host import LEAF, MULTIPATH, TOP
from orchestrator.model.tuning import TuningSetting
from orchestrator.tuning.kernel import HugePages, KernelParameter, QueueTunable
from orchestrator.tuning.services import ErlangSchedulers, JvmHugePages, ServiceLimit, ServiceOff
from orchestrator.tuning.tunable import Tunable

_SCHEDULER: Final = QueueTunable(
    name="io_scheduler",
    file="scheduler",
    allowed=("none", "noop", "deadline", "mq-deadline", "cfq", "bfq", "kyber"),
    roles=(LEAF, MULTIPATH),  # the kernel keeps the paths of a multipath device at `none`
)
_ALL: Final[tuple[Tunable, ...]] = (
    ServiceOff(name="tuned"),
    ServiceOff(name="ktune"),
    ServiceOff(name="numad"),
    HugePages(name="transparent_hugepage.enabled", file="enabled", allowed=("always", "madvise", "never")),
    HugePages(
        name="transparent_hugepage.defrag",
        file="defrag",
        allowed=("always", "defer", "defer+madvise", "madvise", "never"),
    ),
    HugePages(
        name="transparent_hugepage.khugepaged_defrag",
        file="khugepaged/defrag",
        allowed=("0", "1", "no", "yes"),
    ),
    _SCHEDULER,
    QueueTunable(
        name="nr_requests",
        file="nr_requests",
        # The kernel raises smaller numbers to 4 (BLKDEV_MIN_RQ) and refuses most larger ones.
        allowed=range(4, 2049),
        # A new scheduler begins with its own queue depth (blk_mq_init_sched, elevator_init_fn).
        reset_by=_SCHEDULER,
    ),
    QueueTunable(
        name="read_ahead_kb",
        file="read_ahead_kb",
        allowed=range(0, 65537, 4),  # KiB, in pages; 64 MiB is more than any guide recommends
        roles=(TOP,),  # the device under the file system decides what is read ahead
    ),
    KernelParameter(name="vm.zone_reclaim_mode", allowed=range(8)),
    KernelParameter(
        name="vm.swappiness",
        allowed=range(201),
        # On cgroup v1 a running service and its slice have values of their own.
        groups=(
            "/sys/fs/cgroup/memory/system.slice/memory.swappiness",
            "/sys/fs/cgroup/memory/system.slice/{unit}.service/memory.swappiness",
        ),
    ),
    KernelParameter(
        name="vm.min_free_kbytes",
        allowed=range(1, 2**31),
        at_least=True,
        # The kernel's own bound when it raises the value for huge pages. The documentation of
        # `min_free_kbytes` warns that a machine with too high a value is out of memory at once.
        most=0.05,
    ),
    KernelParameter(name="vm.max_map_count", allowed=range(1, 2**31), at_least=True),
    KernelParameter(name="net.ipv4.tcp_retries2", allowed=range(1, 256)),
    JvmHugePages(),
    ServiceLimit(name="limits.nofile", option="LimitNOFILE", item="nofile", kernel="Max open files"),
    ServiceLimit(
        name="limits.memlock",
        option="LimitMEMLOCK",
        item="memlock",
        kernel="Max locked memory",
        step=1024,
        endless=True,
    ),
    ErlangSchedulers(),
)
TUNABLES: Final[Mapping[str, Tunable]] = {one.name: one for one in _ALL}
"""By name, in order."""

RULES: Final[Mapping[str, Callable[[TuningSetting], str | None]]] = {
    name: tunable.valid for name, tunable in TUNABLES.items()
}
"""The valid values of each, in order, for the loader of profiles."""
