"""Events that end a wait, so that the run continues within milliseconds.

A wait does not sleep. The cluster's long polls and the ends of host jobs wake the loop. A watch is only a
hint to read again: its content is always read afresh before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesJoined:
    """At least this many nodes are in the cluster."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesActive:
    """At least this many shard copies are active, and the master's queue is empty."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterElected:
    """A master is elected."""


ClusterWatch: TypeAlias = NodesJoined | CopiesActive | MasterElected


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to listen to, at most until `until`. With nothing to listen to, it is a plain wait.

    Attributes:
        services: nodes whose service wakes the loop when its state changes.
        for_people: description of the wait, for the views.
    """

    until: Instant
    cluster: ClusterWatch | None = None
    services: frozenset[NodeName] = frozenset()
    for_people: str = ""
