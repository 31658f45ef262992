"""The state of a run: a fold of its journal, and nothing else.

`evolve(state, record) -> state` is the only way in which a run's state comes about, live or replayed. A new
process continues with `RunResumed` or `RestoreBegun`: neither moves a node. What was under way is in doubt,
every timer begins again, and the next decision sees where each node is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from orchestrator.engine.merge_state import Merging, doubted, evolve_merging, merging_of, with_index
from orchestrator.engine.phases import check_node_step, check_run_step
from orchestrator.model import event as ev
from orchestrator.model.action import (
    Action,
    ForceMerge,
    Moment,
    ProbeSettings,
    Purpose,
    RebootHost,
    RefreshIndex,
    RetryFailed,
    RunHook,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
)
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ActionFailed, BaselineRecorded, Hold, ReplicasAdded
from orchestrator.model.gate_event import GATES_OPEN, GateClosed, GateOpened, GatesPassed
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeWarned, WritesRead
from orchestrator.model.observation import Level
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Kind, Policy, Wave
from orchestrator.model.reading import Instant
from orchestrator.model.replacing import replace
from orchestrator.model.tuning_event import TuningApplied, TuningMissed
from orchestrator.model.turn import REBOOT, RESTART, TUNING, Doubt, Goal, Owed, Verb, Work, in_words

SettingKey = tuple[Level, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTaken:
    """A shard of which the run took copies down.

    Attributes:
        started: its started copies in the whole cluster at the last reading before the stop.
        filters: allocation filters of its index then.
        open: whether its index was open.
    """

    started: int
    filters: str
    open: bool = True


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class NodeProgress:
    """One node of the run.

    Attributes:
        since: when it entered its phase, settled its last item there, or a new process took over the run.
        life: the last life accounted for: the baseline's, then that of each return. None = never read.
        boot: its host's boot id in that life, where it could be read.
        owed: what its turn still owes.
        unproven: the `while_stopped` hook that ran last, until a reading after it shows the node down.
        ready: `before_stop` hooks that ran since they were last undone; a stop needs all of them.
        ready_since: when the first of them was sent; None while none has to be undone.
        doubt: a stop or reboot that was sent and may still take effect.
        lost_at: when a stop was last taken as not done, or when a new process took the run over after that: a
            slow host may do it all the same. Also when somebody's restart came while a stop was in doubt.
        lost_taken: what its wave was to take down when such a stop was sent: missing if it is done late.
        goal: `BRING_UP` from a rescue or a late stop until it is back.
        start_sent: when a start was last sent in this phase; 0 = not yet.
        tries: starts that the host answered while the process was gone.
        reboots: how often its host was told to reboot in this wave.
        returns: how often it came back with work owed, in this attempt at the run.
        stopped_at: when its stop was last sent, for figures and for what its memory forgot.
        failure: why it is FAILED, or was skipped, in one line.
    """

    name: NodeName
    phase: NodePhase = NodePhase.PENDING
    since: Instant = 0.0
    life: Incarnation | None = None
    boot: str | None = None
    owed: frozenset[Owed] = frozenset()
    unproven: int | None = None
    ready: frozenset[int] = frozenset()
    ready_since: Instant | None = None
    doubt: Doubt | None = None
    lost_at: Instant | None = None
    lost_taken: Mapping[tuple[str, int], ShardTaken] = field(default_factory=dict)
    goal: Goal = Goal.RESTART
    start_sent: Instant = 0.0
    tries: int = 0
    reboots: int = 0
    returns: int = 0
    stopped_at: Instant | None = None
    failure: str | None = None

    @property
    def undo(self) -> tuple[int, ...]:
        """Numbers of the `after_recovery` hooks that it owes, in order."""
        return tuple(sorted(item.number for item in self.owed if item.work is Work.UNDO))

    @property
    def work(self) -> frozenset[Owed]:
        """What it owes besides its `after_recovery` hooks: what another turn has to do."""
        return frozenset(item for item in self.owed if item.work is not Work.UNDO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A member of the baseline that the master does not list.

    Attributes:
        since: the first reading without it.
        readings: in a row, counted up to `settle_consecutive`.
    """

    since: Instant
    readings: int = 1


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
        withheld_since: when allocation was first disabled without having been restored since.
        absent: members of the baseline that the last readings did not list.
        taken: by index uuid and shard number, what the wave in progress and those that recover took down.
        excused_since: since when shards are red that were reopened or restored a moment ago; None while none.
        not_waited: by index uuid and shard number, copies without a place that are not waited for.
        resumed: another process began this run.
        probes: settings updates without a change that were refused in a row.
        deposed: the run that took the lease over from this living one; None while it holds its lease.
        good_readings: in a row.
        retries: `retry_failed` calls of this wave; `retried_at` the last of them.
        overdue: nodes that had used up their time when the run stood down.
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
    absent: Mapping[NodeName, Absence] = field(default_factory=dict)
    taken: Mapping[tuple[str, int], ShardTaken] = field(default_factory=dict)
    excused_since: Instant | None = None
    not_waited: Mapping[tuple[str, int], int] = field(default_factory=dict)
    resumed: bool = False
    probes: int = 0
    deposed: ev.Deposed | None = None
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
            node.phase in (NodePhase.PENDING, NodePhase.SKIPPED) and not node.undo
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
                    incarnation=node.life or Incarnation(),
                    address=self.addresses.get(node.name, ""),
                    owed=tuple(in_words(node.owed).split(", ")) if node.owed else (),
                )
                for node in self.nodes.values()
                if node.phase in IN_HAND or self._may_go_down_late(node)
            ),
            out_of_service=tuple(node.name for node in self.nodes.values() if node.undo),
            restarted=tuple(sorted(self.forgetful)) if self.debts and self._in_memory else (),
        )

    def _may_go_down_late(self, node: NodeProgress) -> bool:
        """Whether a lost stop may still take it down, so that another bastion has to look after it too."""
        reach = self.policy.deadlines.stop if self.policy else 0.0
        return node.lost_at is not None and self.acted_at - node.lost_at <= reach

    @property
    def _in_memory(self) -> bool:
        """Whether settings stand in the memory of nodes, where a restart takes them away."""
        return self.policy is not None and self.policy.kind is Kind.RIAK


