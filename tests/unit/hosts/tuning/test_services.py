"""numad, and the limits of the node's own service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.limits import LOCKED_MEMORY, OPEN_FILES, ServiceLimit
from orchestrator.hosts.tunables.services import ServiceOff
from orchestrator.model.host_facts import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    FileChange,
    HostTuning,
    Reload,
    ServiceChange,
    ServiceMode,
    TunableState,
    Verdict,
)
from tests.fakes.tuned_hosts import current, profile, rhel6, setting, with_files


def numad(host: HostFacts, *, persist: bool = True) -> TunableState:
    line = setting("numad", "off")
    return ServiceOff(name="numad").check(host, line, profile(line, persist=persist))


def having(host: HostFacts, **mode: bool) -> HostFacts:
    return replace(host, services={"numad": ServiceFacts(present=True, **mode)})


@pytest.mark.parametrize(
    ("mode", "verdict", "modes"),
    [
        ({"running": True, "enabled": True}, Verdict.DRIFT, [(False, True, False), (False, False, True)]),
        ({"enabled": True}, Verdict.DRIFT, [(False, False, True)]),
        ({"running": True, "masked": True}, Verdict.DRIFT, [(False, False, True)]),
        ({}, Verdict.DRIFT, [(False, False, True)]),
        ({"masked": True}, Verdict.OK, []),
    ],
)
def test_numad_is_stopped_disabled_and_masked(
    mode: dict[str, bool], verdict: Verdict, modes: list[tuple[bool, bool, bool]]
) -> None:
    state = numad(having(current(), **mode))
    wanted = [change.wanted for change in state.changes if isinstance(change, ServiceChange)]
    assert state.verdict is verdict
    assert [(one.running, one.enabled, one.masked) for one in wanted] == modes


def test_init_scripts_cannot_be_masked() -> None:
    state = numad(having(rhel6(), running=True, enabled=True))
    last = state.changes[-1]
    assert isinstance(last, ServiceChange)
    assert last.wanted == ServiceMode(running=False, enabled=False, masked=False)
    assert numad(having(rhel6())).verdict is Verdict.OK


def test_numad_that_may_come_back_is_only_stopped_where_nothing_is_to_last() -> None:
    state = numad(having(current(), running=True, enabled=True), persist=False)
    (change,) = state.changes
    assert isinstance(change, ServiceChange)
    assert change.wanted == ServiceMode(running=False, enabled=True)


def test_what_of_a_service_is_wanted_is_said(subtests: pytest.Subtests) -> None:
    for host, mode, persist, wanted, detail in [
        (current(), {}, True, "off (stopped, masked)", "another unit can start it"),
        (current(), {"running": True}, True, "off (stopped, masked)", "another unit can start it"),
        (current(), {"enabled": True}, True, "off (stopped, masked)", ""),
        (current(), {"masked": True}, True, "off (stopped, masked)", ""),
        (current(), {"running": True}, False, "off (stopped)", ""),
        (rhel6(), {"enabled": True}, True, "off (stopped, disabled)", ""),
    ]:
        with subtests.test(init=host.init, mode=mode, persist=persist):
            state = numad(having(host, **mode), persist=persist)
            assert state.wanted == wanted
            assert detail in state.detail
            assert bool(state.detail) is bool(detail)


def test_no_numad_and_an_unknown_one() -> None:
    absent = replace(current(), services={"numad": ServiceFacts(present=False)})
    assert numad(absent).verdict is Verdict.NOT_APPLICABLE
    for services in ({}, {"numad": Unknown(reason="no bus")}):
        state = numad(replace(current(), services=services))
        assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())


FOLDER = "/etc/systemd/system/elasticsearch.service.d"


def limit(host: HostFacts, wanted: str, tunable: ServiceLimit = OPEN_FILES) -> TunableState:
    line = setting(tunable.name, wanted)
    return tunable.check(host, line, profile(line))


def paths(state: TunableState) -> list[str]:
    return [change.path for change in state.changes if isinstance(change, FileChange)]


@pytest.mark.parametrize(
    ("limits", "wanted", "drifts"),
    [
        ({"LimitNOFILE": "65535"}, "65535", False),
        ({"LimitNOFILE": "65535"}, "65536", True),
        ({"LimitNOFILE": "infinity"}, "65536", False),
        ({"LimitNOFILE": "18446744073709551615"}, "65536", False),
        # The soft limit is the one that a process starts with.
        ({"LimitNOFILE": "524288", "LimitNOFILESoft": "1024"}, "65536", True),
    ],
)
def test_a_limit_is_what_systemd_shows_of_the_unit(
    limits: dict[str, str], wanted: str, *, drifts: bool
) -> None:
    state = limit(replace(current(), limits=limits), wanted)
    assert paths(state) == ([f"{FOLDER}/zz-orchestrate-limits.nofile.conf"] if drifts else [])
    assert state.verdict is (Verdict.DRIFT if drifts else Verdict.OK)


OPEN, LOCKED = "Max open files", "Max locked memory"


def test_the_limits_of_the_running_process_count_until_its_restart(subtests: pytest.Subtests) -> None:
    for process, unit, verdict, shown in [
        ("4096", "65535", Verdict.OK, "4096, from the next start on 65535"),
        ("65535", "65535", Verdict.OK, "65535"),
        ("65535", "1024", Verdict.DRIFT, "65535, from the next start on 1024"),
        ("1024", "1024", Verdict.DRIFT, "1024"),
        ("unlimited", "infinity", Verdict.OK, "unlimited"),
    ]:
        with subtests.test(process=process, unit=unit):
            host = replace(current(), limits={"LimitNOFILE": unit}, process_limits={OPEN: process})
            state = limit(host, "65535")
            assert (state.verdict, state.running, state.at_boot) == (verdict, shown, unit)
            assert bool(state.changes) is (unit == "1024")
            assert ("until its node restarts" in state.detail) is (
                int(process.replace("unlimited", "65535")) < 65535
            )


def test_a_process_with_less_than_its_unit_needs_a_restart_and_no_change() -> None:
    for tunable, process in [(OPEN_FILES, {OPEN: "1024"}), (LOCKED_MEMORY, {LOCKED: "65536"})]:
        option = {tunable.option: "infinity"}
        state = limit(replace(current(), limits=option, process_limits=process), "131072", tunable)
        tuning = HostTuning(states=(state,))
        assert (tuning.drifted, tuning.restart_needed, tuning.unread) == ((), (state,), ())


def test_limits_of_a_process_that_cannot_be_read_are_said() -> None:
    state = limit(replace(current(), process_limits=Unknown(reason="Permission denied")), "65535")
    assert (state.verdict, state.running) == (Verdict.OK, "65535, from the next start on")
    assert state.detail == "limits of the running process: Permission denied"


def test_a_limit_that_systemd_does_not_show_is_unknown() -> None:
    state = limit(replace(current(), limits={}), "65536")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())


def test_a_drop_in_after_ours_is_named_and_nothing_is_written_again() -> None:
    made = limit(replace(current(), limits={"LimitNOFILE": "9"}), "65536")
    (change,) = made.changes
    assert isinstance(change, FileChange)
    there = with_files(current(), **{change.path: change.wanted})
    state = limit(replace(there, limits={"LimitNOFILE": "9"}), "65536")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert "a file after it sets another limit" in state.detail


def test_tuned_may_stay_on_and_an_old_profile_is_told_so() -> None:
    tuned = ServiceOff(name="tuned")
    assert tuned.valid(setting("tuned", "off")) is None
    assert "`override` is not needed" in str(tuned.valid(setting("tuned", "override")))
    line = setting("tuned", "override")
    state = tuned.check(current(), line, profile(line))
    assert (state.verdict, state.changes) == (Verdict.NOT_APPLICABLE, ())


def test_a_drop_in_counts_after_a_reload() -> None:
    (change,) = limit(current(), "unlimited", LOCKED_MEMORY).changes
    assert isinstance(change, FileChange)
    assert change.reload is Reload.SYSTEMD
    assert str(change.wanted).splitlines()[1:] == ["[Service]", "LimitMEMLOCK=infinity"]


def test_rhel_6_has_a_file_of_pam_and_says_what_it_does_not_do() -> None:
    state = limit(rhel6(), "1048576", LOCKED_MEMORY)
    (change,) = state.changes
    assert isinstance(change, FileChange)
    assert str(change.wanted).splitlines()[1:] == ["elasticsearch - memlock 1024"]
    assert "/etc/sysconfig/elasticsearch comes after it" in state.detail
    high = with_files(rhel6(), **{"/etc/security/limits.conf": "elasticsearch - nofile unlimited\n"})
    assert limit(high, "65536").verdict is Verdict.OK
    others = with_files(rhel6(), **{"/etc/security/limits.conf": "riak - nofile unlimited\n* - nofile 9\n"})
    assert limit(others, "65536").verdict is Verdict.DRIFT


def test_a_node_without_a_service_has_no_limits_of_one() -> None:
    assert limit(replace(current(), unit=""), "65536").verdict is Verdict.NOT_APPLICABLE
    assert limit(replace(current(), init=InitSystem.OTHER), "65536").verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("tunable", "wanted", "fine"),
    [
        (OPEN_FILES, "65536", True),
        (OPEN_FILES, "unlimited", False),
        (OPEN_FILES, "0", False),
        (LOCKED_MEMORY, "unlimited", True),
        (LOCKED_MEMORY, "64G", False),
    ],
)
def test_words_of_a_profile(tunable: ServiceLimit, wanted: str, fine: bool) -> None:  # noqa: FBT001  (a column)
    assert (tunable.valid(setting(tunable.name, wanted)) is None) is fine
    assert ServiceOff(name="numad").valid(setting("numad", "on")) == "must be off"
