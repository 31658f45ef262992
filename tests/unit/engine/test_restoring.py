"""A run right after a verb: which reading counts, how many must agree, and when restoring ends."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest

from orchestrator.engine.fold import replay
from orchestrator.engine.run import decide
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.action import WriteSettings
from orchestrator.model.cluster import CopyState
from orchestrator.model.event import (
    Event,
    GoodReading,
    PhaseEntered,
    SettingRestored,
    StandingDown,
    StoodDown,
)
from orchestrator.model.observation import Level, ServiceState, SettingsView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Selection
from orchestrator.model.reading import Unknown
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from orchestrator.simulation.mishaps import Crash
from tests.simulation.play import cluster, play, policy
from tests.states import state_with
from tests.unit.engine.asking import ALLOCATION, ES2, evolved, observed, with_copy, with_node

KEY: Final = (Level.PERSISTENT, ALLOCATION)
WANTED: Final = policy(selection=Selection(only=("es2",)))
FAILED: Final = StandingDown(reason="es2 failed", outcome=Outcome.FAILED)
DOWN: Final[dict[str, Any]] = {"phase": Phase.STANDING_DOWN, "standing_down": FAILED}
SETTLING: Final = (("restore_allocation", Phase.REASSIGNED), ("restore_settings", Phase.FINISHING))
TOO_LONG: Final = 660.0
"""More than ten minutes, which is the limit to restore."""


@cache
def _seams() -> tuple[str, ...]:
    simulation = Simulation(cluster(3))
    play(simulation, simulation.begin(WANTED))
    return tuple(simulation.seams.passed)


def until(verb: str) -> tuple[Simulation, RunState]:
    """A run of es2 alone, right after this verb was confirmed."""
    sent = next(n for n, what in enumerate(_seams()) if what.startswith(f"after {verb} "))
    simulation = Simulation(cluster(3))
    state = simulation.begin(WANTED)
    simulation.seams.crash_at = 1 + _seams().index("after the commit of action_confirmed", sent)
    with contextlib.suppress(Crash):
        play(simulation, state)
    return simulation, state_with(replay(simulation.run, simulation.journal.records), in_flight=())


def _decide(simulation: Simulation, state: RunState) -> Decision:
    return decide(state, observed(simulation.world), simulation.world.agenda.now)


# Which reading counts ------------------------------------


def test_a_reading_from_before_the_last_verb_restores_nothing() -> None:
    """Somebody has written our value once more; the old reading is of the moment before both."""
    simulation, state = until("restore_allocation")
    world = simulation.world
    fresh = observed(world)
    world.set(*KEY, "primaries")
    world.agenda.advance(1.0)
    assert KEY in state.unrestored.settings
    for seen, still in ((replace(fresh, at=state.process.acted_at - 1.0), True), (fresh, False)):
        events = decide(state, seen, world.agenda.now).events
        assert (KEY in evolved(state, *events).unrestored.settings) is still


def test_a_node_does_not_fail_on_a_reading_from_before_its_start() -> None:
    simulation, state = until("start")
    world = simulation.world
    host = replace(views.host(world.nodes[ES2], rights=True), service=ServiceState.STOPPED)
    seen = observed(world)
    old = replace(seen, at=state.process.acted_at - 1.0, hosts={**seen.hosts, ES2: host})
    world.agenda.advance(10.0)
    after = evolved(state, *decide(state, old, world.agenda.now).events, at=world.agenda.now)
    assert after.phase is Phase.DOWN, after.process.standing_down


def test_a_wave_has_recovered_by_readings_that_agree() -> None:
    """As many as the policy says, in a row: one that differs begins the count anew."""
    simulation, state = until("restore_allocation")
    world = simulation.world
    world.agenda.advance(120.0)

    def shown(*, recovered: bool = True) -> tuple[Event, ...]:
        nonlocal state
        seen, now = observed(world), world.agenda.now
        assert not isinstance(seen.cluster, Unknown)
        if not recovered:
            chosen = with_copy(
                seen.cluster,
                lambda copy: not copy.primary and copy.node == ES2,
                state=CopyState.INITIALIZING,
            )
            seen = replace(seen, cluster=chosen)
        events = decide(state, seen, now).events
        state = evolved(state, *events, at=now)
        world.agenda.advance(1.0)
        return events

    assert {type(event) for event in shown()} == {SettingRestored}
    enough = state.begun.policy.settle_consecutive
    assert enough > 1
    counted = [(GoodReading(count=count),) for count in range(1, enough)]
    assert [shown() for _ in counted] == counted
    (broken,) = shown(recovered=False)
    assert isinstance(broken, GoodReading)
    assert broken.count == 0
    assert [shown() for _ in counted] == counted
    assert [event.to for event in shown() if isinstance(event, PhaseEntered)] == ["settled"]


# When the time to restore is over ------------------------------------


def test_a_setting_restored_after_its_time_counts_as_restored(subtests: pytest.Subtests) -> None:
    for (verb, phase), changes in ((one, down) for one in SETTLING for down in ({}, DOWN)):
        with subtests.test(verb=verb, changes=changes):
            simulation, state = until(verb)
            assert state.phase is phase
            simulation.world.agenda.advance(TOO_LONG)
            decided = _decide(simulation, state_with(state, **changes))
            assert {type(event) for event in decided.events} == {SettingRestored}


def test_a_setting_not_restored_in_time_stands_the_run_down(subtests: pytest.Subtests) -> None:
    for verb, _ in SETTLING:
        with subtests.test(verb=verb):
            simulation, state = until(verb)
            for level, key in state.unrestored.settings:
                simulation.world.set(level, key, state.unrestored.settings[level, key].wanted)
            simulation.world.agenda.advance(TOO_LONG)
            events = _decide(simulation, state).events
            assert StandingDown in {type(event) for event in events}
            events = _decide(simulation, state_with(state, **DOWN)).events
            (told,) = (event for event in events if isinstance(event, StoodDown))
            assert told.outcome is Outcome.NOT_RESTORED
            assert told.left
            assert not [line for line in told.left if "None" in line], "a setting without a value is absent"


def test_the_time_to_restore_begins_when_a_stop_is_known_lost() -> None:
    simulation, state = until("restore_settings")
    simulation.world.agenda.advance(TOO_LONG)
    late = with_node(state, ES2, phase=NodePhase.PENDING, since=simulation.world.agenda.now - 1.0)
    assert _decide(simulation, state_with(late, confirmed=(), **DOWN)).actions


def test_an_absent_setting_gets_its_effective_value_before_five() -> None:
    """From there on it can be absent again; a value that is not known is not written."""
    simulation, state = until("restore_allocation")
    debts = state.unrestored.settings
    absent = {**debts, KEY: replace(debts[KEY], found=None)}
    state = state_with(state, unrestored=replace(state.unrestored, settings=absent), confirmed=())
    for files, resets, written in (
        ({ALLOCATION: "all"}, False, ["all"]),
        ({ALLOCATION: "new_primaries"}, False, ["new_primaries"]),
        ({ALLOCATION: "all"}, True, [None]),
        ({}, False, []),
    ):
        settings = SettingsView(persistent={ALLOCATION: "primaries"}, files=files, resets=resets)
        seen = replace(observed(simulation.world), settings=settings)
        decision = decide(state, seen, simulation.world.agenda.now)
        writes = [action for action in decision.actions if isinstance(action, WriteSettings)]
        wanted = [change.wanted for write in writes for change in write.changes if change.key == ALLOCATION]
        assert wanted == written
        assert not [event for event in decision.events if isinstance(event, SettingRestored)]
