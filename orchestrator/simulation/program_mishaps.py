"""What happens between the program and its world: its journal, its credentials, its endpoints, its owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFails:
    """From now on the journal cannot be written, for such a reason; `seconds` ends it.

    None = it cannot be read any more either: the file is torn. The run can only be taken over.
    """

    reason: str = "database is locked"
    seconds: Seconds | None = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unauthorized:
    """For a while the cluster answers every call with 401."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointsDisagree:
    """For a while every second reading comes from a node that does not follow the master any more."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The program's machine is suspended, and another machine takes its run over meanwhile.

    Attributes:
        seconds: how long it is suspended; the other machine begins when the lease has run out.
        restarts: the other machine begins a run of its own after it has put back what was left.
    """

    seconds: Seconds = 130.0
    restarts: bool = False


OfItsSurroundings: TypeAlias = JournalFails | Unauthorized | EndpointsDisagree | TakenOver
