"""Every legal step is taken by some run, or is here with the reason why no run of chance takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.engine.grid import NODE_STEPS
from orchestrator.engine.phases import RUN_STEPS
from orchestrator.model.event import PhaseEntered
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.simulation.mishaps import How, Mishap, PersonAsked, Trip
from tests.simulation.play import cluster, play, policy, run
from tests.simulation.program import Simulation
from tests.simulation.scenes import lost_stops
from tests.simulation.wide import life_of

_SEEDS: Final = range(60)

_LATE = "a stop that was lost and is done late: chance has none that comes after a node's turn"
_RARE = "a fault in a moment that few seeds meet"

EXCUSED: Final[Mapping[tuple[Phase, Phase] | tuple[NodePhase, NodePhase], str]] = {
    **dict.fromkeys(
        (
            (Phase.GATED, Phase.DOWN),
            (Phase.REASSIGNED, Phase.DOWN),
            (Phase.SETTLED, Phase.DOWN),
            (Phase.FINISHING, Phase.DOWN),
            (NodePhase.PENDING, NodePhase.STARTING),
            (NodePhase.REJOINED, NodePhase.STARTING),
            (NodePhase.RECOVERED, NodePhase.STARTING),
            (NodePhase.SKIPPED, NodePhase.STARTING),
        ),
        _LATE,
    ),
    **dict.fromkeys(
        (
            (Phase.PREPARING, Phase.STANDING_DOWN),
            (Phase.MERGED, Phase.STANDING_DOWN),
            (Phase.WITHHELD, Phase.STANDING_DOWN),
            (Phase.REJOINED, Phase.STANDING_DOWN),
            (Phase.SETTLED, Phase.STANDING_DOWN),
            (Phase.FINISHING, Phase.STANDING_DOWN),
            (NodePhase.STARTING, NodePhase.FAILED),
            (NodePhase.REJOINED, NodePhase.REJOINED),
            (NodePhase.FAILED, NodePhase.REJOINED),
            (Phase.MERGING, Phase.STANDING_DOWN),
        ),
        _RARE,
    ),
    (Phase.MERGED, Phase.FINISHING): "`force-merge`: a run without nodes",
    (Phase.GATED, Phase.REASSIGNED): "overlap, and a recovery that is in the way after all",
    (NodePhase.STOPPING, NodePhase.REJOINED): "a lost stop of a node that owes nothing any more",
}


def test_every_legal_step_is_taken_by_some_run() -> None:
    taken = set[tuple[bool, str, str]]()
    world = cluster(3)
    world.add_index("bare", replicas=0, places=["es2"])
    anyway = Simulation(world)
    play(anyway, anyway.begin(policy(begin_anyway=True)))
    (preparing,) = (each for each in lost_stops.SCENES if "a resume is PREPARING" in each.name)
    late = preparing.play().simulation
    asked = Mishap(what=PersonAsked(request=Request.INTERRUPT), verb="stop", after=1.0)
    undone, _ = run(cluster(3), plan=[asked], trips=[Trip(verb="stop", how=How.LOST)])
    journals = [[record.event for record in each.journal.records] for each in (anyway, late, undone)]
    for seed in _SEEDS:
        life = life_of(seed)
        life.live()
        journals.append(life._events)  # of all of its runs
    for events in journals:
        entered = [event for event in events if isinstance(event, PhaseEntered)]
        taken |= {(event.node is not None, event.from_, event.to) for event in entered}
    legal: set[tuple[Phase, Phase] | tuple[NodePhase, NodePhase]] = set()
    legal |= {(old, new) for old in Phase for new in RUN_STEPS[old]}
    legal |= {(old, new) for old in NodePhase for new in NODE_STEPS[old]}
    assert set(EXCUSED) <= legal, "an excuse for a step that is not legal"
    never = {
        step for step in legal if (isinstance(step[0], NodePhase), step[0].value, step[1].value) not in taken
    }
    assert never - set(EXCUSED) == set()
