"""Performs actions, hosts in parallel, and turns each result into an event."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

from orchestrator.model.action import (
    Action,
    ActionResult,
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Flush,
    InDoubt,
    ProbeSettings,
    RebootHost,
    Refused,
    RetryFailed,
    RunHook,
    SetReplicas,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.event import ActionConfirmed, ActionFailed
from orchestrator.ports import ClusterPort, HostPort


class Executor:
    """Does what was decided.

    Args:
        workers: hosts worked on at once; 1 does one after the other, in order (simulations).
    """

    def __init__(self, cluster: ClusterPort, hosts: HostPort, *, workers: int = 16) -> None:
        self._cluster, self._hosts, self._workers = cluster, hosts, workers

    def perform(self, actions: Sequence[Action]) -> tuple[ActionConfirmed | ActionFailed, ...]:
        """Perform all of them; the outcomes are in the order of the actions."""
        if len(actions) == 1 or self._workers == 1:
            results = [self._one(action) for action in actions]
        else:
            with ThreadPoolExecutor(max_workers=min(self._workers, len(actions))) as pool:
                results = list(pool.map(self._one, actions))
        return tuple(outcome(action, result) for action, result in zip(actions, results, strict=True))

    def describe(self, action: Action) -> str:
        """The exact call or command line."""
        match action:
            case StopNode() | StartNode() | RebootHost() | RunHook():
                return self._hosts.describe(action)
            case _:
                return self._cluster.describe(action)

    def _one(self, action: Action) -> ActionResult:
        match action:
            case StopNode() | StartNode() | RebootHost() | RunHook():
                return self._hosts.perform(action)
            case (
                ProbeSettings()
                | WriteSettings()
                | Flush()
                | RetryFailed()
                | SetReplicas()
                | ExcludeFromVoting()
                | ClearVotingExclusions()
            ):
                return self._cluster.perform(action)
            case _:
                assert_never(action)


def outcome(action: Action, result: ActionResult) -> ActionConfirmed | ActionFailed:
    """The event that records a result."""
    match result:
        case Done(output=output):
            return ActionConfirmed(action=action, output=output)
        case Refused(reason=reason):
            return ActionFailed(action=action, reason=reason, in_doubt=False)
        case InDoubt(reason=reason):
            return ActionFailed(action=action, reason=reason, in_doubt=True)
        case _:
            assert_never(result)
