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
    WriteSettings,
)
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ActionFailed, BaselineRecorded, Hold, ReplicasAdded
from orchestrator.model.gate_event import GATES_OPEN, GateClosed, GateOpened, GatesPassed
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeWarned, WritesRead
from orchestrator.model.observation import Level
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Kind, Policy, Wave
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.replacing import replace
from orchestrator.model.tuning_event import TuningApplied, TuningMissed
from orchestrator.model.turn import REBOOT, RESTART, TUNING, Doubt, Goal, Owed, Verb, Work

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
        over: its host has said since that the process of that life is gone.
        owed: what its turn still owes.
        unproven: the `while_stopped` hook that ran last, until a reading after it shows the node down.
        ready: `before_stop` hooks that ran in this life, and were not undone since; a stop needs all of them.
        ready_since: when the first of them was sent; None while none has to be undone.
        doubt: a stop or reboot that was sent and may still take effect.
        lost_at: when a stop was last taken as not done, or when a new process took the run over after that: a
            slow host may do it all the same. Also when somebody's restart came while a stop was in doubt.
        lost_taken: what its wave was to take down when such a stop was sent: missing if it is done late.
        goal: `BRING_UP` from a rescue or a late stop until it is back.
        start_sent: when a start was last sent in this phase; 0 = not yet.
        tries: starts in this phase that the host answered while the process was gone.
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
    over: bool = False
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


