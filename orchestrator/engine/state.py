"""The past that a decision may use: a run, its nodes, its phase, and its current process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.engine.memory import Absence, PhaseState, ProcessState
from orchestrator.engine.merge_state import Merging
from orchestrator.engine.progress import MAY_BE_DOWN, NodeProgress, Nodes, ShardTaken
from orchestrator.model import event as ev
from orchestrator.model.action import Action, SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, BaselineRecorded, Overlapping, ReplicasAdded
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Kind, Policy, Wave
from orchestrator.model.reading import Instant
from orchestrator.model.work_event import HandoffLeftWaiting, HandoffWaits, WaitingPartition
from orchestrator.next_command import next_command

SettingKey = tuple[Level, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveBegun:
    """A wave that was chosen and is not finished."""

    wave: Wave
    since: Instant  # when it was chosen
    # with overlap: the next wave may begin beside it, while its copies are on their way
    made_room: bool = False


NOT_BEGUN: Final = ev.RunStarted(
    cluster="",
    cluster_uuid="",
    version="",
    policy=Policy(kind=Kind.ELASTICSEARCH, cluster=""),
    nodes=(),
    operator="",
    host="",
)
"""Before the first event of a journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrestored:
    """Changes in the cluster that the run has to restore. The lease's record repeats them."""

    # changed settings by level and key, with the value that was found first
    settings: Mapping[SettingKey, SettingChange] = field(default_factory=dict)
    replicas: Mapping[str, ReplicasAdded] = field(default_factory=dict)  # added replicas, by index uuid
    excluded: frozenset[NodeName] = frozenset()  # nodes that were excluded from voting
    withheld: frozenset[SettingKey] = frozenset()  # those of the settings that disable allocation
    # when allocation was first disabled without having been restored since; None when it was not, or when a
    # new process began since then: then its beginning
    withheld_since: Instant | None = None

    @property
    def anything(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self.settings or self.replicas or self.excluded)

    @property
    def in_order(self) -> tuple[tuple[SettingKey, SettingChange], ...]:
        """The settings in a fixed order."""
        return tuple(sorted(self.settings.items(), key=lambda one: (one[0][0].value, one[0][1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingHandoff:
    """Partitions of a Riak cluster that wait for handoff."""

    # those of the last reading for a stop, if no transfer moved data; unchanged `since` then. A restart of
    # their holder or owner, and a new process of the program, begin that time again.
    still: tuple[WaitingPartition, ...] = ()
    since: Instant = 0.0
    # those that waited at the last stop: its recovery does not wait for them
    left: tuple[WaitingPartition, ...] = ()

    def after(self, event: HandoffWaits | HandoffLeftWaiting, at: Instant) -> WaitingHandoff:
        """The same after one more event."""
        if isinstance(event, HandoffLeftWaiting):
            return replace(self, left=event.partitions)
        return replace(self, still=event.partitions, since=at)

    def with_back(self, nodes: Collection[NodeName], at: Instant) -> WaitingHandoff:
        """The same once these nodes are back: what waited on one of them, or for one, may go now."""
        concerned = any(one.holder in nodes or one.owner in nodes for one in self.still)
        return replace(self, since=at) if concerned else self


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Everything that a decision may use of the past."""

    run: str
    # what the run began with: its cluster, its policy, its nodes and their addresses
    begun: ev.RunStarted = NOT_BEGUN
    # the cluster at the start, without missing copies that were back when a wave took them down
    baseline: BaselineRecorded | None = None
    # the run has paused before: it pauses once for its canary, and then continues to its end
    paused: bool = False
    phase: Phase = Phase.PREPARING  # of the run, with what happened `in_phase`
    in_phase: PhaseState = field(default_factory=PhaseState)
    # the part of the state that is only valid in the current process
    process: ProcessState = field(default_factory=ProcessState)
    # what the run changed in the cluster and has to restore
    unrestored: Unrestored = field(default_factory=Unrestored)
    nodes: Nodes = field(default_factory=Nodes)  # every selected node, in the order of the run
    merging: Merging = field(default_factory=Merging)  # the indices that are merged before the first wave
    # waves in progress, oldest first: all but the last have made room, and often that one too
    waves: tuple[WaveBegun, ...] = ()
    waves_finished: int = 0
    # what recovered at the last reading before the stop of the wave in progress; None where nothing was to
    overlapping: Overlapping | None = None
    # by index uuid and shard number, what the waves in progress took down
    taken: Mapping[tuple[str, int], ShardTaken] = field(default_factory=dict)
    # by index uuid and shard number, copies without a place that are not waited for
    not_waited: Mapping[tuple[str, int], int] = field(default_factory=dict)
    # shards of which a wave took down a copy that had no place when the wave was back, as it found them: a
    # node has another version than before. They are waited for once they have a place.
    displaced: Mapping[tuple[str, int], ShardTaken] = field(default_factory=dict)
    handoff: WaitingHandoff = field(default_factory=WaitingHandoff)  # what waits for handoff, of Riak
    # by gate and fingerprint, when the alerts began that fired when the run began
    alerts_at_start: Mapping[str, Mapping[str, Instant]] = field(default_factory=dict)
    accepted_alerts: frozenset[str] = frozenset()  # alerts that a person accepted for this run
    # why handoff after the restart of a node was not hastened as the playbook wants it
    unhastened: Mapping[NodeName, str] = field(default_factory=dict)
    outcome: Outcome | None = None  # how this attempt at the run ended, with its `message`; None before
    message: str = ""

    def command(self, verb: str, *options: str) -> str:
        """A command for this run, as it can be typed."""
        return next_command(verb, self.run, *options, state=self.process.state)

    @property
    def merges_left(self) -> str:
        """A note on merges that the run would leave behind now; empty for none."""
        return self.merging.left_behind

    @property
    def current(self) -> WaveBegun | None:
        """The wave that the phase of the run is about; None between two waves."""
        return self.waves[-1] if self.waves and not self.waves[-1].made_room else None

    @property
    def wave(self) -> Wave | None:
        """Its nodes, and why they were chosen."""
        return self.current.wave if self.current else None

    @property
    def wave_since(self) -> Instant:
        """When it was chosen; 0 between two waves."""
        return self.current.since if self.current else 0.0

    @property
    def recovering(self) -> tuple[WaveBegun, ...]:
        """The waves before it that made room and still recover, oldest first."""
        return tuple(one for one in self.waves if one.made_room)

    def with_room(self) -> RunState:
        """The same once the current wave has made room for the next."""
        return replace(self, waves=tuple(replace(one, made_room=True) for one in self.waves))

    def waiting_again(self) -> RunState:
        """The same with the latest wave that made room as the current one; one that was chosen is dropped."""
        *others, latest = self.recovering
        return replace(self, waves=(*others, replace(latest, made_room=False)))

    @property
    def wave_nodes(self) -> tuple[NodeProgress, ...]:
        """Progress of the nodes of the current wave."""
        return tuple(self.nodes[name] for name in self.wave.nodes) if self.wave else ()

    def nodes_in(self, *phases: NodePhase) -> tuple[NodeProgress, ...]:
        """Nodes in one of these phases, in the order of the run."""
        return self.nodes.of(*phases)

    @property
    def waves_begun(self) -> int:
        """Waves before the current one, those that still recover included."""
        return self.waves_finished + len(self.recovering)

    @property
    def recovering_nodes(self) -> tuple[NodeProgress, ...]:
        """Progress of the nodes of the waves that made room and still recover."""
        return tuple(self.nodes[name] for one in self.recovering for name in one.wave.nodes)

    @property
    def recovery_since(self) -> Instant:
        """From when the limit of recovery counts: the phase, or the latest return of a node.

        With overlap the run may wait again for an earlier wave, and then enters the phase again.
        """
        back = [node.since for node in self.nodes_in(NodePhase.REJOINED)]
        return max(back) if self.begun.policy.overlap_recovery and back else self.in_phase.since

    @property
    def in_turn(self) -> tuple[NodeProgress, ...]:
        """Nodes whose turn has begun and is not over: the run has to bring them up."""
        return self.nodes_in(*MAY_BE_DOWN, NodePhase.REJOINED)

    @property
    def unfinished(self) -> tuple[NodeName, ...]:
        """Nodes that were not restarted and are not skipped."""
        over = (NodePhase.RECOVERED, NodePhase.SKIPPED)
        return tuple(node.name for node in self.nodes.values() if node.phase not in over)

    @property
    def done_without(self) -> frozenset[NodeName]:
        """Nodes that the operator skips (`--skip`), whether they are up or down."""
        return frozenset(n.name for n in self.nodes_in(NodePhase.SKIPPED) if n.failure is None)

    @property
    def recovered(self) -> int:
        """Nodes that were restarted, in any attempt at the run."""
        return len(self.nodes_in(NodePhase.RECOVERED))

    def left_to_successor(self, node: NodeName) -> bool:
        """Whether the run that took the lease over starts this node: its record lists it."""
        return self.process.deposed is not None and node in self.process.deposed.in_hand

    @property
    def unserved(self) -> tuple[NodeName, ...]:
        """Nodes that another run took out of service, if this one has no hooks to undo that."""
        return () if self.begun.policy.hooks.after_recovery else self.begun.out_of_service

    @property
    def forgetful(self) -> frozenset[NodeName]:
        """Nodes that were stopped, by us or by the run that this one repairs: their memory was cleared."""
        stopped = (node.name for node in self.nodes.values() if node.stopped_at is not None)
        return frozenset({*self.begun.restarted, *stopped})

    @property
    def untouched(self) -> bool:
        """Whether this run has changed nothing that would have to be restored or continued."""
        return not (self.unrestored.anything or self.waves_finished) and all(
            node.phase in (NodePhase.PENDING, NodePhase.SKIPPED) and not node.undo
            for node in self.nodes.values()
        )

    def failure_of(self, action: Action) -> ActionFailed | None:
        """How that verb failed since the phase was entered; None when it did not."""
        return next((failed for failed in self.in_phase.failed if failed.action == action), None)

    def failing_since(self, action: Action) -> Instant | None:
        """The first of its failures in a row since the phase was entered; None when it did not fail."""
        return self.in_phase.failing_since(action)


def members_missed(state: RunState, event: ev.MembersMissed, at: Instant) -> RunState:
    """The state after one more reading without some members, or with some that were away."""
    absent = {name: one for name, one in state.process.absent.items() if name not in event.back}
    for name in event.missing:
        known = absent.get(name, Absence(since=at if event.read is None else event.read, readings=0))
        absent[name] = Absence(since=known.since, readings=known.readings + 1)
    handoff = state.handoff.with_back(event.back, at)
    return replace(state, process=replace(state.process, absent=absent), handoff=handoff)


def with_node(state: RunState, name: NodeName, **changes: object) -> RunState:
    """The state with these fields of one node changed; the same for a node that is none of the run's."""
    if name not in state.nodes:
        return state
    node: NodeProgress = replace(state.nodes[name], **changes)  # type: ignore[arg-type]  # field names by keyword
    return replace(state, nodes=state.nodes.changed(node))
