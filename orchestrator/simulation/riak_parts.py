"""Parts of a simulated Riak cluster besides its machines: vnodes, fallbacks, partitions that move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant

USUAL_TIMER: Final = 10_000
"""Milliseconds between two steps of a vnode manager, unless a person set another time."""
NEVER: Final = float("inf")


@dataclass(slots=True, kw_only=True, eq=False)
class SimVnodes:
    """Vnodes and settings of a node's process."""

    owned: tuple[int, ...]  # its partitions, in the order in which they start
    running: int  # number of running vnodes
    most: int  # maximum number of them that run after a start
    configured: int = 2  # the transfer limit of its files; `limit`: the one in its memory
    limit: int = 2
    own_fallbacks: int = 3  # its own fallback vnodes, found on its disk at each start
    timer: int = USUAL_TIMER  # `vnode_management_timer` in its memory, in milliseconds
    # vnodes that its manager has not started yet, if the cluster has `rolling`; `unfound`: those of them that
    # hold data of others
    unstarted: int = 0
    unfound: frozenset[int] = frozenset()
    # its manager has had its first tick, and can report how many vnodes it has not started
    listed: bool = True
    mute: str | None = None  # why the state of its manager cannot be read; None while it can
    # from its next start on its peers do not see its service; `seen`: whether they do in this life
    unseen: bool = False
    seen: bool = True
    # limits set by others than the program, also at starts that the program did not make
    others: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class SimMove:
    """A partition that will change its owner, and since when; active while it moves."""

    partition: int
    to: NodeName
    since: Instant
    active: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class SimFallback:
    """A fallback vnode that has to be handed off."""

    partition: int
    holder: NodeName  # the node on which it runs
    owner: NodeName  # the node to which the partition belongs
    made: Instant  # when it was created
    since: Instant  # since when it has waited: its creation, or the moment at which nothing keeps it any more
    due: Instant = NEVER  # when it has been idle for long enough; never while one side is away
    active: bool = False  # it is being handed off
    # it is not handed off before one of these nodes restarts, with none of them never; None: it is
    stuck: frozenset[NodeName] | None = None
    tried: bool = False  # it is stuck, and a handoff of it has begun, which will fail
