"""Scenes that no row can tell: readings that hang, two programs, addresses that hide a machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import product

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.policy import Deadlines
from orchestrator.ports import ClusterReadings
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.world import World
from tests.simulation.chance import chance
from tests.simulation.play import cluster, plan_of, policy
from tests.simulation.program_mishaps import TakenOver
from tests.simulation.scene import ES3, ES6, POOL, Scene, at, first
from tests.simulation.scenes.ordinary import at_stop, wanted
from tests.simulation.scenes.waves import IN_ORDER, PAIRS, tiered
from tests.simulation.sharing import always, rebooting, sharing
from tests.simulation.wide import Life


@pytest.mark.parametrize(
    "verb", ["stop", "start", "restore_allocation", "hook_after_recovery", "restore_settings"]
)
def test_observe_that_fails_after_half_a_minute_ends_a_run(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets to the cluster are dropped: each call waits for its limit, and time goes on for the run too."""
    observe = SimulatedCluster.observe

    def slow(self: SimulatedCluster, look: Collection[Look]) -> ClusterReadings:
        self.world.agenda.advance(31.0)
        return observe(self, look)

    monkeypatch.setattr(SimulatedCluster, "observe", slow)
    Scene(
        name=verb,
        wanted=policy(hooks=POOL, deadlines=Deadlines(hold=600.0, recover=600.0, withheld=600.0)),
        befalls=[at(verb, mishaps.Unreadable(seconds=1e7))],
        ends=None,
        within=20_000.0,
    ).play()


def test_a_removed_record_is_that_of_its_program_alone() -> None:
    """Epochs begin anew then: the record of the other machine has the number that ours had."""
    ours = Simulation(cluster(3))
    ours.begin(policy())
    record, other = ours.record, ours.successor("run-2")
    ours.fate.befall(mishaps.LeaseTaken())
    assert ours.leases.stands is None
    other.begin(policy())
    assert (other.record.run, other.record.epoch) == ("run-2", record.epoch)
    ours.fate.befall(mishaps.LeaseTaken())
    assert ours.leases.read() == other.record, "ours is not there to be removed"


def test_taken_over_a_suspended_process_changes_nothing(subtests: pytest.Subtests) -> None:
    """Suspended with a node down, taken over, and woken while its successor is at work."""
    for after, restarts in product([0.5, 3.0, 9.0], [False, True]):
        with subtests.test(after=after, restarts=restarts):
            drawn = replace(
                chance(3, ordinary=False),
                plan=(at_stop(TakenOver(seconds=130.0, restarts=restarts), after=after),),
                trips=(),
                crashes=(),
                planned=False,
                wanted=replace(wanted(tune=None), zone_attribute="zone", timeout=None, pause_after=None),
            )
            Life(drawn).live()


def test_nodes_with_their_own_addresses_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers: only the machine id, which their hosts tell, says that they share one."""
    cluster_of = views.cluster

    def apart(world: World) -> ClusterView:
        view = cluster_of(world)
        named = tuple(replace(node, address=f"{node.name}.example") for node in view.nodes)
        return replace(view, nodes=named)

    monkeypatch.setattr(views, "cluster", apart)
    silent = [first(mishaps.HostCutOff(node=name, seconds=20.0)) for name in (ES3, ES6)]
    played = Scene(name="together", of=sharing, wanted=always(), befalls=silent).play()
    assert {frozenset(pair) for pair in played.waves} == {frozenset(pair) for pair in PAIRS}


def test_a_plan_of_machines_names_each_and_has_one_reboot() -> None:
    plan = plan_of(sharing(), always())
    assert plan.holds == ()
    both = "both nodes to restart on machine host-{}.example{}"
    assert [(wave.nodes, wave.why) for wave in plan.waves] == [
        (PAIRS[0], both.format("es2", "")),
        (PAIRS[1], both.format("es3", "")),
        (PAIRS[2], both.format("es1", "; with the elected master, so it goes last")),
    ]
    plan = plan_of(sharing(), rebooting())
    assert plan.holds == ()
    assert [step.target for step in plan.steps if step.action == "reboot"] == ["es2", "es3", "es4"]
    assert [step.target for step in plan.steps if step.action == "stop"] == [n for p in PAIRS for n in p]


def test_a_plan_by_role_and_tier_is_what_the_run_does() -> None:
    assert [wave.nodes for wave in plan_of(tiered(), policy(zone_attribute="zone")).waves] == IN_ORDER


def test_a_planned_machine_is_never_split() -> None:
    world = sharing()
    world.add_index("pair", places=[NodeName("es2"), NodeName("es5")])
    assert {wave.nodes for wave in plan_of(world, always()).waves} == {*PAIRS}
