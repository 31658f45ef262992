"""Events of the journal: a closed, versioned union.

The state of a run is a fold over these events (`engine/fold.py`), and every view is derived from them. An
event that is a `Note` changes nothing in it, and one that is `Remembered` only what its process knows. A
field name that is a Python keyword has a trailing underscore here and none in JSON (`from_` is `from`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from orchestrator.model.action import Action, Purpose
from orchestrator.model.cluster import Health, Incarnation, NodeName, require_address
from orchestrator.model.merging import MergeTarget
from orchestrator.model.observation import Level, MissingCopy, SettingValue
from orchestrator.model.phase import HooksOf, NodePhase, Outcome, Phase, Request, Work
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.prediction import Forecast
from orchestrator.model.reading import Instant, Refusal, Seconds
from orchestrator.model.work_event import (
    HandoffEvent,
    HostEvent,
    MergeEvent,
    Note,
    Remembered,
    TuningEvent,
    UpgradeEvent,
)

# The lease ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTaken(Remembered):
    """The run holds the lease."""

    epoch: int  # of the lease; it begins at 1 again after a release, and orders nothing
    holder: str
    takeover: bool = False  # it replaced an expired lease of another process
    # the run whose lease and pending changes this run takes over; `null` if there is none
    takes_over: str | None = None
    # number of this lease among all that were taken with this state: runs are ordered by it, and by no clock.
    # `null` in the journal of an earlier version, which has no `takes_over` either.
    ordinal: int | None = None
    event: Literal["lease_taken"] = "lease_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(Remembered):
    """The lease is lost. No node is stopped any more; starts and restores continue."""

    reason: str
    event: Literal["lease_lost"] = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRegained(Remembered):
    """A lease that could not be refreshed for a while is held again. Stops are possible."""

    holder: str
    event: Literal["lease_regained"] = "lease_regained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposed:
    """Another process took over this run's lease, and with it every unrestored change.

    From now on this process writes no setting and stops no node. It starts only nodes that it stopped itself,
    that are down, and that are not in `in_hand`.
    """

    # the run that took over; this run's own id if another process resumed it. (`run` is the record's own
    # field.)
    successor: str
    owner: str  # `user@host` of that process
    epoch: int  # epoch of its lease; 0 where only the journal shows the takeover
    in_hand: tuple[NodeName, ...] = ()  # nodes that the other process has to start from now on
    event: Literal["deposed"] = "deposed"


LeaseEvent: TypeAlias = LeaseTaken | LeaseLost | LeaseRegained | Deposed


# Gates: which closed, which opened, the alerts at the start, and all readings before a stop.
# ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed(Remembered):
    """A gate is closed or (not `readable`) cannot be read, which counts as closed. No node is stopped.

    A gate that alerts close has another such event when these alerts change.
    """

    gate: str
    evidence: str
    readable: bool = True
    count: int = 0  # the number of alerts that close it
    # the alerts that close it, at most five. Empty for other gates.
    subjects: tuple[str, ...] = ()
    event: Literal["gate_closed"] = "gate_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened(Remembered):
    """A closed gate has opened and no longer holds the run."""

    gate: str
    evidence: str
    event: Literal["gate_opened"] = "gate_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsAtStart:
    """The alerts that fired when the run began: while they keep firing, they do not close the gate."""

    gate: str
    # by fingerprint, when each began to fire (Unix seconds, by the server); silenced and inhibited ones
    # included
    alerts: Mapping[str, Instant]
    event: Literal["alerts_at_start"] = "alerts_at_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatesPassed(Note):
    """All gates were open at the last reading before a stop. Contains each gate's evidence by name."""

    gates: Mapping[str, str]
    event: Literal["gates_passed"] = "gates_passed"


GateEvent: TypeAlias = GateClosed | GateOpened | AlertsAtStart | GatesPassed


