"""Indices after a bulk load: read them and the force-merges in progress, and request a force-merge.

| what | calls |
|---|---|
| uuids of indices | 1 the first time, and again when an index is gone |
| tasks | 1; 1 more while a merge runs that names anything else than these indices |
| state, segments, counters | 3, for as many indices as one request line holds |

Tasks are read first. If a merge ends between the calls, it is read as running, with its final segments.
In the opposite order it would be read as ended, with the segments from before the merge.

Only the segments that a search reads count: `search` in `_segments`. Seen on Elasticsearch 8.19 and 9.1 and
on OpenSearch 2.19: `_stats` counts searched and committed segments together, so a flush without a refresh
adds one. After a force-merge OpenSearch searches the old segments until a refresh (14 searched, 3 committed,
and `_stats` says 15). A segment that is only committed is searched after the next refresh; one that is only
searched disappears with it. The two must not be confused.

A merge, with all its tasks, continues when its client is killed or disconnects (seen on Elasticsearch 8.19
and 9.1 and on OpenSearch 2.19). A second merge queues behind it on every node. So the task list is read
first, and a missing answer is not treated as a refusal.

A request is a task `indices:admin/forcemerge` on the node that received it. It has a part `…forcemerge[n]` on
every node with copies. If the receiving node is killed, the parts continue, and their parent task id no
longer exists. So a request that is not listed is found by its parts. On OpenSearch a part has no description,
and a part that waits in its node's queue is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.calls import HttpRequest, quoted
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import (
    Malformed,
    ReadFailed,
    answer_of,
    count,
    given,
    items,
    mapping,
    number,
    text,
    truth,
    unlisted,
    within,
)
from orchestrator.elasticsearch.parse_cluster import parse_index_uuids
from orchestrator.elasticsearch.resolve import matches, parse_names
from orchestrator.model.action import ActionResult, Done, ForceMerge, InDoubt, Refused
from orchestrator.model.cluster import CopyState, NodeName, ShardId
from orchestrator.model.merging import BulkIndex, BulkView, CopySegments, Writes
from orchestrator.model.reading import Seconds


def merges_of(
    client: ElasticsearchClient, indices: Mapping[str, str]
) -> Mapping[str, tuple[RunningMerge, ...]]:
    """The running force-merges, by the uuid of each index that they include.

    Args:
        client: the way to the cluster, whose version has a task list.
        indices: names by uuid.

    Raises:
        ReadFailed: tasks or names were not read.
    """
    running = parse_merges(client.body(calls.tasks(calls.MERGE_ACTIONS, detailed="true")))
    names: Mapping[str, frozenset[str]] = {}
    if named_otherwise(running, set(indices.values())):
        names = parse_names(client.body(calls.names(client.limits)))
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
            known = parse_index_uuids(client.body(calls.index_uuids(client.limits, ())))
            self._names |= {uuid: name for name, uuid in known.items() if uuid in uuids}
        names = {uuid: self._names[uuid] for uuid in uuids if uuid in self._names}
        tasks = merges_of(client, names) if dialect.task_list and names else {}
        found: dict[str, BulkIndex] = {}
        closed: set[str] = set()
        for part in calls.request_lines(sorted(names.values())):
            states = parse_bulk_state(client.body(calls.bulk_state(client.limits, part)))
            ours = [state for uuid, state in states.items() if uuid in names]
            closed |= {state.uuid for state in ours if not state.open}
            for index in self._indices([state for state in ours if state.open]):
                running = len(tasks.get(index.uuid, ()))
                found[index.uuid] = replace(index, tasks=running, tasks_known=dialect.task_list)
        return BulkView(indices=found, closed=frozenset(closed))

    def _indices(self, states: Sequence[BulkState]) -> tuple[BulkIndex, ...]:
        if not states:
            return ()
        names = [state.name for state in states]
        segments = self._client.body(calls.segments(names))
        writes = self._client.body(calls.writes(names))
        return tuple(parse_bulk_index(state, segments=segments, writes=writes) for state in states)


RESULT_PATIENCE: Final[Seconds] = 3.0
"""How long to wait for the result of a new task, which may be a refusal."""
_REFUSALS: Final = frozenset({"security_exception", "index_closed_exception", "cluster_block_exception"})
"""Errors of a task from before any merge."""


def merge_request(action: ForceMerge) -> HttpRequest:
    """The call. By default it flushes afterwards, so that the merged segments survive a restart."""
    return HttpRequest(
        method="POST",
        path=f"/{quoted(action.index)}/_forcemerge",
        params={"max_num_segments": str(action.max_segments)}
        | calls.ONLY_NAMED
        | {"wait_for_completion": "false"},
    )


def force_merge(client: ElasticsearchClient, dialect: Dialect, action: ForceMerge) -> ActionResult:
    """Request a merge of this index, unless a merge that includes it already runs, from any client.

    Another client may request one between the reading and the call. Each node then runs both merges in turn,
    and the second has little to do.
    """
    try:
        running = _running(client, dialect, action)
    except ReadFailed as error:
        return Refused(
            reason=f"whether a force-merge of {action.index} runs already could not be read: {error}"
        )
    if running is not None:
        return replace(running, output=f"runs already: {running.output}")
    outcome = client.write(merge_request(action))
    if not isinstance(outcome, Fault):
        return _begun(client, action, outcome.body)
    if outcome.error_type == "index_not_found_exception":
        return Done(output=f"index {action.index} is gone")
    if outcome.nothing_done:
        return Refused(reason=outcome.reason)
    with suppress(ReadFailed):
        if (begun := _running(client, dialect, action)) is not None:
            return begun
    return InDoubt(reason=outcome.reason)


def _begun(client: ElasticsearchClient, action: ForceMerge, body: Any) -> ActionResult:
    """The result of an answered call.

    The server returns a task before any check. A missing right or a closed index appears only in the task's
    result (seen on 9.1), at once, so we wait briefly for it. A merge that still runs then is no fault.
    """
    asked = merge_asked(body)
    if not isinstance(body, dict) or not isinstance(body.get("task"), str) or not isinstance(asked, Done):
        return asked
    outcome = client.once(calls.task(body["task"], patience=RESULT_PATIENCE))
    if isinstance(outcome, Fault):
        return asked  # it still runs, or its result is not written yet
    match outcome.body:
        case {"completed": True, "error": {"type": str(kind), "reason": reason}}:
            why = f"the force-merge of {action.index} came to nothing ({asked.output}): {reason}"
            if kind == "index_not_found_exception":
                return Done(output=f"index {action.index} is gone")
            return Refused(reason=why) if kind in _REFUSALS else InDoubt(reason=why)
        case {"completed": True, "response": response}:
            ended = merge_asked(response)
            return Done(output=f"{asked.output}: {ended.output}") if isinstance(ended, Done) else ended
        case _:
            return asked


def _running(client: ElasticsearchClient, dialect: Dialect, action: ForceMerge) -> Done | None:
    """Done with the task's id if a merge of the index runs; None if none does or there is no task list."""
    if not dialect.task_list:
        return None
    running = merges_of(client, {action.index_uuid: action.index})
    tasks = [merge.task for merge in running[action.index_uuid]]
    return Done(output=", ".join(f"task {task}" for task in tasks)) if tasks else None


