"""What one node does next: its move by the `grid`, and what each move does.

The grid is level-triggered: it may be read at any time and after any crash, and depends only on the state
and the reading. `turn` follows it as far as one reading goes. Moves that need the whole run (STOP, REJOIN,
FINISH, UNDO, OURS) are left to `run` and `admit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.engine import limits, upgrade
from orchestrator.engine.grid import PHASES_WITH, Move, Sight, move_of
from orchestrator.engine.progress import Mark, NodeProgress
from orchestrator.engine.sight import lives_on, sight
from orchestrator.engine.situation import RETRY_SECONDS, Situation
from orchestrator.engine.tuning import tuned
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import HostAction, Moment, RebootHost, RunHook, StartNode, StopNode
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.event import Event, HookUnproven, SecondFailure, node_phase
from orchestrator.model.frozen import for_the_same_objects
from orchestrator.model.phase import REBOOT, RESTART, TUNING, Goal, NodePhase, Verb, Work, in_order
from orchestrator.model.reading import Unknown
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
"""Starts that count before a node is given up, and reboots before the run stands down."""

RETURNS: Final = 3
"""How often a node may come back with owed work in one attempt: something else keeps starting it."""

_STEPS: Final = 6
"""Steps of one node in one decision: more would be a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The result of one reading for a node.

    Attributes:
        node: as it is after `events`.
        move: the last move of the table; if `turn` acts itself, the move that it made.
        flip: the reason to stand down; None = the run continues.
        overdue: the reason is that the time of this node is over.
    """

    node: NodeProgress
    sight: Sight
    move: Move
    events: tuple[Event, ...] = ()
    actions: tuple[HostAction, ...] = ()
    flip: str | None = None
    overdue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Did:
    """What a move does at once: enter a phase, act, or flip; all empty = it waits."""

    enter: NodePhase | None = None
    why: str = ""
    events: tuple[Event, ...] = ()
    actions: tuple[HostAction, ...] = ()
    flip: str | None = None
    overdue: bool = False


_WAIT: Final = _Did()


def turn(situation: Situation, node: NodeProgress) -> Turn:
    """Follow the table from the node's phase, as far as this reading allows."""
    events: list[Event] = []
    for _ in range(_STEPS):
        seen = sight(situation, node)
        failed = _failed_start(situation, node, seen)
        if failed is not None:
            events.append(failed)
            situation = situation.after(failed)
            node = situation.state.nodes[node.name]
        move = move_of(node.phase, seen, situation.goal(node))
        did = _DO[move](situation, node) if move in _DO else _WAIT
        events += did.events
        if did.enter is not None:
            steps = (*_unproven(node, seen), _step(situation, node, did.enter, did.why))
            events += steps
            situation = situation.after(*did.events, *steps)
            node = situation.state.nodes[node.name]
        if did.enter is None or did.flip is not None:
            return Turn(
                node=node,
                sight=seen,
                move=move,
                events=tuple(events),
                actions=did.actions,
                flip=did.flip,
                overdue=did.overdue,
            )
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


def _step(situation: Situation, node: NodeProgress, enter: NodePhase, why: str) -> Event:
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


def _stop(_situation: Situation, node: NodeProgress) -> _Did:
    """The run sends the stop itself, once a wave is admitted. A node without owed work has no turn."""
    return _WAIT if node.work else _Did(enter=NodePhase.REJOINED, why="there is nothing to restore on it")


def _to_stopped(situation: Situation, node: NodeProgress) -> _Did:
    """Not while the cluster has the same process: a service may end without it, and work would be done on it.

    As where a signal ends `docker run`, and its container runs on. An old list soon has it no more.
    """
    if situation.goal(node) is Goal.BRING_UP or not lives_on(situation, node):
        return _Did(enter=NodePhase.STOPPED, why=_said(situation, node))
    limit = limits.stop(situation.state, node)
    if not limit.is_over(situation.seen.at):
        return _WAIT
    why = (
        f"{node.name} did not stop within {limit.seconds:.0f} s: its service has ended"
        f" ({_said(situation, node)}), and the cluster still has its process"
    )
    return _Did(flip=why, overdue=True)


