"""Triggers the mishaps of a scenario, each at its time or after its verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from orchestrator.model.action import Action, WriteSettings, action_name, action_target
from orchestrator.model.merging import BulkView
from orchestrator.model.phase import Request
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds
from orchestrator.ports import ClusterReadings
from orchestrator.simulation.mishaps import Mishap, Trip, What
from orchestrator.simulation.parts import SimIndex
from orchestrator.simulation.world import World


class Fate:
    """The planned and past mishaps of one world.

    Attributes:
        request: the strongest request that a person has made of the program.
        lease_holder: the person who removed our lease by hand, at `lease_taken_at`; None while the lease is
            ours.
        remove_record: removes the program's record from the cluster and returns whether it existed.
        unrefreshed: the period in which no write of our lease arrives.
        unreadable_until: reads of the cluster fail before this moment; `bulk_unreadable_until`: reads of the
            indices that are merged.
        stale_until: reads are answered with `frozen` before this moment, those of indices with `frozen_bulk`.
        unauthorized_until: every call of the cluster is answered with 401 before this moment.
        unwritable_until: every change of settings is answered with 403 before this moment.
        disagree_until: every second reading is `frozen` before this moment; `other_endpoint`: the next one
            is.
        disk_full_until: the journal cannot be written before this moment, for the reason `journal_says`;
            `torn`: it can never be read again either.
        successor: begins the run of the machine that takes over ours, by this mishap; None = it takes only
            the lease.
        read_at: when the program's last reading began; `read_stale`: that reading reports that it may be old.
        asleep_until: the program's machine is suspended until this moment.
        standing_still: how long the program is suspended at its next reading; `stood` is the sum so far.
        clock_ahead: how far the program's clock is ahead of the world's, from its next process on.
        happened: how often each kind of mishap, and each fate of a verb, happened.
        befell: the same, as single entries.
    """

    def __init__(self, world: World, *, plan: Sequence[Mishap] = (), trips: Sequence[Trip] = ()) -> None:
        self.world = world
        self._waiting = [mishap for mishap in plan if mishap.verb is not None]
        self._trips = list(trips)
        self._seen_by_trip = [0] * len(self._trips)
        self._seen_by_mishap = [0] * len(self._waiting)
        self.request = Request.NONE
        self.lease_holder: str | None = None
        self.lease_taken_at: Instant = 0.0
        self.remove_record: Callable[[], bool] = lambda: True
        self.unrefreshed: tuple[Instant, Instant] = (0.0, 0.0)
        self.unreadable_until: Instant = 0.0
        self.stale_until: Instant = 0.0
        self.bulk_unreadable_until: Instant = 0.0
        self.frozen: ClusterReadings | None = None
        self.frozen_bulk: Reading[BulkView] = NOT_READ
        self.unauthorized_until: Instant = 0.0
        self.unwritable_until: Instant = 0.0
        self.disagree_until: Instant = 0.0
        self.other_endpoint = False
        self.disk_full_until: Instant = 0.0
        self.journal_says = "no space left on device"
        self.torn = False
        self.successor: Callable[[Any], None] | None = None
        self.read_at: Instant = 0.0
        self.read_stale = False
        self.asleep_until: Instant = 0.0
        self.standing_still: Seconds = 0.0
        self.stood: Seconds = 0.0
        self.clock_ahead: Seconds = 0.0
        self.happened: Counter[str] = Counter()
        self.befell: list[tuple[Instant, What | Trip]] = []
        for mishap in plan:
            if mishap.verb is None:
                world.agenda.after(mishap.after, partial(self.befall, mishap.what))

    @property
    def now(self) -> Instant:
        """The world's now."""
        return self.world.agenda.now

    def sent(self, action: Action) -> Trip | None:
        """The program sends a verb: trigger the mishaps that waited for it, and return its trip, if any."""
        for place, mishap in enumerate(self._waiting):
            if mishap.verb != action_name(action) or mishap.target not in (None, action_target(action)):
                continue
            self._seen_by_mishap[place] += 1
            if self._seen_by_mishap[place] == mishap.nth:
                self.world.agenda.after(mishap.after, partial(self.befall, mishap.what))
        met = None
        for place, trip in enumerate(self._trips):
            if trip.matches(action):
                self._seen_by_trip[place] += 1
                if trip.first <= self._seen_by_trip[place] < trip.first + trip.times:
                    met = met or trip
        if met is not None:
            self.happened[f"verb {met.how.value}"] += 1
            self.befell.append((self.world.agenda.now, met))
        return met

    def stood_still(self) -> Seconds:
        """How long the program is suspended at this reading. It sends no heartbeat meanwhile."""
        seconds, self.standing_still = self.standing_still, 0.0
        self.stood += seconds
        if seconds:
            self.asleep_until = self.world.agenda.now + seconds
        return seconds

    def is_judged_by_its_own_reading(self) -> None:
        """Judge by this program's own readings, not by those of another process on the same world."""
        self.world.last_read, self.world.stale_read = self.read_at, self.read_stale

    def late(self, trip: Trip, action: WriteSettings) -> None:
        """A settings update takes effect later, but before any later write."""
        world = self.world
        world.late_writes.append((world.last_read, action.changes))
        world.agenda.after(trip.late, world.apply_late_writes)

    def befall(self, what: What) -> None:
        """Trigger it now."""
        world = self.world
        world.story.append((world.agenda.now, f"mishap: {what}"))
        self.happened[type(what).__name__] += 1
        self.befell.append((world.agenda.now, what))
        what.befall(self)

    def changeable(self, name: str) -> SimIndex | None:
        """The index of that name, if it is there and the cluster has a master."""
        if self.world.master is None:
            return None
        return next((index for index in self.world.indices.values() if index.name == name), None)

    def lose_the_lease(self, holder: str) -> None:
        """A person removes the program's record; a record of another program stays."""
        if self.remove_record():
            self.lease_holder, self.lease_taken_at = holder, self.world.agenda.now
