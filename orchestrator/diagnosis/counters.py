"""The kernel's counters and numad's log: parsing of /proc/vmstat, /proc/stat, buddyinfo and disks, and rates.

Counter names differ by kernel: RHEL 6 (2.6.32) counts `pgsteal_ZONE` for both kinds of reclaim and
`kswapd_steal` beside it, 3.4 to 4.7 count `pgsteal_direct_ZONE`, later ones `pgsteal_direct` alone. A counter
that decreased was reset, or the host was booted: then there is no rate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrator.model.diagnosis import Compaction, CpuUse, DiskUse, FreeZone, PageMove, Reclaim
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.tuning.values import parse

ZONES: Final = ("dma", "dma32", "normal", "high", "movable", "device")
"""Suffixes of counters by zone; `pgscan_direct_throttle`, for example, counts neither a zone nor pages."""
_BUDDY_LINE: Final = re.compile(
    r"^Node\s+(\d{1,20}),\s+zone\s+(\S+)\s+((?:\d{1,20}[ \t]+)*\d{1,20})\s*$", re.MULTILINE
)
_PLAIN_LINE: Final = re.compile(r"^([a-z][a-z0-9_]*)[ \t]+(\d{1,20})\s*$", re.MULTILINE)
_CPU_LINE: Final = re.compile(r"^cpu\s+((?:\d{1,20}[ \t]+)*\d{1,20})\s*$", re.MULTILINE)
_DIGITS: Final = 20
_CPU_FIELDS: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)); user already includes guest time."""
_IDLE, _IOWAIT = 3, 4
_SYSTEM: Final = (2, 5, 6)
_DISK_FIELDS: Final = 11
_SECTOR_KIB: Final = 0.5


class Went(Exception):  # noqa: N818  (a step back, said to the reader of the rates alone)
    """A counter decreased between the two readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """The relevant values of `/proc/stat`: ticks by kind, and more."""

    ticks: tuple[int, ...]
    switches: int  # context switches since the boot
    cpus: int | None  # online CPUs; None if they were not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCounters:
    """One whole disk at one moment."""

    name: str
    rotational: bool | None
    scheduler: str
    offered: tuple[str, ...]
    sectors: int  # of 512 bytes, read and written since the boot
    busy_ms: int  # milliseconds with work since the boot


def whole(text: str) -> int | None:
    """A whole number; None for any other text, or for more than 64 bits can hold."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def read_plain(text: str) -> Mapping[str, int]:
    """Lines of a name and a number, as in /proc/vmstat; other lines are skipped."""
    return {name: int(value) for name, value in _PLAIN_LINE.findall(text)}


def read_stat(text: str) -> Reading[CpuTimes]:
    """The relevant lines of /proc/stat."""
    cpu, plain = _CPU_LINE.search(text), read_plain(text)
    if cpu is None or "ctxt" not in plain:
        return Unknown(reason="/proc/stat holds no line of CPU time or context switches")
    ticks = tuple(int(field) for field in cpu[1].split()[:_CPU_FIELDS])
    if len(ticks) <= _IOWAIT:
        return Unknown(reason="/proc/stat has too few fields of CPU time")
    return CpuTimes(ticks=ticks, switches=plain["ctxt"], cpus=plain.get("cpus") or None)


def read_buddyinfo(text: str) -> Reading[tuple[FreeZone, ...]]:
    """Free blocks by NUMA node and zone."""
    zones = tuple(
        FreeZone(numa_node=int(node), zone=zone, blocks=tuple(int(count) for count in counts.split()))
        for node, zone, counts in _BUDDY_LINE.findall(text)
    )
    return zones or Unknown(reason="/proc/buddyinfo holds no zone")


def read_disks(text: str) -> Mapping[str, DiskCounters]:
    """Lines `name|rotational|scheduler|stat`, as in the script of a reading; incomplete lines are skipped."""
    found = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 4 or len(numbers := fields[3].split()) < _DISK_FIELDS:  # noqa: PLR2004  (parts)
            continue
        if any(whole(number) is None for number in numbers):
            continue
        choices = parse(fields[2])
        found[fields[0]] = DiskCounters(
            name=fields[0],
            rotational={"1": True, "0": False}.get(fields[1].strip()),
            scheduler=choices.current or "",
            offered=choices.offered,
            sectors=int(numbers[2]) + int(numbers[6]),
            busy_ms=int(numbers[9]),
        )
    return found


def cpu_use(before: CpuTimes, after: CpuTimes) -> Reading[CpuUse]:
    """Shares of the time between two readings.

    Idle and waiting time may decrease a little (proc_stat(5) on iowait): a decrease counts as zero. Any other
    decrease is a reset.
    """
    steps = [now - then for then, now in zip(before.ticks, after.ticks, strict=False)]
    if any(step < 0 for place, step in enumerate(steps) if place not in (_IDLE, _IOWAIT)):
        return Unknown(reason="the CPU times went back between the two readings: was the host booted?")
    steps = [max(0, step) for step in steps]
    whole = sum(steps)
    if whole == 0:
        return Unknown(reason="no CPU time passed between the two readings")
    system = sum(steps[place] for place in _SYSTEM if place < len(steps)) / whole
    return CpuUse(system=system, busy=1 - (steps[_IDLE] + steps[_IOWAIT]) / whole, peak_system=system)


def switches(before: CpuTimes, after: CpuTimes, seconds: Seconds) -> Reading[float]:
    """Context switches a second."""
    try:
        return _rate(before.switches, after.switches, seconds)
    except Went:
        return Unknown(reason="the count of context switches went back between the two readings")


