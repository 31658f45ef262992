"""A verb in doubt takes effect late: a stop counts from its answer, a step is not taken twice."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Hook, Hooks, Strategy
from orchestrator.simulation import turns
from orchestrator.simulation.mishaps import How, Mishap, Trip
from tests.simulation.play import cluster, play, policy, run
from tests.simulation.program_mishaps import StaleReadings
from tests.simulation.upgrading import STEPS, upgrading, wanted

_HOOKS = Hooks(before_stop=(Hook(run="depool"),), after_recovery=(Hook(run="pool"),))


def test_late_stop_behind_stale_readings_awaits_copies() -> None:
    """The member list shows the old process until the new one is back: its hooks wait for its copies."""
    late = Trip(verb="stop", target="es1", how=How.LATE, late=60.0)
    stale = Mishap(what=StaleReadings(seconds=60.0), verb="restore_allocation", after=0.05)
    world = cluster()
    world.hooks = _HOOKS
    for index in world.indices.values():
        for shard in index.shards:
            shard.size = 4 << 30
    simulation, state = run(world, plan=[stale], trips=[late], wanted=policy(hooks=_HOOKS))
    assert state.outcome is Outcome.DONE
    assert world.violations == []
    hooks = [fact for fact in world.nodes["es1"].facts if fact.what == "hook after_recovery 0"]
    assert hooks
    assert [fact.missing for fact in hooks if fact.missing] == []
    assert turns.lacking(world.nodes["es1"], simulation.policy, simulation.began, 0.0) == []


def test_stop_in_doubt_counts_from_its_answer() -> None:
    """Two stops of one wave: the second leaves while the first is still answered, and is done 70 s later."""
    world = cluster(6)
    world.allowed_down = 2
    trips = [
        Trip(verb="stop", how=How.UNACKNOWLEDGED),
        Trip(verb="stop", first=2, how=How.LATE, late=70.0),
    ]
    _, state = run(world, trips=trips, wanted=policy(strategy=Strategy.ZONE, max_unavailable=2))
    assert world.violations == []
    assert state.outcome is Outcome.DONE


def test_install_step_done_late_is_not_taken_again() -> None:
    """A step in doubt, refused when it is sent again, ends well before its node is started."""
    world = cluster()
    world.steps = len(STEPS)
    world.nodes["es1"].disk.seconds = 3.0
    trips = [
        Trip(verb="install", target="es1", how=How.LATE, first=2, late=15.0),
        Trip(verb="install", target="es1", how=How.REFUSED, first=3),
        Trip(verb="start", target="es1", how=How.LOST, times=2),
    ]
    chosen = upgrading(upgrade=replace(wanted(), installed=None))
    simulation, state = run(world, trips=trips, wanted=chosen)
    assert state.outcome is Outcome.FAILED
    state = play(simulation, simulation.resume(retry_failed=True))
    assert state.outcome is Outcome.DONE
    steps = [fact.what for fact in world.nodes["es1"].facts if fact.what.startswith("installed")]
    assert steps == ["installed 0", "installed 1"]
    assert world.violations == []
