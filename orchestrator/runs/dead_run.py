"""What a run that no process continues has left: read from its record, and from its journal if it is here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from orchestrator.engine.fold import replay
from orchestrator.engine.restored import Journalled, as_restored
from orchestrator.errors import JournalError
from orchestrator.kinds import kind_of
from orchestrator.model.event import Record, RunFinished
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Observation
from orchestrator.model.policy import LeasePlace, Policy
from orchestrator.model.reading import Instant, Unknown
from orchestrator.runs.connection import ClusterPorts
from orchestrator.runtime.store import FINISHED, StateStore
from orchestrator.view.left_behind import LeftBehind

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRun:
    """A run that has ended or was killed, and whose record lists pending changes."""

    record: LeaseRecord
    records: tuple[Record, ...] = field(default=(), repr=False)  # its journal; empty where it is not here

    def words(self, now: Instant) -> LeftBehind:
        """It, for people."""
        if not self.records:
            return LeftBehind.of(self.record, last=None, now=now, ended=False)
        last = self.records[-1]
        return LeftBehind.of(self.record, last=last.at, now=now, ended=isinstance(last.event, RunFinished))

    def restored(self, seen: Observation, policy: Policy) -> Observation:
        """The cluster as it will be when its changes are restored."""
        records = self.records
        journal = Journalled.of(replay(self.record.debtor, records)) if records else Journalled()
        return as_restored(kind_of(policy.kind), seen, self.record, journal)


class Recorded(Protocol):
    """Reads the state; gives the second argument where there is none yet."""

    def __call__(self, read: Callable[[StateStore], _T], otherwise: _T, /) -> _T:
        """Read it."""


def lease_record(
    ports: ClusterPorts, place: LeasePlace, uuid: str, recorded: Recorded
) -> LeaseRecord | Unknown | None:
    """The record of the lease on a cluster, in its place."""
    if place is LeasePlace.CLUSTER:
        return ports.lease.read()
    return recorded(lambda store: store.lease(uuid).read(), None)


def dead_run(
    record: LeaseRecord | Unknown | None, recorded: Recorded, gone: Callable[[str], bool]
) -> DeadRun | None:
    """The run that has left this record with pending changes; None without one.

    Args:
        record: of the lease.
        recorded: reads the state.
        gone: whether a process has certainly ended. Without a proof it may be alive.
    """
    if not isinstance(record, LeaseRecord) or record.is_settled or not gone(record.process):
        return None
    left, run = record, DeadRun(record=record)
    unread: DeadRun | None = run

    def known(store: StateStore) -> DeadRun | None:
        """None if it finished by this state: it was killed before it released its lease."""
        over = store.outcome(left.debtor) in FINISHED
        return None if over else replace(run, records=store.replay(left.debtor))

    with suppress(JournalError):  # its changes are in the record
        return recorded(known, unread)
    return run
