"""Events of the run's lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTaken:
    """The run holds the lease.

    Attributes:
        epoch: of the lease; it begins at 1 again after a release, and orders nothing.
        takeover: it replaced an expired lease of another process.
        takes_over: the run whose lease and pending changes this run takes over; None if there is none.
        ordinal: number of this lease among all that were taken with this state: runs are ordered by it, and
            by no clock. None in the journal of an earlier version, which has no `takes_over` either.
    """

    epoch: int
    holder: str
    takeover: bool = False
    takes_over: str | None = None
    ordinal: int | None = None
    event: Literal["lease_taken"] = "lease_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """The lease is lost. No node is stopped any more; starts and restores continue."""

    reason: str
    event: Literal["lease_lost"] = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRegained:
    """A lease that could not be refreshed for a while is held again. Stops are possible."""

    holder: str
    event: Literal["lease_regained"] = "lease_regained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposed:
    """Another process took over this run's lease, and with it every unrestored change.

    From now on this process writes no setting and stops no node. It starts only nodes that it stopped itself,
    that are down, and that are not in `in_hand`.

    Attributes:
        successor: the run that took over; our own id where another process resumed this run. (In JSON, `run`
            is the record's own field.)
        owner: `user@host` of that process.
        epoch: epoch of its lease; 0 where only the journal shows the takeover.
        in_hand: nodes that the other process has to start from now on.
    """

    successor: str
    owner: str
    epoch: int
    in_hand: tuple[NodeName, ...] = ()
    event: Literal["deposed"] = "deposed"


LeaseEvent: TypeAlias = LeaseTaken | LeaseLost | LeaseRegained | Deposed
