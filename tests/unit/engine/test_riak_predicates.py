"""The predicates of Riak as rows: what each alone refuses, unknown readings, and the recorded bad moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Final

import pytest

from orchestrator.engine.predicates import Question, evidence_of, holds
from orchestrator.engine.state import RunState, WaitingHandoff
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import Hold, MembersMissed, PhaseEntered, RestoreBegun, RunResumed, StoodStill
from orchestrator.model.gate import GateView
from orchestrator.model.observation import ServiceState
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import (
    ActiveTransfer,
    Availability,
    ClusterStatus,
    Membership,
    PartitionCount,
    RiakView,
    Ring,
    RingReady,
    SignsOfLife,
    Transfers,
)
from orchestrator.model.work_event import HandoffWaits, WaitingPartition
from orchestrator.riak.rules.predicates import PREDICATES
from orchestrator.riak.rules.recovery import home, left_waiting, news, shortfall, unsettled
from orchestrator.view.phrases import hold_sentence
from tests.fakes.riak_meanings import value_of
from tests.fakes.riak_rings import claimed, in_blocks, names
from tests.riak_transcripts import recorded
from tests.simulation.gated import QUEUE
from tests.simulation.ringed import FIVE, FOUR, ONE, THREE, TWO, riak_policy, ringed
from tests.states import state_with
from tests.unit.engine.asking import (
    evolved,
    hosting,
    knowing,
    question_about,
    seeing,
    view_of,
    viewing,
    wanting,
)

WHY: Final = Unknown(reason="it was not read")
STRANGER: Final = NodeName("riak9@10.0.0.9")


@cache
def _asked() -> Question:
    return question_about(ringed(), riak_policy(zone_attribute=None), TWO)


def _riak(asked: Question) -> RiakView:
    riak = view_of(asked).riak
    assert riak is not None
    return riak


def _of(wave: tuple[NodeName, ...] = (TWO,), **parts: Any) -> Question:
    """The healthy question about a wave, with parts of the ring's reading replaced."""
    asked = replace(_asked(), wave=Wave(number=1, nodes=wave))
    return viewing(asked, riak=replace(_riak(asked), **parts))


def _cluster(name: NodeName = FIVE, **fields: Any) -> ClusterStatus:
    cluster = _riak(_asked()).cluster
    assert isinstance(cluster, ClusterStatus)
    members = (replace(each, **fields) if each.node == name else each for each in cluster.members)
    return replace(cluster, members=tuple(members))


def _cluster_of(nodes: tuple[NodeName, ...]) -> dict[str, Any]:
    """The readings that list these nodes, and no others, as members that are well."""
    status, *_ = _cluster().members
    signs = _riak(_asked()).signs[ONE]
    return {
        "cluster": ClusterStatus(
            ring_ready=True, members=tuple(replace(status, node=node) for node in nodes)
        ),
        "ring_ready": RingReady(agreed=True, nodes=nodes),
        "signs": dict.fromkeys(nodes, signs),
    }


def _transfers(**fields: Any) -> dict[NodeName, Transfers]:
    return {ONE: Transfers(), TWO: Transfers(**fields)}


def still(wave: tuple[NodeName, ...] = (TWO,), seconds: float = 900.0, **parts: Any) -> Question:
    """One partition has waited on TWO for so long without a change."""
    line = Transfers(waiting=(PartitionCount(node=TWO, partitions=1),))
    asked = _of(wave, **{"transfers": {ONE: line, TWO: line}, "waiting": {TWO: frozenset({0})}, **parts})
    waits = HandoffWaits(partitions=(WaitingPartition(partition=0, holder=TWO, owner=ONE),))
    return replace(asked, state=evolved(asked.state, waits, at=asked.observation.at - seconds))


def _refusing(asked: Question) -> dict[str, list[tuple[str, str]]]:
    """What each rule says, by name."""
    told = {
        rule.name: [(subject, evidence_of(said)) for subject, said in rule.check(asked)]
        for rule in PREDICATES
    }
    return {name: found for name, found in told.items() if found}


