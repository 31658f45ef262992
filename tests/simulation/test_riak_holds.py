"""One Riak node that is down gives one hold, and hides no other reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.admit import refusals
from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.kind import RIAK
from orchestrator.engine.kinds.riak.catalogue import PREDICATES
from orchestrator.engine.situation import Situation
from orchestrator.model.event import Hold, Record
from orchestrator.model.observation import LeaseView
from orchestrator.model.policy import DisabledPredicate, Wave
from orchestrator.model.reading import Unknown
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.glance import glance
from orchestrator.simulation.riak_parts import SimMove
from orchestrator.view.plan import plan_object, plan_text
from tests.simulation.play import plan_of
from tests.simulation.ringed import FIVE, ONE, THREE, TWO, down, riak_policy, ringed
from tests.states import state_with


@pytest.mark.parametrize("name", [ONE, THREE, FIVE])
def test_a_node_that_is_down_is_one_hold_with_all_that_follows(name: str) -> None:
    plan = plan_of(down(ringed(), name), riak_policy(expect_nodes=5))
    assert [hold.predicate for hold in plan.holds] == ["all_members_up"], plan.holds
    (hold,) = plan.holds
    assert hold.subject == name
    assert "down!" in hold.evidence
    assert {"ring_ready", "no_transfers", "expected_nodes_present"} <= set(hold.also)
    assert all(follows in hold.evidence for follows in hold.also)
    text = plan_text(plan)
    assert "HELD, as of now: 1 hold." in text
    assert "not met for the same reason: " in text


@pytest.mark.parametrize("in_reach", ["its machine answers", "its machine is down too"])
def test_a_node_that_goes_down_before_its_turn_is_one_hold(in_reach: str) -> None:
    world = ringed()
    simulation = Simulation(world)
    state = state_with(simulation.begin(riak_policy()), probed=True)
    started = simulation.start_of(riak_policy())
    lease = LeaseView(held=True, holder="ann@bastion", refreshed=0.0)
    before = replace(glance(world, started), lease=lease)
    assert not isinstance(before.cluster, Unknown)
    baseline = RIAK.baseline(before.cluster, {})
    record = Record(run=state.run, sequence=9, at=before.at, event=baseline)
    after = replace(glance(down(world, THREE), started), lease=lease)
    if in_reach != "its machine answers":
        after = replace(after, hosts={**after.hosts, THREE: Unknown(reason="no route to it")})
    situation = Situation(
        state=evolve(state, record), policy=riak_policy(), kind=RIAK, seen=after, now=after.at
    )
    found = refusals(situation, RIAK.predicates, Wave(number=1, nodes=(THREE,)))
    assert [hold.predicate for hold in found] == ["all_members_up"], found
    follow = {"expected_nodes_present", "ring_ready", "no_transfers", "selected_hosts_ready"}
    assert follow <= set(found[0].also)
    pending = refusals(replace(situation, seen=before), RIAK.predicates, Wave(number=1, nodes=(THREE,)))
    assert pending == ()


def test_the_names_of_what_follows_are_in_the_object_of_the_plan() -> None:
    hold: Any
    (hold,) = plan_object(plan_of(down(ringed(), THREE), riak_policy()))["holds"]
    assert "ring_ready" in hold["also"]


def test_a_machine_out_of_reach_with_its_node_is_one_hold_too() -> None:
    plan = plan_of(down(ringed(), THREE), riak_policy(), out_of_reach=[THREE])
    assert [hold.predicate for hold in plan.holds] == ["all_members_up"]


def test_what_a_down_node_does_not_explain_is_another_hold() -> None:
    world = down(ringed(), THREE)
    world.moves.append(SimMove(partition=0, to=TWO, since=world.agenda.now))
    plan = plan_of(world, riak_policy(), out_of_reach=[FIVE])
    assert [hold.predicate for hold in plan.holds] == [
        "all_members_up",
        "no_pending_ownership_change",
        "selected_hosts_ready",
    ]


def test_with_the_first_predicate_off_the_others_hold_alone() -> None:
    off = (DisabledPredicate(name="all_members_up"),)
    plan = plan_of(down(ringed(), THREE), riak_policy(disabled_predicates=off))
    held = [hold.predicate for hold in plan.holds]
    assert {"ring_ready", "no_transfers"} <= set(held)
    assert not any(hold.also for hold in plan.holds)


def test_holds_of_a_healthy_ring_and_of_handoff_are_unchanged() -> None:
    assert plan_of(ringed(), riak_policy()).holds == ()
    world = ringed()
    for number, owner in enumerate(world.ring.owners):
        if owner != ONE:
            world.fall_back(number, ONE)
    plan = plan_of(world, riak_policy())
    assert [hold.predicate for hold in plan.holds] == ["no_transfers"]
    assert isinstance(plan.holds[0], Hold)
    assert {hold.predicate for hold in plan.holds} <= {rule.name for rule in PREDICATES}
