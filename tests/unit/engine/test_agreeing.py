"""One good reading alone ends no wait: as many as the policy says have to agree, in a row."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.run import decide
from orchestrator.model.cluster import CopyState
from orchestrator.model.event import Event, GoodReading, PhaseEntered, SettingRestored
from orchestrator.model.phase import Phase
from orchestrator.model.reading import Unknown
from tests.unit.engine.stepping import decided, read, until


def test_a_wave_has_recovered_by_readings_that_agree() -> None:
    simulation, state = until("restore_allocation")
    world = simulation.world
    assert state.phase is Phase.REASSIGNED
    world.agenda.advance(120.0)

    def shown(*, recovered: bool) -> tuple[Event, ...]:
        nonlocal state
        seen, now = read(simulation), world.agenda.now
        view = seen.cluster
        assert not isinstance(view, Unknown)
        if not recovered:
            fails = next(copy for copy in view.copies if not copy.primary and copy.node == "es2")
            copies = tuple(
                copy._replace(state=CopyState.INITIALIZING) if copy is fails else copy for copy in view.copies
            )
            seen = replace(seen, cluster=replace(view, copies=copies))
        events = decide(state, seen, now).events
        state = decided(state, seen, now)
        world.agenda.advance(1.0)
        return events

    assert {type(event) for event in shown(recovered=True)} == {SettingRestored}
    enough = state.begun.policy.settle_consecutive
    assert enough > 1
    for count in range(1, enough):
        assert shown(recovered=True) == (GoodReading(count=count),)
    (broken,) = shown(recovered=False)
    assert isinstance(broken, GoodReading)
    assert broken.count == 0, "they are counted anew"
    for count in range(1, enough):
        assert shown(recovered=True) == (GoodReading(count=count),)
    assert [event.to for event in shown(recovered=True) if isinstance(event, PhaseEntered)] == ["settled"]
