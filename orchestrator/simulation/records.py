"""Time, lease and listening of a simulated run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Watch
from orchestrator.model.reading import Instant, Reading, Seconds, Unauthorized, Unknown
from orchestrator.simulation.cluster import LOGIN_REFUSED, SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.parts import SimOwner
from orchestrator.simulation.world import World


@dataclass(slots=True, kw_only=True)
class SimulatedClock:
    """Virtual time of one process of the program. A wait lets the world continue."""

    world: World
    fate: Fate
    ahead: Seconds = 0.0  # how far the machine's clock was ahead of the world's time when the process began

    def now(self) -> Instant:
        """The process's now."""
        return self.world.agenda.now + self.ahead

    def wait(self, seconds: Seconds) -> None:
        """Let time pass; a request ends the wait."""
        before = self.fate.request
        self.world.agenda.until(lambda: self.fate.request is not before, seconds)


_LONGEST_SLEEP: Final[Seconds] = 20.0
"""The program's own limits may be noticed this much later than on a real cluster."""


@dataclass(slots=True, kw_only=True)
class SimulatedListener:
    """Listens to cluster and hosts at once, like the real one, but without threads.

    A real run reads again at `watch.until`. Where the last reading led to nothing, and nothing has happened
    since, the next one would lead to nothing too, but for the program's own limits. So the readings until
    something happens are left out, for at most as long as nothing has been decided already.
    """

    world: World
    fate: Fate
    clock: SimulatedClock
    cluster: SimulatedCluster
    hosts: SimulatedHosts
    written: Callable[[], int]  # number of records in the journal of the run
    _written: int = -1
    _decided: Instant = 0.0

    def listen(self, watch: Watch) -> None:
        """Return at an event that was listened to, at a request, or at `watch.until` or a later reading."""
        request, services = self.fate.request, self.hosts.services(watch.services)
        joined = self.cluster.holds(watch.cluster) if watch.cluster is not None else _never
        agenda, written = self.world.agenda, self.written()
        idle = written == self._written
        if not idle:
            self._written, self._decided = written, agenda.now

        def heard() -> bool:
            asked = self.fate.request is not request
            return asked or joined() or self.hosts.services(watch.services) != services

        pause = watch.until - self.clock.now()
        last = agenda.now + min(_LONGEST_SLEEP, agenda.now - self._decided)
        while not agenda.until(heard, pause):
            quiet = idle and self.cluster.happened == agenda.happened
            unwritten = agenda.now < self.fate.disk_full_until
            if not quiet or unwritten or pause <= 0.0 or agenda.now + pause > last:
                return


def _never() -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class MemoryLeasePort:
    """A lease as the state of a program keeps it."""

    records: dict[int, LeaseRecord] = field(default_factory=dict)  # by epoch

    @property
    def in_force(self) -> LeaseRecord | None:
        """The record with the highest epoch."""
        return self.records[max(self.records)] if self.records else None

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch."""
        return self.in_force

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create that epoch, unless the same or a higher epoch exists."""
        if max(self.records, default=0) >= record.epoch:
            return Refused(reason=f"epoch {max(self.records)} is there already")
        return self._put(record)

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch."""
        found = self.records.get(record.epoch)
        ours = found is not None and (found.run, found.process) == (record.run, record.process)
        if not ours or max(self.records) != record.epoch:
            return Refused(reason="the record is another run's")
        return self._put(record)

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch."""
        for known in [known for known in self.records if known <= epoch]:
            del self.records[known]
        return Done()

    def _put(self, record: LeaseRecord) -> ActionResult:
        self.records[record.epoch] = record
        return Done()


@dataclass(slots=True, kw_only=True)
class SimulatedLeasePort(MemoryLeasePort):
    """The lease as the simulated cluster stores it, for every program on that cluster.

    A call that does not arrive is in doubt. Without a master no call is answered.

    Attributes:
        fate: fate of one program.
        records: all programs on the cluster share them.
        claim: number of the record that this program created last, among all in this world. Epochs start
            again after a lease is released.
    """

    world: World
    fate: Fate
    claim: int = 0

    def __post_init__(self) -> None:
        """From now on `fate.remove_record` removes this program's record."""
        self.fate.remove_record = self.remove_by_hand

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch. A cluster without a master does not answer."""
        if self.refused:
            return Unauthorized(reason=LOGIN_REFUSED.sentence, refusal=LOGIN_REFUSED)
        if self.silent or self.world.master is None:
            return Unknown(reason="read timed out" if self.silent else "503 master_not_discovered")
        return self.in_force

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create that epoch, unless the same or a higher one exists. This program then owns the cluster."""
        result = MemoryLeasePort.create(self, record)
        if isinstance(result, Done):
            self.claim = self.world.owner.epoch + 1
            self.world.owner = SimOwner(epoch=self.claim, since=self.world.agenda.now, in_hand=self._to_start)
        return result

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch. The program's ownership can then no longer be read."""
        if self.refused:
            return Refused(reason=LOGIN_REFUSED.sentence, refusal=LOGIN_REFUSED)
        if self.silent:
            return InDoubt(reason="read timed out")
        if self.claim == self.world.owner.epoch:
            self.world.owner = replace(self.world.owner, since=float("inf"))
        return MemoryLeasePort.remove(self, epoch)

    def remove_by_hand(self) -> bool:
        """A person removes this program's record. Returns whether it still existed."""
        if not self.records or self.claim != self.world.owner.epoch:
            return False
        self.records.clear()
        self.world.owner = replace(self.world.owner, since=float("inf"))
        return True

    def _put(self, record: LeaseRecord) -> ActionResult:
        if self.refused:
            return Refused(reason=LOGIN_REFUSED.sentence, refusal=LOGIN_REFUSED)
        if self.silent:
            return InDoubt(reason="read timed out")
        if self.world.master is None:
            return Refused(reason="503 master_not_discovered_exception")
        return MemoryLeasePort._put(self, record)  # noqa: SLF001  (its own)

    def _to_start(self) -> list[NodeName]:
        in_force = self.in_force
        return [each.node for each in in_force.in_hand] if in_force else []

    @property
    def refused(self) -> bool:
        """Whether the cluster refuses the credentials of this program now."""
        return self.world.agenda.now < self.fate.unauthorized_until

    @property
    def silent(self) -> bool:
        """Whether no lease call of this program is answered now."""
        began, until = self.fate.unrefreshed
        return began <= self.world.agenda.now < until