def _to_starting(situation: Situation, node: NodeProgress) -> _Did:
    if situation.goal(node) is Goal.BRING_UP:
        why = "rescue" if node.goal is Goal.BRING_UP else "standing down"
    else:
        why = "came up before it was started"
    return _Did(enter=NodePhase.STARTING, why=why)


def _to_rejoined(_situation: Situation, node: NodeProgress) -> _Did:
    why = {
        NodePhase.PENDING: "restarted outside this run",
        NodePhase.FAILED: "repaired outside this run",
        NodePhase.REJOINED: "restarted again outside this run",
    }[node.phase]
    return _Did(enter=NodePhase.REJOINED, why=why)


def _undone(_situation: Situation, node: NodeProgress) -> _Did:
    why = "its stop was not done: its process is still the same"
    return _Did(enter=NodePhase.PENDING if node.work else NodePhase.REJOINED, why=why)


def _work(situation: Situation, node: NodeProgress) -> _Did:
    """Hooks, install steps, then tuning: the process is down, so a change applies from its first page on.

    While another member is missing no work begins: either it comes back soon, or this node is started first.
    """
    if node.work - {RESTART} and situation.absent_members:
        return _await_host(situation, node)
    numbers = sorted(item.number for item in node.owed if item.work is Work.HOOK)
    if numbers:
        return _hook(situation, node, numbers[0])
    if any(item.work is Work.INSTALL for item in node.owed):
        return _install(situation, node)
    if TUNING in node.owed:
        done = tuned(situation, node)
        if not done.over:
            return _Did(events=done.events, actions=done.actions, flip=done.flip)
        after = situation.after(*done.events)
        rest = _work(after, after.state.nodes[node.name])
        return replace(rest, events=(*done.events, *rest.events))
    if REBOOT in node.owed:
        return _reboot(situation, node)
    return _Did(enter=NodePhase.STARTING)


def _hook(situation: Situation, node: NodeProgress, number: int) -> _Did:
    hook = situation.policy.hooks.while_stopped[number]
    action = RunHook(node=node.name, moment=Moment.WHILE_STOPPED, number=number, hook=hook)
    failure = situation.state.failure_of(action)
    if failure and not situation.is_sent_again(failure):
        return _Did(flip=f"hook while_stopped on {node.name}: {failure.reason}")
    if failure and situation.now - situation.state.process.acted_at < RETRY_SECONDS:
        return _WAIT
    return _Did(actions=(action,))


def _install(situation: Situation, node: NodeProgress) -> _Did:
    step = upgrade.install(situation, node)
    did = _Did(events=step.events, actions=step.actions, flip=step.flip, overdue=step.overdue)
    if step.flip is not None or not step.events:
        return did
    after = situation.after(*step.events)
    rest = _work(after, after.state.nodes[node.name])
    return replace(rest, events=(*step.events, *rest.events))


def _reboot(situation: Situation, node: NodeProgress) -> _Did:
    """One reboot for all nodes of a machine, when each is stopped and needs no hook or tuning while down.

    If a node of the machine is up, the reboot waits for another turn, in which all of them are stopped first.
    It also waits if the lease is lost, since another run may be at work.
    """
    overdue = _reboot_overdue(situation, node)
    if overdue is not None:
        return _Did(flip=overdue, overdue=True)
    machine = situation.machine(node)
    sights = {one.name: sight(situation, one) for one in machine}
    up = [one for one in machine if one.phase not in (NodePhase.STOPPING, NodePhase.STOPPED)]
    stopped = [one for one in machine if one.phase is NodePhase.STOPPED]
    up += [one for one in stopped if sights[one.name] in (Sight.NEW, Sight.COMING)]
    if up or situation.state.process.lease_lost is not None:
        return _Did(enter=NodePhase.STARTING, why="its host is not rebooted in this wave")
    ready = [one for one in stopped if sights[one.name] is Sight.AWAY]
    if len(ready) < len(machine) or any(_while_down(one) for one in machine):
        return _WAIT
    first, *others = machine
    if node.name != first.name:
        return _WAIT
    action = RebootHost(node=first.name, also=tuple(other.name for other in others))
    failure = situation.state.failure_of(action)
    if node.reboots >= _TRIES:
        said = failure.reason if failure else "the same boot each time"
        return _Did(flip=f"the host of {node.name} was asked to reboot {_TRIES} times: {said}")
    if failure and not failure.in_doubt and situation.now - situation.state.process.acted_at < RETRY_SECONDS:
        return _WAIT
    return _Did(actions=(action,))


