"""Riak's rules: what each alone refuses, what an unknown reading does, what the recorded states come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.kinds.predicates import Predicate, Question, evidence_of, holds
from orchestrator.engine.kinds.riak.catalogue import PREDICATES
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Hold
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import (
    ActiveTransfer,
    Availability,
    ClusterMember,
    ClusterStatus,
    Membership,
    NodeStats,
    OwnershipChange,
    PartitionCount,
    PendingPartition,
    RiakMember,
    RiakView,
    Ring,
    RingReady,
    RingStatus,
    SignsOfLife,
    Transfers,
)
from orchestrator.view.phrases import hold_sentence
from tests.fakes.riak_meanings import value_of
from tests.fakes.riak_rings import claimed, in_blocks, names
from tests.fakes.riak_transcripts import recorded
from tests.unit.engine.asking import question, viewing

ONE, TWO, _, _, FIVE, *_ = NODES = names(8)
RING = claimed(8, 64)
WHY = Unknown(reason="it was not read")


def member(node: NodeName, membership: Membership = Membership.VALID, **more: object) -> RiakMember:
    return RiakMember(node=node, membership=membership, ring_share=20.0, **more)


def status_of(node: NodeName, availability: Availability = Availability.UP) -> ClusterMember:
    return ClusterMember(
        node=node,
        membership=Membership.VALID,
        availability=availability,
        claimant=node == ONE,
        ring_share=20.0,
    )


def told(node: NodeName) -> SignsOfLife:
    members = frozenset(NODES)
    stats = NodeStats(
        node=node, kv_vnodes=8, connected=members, members=members, ring_size=64, ownership={node: 8}
    )
    return SignsOfLife(ping=True, stats=stats)


HEALTHY = RiakView(
    members=tuple(member(node) for node in NODES),
    cluster=ClusterStatus(ring_ready=True, members=tuple(status_of(node) for node in NODES)),
    ring_ready=RingReady(agreed=True, nodes=NODES),
    ring_status=RingStatus(claimant=ONE, claimant_up=True, ring_ready=True),
    signs={node: told(node) for node in NODES},
    transfers={ONE: Transfers(), TWO: Transfers()},
    ring=RING,
    n_vals=frozenset({3}),
)


def of_the_ring() -> list[Predicate]:
    """The predicates that are about the ring; every one has its scenarios below."""
    return [each for each in PREDICATES if each.name in ALONE]


def about(view: RiakView, *wave: NodeName) -> Question:
    """May the wave be stopped by this reading of the ring?"""
    return viewing(replace(question(), wave=Wave(number=1, nodes=wave or (ONE,))), riak=view)


def said_by(rule: Predicate, asked: Question) -> list[tuple[str, str]]:
    return [(subject, evidence_of(said)) for subject, said in rule.check(asked)]


def refusals(view: RiakView, *wave: NodeName) -> dict[str, list[tuple[str, str]]]:
    asked = {each.name: said_by(each, about(view, *wave)) for each in of_the_ring()}
    return {name: found for name, found in asked.items() if found}


def with_members(*changed: RiakMember) -> RiakView:
    by_name = {each.node: each for each in changed}
    return replace(HEALTHY, members=tuple(by_name.get(node, member(node)) for node in NODES))


def with_statuses(*changed: ClusterMember) -> RiakView:
    by_name = {each.node: each for each in changed}
    members = tuple(by_name.get(node, status_of(node)) for node in NODES)
    return replace(HEALTHY, cluster=ClusterStatus(ring_ready=True, members=members))


def with_transfers(**what: object) -> RiakView:
    return replace(HEALTHY, transfers={ONE: Transfers(), TWO: Transfers(**what)})


def with_ring_status(**what: object) -> RiakView:
    status = RingStatus(claimant=ONE, claimant_up=True, ring_ready=True)
    return replace(HEALTHY, ring_status=replace(status, **what))


CHANGE = OwnershipChange(owner=ONE, next_owner=TWO, partitions=(PendingPartition(index=0),))

ALONE: dict[str, list[tuple[str, RiakView, str]]] = {
    "ring_ready": [
        ("differ", replace(HEALTHY, ring_ready=RingReady(agreed=False, differing=(ONE, TWO))), "ring"),
        ("not asked", replace(HEALTHY, ring_ready=RingReady(agreed=False, down=(TWO,))), "ring"),
        ("one left out", replace(HEALTHY, ring_ready=RingReady(agreed=True, nodes=NODES[:4])), "ring"),
        ("a stranger", replace(HEALTHY, ring_ready=RingReady(agreed=True, nodes=names(9))), "ring"),
        ("claimant says no", with_ring_status(ring_ready=False), f"claimant {ONE}"),
        ("claimant away", with_ring_status(claimant_up=False, ring_ready=None), f"claimant {ONE}"),
    ],
    "no_pending_ownership_change": [
        ("pending", with_ring_status(pending=(CHANGE,)), f"{ONE} to {TWO}"),
        ("joining", with_members(member(FIVE, Membership.JOINING)), FIVE),
        ("leaving", with_members(member(FIVE, Membership.LEAVING)), FIVE),
        ("exiting", with_members(member(FIVE, Membership.EXITING)), FIVE),
        ("shares to change", with_members(member(FIVE, pending_share=0.0)), FIVE),
    ],
    "all_members_up": [
        ("down", with_statuses(status_of(FIVE, Availability.DOWN)), FIVE),
        ("down as marked", with_statuses(status_of(FIVE, Availability.DOWN_AS_MARKED)), FIVE),
        ("up though marked", with_statuses(status_of(FIVE, Availability.UP_THOUGH_MARKED_DOWN)), FIVE),
        (
            "marked as down",
            with_statuses(replace(status_of(FIVE), membership=Membership.DOWN)),
            FIVE,
        ),
        ("unreachable", with_ring_status(unreachable=(FIVE,)), FIVE),
        ("/stats unread", replace(HEALTHY, signs={**HEALTHY.signs, FIVE: SignsOfLife(stats=WHY)}), FIVE),
        ("/stats not asked", replace(HEALTHY, signs={n: told(n) for n in NODES if n != FIVE}), FIVE),
    ],
    "no_transfers": [
        ("currently down", with_transfers(down=(FIVE,)), f"transfers by {TWO}"),
        ("could not be contacted", with_transfers(uncontacted=(FIVE,)), f"transfers by {TWO}"),
        (
            "waiting to handoff",
            with_transfers(waiting=(PartitionCount(node=FIVE, partitions=1),)),
            f"transfers by {TWO}",
        ),
        (
            "primaries not running",
            with_transfers(not_running=(PartitionCount(node=FIVE, partitions=1),)),
            f"transfers by {TWO}",
        ),
        (
            "active",
            with_transfers(
                active=(
                    ActiveTransfer(kind="repair", vnode="riak_kv_vnode", index=0, source=ONE, target=TWO),
                )
            ),
            f"transfers by {TWO}",
        ),
        ("one unread", replace(HEALTHY, transfers={ONE: Transfers(), TWO: WHY}), f"transfers by {TWO}"),
        ("one node asked", replace(HEALTHY, transfers={ONE: Transfers()}), "transfers"),
        ("none asked", replace(HEALTHY, transfers={}), "transfers"),
    ],
    "preference_lists_keep_quorum": [
        ("bad ring", replace(HEALTHY, ring=in_blocks(8, 64)), ONE),
        ("a bucket type without replicas", replace(HEALTHY, n_vals=frozenset({3, 1})), ONE),
        ("a bucket type of two", replace(HEALTHY, n_vals=frozenset({3, 2})), ONE),
        ("no n_val", replace(HEALTHY, n_vals=frozenset()), "n_val"),
        ("an n_val of nothing", replace(HEALTHY, n_vals=frozenset({3, 0})), "n_val"),
        ("no partition", replace(HEALTHY, ring=Ring(owners=())), "n_val"),
        ("a ring of others", replace(HEALTHY, ring=claimed(16, 64)), "ring"),
    ],
}
SCENARIOS = [
    (name, what, view, subject) for name, scenarios in ALONE.items() for what, view, subject in scenarios
]


def test_a_healthy_cluster_may_lose_one_node() -> None:
    assert [node for node in NODES if refusals(HEALTHY, node)] == []


def test_every_predicate_of_the_ring_has_its_scenarios() -> None:
    unread = replace(about(HEALTHY), observation=replace(about(HEALTHY).observation, cluster=WHY))
    said = {each.name for each in PREDICATES if said_by(each, unread) == [("cluster", WHY.reason)]}
    assert said == set(ALONE)
    nothing = viewing(about(HEALTHY), riak=None)
    reason = ("cluster", "the ring was not read")
    assert {each.name for each in PREDICATES if said_by(each, nothing) == [reason]} == set(ALONE)


def test_only_this_rule_stands_in_the_way(subtests: pytest.Subtests) -> None:
    """Delete the rule, or its part, and nothing is in the way."""
    for name, what, view, subject in SCENARIOS:
        with subtests.test(name=name, what=what):
            found = refusals(view)
            assert list(found) == [name]
            assert subject in [each for each, _ in found[name]]
            assert all(evidence for _, evidence in found[name])


def test_two_nodes_are_too_many_where_they_share_a_list() -> None:
    sixteen = names(16)
    view = RiakView(
        members=tuple(member(node) for node in sixteen),
        cluster=ClusterStatus(ring_ready=True, members=tuple(status_of(node) for node in sixteen)),
        ring_ready=RingReady(agreed=True, nodes=sixteen),
        ring_status=HEALTHY.ring_status,
        signs={node: told(node) for node in sixteen},
        transfers=HEALTHY.transfers,
        ring=claimed(16, 64),
        n_vals=frozenset({3}),
    )
    assert refusals(view, sixteen[0], sixteen[8]) == {}
    (found,) = refusals(view, sixteen[0], sixteen[1]).values()
    assert [subject for subject, _ in found] == [f"{sixteen[0]}, {sixteen[1]}"]


def test_a_node_that_is_down_counts_against_the_wave() -> None:
    """With the rule on members switched off, the quorum still knows who is away."""
    view = with_statuses(status_of(TWO, Availability.DOWN))
    found = refusals(view, ONE)
    assert set(found) == {"all_members_up", "preference_lists_keep_quorum"}
    assert found["preference_lists_keep_quorum"][0][0] == f"{ONE}, {TWO}"


def test_members_that_are_listed_in_one_place_only_are_refused() -> None:
    listed = with_members()
    fewer = replace(listed, cluster=ClusterStatus(ring_ready=True, members=tuple(map(status_of, NODES[:4]))))
    assert (FIVE, "cluster status and member-status do not both list it") in refusals(fewer)["all_members_up"]


def test_a_wave_of_strangers_is_refused() -> None:
    stranger = NodeName("riak9@10.0.0.9")
    assert refusals(HEALTHY, stranger) == {
        "all_members_up": [(stranger, "it is not a member of the cluster")]
    }


def test_the_evidence_names_who_is_meant() -> None:
    def said(view: RiakView, rule: str) -> list[str]:
        return [evidence for _, evidence in refusals(view)[rule]]

    apart = replace(HEALTHY, ring_ready=RingReady(agreed=False, differing=(ONE, TWO)))
    assert said(apart, "ring_ready") == [f"{ONE} and {TWO} list different owners"]
    silent = replace(HEALTHY, ring_ready=RingReady(agreed=False, down=(TWO,)))
    assert said(silent, "ring_ready") == [f"{TWO} cannot be asked about the ring"]
    left_out = replace(HEALTHY, ring_ready=RingReady(agreed=True, nodes=NODES[:7]))
    assert said(left_out, "ring_ready") == [f"{NODES[7]} are members or agreed on the ring, but not both"]
    stranger = replace(HEALTHY, ring_ready=RingReady(agreed=True, nodes=names(9)))
    assert said(stranger, "ring_ready") == [f"{names(9)[8]} are members or agreed on the ring, but not both"]


def test_a_member_that_keeps_its_share_is_not_named() -> None:
    others = with_members(member(TWO, pending_share=20.0), member(FIVE, pending_share=0.0))
    assert [subject for subject, _ in refusals(others)["no_pending_ownership_change"]] == [FIVE]


def test_a_node_that_is_down_is_named_once() -> None:
    status = RingStatus(claimant=ONE, claimant_up=True, ring_ready=True, unreachable=(TWO, FIVE))
    view = replace(with_statuses(status_of(FIVE, Availability.DOWN)), ring_status=status)
    assert [subject for subject, _ in refusals(view)["all_members_up"]] == [FIVE, TWO]


def test_a_cluster_of_one_has_nobody_else_to_ask_about_transfers() -> None:
    alone = replace(HEALTHY, members=(member(ONE),), transfers={ONE: Transfers()})
    assert "no_transfers" not in refusals(alone)
    assert "no_transfers" in refusals(replace(alone, members=WHY))


UNREAD: list[tuple[Callable[[RiakView], RiakView], set[str]]] = [
    (
        lambda view: replace(view, members=WHY),
        {"ring_ready", "no_pending_ownership_change", "all_members_up"},
    ),
    (lambda view: replace(view, cluster=WHY), {"all_members_up", "preference_lists_keep_quorum"}),
    (lambda view: replace(view, ring_ready=WHY), {"ring_ready"}),
    (lambda view: replace(view, ring_status=WHY), {"ring_ready", "no_pending_ownership_change"}),
    (lambda view: replace(view, transfers=WHY), {"no_transfers"}),
    (lambda view: replace(view, ring=WHY), {"preference_lists_keep_quorum"}),
    (lambda view: replace(view, n_vals=WHY), {"preference_lists_keep_quorum"}),
]


def test_what_is_not_read_is_refused_with_its_reason(subtests: pytest.Subtests) -> None:
    for unread, rules in UNREAD:
        with subtests.test(unread=unread, rules=rules):
            found = refusals(unread(HEALTHY))
            assert set(found) == rules
            assert all(any(WHY.reason in evidence for _, evidence in each) for each in found.values())


def test_nothing_read_is_refused_by_every_rule() -> None:
    assert set(refusals(RiakView())) == set(ALONE)


def seen(state: str) -> RiakView:
    """What was recorded in a state; the ring is a good one, which the recorded one is not."""
    said = {each.command: value_of(each) for each in recorded() if each.state == state}
    transfers = said.get("riak admin transfers", Transfers())
    asked = [NodeName("dev1@127.0.0.1"), NodeName("dev3@127.0.0.1")]
    return RiakView(
        members=said.get("riak admin member-status", WHY),
        cluster=said.get("riak admin cluster status", WHY),
        ring_ready=said.get("riak admin ringready", WHY),
        ring_status=said.get("riak admin ring-status", WHY),
        transfers=dict.fromkeys(asked, transfers),
        ring=RING,
        n_vals=frozenset({3}),
    )


def test_the_recorded_bad_moments_are_refused(subtests: pytest.Subtests) -> None:
    for state, name, evidence in [
        ("joining1", "no_pending_ownership_change", "5 partitions change their owner"),
        ("joining1", "no_transfers", "dev2@127.0.0.1 has 16 partitions waiting to be handed off"),
        ("joining2", "ring_ready", "it reports that the ring is not ready"),
        ("dev2down", "all_members_up", "cluster status shows valid, down!"),
        ("dev2down", "no_transfers", "dev2@127.0.0.1 could not be contacted"),
        ("dev2down", "ring_ready", "dev2@127.0.0.1 cannot be asked about the ring"),
        ("claimantdown", "ring_ready", "it does not answer, so it is unknown whether the ring is ready"),
        ("claimantdown", "all_members_up", "cluster status shows valid, down!"),
        ("misc", "all_members_up", "cluster status shows down, down"),
        ("misc", "ring_ready", "dev3@127.0.0.1 cannot be asked about the ring"),
    ]:
        with subtests.test(state=state, name=name, evidence=evidence):
            told = [each for _, each in refusals(seen(state), NodeName("dev1@127.0.0.1"))[name]]
            assert any(evidence in each for each in told), told


def test_ringready_may_say_ready_where_the_claimant_does_not() -> None:
    """Why `ringready` alone is not asked."""
    view = seen("joining2")
    assert isinstance(view.ring_ready, RingReady)
    assert view.ring_ready.agreed
    assert "ring_ready" in refusals(view)


def quorum_hold(view: RiakView, *wave: NodeName) -> Hold:
    """The hold of the quorum's rule."""
    rules = [each for each in of_the_ring() if each.name == "preference_lists_keep_quorum"]
    (hold,) = holds(rules, about(view, *wave))
    return hold


