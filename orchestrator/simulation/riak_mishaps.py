"""What goes wrong on a Riak cluster alone, as data; `ring_changes` lets it happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffStalls:
    """For a while no hand-off begins, and those that move come to no end."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipMoves:
    """Somebody commits a plan by which a member owns more: so many partitions change their owner.

    Attributes:
        to: the member that is to have them.
        seconds: until the first one has moved, if both of its owners are up by then.
    """

    to: NodeName
    partitions: int
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoins:
    """A new node joins; after a while it is a valid member, and its share of the ring moves to it."""

    node: NodeName
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimantMoves:
    """Another member is the claimant from now on."""

    to: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNeverUp:
    """From its next start on a node's peers never see `riak_kv` on it, whatever it says itself."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class VnodesHalt:
    """From its next start on a node never runs more than so many of its vnodes."""

    node: NodeName
    most: int


OfRiak: TypeAlias = HandoffStalls | OwnershipMoves | MemberJoins | ClaimantMoves | ServiceNeverUp | VnodesHalt