def merge_asked(body: Any) -> ActionResult:
    """The result of a call that started a task or that has finished the merge."""
    match body:
        case {"task": str(task)} if task:
            return Done(output=f"task {task}")
        case {"_shards": {"total": int(total), "successful": int(successful), "failed": int(failed)}}:
            missed = f", {failed} failed" if failed else ""
            return Done(output=f"{successful} of {total} copies merged{missed}")
        case _:
            return InDoubt(reason=f"the answer does not say whether a merge was begun: {str(body)[:200]}")


_STARTED: Final = frozenset({CopyState.STARTED, CopyState.RELOCATING})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCopy:
    """A started copy from the routing table."""

    shard: ShardId
    primary: bool
    node_id: str
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkState:
    """An index from the cluster's metadata and routing, before its copies are read."""

    name: str
    uuid: str
    open: bool
    copies: tuple[PlacedCopy, ...]
    replicas: int
    refresh_interval: str | None
    translog_durability: str | None


@answer_of("indices to merge")
def parse_bulk_state(body: Any) -> Mapping[str, BulkState]:
    """Indices by uuid, from a cluster state of some indices; deleted ones are left out."""
    text(within(body, "cluster_name"), "cluster_name")  # the answer is valid, though it may list no index
    listed = mapping(given(within(body, "metadata", "indices"), {}), "metadata.indices")
    states = [_state(name, listed[name], body) for name in listed]
    return {state.uuid: state for state in states}