def test_a_node_that_cannot_be_spared_is_told_what_to_do_about() -> None:
    """Three nodes on a power of two: a node has two partitions of a list wherever the ring begins."""
    three = names(3)
    view = replace(
        HEALTHY,
        members=tuple(member(node) for node in three),
        cluster=ClusterStatus(ring_ready=True, members=tuple(status_of(node) for node in three)),
        ring_ready=RingReady(agreed=True, nodes=three),
        ring=claimed(3, 16),
    )
    hold = quorum_hold(view, three[0])
    assert hold.subject == three[0]
    assert hold.ways == (f"--disable-predicate preference_lists_keep_quorum={three[0]}",)
    assert refusals(view, three[1]) == {}
    # Of a pair it is no word: the next order may do.
    pair = quorum_hold(replace(HEALTHY, ring=RING), ONE, TWO)
    assert (pair.subject, pair.ways) == (f"{ONE}, {TWO}", ())
    # With n_val 1 or 2 each node takes a quorum with it, in any order.
    for n_val in (1, 2):
        alone = quorum_hold(replace(HEALTHY, n_vals=frozenset({n_val})), ONE)
        assert f"--disable-predicate preference_lists_keep_quorum={ONE}" in alone.ways


def test_a_member_that_is_down_is_to_be_started_and_not_accepted() -> None:
    """It takes the quorum of its lists with it, and the wave is another node."""
    down = replace(status_of(TWO), availability=Availability.DOWN)
    assert isinstance(HEALTHY.cluster, ClusterStatus)
    others = tuple(each for each in HEALTHY.cluster.members if each.node != TWO)
    cluster = replace(HEALTHY.cluster, members=(down, *others))
    hold = quorum_hold(replace(HEALTHY, cluster=cluster, n_vals=frozenset({1})), ONE)
    assert TWO in hold.subjects
    assert hold.ways == (f"--disable-predicate preference_lists_keep_quorum={ONE}",)


def test_the_remedy_is_shown_to_its_end_with_any_names() -> None:
    long = [NodeName(f"riak@ip-10-200-100-{at}.eu-central-1.compute.internal") for at in (101, 102, 103)]
    owners = tuple(long[at % 3] for at in range(16))
    cluster = ClusterStatus(ring_ready=True, members=tuple(map(status_of, long)))
    view = replace(HEALTHY, cluster=cluster, ring=Ring(owners=owners))
    assert hold_sentence(quorum_hold(view, long[0])).endswith(f"preference_lists_keep_quorum={long[0]}")


def test_the_quorum_alone_is_of_the_set_and_does_not_pass() -> None:
    """A smaller wave is looked for, and nobody waits for a ring that will be the same in an hour."""
    found = of_the_ring()
    assert [rule.name for rule in found if rule.about_wave] == ["preference_lists_keep_quorum"]
    assert [rule.name for rule in found if not rule.passes_with_time] == ["preference_lists_keep_quorum"]
