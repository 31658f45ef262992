"""Drives the real loop over a simulated world, and checks at every step what must hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from orchestrator.engine.estimate import PastTimes
from orchestrator.engine.fold import evolve
from orchestrator.engine.plan import make_plan
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.kinds import kind_of
from orchestrator.model.action import Action, action_name, action_target
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import Event, PhaseEntered, Record
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.reading import Unknown
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation.glance import glance
from orchestrator.simulation.invariants import JournalStep
from orchestrator.simulation.merge_invariants import broken
from orchestrator.simulation.mishaps import Crash, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation.program import Simulation

MAX_TURNS = 60_000
SPIN = 40
"""Decisions within one virtual second: more is a loop that does not wait for anything."""

LONG_STILL = 600.0
KEPT_BY_THE_CLOCK = ("nobody_waits_with_allocation_off", "withholding_has_a_limit")
"""No program keeps a limit while it stands still; for less than so many seconds is within what is allowed."""


class StuckError(AssertionError):
    """The run does not end, or turns without waiting."""


@dataclass(slots=True)
class Watcher:
    """The reporter of a simulated run: follows the journal on its own, compares, and counts turns."""

    simulation: Simulation
    limit: float
    turns: int = 0
    most_turns: int = MAX_TURNS
    recent: list[float] = field(default_factory=list)
    idle: int = 0
    compare: bool = True
    invariants: bool = True
    at_the_end: bool = False  # follow the journal when the attempt is over only, and compare its last state
    said: list[str] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    followed: RunState = field(default_factory=lambda: RunState(run="run-1"))
    read: int = 0
    # the state that was last found to be what the journal tells, and how much of it was `read`
    compared: tuple[RunState | None, int] = (None, 0)

    def events(self, records: Sequence[Record]) -> None:
        assert records
        self.told += [record.event for record in records]
        if not self.at_the_end:
            self.follow()

    def follow(self) -> None:
        """Fold what the journal holds, one step at a time, and ask every invariant."""
        for record in self.simulation.journal.records[self.read :]:
            before, self.followed = self.followed, evolve(self.followed, record)
            self.read += 1
            step = JournalStep(before=before, record=record, after=self.followed)
            wrong = broken(step) if self.invariants else ()
            if self.simulation.fate.stood >= LONG_STILL:
                wrong = tuple(line for line in wrong if not line.startswith(KEPT_BY_THE_CLOCK))
            assert not wrong, f"{wrong} at {record}"

    def agree(self, state: RunState) -> None:
        """The state is what the journal tells, where it could be written."""
        same = self.compared[0] is state and self.compared[1] == self.read
        if self.compare and not same and self.simulation.fate.disk_full_until == 0.0:
            assert self.followed == state, "replay is not what was lived"
            self.compared = (state, self.read)

    def waiting(self, state: RunState, decision: Decision) -> None:
        now = self.simulation.world.agenda.now
        self.turns += 1
        if not self.at_the_end:
            self.follow()
            self.agree(state)
        self.recent = [at for at in self.recent if at > now - 1.0] + [now]
        empty = not (decision.events or decision.actions or decision.watch)
        self.idle = self.idle + 1 if empty else 0
        if self.turns > self.most_turns or now > self.limit or len(self.recent) > SPIN or self.idle > 3:
            why = f"turns {self.turns}, {len(self.recent)} in a second, {self.idle} idle, now {now:.0f}"
            raise StuckError(f"{why}, in {state.phase}: {decision}")

    def finished(self, state: RunState, outcome: Outcome) -> None:
        self.said.append(f"{outcome.value}: {state.message}")


_FOLLOWED: WeakKeyDictionary[Simulation, tuple[str, bool, RunState, int]] = WeakKeyDictionary()
"""By program: its run, whether invariants were asked, and how far its journal was followed by then."""


def policy(**changes: object) -> Policy:
    """The shipped playbook on the simulated cluster."""
    return Policy(**{"kind": Kind.ELASTICSEARCH, "cluster": "prod", **changes})


def cluster(nodes: int = 3, *, seed: int = 0) -> World:
    """Some nodes, an index that is written and one that is not, all green."""
    world = World(seed=seed)
    for number in range(1, nodes + 1):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    world.add_index("logs", shards=nodes, replicas=1)
    world.add_index("archive", shards=2, replicas=1, written=False, size=512 << 20)
    return world


def play(
    simulation: Simulation,
    state: RunState,
    *,
    limit: float = 48 * 3600.0,
    compare: bool = True,
    invariants: bool = True,
    told: list[Event] | None = None,
    most_turns: int = MAX_TURNS,
    reads: ReadingOrder = ReadingOrder.CLUSTER_FIRST,
    at_the_end: bool = False,
) -> RunState:
    """Drive the loop to the end of this attempt; a `Crash` is the caller's.

    Without the invariants, only the world's own judge looks at what is done. `told` is filled with what was
    reported, also where the journal could not be written. `reads` is the order in which the world is read: a
    real run reads at once, and either may come first. `at_the_end`: the journal is followed once the attempt
    is over, which finds the same for less, but later.
    """
    followed, read = RunState(run=simulation.run), 0
    already = _FOLLOWED.get(simulation)
    if already is not None and already[:2] == (simulation.run, invariants):
        followed, read = already[2:]
    watcher = Watcher(
        simulation,
        simulation.world.agenda.now + limit,
        compare=compare,
        invariants=invariants,
        followed=followed,
        read=read,
        told=[] if told is None else told,
        most_turns=most_turns,
        at_the_end=at_the_end,
    )
    try:
        state = simulation.drive(state, watcher, order=reads)
        watcher.follow()
        watcher.agree(state)
    except Crash:
        watcher.follow()
        raise
    else:
        return state
    finally:
        _FOLLOWED[simulation] = (simulation.run, invariants, watcher.followed, watcher.read)


def run(
    world: World,
    *,
    plan: Sequence[Mishap] = (),
    trips: Sequence[Trip] = (),
    wanted: Policy | None = None,
    limit: float = 48 * 3600.0,
) -> tuple[Simulation, RunState]:
    """One attempt from its beginning to its end."""
    simulation = Simulation(world, plan=plan, trips=trips)
    return simulation, play(simulation, simulation.begin(wanted or policy()), limit=limit)


def plan_of(
    world: World,
    wanted: Policy,
    *,
    out_of_reach: Collection[str] = (),
    untold: Collection[str] = (),
    times: PastTimes | None = None,
) -> Plan:
    """What `plan` would show of this world now; nothing is done to it.

    Args:
        world: the world.
        wanted: the policy of the run.
        out_of_reach: nodes whose hosts do not answer.
        untold: nodes that do not tell which process they are.
        times: what earlier runs took.
    """
    simulation = Simulation(world)
    simulation.note_what_is(wanted, simulation.run)
    started = simulation.start_of(wanted)
    seen = glance(world, started)
    away = {name: Unknown(reason=f"host of {name}: no route to it") for name in out_of_reach}
    seen = replace(seen, hosts={**seen.hosts, **away})
    if untold:
        assert not isinstance(seen.cluster, Unknown)
        nodes = tuple(
            replace(node, incarnation=Incarnation()) if node.name in untold else node
            for node in seen.cluster.nodes
        )
        seen = replace(seen, cluster=replace(seen.cluster, nodes=nodes))
    kind = kind_of(wanted.kind)
    return make_plan(kind, started, seen, describe=action_name, times=times or PastTimes())


def plan_holds_for(world: World, wanted: Policy, predicates: Collection[str]) -> bool:
    """Whether a plan of this world would hold for one of these."""
    return any(hold.predicate in predicates for hold in plan_of(world, wanted).holds)


def phase_of(simulation: Simulation) -> Phase:
    """The phase of its run, by the journal."""
    entered = (r.event for r in reversed(simulation.journal.records) if isinstance(r.event, PhaseEntered))
    return Phase(next((event.to for event in entered if event.node is None), Phase.PREPARING))


def killed(simulation: Simulation, state: RunState) -> bool:
    """Whether this attempt was killed before it ended."""
    try:
        play(simulation, state)
    except Crash:
        return True
    return False


def lives(world: World) -> dict[NodeName, int]:
    return {node.name: node.life for node in world.nodes.values()}


def verbs(actions: Sequence[Action]) -> list[str]:
    return [f"{action_name(action)} {action_target(action)}" for action in actions]
