"""Hosts of a wave are worked on at once; each outcome stays with its action."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import pytest

from orchestrator.model.action import ActionResult, Done, HostAction, Refused, StartNode, StopNode, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionConfirmed
from orchestrator.model.observation import HostView
from orchestrator.model.reading import Reading, Seconds
from orchestrator.runtime.executor import Executor
from tests.simulation.play import cluster
from tests.simulation.program import Simulation

NAMES = tuple(NodeName(f"es{number}") for number in range(1, 7))
_LIMIT_SECONDS = 20.0


class MeetingHosts:
    """Every host waits until so many are at work: one after the other, they would never meet."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties)

    def perform(self, action: HostAction) -> ActionResult:
        try:
            self._barrier.wait(_LIMIT_SECONDS)
        except threading.BrokenBarrierError:
            return Refused(reason="alone")
        return Done(output=action.node)

    def observe(
        self, nodes: Collection[NodeName], *, rights: bool, reboot: bool = False
    ) -> Mapping[NodeName, Reading[HostView]]:
        raise NotImplementedError

    def describe(self, action: HostAction) -> str:
        return str(action)

    def watch(self, nodes: Collection[NodeName], timeout: Seconds) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("verb", [StopNode, StartNode])
def test_hosts_of_a_wave_are_worked_on_at_once(verb: type[StopNode | StartNode]) -> None:
    executor = Executor(Simulation(cluster(3)).cluster, MeetingHosts(len(NAMES)))
    actions = tuple(verb(node=name) for name in NAMES)
    outcomes = executor.perform(actions)
    assert outcomes == tuple(ActionConfirmed(action=action, output=action.node) for action in actions)


class NotingHosts(MeetingHosts):
    """Notes what is tuned on each host, in order; hosts at work meet, two tunables of one host never do."""

    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        self.begun: dict[NodeName, list[str]] = {}
        self.busy: set[NodeName] = set()

    def perform(self, action: HostAction) -> ActionResult:
        assert isinstance(action, TuneHost)
        if action.node in self.busy:
            return Refused(reason=f"{action.node} is tuned already")
        self.busy.add(action.node)
        self.begun.setdefault(action.node, []).append(action.tunable)
        result = super().perform(action)
        self.busy.discard(action.node)
        return result


def test_a_host_is_tuned_in_order_and_different_hosts_at_once() -> None:
    hosts = NotingHosts(3)
    tunables = ("tuned", "transparent_hugepage.enabled", "numad", "io_scheduler")
    actions = tuple(
        TuneHost(node=name, tunable=tunable, changes=()) for name in NAMES[:3] for tunable in tunables
    )
    outcomes = Executor(Simulation(cluster(3)).cluster, hosts).perform(actions)
    assert outcomes == tuple(ActionConfirmed(action=action, output=action.node) for action in actions)
    assert hosts.begun == {name: list(tunables) for name in NAMES[:3]}
