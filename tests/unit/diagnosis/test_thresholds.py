"""Just short of each threshold there is no finding, and at it there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.diagnosis import findings
from orchestrator.diagnosis.findings import diagnose
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import (
    Compaction,
    Confidence,
    CpuUse,
    DiskUse,
    FreeZone,
    Numad,
    PageMove,
    Reclaim,
    Signs,
    Syndrome,
)
from orchestrator.model.reading import NOT_READ, Unknown
from tests.unit.diagnosis.signs import WELL, found, schedulers


def _reclaim(scanned: float, share: float, kswapd: float = 0.0) -> Reclaim:
    return Reclaim(
        scanned_direct=scanned,
        scanned_kswapd=kswapd,
        stolen_direct=scanned * share,
        stolen=scanned * share,
        peak_direct=scanned,
    )


def _huge(stalls: float, failures: float = 0.0, **more: Any) -> dict[str, Any]:
    seen = Compaction(stalls=stalls, failures=failures, huge_faults=5, huge_fallbacks=3)
    return {"compaction": seen, **more}


def _cpu(system: float) -> CpuUse:
    return CpuUse(system=system, busy=0.9, peak_system=system)


def _zone(small: int, large: int, zone: str = "Normal") -> tuple[FreeZone, ...]:
    """So many free pages in single pages, and so many in blocks of 16."""
    return (FreeZone(numa_node=0, zone=zone, blocks=(small, 0, 0, 0, large // 16)),)


def _disk(**changes: Any) -> tuple[DiskUse, ...]:
    disk = DiskUse(
        name="sda",
        scheduler="cfq",
        offered=("noop", "deadline", "cfq"),
        rotational=False,
        busy=0.4,
        kib=4000.0,
        carries_data=True,
    )
    return (replace(disk, **changes),)


def _moved(seconds: float, age: float | None = None, command: str = "java") -> Numad:
    return Numad(moves=(PageMove(pid=7, command=command, to_nodes="0", seconds=seconds, age=age),))


ENOUGH_PAGES = findings.ENOUGH_FREE // 4096
LOCK, COMPACT = "_spin_lock_irq", "compact_zone"
THP, RECLAIM, BUSY = Syndrome.THP_COMPACTION, Syndrome.DIRECT_RECLAIM, Syndrome.BUSY_WAIT
CRUMBS, MOVES, DISKS = Syndrome.FRAGMENTATION, Syndrome.NUMAD_MOVES, Syndrome.IO_SCHEDULER
Build = Callable[[Any], dict[str, Any]]


def moves(seconds: float) -> dict[str, Any]:
    return {"numad": _moved(seconds)}


def stalls(system: float) -> dict[str, Any]:
    return _huge(500, cpu=_cpu(system))


def system_alone(system: float, **more: Any) -> dict[str, Any]:
    return {"compaction": NOT_READ, "cpu": _cpu(system), **more}


def profile(shares: tuple[float, float]) -> dict[str, Any]:
    return {"compaction": NOT_READ, "functions": dict(zip((COMPACT, LOCK), shares, strict=True))}


def zones(pages: tuple[int, int]) -> dict[str, Any]:
    return {"zones": _zone(*pages)}


def disk(changes: dict[str, Any]) -> dict[str, Any]:
    return {"disks": _disk(**changes)}


def erlang(use: tuple[int, float, float]) -> dict[str, Any]:
    count, cpu, sleeps = use
    return {"erlang": (schedulers(count, cpu=cpu, sleeps=sleeps),)}


HOT, WORK = findings.HOT, findings.AT_WORK
ILL: tuple[tuple[str, Syndrome, Build, Any, Any], ...] = (
    ("a move of a second", MOVES, moves, findings.SLOW_MOVE, findings.SLOW_MOVE - 0.01),
    (
        "a move of this week",
        MOVES,
        lambda age: {"numad": _moved(9, age=age)},
        findings.RECENT,
        findings.RECENT + 1,
    ),
    (
        "pages scanned",
        RECLAIM,
        lambda n: {"reclaim": _reclaim(n, 0.0)},
        findings.SCANNED,
        findings.SCANNED - 1,
    ),
    (
        "pages freed",
        RECLAIM,
        lambda share: {"reclaim": _reclaim(1e6, share)},
        findings.LOW_YIELD - 0.001,
        findings.LOW_YIELD,
    ),
    ("stalls", THP, lambda n: _huge(n, cpu=_cpu(0.9)), findings.STALLS, findings.STALLS - 0.1),
    ("system share beside stalls", THP, stalls, findings.RAISED_SYSTEM, findings.RAISED_SYSTEM - 0.001),
    (
        "stalls without huge pages",
        THP,
        lambda pages: _huge(500, cpu=_cpu(0.5), huge_pages=pages),
        "always",
        "never",
    ),
    ("system share alone", THP, system_alone, findings.HEAVY_SYSTEM, findings.HEAVY_SYSTEM - 0.001),
    (
        "system share alone, huge pages as asked for",
        THP,
        lambda pages: system_alone(0.6, huge_pages=pages),
        "always",
        "madvise",
    ),
    ("a profile", THP, profile, (0.01, 0.19), (0.009, 0.9)),
    ("a lock in a profile", THP, profile, (0.02, 0.185), (0.02, 0.17)),
    ("crumbs", CRUMBS, zones, (951_000, 48_992), (949_000, 51_008)),
    ("enough free to be crumbs", CRUMBS, zones, (ENOUGH_PAGES, 0), (ENOUGH_PAGES - 1, 0)),
    (
        "crumbs where memory is",
        CRUMBS,
        lambda found: {"zones": found},
        _zone(951_000, 0),
        (*_zone(951_000, 0, "DMA32"), *_zone(0, 951_008)),
    ),
    ("a scheduler", DISKS, disk, {}, {"scheduler": "deadline"}),
    ("a scheduler that could be another", DISKS, disk, {}, {"offered": ("cfq",)}),
    ("a scheduler of the data", DISKS, disk, {}, {"carries_data": False}),
    ("of a disk at work", DISKS, lambda kib: disk({"carries_data": None, "kib": kib}), WORK, WORK - 1),
    ("of a real disk", DISKS, lambda name: disk({"carries_data": None, "name": name}), "sda", "loop3"),
    ("hot schedulers", BUSY, erlang, (12, HOT, 300), (12, HOT - 0.01, 300)),
    ("schedulers that compute", BUSY, erlang, (12, 0.9, findings.SLEEPS), (12, 0.9, findings.SLEEPS - 1)),
    ("schedulers that are fewer already", BUSY, erlang, (12, 0.9, 300), (10, 0.9, 300)),
)


def test_at_the_threshold_it_is_found_and_short_of_it_it_is_not(subtests: pytest.Subtests) -> None:
    assert found() == (), "of a host that is well"
    for name, syndrome, build, at, short in ILL:
        with subtests.test(name=name):
            assert [finding.syndrome for finding in found(**build(at))] == [syndrome]
            assert found(**build(short)) == ()


def test_the_remedy_of_direct_reclaim_is_against_a_known_cause() -> None:
    for mode, kswapd, tunable in [
        (1, 0.0, "vm.zone_reclaim_mode"),
        (0, 0.0, "vm.min_free_kbytes"),
        (NOT_READ, 0.0, "vm.zone_reclaim_mode"),
        (NOT_READ, 9e5, None),
    ]:
        (finding,) = found(reclaim=_reclaim(1e6, 0.001, kswapd), zone_reclaim_mode=mode)
        assert finding.tunable == tunable
    for share, confidence in ((0.0099, "certain"), (0.01, "likely")):
        (finding,) = found(reclaim=_reclaim(1e6, share))
        assert finding.confidence.value == confidence


def test_failing_compactions_make_crumbs_certain() -> None:
    (finding,) = found(zones=_zone(10**6, 0), **_huge(2, failures=1.5))
    assert finding.confidence is Confidence.CERTAIN


def test_the_schedulers_wanted_are_offered_and_as_measured() -> None:
    disks: list[tuple[dict[str, Any], str, str]] = [
        ({}, "certain", "noop"),
        ({"rotational": True}, "likely", "deadline"),
        ({"carries_data": None}, "low", "noop"),
        ({"scheduler": "bfq", "offered": ("none", "mq-deadline", "bfq")}, "certain", "none"),
    ]
    for changes, confidence, wanted in disks:
        (finding,) = found(disks=_disk(**changes))
        assert finding.confidence.value == confidence
        assert f"to {wanted} instead" in finding.advice
        assert (finding.subject, finding.tunable) == ("sda", "io_scheduler")
    for cpus, schedulers_wanted in ((12, 10), (16, 14), (24, 20)):
        (finding,) = found(cpus=cpus, erlang=(schedulers(cpus, cpu=0.9, sleeps=300),))
        assert f"+S {schedulers_wanted}:{schedulers_wanted}" in finding.advice
        assert finding.tunable == "erlang.schedulers"


def test_a_neighbour_that_was_moved_is_not_as_certain_as_a_store() -> None:
    assert [one.confidence for one in found(numad=_moved(9, command="qemu-kvm"))] == [Confidence.LIKELY]
    assert [one.confidence for one in found(numad=_moved(9))] == [Confidence.CERTAIN]


def _fleet(count: int, **ill: Any) -> dict[NodeName, Signs]:
    """Hosts with slightly different numbers, the first of them ill."""
    hosts = {}
    for number in range(count):
        name = NodeName(f"es{number + 1}")
        cpu = CpuUse(system=0.04 + 0.002 * number, busy=0.6, peak_system=0.05)
        signs = replace(WELL, node=name, machine=f"boot-{number}", cpu=cpu, recovery=90.0 + number)
        hosts[name] = replace(signs, **ill) if number == 0 else signs
    return hosts


def _outliers(count: int, **ill: Any) -> list[tuple[str, str, list[str]]]:
    return [
        (one.nodes[0], one.confidence.value, [number.name for number in one.numbers])
        for one in diagnose(_fleet(count, **ill)).findings
        if one.syndrome is Syndrome.OUTLIER
    ]


def test_a_host_far_off_its_peers_is_named_with_the_measure() -> None:
    system, recovery = "system share of the CPUs", "last stop to recovered"
    assert _outliers(6, cpu=_cpu(0.4)) == [("es1", "likely", [system])]
    assert _outliers(6, cpu=_cpu(0.4), recovery=400.0) == [("es1", "certain", [system, recovery])]
    assert _outliers(6, switches=90_000.0) == [("es1", "likely", ["context switches a CPU"])]
    assert _outliers(6, load=40.0) == [("es1", "likely", ["load a CPU"])]


def test_few_hosts_tell_little_of_what_is_usual() -> None:
    assert _outliers(findings.FEWEST_MACHINES, cpu=_cpu(0.4)) == [
        ("es1", "low", ["system share of the CPUs"])
    ]
    assert _outliers(findings.FEWEST_MACHINES - 1, cpu=_cpu(0.9)) == []
    assert _outliers(findings.ENOUGH_MACHINES, cpu=_cpu(0.4))[0][1] == "likely"


def test_what_nobody_would_notice_is_no_outlier() -> None:
    assert _outliers(6) == []
    assert _outliers(6, cpu=_cpu(0.046 + 0.09)) == []  # floor: ten points of a hundred
    assert _outliers(6, recovery=140.0) == []  # floor: a minute
    assert _outliers(6, cpu=_cpu(0.0)) == []  # below its peers is no pain


def test_nodes_of_one_machine_are_one_host() -> None:
    # Three nodes on the ill machine are no majority of three machines.
    hosts = _fleet(6, cpu=_cpu(0.5))
    for name in ("es2", "es3"):
        hosts[NodeName(name)] = replace(hosts[NodeName("es1")], node=NodeName(name))
    found_on = [one.nodes for one in diagnose(hosts).findings]
    assert found_on == [("es1",)]


def test_a_machines_finding_is_shown_once_with_all_its_nodes() -> None:
    ill = replace(WELL, disks=_disk())
    hosts = {NodeName(name): replace(ill, node=NodeName(name)) for name in ("es1", "es2")}
    hosts[NodeName("es3")] = replace(ill, node=NodeName("es3"), machine="boot-2")
    assert [one.nodes for one in diagnose(hosts).findings] == [("es1", "es2"), ("es3",)]


def test_a_part_that_could_not_be_read_is_not_healthy(subtests: pytest.Subtests) -> None:
    for part, syndromes in [
        ("numad", {Syndrome.NUMAD_MOVES}),
        ("reclaim", {Syndrome.DIRECT_RECLAIM}),
        ("compaction", {Syndrome.THP_COMPACTION}),
        ("cpu", {Syndrome.THP_COMPACTION}),
        ("zones", {Syndrome.FRAGMENTATION}),
        ("disks", {Syndrome.IO_SCHEDULER}),
        ("erlang", {Syndrome.BUSY_WAIT}),
    ]:
        with subtests.test(part=part, syndromes=syndromes):
            ill: dict[str, Any] = {part: Unknown(reason="permission denied")}
            diagnosis = diagnose({WELL.node: replace(WELL, **ill)})
            assert {one.syndrome for one in diagnosis.unexamined} == syndromes
            assert not diagnosis.complete


def test_a_host_that_could_not_be_read_is_listed_beside_others() -> None:
    gone = NodeName("es9")
    diagnosis = diagnose({WELL.node: WELL, gone: Unknown(reason="connection refused")})
    assert diagnosis.examined == (WELL.node,)
    assert diagnosis.unread == {gone: Unknown(reason="connection refused")}
    assert not diagnosis.complete
