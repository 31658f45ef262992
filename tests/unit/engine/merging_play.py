"""A run that merges, decision by decision, over readings that a test makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.merging import decide
from orchestrator.model.action import Action, ForceMerge
from orchestrator.model.cluster import CopyState, NodeName, ShardId
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    Event,
    RunResumed,
    RunStarted,
    StandingDown,
)
from orchestrator.model.merge_event import IndexMerged
from orchestrator.model.merging import BulkIndex, BulkView, CopySegments, MergePolicy, MergeTarget, Writes
from orchestrator.model.observation import ClusterView, Disk, Observation
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.reading import Instant, Reading
from tests.unit.engine.asking import evolved, question, view_of

MEGABYTE = 10**6
WRITTEN = Writes(operations=150, sequence=149)


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
    writes = Writes(operations=100, sequence=99)
    found = BulkIndex(name=name, uuid=shard.index_uuid, copies=copies, writes=writes)
    return replace(found, **fields)


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

    # What is read ------------------------------------

    @property
    def bulk(self) -> Mapping[str, BulkIndex]:
        """The indices as they are read."""
        assert isinstance(self.seen.bulk, BulkView)
        return self.seen.bulk.indices

    @property
    def view(self) -> ClusterView:
        """The cluster as it is read."""
        assert isinstance(self.seen.cluster, ClusterView)
        return self.seen.cluster

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
        copies = tuple(replace(one, searched=segments) for one in self.bulk[f"{name}-uuid"].copies)
        self.change(name, copies=copies, tasks=0, merging=0)

    def add_copy(self, name: str, state: CopyState, **fields: object) -> ClusterView:
        """The cluster has one more copy of an index, in this state; the view of before."""
        before, shard = self.view, ShardId(index=name, index_uuid=f"{name}-uuid", number=0)
        copy = before.copies[0]._replace(shard=shard, state=state, **fields)
        self.look(cluster=replace(before, copies=(*before.copies, copy)))
        return before

    # What is done ------------------------------------

    @property
    def merges(self) -> list[str]:
        """Names of the indices of every force-merge that was sent."""
        return [action.index for action in self.sent if isinstance(action, ForceMerge)]

    def told(self, kind: type[Event]) -> list[Event]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def given_up(self) -> StandingDown | None:
        """Why the run stands down; None while it does not."""
        return next((event for event in self.events if isinstance(event, StandingDown)), None)

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
        self.state = evolved(self.state, event, at=self.now)

    def until(self, *phases: Phase, steps: int = 80) -> None:
        """Go on until one of these phases; it must come."""
        for _ in range(steps):
            self.step()
            if self.state.phase in phases:
                return
        raise AssertionError(f"the run stays in {self.state.phase}, after {self.events[-5:]}")

    def until_sent(self, count: int = 1, steps: int = 80) -> None:
        """Go on until so many force-merges were sent; they must come."""
        for _ in range(steps):
            if len(self.merges) >= count:
                return
            self.step()
        raise AssertionError(f"{self.merges} were asked for, after {self.events[-5:]}")

    def reads_writes(self) -> None:
        """Go on to the first reading of the counters of writes."""
        self.until(Phase.MERGING)
        self.step()

    def resumed(self) -> None:
        """The process was killed, and another one takes the run up."""
        self.happens(RunResumed(operator="bo", host="other"))

    def loses_answers(self, *, times: bool = True) -> None:
        """Whether the answer to each force-merge is lost from now on."""
        self.failing = {ForceMerge: ("the connection was lost", True)} if times else {}

    # What has to come ------------------------------------

    def waits(self, *merges: str, by: str = "", why: str = "", steps: int = 20) -> None:
        """For some steps these merges alone are sent, held by this predicate, or for this reason, if any."""
        for _ in range(steps):
            self.step()
        assert (self.given_up, self.merges) == (None, list(merges))
        if by or why:
            hold = self.state.in_phase.holds[0]
            assert hold.predicate == (by or hold.predicate)
            assert why in hold.evidence

    def finishes(self, *merges: str) -> None:
        """It comes to its end with these merges."""
        self.until(Phase.FINISHING)
        assert self.merges == list(merges)

    def stands_down(self, outcome: Outcome, *words: str, merges: tuple[str, ...] = ()) -> None:
        """It stands down with this outcome, these words, and these merges."""
        self.until(Phase.STANDING_DOWN)
        assert self.given_up is not None
        assert self.given_up.outcome is outcome
        assert all(word in self.given_up.reason for word in words), self.given_up.reason
        assert self.merges == list(merges)

    def end_one_by_one(self, *names: str) -> None:
        """Let these merges end as they are asked for, one after the other."""
        for count, name in enumerate(names, start=1):
            self.until_sent(count)
            self.step()
            self.merged(name)

    def ended(self) -> dict[str, str]:
        """Why each index counts as merged."""
        return {event.index: event.why for event in self.events if isinstance(event, IndexMerged)}


def play(
    *indices: BulkIndex,
    max_segments: int = 5,
    nodes: tuple[str, ...] = (),
    room_bytes: int = 1000 * MEGABYTE,
    policy: Mapping[str, object] | None = None,
    **wanted: object,
) -> Play:
    """A run that is to merge these indices, which are due if they have too many segments."""
    asked = question(**(policy or {}))
    view = view_of(asked)
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
    disk = Disk(used_share=0.1, over_low=False, over_high=False, room_bytes=room_bytes)
    disks = dict.fromkeys((node.name for node in view.nodes), disk)
    bulk = BulkView(indices={each.uuid: each for each in indices})
    seen = replace(asked.observation, bulk=bulk, disks=disks)
    run = Play(state=RunState(run="run-1"), seen=seen, now=seen.at)
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
