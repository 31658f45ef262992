"""Counters of every generation of kernels, and counters that go back."""

from __future__ import annotations

import pytest

from orchestrator.diagnosis import counters, records
from orchestrator.model.reading import Unknown

ZONED = {"dma": 0, "dma32": 1000, "normal": 9000, "movable": 0}


def _zones(name: str, factor: float) -> dict[str, int]:
    return {f"{name}_{zone}": round(count * factor) for zone, count in ZONED.items()}


RHEL6 = {
    **_zones("pgscan_kswapd", 0.1),
    **_zones("pgscan_direct", 1),
    **_zones("pgsteal", 0.15),
    "kswapd_steal": 1000,
    "zone_reclaim_failed": 3,
}
RHEL7 = {
    **_zones("pgscan_kswapd", 0.1),
    **_zones("pgscan_direct", 1),
    **_zones("pgsteal_kswapd", 0.1),
    **_zones("pgsteal_direct", 0.05),
    "pgscan_direct_throttle": 77,
}
CURRENT = {
    "pgscan_kswapd": 1000,
    "pgscan_direct": 10000,
    "pgsteal_kswapd": 1000,
    "pgsteal_direct": 500,
    "pgscan_direct_throttle": 77,
    "pgscan_khugepaged": 5000,
    "pgsteal_khugepaged": 5000,
    "pgscan_proactive": 5000,
    "pgscan_anon": 9,
    "pgsteal_file": 9,
}


@pytest.mark.parametrize("after", [RHEL6, RHEL7, CURRENT], ids=["2.6.32", "3.10", "6.x"])
def test_every_generation_of_names_comes_to_the_same_rates(after: dict[str, int]) -> None:
    found = counters.reclaim(dict.fromkeys(after, 0), after, 10.0)
    assert not isinstance(found, Unknown)
    assert (found.scanned_direct, found.scanned_kswapd) == (1000.0, 100.0)
    assert found.stolen_direct == pytest.approx(50.0)
    assert found.stolen == pytest.approx(150.0)
    assert found.yield_share == pytest.approx(0.05)


KERNELS = {"2.6.32": RHEL6, "3.10": RHEL7, "6.x": CURRENT}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_counter_that_went_back_is_no_rate(kernel: str) -> None:
    after = KERNELS[kernel]
    for name, count in after.items():
        if not name.startswith(("pgscan_direct_t", "zone_", "pgscan_k", "pgsteal_k", "pgscan_p")) and (
            count and name not in {"pgscan_anon", "pgsteal_file"}
        ):
            for before in (count + 1, 2**32 - 5):  # the second has wrapped in 32 bits
                found = counters.reclaim({**after, name: before}, after, 10.0)
                assert isinstance(found, Unknown), name
                assert "went back" in found.reason


def test_a_vmstat_without_scans_is_unknown_and_not_quiet() -> None:
    assert isinstance(counters.reclaim({}, {"nr_free_pages": 1}, 10.0), Unknown)
    assert isinstance(counters.compaction({}, {}, 10.0), Unknown)


def test_compactions_are_counted_and_a_kernel_without_has_none() -> None:
    after = {"nr_free_pages": 5, "compact_stall": 1000, "compact_fail": 900, "thp_fault_fallback": 20}
    found = counters.compaction(dict.fromkeys(after, 0), after, 10.0)
    assert not isinstance(found, Unknown)
    assert (found.stalls, found.failures, found.huge_fallbacks) == (100.0, 90.0, 2.0)
    none = counters.compaction({"nr_free_pages": 1}, {"nr_free_pages": 1}, 10.0)
    assert not isinstance(none, Unknown)
    assert none.stalls == 0
    assert isinstance(counters.compaction(after, {**after, "compact_stall": 999}, 10.0), Unknown)


def _stat(line: str, switches: int = 0) -> counters.CpuTimes:
    found = counters.read_stat(f"cpu  {line}\nctxt {switches}\ncpus 4\n")
    assert not isinstance(found, Unknown)
    return found


def test_cpu_time_is_shared_out_with_interrupts_as_the_kernels() -> None:
    before, after = _stat("100 0 100 1000 0 0 0 0 0 0"), _stat("150 0 120 1015 5 4 6 0 0 0")
    found = counters.cpu_use(before, after)
    assert not isinstance(found, Unknown)
    assert found.system == pytest.approx(0.30)
    assert found.busy == pytest.approx(0.80)


def test_cpu_time_of_2_6_32_has_fewer_columns() -> None:
    found = counters.cpu_use(_stat("0 0 0 0 0 0 0"), _stat("50 0 25 25 0 0 0"))
    assert not isinstance(found, Unknown)
    assert (found.system, found.busy) == (0.25, 0.75)


def test_idle_time_may_go_back_a_little_and_no_other_may() -> None:
    before = _stat("100 0 100 1000 50 0 0 0")
    assert not isinstance(counters.cpu_use(before, _stat("150 0 120 1030 49 0 0 0")), Unknown)
    assert isinstance(counters.cpu_use(before, _stat("99 0 120 1030 50 0 0 0")), Unknown)
    assert isinstance(counters.cpu_use(before, before), Unknown)
    assert isinstance(counters.switches(_stat("1 1 1 1 1", 10), _stat("2 2 2 2 2", 9), 5.0), Unknown)


def test_columns_of_sar_go_by_name_in_any_language_and_version() -> None:
    newer = (
        "07:10:01 PM  pgpgin/s pgpgout/s fault/s majflt/s pgfree/s pgscank/s pgscand/s pgsteal/s %vmeff\n"
        "07:11:01 PM    314,69     12,23  118,90     3,54   209,09      1,00  20000,00     20,00   0,10\n"
        "Average:       314,69     12,23  118,90     3,54   209,09      9,99      9,00    999,00   0,10\n"
    )
    found = records.read_sar_paging(newer)
    assert not isinstance(found, Unknown)
    assert (found.scanned_direct, found.scanned_kswapd, found.stolen) == (20000.0, 1.0, 20.0)
    assert isinstance(records.read_sar_paging("07:10:01  tps rtps\n07:11:01 1 2\n"), Unknown)


def test_numad_writes_hundredths_without_a_zero_in_front() -> None:
    text = "Sat Mar 14 06:07:01 2015: PID 7 moved to node(s) 0,1 in 59.2 seconds\n"
    (move,) = counters.read_numad_log(text, "2015-03-14T06:08:01")
    assert (move.seconds, move.to_nodes, move.age, move.command) == (59.02, "0,1", 60.0, "")


def test_perf_is_read_in_both_of_its_forms() -> None:
    new = "    93.80%  [kernel]  [k] _raw_spin_lock_irqsave\n     2.10%  libjvm.so  [.] SpinPause\n"
    found = records.read_perf(new)
    assert found == {"_raw_spin_lock_irqsave": pytest.approx(0.938), "SpinPause": pytest.approx(0.021)}
