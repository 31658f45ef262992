"""The names by which nodes are known. Pure.

Before 5.0 a node without `node.name` takes a random name and a new id at each start. It is known by its
address: `10.1.0.1`, or `10.1.0.1:9300` if `transport.tcp.port` fixes its port. Its own name is replaced in
every answer that lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.elasticsearch.access import bare_address, without_brackets
from orchestrator.elasticsearch.fields import Malformed, mapping, text, within
from orchestrator.model.cluster import NodeName
from orchestrator.untrusted import UntrustedValue, address

OWN_NAME: Final = "own_name"
"""Where an answer keeps the replaced name: filters of allocation mean that one."""
_PORT: Final = "transport.tcp.port"
"""By default a node takes the first free port from 9300 on: at the next start it may be another one."""


def host_of(transport_address: Any, where: str) -> str:
    """`10.1.0.1` from `10.1.0.1:9300`; `::1` from `[::1]:9300`; the name from `es1/10.1.0.1:9300`.

    Args:
        transport_address: of any version, as a node publishes it.
        where: for messages.

    Raises:
        Malformed: its host is neither an IP address nor a host name.
    """
    bare = bare_address(text(transport_address, where))
    name, slash, _ = bare.partition("/")
    try:
        return address(name if slash else without_brackets(bare.rpartition(":")[0]))
    except UntrustedValue as error:
        raise Malformed(f"{where}: {error}") from None


def flattened(settings: Any) -> dict[str, str]:
    """A node's own settings by their dotted names; lists and other values are left out."""
    found: dict[str, str] = {}
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": one for inner, one in flattened(value).items()}
        elif isinstance(value, str):
            found[str(key)] = value
    return found


def is_named(settings: Mapping[str, str]) -> bool:
    """Whether a node keeps its name at the next start. An empty one counts as none (before 5.0)."""
    return bool(settings.get("node.name"))


def name_of(node: Any, settings: Mapping[str, str], where: str) -> NodeName:
    """The name by which a node before 5.0 is known.

    Args:
        node: as an answer lists it.
        settings: its own, by their dotted names.
        where: for messages.

    Raises:
        Malformed: it has no name or no address.
    """
    own = text(within(node, "name"), f"{where}.name")
    if is_named(settings):
        return NodeName(own)
    # Only the node itself, and a node that has looked its name up, adds a host name to the address.
    place = f"{where}.transport_address"
    host = host_of(bare_address(text(within(node, "transport_address"), place)).rpartition("/")[2], place)
    port = settings.get(_PORT, "")
    if not (port.isascii() and port.isdecimal()):
        return NodeName(host)
    return NodeName(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def parse_names(body: Any) -> dict[str, NodeName]:
    """The name of every node before 5.0, by node id, from `_nodes/settings`.

    Raises:
        Malformed: the answer has another form.
    """
    return {
        node_id: name_of(node, flattened(within(node, "settings")), f"nodes.{node_id}")
        for node_id, node in mapping(within(body, "nodes"), "nodes").items()
    }


def renamed(body: Any, names: Mapping[str, NodeName]) -> Any:
    """An answer with these names of nodes, by node id, in place of their own."""
    if not names or not isinstance(body, dict):
        return body
    nodes = body.get("nodes")
    if isinstance(nodes, dict):
        return {**body, "nodes": {key: _renamed(node, names.get(key)) for key, node in nodes.items()}}
    return {key: _recoveries(value, names) for key, value in body.items()}


def _renamed(node: Any, name: NodeName | None) -> Any:
    if name is None or not isinstance(node, dict) or node.get("name") in (None, name):
        return node
    return {**node, "name": name, OWN_NAME: node["name"]}


def _recoveries(index: Any, names: Mapping[str, NodeName]) -> Any:
    """The recoveries of an index, with the names of their nodes; another value is kept."""
    shards = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(shards, list):
        return index
    return {**index, "shards": [_recovery(shard, names) for shard in shards]}


def _recovery(shard: Any, names: Mapping[str, NodeName]) -> Any:
    if not isinstance(shard, dict):
        return shard
    ends = {end: shard[end] for end in ("source", "target") if end in shard}
    return {**shard, **{end: _renamed(node, names.get(_id(node))) for end, node in ends.items()}}


def _id(end: Any) -> str:
    return str(end.get("id")) if isinstance(end, dict) else ""
