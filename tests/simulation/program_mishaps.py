"""Mishaps between the program and its world: its journal, credentials, endpoints and owner."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from orchestrator.model.reading import Seconds
from orchestrator.simulation import bulk, gates, views
from orchestrator.simulation.mishaps import OfProgram, What
from orchestrator.simulation.parts import GateState

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
    """The cluster refuses the program's credentials for a while."""

    seconds: Seconds
    # settings can no longer be written (403), and all else can; False refuses every call (401)
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
    """The program's machine is suspended, and another machine takes over its run meanwhile."""

    # duration of the suspension. The other machine begins when the lease has expired.
    seconds: Seconds = 130.0
    restarts: bool = False  # the other machine begins its own run after it has restored the pending changes

    def befall(self, fate: Fate) -> None:
        fate.standing_still = self.seconds
        if fate.successor is not None:
            fate.successor(self)
        else:  # another machine takes only the lease
            fate.lose_the_lease("eve@elsewhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleReadings(OfProgram):
    """Reads return the state of this moment, and report that they are not settled."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        world = fate.world
        fate.stale_until, fate.frozen = fate.now + self.seconds, views.kept(world)
        if world.forced.policy is not None:
            fate.frozen_bulk = bulk.bulk(world, world.indices)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet(OfProgram):
    """The system clock of the program's machine is set by this much; it affects the next process.

    A process reads the wall clock once and then counts elapsed time, so it never sees a jump of its own.
    """

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.clock_ahead += self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsRefused(What):
    """From now on every settings update is refused; an empty reason ends it."""

    reason: str

    def befall(self, fate: Fate) -> None:
        fate.world.refuse_settings = self.reason or None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsUnreadable(OfProgram):
    """Segments, writes and tasks of indices cannot be read for a while. Everything else can."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.bulk_unreadable_until = fate.now + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GateShut(What):
    """A gate of the playbook closes or becomes unreadable. It may open again after a while."""

    name: str  # the gate's name; ignored if the playbook does not have it
    seconds: Seconds | None = None
    readable: bool = True

    def befall(self, fate: Fate) -> None:
        state = GateState.CLOSED if self.readable else GateState.UNREADABLE
        gates.shut(fate.world, self.name, state, self.seconds)
