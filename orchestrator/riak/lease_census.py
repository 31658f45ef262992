"""Counts the lease files on the machines of a cluster: which number counts, and which run holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading, Unknown
from orchestrator.riak.lease_files import KeptFile, LeaseMark, Listing

Key: TypeAlias = tuple[int, str, str]
"""A lease of a process: epoch, run and process."""
SHOWN: Final = 5
"""Items of a long list in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that answered."""

    node: NodeName  # the first of the nodes on it that did
    listing: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedLease:
    """A lease that most machines agree on."""

    number: int
    kept: KeptFile
    machines: int  # number of machines with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The lease files on the machines of a cluster."""

    # the machines that answered, in the order of their nodes, which is the same for every run
    machines: Sequence[Machine]
    silent: Mapping[NodeName, str]  # the errors of nodes whose machine did not answer through any node
    total: int  # number of machines; a node with an unknown machine counts as a machine of its own

    @property
    def majority(self) -> int:
        """The number of machines that is a majority."""
        return self.total // 2 + 1

    @property
    def has_majority(self) -> bool:
        """Whether a majority answered."""
        return len(self.machines) >= self.majority

    @property
    def whole(self) -> bool:
        """Whether all machines answered."""
        return len(self.machines) == self.total

    @property
    def too_few(self) -> str:
        """Why the census has no result."""
        why = "; ".join(f"{node}: {reason}" for node, reason in list(self.silent.items())[:SHOWN])
        return (
            f"{len(self.machines)} of {self.total} machines answered, and the lease needs {self.majority} "
            f"({why or 'the cluster has no members'})"
        )

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all files."""
        return frozenset(number for machine in self.machines for number in machine.listing.files)

    def counts(self, number: int) -> bool:
        """Whether the number may be on a majority, or leaves no majority for another one."""
        without = sum(number not in machine.listing.files for machine in self.machines)
        return without < self.majority

    def up_to(self, number: int) -> frozenset[int]:
        """The numbers up to this one."""
        return frozenset(each for each in self.numbers if each <= number)

    def at(self, number: int) -> Sequence[AgreedLease]:
        """The leases with this number, each with the latest record of its run."""
        files = [machine.listing.files.get(number) for machine in self.machines]
        kept = [file for file in files if isinstance(file, KeptFile)]
        return [
            AgreedLease(number=number, kept=_latest(of, self.majority), machines=len(of))
            for key in dict.fromkeys(each.key for each in kept)
            if (of := [each for each in kept if each.key == key])
        ]

    def with_key(self, key: Key) -> Sequence[AgreedLease]:
        """The same for one lease, whether its number counts or not."""
        return [found for number in self.numbers for found in self.at(number) if found.kept.key == key]


def count(listings: Mapping[NodeName, Reading[Listing]], known: Mapping[NodeName, str]) -> Census:
    """Group nodes by machine; `known` has the earlier machine of a node that did not answer."""
    machines: dict[str, Machine] = {}
    silent: dict[NodeName, str] = {}
    for node, listing in sorted(listings.items()):
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


def _latest(files: Sequence[KeptFile], majority: int) -> KeptFile:
    """The last record of one run. A release counts only if a majority has it."""
    released = [file for file in files if file.mark is LeaseMark.RELEASED]
    held = [file for file in files if file.mark is LeaseMark.HELD]
    latest = released if len(released) >= majority or not held else held
    return max(latest, key=lambda file: file.record.heartbeat)


def most(found: Sequence[AgreedLease]) -> AgreedLease | None:
    """The lease on the most machines; among equals the one that was refreshed most often."""
    return max(
        found,
        key=lambda each: (each.machines, each.kept.record.heartbeat, each.number, each.kept.record.run),
        default=None,
    )
