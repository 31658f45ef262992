"""How old servers are asked, and their answers in the newest form. Pure.

`calls` makes each request, and the parsers read each answer, in the form of the newest Elasticsearch alone.
An era is an entry of one ordered table, `ERAS`: what servers of some versions have otherwise than later ones.
A request goes through the eras of the cluster's version from the newest to the oldest, each of which spells
it as its servers take it. The answer goes back from the oldest to the newest, each of which brings it into
the form of the next.

`null` stands where servers of an era list nothing: a parser takes that for "not in this version"
(`fields.unlisted`), and an absent part for a malformed answer. What has another form than an era's servers
send is left to the parser, which says what is wrong with it.

Sources: the field notes of real nodes, and the breaking-changes pages of the versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.calls import HttpRequest, Instead, by_copy, by_node, filtered
from orchestrator.elasticsearch.fields import Malformed, given, items, mapping, within
from orchestrator.model.allocation import DISABLE_NEW, FLAGS, disables

COMPONENT_TEMPLATE: Final = "_component_template"
LEGACY_TEMPLATE: Final = "_template"
Minor: TypeAlias = tuple[int, int]
Span: TypeAlias = tuple[Minor, Minor]
"""Versions from the first on, up to the second, which is not one of them."""
Spell: TypeAlias = Callable[[HttpRequest], HttpRequest]
Reshape: TypeAlias = Callable[[Any], Any]


def before(major: int, minor: int) -> Span:
    """All versions before this one."""
    return (0, 0), (major, minor)


EVERY: Final[Span] = before(1000, 0)
NEVER: Final[Span] = before(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """What servers of some versions have otherwise than later ones.

    The functions are by the requests that they concern: method and path in the newest form, with `*` for any
    characters. Their docstrings say what differs: the docs' table is made of them.
    """

    elasticsearch: Span = NEVER  # its versions
    opensearch: Span = NEVER
    spell: Mapping[str, Spell] = field(default_factory=dict)
    reshape: Mapping[str, Reshape] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # fields of `Dialect`


ANY: Final = "*"
FORCE_MERGE: Final = "POST /*/_forcemerge"
FLUSH: Final = "POST /_flush"
GET_SETTINGS: Final = "GET /_cluster/settings"
DEPRECATIONS: Final = "GET /_migration/deprecations"
STATE: Final = "GET /_cluster/state/master_node,nodes,*"
"""The state with its members. Other requests read parts of it."""
SNAPSHOT_STATE: Final = "GET /_cluster/state/customs"
STATES: Final = "GET /_cluster/state/*"
LIVES: Final = "GET /_nodes/*/jvm,http,settings,plugins"
DISKS: Final = "GET /_nodes/stats/fs"
TASKS: Final = "GET /_tasks"
RECOVERIES: Final = "GET /_recovery"
WRITES: Final = "GET /*/_stats/indexing,merge"
PUT_LEASE: Final = "PUT /_template/*"


def spelled(request: HttpRequest, eras: tuple[Era, ...]) -> HttpRequest:
    """A request as servers of these eras take it, with what brings their answer into the newest form."""
    call = f"{request.method} {request.path}"
    reshapes: list[Reshape] = []
    for era in eras:
        reshapes += _of(era.reshape, call)
        for spell in _of(era.spell, call):
            request = spell(request)
            if request.instead is not None:
                return request

    def reshape(body: Any) -> Any:
        for each in reversed(reshapes):
            body = each(body)
        return body

    return replace(request, reshape=reshape)


def _of(table: Mapping[str, Any], call: str) -> list[Any]:
    return [function for pattern, function in table.items() if fnmatchcase(call, pattern)]


# Requests ---------------------------------------------------------------------------------------------------


def cluster_manager_timeout(request: HttpRequest) -> HttpRequest:
    """The limit on the search for a master is `cluster_manager_timeout`."""
    names = {"master_timeout": "cluster_manager_timeout"}
    return replace(request, params={names.get(key, key): value for key, value in request.params.items()})


MERGE_SECONDS: Final = 5.0
"""How long to wait for a call that returns when the merge has ended: long enough for a refusal, which comes
at once, and for a very small merge."""


def merge_ends_the_call(request: HttpRequest) -> HttpRequest:
    """A force-merge is no task from the first moment on: the call returns when the merge has ended.

    elastic/elasticsearch#80463, opensearch-project/OpenSearch#6434.
    """
    return replace(_without(request, "wait_for_completion"), silence=MERGE_SECONDS)


def all_snapshots(request: HttpRequest) -> HttpRequest:
    """The youngest snapshots cannot be listed alone: all are."""
    return _without(request, "sort", "order", "size")


def exclude_by_path(request: HttpRequest) -> HttpRequest:
    """A node is excluded from voting by the path, not by the query."""
    name = calls.quoted(request.params["node_names"])
    return replace(_without(request, "node_names"), path=f"{request.path}/{name}")


def no_hidden_wildcard(request: HttpRequest) -> HttpRequest:
    """`expand_wildcards` has no `hidden`: there are no hidden indices."""
    return replace(request, params={**request.params, "expand_wildcards": "open"})


def synced_flush(request: HttpRequest) -> HttpRequest:
    """A synced flush makes recovery fast. A plain one does as much later (elastic/elasticsearch#50882).

    It answers 409 if some copies are written to (seen on 6.8).
    """
    return replace(
        _without(request, "wait_if_ongoing"),
        path="/_flush/synced",
        accept=request.accept | {HTTPStatus.CONFLICT},
    )


def settings_at_once(request: HttpRequest) -> HttpRequest:
    """Cluster settings are read without `master_timeout`, which version 5 refuses."""
    return _without(request, "master_timeout")


def deprecations_of_x_pack(request: HttpRequest) -> HttpRequest:
    """What the next major version no longer takes is listed below `_xpack`."""
    return replace(request, path="/_xpack/migration/deprecations")


def no_deprecations(request: HttpRequest) -> HttpRequest:
    """Nothing lists what the next major version no longer takes."""
    nothing: dict[str, Any] = {"cluster_settings": [], "node_settings": [], "index_settings": []}
    return replace(request, instead=Instead(why="such servers list no deprecations", answer=nothing))


def no_ml_mode(request: HttpRequest) -> HttpRequest:
    """Machine learning has no upgrade mode."""
    return replace(request, instead=Instead(why="such servers have no upgrade mode", answer=None))


def quorum_in_files(request: HttpRequest) -> HttpRequest:
    """`minimum_master_nodes` is the quorum: each node's file has it."""
    return _with(request, "nodes.*.settings.discovery.zen.minimum_master_nodes")


def facts_in_files(request: HttpRequest) -> HttpRequest:
    """Names, roles and the values of absent settings are read from the nodes' files and attributes."""
    recovery = "nodes.*.settings.indices.recovery"
    listed = request.params["filter_path"].split(",")
    at = listed.index(f"{recovery}.max_bytes_per_sec")
    fields = (*listed[:at], recovery, "nodes.*.settings.index.shard.recovery", *listed[at + 1 :])
    more = (*calls.NAME_FIELDS, "nodes.*.attributes", "nodes.*.settings.cluster.routing")
    return replace(request, params={**request.params, **filtered(*fields, *more)})


def attributes_of_disks(request: HttpRequest) -> HttpRequest:
    """Roles are node attributes."""
    return _with(request, "nodes.*.attributes")


def no_defaults(request: HttpRequest) -> HttpRequest:
    """`include_defaults` is not known: the values of absent settings come from files and defaults.

    They are those of the elected master's elasticsearch.yml, else of the version.
    """
    return _without(request, "include_defaults")


def probe_by_an_unknown_setting(request: HttpRequest) -> HttpRequest:
    """`null` removes no setting. An update of an unknown setting is acknowledged and stores nothing.

    Seen on 2.4.
    """
    unknown = {"persistent": {"orchestrate.settings-probe": "1"}}
    probe = request.body == {"persistent": {calls.PROBE_KEY: None}}
    return replace(request, body=unknown) if probe else request


def tries_for_ever(request: HttpRequest) -> HttpRequest:
    """`_cluster/reroute` has no `retry_failed`: the server tries for ever."""
    why = "before 5.0 the cluster tries failed copies again by itself"
    return replace(request, instead=Instead(why=why, answer={"acknowledged": True}))


MERGE_POOLS: Final = ("force_merge", "optimize")
"""The thread pool of force-merges, from 2.1 on and before."""


def merge_pools(_request: HttpRequest) -> HttpRequest:
    """There are no tasks: a force-merge is seen in the thread pool of its node. Nothing shows its indices.

    There are no reindexes yet.
    """
    pools = (f"nodes.*.thread_pool.{name}" for name in MERGE_POOLS)
    return by_node("/_nodes/stats/thread_pool", params={"timeout": "5s"} | filtered("nodes.*.name", *pools))


def optimize(request: HttpRequest) -> HttpRequest:
    """A force-merge is called `_optimize`."""
    return replace(request, path=f"{request.path.removesuffix('_forcemerge')}_optimize")


def snapshot_status(_request: HttpRequest) -> HttpRequest:
    """Snapshots in progress are listed by `_snapshot/_status`, and not by the cluster state.

    Version 1.0 has snapshots and no list: it is not restarted.
    """
    return by_copy("/_snapshot/_status")


def any_wildcard(request: HttpRequest) -> HttpRequest:
    """`expand_wildcards=none` is not sent.

    Version 1.1 refuses it, and up to 1.5 an update of an index's settings takes it for a setting (seen on
    1.1.2, 1.4.5, 1.5.2).
    """
    none = request.params.get("expand_wildcards") == "none"
    return _without(request, "expand_wildcards") if none else request


def legacy_pattern(request: HttpRequest) -> HttpRequest:
    """The pattern in a legacy template is `template`, which 6 reads as well."""
    body: dict[str, Any] = dict(request.body or {})
    (pattern,) = body.pop("index_patterns")
    return replace(request, body={"template": pattern, **body})


def lease_in_a_setting(request: HttpRequest) -> HttpRequest:
    """A template has no aliases: the lease is in one of its settings."""
    body: dict[str, Any] = dict(request.body or {})
    ((key, alias),) = body.pop("aliases").items()
    return replace(request, body={**body, "settings": {key: alias["filter"]["term"][key]}})


def status(_request: HttpRequest) -> HttpRequest:
    """`_status` lists the recoveries, always with finished ones, and with ids of nodes in place of names."""
    return by_copy("/_status", params={"recovery": "true"})


def flat_state(request: HttpRequest) -> HttpRequest:
    """Query parameters leave parts of the state out, and settings come back flat.

    An answer without templates would lack the indices too (seen on 0.90), so only the blocks are always left
    out. If none of the requested indices exists, the answer is an error.
    """
    _, _, _, metrics, *named = request.path.split("/")
    parts = {f"filter_{part}": "true" for part in ("nodes", "routing_table") if part not in metrics}
    # A parameter is quoted when it is sent.
    indices = {"filter_indices": unquote(named[0])} if named else {}
    wait = {"master_timeout": request.params["master_timeout"], "filter_blocks": "true"}
    return replace(
        request,
        path="/_cluster/state",
        params=wait | parts | indices,
        accept=frozenset({404}) if named else frozenset(),
    )


def flat_lives(request: HttpRequest) -> HttpRequest:
    """Query parameters name the parts of a node, and its settings come back flat."""
    parts = dict.fromkeys(("jvm", "http", "settings"), "true")
    path = request.path.removesuffix("/jvm,http,settings,plugins")
    return replace(request, path=path, params={"timeout": "5s", "clear": "true", "plugin": "true"} | parts)


def flat_writes(request: HttpRequest) -> HttpRequest:
    """Query parameters name the statistics."""
    parts = {"clear": "true", "indexing": "true", "merge": "true", "level": "shards"}
    return replace(request, path=request.path.removesuffix("/indexing,merge"), params=parts)


def no_snapshots(request: HttpRequest) -> HttpRequest:
    """There are no snapshots."""
    return replace(request, instead=Instead(why="such servers have no snapshots", answer={}))


def _without(request: HttpRequest, *params: str) -> HttpRequest:
    return replace(request, params={key: value for key, value in request.params.items() if key not in params})


def _with(request: HttpRequest, *fields: str) -> HttpRequest:
    return replace(request, params={**request.params, **filtered(request.params["filter_path"], *fields)})


# Answers ----------------------------------------------------------------------------------------------------


def roles_not_in_the_state(body: Any) -> Any:
    """The cluster state lists no roles and versions of nodes: they are read from `_nodes`."""
    return _each(body, "nodes", change=lambda _, node: {**node, "roles": None, "version": None})


def voting_by_count(body: Any) -> Any:
    """There is no voting configuration: every master-eligible node votes.

    In an upgrade to 7 there is one once the master has version 7. The cluster's uuid is in the metadata.
    """
    metadata = _dict(body, "metadata")
    if metadata is None:
        return body
    listed = {"cluster_coordination": None, **metadata}
    return {**body, "metadata": listed, "cluster_uuid": metadata.get("cluster_uuid")}


def new_ids_at_each_start(body: Any) -> Any:
    """The state lists no id of a process: the node id is new at each start, so it is used instead.

    A node without `node.name` has a new name too, and is known by its address, with its port if
    `transport.tcp.port` fixes it. No index lists its copies in sync: every started
    copy counts.
    """
    named = _each(body, "nodes", change=lambda node_id, node: {**node, "ephemeral_id": node_id})
    return _each(named, "metadata", "indices", change=lambda _, index: {**index, "in_sync_allocations": None})


def name_for_uuid(body: Any) -> Any:
    """A cluster has no uuid: its name is used instead."""
    metadata = _dict(body, "metadata")
    if metadata is None:
        return body
    return {**body, "metadata": {**metadata, "cluster_uuid": body.get("cluster_name")}}


def attributed_roles(body: Any) -> Any:
    """Roles are node attributes: both, unless `data`, `master` or `client` take them away."""
    found = _each(body, "nodes", change=lambda _, node: {**node, "roles": _roles(node)})
    nodes = _dict(found, "nodes")
    return found if nodes is None else {**found, "_nodes": {"successful": len(nodes)}}


def _roles(node: Mapping[str, Any]) -> list[str] | None:
    attributes = given(node.get("attributes"), {})
    if not isinstance(attributes, dict):
        return None
    if attributes.get("client") == "true":
        return []
    return [role for role in ("data", "master") if attributes.get(role) != "false"]


def start_time(body: Any) -> Any:
    """The start of a process is `start_time` (0.90 and 1.1)."""

    def named(_: str, node: dict[str, Any]) -> dict[str, Any]:
        jvm = _dict(node, "jvm")
        if jvm is None or "start_time_in_millis" in jvm or "start_time" not in jvm:
            return node
        return {**node, "jvm": {**jvm, "start_time_in_millis": jvm["start_time"]}}

    return _each(body, "nodes", change=named)


def no_default_listed(body: Any) -> Any:
    """No default is listed, and no setting can be made absent again."""
    return {**body, "defaults": None} if isinstance(body, dict) else body


def no_queue_times(body: Any) -> Any:
    """Health lacks the age of the oldest task: 0 if the queue was drained, else the time that health waited.

    0.90 does not list the tasks: at least one if the wait timed out. The status was 200 in any case.
    """
    if not isinstance(body, dict):
        return body
    timed_out = body.get("timed_out") is True
    waited = round(calls.LANGUID_SECONDS * 1000) if timed_out else 0
    return {"number_of_pending_tasks": int(timed_out), **body, "task_max_waiting_in_queue_millis": waited}


def pools_as_tasks(body: Any) -> Any:
    """A node with a merge in its pool has a task. One without a proper pool did not answer."""
    nodes = mapping(within(body, "nodes"), "nodes")
    if not nodes:
        raise Malformed("no node is listed")
    found: dict[str, Any] = {}
    unread: list[dict[str, str]] = []
    for node_id, node in nodes.items():
        pools = _dict(node, "thread_pool") or {}
        pool = next((_dict(pools, name) for name in MERGE_POOLS if name in pools), None) or {}
        counts = [pool.get("active"), pool.get("queue")]
        proper = all(type(each) is int and each >= 0 for each in counts)
        merges = {f"{node_id}:0": {"action": calls.MERGE_ACTION}} if proper and any(counts) else {}
        found[node_id] = {"name": within(node, "name"), "tasks": merges}
        if not proper:
            unread.append({"node_id": node_id})
    return {"nodes": found, "node_failures": unread}


def listed_snapshots(body: Any) -> Any:
    """A snapshot has a tree of indices, whose shards have stages."""
    listed = [
        {
            **mapping(each, "snapshots"),
            "start_time_millis": within(each, "stats", "start_time_in_millis"),
            "shards": [
                {"state": within(shard, "stage"), "node": within(shard, "node")}
                for index in mapping(given(within(each, "indices"), {}), "indices").values()
                for shard in mapping(given(within(index, "shards"), {}), "shards").values()
            ],
        }
        for each in items(within(body, "snapshots"), "snapshots")
    ]
    return {"cluster_name": "(not listed)", "snapshots": {"snapshots": listed}}


def no_sequence_numbers(body: Any) -> Any:
    """Shards do not number their operations: operations are counted."""
    return _each_copy(body, lambda copy: {**copy, "seq_no": None})


def committed_segments_count(body: Any) -> Any:
    """A flush does not keep a merge that no write followed: a restarted node has the last commit's segments.

    So committed segments count too (seen on 0.90.13 and 1.4.5), and each copy must list them.
    """
    return _each_copy(body, lambda copy: {**copy, "committed": copy.get("num_committed_segments")})


def bytes_on_disk(body: Any) -> Any:
    """The sizes of a recovery are in `bytes`, and files on the node's own disk count as recovered too.

    Seen on 1.1.2 and 1.4.5.
    """

    def sized(shard: Any) -> Any:
        size = _dict(shard, "index", "bytes")
        if size is None or within(shard, "index", "size") is not None:
            return shard
        copied = 0 if shard.get("type") == "GATEWAY" else size.get("recovered")
        read = {
            "total_in_bytes": size.get("total"),
            "reused_in_bytes": size.get("reused"),
            "recovered_in_bytes": copied,
        }
        return {**shard, "index": {**shard["index"], "size": read}}

    def of_index(_: str, index: dict[str, Any]) -> dict[str, Any]:
        shards = index.get("shards")
        return {**index, "shards": list(map(sized, shards))} if isinstance(shards, list) else index

    return _each(body, change=of_index)


def lease_from_a_setting(body: Any) -> Any:
    """The lease is in a setting of the template, which is listed below `index.`."""

    def moved(_: str, template: dict[str, Any]) -> dict[str, Any]:
        settings = _dict(template, "settings") or {}
        aliases = {
            key.removeprefix(_OF_INDEX): {"filter": {"term": {key.removeprefix(_OF_INDEX): value}}}
            for key, value in settings.items()
        }
        return {**template, "aliases": aliases}

    return _each(body, change=moved)


def recoveries_of_status(body: Any) -> Any:
    """The status of each index has the last recovery of every assigned copy."""
    found: dict[str, Any] = {}
    for index, value in mapping(within(body, "indices"), "indices").items():
        shards = mapping(within(value, "shards"), f"{index}.shards")
        copies = [each for number in shards for each in items(shards[number], f"{index}.shards.{number}")]
        found[index] = {"shards": [one for copy in copies for one in _recovery(copy, copies)]}
    return found


def _recovery(copy: Any, copies: list[Any]) -> Iterator[dict[str, Any]]:
    """The recovery of a copy; none before it has begun. The source of a copy from a peer is the primary."""
    from_peer = within(copy, "peer_recovery")
    value = given(from_peer, within(copy, "gateway_recovery"))
    if value is None:
        return
    shard = within(copy, "routing", "shard")
    primary = [
        each
        for each in copies
        if within(each, "routing", "primary") is True and within(each, "routing", "shard") == shard
    ]
    source = within(primary[0], "routing", "node") if primary and from_peer is not None else None
    index = within(value, "index")
    yield {
        "id": shard,
        "stage": within(value, "stage"),
        # the client adds the names
        "source": {} if source is None else {"id": source, "name": None},
        "target": {"id": within(copy, "routing", "node"), "name": None},
        "index": {
            "size": {
                "total_in_bytes": within(index, "size_in_bytes"),
                "reused_in_bytes": within(index, "reused_size_in_bytes"),
                "recovered_in_bytes": within(index, "recovered_size_in_bytes"),
            }
        },
        "translog": within(value, "translog"),
    }


_OF_INDEX: Final = "index."


def nested_state(body: Any) -> Any:
    """Settings of an index are flat, with flags of allocation, which are shown as the `enable` of as much.

    `disable_replica_allocation` is in place of `primaries`, and `disable_allocation` in place of `none`. If
    none of the requested indices exists, the answer is an error: no index here.

    Raises:
        Malformed: the answer is another error.
    """
    error = within(body, "error")
    if error is not None:
        if "IndexMissingException" not in str(error):
            raise Malformed(str(error)[:200])
        return {"cluster_name": "(not listed)", "metadata": {"indices": {}}}
    indices = mapping(given(within(body, "metadata", "indices"), {}), "metadata.indices")
    read = {
        name: {**mapping(value, f"metadata.indices.{name}"), "settings": _of_index(value, name)}
        for name, value in indices.items()
    }
    return {**body, "metadata": {**given(within(body, "metadata"), {}), "indices": read}}


def _of_index(value: Any, name: str) -> dict[str, Any]:
    flat = dict(mapping(within(value, "settings"), f"metadata.indices.{name}.settings"))
    flags = {enable: flat.pop(_index_key(key), None) for enable, key in FLAGS.items()}
    flat.pop(_index_key(DISABLE_NEW), None)
    disabled = [enable for enable, flag in flags.items() if disables(FLAGS[enable], flag)]
    if disabled:
        flat["index.routing.allocation.enable"] = "none" if "none" in disabled else "primaries"
    return nested(flat)


def _index_key(cluster_key: str) -> str:
    return _OF_INDEX + cluster_key.removeprefix("cluster.")


def nested_lives(body: Any) -> Any:
    """Settings of a node are flat."""

    def of_node(_: str, node: dict[str, Any]) -> dict[str, Any]:
        settings = given(node.get("settings"), {})
        return {**node, "settings": nested(settings) if isinstance(settings, dict) else settings}

    return _each(body, "nodes", change=of_node)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their parts: `{"index.uuid": "x"}` is `{"index": {"uuid": "x"}}`.

    A setting whose name is the beginning of another setting's name is left out.
    """
    found: dict[str, Any] = {}
    for key, value in sorted(flat.items()):
        *parts, last = key.split(".")
        inner: Any = found
        for part in parts:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[last] = value
    return found


def _dict(value: Any, *path: str) -> dict[str, Any] | None:
    """The object at a path; None if there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def _each(body: Any, *path: str, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Any:
    """An answer with each object in the object at this path changed; other values are kept."""
    if not isinstance(body, dict):
        return body
    if path:
        first, *rest = path
        return {**body, first: _each(body[first], *rest, change=change)} if first in body else body
    return {key: change(key, value) if isinstance(value, dict) else value for key, value in body.items()}


def _each_copy(body: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The statistics of shards, with those of each copy changed."""

    def of_index(_: str, index: dict[str, Any]) -> dict[str, Any]:
        shards = index.get("shards")
        if not isinstance(shards, dict):
            return index
        changed = {
            number: [change(copy) if isinstance(copy, dict) else copy for copy in copies]
            if isinstance(copies, list)
            else copies
            for number, copies in shards.items()
        }
        return {**index, "shards": changed}

    return _each(body, "indices", change=of_index)


ERAS: Final = (
    Era(opensearch=((2, 0), (1000, 0)), spell={ANY: cluster_manager_timeout}),
    Era(elasticsearch=before(8, 1), opensearch=before(2, 7), spell={FORCE_MERGE: merge_ends_the_call}),
    Era(elasticsearch=before(8, 0), opensearch=EVERY, reshape={STATE: roles_not_in_the_state}),
    Era(elasticsearch=before(7, 16), opensearch=EVERY, spell={"GET /_snapshot/*/_all": all_snapshots}),
    Era(elasticsearch=before(7, 8), facts={"lease_forms": (LEGACY_TEMPLATE, COMPONENT_TEMPLATE)}),
    Era(elasticsearch=((7, 0), (7, 8)), spell={"POST /_cluster/voting_config_exclusions": exclude_by_path}),
    Era(elasticsearch=before(7, 7), spell={FLUSH: no_hidden_wildcard}),
    Era(elasticsearch=((1, 6), (7, 6)), spell={FLUSH: synced_flush}),
    Era(
        elasticsearch=before(7, 0),
        spell={GET_SETTINGS: settings_at_once, LIVES: quorum_in_files, DEPRECATIONS: deprecations_of_x_pack},
        reshape={STATE: voting_by_count},
        facts={"voting_by_count": True},
    ),
    Era(elasticsearch=before(6, 7), opensearch=EVERY, spell={"GET /_ml/info": no_ml_mode}),
    Era(
        elasticsearch=before(6, 0),
        spell={PUT_LEASE: legacy_pattern},
        reshape={WRITES: no_sequence_numbers},
        facts={"lease_forms": (LEGACY_TEMPLATE,)},
    ),
    Era(elasticsearch=before(5, 0), opensearch=EVERY, spell={DEPRECATIONS: no_deprecations}),
    Era(
        elasticsearch=before(5, 0),
        spell={
            GET_SETTINGS: no_defaults,
            "PUT /_cluster/settings": probe_by_an_unknown_setting,
            "POST /_cluster/reroute": tries_for_ever,
            LIVES: facts_in_files,
            DISKS: attributes_of_disks,
        },
        reshape={
            GET_SETTINGS: no_default_listed,
            STATE: new_ids_at_each_start,
            LIVES: attributed_roles,
            DISKS: attributed_roles,
        },
    ),
    Era(
        elasticsearch=before(2, 3),
        spell={TASKS: merge_pools},
        reshape={TASKS: pools_as_tasks},
        facts={"task_list": False},
    ),
    Era(elasticsearch=before(2, 1), spell={FORCE_MERGE: optimize}),
    Era(
        elasticsearch=before(2, 0),
        reshape={STATE: name_for_uuid, "GET /_cluster/health": no_queue_times, LIVES: start_time},
    ),
    Era(
        elasticsearch=((1, 0), (2, 0)),
        spell={SNAPSHOT_STATE: snapshot_status},
        reshape={SNAPSHOT_STATE: listed_snapshots},
        facts={"snapshots_in_state": False},
    ),
    Era(
        elasticsearch=before(1, 6),
        spell={ANY: any_wildcard},
        reshape={"GET /*/_segments": committed_segments_count},
    ),
    Era(elasticsearch=before(1, 5), reshape={RECOVERIES: bytes_on_disk}),
    Era(
        elasticsearch=before(1, 1),
        spell={RECOVERIES: status, PUT_LEASE: lease_in_a_setting},
        reshape={RECOVERIES: recoveries_of_status, "GET /_template/*": lease_from_a_setting},
    ),
    Era(
        elasticsearch=before(1, 0),
        spell={
            STATES: flat_state,
            LIVES: flat_lives,
            WRITES: flat_writes,
            "GET /_snapshot": no_snapshots,
        },
        reshape={STATES: nested_state, LIVES: nested_lives},
        facts={"allocation_flags": True},
    ),
)
"""Newest first."""
