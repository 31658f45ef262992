"""Moments of simulated runs, for pictures: each state was lived, so none is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import cache
from typing import Final

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record, WaveFinished
from orchestrator.model.observation import Observation
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Instant, Unknown
from orchestrator.runtime.lookout import Order
from orchestrator.simulation import views
from orchestrator.simulation.world import World
from orchestrator.view.model import Screen
from orchestrator.view.progress import NOTHING_SEEN, Seen
from orchestrator.view.steps import Turns
from tests.simulation.play import policy
from tests.simulation.program import Simulation
from tests.simulation.zones import by_zone

NAMES: Final = ("down", "recovering", "held")
"""A node comes up; copies recover; a predicate holds the next wave."""

MANY: Final = 100
"""From this many nodes on, a run goes zone by zone."""


class _SeenEnoughError(Exception):
    """Every moment was found."""


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


@dataclass(slots=True)
class _Camera:
    """A reporter that keeps the first picture of each moment once a share of the waves is finished."""

    simulation: Simulation
    after: int
    taken: dict[str, Moment] = field(default_factory=dict)
    waves: int = 0
    known: Seen = NOTHING_SEEN  # before the first wave

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        self.waves += sum(isinstance(record.event, WaveFinished) for record in records)
        world = self.simulation.world
        if "recovering" in self.taken and not world.snapshots:
            world.begin_snapshot("repo/nightly")

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made."""
        name = self._moment(state, decision) if self.waves >= self.after and decision.watch else None
        if name is not None and name not in self.taken:
            self.taken[name] = self._picture(state, decision)
        if len(self.taken) == len(NAMES):
            raise _SeenEnoughError

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        raise AssertionError(f"{outcome} before every moment was seen: {[*self.taken]}, {state.message}")

    def _moment(self, state: RunState, decision: Decision) -> str | None:
        if state.phase is Phase.DOWN and any(n.phase is NodePhase.STARTING for n in state.wave_nodes):
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


@cache
def moments(nodes: int) -> dict[str, Moment]:
    """The moments of a run of so many nodes: one after the other, and of hundreds zone by zone."""
    by_zones = nodes > MANY
    world = World(allowed_down=nodes // 3 if by_zones else 1)
    for number in range(1, nodes + 1):
        world.add_node(f"es{number:0{len(str(nodes))}}", zone="abc"[(number - 1) % 3])
    world.add_index("logs", shards=min(nodes, 12), replicas=1, size=2 << 30)
    simulation = Simulation(world)
    known = NOTHING_SEEN.after(Observation(at=0.0, cluster=views.readings(world).cluster))
    camera = _Camera(simulation, after=1 if by_zones else nodes // 3, known=known)
    state = simulation.begin((by_zone if by_zones else policy)(reason="kernel update"))
    with suppress(_SeenEnoughError):
        simulation.drive(state, camera, order=Order.CLUSTER_FIRST)
    return camera.taken
