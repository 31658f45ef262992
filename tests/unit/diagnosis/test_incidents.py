"""The recorded incidents are named, each as what it was and with its numbers; healthy hosts yield nothing."""

from __future__ import annotations

import pytest

from orchestrator.diagnosis.findings import ON_ONE_HOST
from orchestrator.diagnosis.records import signs_of_records
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import Confidence, Syndrome
from orchestrator.model.reading import Unknown
from tests.unit.diagnosis.signs import DATA, of_record, recorded

INCIDENTS = {
    "numad": (
        Syndrome.NUMAD_MOVES,
        Confidence.CERTAIN,
        "numad",
        {"page moves": 2, "longest move (java 32434 to NUMA node 0)": 177.10, "all moves": 181.93},
    ),
    "zone-reclaim": (
        Syndrome.DIRECT_RECLAIM,
        Confidence.CERTAIN,
        "vm.zone_reclaim_mode",
        {"scanned by direct reclaim": 1_210_314.4, "of these freed": 0.0096, "at its worst": 3_670_099.57},
    ),
    "thp-hadoop": (
        Syndrome.THP_COMPACTION,
        Confidence.LIKELY,
        "transparent_hugepage.enabled",
        {"system share of the CPUs": 60.0, "at its worst": 98.0, "context switches": 25_987.5},
    ),
    "thp-profile": (
        Syndrome.THP_COMPACTION,
        Confidence.CERTAIN,
        "transparent_hugepage.enabled",
        {"profile: in spin locks": 95.4, "profile: in compaction": 2.5},
    ),
    "fragmentation": (
        Syndrome.FRAGMENTATION,
        Confidence.LIKELY,
        "vm.min_free_kbytes",
        {"free in node 0 Normal": 2281.2, "free in node 1 Normal": 2530.8},
    ),
    "erlang-busy-wait": (
        Syndrome.BUSY_WAIT,
        Confidence.LIKELY,
        None,  # two CPUs: none can be left free
        {"schedulers": 2, "a scheduler's CPU, median": 81.0, "while it went to sleep": 219.4},
    ),
}
HEALTHY = sorted(folder.name for folder in (DATA / "healthy").iterdir())


def test_only_the_incident_is_named_with_its_numbers(subtests: pytest.Subtests) -> None:
    for name, (syndrome, confidence, tunable, numbers) in INCIDENTS.items():
        with subtests.test(name=name):
            (finding,) = of_record("incidents", name).findings
            assert (finding.syndrome, finding.confidence, finding.tunable) == (syndrome, confidence, tunable)
            measured = {number.name: number.value for number in finding.numbers}
            for what, value in numbers.items():
                assert measured[what] == pytest.approx(value, rel=2e-3), what
            assert finding.advice


def test_every_recorded_incident_is_tested() -> None:
    assert {folder.name for folder in (DATA / "incidents").iterdir() if folder.is_dir()} == set(INCIDENTS)
    assert len(HEALTHY) >= 10


LIVE = [name for name in HEALTHY if (DATA / "healthy" / name / "reading-1.txt").exists()]


def test_nothing_is_found_on_a_healthy_host(subtests: pytest.Subtests) -> None:
    for name in HEALTHY:
        with subtests.test(name=name):
            diagnosis = of_record("healthy", name)
            assert diagnosis.findings == ()
            assert diagnosis.examined == (name,)
            assert diagnosis.unexamined == ()
            if name not in LIVE:
                continue
            # Every syndrome was looked for: "nothing found" would be true of an empty file as well.
            assert diagnosis.complete
            assert diagnosis.unrecorded == ()
            signs = recorded("healthy", name)
            assert not isinstance(signs, Unknown)
            assert all(not isinstance(find(signs), Unknown) for find in ON_ONE_HOST.values())


def test_the_loads_of_the_healthy_hosts_are_no_idling() -> None:
    shares = {}
    for name in LIVE:
        signs = recorded("healthy", name)
        assert not isinstance(signs, Unknown)
        assert not isinstance(signs.cpu, Unknown)
        shares[name] = signs.cpu.system
    assert max(shares.values()) > 0.4, "a host with a high system share that has another reason is among them"


def test_a_profile_makes_the_busy_wait_certain() -> None:
    folder = DATA / "incidents" / "erlang-busy-wait"
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    texts["perf.txt"] = "    21.40%  beam.smp  [.] scheduler_wait\n    9.10%  beam.smp  [.] process_main\n"
    signs = signs_of_records(NodeName("riak1"), texts)
    assert not isinstance(signs, Unknown)
    found = ON_ONE_HOST[Syndrome.BUSY_WAIT](signs)
    assert not isinstance(found, Unknown)
    assert [one.confidence for one in found] == [Confidence.CERTAIN]
