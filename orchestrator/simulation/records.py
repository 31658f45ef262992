"""Time, journal, lease and listening of a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.engine.fold import RunState
from orchestrator.errors import JournalError
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.event import Event, Record
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import LeaseView, Successor
from orchestrator.model.phase import Request
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.model.watch import Watch
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.world import World


@dataclass(slots=True, kw_only=True)
class SimulatedClock:
    """Virtual time, as one process of the program has it: waiting lets the world go on.

    Attributes:
        ahead: of the world's own time, as the machine's clock was when the process began.
    """

    world: World
    fate: Fate
    ahead: Seconds = 0.0

    def now(self) -> Instant:
        """The process's now."""
        return self.world.agenda.now + self.ahead

    def wait(self, seconds: Seconds) -> None:
        """Let time pass; a request ends the wait."""
        before = self.fate.request
        self.world.agenda.until(lambda: self.fate.request is not before, seconds)


@dataclass(slots=True, kw_only=True)
class SimulatedListener:
    """Listens to cluster and hosts at once, as the real one does, and without threads."""

    world: World
    fate: Fate
    clock: SimulatedClock
    cluster: SimulatedCluster
    hosts: SimulatedHosts

    def listen(self, watch: Watch) -> None:
        """Return when something happened that was listened to, at a request, or at `watch.until`."""
        request, services = self.fate.request, self.hosts.services(watch.services)
        joined = self.cluster.holds(watch.cluster) if watch.cluster is not None else _silence
        self.world.agenda.until(
            lambda: (
                joined()
                or self.fate.request is not request
                or self.hosts.services(watch.services) != services
            ),
            watch.until - self.clock.now(),
        )


def _silence() -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class MemoryJournal:
    """A journal that outlives the crashes of a simulated program."""

    run: str
    world: World
    fate: Fate
    seams: Seams
    records: list[Record] = field(default_factory=list)

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Commit them all, or none.

        Raises:
            JournalError: the simulated disk is full.
            Crash: the program is killed before or after the commit.
        """
        names = ", ".join(event.event for event in events)
        self.seams.point(f"before the commit of {names}")
        if self.world.agenda.now < self.fate.disk_full_until:
            raise JournalError(self.fate.journal_says)
        first = len(self.records) + 1
        new = [Record(run=self.run, sequence=first + n, at=at, event=event) for n, event in enumerate(events)]
        self.records += new
        self.seams.point(f"after the commit of {names}")
        return new

    def request(self) -> Request:
        """What another terminal left."""
        return self.fate.request


_HEARTBEAT_SECONDS: Final = 15.0
_LOST_AFTER_SECONDS: Final = 60.0
"""As the real lease: without a refresh for so long it counts as lost, until one succeeds."""


@dataclass(slots=True, kw_only=True)
class SimulatedLease:
    """Our hold on the lease, and the record that stands in the simulated cluster.

    Somebody may take it, for good, or no refresh may arrive for a while: then it is lost after a minute and
    regained with the first refresh that arrives.

    Attributes:
        record: what another bastion would read.
        succeeded_by: the lease of the process that took over from this one; None = none did.
    """

    world: World
    fate: Fate
    record: LeaseRecord = field(
        default_factory=lambda: LeaseRecord(
            epoch=1, run="run-1", owner="ann@bastion", process="boot:1:1", started="2026-11-01T00:00:00Z"
        )
    )
    succeeded_by: SimulatedLease | None = None

    @property
    def in_cluster(self) -> LeaseRecord:
        """The record with the highest epoch."""
        return self.record if self.succeeded_by is None else self.succeeded_by.in_cluster

    @property
    def deposed(self) -> bool:
        """Whether another process owns the cluster now."""
        return self.in_cluster.epoch > self.record.epoch

    def view(self) -> LeaseView:
        """Ours, until somebody takes it or it was not refreshed for too long."""
        age, holder = self._age(), self.fate.lease_holder
        successor = None
        if self.deposed:
            there = self.in_cluster
            holder = there.owner
            successor = Successor(
                run=there.run,
                owner=there.owner,
                epoch=there.epoch,
                in_hand=tuple(one.node for one in there.in_hand),
            )
        if holder is None and age > _LOST_AFTER_SECONDS:
            holder = f"nobody that is known: not refreshed for {age:.0f} s"
        return LeaseView(
            held=holder is None, holder=holder or self.record.owner, refreshed=age, successor=successor
        )

    def confirm(self) -> Reading[LeaseView]:
        """As `view`; what was not refreshed is read, which needs a master."""
        view = self.view()
        if view.refreshed > _LOST_AFTER_SECONDS and self.world.master is None:
            return Unknown(reason="503 master_not_discovered_exception")
        return view

    def _age(self) -> Seconds:
        """Of the last heartbeat that arrived; the first after an interruption arrives as it ends."""
        now, (began, until) = self.world.agenda.now, self.fate.unrefreshed
        if began <= now < until:
            return now - began + began % _HEARTBEAT_SECONDS
        beat = now - now % _HEARTBEAT_SECONDS
        return now - max(beat, until)

    def publish(self, state: RunState) -> ActionResult:
        """Bring the record up to the state; refused without a master, and when the lease is lost."""
        holder = self.in_cluster.owner if self.deposed else self.fate.lease_holder
        if holder is not None:
            return Refused(reason=f"the lease in the cluster is lost to {holder}")
        record = state.lease_record(self.record)
        if record == self.record:
            return Done()
        began, until = self.fate.unrefreshed
        if began <= self.world.agenda.now < until:
            return InDoubt(reason="read timed out")
        if self.world.master is None:
            return Refused(reason="503 master_not_discovered_exception")
        self.record = record
        return Done()


@dataclass(slots=True, kw_only=True)
class SimulatedLeasePort:
    """The lease as the simulated cluster keeps it: a record an epoch, for every program on that cluster.

    Attributes:
        records: by epoch.
    """

    world: World
    fate: Fate
    records: dict[int, LeaseRecord] = field(default_factory=dict)

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch; a cluster without a master does not answer."""
        if self._silent() or self.world.master is None:
            return Unknown(reason="read timed out" if self._silent() else "503 master_not_discovered")
        self._taken_by_others()
        return self.records[max(self.records)] if self.records else None

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create that epoch, unless one like it or a higher one is there."""
        self._taken_by_others()
        if max(self.records, default=0) >= record.epoch:
            return Refused(reason=f"epoch {max(self.records)} is there already")
        return self._put(record)

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch."""
        self._taken_by_others()
        found = self.records.get(record.epoch)
        ours = found is not None and (found.run, found.process) == (record.run, record.process)
        if not ours or max(self.records) != record.epoch:
            return Refused(reason="the record is another run's")
        return self._put(record)

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch."""
        if self._silent():
            return InDoubt(reason="read timed out")
        for known in [known for known in self.records if known <= epoch]:
            del self.records[known]
        return Done()

    def _put(self, record: LeaseRecord) -> ActionResult:
        if self._silent():
            return InDoubt(reason="read timed out")
        if self.world.master is None:
            return Refused(reason="503 master_not_discovered_exception")
        self.records[record.epoch] = record
        return Done()

    def _silent(self) -> bool:
        began, until = self.fate.unrefreshed
        return began <= self.world.agenda.now < until

    def _taken_by_others(self) -> None:
        """Where the fate of the world has somebody take the lease, that record is there."""
        holder, last = self.fate.lease_holder, max(self.records, default=0)
        if holder is not None and last and self.records[last].owner != holder:
            self.records[last + 1] = LeaseRecord(
                epoch=last + 1, run="theirs", owner=holder, process="elsewhere/1/0/1", started=""
            )
