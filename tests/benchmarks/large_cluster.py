"""A large cluster played on loopback: whole answers of Elasticsearch 9.1, made before the first question.

Their shapes are those that real nodes gave (`tests/data/elasticsearch/9.1.0`). The cluster is healthy, has
three zones, two copies a shard, nodes with data, and three voters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

VERSION: Final = "9.1.0"
NAME: Final = "large"
ZONES: Final = "abc"
SHARDS_AN_INDEX: Final = 5
LOOPBACK: Final = "127.0.0.1"
_DATA: Final = (
    "data",
    "data_cold",
    "data_content",
    "data_hot",
    "data_warm",
    "ingest",
    "remote_cluster_client",
)
_DEFAULTS: Final = {
    "cluster.routing.allocation.awareness.attributes": ["zone"],
    "cluster.routing.allocation.disk.reroute_interval": "60s",
    "cluster.routing.allocation.disk.threshold_enabled": "true",
    "cluster.routing.allocation.disk.watermark.flood_stage": "95%",
    "cluster.routing.allocation.disk.watermark.high": "90%",
    "cluster.routing.allocation.disk.watermark.high.max_headroom": "150GB",
    "cluster.routing.allocation.disk.watermark.low": "85%",
    "cluster.routing.allocation.disk.watermark.low.max_headroom": "200GB",
    "cluster.routing.allocation.enable": "all",
    "cluster.routing.allocation.node_concurrent_incoming_recoveries": "2",
    "cluster.routing.allocation.node_concurrent_outgoing_recoveries": "2",
    "cluster.routing.allocation.node_concurrent_recoveries": "2",
    "cluster.routing.allocation.node_initial_primaries_recoveries": "4",
    "cluster.routing.rebalance.enable": "all",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """So many nodes, and so many copies of shards."""

    nodes: int
    copies: int

    def __str__(self) -> str:
        return f"{self.nodes} x {self.copies}"


def size(text: str) -> Size:
    """`NODESxCOPIES`."""
    nodes, _, copies = text.partition("x")
    return Size(nodes=int(nodes), copies=int(copies))


def _id(kind: str, number: int) -> str:
    """As long as the ids of real nodes and copies are."""
    return f"{kind}{number:0{22 - len(kind)}}"


def _node_id(number: int) -> str:
    return _id("node-", number)


def _roles(number: int) -> list[str]:
    return [*_DATA, "master"] if number < len(ZONES) else [*_DATA]


def node_facts(wanted: Size, port: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What `_nodes` says of each node, by id; all are reached at this one port."""
    for number in range(wanted.nodes):
        yield (
            _node_id(number),
            {
                "name": f"es{number:04}",
                "version": VERSION,
                "build_type": "zip",
                "roles": _roles(number),
                "jvm": {"start_time_in_millis": 1_700_000_000_000 + number},
                "http": {"publish_address": f"{LOOPBACK}:{port}"},
                "fs": {
                    "data": [{"total_in_bytes": 4_000_000_000_000, "available_in_bytes": 2_000_000_000_000}]
                },
            },
        )


def _members(wanted: Size) -> dict[str, Any]:
    return {
        _node_id(number): {
            "name": f"es{number:04}",
            "ephemeral_id": _id("life-", number),
            "transport_address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:9300",
            "attributes": {"zone": ZONES[number % len(ZONES)], "xpack.installed": "true"},
            "roles": _roles(number),
            "version": VERSION,
        }
        for number in range(wanted.nodes)
    }


