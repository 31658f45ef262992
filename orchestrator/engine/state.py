"""The state of a run: a fold of its journal, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.engine.merge_state import Merging
from orchestrator.model.action import Action, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ActionFailed, BaselineRecorded, Deposed, Hold, ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Level
from orchestrator.model.overlap import Overlapping
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Kind, Policy, Wave
from orchestrator.model.reading import Instant
from orchestrator.model.replacing import replace

SettingKey = tuple[Level, str]


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class NodeProgress:
    """One node of the run.

    Attributes:
        since: when it entered its phase, or a new process took the run up.
        before: the life it had before its wave; None until the wave is chosen.
        boot_before: its host's boot id then, where it could be read.
        stopped_at: when its stop was last asked for, in whatever wave: one in doubt may be done in the next.
        asked: the stop or start of its phase was accepted by its host; False after a crash or in doubt.
        asked_at: when it was last sent.
        doubt_since: when a stop of it was left in doubt; None when none is.
        stops: how often a stop was asked for in this attempt.
        rebooted: a reboot was asked for (it counts as the start).
        reboot_doubt_since: when a reboot of its host was left in doubt; None when none is.
        rescued: started at once because shards were left without a started copy.
        starts: how often a start was asked for in this wave.
        hooks_done: (moment, number) of hooks that ran, for which `after_recovery` may be owed.
        hook_doubted: a `before_stop` hook was lost sight of: it may have run, so it is to be undone too.
        failure: why it is FAILED, in one line.
    """

    name: NodeName
    phase: NodePhase = NodePhase.PENDING
    since: Instant = 0.0
    before: Incarnation | None = None
    boot_before: str | None = None
    stopped_at: Instant | None = None
    asked: bool = False
    asked_at: Instant = 0.0
    doubt_since: Instant | None = None
    stops: int = 0
    rebooted: bool = False
    reboot_doubt_since: Instant | None = None
    rescued: bool = False
    starts: int = 0
    hooks_done: frozenset[tuple[str, int]] = frozenset()
    hook_doubted: bool = False
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveringWave:
    """A wave that made room for the next while its copies were on their way.

    Attributes:
        since: when it was chosen.
    """

    wave: Wave
    since: Instant


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class RunState:
    """Everything that a decision may know of the past.

    Attributes:
        started: when the run, or this attempt at it, began.
        phase_since: when the phase was entered; every deadline counts from such a moment.
        holding_since: when the run began to hold, None while nothing but gates holds.
        gates_closed_since: since when at least one gate has been closed, None while all are open.
        gates_passed: names of the gates that were open at the last reading before the stop of the wave.
        called_off_since: since when every wave was called off at its last reading; None once one stops.
        merging: the indices that are merged before the first wave.
        nodes: every selected node, in the order of the run.
        addresses: of the nodes' hosts, as they were when the run began.
        data_paths: of the nodes, as they were when the run began.
        planned: the waves as planned, which bound those of the run; empty without a plan.
        wave: the wave in hand.
        recovering: waves before it that made room for it and still recover, oldest first.
        overlapping: what recovered at the last reading before the stop of the wave in hand; None where
            nothing was to.
        debts: settings changed and not yet put back, by level and key, with what was found first.
        in_flight: sent, and its outcome not recorded yet; after a crash these are in doubt.
        confirmed: verbs that were confirmed since the phase was entered.
        failed: verbs that failed since the phase was entered, the latest last.
        acted_at: when the last verb was sent or its outcome recorded: an older reading is stale.
        probed: a settings update that changes nothing was accepted; None before the first try.
        withheld: the debts that withhold allocation.
        withheld_since: when allocation was first withheld without having been put back since.
        good_readings: in a row.
        retries: `retry_failed` calls of this wave; `retried_at` the last of them.
        overdue: nodes that had used up their time when the run stood down.
        deposed: another process took the run's lease over: its record has what is still to be restored.
        paused: the run has paused before: a canary is looked at once, and then the run goes on to its end.
        restoring: only a stand-down is wanted (`restore`, takeover).
        repairs: the other run whose leftovers this one puts back.
        restarted: nodes that the other run had stopped.
    """

    run: str
    started: Instant = 0.0
    cluster: str = ""
    cluster_uuid: str = ""
    version: str = ""
    distribution: str = ""
    repairs: str | None = None
    restarted: frozenset[NodeName] = frozenset()
    policy: Policy | None = None
    phase: Phase = Phase.PREPARING
    phase_since: Instant = 0.0
    holding_since: Instant | None = None
    gates_closed_since: Instant | None = None
    gates_passed: frozenset[str] = frozenset()
    called_off_since: Instant | None = None
    holds: tuple[Hold, ...] = ()
    baseline: BaselineRecorded | None = None
    merging: Merging = field(default_factory=Merging)
    nodes: Mapping[NodeName, NodeProgress] = field(default_factory=dict)
    addresses: Mapping[NodeName, str] = field(default_factory=dict)
    data_paths: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    planned: tuple[tuple[NodeName, ...], ...] = ()
    wave: Wave | None = None
    wave_since: Instant | None = None
    waves_finished: int = 0
    recovering: tuple[RecoveringWave, ...] = ()
    overlapping: Overlapping | None = None
    debts: Mapping[SettingKey, SettingChange] = field(default_factory=dict)
    replicas: Mapping[str, ReplicasAdded] = field(default_factory=dict)
    excluded: frozenset[NodeName] = frozenset()
    in_flight: tuple[Action, ...] = ()
    confirmed: tuple[Action, ...] = ()
    failed: tuple[ActionFailed, ...] = ()
    acted_at: Instant = 0.0
    probed: bool | None = None
    withheld: frozenset[SettingKey] = frozenset()
    withheld_since: Instant | None = None
    good_readings: int = 0
    retries: int = 0
    retried_at: Instant = 0.0
    request: Request = Request.NONE
    requested_by: str = ""
    stand_down_reason: str | None = None
    stand_down_outcome: Outcome | None = None
    overdue: frozenset[NodeName] = frozenset()
    second_failure: str | None = None
    lease_lost: str | None = None
    deposed: Deposed | None = None
    paused: bool = False
    restoring: bool = False
    outcome: Outcome | None = None
    message: str = ""

    @property
    def wave_nodes(self) -> tuple[NodeProgress, ...]:
        """Progress of the nodes of the wave in hand."""
        return tuple(self.nodes[name] for name in self.wave.nodes) if self.wave else ()

    @property
    def waves_begun(self) -> int:
        """Waves before the one in hand, those that still recover included."""
        return self.waves_finished + len(self.recovering)

    @property
    def recovering_nodes(self) -> tuple[NodeProgress, ...]:
        """Progress of the nodes of the waves that made room and still recover."""
        return tuple(self.nodes[name] for one in self.recovering for name in one.wave.nodes)

    @property
    def recovery_since(self) -> Instant:
        """From when the limit of recovery counts: the phase, or the latest return of a node.

        With overlap a wave that made room may be waited for again, in the phase anew.
        """
        back = [node.since for node in self.nodes.values() if node.phase is NodePhase.REJOINED]
        overlap = self.policy is not None and self.policy.overlap_recovery
        return max(back) if overlap and back else self.phase_since

    @property
    def in_hand(self) -> tuple[NodeProgress, ...]:
        """Nodes that this run has touched and not finished: ours to bring up."""
        return tuple(node for node in self.nodes.values() if node.phase in IN_HAND | {NodePhase.REJOINED})

    @property
    def unfinished(self) -> tuple[NodeName, ...]:
        """Nodes that have not had their restart and are not done without."""
        over = (NodePhase.RECOVERED, NodePhase.SKIPPED)
        return tuple(node.name for node in self.nodes.values() if node.phase not in over)

    @property
    def recovered(self) -> int:
        """Nodes that have had their restart, in whatever attempt at the run."""
        return sum(node.phase is NodePhase.RECOVERED for node in self.nodes.values())

    @property
    def forgetful(self) -> frozenset[NodeName]:
        """Nodes that were stopped, by us or by the run that this one repairs: their memory is another one."""
        return self.restarted | {node.name for node in self.nodes.values() if node.stopped_at is not None}

    @property
    def untouched(self) -> bool:
        """Whether this run has changed nothing that would have to be put back or gone on with."""
        return not (self.debts or self.replicas or self.excluded or self.waves_finished) and all(
            node.phase is NodePhase.PENDING and not (node.hooks_done or node.hook_doubted)
            for node in self.nodes.values()
        )

    def failure_of(self, action: Action) -> ActionFailed | None:
        """How that verb failed since the phase was entered; None when it did not."""
        return next((failed for failed in reversed(self.failed) if failed.action == action), None)

    def lease_record(self, record: LeaseRecord) -> LeaseRecord:
        """`record` brought up to this state: what another bastion must know to put the cluster back."""
        return LeaseRecord(
            epoch=record.epoch,
            run=record.run,
            owner=record.owner,
            process=record.process,
            started=record.started,
            heartbeat=record.heartbeat,
            debts=tuple(
                self.debts[key] for key in sorted(self.debts, key=lambda key: (key[0].value, key[1]))
            ),
            replicas=tuple(self.replicas[uuid] for uuid in sorted(self.replicas)),
            excluded=tuple(sorted(self.excluded)),
            in_hand=tuple(
                NodeInHand(
                    node=node.name,
                    incarnation=node.before or Incarnation(),
                    address=self.addresses.get(node.name, ""),
                )
                for node in self.nodes.values()
                if node.phase in IN_HAND
            ),
            restarted=tuple(sorted(self.forgetful)) if self.debts and self._in_memory else (),
        )

    @property
    def _in_memory(self) -> bool:
        """Whether settings stand in the memory of nodes, where a restart takes them away."""
        return self.policy is not None and self.policy.kind is Kind.RIAK


IN_HAND = frozenset(
    {NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.TUNED, NodePhase.STARTING, NodePhase.FAILED}
)
"""Phases in which a node may be down because of us, so that a start is owed."""


def with_node(state: RunState, name: NodeName, **changes: object) -> RunState:
    """The state with these fields of one node changed; the same for a node that is none of the run's."""
    if name not in state.nodes:
        return state
    node: NodeProgress = replace(state.nodes[name], **changes)  # type: ignore[arg-type]  # field names by keyword
    return replace(state, nodes={**state.nodes, name: node})