GOING_UP_OR_DOWN: Final = frozenset({NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING})
"""Phases in which a node is being restarted now."""

IN_HAND: Final = GOING_UP_OR_DOWN | {NodePhase.FAILED}
"""Phases in which a node may be down because of the run, so that it has to be started."""

FINAL_NODE_PHASES: Final = frozenset({NodePhase.RECOVERED, NodePhase.SKIPPED})
"""Phases in which nothing more is to be done for a node."""


def with_node(state: RunState, name: NodeName, **changes: object) -> RunState:
    """The state with these fields of one node changed; the same for a node that is none of the run's."""
    if name not in state.nodes:
        return state
    node: NodeProgress = replace(state.nodes[name], **changes)  # type: ignore[arg-type]  # field names by keyword
    return replace(state, nodes={**state.nodes, name: node})


def replay(run: str, records: Iterable[ev.Record]) -> RunState:
    """Fold a journal into the state of its run.

    Raises:
        SafetyViolation: the journal holds an illegal step.
    """
    state = RunState(run=run)
    for record in records:
        state = evolve(state, record)
    return state


def evolve(state: RunState, record: ev.Record) -> RunState:  # noqa: C901, PLR0911  (one arm an event)
    """The state after one more event.

    Raises:
        SafetyViolation: the event is an illegal step; the state passed in is unchanged.
    """
    at, event = record.at, record.event
    match event:
        case ev.RunStarted():
            return _started(state, event, at)
        case ev.RunResumed():
            return _resumed(state, event, at)
        case ev.RestoreBegun():
            return _restoring(state, at)
        case ev.LeaseTaken() | ev.LeaseRegained():
            return replace(state, lease_lost=None)
        case ev.LeaseLost(reason=reason):
            return replace(state, lease_lost=reason)
        case ev.Deposed():
            return _deposed(state, event)
        case ev.BaselineRecorded():
            return _baseline(state, event)
        case ev.SettingChanged():
            return _setting_changed(state, event, at)
        case ev.SettingRestored():
            return _setting_restored(state, event)
        case ev.ReplicasAdded(index_uuid=uuid):
            return replace(state, replicas={uuid: event, **state.replicas})
        case ev.ReplicasRestored(index_uuid=uuid):
            return replace(state, replicas={key: v for key, v in state.replicas.items() if key != uuid})
        case ev.VotingExcluded(node=node):
            return replace(state, excluded=state.excluded | {node})
        case ev.VotingRestored():
            return replace(state, excluded=frozenset())
        case ev.WaveStarted():
            return _wave_started(state, event, at)
        case ev.TakenDown():
            return _taken_down(state, event)
        case ev.NotWaitedFor():
            return _not_waited_for(state, event)
        case ev.RedExcused(count=count):
            since = state.excused_since if state.excused_since is not None else at
            return replace(state, excused_since=since if count else None)
        case ev.MembersMissed():
            return _members_missed(state, event, at)
        case ev.StoodStill():
            return _stood_still(state, event, at)
        case WaveGaveWay():
            return _gave_way(state)
        case Overlapping():
            return replace(state, overlapping=event)
        case ev.PhaseEntered(node=None):
            return _run_step(state, event, at)
        case ev.PhaseEntered(node=node) if node is not None:
            return _node_step(state, node, event, at)
        case ev.PhaseEntered():
            return state
        case ev.WorkDone(node=node, work=work):
            return _work_done(state, node, work, at)
        case ev.ActionSent(action=action):
            return _sent(state, action, at)
        case ev.ActionConfirmed(action=action):
            return _confirmed(state, action, at)
        case ev.ActionFailed():
            return _failed(state, event, at)
        case ev.Hold() | ev.HoldsCleared() | GateClosed() | GateOpened() | GatesPassed():
            return _held(state, event, at)
        case ev.GoodReading(count=count):
            return replace(state, good_readings=count)
        case ev.Rescued():
            down = {n.name: replace(n, goal=Goal.BRING_UP) for n in state.wave_nodes if n.phase in IN_HAND}
            return replace(state, nodes={**state.nodes, **down})
        case ev.SecondFailure(what=what):
            return replace(state, second_failure=what)
        case ev.HookUnproven():
            return _hook_unproven(state, event)
        case ev.NodeRecovered() | ev.OwedAgain() | ev.StoodDown() | TuningApplied() | TuningMissed():
            return state
        case WritesRead() | MergeWarned() | MergeBegun() | IndexMerged():
            return replace(state, merging=evolve_merging(state.merging, event, at))
        case ev.WaveFinished(number=number):
            return _wave_finished(state, number)
        case ev.Requested(request=request, by=by):
            return replace(state, request=max(state.request, request), requested_by=by)
        case ev.StandingDown():
            return replace(
                state,
                stand_down_reason=event.reason,
                stand_down_outcome=event.outcome,
                overdue=frozenset(event.overdue),
            )
        case ev.RunFinished():
            return _finished(state, event)
        case _:
            assert_never(event)


