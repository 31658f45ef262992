"""The limit of every wait of a run: from when it counts, and how long the run waits at most.

No other module computes a deadline. The engine asks whether the limit of a wait is `over`; a view shows the
`nearest`, and the reference prints what is `said`. So an operator never sees another limit than the one that
ends the wait. A limit never bars a start or a restore: after it the run stands down (`Deadline`), or goes on
without what it waited for.

They count by the watched clock, but for those in `real` time; `clock` has the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from orchestrator.engine.clock import UNWATCHED_SECONDS
from orchestrator.engine.gates import gates_of
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.progress import GOING_UP_OR_DOWN, Mark, NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import NodePhase, Outcome, Phase, Verb
from orchestrator.model.reading import Instant, Seconds

_About = TypeVar("_About")
"""What a wait is about: a node, a merge, an action; None for the run."""

DOUBT_SECONDS: Final[Seconds] = 30.0
"""A verb whose connection was lost may reach a slow host later: until then it may still take effect."""

HOST_SECONDS: Final[Seconds] = 30.0
"""How long a stopped node waits for a host that does not answer. Then the run starts the node."""

LOST_STOP_SECONDS: Final[Seconds] = 120.0
"""After a lost stop, the run does not end for this long. `resume` repairs what comes later."""

LEAVING_SECONDS: Final[Seconds] = 30.0
"""A member that is missing for less is not gone: its network failed briefly, or its process paused."""

EXCUSED_SECONDS: Final[Seconds] = 60.0
"""An excused shard may be without a started copy for this long; then it counts as red."""

LAST_COUNT_SECONDS: Final[Seconds] = 60.0
"""How long the end of a run waits for a reading of the segments: everything else is done then."""


@dataclass(frozen=True, slots=True)
class Limit(Generic[_About]):
    """A wait, and its limit: a row of the table."""

    since: Callable[[RunState, _About], Instant | None]  # when the wait began; None while it has not
    # the longest wait from then on: a key of the policy's `deadlines`, or a time; None = no limit
    seconds: str | Callable[[RunState, _About], Seconds | None]
    # for the reference: the setting, and the wait that it bounds, by the phases in which a view may show it;
    # empty where another row says it
    said: Mapping[Phase, str] = field(default_factory=dict)
    about: Callable[[RunState], Iterable[_About]] = lambda _: ()  # what is waited for in these phases
    by_reading: bool = False  # it counts to the moment of the reading, not to that of the decision on it
    real: bool = False  # it counts time that was not watched
    lasting: bool = False  # it counts in each phase, also where it is not shown

    def most(self, state: RunState, about: _About) -> Seconds | None:
        """The longest wait; None without a limit."""
        if isinstance(self.seconds, str):
            return float(getattr(state.begun.policy.deadlines, self.seconds))
        return self.seconds(state, about)

    def over(self, state: RunState, about: _About, at: Instant) -> Seconds | None:
        """How long the wait may last, once it has been longer at this moment; None before."""
        since, most = self._begun(state, about), self.most(state, about)
        return most if since is not None and most is not None and at - since > most else None

    def until(self, state: RunState, about: _About) -> Instant | None:
        """The last moment of the wait, by what is known of pauses; None without a limit."""
        since, most = self._begun(state, about), self.most(state, about)
        return None if since is None or most is None else since + most

    def _begun(self, state: RunState, about: _About) -> Instant | None:
        """When it began, later by what does not count since then."""
        since = self.since(state, about)
        return since if since is None or self.real else state.process.clock.later(since)


@dataclass(frozen=True, slots=True)
class Deadline(Limit[_About]):
    """A wait after whose limit the run stands down."""

    ends: Outcome = Outcome.FAILED  # how it has ended then, if everything could be restored


# What is waited for ------------------------------------


def _run(_: RunState) -> Iterable[None]:
    return (None,)


def _unless_merging(state: RunState) -> Iterable[None]:
    """Merges in progress end first, within their own limit."""
    return () if state.phase is Phase.MERGING and state.merging.in_progress else (None,)


def _in(*phases: NodePhase) -> Callable[[RunState], Iterable[NodeProgress]]:
    """Nodes in these phases, but those with an install step: its limit is theirs."""
    return lambda state: [node for node in state.nodes_in(*phases) if node.install is None]


def _installing(state: RunState) -> Iterable[NodeProgress]:
    phases = (NodePhase.STOPPED, NodePhase.STARTING)
    return [node for node in state.nodes.of(Mark.INSTALLS) if node.phase in phases]


def _unrestored(state: RunState) -> Iterable[None]:
    left = state.unrestored.withheld if state.phase is Phase.REASSIGNED else state.unrestored.anything
    return (None,) if left else ()


def _wave_missing(state: RunState) -> Iterable[None]:
    return (None,) if any(node.name in state.process.absent for node in state.wave_nodes) else ()


# Since when, and how long ------------------------------------


def _entered(state: RunState, _: None) -> Instant:
    return state.in_phase.since


def _all_clear(state: RunState, _: None) -> Instant:
    """From when the state of the last node is clear."""
    return max([state.in_phase.since, *(node.since for node in state.nodes.values())])


def _of_node(_: RunState, node: NodeProgress) -> Instant:
    return node.since


def _of_holds(state: RunState, _: None) -> Seconds:
    """Between waves that are called off, predicates and gates may have held the run for their full limits."""
    deadlines = state.begun.policy.deadlines
    return deadlines.hold + (deadlines.gate if gates_of(state.begun.policy) else 0.0)


def _of_merge(state: RunState, one: MergeProgress) -> Instant:
    """From when this process sent it or took it over."""
    asked = one.asked_at if one.asked_at is not None else one.begun or 0.0
    return max(asked, state.process.started)


def _of_effect(state: RunState, node: NodeProgress) -> Seconds:
    """How long a verb that was sent may still take effect: longer once its host has accepted it."""
    doubt, deadlines = node.doubt, state.begun.policy.deadlines
    if doubt is None or not doubt.accepted:
        return DOUBT_SECONDS
    return deadlines.stop if doubt.verb is Verb.STOP else deadlines.reboot


def _of_start(state: RunState, node: NodeProgress) -> Seconds:
    """An earlier verb may still take effect meanwhile."""
    start = state.begun.policy.deadlines.start
    return start if node.doubt is None else max(start, _of_effect(state, node))


def _of_join(state: RunState, _: NodeProgress) -> Seconds:
    """It follows the limit of the start."""
    return state.begun.policy.deadlines.start + state.begun.policy.deadlines.rejoin


def _of_lost_stop(state: RunState, _: NodeProgress) -> Seconds:
    return min(LOST_STOP_SECONDS, state.begun.policy.deadlines.stop)


def _lost(_: RunState, node: NodeProgress) -> Instant | None:
    return None if node.lost_stop is None else node.lost_stop.since


def _absent(state: RunState, name: NodeName) -> Instant | None:
    absence = state.process.absent.get(name)
    return None if absence is None else absence.since


def _excused(state: RunState, _: None) -> Instant | None:
    """Once the wave is back, the moment begins there at the earliest."""
    since = state.process.excused_since
    return (
        max(since, state.in_phase.since) if since is not None and state.phase is Phase.REASSIGNED else since
    )


def _unheard(_: RunState, node: NodeProgress) -> Instant | None:
    """Before a reading has shown that the node lives its old life."""
    doubt = node.doubt
    return doubt.since if doubt is not None and doubt.verb is Verb.STOP and not doubt.heard else None


# The limits, in the order of the reference ------------------------------------


def _says(text: str, *phases: Phase) -> dict[Phase, str]:
    return dict.fromkeys(phases, text)


_RUNNING: Final = tuple(phase for phase in Phase if phase is not Phase.ENDED)
_ENDING: Final = (Phase.FINISHING, Phase.STANDING_DOWN)
_DISABLED: Final = (Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.REASSIGNED)
_OF_A_NODE: Final = _says("", Phase.DOWN, Phase.STANDING_DOWN)

MERGE: Final = Deadline(
    _of_merge,
    lambda state, _: None if state.begun.policy.merge is None else state.begun.policy.merge.deadline,
    _says("`force_merge.deadline` for each merge", Phase.MERGING),
    lambda state: state.merging.in_progress,
)
# The copies after the merges.
SETTLING: Final = Deadline(_entered, "recover", _says("`recover`", Phase.MERGED), _run)
# A node that stops.
STOP: Final = Deadline(
    _of_node,
    "stop",
    _says("`stop`, `install`, `reboot` and `start` for each node, `rejoin` more to join", Phase.DOWN)
    | _says("`start` for each node, `rejoin` more to join", Phase.STANDING_DOWN),
    lambda state: state.nodes_in(NodePhase.STOPPING),
    by_reading=True,
)
# A stopped node whose host is still at work on a stop or a reboot.
STOPPING: Final = Deadline(
    lambda _, node: node.since if node.doubt is None else node.doubt.since,
    lambda state, node: state.begun.policy.deadlines.stop if node.doubt is None else _of_effect(state, node),
    _OF_A_NODE,
    lambda state: [node for node in _in(NodePhase.STOPPED)(state) if node.doubt is not None],
    by_reading=True,
)
# An install step on the host of a node; that of another run counts from the phase of the node.
INSTALL: Final = Deadline(
    lambda _, node: node.since if node.install is None else node.install.since,
    "install",
    _OF_A_NODE,
    _installing,
    by_reading=True,
)
# A stopped node whose host does not answer. Only a reading has this reason of the wait.
HOST: Final = Limit(_of_node, lambda _state, _node: HOST_SECONDS, by_reading=True)
# A node that starts; while an earlier verb may still take effect; and whose service runs without joining.
START: Final = Deadline(_of_node, "start", by_reading=True)
START_IN_DOUBT: Final = Deadline(_of_node, _of_start, _OF_A_NODE, _in(NodePhase.STARTING), by_reading=True)
JOIN: Final = Deadline(_of_node, _of_join, _OF_A_NODE, _in(NodePhase.STARTING), by_reading=True)
# The started nodes of a wave, until they are members on readings that agree.
REJOIN: Final = Deadline(_entered, "rejoin", _says("`rejoin`", Phase.REJOINED), _run)
# The copies that a wave took down.
RECOVERY: Final = Deadline(
    lambda state, _: state.recovery_since,
    "recover",
    _says("`recover` for the copies", Phase.REASSIGNED),
    lambda state: () if state.unrestored.withheld else (None,),
    ends=Outcome.HELD,
)
# The nodes of a recovered wave, until a reading shows them all; and at the end those that are in no wave.
SEEN_AGAIN: Final = Deadline(
    lambda state, _: max(state.in_phase.since, state.process.acted_at),
    "rejoin",
    _says("the time-out of each hook; `rejoin` while a node is not seen", Phase.SETTLED)
    | _says("`rejoin` while a node that still needs its last step is not seen", Phase.GATED, Phase.FINISHING),
    _wave_missing,
    ends=Outcome.HELD,
)
# Settings that are restored after a wave or at the end.
RESTORING: Final = Deadline(
    _entered, "rejoin", _says("`rejoin` to restore settings", Phase.REASSIGNED, Phase.FINISHING), _unrestored
)
# What a stand-down restores, from when the state of the last node became clear.
STANDING_DOWN: Final = Limit(
    _all_clear,
    "rejoin",
    _says("then `rejoin` to restore settings", Phase.STANDING_DOWN),
    lambda state: () if state.nodes_in(*GOING_UP_OR_DOWN) else (None,),
)
# A lost stop that may still be done when the run is to end; and before a reading has shown the old life.
LOST_STOP: Final = Limit(
    _lost,
    _of_lost_stop,
    _says(f"{LOST_STOP_SECONDS:.0f} s after a lost stop, at most `stop`", *_ENDING),
    lambda state: () if state.unrestored.anything else state.nodes.of(Mark.OPEN),
    by_reading=True,
)
UNHEARD_STOP: Final = Limit(_unheard, _of_lost_stop, by_reading=True)
# A lost stop that explains why its node is gone.
REACH: Final = Limit(_lost, "stop", about=lambda state: state.nodes.of(Mark.OPEN), by_reading=True)
# A node that was back and is missing again.
BACK: Final = Deadline(
    lambda state, node: _absent(state, node.name),
    "rejoin",
    _says("`rejoin` for a node that is missing again", Phase.REJOINED, Phase.REASSIGNED) | _OF_A_NODE,
    lambda state: state.nodes_in(NodePhase.REJOINED),
    by_reading=True,
)
# A member that is missing, until it counts as gone.
LEAVING: Final = Deadline(
    _absent, lambda _state, _name: LEAVING_SECONDS, about=lambda state: state.process.absent, by_reading=True
)
# The same in a run without a baseline, which follows no members.
UNFOLLOWED: Final = Limit(_all_clear, lambda _state, _: LEAVING_SECONDS, by_reading=True)
# Shards that are red, and excused for a moment.
EXCUSED: Final = Deadline(_excused, lambda _state, _: EXCUSED_SECONDS, about=_run, by_reading=True)
# A verb that fails and is sent again.
FAILING: Final = Deadline(
    RunState.failing_since,
    "rejoin",
    about=lambda state: [one.last.action for one in state.in_phase.failing],
    by_reading=True,
)
HOLD: Final = Deadline(
    lambda state, _: state.in_phase.holding_since,
    "hold",
    _says("`hold` for predicates", Phase.PREPARING, Phase.MERGING, Phase.GATED),
    _unless_merging,
    ends=Outcome.HELD,
)
GATE: Final = Deadline(
    lambda state, _: state.in_phase.gates_closed_since,
    "gate",
    _says("`gate` for gates", Phase.MERGING, Phase.GATED),
    _unless_merging,
    ends=Outcome.HELD,
)
# Waves that are called off before their stop, each one after the other.
CALLED_OFF: Final = Deadline(
    lambda state, _: state.process.called_off_since,
    _of_holds,
    _says("both together for waves that are called off", Phase.GATED),
    _run,
    lasting=True,
    ends=Outcome.HELD,
)
# A verb that was sent and may still take effect.
EFFECT: Final = Limit(
    lambda _, node: None if node.doubt is None else node.doubt.since,
    _of_effect,
    _says("30 s to `reboot` for a command whose result is unknown", Phase.GATED),
    lambda state: [node for node in state.nodes.of(Mark.OPEN) if node.doubt is not None],
    by_reading=True,
    lasting=True,
)
WITHHELD: Final = Deadline(
    lambda state, _: state.unrestored.withheld_since,
    "withheld",
    _says("`withheld` while allocation is disabled", *_DISABLED),
    _run,
    real=True,
)
REFUSED: Final = Deadline(
    lambda state, _: None if state.process.refused is None else state.process.refused.since,
    "refused",
    _says("`refused` for credentials that the cluster refuses", *_RUNNING),
    _run,
    by_reading=True,
)
TIMEOUT: Final = Deadline(
    lambda state, _: state.process.started,
    lambda state, _: state.begun.policy.timeout,
    _says("`--timeout`", *(phase for phase in _RUNNING if phase not in _ENDING)),
    _run,
    real=True,
    ends=Outcome.HELD,
)
# The last count of segments, at the end of a run with merges. Only a reading has this reason of the wait.
LAST_COUNT: Final = Limit(_entered, lambda _state, _: LAST_COUNT_SECONDS)

LIMITS: Final[tuple[Limit[Any], ...]] = tuple(one for one in globals().values() if isinstance(one, Limit))


def in_words(phase: Phase) -> str:
    """The limits of a phase, each with how the run ends after it; empty for the last one."""
    found = [limit for limit in LIMITS if limit.said.get(phase)]
    ends = [f" ({limit.ends.value})" if isinstance(limit, Deadline) else "" for limit in found]
    return "; ".join(f"{limit.said[phase]}{end}" for limit, end in zip(found, ends, strict=True))


def nearest(state: RunState, now: Instant) -> tuple[Instant, Outcome | None] | None:
    """When the current wait ends if nothing else ends it, and the outcome if the run stands down then.

    None if no limit counts now.
    """
    shown = [limit for limit in LIMITS if state.phase in limit.said]
    untils = ((limit.until(state, about), limit) for limit in shown for about in limit.about(state))
    counting = [(until, limit) for until, limit in untils if until is not None and now <= until]
    until, limit = min(counting, key=lambda one: one[0], default=(None, None))
    return None if until is None else (until, limit.ends if isinstance(limit, Deadline) else None)


def are_paused(state: RunState, before: Instant, at: Instant) -> bool:
    """Whether a limit counts that is to be later, as nothing was read between these two moments."""
    return any(
        (since := limit.since(state, about)) is not None
        and since < at - UNWATCHED_SECONDS
        and limit.over(state, about, before) is None
        for limit in LIMITS
        if not limit.real and (limit.lasting or state.phase in limit.said or not limit.said)
        for about in limit.about(state)
    )
