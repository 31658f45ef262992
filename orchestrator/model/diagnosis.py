"""Data of a diagnosis: signs read from a host, syndromes, and findings with their numbers.

Signs are rates and states. They come from two readings of a live host some seconds apart, or from the output
of a tool (`sar`, `collectl`, `perf top`). A part that was not recorded is `NOT_READ`. A part that could not
be read gives the reason. Neither counts as a healthy value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import NOT_READ, Reading, Seconds, Unknown


class Syndrome(Enum):
    """What a diagnosis looks for. The values are public names."""

    NUMAD_MOVES = "numad_page_moves"
    DIRECT_RECLAIM = "direct_reclaim"
    THP_COMPACTION = "thp_compaction"
    FRAGMENTATION = "fragmented_memory"
    IO_SCHEDULER = "wrong_io_scheduler"
    BUSY_WAIT = "busy_waiting_schedulers"
    OUTLIER = "far_off_its_peers"


class Confidence(Enum):
    """How sure a finding is. Its `why` gives the reasons."""

    LOW = "low"
    LIKELY = "likely"
    CERTAIN = "certain"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """How all CPUs together spent their time."""

    system: float  # share of all CPU time spent in the kernel, interrupts included; 0 to 1
    busy: float  # share that was not idle and not waiting for a disk
    peak_system: float  # the highest of several samples; equal to `system` if there was only one


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """The kernel's search for memory to free, in pages a second."""

    # by processes that needed memory and had to wait while they searched for it themselves
    scanned_direct: float
    scanned_kswapd: float  # by the kernel's own thread, in the background
    stolen_direct: float | None  # freed by such processes; None where the source does not separate them
    stolen: float  # freed by both
    peak_direct: float  # the highest `scanned_direct` of several samples; equal to it if there was only one

    @property
    def yield_share(self) -> float | None:
        """Share of the pages scanned directly that were freed; None when none was scanned."""
        if self.stolen_direct is not None:
            return self.stolen_direct / self.scanned_direct if self.scanned_direct else None
        scanned = self.scanned_direct + self.scanned_kswapd
        return self.stolen / scanned if scanned else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Compaction: the kernel moves pages to form large free blocks. In events a second."""

    stalls: float  # a process waited while its own allocation compacted memory
    failures: float  # stalls that ended without a block
    huge_faults: float  # page faults served with a huge page
    huge_fallbacks: float  # page faults that needed a huge page and got small pages


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeZone:
    """Free memory of one zone of one NUMA node."""

    numa_node: int
    zone: str
    blocks: tuple[int, ...]  # number of free blocks of 1, 2, 4, … pages

    def pages(self, from_order: int = 0) -> int:
        """Free pages in blocks of at least `2 ** from_order` pages."""
        return sum(count << order for order, count in enumerate(self.blocks) if order >= from_order)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMove:
    """Pages of a process that numad moved to other NUMA nodes."""

    pid: int
    command: str  # the process's name; empty where the log's beginning is missing
    to_nodes: str
    seconds: Seconds  # how long it took
    age: Seconds | None = None  # seconds ago; None where it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Numad:
    """What numad did, and whether it still runs."""

    moves: tuple[PageMove, ...]
    running: bool | None = None  # None where it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """A whole disk and its use."""

    name: str
    scheduler: str  # the active one; empty where the device has no choice of schedulers
    offered: tuple[str, ...]
    # the kernel's report, which is wrong for many virtual disks; None without a report
    rotational: bool | None
    busy: float  # share of the time in which it had requests
    kib: float  # KiB a second, read and written
    # whether the store's data is on it; None where the data paths are not known
    carries_data: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    """One thread over the sample."""

    name: str
    cpu: float  # share of one CPU
    sleeps: float  # times a second that it released the CPU voluntarily


@dataclass(frozen=True, slots=True, kw_only=True)
class ErlangUse:
    """An Erlang VM."""

    pid: int
    # its scheduler threads, without the dirty ones, which do not busy-wait by default
    schedulers: tuple[ThreadUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Everything that was read of one host for a diagnosis."""

    node: NodeName
    machine: str = ""  # equal for nodes on one machine; empty where it is not known
    page: int = 4096  # bytes of a memory page
    seconds: Reading[Seconds] = NOT_READ  # length of the sample
    cpus: Reading[int] = NOT_READ
    numa_nodes: Reading[int] = NOT_READ
    memory: Reading[int] = NOT_READ  # bytes
    load: Reading[float] = NOT_READ  # processes running or waiting, averaged over a minute
    cpu: Reading[CpuUse] = NOT_READ
    switches: Reading[float] = NOT_READ  # context switches a second
    reclaim: Reading[Reclaim] = NOT_READ
    compaction: Reading[Compaction] = NOT_READ
    zones: Reading[tuple[FreeZone, ...]] = NOT_READ
    numad: Reading[Numad] = NOT_READ
    disks: Reading[tuple[DiskUse, ...]] = NOT_READ
    erlang: Reading[tuple[ErlangUse, ...]] = NOT_READ
    # share of all samples of a profile by function, as `perf top` shows it
    functions: Reading[Mapping[str, float]] = NOT_READ
    # the active value of `transparent_hugepage/enabled`; empty where it does not exist
    huge_pages: Reading[str] = NOT_READ
    huge_pages_defrag: Reading[str] = NOT_READ  # the same for `…/defrag`
    zone_reclaim_mode: Reading[int] = NOT_READ
    min_free: Reading[int] = NOT_READ  # `vm.min_free_kbytes` in bytes
    recovery: Reading[Seconds] = NOT_READ  # time from stop to recovered in the node's last restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One measured value."""

    name: str
    value: float
    unit: str  # `pages/s`, `%`, `s`, …; empty for a plain count
    usual: str  # what a healthy host shows, for comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A syndrome that was recognised."""

    syndrome: Syndrome
    nodes: tuple[NodeName, ...]  # more than one when they share the machine
    confidence: Confidence
    why: str  # the reason for the confidence
    numbers: tuple[Number, ...]  # what was measured; never empty
    advice: str  # what to do, for people
    tunable: str | None  # the tunable that applies the advice; None if there is none
    # what on the host (`sda`, `pid 812`); empty for the host itself. One host may have several.
    subject: str = ""

    def __post_init__(self) -> None:
        """Refuse a finding without evidence."""
        if not self.numbers or not self.nodes:
            raise ValueError(f"a finding of {self.syndrome.value} without a number or a node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexamined:
    """A syndrome that could not be checked on a host, and why."""

    node: NodeName
    syndrome: Syndrome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The result of a diagnosis."""

    findings: tuple[Finding, ...]  # the surest first
    examined: tuple[NodeName, ...]  # nodes whose hosts were read
    unread: Mapping[NodeName, Unknown]  # by node, why its host could not be read
    unexamined: tuple[Unexamined, ...]  # what could not be checked on a host that was read
    # syndromes for which a recording has no data; always empty for a live host
    unrecorded: tuple[Unexamined, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every host was read and every syndrome was checked on it."""
        return not self.unread and not self.unexamined
