"""A value with some fields changed is the one that `dataclasses.replace` makes."""

from __future__ import annotations

import dataclasses

import pytest

from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import Phase
from orchestrator.model.replacing import replace


@pytest.mark.parametrize(
    "value", [RunState(run="r1"), NodeProgress(name=NodeName("es1"))], ids=["run", "node"]
)
def test_it_is_what_the_standard_library_makes(value: RunState | NodeProgress) -> None:
    phase = Phase.DOWN
    assert replace(value, phase=phase) == dataclasses.replace(value, phase=phase)
    assert replace(value) == value
    assert replace(value) is not value


def test_the_value_itself_stays_as_it_was() -> None:
    state = RunState(run="r1")
    assert replace(state, waves_finished=3).waves_finished == 3
    assert state.waves_finished == 0


def test_a_field_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="RunState has no field retired"):
        replace(RunState(run="r1"), retired=3)  # type: ignore[call-arg]
