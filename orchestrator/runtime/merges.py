"""Merges in the journals of a cluster: one query by the names of events, no replay."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Row, Select, select

from orchestrator.elasticsearch.rules.due import PastMerges
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.runtime import tables
from orchestrator.runtime.order import LEASE_TAKEN, in_order, is_event

_BEGUN, _ENDED = "merge_begun", "index_merged"


def merges_query(cluster_uuid: str) -> Select[tuple[str, int, float, str]]:
    """Rows for `past_merges`, over all runs of a cluster."""
    events, runs = tables.events, tables.runs
    return (
        select(events.c.run, events.c.sequence, events.c.at, events.c.event)
        .join(runs, runs.c.id == events.c.run)
        .where(runs.c.cluster_uuid == cluster_uuid, is_event(LEASE_TAKEN, _BEGUN, _ENDED))
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
