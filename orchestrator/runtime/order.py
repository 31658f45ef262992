"""The order of the runs in a state: that in which they took their leases. No clock orders them.

Two machines that share a state have two clocks, and one machine's clock can be set. So each `lease_taken` has
its number in the state, and names the run whose pending changes it takes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, select

from orchestrator.errors import JournalError
from orchestrator.model.event import LeaseTaken, Record
from orchestrator.runtime import codec, tables

LEASE_TAKEN: Final = "lease_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A run that took a lease, and that event."""

    run: str
    taken: LeaseTaken

    @property
    def ordinal(self) -> int:
        """The number of the lease; 0 in the journal of an earlier version, which has none."""
        return self.taken.ordinal or 0


def is_event(*names: str) -> ColumnElement[bool]:
    """Whether a row of the table of events is an event with one of these names."""
    text = tables.events.c.event
    found = [text.startswith(codec.begins_with(name), autoescape=True) for name in names]
    return found[0] if len(found) == 1 else found[0] | is_event(*names[1:])


def holders(connection: Connection) -> Sequence[LeaseHolder]:
    """Every lease that was taken with this state, in order. One that cannot be read is left out.

    A damaged journal is reported where that run is shown; the others can still be restored.
    """
    events = tables.events.c
    query = select(events.run, events.sequence, events.at, events.event).where(is_event(LEASE_TAKEN))
    found = []
    for row in connection.execute(query.order_by(events.run, events.sequence)):
        with suppress(JournalError):
            event = _record(row).event
            if isinstance(event, LeaseTaken):
                found.append(LeaseHolder(run=row.run, taken=event))
    return sorted(found, key=lambda one: one.ordinal)


def _record(row: Row[*tuple[Any, ...]]) -> Record:
    return codec.record_of(row.run, row.sequence, row.at, row.event)


def latest(found: Iterable[LeaseHolder]) -> Mapping[str, LeaseHolder]:
    """The last lease of each run."""
    return {one.run: one for one in found}


def heir(of: str, found: Sequence[LeaseHolder]) -> str | None:
    """The run that took over the pending changes of a run since that run had its last lease."""
    own = max((one.ordinal for one in found if one.run == of), default=0)
    return next(
        (
            one.run
            for one in reversed(found)
            if one.taken.takes_over == of and one.run != of and one.ordinal > own
        ),
        None,
    )


def in_order(rows: Iterable[Row[tuple[str, int, float, str]]]) -> list[Record]:
    """Rows of several journals, as one list in the order in which their runs held the lease.

    Args:
        rows: by run and sequence, each `lease_taken` among them.

    Raises:
        JournalError: a row cannot be read.
    """
    records: list[tuple[tuple[int, float, str, int], Record]] = []
    attempt: tuple[int, float, str] = (0, 0.0, "")
    for row in rows:
        record = _record(row)
        if isinstance(record.event, LeaseTaken) or record.run != attempt[2]:
            ordinal = record.event.ordinal if isinstance(record.event, LeaseTaken) else None
            attempt = (ordinal or 0, record.at, record.run)
        records.append(((*attempt, record.sequence), record))
    return [record for _, record in sorted(records, key=lambda one: one[0])]