SIGNS: Final = _riak(_asked()).signs
OTHERS: Final = tuple(name for name in SIGNS if name != FIVE)
NAMELESS: Final = viewing(
    _asked(),
    nodes=tuple(
        replace(node, incarnation=Incarnation()) if node.name == TWO else node
        for node in view_of(_asked()).nodes
    ),
)
APART: Final = viewing(
    _of((TWO, FOUR)),
    nodes=tuple(replace(n, attributes={"location": f"rack-{n.name}"}) for n in view_of(_asked()).nodes),
)
MOVING: Final = ActiveTransfer(kind="repair", vnode="riak_kv_vnode", index=0, source=ONE, target=TWO)
SWAPPED: Final = replace(
    _cluster(), members=tuple(replace(m, pending_share=m.ring_share) for m in _cluster().members)
)
BY_TWO: Final = f"transfers by {TWO}"
COUNT: Final = (PartitionCount(node=FIVE, partitions=1),)
NO_LIST: Final = "members or agreed on the ring, but not both"
SHUT: Final = GateView(open=False, evidence="640 messages")
# fmt: off
ALONE: Final[dict[str, list[tuple[Question, str, str]]]] = {
    # for each rule: the question that it alone refuses, a subject that it names, a part of its evidence
    "observation_is_fresh": [(seeing(_asked(), settings=WHY), "", WHY.reason)],
    "cluster_is_the_one_named": [(viewing(_asked(), name="other"), "", "")],
    "lease_is_held": [(seeing(_asked(), lease=WHY), "lease", WHY.reason)],
    "settings_are_writable": [(knowing(_asked(), probed=False), "", "")],
    "expected_nodes_present": [(wanting(_asked(), expect_nodes=6), "", "6")],
    "lives_are_told": [
        (NAMELESS,
         f"node {TWO}", "its process is unknown: neither `riak pid` nor /proc on its host shows it"),
        (viewing(NAMELESS, riak=replace(_riak(_asked()), unidentified={TWO: "its machine is another one's"})),
         f"node {TWO}", "its process is unknown: its machine is another one's"),
    ],
    "ring_ready": [
        (_of(ring_ready=RingReady(agreed=False, differing=(ONE, TWO))),
         "ring", f"{ONE} and {TWO} list different owners"),
        (_of(ring_ready=RingReady(agreed=False, down=(TWO,))),
         "ring", f"{TWO} cannot be asked about the ring"),
        (_of(ring_ready=RingReady(agreed=True, nodes=OTHERS)), "ring", f"{FIVE} are {NO_LIST}"),
        (_of(ring_ready=RingReady(agreed=True, nodes=(*SIGNS, STRANGER))),
         "ring", f"{STRANGER} are {NO_LIST}"),
        (_of(cluster=replace(_cluster(), ring_ready=False)), f"claimant {ONE}", "is not ready"),
        (_of(cluster=replace(_cluster(), ring_ready=None)), f"claimant {ONE}", "does not answer"),
    ],
    "no_pending_ownership_change": [
        (_of(cluster=SWAPPED), "ring", "the share of each member stays the same"),
        *(
            (_of(cluster=_cluster(membership=how)), FIVE, f"it is {how.value}")
            for how in (Membership.JOINING, Membership.LEAVING, Membership.EXITING)
        ),
        (_of(cluster=_cluster(pending_share=0.0)), FIVE, "is to own 0.0 %"),
    ],
    "all_members_up": [
        (_of(cluster=_cluster(membership=Membership.DOWN)), FIVE, "cluster status shows down"),
        (_of(signs={**SIGNS, FIVE: SignsOfLife(stats=WHY)}), FIVE, WHY.reason),
        (_of(signs={name: SIGNS[name] for name in OTHERS}), FIVE, "/stats cannot be read"),
    ],
    "no_transfers": [
        (_of(transfers=_transfers(down=(FIVE,))), BY_TWO, f"{FIVE} is down"),
        (_of(transfers=_transfers(uncontacted=(FIVE,))), BY_TWO, "could not be contacted"),
        (_of(transfers=_transfers(waiting=COUNT)), BY_TWO, "1 partitions waiting"),
        (_of(transfers=_transfers(not_running=COUNT)), BY_TWO, "does not run 1"),
        (_of(transfers=_transfers(active=(MOVING,))), BY_TWO, "a transfer (repair)"),
        (_of(transfers={ONE: Transfers(), TWO: WHY}), BY_TWO, WHY.reason),
        (_of(transfers={ONE: Transfers()}), "transfers", "1 nodes were asked instead of 2"),
        (_of(transfers={}), "transfers", "0 nodes were asked instead of 2"),
    ],
    "waiting_partitions_go_alone": [
        (wanting(still((TWO, FOUR)), max_unavailable=2), TWO, "holds 1 partitions that wait for handoff"),
        (wanting(_of((TWO, FOUR), waiting=WHY), max_unavailable=2), "partitions", WHY.reason),
    ],
    "preference_lists_keep_quorum": [
        (_of(ring=in_blocks(5, 64)), TWO, "this node alone"),
        (_of(n_vals=frozenset({3, 1})), TWO, "n_val 1"),
        (_of(n_vals=frozenset({3, 2})), TWO, "n_val 2"),
        (_of(n_vals=frozenset()), "n_val", "no n_val"),
        (_of(n_vals=frozenset({3, 0})), "n_val", "no n_val"),
        (_of(ring=Ring(owners=())), "n_val", "no partition"),
        (_of(ring=claimed(16, 64)), "ring", "are no members"),
    ],
    "one_zone_at_a_time": [(wanting(APART, zone_attribute="location", max_unavailable=2), "wave", "")],
    "budget_not_exceeded": [(wanting(_asked(), max_unavailable=0), "", "")],
    "selected_hosts_ready": [(hosting(_asked(), TWO, service=ServiceState.STOPPED), f"host of {TWO}", "")],
    "no_management_run_on_candidates": [
        (hosting(_asked(), TWO, at_work=("chef-client (process 812)",)), f"host of {TWO}", "chef-client"),
    ],
    "gates_open": [
        (seeing(wanting(_asked(), gates=(QUEUE,)), gates={QUEUE.name: SHUT}), QUEUE.name, "640 messages"),
    ],
}
# fmt: on
_QUORUM_TOO: Final = {"preference_lists_keep_quorum"}
ALSO: Final = {"one_zone_at_a_time": _QUORUM_TOO, "waiting_partitions_go_alone": _QUORUM_TOO}
"""Two nodes of a ring of five share a list."""
OF_THE_RING: Final = {
    "ring_ready",
    "no_pending_ownership_change",
    "all_members_up",
    "no_transfers",
    "preference_lists_keep_quorum",
}


