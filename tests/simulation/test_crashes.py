"""Killed at every point: before a commit, after it, and after an action before its outcome is known."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.event import OwedAgain, WaveStarted
from orchestrator.model.overlap import Overlapping
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.merges import unmerged
from orchestrator.simulation.mishaps import How, Trip
from orchestrator.simulation.world import World
from tests.simulation.play import killed, lives, play
from tests.simulation.ways import WAYS, world_of


def _begun(way: str) -> tuple[Simulation, RunState]:
    simulation = Simulation(world_of(way))
    return simulation, simulation.begin(WAYS[way][1])


@cache
def _points(way: str) -> tuple[str, ...]:
    simulation, state = _begun(way)
    play(simulation, state)
    return tuple(simulation.seams.passed)


_EVERY = int(os.environ.get("ORCHESTRATE_KILLS", "10"))
"""Every tenth point; in `make test` every third, in `make test-soak` all. Resume and restore begin apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A point at which a run of that way is killed."""

    way: str
    point: int

    def __str__(self) -> str:
        return f"{self.way}-{self.point}"

    @property
    def merges(self) -> bool:
        """Whether it is between the begin of the merges and the first wave."""
        points = _points(self.way)
        return self.way == "merged" and 5 <= self.point <= 1 + points.index("after refresh of index posts-2")

    @property
    def where(self) -> str:
        return f"killed at point {self.point}, {_points(self.way)[self.point - 1]}"


def _kills(way: str, first: int, every: int) -> list[Kill]:
    """From that point on; none is a mistake of the test."""
    kills = [Kill(way=way, point=point) for point in range(first, len(_points(way)) + 1, every)]
    assert kills
    return kills


def _killed_at(kill: Kill) -> Simulation:
    simulation, state = _begun(kill.way)
    simulation.seams.crash_at = kill.point
    assert killed(simulation, state), f"point {kill.point} is not passed"
    return simulation


def test_a_zone_goes_down_together() -> None:
    simulation, state = _begun("zone")
    play(simulation, state)
    waves = [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    assert waves == [("es2", "es5"), ("es3", "es6"), ("es4", "es1")]


def test_the_overlapped_run_that_is_killed_does_overlap() -> None:
    simulation, state = _begun("overlap")
    play(simulation, state)
    assert sum(isinstance(record.event, Overlapping) for record in simulation.journal.records) >= 3


def _unmerged(world: World) -> list[str]:
    return [
        copy
        for uuid, index in world.indices.items()
        if index.name != "logs"
        for copy in unmerged(world, uuid, 5)
    ]


def test_the_merged_run_that_is_killed_does_merge() -> None:
    simulation, state = _begun("merged")
    assert _unmerged(simulation.world)
    assert play(simulation, state).outcome is Outcome.DONE
    assert not _unmerged(simulation.world)
    assert len([point for point in _points("merged") if "force_merge" in point]) == 2


def _in_a_merge(first: int, every: int) -> list[Kill]:
    kills = [kill for kill in _kills("merged", first, every) if kill.merges]
    assert kills
    return kills


@pytest.mark.parametrize("after", [0.5, 30.0])
def test_killed_in_a_merge_no_index_is_merged_twice_at_a_time(
    after: float, subtests: pytest.Subtests
) -> None:
    """Each is asked for once, whenever somebody takes the run up: it finds what runs, or what was made."""
    for kill in _in_a_merge(1, 1):
        with subtests.test(kill=str(kill)):
            _resumed_in_a_merge(kill, after)


def _resumed_in_a_merge(kill: Kill, after: float) -> None:
    simulation = _killed_at(kill)
    simulation.world.agenda.advance(after)
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, f"{kill.where}: {state.message}"
    assert simulation.world.violations == [], kill.where
    assert not _unmerged(simulation.world), kill.where
    assert max(simulation.world.forced.asked.values()) == 1, kill.where


@pytest.mark.parametrize("late", [12.0, 22.0, 29.0])
def test_a_merge_on_its_way_at_the_kill_is_not_sent_again(late: float) -> None:
    """A node that stood still begins with it when another process has looked already, and found nothing."""
    simulation = Simulation(world_of("merged"), trips=[Trip(verb="force_merge", how=How.LATE, late=late)])
    state = simulation.begin(WAYS["merged"][1])
    simulation.seams.crash_at = 1 + _points("merged").index("after force_merge of index posts-1")
    assert killed(simulation, state)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert simulation.world.violations == []
    assert max(simulation.world.forced.asked.values()) == 1


def test_killed_in_a_merge_another_machine_begins_anew(subtests: pytest.Subtests) -> None:
    for kill in _in_a_merge(2, 3):
        with subtests.test(kill=str(kill)):
            _begun_elsewhere(kill)


def _begun_elsewhere(kill: Kill) -> None:
    simulation = _killed_at(kill)
    simulation.world.agenda.advance(95.0)
    other, wanted = simulation.elsewhere("run-2"), WAYS[kill.way][1]
    state = other.take_over(wanted)
    if state is not None:
        assert play(other, state).outcome is Outcome.RESTORED, kill.where
        other = other.elsewhere("run-3")
    state = play(other, other.begin(wanted))
    assert state.outcome is Outcome.DONE, f"{kill.where}: {state.message}"
    assert simulation.world.violations == [], kill.where
    assert not _unmerged(simulation.world), kill.where


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.proves("killed")
def test_resume_ends_like_an_undisturbed_run(way: str, subtests: pytest.Subtests) -> None:
    for kill in _kills(way, 3, _EVERY):
        with subtests.test(kill=str(kill)):
            _resumed(kill)


def _resumed(kill: Kill) -> None:
    simulation = _killed_at(kill)
    found = world_of(kill.way).settings()
    if simulation.journal.records[-1].event.event == "run_finished":
        assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)
        return
    state = play(simulation, simulation.resume())
    where = kill.where
    assert state.outcome is Outcome.DONE, f"{where}: {state.message}"
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2), where
    assert simulation.world.settings() == found, where
    assert simulation.world.violations == [], where


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.proves("killed")
def test_restore_puts_everything_back(way: str, subtests: pytest.Subtests) -> None:
    for kill in _kills(way, 4, _EVERY):
        with subtests.test(kill=str(kill)):
            _restored(kill)


def _restored(kill: Kill) -> None:
    simulation = _killed_at(kill)
    state = play(simulation, simulation.restore())
    where = kill.where
    assert state.outcome is Outcome.RESTORED, f"{where}: {state.message}"
    assert simulation.world.settings() == world_of(kill.way).settings(), where
    assert all(node.joined for node in simulation.world.nodes.values()), where
    assert simulation.world.violations == [], where
    assert max(lives(simulation.world).values()) <= 2, where


@pytest.mark.parametrize("way", WAYS)
def test_restore_then_resume_ends_like_an_undisturbed_run(way: str, subtests: pytest.Subtests) -> None:
    for kill in _kills(way, 5, _EVERY * 3):
        with subtests.test(kill=str(kill)):
            _restored_and_resumed(kill)


def _restored_and_resumed(kill: Kill) -> None:
    simulation = _killed_at(kill)
    play(simulation, simulation.restore())
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    again = [r.event.node for r in simulation.journal.records if isinstance(r.event, OwedAgain)]
    assert len(again) <= 1, "a node that was brought up before its turn was over has another one"
    for name, life in lives(simulation.world).items():
        assert life == 2 + again.count(name), name
    assert {node.phase for node in state.nodes.values()} == {NodePhase.RECOVERED}
    assert simulation.world.settings() == world_of(kill.way).settings()
    assert simulation.world.violations == []
