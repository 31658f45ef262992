from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.kernel_parameters import PARAMETERS, KernelParameter
from orchestrator.model.host_facts import FileText, HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import BlockChange, FileChange, TunableState, ValueChange, Verdict
from tests.fakes.tuned_hosts import current, profile, rhel6, rhel7, setting, with_files

BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
PATH = "/proc/sys/vm/swappiness"
OURS = "/etc/sysctl.d/90-orchestrate-vm.swappiness.conf"


def check(facts: HostFacts, name: str = "vm.swappiness", wanted: str = "1") -> TunableState:
    line = setting(name, wanted)
    return BY_NAME[name].check(facts, line, profile(line))


def right(host: HostFacts, **files: FileText) -> HostFacts:
    return with_files(host, **{PATH: "1\n"}, **files)


@pytest.mark.parametrize(
    ("files", "verdict", "told"),
    [
        ({}, Verdict.DRIFT, "not made to last"),
        ({OURS: "vm.swappiness = 1\n"}, Verdict.OK, f"1 by {OURS}"),
        ({"/etc/sysctl.d/es.conf": " -vm/swappiness=1 \n"}, Verdict.OK, "1 by /etc/sysctl.d/es.conf"),
        ({"/usr/lib/sysctl.d/es.conf": "vm.swappiness = 1\n"}, Verdict.OK, "/usr/lib"),
        ({"/usr/lib/sysctl.d/es.conf": "vm.swap* = 1\n"}, Verdict.OK, "/usr/lib"),
        ({"/etc/sysctl.d/es.conf": "#vm.swappiness = 1\n;vm.swappiness = 1\n"}, Verdict.DRIFT, "not made"),
        # systemd reads /etc/sysctl.conf only where a distribution links it into the folder.
        ({"/etc/sysctl.conf": "vm.swappiness = 1\n"}, Verdict.DRIFT, "not made to last"),
        ({"/etc/sysctl.d/99-sysctl.conf": "vm.swappiness = 1\n"}, Verdict.OK, "99-sysctl.conf"),
        # By file name over all folders; the last one counts.
        (
            {"/usr/lib/sysctl.d/60-a.conf": "vm.swappiness=60", "/etc/sysctl.d/50-b.conf": "vm.swappiness=1"},
            Verdict.DRIFT,
            "60 by /usr/lib/sysctl.d/60-a.conf",
        ),
        (
            {"/usr/lib/sysctl.d/60-a.conf": "vm.swappiness=60", "/etc/sysctl.d/60-a.conf": "vm.swappiness=1"},
            Verdict.OK,
            "/etc/sysctl.d/60-a.conf",
        ),
        ({"/etc/sysctl.d/50-b.conf": "vm.swappiness=1\nvm.swappiness=7\n"}, Verdict.DRIFT, "7 by"),
    ],
)
def test_the_next_boot_is_told_from_the_files(files: dict[str, str], verdict: Verdict, told: str) -> None:
    state = check(right(current(), **files))
    assert state.verdict is verdict
    assert told in state.at_boot
    assert not any(isinstance(change, ValueChange) for change in state.changes)


def test_a_file_of_ours_that_would_be_outvoted_gets_a_name_that_is_not() -> None:
    state = check(right(rhel7(), **{"/etc/sysctl.d/99-sysctl.conf": "vm.swappiness = 10\n"}))
    assert [change.path for change in state.changes if isinstance(change, FileChange)] == [
        "/etc/sysctl.d/zz-orchestrate-vm.swappiness.conf"
    ]


def test_where_even_that_would_be_outvoted_nothing_is_written_and_it_is_told() -> None:
    state = check(right(current(), **{"/etc/sysctl.d/zzz.conf": "vm.swappiness = 10\n"}))
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert state.at_boot == "10 by /etc/sysctl.d/zzz.conf"


def test_a_file_that_cannot_be_read_may_hold_the_last_word() -> None:
    state = check(right(current(), **{"/etc/sysctl.d/99-x.conf": Unknown(reason="denied")}))
    assert [change.path for change in state.changes if isinstance(change, FileChange)] == [
        "/etc/sysctl.d/zz-orchestrate-vm.swappiness.conf"
    ]
    hidden = check(right(current(), **{OURS: "vm.swappiness=1\n", "/etc/sysctl.d/zzz": None}))
    assert hidden.verdict is Verdict.OK


def test_tuned_sets_what_no_file_does_and_the_files_win_over_it() -> None:
    assert check(right(rhel7())).at_boot == "10 by tuned's profile throughput-performance"
    assert check(right(rhel7(), **{OURS: "vm.swappiness = 1\n"})).verdict is Verdict.OK


def test_rhel_6_has_its_lines_in_sysctl_conf_and_reads_the_folder_after_it() -> None:
    state = check(rhel6())
    assert state.changes[1] == BlockChange(
        path="/etc/sysctl.conf", name="vm.swappiness", found=None, wanted="vm.swappiness = 1"
    )
    theirs = right(rhel6(), **{"/etc/sysctl.conf": "vm.swappiness = 1\n"})
    assert check(theirs).verdict is Verdict.OK
    outvoted = with_files(theirs, **{"/etc/sysctl.d/x.conf": "vm.swappiness = 9\n"})
    assert check(outvoted).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("found", "written"), [("65530", "262144"), ("262144", None), ("1048576", None), ("2147483642", None)]
)
def test_at_least_is_never_lowered(found: str, written: str | None) -> None:
    host = with_files(current(), **{"/proc/sys/vm/max_map_count": found})
    changes = check(host, "vm.max_map_count", "262144").changes
    assert next((change.wanted for change in changes if isinstance(change, ValueChange)), None) == written


def test_somebody_s_higher_value_lasts_and_is_left() -> None:
    files = {"/proc/sys/vm/max_map_count": "9999999", "/etc/sysctl.d/x.conf": "vm.max_map_count=9999999"}
    assert check(with_files(current(), **files), "vm.max_map_count", "262144").verdict is Verdict.OK


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


def test_without_a_known_init_system_only_the_running_value_is_set() -> None:
    state = check(replace(current(), init=InitSystem.OTHER))
    assert [type(change) for change in state.changes] == [ValueChange]


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda parameter: parameter.name)
def test_words_of_a_profile(parameter: KernelParameter) -> None:
    low, high = parameter.allowed.start, parameter.allowed.stop - 1
    assert parameter.valid(setting(parameter.name, str(high))) is None
    for wrong in (str(high + 1), "-1", "many", "1.5", ""):
        assert (
            parameter.valid(setting(parameter.name, wrong)) == f"must be a whole number from {low} to {high}"
        )


def test_files_that_nobody_listed_may_hold_the_last_word_whatever_ours_says() -> None:
    unlisted = {"/run/sysctl.d/*.conf": Unknown(reason="cut off"), OURS: "vm.swappiness = 1\n"}
    state = check(right(current(), **unlisted))
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert "cut off" in state.detail
