"""When a Riak node is back and when the wave is over: each reason for which it is not, alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.kinds.riak.optimism import at_rest
from orchestrator.engine.kinds.riak.recovery import baseline_of, not_back, unsettled
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.model.riak import (
    ActiveTransfer,
    NodeStats,
    PartitionCount,
    RiakView,
    RingReady,
    ServiceWait,
    SignsOfLife,
    Transfers,
)
from orchestrator.simulation import views
from tests.simulation.ringed import FIVE, ONE, THREE, TWO, ringed

RUN = RunState(run="run-1")

SILENT = Unknown(reason="riak3 did not answer within 10 s")
Change = Callable[[RiakView], RiakView]


def _seen() -> ClusterView:
    """All well, and a peer was asked after `TWO`."""
    world = ringed()
    world.asked_after = frozenset({TWO})
    read = views.readings(world, {Look.CLUSTER, Look.HEALTH, Look.RECOVERIES}).cluster
    assert isinstance(read, ClusterView)
    return read


SEEN = _seen()
NODES = tuple(SEEN.members)
assert SEEN.riak is not None
RIAK: RiakView = SEEN.riak


def _with(change: Change) -> ClusterView:
    return replace(SEEN, riak=change(RIAK))


def _stats(name: NodeName) -> NodeStats:
    stats = RIAK.signs[name].stats
    assert isinstance(stats, NodeStats)
    return stats


def _signs(name: NodeName, **changed: object) -> Change:
    signs: SignsOfLife = replace(RIAK.signs[name], **changed)
    return lambda riak: replace(riak, signs={**riak.signs, name: signs})


def _counting(name: NodeName, **changed: object) -> Change:
    stats: NodeStats = replace(_stats(name), **changed)
    return _signs(name, stats=stats)


def _ring_ready(said: Reading[RingReady]) -> Change:
    return lambda riak: replace(riak, ring_ready=said)


def test_a_node_of_which_all_is_well_is_back() -> None:
    assert not_back(SEEN, TWO) is None


def test_a_plan_counts_a_node_as_back_whose_stats_were_not_read() -> None:
    unread = at_rest(_with(_signs(TWO, ping=SILENT, stats=SILENT)))
    assert not_back(replace(SEEN, riak=unread), TWO) is None


DOWN = ServiceWait(service="riak_kv", up=False, last="riak_kv is not up: []")
LACKS: dict[str, tuple[Change, str]] = {
    "ping unread": (_signs(TWO, ping=SILENT), f"/ping: {SILENT.reason}"),
    "no ping": (_signs(TWO, ping=False), "/ping: no answer"),
    "service unread": (_signs(TWO, service=NOT_READ), "riak_kv, asked of a peer: "),
    "no service": (
        _signs(TWO, service=DOWN),
        "riak_kv is not up, asked of a peer: riak_kv is not up: []",
    ),
    "ring unread": (_ring_ready(SILENT), f"ringready: {SILENT.reason}"),
    "a node is down": (
        _ring_ready(RingReady(agreed=False, down=(FIVE,))),
        f"ringready: {FIVE} do not agree on the ring",
    ),
    "rings differ": (
        _ring_ready(RingReady(agreed=False, differing=(ONE, TWO))),
        f"ringready: {ONE}, {TWO} do not agree on the ring",
    ),
    "one left out": (
        _ring_ready(RingReady(agreed=True, nodes=tuple(name for name in NODES if name != FIVE))),
        f"ringready: {FIVE} did not answer",
    ),
    "a peer unread": (
        _signs(FIVE, stats=SILENT),
        f"whether {FIVE} is connected to it is unknown: {SILENT.reason}",
    ),
    "a peer apart": (
        _counting(FIVE, connected=frozenset({ONE, THREE})),
        f"{FIVE} is not connected to it",
    ),
    "vnodes uncounted": (_signs(TWO, stats=SILENT), f"its vnodes cannot be counted: {SILENT.reason}"),
    "a vnode short": (_counting(TWO, kv_vnodes=12), "12 of its 13 vnodes run"),
    "no vnode": (_counting(TWO, kv_vnodes=0), "0 of its 13 vnodes run"),
    "a ring without it": (
        _counting(TWO, ownership={ONE: 64}, kv_vnodes=0),
        "its own ring gives it no partitions, and that of the cluster does",
    ),
}


def test_each_sign_that_is_missing_alone_says_so(subtests: pytest.Subtests) -> None:
    for what, (change, said) in LACKS.items():
        with subtests.test(what=what):
            view = replace(SEEN, riak=change(RIAK))
            found = not_back(view, TWO)
            assert found is not None
            assert found.startswith(said)


def test_a_vnode_for_each_partition_is_enough_beside_fallbacks() -> None:
    owned = _stats(TWO).ownership[TWO]
    assert owned == 13
    assert not_back(_with(_counting(TWO, kv_vnodes=owned + 7)), TWO) is None


def _owning_nothing(name: NodeName) -> Change:
    """By the ring of the cluster, and by its own."""
    cluster = RIAK.cluster
    assert not isinstance(cluster, Unknown)
    members = tuple(replace(each, ring_share=0.0) if each.node == name else each for each in cluster.members)
    without = _counting(name, ownership={ONE: 64}, kv_vnodes=0)
    return lambda riak: without(replace(riak, cluster=replace(cluster, members=members)))


def test_a_node_that_owns_nothing_is_back_without_a_vnode() -> None:
    """Such as one that has left its partitions to others, or has not been given any yet."""
    assert not_back(_with(_owning_nothing(TWO)), TWO) is None


def test_an_unread_member_list_is_not_asked_who_owns_what() -> None:
    assert not_back(_with(lambda riak: replace(riak, cluster=SILENT)), TWO) is None
    alone = _counting(TWO, kv_vnodes=12)
    short = not_back(_with(lambda riak: alone(replace(riak, cluster=SILENT))), TWO)
    assert short == "12 of its 13 vnodes run"


def test_what_its_peers_lack_is_not_held_against_it() -> None:
    assert not_back(_with(_counting(FIVE, kv_vnodes=3)), TWO) is None
    assert not_back(_with(_signs(FIVE, ping=False, service=DOWN)), TWO) is None


def test_a_node_of_which_nothing_was_read_is_not_back() -> None:
    assert not_back(replace(SEEN, riak=None), TWO) == "the ring was not read"
    signs = {name: sign for name, sign in RIAK.signs.items() if name != TWO}
    assert (not_back(_with(lambda riak: replace(riak, signs=signs)), TWO) or "").startswith("/ping: ")


# The end of a wave -----------------------------------------------------------------------------------


def _transfers(said: Reading[Transfers]) -> Change:
    return lambda riak: replace(riak, transfers={ONE: Transfers(), TWO: said})


MOVING = ActiveTransfer(kind="hinted", vnode="riak_kv_vnode", index=0, source=ONE, target=TWO)
BUSY: dict[str, tuple[Transfers | Unknown, str]] = {
    "a node down": (Transfers(down=(FIVE,)), f"{FIVE} is down"),
    "waiting": (
        Transfers(waiting=(PartitionCount(node=TWO, partitions=3),)),
        f"{TWO} has 3 partitions waiting to be handed off",
    ),
    "not running": (
        Transfers(not_running=(PartitionCount(node=TWO, partitions=2),)),
        f"{TWO} does not run 2 of its primary partitions",
    ),
    "moving": (Transfers(active=(MOVING,)), f"a transfer (hinted) to {TWO} is active"),
    "not contacted": (Transfers(uncontacted=(FIVE,)), f"{FIVE} could not be contacted"),
    "not shown": (SILENT, SILENT.reason),
}


def test_a_wave_is_over_when_two_nodes_call_the_transfers_clean() -> None:
    assert unsettled(RUN, SEEN) is None


def test_each_transfer_alone_keeps_the_wave(subtests: pytest.Subtests) -> None:
    for what, (said, told) in BUSY.items():
        with subtests.test(what=what):
            assert unsettled(RUN, _with(_transfers(said))) == f"transfers by {TWO}: {told}"


def test_one_node_that_calls_them_clean_is_not_enough() -> None:
    alone = _with(lambda riak: replace(riak, transfers={ONE: Transfers()}))
    assert unsettled(RUN, alone) == "transfers: 1 nodes were asked instead of 2"


def test_transfers_that_were_not_read_keep_the_wave() -> None:
    assert unsettled(RUN, replace(SEEN, riak=None)) == "the transfers were not read"
    assert (
        unsettled(RUN, _with(lambda riak: replace(riak, transfers=SILENT))) == f"transfers: {SILENT.reason}"
    )


def test_the_baseline_is_who_is_up_and_in_which_life() -> None:
    baseline = baseline_of(SEEN, {ONE: "boot-1"})
    assert baseline.missing == ()
    assert baseline.boots == {ONE: "boot-1"}
    assert baseline.incarnations == {node.name: node.incarnation for node in SEEN.nodes}
