"""What is written in the journal: a closed union, versioned.

The state of a run is a fold over these events (`engine/fold.py`), and every view is drawn from them.
A field name that is a Python keyword carries a trailing underscore here and none in JSON (`from_` is `from`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from orchestrator.model.action import Action, Purpose
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.gate_event import GateEvent
from orchestrator.model.handoff_event import NotHastened
from orchestrator.model.lease_event import (
    Deposed as Deposed,  # noqa: PLC0414  (this module has all events; so have the next three)
)
from orchestrator.model.lease_event import (
    LeaseEvent,
)
from orchestrator.model.lease_event import (
    LeaseLost as LeaseLost,  # noqa: PLC0414
)
from orchestrator.model.lease_event import (
    LeaseRegained as LeaseRegained,  # noqa: PLC0414
)
from orchestrator.model.lease_event import (
    LeaseTaken as LeaseTaken,  # noqa: PLC0414
)
from orchestrator.model.merge_event import MergeEvent
from orchestrator.model.merging import MergeTarget
from orchestrator.model.observation import Level, MissingCopy, SettingValue
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.tuning_event import TuningEvent
from orchestrator.model.turn import HooksOf, Work

SCHEMA_VERSION = 1
"""Raised when an event changes so that an older, released program could not read it; see ADR 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins.

    Attributes:
        distribution: `elasticsearch` or `opensearch`, as the server says of itself.
        nodes: the selected ones in their order.
        repairs: the run whose leftovers this one puts back, and nothing else; None for a restart.
        addresses: where their hosts were then: a node that is down tells nobody its address.
        cluster_file: path of the cluster file, from which `resume` reads endpoints and secrets again.
        data_paths: of the nodes, where the cluster or its file told them: a node that is down tells nobody.
        planned: the waves of the plan that was shown or saved; a wave may be a part of one of them, no more.
            Empty when there was none.
        indices: those that are merged first, in their order; empty for a restart alone.
        out_of_service: by the run whose leftovers this one puts back: they owe their `after_recovery` hooks.
        hooks_of: the run that took these out of service, and its playbook.
        restarted: by the run whose leftovers this one puts back, so that they forgot what they had in memory.
    """

    cluster: str
    cluster_uuid: str
    version: str
    policy: Policy
    nodes: tuple[NodeName, ...]
    operator: str
    host: str
    addresses: Mapping[NodeName, str] = field(default_factory=dict)
    cluster_file: str = ""
    distribution: str = ""
    repairs: str | None = None
    planned: tuple[tuple[NodeName, ...], ...] = ()
    data_paths: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    indices: tuple[MergeTarget, ...] = ()
    out_of_service: tuple[NodeName, ...] = ()
    hooks_of: HooksOf | None = None
    restarted: tuple[NodeName, ...] = ()
    event: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRecorded:
    """How the cluster, and each host that was read, was before anything was changed.

    Attributes:
        bystanders: members without data and without a vote: the cluster can spare them at any moment.
        partitions: the size of Riak's ring, if it was read.
    """

    missing: tuple[MissingCopy, ...]
    incarnations: Mapping[NodeName, Incarnation]
    boots: Mapping[NodeName, str] = field(default_factory=dict)
    machines: Mapping[NodeName, str] = field(default_factory=dict)
    bystanders: tuple[NodeName, ...] = ()
    partitions: int | None = None
    event: Literal["baseline_recorded"] = "baseline_recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged:
    """A cluster setting is about to be changed; what was found is what will be restored."""

    level: Level
    key: str
    found: SettingValue | None
    wanted: SettingValue | None
    purpose: Purpose
    event: Literal["setting_changed"] = "setting_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRestored:
    """A setting is again as it was found, read back from the cluster. `value` None = absent.

    Attributes:
        note: says so when somebody else changed it meanwhile (theirs is left), or when it was never written.
    """

    level: Level
    key: str
    value: SettingValue | None
    note: str = ""
    event: Literal["setting_restored"] = "setting_restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasAdded:
    """An index without replicas is about to be given one for the run."""

    index: str
    index_uuid: str
    found: int
    wanted: int
    event: Literal["replicas_added"] = "replicas_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasRestored:
    """An index has as many replicas as it was found with (or is gone)."""

    index_uuid: str
    event: Literal["replicas_restored"] = "replicas_restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingExcluded:
    """The elected master is about to be excluded from voting."""

    node: NodeName
    event: Literal["voting_excluded"] = "voting_excluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingRestored:
    """No voting exclusion of ours is left."""

    event: Literal["voting_restored"] = "voting_restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveStarted:
    """A wave is chosen, with the lives that its nodes had before it (and their hosts' boots)."""

    wave: Wave
    incarnations: Mapping[NodeName, Incarnation]
    boots: Mapping[NodeName, str] = field(default_factory=dict)
    event: Literal["wave_started"] = "wave_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered:
    """The run (node None) or one of its nodes enters a phase.

    Attributes:
        incarnation: the life in which a node entered `rejoined`; `boot`, its host's boot id then.
    """

    from_: str
    to: str
    node: NodeName | None = None
    why: str = ""
    incarnation: Incarnation | None = None
    boot: str | None = None
    event: Literal["phase_entered"] = "phase_entered"


def run_phase(old: Phase, new: Phase, *, why: str = "") -> PhaseEntered:
    """The event of a step of the run."""
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
    """The event of a step of a node."""
    return PhaseEntered(node=node, from_=old.value, to=new.value, why=why, incarnation=incarnation, boot=boot)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSent:
    """About to be done; until its outcome is recorded, it is in doubt."""

    action: Action
    event: Literal["action_sent"] = "action_sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionConfirmed:
    """Accepted. `output` is bounded and free of secrets."""

    action: Action
    output: str = ""
    event: Literal["action_confirmed"] = "action_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailed:
    """Refused, or (`in_doubt`) perhaps done.

    Attributes:
        unsent: it was never sent, to the cluster or to a host: the lease or its record did not allow it.
        passes: the same action may well be accepted a little later.
    """

    action: Action
    reason: str
    in_doubt: bool
    unsent: bool = False
    passes: bool = False
    event: Literal["action_failed"] = "action_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A predicate is not met: which one, about what, and the evidence.

    Attributes:
        subject: the first of `subjects`, and `evidence` is about it.
        count: about how many subjects it is not met.
        subjects: the first five of them.
        also: predicates that are not met for the same reason, and have no hold of their own.
    """

    predicate: str
    subject: str
    evidence: str
    count: int = 1
    subjects: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    event: Literal["hold"] = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsCleared:
    """Nothing holds any more, or (`but_gates`) nothing but gates that are closed."""

    but_gates: bool = False
    event: Literal["holds_cleared"] = "holds_cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodReading:
    """One more good reading in a row of the wave's return (0 = the row broke, and why)."""

    count: int
    why: str = ""
    event: Literal["good_reading"] = "good_reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """The first reading after the stop found shards left without a started copy: started at once."""

    shards: tuple[str, ...]
    event: Literal["rescued"] = "rescued"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondFailure:
    """Something outside the wave failed while ours were down or recovering."""

    what: str
    event: Literal["second_failure"] = "second_failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTaken:
    """An index of which a wave takes copies down, as it was at the last reading before the stop.

    Attributes:
        filters: its allocation filters, as one text; another text later means that they were changed.
        started: pairs of a shard's number and its started copies in the whole cluster.
        open: closed indices have copies too, since 7.2; one that is closed or opened later is another matter.
    """

    index: str
    index_uuid: str
    replicas: int
    filters: str
    started: tuple[tuple[int, int], ...]
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenDown:
    """The copies that a wave takes down: the wave has recovered when these shards are as they were."""

    number: int
    indices: tuple[IndexTaken, ...]
    event: Literal["taken_down"] = "taken_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWaitedFor:
    """Copies without a place that the run did not take down: reported, and not waited for."""

    shards: tuple[MissingCopy, ...]
    why: str
    event: Literal["not_waited_for"] = "not_waited_for"


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbacksHome:
    """Riak: what others held for the wave is handed back, so long after it began; what it holds is left."""

    number: int
    seconds: Seconds
    event: Literal["fallbacks_home"] = "fallbacks_home"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedExcused:
    """Shards without a started copy that may have one in a moment (`count` 0: none is any more).

    They were reopened or restored, or the wave is back and recovers.
    """

    count: int
    subjects: tuple[str, ...] = ()
    event: Literal["red_excused"] = "red_excused"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersMissed:
    """Members of the baseline that this reading does not list, one reading more; and those that are back."""

    missing: tuple[NodeName, ...] = ()
    back: tuple[NodeName, ...] = ()
    event: Literal["members_missed"] = "members_missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodStill:
    """The program read nothing for so long, beyond half a minute: the limits of waiting move on by that.

    It was suspended, or a verb took long.

    Attributes:
        nodes: those on their way down or up, and those of which a lost stop may have been done meanwhile.
    """

    nodes: tuple[NodeName, ...]
    seconds: Seconds
    event: Literal["stood_still"] = "stood_still"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Owed work of a node is done: seen on its host, or settled by the policy (`on_failure: warn`)."""

    node: NodeName
    work: Work
    why: str = ""
    event: Literal["work_done"] = "work_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookUnproven:
    """A `while_stopped` hook ran, and no reading after it shows its node down: its node owes it again."""

    node: NodeName
    number: int
    event: Literal["hook_unproven"] = "hook_unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedAgain:
    """A node is up in a new life and still owes work: its turn comes again.

    Attributes:
        what: the owed work, in the order of a turn.
    """

    node: NodeName
    what: tuple[str, ...]
    why: str = ""
    event: Literal["owed_again"] = "owed_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecovered:
    """A node is back with all its copies; of Riak: with all its vnodes, and handoff is done.

    `seconds` is from its stop to here.
    """

    node: NodeName
    seconds: Seconds
    bytes_reused: int | None = None
    bytes_copied: int | None = None
    operations_replayed: int | None = None
    event: Literal["node_recovered"] = "node_recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveFinished:
    """Every node of the wave is back (or failed), and so are its copies: by default, all that were before."""

    number: int
    seconds: Seconds
    event: Literal["wave_finished"] = "wave_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """Somebody asked the run to pause or to stop: who and how."""

    request: Request
    by: str
    event: Literal["requested"] = "requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingDown:
    """The run gives up for now: why, and how it will have ended when all is put back.

    Attributes:
        overdue: nodes that have used up their time to stop, start or rejoin: those that are back do not wait
            for them any more.
    """

    reason: str
    outcome: Outcome
    overdue: tuple[NodeName, ...] = ()
    event: Literal["standing_down"] = "standing_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodDown:
    """All is put back, or `left` lists what is not."""

    outcome: Outcome
    left: tuple[str, ...] = ()
    event: Literal["stood_down"] = "stood_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """The run goes on in a new process. Its timers begin anew."""

    operator: str
    host: str
    retry_failed: bool = False
    skip: tuple[NodeName, ...] = ()
    event: Literal["run_resumed"] = "run_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBegun:
    """`restore`, or a takeover: only the stand-down of a run is done."""

    operator: str
    host: str
    event: Literal["restore_begun"] = "restore_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The end of the run, or of this attempt at it when it can be resumed."""

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
    | FallbacksHome
    | NotHastened
    | RedExcused
    | MembersMissed
    | StoodStill
    | WorkDone
    | HookUnproven
    | OwedAgain
    | NodeRecovered
    | WaveFinished
    | Requested
    | StandingDown
    | StoodDown
    | RunResumed
    | RestoreBegun
    | RunFinished
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event in its place in the journal.

    Attributes:
        sequence: one-based within the run, without gaps.
        at: when it was decided, by the orchestrator's clock.
    """

    run: str
    sequence: int
    at: Instant
    event: Event