# Waves that overlap with the recovery of earlier waves (`overlap_recovery`).
# ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveGaveWay:
    """With `overlap_recovery`: the wave is back, and the next may start while copies still recover."""

    number: int
    copies: int  # not started yet, of any wave
    event: Literal["wave_gave_way"] = "wave_gave_way"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardUnderWay:
    """A shard with a copy that is recovering or moving."""

    index: str
    number: int
    nodes: tuple[NodeName, ...]  # those that have a copy of it or are getting one


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping:
    """The last reading before the stop of a wave that does not wait for earlier waves."""

    number: int  # of the wave that stops
    unassigned: int  # copies beyond the baseline that are not being allocated; 0 by the predicate
    # shards that recover, none of them on the wave by the predicate: `index`, `number`, and the `nodes` that
    # have a copy or are getting one
    shards: tuple[ShardUnderWay, ...]
    event: Literal["overlapping"] = "overlapping"


# What surrounds a run: messages and silences. They change nothing of its state.
# ------------------------------------


class Surrounding(Note):
    """What happened around the run, which is as it was."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified(Surrounding):
    """A message was sent, or with `on` = `annotation` an annotation. `resume` does not send it again."""

    target: str  # its name, without secrets
    on: str  # what it is about, as in `notify`
    of: int  # sequence of the event that it is about
    reference: str = ""  # the id of an annotation
    event: Literal["notified"] = "notified"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNotified(Surrounding):
    """A message was not sent, or perhaps not: `why`. With `on` = `silence`, alerts could not be silenced."""

    target: str
    on: str
    of: int
    why: str
    event: Literal["not_notified"] = "not_notified"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceCreated(Surrounding):
    """Alerts of a wave are silenced, by a lease that the run renews."""

    wave: int
    silence: str  # its id in Alertmanager
    matchers: str  # the alerts that it silences
    until: Instant  # when it ends unless it is renewed
    event: Literal["silence_created"] = "silence_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceRenewed(Surrounding):
    """A silence lasts longer: the nodes of its wave are not back yet. A resumed run has found it again."""

    wave: int
    silence: str
    until: Instant
    event: Literal["silence_renewed"] = "silence_renewed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceEnded(Surrounding):
    """A silence is over, or ends by itself at `until` and is not renewed any more."""

    wave: int
    silence: str
    until: Instant
    why: str
    event: Literal["silence_ended"] = "silence_ended"


AroundEvent: TypeAlias = Notified | NotNotified | SilenceCreated | SilenceRenewed | SilenceEnded


SCHEMA_VERSION = 1
"""Raised when an event changes so that an older, released program cannot read it; see ADR 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins."""

    cluster: str
    cluster_uuid: str
    version: str
    policy: Policy
    nodes: tuple[NodeName, ...]  # the selected nodes, in order
    operator: str
    host: str
    # of the nodes' hosts, empty if unknown. A node that is down reports none.
    addresses: Mapping[NodeName, str] = field(default_factory=dict)
    cluster_file: str = ""  # path of the cluster file, from which `resume` reads endpoints and secrets again
    distribution: str = ""  # `elasticsearch` or `opensearch`, as the server reports it
    # the run whose pending changes this run restores, without restarts; `null` for a restart
    repairs: str | None = None
    planned: tuple[tuple[NodeName, ...], ...] = ()  # the waves of the plan, which none exceeds
    # of the nodes. A node that is down reports none.
    data_paths: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    indices: tuple[MergeTarget, ...] = ()  # indices to merge first, in order; empty for a restart alone
    # nodes that the repaired run took out of service; `after_recovery` hooks are pending
    out_of_service: tuple[NodeName, ...] = ()
    hooks_of: HooksOf | None = None  # the run that took these nodes out of service, and its playbook
    # nodes that the repaired run restarted, so that their in-memory settings are lost
    restarted: tuple[NodeName, ...] = ()
    forecast: Forecast | None = None  # how long the waves take, by the plan
    # the state database, as after `--state`, for the commands that the run advises; empty for the usual
    # place. Those of a new process, too.
    state: str = ""
    event: Literal["run_started"] = "run_started"

    def __post_init__(self) -> None:
        """Refuse an invalid address; raises `UntrustedValue`."""
        for node, known in self.addresses.items():
            require_address(node, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRecorded:
    """The state of the cluster, and of each host that was read, before any change."""

    missing: tuple[MissingCopy, ...]
    incarnations: Mapping[NodeName, Incarnation]
    boots: Mapping[NodeName, str] = field(default_factory=dict)
    machines: Mapping[NodeName, str] = field(default_factory=dict)
    # members without data and without a vote; the cluster works without them
    bystanders: tuple[NodeName, ...] = ()
    partitions: int | None = None  # the size of Riak's ring, if it was read
    event: Literal["baseline_recorded"] = "baseline_recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged:
    """A cluster setting is about to be changed. The value found is restored later."""

    level: Level
    key: str
    found: SettingValue | None
    wanted: SettingValue | None
    purpose: Purpose
    event: Literal["setting_changed"] = "setting_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRestored:
    """A cluster setting has its original value again; `value` is `null` if it was not set."""

    level: Level
    key: str
    value: SettingValue | None
    # set when someone else changed it meanwhile (their value stays), or when it was never written
    note: str = ""
    event: Literal["setting_restored"] = "setting_restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasAdded:
    """An index without replicas is about to get one for the duration of the run."""

    index: str
    index_uuid: str
    found: int
    wanted: int
    event: Literal["replicas_added"] = "replicas_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasRestored:
    """An index has its original number of replicas again (or is gone)."""

    index_uuid: str
    event: Literal["replicas_restored"] = "replicas_restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingExcluded:
    """The elected master is about to be excluded from voting."""

    node: NodeName
    event: Literal["voting_excluded"] = "voting_excluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingRestored:
    """No voting exclusion set by the run remains."""

    event: Literal["voting_restored"] = "voting_restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveStarted:
    """A wave starts, with the incarnations of its nodes (and the boot ids of their hosts) before it."""

    wave: Wave
    incarnations: Mapping[NodeName, Incarnation]
    boots: Mapping[NodeName, str] = field(default_factory=dict)
    event: Literal["wave_started"] = "wave_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered:
    """The run (`node` is `null`) or one of its nodes enters a phase."""

    from_: str
    to: str
    node: NodeName | None = None
    why: str = ""
    # the incarnation in which a node entered `rejoined`; `boot` is its host's boot id then
    incarnation: Incarnation | None = None
    boot: str | None = None
    event: Literal["phase_entered"] = "phase_entered"


def run_phase(old: Phase, new: Phase, *, why: str = "") -> PhaseEntered:
    """Build the event of a phase change of the run."""
    return PhaseEntered(from_=old.value, to=new.value, why=why)


def node_phase(
    node: NodeName,
    old: NodePhase,
    new: NodePhase,
    *,
    why: str = "",
    incarnation: Incarnation | None = None,
    boot: str | None = None,
) -> PhaseEntered:
    """Build the event of a phase change of a node."""
    return PhaseEntered(node=node, from_=old.value, to=new.value, why=why, incarnation=incarnation, boot=boot)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSent:
    """An action is about to be sent. Until its outcome is recorded, it is in doubt."""

    action: Action
    event: Literal["action_sent"] = "action_sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionConfirmed:
    """An action was accepted. `output` is bounded and free of secrets."""

    action: Action
    output: str = ""
    event: Literal["action_confirmed"] = "action_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailed:
    """An action was refused, or (`in_doubt`) may have been done."""

    action: Action
    reason: str
    in_doubt: bool
    # it was never sent to the cluster or to a host: the lease or its record did not allow it
    unsent: bool = False
    passes: bool = False  # the same action may be accepted a little later
    refusal: Refusal | None = None  # the credentials that were not accepted
    event: Literal["action_failed"] = "action_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Remembered):
    """A predicate is not met: its name, its subjects and the evidence."""

    predicate: str
    subject: str  # the first of `subjects`; `evidence` is about it
    evidence: str
    count: int = 1  # the number of subjects for which it is not met
    subjects: tuple[str, ...] = ()  # the first five of them; `subject` alone where none is given
    # predicates that are not met for the same reason and have no hold of their own
    also: tuple[str, ...] = ()
    # the evidence of each of `subjects`; empty where that of the first is enough
    reasons: tuple[str, ...] = ()
    # with what another run passes it, such as a flag, where this run's policy does not let it clear
    ways: tuple[str, ...] = ()
    others_first: bool = False  # the wave only has to wait for other nodes, which may be of any rank
    event: Literal["hold"] = "hold"

    def __post_init__(self) -> None:
        if not self.subjects:
            object.__setattr__(self, "subjects", (self.subject,))


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsCleared(Remembered):
    """No predicate holds the run any more, or (`but_gates`) only closed gates do."""

    but_gates: bool = False
    event: Literal["holds_cleared"] = "holds_cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodReading(Remembered):
    """One more good reading in a row after the wave's return (0 = the row was interrupted, and why)."""

    count: int
    why: str = ""
    event: Literal["good_reading"] = "good_reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """The first reading after the stop found shards without a started copy; the wave starts at once."""

    shards: tuple[str, ...]
    event: Literal["rescued"] = "rescued"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondFailure(Remembered):
    """Something outside the wave failed while its nodes were down or recovering."""

    what: str
    event: Literal["second_failure"] = "second_failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTaken:
    """An index of which a wave takes copies down, as in the last reading before the stop."""

    index: str
    index_uuid: str
    replicas: int
    filters: str  # its allocation filters, as one text
    # pairs of a shard's number and its number of started copies, or that an upgrade has displaced
    started: tuple[tuple[int, int], ...]
    # since 7.2, closed indices have copies too. An index closed or opened later is not compared.
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenDown:
    """The copies that a wave takes down. The wave has recovered when these shards are as before."""

    number: int
    indices: tuple[IndexTaken, ...]
    event: Literal["taken_down"] = "taken_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWaitedFor:
    """Unassigned copies that no node can hold now, or that the run did not take down: not waited for."""

    shards: tuple[MissingCopy, ...]
    why: str
    event: Literal["not_waited_for"] = "not_waited_for"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenNotToReturn(Note):
    """Copies that the wave takes down and the cluster will not allocate again, as things are before it."""

    shards: tuple[MissingCopy, ...]
    why: str  # the rules that keep them away, in one line
    event: Literal["foreseen_not_to_return"] = "foreseen_not_to_return"


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbacksHome(Remembered):
    """Riak: the wave's data was handed back, after this many seconds. Its own fallbacks may still wait."""

    number: int
    seconds: Seconds
    event: Literal["fallbacks_home"] = "fallbacks_home"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedExcused(Remembered):
    """Shards without a started copy that may get one in a moment (`count` 0: none any more).

    They were reopened or restored, or the wave is back and recovers.
    """

    count: int
    subjects: tuple[str, ...] = ()
    event: Literal["red_excused"] = "red_excused"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersMissed:
    """Baseline members missing from one more reading, begun at `read`; and missing members that are back."""

    missing: tuple[NodeName, ...] = ()
    back: tuple[NodeName, ...] = ()
    read: Instant | None = None
    event: Literal["members_missed"] = "members_missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodStill:
    """The program read nothing for 30 s and `seconds` more: it was suspended, or a command took long.

    Limits do not count that time, but for `--timeout` and that of disabled allocation.
    """

    # nodes that are stopping, starting or back
    nodes: tuple[NodeName, ...]
    seconds: Seconds
    read: Instant | None = None  # when the first reading after it began; `null` from an earlier version
    event: Literal["stood_still"] = "stood_still"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSampled(Note):
    """The health of the cluster in one reading, by its routing table: recorded when it changes.

    It is for the report alone. The number of samples is bounded, and a run on Riak has none.
    """

    read: Instant  # when the reading began
    health: Health
    unassigned: int  # copies without a node
    recovering: int  # copies that are being recovered
    event: Literal["cluster_sampled"] = "cluster_sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Owed work of a node is done: read on its host, or settled by the policy (`on_failure: warn`)."""

    node: NodeName
    work: Work
    why: str = ""
    event: Literal["work_done"] = "work_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookUnproven:
    """A `while_stopped` hook ran, but no reading after it shows its node down. The hook will run again."""

    node: NodeName
    number: int
    event: Literal["hook_unproven"] = "hook_unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedAgain(Note):
    """A node is up in a new incarnation and still has owed work, so it gets another turn."""

    node: NodeName
    what: tuple[str, ...]  # the owed work, in the order of a turn
    why: str = ""
    event: Literal["owed_again"] = "owed_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecovered(Note):
    """A node is back with all its copies. Riak: with all its vnodes, and handoff is done.

    `seconds` counts from its stop to this event.
    """

    node: NodeName
    seconds: Seconds
    bytes_reused: int | None = None
    bytes_copied: int | None = None
    operations_replayed: int | None = None
    event: Literal["node_recovered"] = "node_recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveFinished:
    """Every node of the wave is back (or failed), with its copies: by default, all that it had before."""

    number: int
    seconds: Seconds
    event: Literal["wave_finished"] = "wave_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Remembered):
    """A person asked the run to pause or to stop: who and how."""

    request: Request
    by: str
    event: Literal["requested"] = "requested"


