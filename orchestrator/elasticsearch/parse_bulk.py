"""Segments, writes and settings of indices after a bulk load. Pure.

Only the segments that a search reads count: `search` in `_segments`. Seen on Elasticsearch 8.19 and 9.1 and
on OpenSearch 2.19: `_stats` counts searched and committed segments together, so a flush without a refresh
adds one. After a force-merge OpenSearch searches the old segments until a refresh (14 searched, 3 committed,
and `_stats` says 15). A segment that is only committed is searched after the next refresh; one that is only
searched disappears with it. The two must not be confused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.elasticsearch.fields import (
    Malformed,
    answer_of,
    count,
    given,
    items,
    mapping,
    number,
    text,
    truth,
    within,
)
from orchestrator.model.cluster import CopyState, NodeName, ShardId
from orchestrator.model.merging import BulkIndex, CopySegments, Writes

BULK_STATE_FIELDS: Final = (
    "cluster_name",
    "nodes.*.name",
    "metadata.indices.*.state",
    "metadata.indices.*.settings.index.uuid",
    "metadata.indices.*.settings.index.number_of_replicas",
    "metadata.indices.*.settings.index.refresh_interval",
    "metadata.indices.*.settings.index.translog.durability",
    "routing_table.indices.*.shards.*.state",
    "routing_table.indices.*.shards.*.primary",
    "routing_table.indices.*.shards.*.node",
)
SEGMENT_FIELDS: Final = (
    "_shards.failed",
    "_shards.failures",
    "indices.*.shards.*.routing.node",
    "indices.*.shards.*.num_search_segments",
    "indices.*.shards.*.segments.*.search",
    "indices.*.shards.*.segments.*.size_in_bytes",
)
WRITE_FIELDS: Final = (
    "_shards.failed",
    "_shards.failures",
    "indices.*.shards.*.routing.node",
    "indices.*.shards.*.indexing.index_total",
    "indices.*.shards.*.indexing.delete_total",
    "indices.*.shards.*.merges.current",
    "indices.*.shards.*.seq_no.max_seq_no",
)
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


def parse_bulk_index(
    state: BulkState, *, segments: Any, writes: Any, sequence_numbers: bool, merge_committed: bool = True
) -> BulkIndex:
    """One open index, from its state and the readings of its copies. A missing copy makes it unknown.

    Args:
        state: the state of the index.
        segments: the answer of `_segments`, with other indices too.
        writes: the answer of `_stats/indexing,merge?level=shards`, with other indices too.
        sequence_numbers: whether the version has sequence numbers.
        merge_committed: whether a flush keeps every merge; otherwise committed segments count too.
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
            copies=tuple(_segments(copy, segments, merge_committed=merge_committed) for copy in state.copies),
            writes=_writes(state.name, primaries, sequence_numbers=sequence_numbers),
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


def _segments(copy: PlacedCopy, answer: Any, *, merge_committed: bool) -> CopySegments:
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
    committed = (
        None
        if merge_committed
        else count(within(value, "num_committed_segments"), f"{where}: num_committed_segments")
    )
    return CopySegments(
        shard=copy.shard,
        node=copy.node,
        primary=copy.primary,
        searched=searched,
        bytes=sum(sizes),
        largest_bytes=max(sizes, default=0),
        committed=committed,
    )


def _writes(name: str, primaries: Sequence[Any], *, sequence_numbers: bool) -> Writes:
    operations = sum(
        count(within(value, "indexing", counter), f"{name}: {counter}")
        for value in primaries
        for counter in ("index_total", "delete_total")
    )
    if not sequence_numbers:
        return Writes(operations=operations, sequence=None)
    # An empty shard has -1.
    sequence = sum(
        number(within(value, "seq_no", "max_seq_no"), f"{name}: max_seq_no") for value in primaries
    )
    return Writes(operations=operations, sequence=sequence)