def test_a_healthy_cluster_may_lose_any_one_node() -> None:
    assert [name for name in SIGNS if _refusing(_of((name,)))] == []


def test_only_this_rule_stands_in_the_way(subtests: pytest.Subtests) -> None:
    """Delete the rule, or its part, and nothing is in the way."""
    assert set(ALONE) == {rule.name for rule in PREDICATES}
    rows = ((rule, *row) for rule, each in ALONE.items() for row in each)
    for rule, asked, subject, evidence in rows:
        with subtests.test(rule, subject=subject, evidence=evidence):
            found = _refusing(asked)
            assert set(found) == {rule} | ALSO.get(rule, set())
            assert {hold.predicate for hold in holds(PREDICATES, asked)} == set(found)
            assert [said for about, said in found[rule] if about == (subject or about) and evidence in said]


def test_what_is_not_read_is_refused_with_its_reason(subtests: pytest.Subtests) -> None:
    for unread, rules in [
        ("cluster", OF_THE_RING - {"no_transfers"}),
        ("ring_ready", {"ring_ready"}),
        ("transfers", {"no_transfers"}),
        ("ring", {"preference_lists_keep_quorum"}),
        ("n_vals", {"preference_lists_keep_quorum"}),
        ("waiting", set()),  # it counts for a wave of several nodes
    ]:
        with subtests.test(unread):
            found = _refusing(_of(**{unread: WHY}))
            assert set(found) == rules
            assert all(any(WHY.reason in said for _, said in each) for each in found.values())
    assert set(_refusing(viewing(_asked(), riak=RiakView()))) == OF_THE_RING
    for asked, why in (
        (seeing(_asked(), cluster=WHY), WHY.reason),
        (viewing(_asked(), riak=None), "the ring was not read"),
    ):
        said = _refusing(asked)
        assert {rule for rule in OF_THE_RING if said[rule] == [("cluster", why)]} == OF_THE_RING


