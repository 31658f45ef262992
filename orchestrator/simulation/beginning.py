"""The beginning of a run on a simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from orchestrator.engine.upgrade import to_upgrade
from orchestrator.engine.waves import selected
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.event import RunStarted
from orchestrator.model.policy import Policy
from orchestrator.simulation import allocation, bulk, gates, views
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.world import World


def note_what_is(world: World, policy: Policy, *, repairs: bool = False) -> None:
    """Excuse everything that the run finds: it waits for no copy that was not started before it.

    One that `repairs` what another run left still waits for what is built at that moment.
    """
    away = (copy.shard for _, shard in shards_of(world) for copy in shard.copies if not copy.serves)
    world.missing_before, world.unassigned_before, world.had = Counter(away), Counter(), {}
    world.replicas_before = {index.uuid: index.replicas for index in world.indices.values()}
    note_unassigned(world)
    for _, shard in shards_of(world):
        if not repairs or not any(copy.state is CopyState.INITIALIZING for copy in shard.copies):
            allocation.found_again(world, shard)
    world.away_before = {node.name for node in world.nodes.values() if not node.joined}
    gates.add_gates(world, policy.gates)
    for gate in world.gates.values():
        gate.known = {}
    world.forced.policy = policy.merge
    world.hooks, world.exempt_returning = policy.hooks, policy.accept_not_returning
    world.steps = len(policy.upgrade.install) if policy.upgrade else 0


def note_unassigned(world: World) -> None:
    """The run notes its baseline, a reading after it began: copies may have been lost between the two."""
    copies = (copy for _, shard in world.placement.waiting for copy in shard.copies)
    world.unassigned_before |= Counter(c.shard for c in copies if c.state is CopyState.UNASSIGNED)


def do_without(world: World, nodes: Collection[NodeName]) -> None:
    """People do without these nodes: the program no longer has to start those that are down."""
    down = [node for node in world.nodes.values() if node.name in nodes and not node.process]
    world.away_before |= {node.name for node in down}
    for node in down:
        node.stopped_by_us = False


def start_of(
    world: World, policy: Policy, planned: tuple[tuple[NodeName, ...], ...], *, operator: tuple[str, str]
) -> RunStarted:
    """Build the start event of a run over the nodes that the policy selects. No time passes.

    Args:
        world: the cluster.
        policy: the policy of the run.
        planned: its waves; empty without a plan.
        operator: who runs it, and on which host.
    """
    view = views.cluster(world)
    nodes = to_upgrade(policy, selected(view, policy.selection, policy.zone_attribute))
    return RunStarted(
        cluster=world.name,
        cluster_uuid=world.uuid,
        version=view.version,
        distribution=view.distribution,
        policy=policy,
        nodes=tuple(node.name for node in nodes),
        operator=operator[0],
        host=operator[1],
        addresses={node.name: node.address for node in nodes},
        planned=planned,
        indices=bulk.targets(world, policy.merge) if policy.merge else (),
    )