# The run ------------------------------------


def _started(state: RunState, event: ev.RunStarted, at: Instant) -> RunState:
    owed = frozenset({RESTART}) if event.repairs is not None else owed_by(event.policy)
    nodes = {name: NodeProgress(name=name, since=at, owed=owed) for name in event.nodes}
    for name in event.out_of_service:
        nodes[name] = replace(nodes[name], owed=owed | _undo(event.policy))
    return replace(
        state,
        started=at,
        phase_since=at,
        cluster=event.cluster,
        cluster_uuid=event.cluster_uuid,
        version=event.version,
        distribution=event.distribution,
        repairs=event.repairs,
        policy=event.policy,
        nodes=nodes,
        addresses=event.addresses,
        planned=event.planned,
        data_paths=event.data_paths,
        merging=merging_of(event.indices),
        restarted=frozenset(event.restarted),
    )


def owed_by(policy: Policy) -> frozenset[Owed]:
    """What the turn of each node owes under this policy. `UNDO` comes when a hook or a stop is sent."""
    hooks = {Owed(work=Work.HOOK, number=number) for number in range(len(policy.hooks.while_stopped))}
    tuning = {TUNING} if policy.tune is not None else set[Owed]()
    reboot = {REBOOT} if policy.reboot else set[Owed]()
    return frozenset({RESTART} | hooks | tuning | reboot)


