from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.kernel_parameters import PARAMETERS, KernelParameter
from orchestrator.model.host_facts import FileText, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TunableState, ValueChange, Verdict
from tests.fakes.tuned_hosts import current, profile, setting, with_files

BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
PATH = "/proc/sys/vm/swappiness"


def check(facts: HostFacts, name: str = "vm.swappiness", wanted: str = "1") -> TunableState:
    line = setting(name, wanted)
    return BY_NAME[name].check(facts, line, profile(line))


def test_on_cgroup_v1_a_running_service_has_a_value_of_its_own() -> None:
    folder = "/sys/fs/cgroup/memory/system.slice"
    slice_, own = (f"{folder}/memory.swappiness", f"{folder}/elasticsearch.service/memory.swappiness")
    host = with_files(current(), **{PATH: "1\n", slice_: "60\n", own: "60\n"})
    state = check(host)
    assert state.changes == tuple(ValueChange(path=path, found="60", wanted="1") for path in (slice_, own))
    assert check(with_files(current(), **{PATH: "1\n", slice_: "1\n", own: "1\n"})).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("name", "wanted", "line"),
    [
        ("vm.swappiness", "1", "parameter vm.swappiness 1"),
        ("vm.max_map_count", "262144", "at_least vm.max_map_count 262144"),
        ("vm.min_free_kbytes", "1048576", "at_least vm.min_free_kbytes 1048576 5"),
    ],
)
def test_its_line_of_the_boot_script(name: str, wanted: str, line: str) -> None:
    assert BY_NAME[name].line(setting(name, wanted)) == line


@pytest.mark.parametrize(
    ("found", "written"), [("65530", "262144"), ("262144", None), ("1048576", None), ("2147483642", None)]
)
def test_at_least_is_never_lowered(found: str, written: str | None) -> None:
    host = with_files(current(), **{"/proc/sys/vm/max_map_count": found})
    changes = check(host, "vm.max_map_count", "262144").changes
    assert next((change.wanted for change in changes if isinstance(change, ValueChange)), None) == written


def test_memory_kept_free_is_held_to_its_share() -> None:
    small = replace(current(), memory=8 << 30)
    state = check(small, "vm.min_free_kbytes", "1048576")
    (change,) = (change for change in state.changes if isinstance(change, ValueChange))
    assert int(change.wanted) == (8 << 20) * 5 // 100
    assert "held to 5% of this host's memory" in state.detail
    unknown = check(replace(current(), memory=0), "vm.min_free_kbytes", "1048576")
    assert (unknown.verdict, unknown.changes) == (Verdict.UNKNOWN, ())


@pytest.mark.parametrize("text", [Unknown(reason="denied"), "1 2 3\n", ""])
def test_what_cannot_be_read_is_unknown_and_not_written(text: FileText) -> None:
    state = check(with_files(current(), **{PATH: text}))
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())


def test_a_parameter_that_the_kernel_lacks_is_fine() -> None:
    host = with_files(current(), **{"/proc/sys/vm/zone_reclaim_mode": None})
    assert check(host, "vm.zone_reclaim_mode", "0").verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda parameter: parameter.name)
def test_words_of_a_profile(parameter: KernelParameter) -> None:
    low, high = parameter.allowed.start, parameter.allowed.stop - 1
    assert parameter.valid(setting(parameter.name, str(high))) is None
    for wrong in (str(high + 1), "-1", "many", "1.5", ""):
        assert (
            parameter.valid(setting(parameter.name, wrong)) == f"must be a whole number from {low} to {high}"
        )
