"""The limit of every wait of a run: from when it counts, and how long the run waits at most.

No other module computes a deadline. The engine asks each limit whether it `is_over`; a view shows `nearest`,
and the reference prints `IN_PHASE`. So an operator never sees another limit than the one that ends the wait.

A limit never bars a start or a restore: after it the run stands down, or goes on without what it waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from orchestrator.engine.gates import gates_of
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.progress import GOING_UP_OR_DOWN, Mark, NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action
from orchestrator.model.phase import Doubt, NodePhase, Phase, Verb
from orchestrator.model.policy import Deadlines
from orchestrator.model.reading import Instant, Seconds

DOUBT_SECONDS: Final[Seconds] = 30.0
"""A verb whose connection was lost may reach a slow host later: until then it may still take effect."""

HOST_SECONDS: Final[Seconds] = 30.0
"""How long a stopped node waits for a host that does not answer. Then the run starts the node."""

LOST_STOP_SECONDS: Final[Seconds] = 120.0
"""After a lost stop, the run does not end for this long. `resume` repairs what comes later."""

LAST_COUNT_SECONDS: Final[Seconds] = 60.0
"""How long the end of a run waits for a reading of the segments: everything else is done then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit of one wait.

    Attributes:
        since: the moment from which it counts.
        seconds: the longest wait from that moment on.
    """

    since: Instant
    seconds: Seconds

    @property
    def until(self) -> Instant:
        """The last moment of the wait."""
        return self.since + self.seconds

    def is_over(self, at: Instant) -> bool:
        """Whether the wait has been too long at this moment."""
        return at - self.since > self.seconds


def _deadlines(state: RunState) -> Deadlines:
    return state.begun.policy.deadlines


# The run ------------------------------------


def timeout(state: RunState) -> Limit | None:
    """The whole run (`--timeout`); None without one."""
    seconds = state.begun.policy.timeout
    return None if seconds is None else Limit(since=state.process.started, seconds=seconds)


def withheld(state: RunState) -> Limit | None:
    """Disabled allocation; None while it is enabled."""
    since = state.unrestored.withheld_since
    return None if since is None else Limit(since=since, seconds=_deadlines(state).withheld)


def refused(state: RunState) -> Limit | None:
    """Credentials that the cluster refuses; None while it accepts them."""
    found = state.process.refused
    return None if found is None else Limit(since=found.since, seconds=_deadlines(state).refused)


def failing(state: RunState, action: Action) -> Limit | None:
    """A verb that fails and is sent again; None while it does not fail."""
    since = state.failing_since(action)
    return None if since is None else Limit(since=since, seconds=_deadlines(state).rejoin)


# Before a stop ------------------------------------


def hold(state: RunState) -> Limit | None:
    """Predicates that are not met; None while nothing but gates holds."""
    since = state.in_phase.holding_since
    return None if since is None else Limit(since=since, seconds=_deadlines(state).hold)


def gate(state: RunState) -> Limit | None:
    """Closed gates; None while all are open."""
    since = state.in_phase.gates_closed_since
    return None if since is None else Limit(since=since, seconds=_deadlines(state).gate)


def called_off(state: RunState) -> Limit | None:
    """Waves that are called off before their stop, each one after the other; None while none is.

    In between, predicates and gates may have held the run for their full limits.
    """
    since, policy = state.process.called_off_since, state.begun.policy
    seconds = policy.deadlines.hold + (policy.deadlines.gate if gates_of(policy) else 0.0)
    return None if since is None else Limit(since=since, seconds=seconds)


# Merges ------------------------------------


def merge(state: RunState, one: MergeProgress) -> Limit | None:
    """A merge in progress, from when this process sent it or took it over; None for a run without merges."""
    policy = state.begun.policy.merge
    asked = one.asked_at if one.asked_at is not None else one.begun or 0.0
    since = max(asked, state.process.started)
    return None if policy is None else Limit(since=since, seconds=policy.deadline)


def settling(state: RunState) -> Limit:
    """The copies after the merges."""
    return Limit(since=state.in_phase.since, seconds=_deadlines(state).recover)


def last_count(state: RunState) -> Limit:
    """The last count of segments, at the end of a run with merges."""
    return Limit(since=state.in_phase.since, seconds=LAST_COUNT_SECONDS)


# One node ------------------------------------


def effect(state: RunState, doubt: Doubt) -> Limit:
    """A verb that was sent and may still take effect."""
    accepted = _deadlines(state).stop if doubt.verb is Verb.STOP else _deadlines(state).reboot
    return Limit(since=doubt.since, seconds=accepted if doubt.accepted else DOUBT_SECONDS)


def stop(state: RunState, node: NodeProgress) -> Limit:
    """A node that stops."""
    return Limit(since=node.since, seconds=_deadlines(state).stop)


def stopping(state: RunState, node: NodeProgress) -> Limit:
    """A stopped node whose host is still at work on a stop or a reboot."""
    return stop(state, node) if node.doubt is None else effect(state, node.doubt)


def host(node: NodeProgress) -> Limit:
    """A stopped node whose host does not answer."""
    return Limit(since=node.since, seconds=HOST_SECONDS)


def install(state: RunState, node: NodeProgress) -> Limit:
    """An install step on the host of a node; that of another run counts from the phase of the node."""
    since = node.since if node.install is None else node.install.since
    return Limit(since=since, seconds=_deadlines(state).install)


def start(state: RunState, node: NodeProgress) -> Limit:
    """A node that starts."""
    return Limit(since=node.since, seconds=_deadlines(state).start)


def start_in_doubt(state: RunState, node: NodeProgress) -> Limit:
    """A node that starts while an earlier verb may still take effect."""
    seconds = _deadlines(state).start
    if node.doubt is not None:
        seconds = max(seconds, effect(state, node.doubt).seconds)
    return Limit(since=node.since, seconds=seconds)


def join(state: RunState, node: NodeProgress) -> Limit:
    """A node whose service runs and that is no member yet."""
    return Limit(since=node.since, seconds=_deadlines(state).start + _deadlines(state).rejoin)


def back(state: RunState, node: NodeProgress) -> Limit | None:
    """A node that was back and is missing again; None while it is not missing."""
    absence = state.process.absent.get(node.name)
    return None if absence is None else Limit(since=absence.since, seconds=_deadlines(state).rejoin)


def lost_stop(state: RunState, node: NodeProgress) -> Limit | None:
    """A lost stop that may still be done when the run is to end; None for a node without one."""
    return None if node.lost_stop is None else _of_lost_stop(state, node.lost_stop.since)


def unheard_stop(state: RunState, node: NodeProgress) -> Limit | None:
    """The same before a reading has shown that the node lives its old life; None without such a stop."""
    doubt = node.doubt
    unheard = doubt is not None and doubt.verb is Verb.STOP and not doubt.heard
    return _of_lost_stop(state, doubt.since) if doubt is not None and unheard else None


def _of_lost_stop(state: RunState, since: Instant) -> Limit:
    return Limit(since=since, seconds=min(LOST_STOP_SECONDS, _deadlines(state).stop))


# A wave, and the end ------------------------------------


def rejoin(state: RunState) -> Limit:
    """The started nodes of a wave, until they are members on readings that agree."""
    return Limit(since=state.in_phase.since, seconds=_deadlines(state).rejoin)


def restoring(state: RunState) -> Limit:
    """Settings that are restored after a wave or at the end."""
    return Limit(since=state.in_phase.since, seconds=_deadlines(state).rejoin)


def recovery(state: RunState) -> Limit:
    """The copies that a wave took down."""
    return Limit(since=state.recovery_since, seconds=_deadlines(state).recover)


def seen_again(state: RunState) -> Limit:
    """The nodes of a recovered wave, until a reading shows them all."""
    since = max(state.in_phase.since, state.process.acted_at)
    return Limit(since=since, seconds=_deadlines(state).rejoin)


def standing_down(state: RunState) -> Limit:
    """What a stand-down restores, from when the state of the last node became clear."""
    since = max([state.in_phase.since, *(node.since for node in state.nodes.values())])
    return Limit(since=since, seconds=_deadlines(state).rejoin)


# What counts now ------------------------------------


_Limits: TypeAlias = Callable[[RunState], Iterable[Limit | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Limits of one kind that may count in a phase.

    Attributes:
        said: the setting, and the wait that it bounds, for the reference.
        limits: the limits that count now, from the state; None for one that does not.
    """

    said: str
    limits: _Limits


