"""What happens to nodes, their machines and their networks beside plain death; `node_changes.py` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlaps:
    """A node leaves the cluster and joins it again in the same life: its network fails for so long."""

    node: NodeName
    seconds: Seconds = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePauses:
    """The process of a node does nothing for a while, as in a long garbage collection.

    It stays a member unless that lasts longer than the cluster's own fault detection.

    Attributes:
        host: the whole machine stands still, so SSH does not answer either.
    """

    node: NodeName
    seconds: Seconds = 20.0
    host: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiesAgain:
    """Each of a node's next lives ends by itself.

    Attributes:
        times: how many lives.
        after: seconds from the start of the process to its end; 1 is before it joins, 30 long after.
        back_after: the service manager starts it again after so many seconds; None = it does not.
    """

    node: NodeName
    times: int = 1
    after: Seconds = 5.0
    back_after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLost:
    """At its next start a node has an empty disk, and therefore another node id."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnsChanged:
    """At its next start a node has another version or another zone; None leaves it as it is."""

    node: NodeName
    version: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLost:
    """All nodes of a zone die and their machines are away, until somebody brings them back."""

    zone: str
    back_after: Seconds = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootHangs:
    """The next reboot of a node's machine takes so long."""

    node: NodeName
    seconds: Seconds = 3000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRefuses:
    """From now on, and for so long, a host refuses us.

    Attributes:
        key: the host key changed, so that nothing can be read either. Otherwise sudo refuses: the host is
            read, and every verb is refused.
    """

    node: NodeName
    seconds: Seconds
    key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersUnreachable:
    """A node reaches the master and no other node, so that no copy can be recovered from or to it."""

    node: NodeName
    seconds: Seconds


OfNodes: TypeAlias = (
    NodeFlaps
    | NodePauses
    | DiesAgain
    | DiskLost
    | ReturnsChanged
    | ZoneLost
    | RebootHangs
    | HostRefuses
    | PeersUnreachable
)
