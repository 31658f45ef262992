"""Settings that are back when the time for putting them back is over: what a reading shows counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.run import decide
from orchestrator.model.event import SettingRestored, StandingDown, StoodDown
from orchestrator.model.phase import NodePhase, Outcome, Phase
from tests.states import state_with
from tests.unit.engine.stepping import ES2, read, until

SETTLING = [("restore_allocation", Phase.REASSIGNED), ("restore_settings", Phase.FINISHING)]
FAILED = StandingDown(reason="es2 failed", outcome=Outcome.FAILED)
TOO_LONG = 660.0
"""More than ten minutes, which is what it has."""


@pytest.mark.parametrize(("verb", "phase"), SETTLING)
@pytest.mark.parametrize("standing_down", [False, True])
def test_a_setting_restored_after_its_time_counts_as_restored(
    verb: str,
    phase: Phase,
    standing_down: bool,  # noqa: FBT001  (a column of the table)
) -> None:
    simulation, state = until(verb)
    assert state.phase is phase
    if standing_down:
        state = state_with(state, phase=Phase.STANDING_DOWN, standing_down=FAILED)
    simulation.world.agenda.advance(TOO_LONG)
    decided = decide(state, read(simulation), simulation.world.agenda.now)
    assert decided.events
    assert {type(event) for event in decided.events} == {SettingRestored}


@pytest.mark.parametrize(("verb", "phase"), SETTLING)
def test_a_setting_not_restored_in_time_stands_the_run_down(verb: str, phase: Phase) -> None:
    simulation, state = until(verb)
    assert state.phase is phase
    for level, key in state.unrestored.settings:
        simulation.world.set(level, key, state.unrestored.settings[level, key].wanted)
    simulation.world.agenda.advance(TOO_LONG)
    decided = decide(state, read(simulation), simulation.world.agenda.now)
    assert StandingDown in {type(event) for event in decided.events}
    down = state_with(state, phase=Phase.STANDING_DOWN, standing_down=FAILED)
    decided = decide(down, read(simulation), simulation.world.agenda.now)
    told = [event for event in decided.events if isinstance(event, StoodDown)]
    assert told
    assert told[0].outcome is Outcome.NOT_RESTORED
    assert told[0].left
    assert not [line for line in told[0].left if "None" in line], "a setting without a value is absent"


def test_the_time_to_restore_begins_when_a_stop_is_known_lost() -> None:
    simulation, state = until("restore_settings")
    simulation.world.agenda.advance(TOO_LONG)
    now = simulation.world.agenda.now
    waited_for = replace(state.nodes[ES2], phase=NodePhase.PENDING, since=now - 1.0)
    down = state_with(
        state,
        phase=Phase.STANDING_DOWN,
        standing_down=FAILED,
        nodes=state.nodes.changed(waited_for),
        confirmed=(),
    )
    assert decide(down, read(simulation), now).actions
