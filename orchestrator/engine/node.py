"""What one node does next: its move by the `grid`, and what each move does.

The grid is level-triggered: it may be read at any time and after any crash, and depends only on the state
and the reading. `turn` follows it as far as one reading goes. Moves that need the whole run (STOP, REJOIN,
FINISH, UNDO, OURS) are left to `run` and `admit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from orchestrator.engine import late_stop, limits, work
from orchestrator.engine.grid import PHASES_WITH, Move, Sight, move_of
from orchestrator.engine.limits import Limit
from orchestrator.engine.progress import Mark, NodeProgress
from orchestrator.engine.sight import lives_on, sight
from orchestrator.engine.situation import RETRY_SECONDS, NodeStep, Situation
from orchestrator.errors import SafetyViolation
from orchestrator.formats import duration
from orchestrator.model.action import StartNode, StopNode
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.event import Event, HookUnproven, SecondFailure, node_phase
from orchestrator.model.phase import RESTART, Goal, NodePhase, in_order
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.model.remembered import for_the_same_objects
from orchestrator.model.work_event import StartFailed


def stirring(situation: Situation) -> tuple[NodeProgress, ...]:
    """The nodes that this reading may move: most nodes of a cluster are done, or wait for their turn.

    The table never moves a node that is done, unless a verb of ours may still take effect. It moves one that
    waits for its turn only if it lives another life, or owes no restart.
    """
    nodes, view = situation.state.nodes, situation.view
    awake = nodes.of(Mark.AWAKE)
    reborn = _reborn(nodes.of(NodePhase.PENDING), view.members) if view else ()
    return nodes.in_order({node.name: node for node in (*awake, *reborn)}.values()) if reborn else awake


@for_the_same_objects
def _reborn(waiting: tuple[NodeProgress, ...], members: Mapping[NodeName, Node]) -> tuple[NodeProgress, ...]:
    """The nodes that live another life than the last accounted for."""
    return tuple(
        [
            node
            for node in waiting
            if (member := members.get(node.name)) is not None
            and member.incarnation is not node.life  # the same object for nearly all of them
            and member.incarnation != node.life
        ]
    )


def next_to(move: Move, situation: Situation) -> tuple[NodeProgress, ...]:
    """The nodes for which the table has this move by this reading."""
    waiting = situation.state.nodes_in(*PHASES_WITH[move])
    return tuple(node for node in waiting if is_next(move, situation, node))


def is_next(move: Move, situation: Situation, node: NodeProgress) -> bool:
    """Whether the table has this move for a node by this reading."""
    return move_of(node.phase, sight(situation, node), situation.goal(node)) is move


_TRIES: Final = 3
"""Starts that count before a node is given up."""

RETURNS: Final = 3
"""How often a node may come back with owed work in one attempt: something else keeps starting it."""

_STEPS: Final = 6
"""Steps of one node in one decision: more would be a cycle."""


_WAIT: Final = NodeStep()


def turn(situation: Situation, node: NodeProgress) -> NodeStep:
    """Follow the grid from the node's phase, as far as this reading allows."""
    events: list[Event] = []
    for _ in range(_STEPS):
        seen = sight(situation, node)
        failed = _failed_start(situation, node, seen)
        if failed is not None:
            events.append(failed)
            situation = situation.after(failed)
            node = situation.state.nodes[node.name]
        move = move_of(node.phase, seen, situation.goal(node))
        step = _DO[move](situation, node) if move in _DO else _WAIT
        events += step.events
        if step.enter is None:
            return replace(step, events=tuple(events))
        entering = (*_unproven(node, seen), _entered(situation, node, step.enter, step.why))
        events += entering
        if step.flip is not None:
            return replace(step, events=tuple(events))
        situation = situation.after(*step.events, *entering)
        node = situation.state.nodes[node.name]
    raise SafetyViolation(f"the moves of {node.name} make a cycle in {node.phase.value}")


def _failed_start(situation: Situation, node: NodeProgress, seen: Sight) -> StartFailed | None:
    """The first start of this phase that its host accepted and that failed; None while none is known to.

    Said at once: the starts that follow take a while, and mostly fail for the same reason. A service that its
    manager starts again and again runs for moments, but its host says that it failed.
    """
    host = situation.seen.host(node.name)
    if isinstance(host, Unknown) or not (situation.fresh and node.start_sent):
        return None
    refused = any(situation.state.failure_of(StartNode(node=node.name, counts=one)) for one in (True, False))
    if node.start_failed is not None or not (host.said or (seen is Sight.AWAY and not refused)):
        return None
    return StartFailed(node=node.name, why=host.detail, said=host.said)


def _unproven(node: NodeProgress, seen: Sight) -> tuple[Event, ...]:
    """The hook that ran last, if the node came up before a reading showed it down again.

    Something may have started its process between the reading and the hook, which then ran beside it.
    """
    if node.phase is not NodePhase.STOPPED or node.unproven is None or seen is Sight.AWAY:
        return ()
    return (HookUnproven(node=node.name, number=node.unproven),)


