"""The ring: partitions, their owners, and the nodes that stand in for owners that are down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TOP = 2**160
N_VAL = 3
"""The default number of copies; the recordings show no other."""
SPACING = 4
"""`target_n_val`: owners of so many consecutive partitions are different nodes, where there are enough."""
MODULES = ("riak_kv_vnode", "riak_pipe_vnode")
"""Of which each partition has a vnode."""
RECORDED_THREE = (0, 1, 1, 2, 0, 1, 2, 2, 0, 1, 2, 0, 0, 1, 2, 0)
"""The owners in the recording, three nodes by number on 16 partitions, from `ring-status` while joining."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The ring, which does not change while the double runs."""

    claimant: str  # the node that would change it
    members: tuple[str, ...]  # in the order of their names
    owners: tuple[str, ...]  # by partition number

    @property
    def size(self) -> int:
        """The number of partitions."""
        return len(self.owners)

    def index(self, partition: int) -> int:
        """The partition's index as Riak prints it."""
        return partition * (TOP // self.size)

    def owned(self, name: str) -> frozenset[int]:
        """The partitions of a node."""
        return frozenset(number for number, owner in enumerate(self.owners) if owner == name)

    def share(self, name: str) -> float:
        """The part of the ring that a node has, in percent."""
        return 100 * len(self.owned(name)) / self.size


def formed(names: Sequence[str], size: int) -> Ring:
    """The ring of these nodes, of which the first is the claimant."""
    return Ring(claimant=names[0], members=tuple(sorted(names)), owners=claim(sorted(names), size))


def claim(names: Sequence[str], size: int) -> tuple[str, ...]:
    """Owners by partition.

    Three nodes on 16 partitions are as recorded. The recordings show no other ring: the double gives every
    other one out evenly, `SPACING` apart where it can be done, which is not Riak's own algorithm.
    """
    if (len(names), size) == (3, len(RECORDED_THREE)):
        return tuple(names[number] for number in RECORDED_THREE)
    budget = [_TRIES]
    for most in range(-(-size // len(names)), size + 1):
        found = _spaced(tuple(names), size, [], most=most, budget=budget)
        if found:
            return tuple(found)
    return tuple(names[number % len(names)] for number in range(size))


_TRIES = 20_000
"""So many steps are spent on owners `SPACING` apart; fewer than four nodes cannot have them."""


def _spaced(
    names: tuple[str, ...], size: int, owners: list[str], *, most: int, budget: list[int]
) -> list[str] | None:
    """Owners from here to the end, none within `SPACING` of its own, none with more than `most`."""
    number = len(owners)
    if number == size:
        return owners
    near = {*owners[-(SPACING - 1) :], *owners[: max(0, number + SPACING - size)]}
    for name in sorted(names, key=lambda each: (owners.count(each), each)):
        budget[0] -= 1
        if budget[0] < 0:
            return None
        if name not in near and owners.count(name) < most:
            found = _spaced(names, size, [*owners, name], most=most, budget=budget)
            if found:
                return found
    return None


def preference_list(ring: Ring, partition: int, n_val: int = N_VAL) -> tuple[int, ...]:
    """The partitions whose vnodes hold the keys that hash to just before this one."""
    return tuple((partition + step) % ring.size for step in range(n_val))


def fallbacks(ring: Ring, up: frozenset[str], n_val: int = N_VAL) -> dict[str, frozenset[int]]:
    """Which partitions each node that is up takes over, once keys of every preference list are written.

    For each preference list, the partitions of owners that are down go, in turn, to the owners further
    along the ring that are up. On the recorded ring with `dev2` down this gives five to each of the two
    others, as was recorded.
    """
    taken: dict[str, set[int]] = {name: set() for name in up}
    for first in range(ring.size):
        wanted = preference_list(ring, first, n_val)
        rest = (ring.owners[(first + step) % ring.size] for step in range(n_val, ring.size))
        others = (name for name in rest if name in up)
        for partition in wanted:
            if ring.owners[partition] not in up and (name := next(others, None)):
                taken[name].add(partition)
    return {name: frozenset(partitions) for name, partitions in taken.items()}