def _state(name: str, value: Any, body: Any) -> BulkState:
    where = f"metadata.indices.{name}"
    settings = mapping(within(value, "settings", "index"), f"{where}.settings.index")
    state = text(within(value, "state"), f"{where}.state")
    if state not in ("open", "close"):
        raise Malformed(f"{where}.state is {state}")
    uuid = text(settings.get("uuid"), f"{where}: uuid")
    interval, durability = settings.get("refresh_interval"), within(settings, "translog", "durability")
    return BulkState(
        name=name,
        uuid=uuid,
        open=state == "open",
        copies=tuple(_placed(name, uuid, body)) if state == "open" else (),
        replicas=count(settings.get("number_of_replicas"), f"{where}: number_of_replicas"),
        refresh_interval=None if interval is None else text(interval, f"{where}: refresh_interval"),
        translog_durability=None if durability is None else text(durability, f"{where}: durability"),
    )


def _placed(name: str, uuid: str, body: Any) -> Iterator[PlacedCopy]:
    where = f"routing_table.indices.{name}"
    shards = mapping(within(body, "routing_table", "indices", name, "shards"), f"{where}.shards")
    nodes = mapping(within(body, "nodes"), "nodes")
    for number_text, copies in shards.items():
        shard = ShardId(index=name, index_uuid=uuid, number=number(number_text, f"{where}.shards"))
        primaries = 0
        for copy in items(copies, f"{where}.shards.{number_text}"):
            try:
                started = CopyState(within(copy, "state")) in _STARTED
            except ValueError as error:
                raise Malformed(f"a copy of {shard} is in state {within(copy, 'state')!r}") from error
            if not started:
                continue
            primary = truth(within(copy, "primary"), f"a copy of {shard}: primary")
            primaries += primary
            node_id = text(within(copy, "node"), f"a copy of {shard}: node")
            node = NodeName(text(within(nodes, node_id, "name"), f"the node {node_id} of {shard}"))
            yield PlacedCopy(shard=shard, primary=primary, node_id=node_id, node=node)
        if primaries != 1:
            # Its writes and segments are unknown: earlier readings are no longer valid.
            raise Malformed(f"{shard} has {primaries} started primaries")


def parse_bulk_index(state: BulkState, *, segments: Any, writes: Any) -> BulkIndex:
    """One open index, from its state and the readings of its copies. A missing copy makes it unknown.

    Args:
        state: the state of the index.
        segments: the answer of `_segments`, with other indices too.
        writes: the answer of `_stats/indexing,merge?level=shards`, with other indices too.
    """
    with answer_of(f"index {state.name}"):
        for what, answer in (("segments", segments), ("counters", writes)):
            if failed := count(within(answer, "_shards", "failed"), f"{what}: _shards.failed"):
                said = str(given(within(answer, "_shards", "failures"), ""))[:200]
                raise Malformed(f"{failed} copies did not send their {what}: {said}")
        of_copies = [_of_copy(copy, writes, "counters") for copy in state.copies]
        primaries = [value for copy, value in zip(state.copies, of_copies, strict=True) if copy.primary]
        return BulkIndex(
            name=state.name,
            uuid=state.uuid,
            copies=tuple(_segments(copy, segments) for copy in state.copies),
            writes=_writes(state.name, primaries),
            merging=sum(
                count(within(value, "merges", "current"), f"{state.name}: merges.current")
                for value in of_copies
            ),
            replicas=state.replicas,
            refresh_interval=state.refresh_interval,
            translog_durability=state.translog_durability,
        )


def _of_copy(copy: PlacedCopy, answer: Any, what: str) -> Any:
    """The part of an answer about one copy, found by its shard and its node."""
    shard = copy.shard
    shards = within(answer, "indices", shard.index, "shards", str(shard.number))
    for each in items(given(shards, []), f"{what} of {shard}"):
        if within(each, "routing", "node") == copy.node_id:
            return each
    raise Malformed(f"the copy of {shard} on {copy.node} is started, but its answer lacks its {what}")


