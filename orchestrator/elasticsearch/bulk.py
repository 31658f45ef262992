"""Read the indices that a run merges, and the force-merges in progress.

| what | calls |
|---|---|
| uuids of indices | 1 the first time, and again when an index is gone |
| tasks | 1; 1 more while a merge runs that names anything else than these indices |
| state, segments, counters | 3, for as many indices as one request line holds |

Tasks are read first. If a merge ends between the calls, it is read as running, with its final segments.
In the opposite order it would be read as ended, with the segments from before the merge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.parse_bulk import BulkState, parse_bulk_index, parse_bulk_state
from orchestrator.elasticsearch.parse_cluster import parse_index_uuids
from orchestrator.elasticsearch.parse_merges import (
    MERGE_ACTIONS,
    RunningMerge,
    named_otherwise,
    parse_merges,
)
from orchestrator.elasticsearch.request import HttpRequest
from orchestrator.elasticsearch.resolve import parse_names
from orchestrator.model.merging import BulkIndex, BulkView
from orchestrator.model.reading import Reading, Unknown


def body_of(client: ElasticsearchClient, request: HttpRequest) -> tuple[Any] | Unknown:
    """The body of an answer, in a tuple so that no body can be mistaken for a failure."""
    outcome = client.read(request)
    return outcome.unknown() if isinstance(outcome, Fault) else (outcome.body,)


def merges_of(
    client: ElasticsearchClient, dialect: Dialect, indices: Mapping[str, str]
) -> Reading[Mapping[str, tuple[RunningMerge, ...]]]:
    """The running force-merges, by the uuid of each index that they include.

    Args:
        client: the way to the cluster.
        dialect: that of a version with a task list.
        indices: names by uuid.
    """
    read = body_of(client, calls.tasks(MERGE_ACTIONS, detailed="true"))
    running = read if isinstance(read, Unknown) else parse_merges(read[0])
    if isinstance(running, Unknown):
        return running
    names: Mapping[str, frozenset[str]] = {}
    if named_otherwise(running, set(indices.values())):
        asked = body_of(client, calls.names(dialect, client.limits))
        known = asked if isinstance(asked, Unknown) else parse_names(asked[0])
        if isinstance(known, Unknown):
            return known
        names = known
    return {
        uuid: tuple(merge for merge in running if merge.covers(names.get(uuid, frozenset()) | {name}))
        for uuid, name in indices.items()
    }


class BulkReader:
    """Reads indices by uuid. Caches their names, since an index never changes its name.

    Args:
        client: the way to the cluster.
    """

    def __init__(self, client: ElasticsearchClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}

    def read(self, uuids: Collection[str]) -> Reading[BulkView]:
        """One reading of all these indices. Deleted and closed ones are left out of `indices`."""
        if not uuids:
            return BulkView(indices={})
        dialect = self._client.dialect()
        if isinstance(dialect, Fault):
            return dialect.unknown()
        names = self._named(dialect, uuids)
        if isinstance(names, Unknown):
            return names
        tasks: Mapping[str, tuple[RunningMerge, ...]] = {}
        if dialect.task_list and names:
            running = merges_of(self._client, dialect, names)
            if isinstance(running, Unknown):
                return running
            tasks = running
        found: dict[str, BulkIndex] = {}
        closed: set[str] = set()
        for part in calls.request_lines(sorted(names.values())):
            states = self._states(dialect, part)
            if isinstance(states, Unknown):
                return states
            ours = {uuid: state for uuid, state in states.items() if uuid in names}
            closed |= {uuid for uuid, state in ours.items() if not state.open}
            indices = self._indices(dialect, [state for state in ours.values() if state.open])
            if isinstance(indices, Unknown):
                return indices
            found |= {index.uuid: index for index in indices}
        return BulkView(
            indices={
                uuid: replace(index, tasks=len(tasks.get(uuid, ())), tasks_known=dialect.task_list)
                for uuid, index in found.items()
            },
            closed=frozenset(closed),
        )

    def _named(self, dialect: Dialect, uuids: Collection[str]) -> Reading[dict[str, str]]:
        """Names by uuid of the existing indices."""
        if any(uuid not in self._names for uuid in uuids):
            read = body_of(self._client, calls.index_uuids(dialect, self._client.limits, ()))
            known = read if isinstance(read, Unknown) else parse_index_uuids(read[0])
            if isinstance(known, Unknown):
                return known
            self._names |= {uuid: name for name, uuid in known.items() if uuid in uuids}
        return {uuid: self._names[uuid] for uuid in uuids if uuid in self._names}

    def _states(self, dialect: Dialect, names: Sequence[str]) -> Reading[Mapping[str, BulkState]]:
        read = body_of(self._client, calls.bulk_state(dialect, self._client.limits, names))
        return read if isinstance(read, Unknown) else parse_bulk_state(read[0])

    def _indices(self, dialect: Dialect, states: Sequence[BulkState]) -> Reading[tuple[BulkIndex, ...]]:
        if not states:
            return ()
        names = [state.name for state in states]
        segments = body_of(self._client, calls.segments(dialect, names))
        if isinstance(segments, Unknown):
            return segments
        writes = body_of(self._client, calls.writes(dialect, names))
        if isinstance(writes, Unknown):
            return writes
        found: list[BulkIndex] = []
        for state in states:
            index = parse_bulk_index(
                state,
                segments=segments[0],
                writes=writes[0],
                sequence_numbers=dialect.sequence_numbers,
                merge_committed=dialect.merge_committed,
            )
            if isinstance(index, Unknown):
                return index
            found.append(index)
        return tuple(found)