def reclaim(before: Mapping[str, int], after: Mapping[str, int], seconds: Seconds) -> Reading[Reclaim]:
    """How the kernel reclaimed memory between two readings of /proc/vmstat."""
    try:
        direct = _summed(before, after, "pgscan_direct", seconds)
        kswapd = _summed(before, after, "pgscan_kswapd", seconds)
        freed_direct = _summed(before, after, "pgsteal_direct", seconds)
        freed_kswapd = _summed(before, after, "pgsteal_kswapd", seconds)
        if freed_direct is None and "kswapd_steal" in after:  # RHEL 6
            freed_all = _summed(before, after, "pgsteal", seconds) or 0.0
            freed_kswapd = _rate(before.get("kswapd_steal", 0), after["kswapd_steal"], seconds)
            # The two are not read at one moment, so the difference may be slightly below zero.
            freed_direct = max(0.0, freed_all - freed_kswapd)
    except Went as went:
        return Unknown(reason=f"{went} went back between the two readings: was the host booted?")
    if direct is None or kswapd is None:
        return Unknown(reason="/proc/vmstat does not count the pages scanned (pgscan_direct, pgscan_kswapd)")
    return Reclaim(
        scanned_direct=direct,
        scanned_kswapd=kswapd,
        stolen_direct=freed_direct,
        stolen=(freed_direct or 0.0) + (freed_kswapd or 0.0),
        peak_direct=direct,
    )


def compaction(before: Mapping[str, int], after: Mapping[str, int], seconds: Seconds) -> Reading[Compaction]:
    """How often processes stopped for compaction; zero for a kernel without compaction."""
    if "nr_free_pages" not in after:
        return Unknown(reason="/proc/vmstat could not be read whole")
    names = ("compact_stall", "compact_fail", "thp_fault_alloc", "thp_fault_fallback")
    try:
        stalls, failures, faults, fallbacks = (
            _rate(before.get(name, 0), after.get(name, 0), seconds, name) for name in names
        )
    except Went as went:
        return Unknown(reason=f"{went} went back between the two readings: was the host booted?")
    return Compaction(stalls=stalls, failures=failures, huge_faults=faults, huge_fallbacks=fallbacks)


def disk_uses(
    before: Mapping[str, DiskCounters], after: Mapping[str, DiskCounters], seconds: Seconds
) -> Reading[tuple[DiskUse, ...]]:
    """How each disk in both readings was used between them."""
    found = []
    for name, now in sorted(after.items()):
        then = before.get(name)
        if then is None:
            continue
        try:
            busy = _rate(then.busy_ms, now.busy_ms, seconds) / 1000
            kib = _rate(then.sectors, now.sectors, seconds) * _SECTOR_KIB
        except Went:
            return Unknown(reason=f"the counters of disk {name} went back between the two readings")
        found.append(
            DiskUse(
                name=name,
                scheduler=now.scheduler,
                offered=now.offered,
                rotational=now.rotational,
                busy=min(1.0, busy),
                kib=kib,
            )
        )
    return tuple(found)


def _summed(before: Mapping[str, int], after: Mapping[str, int], name: str, seconds: Seconds) -> float | None:
    """The rate of a counter, or the sum of its parts by zone; None if the kernel has neither."""
    names = [name] if name in after else [f"{name}_{zone}" for zone in ZONES if f"{name}_{zone}" in after]
    if not names:
        return None
    return sum(_rate(before.get(one, 0), after[one], seconds, one) for one in names)


def _rate(before: int, after: int, seconds: Seconds, name: str = "a counter") -> float:
    if after < before:
        raise Went(name)
    return (after - before) / seconds


_STAMP: Final = r"^(?:(?P<stamp>\w{3} \w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4}): )?"
_ADVISED: Final = re.compile(_STAMP + r"Advising pid (?P<pid>\d{1,20}) \((?P<command>.*)\) move from nodes")
_MOVED: Final = re.compile(
    _STAMP
    + r"PID (?P<pid>\d{1,20}) moved to node\(s\) (?P<nodes>\S+) in "
    + r"(?P<whole>\d{1,12})\.(?P<rest>\d{1,2}) seconds"
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""Months of ctime(3) in numad's lines: English in any locale. The time is the host's local time."""


def read_numad_log(text: str, now: str | None = None) -> tuple[PageMove, ...]:
    """The finished moves, in their order.

    numad writes the hundredths of a second without a leading zero ("%d.%d" in its source): 59.2 seconds are
    59.02.

    Args:
        text: the log or its end.
        now: the host's local time as `2015-03-14T06:10:00`; None = unknown.
    """
    commands: dict[int, str] = {}
    moves = []
    clock = _moment(now)
    for line in text.splitlines():
        if advised := _ADVISED.match(line):
            commands[int(advised["pid"])] = advised["command"]
        elif moved := _MOVED.match(line):
            moves.append(
                PageMove(
                    pid=int(moved["pid"]),
                    command=commands.get(int(moved["pid"]), ""),
                    to_nodes=moved["nodes"],
                    seconds=int(moved["whole"]) + int(moved["rest"]) / 100,
                    age=_age(moved["stamp"], clock),
                )
            )
    return tuple(moves)


def _moment(now: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(now) if now else None
    except ValueError:
        return None


def _age(stamp: str | None, now: datetime | None) -> Seconds | None:
    """How long ago; both times are the host's local time."""
    if stamp is None or now is None:
        return None
    _, month, day, time, year = stamp.split()
    try:
        hour, minute, second = (int(part) for part in time.split(":"))
        then = datetime(int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=None)  # noqa: DTZ001  (local on both sides)
    except ValueError:
        return None
    return max(0.0, (now.replace(tzinfo=None) - then).total_seconds())
