"""A lease that is taken in memory, over one that can be read and not written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.model.action import ActionResult, Done, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.lease import UnwrittenLease

THEIRS = LeaseRecord(epoch=4, run="run-1", owner="ben@there", process="b/1/2/3", started="2026-11-02")
OURS = replace(THEIRS, epoch=5, run="run-2", owner="ann@here")


@dataclass(slots=True)
class ReadOnly:
    """A lease that nobody can write; what stands there may change all the same."""

    record: Reading[LeaseRecord | None] = THEIRS

    def read(self) -> Reading[LeaseRecord | None]:
        return self.record

    def create(self, record: LeaseRecord) -> ActionResult:
        raise AssertionError(f"{record} is written")

    def write(self, record: LeaseRecord) -> ActionResult:
        raise AssertionError(f"{record} is written")

    def remove(self, epoch: int) -> ActionResult:
        raise AssertionError(f"{epoch} is removed")


def test_it_is_what_stands_there_until_it_is_taken() -> None:
    there = ReadOnly()
    lease = UnwrittenLease(there)
    assert lease.read() == THEIRS
    assert lease.create(OURS) == Done()
    assert lease.read() == OURS
    assert lease.write(replace(OURS, heartbeat=1)) == Done()
    assert lease.read() == replace(OURS, heartbeat=1)


def test_a_record_taken_over_is_gone_once_removed() -> None:
    lease = UnwrittenLease(ReadOnly())
    lease.create(OURS)
    assert lease.remove(OURS.epoch) == Done()
    assert lease.read() is None
    first = replace(OURS, epoch=1)
    assert lease.create(first) == Done(), "for who reads nothing the first epoch is the next one"
    assert lease.write(replace(first, heartbeat=1)) == Done()
    assert lease.read() == replace(first, heartbeat=1)


def test_an_epoch_that_stands_there_is_not_taken() -> None:
    lease = UnwrittenLease(ReadOnly())
    assert isinstance(lease.create(replace(OURS, epoch=THEIRS.epoch)), Refused)
    assert lease.read() == THEIRS


def test_somebody_who_can_write_after_all_is_seen() -> None:
    there = ReadOnly()
    lease = UnwrittenLease(there)
    lease.create(OURS)
    later = replace(THEIRS, epoch=5)
    there.record = later
    assert isinstance(lease.write(OURS), Refused)
    assert lease.read() == later
    lease.remove(OURS.epoch)
    there.record = replace(THEIRS, epoch=6)
    assert lease.read() == there.record


def test_our_record_written_while_there_was_room_is_still_ours() -> None:
    """The lease was taken, and then the disk had no space for the journal."""
    there = ReadOnly(OURS)
    lease = UnwrittenLease(there)
    assert lease.read() == OURS
    assert lease.write(replace(OURS, heartbeat=1)) == Done()
    assert lease.read() == replace(OURS, heartbeat=1)
    there.record = replace(OURS, epoch=6, run="run-3")
    assert isinstance(lease.write(OURS), Refused)
    for other in (replace(OURS, run="run-3"), replace(OURS, process="b/1/2/4")):
        assert isinstance(UnwrittenLease(ReadOnly(other)).write(OURS), Refused)


def test_what_cannot_be_read_is_unknown() -> None:
    there = ReadOnly()
    lease = UnwrittenLease(there)
    lease.create(OURS)
    there.record = Unknown(reason="database is locked")
    assert lease.read() == there.record