def _undo(policy: Policy | None) -> frozenset[Owed]:
    count = len(policy.hooks.after_recovery) if policy else 0
    return frozenset(Owed(work=Work.UNDO, number=number) for number in range(count))


def _baseline(state: RunState, event: BaselineRecorded) -> RunState:
    nodes = {
        name: replace(
            node,
            life=node.life or event.incarnations.get(name),
            boot=node.boot or event.boots.get(name),
        )
        for name, node in state.nodes.items()
    }
    return replace(state, baseline=event, nodes=nodes)


def _deposed(state: RunState, event: ev.Deposed) -> RunState:
    """Whatever was changed and not restored is the successor's to restore from here on."""
    return replace(
        state,
        deposed=event,
        debts={},
        replicas={},
        excluded=frozenset(),
        withheld=frozenset(),
        withheld_since=None,
    )


def _finished(state: RunState, event: ev.RunFinished) -> RunState:
    """The attempt is over. A canary counts as looked at once it paused the run; a pause by hand does not."""
    canary = state.policy.pause_after if state.policy else None
    looked_at = event.outcome is Outcome.PAUSED and canary is not None and state.recovered >= canary
    return replace(state, outcome=event.outcome, message=event.message, paused=state.paused or looked_at)


def _run_step(state: RunState, event: ev.PhaseEntered, at: Instant) -> RunState:
    new = Phase(event.to)
    check_run_step(state.phase, new)
    if state.phase is Phase.MERGED and new is not Phase.STANDING_DOWN:
        state = replace(state, merging=replace(state.merging, settled=True))
    called_off = new is Phase.GATED and state.wave is not None
    if state.phase is Phase.GATED and new is Phase.REASSIGNED and state.recovering:
        state = _wait_again(state)
    before_a_stop = state.phase is Phase.WITHHELD or (
        state.phase is Phase.DOWN and all(node.phase is NodePhase.PENDING for node in state.wave_nodes)
    )
    if before_a_stop and new is Phase.REASSIGNED and state.called_off_since is None:
        state = replace(state, called_off_since=at)
    return replace(
        state,
        phase=new,
        phase_since=at,
        confirmed=(),
        failed=(),
        good_readings=0,
        holds=(),
        holding_since=None,
        gates_closed_since=None,
        gates_passed=frozenset() if new is Phase.WITHHELD else state.gates_passed,
        overlapping=None if new is Phase.WITHHELD else state.overlapping,
        wave=None if called_off else state.wave,
        wave_since=None if called_off else state.wave_since,
    )


def _members_missed(state: RunState, event: ev.MembersMissed, at: Instant) -> RunState:
    absent = {name: absence for name, absence in state.absent.items() if name not in event.back}
    for name in event.missing:
        known = absent.get(name)
        absent[name] = Absence(
            since=known.since if known else at, readings=known.readings + 1 if known else 1
        )
    return replace(state, absent=absent)


def _stood_still(state: RunState, event: ev.StoodStill, at: Instant) -> RunState:
    """For how long a stop has been lost counts the time alone in which the program looked."""
    for name in event.nodes:
        lost_at = state.nodes[name].lost_at
        if lost_at is not None:
            state = with_node(state, name, lost_at=min(lost_at + event.seconds, at))
    return state


# Settings ------------------------------------


def _setting_changed(state: RunState, event: ev.SettingChanged, at: Instant) -> RunState:
    key = (event.level, event.key)
    owed = state.debts.get(key)
    # The first value found is the original, however often the key is written afterwards; unless somebody
    # else has set another value since: then that value is the original.
    known = owed is not None and event.found in (owed.found, owed.wanted)
    found = owed.found if owed and known else event.found
    debt = SettingChange(level=event.level, key=event.key, found=found, wanted=event.wanted)
    withheld = state.withheld_since
    keys = state.withheld
    if event.purpose is Purpose.WITHHOLD:
        keys, withheld = keys | {key}, at if withheld is None else withheld
    return replace(state, debts={**state.debts, key: debt}, withheld=keys, withheld_since=withheld)


def _setting_restored(state: RunState, event: ev.SettingRestored) -> RunState:
    debts = {key: v for key, v in state.debts.items() if key != (event.level, event.key)}
    withheld = state.withheld - {(event.level, event.key)}
    return replace(
        state, debts=debts, withheld=withheld, withheld_since=state.withheld_since if withheld else None
    )


