"""Settings that are back when the time for putting them back is over: what a reading shows counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.run import decide
from orchestrator.model.event import SettingRestored, StandingDown, StoodDown
from orchestrator.model.phase import NodePhase, Outcome, Phase
from tests.states import state_with
from tests.unit.engine.test_stale_readings import ES2, _read, _until

SETTLING = [("restore_allocation", Phase.REASSIGNED), ("restore_settings", Phase.FINISHING)]
FAILED = StandingDown(reason="es2 failed", outcome=Outcome.FAILED)
TOO_LONG = 660.0
"""More than ten minutes, which is what it has."""


@pytest.mark.parametrize(("verb", "phase"), SETTLING)
@pytest.mark.parametrize("standing_down", [False, True])
def test_what_is_back_is_counted_as_put_back_though_its_time_is_over(
    verb: str,
    phase: Phase,
    standing_down: bool,  # noqa: FBT001  (a column of the table)
) -> None:
    simulation, state = _until(verb)
    assert state.phase is phase
    if standing_down:
        state = state_with(state, phase=Phase.STANDING_DOWN, standing_down=FAILED)
    simulation.world.agenda.advance(TOO_LONG)
    decided = decide(state, _read(simulation), simulation.world.agenda.now)
    assert decided.events
    assert {type(event) for event in decided.events} == {SettingRestored}


@pytest.mark.parametrize(("verb", "phase"), SETTLING)
def test_what_is_not_back_when_its_time_is_over_stands_the_run_down(verb: str, phase: Phase) -> None:
    simulation, state = _until(verb)
    assert state.phase is phase
    for level, key in state.unrestored.settings:
        simulation.world.set(level, key, state.unrestored.settings[level, key].wanted)
    simulation.world.agenda.advance(TOO_LONG)
    decided = decide(state, _read(simulation), simulation.world.agenda.now)
    assert StandingDown in {type(event) for event in decided.events}
    down = state_with(state, phase=Phase.STANDING_DOWN, standing_down=FAILED)
    decided = decide(down, _read(simulation), simulation.world.agenda.now)
    told = [event for event in decided.events if isinstance(event, StoodDown)]
    assert told
    assert told[0].outcome is Outcome.NOT_RESTORED
    assert told[0].left


def test_the_time_for_putting_back_begins_when_a_stop_that_never_happened_was_known_as_such() -> None:
    simulation, state = _until("restore_settings")
    simulation.world.agenda.advance(TOO_LONG)
    now = simulation.world.agenda.now
    waited_for = replace(state.nodes[ES2], phase=NodePhase.PENDING, since=now - 1.0)
    down = state_with(
        state,
        phase=Phase.STANDING_DOWN,
        standing_down=FAILED,
        nodes={**state.nodes, ES2: waited_for},
        confirmed=(),
    )
    assert decide(down, _read(simulation), now).actions
