"""All requests that read a cluster, with their filters, in the newest form; and a request as data.

Servers of earlier versions are asked otherwise (`eras`). The same value is sent and described, so the two
cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final
from urllib.parse import quote

from orchestrator.elasticsearch.access import RequestLimits
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
MERGE_ACTION: Final = "indices:admin/forcemerge"
MERGE_ACTIONS: Final = f"{MERGE_ACTION}*"
_REINDEXES: Final = (
    "indices:data/write/reindex",
    "indices:data/write/update/byquery",
    "indices:data/write/delete/byquery",
)
TASK_ACTIONS: Final = ",".join(f"{action}*" for action in (MERGE_ACTION, *_REINDEXES))
"""The actions requested from `_tasks`; each has parts such as `[n]` on the nodes that do its work."""
PROBE_KEY: Final = "logger.orchestrate.settings-probe"
"""The probe resets this setting, which is never set. Since 5.0 any name under `logger.` is a setting. Others
may change a real setting at the same time; no other program uses this one."""
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
NAME_FIELDS: Final = (
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
    return by_node("/_nodes/settings", params={"timeout": "5s"} | filtered("nodes.*.name", *NAME_FIELDS))


def processes() -> HttpRequest:
    """The process id of each node, as its own machine or container counts."""
    fields = filtered("nodes.*.name", "nodes.*.process.id")
    return by_node("/_nodes/process", params={"timeout": "5s"} | fields)


def state(limits: RequestLimits, *, with_snapshots: bool) -> HttpRequest:
    """Members, metadata and routing, and on request the snapshots in progress."""
    metrics, fields = "master_node,nodes,metadata,routing_table,version", (*_STATE_FIELDS, *_SNAPSHOT_FIELDS)
    if with_snapshots:
        return _state(limits, f"{metrics},customs", filtered(*dict.fromkeys(fields)))
    return _state(limits, metrics, filtered(*_STATE_FIELDS))


def state_uuid(limits: RequestLimits, *, with_snapshots: bool) -> HttpRequest:
    """The id of the master's current state (2.0), and the master: while both are the same, all of it is.

    Also its version, by which the updates of our lease are told from others (`OwnUpdates`).
    """
    metrics, fields = "version,master_node", ("state_uuid", "version", "master_node")
    if with_snapshots:
        return _state(limits, f"{metrics},customs", filtered(*fields, *_SNAPSHOT_FIELDS))
    return _state(limits, metrics, filtered(*fields))


def _state(
    limits: RequestLimits, metrics: str, more: dict[str, str], named: str | None = None
) -> HttpRequest:
    """The cluster state, of some indices or of all."""
    path = f"/_cluster/state/{metrics}" + (f"/{named}" if named else "")
    return by_copy(path, params=_wait(limits) | more)


def _wait(limits: RequestLimits) -> dict[str, str]:
    """The limit on the search for a master; without it, the server waits 30 s, and the client less."""
    return {"master_timeout": seconds(limits.elected_master)}


def snapshots(limits: RequestLimits) -> HttpRequest:
    """Only the snapshots in progress."""
    return _state(limits, "customs", filtered(*_SNAPSHOT_FIELDS))


def index_uuids(limits: RequestLimits, names: Sequence[str]) -> HttpRequest:
    """Uuids of some indices, without deleted ones; of all indices if the names do not fit a request line."""
    named = _named(names)
    only = {"ignore_unavailable": "true"} | ONLY_NAMED if named else {}
    fields = filtered("cluster_name", "metadata.indices.*.settings.index.uuid")
    return _state(limits, "metadata", only | fields, named)


def names(limits: RequestLimits) -> HttpRequest:
    """All names of all indices: the answer is small, and a glob may match any index."""
    return _state(limits, "metadata", filtered(*_RESOLVE_FIELDS))


def lives(node_ids: Sequence[str]) -> HttpRequest:
    """Static facts of nodes."""
    return by_node(
        f"/_nodes/{_named(node_ids) or '_all'}/jvm,http,settings,plugins",
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
            "nodes.*.settings.indices.recovery.max_bytes_per_sec",
            "nodes.*.settings.node.bandwidth.recovery",
        ),
    )


def memory(node_ids: Sequence[str]) -> HttpRequest:
    """The memory of nodes."""
    return by_node(
        f"/_nodes/{_named(node_ids) or '_all'}/stats/os",
        params={"timeout": "5s"} | filtered("cluster_name", "nodes.*.os.mem.total_in_bytes"),
    )


def settings(limits: RequestLimits) -> HttpRequest:
    """Cluster settings at both levels, with values from files and defaults of the keys that we use."""
    return get(
        "/_cluster/settings",
        params={"flat_settings": "true", "include_defaults": "true"}
        | _wait(limits)
        | filtered("persistent", "transient", *_DEFAULTS),
    )


def levels(limits: RequestLimits) -> HttpRequest:
    """Only the cluster settings at both levels."""
    return get(
        "/_cluster/settings",
        params={"flat_settings": "true"} | _wait(limits) | filtered("persistent", "transient"),
    )


def health(*, priority: str = LANGUID) -> HttpRequest:
    """Cluster health, after all tasks of this priority and above in the master's queue."""
    return get(
        "/_cluster/health",
        params={
            "wait_for_events": priority,
            "timeout": seconds(LANGUID_SECONDS),
            "master_timeout": seconds(LANGUID_SECONDS),
        },
        accept=frozenset({408}),
        silence=LANGUID_SECONDS + ANSWER_MARGIN_SECONDS,
    )