def test_the_rules_and_what_may_be_done_about_each() -> None:
    def those(of: Callable[..., bool]) -> list[str]:
        return [rule.name for rule in PREDICATES if of(rule)]

    assert [rule.name for rule in PREDICATES] == list(ALONE), "in this order"
    fixed = those(lambda rule: not rule.may_be_disabled)
    assert fixed == ["observation_is_fresh", "cluster_is_the_one_named", "lease_is_held"]
    # Nobody waits for what only an operator can correct; a wave that is too large becomes smaller.
    assert those(lambda rule: not rule.passes_with_time) == [
        "cluster_is_the_one_named",
        "settings_are_writable",
        "preference_lists_keep_quorum",
    ]
    assert those(lambda rule: rule.lasting) == ["selected_hosts_ready"]
    assert those(lambda rule: rule.about_wave) == [
        "lives_are_told",
        "waiting_partitions_go_alone",
        "preference_lists_keep_quorum",
        "one_zone_at_a_time",
        "budget_not_exceeded",
        "selected_hosts_ready",
        "no_management_run_on_candidates",
    ]


# What waits for handoff ------------------------------------

LIMIT: Final = f"transfer_limit.{TWO}"
IN_VAIN: Final = ActiveTransfer(kind="hinted", vnode="riak_kv_vnode", index=0, source=TWO, target=ONE)
BOTH: Final = PartitionCount(node=TWO, partitions=2)


def _both(**fields: Any) -> dict[str, Any]:
    """By both nodes that are asked, beside the partition that waits."""
    line = Transfers(**{"waiting": (PartitionCount(node=TWO, partitions=1),), **fields})
    return {"transfers": {ONE: line, TWO: line}}


def _limited(limit: str) -> Question:
    asked = still()
    settings = asked.observation.settings
    assert not isinstance(settings, Unknown)
    return seeing(asked, settings=replace(settings, transient={**settings.transient, LIMIT: limit}))


def test_what_waits_holds_until_it_has_not_changed_for_15_min(subtests: pytest.Subtests) -> None:
    """The last column is what the hold says; empty where it does not hold."""
    no_longer = "after 15 min without a change the run no longer waits for them"
    for what, asked, said in [
        ("15 min", still(), ""),
        ("less", still(seconds=899.0), no_longer),
        ("of 2.0.5, with a transfer that fails", still(**_both(active=(IN_VAIN,))), "(hinted)"),
        ("one that moves data", still(**_both(active=(replace(IN_VAIN, percent=1),))), "(hinted)"),
        ("a node is down", still(**_both(down=(FIVE,))), f"{FIVE} is down"),
        ("vnodes do not run", still(**_both(not_running=COUNT)), "does not run 1"),
        ("another partition", still(waiting={TWO: frozenset({5})}), no_longer),
        ("one more", still(**_both(waiting=(BOTH,)), waiting={TWO: frozenset({0, 5})}), no_longer),
        ("a node more", still(**_both(waiting=(*COUNT, BOTH)), waiting={TWO: frozenset({0, 5})}), "waiting"),
        ("the numbers differ", still(**_both(waiting=(BOTH,))), "has 2 partitions waiting"),
        ("which ones is unknown", still(waiting=WHY), "has 1 partitions waiting"),
        ("one of two nodes says so", still(transfers=_transfers(waiting=COUNT)), "has 1 partitions waiting"),
        ("a limit of 0", _limited("0"), f"the transfer limit of {TWO} is 0; set one with `riak admin"),
        ("a limit", _limited("1"), ""),
    ]:
        with subtests.test(what):
            found = [evidence for _, evidence in _refusing(asked).get("no_transfers", [])]
            assert bool(found) is bool(said)
            assert all(said in each for each in found)


def test_a_holder_goes_alone_though_no_transfers_is_disabled(subtests: pytest.Subtests) -> None:
    """As is advised where a transfer moves data and fails later: each predicate judges by itself."""
    moving = _both(active=(replace(IN_VAIN, percent=1),))
    for wave, seconds, parts, alone in [
        ((TWO, FOUR), 900.0, {}, True),
        ((TWO, FOUR), 1.0, {}, True),
        ((TWO, FOUR), 900.0, moving, True),
        ((THREE, FOUR), 1.0, {}, False),
        ((TWO,), 1.0, moving, False),
        ((TWO, FOUR), 1.0, {"waiting": {}}, False),
    ]:
        with subtests.test(wave=wave, seconds=seconds, **parts):
            said = _refusing(wanting(still(wave, seconds, **parts), max_unavailable=2))
            assert ("waiting_partitions_go_alone" in said) is alone