# Waves ------------------------------------


def _wave_started(state: RunState, event: ev.WaveStarted, at: Instant) -> RunState:
    """A wave is chosen; or nodes whose stop was done late join the wave in progress, of the same number."""
    nodes = dict(state.nodes)
    joined = state.wave is not None and state.wave.number == event.wave.number
    already = set(state.wave.nodes) if joined and state.wave is not None else set()
    for name in event.wave.nodes:
        if name in already:
            continue
        node = nodes[name]
        nodes[name] = replace(
            node,
            life=node.life or event.incarnations.get(name),
            boot=node.boot or event.boots.get(name),
            goal=Goal.RESTART,
            tries=0,
            reboots=0,
        )
    state = replace(state, wave=event.wave, nodes=nodes)
    return state if joined else replace(state, wave_since=at, retries=0, retried_at=0.0, excused_since=None)


def _taken_down(state: RunState, event: ev.TakenDown) -> RunState:
    taken = {
        (index.index_uuid, number): ShardTaken(started=started, filters=index.filters, open=index.open)
        for index in event.indices
        for number, started in index.started
    }
    return replace(state, taken={**state.taken, **taken})


def _not_waited_for(state: RunState, event: ev.NotWaitedFor) -> RunState:
    """Only copies of shards that a wave took: of others the next reading says whether they found a place."""
    found = dict[tuple[str, int], int]()
    for one in event.shards:
        key = (one.index_uuid, one.number)
        if key in state.taken:
            found[key] = found.get(key, 0) + one.count
    return replace(state, not_waited={**state.not_waited, **found})


def _gave_way(state: RunState) -> RunState:
    if state.wave is None:
        return state
    since = state.wave_since if state.wave_since is not None else state.phase_since
    recovering = (*state.recovering, RecoveringWave(wave=state.wave, since=since))
    return replace(state, recovering=recovering, wave=None, wave_since=None)


def _wave_finished(state: RunState, number: int) -> RunState:
    state = replace(state, waves_finished=state.waves_finished + 1)
    others = tuple(one for one in state.recovering if one.wave.number != number)
    if len(others) < len(state.recovering):
        return replace(state, recovering=others)
    return replace(state, wave=None, wave_since=None, taken=state.taken if others else {})


def _wait_again(state: RunState) -> RunState:
    """From the gates back to waiting for the latest wave that made room; one that was chosen is dropped."""
    *others, latest = state.recovering
    return replace(
        state, wave=latest.wave, wave_since=latest.since, recovering=tuple(others), called_off_since=None
    )


# Nodes ------------------------------------


def _node_step(state: RunState, name: NodeName, event: ev.PhaseEntered, at: Instant) -> RunState:
    node = state.nodes[name]
    old, new = node.phase, NodePhase(event.to)
    check_node_step(name, old, new)
    started = node.start_sent > 0.0
    node = replace(
        node,
        phase=new,
        since=at,
        start_sent=0.0,
        unproven=None,
        failure=event.why if new in (NodePhase.FAILED, NodePhase.SKIPPED) else None,
    )
    match new:
        case NodePhase.STOPPED:
            node = replace(node, doubt=_less_accepted_stop(node.doubt))
        case NodePhase.STARTING if old not in (NodePhase.STOPPING, NodePhase.STOPPED):
            node = replace(node, goal=Goal.BRING_UP)
            state = replace(state, taken={**node.lost_taken, **state.taken})
        case NodePhase.REJOINED:
            node = replace(
                node,
                life=event.incarnation or node.life,
                boot=event.boot or node.boot,
                owed=node.owed - {RESTART},
                goal=Goal.RESTART,
                doubt=_less_accepted_stop(node.doubt),
            )
            if old is NodePhase.STARTING and node.doubt is not None:
                # The stop may still be done: it was lost, and somebody else restarted the node meanwhile.
                lost = not started and node.doubt == Doubt(verb=Verb.STOP, since=node.stopped_at or at)
                node = replace(node, lost_at=at if lost else node.lost_at, lost_taken=state.taken)
        case NodePhase.PENDING if old is NodePhase.REJOINED:
            node = replace(node, returns=node.returns + 1)
        case NodePhase.PENDING if node.doubt is not None:
            node = replace(node, lost_at=at, lost_taken=state.taken)
        case _:
            pass
    if new in (NodePhase.STOPPED, NodePhase.STARTING):
        state = replace(state, called_off_since=None)
    return replace(state, nodes={**state.nodes, name: node})


