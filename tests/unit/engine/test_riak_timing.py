"""What a restart of a Riak node takes where no run has measured it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.estimate import PastTimes, PastTurn, rests_on
from orchestrator.model.observation import ClusterView, Observation, SettingsView, SettingValue
from orchestrator.model.policy import Policy
from orchestrator.model.prediction import Usual
from orchestrator.model.reading import NOT_READ, Reading
from orchestrator.model.riak import timer_key
from orchestrator.riak.rules.recovery import usual_restart
from orchestrator.simulation.glance import glance
from orchestrator.view.plan import plan_text
from tests.simulation.play import plan_of
from tests.simulation.program import Simulation
from tests.simulation.ringed import ONE, TWO, riak_policy, ringed

POLICY = riak_policy()


@pytest.mark.parametrize(("size", "minutes"), [(64, 80 / 60), (256, 320 / 60), (1024, 1280 / 60)])
def test_a_larger_ring_takes_longer_to_start_its_vnodes(size: int, minutes: float) -> None:
    """By Riak's own timers about 5 minutes of it at 256 partitions, and 21 at 1024."""
    usual = _usual(plan_view(size), POLICY).node
    apart = usual.likely - _usual(plan_view(64), POLICY).node.likely
    assert apart == pytest.approx((minutes - 80 / 60) * 60)


def _usual(view: Reading[ClusterView], wanted: Policy, settings: Reading[SettingsView] = NOT_READ) -> Usual:
    return usual_restart(Observation(at=0.0, cluster=view, settings=settings), wanted)


def plan_view(size: int) -> ClusterView:
    view = glance(ringed(5, size), Simulation(ringed(5, size)).start_of(riak_policy())).cluster
    assert isinstance(view, ClusterView)
    return view


def test_a_ring_that_was_not_read_counts_as_the_usual_one() -> None:
    assert _usual(NOT_READ, POLICY).node == _usual(plan_view(64), POLICY).node
    assert "usual ring" in _usual(NOT_READ, POLICY).rests_on
    view = plan_view(256)
    assert view.riak is not None
    unread = replace(view, riak=replace(view.riak, ring=NOT_READ))
    assert _usual(unread, POLICY).node == _usual(view, POLICY).node, "/stats tell it too"


def test_a_version_that_cannot_be_hastened_has_no_such_estimate() -> None:
    wanted = riak_policy(hasten_handoff=True)
    older = replace(plan_view(64), version="3.0.16")
    usual = _usual(older, wanted)
    assert usual.node == _usual(older, POLICY).node
    assert rests_on(PastTimes(turns={ONE: (PastTurn(seconds=300.0),)}), usual).endswith(f"; {usual.instead}")
    world = ringed(5, 64)
    for node in world.nodes.values():
        node.version = "3.0.16"
    said = "handoff is not hastened: only Riak 3.2 can be hastened, and this is 3.0.16"
    assert said in plan_text(plan_of(world, wanted), steps=True)
    assert said not in plan_text(plan_of(world, POLICY), steps=True)
    assert said not in plan_text(plan_of(ringed(5, 64), wanted), steps=True)


def test_a_node_whose_timer_cannot_be_read_is_promised_no_minute() -> None:
    wanted, view = riak_policy(hasten_handoff=True), plan_view(64)
    timers: dict[str, SettingValue] = {timer_key(node.name): "10000" for node in view.nodes}
    hastened = _usual(view, wanted, SettingsView(transient=timers))
    assert hastened == _usual(view, wanted)
    del timers[timer_key(TWO)]
    usual = _usual(view, wanted, SettingsView(transient=timers))
    assert usual.node == _usual(view, POLICY).node
    assert usual.instead == f"handoff is not hastened: vnode_management_timer of {TWO} cannot be read"
