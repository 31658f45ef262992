"""All requests that read a cluster, with their filters; and a request as data.

The same value is sent and described, so the two cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final
from urllib.parse import quote, unquote

from orchestrator.elasticsearch import old_versions
from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.elasticsearch.dialect import STATE, Dialect, VotingExclusions
from orchestrator.elasticsearch.parse import MERGE_POOLS, TASK_ACTIONS, listed_snapshots
from orchestrator.model.reading import Seconds

_STATE_FIELDS: Final = (
    "cluster_name",
    "cluster_uuid",
    "version",
    "state_uuid",
    "master_node",
    "nodes.*.name",
    "nodes.*.ephemeral_id",
    "nodes.*.transport_address",
    "nodes.*.attributes",
    "nodes.*.roles",
    "nodes.*.version",
    "metadata.cluster_uuid",
    "metadata.cluster_coordination.last_committed_config",
    "metadata.cluster_coordination.voting_config_exclusions",
    "metadata.node_shutdown",
    "metadata.indices.*.state",
    "metadata.indices.*.in_sync_allocations",
    "metadata.indices.*.ilm.action",
    "metadata.indices.*.ilm.step",
    "metadata.indices.*.settings.index.uuid",
    "metadata.indices.*.settings.index.number_of_replicas",
    "metadata.indices.*.settings.index.auto_expand_replicas",
    "metadata.indices.*.settings.index.routing.allocation",
    "metadata.indices.*.settings.index.store.type",
    "routing_table.indices.*.shards.*.state",
    "routing_table.indices.*.shards.*.primary",
    "routing_table.indices.*.shards.*.node",
    "routing_table.indices.*.shards.*.relocating_node",
    "routing_table.indices.*.shards.*.shard",
    "routing_table.indices.*.shards.*.allocation_id.id",
    "routing_table.indices.*.shards.*.recovery_source.type",
    "routing_table.indices.*.shards.*.unassigned_info.reason",
    "routing_table.indices.*.shards.*.unassigned_info.failed_attempts",
)
"""The filter of the cluster state. Without it, mappings and features are nearly all of the answer."""
_RECOVERY_FIELDS: Final = tuple(
    f"*.shards.{name}"
    for name in (
        "id",
        "stage",
        "source.id",
        "source.name",
        "target.id",
        "target.name",
        "index.size.total_in_bytes",
        "index.size.reused_in_bytes",
        "index.size.recovered_in_bytes",
        "translog.recovered",
    )
)
_SNAPSHOT_FIELDS: Final = (
    "cluster_name",
    "snapshots.snapshots.repository",
    "snapshots.snapshots.snapshot",
    "snapshots.snapshots.state",
    "snapshots.snapshots.start_time_millis",
    "snapshots.snapshots.shards.state",
    "snapshots.snapshots.shards.node",
)
_DISK_FIELDS: Final = (
    "_nodes",
    "nodes.*.name",
    "nodes.*.roles",
    "nodes.*.fs.data.total_in_bytes",
    "nodes.*.fs.data.available_in_bytes",
)
_STORED_FIELDS: Final = ("nodes.*.name", "nodes.*.indices.store.size_in_bytes")
_DATA_PATH_FIELDS: Final = ("nodes.*.name", "nodes.*.fs.data.path")
_BULK_STATE_FIELDS: Final = (
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
_SEGMENT_FIELDS: Final = (
    "_shards.failed",
    "_shards.failures",
    "indices.*.shards.*.routing.node",
    "indices.*.shards.*.num_search_segments",
    "indices.*.shards.*.segments.*.search",
    "indices.*.shards.*.segments.*.size_in_bytes",
)
_WRITE_FIELDS: Final = (
    "_shards.failed",
    "_shards.failures",
    "indices.*.shards.*.routing.node",
    "indices.*.shards.*.indexing.index_total",
    "indices.*.shards.*.indexing.delete_total",
    "indices.*.shards.*.merges.current",
    "indices.*.shards.*.seq_no.max_seq_no",
)
_FINISHED_SNAPSHOT_FIELDS: Final = tuple(
    f"snapshots.{name}" for name in ("snapshot", "state", "end_time_in_millis", "shards.failed")
)
_INDEX: Final = "metadata.indices.*.settings.index"
_CREATION_FIELDS: Final = (
    "cluster_name",
    f"{_INDEX}.version",
    f"{_INDEX}.store.type",
    f"{_INDEX}.blocks.write",
    f"{_INDEX}.blocks.read_only",
    f"{_INDEX}.verified_read_only",
)
_RESOLVE_FIELDS: Final = (
    "cluster_name",
    "metadata.indices.*.state",
    "metadata.indices.*.aliases",
    "metadata.indices.*.settings.index.uuid",
    "metadata.indices.*.settings.index.hidden",
    "metadata.data_stream.data_stream.*.indices.index_name",
    "metadata.data_stream.data_stream_aliases.*.data_streams",
)
MERGE_ACTIONS: Final = "indices:admin/forcemerge*"
LANGUID: Final = "languid"
LANGUID_SECONDS: Final = 5.0
"""How long health may wait for the master's queue to drain; then it answers with `timed_out`."""
_LONGEST_NAMES: Final = 2000
"""A server refuses a request line of more than 4096 bytes (`http.max_initial_line_length`)."""
_MEMBER_FIELDS: Final = (
    "nodes.*.name",
    "nodes.*.version",
    "nodes.*.build_type",
    "nodes.*.http.publish_address",
)
_NAME_FIELDS: Final = (
    "nodes.*.transport_address",
    "nodes.*.settings.node.name",
    "nodes.*.settings.transport.tcp.port",
)
_UPGRADE_SECONDS: Final = 60.0
"""How long the server may work on a question that is asked once, before an upgrade."""
YOUNGEST_SNAPSHOTS: Final = 100
"""So many of a repository are listed: one of them is without a failed shard, or there is something wrong."""
ANSWER_MARGIN_SECONDS: Final = 10.0
"""The server's own time-out must come first, so that it is an answer and not a lost connection."""
_DEFAULTS: Final = (
    r"defaults.cluster\.routing\.allocation\.awareness*",
    r"defaults.cluster\.routing\.allocation\.disk*",
    r"defaults.cluster\.routing\.allocation\.enable",
    r"defaults.cluster\.routing\.allocation\.exclude*",
    r"defaults.cluster\.routing\.allocation\.include*",
    r"defaults.cluster\.routing\.allocation\.load_awareness*",
    r"defaults.cluster\.routing\.allocation\.node_*",
    r"defaults.cluster\.routing\.allocation\.require*",
    r"defaults.cluster\.routing\.allocation\.same_shard*",
    r"defaults.cluster\.routing\.allocation\.total_shards_per_node",
    r"defaults.cluster\.routing\.rebalance\.enable",
    r"defaults.indices\.recovery\.max_bytes_per_sec",
)
"""Dots are parts of a flat setting's name: escaped in a filter (seen on 8.19, 9.1 and OpenSearch 2.19)."""


