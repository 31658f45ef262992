"""While nodes are down by us: stopped, tuned, started, back. The only way on is start."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.engine.decision import Decision
from orchestrator.engine.move import WAIT, Move
from orchestrator.engine.state import NodeProgress
from orchestrator.engine.steps import (
    GRACE_SECONDS,
    LOOK_AGAIN,
    QUICK_SECONDS,
    RETRY_SECONDS,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
from orchestrator.engine.tuning import missed, tuned
from orchestrator.model.action import Moment, RebootHost, RunHook, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, GoodReading, Rescued, node_phase, run_phase
from orchestrator.model.observation import ServiceState
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Unknown
from orchestrator.model.watch import ClusterWatch, NodesJoined

_GONE = (ServiceState.STOPPED, ServiceState.FAILED)
"""The process is gone: a unit whose exit status is not listed as a success is "failed" after a clean stop."""

_START_TRIES = 2
"""A refused start is tried once more; a service that failed is left to the stand-down's one start."""

_STOPS_FOR_A_REBOOT = 3
"""Something that always starts the service again would have us stop it for ever."""


def down(situation: Situation) -> Decision:
    """Bring every node of the wave through stop, hooks, tuning and start, each at its own pace."""
    state = situation.state
    if not situation.fresh:
        return LOOK_AGAIN
    rescue = _rescue(situation)
    if rescue is not None:
        return rescue
    moves = {node.name: _move(situation, node) for node in state.wave_nodes}
    reasons = [move.give_up for move in moves.values() if move.give_up]
    events = tuple(event for move in moves.values() for event in move.events)
    if reasons:
        # What the others were about to do is left out: standing down starts every one of them that is down.
        overdue = [name for name, move in moves.items() if move.overdue]
        return stand_down(state, "; ".join(reasons), Outcome.FAILED, *events, overdue=overdue)
    actions = tuple(action for move in moves.values() for action in move.actions)
    if events or actions:
        return act(*actions, events=events)
    touched = [node for node in state.wave_nodes if node.phase is not NodePhase.PENDING]
    if not touched:
        why = "the stop certainly did not happen: through the gates again"
        return note(run_phase(state.phase, Phase.WITHHELD, why=why))
    if all(_started(situation, node) for node in touched):
        return note(run_phase(state.phase, Phase.REJOINED))
    return _listen(situation, touched)


def _listen(situation: Situation, nodes: list[NodeProgress]) -> Decision:
    phases = sorted({f"{node.name} {node.phase.value}" for node in nodes})
    starting = any(node.phase is NodePhase.STARTING for node in nodes)
    return wait(
        situation.now,
        f"services: {', '.join(phases)}",
        services=[node.name for node in nodes],
        cluster=awaited_members(situation) if starting else None,
    )


def awaited_members(situation: Situation) -> ClusterWatch | None:
    """Listen for the nodes to join, while some are away: with all present the long poll would not wait."""
    if situation.view is None or situation.state.baseline is None:
        return None
    expected = len(set(situation.state.baseline.incarnations) | {n.name for n in situation.view.nodes})
    return NodesJoined(count=expected) if len(situation.view.nodes) < expected else None


def _rescue(situation: Situation) -> Decision | None:
    """Shards left without a started copy that nobody accepted: start at once, without hooks and tuning.

    No check can close the race between the last reading and the stop: a new index may put its only primary
    on the node in that moment.
    """
    state = situation.state
    if situation.view is None or any(node.rescued for node in state.wave_nodes):
        return None
    red = situation.kind.red(state, situation.view)
    if not red:
        return None
    events: list[Event] = [Rescued(shards=tuple(str(shard) for shard in red))]
    starts: list[StartNode] = []
    for node in state.wave_nodes:
        if node.phase in (NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.TUNED):
            why = f"rescue: {red[0]} has no started copy"
            events += missed(situation, node, "rescued: its shards could not wait")
            events.append(node_phase(node.name, node.phase, NodePhase.STARTING, why=why))
            starts.append(StartNode(node=node.name))
    return act(*starts, events=events)


