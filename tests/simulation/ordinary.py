"""Six nodes on ordinary nights: how a run is lived and judged, and scenes that show planted defects too."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import Rescued, RunResumed
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Deadlines, Hook, Hooks, Policy
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import turns
from orchestrator.simulation.index_mishaps import (
    WorkBegun,
)
from orchestrator.simulation.mishaps import (
    DiskFills,
    IndexMade,
    Mishap,
    SnapshotBegun,
    Trip,
    What,
)
from orchestrator.simulation.node_mishaps import NodeFlaps
from orchestrator.simulation.world import World
from tests.simulation import tuned
from tests.simulation.play import play, policy

ES1, ES2, ES3, ES4, ES5, ES6 = (NodeName(f"es{number}") for number in range(1, 7))
HOOKS = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    while_stopped=(Hook(run="install {node}"),),
    after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
)
QUIET_SECONDS = 200.0
"""Six nodes, one after the other, take less when nothing happens; so much is added to what a night brings."""
COORDINATING = NodeName("front")


def six(*, coordinating: bool = False) -> World:
    """Six nodes in three zones, all with a vote, and perhaps one that does nothing but coordinate."""
    world = World()
    for number in range(1, 7):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    if coordinating:
        world.add_node(COORDINATING, zone="a", roles=frozenset({Role.COORDINATING}))
    world.add_index("logs", shards=6, replicas=1)
    world.add_index("archive", shards=2, replicas=1, written=False, size=512 << 20)
    return tuned.detune(world)


def wanted(**changes: object) -> Policy:
    """The shipped playbook, with hooks and tuning that every turn owes."""
    return policy(**{"hooks": HOOKS, "tune": tuned.profile(*tuned.WANTED), **changes})


def lived(
    *plan: Mishap, trips: Sequence[Trip] = (), world: World | None = None, **changes: object
) -> tuple[Simulation, RunState]:
    """One attempt, judged by nothing but the ground truth."""
    world = world or six()
    simulation = Simulation(world, plan=plan, trips=trips)
    state = play(simulation, simulation.begin(wanted(**changes)), invariants=False, compare=False)
    return simulation, state


def ends_well(simulation: Simulation, state: RunState, *, within: float = QUIET_SECONDS) -> None:
    """Done in time; every node had its whole turn, all settings are as found, and nothing was rescued."""
    world = simulation.world
    assert state.outcome is Outcome.DONE, f"{state.outcome}: {state.message}"
    assert world.violations == []
    assert world.settings() == ({}, {})
    assert unfinished(simulation, wanted()) == []
    took = world.agenda.now - simulation.began
    assert took < within, f"it took {took:.0f} s"


def unfinished(simulation: Simulation, asked: Policy) -> list[str]:
    """What any node lacks of its turn."""
    resumed = [r.at for r in simulation.journal.records if isinstance(r.event, RunResumed)]
    attempt = max([simulation.began, *resumed])
    nodes = simulation.world.nodes.values()
    return [lack for node in nodes for lack in turns.lacking(node, asked, simulation.began, attempt)]


def stopped_early(simulation: Simulation) -> int:
    """How many nodes were stopped in the time that a quiet night takes."""
    facts = [fact for node in simulation.world.nodes.values() for fact in node.facts]
    until = simulation.began + QUIET_SECONDS
    return sum(fact.what == "stopped" and fact.at < until for fact in facts)


def rescues(simulation: Simulation) -> int:
    return sum(isinstance(record.event, Rescued) for record in simulation.journal.records)


def at_stop(what: What, node: NodeName = ES3, *, after: float = 2.0) -> Mishap:
    """While that node goes down."""
    return Mishap(what=what, verb="stop", target=node, after=after)


def resumed_to_its_end(simulation: Simulation, state: RunState) -> RunState:
    """Resume until it is over, as an operator does."""
    for _ in range(5):
        if state.outcome is Outcome.DONE:
            break
        simulation.world.agenda.advance(60.0)
        state = play(simulation, simulation.resume(retry_failed=True), invariants=False, compare=False)
    return state


# Scenes that planted defects are shown by too ----------------------------------------------------------


def a_copy_without_a_place(what: What, after: float) -> None:
    """Others make a copy that no node can take, while a node is down."""
    simulation, state = lived(at_stop(what, after=after))
    ends_well(simulation, state)
    assert rescues(simulation) == 0


def others_work_on_indices(what: What) -> None:
    """Others work on indices while a node stops, while it is down and while it starts."""
    for after in (0.5, 5.0, 9.0):  # while it stops, while it is down, while it starts
        simulation, state = lived(at_stop(what, after=after))
        ends_well(simulation, state, within=QUIET_SECONDS + 200.0)
        assert rescues(simulation) == 0, after


def a_node_flaps(node: NodeName, seconds: float) -> None:
    """A node misses in a reading or two, at three moments of a run."""
    for verb, target, after in (("stop", ES2, 6.0), ("start", ES2, 12.0), ("start", ES3, 13.0)):
        flap = Mishap(what=NodeFlaps(node=node, seconds=seconds), verb=verb, target=target, after=after)
        simulation, state = lived(flap, world=six(coordinating=True))
        ends_well(simulation, state, within=QUIET_SECONDS + 60.0)


def a_candidate_works(*, reindex: bool) -> None:
    """The first candidate merges or reindexes for most of an hour."""
    work = Mishap(what=WorkBegun(node=ES2, seconds=3000.0, reindex=reindex))
    simulation, state = lived(work, deadlines=Deadlines(hold=7200.0))
    ends_well(simulation, state, within=3300.0)
    assert stopped_early(simulation) == 4, "all but the busy one and the elected master went at once"


def a_disk_is_full() -> None:
    """One disk is over its watermark for most of an hour."""
    full = Mishap(what=DiskFills(node=ES2, share=0.93, seconds=3000.0))
    simulation, state = lived(full, deadlines=Deadlines(hold=7200.0))
    ends_well(simulation, state, within=3300.0)
    assert stopped_early(simulation) == 4, "all but the full one and the elected master went at once"


def a_snapshot_begins_late() -> None:
    """A snapshot begins when the candidate has run its before_stop hooks."""
    begun = Mishap(what=SnapshotBegun(seconds=600.0), verb="hook_before_stop", after=0.0)
    simulation, state = lived(begun)
    ends_well(simulation, state, within=QUIET_SECONDS + 660.0)
    first = min(
        simulation.world.nodes.values(),
        key=lambda node: min(fact.at for fact in node.facts if fact.what == "hook before_stop 0"),
    )
    told = [
        fact.what for fact in first.facts if fact.what.startswith(("hook before", "hook after", "stopped"))
    ]
    assert told[:3] == ["hook before_stop 0", "hook after_recovery 0", "hook after_recovery 1"]


def a_node_is_rescued() -> None:
    """An index is made on the node between the last reading and the stop."""
    made = at_stop(IndexMade(name="raced", on=ES3, replicas=0), after=0.0)
    simulation, state = lived(made)
    simulation.world.delete_index("raced")
    state = resumed_to_its_end(simulation, state)
    assert state.outcome is Outcome.DONE, state.message
    assert rescues(simulation) == 1
    assert unfinished(simulation, wanted()) == []
