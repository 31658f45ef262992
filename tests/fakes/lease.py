"""The lease as a cluster keeps it, in memory, with the faults that a cluster can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Garbled, Reading, Unknown


@dataclass
class FakeLeasePort:
    """A `LeasePort`; several runs may share one."""

    records: dict[int, LeaseRecord] = field(default_factory=dict)
    offline: str | None = None  # nothing is reached, for this reason
    garbled: Garbled | None = None  # what stands there is no record
    forbidden: str | None = None  # reads work, writes are refused, for this reason
    answers_lost: int = 0  # so many of the next writes are done, but their answer is lost
    writes: int = 0
    on_write: Callable[[LeaseRecord], None] = lambda _record: None  # told of each record before it is written

    def read(self) -> Reading[LeaseRecord | None]:
        if self.offline:
            return Unknown(reason=self.offline)
        if self.garbled:
            return self.garbled
        return self.records[max(self.records)] if self.records else None

    def create(self, record: LeaseRecord) -> ActionResult:
        if max(self.records, default=0) >= record.epoch and not self.offline:
            return Refused(reason=f"epoch {max(self.records)} is taken already")
        return self._put(record)

    def write(self, record: LeaseRecord) -> ActionResult:
        if not self.offline:
            standing = self.records.get(record.epoch)
            if max(self.records, default=0) != record.epoch or standing is None:
                return Refused(reason="it is not ours any more")
            if (standing.run, standing.process) != (record.run, record.process):
                return Refused(reason="it is not ours any more")
        return self._put(record)

    def try_out(self) -> None:
        """As of a cluster where a reading shows enough."""

    def remove(self, epoch: int) -> ActionResult:
        if self.offline:
            return InDoubt(reason=self.offline)
        for known in [known for known in self.records if known <= epoch]:
            del self.records[known]
        return Done()

    def _put(self, record: LeaseRecord) -> ActionResult:
        if self.offline:
            return InDoubt(reason=self.offline)
        if self.forbidden:
            return Refused(reason=self.forbidden)
        self.on_write(record)
        self.writes += 1
        self.records[record.epoch] = record
        if self.answers_lost:
            self.answers_lost -= 1
            return InDoubt(reason="the answer was lost")
        return Done()
