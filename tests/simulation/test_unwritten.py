"""A journal that cannot be written until the run has ended: its last events are tried again for a while."""

from __future__ import annotations

import pytest

from orchestrator.engine.fold import replay
from orchestrator.model.event import StoodDown
from orchestrator.model.phase import Outcome, Phase
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Mishap
from orchestrator.simulation.world import World
from tests.simulation import program_mishaps
from tests.simulation.play import cluster, run

FOR_GOOD = Mishap(what=mishaps.DiskFull(seconds=float("inf")), verb="stop")
"""The journal cannot be written from the first stop on."""


def restored_at(world: World) -> float:
    """When the last setting was restored."""
    return max(at for at, what in world.story if what.endswith(" = None"))


@pytest.mark.parametrize(
    "reason", ["no space left on device", "database is locked", "attempt to write a readonly database"]
)
def test_the_last_events_are_written_once_there_is_room(reason: str) -> None:
    """The journal takes events again in the last seconds of the process, when everything is restored."""
    without, world = cluster(3), cluster(3)
    simulation, _ = run(without, plan=[FOR_GOOD])
    assert replay(simulation.run, simulation.journal.records).unrestored.anything
    until = restored_at(without) + 5.0 - simulation.journal.records[-1].at
    fails = program_mishaps.JournalFails(reason=reason, seconds=until)
    simulation, state = run(world, plan=[Mishap(what=fails, verb="stop")])
    lived = simulation.journal.records
    assert any(isinstance(record.event, StoodDown) for record in lived)
    written = replay(simulation.run, lived)
    assert (written.phase, written.outcome) == (Phase.ENDED, Outcome.FAILED)
    assert written.unrestored == state.unrestored
    assert not written.unrestored.anything


def test_a_journal_that_stays_full_delays_the_end_by_seconds() -> None:
    world = cluster(3)
    run(world, plan=[FOR_GOOD])
    assert 8.0 < world.agenda.now - restored_at(world) < 15.0
