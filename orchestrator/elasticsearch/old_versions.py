"""Names of nodes and values of files before Elasticsearch 5. Pure.

How such servers are asked, and their answers in the newest form, is in `eras`. What is here needs more than
one answer.

Before 5.0 a node without `node.name` takes a random name and a new id at each start. It is known by its
address: `10.1.0.1`, or `10.1.0.1:9300` if `transport.tcp.port` fixes its port. Its own name is replaced in
every answer that lists it. `_cluster/settings` does not list the values of settings that no update has set:
they come from files and defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from orchestrator.elasticsearch.access import bare_address, without_brackets
from orchestrator.elasticsearch.dialect import ELASTICSEARCH, ServerVersion, parse_version
from orchestrator.elasticsearch.fields import Malformed, mapping, text, within
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import SettingsView
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


def renames(server: ServerVersion) -> bool:
    """Whether a node without `node.name` takes a new name and a new id at each start: before 5.0."""
    return server.distribution == ELASTICSEARCH and parse_version(server.version) < _FIRST_WITH_LASTING_IDS


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
    if name is None or not isinstance(node, dict) or node.get("name", name) == name:
        return node
    if node["name"] is None:  # only its id is listed
        return {**node, "name": name}
    return {**node, "name": name, OWN_NAME: node["name"]}


def _recoveries(index: Any, names: Mapping[str, NodeName]) -> Any:
    """The recoveries of an index, with the names of their nodes; another value is kept."""
    shards = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(shards, list):
        return index
    return {**index, "shards": [_renamed_recovery(shard, names) for shard in shards]}


def _renamed_recovery(shard: Any, names: Mapping[str, NodeName]) -> Any:
    if not isinstance(shard, dict):
        return shard
    ends = {end: shard[end] for end in ("source", "target") if end in shard}
    return {**shard, **{end: _renamed(node, names.get(_id(node))) for end, node in ends.items()}}


def _id(end: Any) -> str:
    return str(end.get("id")) if isinstance(end, dict) else ""


_FIRST_WITH_LASTING_IDS: Final = (5, 0, 0)
_FIRST_WITH_ENABLE: Final = (1, 0, 0)
_PREFIX: Final = "cluster.routing.allocation."
_REBALANCE: Final = "cluster.routing.rebalance.enable"
MINIMUM_MASTERS: Final = "discovery.zen.minimum_master_nodes"
_DEFAULTS: Final[Mapping[str, str]] = {
    ALLOCATION: "all",
    _REBALANCE: "all",
    f"{_PREFIX}node_initial_primaries_recoveries": "4",
    f"{_PREFIX}node_concurrent_recoveries": "2",
    f"{_PREFIX}disk.threshold_enabled": "true",
    f"{_PREFIX}disk.watermark.low": "85%",
    f"{_PREFIX}disk.watermark.high": "90%",
    "indices.recovery.max_bytes_per_sec": "40mb",
    "indices.recovery.concurrent_streams": "3",
}
"""Elasticsearch 1.6 to 2.4 (`ThrottlingAllocationDecider`, `DiskThresholdDecider`, `RecoverySettings`)."""
_SLOW_RECOVERY: Final = {"indices.recovery.max_bytes_per_sec": "20mb"}
"""Before 1.6."""
_OLD_DISKS: Final = {
    f"{_PREFIX}disk.threshold_enabled": "false",
    f"{_PREFIX}disk.watermark.low": "0.7",
    f"{_PREFIX}disk.watermark.high": "0.85",
}
"""Before 1.3 (seen in 0.90.13)."""
_FIRST_WITH_DISKS: Final = (1, 3, 0)
_FLAGS: Final = dict.fromkeys((DISABLE_NEW, *FLAGS.values()), "false")
"""Before 1.0, in place of `enable`."""
_EARLIER_NAMES: Final = {
    "indices.recovery.max_bytes_per_sec": "indices.recovery.max_size_per_sec",
    "indices.recovery.concurrent_streams": "index.shard.recovery.concurrent_streams",
}
"""Names of settings in elasticsearch.yml that a server before 5 reads where the later name is absent."""
_FIRST_READ: Final = {f"{_PREFIX}node_concurrent_recoveries": f"{_PREFIX}concurrent_recoveries"}
"""Names that it reads before these (`ThrottlingAllocationDecider`)."""
_FIRST_AT_40_MB: Final = (1, 6, 0)
_FIRST_VOTING: Final = (7, 0, 0)
"""The first version with a voting configuration instead of `minimum_master_nodes`."""
_FIRST_WITH_REBALANCE: Final = (2, 0, 0)
_READ: Final = (_PREFIX, "cluster.routing.rebalance.", "indices.recovery.", "discovery.zen.")


def file_values(settings: Mapping[str, str], version: str) -> dict[str, str]:
    """The values of absent settings on a node before 5.0: its elasticsearch.yml, else its version's defaults.

    Args:
        settings: the node's own settings, by their dotted names.
        version: of the node.
    """
    numbers = parse_version(version)
    slow = _SLOW_RECOVERY if numbers < _FIRST_AT_40_MB else {}
    disks = _OLD_DISKS if numbers < _FIRST_WITH_DISKS else {}
    earlier, first = (
        {key: settings[name] for key, name in names.items() if name in settings}
        for names in (_EARLIER_NAMES, _FIRST_READ)
    )
    own = {key: value for key, value in settings.items() if key.startswith(_READ)}
    found = {**_DEFAULTS, **slow, **disks, **earlier, **own, **first}
    if numbers < _FIRST_WITH_REBALANCE:
        del found[_REBALANCE]
    if numbers < _FIRST_WITH_ENABLE:
        found = {**_FLAGS, **{key: value for key, value in found.items() if key != ALLOCATION}}
    return found


def with_smallest_quorum(
    settings: SettingsView, nodes: Iterable[tuple[str, Mapping[str, str]]]
) -> SettingsView:
    """The settings, with the smallest `minimum_master_nodes` in the nodes' files as the files' value.

    A node without it elects a master alone, as with 1. In an upgrade to 7, nodes of 7 take the number from
    the elected master and need not have it: they are left out.

    Args:
        settings: without it.
        nodes: version and own settings of each node.
    """
    counting = [own for version, own in nodes if parse_version(version) < _FIRST_VOTING]
    counts = [own.get(MINIMUM_MASTERS, "1") for own in counting]
    numbers = [int(count) if count.isdigit() else 1 for count in counts]
    return replace(settings, files={**settings.files, MINIMUM_MASTERS: str(min(numbers, default=1))})
