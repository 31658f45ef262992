"""A node of a wave whose stop nobody knows of: done later than anyone waits for, or never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.action import RebootHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Deadlines
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import How, Mishap, Trip
from tests.simulation.play import lives, play
from tests.simulation.zones import by_zone, zoned

ES2, ES5 = NodeName("es2"), NodeName("es5")


def test_a_stop_done_in_a_later_wave_is_repaired() -> None:
    """It was taken as not done, and its node was chosen again: it goes while allocation is withheld anew."""
    for tenths in range(360, 420, 2):
        world = zoned()
        world.nodes[ES2].start_seconds = 30.0
        late = Trip(verb="stop", how=How.LATE, target="es5", late=tenths / 10)
        simulation = Simulation(world, trips=[late])
        state = play(simulation, simulation.begin(by_zone()))
        assert all(node.joined for node in world.nodes.values()), f"{late.late} s late: {state.message}"
        assert world.settings() == ({}, {})
        assert world.violations == []


@pytest.mark.parametrize("hangs", [False, True], ids=["its host answers again", "its host is slow to answer"])
def test_a_failed_node_that_runs_is_not_rebooted_past_the_gates(*, hangs: bool) -> None:
    """Its stop was lost with the way to its host: once that is back, it goes as any other node does."""
    world = zoned()
    simulation = Simulation(
        world,
        trips=[Trip(verb="stop", how=How.LOST, target="es5")],
        plan=[Mishap(what=mishaps.HostCutOff(node=ES5, seconds=2000.0), verb="stop", target="es5")],
    )
    deadlines = replace(Deadlines(), stop=120.0, start=120.0)
    state = play(simulation, simulation.begin(by_zone(reboot=True, deadlines=deadlines)))
    assert state.outcome is Outcome.FAILED
    assert state.nodes[ES5].phase is NodePhase.FAILED
    assert lives(world)[ES5] == 1, "it was never down"
    world.agenda.advance(3000.0)
    if hangs:
        simulation.fate.befall(mishaps.HostHangs(node=ES5, seconds=20.0))
    state = play(simulation, simulation.resume(retry_failed=True))
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert {node.boot for node in world.nodes.values()} == {2}
    assert simulation.hosts.sent.count(RebootHost(node=ES5)) == 1


@pytest.mark.parametrize(("dies_after", "second"), [(300.0, False), (700.0, True)])
def test_a_node_that_left_the_wave_is_missed_without_its_stop(dies_after: float, *, second: bool) -> None:
    """Until then it is ours to bring up; after that it is as any other that fails while ours are down."""
    world = zoned()
    world.nodes[ES2].join_seconds = 1000.0
    deadlines = replace(Deadlines(), start=1800.0, rejoin=1800.0, withheld=3600.0)
    simulation = Simulation(
        world,
        trips=[Trip(verb="stop", how=How.LOST, target="es5")],
        plan=[Mishap(what=mishaps.NodeDies(node=ES5), verb="stop", target="es5", after=dies_after)],
    )
    state = play(simulation, simulation.begin(by_zone(deadlines=deadlines)))
    assert (state.process.second_failure is not None) is second
    assert world.nodes[ES2].joined
    assert world.nodes[ES5].joined is not second
    assert world.settings() == ({}, {})
    assert world.violations == []
