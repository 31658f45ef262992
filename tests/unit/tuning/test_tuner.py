"""Hosts read and changed through the port: in parallel, one machine at a time, defects kept to themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.hosts.connection import CommandResult, Job, Lost, Outcome, Trouble, Unreachable
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import (
    FileChange,
    HostTuning,
    OnFailure,
    TuningProfile,
    TuningSetting,
    ValueChange,
    Verdict,
)
from orchestrator.redact import Redactor
from orchestrator.tuning.registry import TUNABLES
from orchestrator.tuning.tunable import FactReads, Part, Tunable
from orchestrator.tuning.tuner import TunableHosts, Tuner
from tests.fakes.framing import part
from tests.fakes.host_kinds import debian
from tests.fakes.host_tree import HostTree

ES1 = NodeName("es1")
SWAPPINESS = "/proc/sys/vm/swappiness"
CHANGE = ValueChange(path=SWAPPINESS, found="60", wanted="1")
PROFILE = TuningProfile(
    name="test",
    applies_to="elasticsearch",
    settings=(
        TuningSetting(tunable="vm.swappiness", wanted="1"),
        TuningSetting(tunable="transparent_hugepage.enabled", wanted="never", on_failure=OnFailure.STOP),
    ),
    persist=False,
)


def host(tree: HostTree, node: str, address: str = "127.0.0.1", sudo: Sudo = Sudo.OFF) -> HostSettings:
    return tree.settings(node, address=address, sudo=sudo)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return debian(tmp_path)


def verdicts(reading: Reading[HostTuning]) -> dict[str, Verdict]:
    assert isinstance(reading, HostTuning), reading
    return {state.tunable: state.verdict for state in reading.states}


def test_whether_root_needs_sudo_is_found_before_the_change(tree: HostTree) -> None:
    tree.program("id", "echo 1000")
    with closing(TunableHosts({ES1: host(tree, "es1", sudo=Sudo.AUTO)})) as hosts:
        assert isinstance(hosts.perform(TuneHost(node=ES1, tunable="x", changes=(CHANGE,))), Done)
    assert tree.calls("sudo") == (f"sudo -n tee {tree.path}{SWAPPINESS}",)


def test_a_host_without_settings_is_refused_by_tunable() -> None:
    with closing(TunableHosts({})) as hosts:
        result = hosts.perform(TuneHost(node=ES1, tunable="x", changes=(CHANGE,)))
        read = hosts.tuning([ES1], PROFILE)[ES1]
    assert result == Refused(reason="x: there are no host settings for es1")
    assert read == Unknown(reason="host of es1: there are no host settings for es1")


class Unwell(Tunable):
    """A tunable with a defect."""

    name = "unwell"
    reads = FactReads()

    def valid(self, _: TuningSetting) -> str | None:
        return None

    def parts(self, *_: object) -> tuple[Part, ...]:
        raise ZeroDivisionError("of a token=abcdef")


def test_a_tunable_with_a_defect_and_an_unknown_one_are_unknown(tree: HostTree) -> None:
    settings = host(tree, "es1")
    profile = TuningProfile(
        name="test",
        applies_to="elasticsearch",
        settings=(
            TuningSetting(tunable="of a later version", wanted="1"),
            TuningSetting(tunable="unwell", wanted="1"),
            *PROFILE.settings,
        ),
        persist=False,
    )
    unwell: Tunable = Unwell()
    tunables = {"unwell": unwell, **TUNABLES}
    tuner = Tuner(lambda _: (settings, LocalConnection(settings.environment)), Redactor(), tunables)
    found = tuner.read([ES1], profile, 30.0)[ES1]
    assert verdicts(found) == {
        "unwell": Verdict.UNKNOWN,
        "transparent_hugepage.enabled": Verdict.DRIFT,
        "vm.swappiness": Verdict.DRIFT,
        "of a later version": Verdict.UNKNOWN,
    }
    assert isinstance(found, HostTuning)
    assert found.states[0].detail == (
        "a defect of this program, please report it: ZeroDivisionError: of a token=[redacted]"
    )


class Scripted:
    """A connection whose answers are given; it notes how many were at work at once."""

    def __init__(self, answer: Callable[[], Outcome]) -> None:
        self.answer = answer
        self.lines: list[str] = []
        self.now = self.most = 0
        self._lock = threading.Lock()

    def run(self, command: str, **_: object) -> Outcome:
        with self._lock:
            self.lines.append(command)
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self._lock:
            self.now -= 1
        return self.answer()

    def start(self, command: str, **_: object) -> Job | Unreachable:
        raise NotImplementedError

    def drop(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


GOOD = CommandResult(exit=0, stdout=part("tuning", ""))


def tune_both(addresses: Sequence[str], tree: HostTree) -> int:
    """How many were at work at once, of four actions on two nodes."""
    nodes = [host(tree, f"es{number}", address) for number, address in enumerate(addresses)]
    connection = Scripted(lambda: GOOD)
    tuner = Tuner(lambda node: (next(one for one in nodes if one.node == node), connection), Redactor())
    results: list[ActionResult] = []
    actions = [TuneHost(node=one.node, tunable="thp", changes=()) for one in nodes] * 2
    threads = [
        threading.Thread(target=lambda each: results.append(tuner.perform(each)), args=(a,)) for a in actions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(result) for result in results] == [Done] * 4
    return connection.most


def test_nodes_of_a_machine_are_tuned_in_turn_machines_at_once(tree: HostTree) -> None:
    assert tune_both(["10.0.0.1", "10.0.0.1"], tree) == 1
    assert tune_both(["10.0.0.1", "10.0.0.2"], tree) == 2


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Unreachable(trouble=Trouble.REFUSED, reason="es1 refuses, password=hunter22"), Refused),
        (Lost(reason="gone, password=hunter22", timed_out=False), InDoubt),
        (Lost(reason="no end, password=hunter22", timed_out=True), InDoubt),
        (CommandResult(exit=1, stdout="", stderr="locked out, password=hunter22"), Refused),
    ],
)
def test_what_goes_wrong_on_the_way_is_data_and_holds_no_secret(
    tree: HostTree, outcome: Outcome, kind: type[ActionResult]
) -> None:
    connection = Scripted(lambda: outcome)
    tuner = Tuner(lambda _: (host(tree, "es1"), connection), Redactor())
    action = TuneHost(node=ES1, tunable="vm.swappiness", changes=(CHANGE,))
    result = tuner.perform(action)
    assert isinstance(result, kind)
    assert isinstance(result, Refused | InDoubt)
    assert result.reason.startswith("vm.swappiness: ")
    assert "[redacted]" in result.reason
    reading = tuner.read([ES1], PROFILE, 30.0)[ES1]
    assert isinstance(reading, Unknown)
    assert "hunter22" not in reading.reason


def test_a_lost_reading_is_taken_again_and_a_change_is_not(tree: HostTree) -> None:
    connection = Scripted(lambda: Lost(reason="gone", timed_out=False))
    tuner = Tuner(lambda _: (host(tree, "es1"), connection), Redactor())
    reading = tuner.read([ES1], PROFILE, 30.0)[ES1]
    assert isinstance(reading, Unknown)
    assert reading.passes
    assert len(connection.lines) == 2
    tuner.perform(TuneHost(node=ES1, tunable="vm.swappiness", changes=(CHANGE,)))
    assert len(connection.lines) == 3


def test_what_is_described_is_what_an_operator_would_type(tree: HostTree) -> None:
    settings = host(tree, "es1", sudo=Sudo.PASSWORDLESS)
    hosts = TunableHosts({ES1: settings})
    changes = (CHANGE, FileChange(path="/etc/a b", found="x", wanted=None))
    line = hosts.describe(TuneHost(node=ES1, tunable="vm.swappiness", changes=changes))
    root = tree.path
    assert line == f"printf %s 1 | sudo -n tee {root}{SWAPPINESS}; sudo -n rm -f '{root}/etc/a b'"


def test_a_hundred_hosts_are_read_though_one_of_them_hangs(tree: HostTree) -> None:
    def way(node: NodeName) -> tuple[HostSettings, Scripted]:
        if node == "es7":
            time.sleep(30)
        return host(tree, node), Scripted(lambda: GOOD)

    names = [NodeName(f"es{number}") for number in range(100)]
    found = Tuner(way, Redactor()).read(names, PROFILE, 2.0)
    late = [
        node
        for node, reading in found.items()
        if isinstance(reading, Unknown) and "not read within" in reading.reason
    ]
    assert late == ["es7"]
