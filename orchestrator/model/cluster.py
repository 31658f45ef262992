"""The parts of a cluster: nodes and their incarnations, indices, shards and their copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, NewType

from orchestrator.untrusted import UntrustedValue, address, shortened

NodeName = NewType("NodeName", str)
"""A node's own name: its identity across restarts (node ids survive too, but people type names)."""

Zone = NewType("Zone", str)
"""A value of the awareness attribute, such as a rack or an availability zone."""


def require_address(node: NodeName, known: str) -> None:
    """Check the address of a node's host: an SSH connection is made with it. It is empty if unknown.

    Raises:
        UntrustedValue: it is neither an IP address nor a host name.
    """
    try:
        if known:
            address(known)
    except UntrustedValue as error:
        raise UntrustedValue(f"the address of node {shortened(node)}: {error}") from None


class Role(Enum):
    """What a node does. `COORDINATING` is a node with no role of its own."""

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

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
"""Roles whose nodes hold shard copies. `DATA` alone covers all tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a node's process.

    Only a changed incarnation proves a restart. A node that answers proves nothing, and our clock is never
    compared with the node's.
    """

    # the process generates it at each start (Elasticsearch 5 and later, OpenSearch)
    ephemeral_id: str | None = None
    # the process's start time in milliseconds since the epoch, by the node's own clock
    started_at_ms: int | None = None

    def differs_from(self, earlier: Incarnation) -> bool:
        """Whether this is provably another life than `earlier`. False where it cannot be proven."""
        if self.ephemeral_id is not None and earlier.ephemeral_id is not None:
            return self.ephemeral_id != earlier.ephemeral_id
        if self.started_at_ms is not None and earlier.started_at_ms is not None:
            return self.started_at_ms != earlier.started_at_ms
        return False

    def is_same_as(self, earlier: Incarnation) -> bool:
        """Whether this is the same life as `earlier`, by everything known about both.

        If both have an identity, a different start time proves nothing: the host's clock may have been set.
        """
        if self.ephemeral_id is not None and earlier.ephemeral_id is not None:
            return self.ephemeral_id == earlier.ephemeral_id
        return self == earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A member of the cluster, as the elected master lists it."""

    name: NodeName
    node_id: str
    incarnation: Incarnation
    roles: frozenset[Role]
    version: str
    address: str  # host part of the transport publish address, by which its host is reached; empty if unknown
    # custom node attributes, awareness attributes among them
    attributes: Mapping[str, str] = field(default_factory=dict)
    # the name that it took itself, if it is known by another; filters of allocation mean it
    own_name: str = ""
    plugins: frozenset[str] | None = None  # plugins that it has loaded; None where they were not read
    host: str = ""  # the name that the server has of its machine; empty where it was not read

    def __post_init__(self) -> None:
        """Refuse an invalid address; raises `UntrustedValue`."""
        require_address(self.name, self.address)

    @property
    def holds_data(self) -> bool:
        """Whether the node can hold shard copies."""
        return bool(self.roles & DATA_ROLES)

    @property
    def master_eligible(self) -> bool:
        """Whether the node votes in master elections."""
        return Role.MASTER in self.roles

    def zone(self, attribute: str | None) -> Zone | None:
        """The node's value of the awareness attribute; None without one."""
        value = self.attributes.get(attribute) if attribute else None
        return Zone(value) if value is not None else None


class CopyState(Enum):
    """States of a shard copy in the routing table."""

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

    STARTED = "STARTED"
    INITIALIZING = "INITIALIZING"
    RELOCATING = "RELOCATING"
    UNASSIGNED = "UNASSIGNED"


SERVING: Final = (CopyState.STARTED, CopyState.RELOCATING)
"""The states of a copy that serves requests. The source of a relocation does."""


class ShardId(NamedTuple):
    """A shard of an index. The uuid distinguishes an index from a later one of the same name.

    It is the key of every index of copies, so its hash is that of a tuple.
    """

    index: str  # type: ignore[assignment]  # it hides `tuple.index`, which nobody needs here
    index_uuid: str
    number: int

    def __str__(self) -> str:
        return f"[{self.index}][{self.number}]"


class ShardCopy(NamedTuple):
    """One copy of a shard, as the routing table lists it. A tuple: a large cluster has a million of them."""

    shard: ShardId
    primary: bool
    state: CopyState
    node: NodeName | None = None  # the node that holds it; None when unassigned
    # the target when `RELOCATING`; the source still serves, so it is a started copy
    relocating_to: NodeName | None = None
    allocation_id: str | None = None  # matched against the in-sync set; None where the version has none
    unassigned_reason: str | None = None  # the cluster's term, such as `NODE_LEFT`
    failed_attempts: int = 0  # allocations that failed in a row; at five the cluster stops trying
    # it is a primary that is being restored, or will be restored, from a snapshot
    from_snapshot: bool = False

    @property
    def started(self) -> bool:
        """Whether the copy serves requests. A `RELOCATING` source does."""
        return self.state in SERVING


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An index, as the metadata describe it."""

    name: str
    uuid: str
    open: bool = True
    replicas: int = 1  # configured copies besides the primary
    auto_expand: str | None = None  # value of `auto_expand_replicas` such as `0-1`, None when off
    # the index's own `index.routing.allocation.enable`, which overrides the cluster's
    allocation_enable: str | None = None
    searchable_snapshot: bool = False  # the snapshot repository serves as its second copy
    # allocation ids by shard number; None where the version does not report them (before 5)
    in_sync: Mapping[int, frozenset[str]] | None = None
    filters: str = ""  # its allocation filters and limits, as one text. Another text allows other nodes.
    shrinks: bool = False  # ILM shrinks it now. While it does, it has pinned the index to one node.


class Health(Enum):
    """The cluster's own summary."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"
