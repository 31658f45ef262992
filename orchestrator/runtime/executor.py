"""Performs actions, hosts in parallel, and turns each result into an event."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

from orchestrator.model.action import Action, ActionResult, Done, HostAction, InDoubt, Refused, TuneHost
from orchestrator.model.event import ActionConfirmed, ActionFailed
from orchestrator.ports import ClusterPort, HostPort


class VerbDefect(Exception):  # noqa: N818  (names an event; the loop raises its cause instead)
    """A port raised while it performed an action; `__cause__` is the error.

    Attributes:
        outcomes: of all actions. That of the action whose port raised is in doubt.
    """

    def __init__(self, outcomes: tuple[ActionConfirmed | ActionFailed, ...]) -> None:
        super().__init__("a port raised")
        self.outcomes = outcomes


class Executor:
    """Performs the decided actions.

    Args:
        workers: maximum of hosts in parallel; 1 performs actions one after the other, in order (simulations).
    """

    def __init__(self, cluster: ClusterPort, hosts: HostPort, *, workers: int = 16) -> None:
        self._cluster, self._hosts, self._workers = cluster, hosts, workers

    def perform(self, actions: Sequence[Action]) -> tuple[ActionConfirmed | ActionFailed, ...]:
        """Perform all actions. Returns the outcomes in the same order.

        Raises:
            VerbDefect: a port raised; all other actions were performed.
        """
        lanes = _lanes(actions)
        raised: list[Exception] = []

        def one(number: int) -> ActionResult:
            try:
                return self._one(actions[number])
            except Exception as defect:  # noqa: BLE001  (raised below, once the others have their outcomes)
                raised.append(defect)
                return InDoubt(reason=f"a defect of the program: {type(defect).__name__}: {defect}")

        if len(lanes) == 1 or self._workers == 1:
            results = {number: one(number) for number in range(len(actions))}
        else:
            with ThreadPoolExecutor(max_workers=min(self._workers, len(lanes))) as pool:
                done = pool.map(lambda lane: [one(number) for number in lane], lanes)
                results = {
                    number: result
                    for lane, of_lane in zip(lanes, done, strict=True)
                    for number, result in zip(lane, of_lane, strict=True)
                }
        outcomes = tuple(outcome(action, results[number]) for number, action in enumerate(actions))
        if raised:
            raise VerbDefect(outcomes) from raised[0]
        return outcomes

    def describe(self, action: Action) -> str:
        """The exact call or command line."""
        if isinstance(action, HostAction):
            return self._hosts.describe(action)
        return self._cluster.describe(action)

    def _one(self, action: Action) -> ActionResult:
        if isinstance(action, HostAction):
            return self._hosts.perform(action)
        return self._cluster.perform(action)


def _lanes(actions: Sequence[Action]) -> Sequence[Sequence[int]]:
    """Indices of actions, grouped into lanes that run one action after the other.

    Tuning on a host keeps its order: a change of tuned's profile resets values, so it comes first.
    """
    lanes: dict[object, list[int]] = {}
    for number, action in enumerate(actions):
        lane = ("tune", action.node) if isinstance(action, TuneHost) else number
        lanes.setdefault(lane, []).append(number)
    return tuple(lanes.values())


def outcome(action: Action, result: ActionResult) -> ActionConfirmed | ActionFailed:
    """The event that records a result."""
    match result:
        case Done(output=output):
            return ActionConfirmed(action=action, output=output)
        case Refused(reason=reason, passes=passes, refusal=refusal):
            return ActionFailed(action=action, reason=reason, in_doubt=False, passes=passes, refusal=refusal)
        case InDoubt(reason=reason):
            return ActionFailed(action=action, reason=reason, in_doubt=True)
        case _:
            assert_never(result)
