"""The cluster as it will be when a dead run is restored: nothing that it did not cause is gone there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.restored import Journalled, as_restored
from orchestrator.engine.state import NOT_BEGUN
from orchestrator.engine.upgrade import version_after
from orchestrator.kinds import kind_of
from orchestrator.model.cluster import CopyState, Health, Incarnation, NodeName, ShardId
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import ClusterView, HealthView, MissingCopy, Observation
from orchestrator.model.phase import Installing, Owed, Work
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.upgrade import Upgrade
from tests.simulation.play import cluster
from tests.unit.engine.asking import ES2, observed

LEFT = LeaseRecord(
    epoch=1,
    run="run-1",
    owner="ann@bastion",
    process="boot/1/2/3",
    started="2026-11-02",
    in_hand=(NodeInHand(node=ES2, incarnation=Incarnation()),),
)
BEFORE = observed(cluster(3))


def _view(seen: Observation) -> ClusterView:
    assert isinstance(seen.cluster, ClusterView)
    return seen.cluster


def _left(*, bare: bool = False) -> Observation:
    """The cluster while es2 is down; where `bare`, shards that were on it have no other copy."""
    view = _view(BEFORE)
    copies = tuple(
        copy._replace(state=CopyState.UNASSIGNED, node=None, unassigned_reason="NODE_LEFT")
        if copy.node == ES2
        else copy
        for copy in view.copies
        if not bare or copy.node == ES2 or not any(one.node == ES2 for one in view.shards[copy.shard])
    )
    nodes = tuple(node for node in view.nodes if node.name != ES2)
    return replace(BEFORE, cluster=replace(view, nodes=nodes, copies=copies))


def _restored(seen: Observation, journal: Journalled, left: LeaseRecord = LEFT) -> Observation:
    return as_restored(kind_of(Kind.ELASTICSEARCH), seen, left, journal)


def _status(seen: Observation) -> Health:
    assert isinstance(seen.health, HealthView)
    return seen.health.status


def _lost(seen: Observation) -> list[ShardId]:
    return sorted({copy.shard for copy in _view(seen).not_started})


def _keys(shards: list[ShardId]) -> frozenset[tuple[str, int]]:
    return frozenset((shard.index_uuid, shard.number) for shard in shards)


def test_what_was_lost_without_the_run_stays_lost() -> None:
    """A node of nobody's run is gone too, with the only copies of some shards."""
    seen = _left(bare=True)
    lost = _lost(seen)
    assert len(lost) > 1
    ours, theirs = lost[:1], lost[1:]
    after = _restored(seen, Journalled(taken=_keys(ours)))
    assert (_lost(after), _status(after)) == (theirs, Health.RED)
    after = _restored(seen, Journalled(taken=_keys(lost)))
    assert (_lost(after), _status(after)) == ([], Health.GREEN)
    assert _status(_restored(seen, Journalled())) is Health.GREEN, "nothing else is known"


def test_what_was_missing_before_the_run_is_missing_after_it() -> None:
    seen = _left()
    first, *_ = lost = _lost(seen)
    named = MissingCopy(
        index=first.index, index_uuid=first.index_uuid, number=first.number, primary=False, reason="-"
    )
    after = _restored(seen, Journalled(taken=_keys(lost), missing=(named,)))
    assert (_lost(after), _status(after)) == ([first], Health.YELLOW)


@pytest.mark.parametrize("changed_since", [False, True])
def test_replicas_that_the_run_added_are_gone(*, changed_since: bool) -> None:
    """Without them, `zero_replica_indices` holds the next run, unless its playbook accepts the index."""
    index = _view(BEFORE).indices[0]
    wanted = index.replicas + changed_since
    added = ReplicasAdded(index=index.name, index_uuid=index.uuid, found=0, wanted=wanted)
    after = _view(_restored(_left(), Journalled(), replace(LEFT, replicas=(added,))))
    assert after.metadata[index.uuid].replicas == (index.replicas if changed_since else 0)
    copies = [copy for copy in after.copies if copy.shard.index_uuid == index.uuid]
    assert all(copy.primary for copy in copies) is not changed_since


def test_a_node_comes_back_with_the_version_that_is_installed() -> None:
    """A cluster in an upgrade has two versions, and a new run has to know which one this node has."""
    policy = Policy(kind=Kind.ELASTICSEARCH, cluster="lab", upgrade=Upgrade(target="9.1.0", install=()))
    begun = replace(NOT_BEGUN, version="8.19.0", policy=policy)
    done = NodeProgress(name=ES2, installs=1)
    assert version_after(begun, done) == "9.1.0"
    for other in (
        replace(done, installs=0),
        replace(done, owed=frozenset({Owed(work=Work.INSTALL)})),
        replace(done, install=Installing(number=0, ticket="t", since=0.0)),
    ):
        assert version_after(begun, other) == "8.19.0", other
    restart = replace(begun, policy=replace(policy, upgrade=None))
    assert version_after(restart, done) == "8.19.0"
    for versions, version in (({ES2: "9.1.0"}, "9.1.0"), ({}, _view(BEFORE).version)):
        after = _view(_restored(_left(), Journalled(versions=versions)))
        assert after.members[NodeName("es2")].version == version
