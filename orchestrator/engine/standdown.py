"""Standing down: everything as it was found, from every phase, whatever has failed.

The order: (1) one more start of every node of ours that is down; (2) wait for a master; (3) allocation back;
(4) other settings and exclusions; (5) hooks owed to nodes whose `before_stop` ran. The lease goes last, with
the run. A node that stays down is FAILED and does not delay what comes after it.
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.decision import Decision
from orchestrator.engine.down import awaited_members
from orchestrator.engine.recovered import at_once, depooled, hooks_owed
from orchestrator.engine.settle import owed, restore_all
from orchestrator.engine.state import NodeProgress, RunState
from orchestrator.engine.steps import (
    GRACE_SECONDS,
    LOOK_AGAIN,
    RETRY_SECONDS,
    Situation,
    act,
    note,
    wait,
)
from orchestrator.errors import ExitCode
from orchestrator.model.action import Purpose, RunHook, StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, RunFinished, StoodDown, node_phase, run_phase
from orchestrator.model.observation import ServiceState
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Unknown
from orchestrator.model.watch import MasterElected

_STARTS: Final = 4
"""Starts of a node in one wave, those before the stand-down included."""

_EXIT: Final = {
    Outcome.DONE: ExitCode.DONE,
    Outcome.RESTORED: ExitCode.DONE,
    Outcome.HELD: ExitCode.HELD,
    Outcome.FAILED: ExitCode.FAILED,
    Outcome.INTERRUPTED: ExitCode.INTERRUPTED,
    Outcome.PAUSED: ExitCode.PAUSED,
    Outcome.NOT_RESTORED: ExitCode.NOT_RESTORED,
    Outcome.DEPOSED: ExitCode.LEASED,
}


def standing_down(situation: Situation) -> Decision:
    """The next step of putting everything back."""
    state, policy, now = situation.state, situation.policy, situation.now
    if not situation.fresh:
        return LOOK_AGAIN
    events, starts = _nodes(situation)
    if events or starts:
        return act(*starts, events=events)
    on_their_way = [n.name for n in state.in_hand if n.phase is NodePhase.STARTING]
    overdue = _overdue(situation)
    awaited = _awaited(situation)
    if awaited and state.second_failure is None and not overdue:
        # Back before allocation is: copies that return need not be rebuilt elsewhere.
        names = ", ".join(awaited)
        return wait(
            now, f"{names} to be back", seconds=1.0, services=awaited, cluster=awaited_members(situation)
        )
    late = now - _restoring_since(situation) > policy.deadlines.rejoin
    if situation.view is None and _owes(state):
        if late:
            return _end(situation)
        whom = "a node that answers" if policy.kind is Kind.RIAK else "a master"
        return wait(now, whom, seconds=1.0, cluster=MasterElected())
    restoring = restore_all(situation)
    if restoring is not None and (restoring.at_once or not late):
        return restoring
    if on_their_way and restoring is None and not overdue:
        return wait(now, f"{', '.join(on_their_way)} to be back", seconds=1.0, services=on_their_way)
    hooks = at_once(hooks_owed(situation, [n for n in state.nodes.values() if depooled(n)]))
    if hooks:
        return act(*hooks)
    return _end(situation)


def _nodes(situation: Situation) -> tuple[list[Event], list[StartNode]]:
    """One more start of every node of ours that may be down; steps of those whose fate is known."""
    events: list[Event] = [
        node_phase(node.name, node.phase, NodePhase.STOPPING, why="its stop was done late")
        for node in situation.state.nodes.values()
        if situation.gone_late(node)
    ]
    starts: list[StartNode] = []
    for node in situation.state.in_hand:
        if situation.reborn(node) and not situation.stop_in_doubt(node):
            if node.phase is not NodePhase.REJOINED:
                events += _back(node, reboot_due=situation.reboot_due(node))
        elif node.phase is NodePhase.STARTING:
            events += _starting(situation, node, starts)
        elif node.phase is NodePhase.FAILED:
            continue
        elif node.phase is not NodePhase.REJOINED or situation.view is not None:
            events.append(node_phase(node.name, node.phase, NodePhase.STARTING, why="standing down"))
            starts.append(StartNode(node=node.name))
    return events, starts


def _back(node: NodeProgress, *, reboot_due: bool) -> list[Event]:
    """Back in another life; if its host was to be rebooted and was not, its turn comes again."""
    back = NodePhase.PENDING if reboot_due else NodePhase.REJOINED
    if node.phase in (NodePhase.STARTING, NodePhase.STOPPING):
        return [node_phase(node.name, node.phase, back)]
    return [
        node_phase(node.name, node.phase, NodePhase.STARTING, why="came up by itself"),
        node_phase(node.name, NodePhase.STARTING, back),
    ]


def _starting(situation: Situation, node: NodeProgress, starts: list[StartNode]) -> list[Event]:
    state, now = situation.state, situation.now
    host = situation.seen.host(node.name)
    said = host.reason if isinstance(host, Unknown) else host.detail
    here_since = max(node.since, state.phase_since)
    running = not isinstance(host, Unknown) and host.service is ServiceState.RUNNING
    gone = not isinstance(host, Unknown) and host.service in (ServiceState.STOPPED, ServiceState.FAILED)
    if running and situation.never_stopped(node):
        return [node_phase(node.name, node.phase, NodePhase.PENDING, why="its stop never happened")]
    if node.asked_at < state.phase_since and not running:
        # The one more start: whatever was sent before the stand-down does not count.
        starts.append(StartNode(node=node.name))
        return []
    deadlines = situation.policy.deadlines
    limit = deadlines.reboot if node.rebooted and not node.rescued else deadlines.start
    if now - here_since > limit:
        return [
            node_phase(node.name, node.phase, NodePhase.FAILED, why=f"not back within {limit:.0f} s: {said}")
        ]
    if node.asked and gone and now - node.asked_at > GRACE_SECONDS:
        stopped = not isinstance(host, Unknown) and host.service is ServiceState.STOPPED
        if stopped and node.starts < _STARTS:
            # A stop in doubt was done only after the start had found the service still running.
            starts.append(StartNode(node=node.name))
            return []
        return [node_phase(node.name, node.phase, NodePhase.FAILED, why=f"failed to start: {said}")]
    if not node.asked and not running and now - node.asked_at > RETRY_SECONDS:
        starts.append(StartNode(node=node.name))
    return []


def _awaited(situation: Situation) -> list[NodeName]:
    """Nodes on their way for which allocation waits: those that are back wait for none that had its time."""
    nodes = situation.state.in_hand
    back = any(node.phase is NodePhase.REJOINED for node in nodes)
    passed_over = situation.state.overdue if back else frozenset()
    return [n.name for n in nodes if n.phase is NodePhase.STARTING and n.name not in passed_over]


def _overdue(situation: Situation) -> bool:
    """Allocation was withheld for its whole time: it goes back now, whoever is still on the way."""
    state = situation.state
    since = state.withheld_since
    return since is not None and situation.now - since > situation.policy.deadlines.withheld


def _restoring_since(situation: Situation) -> float:
    """From when the limit of putting things back counts: when the last node's fate was known."""
    return max([situation.state.phase_since, *(n.since for n in situation.state.nodes.values())])