def _entered(situation: Situation, node: NodeProgress, enter: NodePhase, why: str) -> Event:
    if enter is not NodePhase.REJOINED:
        return node_phase(node.name, node.phase, enter, why=why)
    return rejoined(situation, node, why=why)


def rejoined(situation: Situation, node: NodeProgress, *, why: str = "") -> Event:
    """The step to REJOINED, with the life and the boot that are accounted for from now on."""
    member, host = situation.member(node.name), situation.seen.host(node.name)
    return node_phase(
        node.name,
        node.phase,
        NodePhase.REJOINED,
        why=why,
        incarnation=member.incarnation if member else None,
        boot=None if isinstance(host, Unknown) else host.boot_id,
    )


def _said(situation: Situation, node: NodeProgress) -> str:
    host = situation.seen.host(node.name)
    return host.reason if isinstance(host, Unknown) else host.detail


# What each move does ------------------------------------


def _stop(_situation: Situation, node: NodeProgress) -> NodeStep:
    """The run sends the stop itself, once a wave is admitted. A node without owed work has no turn."""
    return _WAIT if node.work else NodeStep(enter=NodePhase.REJOINED, why="there is nothing to restore on it")


def _to_stopped(situation: Situation, node: NodeProgress) -> NodeStep:
    """Not while the cluster has the same process: a service may end without it, and work would be done on it.

    As where a signal ends `docker run`, and its container runs on. An old list soon has it no more.
    """
    if situation.goal(node) is Goal.BRING_UP or not lives_on(situation, node):
        return NodeStep(enter=NodePhase.STOPPED, why=_said(situation, node))
    late = situation.over(limits.STOP, node)
    if late is None:
        return _WAIT
    why = (
        f"{node.name} did not stop within {duration(late)}: its service has ended"
        f" ({_said(situation, node)}), and the cluster still has its process"
    )
    return NodeStep(flip=why, overdue=True)


def _to_starting(situation: Situation, node: NodeProgress) -> NodeStep:
    if situation.goal(node) is Goal.BRING_UP:
        why = "rescue" if node.goal is Goal.BRING_UP else "standing down"
    else:
        why = "came up before it was started"
    return NodeStep(enter=NodePhase.STARTING, why=why)


def _to_rejoined(_situation: Situation, node: NodeProgress) -> NodeStep:
    why = {
        NodePhase.PENDING: "restarted outside this run",
        NodePhase.FAILED: "repaired outside this run",
        NodePhase.REJOINED: "restarted again outside this run",
    }[node.phase]
    return NodeStep(enter=NodePhase.REJOINED, why=why)


def _undone(_situation: Situation, node: NodeProgress) -> NodeStep:
    why = "its stop was not done: its process is still the same"
    return NodeStep(enter=NodePhase.PENDING if node.work else NodePhase.REJOINED, why=why)


def _work(situation: Situation, node: NodeProgress) -> NodeStep:
    """While another member is missing no work begins: it comes back soon, or this node is started first."""
    if node.work - {RESTART} and situation.absent_members:
        return _await(situation, node, Move.AWAIT_HOST)
    return work.owed_work(situation, node)


def _start(situation: Situation, node: NodeProgress) -> NodeStep:
    """Only starts that the host answered while the process was gone count as tries.

    Its limit ends a node only after a start that was sent in that time: one may be in doubt for longer. A
    run that was taken over sends none to a node that is not seen down: there the limit is enough.
    """
    barred = work.barring_start(situation, node)
    if barred is not None:
        said, late = f"it was not started, since {barred}", situation.over(limits.INSTALL, node)
        return _WAIT if late is None else _fail(node, said, overdue=True)
    host = situation.seen.host(node.name)
    ended = None if isinstance(host, Unknown) else work.given_up(host, node)
    if ended is not None:
        return work.then(situation, node, (ended,), _start)
    late = situation.over(limits.START, node)
    if situation.now - node.start_sent <= RETRY_SECONDS:
        return _WAIT
    if node.tries >= _TRIES:
        return _fail(node, f"it was started {_TRIES} times: {_start_failure(situation, node)}")
    away = sight(situation, node) is Sight.AWAY
    # The run that took the lease starts those that its record lists, and may start one that is not seen down.
    theirs = situation.state.left_to_successor(node.name)
    unseen = situation.state.process.deposed is not None and not away
    if late is not None and ((unseen and not theirs) or node.start_sent >= node.since):
        why = f"it did not start within {duration(late)}: {_said(situation, node)}"
        return _fail(node, why, overdue=True)
    if theirs or unseen:
        return _WAIT
    return NodeStep(actions=(StartNode(node=node.name, counts=away),))


def _start_failure(situation: Situation, node: NodeProgress) -> str:
    failure = situation.state.failure_of(StartNode(node=node.name, counts=True))
    return failure.reason if failure else _said(situation, node)


