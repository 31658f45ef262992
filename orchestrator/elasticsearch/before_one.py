"""Answers of Elasticsearch 0.90, in the form of later versions. Pure.

Before 1.0 settings are flat, and recoveries are a part of the status of indices, which names nodes by their
ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.elasticsearch.fields import Malformed, NotYetReported, given, items, mapping, within
from orchestrator.model.allocation import DISABLE_NEW, FLAGS, disables
from orchestrator.model.cluster import NodeName

_NO_SUCH_INDEX: Final = "IndexMissingException"
_CLUSTER: Final = "cluster."
_OF_INDEX: Final = "index."


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


def state(body: Any) -> Any:
    """A cluster state. If none of the requested indices exists, the answer is an error: no index here.

    Raises:
        Malformed: it is another error.
    """
    error = within(body, "error")
    if error is not None:
        if _NO_SUCH_INDEX not in str(error):
            raise Malformed(str(error)[:200])
        return {"cluster_name": "(not listed)", "metadata": {"indices": {}}}
    indices = mapping(given(within(body, "metadata", "indices"), {}), "metadata.indices")
    read = {
        name: {**mapping(value, f"metadata.indices.{name}"), "settings": _of_index(value, name)}
        for name, value in indices.items()
    }
    return {**body, "metadata": {**given(within(body, "metadata"), {}), "indices": read}}


def _of_index(value: Any, name: str) -> dict[str, Any]:
    """An index's settings. Its flags of allocation are shown as the `enable` that does as much."""
    flat = dict(mapping(within(value, "settings"), f"metadata.indices.{name}.settings"))
    flags = {enable: flat.pop(_index_key(key), None) for enable, key in FLAGS.items()}
    flat.pop(_index_key(DISABLE_NEW), None)
    disabled = [enable for enable, flag in flags.items() if disables(FLAGS[enable], flag)]
    if disabled:
        flat["index.routing.allocation.enable"] = "none" if "none" in disabled else "primaries"
    return nested(flat)


def _index_key(cluster_key: str) -> str:
    return _OF_INDEX + cluster_key.removeprefix(_CLUSTER)


def node_facts(body: Any) -> Any:
    """Facts of nodes, with nested settings."""
    nodes = mapping(within(body, "nodes"), "nodes")
    return {**body, "nodes": {node_id: _facts(node) for node_id, node in nodes.items()}}


def _facts(node: Any) -> Any:
    settings = mapping(given(within(node, "settings"), {}), "settings")
    return {**mapping(node, "a node"), "settings": nested(settings)}


def recoveries(body: Any, names: Mapping[str, NodeName]) -> Any:
    """`_status?recovery=true` as `_recovery`: the last recovery of every assigned copy.

    Args:
        body: the answer.
        names: of nodes, by their ids.

    Raises:
        Malformed: it has another form.
        NotYetReported: a copy is on a node that is not among these.
    """
    found: dict[str, Any] = {}
    for index, value in mapping(within(body, "indices"), "indices").items():
        shards = mapping(within(value, "shards"), f"{index}.shards")
        copies = [each for number in shards for each in items(shards[number], f"{index}.shards.{number}")]
        found[index] = {"shards": [one for copy in copies for one in _recovery(copy, copies, names)]}
    return found


def _recovery(copy: Any, copies: list[Any], names: Mapping[str, NodeName]) -> list[Any]:
    """The recovery of a copy; none before it has begun. The source of a copy from a peer is the primary."""
    from_peer = within(copy, "peer_recovery")
    value = given(from_peer, within(copy, "gateway_recovery"))
    if value is None:
        return []
    shard = within(copy, "routing", "shard")
    primary = [
        each
        for each in copies
        if within(each, "routing", "primary") is True and within(each, "routing", "shard") == shard
    ]
    source = within(primary[0], "routing", "node") if primary and from_peer is not None else None
    index = within(value, "index")
    return [
        {
            "id": shard,
            "stage": within(value, "stage"),
            "source": {} if source is None else {"name": _name(source, names)},
            "target": {"name": _name(within(copy, "routing", "node"), names)},
            "index": {
                "size": {
                    "total_in_bytes": within(index, "size_in_bytes"),
                    "reused_in_bytes": within(index, "reused_size_in_bytes"),
                    "recovered_in_bytes": within(index, "recovered_size_in_bytes"),
                }
            },
            "translog": within(value, "translog"),
        }
    ]


def _name(node_id: Any, names: Mapping[str, NodeName]) -> NodeName:
    if not isinstance(node_id, str) or node_id not in names:
        raise NotYetReported(f"node {node_id} recovers a copy and is not among the nodes that were read")
    return names[node_id]