def _move(situation: Situation, node: NodeProgress) -> Move:
    match node.phase:
        case NodePhase.PENDING if situation.gone_late(node):
            why = "its stop was done late"
            return Move(events=(node_phase(node.name, node.phase, NodePhase.STOPPING, why=why),))
        case NodePhase.STOPPING:
            return _stopping(situation, node)
        case NodePhase.STOPPED:
            return _stopped(situation, node)
        case NodePhase.TUNED:
            return _tuned(situation, node)
        case NodePhase.STARTING:
            return starting(situation, node)
        case _:
            return WAIT


def _stopping(situation: Situation, node: NodeProgress) -> Move:
    name, host, now = node.name, situation.seen.host(node.name), situation.now
    if situation.reborn(node):
        if situation.stop_in_doubt(node):
            return WAIT  # the stop may still be done, and would take the new life down unseen
        why = "came up before we started it"
        untuned = missed(situation, node, why)
        return Move(events=(*untuned, node_phase(name, node.phase, NodePhase.STARTING, why=why)))
    if not isinstance(host, Unknown) and host.service in _GONE:
        stopped = node_phase(name, node.phase, NodePhase.STOPPED, why=host.detail)
        if situation.policy.hooks.while_stopped or situation.policy.tune:
            return Move(events=(stopped,))
        return _onwards(situation, node, stopped)
    failure = situation.state.failure_of(StopNode(node=name))
    if failure and not failure.in_doubt:
        back = node_phase(name, node.phase, NodePhase.PENDING, why=failure.reason)
        return Move(events=(back,), give_up=f"{name} could not be stopped: {failure.reason}")
    running = not isinstance(host, Unknown) and host.service is ServiceState.RUNNING
    if not node.asked and running and situation.never_stopped(node):
        return Move(events=(node_phase(name, node.phase, NodePhase.PENDING, why="still in the same life"),))
    if now - node.since > situation.policy.deadlines.stop:
        limit = f"{situation.policy.deadlines.stop:.0f} s"
        said = host.reason if isinstance(host, Unknown) else host.detail
        reason = f"{name} did not stop within {limit} ({said}): a start is queued behind its stop"
        return Move(give_up=reason, overdue=True)
    return WAIT


def _stopped(situation: Situation, node: NodeProgress) -> Move:
    """Hooks, then the place of tuning: the process is down, so what is changed counts from its first page."""
    if situation.reborn(node):
        why = "came up before we started it"
        untuned = missed(situation, node, why)
        return Move(events=(*untuned, node_phase(node.name, node.phase, NodePhase.STARTING, why=why)))
    for number, hook in enumerate(situation.policy.hooks.while_stopped):
        if (Moment.WHILE_STOPPED.value, number) in node.hooks_done:
            continue
        action = RunHook(node=node.name, moment=Moment.WHILE_STOPPED, number=number, hook=hook)
        failure = situation.state.failure_of(action)
        if failure:
            return Move(give_up=f"hook while_stopped on {node.name}: {failure.reason}")
        return Move(actions=(action,))
    return _onwards(situation, node)


def _onwards(situation: Situation, node: NodeProgress, *steps: Event) -> Move:
    """From STOPPED past tuning to the start, in one decision where there is nothing to tune.

    No gate bars a start, so a reading between these steps would only keep the node down for longer.
    """
    tuning, over = tuned(situation, node)
    if not over:
        return tuning
    past = node_phase(node.name, NodePhase.STOPPED, NodePhase.TUNED)
    on = _tuned(situation, node)
    return Move(events=(*steps, *tuning.events, past, *on.events), actions=on.actions)