def recoveries(*, active_only: bool) -> HttpRequest:
    """Recoveries in progress, or also finished ones since the nodes' last start."""
    only = {"active_only": "true"} if active_only else {}
    return by_copy("/_recovery", params=only | filtered(*_RECOVERY_FIELDS))


def tasks(actions: str = TASK_ACTIONS, **more: str) -> HttpRequest:
    """Force-merges and reindexes by node. Unfiltered: an empty answer must differ from a missing one."""
    return by_copy("/_tasks", params={"actions": actions, "timeout": "5s"} | more)


def task(task_id: str, *, patience: Seconds) -> HttpRequest:
    """The state of one task, once it has ended or after this many seconds."""
    return by_copy(
        f"/_tasks/{quoted(task_id)}",
        params={"wait_for_completion": "true", "timeout": seconds(patience)},
        silence=patience + ANSWER_MARGIN_SECONDS,
    )


def bulk_state(limits: RequestLimits, names: Sequence[str]) -> HttpRequest:
    """Routing and settings of some indices, closed ones too. Deleted ones are left out."""
    only = {"ignore_unavailable": "true"} | ONLY_NAMED
    return _state(
        limits, "nodes,metadata,routing_table", only | filtered(*_BULK_STATE_FIELDS), _listed(names)
    )


ONLY_NAMED: Final = {"expand_wildcards": "none"}
"""The parameter that takes each name for an index, and none for a pattern."""


def segments(names: Sequence[str]) -> HttpRequest:
    """The segments of every copy of some open indices.

    `ignore_unavailable` is not used, here and below. With it, a user without the right to read an index gets
    an answer as if the index did not exist, and no message about the missing right.
    """
    return by_copy(f"/{_listed(names)}/_segments", params=ONLY_NAMED | filtered(*_SEGMENT_FIELDS))


def writes(names: Sequence[str]) -> HttpRequest:
    """Write counters and running merges of every copy of some open indices."""
    return by_copy(
        f"/{_listed(names)}/_stats/indexing,merge",
        params={"level": "shards"} | ONLY_NAMED | filtered(*_WRITE_FIELDS),
    )


def disks() -> HttpRequest:
    """Data paths of every node."""
    return by_node("/_nodes/stats/fs", params={"timeout": "10s"} | filtered(*_DISK_FIELDS))


def stored() -> HttpRequest:
    """Bytes of the copies on every node; no further right, as with disks."""
    return by_node("/_nodes/stats/indices/store", params={"timeout": "10s"} | filtered(*_STORED_FIELDS))


