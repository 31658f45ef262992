"""Phrases that sentences and pages share: products, phases, waits, holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from orchestrator.engine.predicates import hold_by_name, hold_in_words
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.holds import GATES_OPEN
from orchestrator.kinds import kind_of
from orchestrator.model.action import Purpose
from orchestrator.model.encoding import fields_of
from orchestrator.model.event import Hold, RunStarted
from orchestrator.model.phase import NodePhase, Phase, Request, step_name
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Kind, Policy, Strategy
from orchestrator.model.prediction import Prediction
from orchestrator.names import PRODUCTS
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, duration, listed, nodes_of


def product(distribution: str, kind: Kind) -> str:
    """The server's official name; for an unknown server the kind in the cluster file."""
    return PRODUCTS.get(distribution, kind.value)


def work_of(policy: Policy) -> str:
    """What a run does to its nodes, with its article."""
    return "a restart" if policy.upgrade is None else f"an upgrade to {policy.upgrade.target}"


STRATEGIES: Final[Mapping[Strategy, str]] = {
    Strategy.NODE: "node by node",
    Strategy.ZONE: "zone by zone",
    Strategy.SHARD_SAFE: "set by set",
}
"""How the nodes of a run follow one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTitle:
    """What a run is, on the first line of a screen."""

    cluster: str
    server: str  # with its version
    work: str
    how: str = ""  # how its nodes follow one another; empty without any

    @classmethod
    def of(
        cls,
        begun: RunStarted | Plan,
        *,
        kind: Kind,
        strategy: Strategy,
        target: str | None,
        reboots: bool,
        restarts: bool,
        merges: int | None,
    ) -> RunTitle:
        """The title of a run or of its plan.

        Args:
            begun: it.
            kind: of its cluster.
            strategy: by which its nodes follow one another.
            target: the version of an upgrade.
            reboots: whether every host is rebooted.
            restarts: whether it restarts nodes.
            merges: how many indices are merged before; None if that is over, or no part of it.
        """
        restart = f"upgrade to {target}" if target else "reboot of every host" if reboots else "restart"
        merge = "" if merges is None else f"merge of {counted(merges, 'index', 'indices')}"
        return cls(
            cluster=begun.cluster,
            server=f"{product(begun.distribution, kind)} {begun.version}",
            work=", then ".join(filter(None, (merge, f"rolling {restart}" if restarts else ""))),
            how=STRATEGIES[strategy] if restarts else "",
        )

    @property
    def whole(self) -> str:
        """The work and how it is done: `rolling restart, node by node`."""
        return ", ".join(filter(None, (self.work, self.how)))


def _names(state: RunState) -> str:
    return listed([node.name for node in state.wave_nodes], 3) or "the wave"


def _gated(state: RunState) -> str:
    """The predicates that are not met, and the gates that are closed, if it is known which."""
    holds = state.in_phase.holds
    gates = [hold.subject for hold in holds if hold.predicate == GATES_OPEN]
    predicates = [hold.predicate for hold in holds if hold.predicate != GATES_OPEN]
    if gates and not predicates:
        return f"{'gate' if len(gates) == 1 else 'gates'} {listed(gates, 3)} to open"
    what = listed([*predicates, *(f"gate {gate}" for gate in gates)], 3)
    return (
        f"{what} to allow the stop of {_names(state)}"
        if what
        else f"the checks before the stop of {_names(state)}"
    )


def _merging(state: RunState) -> str:
    """Indices whose merge is in progress, and the number of indices still to merge."""
    names = [one.target.index for one in state.merging.in_progress]
    to_come = len(state.merging.pending)
    if not names:
        return f"{counted(to_come, 'index', 'indices')} to be free for a merge" if to_come else "the merges"
    rest = f"; {to_come} to come" if to_come else ""
    return f"the merge of {listed(names, 3)}{rest}"


def _down(state: RunState) -> str:
    """Nodes of the wave by the current step."""
    doing = {
        NodePhase.STOPPING: "to stop",
        NodePhase.STOPPED: "to finish hooks, install steps, tuning or the reboot",
        NodePhase.STARTING: "to start",
    }
    by_step: dict[str, list[str]] = {}
    for phase, what in doing.items():
        for node in state.wave_nodes:
            if node.phase is phase:
                installing = _install(node, state.begun.policy) if phase is NodePhase.STOPPED else None
                by_step.setdefault(installing or what, []).append(node.name)
    return "; ".join(f"{listed(names, 3)} {what}" for what, names in by_step.items())


def _install(node: NodeProgress, policy: Policy) -> str | None:
    """What a node waits for while an install step runs: `to finish install step 1 of 2`; None without one."""
    if node.install is None or policy.upgrade is None:
        return None
    return f"to finish {step_name(node.install.number)} of {len(policy.upgrade.install)}"


def holds_in_words(holds: tuple[Hold, ...]) -> str:
    """`2 holds: a (x), b (y)`, names only."""
    names = ", ".join(map(hold_by_name, holds[:3]))
    more = f" and {len(holds) - 3} more" if len(holds) > 3 else ""  # noqa: PLR2004  (three are shown above)
    return f"{counted(len(holds), 'hold')}: {names}{more}"


def hold_object(hold: Hold) -> dict[str, object]:
    """A hold as a JSON object."""
    return fields_of(hold, without={"others_first"})


def hold_sentence(hold: Hold, *, ways: bool = True) -> str:
    """A hold for people: the predicate's public name, its subjects, the evidence, and `ways` past it."""
    past = f"; another run passes it with {', '.join(hold.ways)}" if hold.ways and ways else ""
    # Evidence ends with the remedy, so it is cut later than other foreign text.
    return f"{hold_in_words(hold, partial(one_line, limit=_EVIDENCE))}{one_line(past, _EVIDENCE)}"