def _tuned(situation: Situation, node: NodeProgress) -> Move:
    """On to the start. A machine with several nodes is rebooted once, when all of them are down."""
    step = node_phase(node.name, NodePhase.TUNED, NodePhase.STARTING)
    if not situation.to_reboot(node) or node.rebooted:
        return Move(events=(step,), actions=(StartNode(node=node.name),))
    machine = situation.machine(node)
    if len(machine) > 1 and any(one.phase is not NodePhase.TUNED for one in machine):
        return WAIT  # each of the others still has its stop to end, or its hooks
    return Move(events=(step,), actions=_once(node, machine))


def _reboot_of(machine: tuple[NodeProgress, ...]) -> RebootHost:
    first, *others = machine
    return RebootHost(node=first.name, also=tuple(other.name for other in others))


def _once(node: NodeProgress, machine: tuple[NodeProgress, ...]) -> tuple[RebootHost, ...]:
    """The reboot of a machine, sent for the first of its nodes."""
    return (_reboot_of(machine),) if node is machine[0] else ()


def starting(situation: Situation, node: NodeProgress) -> Move:
    """Asked to start, at most a few times; gives up when the service fails or the time is out."""
    name, host, now = node.name, situation.seen.host(node.name), situation.now
    if _started(situation, node):
        return WAIT
    refused = situation.state.failure_of(_reboot_of(situation.machine(node)))
    if refused and not refused.in_doubt:
        return Move(give_up=f"the host of {name} could not be rebooted: {refused.reason}")
    running = not isinstance(host, Unknown) and host.service is ServiceState.RUNNING
    if (node.rescued or not node.starts) and running and situation.never_stopped(node):
        why = "its stop was never done: still in the same life"
        return Move(events=(node_phase(name, node.phase, NodePhase.PENDING, why=why),))
    if situation.to_reboot(node) and not situation.rebooted(node):
        return _rebooting(situation, node)
    limit = situation.policy.deadlines.start
    gone = not isinstance(host, Unknown) and host.service in _GONE
    said = host.reason if isinstance(host, Unknown) else host.detail
    failure = situation.state.failure_of(StartNode(node=name))
    if now - node.since > limit:
        return Move(give_up=f"{name} did not start within {limit:.0f} s: {said}", overdue=True)
    if node.asked:
        if gone and now - node.asked_at > GRACE_SECONDS:
            return Move(give_up=f"{name} failed to start: {said}")
        return WAIT
    if failure and not failure.in_doubt and node.starts >= _START_TRIES:
        return Move(give_up=f"{name} could not be started: {failure.reason}")
    if (gone or isinstance(host, Unknown)) and now - node.asked_at > RETRY_SECONDS:
        return Move(actions=(StartNode(node=name),))
    return WAIT


def _rebooting(situation: Situation, node: NodeProgress) -> Move:
    machine, limit = situation.machine(node), situation.policy.deadlines.reboot
    if situation.now - node.since > limit:
        reason = f"the host of {node.name} is not back with another boot id after {limit:.0f} s"
        return Move(give_up=reason, overdue=True)
    unasked = all(not one.rebooted or situation.reboot_lost(one) for one in machine)
    if unasked and all(_is_down(situation, one) for one in machine):
        return Move(actions=_once(node, machine))
    return WAIT  # in the life it had before, it is not down by us: a reboot would be a stop that no rule saw


def _is_down(situation: Situation, node: NodeProgress) -> bool:
    """Whether a node is seen to be gone from its host, or to be no member in the life it had before."""
    host = situation.seen.host(node.name)
    gone = not isinstance(host, Unknown) and host.service in _GONE
    return gone or (situation.view is not None and not situation.same_life(node))


