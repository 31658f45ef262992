"""A run that merges, driven decision by decision over readings that the test writes by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.engine.fold import evolve
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.merging import decide
from orchestrator.model.action import Action, ForceMerge
from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    Event,
    Record,
    RunResumed,
    RunStarted,
    StandingDown,
)
from orchestrator.model.merging import BulkIndex, BulkView, CopySegments, MergePolicy, MergeTarget, Writes
from orchestrator.model.observation import Disk, Observation
from orchestrator.model.phase import Phase
from orchestrator.model.reading import Instant, Reading
from tests.unit.engine.asking import question

MEGABYTE = 1_000_000


def index(
    name: str,
    *,
    segments: int = 20,
    nodes: tuple[str, ...] = ("es1", "es2"),
    bytes_each: int = MEGABYTE,
    **fields: object,
) -> BulkIndex:
    """An index of one shard, a copy on each of these nodes."""
    shard = ShardId(index=name, index_uuid=f"{name}-uuid", number=0)
    copies = tuple(
        CopySegments(
            shard=shard,
            node=NodeName(node),
            primary=number == 0,
            searched=segments,
            bytes=bytes_each,
            largest_bytes=bytes_each // 2,
        )
        for number, node in enumerate(nodes)
    )
    found = BulkIndex(
        name=name, uuid=shard.index_uuid, copies=copies, writes=Writes(operations=100, sequence=99)
    )
    return replace(found, **fields)


def with_segments(found: BulkIndex, segments: int) -> BulkIndex:
    """The same index with so many segments on every copy."""
    return replace(found, copies=tuple(replace(copy, searched=segments) for copy in found.copies))


@dataclass(kw_only=True)
class Play:
    """One run; time goes on by a second a step.

    Attributes:
        sent: every verb, in order.
        events: every event, in order.
        failing: how verbs of a kind end, if not well: the reason, and whether it is in doubt.
        in_vain: a merge ends as soon as it is asked for, and has merged nothing.
    """

    state: RunState
    seen: Observation
    now: Instant
    sent: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    failing: dict[type[Action], tuple[str, bool]] = field(default_factory=dict)
    in_vain: bool = False

    @property
    def bulk(self) -> Mapping[str, BulkIndex]:
        """The indices as they are read."""
        assert isinstance(self.seen.bulk, BulkView)
        return self.seen.bulk.indices

    @property
    def merges(self) -> list[str]:
        """Names of the indices of every force-merge that was sent."""
        return [action.index for action in self.sent if isinstance(action, ForceMerge)]

    @property
    def given_up(self) -> StandingDown | None:
        """Why the run stands down; None while it does not."""
        return next((event for event in self.events if isinstance(event, StandingDown)), None)

    def look(self, *indices: BulkIndex, **parts: object) -> None:
        """From now on the world is read so."""
        bulk: Reading[BulkView] = BulkView(indices={each.uuid: each for each in indices})
        changed = {"bulk": bulk, **parts} if indices else parts
        self.seen = replace(self.seen, **changed)

    def change(self, name: str, **fields: object) -> None:
        """One index is read otherwise from now on."""
        found = self.bulk[f"{name}-uuid"]
        changed = replace(found, **fields)
        self.look(*(changed if each is found else each for each in self.bulk.values()))

    def merged(self, name: str, segments: int = 5) -> None:
        """The merge of one index has ended."""
        copies = with_segments(self.bulk[f"{name}-uuid"], segments).copies
        self.change(name, copies=copies, tasks=0, merging=0)

    def step(self) -> Decision:
        """One decision, and what follows from it: verbs succeed at once unless they are to fail."""
        self.now += 1.0
        decision = decide(self.state, replace(self.seen, at=self.now), self.now)
        for event in decision.events:
            self.happens(event)
        for action in decision.actions:
            self.sent.append(action)
            self.happens(self._outcome(action))
        return decision

    def _outcome(self, action: Action) -> Event:
        failing = self.failing.get(type(action))
        if failing is None:
            if isinstance(action, ForceMerge) and not self.in_vain:
                self.change(action.index, tasks=1)
            return ActionConfirmed(action=action)
        return ActionFailed(action=action, reason=failing[0], in_doubt=failing[1])

    def happens(self, event: Event) -> None:
        """An event is written down."""
        self.events.append(event)
        record = Record(run="run-1", sequence=len(self.events), at=self.now, event=event)
        self.state = evolve(self.state, record)

    def until(self, *phases: Phase, steps: int = 60) -> Decision:
        """Go on until one of these phases; it must come."""
        for _ in range(steps):
            decision = self.step()
            if self.state.phase in phases:
                return decision
        raise AssertionError(f"the run stays in {self.state.phase}, after {self.events[-5:]}")

    def until_sent(self, count: int = 1, steps: int = 60) -> None:
        """Go on until so many force-merges were sent; they must come."""
        for _ in range(steps):
            if len(self.merges) >= count:
                return
            self.step()
        raise AssertionError(f"{self.merges} were asked for, after {self.events[-5:]}")

    def resumed(self) -> None:
        """The process was killed, and another one takes the run up."""
        self.happens(RunResumed(operator="bo", host="other"))


def play(
    *indices: BulkIndex,
    max_segments: int = 5,
    nodes: tuple[str, ...] = (),
    room_bytes: int = 1000 * MEGABYTE,
    **wanted: object,
) -> Play:
    """A run that is to merge these indices, which are due if they have too many segments."""
    asked = question()
    merge = MergePolicy(patterns=("*",), max_segments=max_segments, **wanted)
    targets = tuple(
        MergeTarget(
            index=each.name,
            index_uuid=each.uuid,
            segments=each.segments,
            bytes=each.bytes,
            due=each.segments > max_segments,
        )
        for each in indices
    )
    view = asked.observation.cluster
    names = [node.name for node in view.nodes]
    disks = {
        name: Disk(used_share=0.1, over_low=False, over_high=False, room_bytes=room_bytes) for name in names
    }
    seen = replace(
        asked.observation, bulk=BulkView(indices={each.uuid: each for each in indices}), disks=disks
    )
    run = Play(state=RunState(run="run-1"), seen=seen, now=asked.observation.at)
    run.happens(
        RunStarted(
            cluster=view.name,
            cluster_uuid=view.uuid,
            version=view.version,
            policy=replace(asked.policy, merge=merge),
            nodes=tuple(NodeName(name) for name in nodes),
            operator="ann",
            host="bastion",
            indices=targets,
        )
    )
    return run
