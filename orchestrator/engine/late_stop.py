"""A stop whose connection was lost, and which its host may carry out minutes later: all that follows from it.

A host that has received a stop does it within `deadlines.stop`, and may not have received it at all. So:

1. While it may be done soon, the node is in doubt (`Sight.DOUBT`) and the run waits.
2. Then the node still lives the same life (`not_done`), or is back in another one that may have nothing to do
   with the stop (`is_back`). The run continues, and remembers the stop: `NodeProgress.lost_stop`. In its next
   turn the node is sent another stop (`sent_again`).
3. If a node then goes down within `deadlines.stop`, the stop explains it (`explains`), and it is no second
   failure. The node joins the wave in progress and is only started (`took_down`, `joined`); the copies that
   were to go down with that stop are awaited. Meanwhile the lease's record lists the node (`may_be_done`), so
   that another machine starts it.
4. A run does not end while such a stop may take a node down that no one would start (`awaited`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.engine import limits
from orchestrator.engine.grid import Move, Sight, move_of
from orchestrator.engine.progress import LostStop, Mark, NodeProgress, ShardTaken
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, WaveStarted, node_phase, run_phase
from orchestrator.model.phase import Doubt, Goal, NodePhase, Phase, Verb
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Instant

if TYPE_CHECKING:  # it takes the fold in, which asks here
    from orchestrator.engine.situation import Situation

_WHY = "its stop was done late"


# What the state remembers of it ------------------------------------


def not_done(node: NodeProgress, taken: Mapping[tuple[str, int], ShardTaken], at: Instant) -> NodeProgress:
    """A node that lives the same life once its doubt is over: its stop counts as not done."""
    return node if node.doubt is None else replace(node, lost_stop=LostStop(since=at, taken=taken))


def is_back(node: NodeProgress, taken: Mapping[tuple[str, int], ShardTaken]) -> NodeProgress:
    """A node that is back in another life: it may have ended by itself, and the stop may still come.

    Not if its host is known to have accepted the stop.
    """
    doubt = node.doubt
    if doubt is None or doubt.heard or doubt.verb is not Verb.STOP:
        return node
    return replace(_remembered(node, doubt, taken), doubt=None)


def sent_again(node: NodeProgress, taken: Mapping[tuple[str, int], ShardTaken]) -> NodeProgress:
    """A node to which another verb is sent: its host may do the stop in doubt after that one, or instead."""
    doubt = node.doubt
    lost = doubt is not None and doubt.verb is Verb.STOP and not doubt.accepted
    return _remembered(node, doubt, taken) if lost and doubt is not None else node


def _remembered(node: NodeProgress, stop: Doubt, taken: Mapping[tuple[str, int], ShardTaken]) -> NodeProgress:
    since = stop.since if node.lost_stop is None else max(node.lost_stop.since, stop.since)
    return replace(node, lost_stop=LostStop(since=since, taken=taken))


def begun_again(state: RunState, node: NodeProgress, last_seen: Instant, at: Instant) -> LostStop | None:
    """The lost stop of a node, from this moment on: a process takes the run over, or stood still until now.

    It stays if it may have been done meanwhile: nothing has seen what a host did after `last_seen`.
    """
    lost = node.lost_stop
    if lost is None:
        return None
    absence = state.process.absent.get(node.name)
    missed = last_seen if absence is None else absence.since
    passed = state.process.clock.passed(lost.since, missed)
    return None if passed > state.begun.policy.deadlines.stop else replace(lost, since=at)


# Whether it took a node down ------------------------------------


def explains(situation: Situation, node: NodeProgress, gone_since: Instant) -> bool:
    """Whether a stop or reboot of this run may have taken down a node that is gone since then.

    One that was lost, or one that is still in doubt; none if its host has another boot since.
    """
    if situation.rebooted(node):
        return False
    state, lost, doubt = situation.state, node.lost_stop, node.doubt
    if lost is not None and limits.REACH.over(state, node, gone_since) is None:
        return True
    if doubt is None:
        return False
    reach = max(situation.policy.deadlines.stop, limits.EFFECT.most(state, node) or 0.0)
    return state.process.clock.passed(doubt.since, gone_since) <= reach


def took_down(situation: Situation, node: NodeProgress, found: Sight) -> bool:
    """Whether a node that should be up is down because of such a stop; or was, and is back before its turn.

    The answer of its host is enough, and is all there is when the stop took the master down. A host that is
    stopping the node is enough too: a start is queued behind a stop that hangs. A member list alone must miss
    the node in enough readings, counted from the first one without it.
    """
    goal, now = situation.goal(node), situation.seen.at
    if node.phase is NodePhase.PENDING and goal is Goal.RESTART and found is Sight.NEW:
        return explains(situation, node, now)
    if move_of(node.phase, found, goal) not in (Move.OURS, Move.OURS_OR_FLIP):
        return False
    absence = situation.absence(node.name)
    if absence is not None:
        return explains(situation, node, absence.since)
    return found in (Sight.STOPPING, Sight.AWAY) and explains(situation, node, now)


def joined(state: RunState, nodes: Iterable[NodeProgress]) -> tuple[Event, ...]:
    """Nodes that were taken down late join the wave in progress, or form one of their own, to be started.

    Of one that is up again, as somebody has started it, the copies are awaited all the same.
    """
    late = tuple(nodes)
    steps = [node_phase(node.name, node.phase, NodePhase.STARTING, why=_WHY) for node in late]
    if state.phase is Phase.STANDING_DOWN:
        return tuple(steps)
    before = state.wave or Wave(number=state.waves_begun + 1, nodes=(), why=_WHY)
    joining = (node.name for node in late if node.name not in before.nodes)
    wave = replace(before, nodes=(*before.nodes, *joining))
    begun = () if state.wave == wave else (WaveStarted(wave=wave, incarnations={}),)
    there = state.phase in (Phase.DOWN, Phase.REJOINED)
    down = () if there else (run_phase(state.phase, Phase.DOWN, why=_WHY),)
    return (*begun, *steps, *down)


# Whether it may still come ------------------------------------


def awaited(situation: Situation) -> list[NodeName]:
    """The nodes for whose lost stops the end of a run waits: a node that goes down later stays down."""
    open_ = [node for node in situation.state.nodes.of(Mark.OPEN) if node.phase is not NodePhase.FAILED]
    nodes = [node for node in open_ if node.lost_stop is not None]
    return [node.name for node in nodes if situation.over(limits.LOST_STOP, node) is None]


def may_still_stop(situation: Situation, node: NodeProgress, found: Sight) -> bool:
    """Whether a verb in doubt may still take down a node whose service runs: nothing has started it yet."""
    if found is Sight.DOUBT:
        return True
    doubt = node.doubt
    unheard = doubt is not None and doubt.verb is Verb.STOP and not doubt.heard
    return unheard and situation.over(limits.UNHEARD_STOP, node) is None


def may_be_done(state: RunState, node: NodeProgress) -> bool:
    """Whether a lost stop, or a stop in doubt, may still take a node down: another machine starts it then."""
    lost = () if node.lost_stop is None else (node.lost_stop.since,)
    sent = (*lost, *(() if node.doubt is None else (node.doubt.since,)))
    clock, reach = state.process.clock, state.begun.policy.deadlines.stop
    return bool(sent) and clock.passed(max(sent), state.process.acted_at) <= reach