def _while_down(node: NodeProgress) -> bool:
    """Whether it still needs work that comes before the reboot."""
    return any(item.work in (Work.HOOK, Work.INSTALL, Work.TUNING) for item in node.owed)


def _start(situation: Situation, node: NodeProgress) -> _Did:
    """Only starts that the host answered while the process was gone count as tries.

    Its limit ends a node only after a start that was sent in that time: one may be in doubt for longer.
    """
    barred = upgrade.barring_start(situation, node)
    if barred is not None:
        limit = limits.install(situation.state, node)
        said = f"it was not started, since {barred}"
        return _fail(node, said, overdue=True) if limit.is_over(situation.seen.at) else _WAIT
    host = situation.seen.host(node.name)
    ended = None if isinstance(host, Unknown) else upgrade.given_up(host, node)
    if ended is not None:
        after = situation.after(ended)
        rest = _start(after, after.state.nodes[node.name])
        return replace(rest, events=(ended, *rest.events))
    limit = limits.start(situation.state, node)
    if situation.now - node.start_sent <= RETRY_SECONDS:
        return _WAIT
    if node.tries >= _TRIES:
        return _fail(node, f"it was started {_TRIES} times: {_start_failure(situation, node)}")
    if limit.is_over(situation.seen.at) and node.start_sent >= node.since:
        why = f"it did not start within {limit.seconds:.0f} s: {_said(situation, node)}"
        return _fail(node, why, overdue=True)
    away = sight(situation, node) is Sight.AWAY
    return _Did(actions=(StartNode(node=node.name, counts=away),))


def _start_failure(situation: Situation, node: NodeProgress) -> str:
    failure = situation.state.failure_of(StartNode(node=node.name, counts=True))
    return failure.reason if failure else _said(situation, node)


def _fail(node: NodeProgress, why: str, *, overdue: bool = False) -> _Did:
    """FAILED, and the run stands down, unless it does so already."""
    return _Did(enter=NodePhase.FAILED, why=why, flip=f"{node.name} failed: {why}", overdue=overdue)


def _await_stop(situation: Situation, node: NodeProgress) -> _Did:
    failure = situation.state.failure_of(StopNode(node=node.name))
    limit = limits.stop(situation.state, node)
    if not limit.is_over(situation.seen.at):
        return _WAIT
    said = failure.reason if failure else _said(situation, node)
    within = f"within {limit.seconds:.0f} s"
    return _Did(
        flip=f"{node.name} did not stop {within} ({said}): a start is queued behind its stop",
        overdue=True,
    )


def _await_doubt(situation: Situation, node: NodeProgress) -> _Did:
    """At the moment of the reading, as in `sight`: the run waits for an open doubt."""
    limit = limits.stopping(situation.state, node)
    if not limit.is_over(situation.seen.at):
        return _WAIT
    reason = f"{node.name} is still stopping after {limit.seconds:.0f} s: {_said(situation, node)}"
    return _Did(flip=_reboot_overdue(situation, node) or reason, overdue=True)


def _reboot_overdue(situation: Situation, node: NodeProgress) -> str | None:
    """Why the run no longer waits for a reboot that its host accepted; None while it may still be done."""
    doubt = node.doubt
    if doubt is None or doubt.verb is not Verb.REBOOT or not doubt.accepted:
        return None
    limit = limits.effect(situation.state, doubt)
    if not limit.is_over(situation.seen.at) or situation.rebooted(node):
        return None
    return f"the host of {node.name} is not back with another boot id after {limit.seconds:.0f} s"


def _await_host(situation: Situation, node: NodeProgress) -> _Did:
    overdue = _reboot_overdue(situation, node)
    if overdue is not None:
        return _Did(flip=overdue, overdue=True)
    limit = limits.host(node)
    if not limit.is_over(situation.seen.at):
        return _WAIT
    return _Did(enter=NodePhase.STARTING, why=f"its work could not continue for {limit.seconds:.0f} s")


