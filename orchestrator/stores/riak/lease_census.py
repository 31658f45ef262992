"""What the machines of a cluster have of the lease, counted: which number counts, and who has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading, Unknown
from orchestrator.stores.riak.lease_files import Kept, Listing, Mark

Key: TypeAlias = tuple[int, str, str]
"""A lease of a process: epoch, run and process."""
SHOWN: Final = 5
"""Of a long list, in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that answered.

    Attributes:
        node: the first of the nodes on it that did.
    """

    node: NodeName
    listing: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A lease, as most machines have it.

    Attributes:
        machines: so many have it.
    """

    number: int
    kept: Kept
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What the machines of a cluster have.

    Attributes:
        machines: those that answered, in the order of their nodes: the same for every run.
        silent: why nodes did not answer that are on no machine that did.
        total: machines; a node of which nothing is known counts as one on a machine of its own.
    """

    machines: Sequence[Machine]
    silent: Mapping[NodeName, str]
    total: int

    @property
    def majority(self) -> int:
        """So many machines decide."""
        return self.total // 2 + 1

    @property
    def has_majority(self) -> bool:
        """Whether so many answered."""
        return len(self.machines) >= self.majority

    @property
    def whole(self) -> bool:
        """Whether all did."""
        return len(self.machines) == self.total

    @property
    def too_few(self) -> str:
        """Why it decides nothing."""
        why = "; ".join(f"{node}: {reason}" for node, reason in list(self.silent.items())[:SHOWN])
        return (
            f"{len(self.machines)} of {self.total} machines answered, and the lease needs {self.majority} "
            f"({why or 'the cluster has no members'})"
        )

    @property
    def numbers(self) -> frozenset[int]:
        """Of all files."""
        return frozenset(number for machine in self.machines for number in machine.listing.files)

    def counts(self, number: int) -> bool:
        """Whether it may be on a majority, or leaves no majority to anybody else."""
        without = sum(number not in machine.listing.files for machine in self.machines)
        return without < self.majority

    def up_to(self, number: int) -> frozenset[int]:
        """The numbers up to this one."""
        return frozenset(each for each in self.numbers if each <= number)

    def at(self, number: int) -> Sequence[Found]:
        """The leases that have this number, each with the latest that its run wrote."""
        files = [machine.listing.files.get(number) for machine in self.machines]
        kept = [file for file in files if isinstance(file, Kept)]
        return [
            Found(number=number, kept=_latest(of, self.majority), machines=len(of))
            for key in dict.fromkeys(each.key for each in kept)
            if (of := [each for each in kept if each.key == key])
        ]

    def with_key(self, key: Key) -> Sequence[Found]:
        """The same of one lease alone, whether its number counts or not."""
        return [found for number in self.numbers for found in self.at(number) if found.kept.key == key]


def count(told: Mapping[NodeName, Reading[Listing]], known: Mapping[NodeName, str]) -> Census:
    """Put nodes of one machine together; `known` says on which machine a silent node was seen before."""
    machines: dict[str, Machine] = {}
    silent: dict[NodeName, str] = {}
    for node, listing in sorted(told.items()):
        if isinstance(listing, Unknown):
            silent[node] = listing.reason
        else:
            machines.setdefault(listing.place, Machine(node=node, listing=listing))
    away = {node: known.get(node, f"of {node} alone") for node in silent}
    lone = {node: place for node, place in away.items() if place not in machines}
    return Census(
        machines=tuple(machines.values()),
        silent={node: silent[node] for node in lone},
        total=len(machines) + len(set(lone.values())),
    )


def _latest(files: Sequence[Kept], majority: int) -> Kept:
    """What one run wrote last. A release counts once a majority has it: one machine's word is no release."""
    released = [file for file in files if file.mark is Mark.RELEASED]
    held = [file for file in files if file.mark is Mark.HELD]
    latest = released if len(released) >= majority or not held else held
    return max(latest, key=lambda file: file.record.heartbeat)


def most(found: Sequence[Found]) -> Found | None:
    """The one on most machines; then the one that was refreshed most often."""
    return max(
        found,
        key=lambda each: (each.machines, each.kept.record.heartbeat, each.number, each.kept.record.run),
        default=None,
    )