def test_a_moment_of_data_that_moves_begins_the_time_again(subtests: pytest.Subtests) -> None:
    """A transfer that fails before it has moved anything does not: each waiting one is tried again."""
    for what, parts, begins in [
        ("as before", {}, False),
        ("not read", {"transfers": WHY}, False),
        ("partitions not read", {"waiting": WHY}, False),
        ("tried in vain", _both(active=(IN_VAIN,)), False),
        ("tried at 0 %", _both(active=(replace(IN_VAIN, percent=0),)), False),
        ("at 1 %", _both(active=(replace(IN_VAIN, percent=1),)), True),
        ("of another node", _both(active=(replace(IN_VAIN, source=FIVE),)), True),
        ("of a node that does not tell", _both(active=(replace(IN_VAIN, source=None),)), True),
        ("another partition", {"waiting": {TWO: frozenset({5})}}, True),
        ("none", {"transfers": {ONE: Transfers(), TWO: Transfers()}, "waiting": {}}, True),
        ("a node down", _both(down=(FIVE,)), True),
    ]:
        with subtests.test(what):
            asked = still(**parts)
            assert (news(asked.state, view_of(asked)) is not None) is begins
    assert news(still().state, replace(view_of(still()), riak=None)) is None


def test_the_time_begins_again_with_each_restart_of_its_nodes(subtests: pytest.Subtests) -> None:
    """Also for a new process of the program, which did not see what happened before it."""
    asked = still((THREE,))
    since = asked.state.handoff.since
    back = MembersMissed(missing=(), back=(ONE,))
    steps = ("pending", "stopping", "stopped", "starting", "rejoined")

    def restarted(name: NodeName) -> RunState:
        events = [PhaseEntered(node=name, from_=old, to=new) for old, new in pairwise(steps)]
        return evolved(asked.state, *events, at=since + 5.0)

    for what, state, begins in [
        ("its holder", restarted(TWO), True),
        ("its owner", restarted(ONE), True),
        ("another", restarted(THREE), False),
        ("its owner was away", evolved(asked.state, back, at=since + 5.0), True),
        ("resume", evolved(asked.state, RunResumed(operator="", host=""), at=since + 5.0), True),
        ("restore", evolved(asked.state, RestoreBegun(operator="", host=""), at=since + 5.0), True),
    ]:
        with subtests.test(what):
            assert state.handoff.since == since + 5.0 * begins
            assert state.handoff.still == asked.state.handoff.still
    slept = evolved(asked.state, StoodStill(nodes=(), seconds=500.0), at=since + 600.0)
    assert slept.process.clock.passed(slept.handoff.since, since + 600.0) == 100.0


def test_a_stop_records_what_its_recovery_does_not_wait_for(subtests: pytest.Subtests) -> None:
    asked = still()
    left = left_waiting(asked)
    assert left is not None
    assert (left.partitions, left.seconds) == (asked.state.handoff.still, 900.0)
    state = evolved(asked.state, left)
    assert left_waiting(replace(asked, state=state)) is None, "it is recorded once"
    assert f"1 on {TWO} for {ONE}" in shortfall(state)
    for what, parts, said in [
        ("the same", {}, ""),
        ("less", {"transfers": {ONE: Transfers(), TWO: Transfers()}, "waiting": {}}, ""),
        ("another one there", {"waiting": {TWO: frozenset({5})}}, "has 1 partitions waiting"),
        ("more", _both(waiting=(BOTH,)) | {"waiting": {TWO: frozenset({0, 5})}}, "has 2 partitions waiting"),
        ("elsewhere", _both(waiting=COUNT) | {"waiting": {FIVE: frozenset({0})}}, f"{FIVE} has 1 part"),
        ("not read", {"waiting": WHY}, "has 1 partitions waiting"),
        ("active", _both(active=(IN_VAIN,)), "(hinted)"),
    ]:
        with subtests.test(what):
            found = unsettled(state, view_of(still(**parts)))
            assert (found is not None) is bool(said)
            assert said in (found or "")
    none = still(transfers={ONE: Transfers(), TWO: Transfers()}, waiting={})
    gone = left_waiting(replace(none, state=state))
    assert gone is not None
    assert (gone.partitions, shortfall(evolved(state, gone))) == ((), "")
    assert left_waiting(still(waiting=WHY)) is None


