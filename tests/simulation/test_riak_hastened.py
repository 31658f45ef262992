"""Handoff that is hastened: quicker, and never called done while vnodes are left to start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.kind import RIAK
from orchestrator.engine.kinds.riak.settings import timer_key
from orchestrator.engine.situation import needed
from orchestrator.engine.state import RunState
from orchestrator.model.action import ForceHandoff, Purpose, action_name
from orchestrator.model.event import (
    ActionSent,
    FallbacksHome,
    NodeRecovered,
    Record,
    SettingChanged,
    SettingRestored,
)
from orchestrator.model.handoff_event import NotHastened
from orchestrator.model.observation import ClusterView, Level, Look
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.plan import Plan
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.mishaps import Crash, How, Mishap, Trip
from orchestrator.simulation.riak import USUAL_TIMER, RiakWorld
from orchestrator.simulation.riak_mishaps import OwnershipMoves
from orchestrator.simulation.riak_parts import SimMove
from orchestrator.view.plan import plan_text
from tests.fakes.riak_rings import claimed
from tests.simulation.play import lives, plan_of, play, run
from tests.simulation.ringed import FIVE, FOUR, ONE, THREE, TWO, riak_policy, ringed

HASTENED = riak_policy(hasten_handoff=True)


def rolling() -> RiakWorld:
    """Its vnode managers start what others own in steps, as Riak's do."""
    world = ringed()
    world.rolling = True
    return world


def seconds(simulation: Simulation) -> float:
    """Of all nodes, from stop to clean."""
    return sum(r.event.seconds for r in simulation.journal.records if isinstance(r.event, NodeRecovered))


def sent(simulation: Simulation) -> list[ForceHandoff]:
    return [
        r.event.action
        for r in simulation.journal.records
        if isinstance(r.event, ActionSent) and isinstance(r.event.action, ForceHandoff)
    ]


