"""What the counters of hosts show: a finding for each known syndrome, and the missing data. Pure.

Facts in, findings out: each threshold has its source beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import (
    Compaction,
    Confidence,
    CpuUse,
    Diagnosis,
    DiskUse,
    ErlangUse,
    Finding,
    FreeZone,
    Number,
    PageMove,
    Reclaim,
    Signs,
    Syndrome,
    Unexamined,
)
from orchestrator.model.reading import NOT_READ, Reading, Seconds, Unknown

# numad moved the pages of a running store between NUMA nodes: the store pauses during the move.

NUMAD: Final = "numad"
SLOW_MOVE: Final[Seconds] = 1.0
"""A shorter move is not visible among a JVM's own pauses; the recorded moves of the incident took 4.8 and
177 s."""
RECENT: Final[Seconds] = 7 * 86400.0
"""Older moves do not explain a problem today: a process may live longer, but its pages have settled."""
STORES: Final = frozenset({"java", "beam.smp", "beam"})
"""The names of the stores' processes; moves of any other process affect that process first."""


def numad_moves(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host, with the longest move."""
    if isinstance(signs.numad, Unknown):
        return signs.numad
    moves = [move for move in signs.numad.moves if move.seconds >= SLOW_MOVE and _is_recent(move)]
    if not moves:
        return ()
    longest = max(moves, key=lambda move: move.seconds)
    of_stores = [move for move in moves if move.command in STORES]
    who = f"{longest.command or 'process'} {longest.pid}"
    if of_stores:
        confidence, why = Confidence.CERTAIN, "numad's own log names the process and the seconds"
    else:
        confidence, why = Confidence.LIKELY, "the log names no process of a store among those moved"
    running = {
        True: "numad runs still",
        False: "numad does not run any more",
        None: "whether numad runs is not known",
    }
    return (
        Finding(
            syndrome=Syndrome.NUMAD_MOVES,
            nodes=(signs.node,),
            confidence=confidence,
            why=f"{why}; {running[signs.numad.running]}",
            numbers=(
                Number(name="page moves", value=len(moves), unit="", usual="none"),
                Number(
                    name=f"longest move ({who} to NUMA node {longest.to_nodes})",
                    value=longest.seconds,
                    unit="s",
                    usual=f"below {SLOW_MOVE:g}",
                ),
                Number(name="all moves", value=sum(move.seconds for move in moves), unit="s", usual="none"),
            ),
            advice="Stop numad and keep it from starting, while the node is down: stopping it does not bring"
            " back the pages that it has moved.",
            tunable=NUMAD,
        ),
    )


def _is_recent(move: PageMove) -> bool:
    """A move without a date, as in a record, counts."""
    return move.age is None or move.age <= RECENT


# Direct reclaim that finds nothing: processes wait and scan millions of pages to free a few.
# With `vm.zone_reclaim_mode` on, the kernel scans the local NUMA node before it uses free memory of another
# node.

ZONE_RECLAIM: Final = "vm.zone_reclaim_mode"
MIN_FREE: Final = "vm.min_free_kbytes"
SCANNED: Final = 10_000.0
"""Pages a second, 40 MB of 4 kB pages. The incident's quietest minute had 35 276, its mean was 1.2 million;
with zone reclaim off there were none."""
LOW_YIELD: Final = 0.30
"""sar(1) on %vmeff: below 30 % the virtual memory is in difficulty. Healthy minutes of the record: 91 %."""
NO_YIELD: Final = 0.01
"""The incident's minutes had 0.00 to 0.18 %: pages are scanned, and none is freed."""
_BACKGROUND: Final = 0.01
"""Of the direct scans. If kswapd scans less than that, memory as a whole was not short (kswapd is woken
first), so the cause can only be reclaim of a single zone."""


def direct_reclaim(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host."""
    seen = signs.reclaim
    if isinstance(seen, Unknown):
        return seen
    share = seen.yield_share
    if seen.scanned_direct < SCANNED or share is None or share >= LOW_YIELD:
        return ()
    advice, tunable = _remedy(signs, seen)
    hopeless = share < NO_YIELD
    numbers = [
        Number(
            name="scanned by direct reclaim",
            value=seen.scanned_direct,
            unit="pages/s",
            usual=f"below {SCANNED:.0f}",
        ),
        Number(name="of these freed", value=100 * share, unit="%", usual=f"{100 * LOW_YIELD:.0f} and more"),
        Number(
            name="scanned by kswapd", value=seen.scanned_kswapd, unit="pages/s", usual="more than directly"
        ),
    ]
    if seen.peak_direct > seen.scanned_direct:
        numbers.append(
            Number(name="at its worst", value=seen.peak_direct, unit="pages/s", usual=f"below {SCANNED:.0f}")
        )
    if not isinstance(signs.zone_reclaim_mode, Unknown):
        numbers.append(Number(name=ZONE_RECLAIM, value=signs.zone_reclaim_mode, unit="", usual="0"))
    return (
        Finding(
            syndrome=Syndrome.DIRECT_RECLAIM,
            nodes=(signs.node,),
            confidence=Confidence.CERTAIN if hopeless else Confidence.LIKELY,
            why="processes scan memory themselves and free almost nothing"
            if hopeless
            else f"few pages are freed, but too many to be certain (below {100 * NO_YIELD:g} %)",
            numbers=tuple(numbers),
            advice=advice,
            tunable=tunable,
        ),
    )


def _remedy(signs: Signs, seen: Reclaim) -> tuple[str, str | None]:
    """The remedy, depending on the known state of zone reclaim."""
    mode = signs.zone_reclaim_mode
    if not isinstance(mode, Unknown):
        if mode:
            return (
                "Set vm.zone_reclaim_mode to 0: memory of the other NUMA node is far cheaper.",
                ZONE_RECLAIM,
            )
        advice = (
            "Zone reclaim is off already, so memory is truly short: a smaller heap, fewer processes, or a"
            " larger vm.min_free_kbytes, so that kswapd begins before processes must."
        )
        return advice, MIN_FREE
    if seen.scanned_kswapd < _BACKGROUND * seen.scanned_direct:
        return (
            "Set vm.zone_reclaim_mode to 0: that kswapd rests while processes scan fits nothing else.",
            ZONE_RECLAIM,
        )
    return "Look at vm.zone_reclaim_mode first (it should be 0), then at what uses the memory.", None


# Transparent huge pages: page faults wait while memory is compacted for a block of 2 MB.

HUGE_PAGES: Final = "transparent_hugepage.enabled"
STALLS: Final = 10.0
"""Direct compactions a second. Each stops one thread for about a millisecond or more. A host without huge
pages has none, a host that uses them on request (madvise) a few a minute."""
RAISED_SYSTEM: Final = 0.10
"""Share of all CPU time. The incident's hosts had 3 to 7 % with huge pages off."""
HEAVY_SYSTEM: Final = 0.30
"""With huge pages on, those hosts had 36 to 98 %: without other evidence, only a clear distance counts."""
MOST_FAIL: Final = 0.5
"""If more than half of the compactions fail, all that work is wasted."""
PROFILE_COMPACTION: Final = 0.01
"""Share of a profile within compaction's own functions (the record: 2.5 %; they wait for a lock, so the lock
has the largest share)."""
PROFILE_LOCK: Final = 0.20
"""Share of a profile in spin locks (the record: 95.4 %)."""
_COMPACTING: Final = (
    "compact_zone",
    "compaction_alloc",
    "isolate_migratepages",
    "isolate_freepages",
    "migrate_pages",
    "get_pageblock_flags",
    "get_pfnblock_flags",
)
_NO_HUGE_PAGES: Final = frozenset({"never", ""})


def huge_page_compaction(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host, from the counters; without counters, from a profile or the system share."""
    if not isinstance(signs.huge_pages, Unknown) and signs.huge_pages in _NO_HUGE_PAGES:
        return ()
    profile = () if isinstance(signs.functions, Unknown) else _profile_shares(signs.functions)
    if isinstance(signs.compaction, Unknown):
        if signs.compaction is not NOT_READ:
            return signs.compaction
        return _from_record(signs, profile)
    if isinstance(signs.cpu, Unknown):
        return signs.cpu
    seen, cpu = signs.compaction, signs.cpu
    if seen.stalls < STALLS or cpu.system < RAISED_SYSTEM:
        return ()
    sure = cpu.system >= HEAVY_SYSTEM or seen.failures >= MOST_FAIL * seen.stalls or bool(profile)
    numbers = (*_compaction_counts(seen), *_system_share(signs, cpu), *profile)
    why = (
        "processes wait in compaction, and the kernel's share of the CPUs or the failures show what it costs"
        if sure
        else "processes are waiting in compaction; its cost is still moderate"
    )
    return (_compaction_finding(signs, Confidence.CERTAIN if sure else Confidence.LIKELY, why, numbers),)


def _from_record(signs: Signs, profile: tuple[Number, ...]) -> Reading[tuple[Finding, ...]]:
    """Without counters: a profile shows compaction itself; system CPU and the setting only support it."""
    cpu = signs.cpu
    if profile:
        numbers = (*profile, *(() if isinstance(cpu, Unknown) else _system_share(signs, cpu)))
        why = "the profile shows compaction's own functions, and the lock that they wait for"
        return (_compaction_finding(signs, Confidence.CERTAIN, why, numbers),)
    if isinstance(cpu, Unknown):
        return () if not isinstance(signs.functions, Unknown) else cpu
    if isinstance(signs.huge_pages, Unknown) or signs.huge_pages != "always" or cpu.system < HEAVY_SYSTEM:
        return ()
    why = (
        "huge pages are on and the kernel has most of the CPUs; a count of compactions would make it certain"
    )
    return (_compaction_finding(signs, Confidence.LIKELY, why, _system_share(signs, cpu)),)


def _compaction_finding(
    signs: Signs, confidence: Confidence, why: str, numbers: tuple[Number, ...]
) -> Finding:
    return Finding(
        syndrome=Syndrome.THP_COMPACTION,
        nodes=(signs.node,),
        confidence=confidence,
        why=why,
        numbers=numbers,
        advice="Set transparent_hugepage.enabled and transparent_hugepage.defrag to never, while the node"
        " is down (mappings that exist keep their pages). defrag alone already takes the stalls away.",
        tunable=HUGE_PAGES,
    )


def _compaction_counts(seen: Compaction) -> tuple[Number, ...]:
    return (
        Number(name="stalls in compaction", value=seen.stalls, unit="/s", usual=f"below {STALLS:g}"),
        Number(name="of these failed", value=seen.failures, unit="/s", usual="0"),
        Number(name="huge page faults that got small pages", value=seen.huge_fallbacks, unit="/s", usual="0"),
    )


def _system_share(signs: Signs, cpu: CpuUse) -> tuple[Number, ...]:
    numbers = [
        Number(
            name="system share of the CPUs",
            value=100 * cpu.system,
            unit="%",
            usual=f"below {100 * RAISED_SYSTEM:.0f}",
        )
    ]
    if cpu.peak_system > cpu.system:
        numbers.append(Number(name="at its worst", value=100 * cpu.peak_system, unit="%", usual=""))
    if not isinstance(signs.switches, Unknown):
        numbers.append(Number(name="context switches", value=signs.switches, unit="/s", usual=""))
    return tuple(numbers)


def _profile_shares(functions: Mapping[str, float]) -> tuple[Number, ...]:
    """The shares of a profile that show compaction; empty if they do not."""
    own = sum(share for name, share in functions.items() if name.lstrip("_").startswith(_COMPACTING))
    lock = sum(share for name, share in functions.items() if "spin_lock" in name)
    if own < PROFILE_COMPACTION or own + lock < PROFILE_LOCK:
        return ()
    return (
        Number(name="profile: in spin locks", value=100 * lock, unit="%", usual="below 5"),
        Number(name="profile: in compaction", value=100 * own, unit="%", usual="0"),
    )


# Fragmented free memory: gigabytes are free, but only in small blocks.

LARGE_ORDER: Final = 4
"""Blocks of 16 pages (64 kB of 4 kB pages) and more. The kernel itself calls an allocation above order 3
costly (PAGE_ALLOC_COSTLY_ORDER), and stops trying early."""
LARGE_SHARE: Final = 0.05
"""Of the free memory of a zone. The record of the incident has 2.0 and 2.1 %, the record after tuning 27 and
44 %, a freshly booted machine more than 90 %."""
ENOUGH_FREE: Final = 256 * 1024 * 1024
"""Bytes free in the zone. Below it the kernel works at its watermarks, where small blocks are normal. The
incident's zones had 2.2 and 2.4 GB free."""
_SMALL_ZONES: Final = frozenset({"DMA", "DMA32"})
"""The first 16 MB and 4 GB, kept for old devices; they count only if there is no other zone."""
_MB: Final = 1_000_000


def fragmentation(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host, over all its zones."""
    if isinstance(signs.zones, Unknown):
        return signs.zones
    crumbled = [
        zone
        for zone in _main_zones(signs.zones)
        if zone.pages() * signs.page >= ENOUGH_FREE and _large_share(zone) < LARGE_SHARE
    ]
    if not crumbled:
        return ()
    failing = _failing(signs.compaction)
    numbers: list[Number] = []
    for zone in crumbled:
        where = f"node {zone.numa_node} {zone.zone}"
        large = signs.page * 2**LARGE_ORDER // 1024
        numbers += [
            Number(name=f"free in {where}", value=zone.pages() * signs.page / _MB, unit="MB", usual=""),
            Number(
                name=f"of it in blocks of {large} kB and more",
                value=100 * _large_share(zone),
                unit="%",
                usual=f"{100 * LARGE_SHARE:.0f} and more",
            ),
        ]
    if not isinstance(signs.min_free, Unknown):
        numbers.append(Number(name=MIN_FREE, value=signs.min_free / 1024, unit="kB", usual=""))
    numbers += failing
    return (
        Finding(
            syndrome=Syndrome.FRAGMENTATION,
            nodes=(signs.node,),
            confidence=Confidence.CERTAIN if failing else Confidence.LIKELY,
            why="allocations of large blocks fail meanwhile"
            if failing
            else "memory is fragmented; no failing allocation of a large block was seen with it",
            numbers=tuple(numbers),
            advice="Raise vm.min_free_kbytes, so that the kernel keeps larger blocks together."
            " Fragmented memory is joined while the node is down (its heap is freed), or by writing"
            " 1 to /proc/sys/vm/compact_memory, which stalls the host for seconds.",
            tunable=MIN_FREE,
        ),
    )


def _main_zones(zones: Sequence[FreeZone]) -> Sequence[FreeZone]:
    main = [zone for zone in zones if zone.zone not in _SMALL_ZONES]
    return main or [zone for zone in zones if zone.zone != "DMA"]


def _large_share(zone: FreeZone) -> float:
    free = zone.pages()
    return zone.pages(from_order=LARGE_ORDER) / free if free else 1.0


def _failing(compaction: Reading[Compaction]) -> list[Number]:
    """The number of failures, if there were any."""
    if isinstance(compaction, Unknown) or compaction.failures <= 0:
        return []
    return [Number(name="failed compactions", value=compaction.failures, unit="/s", usual="0")]


# A block-layer scheduler for desktops orders the requests of the data disk.

IO_SCHEDULER: Final = "io_scheduler"
FAIRNESS: Final = frozenset({"cfq", "bfq", "anticipatory"})
"""They delay requests, or idle, for fairness between processes. A store is one process: with noop instead of
cfq on SSDs a node's restart took 96 s instead of 150."""
LIGHT: Final = ("none", "noop", "mq-deadline", "deadline")
AT_WORK: Final = 1024.0
"""KiB a second that identify a data disk if the data paths are unknown: a disk with only logs moves less."""
_VIRTUAL: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""Left out if the data paths are unknown: devices on top of other disks, or without a disk."""


def io_scheduler(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per disk."""
    if isinstance(signs.disks, Unknown):
        return signs.disks
    return tuple(
        _scheduler_finding(signs, disk)
        for disk in signs.disks
        if disk.scheduler in FAIRNESS and any(word in disk.offered for word in LIGHT) and _counts(disk)
    )


def _counts(disk: DiskUse) -> bool:
    if disk.carries_data is not None:
        return disk.carries_data
    return disk.kib >= AT_WORK and not disk.name.startswith(_VIRTUAL)


def _scheduler_finding(signs: Signs, disk: DiskUse) -> Finding:
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
        tunable=IO_SCHEDULER,
    )


# Erlang schedulers that spin while they wait for work, one on every CPU: no CPU is left for other work.

ERLANG_SCHEDULERS: Final = "erlang.schedulers"
HOT: Final = 0.75
"""Share of one CPU of a scheduler thread: 75 to 95 % in the incident."""
MOST_HOT: Final = 0.75
"""This share of the schedulers must be hot: a single hot scheduler is doing real work."""
SLEEPS: Final = 80.0
"""How often a second a hot scheduler releases its CPU by itself. A computing scheduler does so seldom (18 to
60 were measured with OTP 25), one that spins before each of its many sleeps more often (100 to 400)."""
IN_WAIT: Final = 0.10
"""Share of a profile in the scheduler's waiting: 10 to 30 % in the incident."""
_WAITING: Final = ("scheduler_wait", "sched_spin", "sched_prep_spin")
LEAVE_ONE_IN: Final = 6
"""One scheduler less for every six CPUs (12 to 10, 24 to 20) increased throughput by up to 25 %."""


def busy_wait(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per Erlang VM."""
    if isinstance(signs.erlang, Unknown):
        return signs.erlang
    if not signs.erlang:
        return ()
    if isinstance(signs.cpus, Unknown):
        return signs.cpus
    cpus = signs.cpus
    return tuple(finding for vm in signs.erlang if (finding := _busy_machine(signs, vm, cpus)) is not None)


def _busy_machine(signs: Signs, vm: ErlangUse, cpus: int) -> Finding | None:
    count = len(vm.schedulers)
    hot = [thread for thread in vm.schedulers if thread.cpu >= HOT]
    if count < cpus or len(hot) < MOST_HOT * count:
        return None
    sleeps = median(thread.sleeps for thread in hot)
    if sleeps < SLEEPS:
        return None
    wanted = cpus - cpus // LEAVE_ONE_IN
    waiting = _waiting(signs)
    numbers = [
        Number(name="schedulers", value=count, unit="", usual=f"{wanted} on {cpus} CPUs"),
        Number(name=f"of these at {100 * HOT:.0f} % of a CPU and more", value=len(hot), unit="", usual="few"),
        Number(
            name="a scheduler's CPU, median",
            value=100 * median(thread.cpu for thread in hot),
            unit="%",
            usual=f"below {100 * HOT:.0f}",
        ),
        Number(name="while it went to sleep", value=sleeps, unit="/s", usual=f"below {SLEEPS:g}"),
    ]
    if waiting >= IN_WAIT:
        numbers.append(Number(name="profile: waiting for work", value=100 * waiting, unit="%", usual="0"))
    fewer = (
        f"Give the VM {wanted} schedulers, total and online (+S {wanted}:{wanted}): it takes effect when the"
        " node is stopped and started."
    )
    return Finding(
        syndrome=Syndrome.BUSY_WAIT,
        nodes=(signs.node,),
        subject=f"beam {vm.pid}",
        confidence=Confidence.CERTAIN if waiting >= IN_WAIT else Confidence.LIKELY,
        why="the profile shows the schedulers waiting"
        if waiting >= IN_WAIT
        else "hot schedulers that sleep so often spin before each sleep; a profile would prove it",
        numbers=tuple(numbers),
        advice=fewer
        if wanted < count
        else "Too few CPUs to leave one free: have the schedulers not wait busily (+sbwt none).",
        tunable=ERLANG_SCHEDULERS if wanted < count else None,
    )


def _waiting(signs: Signs) -> float:
    if isinstance(signs.functions, Unknown):
        return 0.0
    return sum(share for name, share in signs.functions.items() if name.startswith(_WAITING))


# One host far off its peers: a quorum waits for its slowest member, and so does every search.
# Robust: a single bad host does not change the median or the median of the distances from it (MAD).

FEWEST_MACHINES: Final = 3
"""Machines; with only two, there is no majority to compare with."""
ENOUGH_MACHINES: Final = 5
"""Machines needed to trust the median."""
DEVIATIONS: Final = 5.0
"""Standard deviations (by MAD) from the median: among a hundred healthy hosts, none in years."""
_MAD_TO_SIGMA: Final = 1.4826
"""Of a normal distribution."""
TIMES: Final = 2.0
"""And at least this many times the median: a smaller difference does not slow a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value by which hosts are compared."""

    name: str
    unit: str
    floor: float  # a smaller distance from the median has no visible effect
    of: Callable[[Signs], Reading[float]]


def _system_percent(signs: Signs) -> Reading[float]:
    return signs.cpu if isinstance(signs.cpu, Unknown) else 100 * signs.cpu.system


def _switches(signs: Signs) -> Reading[float]:
    return _per_cpu(signs.switches, signs)


def _load(signs: Signs) -> Reading[float]:
    return _per_cpu(signs.load, signs)


def _per_cpu(value: Reading[float], signs: Signs) -> Reading[float]:
    if isinstance(value, Unknown):
        return value
    return signs.cpus if isinstance(signs.cpus, Unknown) else value / signs.cpus


def _recovery(signs: Signs) -> Reading[float]:
    return signs.recovery


MEASURES: Final = (
    Measure(name="system share of the CPUs", unit="%", floor=10.0, of=_system_percent),
    Measure(name="context switches a CPU", unit="/s", floor=2000.0, of=_switches),
    Measure(name="load a CPU", unit="", floor=1.0, of=_load),
    Measure(name="last stop to recovered", unit="s", floor=60.0, of=_recovery),
)


def outliers(fleet: Sequence[Signs]) -> tuple[Finding, ...]:
    """One finding per machine that is far above the others in a measure; never for one below them.

    Args:
        fleet: all hosts that were read; nodes on one machine count once.
    """
    machines: dict[str, Signs] = {}
    for signs in fleet:
        machines.setdefault(signs.machine or signs.node, signs)
    if len(machines) < FEWEST_MACHINES:
        return ()
    off: dict[str, list[Number]] = {}
    for measure in MEASURES:
        values = {
            machine: value
            for machine, signs in machines.items()
            if not isinstance(value := measure.of(signs), Unknown)
        }
        for machine, number in _off(measure, values).items():
            off.setdefault(machine, []).append(number)
    return tuple(
        _outlier_finding(machines[machine], numbers, len(machines)) for machine, numbers in off.items()
    )


def _off(measure: Measure, values: dict[str, float]) -> dict[str, Number]:
    """The machines far above the median of one measure."""
    if len(values) < FEWEST_MACHINES:
        return {}
    middle = median(values.values())
    spread = _MAD_TO_SIGMA * median(abs(value - middle) for value in values.values())
    return {
        machine: Number(
            name=measure.name,
            value=value,
            unit=measure.unit,
            usual=f"{middle:.3g} in the middle of {len(values)}",
        )
        for machine, value in values.items()
        if value - middle >= max(measure.floor, DEVIATIONS * spread) and value >= TIMES * middle
    }


def _outlier_finding(signs: Signs, numbers: list[Number], machines: int) -> Finding:
    if machines < ENOUGH_MACHINES:
        confidence, why = Confidence.LOW, f"{machines} machines are too few to show what is usual"
    elif len(numbers) > 1:
        confidence, why = Confidence.CERTAIN, f"off in {len(numbers)} ways that are measured apart"
    else:
        confidence, why = Confidence.LIKELY, "off in one way; it may have other work to do than its peers"
    return Finding(
        syndrome=Syndrome.OUTLIER,
        nodes=(signs.node,),
        confidence=confidence,
        why=why,
        numbers=tuple(numbers),
        advice="Compare it with a peer: hardware, other processes, shards, and `orchestrate tune check`. A"
        " finding of another kind on the same host is likely the cause.",
        tunable=None,
    )


# All of them

ON_ONE_HOST: Final[Mapping[Syndrome, Callable[[Signs], Reading[tuple[Finding, ...]]]]] = {
    Syndrome.NUMAD_MOVES: numad_moves,
    Syndrome.DIRECT_RECLAIM: direct_reclaim,
    Syndrome.THP_COMPACTION: huge_page_compaction,
    Syndrome.FRAGMENTATION: fragmentation,
    Syndrome.IO_SCHEDULER: io_scheduler,
    Syndrome.BUSY_WAIT: busy_wait,
}
_SUREST_FIRST: Final = (Confidence.CERTAIN, Confidence.LIKELY, Confidence.LOW)


def diagnose(hosts: Mapping[NodeName, Reading[Signs]]) -> Diagnosis:
    """Look for every known syndrome on every host.

    Args:
        hosts: the signs of each node's host; a host that could not be read is reported.
    """
    fleet = [signs for signs in hosts.values() if not isinstance(signs, Unknown)]
    findings: list[Finding] = []
    blind: list[Unexamined] = []
    for signs in fleet:
        for syndrome, find in ON_ONE_HOST.items():
            found = find(signs)
            if isinstance(found, Unknown):
                blind.append(Unexamined(node=signs.node, syndrome=syndrome, reason=found.reason))
            else:
                findings += found
    findings += outliers(fleet)
    order = list(Syndrome)
    return Diagnosis(
        findings=tuple(
            sorted(
                _together(findings, {signs.node: signs.machine for signs in fleet}),
                key=lambda one: (_SUREST_FIRST.index(one.confidence), order.index(one.syndrome), one.nodes),
            )
        ),
        examined=tuple(signs.node for signs in fleet),
        unread={node: signs for node, signs in hosts.items() if isinstance(signs, Unknown)},
        unexamined=tuple(one for one in blind if one.reason != NOT_READ.reason),
        unrecorded=tuple(one for one in blind if one.reason == NOT_READ.reason),
    )


def _together(findings: Sequence[Finding], machines: Mapping[NodeName, str]) -> Sequence[Finding]:
    """Merge findings of the same thing on one machine into one finding, with all nodes on that machine.

    The readings of two nodes on a machine are some milliseconds apart: the numbers are those of the first.
    """
    merged: dict[tuple[Syndrome, str, str], Finding] = {}
    for finding in findings:
        node = finding.nodes[0]
        key = (finding.syndrome, machines.get(node) or f"host of {node}", finding.subject)
        known = merged.get(key)
        merged[key] = finding if known is None else replace(known, nodes=(*known.nodes, *finding.nodes))
    return list(merged.values())
