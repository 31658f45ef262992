"""Mishaps of nodes, their machines and networks other than plain death. `node_changes.py` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlaps:
    """A node leaves the cluster and rejoins in the same life: its network fails for this long."""

    node: NodeName
    seconds: Seconds = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePauses:
    """The process of a node does nothing for a while, as in a long garbage collection.

    It stays a member unless the pause is longer than the cluster's fault detection.

    Attributes:
        host: the whole machine is paused, so SSH does not answer either.
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
        back_after: seconds until the service manager starts it again; None = it does not.
    """

    node: NodeName
    times: int = 1
    after: Seconds = 5.0
    back_after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLost:
    """At its next start a node has an empty disk, and therefore a new node id."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnsChanged:
    """At its next start a node has another version or another zone. None leaves it unchanged."""

    node: NodeName
    version: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLost:
    """All nodes of a zone die and their machines are unreachable, until a person repairs them."""

    zone: str
    back_after: Seconds = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootHangs:
    """The next reboot of a node's machine takes this long."""

    node: NodeName
    seconds: Seconds = 3000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRefuses:
    """A host refuses the program from now on, for this long.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswersLate:
    """For a while each reading of a host takes this long, and is answered."""

    node: NodeName
    seconds: Seconds
    takes: Seconds


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
    | HostAnswersLate
)
