"""A defect of the program in mid-run: everything is put back first, and then the defect is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.model.action import HostAction, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.runtime.lookout import Order
from orchestrator.runtime.loop import Loop, Ports
from orchestrator.simulation.run import Simulation
from tests.simulation.play import Watcher, cluster, policy

ES2 = NodeName("es2")


class DefectError(ValueError):
    """Raised where nobody expects it."""


@dataclass
class Faulty:
    """Hosts whose adapter raises: at the chosen verb, so many times, before or after doing it."""

    inner: Any
    verb: type[HostAction]
    times: int
    done_first: bool = False
    raised: list[HostAction] = field(default_factory=list)

    def perform(self, action: HostAction) -> Any:
        if not (isinstance(action, self.verb) and action.node == ES2 and len(self.raised) < self.times):
            return self.inner.perform(action)
        self.raised.append(action)
        if self.done_first:
            self.inner.perform(action)
        raise DefectError("string argument should contain only ASCII characters")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _loop(simulation: Simulation, hosts: Any) -> Loop:
    watcher = Watcher(simulation, simulation.world.agenda.now + 48 * 3600.0)
    ports = Ports(
        cluster=simulation.cluster,
        hosts=hosts,
        lease=simulation.lease,
        journal=simulation.journal,
        clock=simulation.clock,
        listener=simulation.listener,
        reporter=watcher,
    )
    return Loop(
        simulation.begin(policy()),
        ports,
        asked=lambda: (Request.NONE, ""),
        workers=1,
        reads=Order.CLUSTER_FIRST,
    )


@pytest.mark.parametrize("verb", [StopNode, StartNode])
@pytest.mark.parametrize("done_first", [False, True])
def test_everything_is_put_back_before_a_defect_is_told(verb: type[HostAction], *, done_first: bool) -> None:
    world = cluster(3)
    simulation = Simulation(world)
    loop = _loop(simulation, Faulty(simulation.hosts, verb, times=1, done_first=done_first))
    with pytest.raises(DefectError):
        loop.run()
    assert loop.state.phase is Phase.ENDED
    assert loop.state.outcome is Outcome.FAILED
    assert "a defect of the program: DefectError" in loop.state.message
    assert world.settings() == cluster(3).settings()
    assert all(node.process for node in world.nodes.values())
    assert world.violations == []


def test_a_defect_that_goes_on_ends_the_program_and_nothing_spins() -> None:
    simulation = Simulation(cluster(3))
    hosts = Faulty(simulation.hosts, StartNode, times=99)
    with pytest.raises(DefectError):
        _loop(simulation, hosts).run()
    assert len(hosts.raised) == 4