def _indices(wanted: Size) -> Iterator[tuple[str, str]]:
    """The metadata and the routing of each index as JSON. A shard is in two zones; all nodes have as many."""
    whole = wanted.nodes - wanted.nodes % len(ZONES)  # as many in each zone
    count = wanted.copies // 2
    for index in range(-(-count // SHARDS_AN_INDEX)):
        in_sync, shards = {}, {}
        for shard in range(min(SHARDS_AN_INDEX, count - index * SHARDS_AN_INDEX)):
            number = index * SHARDS_AN_INDEX + shard
            step = 1 + 3 * (number // whole % (whole // 3))
            ids = [_id("p-", number), _id("r-", number)]
            in_sync[str(shard)] = ids
            shards[str(shard)] = [
                {
                    "state": "STARTED",
                    "primary": primary,
                    "node": _node_id(at % whole),
                    "relocating_node": None,
                    "shard": shard,
                    "allocation_id": {"id": allocation},
                }
                for primary, at, allocation in ((True, number, ids[0]), (False, number + step, ids[1]))
            ]
        settings = {
            "routing": {"allocation": {"include": {"_tier_preference": "data_hot"}}},
            "number_of_replicas": "1",
            "uuid": _id("index-", index),
        }
        metadata = {"state": "open", "settings": {"index": settings}, "in_sync_allocations": in_sync}
        name = f'"logs-{index:06}":'
        yield name + json.dumps(metadata), name + json.dumps({"shards": shards})


def state(wanted: Size) -> bytes:
    """The answer of `_cluster/state`."""
    metadata, routing = zip(*_indices(wanted), strict=True)
    coordination = {
        "last_committed_config": [_node_id(number) for number in range(len(ZONES))],
        "voting_config_exclusions": [],
    }
    return "".join(
        (
            f'{{"cluster_name":"{NAME}","cluster_uuid":"{_id("uuid-", 1)}","version":40,',
            f'"state_uuid":"{_id("state-", 40)}",',
            f'"master_node":"{_node_id(0)}","nodes":{json.dumps(_members(wanted))},',
            f'"metadata":{{"cluster_uuid":"{_id("uuid-", 1)}",',
            f'"cluster_coordination":{json.dumps(coordination)},"indices":{{{",".join(metadata)}}}}},',
            f'"routing_table":{{"indices":{{{",".join(routing)}}}}}}}',
        )
    ).encode()


def answers(wanted: Size, port: int) -> dict[str, bytes]:
    """The answers by the beginning of the path."""
    nodes = dict(node_facts(wanted, port))
    first = dict(list(nodes.items())[:1])
    health = {
        "cluster_name": NAME,
        "status": "green",
        "timed_out": False,
        "number_of_nodes": wanted.nodes,
        "active_shards": wanted.copies,
        "relocating_shards": 0,
        "initializing_shards": 0,
        "unassigned_shards": 0,
        "number_of_pending_tasks": 0,
        "task_max_waiting_in_queue_millis": 0,
    }
    counted = {"total": wanted.nodes, "successful": wanted.nodes, "failed": 0}
    small = {
        "/_nodes/_local": {"cluster_name": NAME, "nodes": first},
        "/_nodes": {"_nodes": counted, "cluster_name": NAME, "nodes": nodes},
        "/_cluster/settings": {"persistent": {}, "transient": {}, "defaults": _DEFAULTS},
        "/_cluster/health": health,
        "/_tasks": {"nodes": {}},
        "/_template": {},
        "/_component_template": {"component_templates": []},
        "/_recovery": {},
        # What a node answers to the question whether the state is still the same.
        "/_cluster/state/version,master_node": {
            "cluster_name": NAME,
            "state_uuid": _id("state-", 40),
            "master_node": _node_id(0),
        },
    }
    return {path: json.dumps(answer).encode() for path, answer in small.items()} | {
        "/_cluster/state": state(wanted)
    }


def _play(wanted: Size, told: Connection) -> None:
    """Tell the port, then answer for ever."""
    prepared: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = max((path for path in prepared if self.path.startswith(path)), key=len)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(prepared[found])))
            self.send_header("x-elastic-product", "Elasticsearch")
            self.end_headers()
            self.wfile.write(prepared[found])

        def log_message(self, *_arguments: object) -> None:
            """Nothing: it would be measured too."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    prepared.update(answers(wanted, server.server_port))
    told.send(server.server_port)
    server.serve_forever(60)


@contextmanager
def played(wanted: Size) -> Iterator[str]:
    """The address of a cluster of that size, which a process of its own plays."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_play, args=(wanted, theirs), daemon=True)
    process.start()
    try:
        yield f"http://{LOOPBACK}:{ours.recv()}"
    finally:
        process.terminate()
        process.join()