def _end(situation: Situation) -> Decision:
    state, now = situation.state, situation.now
    left = _left(situation)
    failed = [node for node in state.nodes.values() if node.phase is NodePhase.FAILED]
    wanted = state.stand_down_outcome or Outcome.RESTORED
    outcome = wanted
    if left:
        outcome = Outcome.NOT_RESTORED
    elif failed:
        outcome = Outcome.FAILED
    hooks = [
        f"hook {f.action.moment.value} on {f.action.node}: {f.reason}"
        for f in state.failed
        if isinstance(f.action, RunHook)
    ]
    if hooks and outcome is not Outcome.NOT_RESTORED:
        outcome = Outcome.FAILED
    reason = state.stand_down_reason or ""
    # The reason of a stand-down is often the failure of the very node: said once.
    unsaid = [node for node in failed if not (node.name in reason and (node.failure or "") in reason)]
    also = [f"{node.name}: {node.failure}" for node in unsaid]
    message = "; ".join(text for text in (reason, *also, *hooks) if text)
    return note(
        StoodDown(outcome=outcome, left=left),
        run_phase(state.phase, Phase.ENDED),
        RunFinished(
            outcome=outcome, exit_code=int(_EXIT[outcome]), seconds=now - state.started, message=message
        ),
    )


def _owes(state: RunState) -> bool:
    return bool(state.debts or state.replicas or state.excluded or state.in_hand)


def _left(situation: Situation) -> tuple[str, ...]:
    """What is not put back, in words that a person can act on."""
    state = situation.state
    debts = [*owed(state, Purpose.REASSIGN), *owed(state, Purpose.PUT_BACK)]
    settings = [f"{d.key} ({d.level.value}) = {d.wanted}, found {d.found}" for d in debts]
    exclusions = [f"voting exclusion of {name}" for name in sorted(state.excluded)]
    replicas = [f"replicas of {r.index} = {r.wanted}, found {r.found}" for r in state.replicas.values()]
    nodes = [f"node {n.name} is {n.phase.value}" for n in state.in_hand if n.phase is NodePhase.STARTING]
    return (*settings, *exclusions, *replicas, *nodes)


def exit_code_of(outcome: Outcome) -> ExitCode:
    """The exit code of an outcome."""
    return _EXIT[outcome]
