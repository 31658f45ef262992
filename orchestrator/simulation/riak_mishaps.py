"""Mishaps of Riak clusters only, as data. `ring_changes.py` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffStalls:
    """For a while no hand-off begins, and running ones do not end."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipMoves:
    """A person commits a plan that gives a member this many more partitions.

    Attributes:
        to: the member that gets them.
        seconds: time until the first one has moved, if both of its owners are up by then.
    """

    to: NodeName
    partitions: int
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoins:
    """A new node joins. After a while it is a valid member, and its share of the ring moves to it."""

    node: NodeName
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimantMoves:
    """Another member becomes the claimant."""

    to: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNeverUp:
    """From its next start on, a node's peers never see its `riak_kv`, even if the node reports it."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class VnodesHalt:
    """From its next start on, a node never runs more than this many of its vnodes."""

    node: NodeName
    most: int


OfRiak: TypeAlias = HandoffStalls | OwnershipMoves | MemberJoins | ClaimantMoves | ServiceNeverUp | VnodesHalt
