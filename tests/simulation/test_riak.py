"""Riak: what no row can tell of hastening and of its holds, and what is printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pytest
from rich.console import Console

from orchestrator.engine.admit import refusals
from orchestrator.engine.fold import evolve
from orchestrator.engine.situation import Decision, Situation
from orchestrator.engine.state import RunState
from orchestrator.kinds import needed
from orchestrator.model.action import Purpose
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import NodeRecovered, Record, SettingChanged
from orchestrator.model.observation import ClusterView, LeaseView, Level, Look
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.model.policy import Kind, Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import timer_key
from orchestrator.model.work_event import NotHastened
from orchestrator.riak.rules.kind import Riak
from orchestrator.riak.rules.predicates import PREDICATES
from orchestrator.riak.rules.recovery import unsettled
from orchestrator.simulation import judge, machines
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.glance import glance
from orchestrator.simulation.mishaps import How, Mishap, NodeDies, PersonAsked, Trip, Unreadable, What
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_mishaps import HandoffSticks, MemberJoins, OwnershipMoves
from orchestrator.view.live import LiveReporter
from orchestrator.view.reporters import LineReporter
from orchestrator.view.status import status_text
from tests.fakes.riak_rings import claimed
from tests.simulation.node_mishaps import RestartedByHand
from tests.simulation.play import killed, play, run
from tests.simulation.program import Simulation
from tests.simulation.ringed import (
    FOUR,
    ONE,
    THREE,
    TWO,
    down,
    riak_policy,
    ringed,
    rolling,
    stuck,
    unlocated,
)
from tests.simulation.scene import Scene
from tests.simulation.scenes.riak import HASTENED
from tests.states import state_with

# The judge ---------------------------------------------------------------------------------------------


def test_the_judge_lets_pass_only_what_waits_for_good(subtests: pytest.Subtests) -> None:
    """By the world's own truth: nothing that would be handed off, and nothing for less than 15 minutes."""
    young, free, stalled = stuck(ONE), stuck(ONE), stuck(ONE)
    young.fallbacks[0].since = young.agenda.now - 890.0
    free.free(free.fallbacks[0])
    free.fallbacks[0].since -= 1000.0
    for each in stalled.fallbacks:
        each.stuck = None
    stalled.stall(4000.0)
    for what, world, wrong in [
        ("for weeks", stuck(ONE), 0),
        ("by nobody handed off now", stalled, 0),
        ("not long", young, 1),
        ("freed", free, 1),
    ]:
        with subtests.test(what):
            world.agenda.advance(1.0)
            world.last_read = world.agenda.now
            world.judge_stop(world.nodes[TWO])
            assert [f"{wrong} fallbacks wait" in each for each in world.violations] == [True] * wrong


def _apart() -> tuple[RiakWorld, int, tuple[NodeName, NodeName]]:
    """A ring, a partition, and two nodes that can go together unless the first has data of this partition.

    The other is in a preference list with the partition's owner.
    """
    world = unlocated(9)
    number = next(n for n, owner in enumerate(world.ring.owners) if owner == TWO)
    lists = {world.ring.owners[(number + step) % world.ring.size] for step in range(-2, 4)}
    holder = next(name for name in world.vnodes if name not in lists)
    return world, number, (holder, world.ring.owners[(number + 1) % world.ring.size])


def _read(world: RiakWorld) -> None:
    world.agenda.advance(1.0)
    world.last_read = world.agenda.now


def test_the_judge_sees_the_holder_go_with_an_owner() -> None:
    """Of a list that has lost nothing but this, by the owners alone."""
    for beside in (False, True):
        world, number, (holder, owner) = _apart()
        world.stick(number, holder, frozenset())
        _read(world)
        for name in (holder, owner) if beside else (holder,):
            judge.stop(world, world.nodes[name])
        assert any("takes the quorum" in each for each in world.violations) is beside


_MEANWHILE: Final[Mapping[str, Callable[[NodeName, NodeName], What]]] = {
    "a holder's handoffs fail": lambda holder, _: HandoffSticks(holder=holder, partitions=64),
    "an owner's handoffs fail": lambda _, owner: HandoffSticks(holder=owner, partitions=64),
    "another's handoffs fail": lambda *_: HandoffSticks(holder=THREE, partitions=64),
    "another dies": lambda *_: NodeDies(node=TWO),
    "one of them dies": lambda holder, _: NodeDies(node=holder),
    "another is restarted": lambda *_: RestartedByHand(node=TWO),
    "partitions are planned for one of them": lambda holder, _: OwnershipMoves(
        to=holder, partitions=3, seconds=0.1
    ),
    "partitions of theirs are planned": lambda *_: OwnershipMoves(to=TWO, partitions=3, seconds=0.1),
    "a member joins": lambda *_: MemberJoins(node=NodeName("riak@new"), seconds=1.0),
}