STANDSTILL_SECONDS: Final[Seconds] = 150.0
"""No reading takes so long: each of its few calls gives up after tries of seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A member of the baseline that the master does not list.

    Attributes:
        since: the first reading without it; later by what passed without a reading since then.
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


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class Unrestored:
    """Changes in the cluster that the run has to restore. The lease's record repeats them.

    Attributes:
        settings: changed settings by level and key, with the value that was found first.
        replicas: added replicas, by index uuid.
        excluded: nodes that were excluded from voting.
        withheld: those of the settings that disable allocation.
        withheld_since: when allocation was first disabled without having been restored since; None when it
            was not, or when a new process began since then: then its beginning.
    """

    settings: Mapping[SettingKey, SettingChange] = field(default_factory=dict)
    replicas: Mapping[str, ReplicasAdded] = field(default_factory=dict)
    excluded: frozenset[NodeName] = frozenset()
    withheld: frozenset[SettingKey] = frozenset()
    withheld_since: Instant | None = None

    @property
    def anything(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self.settings or self.replicas or self.excluded)

    @property
    def in_order(self) -> tuple[tuple[SettingKey, SettingChange], ...]:
        """The settings in a fixed order."""
        return tuple(sorted(self.settings.items(), key=lambda one: (one[0][0].value, one[0][1])))


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class ProcessState:
    """What a new process forgets: it begins with a fresh one.

    Attributes:
        started: when the process began its work on the run.
        resumed: it resumed a run that another process began.
        restoring: only a stand-down is wanted (`restore`, takeover).
        in_flight: sent, and its outcome not recorded yet; after a crash these are in doubt.
        acted_at: when the last verb was sent or its outcome recorded: an older reading is stale.
        probed: an update that changes nothing was accepted; None before the first, and after a refused one.
        probes: settings updates without a change that were refused in a row.
        absent: members of the baseline that the last readings did not list.
        called_off_since: since when every wave was called off at its last reading; None once one stops.
        excused_since: since when shards are red that may not be in a moment; None while none is.
        retries: `retry_failed` calls of this wave; `retried_at` the last of them.
        lease_lost: why the lease is not held; None while it is.
        deposed: the run that took the lease over from this living one; None while it holds its lease.
        standing_down: why, how it will have ended, and which nodes had used up their time; None before.
    """

    started: Instant = 0.0
    resumed: bool = False
    restoring: bool = False
    in_flight: tuple[Action, ...] = ()
    acted_at: Instant = 0.0
    probed: bool | None = None
    probes: int = 0
    absent: Mapping[NodeName, Absence] = field(default_factory=dict)
    called_off_since: Instant | None = None
    excused_since: Instant | None = None
    retries: int = 0
    retried_at: Instant = 0.0
    request: Request = Request.NONE
    requested_by: str = ""
    lease_lost: str | None = None
    deposed: ev.Deposed | None = None
    second_failure: str | None = None
    standing_down: ev.StandingDown | None = None


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class PhaseState:
    """What a new phase of the run forgets, and a new process too: each begins with a fresh one.

    Attributes:
        since: when the phase was entered; every deadline counts from such a moment.
        before: the phase before it; None in a new process.
        confirmed: verbs that were confirmed.
        failed: verbs that failed, the latest last.
        failing: each of them, with the moment of its first failure in a row.
        good_readings: in a row.
        holds: predicates that are not met, and gates that are closed.
        holding_since: when the run began to hold, None while nothing but gates holds.
        gates_closed_since: since when at least one gate has been closed, None while all are open.
    """

    since: Instant = 0.0
    before: Phase | None = None
    confirmed: tuple[Action, ...] = ()
    failed: tuple[ActionFailed, ...] = ()
    failing: tuple[tuple[Action, Instant], ...] = ()
    good_readings: int = 0
    holds: tuple[Hold, ...] = ()
    holding_since: Instant | None = None
    gates_closed_since: Instant | None = None


@dataclass(frozen=True, kw_only=True)  # not slotted: see `model/replacing.py`
class RunState:
    """Everything that a decision may know of the past.

    Attributes:
        begun: what the run began with: its cluster, its policy, its nodes and their addresses.
        paused: the run has paused before: a canary is looked at once, and then the run goes on to its end.
        phase: of the run, with what happened `in_phase`.
        process: what the process knows that works on the run.
        unrestored: what the run changed in the cluster and has to restore.
        nodes: every selected node, in the order of the run.
        merging: the indices that are merged before the first wave.
        wave: the wave in progress, chosen at `wave_since`.
        recovering: waves before it that made room for it and still recover, oldest first.
        overlapping: what recovered at the last reading before the stop of the wave in progress; None where
            nothing was to.
        taken: by index uuid and shard number, what the wave in progress and those that recover took down.
        not_waited: by index uuid and shard number, copies without a place that are not waited for.
        outcome: how this attempt at the run ended, with its `message`; None before.
    """

    run: str
    begun: ev.RunStarted = NOT_BEGUN
    baseline: BaselineRecorded | None = None
    paused: bool = False
    phase: Phase = Phase.PREPARING
    in_phase: PhaseState = field(default_factory=PhaseState)
    process: ProcessState = field(default_factory=ProcessState)
    unrestored: Unrestored = field(default_factory=Unrestored)
    nodes: Mapping[NodeName, NodeProgress] = field(default_factory=dict)
    merging: Merging = field(default_factory=Merging)
    wave: Wave | None = None
    wave_since: Instant = 0.0
    waves_finished: int = 0
    recovering: tuple[RecoveringWave, ...] = ()
    overlapping: Overlapping | None = None
    taken: Mapping[tuple[str, int], ShardTaken] = field(default_factory=dict)
    not_waited: Mapping[tuple[str, int], int] = field(default_factory=dict)
    outcome: Outcome | None = None
    message: str = ""

    @property
    def wave_nodes(self) -> tuple[NodeProgress, ...]:
        """Progress of the nodes of the wave in hand."""
        return tuple(self.nodes[name] for name in self.wave.nodes) if self.wave else ()

    def nodes_in(self, *phases: NodePhase) -> tuple[NodeProgress, ...]:
        """Nodes in one of these phases, in the order of the run."""
        return tuple(node for node in self.nodes.values() if node.phase in phases)

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
        back = [node.since for node in self.nodes_in(NodePhase.REJOINED)]
        return max(back) if self.begun.policy.overlap_recovery and back else self.in_phase.since

    @property
    def in_hand(self) -> tuple[NodeProgress, ...]:
        """Nodes that this run has touched and not finished: ours to bring up."""
        return self.nodes_in(*IN_HAND, NodePhase.REJOINED)

    @property
    def unfinished(self) -> tuple[NodeName, ...]:
        """Nodes that have not had their restart and are not done without."""
        over = (NodePhase.RECOVERED, NodePhase.SKIPPED)
        return tuple(node.name for node in self.nodes.values() if node.phase not in over)

    @property
    def done_without(self) -> frozenset[NodeName]:
        """Nodes that the operator does without (`--skip`), whether they are up or down."""
        return frozenset(n.name for n in self.nodes_in(NodePhase.SKIPPED) if n.failure is None)

    @property
    def recovered(self) -> int:
        """Nodes that have had their restart, in whatever attempt at the run."""
        return len(self.nodes_in(NodePhase.RECOVERED))

    @property
    def forgetful(self) -> frozenset[NodeName]:
        """Nodes that were stopped, by us or by the run that this one repairs: their memory is another one."""
        stopped = (node.name for node in self.nodes.values() if node.stopped_at is not None)
        return frozenset({*self.begun.restarted, *stopped})

    @property
    def untouched(self) -> bool:
        """Whether this run has changed nothing that would have to be put back or gone on with."""
        return not (self.unrestored.anything or self.waves_finished) and all(
            node.phase in (NodePhase.PENDING, NodePhase.SKIPPED) and not node.undo
            for node in self.nodes.values()
        )

    def failure_of(self, action: Action) -> ActionFailed | None:
        """How that verb failed since the phase was entered; None when it did not."""
        return next((failed for failed in reversed(self.in_phase.failed) if failed.action == action), None)

    def failing_since(self, action: Action) -> Instant | None:
        """The first of its failures in a row since the phase was entered; None when it did not fail."""
        return next((since for failing, since in self.in_phase.failing if failing == action), None)


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
        case ev.RunFinished():
            return _finished(state, event)
        case ev.PhaseEntered(node=node):
            return _run_step(state, event, at) if node is None else _node_step(state, node, event, at)
        case ev.ActionSent(action=action):
            return _sent(state, action, at)
        case ev.ActionConfirmed(action=action):
            return _confirmed(_landed(state, event, at), action, at)
        case ev.ActionFailed():
            return _failed(_landed(state, event, at), event)
        case ev.BaselineRecorded():
            nodes = {name: _accounted_for(node, event) for name, node in state.nodes.items()}
            return replace(state, baseline=event, nodes=nodes)
        case ev.Rescued():
            down = {n.name: replace(n, goal=Goal.BRING_UP) for n in state.wave_nodes if n.phase in IN_HAND}
            return replace(state, nodes={**state.nodes, **down})
        case ev.WorkDone(node=node, work=work):
            return _work_done(state, node, work, at)
        case ev.WaveStarted():
            return _wave_started(state, event, at)
        case ev.WaveFinished(number=number):
            return _wave_finished(state, number)
        case ev.TakenDown():
            return _taken_down(state, event)
        case ev.NotWaitedFor():
            return _not_waited_for(state, event)
        case ev.StoodStill():
            return _stood_still(state, event, at)
        case WaveGaveWay():
            return _gave_way(state)
        case Overlapping():
            return replace(state, overlapping=event)
        case ev.LeaseTaken() | ev.LeaseRegained():
            return replace(state, process=replace(state.process, lease_lost=None))
        case ev.LeaseLost(reason=reason):
            return replace(state, process=replace(state.process, lease_lost=reason))
        case ev.Deposed():
            # Whatever was changed and not restored is the successor's to restore from here on.
            return replace(state, unrestored=Unrestored(), process=replace(state.process, deposed=event))
        case ev.MembersMissed():
            return _members_missed(state, event, at)
        case ev.RedExcused(count=count):
            since = state.process.excused_since if state.process.excused_since is not None else at
            return replace(state, process=replace(state.process, excused_since=since if count else None))
        case ev.SecondFailure(what=what):
            return replace(state, process=replace(state.process, second_failure=what))
        case ev.HookUnproven(node=node, number=number):
            owed = state.nodes[node].owed | {Owed(work=Work.HOOK, number=number)}
            return with_node(state, node, owed=owed, unproven=None)
        case ev.Requested(request=request, by=by):
            request = max(state.process.request, request)
            return replace(state, process=replace(state.process, request=request, requested_by=by))
        case ev.StandingDown():
            return replace(state, process=replace(state.process, standing_down=event))
        case (
            ev.SettingChanged()
            | ev.SettingRestored()
            | ev.ReplicasAdded()
            | ev.ReplicasRestored()
            | ev.VotingExcluded()
            | ev.VotingRestored()
        ):
            return replace(state, unrestored=_of_changes(state.unrestored, event, at))
        case ev.Hold() | ev.HoldsCleared() | GateClosed() | GateOpened() | ev.GoodReading():
            return replace(state, in_phase=_of_phase(state.in_phase, event, at))
        case WritesRead() | MergeWarned() | MergeBegun() | IndexMerged():
            return replace(state, merging=evolve_merging(state.merging, event, at))
        case (
            ev.NodeRecovered()
            | ev.OwedAgain()
            | ev.StoodDown()
            | GatesPassed()
            | TuningApplied()
            | TuningMissed()
        ):
            return state
        case _:
            assert_never(event)


# The run ------------------------------------


def _started(state: RunState, event: ev.RunStarted, at: Instant) -> RunState:
    owed = frozenset({RESTART}) if event.repairs is not None else owed_by(event.policy)
    nodes = {name: NodeProgress(name=name, since=at, owed=owed) for name in event.nodes}
    for name in event.out_of_service:
        nodes[name] = replace(nodes[name], owed=owed | _undo(event.policy))
    return RunState(
        run=state.run,
        begun=event,
        in_phase=PhaseState(since=at),
        process=ProcessState(started=at),
        nodes=nodes,
        merging=merging_of(event.indices),
    )


def owed_by(policy: Policy) -> frozenset[Owed]:
    """What the turn of each node owes under this policy. `UNDO` comes when a hook or a stop is sent."""
    hooks = {Owed(work=Work.HOOK, number=number) for number in range(len(policy.hooks.while_stopped))}
    tuning = {TUNING} if policy.tune is not None else set[Owed]()
    reboot = {REBOOT} if policy.reboot else set[Owed]()
    return frozenset({RESTART} | hooks | tuning | reboot)


def _undo(policy: Policy) -> frozenset[Owed]:
    return frozenset(Owed(work=Work.UNDO, number=n) for n in range(len(policy.hooks.after_recovery)))


def _finished(state: RunState, event: ev.RunFinished) -> RunState:
    """The attempt is over. A canary counts as looked at once it paused the run; a pause by hand does not."""
    canary = state.begun.policy.pause_after
    looked_at = event.outcome is Outcome.PAUSED and canary is not None and state.recovered >= canary
    return replace(state, outcome=event.outcome, message=event.message, paused=state.paused or looked_at)


def _members_missed(state: RunState, event: ev.MembersMissed, at: Instant) -> RunState:
    absent = {name: one for name, one in state.process.absent.items() if name not in event.back}
    for name in event.missing:
        known = absent.get(name, Absence(since=at, readings=0))
        absent[name] = Absence(since=known.since, readings=known.readings + 1)
    return replace(state, process=replace(state.process, absent=absent))


# Phases ------------------------------------


def _run_step(state: RunState, event: ev.PhaseEntered, at: Instant) -> RunState:
    new = Phase(event.to)
    check_run_step(state.phase, new)
    if state.phase is Phase.MERGED and new is not Phase.STANDING_DOWN:
        state = replace(state, merging=replace(state.merging, settled=True))
    if new is Phase.GATED:
        # Where the wave is neither finished nor made room, it is called off: nothing of it was taken down.
        state = replace(state, wave=None, taken=state.taken if state.recovering else {})
    if state.phase is Phase.GATED and new is Phase.REASSIGNED and state.recovering:
        # Back to waiting for the latest wave that made room; one that was chosen is dropped.
        *others, latest = state.recovering
        state = replace(state, wave=latest.wave, wave_since=latest.since, recovering=tuple(others))
        state = _called_off(state, since=None)
    pending = all(node.phase is NodePhase.PENDING for node in state.wave_nodes)
    before_a_stop = state.phase is Phase.WITHHELD or (state.phase is Phase.DOWN and pending)
    if before_a_stop and new is Phase.REASSIGNED and state.process.called_off_since is None:
        state = _called_off(state, since=at)
    if new is Phase.WITHHELD:
        state = replace(state, overlapping=None)
    return replace(state, phase=new, in_phase=PhaseState(since=at, before=state.phase))


def _called_off(state: RunState, *, since: Instant | None) -> RunState:
    return replace(state, process=replace(state.process, called_off_since=since))


def _stood_still(state: RunState, event: ev.StoodStill, at: Instant) -> RunState:
    """Of a time without a reading half a minute counts, however long it was: the rest moves the limits on.

    After a real standstill an absence begins again, since the member may have been back in between.
    """

    def later(since: Instant) -> Instant:
        return min(since + event.seconds, at)

    def perhaps(since: Instant | None) -> Instant | None:
        return None if since is None else later(since)

    for name in event.nodes:
        node = state.nodes[name]
        state = with_node(state, name, since=later(node.since), lost_at=perhaps(node.lost_at))
    process, here = state.process, state.in_phase
    again = event.seconds > STANDSTILL_SECONDS
    process = replace(
        process,
        absent={
            name: Absence(since=at if again else later(known.since), readings=0 if again else known.readings)
            for name, known in process.absent.items()
        },
        excused_since=perhaps(process.excused_since),
        called_off_since=perhaps(process.called_off_since),
    )
    here = replace(
        here,
        since=later(here.since),
        failing=tuple((action, later(since)) for action, since in here.failing),
        holding_since=perhaps(here.holding_since),
        gates_closed_since=perhaps(here.gates_closed_since),
    )
    return replace(state, process=process, in_phase=here)


# Changes in the cluster ------------------------------------


def _of_changes(
    left: Unrestored,
    event: ev.SettingChanged
    | ev.SettingRestored
    | ev.ReplicasAdded
    | ev.ReplicasRestored
    | ev.VotingExcluded
    | ev.VotingRestored,
    at: Instant,
) -> Unrestored:
    match event:
        case ev.SettingChanged():
            return _setting_changed(left, event, at)
        case ev.SettingRestored(level=level, key=key):
            settings = {one: debt for one, debt in left.settings.items() if one != (level, key)}
            withheld = left.withheld - {(level, key)}
            since = left.withheld_since if withheld else None
            return replace(left, settings=settings, withheld=withheld, withheld_since=since)
        case ev.ReplicasAdded(index_uuid=uuid):
            return replace(left, replicas={uuid: event, **left.replicas})
        case ev.ReplicasRestored(index_uuid=uuid):
            return replace(left, replicas={key: v for key, v in left.replicas.items() if key != uuid})
        case ev.VotingExcluded(node=node):
            return replace(left, excluded=left.excluded | {node})
        case ev.VotingRestored():
            return replace(left, excluded=frozenset())


def _setting_changed(left: Unrestored, event: ev.SettingChanged, at: Instant) -> Unrestored:
    key = (event.level, event.key)
    owed = left.settings.get(key)
    # The first value found is the original, however often the key is written afterwards; unless somebody
    # else has set another value since: then that value is the original.
    known = owed is not None and event.found in (owed.found, owed.wanted)
    found = owed.found if owed and known else event.found
    debt = SettingChange(level=event.level, key=event.key, found=found, wanted=event.wanted)
    left = replace(left, settings={**left.settings, key: debt})
    if event.purpose is not Purpose.WITHHOLD:
        return left
    since = at if left.withheld_since is None else left.withheld_since
    return replace(left, withheld=left.withheld | {key}, withheld_since=since)


# Waves ------------------------------------


def _wave_started(state: RunState, event: ev.WaveStarted, at: Instant) -> RunState:
    """A wave is chosen; or nodes whose stop was done late join the wave in progress, of the same number."""
    already = state.wave.nodes if state.wave and state.wave.number == event.wave.number else ()
    nodes = dict(state.nodes)
    for name in event.wave.nodes:
        if name not in already:
            node = _accounted_for(nodes[name], event)
            nodes[name] = replace(node, goal=Goal.RESTART, reboots=0)
    state = replace(state, wave=event.wave, nodes=nodes)
    if already:
        return state
    process = replace(state.process, retries=0, retried_at=0.0, excused_since=None)
    return replace(state, wave_since=at, process=process)


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
    beside = RecoveringWave(wave=state.wave, since=state.wave_since)
    return replace(state, recovering=(*state.recovering, beside), wave=None)


def _wave_finished(state: RunState, number: int) -> RunState:
    state = replace(state, waves_finished=state.waves_finished + 1)
    others = tuple(one for one in state.recovering if one.wave.number != number)
    wave = state.wave if len(others) < len(state.recovering) else None
    # Nothing of a wave that is chosen in GATED is down yet.
    over = not others and (wave is None or state.phase is Phase.GATED)
    return replace(state, wave=wave, recovering=others, taken={} if over else state.taken)


# Nodes ------------------------------------


def _accounted_for(node: NodeProgress, event: BaselineRecorded | ev.WaveStarted) -> NodeProgress:
    """The node with the first life that was read, and with its host's latest boot.

    What others rebooted before its wave was not rebooted since its stop, which may still be on its way.
    """
    life, boot = event.incarnations.get(node.name), event.boots.get(node.name)
    return replace(node, life=node.life or life, boot=boot or node.boot)


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
        tries=0,
        unproven=None,
        failure=event.why if new in (NodePhase.FAILED, NodePhase.SKIPPED) else None,
    )
    match new:
        case NodePhase.STOPPED:
            node = replace(node, doubt=_less_accepted_stop(node.doubt), over=True)
        case NodePhase.STARTING if old not in (NodePhase.STOPPING, NodePhase.STOPPED):
            node = replace(node, goal=Goal.BRING_UP)
            state = replace(state, taken={**node.lost_taken, **state.taken})
        case NodePhase.REJOINED:
            node = replace(
                node,
                life=event.incarnation or node.life,
                boot=event.boot or node.boot,
                over=False,
                owed=node.owed - {RESTART},
                ready=frozenset(),  # it serves its clients again
                ready_since=node.ready_since if node.undo else None,
                goal=Goal.RESTART,
                doubt=_less_accepted_stop(node.doubt),
            )
            if old in GOING_UP_OR_DOWN and node.doubt is not None:
                # The stop may still be done: it was lost, and the node was not started by this process.
                lost = not (started or node.doubt.heard) and node.doubt.verb is Verb.STOP
                node = replace(node, lost_at=at if lost else node.lost_at, lost_taken=state.taken)
        case NodePhase.PENDING if old is NodePhase.REJOINED:
            node = replace(node, returns=node.returns + 1)
        case NodePhase.PENDING if node.doubt is not None:
            node = replace(node, lost_at=at, lost_taken=state.taken)
        case _:
            pass
    if new in (NodePhase.STOPPED, NodePhase.STARTING):
        state = _called_off(state, since=None)
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
    process = replace(state.process, in_flight=(*state.process.in_flight, action), acted_at=at)
    state = replace(state, process=process)
    match action:
        case StopNode(node=name):
            node = state.nodes[name]
            doubt = Doubt(verb=Verb.STOP, since=at)
            owed = node.owed | _undo(state.begun.policy)
            return with_node(state, name, doubt=doubt, stopped_at=at, owed=owed)
        case StartNode(node=name, counts=away):
            # The limit of a start counts from the first one: a doubt may have come before it.
            node = state.nodes[name]
            since = node.since if node.start_sent else at
            return with_node(state, name, start_sent=at, since=since, over=node.over or away)
        case RebootHost(nodes=names):
            for name in names:
                doubt, reboots = Doubt(verb=Verb.REBOOT, since=at), state.nodes[name].reboots + 1
                state = with_node(state, name, doubt=doubt, reboots=reboots, since=at, unproven=None)
            return state
        case RunHook(node=name, moment=Moment.BEFORE_STOP):
            node = state.nodes[name]
            since = at if node.ready_since is None else node.ready_since
            return with_node(state, name, owed=node.owed | _undo(state.begun.policy), ready_since=since)
        case RunHook(node=name, moment=Moment.WHILE_STOPPED) | TuneHost(node=name):
            return with_node(state, name, unproven=None)  # sent to a node that was seen down
        case RunHook(node=name, moment=Moment.AFTER_RECOVERY):
            # Back in service, or perhaps so: the next stop needs every `before_stop` hook again.
            return with_node(state, name, ready=frozenset())
        case RetryFailed():
            process = replace(process, retries=process.retries + 1, retried_at=at)
            return replace(state, process=process)
        case ForceMerge(index_uuid=uuid) if uuid in state.merging.indices:
            asked = state.merging.indices[uuid].asked + 1
            merging = with_index(state.merging, uuid, asked=asked, asked_at=at, refreshed_at=None)
            return replace(state, merging=merging)
        case _:
            return state


def _landed(state: RunState, outcome: ev.ActionConfirmed | ActionFailed, at: Instant) -> RunState:
    flying, here = list(state.process.in_flight), state.in_phase
    if outcome.action in flying:
        flying.remove(outcome.action)
    since = state.failing_since(outcome.action)
    failed = tuple(one for one in here.failed if one.action != outcome.action)
    failing = tuple(one for one in here.failing if one[0] != outcome.action)
    if isinstance(outcome, ActionFailed):
        failing = (*failing, (outcome.action, at if since is None else since))
        here = replace(here, failed=(*failed, outcome), failing=failing)
    else:
        here = replace(here, failed=failed, failing=failing, confirmed=(*here.confirmed, outcome.action))
    process = replace(state.process, in_flight=tuple(flying), acted_at=at)
    return replace(state, process=process, in_phase=here)


def _confirmed(state: RunState, action: Action, at: Instant) -> RunState:
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
            return replace(state, process=replace(state.process, probed=True, probes=0))
        case _:
            return state


def _accepted(state: RunState, name: NodeName) -> RunState:
    doubt = state.nodes[name].doubt
    accepted = Doubt(verb=doubt.verb, since=doubt.since, accepted=True, heard=True) if doubt else None
    return with_node(state, name, doubt=accepted)


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


def _failed(state: RunState, event: ActionFailed) -> RunState:
    match event.action:
        case StopNode(node=name) if not event.in_doubt:
            return with_node(state, name, doubt=None)
        case StartNode(node=name, counts=True) if not (event.in_doubt or event.unsent):
            return with_node(state, name, tries=state.nodes[name].tries + 1)
        case RebootHost(nodes=names) if not event.in_doubt:
            for name in names:
                reboots = state.nodes[name].reboots - int(event.unsent)
                state = with_node(state, name, doubt=None, reboots=reboots)
            return state
        case ProbeSettings():
            process = replace(state.process, probed=False, probes=state.process.probes + 1)
            return replace(state, process=process)
        case WriteSettings() if not (event.in_doubt or event.unsent):
            return replace(state, process=replace(state.process, probed=None, probes=0))
        case _:
            return state


# What holds the run ------------------------------------


def _of_phase(
    here: PhaseState, event: Hold | ev.HoldsCleared | GateClosed | GateOpened | ev.GoodReading, at: Instant
) -> PhaseState:
    """Predicates and gates have limits of their own: each counts from the first one that held."""
    match event:
        case Hold():
            since = here.holding_since if here.holding_since is not None else at
            return replace(here, holds=_with(here.holds, event), holding_since=since)
        case ev.HoldsCleared(but_gates=True):
            return replace(here, holds=_gates_closed(here.holds), holding_since=None)
        case ev.HoldsCleared():
            return replace(here, holds=(), holding_since=None, gates_closed_since=None)
        case GateClosed(gate=gate, evidence=evidence):
            since = here.gates_closed_since if here.gates_closed_since is not None else at
            hold = Hold(predicate=GATES_OPEN, subject=gate, evidence=evidence, subjects=(gate,))
            return replace(here, holds=_with(here.holds, hold), gates_closed_since=since)
        case GateOpened(gate=gate):
            left = tuple(h for h in here.holds if (h.predicate, h.subject) != (GATES_OPEN, gate))
            closed_since = here.gates_closed_since if _gates_closed(left) else None
            return replace(here, holds=left, gates_closed_since=closed_since)
        case ev.GoodReading(count=count):
            return replace(here, good_readings=count)


def _with(holds: tuple[Hold, ...], hold: Hold) -> tuple[Hold, ...]:
    others = (
        h
        for h in holds
        if h.predicate != hold.predicate or (h.predicate == GATES_OPEN and h.subject != hold.subject)
    )
    return (*others, hold)


def _gates_closed(holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if hold.predicate == GATES_OPEN)


# A new process ------------------------------------


def _in_doubt(state: RunState, at: Instant) -> RunState:
    """A new process continues: what was under way is in doubt, and every timer begins again.

    Its clock may have been set since: a moment of the old process is never later than its beginning.
    """
    withheld_since = at if state.unrestored.withheld_since is not None else None
    return replace(
        state,
        process=ProcessState(started=at, acted_at=at),
        in_phase=PhaseState(since=at),
        nodes={name: _node_in_doubt(state, node, at) for name, node in state.nodes.items()},
        merging=doubted(state.merging),
        unrestored=replace(state.unrestored, withheld_since=withheld_since),
        outcome=None,
        message="",
    )


def _node_in_doubt(state: RunState, node: NodeProgress, at: Instant) -> NodeProgress:
    """A fresh record of a node, with what a new process has to know of it."""
    return NodeProgress(
        name=node.name,
        phase=node.phase,
        since=at,
        life=node.life,
        boot=node.boot,
        over=node.over,
        owed=node.owed,
        failure=node.failure,
        doubt=_doubted_again(state, node, at),
        lost_at=_lost_again(state, node, at),
        lost_taken=node.lost_taken,
        ready_since=None if node.ready_since is None else min(node.ready_since, at),
        stopped_at=None if node.stopped_at is None else min(node.stopped_at, at),
    )


def _doubted_again(state: RunState, node: NodeProgress, at: Instant) -> Doubt | None:
    """A doubt whose reach is over is none; every other one begins again, and no host has accepted it."""
    doubt = node.doubt
    if node.phase is NodePhase.STOPPING:
        # Of a stop that another run had sent nothing is known: once the node is back it counts as done.
        return Doubt(verb=Verb.STOP, since=at, heard=doubt is None or doubt.heard)
    if doubt is None:
        return None
    over = not doubt.accepted and _last_seen(state) - doubt.since > state.begun.policy.deadlines.stop
    return None if over else Doubt(verb=doubt.verb, since=at, heard=doubt.heard)


def _lost_again(state: RunState, node: NodeProgress, at: Instant) -> Instant | None:
    """A lost stop is lost for the new process too, if it may have been done when none was at work."""
    if node.lost_at is None:
        return None
    absence = state.process.absent.get(node.name)
    missed = _last_seen(state) if absence is None else absence.since
    return None if missed - node.lost_at > state.begun.policy.deadlines.stop else at


def _last_seen(state: RunState) -> Instant:
    """When the old process was last at work: what a host did after that, no process has seen."""
    return max(state.process.acted_at, state.in_phase.since)


def _resumed(state: RunState, event: ev.RunResumed, at: Instant) -> RunState:
    """The state in which `resume` continues: what is being restarted or recovers is one wave."""
    state = _in_doubt(state, at)
    state = replace(state, process=replace(state.process, resumed=True))
    nodes = dict(state.nodes)
    for name, node in state.nodes.items():
        if name in event.skip and node.phase is NodePhase.FAILED:
            # It is known to be down: no stop that was in doubt makes it the run's to start again.
            nodes[name] = replace(node, phase=NodePhase.SKIPPED, failure=None, doubt=None, lost_at=None)
        elif name in event.skip and node.phase is NodePhase.PENDING:
            nodes[name] = replace(node, phase=NodePhase.SKIPPED, failure=None)
        elif event.retry_failed and node.phase is NodePhase.FAILED:
            nodes[name] = replace(node, phase=NodePhase.STOPPED, failure=None)
    state = replace(state, nodes=nodes)
    ours = tuple(node for node in state.in_hand if node.phase is not NodePhase.FAILED)
    if not ours:
        # Nothing is down or recovers by us: a wave that was chosen is chosen again, under all predicates.
        return replace(state, phase=Phase.PREPARING, wave=None, recovering=(), overlapping=None, taken={})
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
    state = _in_doubt(state, at)
    nodes = {
        # A node that failed gets three starts more.
        name: replace(node, phase=NodePhase.STARTING, failure=None)
        if node.phase is NodePhase.FAILED
        else node
        for name, node in state.nodes.items()
    }
    process = replace(state.process, restoring=True)
    return replace(state, nodes=nodes, process=process, phase=Phase.STANDING_DOWN)