def _fail(node: NodeProgress, why: str, *, overdue: bool = False) -> NodeStep:
    """FAILED, and the run stands down, unless it does so already."""
    return NodeStep(enter=NodePhase.FAILED, why=why, flip=f"{node.name} failed: {why}", overdue=overdue)


# What a node waits for ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Await:
    """A wait for the host or the cluster, and what follows at its limit."""

    limit: Limit[NodeProgress]
    says: Callable[[Situation, NodeProgress, Seconds], str]  # why the wait ends, after so many seconds
    enter: NodePhase | None = None  # FAILED or STARTING; None: the run stands down


def _await(situation: Situation, node: NodeProgress, move: Move) -> NodeStep:
    overdue = work.reboot_overdue(situation, node) if node.phase is NodePhase.STOPPED else None
    if overdue is not None:
        return NodeStep(flip=overdue, overdue=True)
    awaited = _AWAITS[move]
    late = situation.over(awaited.limit, node)
    if late is None:
        return _WAIT
    why = awaited.says(situation, node, late)
    if awaited.enter is NodePhase.FAILED:
        return _fail(node, why, overdue=True)
    if awaited.enter is not None:
        return NodeStep(enter=awaited.enter, why=why)
    return NodeStep(flip=why, overdue=True)


def _did_not_stop(situation: Situation, node: NodeProgress, seconds: Seconds) -> str:
    failure = situation.state.failure_of(StopNode(node=node.name))
    said = failure.reason if failure else _said(situation, node)
    return f"{node.name} did not stop within {duration(seconds)} ({said}): a start is queued behind its stop"


def _did_not_join(situation: Situation, node: NodeProgress, seconds: Seconds) -> str:
    member = situation.member(node.name) is not None
    lacks = "is not a member with a new process" if member else "is not a member of the cluster"
    runs = f"its service runs ({_said(situation, node)})"
    return f"{runs}, and the node {lacks} after {duration(seconds)}{_stranger(situation)}"


def _stranger(situation: Situation) -> str:
    """An unexpected member, for people: the node may have come back under another name."""
    if situation.view is None or situation.state.baseline is None:
        return ""
    known = {*situation.state.baseline.incarnations, *situation.state.nodes}
    strangers = sorted(node.name for node in situation.view.nodes if node.name not in known)
    return f"; {', '.join(strangers[:5])} joined instead: compare `node.name`" if strangers else ""


_AWAITS: Final[Mapping[Move, _Await]] = {
    Move.AWAIT_STOP: _Await(limit=limits.STOP, says=_did_not_stop),
    Move.AWAIT_DOUBT: _Await(
        limit=limits.STOPPING,
        says=lambda situation, node, seconds: (
            f"{node.name} is still stopping after {duration(seconds)}: {_said(situation, node)}"
        ),
    ),
    Move.AWAIT_HOST: _Await(
        limit=limits.HOST,
        says=lambda _situation, _node, seconds: f"its work could not continue for {duration(seconds)}",
        enter=NodePhase.STARTING,
    ),
    Move.AWAIT_START: _Await(
        limit=limits.START_IN_DOUBT,
        says=lambda situation, node, seconds: (
            f"it is not up after {duration(seconds)}: {_said(situation, node)}"
        ),
        enter=NodePhase.FAILED,
    ),
    Move.AWAIT_JOIN: _Await(limit=limits.JOIN, says=_did_not_join, enter=NodePhase.FAILED),
    Move.AWAIT_RETURN: _Await(
        limit=limits.BACK,
        says=lambda _situation, node, seconds: (
            f"{node.name} has been absent for {duration(seconds)} after it had rejoined"
        ),
    ),
}


def _ours_or_flip(situation: Situation, node: NodeProgress) -> NodeStep:
    if late_stop.explains(situation, node, situation.seen.at) or not situation.has_left(node.name):
        return _WAIT
    failure = f"{node.name} left the cluster again after it had rejoined"
    return NodeStep(events=(SecondFailure(what=failure),), flip=f"a second failure: {failure}")


def debt_in_words(node: NodeProgress) -> str:
    """The owed work of a node, for people: `es2 still needs hook while_stopped 0`."""
    return f"{node.name} still needs {', '.join(in_order(node.work))}"


_DO: Final[Mapping[Move, Callable[[Situation, NodeProgress], NodeStep]]] = {
    Move.STOP: _stop,
    Move.TO_STOPPED: _to_stopped,
    Move.TO_STARTING: _to_starting,
    Move.TO_REJOINED: _to_rejoined,
    Move.WORK: _work,
    Move.START: _start,
    Move.UNDONE: _undone,
    Move.OURS_OR_FLIP: _ours_or_flip,
    **{move: partial(_await, move=move) for move in _AWAITS},
}
"""The moves that `turn` makes itself. All other moves are made by the run."""
