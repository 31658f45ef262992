"""What a simulated Riak cluster is made of, beside its machines: vnodes, fallbacks, partitions that move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant

USUAL_TIMER: Final = 10_000
"""Milliseconds between two steps of a vnode manager, unless somebody set another time."""
NEVER: Final = float("inf")


@dataclass(slots=True, kw_only=True, eq=False)
class SimVnodes:
    """What a node's process has beside being there.

    Attributes:
        owned: its partitions, in the order in which they start.
        running: so many of them run.
        most: so many of them ever run after a start.
        configured: the transfer limit of its files, `limit` the one in its memory.
        own_fallbacks: fallback vnodes that it finds on its disk at each start.
        timer: `vnode_management_timer` in its memory, in milliseconds.
        unstarted: vnodes that its manager has not started yet, where the cluster's `rolling` says so;
            `unfound`, those of them that hold data of others.
        listed: its manager has had its first tick, and can tell how many it has not started.
        mute: why the state of its manager cannot be read; None while it can be.
        unseen: from its next start on its peers do not see its service; `seen`, whether they do in this life.
        others: limits that it was given by others than the program, also at starts not of its making.
    """

    owned: tuple[int, ...]
    running: int
    most: int
    configured: int = 2
    limit: int = 2
    own_fallbacks: int = 3
    timer: int = USUAL_TIMER
    unstarted: int = 0
    unfound: frozenset[int] = frozenset()
    listed: bool = True
    mute: str | None = None
    unseen: bool = False
    seen: bool = True
    others: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class SimMove:
    """A partition that is to change its owner, since so long; active while it moves."""

    partition: int
    to: NodeName
    since: Instant
    active: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class SimFallback:
    """A fallback vnode that has to be handed off.

    Attributes:
        holder: the node on which it runs.
        owner: the node to which the partition belongs.
        since: when it came to be.
        due: from when on it has been idle for long enough; never while one side is away.
        active: it is being handed off.
    """

    partition: int
    holder: NodeName
    owner: NodeName
    since: Instant
    due: Instant = NEVER
    active: bool = False
