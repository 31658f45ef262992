"""No row of the automaton's table is idle: one that is taken out is noticed by a scene that meets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import pytest

from orchestrator.engine import node as automaton
from orchestrator.engine.node import TABLE, Move
from orchestrator.engine.sight import Sight
from orchestrator.errors import SafetyViolation
from orchestrator.model.phase import NodePhase
from orchestrator.model.turn import Goal
from orchestrator.simulation.mishaps import Crash
from tests.simulation.play import StuckError
from tests.simulation.scene import Scene
from tests.simulation.scenes import lost_stops, turns, waves

_OTHERS: Final = (
    "a lost stop: the same life",
    "a lost stop done after",
    "StopHangs: a start is queued",
    "rescued: a whole wave",
    "second_failure: a node of the wave that leaves again",
    "reboot: one of a machine once",
)
SCENES: Final = (
    *turns.AUTOMATON,
    *(each for each in (*lost_stops.SCENES, *waves.SCENES) if each.name.startswith(_OTHERS)),
)
Row = tuple[NodePhase, Sight]
_MEETS_NOTHING: Final = (Move.REST, Move.REST)
_LEFT_TO_THE_CELLS: Final = {
    NodePhase.PENDING: frozenset({Sight.LEFT}),
    NodePhase.STOPPING: frozenset({Sight.DOUBT, Sight.COMING, Sight.LEFT, Sight.UNKNOWN}),
    NodePhase.STOPPED: frozenset(
        {Sight.STOPPING, Sight.DOUBT, Sight.SAME, Sight.NEW, Sight.COMING, Sight.LEFT, Sight.UNKNOWN}
    ),
    NodePhase.STARTING: frozenset(
        {Sight.STOPPING, Sight.DOUBT, Sight.SAME, Sight.NEW, Sight.LEFT, Sight.UNKNOWN}
    ),
    NodePhase.REJOINED: frozenset(
        {Sight.STOPPING, Sight.DOUBT, Sight.SAME, Sight.NEW, Sight.COMING, Sight.LEFT, Sight.UNKNOWN}
    ),
    NodePhase.RECOVERED: frozenset({Sight.STOPPING, Sight.AWAY, Sight.LEFT}),
    NodePhase.SKIPPED: frozenset({Sight.STOPPING, Sight.AWAY, Sight.SAME, Sight.NEW, Sight.LEFT}),
}
"""Rows that no scene here tells from REST: limits, and moves that the run makes itself.

The test of every cell, in the tests of the core, is what misses them.
"""


@contextmanager
def _table(table: object) -> Iterator[None]:
    before = automaton.TABLE
    setattr(automaton, "TABLE", table)  # noqa: B010  (a constant, but for this test)
    try:
        yield
    finally:
        setattr(automaton, "TABLE", before)  # noqa: B010


def _without(row: Row) -> object:
    phase, sight = row
    return {**TABLE, phase: {**TABLE[phase], sight: _MEETS_NOTHING}}


@cache
def _met_by() -> dict[Row, dict[str, Scene]]:
    """By row, the scenes that meet it."""
    met: dict[Row, dict[str, Scene]] = {}
    original = automaton.move_of
    for scene in SCENES:

        def noting(phase: NodePhase, sight: Sight, goal: Goal, of: Scene = scene) -> Move:
            met.setdefault((phase, sight), {})[of.name] = of
            return original(phase, sight, goal)

        automaton.move_of = noting
        try:
            scene.play()
        finally:
            automaton.move_of = original
    return met


def _noticed(row: Row) -> bool:
    scenes = _met_by().get(row, {}).values()
    with _table(_without(row)):
        for scene in scenes:
            try:
                scene.play()
            except (AssertionError, SafetyViolation, StuckError, Crash, IndexError, ValueError):
                return True
    return False


@pytest.mark.part(name="long")
def test_a_row_of_table_that_is_taken_out_is_noticed() -> None:
    rows = [(phase, sight) for phase in TABLE for sight in Sight if TABLE[phase][sight] != _MEETS_NOTHING]
    wanted = [row for row in rows if row[1] not in _LEFT_TO_THE_CELLS.get(row[0], ())]
    assert [f"{phase.value} x {sight.name}" for phase, sight in wanted if not _noticed((phase, sight))] == []
