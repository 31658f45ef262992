"""Handoff that is hastened: what a plan says of it, and never called done while vnodes are left to start."""

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
from orchestrator.model.action import Purpose, action_name
from orchestrator.model.event import (
    ActionSent,
    NodeRecovered,
    Record,
    SettingChanged,
)
from orchestrator.model.handoff_event import NotHastened
from orchestrator.model.observation import ClusterView, Level, Look
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.plan import Plan
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.mishaps import Crash
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_parts import USUAL_TIMER, SimMove
from orchestrator.view.plan import plan_text
from tests.fakes.riak_rings import claimed
from tests.simulation.play import plan_of, play, run
from tests.simulation.ringed import FIVE, FOUR, ONE, THREE, TWO, riak_policy, ringed

HASTENED = riak_policy(hasten_handoff=True)


def rolling() -> RiakWorld:
    """Its vnode managers start what others own in steps, as Riak's do."""
    world = ringed()
    world.rolling = True
    return world


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


# What was asked for and not done ------------------------------------


def missed(simulation: Simulation) -> list[NotHastened]:
    return [r.event for r in simulation.journal.records if isinstance(r.event, NotHastened)]


def old() -> RiakWorld:
    """Of a version whose handoff cannot be hastened."""
    world = rolling()
    for node in world.nodes.values():
        node.version = "3.0.16"
    return world


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
