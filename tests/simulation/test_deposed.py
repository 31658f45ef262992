"""A process is suspended, another one takes its run over, and the first wakes up: two live programs.

Lease and journal are the real ones. `TakenOver` in drawn runs is the same at chosen verbs; here it is at
every reading, commit and verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from orchestrator.engine.state import RunState
from orchestrator.errors import LeaseError
from orchestrator.model.action import StopNode
from orchestrator.model.event import Deposed
from orchestrator.model.phase import Outcome, Phase
from orchestrator.simulation.agenda import Guest
from orchestrator.simulation.mishaps import Seams
from tests.simulation.play import cluster, phase_of, play, policy
from tests.simulation.program import Simulation, empty_state
from tests.simulation.scene import EVERY, HELD, Played, Scene, before, looking

pytestmark = pytest.mark.proves("deposed")

Point = tuple[str, Phase]
"""What the process is about to do, or has done, and the phase of its run."""
SECONDS = 170.0
"""It is suspended until its successor is at work."""


def _resumed(first: Simulation, state_of_both: Engine, programs: list[Simulation]) -> Iterator[RunState]:
    """`resume` on another machine, by the same state."""
    other = Simulation(
        first.world,
        state=state_of_both,
        run=first.run,
        policy=policy(),
        operator=("ben", "bastion2"),
        common=first.common,
    )
    other.own_lease = first.own_lease
    programs.append(other)
    state = other.resume()
    other.written(first.run)[:0] = first.written(first.run)
    yield play(other, state, compare=False)


def _restored(first: Simulation, _state: Engine, programs: list[Simulation]) -> Iterator[RunState]:
    """`restore --cluster` on another machine, which has nothing but the record; then a run of its own."""
    other = first.successor("run-2")
    state = other.take_over(policy())
    if state is not None:
        yield play(other, state)
    again = other.successor("run-3")
    programs.append(again)
    yield play(again, again.begin(policy()))


Successor = Callable[[Simulation, Engine, list[Simulation]], Iterator[RunState]]


class _Suspending(Seams):
    """Notes each point once, and lets something happen at one of them, when it comes there first."""

    def __init__(self, of: Simulation, at: Point | None, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._of, self._at, self._meanwhile = of, at, meanwhile
        self.met: dict[Point, None] = {}

    def point(self, what: str) -> None:
        here = what.partition(" of ")[0], phase_of(self._of)
        first = here not in self.met
        self.met[here] = None
        if first and here == self._at:
            self._meanwhile()


def _suspended(at: Point | None, successor: Successor) -> tuple[list[str], list[Point]]:
    """What goes wrong if the process is suspended at that point, and all points that it comes to."""
    engine, ended, programs, guests = empty_state(), list[RunState](), list[Simulation](), list[Guest]()
    first = Simulation(cluster(3), state=engine, policy=policy())
    world, state = first.world, first.begin(policy())

    def succeeds() -> None:
        """Once the lease has run out."""
        while not ended:
            try:
                ended.extend(successor(first, engine, programs))
            except LeaseError:
                world.agenda.advance(2.0)

    def at_work() -> bool:
        """Whether the successor has stopped a node, or come to its end."""
        sent = [action for program in programs for action in program.hosts.sent]
        return guests[0].over or any(isinstance(action, StopNode) for action in sent)

    def meanwhile() -> None:
        guests.append(world.agenda.invite(succeeds))
        while not at_work():
            first.fate.asleep_until = world.agenda.now + 30.0
            world.agenda.until(at_work, 25.0)

    seams = _Suspending(first, at, meanwhile)
    first.seams = first.cluster.seams = first.hosts.seams = seams
    played = Played(first, world.agenda.now, {})
    for port, method in (("cluster", "observe"), ("hosts", "observe"), ("listener", "listen")):
        before(port, method, lambda _played, *_given, what=f"{port}.{method}": seams.point(what))(played)
    state = play(first, state, compare=False)
    world.agenda.advance(7200.0)
    world.agenda.dismiss()
    if at is None:
        return [], list(seams.met)
    wrong = [*world.violations, *(repr(guest.failure) for guest in guests if guest.failure)]
    wrong += [*(f"{node.name} is down" for node in world.nodes.values() if not node.joined)]
    if [each.outcome for each in ended][-1:] != [Outcome.DONE]:
        wrong.append(f"its successors ended {[(each.outcome, each.message) for each in ended]}")
    if state.phase is not Phase.ENDED or state.unrestored.settings:
        wrong.append(f"it is in {state.phase}, and still has {state.unrestored.settings}")
    if world.settings() != cluster(3).settings():
        wrong.append(f"the settings are {world.settings()}")
    deposed = state.process.deposed
    known = at[1] is Phase.ENDED or (deposed is not None and deposed.successor == first.run)
    if successor is _resumed and not known:
        wrong.append(f"it knows of {deposed} as its successor")
    if successor is _resumed and any(isinstance(r.event, Deposed) for r in first.records("run-1")):
        wrong.append("it wrote into its successor's journal")
    return [f"suspended at {at[0]} in {at[1].value}: {one}" for one in wrong], list(seams.met)


@pytest.mark.parametrize("successor", [_resumed, _restored])
def test_a_suspended_process_writes_nothing_under_its_successor(successor: Successor) -> None:
    """At every reading, commit and verb; `make test` tries every point."""
    _, points = _suspended(None, successor)
    assert len(points) > 20, "the run has too few points to tell anything"
    wrong = [one for point in points[:: max(1, EVERY // 2)] for one in _suspended(point, successor)[0]]
    assert wrong == []


def test_a_suspended_process_does_not_wait_for_a_removed_lease() -> None:
    """Another machine has restored its changes meanwhile; no record shows that any more."""
    woken: list[float] = []

    def look(played: Played, what: str) -> None:
        if what.startswith("after stop of") and not woken:
            other, played.simulation.fate.asleep_until = played.simulation.successor("run-2"), float("inf")
            state = other.take_over(policy())
            assert state is not None
            assert play(other, state).outcome is Outcome.RESTORED
            assert other.leases.in_force is None
            played.simulation.fate.asleep_until = played.world.agenda.now
            woken.append(played.world.agenda.now)

    says = "another run took it over and released it"
    played = Scene(name="removed", prepares=looking(look), ends=HELD, says=says).play()
    assert played.world.agenda.now - woken[0] < 300.0
