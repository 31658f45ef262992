"""Simulated Riak clusters, and the policy of a run on them as its playbook has it."""

from __future__ import annotations

from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ServiceState
from orchestrator.model.policy import (
    Kind,
    LeasePlace,
    Policy,
    RecoveryLimits,
    Strategy,
)
from orchestrator.simulation.riak import RiakWorld
from tests.fakes.riak_rings import claimed, names

ONE, TWO, THREE, FOUR, FIVE = names(5)
WEEKS: Final = 3 * 7 * 86400.0
RAISED: Final = 8
"""The transfer limit of a run."""

ABOUT_ABSENCE: Final = (
    "all_members_up",
    "ring_ready",
    "no_transfers",
    "expected_nodes_present",
    "budget_not_exceeded",
    "preference_lists_keep_quorum",
)
"""Rules each of which knows of a member that is away."""

_ALONE: Final = RecoveryLimits(
    node_initial_primaries_recoveries=None,
    node_concurrent_recoveries=None,
    max_bytes_per_sec=None,
    concurrent_streams=None,
)


def riak_policy(**changes: object) -> Policy:
    """A rolling restart of Riak."""
    return Policy(
        **{
            "kind": Kind.RIAK,
            "cluster": "prod",
            "playbook": "riak-rolling-restart",
            "lease": LeasePlace.STATE,
            "recovery_limits": _ALONE,
            "flush": False,
            "rebalance_while_running": None,
            "transfer_limit": RAISED,
            "zone_attribute": "location",
            **changes,
        }
    )


def by_location(**changes: object) -> Policy:
    """A whole location at a time, as far as the ring bears it."""
    return riak_policy(strategy=Strategy.ZONE, max_unavailable=None, **changes)


def ringed(nodes: int = 5, size: int = 64) -> RiakWorld:
    """All well; one node has a limit that was set by hand, and one such a limit above that of the run."""
    world = RiakWorld(claimed(nodes, size))
    world.configure(TWO, configured=2, limit=4)
    world.configure(THREE, configured=3, limit=16)
    return world


def located(*together: tuple[NodeName, ...], nodes: int = 8, size: int = 64) -> RiakWorld:
    """These nodes share a location each; every other one is in one of its own."""
    world = ringed(nodes, size)
    for node in world.nodes.values():
        node.zone = f"rack-{node.name}"
    for number, group in enumerate(together):
        for name in group:
            world.nodes[name].zone = f"shared-{number}"
    world.allowed_down = max(len(group) for group in together)
    return world


def by_sets(**changes: object) -> Policy:
    """The largest sets of nodes that can be down together, on a ring without locations."""
    return riak_policy(
        **{
            "strategy": Strategy.SHARD_SAFE,
            "max_unavailable": None,
            "zone_attribute": None,
            **changes,
        }
    )


def unlocated(nodes: int = 8, size: int = 64) -> RiakWorld:
    """No node has a location; a third of them may be down at once."""
    world = ringed(nodes, size)
    world.across_zones, world.allowed_down = True, max(1, nodes // 3)
    return world


def down(world: RiakWorld, name: str) -> RiakWorld:
    """The same, with that node stopped and its partitions at fallbacks."""
    node = next(node for node in world.nodes.values() if node.name == name)
    node.process, node.member_life, node.service = False, None, ServiceState.STOPPED
    world.vnodes[node.name].running = 0
    for number, owner in enumerate(world.ring.owners):
        if owner == name:
            world.fall_back(number, ONE if name != ONE else TWO)
    return world


def stuck(*holders: NodeName, cured_by: frozenset[NodeName] = frozenset(), nodes: int = 5) -> RiakWorld:
    """Each of these holds three partitions of others, for weeks already: their handoff always fails."""
    world = unlocated(nodes)
    others = [number for number, owner in enumerate(world.ring.owners) if owner not in holders]
    for at, holder in enumerate(holders):
        for number in others[3 * at : 3 * at + 3]:
            world.stick(number, holder, cured_by)
            world.fallbacks[-1].since -= WEEKS
    return world


def rolling(nodes: int = 5, size: int = 64) -> RiakWorld:
    """Its vnode managers start what others own in steps, as Riak's do."""
    world = ringed(nodes, size)
    world.rolling = True
    return world