@pytest.mark.parametrize("requested", [False, True])
@pytest.mark.parametrize("what", _MEANWHILE)
def test_what_befalls_a_ring_after_the_reading_is_no_fault(what: str, *, requested: bool) -> None:
    """Be it before two stops are requested or before they are done."""
    world, _, going = _apart()
    _read(world)
    befalls = partial(_MEANWHILE[what](*going).befall, Fate(world))
    if not requested:
        befalls()
    for name in going:
        judge.stop(world, world.nodes[name])
        machines.stop(world, world.nodes[name])
    world.agenda.advance(1.0)
    if requested:
        befalls()
    world.agenda.advance(10.0)
    assert not any(world.nodes[name].process for name in going)
    assert world.violations == []


# Hastened -----------------------------------------------------------------------------------------------


def test_an_unrestored_timer_is_read_without_hastening_too() -> None:
    """As one does that restores what another run left."""
    state = replace(Simulation(rolling()).begin(riak_policy()), phase=Phase.STANDING_DOWN)
    debt = SettingChanged(
        level=Level.TRANSIENT, key=timer_key(TWO), found="10000", wanted="1000", purpose=Purpose.RAISE_LIMITS
    )
    owing = evolve(state, Record(run=state.run, sequence=9, at=0.0, event=debt))
    assert Look.PACE in needed(owing)[0]
    assert Look.PACE not in needed(replace(owing, phase=Phase.DOWN))[0]


