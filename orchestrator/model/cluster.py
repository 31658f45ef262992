"""What a cluster is made of: nodes and their lives, indices, shards and their copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

NodeName = NewType("NodeName", str)
"""A node's own name: its identity across restarts (node ids survive too, but people type names)."""

Zone = NewType("Zone", str)
"""A value of the awareness attribute, such as a rack or an availability zone."""


class Role(Enum):
    """What a node does. `COORDINATING` stands for a node with no role of its own."""

    __hash__ = object.__hash__  # many sets and tables of them: that of Enum is a call in Python

    MASTER = "master"
    VOTING_ONLY = "voting_only"
    DATA = "data"
    DATA_CONTENT = "data_content"
    DATA_HOT = "data_hot"
    DATA_WARM = "data_warm"
    DATA_COLD = "data_cold"
    DATA_FROZEN = "data_frozen"
    INGEST = "ingest"
    ML = "ml"
    TRANSFORM = "transform"
    REMOTE = "remote_cluster_client"
    SEARCH = "search"
    COORDINATING = "coordinating"


DATA_ROLES = frozenset(
    {Role.DATA, Role.DATA_CONTENT, Role.DATA_HOT, Role.DATA_WARM, Role.DATA_COLD, Role.DATA_FROZEN}
)
"""Roles whose nodes hold shard copies. `DATA` alone stands for all tiers at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a node's process.

    A restart is proven by a changed incarnation, never by "it answers" and never by comparing our clock
    with theirs.

    Attributes:
        ephemeral_id: made anew by the process at each start (Elasticsearch 5 and later, OpenSearch).
        started_at_ms: the process's start time in milliseconds since the epoch, by the node's own clock.
    """

    ephemeral_id: str | None = None
    started_at_ms: int | None = None

    def differs_from(self, earlier: Incarnation) -> bool:
        """Whether this is provably another life than `earlier`; what cannot be proven is False."""
        if self.ephemeral_id is not None and earlier.ephemeral_id is not None:
            return self.ephemeral_id != earlier.ephemeral_id
        if self.started_at_ms is not None and earlier.started_at_ms is not None:
            return self.started_at_ms != earlier.started_at_ms
        return False

    def is_same_as(self, earlier: Incarnation) -> bool:
        """Whether this is the same life as `earlier`, by all that is told of both.

        Where each has an identity, a start time that differs says nothing: a host's clock may have been set.
        """
        if self.ephemeral_id is not None and earlier.ephemeral_id is not None:
            return self.ephemeral_id == earlier.ephemeral_id
        return self == earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A member of the cluster, as the elected master lists it.

    Attributes:
        address: host part of the transport publish address, by which its host is reached.
        attributes: custom node attributes, awareness attributes among them.
    """

    name: NodeName
    node_id: str
    incarnation: Incarnation
    roles: frozenset[Role]
    version: str
    address: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds_data(self) -> bool:
        """Whether shard copies can live here."""
        return bool(self.roles & DATA_ROLES)

    @property
    def master_eligible(self) -> bool:
        """Whether it votes in master elections."""
        return Role.MASTER in self.roles

    def zone(self, attribute: str | None) -> Zone | None:
        """Its value of the awareness attribute; None without one."""
        value = self.attributes.get(attribute) if attribute else None
        return Zone(value) if value is not None else None


class CopyState(Enum):
    """States of a shard copy in the routing table."""

    __hash__ = object.__hash__  # many sets and tables of them: that of Enum is a call in Python

    STARTED = "STARTED"
    INITIALIZING = "INITIALIZING"
    RELOCATING = "RELOCATING"
    UNASSIGNED = "UNASSIGNED"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ShardId:
    """A shard of an index. The uuid tells an index from a later one of the same name."""

    index: str
    index_uuid: str
    number: int

    def __str__(self) -> str:
        return f"[{self.index}][{self.number}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCopy:
    """One copy of a shard as the routing table has it.

    Attributes:
        node: where it is, None when unassigned.
        relocating_to: the target when `RELOCATING`; the source still serves, so it is a started copy.
        allocation_id: matched against the in-sync set; None where the version has none.
        unassigned_reason: the cluster's word, such as `NODE_LEFT`.
        failed_attempts: allocations that failed in a row; at five the cluster stops trying.
        from_snapshot: it is a primary that a snapshot is restored into, or is to be.
    """

    shard: ShardId
    primary: bool
    state: CopyState
    node: NodeName | None = None
    relocating_to: NodeName | None = None
    allocation_id: str | None = None
    unassigned_reason: str | None = None
    failed_attempts: int = 0
    from_snapshot: bool = False

    @property
    def started(self) -> bool:
        """Whether it serves: `RELOCATING` sources do."""
        return self.state in (CopyState.STARTED, CopyState.RELOCATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What the metadata say of an index.

    Attributes:
        replicas: configured copies beside the primary.
        auto_expand: value of `auto_expand_replicas` such as `0-1`, None when off.
        pinned_to: node id or name under `index.routing.allocation.require._id|_name` (a shrink under way).
        allocation_enable: the index's own `index.routing.allocation.enable`, which overrides the cluster's.
        searchable_snapshot: its repository is its other copy.
        in_sync: allocation ids per shard number; None where the version does not tell (before 5).
        filters: its allocation filters and limits, as one text: another text is another choice of nodes.
    """

    name: str
    uuid: str
    open: bool = True
    replicas: int = 1
    auto_expand: str | None = None
    pinned_to: str | None = None
    allocation_enable: str | None = None
    searchable_snapshot: bool = False
    in_sync: Mapping[int, frozenset[str]] | None = None
    filters: str = ""


class Health(Enum):
    """The cluster's own summary."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"