def _started(situation: Situation, node: NodeProgress) -> bool:
    """Its service runs (or it is in the cluster already): from here on the cluster is watched."""
    if node.phase in (NodePhase.PENDING, NodePhase.FAILED):
        return True  # dropped from the wave, or given up
    if situation.reborn(node):
        # Not while its stop may still be done: another reading sees it out of STOPPING, or down.
        return node.phase is not NodePhase.STOPPING
    host = situation.seen.host(node.name)
    if node.phase is not NodePhase.STARTING or isinstance(host, Unknown):
        return node.phase is NodePhase.REJOINED
    if situation.to_reboot(node) and not situation.rebooted(node):
        return False
    return host.service is ServiceState.RUNNING and not situation.same_life(node)


def rejoined(situation: Situation) -> Decision:
    """Started; wait until the master lists every node in a new life, in several readings that agree."""
    state, policy, now = situation.state, situation.policy, situation.now
    if not situation.fresh:
        return LOOK_AGAIN
    nodes = [node for node in state.wave_nodes if node.phase is not NodePhase.PENDING]
    away = [node for node in nodes if not situation.reborn(node) or situation.stop_in_doubt(node)]
    lacking = _lacking(situation, nodes)
    settled = not isinstance(situation.seen.health, Unknown) and situation.seen.health.settled
    if away or lacking or not settled:
        return _not_back(situation, away, lacking)
    count = state.good_readings + 1
    if count < policy.settle_consecutive:
        progress = GoodReading(count=count)
        return wait(now, "readings that agree", seconds=QUICK_SECONDS, events=(progress,))
    back = [node for node in nodes if node.phase is NodePhase.STARTING]
    due = [node for node in back if situation.reboot_due(node)]
    steps = [
        node_phase(node.name, node.phase, NodePhase.PENDING, why="back, and its reboot still due")
        if node in due
        else node_phase(node.name, node.phase, NodePhase.REJOINED)
        for node in back
    ]
    restless = [node.name for node in due if node.stops >= _STOPS_FOR_A_REBOOT]
    if restless:
        reason = f"{restless[0]} came up before its host could be rebooted, {_STOPS_FOR_A_REBOOT} times"
        return stand_down(state, reason, Outcome.FAILED, *steps)
    return note(*steps, run_phase(state.phase, Phase.REASSIGNED))


def _lacking(situation: Situation, nodes: list[NodeProgress]) -> dict[NodeName, str]:
    """What nodes that are up lack to be counted as back, where the kind of cluster wants more of them."""
    view = situation.view
    if view is None:
        return {}
    # Those that were counted as back before a new process took the run up are asked nothing more here.
    asked = [node for node in nodes if node.phase is not NodePhase.REJOINED and situation.reborn(node)]
    said = {node.name: situation.kind.not_back(view, node.name) for node in asked}
    return {name: what for name, what in said.items() if what is not None}


def _not_back(situation: Situation, away: list[NodeProgress], lacking: Mapping[NodeName, str]) -> Decision:
    state, policy, now = situation.state, situation.policy, situation.now
    lack = [f"{name} ({what})" for name, what in lacking.items()]
    names = ", ".join([*(node.name for node in away), *lack]) or "a reading that is not stale"
    for node in away:
        host = situation.seen.host(node.name)
        if isinstance(host, Unknown) or host.service not in _GONE or now - node.asked_at < GRACE_SECONDS:
            continue
        again = not node.asked or node.doubt_since is not None
        if node.phase is NodePhase.STARTING and node.starts < _START_TRIES and again:
            return act(StartNode(node=node.name))
        return stand_down(state, f"{node.name} went down before it rejoined: {host.detail}", Outcome.FAILED)
    if now - state.phase_since > policy.deadlines.rejoin:
        reason = f"{names}: not back in the cluster within {policy.deadlines.rejoin:.0f} s"
        return stand_down(state, reason, Outcome.FAILED, overdue=[*(node.name for node in away), *lacking])
    broken = (GoodReading(count=0, why=f"{names} not back"),) if state.good_readings else ()
    return wait(
        now,
        f"{names} to rejoin",
        seconds=1.0,
        services=[node.name for node in away],
        cluster=awaited_members(situation),
        events=broken,
    )
