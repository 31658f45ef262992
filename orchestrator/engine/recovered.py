"""What is owed to nodes that are back with their copies: `after_recovery` hooks, and their figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.engine.state import NodeProgress
from orchestrator.engine.steps import Situation
from orchestrator.model.action import Moment, RunHook
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, NodeRecovered, node_phase
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase
from orchestrator.model.reading import Unknown


def hooks_owed(situation: Situation, nodes: Iterable[NodeProgress]) -> Iterator[RunHook]:
    """`after_recovery` hooks of nodes that are to have them, which have neither run nor failed here."""
    for node in nodes:
        for number, hook in enumerate(situation.policy.hooks.after_recovery):
            action = RunHook(node=node.name, moment=Moment.AFTER_RECOVERY, number=number, hook=hook)
            if (action.moment.value, number) not in node.hooks_done and not situation.state.failure_of(
                action
            ):
                yield action


def at_once(hooks: Iterable[RunHook]) -> tuple[RunHook, ...]:
    """The next hook of each node, hosts in parallel; hooks that run on this machine go one by one."""
    first: dict[NodeName, RunHook] = {}
    for hook in hooks:
        first.setdefault(hook.node, hook)
    on_hosts = tuple(hook for hook in first.values() if not hook.hook.local)
    return on_hosts or tuple(first.values())[:1]


def depooled(node: NodeProgress) -> bool:
    """Its `before_stop` ran, or may have, and it is not down: what took it out of service is to be undone."""
    ran = node.hook_doubted or any(moment == Moment.BEFORE_STOP.value for moment, _ in node.hooks_done)
    return ran and node.phase is not NodePhase.FAILED


def with_their_copies(situation: Situation, nodes: Iterable[NodeProgress]) -> Iterator[Event]:
    """Each node's figures, and its last step."""
    for node in nodes:
        yield _figures(situation, node)
        yield node_phase(node.name, node.phase, NodePhase.RECOVERED)


def _figures(situation: Situation, node: NodeProgress) -> NodeRecovered:
    read = situation.seen.recoveries
    seconds = situation.now - (node.stopped_at if node.stopped_at is not None else node.since)
    if isinstance(read, Unknown):
        return NodeRecovered(node=node.name, seconds=seconds)
    here: list[Recovery] = [recovery for recovery in read if recovery.target == node.name]
    return NodeRecovered(
        node=node.name,
        seconds=seconds,
        bytes_reused=sum(recovery.bytes_reused for recovery in here),
        bytes_copied=sum(recovery.bytes_copied for recovery in here),
        operations_replayed=sum(recovery.operations_replayed for recovery in here),
    )
