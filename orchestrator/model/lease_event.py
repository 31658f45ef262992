"""What the journal says of the run's lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTaken:
    """The cluster is ours. `takeover` says that an expired lease of somebody else was replaced."""

    epoch: int
    holder: str
    takeover: bool = False
    event: Literal["lease_taken"] = "lease_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """No stop any more; starts and restores go on."""

    reason: str
    event: Literal["lease_lost"] = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRegained:
    """A lease that could not be refreshed for a while stands as ours again: stops are possible."""

    holder: str
    event: Literal["lease_regained"] = "lease_regained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposed:
    """Another process took over the lease of this run, and with it every change that is not restored yet.

    From here on this process writes no setting and stops no node. It starts only nodes that it stopped
    itself, that are down, and that are not among `in_hand`.

    Attributes:
        successor: the run that took over; our own id where another process resumed this run. (`run` is the
            record's own, in JSON.)
        owner: `user@host` of that process.
        epoch: of its lease; 0 where only the journal shows it.
        in_hand: nodes that are now that process's to start.
    """

    successor: str
    owner: str
    epoch: int
    in_hand: tuple[NodeName, ...] = ()
    event: Literal["deposed"] = "deposed"


LeaseEvent: TypeAlias = LeaseTaken | LeaseLost | LeaseRegained | Deposed
