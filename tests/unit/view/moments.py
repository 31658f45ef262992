"""Moments of simulated runs, for pictures: each state was lived, so none is impossible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import cache
from typing import Final

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record, WaveFinished
from orchestrator.model.observation import Observation
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Unknown
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation import segments, views
from orchestrator.simulation.mishaps import Mishap, NodeDies, PersonAsked
from orchestrator.simulation.world import World
from orchestrator.view.progress import NOTHING_SEEN, Seen
from orchestrator.view.screen import Screen
from orchestrator.view.turns import Turns
from tests.simulation.loaded import merging
from tests.simulation.play import policy
from tests.simulation.program import Simulation
from tests.simulation.zones import by_zone

NAMES: Final = ("down", "recovering", "held")
"""A node comes up; copies recover; a predicate holds the next wave."""

MANY: Final = 100
"""From this many nodes on, a run goes zone by zone."""


class _SeenEnough(BaseException):
    """Every moment was found. Not an error, so that no handler of the program catches it."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A moment of a run."""

    state: RunState
    decision: Decision
    now: Instant
    seen: Seen
    records: tuple[Record, ...]  # the journal until then

    @property
    def screen(self) -> Screen:
        """What the live view shows."""
        turns = Turns(self.records)
        return Screen(self.state, self.decision, now=self.now, seen=self.seen, turns=turns, zone=UTC)


@dataclass(frozen=True, kw_only=True)
class _Situation:
    """A moment of a run in which something else happens: when it is seen, and what leads to it."""

    seen: Callable[[RunState], bool]
    befalls: Callable[[World], Sequence[Mishap]] = lambda _world: ()
    merges: bool = False


def _starting(state: RunState) -> bool:
    return state.phase is Phase.DOWN and any(node.phase is NodePhase.STARTING for node in state.wave_nodes)


def _asked(request: Request) -> Callable[[World], Sequence[Mishap]]:
    return lambda _world: (Mishap(what=PersonAsked(request=request), verb="stop", after=1.0),)


def _dies(world: World) -> Sequence[Mishap]:
    """A node of the zone that goes last."""
    name = next(name for name in reversed(world.nodes) if world.nodes[name].zone == "c")
    return (Mishap(what=NodeDies(node=name, back_after=600.0), verb="stop", after=10.0),)


SITUATIONS: Final[Mapping[str, _Situation]] = {
    "first wave": _Situation(seen=_starting),
    "merging": _Situation(seen=lambda state: bool(state.merging.in_progress), merges=True),
    "standing down": _Situation(
        seen=lambda state: state.phase is Phase.STANDING_DOWN, befalls=_asked(Request.STOP)
    ),
    "asked to pause": _Situation(
        seen=lambda state: state.process.request is Request.PAUSE and _starting(state),
        befalls=_asked(Request.PAUSE),
    ),
    "second failure": _Situation(seen=lambda state: state.process.second_failure is not None, befalls=_dies),
}


@dataclass(slots=True)
class _Camera:
    """A reporter that keeps the first picture of each moment once a share of the waves is finished."""

    simulation: Simulation
    after: int
    taken: dict[str, Moment] = field(default_factory=dict)
    waves: int = 0
    situation: str = ""  # the only one that is looked for
    known: Seen = NOTHING_SEEN  # before the first wave

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        self.waves += sum(isinstance(record.event, WaveFinished) for record in records)
        if self.situation:
            return
        world = self.simulation.world
        if "recovering" in self.taken and not world.snapshots:
            world.begin_snapshot("repo/nightly")

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made."""
        settled = self.waves >= self.after and (decision.watch or self.situation)
        name = self._moment(state, decision) if settled else None
        if name is not None and name not in self.taken:
            self.taken[name] = self._picture(state, decision)
        if len(self.taken) == (1 if self.situation else len(NAMES)):
            raise _SeenEnough

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        raise AssertionError(f"{outcome} before every moment was seen: {[*self.taken]}, {state.message}")

    def _moment(self, state: RunState, decision: Decision) -> str | None:
        if self.situation:
            return self.situation if SITUATIONS[self.situation].seen(state) else None
        if _starting(state):
            return "down"
        if state.phase is Phase.REASSIGNED and self._seen().recoveries:
            return "recovering"
        return "held" if state.phase is Phase.GATED and decision.holds else None

    def _seen(self) -> Seen:
        read, now = views.readings(self.simulation.world), self.simulation.world.agenda.now
        assert not isinstance(read.recoveries, Unknown)
        moving = tuple(one for one in read.recoveries if not one.done)
        seen = Observation(at=now, cluster=read.cluster, recoveries=moving)
        return self.known.after(seen)

    def _picture(self, state: RunState, decision: Decision) -> Moment:
        records = tuple(self.simulation.journal.records)
        now = self.simulation.world.agenda.now
        return Moment(state=state, decision=decision, now=now, seen=self._seen(), records=records)


def world_of(nodes: int) -> World:
    """A cluster of so many nodes in three zones."""
    world = World(allowed_down=nodes // 3 if nodes > MANY else 1)
    for number in range(1, nodes + 1):
        world.add_node(f"es{number:0{len(str(nodes))}}", zone="abc"[(number - 1) % 3])
    world.add_index("logs", shards=min(nodes, 12), replicas=1, size=2 << 30)
    return world


def wanted_of(nodes: int, **changes: object) -> Policy:
    """How it is restarted: one node after the other, and hundreds zone by zone."""
    return (by_zone if nodes > MANY else policy)(reason="kernel update", **changes)


@cache
def moments(nodes: int) -> dict[str, Moment]:
    """The moments of a run of so many nodes."""
    simulation = Simulation(world_of(nodes))
    after = 1 if nodes > MANY else nodes // 3
    camera = _Camera(simulation, after=after, known=_known(simulation.world))
    return _taken(camera, simulation.begin(wanted_of(nodes)))


@cache
def situation(nodes: int, name: str) -> Moment:
    """One of `SITUATIONS` of a run of so many nodes."""
    wanted, world, changes = SITUATIONS[name], world_of(nodes), dict[str, object]()
    if wanted.merges:
        for number in range(1, 4):
            index = world.add_index(f"posts-{number}", shards=2, written=False, size=1 << 30)
            segments.load(world, index, 20)
        changes["merge"] = merging()
    simulation = Simulation(world, plan=wanted.befalls(world))
    camera = _Camera(simulation, after=0, situation=name, known=_known(world))
    return _taken(camera, simulation.begin(wanted_of(nodes, **changes)))[name]


def _known(world: World) -> Seen:
    """What a run has read before its first wave."""
    return NOTHING_SEEN.after(Observation(at=0.0, cluster=views.readings(world).cluster))


def _taken(camera: _Camera, state: RunState) -> dict[str, Moment]:
    with suppress(_SeenEnough):
        camera.simulation.drive(state, camera, order=ReadingOrder.CLUSTER_FIRST)
    return camera.taken
