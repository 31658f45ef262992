"""A simulated Riak cluster that starts as a real one was read: its ring, members, limits and hand-offs.

The limit in a node's memory is also used as the limit of its files, because `/stats` and the commands report
no other.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Observation, ServiceState
from orchestrator.model.policy import Policy, Strategy
from orchestrator.model.riak import Membership, RiakView, limit_key
from orchestrator.simulation.required import require
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_parts import SimMove

_THIRD: Final = 3


def mirrored_riak(view: ClusterView, seen: Observation, policy: Policy, seed: int) -> RiakWorld:
    """Build the Riak cluster of this reading.

    Raises:
        UsageError: the limits, the ring, the members or the transfers could not be read.
    """
    settings = require(seen.settings, "the transfer limits")
    riak = view.riak
    if riak is None:
        raise UsageError("cannot be rehearsed: this is no reading of a Riak cluster")
    ring, n_vals = require(riak.ring, "the ring"), require(riak.n_vals, "the n_val of bucket types")
    world = RiakWorld(ring, n_vals=n_vals, seed=seed, name=view.name)
    world.agenda.now = seen.at
    world.rolling = policy.hasten_handoff
    up = {node.name: node for node in view.nodes}
    for member in require(riak.cluster, "the members").members:
        if member.node not in world.vnodes:
            world.add_member(member.node)
        if member.membership is Membership.JOINING:
            world.joining.add(member.node)
        world.nodes[member.node].zone = member.location
        if member.node in up:
            world.nodes[member.node].version = up[member.node].version
        else:
            _is_down(world, member.node)
    world.master = view.master or world.master
    for name in up:
        limit = settings.transient.get(limit_key(name))
        if isinstance(limit, str) and limit.isdecimal():
            world.configure(name, configured=int(limit), limit=int(limit))
    world.allowed_down = _allowed_down(world, policy)
    _hand_offs(world, riak)
    _moves(world, riak)
    return world


def _allowed_down(world: RiakWorld, policy: Policy) -> int:
    """The nodes of the largest location; with the largest sets and without locations a third of all."""
    if policy.strategy is Strategy.NODE:
        return 1
    locations = [node.zone for node in world.nodes.values()]
    largest = max((locations.count(each) for each in locations if each is not None), default=1)
    if policy.zone_attribute is None:
        return policy.max_unavailable or max(1, len(locations) // _THIRD)
    return min(policy.max_unavailable or largest, largest)


def _is_down(world: RiakWorld, name: NodeName) -> None:
    node = world.nodes[name]
    node.process, node.member_life, node.service = False, None, ServiceState.STOPPED
    world.vnodes[name].running = 0


def _hand_offs(world: RiakWorld, riak: RiakView) -> None:
    """Add the waiting hand-offs. Whether they would ever go is not known, so they go once idle."""
    for name, numbers in require(riak.waiting, "the partitions that wait for handoff").items():
        for number in sorted(numbers):
            world.fall_back(number, name)
    for fallback in world.fallbacks:
        world.idle(fallback)


def _moves(world: RiakWorld, riak: RiakView) -> None:
    """Add partitions that will change their owner: as many as the shares say, at least an exchange.

    Which ones is not read, and their time is not known, so they keep waiting.
    """
    members = require(riak.cluster, "the members").members
    pending = {
        each.node: each.pending_share - each.ring_share for each in members if each.pending_share is not None
    }
    gains = {name: round(share * world.ring.size / 100) for name, share in pending.items()}
    takers = [name for name, count in gains.items() for _ in range(count)]
    for number, owner in enumerate(world.ring.owners):
        if takers and gains.get(owner, 0) < 0:
            gains[owner] += 1
            world.moves.append(SimMove(partition=number, to=takers.pop(), since=world.agenda.now))
    if pending and not world.moves:  # an exchange, which changes no share
        owners = world.ring.owners
        two = [owners.index(name) for name in dict.fromkeys(owners)][:2]
        for number, other in zip(two, reversed(two), strict=True):
            world.moves.append(SimMove(partition=number, to=owners[other], since=world.agenda.now))
