"""Mishaps of Riak clusters only: partitions that move, members that join, stalls.

`cluster status` has the share of a partition that will change its owner from the commit of the plan on.
`transfers` lists it only while it moves, which is rare: partitions move one at a time, when both owners are
up with all their vnodes. Until all nodes have received a change, the claimant reports the ring as not ready,
though all of them list the same owners.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds
from orchestrator.model.riak import Ring
from orchestrator.riak.rules.quorum import breaches
from orchestrator.simulation.mishaps import What
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_parts import SimMove

if TYPE_CHECKING:
    from orchestrator.simulation.fate import Fate

_HEARD_SECONDS: Final = 3.0
"""Time until all nodes have received a change of the ring."""
_MOVING_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 5.0


class OfRiak(What):
    """What befalls a ring; nothing, where the cluster is no ring."""

    __slots__ = ()

    def befall(self, fate: Fate) -> None:
        """Do it now."""
        if isinstance(fate.world, RiakWorld):
            self.on_ring(fate.world)

    @abstractmethod
    def on_ring(self, world: RiakWorld) -> None:
        """Do it to this ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffStalls(OfRiak):
    """For a while no hand-off begins, and running ones do not end."""

    seconds: Seconds

    def on_ring(self, world: RiakWorld) -> None:
        world.stall(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffSticks(OfRiak):
    """A node holds partitions of others, for weeks already: each of their handoffs fails."""

    holder: NodeName  # the node; of its neighbours on the ring
    partitions: int
    # whether a restart of the holder ends that; `owner_cures`: one of the owner. If neither does, people have
    # to.
    holder_cures: bool = False
    owner_cures: bool = False

    def on_ring(self, world: RiakWorld) -> None:
        taken = {each.partition for each in world.fallbacks}
        others = [n for n, owner in enumerate(world.ring.owners) if owner != self.holder and n not in taken]
        for number in others[: self.partitions]:
            cures = {self.holder: self.holder_cures, world.ring.owners[number]: self.owner_cures}
            world.stick(number, self.holder, frozenset(name for name, cured in cures.items() if cured))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipMoves(OfRiak):
    """A person commits a plan that gives a member this many more partitions."""

    to: NodeName  # the member that gets them
    partitions: int
    seconds: Seconds  # time until the first one has moved, if both of its owners are up by then

    def on_ring(self, world: RiakWorld) -> None:
        _plan(world, self.to, self.partitions)
        world.agenda.after(self.seconds, lambda: _move_next(world))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoins(OfRiak):
    """A new node joins. After a while it is a valid member, and its share of the ring moves to it."""

    node: NodeName
    seconds: Seconds

    def on_ring(self, world: RiakWorld) -> None:
        _join(world, self.node)
        world.agenda.after(self.seconds, lambda: _is_valid(world, self.node))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimantMoves(OfRiak):
    """Another member becomes the claimant."""

    to: NodeName

    def on_ring(self, world: RiakWorld) -> None:
        world.master = self.to
        world.changed(f"{self.to} is the claimant")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNeverUp(OfRiak):
    """From its next start on, a node's peers never see its `riak_kv`, even if the node reports it."""

    node: NodeName

    def on_ring(self, world: RiakWorld) -> None:
        world.vnodes[self.node].unseen = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VnodesHalt(OfRiak):
    """From its next start on, a node never runs more than this many of its vnodes."""

    node: NodeName
    most: int

    def on_ring(self, world: RiakWorld) -> None:
        vnodes = world.vnodes[self.node]
        vnodes.most = min(self.most, len(vnodes.owned))


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
        _move_next(world)


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


def _move_next(world: RiakWorld) -> None:
    """Begin to move the first remaining partition, as soon as both of its owners can take part."""
    if not world.moves or any(move.active for move in world.moves):
        return
    move = world.moves[0]
    sides = (world.ring.owners[move.partition], move.to)
    busy = any(each.partition == move.partition for each in world.fallbacks)
    if busy or world.stalled or not all(world.serves(name) for name in sides):
        world.agenda.after(_AGAIN_SECONDS, lambda: _move_next(world))
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
        _move_next(world)
    else:
        world.agenda.after(_AGAIN_SECONDS, lambda: _move_next(world))
