"""What a process remembers of its work on a run, and a new process begins without.

`ProcessState` lasts as long as the process, `PhaseState` until the run enters another phase. `resume` begins
with a fresh one of each, and all else of the state is kept: it follows from the journal (`fold`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

from orchestrator.engine.clock import WatchedClock
from orchestrator.holds import GATES_OPEN
from orchestrator.model import event as ev
from orchestrator.model.action import Action, ProbeSettings, RetryFailed, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, GateClosed, GateOpened, Hold
from orchestrator.model.phase import Phase, Request
from orchestrator.model.reading import Instant, Refusal, Seconds
from orchestrator.model.work_event import AccessGranted, AccessRefused, Answered, FellSilent


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A member of the baseline that the master does not list."""

    since: Instant  # the first reading without it
    readings: int = 1  # in a row, counted up to `settle_consecutive`


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A host, or the cluster, that does not answer, or answers slowly."""

    since: Instant  # when the first reading was sent that has no answer; of a slow one, when it answered
    why: str = ""  # how the reading failed; empty while it still waits
    # of a slow one, the seconds of its last answer; None while there is no answer
    took: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAccess:
    """Credentials that the cluster refuses."""

    refusal: Refusal
    since: Instant  # when that was first seen
    reading: bool  # whether the cluster cannot be read because of it


CLUSTER: Final = NodeName("")
"""The cluster's endpoints, among the hosts of nodes that answer or do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What a new process forgets: it begins with a fresh one."""

    started: Instant = 0.0  # when the process began its work on the run
    clock: WatchedClock = field(default_factory=WatchedClock)  # by which limits count
    resumed: bool = False  # it resumed a run that another process began
    restoring: bool = False  # only a stand-down is wanted (`restore`, takeover)
    # sent, and its outcome not recorded yet; after a crash these are in doubt
    in_flight: tuple[Action, ...] = ()
    acted_at: Instant = 0.0  # when the last verb was sent or its outcome recorded: an older reading is stale
    # an update that changes nothing was accepted; None before the first, and after a refused one
    probed: bool | None = None
    probes: int = 0  # settings updates without a change that were refused in a row
    # members of the baseline that the last readings did not list
    absent: Mapping[NodeName, Absence] = field(default_factory=dict)
    # nodes whose hosts do not answer, or slowly; CLUSTER is the cluster
    silent: Mapping[NodeName, Silence] = field(default_factory=dict)
    refused: RefusedAccess | None = None  # credentials that the cluster refuses; None while it accepts them
    # since when every wave was called off at its last reading; None once one stops
    called_off_since: Instant | None = None
    excused_since: Instant | None = None  # since when red shards are excused for a moment; None while none is
    retries: int = 0  # `retry_failed` calls of this wave; `retried_at` the last of them
    retried_at: Instant = 0.0
    request: Request = Request.NONE
    requested_by: str = ""
    lease_lost: str | None = None  # why the lease is not held; None while it is
    # the run that took the lease over from this living one; None while it holds its lease
    deposed: ev.Deposed | None = None
    second_failure: str | None = None
    # why, how it will have ended, and which nodes had used up their time; None before
    standing_down: ev.StandingDown | None = None
    held_by: tuple[Hold, ...] = ()  # what held the run when it began to stand down, which ends all holds
    state: str = ""  # the state database, as after `--state`; empty for the usual place


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A verb that failed and was not confirmed since."""

    last: ActionFailed  # how it failed the last time
    since: Instant  # its first failure in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseState:
    """What a new phase of the run forgets, and a new process too: each begins with a fresh one."""

    since: Instant = 0.0  # when the phase was entered; every deadline counts from such a moment
    before: Phase | None = None  # the phase before it; None in a new process
    confirmed: tuple[Action, ...] = ()  # verbs that were confirmed
    failing: tuple[Failing, ...] = ()  # verbs that failed, the latest last
    good_readings: int = 0  # in a row
    home: bool = False  # whether what others held for the wave was seen to be handed back; of Riak
    usual_pace: bool = False  # handoff that the playbook wants hastened is waited for without that; of Riak
    holds: tuple[Hold, ...] = ()  # predicates that are not met, and gates that are closed
    holding_since: Instant | None = None  # when the run began to hold, None while nothing but gates holds
    # since when at least one gate has been closed, None while all are open
    gates_closed_since: Instant | None = None

    @property
    def held_since(self) -> Instant | None:
        """When predicates or gates began to hold the run; None while nothing holds it."""
        known = (at for at in (self.holding_since, self.gates_closed_since) if at is not None)
        return min(known, default=None)

    @property
    def failed(self) -> tuple[ActionFailed, ...]:
        """How verbs failed, the latest last."""
        return tuple(failing.last for failing in self.failing)

    def failing_since(self, action: Action) -> Instant | None:
        """The first of its failures in a row; None when it did not fail."""
        return next((one.since for one in self.failing if one.last.action == action), None)


# After an action ------------------------------------


def sent(process: ProcessState, action: Action, at: Instant) -> ProcessState:
    """The process once it has sent an action whose outcome it does not know yet."""
    process = replace(process, in_flight=(*process.in_flight, action), acted_at=at)
    if isinstance(action, RetryFailed):
        return replace(process, retries=process.retries + 1, retried_at=at)
    return process


def landed(
    process: ProcessState, here: PhaseState, outcome: ev.ActionConfirmed | ActionFailed, at: Instant
) -> tuple[ProcessState, PhaseState]:
    """Both once the process knows the outcome of an action."""
    flying = list(process.in_flight)
    if outcome.action in flying:
        flying.remove(outcome.action)
    process = _proved(replace(process, in_flight=tuple(flying), acted_at=at), outcome)
    failing = tuple(one for one in here.failing if one.last.action != outcome.action)
    if not isinstance(outcome, ActionFailed):
        return process, replace(here, failing=failing, confirmed=(*here.confirmed, outcome.action))
    since = here.failing_since(outcome.action)
    again = Failing(last=outcome, since=at if since is None else since)
    return process, replace(here, failing=(*failing, again))


def _proved(process: ProcessState, outcome: ev.ActionConfirmed | ActionFailed) -> ProcessState:
    """Whether settings can be written, after an update of them."""
    match outcome:
        case ev.ActionConfirmed(action=ProbeSettings()):
            return replace(process, probed=True, probes=0)
        case ActionFailed(action=ProbeSettings()):
            return replace(process, probed=False, probes=process.probes + 1)
        case ActionFailed(action=WriteSettings(), in_doubt=False, unsent=False):
            return replace(process, probed=None, probes=0)
        case _:
            return process


# After an event that only the process remembers ------------------------------------

_OfPhase: TypeAlias = Hold | ev.HoldsCleared | GateClosed | GateOpened | ev.GoodReading | ev.FallbacksHome
_OfProcess: TypeAlias = (
    ev.LeaseTaken
    | ev.LeaseRegained
    | ev.LeaseLost
    | FellSilent
    | Answered
    | AccessRefused
    | AccessGranted
    | ev.RedExcused
    | ev.SecondFailure
    | ev.Requested
)


def remembered(
    process: ProcessState, here: PhaseState, event: _OfPhase | _OfProcess | ev.StandingDown, at: Instant
) -> tuple[ProcessState, PhaseState]:
    """Both after one more event that only the process remembers."""
    match event:
        case Hold() | ev.HoldsCleared() | GateClosed() | GateOpened() | ev.GoodReading() | ev.FallbacksHome():
            return process, _held(here, event, at)
        case ev.StandingDown():
            return replace(process, standing_down=event, held_by=here.holds), here
        case _:
            return _known(process, event, at), here


def _known(process: ProcessState, event: _OfProcess, at: Instant) -> ProcessState:
    match event:
        case ev.LeaseTaken() | ev.LeaseRegained():
            return replace(process, lease_lost=None)
        case ev.LeaseLost(reason=reason):
            return replace(process, lease_lost=reason)
        case ev.RedExcused(count=count):
            since = process.excused_since if process.excused_since is not None else at
            return replace(process, excused_since=since if count else None)
        case ev.SecondFailure(what=what):
            return replace(process, second_failure=what)
        case ev.Requested(request=request, by=by):
            return replace(process, request=max(process.request, request), requested_by=by)
        case AccessRefused(refusal=refusal, reading=reading):
            refused = RefusedAccess(refusal=refusal, since=at, reading=reading)
            return replace(process, refused=refused)
        case AccessGranted():
            return replace(process, refused=None)
        case FellSilent() | Answered():
            return replace(process, silent=_silent(process.silent, event, at))
        case _:
            assert_never(event)


def _silent(
    silent: Mapping[NodeName, Silence], event: FellSilent | Answered, at: Instant
) -> Mapping[NodeName, Silence]:
    names = event.nodes or (CLUSTER,)
    others = {name: one for name, one in silent.items() if name not in names}
    match event:
        case FellSilent(seconds=seconds, why=why):
            return others | dict.fromkeys(names, Silence(since=at - seconds, why=why))
        case Answered(slowly=True, seconds=seconds):
            return others | dict.fromkeys(names, Silence(since=at, took=seconds))
        case Answered():
            return others


def _held(here: PhaseState, event: _OfPhase, at: Instant) -> PhaseState:
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
            hold = Hold(predicate=GATES_OPEN, subject=gate, evidence=evidence)
            return replace(here, holds=_with(here.holds, hold), gates_closed_since=since)
        case GateOpened(gate=gate):
            left = tuple(h for h in here.holds if (h.predicate, h.subject) != (GATES_OPEN, gate))
            closed_since = here.gates_closed_since if _gates_closed(left) else None
            return replace(here, holds=left, gates_closed_since=closed_since)
        case ev.GoodReading(count=count):
            return replace(here, good_readings=count)
        case ev.FallbacksHome():
            return replace(here, home=True)


def _with(holds: tuple[Hold, ...], hold: Hold) -> tuple[Hold, ...]:
    others = (
        h
        for h in holds
        if h.predicate != hold.predicate or (h.predicate == GATES_OPEN and h.subject != hold.subject)
    )
    return (*others, hold)


def _gates_closed(holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if hold.predicate == GATES_OPEN)