def _merges(state: RunState) -> Iterable[Limit | None]:
    return [merge(state, one) for one in state.merging.in_hand]


def _unless_merging(limit: Callable[[RunState], Limit | None]) -> _Limits:
    """Merges in progress end first, within their own limit."""
    return lambda state: () if state.phase is Phase.MERGING and state.merging.in_hand else (limit(state),)


def _nodes(state: RunState) -> Iterable[Limit | None]:
    return [limit for node in state.nodes.of(Mark.AWAKE) for limit in of_node(state, node)]


def of_node(state: RunState, node: NodeProgress) -> Iterable[Limit | None]:
    """The limits of a node by its phase; of two that follow each other, the second counts later."""
    match node.phase:
        case NodePhase.STOPPING:
            return (stop(state, node),)
        case NodePhase.STOPPED | NodePhase.STARTING if node.install is not None:
            return (install(state, node),)
        case NodePhase.STOPPED if node.doubt is not None:
            return (stopping(state, node),)
        case NodePhase.STARTING:
            return (start_in_doubt(state, node), join(state, node))
        case NodePhase.REJOINED:
            return (back(state, node),)
        case _:
            return ()


def _doubts(state: RunState) -> Iterable[Limit | None]:
    return [effect(state, node.doubt) for node in state.nodes.of(Mark.OPEN) if node.doubt is not None]