def test_a_wave_has_handed_back_though_others_hold_what_waited() -> None:
    """`FallbacksHome`: only what is new since the stop counts."""
    left = left_waiting(still())
    assert left is not None
    state = state_with(evolved(still().state, left), wave=Wave(number=1, nodes=(FIVE,)))
    assert home(state, view_of(still()), 10.0) is not None
    assert home(replace(state, handoff=WaitingHandoff()), view_of(still()), 10.0) is None


# The quorum ------------------------------------

QUORUM: Final = "preference_lists_keep_quorum"


def _quorum_hold(asked: Question) -> Hold:
    (hold,) = holds([rule for rule in PREDICATES if rule.name == QUORUM], asked)
    return hold


def test_two_nodes_are_too_many_where_they_share_a_list() -> None:
    sixteen = names(16)
    parts = {**_cluster_of(sixteen), "ring": claimed(16, 64)}
    assert QUORUM not in _refusing(_of((sixteen[0], sixteen[8]), **parts))
    pair = _of(sixteen[:2], **parts)
    assert [subject for subject, _ in _refusing(pair)[QUORUM]] == [f"{sixteen[0]}, {sixteen[1]}"]
    assert _quorum_hold(pair).ways == (), "of a pair it is no word: the next order may do"
    # With the rule on members switched off, the quorum still knows who is away.
    down = _of((ONE,), cluster=_cluster(TWO, availability=Availability.DOWN))
    assert _refusing(down)[QUORUM][0][0] == f"{ONE}, {TWO}"


def test_a_node_that_cannot_be_spared_is_told_what_to_do_about() -> None:
    """Three nodes on a power of two: a node has two partitions of a list wherever the ring begins."""
    three = names(3)
    parts = {**_cluster_of(three), "ring": claimed(3, 16)}
    hold = _quorum_hold(_of(three[:1], **parts))
    assert (hold.subject, hold.ways) == (ONE, (f"--disable-predicate {QUORUM}={ONE}",))
    assert QUORUM not in _refusing(_of(three[1:2], **parts))
    # With n_val 1 or 2 each node takes a quorum with it. One that is down is to be started, not accepted.
    for n_val, cluster in (
        (1, _cluster()),
        (2, _cluster()),
        (1, _cluster(TWO, availability=Availability.DOWN)),
    ):
        alone = _quorum_hold(_of((ONE,), n_vals=frozenset({n_val}), cluster=cluster))
        assert alone.ways == (f"--disable-predicate {QUORUM}={ONE}",)
        assert (TWO in alone.subjects) is (cluster != _cluster())
    long = tuple(NodeName(f"riak@ip-10-200-100-{at}.eu-central-1.compute.internal") for at in range(3))
    ring = Ring(owners=tuple(long[at % 3] for at in range(16)))
    told = hold_sentence(_quorum_hold(_of(long[:1], **{**_cluster_of(long), "ring": ring})))
    assert told.endswith(f"{QUORUM}={long[0]}"), "the way is shown to its end with any names"


# Recorded ------------------------------------


def _recorded(state: str) -> Question:
    """What was recorded in a state; the ring is a good one, which the recorded one is not."""
    said = {each.command: value_of(each) for each in recorded() if each.state == state}
    asked = [NodeName("dev1@127.0.0.1"), NodeName("dev3@127.0.0.1")]
    return _of(
        (asked[0],),
        cluster=said.get("riak admin cluster status", WHY),
        ring_ready=said.get("riak admin ringready", WHY),
        transfers=dict.fromkeys(asked, said.get("riak admin transfers", Transfers())),
        signs={},
    )


def test_the_recorded_bad_moments_are_refused(subtests: pytest.Subtests) -> None:
    for state, name, evidence in [
        ("joining2", "no_pending_ownership_change", "owns 100.0 % of the ring and is to own 37.5 %"),
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
        with subtests.test(state=state, name=name):
            assert any(evidence in said for _, said in _refusing(_recorded(state))[name])
    # Why `ringready` alone is not asked: it may say ready where the claimant does not.
    ready = _riak(_recorded("joining2")).ring_ready
    assert isinstance(ready, RingReady)
    assert ready.agreed