def _segments(copy: PlacedCopy, answer: Any) -> CopySegments:
    value = _of_copy(copy, answer, "segments")
    where = f"segments of {copy.shard} on {copy.node}"
    # `filter_path` drops the empty object of an empty copy, so the segment count is checked separately.
    listed = mapping(given(within(value, "segments"), {}), where)
    sizes = [
        count(within(each, "size_in_bytes"), f"{where}: size_in_bytes")
        for each in listed.values()
        if truth(within(each, "search"), f"{where}: search")
    ]
    searched = count(within(value, "num_search_segments"), f"{where}: num_search_segments")
    if searched != len(sizes):
        raise Malformed(f"{where}: {searched} are searched, and {len(sizes)} are listed")
    return CopySegments(
        shard=copy.shard,
        node=copy.node,
        primary=copy.primary,
        searched=searched,
        bytes=sum(sizes),
        largest_bytes=max(sizes, default=0),
        # before 1.6, where they count too
        committed=count(value["committed"], f"{where}: committed") if "committed" in value else None,
    )


def _writes(name: str, primaries: Sequence[Any]) -> Writes:
    operations = sum(
        count(within(value, "indexing", counter), f"{name}: {counter}")
        for value in primaries
        for counter in ("index_total", "delete_total")
    )
    if any(unlisted(value, "seq_no") for value in primaries):
        return Writes(operations=operations, sequence=None)
    # An empty shard has -1.
    sequence = sum(
        number(within(value, "seq_no", "max_seq_no"), f"{name}: max_seq_no") for value in primaries
    )
    return Writes(operations=operations, sequence=sequence)


_DESCRIPTION: Final = re.compile(r"Force-merge indices \[(?P<named>.*)\], maxSegments\[.*", re.DOTALL)
"""The start is the same on all three. The names are those of the request: also globs, aliases and data
streams. They are empty for all indices."""
_DATE_MATH: Final = "<"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMerge:
    """A request for a force-merge in progress."""

    task: str  # id of its task, `node:number`
    # the names in the request; empty for all indices. None if they cannot be read.
    named: tuple[str, ...] | None

    def covers(self, names: Collection[str]) -> bool:
        """Whether the request may include the index with these names.

        A request with unreadable names counts for every index, and exclusions (`-name`) are ignored. If a
        merge is wrongly taken for running, the run waits for it; if it is missed, the merge is done twice.
        """
        if not self.named:
            return True
        return any(
            pattern.startswith(_DATE_MATH) or any(matches(pattern, name) for name in names)
            for pattern in self.named
        )


@answer_of("force-merges")
def parse_merges(body: Any) -> tuple[RunningMerge, ...]:
    """`_tasks?actions=*forcemerge*&detailed`. A node that did not answer makes it unknown."""
    for part in ("node_failures", "task_failures"):
        if failures := items(given(within(body, part), []), part):
            raise Malformed(f"{len(failures)} {part.replace('_', ' ')}: {str(failures[0])[:200]}")
    requests: dict[str, RunningMerge] = {}
    parts: dict[str, RunningMerge] = {}
    for node_id, node in mapping(within(body, "nodes"), "nodes").items():
        for task_id, task in mapping(within(node, "tasks"), f"nodes.{node_id}.tasks").items():
            named = _named(within(task, "description"))
            if text(within(task, "action"), f"{task_id}.action") == calls.MERGE_ACTION:
                requests[task_id] = RunningMerge(task=task_id, named=named)
                continue
            parent = text(within(task, "parent_task_id"), f"{task_id}.parent_task_id")
            parts[parent] = RunningMerge(task=parent, named=named)
    found = parts | requests
    return tuple(found[task] for task in sorted(found))


def _named(description: Any) -> tuple[str, ...] | None:
    match = _DESCRIPTION.fullmatch(description) if isinstance(description, str) else None
    return None if match is None else tuple(filter(None, match["named"].split(", ")))


def named_otherwise(merges: Collection[RunningMerge], names: Collection[str]) -> bool:
    """Whether a merge names anything else than these indices, so that all names are needed to resolve it."""
    return any(pattern not in names for merge in merges for pattern in merge.named or ())
