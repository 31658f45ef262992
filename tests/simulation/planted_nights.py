"""Defects planted in what makes ordinary nights end well; each is shown by a scene; see `planted.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from orchestrator.engine import admit, recover, run, waves
from orchestrator.engine.kinds.elasticsearch import recovery
from orchestrator.engine.kinds.every_kind import on_cluster
from orchestrator.engine.kinds.predicates import Finding, Question
from orchestrator.engine.node import Move
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.sight import Sight
from orchestrator.engine.situation import Decision, Situation, stand_down
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import Moment, StopNode
from orchestrator.model.event import Event
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.reading import Unknown
from orchestrator.simulation import mishaps
from orchestrator.simulation.index_mishaps import IndexReopened
from orchestrator.simulation.mishaps import How, Trip
from tests.simulation import ordinary
from tests.simulation.ordinary import ES1, ES5, at_stop, ends_well, lived, six
from tests.simulation.planting import Defect, Swap, always, in_the_table, of_kind, stepping

Scene = Callable[[], None]


def _lapse(scene: Scene) -> Callable[[], str | None]:
    """What a scene says of a run that does not end as it must; None when it does."""

    @wraps(scene)
    def lapse() -> str | None:
        try:
            scene()
        except (AssertionError, SafetyViolation) as wrong:
            return str(wrong).splitlines()[0] if str(wrong) else "not as it must be"
        return None

    return lapse


# Scenes ----------------------------------------------------------------------------------------------------


def _an_index_with_a_copy_too_many() -> None:
    ordinary.a_copy_without_a_place(mishaps.IndexMade(name="crowded", on=ES1, replicas=6), 2.0)


def _an_index_is_reopened() -> None:
    ordinary.others_work_on_indices(IndexReopened(index="archive", seconds=20.0))


def _an_index_that_the_cluster_cannot_spare() -> None:
    """It has no replicas, and its node would go fifth: nothing is stopped for nothing."""
    world = six()
    world.add_index("bare", replicas=0, places=["es6"])
    simulation, state = lived(world=world)
    assert state.outcome is Outcome.HELD, state.message
    stopped = [action.node for action in simulation.hosts.sent if isinstance(action, StopNode)]
    assert stopped == [], f"{', '.join(stopped)} were stopped by a run that cannot finish"


def _a_stop_is_refused() -> None:
    simulation, state = lived(trips=(Trip(verb="stop", how=How.REFUSED),))
    ends_well(simulation, state, within=290.0)


def _a_candidate_is_busy() -> None:
    ordinary.a_candidate_works(reindex=False)


def _a_node_flaps() -> None:
    ordinary.a_node_flaps(ES5, 5.0)


def _a_disk_is_full_elsewhere() -> None:
    ordinary.a_disk_is_full()


def _a_snapshot_begins_after_before_stop() -> None:
    ordinary.a_snapshot_begins_late()


def _interrupted_while_a_node_is_down() -> None:
    """Whoever interrupts a run does not wait for its hooks: the node is started first of all."""
    asked = at_stop(mishaps.Asked(request=Request.INTERRUPT), after=1.0)
    simulation, state = lived(asked)
    assert state.outcome is Outcome.INTERRUPTED, state.message
    down = [moment for name, moment, _ in simulation.hosts.hooks if moment == Moment.WHILE_STOPPED.value]
    assert len(down) == 1, "a hook ran on a node that was to be brought up"
    assert all(one.process for one in simulation.world.nodes.values())


# Defects ---------------------------------------------------------------------------------------------------


def _forgetting_work(finish: Any) -> Any:
    def finishes(situation: Situation, nodes: Iterable[NodeProgress]) -> tuple[Event, ...]:
        return tuple(finish(situation, [replace(one, owed=frozenset()) for one in nodes]))

    return finishes


def _everything_missing(_: Any) -> Any:
    return recovery.missing_beyond_baseline


def _excusing_nothing(red: Any) -> Any:
    def all_red(state: Any, view: ClusterView) -> Any:
        found, excused = red(state, view)
        return (*found, *excused), ()

    return all_red


def _giving_up_on_a_refusal(down: Any) -> Any:
    def gives_up(situation: Situation) -> Decision:
        state = situation.state
        stops = [one for one in state.in_phase.failed if isinstance(one.action, StopNode)]
        refused = [one for one in stops if not one.in_doubt]
        if refused:
            return stand_down(state, refused[0].reason, Outcome.FAILED)
        return down(situation)  # type: ignore[no-any-return]  # the original's

    return gives_up


def _taking_the_first(_: Any) -> Any:
    return lambda choice: (choice.units[0], {})


def _one_reading_suffices(_: Any) -> Any:
    return lambda self, name: name in self.state.process.absent


def _any_disk(question: Question, _view: ClusterView) -> Iterator[Finding]:
    disks = question.observation.disks
    for name, disk in {}.items() if isinstance(disks, Unknown) else disks.items():
        if disk.over_high:
            yield f"node {name}", "above the high watermark"


def _minding_any_disk(predicates: Any) -> Any:
    return tuple(
        replace(rule, check=on_cluster(_any_disk)) if rule.name == "disk_below_watermark" else rule
        for rule in predicates
    )


NIGHTS: Final[tuple[Defect, ...]] = (
    Defect(
        name="forgets what a rescue skipped",
        says="a node counts as recovered with hooks, tuning or a reboot still owed",
        swaps=(Swap(owner=recover, name="finish", by=_forgetting_work),),
        scenario=_lapse(ordinary.a_node_is_rescued),
    ),
    Defect(
        name="waits for what nobody took down",
        says="a copy without a place is waited for, whoever made it",
        swaps=(of_kind(missing=_everything_missing),),
        scenario=_lapse(_an_index_with_a_copy_too_many),
    ),
    Defect(
        name="takes a reopened index for lost",
        says="an index that was closed and opened is red at once, and its node rescued",
        swaps=(of_kind(red=_excusing_nothing),),
        scenario=_lapse(_an_index_is_reopened),
    ),
    Defect(
        name="begins what it cannot finish",
        says="nodes are stopped before it is seen that another one never can",
        swaps=(Swap(owner=run, name="_cannot_begin", by=always(None)),),
        scenario=_lapse(_an_index_that_the_cluster_cannot_spare),
    ),
    Defect(
        name="gives up on a stop that was refused",
        says="one refusal ends the night",
        swaps=(stepping(Phase.DOWN, _giving_up_on_a_refusal),),
        scenario=_lapse(_a_stop_is_refused),
    ),
    Defect(
        name="waits for a busy candidate",
        says="a force-merge on the first candidate holds all others",
        swaps=(Swap(owner=waves, name="_first_that_passes", by=_taking_the_first),),
        scenario=_lapse(_a_candidate_is_busy),
    ),
    Defect(
        name="takes one missing reading for a death",
        says="a node that flaps is a second failure",
        swaps=(Swap(owner=Situation, name="has_left", by=_one_reading_suffices),),
        scenario=_lapse(_a_node_flaps),
    ),
    Defect(
        name="minds a full disk anywhere",
        says="a node over its high watermark holds all others",
        swaps=(of_kind(predicates=_minding_any_disk),),
        scenario=_lapse(_a_disk_is_full_elsewhere),
    ),
    Defect(
        name="leaves a candidate out of service",
        says="a held candidate waits with its before_stop hooks done",
        swaps=(Swap(owner=admit, name="candidates_to_undo", by=always(())),),
        scenario=_lapse(_a_snapshot_begins_after_before_stop),
    ),
    Defect(
        name="works on what is to be brought up",
        says="a stand-down runs hooks before it starts the node",
        swaps=(
            in_the_table(NodePhase.STOPPED, Sight.AWAY, restart=Move.WORK, bring_up=Move.WORK),
            in_the_table(NodePhase.STOPPING, Sight.DOUBT, restart=Move.AWAIT_STOP, bring_up=Move.AWAIT_STOP),
            in_the_table(
                NodePhase.STOPPING, Sight.STOPPING, restart=Move.AWAIT_STOP, bring_up=Move.AWAIT_STOP
            ),
        ),
        scenario=_lapse(_interrupted_while_a_node_is_down),
    ),
)