def _missing_again(state: RunState) -> Iterable[Limit | None]:
    return [back(state, node) for node in state.nodes_in(NodePhase.REJOINED)]


def _restored(state: RunState) -> Iterable[Limit | None]:
    left = state.unrestored.withheld if state.phase is Phase.REASSIGNED else state.unrestored.anything
    return (restoring(state),) if left else ()


def _recovered(state: RunState) -> Iterable[Limit | None]:
    return () if state.unrestored.withheld else (recovery(state),)


def _seen_again(state: RunState) -> Iterable[Limit | None]:
    return (seen_again(state),) if any(node.name in state.process.absent for node in state.wave_nodes) else ()


def _stood_down(state: RunState) -> Iterable[Limit | None]:
    return () if state.nodes_in(*GOING_UP_OR_DOWN) else (standing_down(state),)


def _ends(state: RunState) -> Iterable[Limit | None]:
    if state.unrestored.anything:
        return ()
    return [lost_stop(state, node) for node in state.nodes.of(Mark.OPEN)]


_TIMEOUT: Final = Counted(said="`--timeout`", limits=lambda state: (timeout(state),))
_WITHHELD: Final = Counted(
    said="`withheld` while allocation is disabled", limits=lambda state: (withheld(state),)
)
_REFUSED: Final = Counted(
    said="`refused` for credentials that the cluster refuses", limits=lambda state: (refused(state),)
)
_HOLD: Final = Counted(said="`hold` for predicates", limits=_unless_merging(hold))
_GATE: Final = Counted(said="`gate` for gates", limits=_unless_merging(gate))
_CALLED_OFF: Final = Counted(
    said="both together for waves that are called off", limits=lambda state: (called_off(state),)
)
_DOUBT: Final = Counted(said="30 s to `reboot` for a command whose result is unknown", limits=_doubts)
_MERGE: Final = Counted(said="`force_merge.deadline` for each merge", limits=_merges)
_SETTLING: Final = Counted(said="`recover`", limits=lambda state: (settling(state),))
_NODES: Final = Counted(said="`stop`, `install`, `start` or `reboot` for each node", limits=_nodes)
_REJOIN: Final = Counted(said="`rejoin`", limits=lambda state: (rejoin(state),))
_BACK: Final = Counted(said="`rejoin` for a node that is missing again", limits=_missing_again)
_RESTORING: Final = Counted(said="`rejoin` to restore settings", limits=_restored)
_RECOVERY: Final = Counted(said="`recover` for the copies", limits=_recovered)
_SEEN_AGAIN: Final = Counted(
    said="the time-out of each hook; `rejoin` while a node is not seen", limits=_seen_again
)
_STARTED: Final = Counted(said="`start` for each node", limits=_nodes)
_STANDING_DOWN: Final = Counted(said="then `rejoin` to restore settings", limits=_stood_down)
_LOST_STOP: Final = Counted(said=f"{LOST_STOP_SECONDS:.0f} s after a lost stop, at most `stop`", limits=_ends)

IN_PHASE: Final[Mapping[Phase, tuple[Counted, ...]]] = {
    Phase.PREPARING: (_HOLD, _REFUSED, _TIMEOUT),
    Phase.MERGING: (_MERGE, _HOLD, _GATE, _REFUSED, _TIMEOUT),
    Phase.MERGED: (_SETTLING, _REFUSED, _TIMEOUT),
    Phase.GATED: (_HOLD, _GATE, _CALLED_OFF, _DOUBT, _REFUSED, _TIMEOUT),
    Phase.WITHHELD: (_WITHHELD, _REFUSED, _TIMEOUT),
    Phase.DOWN: (_NODES, _WITHHELD, _REFUSED, _TIMEOUT),
    Phase.REJOINED: (_REJOIN, _BACK, _WITHHELD, _REFUSED, _TIMEOUT),
    Phase.REASSIGNED: (_RECOVERY, _RESTORING, _BACK, _WITHHELD, _REFUSED, _TIMEOUT),
    Phase.SETTLED: (_SEEN_AGAIN, _REFUSED, _TIMEOUT),
    Phase.FINISHING: (_RESTORING, _LOST_STOP, _REFUSED),
    Phase.STANDING_DOWN: (_STARTED, _STANDING_DOWN, _LOST_STOP, _REFUSED),
    Phase.ENDED: (),
}
"""The limits that may count in each phase of a run, the most usual first."""


def in_words(phase: Phase) -> str:
    """The limits of a phase, for the reference; empty for the last one."""
    return "; ".join(counted.said for counted in IN_PHASE[phase])


def nearest(state: RunState, now: Instant) -> Limit | None:
    """The limit that ends the current wait if nothing else does; None if no limit counts now."""
    limits = (limit for counted in IN_PHASE[state.phase] for limit in counted.limits(state))
    ahead = [limit for limit in limits if limit is not None and not limit.is_over(now)]
    return min(ahead, key=lambda limit: limit.until, default=None)