def test_clean_transfers_do_not_count_while_vnodes_must_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that condition a node goes down before another one has found what it has on its disk."""
    seeing = rolling()
    seeing.written = False
    run(seeing, wanted=HASTENED)
    assert seeing.violations == []
    monkeypatch.setattr(Riak, "unsettled", staticmethod(_blind))
    world = rolling()
    world.written = False  # so that nobody else has anything for a node that was down
    run(world, wanted=HASTENED)
    assert any("it has not found" in each for each in world.violations)


def _blind(state: RunState, view: ClusterView) -> str | None:
    """It does not ask for vnodes that were never started."""
    assert view.riak is not None
    return unsettled(state, replace(view, riak=replace(view.riak, unstarted={})))


class _FallsSilent(RiakWorld):
    """Once handoff was forced, the state of the vnode managers cannot be read any more."""

    then: Callable[[], None] | None = None

    def force_handoff(self) -> None:
        super().force_handoff()
        for vnodes in self.vnodes.values():
            vnodes.mute = "no answer within 60 s"
        self.version += 1
        if self.then is not None:
            self.then()


def _falls_silent(*, written: bool = True) -> _FallsSilent:
    world = _FallsSilent(claimed(5, 64))
    world.rolling, world.written = True, written
    return world


def test_without_an_answer_to_a_force_the_run_waits_in_full() -> None:
    """It does not wait for that answer until the limit of the whole recovery."""
    why = "no answer within 60 s"
    played = Scene(name="silent", of=_falls_silent, wanted=HASTENED, says=why).play()
    (took,) = (event.seconds for event in played.found(NodeRecovered) if event.node == TWO)
    assert 140 < took < 400, "as long as Riak takes to start every vnode, and no hours"
    assert why in played.found(NotHastened)[0].why


def test_clean_transfers_after_an_old_force_do_not_count() -> None:
    """After a kill no force was sent: those waves go by their transfers, as without `hasten_handoff`."""
    world = _falls_silent(written=False)
    simulation = Simulation(world)

    def killed_next() -> None:
        simulation.seams.crash_at, world.then = len(simulation.seams.passed) + 1, None

    world.then = killed_next
    assert killed(simulation, simulation.begin(HASTENED)), "it was never forced"
    simulation.seams.crash_at = None
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert [each for each in world.violations if f"while {TWO} has data" in each] == []


# A node that goes down ----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_reach", ["its machine answers", "its machine is down too"])
def test_a_node_that_goes_down_before_its_turn_is_one_hold(in_reach: str) -> None:
    world = ringed()
    simulation = Simulation(world)
    state = state_with(simulation.begin(riak_policy()), probed=True)
    started = simulation.start_of(riak_policy())
    lease = LeaseView(held=True, holder="ann@bastion", refreshed=0.0)
    before = replace(glance(world, started), lease=lease)
    assert not isinstance(before.cluster, Unknown)
    baseline = Riak.baseline(before.cluster, {})
    record = Record(run=state.run, sequence=9, at=before.at, event=baseline)
    after = replace(glance(down(world, THREE), started), lease=lease)
    if in_reach != "its machine answers":
        after = replace(after, hosts={**after.hosts, THREE: Unknown(reason="no route to it")})
    situation = Situation(
        state=evolve(state, record), policy=riak_policy(), kind=Riak(), seen=after, now=after.at
    )
    found = refusals(situation, Riak.predicates, Wave(number=1, nodes=(THREE,)))
    assert [hold.predicate for hold in found] == ["all_members_up"], found
    follow = {"expected_nodes_present", "ring_ready", "no_transfers", "selected_hosts_ready"}
    assert follow <= set(found[0].also)
    pending = refusals(replace(situation, seen=before), Riak.predicates, Wave(number=1, nodes=(THREE,)))
    assert pending == ()


# What is printed ----------------------------------------------------------------------------------------

_OTHERS = re.compile(
    r"\b(?:cop(?:y|ies)|shards?|allocation|allocated|indices|index|master|reroute|segments?)\b",
    re.IGNORECASE,
)
"""What Riak has none of. Its words: vnodes, partitions, handoff, transfers, preference lists."""


@dataclass(slots=True)
class Everything:
    """A reporter that prints by every view, and asks for the status after each event."""

    simulation: Simulation
    text: io.StringIO = field(default_factory=io.StringIO)
    views: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        def now() -> float:
            return self.simulation.world.agenda.now

        console = Console(file=self.text, force_terminal=True, width=160)
        self.views = [
            LineReporter(self.text, now, kind=Kind.RIAK, every=0.0),
            LiveReporter(console, now, kind=Kind.RIAK),
        ]

    def events(self, records: Sequence[Record]) -> None:
        for view in self.views:
            view.events(records)

    def waiting(self, state: RunState, decision: Decision) -> None:
        for view in self.views:
            view.waiting(state, decision)
        now, records = self.simulation.world.agenda.now, self.simulation.journal.records
        self.text.write(status_text(state, records[-3:], now=now))

    def finished(self, state: RunState, outcome: Outcome) -> None:
        for view in self.views:
            view.finished(state, outcome)
        now, records = self.simulation.world.agenda.now, self.simulation.journal.records
        self.text.write(status_text(state, records, now=now))


def printed(plan: list[Mishap] | None = None, trips: list[Trip] | None = None, **changes: object) -> str:
    simulation = Simulation(ringed(), plan=plan or [], trips=trips or [])
    watcher = Everything(simulation)
    simulation.drive(simulation.begin(riak_policy(**changes)), watcher)
    return watcher.text.getvalue()


RUNS: dict[str, tuple[list[Mishap], list[Trip], Outcome]] = {
    "undisturbed": ([], [], Outcome.DONE),
    "a second failure": (
        [Mishap(what=NodeDies(node=FOUR), verb="start", target=TWO, after=3.0)],
        [],
        Outcome.FAILED,
    ),
    "stopped by the operator": (
        [Mishap(what=PersonAsked(request=Request.STOP), verb="start", target=TWO, after=3.0)],
        [],
        Outcome.INTERRUPTED,
    ),
    "cannot be read for a while": (
        [Mishap(what=Unreadable(seconds=60.0), verb="start", target=TWO, after=20.0)],
        [],
        Outcome.DONE,
    ),
    "a start that is refused": ([], [Trip(how=How.REFUSED, verb="start", target=TWO)], Outcome.DONE),
}


def test_a_run_prints_nothing_that_riak_does_not_have(subtests: pytest.Subtests) -> None:
    for name, (plan, trips, outcome) in RUNS.items():
        with subtests.test(name=name):
            text = printed(plan, trips)
            assert outcome.value in text
            assert "handoff" in text
            found = [line for line in text.splitlines() if _OTHERS.search(line)]
            assert found == []
    texts = [f"{rule.name}: {rule.why}" for rule in PREDICATES]
    assert [line for line in texts if _OTHERS.search(line)] == []
