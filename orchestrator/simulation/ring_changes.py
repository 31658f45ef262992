"""Changes of a simulated ring during a run: partitions that move, members that join, stalls.

`ring-status` and `member-status` list a partition that will change its owner from the commit of the plan on.
`transfers` lists it only while it moves, which is rare: partitions move one at a time, when both owners are
up with all their vnodes. Until all nodes have received a change, the claimant reports the ring as not ready,
though all of them list the same owners.
"""

from __future__ import annotations

from typing import Final, assert_never

from orchestrator.engine.kinds.riak.quorum import breaches
from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import Ring
from orchestrator.simulation import riak_mishaps
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_mishaps import OfRiak
from orchestrator.simulation.riak_parts import SimMove

_HEARD_SECONDS: Final = 3.0
"""Time until all nodes have received a change of the ring."""
_MOVING_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 5.0


def befall(world: RiakWorld, what: OfRiak) -> None:
    """Trigger it now."""
    match what:
        case riak_mishaps.HandoffStalls(seconds=seconds):
            world.stall(seconds)
        case riak_mishaps.OwnershipMoves(to=to, partitions=count, seconds=seconds):
            _plan(world, to, count)
            world.agenda.after(seconds, lambda: _go_on(world))
        case riak_mishaps.MemberJoins(node=name, seconds=seconds):
            _join(world, name)
            world.agenda.after(seconds, lambda: _is_valid(world, name))
        case riak_mishaps.ClaimantMoves(to=to):
            world.master = to
            world.changed(f"{to} is the claimant")
        case riak_mishaps.ServiceNeverUp(node=name):
            world.vnodes[name].unseen = True
        case riak_mishaps.VnodesHalt(node=name, most=most):
            world.vnodes[name].most = min(most, len(world.vnodes[name].owned))
        case _:
            assert_never(what)


def _join(world: RiakWorld, name: NodeName) -> None:
    if name not in world.vnodes:
        world.add_member(name)
        world.joining.add(name)
        world.changed(f"{name} is joining")
        _unheard(world)


def _is_valid(world: RiakWorld, name: NodeName) -> None:
    if name in world.joining:
        world.joining.discard(name)
        world.changed(f"{name} has joined")
        _plan(world, name, world.ring.size // len(world.vnodes))
        _go_on(world)


def _plan(world: RiakWorld, to: NodeName, count: int) -> None:
    """Plan this many partitions for a member, so that no preference list ends with two of one node.

    Where its own partitions are too close, it gives away a neighbouring one in exchange, like a claim that
    spreads better.
    """
    for number in range(world.ring.size):
        if count > 0:
            count -= _give_or_swap(world, number, to)
    _unheard(world)


def _give_or_swap(world: RiakWorld, number: int, to: NodeName) -> bool:
    """Whether this partition could be planned for that member."""
    owners, taken = list(world.ring.owners), {move.partition for move in world.moves}
    for move in world.moves:
        owners[move.partition] = move.to
    owner = owners[number]
    if owner == to or number in taken:
        return False
    beside = [(number + step) % world.ring.size for step in (-1, 1)]
    swapped = [other for other in beside if owners[other] == to and other not in taken]
    for changes in ({number: to}, *({number: to, other: owner} for other in swapped)):
        planned = Ring(owners=tuple(changes.get(at, each) for at, each in enumerate(owners)))
        if not any(breaches(planned, world.n_vals, {name}) for name in (owner, to)):
            for at, name in changes.items():
                world.moves.append(SimMove(partition=at, to=name, since=world.agenda.now))
                world.changed(f"partition {at} is to go from {world.ring.owners[at]} to {name}")
            return True
    return False


def _unheard(world: RiakWorld) -> None:
    world.unheard_until = world.agenda.now + _HEARD_SECONDS
    world.agenda.after(_HEARD_SECONDS, lambda: world.changed("the ring is heard of"))


def _go_on(world: RiakWorld) -> None:
    """Begin to move the first remaining partition, as soon as both of its owners can take part."""
    if not world.moves or any(move.active for move in world.moves):
        return
    move = world.moves[0]
    sides = (world.ring.owners[move.partition], move.to)
    busy = any(each.partition == move.partition for each in world.fallbacks)
    if busy or world.stalled or not all(world.serves(name) for name in sides):
        world.agenda.after(_AGAIN_SECONDS, lambda: _go_on(world))
        return
    move.active = True
    world.version += 1
    lives = tuple(world.nodes[name].life for name in sides)
    world.agenda.after(_MOVING_SECONDS, lambda: _moved(world, move, lives))


def _moved(world: RiakWorld, move: SimMove, lives: tuple[int, ...]) -> None:
    move.active = False
    sides = (world.ring.owners[move.partition], move.to)
    same = lives == tuple(world.nodes[name].life for name in sides)
    if same and all(world.serves(name) for name in sides):
        world.moves.remove(move)
        world.give(move.partition, move.to)
        world.changed(f"partition {move.partition} has gone from {sides[0]} to {sides[1]}")
        _unheard(world)
        _go_on(world)
    else:
        world.agenda.after(_AGAIN_SECONDS, lambda: _go_on(world))