def test_it_takes_half_the_time_and_leaves_nothing_behind() -> None:
    usual, _ = run(rolling(), wanted=riak_policy())
    world = rolling()
    found = world.limits
    simulation, state = run(world, wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert world.fallbacks == []
    assert (world.limits, world.settings()[1]) == (
        found,
        {f"transfer_limit.{n}": str(x) for n, x in found.items()},
    )
    assert seconds(simulation) < seconds(usual) / 2
    assert sent(simulation)
    assert not sent(usual)


def test_each_timer_is_recorded_before_it_is_set_and_restored() -> None:
    simulation, _ = run(rolling(), wanted=HASTENED)
    changed = [r.event for r in simulation.journal.records if isinstance(r.event, SettingChanged)]
    timers = {e.key: (e.found, e.wanted) for e in changed if e.key.startswith("vnode_management_timer")}
    names = (ONE, TWO, THREE, FOUR, FIVE)
    assert timers == {timer_key(name): (str(USUAL_TIMER), "1000") for name in names}
    back = [r.event for r in simulation.journal.records if isinstance(r.event, SettingRestored)]
    assert {e.key: e.value for e in back if e.key in timers} == dict.fromkeys(timers, str(USUAL_TIMER))


def test_an_unrestored_timer_is_read_without_hastening_too() -> None:
    """As one does that restores what another run left."""
    state = replace(Simulation(rolling()).begin(riak_policy()), phase=Phase.STANDING_DOWN)
    debt = SettingChanged(
        level=Level.TRANSIENT, key=timer_key(TWO), found="10000", wanted="1000", purpose=Purpose.RAISE_LIMITS
    )
    owing = evolve(state, Record(run=state.run, sequence=9, at=0.0, event=debt))
    assert Look.PACE in needed(owing)[0]
    assert Look.PACE not in needed(replace(owing, phase=Phase.DOWN))[0]


def test_when_the_others_have_handed_back_is_told_apart() -> None:
    """Once a wave, before it is clean: what it finds on its own disk goes home last."""
    simulation, _ = run(rolling(), wanted=HASTENED)
    told = [r.event for r in simulation.journal.records if isinstance(r.event, FallbacksHome | NodeRecovered)]
    home = [event.number for event in told if isinstance(event, FallbacksHome)]
    assert home == sorted(set(home))
    assert len(home) >= 4
    assert isinstance(told[0], FallbacksHome)
    assert isinstance(told[1], NodeRecovered)
    assert told[0].seconds < told[1].seconds


@pytest.mark.parametrize(("joins", "climbs"), [(2.0, 3.0), (3.0, 5.0)])
def test_a_node_back_before_its_manager_lists_it_is_waited_for(joins: float, climbs: float) -> None:
    """Nothing moves in these seconds, and what it has on its disk for others is not found yet."""
    world = rolling()
    world.climb_seconds, world.written = climbs, False
    for node in world.nodes.values():
        node.join_seconds = joins
    _, state = run(world, wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []


def test_clean_transfers_do_not_count_while_vnodes_must_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that condition a node goes down before another one has found what it has on its disk."""
    seeing = rolling()
    seeing.written = False
    run(seeing, wanted=HASTENED)
    assert seeing.violations == []
    blind = RIAK.__class__(**{**{f: getattr(RIAK, f) for f in RIAK.__slots__}, "unsettled": _but_unstarted})
    monkeypatch.setattr("orchestrator.engine.kinds.kind.RIAK", blind)
    world = rolling()
    world.written = False  # so that nobody else has anything for a node that was down
    run(world, wanted=HASTENED)
    assert any("it has not found" in each for each in world.violations)


def _but_unstarted(state: RunState, view: ClusterView) -> str | None:
    assert view.riak is not None
    return RIAK_UNSETTLED(state, replace(view, riak=replace(view.riak, unstarted={})))


RIAK_UNSETTLED = RIAK.unsettled


def test_nothing_is_forced_while_partitions_change_their_owner() -> None:
    world = rolling()
    move = OwnershipMoves(to=ONE, partitions=4, seconds=20.0)
    simulation, _ = run(
        world, plan=(Mishap(what=move, after=10.0, verb="stop", target=str(TWO)),), wanted=HASTENED
    )
    assert world.violations == []
    assert sent(simulation)


@pytest.mark.parametrize("how", [How.REFUSED, How.LOST])
def test_a_call_that_fails_costs_time_alone(how: How) -> None:
    world = rolling()
    _, state = run(world, trips=(Trip(verb="force_handoff", times=5, how=how),), wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []


def test_killed_anywhere_the_timers_are_restored() -> None:
    points = len(run(rolling(), wanted=HASTENED)[0].seams.passed)
    for point in range(5, points, 11):
        world = rolling()
        found = world.settings()[1]
        simulation = Simulation(world)
        simulation.seams.crash_at = point
        with suppress(Crash):
            play(simulation, simulation.begin(HASTENED))
        simulation.seams.crash_at = None
        state = play(simulation, simulation.resume())
        assert state.outcome is Outcome.DONE, f"{point}: {state.message}"
        assert world.violations == [], point
        assert world.settings()[1] == found, point


# What was asked for and not done ------------------------------------


def missed(simulation: Simulation) -> list[NotHastened]:
    return [r.event for r in simulation.journal.records if isinstance(r.event, NotHastened)]


def old() -> RiakWorld:
    """Of a version whose handoff cannot be hastened."""
    world = rolling()
    for node in world.nodes.values():
        node.version = "3.0.16"
    return world


def muted() -> RiakWorld:
    """On one node the account may not read the state of the vnode manager."""
    world = rolling()
    world.vnodes[FIVE].mute = "sudo: a password is required"
    return world


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (old, "only Riak 3.2 can be hastened, and this is 3.0.16"),
        (muted, f"the vnodes that {FIVE} has not started are unknown: sudo: a password is required"),
    ],
)
def test_a_run_that_hastened_nothing_says_so_of_every_node(made: Callable[[], RiakWorld], why: str) -> None:
    world = made()
    simulation, state = run(world, wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    assert sent(simulation) == []
    assert [(event.nodes, event.why) for event in missed(simulation)] == [
        ((name,), why) for name in (TWO, THREE, FOUR, FIVE, ONE)
    ]
    names = f"{TWO}, {THREE}, {FOUR}, {FIVE}, {ONE}"
    assert state.message == f"handoff was not hastened after the restart of {names} ({why})"
    assert world.violations == []


def test_a_force_that_is_refused_every_time_is_reported() -> None:
    world = rolling()
    trips = (Trip(verb="force_handoff", times=10_000, how=How.REFUSED),)
    simulation, state = run(world, trips=trips, wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    assert {name for event in missed(simulation) for name in event.nodes} == set(world.nodes)
    assert all("it could not be forced" in event.why for event in missed(simulation))
    assert "it could not be forced" in state.message


def test_a_timer_not_shortened_is_reported_of_its_node_alone() -> None:
    world = rolling()
    trips = (Trip(verb="raise_limits", first=2, how=How.REFUSED),)
    simulation, state = run(world, trips=trips, wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    (event,) = missed(simulation)
    assert event.nodes == (TWO,)
    assert f"every {USUAL_TIMER} ms" in event.why
    assert f"after the restart of {TWO} (" in state.message


def test_a_run_that_hastened_all_says_nothing_of_it() -> None:
    simulation, state = run(rolling(), wanted=HASTENED)
    assert missed(simulation) == []
    assert state.message == ""


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


def test_without_an_answer_to_a_force_the_run_waits_in_full() -> None:
    """It does not wait for that answer until the limit of the whole recovery."""
    world = _FallsSilent(claimed(5, 64))
    world.rolling = True
    simulation, state = run(world, wanted=HASTENED)
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    (of_a_node,) = (
        r.event
        for r in simulation.journal.records
        if isinstance(r.event, NodeRecovered) and r.event.node == TWO
    )
    assert 140 < of_a_node.seconds < 400, "as long as Riak takes to start every vnode, and no hours"
    assert "no answer within 60 s" in missed(simulation)[0].why
    assert "no answer within 60 s" in state.message


def test_clean_transfers_after_an_old_force_do_not_count() -> None:
    world = _FallsSilent(claimed(5, 64))
    world.rolling, world.written = True, False
    simulation = Simulation(world)

    def killed_next() -> None:
        simulation.seams.crash_at, world.then = len(simulation.seams.passed) + 1, None

    world.then = killed_next
    with suppress(Crash):
        play(simulation, simulation.begin(HASTENED))
    assert simulation.seams.crash_at is not None, "it was never forced"
    simulation.seams.crash_at = None
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    # After it no force was sent: those waves go by their transfers, as without `hasten_handoff`.
    assert [each for each in world.violations if f"while {TWO} has data" in each] == []


# What a plan says of it ------------------------------------


def named(plan: Plan, wave: int) -> list[str]:
    return [step.action for step in plan.steps if step.wave == wave]


def test_the_steps_of_a_plan_include_hastening_as_the_run_does() -> None:
    wanted = riak_policy(hasten_handoff=True, transfer_limit=None)
    plan = plan_of(rolling(), wanted)
    hastening = ["raise_limits", "force_handoff"]
    assert named(plan, 1) == ["stop", "start", *hastening]
    assert named(plan, 5) == ["stop", "start", *hastening, "restore_settings"]
    simulation, _ = run(rolling(), wanted=wanted)
    done = [r.event.action for r in simulation.journal.records if isinstance(r.event, ActionSent)]
    once = [name for name, _ in groupby(action_name(action) for action in done)]
    assert [step.action for step in plan.steps] == once, "but for a force that is sent again"
    names = (ONE, TWO, THREE, FOUR, FIVE)
    assert plan.settings_changed == {timer_key(name): (str(USUAL_TIMER), "1000") for name in names}
    text = plan_text(plan)
    assert "force_handoff is sent again every 2 s until handoff is done" in text
    assert "Transfer limits and timers that are changed" in text


@pytest.mark.parametrize("made", [old, rolling])
def test_a_plan_that_does_not_hasten_has_no_such_step(made: Callable[[], RiakWorld]) -> None:
    """The version cannot, or partitions change their owner: handoff is not forced then."""
    world = made()
    if made is rolling:
        world.moves.append(SimMove(partition=0, to=ONE, since=0.0))
    plan = plan_of(world, HASTENED)
    assert len(plan.waves) == 5
    assert "force_handoff" not in {step.action for step in plan.steps}