_EVIDENCE = 700
"""Characters. Room for the owners of a preference list with long names, and the accepting flag."""

_STANDS_DOWN: Final = "nodes that are down are started, settings are restored, then the run ends"


def request_sentence(request: Request, by: str) -> str:
    """A request to the run, and what happens now."""
    match request:
        case Request.NONE:
            return f"no request now, by {by}"
        case Request.PAUSE:
            return f"asked to pause after the current wave or merges, by {by}"
        case Request.STOP:
            return f"asked to stop by {by}: {_STANDS_DOWN}"
        case Request.INTERRUPT:
            return f"interrupted by {by}: {_STANDS_DOWN}; {second_signal(by)}"
        case _:
            assert_never(request)


def second_signal(first: str) -> str:
    """What another signal does after the first, which has this name."""
    again = "a second Ctrl-C" if first == "SIGINT" else "a second signal"
    return f"{again} ends the program at once and restores nothing"


PURPOSES: Final[Mapping[Purpose, str]] = {
    Purpose.WITHHOLD: "while nodes are down",
    Purpose.RAISE_LIMITS: "for faster recovery",
    Purpose.REASSIGN: "for the recovery of the copies",
    Purpose.RESTORE: "at the end",
}
"""Why a setting is changed, as the end of a line."""


@dataclass(frozen=True, slots=True)
class PhaseWords:
    """A phase of a run, in words."""

    what: str  # what it is
    awaits: str | Callable[[RunState], str]  # the condition that ends it


PHASES: Final[Mapping[Phase, PhaseWords]] = {
    Phase.PREPARING: PhaseWords(
        "The run reads cluster and hosts, takes the lease and checks whether it can finish.",
        "the first readings, the lease and the baseline",
    ),
    Phase.MERGING: PhaseWords("Indices are merged to few segments, before any node is stopped.", _merging),
    Phase.MERGED: PhaseWords(
        "The merges are done; their copies settle before the first wave.",
        "the copies to settle after the merges",
    ),
    Phase.GATED: PhaseWords(
        "The next wave is chosen, and every predicate is checked for it. All its nodes run.", _gated
    ),
    Phase.WITHHELD: PhaseWords(
        "Allocation is disabled, and everything is read once more. All nodes of the wave run.",
        lambda state: f"the last reading before the stop of {_names(state)}",
    ),
    Phase.DOWN: PhaseWords(
        "The nodes of the wave are stopped, worked on and started.",
        lambda state: _down(state) or f"{_names(state)} to be started",
    ),
    Phase.REJOINED: PhaseWords(
        "The nodes of the wave run again; several readings must show them as members.",
        lambda state: f"{_names(state)} to join the cluster, on several readings",
    ),
    Phase.REASSIGNED: PhaseWords(
        "Allocation has its original value; the copies of the restarted nodes recover.",
        lambda state: f"the copies of {_names(state)} to recover",
    ),
    Phase.SETTLED: PhaseWords(
        "The wave is complete; its last hooks run before the next wave is chosen.", "the next wave"
    ),
    Phase.FINISHING: PhaseWords(
        "Every selected node is restarted; the run restores the remaining settings.",
        "the settings to be restored",
    ),
    Phase.STANDING_DOWN: PhaseWords(
        "The run ends early: it starts the nodes that are down and restores all settings.",
        "the nodes of this run to be started and the settings to be restored",
    ),
    Phase.ENDED: PhaseWords("The run is over. `resume` continues it if nodes are left.", "nothing"),
}


def awaited(state: RunState) -> str:
    """The condition that ends the phase of a run."""
    own = kind_of(state.begun.policy.kind).words.awaits.get(state.phase)
    awaits = own or PHASES[state.phase].awaits
    return awaits if isinstance(awaits, str) else awaits(state)


def prediction_words(prediction: Prediction) -> str:
    """A predicted duration for people: `predicted 4m 30s (15s to 30m 0s)`."""
    low, likely, high = (duration(one) for one in (prediction.low, prediction.likely, prediction.high))
    return f"predicted {likely} ({low} to {high})"


def prediction_object(prediction: Prediction) -> dict[str, float]:
    """Seconds to a tenth; whole ones without a point."""
    return {
        name: int(seconds) if seconds == int(seconds) else seconds
        for name, seconds in (
            ("low", round(prediction.low, 1)),
            ("likely", round(prediction.likely, 1)),
            ("high", round(prediction.high, 1)),
        )
    }


def nodes_in_words(started: RunStarted, *, paused: bool = False, named: bool = True) -> str:
    """The nodes that a run restarts, up to its pause if it has one before it.

    Args:
        started: the beginning of the run.
        paused: whether it has paused already.
        named: whether their names follow.
    """
    count, total = nodes_to_restart(started, paused=paused), len(started.nodes)
    nodes, names = nodes_of(count, total), listed(started.nodes)
    if count < total:
        return f"{nodes}{f' ({names})' if named else ''}, then a pause"
    return f"{nodes}: {names}" if named else nodes