def _less_accepted_stop(doubt: Doubt | None) -> Doubt | None:
    """A stop that its host accepted is done once the node is gone; a lost one may still arrive."""
    done = doubt is not None and doubt.verb is Verb.STOP and doubt.accepted
    return None if done else doubt


def _work_done(state: RunState, name: NodeName, work: Work, at: Instant) -> RunState:
    node = state.nodes.get(name)
    if node is None:
        return state
    doubt = None if work is Work.REBOOT else node.doubt
    return with_node(state, name, owed=node.owed - {Owed(work=work)}, doubt=doubt, since=at)


def _sent(state: RunState, action: Action, at: Instant) -> RunState:
    state = replace(state, in_flight=(*state.in_flight, action), acted_at=at)
    match action:
        case StopNode(node=name):
            node = state.nodes[name]
            doubt = Doubt(verb=Verb.STOP, since=at)
            return with_node(state, name, doubt=doubt, stopped_at=at, owed=node.owed | _undo(state.policy))
        case StartNode(node=name):
            return with_node(state, name, start_sent=at)
        case RebootHost(nodes=names):
            for name in names:
                doubt, reboots = Doubt(verb=Verb.REBOOT, since=at), state.nodes[name].reboots + 1
                state = with_node(state, name, doubt=doubt, reboots=reboots, since=at, unproven=None)
            return state
        case RunHook(node=name, moment=Moment.BEFORE_STOP):
            node = state.nodes[name]
            since = at if node.ready_since is None else node.ready_since
            return with_node(state, name, owed=node.owed | _undo(state.policy), ready_since=since)
        case RunHook(node=name, moment=Moment.WHILE_STOPPED) | TuneHost(node=name):
            return with_node(state, name, unproven=None)  # sent to a node that was seen down
        case RunHook(node=name, moment=Moment.AFTER_RECOVERY):
            # Back in service, or perhaps so: the next stop needs every `before_stop` hook again.
            return with_node(state, name, ready=frozenset())
        case RetryFailed():
            return replace(state, retries=state.retries + 1, retried_at=at)
        case ForceMerge(index_uuid=uuid) if uuid in state.merging.indices:
            asked = state.merging.indices[uuid].asked + 1
            merging = with_index(state.merging, uuid, asked=asked, asked_at=at, refreshed_at=None)
            return replace(state, merging=merging)
        case _:
            return state


def _landed(state: RunState, action: Action, at: Instant) -> RunState:
    flying = list(state.in_flight)
    if action in flying:
        flying.remove(action)
    return replace(state, in_flight=tuple(flying), acted_at=at)


def _confirmed(state: RunState, action: Action, at: Instant) -> RunState:
    state = _landed(state, action, at)
    still_failed = tuple(f for f in state.failed if f.action != action)
    state = replace(state, confirmed=(*state.confirmed, action), failed=still_failed)
    match action:
        case StopNode(node=name):
            return _accepted(state, name)
        case StartNode(node=name, counts=True):
            return with_node(state, name, tries=state.nodes[name].tries + 1)
        case RebootHost(nodes=names):
            for name in names:
                state = _accepted(state, name)
            return state
        case RunHook():
            return _hook_ran(state, action, at)
        case RefreshIndex(index_uuid=uuid):
            return replace(state, merging=with_index(state.merging, uuid, refreshed_at=at))
        case ProbeSettings():
            return replace(state, probed=True, probes=0)
        case _:
            return state


def _accepted(state: RunState, name: NodeName) -> RunState:
    doubt = state.nodes[name].doubt
    return with_node(state, name, doubt=_now_accepted(doubt) if doubt else None)


def _now_accepted(doubt: Doubt) -> Doubt:
    return Doubt(verb=doubt.verb, since=doubt.since, accepted=True)


