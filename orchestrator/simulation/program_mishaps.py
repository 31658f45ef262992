"""Mishaps between the program and its world: its journal, credentials, endpoints and owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFails:
    """From now on the journal cannot be written, for this reason; `seconds` ends it.

    None = it cannot be read any more either, because the file is torn. The run can only be taken over.
    """

    reason: str = "database is locked"
    seconds: Seconds | None = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsRefused:
    """The cluster refuses the program's credentials for a while.

    Attributes:
        writes: settings can no longer be written (403), and all else can; False refuses every call (401).
    """

    seconds: Seconds
    writes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointsDisagree:
    """For a while every second reading comes from a node that no longer follows the master."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The program's machine is suspended, and another machine takes over its run meanwhile.

    Attributes:
        seconds: duration of the suspension. The other machine begins when the lease has expired.
        restarts: the other machine begins its own run after it has restored the pending changes.
    """

    seconds: Seconds = 130.0
    restarts: bool = False


OfItsSurroundings: TypeAlias = JournalFails | CredentialsRefused | EndpointsDisagree | TakenOver
