"""Journals of several runs, in the order in which these took their leases. No clock orders them.

Two machines that share a state have two clocks, and one machine's clock can be set. So each `lease_taken` has
its number in the state, and names the run whose pending changes it takes over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, select

from orchestrator.elasticsearch.rules.due import PastMerges
from orchestrator.errors import JournalError
from orchestrator.model.event import LeaseTaken, Record
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.runtime import codec, tables

_LEASE_TAKEN, _MERGE_BEGUN, _MERGE_ENDED = "lease_taken", "merge_begun", "index_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A run that took a lease, and that event."""

    run: str
    taken: LeaseTaken

    @property
    def ordinal(self) -> int:
        """The number of the lease; 0 in the journal of an earlier version, which has none."""
        return self.taken.ordinal or 0


def _is_event(*names: str) -> ColumnElement[bool]:
    """Whether a row of the table of events is an event with one of these names."""
    text = tables.events.c.event
    found = [text.startswith(codec.begins_with(name), autoescape=True) for name in names]
    return found[0] if len(found) == 1 else found[0] | _is_event(*names[1:])


def holders(connection: Connection) -> Sequence[LeaseHolder]:
    """Every lease that was taken with this state, in order. One that cannot be read is left out.

    A damaged journal is reported where that run is shown; the others can still be restored.
    """
    events = tables.events.c
    query = select(events.run, events.sequence, events.at, events.event).where(_is_event(_LEASE_TAKEN))
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


def merges_query(cluster_uuid: str) -> Select[tuple[str, int, float, str]]:
    """Rows for `past_merges`, over all runs of a cluster: one query by the names of events, no replay."""
    events, runs = tables.events, tables.runs
    return (
        select(events.c.run, events.c.sequence, events.c.at, events.c.event)
        .join(runs, runs.c.id == events.c.run)
        .where(runs.c.cluster_uuid == cluster_uuid, _is_event(_LEASE_TAKEN, _MERGE_BEGUN, _MERGE_ENDED))
        .order_by(events.c.run, events.c.sequence)
    )


def past_merges(rows: Collection[Row[tuple[str, int, float, str]]], indices: Collection[str]) -> PastMerges:
    """The merges of these indices in such rows, by uuid.

    Raises:
        JournalError: a row cannot be read.
    """
    unfinished: set[str] = set()
    ended: dict[str, IndexMerged] = {}
    wanted = frozenset(indices)
    for record in in_order(rows):
        event = record.event
        if isinstance(event, MergeBegun) and event.index_uuid in wanted:
            unfinished.add(event.index_uuid)
        elif isinstance(event, IndexMerged) and event.index_uuid in wanted:
            unfinished.discard(event.index_uuid)
            ended[event.index_uuid] = event
    return PastMerges(unfinished=frozenset(unfinished), ended=ended)
