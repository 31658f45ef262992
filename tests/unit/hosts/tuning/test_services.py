"""numad, and the limits of the node's own service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.limits import LOCKED_MEMORY, OPEN_FILES, ServiceLimit
from orchestrator.hosts.tunables.numad import NUMAD
from orchestrator.model.host_facts import FileText, HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import FileChange, Reload, ServiceChange, ServiceMode, TunableState, Verdict
from tests.fakes.tuned_hosts import current, profile, rhel6, setting, with_files


def numad(host: HostFacts, *, persist: bool = True) -> TunableState:
    line = setting("numad", "off")
    return NUMAD.check(host, line, profile(line, persist=persist))


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
    ("files", "wanted", "written"),
    [
        ({}, "65535", []),
        ({}, "65536", [f"{FOLDER}/90-orchestrate-limits.nofile.conf"]),
        ({f"{FOLDER}/x.conf": "[Service]\nLimitNOFILE=infinity\n"}, "65536", []),
        ({f"{FOLDER}/x.conf": "[Service]\nLimitNOFILE=64K\n"}, "65536", []),
        (
            {f"{FOLDER}/x.conf": "[Unit]\nLimitNOFILE=100000\n"},
            "65536",
            [f"{FOLDER}/90-orchestrate-limits.nofile.conf"],
        ),
        # The soft limit is the one that a process starts with.
        (
            {f"{FOLDER}/50-x.conf": "[Service]\nLimitNOFILE=1024:524288\n"},
            "65536",
            [f"{FOLDER}/90-orchestrate-limits.nofile.conf"],
        ),
        # A later drop-in wins over an earlier one, so ours has to come after it.
        (
            {f"{FOLDER}/99-x.conf": "[Service]\nLimitNOFILE=9\n"},
            "65536",
            [f"{FOLDER}/zz-orchestrate-limits.nofile.conf"],
        ),
        # The unit of the administrator hides the package's.
        ({"/etc/systemd/system/elasticsearch.service": "[Service]\nLimitNOFILE=99999\n"}, "65536", []),
    ],
)
def test_a_limit_of_a_unit(files: dict[str, FileText], wanted: str, written: list[str]) -> None:
    state = limit(with_files(current(), **files), wanted)
    assert paths(state) == written
    assert state.verdict is (Verdict.DRIFT if written else Verdict.OK)


def test_a_drop_in_counts_after_a_reload() -> None:
    (change,) = limit(current(), "unlimited", LOCKED_MEMORY).changes
    assert isinstance(change, FileChange)
    assert change.reload is Reload.SYSTEMD
    assert str(change.wanted).splitlines()[1:] == ["[Service]", "LimitMEMLOCK=infinity"]


def test_a_drop_in_that_cannot_be_read_leaves_it_unknown() -> None:
    state = limit(with_files(current(), **{f"{FOLDER}/x.conf": Unknown(reason="denied")}), "65536")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())


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
    assert NUMAD.valid(setting("numad", "on")) == "must be off"