def seconds(value: Seconds) -> str:
    """A time in the server's format."""
    milliseconds = round(value * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def _named(names: Sequence[str]) -> str | None:
    """Names as one part of a path; None if they may be too long for a request line."""
    joined = _listed(names)
    return joined if len(joined) <= _LONGEST_NAMES else None


def _listed(names: Sequence[str]) -> str:
    """Names as one part of a path; they must fit (`request_lines`)."""
    return ",".join(quoted(name) for name in names)


def request_lines(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Names split into parts that each fit one request line."""
    part: list[str] = []
    for name in names:
        if part and _named([*part, name]) is None:
            yield tuple(part)
            part = []
        part.append(name)
    if part:
        yield tuple(part)


def identity() -> HttpRequest:
    """Product and version. Not `GET /`: it needs a module, and OpenSearch may report a false version."""
    return get("/_nodes/_local/http", params=filtered("cluster_name", *_MEMBER_FIELDS))


def members() -> HttpRequest:
    """The version and the HTTP address of each node."""
    return by_node("/_nodes/http", params={"timeout": "5s"} | filtered(*_MEMBER_FIELDS))


def own_names() -> HttpRequest:
    """Before 5.0: which nodes have a name of their own, and the addresses of the others."""
    return by_node("/_nodes/settings", params={"timeout": "5s"} | filtered("nodes.*.name", *_NAME_FIELDS))


def processes() -> HttpRequest:
    """The process id of each node, as its own machine or container counts."""
    fields = filtered("nodes.*.name", "nodes.*.process.id")
    return by_node("/_nodes/process", params={"timeout": "5s"} | fields)


def state(dialect: Dialect, limits: RequestLimits, *, with_snapshots: bool) -> HttpRequest:
    """Members, metadata and routing, and on request the snapshots in progress."""
    metrics, fields = "master_node,nodes,metadata,routing_table,version", (*_STATE_FIELDS, *_SNAPSHOT_FIELDS)
    if with_snapshots:
        return _state(dialect, limits, f"{metrics},customs", filtered(*dict.fromkeys(fields)))
    return _state(dialect, limits, metrics, filtered(*_STATE_FIELDS))


def state_uuid(dialect: Dialect, limits: RequestLimits, *, with_snapshots: bool) -> HttpRequest:
    """The id of the master's current state (2.0), and the master: while both are the same, all of it is.

    Also its version, by which the updates of our lease are told from others (`OwnUpdates`).
    """
    metrics, fields = "version,master_node", ("state_uuid", "version", "master_node")
    if with_snapshots:
        return _state(dialect, limits, f"{metrics},customs", filtered(*fields, *_SNAPSHOT_FIELDS))
    return _state(dialect, limits, metrics, filtered(*fields))


def _state(
    dialect: Dialect, limits: RequestLimits, metrics: str, more: dict[str, str], named: str | None = None
) -> HttpRequest:
    """The cluster state, of some indices or of all.

    Before 1.0 a part is left out by a parameter. An answer without templates would lack the indices too
    (seen on 0.90), so only the blocks are always left out.
    """
    wait = {dialect.master_timeout: seconds(limits.elected_master)}
    if dialect.path_parts:
        return by_copy(f"/_cluster/state/{metrics}" + (f"/{named}" if named else ""), params=wait | more)
    parts = {f"filter_{part}": "true" for part in ("nodes", "routing_table") if part not in metrics}
    return by_copy(
        "/_cluster/state",
        # A parameter is quoted when it is sent.
        params=wait
        | {"filter_blocks": "true"}
        | parts
        | ({"filter_indices": unquote(named)} if named else {}),
        accept=frozenset({404}) if named else frozenset(),
        reshape=old_versions.state,
    )


def snapshots(dialect: Dialect, limits: RequestLimits) -> HttpRequest:
    """Only the snapshots in progress."""
    if dialect.snapshot_call != STATE:
        return by_copy(f"/{dialect.snapshot_call}", reshape=listed_snapshots)
    return _state(dialect, limits, "customs", filtered(*_SNAPSHOT_FIELDS))


def index_uuids(dialect: Dialect, limits: RequestLimits, names: Sequence[str]) -> HttpRequest:
    """Uuids of some indices, without deleted ones; of all indices if the names do not fit a request line."""
    named = _named(names)
    only = {"ignore_unavailable": "true"} | only_named(dialect) if named else {}
    fields = filtered("cluster_name", "metadata.indices.*.settings.index.uuid")
    return _state(dialect, limits, "metadata", only | fields, named)


def names(dialect: Dialect, limits: RequestLimits) -> HttpRequest:
    """All names of all indices: the answer is small, and a glob may match any index."""
    return _state(dialect, limits, "metadata", filtered(*_RESOLVE_FIELDS))


def lives(node_ids: Sequence[str], dialect: Dialect) -> HttpRequest:
    """Static facts of nodes. Old versions have some of them only in settings and attributes."""
    masters = ("nodes.*.settings.discovery.zen.minimum_master_nodes",)
    by_count = masters if dialect.voting is VotingExclusions.NONE else ()
    attributes = () if dialect.roles_in_nodes else ("nodes.*.attributes",)
    own_name = () if dialect.ephemeral_ids else _NAME_FIELDS
    recovery = "nodes.*.settings.indices.recovery"
    files_of_recovery = (
        (f"{recovery}.max_bytes_per_sec",)
        if dialect.null_resets
        else (recovery, "nodes.*.settings.index.shard.recovery")
    )
    files = () if dialect.null_resets else ("nodes.*.settings.cluster.routing",)
    nodes = _named(node_ids) or "_all"
    if not dialect.path_parts:
        parts = dict.fromkeys(("jvm", "http", "settings"), "true")
        return by_node(
            f"/_nodes/{nodes}",
            params={"timeout": "5s", "clear": "true", "plugin": "true"} | parts,
            reshape=old_versions.node_facts,
        )
    return by_node(
        f"/_nodes/{nodes}/jvm,http,settings,plugins",
        params={"timeout": "5s"}
        | filtered(
            "nodes.*.name",
            "nodes.*.roles",
            "nodes.*.version",
            "nodes.*.build_type",
            "nodes.*.jvm.start_time_in_millis",
            "nodes.*.http.publish_address",
            "nodes.*.host",
            "nodes.*.plugins.name",
            *files_of_recovery,
            "nodes.*.settings.node.bandwidth.recovery",
            *by_count,
            *own_name,
            *attributes,
            *files,
        ),
    )


def memory(node_ids: Sequence[str]) -> HttpRequest:
    """The memory of nodes."""
    return by_node(
        f"/_nodes/{_named(node_ids) or '_all'}/stats/os",
        params={"timeout": "5s"} | filtered("cluster_name", "nodes.*.os.mem.total_in_bytes"),
    )


def settings(dialect: Dialect, limits: RequestLimits) -> HttpRequest:
    """Cluster settings at both levels, with values from files and defaults of the keys that we use."""
    return get(
        "/_cluster/settings",
        params={"flat_settings": "true"}
        | ({"include_defaults": "true"} if dialect.null_resets else {})
        | _settings_wait(dialect, limits)
        | filtered("persistent", "transient", *_DEFAULTS),
    )


def _settings_wait(dialect: Dialect, limits: RequestLimits) -> dict[str, str]:
    """The limit on the search for a master; without it, the server waits 30 s, and the client less."""
    return {dialect.master_timeout: seconds(limits.elected_master)} if dialect.settings_wait else {}


def levels(dialect: Dialect, limits: RequestLimits) -> HttpRequest:
    """Only the cluster settings at both levels."""
    return get(
        "/_cluster/settings",
        params={"flat_settings": "true"}
        | _settings_wait(dialect, limits)
        | filtered("persistent", "transient"),
    )


def health(dialect: Dialect, *, priority: str = LANGUID) -> HttpRequest:
    """Cluster health, after all tasks of this priority and above in the master's queue."""
    return get(
        "/_cluster/health",
        params={
            "wait_for_events": priority,
            "timeout": seconds(LANGUID_SECONDS),
            dialect.master_timeout: seconds(LANGUID_SECONDS),
        },
        accept=frozenset({408}),
        silence=LANGUID_SECONDS + ANSWER_MARGIN_SECONDS,
    )


def recoveries(dialect: Dialect, *, active_only: bool) -> HttpRequest:
    """Recoveries in progress, or also finished ones since the nodes' last start.

    `_status` always has the finished ones, and ids of nodes in place of names (`old_versions.recoveries`).
    """
    if dialect.recovery_call == "_status":
        return by_copy("/_status", params={"recovery": "true"})
    only = {"active_only": "true"} if active_only else {}
    return by_copy(f"/{dialect.recovery_call}", params=only | filtered(*_RECOVERY_FIELDS))


def tasks(actions: str = TASK_ACTIONS, **more: str) -> HttpRequest:
    """Force-merges and reindexes by node. Unfiltered: an empty answer must differ from a missing one."""
    return by_copy("/_tasks", params={"actions": actions, "timeout": "5s"} | more)


def merge_pools() -> HttpRequest:
    """Before 2.3, which lists no tasks: the thread pools that force-merges run in."""
    fields = (f"nodes.*.thread_pool.{name}" for name in MERGE_POOLS)
    return by_node("/_nodes/stats/thread_pool", params={"timeout": "5s"} | filtered("nodes.*.name", *fields))


def task(task_id: str, *, patience: Seconds) -> HttpRequest:
    """The state of one task, once it has ended or after this many seconds."""
    return by_copy(
        f"/_tasks/{quoted(task_id)}",
        params={"wait_for_completion": "true", "timeout": seconds(patience)},
        silence=patience + ANSWER_MARGIN_SECONDS,
    )


def bulk_state(dialect: Dialect, limits: RequestLimits, names: Sequence[str]) -> HttpRequest:
    """Routing and settings of some indices, closed ones too. Deleted ones are left out."""
    only = {"ignore_unavailable": "true"} | only_named(dialect)
    return _state(
        dialect,
        limits,
        "nodes,metadata,routing_table",
        only | filtered(*_BULK_STATE_FIELDS),
        _listed(names),
    )


def only_named(dialect: Dialect) -> dict[str, str]:
    """The parameter that takes each name for an index, and none for a pattern."""
    return {"expand_wildcards": "none"} if dialect.expand_none else {}


def segments(dialect: Dialect, names: Sequence[str]) -> HttpRequest:
    """The segments of every copy of some open indices.

    `ignore_unavailable` is not used, here and below. With it, a user without the right to read an index gets
    an answer as if the index did not exist, and no message about the missing right.
    """
    return by_copy(f"/{_listed(names)}/_segments", params=only_named(dialect) | filtered(*_SEGMENT_FIELDS))


def writes(dialect: Dialect, names: Sequence[str]) -> HttpRequest:
    """Write counters and running merges of every copy of some open indices."""
    if not dialect.path_parts:
        parts = {"clear": "true", "indexing": "true", "merge": "true", "level": "shards"}
        return by_copy(f"/{_listed(names)}/_stats", params=parts)
    return by_copy(
        f"/{_listed(names)}/_stats/indexing,merge",
        params={"level": "shards"} | only_named(dialect) | filtered(*_WRITE_FIELDS),
    )


def disks(dialect: Dialect) -> HttpRequest:
    """Data paths of every node."""
    more = () if dialect.roles_in_nodes else ("nodes.*.attributes",)
    return by_node("/_nodes/stats/fs", params={"timeout": "10s"} | filtered(*_DISK_FIELDS, *more))


def stored() -> HttpRequest:
    """Bytes of the copies on every node; no further right, as with disks."""
    return by_node("/_nodes/stats/indices/store", params={"timeout": "10s"} | filtered(*_STORED_FIELDS))


def data_paths() -> HttpRequest:
    """The data paths of every node, with the right that disks need.

    `_nodes/settings` shows `path.data` only if it is set; the default is a folder below the node's home.
    """
    return by_node("/_nodes/stats/fs", params={"timeout": "10s"} | filtered(*_DATA_PATH_FIELDS))


def deprecations(dialect: Dialect) -> HttpRequest:
    """What the next major version no longer takes. Every node is asked, and every index is looked at."""
    return by_copy(f"/{dialect.deprecations}", silence=_UPGRADE_SECONDS)


def ml_info() -> HttpRequest:
    """The facts of machine learning, its upgrade mode among them."""
    return get("/_ml/info", params={"filter_path": "upgrade_mode"}, silence=_UPGRADE_SECONDS)


def repositories(dialect: Dialect, limits: RequestLimits) -> HttpRequest:
    """The names of the snapshot repositories."""
    wait = {dialect.master_timeout: seconds(limits.elected_master)}
    return get("/_snapshot", params=wait | filtered("*.type"))


def finished_snapshots(dialect: Dialect, limits: RequestLimits, repository: str) -> HttpRequest:
    """The snapshots of a repository; where the version can, only the youngest."""
    youngest = {"sort": "start_time", "order": "desc", "size": str(YOUNGEST_SNAPSHOTS)}
    return by_copy(
        f"/_snapshot/{quoted(repository)}/_all",
        params={"ignore_unavailable": "true", dialect.master_timeout: seconds(limits.elected_master)}
        | (youngest if dialect.snapshot_pages else {})
        | filtered(*_FINISHED_SNAPSHOT_FIELDS),
        silence=_UPGRADE_SECONDS,
    )


def creations(dialect: Dialect, limits: RequestLimits) -> HttpRequest:
    """The version that created each index, closed and hidden ones too."""
    return _state(dialect, limits, "metadata", filtered(*_CREATION_FIELDS))


def node_settings() -> HttpRequest:
    """The settings that each node's own files set. The server leaves out what is secret."""
    return by_node(
        "/_nodes/settings",
        params={"flat_settings": "true", "timeout": "5s"} | filtered("nodes.*.name", "nodes.*.settings"),
    )


def leases(dialect: Dialect, form: str, prefix: str, patience: Seconds) -> HttpRequest:
    """The lease records of one form. Small: not the whole metadata. Unfiltered: an error is seen as one."""
    accept = frozenset({404} if form == dialect.lease_forms[0] else {400, 404, 405, 500})  # none; no handler
    return get(f"/{form}/{prefix}*", params={dialect.master_timeout: seconds(patience)}, accept=accept)


def leases_at_once(dialect: Dialect, limits: RequestLimits, prefix: str) -> HttpRequest:
    """The names of the lease records of every form, as of one cluster state."""
    fields = (f"metadata.{each}.{prefix}*" for each in ("templates", "component_template.component_template"))
    return _state(dialect, limits, "metadata", filtered("cluster_name", *fields))


class AnswerBytes(IntEnum):
    """The maximum size of an answer by its kind. It is far above what a real cluster sends."""

    SMALL = 4 * 1024 * 1024
    """A version, health, settings, the lease, and what follows a change."""
    BY_NODE = 64 * 1024 * 1024
    """Some kilobytes for each node."""
    BY_COPY = 512 * 1024 * 1024
    """Some hundred bytes for each index, shard copy or segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request to the cluster."""

    method: str
    path: str  # without a query; names in it are quoted already (`quoted`)
    params: Mapping[str, str] = field(default_factory=dict)  # the query; values are quoted when sent
    body: Any | None = None  # JSON, None for no body
    # statuses of 300 and above that are an answer, not an error, to this request
    accept: frozenset[int] = frozenset()
    # turns the answer of an old version into the form of later versions
    reshape: Callable[[Any], Any] | None = None
    silence: float | None = None  # seconds until the server must answer; None for the client's own limit
    answer_bytes: AnswerBytes = AnswerBytes.SMALL  # maximum size of the answer

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        query = "&".join(f"{key}={quote(value, safe=',*:_-.')}" for key, value in self.params.items())
        return f"{self.path}?{query}" if query else self.path

    def __str__(self) -> str:
        body = "" if self.body is None else f" {json.dumps(self.body, ensure_ascii=False)}"
        return f"{self.method} {self.target}{body}"


def get(path: str, **more: Any) -> HttpRequest:
    """A read with a small answer."""
    return HttpRequest(method="GET", path=path, **more)


def by_node(path: str, **more: Any) -> HttpRequest:
    """A read whose answer has a part for each node."""
    return get(path, answer_bytes=AnswerBytes.BY_NODE, **more)


def by_copy(path: str, **more: Any) -> HttpRequest:
    """A read whose answer has a part for each index, shard copy, task or snapshot."""
    return get(path, answer_bytes=AnswerBytes.BY_COPY, **more)


def quoted(name: str) -> str:
    """Quote a name as one part of a path, with any characters in it."""
    return quote(name, safe="")


def filtered(*fields: str) -> dict[str, str]:
    """The query for an answer with only these fields."""
    return {"filter_path": ",".join(fields)}
