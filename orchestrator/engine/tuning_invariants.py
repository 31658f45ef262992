"""Invariants of tuning; independent of `tuning`, as all invariants are of the code that they check."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.engine.invariant import Invariant, Step
from orchestrator.model.action import TuneHost
from orchestrator.model.event import PhaseEntered
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.tuning import BOOT
from orchestrator.model.tuning_event import TuningApplied, TuningMissed
from orchestrator.model.turn import Goal


def _hosts_are_tuned_under_stopped_nodes(step: Step) -> Iterator[str]:
    state, action = step.before, step.sent
    if not isinstance(action, TuneHost):
        return
    node = state.nodes.get(action.node)
    of_wave = state.wave is not None and action.node in state.wave.nodes
    if node is None or not of_wave or state.phase is not Phase.DOWN or node.phase is not NodePhase.STOPPED:
        phase = node.phase.value if node else "not of the run"
        yield f"the host of {action.node} ({phase}) is tuned in {state.phase.value}"
    elif node.goal is Goal.BRING_UP:
        yield f"{action.node} is tuned, and it is to be brought up at once"


def _only_what_is_wanted_is_tuned(step: Step) -> Iterator[str]:
    action, policy = step.sent, step.before.begun.policy
    if not isinstance(action, TuneHost):
        return
    wanted = {setting.tunable for setting in policy.tune.settings} if policy.tune else set()
    if policy.tune and policy.tune.persist:
        wanted.add(BOOT)
    if action.tunable not in wanted:
        yield f"{action.tunable} of {action.node} is set, and no profile asks for it"
    if not action.changes:
        yield f"{action.tunable} of {action.node} is set, and nothing says what was found"


def _tuning_is_told_of_once(step: Step) -> Iterator[str]:
    """Every tuning change that was sent for a node has an event with its outcome before the node's start."""
    event, state = step.record.event, step.before
    if isinstance(event, TuningApplied):
        sent = [action for action in state.in_phase.confirmed if isinstance(action, TuneHost)]
        if not any(one.node == event.node and one.tunable == event.tunable for one in sent):
            yield f"{event.tunable} of {event.node} is said to be set, and was not"
    if isinstance(event, TuningMissed) and event.node not in state.nodes:
        yield f"{event.node} is none of the run's"
    if isinstance(event, PhaseEntered) and event.to == NodePhase.STARTING.value and event.node is not None:
        flying = (action for action in state.process.in_flight if isinstance(action, TuneHost))
        unended = [action.tunable for action in flying if action.node == event.node]
        if unended:
            yield f"{event.node} continues while {', '.join(unended)} is under way"


TUNING_INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        name="hosts_are_tuned_under_stopped_nodes",
        why="What is changed counts from a process's first page on, and a rescue has no time for it.",
        check=_hosts_are_tuned_under_stopped_nodes,
        at=("action_sent",),
    ),
    Invariant(
        name="only_what_is_wanted_is_tuned",
        why="A change that was not asked for, or has no record of the original value, cannot be undone.",
        check=_only_what_is_wanted_is_tuned,
        at=("action_sent",),
    ),
    Invariant(
        name="tuning_is_told_as_it_was",
        why="A value that is reported as set is not checked again.",
        check=_tuning_is_told_of_once,
        at=("tuning_applied", "tuning_missed", "phase_entered"),
    ),
)