def _hook_ran(state: RunState, hook: RunHook, at: Instant) -> RunState:
    node = state.nodes[hook.node]
    match hook.moment:
        case Moment.BEFORE_STOP:
            return with_node(state, hook.node, ready=node.ready | {hook.number})
        case Moment.WHILE_STOPPED:
            owed = node.owed - {Owed(work=Work.HOOK, number=hook.number)}
            return with_node(state, hook.node, owed=owed, since=at, unproven=hook.number)
        case Moment.AFTER_RECOVERY:
            node = replace(node, owed=node.owed - {Owed(work=Work.UNDO, number=hook.number)})
            if not node.undo:
                node = replace(node, ready=frozenset(), ready_since=None)
            return replace(state, nodes={**state.nodes, hook.node: node})


def _hook_unproven(state: RunState, event: ev.HookUnproven) -> RunState:
    owed = state.nodes[event.node].owed | {Owed(work=Work.HOOK, number=event.number)}
    return with_node(state, event.node, owed=owed, unproven=None)


def _failed(state: RunState, event: ev.ActionFailed, at: Instant) -> RunState:
    state = _landed(state, event.action, at)
    state = replace(state, failed=(*(f for f in state.failed if f.action != event.action), event))
    match event.action:
        case StopNode(node=name) if not event.in_doubt:
            return with_node(state, name, doubt=None)
        case StartNode(node=name, counts=True) if not event.in_doubt:
            return with_node(state, name, tries=state.nodes[name].tries + 1)
        case RebootHost(nodes=names) if not event.in_doubt:
            for name in names:
                state = with_node(state, name, doubt=None)
            return state
        case ProbeSettings():
            return replace(state, probed=False, probes=state.probes + 1)
        case _:
            return state


# What holds the run ------------------------------------


def _held(
    state: RunState, event: Hold | ev.HoldsCleared | GateClosed | GateOpened | GatesPassed, at: Instant
) -> RunState:
    """Predicates and gates have limits of their own: each counts from the first one that held."""
    match event:
        case Hold():
            since = state.holding_since if state.holding_since is not None else at
            return replace(state, holds=_with(state, event), holding_since=since)
        case ev.HoldsCleared(but_gates=True):
            return replace(state, holds=_gates_closed(state), holding_since=None)
        case ev.HoldsCleared():
            return replace(state, holds=(), holding_since=None, gates_closed_since=None)
        case GateClosed(gate=gate, evidence=evidence):
            since = state.gates_closed_since if state.gates_closed_since is not None else at
            hold = Hold(predicate=GATES_OPEN, subject=gate, evidence=evidence, subjects=(gate,))
            return replace(state, holds=_with(state, hold), gates_closed_since=since)
        case GateOpened(gate=gate):
            left = tuple(h for h in state.holds if (h.predicate, h.subject) != (GATES_OPEN, gate))
            after = replace(state, holds=left)
            return after if _gates_closed(after) else replace(after, gates_closed_since=None)
        case GatesPassed(gates=gates):
            return replace(state, gates_passed=frozenset(gates))
        case _:
            assert_never(event)


def _with(state: RunState, hold: Hold) -> tuple[Hold, ...]:
    others = (
        h
        for h in state.holds
        if h.predicate != hold.predicate or (h.predicate == GATES_OPEN and h.subject != hold.subject)
    )
    return (*others, hold)


def _gates_closed(state: RunState) -> tuple[Hold, ...]:
    return tuple(hold for hold in state.holds if hold.predicate == GATES_OPEN)


# A new process ------------------------------------


