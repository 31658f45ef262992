"""A process is suspended, another one takes its run over, and the first wakes up: two live programs.

The journal and the lease are the real ones: a file of SQLite, and a lease in that file and in the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.changes import from_record
from orchestrator.engine.fold import evolve, replay
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, StartNode
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.event import Deposed, Event, LeaseTaken, Record, RunResumed, RunStarted
from orchestrator.model.observation import LeaseView
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime.database import Access
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.lookout import Order
from orchestrator.runtime.loop import Loop, Ports
from orchestrator.runtime.store import RunEntry, StateStore, open_store
from orchestrator.runtime.taking import Claim, Place, Watcher
from orchestrator.simulation.world import World
from tests.fakes.lease import FakeLeasePort
from tests.simulation.play import cluster, policy
from tests.simulation.scene import EVERY

pytestmark = pytest.mark.proves("deposed")

FIRST, SECOND = "boot/1/10/100", "boot/1/20/200"
Point = tuple[str, Phase]
"""A call of a port, before or after it, and the phase of the run."""

NOBODY_CAN_TELL = Watcher(gone=lambda _process: False, alive=lambda _process: False)
_BEAT_SECONDS = 15.0
_TURNS_AFTER_WAKING = 12


class Frozen(BaseException):
    """The process stands still."""


class Heartbeat(Lease):
    """The real lease, beaten as time passes instead of by a thread; a thread that sleeps beats no more."""

    awake = True
    beaten = 0.0

    def view(self) -> LeaseView:
        now = self._clock.now()
        if self.awake and now - self.beaten >= _BEAT_SECONDS:
            self.beaten = now
            self.beat()
        return super().view()


@dataclass
class Process:
    """One process of the program with its own ports on a shared world.

    Attributes:
        before: called before each call of a port and after it, with its name, but not between the check of
            the lease and the action: that gap stays, and the decision record on leases describes it.
        sent: what it has sent so far.
    """

    world: World
    simulation: Simulation
    store: StateStore
    lease: Heartbeat
    journal: SqlJournal
    loop: Loop | None = None
    before: Callable[[str], None] = lambda _name: None
    sent: list[Action] = field(default_factory=list)
    turns_left: int | None = None

    def begin(self, state: RunState) -> Loop:
        ports = Ports(
            cluster=_Watched(self, "cluster", self.simulation.cluster),
            hosts=_Watched(self, "hosts", self.simulation.hosts),
            gates=self.simulation.gates,
            lease=self.lease,
            journal=_Watched(self, "journal", self.journal),
            clock=self.simulation.clock,
            listener=_Watched(self, "listener", self.simulation.listener),
            reporter=self,
        )
        self.loop = Loop(state, ports, asked=lambda: (Request.NONE, ""), workers=1, reads=Order.CLUSTER_FIRST)
        return self.loop

    def run(self) -> RunState:
        assert self.loop is not None
        try:
            return self.loop.run()
        except Frozen:
            return self.loop.state

    def events(self, records: Sequence[Record]) -> None:
        """Nobody looks."""

    def waiting(self, _state: RunState, _decision: object) -> None:
        if self.turns_left is None:
            return
        self.turns_left -= 1
        self.lease.awake = self.turns_left < _TURNS_AFTER_WAKING // 2
        if self.turns_left < 0:
            raise Frozen

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Nobody looks."""


class _Watched:
    def __init__(self, process: Process, name: str, inner: Any) -> None:
        self._process, self._name, self._inner = process, name, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in {"observe", "append", "listen", "perform"}:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            if name == "perform":
                self._process.sent.append(arguments[0])
            else:
                self._process.before(f"before {self._name}.{name}")
            answer = found(*arguments, **named)
            if name in {"append", "perform"}:
                self._process.before(f"after {self._name}.{name}")
            return answer

        return call