COULD_NOT_FINISH: Final = "it could not finish, so it does not begin"
"""The reason of a run that does not begin; what holds it follows."""


def asked_to_stop(by: str) -> str:
    """The reason of a stand-down that a person asked for; a note on merges may follow."""
    return f"asked to stop by {by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingDown(Remembered):
    """The run stands down: why, and its outcome once everything is restored."""

    reason: str
    outcome: Outcome
    # nodes that exceeded their time to stop, start or rejoin. Nodes that are back do not wait for them any
    # more.
    overdue: tuple[NodeName, ...] = ()
    failed: tuple[NodeName, ...] = ()  # nodes of whose failure the reason speaks
    hook_on: NodeName | None = None  # the node whose `after_recovery` hook failed, if that is the reason
    names_hold: bool = False  # the reason is a hold alone; an event of its own has all its evidence
    never_began: bool = False  # the run does not begin, since waiting cannot clear what holds it
    event: Literal["standing_down"] = "standing_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodDown(Note):
    """Everything is restored, or `left` lists the unrestored changes."""

    outcome: Outcome
    left: tuple[str, ...] = ()
    event: Literal["stood_down"] = "stood_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """The run continues in a new process. Its timers start again."""

    operator: str
    host: str
    retry_failed: bool = False
    skip: tuple[NodeName, ...] = ()
    state: str = ""
    # alerts that do not close a gate from here on: each by its name, or with its labels as in the evidence of
    # the gate
    accept_alerts: tuple[str, ...] = ()
    event: Literal["run_resumed"] = "run_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBegun:
    """`restore`, or a takeover: only the stand-down of a run is carried out."""

    operator: str
    host: str
    takes_over: str | None = None  # the run whose pending changes these are; `null` if they are the run's own
    state: str = ""
    event: Literal["restore_begun"] = "restore_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The end of the run, or of this attempt if the run can be resumed."""

    outcome: Outcome
    exit_code: int
    seconds: Seconds
    message: str = ""
    event: Literal["run_finished"] = "run_finished"


Event: TypeAlias = (
    RunStarted
    | LeaseEvent
    | BaselineRecorded
    | SettingChanged
    | SettingRestored
    | ReplicasAdded
    | ReplicasRestored
    | VotingExcluded
    | VotingRestored
    | WaveStarted
    | WaveGaveWay
    | Overlapping
    | PhaseEntered
    | ActionSent
    | ActionConfirmed
    | ActionFailed
    | Hold
    | HoldsCleared
    | GateEvent
    | GoodReading
    | Rescued
    | SecondFailure
    | TuningEvent
    | MergeEvent
    | TakenDown
    | NotWaitedFor
    | ForeseenNotToReturn
    | FallbacksHome
    | HandoffEvent
    | RedExcused
    | MembersMissed
    | StoodStill
    | ClusterSampled
    | WorkDone
    | HookUnproven
    | OwedAgain
    | HostEvent
    | UpgradeEvent
    | NodeRecovered
    | WaveFinished
    | Requested
    | StandingDown
    | StoodDown
    | RunResumed
    | RestoreBegun
    | RunFinished
    | AroundEvent
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event with its place in the journal."""

    run: str
    sequence: int  # one-based within the run, without gaps
    at: Instant  # time of the decision, by the orchestrator's clock
    event: Event
