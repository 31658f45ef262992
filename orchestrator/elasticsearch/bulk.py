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

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.parse_bulk import BulkState, parse_bulk_index, parse_bulk_state
from orchestrator.elasticsearch.parse_cluster import parse_index_uuids
from orchestrator.elasticsearch.parse_merges import (
    MERGE_ACTIONS,
    RunningMerge,
    named_otherwise,
    parse_merges,
)
from orchestrator.elasticsearch.resolve import parse_names
from orchestrator.model.merging import BulkIndex, BulkView


def merges_of(
    client: ElasticsearchClient, dialect: Dialect, indices: Mapping[str, str]
) -> Mapping[str, tuple[RunningMerge, ...]]:
    """The running force-merges, by the uuid of each index that they include.

    Args:
        client: the way to the cluster.
        dialect: that of a version with a task list.
        indices: names by uuid.

    Raises:
        ReadFailed: tasks or names were not read.
    """
    running = parse_merges(client.body(calls.tasks(MERGE_ACTIONS, detailed="true")))
    names: Mapping[str, frozenset[str]] = {}
    if named_otherwise(running, set(indices.values())):
        names = parse_names(client.body(calls.names(dialect, client.limits)))
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

    def read(self, uuids: Collection[str]) -> BulkView:
        """One reading of all these indices. Deleted and closed ones are left out of `indices`.

        Raises:
            ReadFailed: any of it was not read.
        """
        if not uuids:
            return BulkView(indices={})
        client, dialect = self._client, self._client.dialect_to_read()
        if any(uuid not in self._names for uuid in uuids):
            known = parse_index_uuids(client.body(calls.index_uuids(dialect, client.limits, ())))
            self._names |= {uuid: name for name, uuid in known.items() if uuid in uuids}
        names = {uuid: self._names[uuid] for uuid in uuids if uuid in self._names}
        tasks = merges_of(client, dialect, names) if dialect.task_list and names else {}
        found: dict[str, BulkIndex] = {}
        closed: set[str] = set()
        for part in calls.request_lines(sorted(names.values())):
            states = parse_bulk_state(client.body(calls.bulk_state(dialect, client.limits, part)))
            ours = [state for uuid, state in states.items() if uuid in names]
            closed |= {state.uuid for state in ours if not state.open}
            for index in self._indices(dialect, [state for state in ours if state.open]):
                running = len(tasks.get(index.uuid, ()))
                found[index.uuid] = replace(index, tasks=running, tasks_known=dialect.task_list)
        return BulkView(indices=found, closed=frozenset(closed))

    def _indices(self, dialect: Dialect, states: Sequence[BulkState]) -> tuple[BulkIndex, ...]:
        if not states:
            return ()
        names = [state.name for state in states]
        segments = self._client.body(calls.segments(dialect, names))
        writes = self._client.body(calls.writes(dialect, names))
        return tuple(
            parse_bulk_index(
                state,
                segments=segments,
                writes=writes,
                sequence_numbers=dialect.sequence_numbers,
                merge_committed=dialect.merge_committed,
            )
            for state in states
        )
