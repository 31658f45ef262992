"""The catalogue of Riak's rules: every one is asked, in order, and refuses alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.kinds.kind import RIAK
from orchestrator.engine.kinds.predicates import Question, evidence_of, holds
from orchestrator.engine.kinds.riak.catalogue import PREDICATES
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.gate import GateView
from orchestrator.model.observation import ClusterView, LeaseView, Observation, ServiceState
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.replacing import replace as changed
from orchestrator.model.riak import OwnershipChange, PendingPartition, RiakView, RingStatus
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from tests.simulation.gated import QUEUE
from tests.simulation.ringed import FOUR, ONE, TWO, riak_policy, ringed
from tests.states import state_with

Change = Callable[[Question], Question]
"""The same question with one thing that is wrong."""


def _question() -> Question:
    world = ringed()
    state = state_with(Simulation(world).begin(riak_policy(zone_attribute=None)), probed=True)
    read = views.readings(world)
    assert isinstance(read.cluster, ClusterView)
    state = changed(state, baseline=RIAK.baseline(read.cluster, {}))
    seen = Observation(
        at=world.agenda.now,
        cluster=read.cluster,
        settings=read.settings,
        health=read.health,
        activity=read.activity,
        hosts={name: views.host(node, rights=True, reboot=True) for name, node in world.nodes.items()},
        lease=LeaseView(held=True, holder="ann@bastion", refreshed=0.0),
    )
    assert state.begun.policy is not None
    return Question(
        state=state,
        policy=state.begun.policy,
        observation=seen,
        wave=Wave(number=1, nodes=(TWO,)),
        first_stop=True,
    )


def _view(asked: Question) -> ClusterView:
    view = asked.observation.cluster
    assert isinstance(view, ClusterView)
    return view


def _viewing(asked: Question, **fields: object) -> Question:
    view: ClusterView = replace(_view(asked), **fields)
    return replace(asked, observation=replace(asked.observation, cluster=view))


def _riak(asked: Question, **fields: object) -> Question:
    riak = _view(asked).riak
    assert isinstance(riak, RiakView)
    return _viewing(asked, riak=replace(riak, **fields))


def _wanting(asked: Question, **fields: object) -> Question:
    return replace(asked, policy=replace(asked.policy, **fields))


def _seeing(asked: Question, **parts: object) -> Question:
    return replace(asked, observation=replace(asked.observation, **parts))


def _nameless(asked: Question) -> Question:
    nodes = tuple(
        replace(node, incarnation=Incarnation()) if node.name == TWO else node for node in _view(asked).nodes
    )
    return _viewing(asked, nodes=nodes)


def _in_two_zones(asked: Question) -> Question:
    wide = replace(asked, wave=Wave(number=1, nodes=(TWO, FOUR)))
    apart = tuple(replace(n, attributes={"location": f"rack-{n.name}"}) for n in _view(asked).nodes)
    return _wanting(_viewing(wide, nodes=apart), zone_attribute="location", max_unavailable=2)


def _stopped_host(asked: Question) -> Question:
    name = asked.wave.nodes[0]
    host = asked.observation.host(name)
    assert not isinstance(host, Unknown)
    stopped = replace(host, service=ServiceState.STOPPED)
    return _seeing(asked, hosts={**asked.observation.hosts, name: stopped})


def _managed_host(asked: Question) -> Question:
    name = asked.wave.nodes[0]
    host = asked.observation.host(name)
    assert not isinstance(host, Unknown)
    managed = replace(host, at_work=("chef-client (process 812)",))
    return _seeing(asked, hosts={**asked.observation.hosts, name: managed})


def _shut(asked: Question) -> Question:
    shut = GateView(open=False, evidence="640 messages, at most 100 allowed")
    return _seeing(_wanting(asked, gates=(QUEUE,)), gates={QUEUE.name: shut})


def _changing_owners(asked: Question) -> Question:
    status = RingStatus(
        claimant=ONE,
        claimant_up=True,
        ring_ready=True,
        pending=(OwnershipChange(owner=ONE, next_owner=TWO, partitions=(PendingPartition(index=0),)),),
    )
    return _riak(asked, ring_status=status)


def _unreachable(asked: Question) -> Question:
    status = RingStatus(claimant=ONE, claimant_up=True, ring_ready=True, unreachable=(FOUR,))
    return _riak(asked, ring_status=status)


GONE = Unknown(reason="no node answers")
WRONG: dict[str, Change] = {
    "observation_is_fresh": lambda asked: _seeing(asked, settings=GONE),
    "cluster_is_the_one_named": lambda asked: _viewing(asked, name="other"),
    "lease_is_held": lambda asked: _seeing(asked, lease=GONE),
    "settings_are_writable": lambda asked: replace(asked, state=state_with(asked.state, probed=False)),
    "expected_nodes_present": lambda asked: _wanting(asked, expect_nodes=6),
    "lives_are_told": _nameless,
    "ring_ready": lambda asked: _riak(asked, ring_ready=GONE),
    "no_pending_ownership_change": _changing_owners,
    "all_members_up": _unreachable,
    "no_transfers": lambda asked: _riak(asked, transfers=GONE),
    "preference_lists_keep_quorum": lambda asked: _riak(asked, n_vals=frozenset({1})),
    "one_zone_at_a_time": _in_two_zones,
    "budget_not_exceeded": lambda asked: _wanting(asked, max_unavailable=0),
    "selected_hosts_ready": _stopped_host,
    "no_management_run_on_candidates": _managed_host,
    "gates_open": _shut,
}


def _refusing(asked: Question) -> list[str]:
    return [rule.name for rule in PREDICATES if list(rule.check(asked))]


def test_a_healthy_cluster_is_refused_nothing() -> None:
    assert holds(PREDICATES, _question()) == ()


def test_what_one_rule_alone_refuses(subtests: pytest.Subtests) -> None:
    for rule, change in WRONG.items():
        with subtests.test(rule=rule):
            asked = change(_question())
            also = {"preference_lists_keep_quorum"} if rule == "one_zone_at_a_time" else set()
            assert set(_refusing(asked)) == {rule} | also
            assert {hold.predicate for hold in holds(PREDICATES, asked)} == {rule} | also


def test_every_rule_has_a_question_that_it_alone_refuses() -> None:
    assert set(WRONG) == {rule.name for rule in PREDICATES}


def test_the_rules_stand_in_the_order_in_which_they_are_asked() -> None:
    assert [rule.name for rule in PREDICATES] == [
        "observation_is_fresh",
        "cluster_is_the_one_named",
        "lease_is_held",
        "settings_are_writable",
        "expected_nodes_present",
        "lives_are_told",
        "ring_ready",
        "no_pending_ownership_change",
        "all_members_up",
        "no_transfers",
        "preference_lists_keep_quorum",
        "one_zone_at_a_time",
        "budget_not_exceeded",
        "selected_hosts_ready",
        "no_management_run_on_candidates",
        "gates_open",
    ]
    assert [rule.name for rule in PREDICATES if not rule.may_be_disabled] == [
        "observation_is_fresh",
        "cluster_is_the_one_named",
        "lease_is_held",
    ]
    assert not any(rule.about_wave for rule in PREDICATES if not rule.may_be_disabled)


def test_predicates_that_do_not_pass_and_those_of_the_set() -> None:
    """Nobody waits for what only an operator can mend; a wave that is too large becomes smaller."""
    assert [rule.name for rule in PREDICATES if not rule.passes_with_time] == [
        "cluster_is_the_one_named",
        "settings_are_writable",
        "preference_lists_keep_quorum",
    ]
    assert [rule.name for rule in PREDICATES if rule.lasting] == ["selected_hosts_ready"]
    assert [rule.name for rule in PREDICATES if rule.about_wave] == [
        "lives_are_told",
        "preference_lists_keep_quorum",
        "one_zone_at_a_time",
        "budget_not_exceeded",
        "selected_hosts_ready",
        "no_management_run_on_candidates",
    ]


def _lives(asked: Question) -> list[tuple[str, str]]:
    (rule,) = (rule for rule in PREDICATES if rule.name == "lives_are_told")
    return [(subject, evidence_of(said)) for subject, said in rule.check(asked)]


def test_a_life_that_is_not_told_says_why() -> None:
    nameless = _nameless(_question())
    subject = f"node {TWO}"
    why = "its process is unknown: "
    assert _lives(nameless) == [(subject, f"{why}neither `riak pid` nor /proc on its host shows it")]
    asked = _riak(nameless, unidentified={TWO: "its machine is another one's"})
    assert _lives(asked) == [(subject, f"{why}its machine is another one's")]
    assert _lives(_viewing(nameless, riak=None)) == _lives(nameless)


def test_of_a_node_that_is_no_member_other_rules_speak() -> None:
    strange = replace(_question(), wave=Wave(number=1, nodes=(NodeName("riak9@10.0.0.9"),)))
    assert _lives(strange) == []
    assert "all_members_up" in _refusing(strange)


def test_only_the_lives_of_the_wave_have_to_be_told() -> None:
    nameless = _nameless(_question())
    assert "lives_are_told" in _refusing(nameless)
    assert "lives_are_told" not in _refusing(replace(nameless, wave=Wave(number=1, nodes=(NodeName(ONE),))))


def test_every_predicate_of_the_ring_needs_the_ring() -> None:
    asked = _viewing(_question(), riak=None)
    assert {"ring_ready", "all_members_up", "no_transfers"} < set(_refusing(asked))