@dataclass
class Bench:
    """A cluster, the lease that it keeps, and a file of states."""

    folder: Path
    world: World = field(default_factory=lambda: cluster(3))
    template: FakeLeasePort = field(default_factory=FakeLeasePort)

    def store(self, name: str = "state.db") -> StateStore:
        return open_store(f"sqlite:///{self.folder}/{name}", {}, access=Access.WRITE)

    def lease(self, store: StateStore, run: str, process: str, simulation: Simulation) -> Heartbeat:
        places = (
            Place(name="the state", port=store.lease(self.world.uuid)),
            Place(name="the cluster", port=self.template),
        )
        owner = "ann@bastion" if process == FIRST else "ben@bastion2"
        claim = Claim(cluster="prod", run=run, owner=owner, process=process)
        return Heartbeat(places, claim, simulation.clock)

    def first(self) -> Process:
        """The process that begins the run."""
        simulation, store = Simulation(self.world), self.store()
        simulation.begin(policy())
        lease = self.lease(store, "run-1", FIRST, simulation)
        lease.acquire(NOBODY_CAN_TELL)
        journal = store.create_run(entry("run-1", self.world, FIRST))
        process = Process(self.world, simulation, store, lease, journal)
        events = [record.event for record in simulation.journal.records]
        process.begin(replay("run-1", journal.append(events, simulation.clock.now())))
        return process

    def resumed(self, first: Process) -> Process:
        """`resume` in another process, with the same file of states, once the lease has run out."""
        simulation, store = Simulation(self.world, fate=first.simulation.fate), self.store()
        past = store.replay("run-1")
        lease = self.lease(store, "run-1", SECOND, simulation)
        taken = lease.acquire(NOBODY_CAN_TELL)
        journal = store.journal("run-1", after=len(past), process=SECOND)
        process = Process(self.world, simulation, store, lease, journal)
        events = (
            RunResumed(operator="ben", host="bastion2"),
            LeaseTaken(epoch=taken.record.epoch, holder=taken.record.owner),
        )
        state = replay("run-1", past)
        for record in journal.append(events, simulation.clock.now()):
            state = evolve(state, record)
        process.begin(state)
        return process

    def restored(self, first: Process) -> Process:
        """`restore --cluster` on another machine, which has nothing but the record in the cluster."""
        simulation, store = (
            Simulation(self.world, run="run-2", fate=first.simulation.fate),
            self.store("b.db"),
        )
        lease = self.lease(store, "run-2", SECOND, simulation)
        previous = lease.acquire(NOBODY_CAN_TELL).previous
        started = first.store.replay("run-1")[0].event
        assert isinstance(started, RunStarted)
        started = replace(started, operator="ben", host="bastion2")
        events: tuple[Event, ...] = (started,) if previous is None else from_record(previous, started)
        journal = store.create_run(entry("run-2", self.world, SECOND))
        process = Process(self.world, simulation, store, lease, journal)
        process.begin(replay("run-2", journal.append(events, simulation.clock.now())))
        return process

    def holders(self, store: StateStore) -> set[str]:
        """Who holds the lease, in each place."""
        records = (self.template.read(), store.lease(self.world.uuid).read())
        return {record.process for record in records}


def entry(run: str, world: World, process: str) -> RunEntry:
    return RunEntry(
        run=run,
        cluster="prod",
        cluster_uuid=world.uuid,
        kind="elasticsearch",
        started=1.0,
        host="bastion",
        operator="ann",
        process=process,
    )


def freeze_while_a_node_is_down(process: Process) -> None:
    """Stand still at the first wait in which a node of a wave of its own is down."""

    def before(name: str) -> None:
        assert process.loop is not None
        state = process.loop.state
        down = any(node.phase in (NodePhase.STOPPED, NodePhase.STARTING) for node in state.nodes.values())
        own = any(node.stopped_at is not None for node in state.nodes.values())
        if name == "before listener.listen" and state.phase is Phase.DOWN and down and own:
            raise Frozen

    process.before = before


def suspend_at(process: Process, point: Point | None, meanwhile: Callable[[], None]) -> list[Point]:
    """Suspend the process when it first comes to that point, and let something else happen.

    Returns:
        All the points that it came to, each once.
    """
    points: dict[Point, None] = {}

    def before(name: str) -> None:
        assert process.loop is not None
        here = name, process.loop.state.phase
        met = here in points
        points[here] = None
        if here == point and not met:
            process.lease.awake = False  # its thread wakes up later than what it was about to do
            meanwhile()
            process.turns_left = _TURNS_AFTER_WAKING

    process.before = before
    process.run()
    return list(points)


def _wrong_after(bench: Bench, point: Point, successor: Callable[[Bench, Process], Process]) -> list[str]:
    """What a process did wrong that was suspended at that point."""
    first = bench.first()
    found: list[Process] = []
    already: list[Action] = []

    def meanwhile() -> None:
        second = successor(bench, first)
        freeze_while_a_node_is_down(second)
        second.run()
        found.append(second)
        already.extend(first.sent)

    suspend_at(first, point, meanwhile)
    (second,) = found
    at = f"suspended {point[0]} in {point[1].value}"
    assert first.loop is not None
    assert second.loop is not None
    state = first.loop.state
    late = first.sent[len(already) :]
    theirs = {n.name for n in second.loop.state.nodes.values() if n.phase is not NodePhase.PENDING}
    wrong = [f"{at}: {a}" for a in late if not isinstance(a, StartNode) or a.node in theirs]
    if state.process.deposed is None and state.phase is not Phase.ENDED:
        wrong.append(f"{at}: it does not know that it is deposed")
    if state.unrestored.settings:
        wrong.append(f"{at}: it still has {state.unrestored.settings}")
    first.lease.release()
    if bench.holders(second.store) != {SECOND}:
        wrong.append(f"{at}: the lease is {bench.holders(second.store)}'s")
    second.before = lambda _name: None
    ended = second.run()
    if ended.outcome not in (Outcome.DONE, Outcome.RESTORED):
        wrong.append(f"{at}: the successor ended {ended.outcome}: {ended.message}")
    if bench.world.effective(ALLOCATION) != cluster(3).effective(ALLOCATION):
        wrong.append(f"{at}: {ALLOCATION} is {bench.world.effective(ALLOCATION)}")
    wrong += [f"{at}: {violation}" for violation in bench.world.violations]
    if second.journal.run == "run-1":
        mine = [record.event for record in first.store.replay("run-1") if isinstance(record.event, Deposed)]
        wrong += [f"{at}: it wrote {event} into its successor's journal" for event in mine]
    return wrong


