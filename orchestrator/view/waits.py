"""A run's current wait in words, and how often it gets a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, assert_never

from orchestrator.engine.limits import nearest
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Hold
from orchestrator.model.gate_event import GATES_OPEN
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant, Seconds
from orchestrator.view.units import counted, duration, listed

SIGN_OF_LIFE: Seconds = 30.0
"""Minimum interval between two lines of an unchanged wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait as the views show it.

    Attributes:
        awaited: the condition that the run waits for.
        holds: why the run does not continue.
        since: start of the wait.
        until: when the limit is reached and the run stands down; None without a limit.
    """

    awaited: str
    holds: tuple[Hold, ...]
    since: Instant
    until: Instant | None


def wait_of(state: RunState, decision: Decision | None, now: Instant) -> Wait | None:
    """The wait at `now`, by this state and the decision made on it; None if the run waits for nothing.

    Without a decision, as when only the journal is available, the phase shows the wait.
    """
    holds = decision.holds if decision is not None else state.in_phase.holds
    if state.phase is Phase.ENDED:
        return None
    if decision is not None and decision.watch is None and not holds:
        return None
    said = decision.watch.for_people if decision is not None and decision.watch is not None else ""
    since = _holding_since(state) if holds else state.in_phase.since
    limit = nearest(state, now)
    until = None if limit is None else limit.until
    return Wait(awaited=said or awaited(state), holds=holds, since=since, until=until)


def _holding_since(state: RunState) -> Instant:
    """The start of the current hold by predicates or gates; without one, the start of the phase."""
    here = state.in_phase
    known = [at for at in (here.holding_since, here.gates_closed_since) if at is not None]
    return min(known, default=here.since)


def awaited(state: RunState) -> str:
    """The condition that ends the phase, in words; Riak has some of its own."""
    return _of_riak(state) or _awaited(state)


def _of_riak(state: RunState) -> str | None:
    of_riak = state.begun.policy.kind is Kind.RIAK
    return _OF_RIAK.get(state.phase) if of_riak else None


def _awaited(state: RunState) -> str:
    names = listed([node.name for node in state.wave_nodes]) or "the wave"
    holds = state.in_phase.holds
    match state.phase:
        case Phase.PREPARING:
            return "the first readings, the lease and the baseline"
        case Phase.MERGING:
            return _merging(state)
        case Phase.MERGED:
            return "the copies to settle after the merges"
        case Phase.GATED if holds and all(hold.predicate == GATES_OPEN for hold in holds):
            gates = listed([hold.subject for hold in holds], 3)
            return f"{'gate' if len(holds) == 1 else 'gates'} {gates} to open"
        case Phase.GATED:
            return f"every predicate to allow the stop of {names}"
        case Phase.WITHHELD:
            return f"the last reading before the stop of {names}"
        case Phase.DOWN:
            return _down(state) or f"{names} to be started"
        case Phase.REJOINED:
            return f"{names} to be back in the cluster, on several readings"
        case Phase.REASSIGNED:
            return "the copies to be as they were before the run"
        case Phase.SETTLED:
            return "the next wave"
        case Phase.FINISHING:
            return "the settings to be restored"
        case Phase.STANDING_DOWN:
            return "our nodes to be started and the settings to be restored"
        case Phase.ENDED:
            return "nothing"
        case _:
            assert_never(state.phase)


_OF_RIAK: Final = {
    Phase.REASSIGNED: "handoff to be done: nothing that waits, nothing that moves, every partition running",
    Phase.FINISHING: "the transfer limits to be restored",
    Phase.STANDING_DOWN: "our nodes to be started and the transfer limits to be restored",
}
"""Phases that wait for copies and settings on other kinds of cluster."""


def _merging(state: RunState) -> str:
    """Indices whose merge is in progress, and the number of indices still to merge."""
    names = [one.target.index for one in state.merging.in_hand]
    to_come = len(state.merging.pending)
    if not names:
        return f"{counted(to_come, 'index', 'indices')} to be free for a merge" if to_come else "the merges"
    rest = f"; {to_come} to come" if to_come else ""
    return f"the merge of {listed(names, 3)}{rest}"


def still_recovering(state: RunState, now: Instant) -> str:
    """Unfinished waves that made room for another (`overlap_recovery`); empty if there are none."""
    return listed(
        [
            f"wave {one.wave.number} ({listed(one.wave.nodes, 3)}) still recovers, "
            f"{duration(max(0.0, now - one.since))} so far"
            for one in state.recovering
        ],
        2,
    )


def _down(state: RunState) -> str:
    """Nodes of the wave by the current step."""
    by_phase: dict[NodePhase, list[str]] = {}
    for node in state.wave_nodes:
        by_phase.setdefault(node.phase, []).append(node.name)
    doing = {
        NodePhase.STOPPING: "to stop",
        NodePhase.STOPPED: "to be worked on while down",
        NodePhase.STARTING: "to come up",
    }
    return "; ".join(
        f"{listed(by_phase[phase])} {what}" for phase, what in doing.items() if phase in by_phase
    )


class Pace:
    """Decides when a wait gets a line: when its kind changes, else as a sign of life.

    Different numbers are the same wait: "28 of 30 nodes" after "27 of 30".

    Args:
        every: seconds between two signs of life.
    """

    def __init__(self, every: Seconds = SIGN_OF_LIFE) -> None:
        self._every = every
        self._shown: tuple[object, ...] | None = None
        self._at: Instant = 0.0

    def due(self, state: RunState, wait: Wait, now: Instant) -> bool:
        """Whether to show the wait now; if so, it counts as shown."""
        shown = (
            state.phase,
            state.wave.number if state.wave else 0,
            re.sub(r"\d+", "#", wait.awaited),
            tuple(hold.predicate for hold in wait.holds),
        )
        if shown == self._shown and now - self._at < self._every:
            return False
        self._shown, self._at = shown, now
        return True

    def reset(self, now: Instant) -> None:
        """Record that other output was just shown, which is a sign of life too."""
        self._at = now


def _more(hold: Hold) -> str:
    return f" and {hold.count - 1} more" if hold.count > 1 else ""


def holds_in_words(holds: tuple[Hold, ...]) -> str:
    """`2 holds: a (x), b (y)`, names only."""
    names = ", ".join(f"{hold.predicate} ({hold.subject}{_more(hold)})" for hold in holds[:3])
    more = f" and {len(holds) - 3} more" if len(holds) > 3 else ""  # noqa: PLR2004  (three are shown above)
    return f"{counted(len(holds), 'hold')}: {names}{more}"