def _in_doubt(state: RunState, at: Instant) -> RunState:
    """A new process continues: what was under way is in doubt, and every timer begins again.

    Its clock may have been set since: a moment of the old process is never later than its beginning.
    """
    nodes = {
        name: replace(
            node,
            since=at,
            start_sent=0.0,
            tries=0,
            reboots=0,
            returns=0,
            goal=Goal.RESTART,
            ready=frozenset(),
            doubt=_doubted_again(state, node, at),
            lost_at=_lost_again(state, node, at),
            ready_since=None if node.ready_since is None else min(node.ready_since, at),
            stopped_at=None if node.stopped_at is None else min(node.stopped_at, at),
        )
        for name, node in state.nodes.items()
    }
    return replace(
        state,
        started=at,
        phase_since=at,
        holding_since=None,
        gates_closed_since=None,
        gates_passed=frozenset(),
        called_off_since=None,
        holds=(),
        nodes=nodes,
        merging=doubted(state.merging),
        in_flight=(),
        confirmed=(),
        failed=(),
        acted_at=at,
        probed=None,
        probes=0,
        retries=0,
        retried_at=0.0,
        withheld_since=at if state.withheld_since is not None else None,
        absent={},
        excused_since=None,
        deposed=None,
        good_readings=0,
        request=Request.NONE,
        requested_by="",
        stand_down_reason=None,
        stand_down_outcome=None,
        overdue=frozenset(),
        second_failure=None,
        lease_lost=None,
        outcome=None,
        message="",
    )


def _doubted_again(state: RunState, node: NodeProgress, at: Instant) -> Doubt | None:
    """A doubt whose reach is over is none; every other one begins again, and no host has accepted it."""
    if node.phase is NodePhase.STOPPING:
        return Doubt(verb=Verb.STOP, since=at)
    doubt = node.doubt
    if doubt is None or state.policy is None:
        return None
    over = not doubt.accepted and _last_seen(state) - doubt.since > state.policy.deadlines.stop
    return None if over else Doubt(verb=doubt.verb, since=at)


def _lost_again(state: RunState, node: NodeProgress, at: Instant) -> Instant | None:
    """A lost stop is lost for the new process too, if it may have been done when none was at work."""
    if node.lost_at is None or state.policy is None:
        return None
    absence = state.absent.get(node.name)
    missed = _last_seen(state) if absence is None else absence.since
    return None if missed - node.lost_at > state.policy.deadlines.stop else at


def _last_seen(state: RunState) -> Instant:
    """When the old process was last at work: what a host did after that, no process has seen."""
    return max(state.acted_at, state.phase_since)


def _resumed(state: RunState, event: ev.RunResumed, at: Instant) -> RunState:
    """The state in which `resume` continues: what is being restarted or recovers is one wave."""
    state = replace(_in_doubt(state, at), restoring=False, resumed=True)
    nodes = dict(state.nodes)
    for name, node in state.nodes.items():
        if name in event.skip and node.phase in (NodePhase.PENDING, NodePhase.FAILED):
            nodes[name] = replace(node, phase=NodePhase.SKIPPED, failure=None)
        elif event.retry_failed and node.phase is NodePhase.FAILED:
            nodes[name] = replace(node, phase=NodePhase.STOPPED, failure=None)
    state = replace(state, nodes=nodes)
    ours = tuple(node for node in state.in_hand if node.phase is not NodePhase.FAILED)
    if not ours:
        # Nothing is down or recovers by us: a wave that was chosen is chosen again, under all predicates.
        return replace(
            state,
            phase=Phase.PREPARING,
            wave=None,
            wave_since=None,
            recovering=(),
            overlapping=None,
            taken={},
        )
    if not (state.wave and {node.name for node in ours} <= set(state.wave.nodes)):
        number = state.recovering[0].wave.number if state.recovering else state.waves_finished + 1
        begun = (*(one.wave for one in state.recovering), *((state.wave,) if state.wave else ()))
        wave = Wave(
            number=number,
            nodes=tuple(node.name for node in ours),
            why="in progress when the run ended",
            machines=tuple(machine for one in begun for machine in one.machines),
        )
        state = replace(state, wave=wave, wave_since=at)
    moving = any(node.phase in GOING_UP_OR_DOWN for node in ours)
    phase = Phase.DOWN if moving else Phase.REASSIGNED
    return replace(state, phase=phase, recovering=(), overlapping=None)


def _restoring(state: RunState, at: Instant) -> RunState:
    """The state in which `restore` (or a takeover) only brings up nodes and restores settings."""
    nodes = {
        # A node that failed gets three starts more.
        name: replace(node, phase=NodePhase.STARTING, failure=None)
        if node.phase is NodePhase.FAILED
        else node
        for name, node in state.nodes.items()
    }
    state = replace(state, nodes=nodes)
    return replace(_in_doubt(state, at), restoring=True, phase=Phase.STANDING_DOWN)
