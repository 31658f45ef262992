"""What a wait listens to, so that the run moves on within milliseconds of the world being ready.

Waiting is not sleeping: the cluster's own long polls and the hosts' own job ends wake the loop. A watch is
a hint to look again; what it seems to say is always read anew before it is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesJoined:
    """At least so many nodes are in the cluster."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesActive:
    """At least so many shard copies are active, and nothing waits in the master's queue."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterElected:
    """There is a master."""


ClusterWatch: TypeAlias = NodesJoined | CopiesActive | MasterElected


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to listen to, at most until `until`; nothing listened to is a plain wait.

    Attributes:
        services: nodes whose service's change of state wakes.
        for_people: what is awaited, as the views say it.
    """

    until: Instant
    cluster: ClusterWatch | None = None
    services: frozenset[NodeName] = frozenset()
    for_people: str = ""
