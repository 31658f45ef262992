"""Mishaps between the program and its world: its journal, credentials, endpoints and owner."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from orchestrator.model.reading import Seconds
from orchestrator.simulation import views
from orchestrator.simulation.mishaps import OfProgram

if TYPE_CHECKING:
    from orchestrator.simulation.fate import Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFails(OfProgram):
    """From now on the journal cannot be written, for this reason; `seconds` ends it.

    None = it cannot be read any more either, because the file is torn. The run can only be taken over.
    """

    reason: str = "database is locked"
    seconds: Seconds | None = 5.0

    def befall(self, fate: Fate) -> None:
        fate.torn = fate.torn or self.seconds is None
        fate.disk_full_until = inf if self.seconds is None else fate.now + self.seconds
        fate.journal_says = self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsRefused(OfProgram):
    """The cluster refuses the program's credentials for a while.

    Attributes:
        writes: settings can no longer be written (403), and all else can; False refuses every call (401).
    """

    seconds: Seconds
    writes: bool = False

    def befall(self, fate: Fate) -> None:
        fate.unwritable_until = fate.now + self.seconds
        if not self.writes:
            fate.unauthorized_until = fate.now + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointsDisagree(OfProgram):
    """For a while every second reading comes from a node that no longer follows the master."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.disagree_until, fate.frozen = fate.now + self.seconds, views.kept(fate.world)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver(OfProgram):
    """The program's machine is suspended, and another machine takes over its run meanwhile.

    Attributes:
        seconds: duration of the suspension. The other machine begins when the lease has expired.
        restarts: the other machine begins its own run after it has restored the pending changes.
    """

    seconds: Seconds = 130.0
    restarts: bool = False

    def befall(self, fate: Fate) -> None:
        fate.standing_still = self.seconds
        if fate.successor is not None:
            fate.successor(self)
        else:  # another machine takes only the lease
            fate.lose_the_lease("eve@elsewhere")