def data_paths() -> HttpRequest:
    """The data paths of every node, with the right that disks need.

    `_nodes/settings` shows `path.data` only if it is set; the default is a folder below the node's home.
    """
    return by_node("/_nodes/stats/fs", params={"timeout": "10s"} | filtered(*_DATA_PATH_FIELDS))


def deprecations() -> HttpRequest:
    """What the next major version no longer takes. Every node is asked, and every index is looked at."""
    return by_copy("/_migration/deprecations", silence=_UPGRADE_SECONDS)


def ml_info() -> HttpRequest:
    """The facts of machine learning, its upgrade mode among them."""
    return get("/_ml/info", params={"filter_path": "upgrade_mode"}, silence=_UPGRADE_SECONDS)


def repositories(limits: RequestLimits) -> HttpRequest:
    """The names of the snapshot repositories."""
    return get("/_snapshot", params=_wait(limits) | filtered("*.type"))


def finished_snapshots(limits: RequestLimits, repository: str) -> HttpRequest:
    """The youngest snapshots of a repository."""
    youngest = {"sort": "start_time", "order": "desc", "size": str(YOUNGEST_SNAPSHOTS)}
    return by_copy(
        f"/_snapshot/{quoted(repository)}/_all",
        params={"ignore_unavailable": "true"}
        | _wait(limits)
        | youngest
        | filtered(*_FINISHED_SNAPSHOT_FIELDS),
        silence=_UPGRADE_SECONDS,
    )


def creations(limits: RequestLimits) -> HttpRequest:
    """The version that created each index, closed and hidden ones too."""
    return _state(limits, "metadata", filtered(*_CREATION_FIELDS))


def node_settings() -> HttpRequest:
    """The settings that each node's own files set. The server leaves out what is secret."""
    return by_node(
        "/_nodes/settings",
        params={"flat_settings": "true", "timeout": "5s"} | filtered("nodes.*.name", "nodes.*.settings"),
    )


def leases(form: str, prefix: str, patience: Seconds, *, present: bool) -> HttpRequest:
    """The lease records of one form. Small: not the whole metadata. Unfiltered: an error is seen as one.

    `present`: every node has this form. Otherwise it may have no handler for the path.
    """
    accept = frozenset({404} if present else {400, 404, 405, 500})
    return get(f"/{form}/{prefix}*", params={"master_timeout": seconds(patience)}, accept=accept)


def leases_at_once(limits: RequestLimits, prefix: str) -> HttpRequest:
    """The names of the lease records of every form, as of one cluster state."""
    fields = (f"metadata.{each}.{prefix}*" for each in ("templates", "component_template.component_template"))
    return _state(limits, "metadata", filtered("cluster_name", *fields))


class AnswerBytes(IntEnum):
    """The maximum size of an answer by its kind. It is far above what a real cluster sends."""

    SMALL = 4 * 1024 * 1024
    """A version, health, settings, the lease, and what follows a change."""
    BY_NODE = 64 * 1024 * 1024
    """Some kilobytes for each node."""
    BY_COPY = 512 * 1024 * 1024
    """Some hundred bytes for each index, shard copy or segment."""


def as_sent(body: Any) -> Any:
    """The answer of the newest version."""
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """What counts as the answer of servers that have no such request."""

    why: str  # one line
    answer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request to the cluster."""

    method: str
    path: str  # without a query; names in it are quoted already (`quoted`)
    params: Mapping[str, str] = field(default_factory=dict)  # the query; values are quoted when sent
    body: Any | None = None  # JSON, None for no body
    # statuses of 300 and above that are an answer, not an error, to this request
    accept: frozenset[int] = frozenset()
    reshape: Callable[[Any], Any] = as_sent  # brings the answer of an old version into the newest form
    instead: Instead | None = None  # nothing is sent
    silence: float | None = None  # seconds until the server must answer; None for the client's own limit
    answer_bytes: AnswerBytes = AnswerBytes.SMALL  # maximum size of the answer

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        query = "&".join(f"{key}={quote(value, safe=',*:_-.')}" for key, value in self.params.items())
        return f"{self.path}?{query}" if query else self.path

    def __str__(self) -> str:
        if self.instead is not None:
            return f"(nothing: {self.instead.why})"
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