def _await_start(situation: Situation, node: NodeProgress) -> _Did:
    limit = limits.start_in_doubt(situation.state, node)
    if not limit.is_over(situation.seen.at):
        return _WAIT
    why = f"it is not up after {limit.seconds:.0f} s: {_said(situation, node)}"
    return _fail(node, why, overdue=True)


def _await_join(situation: Situation, node: NodeProgress) -> _Did:
    limit = limits.join(situation.state, node)
    if not limit.is_over(situation.seen.at):
        return _WAIT
    member = situation.member(node.name) is not None
    lacks = "is not a member with a new process" if member else "is not a member of the cluster"
    why = f"its service runs ({_said(situation, node)}), and the node {lacks} after {limit.seconds:.0f} s"
    return _fail(node, f"{why}{_stranger(situation)}", overdue=True)


def _stranger(situation: Situation) -> str:
    """An unexpected member, for people: the node may have come back under another name."""
    if situation.view is None or situation.state.baseline is None:
        return ""
    known = {*situation.state.baseline.incarnations, *situation.state.nodes}
    strangers = sorted(node.name for node in situation.view.nodes if node.name not in known)
    return f"; {', '.join(strangers[:5])} joined instead: compare `node.name`" if strangers else ""


def _await_return(situation: Situation, node: NodeProgress) -> _Did:
    limit = limits.back(situation.state, node)
    if limit is None or not limit.is_over(situation.seen.at):
        return _WAIT
    why = f"{node.name} has been absent for {limit.seconds:.0f} s after it had rejoined"
    return _Did(flip=why, overdue=True)


def _ours_or_flip(situation: Situation, node: NodeProgress) -> _Did:
    if situation.in_reach(node) or not situation.has_left(node.name):
        return _WAIT
    failure = f"{node.name} left the cluster again after it had rejoined"
    return _Did(events=(SecondFailure(what=failure),), flip=f"a second failure: {failure}")


def is_ours(situation: Situation, node: NodeProgress) -> bool:
    """Whether a node that should be up is away by a lost stop of this run.

    The answer of its host is enough, and is all there is when the stop took the master down. A host that is
    stopping the node is enough too: a start is queued behind a stop that hangs. A member list alone must miss
    the node in enough readings, counted from the first one without it.
    """
    found = sight(situation, node)
    wanted = move_of(node.phase, found, situation.goal(node))
    absence = situation.absence(node.name)
    certain = found in (Sight.STOPPING, Sight.AWAY) or absence is not None
    missed = absence.since if absence else None
    return wanted in (Move.OURS, Move.OURS_OR_FLIP) and certain and situation.in_reach(node, at=missed)


def was_ours(situation: Situation, node: NodeProgress) -> bool:
    """Whether a lost stop of this run may have taken down a node that waits for its turn and is up again."""
    waits = node.phase is NodePhase.PENDING and situation.goal(node) is Goal.RESTART
    return waits and situation.in_reach(node) and sight(situation, node) is Sight.NEW


def debt_in_words(node: NodeProgress) -> str:
    """The owed work of a node, for people: `es2 still needs hook while_stopped 0`."""
    return f"{node.name} still needs {', '.join(in_order(node.work))}"


_DO: Final[Mapping[Move, Callable[[Situation, NodeProgress], _Did]]] = {
    Move.STOP: _stop,
    Move.TO_STOPPED: _to_stopped,
    Move.TO_STARTING: _to_starting,
    Move.TO_REJOINED: _to_rejoined,
    Move.WORK: _work,
    Move.START: _start,
    Move.UNDONE: _undone,
    Move.OURS_OR_FLIP: _ours_or_flip,
    Move.AWAIT_STOP: _await_stop,
    Move.AWAIT_DOUBT: _await_doubt,
    Move.AWAIT_HOST: _await_host,
    Move.AWAIT_START: _await_start,
    Move.AWAIT_JOIN: _await_join,
    Move.AWAIT_RETURN: _await_return,
}
"""The moves that `turn` makes itself. All other moves are made by the run."""
