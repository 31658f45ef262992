"""Defects planted in what is particular to Riak; see `planted.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from orchestrator.engine import changes, fold, node, run, succession
from orchestrator.engine.kinds import kind
from orchestrator.engine.node import Turn
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.sight import Sight
from orchestrator.engine.situation import Decision, Situation, note
from orchestrator.engine.state import RunState
from orchestrator.model.action import Purpose, StartNode
from orchestrator.model.event import SettingChanged, SettingRestored, node_phase
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import NodePhase
from orchestrator.model.riak import Transfers
from orchestrator.runs import takeover
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import machines
from tests.simulation import play
from tests.simulation.chance_riak import FIRST
from tests.simulation.planting import Defect, Swap, always
from tests.simulation.ringed import ABOUT_ABSENCE, FOUR, TWO, riak_policy, ringed

_on_rings = partial(Defect, seed=FIRST, first=FIRST)
"""One that is looked for in runs on Riak; `seed` where another run than the first of them shows it."""


def _seeing_it_back(sight: Any) -> Any:
    def seen(situation: Situation, one: NodeProgress) -> Sight:
        found: Sight = sight(situation, one)
        there = situation.member(one.name) is not None and one.phase in fold.GOING_UP_OR_DOWN
        return Sight.NEW if there else found

    return seen


WHOEVER_IS_THERE = (
    Swap(owner=node, name="sight", by=_seeing_it_back),
    Swap(owner=run, name="sight", by=_seeing_it_back),
)
"""A node that is there counts as restarted."""

# Where chance makes no run that shows it, or seldom ---------------------------------------------------------


def fallbacks_that_wait_at_the_start() -> str | None:
    """A node was away before the run, and is back."""
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(30.0)
    machines.start(world, world.nodes[FOUR])
    world.agenda.advance(35.0)
    play.run(world, wanted=riak_policy())
    return next(iter(world.violations), None)


def a_node_that_starts_when_the_run_is_killed() -> str | None:
    """Two of them away at once, when the next process knows nothing of the first."""

    def begun() -> tuple[Simulation, RunState]:
        world = ringed()
        world.nodes[TWO].start_seconds = 40.0
        simulation = Simulation(world)
        return simulation, simulation.begin(riak_policy())

    simulation, state = begun()
    play.play(simulation, state)
    asked = simulation.seams.passed.index(f"after start of {TWO}")
    simulation, state = begun()
    simulation.seams.crash_at = 1 + asked
    play.killed(simulation, state)
    play.play(simulation, simulation.resume())
    return next(iter(simulation.world.violations), None)


def _without(*names: str) -> Swap:
    """The catalogue of Riak less these rules."""

    def less(riak: Any) -> Any:
        return replace(riak, predicates=tuple(rule for rule in riak.predicates if rule.name not in names))

    return Swap(owner=kind, name="RIAK", by=less)


def _of_riak(**changes: Callable[[Any], Any]) -> Swap:
    def other(riak: Any) -> Any:
        return replace(riak, **{name: by(getattr(riak, name)) for name, by in changes.items()})

    return Swap(owner=kind, name="RIAK", by=other)


def _not_putting_back(put_back: Any) -> Any:
    def claims(situation: Situation, purpose: Purpose) -> Decision | None:
        debts = changes.unrestored(situation.state, purpose)
        if purpose is Purpose.REASSIGN or not debts:
            return put_back(situation, purpose)  # type: ignore[no-any-return]  # the original's
        return note(*(SettingRestored(level=d.level, key=d.key, value=d.found) for d in debts))

    return claims


def _finding_the_default(changed: Any) -> Any:
    def found(state: RunState, event: SettingChanged, at: float) -> Any:
        return changed(state, replace(event, found="2"), at)

    return found


def _starting_at_once(turn: Any) -> Any:
    def turned(situation: Situation, one: NodeProgress) -> Turn:
        if one.phase is not NodePhase.STOPPING:
            return turn(situation, one)  # type: ignore[no-any-return]  # the original's
        step = node_phase(one.name, NodePhase.STOPPING, NodePhase.STARTING, why="it will be down by then")
        found: Turn = turn(situation, one)
        return replace(found, events=(step,), actions=(StartNode(node=one.name),))

    return turned


def _forgetting_what_starts(in_doubt: Any) -> Any:
    def forgets(state: RunState, *event: Any) -> RunState:
        state = in_doubt(state, *event)
        nodes = {
            name: replace(node, phase=NodePhase.RECOVERED) if node.phase is NodePhase.STARTING else node
            for name, node in state.nodes.items()
        }
        return replace(state, nodes=nodes)

    return forgets


def _forgetting_restarts(from_record: Any) -> Any:
    def forgets(record: LeaseRecord, started: Any) -> Any:
        return from_record(replace(record, restarted=()), started)

    return forgets


RIAK: Final[tuple[Defect, ...]] = (
    Defect(
        name="stops beside what waits for handoff",
        says="a node goes while fallbacks wait",
        swaps=(_without("no_transfers"),),
        scenario=fallbacks_that_wait_at_the_start,
    ),
    _on_rings(
        name="takes no active transfer for clean",
        says="`No transfers active` is all that is asked",
        swaps=(Swap(owner=Transfers, name="clean", by=lambda _: property(lambda said: not said.active)),),
    ),
    _on_rings(
        name="does not wait for handoff",
        says="a node is recovered, and the run done, while its hints are on their way",
        swaps=(_of_riak(unsettled=always(None)),),
    ),
    _on_rings(
        name="takes a process for a node that is back",
        says="a node is back before its vnodes run",
        swaps=(_of_riak(unsettled=always(None), not_back=always(None)), _without("no_transfers")),
    ),
    _on_rings(
        name="stops while partitions change owners",
        says="a join or a plan under way bars nothing",
        seed=FIRST + 8,
        swaps=(_without("no_pending_ownership_change", "ring_ready"),),
    ),
    _on_rings(
        name="takes the quorum of a preference list",
        says="nodes go together, or alone, that leave a list without its quorum",
        seed=FIRST + 12,
        swaps=(_without("preference_lists_keep_quorum"),),
    ),
    _on_rings(
        name="goes on with a member down",
        says="a member that is down bars nothing",
        seed=FIRST + 6,
        swaps=(_without(*ABOUT_ABSENCE),),
    ),
    _on_rings(
        name="goes on after a second node is gone",
        says="another node's death changes nothing",
        seed=FIRST + 6,
        swaps=(
            Swap(owner=run, name="_second_failure", by=always(None)),
            _without(*ABOUT_ABSENCE),
        ),
    ),
    _on_rings(
        name="does not compare the lives of Riak's nodes",
        says="a node that is there counts as restarted",
        swaps=WHOEVER_IS_THERE,
    ),
    _on_rings(
        name="starts before the stop is seen",
        says="a node is started though nothing says that it is down",
        swaps=(Swap(owner=run, name="turn", by=_starting_at_once),),
    ),
    Defect(
        name="resumes without what was starting",
        says="a node that was told to start when the run was killed counts as done",
        swaps=(
            Swap(owner=succession, name="_in_doubt", by=_forgetting_what_starts),
            _without(*ABOUT_ABSENCE),
        ),
        scenario=a_node_that_starts_when_the_run_is_killed,
    ),
    _on_rings(
        name="leaves transfer limits raised",
        says="limits count as put back, and nothing was written",
        swaps=(Swap(owner=changes, name="restore_settings", by=_not_putting_back),),
    ),
    _on_rings(
        name="puts the default limit back",
        says="limits go back to 2, not to what was found",
        swaps=(Swap(owner=fold, name="_setting_changed", by=_finding_the_default),),
    ),
    _on_rings(
        name="takes a forgotten limit for somebody's change",
        says="a restarted node keeps the limit of its files",
        swaps=(Swap(owner=changes, name="_says_nothing", by=always(answer=False)),),
    ),
    _on_rings(
        name="takes over without what was restarted",
        says="limits that nodes forgot by the dead run are taken for somebody's",
        seed=FIRST + 64,
        swaps=(Swap(owner=takeover, name="from_record", by=_forgetting_restarts),),
    ),
    _on_rings(
        name="takes over a ring without its limits",
        says="a takeover leaves the dead run's limits",
        seed=FIRST + 10,
        swaps=(
            Swap(
                owner=takeover,
                name="from_record",
                by=lambda of: lambda record, started: of(replace(record, debts=()), started),
            ),
        ),
    ),
)