@pytest.mark.parametrize("successor", [Bench.resumed, Bench.restored])
def test_a_suspended_process_writes_nothing_under_its_successor(
    successor: Callable[[Bench, Process], Process], tmp_path: Path
) -> None:
    """Suspended anywhere but between the check of the lease and the action; `make test` tries every point."""
    (tmp_path / "all").mkdir()
    points = suspend_at(Bench(tmp_path / "all").first(), None, lambda: None)
    assert len(points) > 20, "the run has too few points to tell anything"
    wrong: list[str] = []
    for number, point in enumerate(points[:: max(1, EVERY // 3)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        wrong += _wrong_after(Bench(folder), point, successor)
    assert wrong == []


def test_a_suspended_process_does_not_wait_for_a_removed_lease(
    tmp_path: Path,
) -> None:
    """Another machine has restored its changes meanwhile; no record shows that any more."""
    bench = Bench(tmp_path)
    first = bench.first()
    freeze_while_a_node_is_down(first)
    first.run()
    first.lease.awake = False
    second = bench.restored(first)
    assert second.run().outcome is Outcome.RESTORED
    second.lease.release()
    assert bench.template.read() is None
    first.lease.awake, first.before = True, lambda _name: None
    woken = bench.world.agenda.now
    state = first.run()
    assert state.outcome is Outcome.HELD, state.message
    assert "another run took it over and released it" in state.message
    assert bench.world.agenda.now - woken < 300.0
    assert bench.world.effective(ALLOCATION) == cluster(3).effective(ALLOCATION)
    assert bench.world.violations == []


def test_a_process_whose_journal_another_writes_is_deposed(tmp_path: Path) -> None:
    """Its lease is refreshed all the time: the other process could not reach it, or took none."""
    bench = Bench(tmp_path)
    first = bench.first()
    assert first.loop is not None
    first.before = lambda name: freeze_at(first, name, Phase.WITHHELD)
    first.run()
    past = first.store.replay("run-1")
    other = bench.store().journal("run-1", after=len(past), process=SECOND)
    other.append((RunResumed(operator="ben", host="bastion2"), LeaseTaken(epoch=7, holder="ben")), 1.0)
    sent = len(first.sent)
    first.before = lambda _name: None
    first.turns_left = _TURNS_AFTER_WAKING
    state = first.run()
    assert first.sent[sent:] == []
    deposed = state.process.deposed
    assert deposed is not None
    assert (deposed.successor, deposed.owner, deposed.epoch) == ("run-1", "ben@bastion2", 7)
    assert len(first.store.replay("run-1")) == len(past) + 2


def test_a_deposed_process_leaves_the_journal_to_its_successor(
    tmp_path: Path,
) -> None:
    """One more event, and the successor would find its journal written to by another process."""
    bench = Bench(tmp_path)
    first = bench.first()
    first.before = lambda name: freeze_at(first, name, Phase.WITHHELD)
    first.run()
    simulation, store = Simulation(bench.world, fate=first.simulation.fate), bench.store()
    past = store.replay("run-1")
    taken = bench.lease(store, "run-1", SECOND, simulation).acquire(NOBODY_CAN_TELL)
    first.before = lambda _name: None
    first.turns_left = _TURNS_AFTER_WAKING
    assert first.run().process.deposed is not None
    journal = store.journal("run-1", after=len(past), process=SECOND)
    resumed = RunResumed(operator="ben", host="bastion2")
    assert journal.append((resumed, LeaseTaken(epoch=taken.record.epoch, holder="ben")), 1.0)


def freeze_at(process: Process, name: str, phase: Phase) -> None:
    """Stand still before the first reading in that phase."""
    assert process.loop is not None
    if name == "before cluster.observe" and process.loop.state.phase is phase:
        raise Frozen
