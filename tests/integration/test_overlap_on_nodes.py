"""`overlap_recovery` on real nodes: a run that keeps to the rule, and by hand what breaking it does.

A node that returns from a restart of seconds replays a few operations and is done. Here its disk is emptied
while it is down, as after a change of disks, and recovery is slowed down: so every copy is copied whole,
recoveries last, and a second stop at the wrong moment would cost the only other copy.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.restarting import events, restart
from tests.lab.client import LabClient
from tests.lab.layout import LabNode
from tests.lab.load import Load, LoadProfile, count_documents
from tests.lab.seed import SeedIndex, bulk_body, seed

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="ordinary"), pytest.mark.timeout(2400)]

SIX = tuple(LabNode(name=f"es{number}", zone="abc"[number % 3]) for number in range(1, 7))
POSTS = SeedIndex(name="posts", shards=6, documents=6000, document_bytes=6000)
"""About 4 MB a shard; a copy of it takes some seconds at `SLOW`."""
SLOW = "512kb"
AT_ONCE = {"index.unassigned.node_left.delayed_timeout": "0"}
"""Otherwise a node without its data would wait a minute for copies, in case the old ones came back."""
ALLOCATION = "cluster.routing.allocation.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """A copy that was made over the network, by the cluster's own word; times in seconds since the epoch."""

    shard: int
    source: str
    target: str
    began: float
    ended: float


def _copyings(client: LabClient, index: str) -> list[Copying]:
    shards = client.ask("GET", f"/{index}/_recovery?detailed=false")[index]["shards"]
    return [
        Copying(
            shard=one["id"],
            source=one["source"]["name"],
            target=one["target"]["name"],
            began=one["start_time_in_millis"] / 1000,
            ended=one["stop_time_in_millis"] / 1000,
        )
        for one in shards
        if one["type"] == "PEER"
    ]


def _at(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(line["ts"]).timestamp()


def _stops(lines: list[dict[str, Any]]) -> dict[str, float]:
    """When each node was told to stop."""
    sent = [line for line in events(lines, "action_sent") if line["action"]["verb"] == "stop"]
    return {line["action"]["node"]: _at(line) for line in sent}


def _lives(client: LabClient) -> dict[str, float]:
    """When each node's process began, in seconds since the epoch."""
    nodes = client.ask("GET", "/_nodes/jvm")["nodes"].values()
    return {node["name"]: node["jvm"]["start_time_in_millis"] / 1000 for node in nodes}


def _slowly(lab: LabCluster) -> dict[str, Any]:
    """A playbook by which each node comes back with an empty disk, and is filled slowly; with overlap."""
    folders = f"{lab.directory}/{{node}}/data/indices {lab.directory}/{{node}}/data/nodes/0/indices"
    settings = {"indices.recovery.max_bytes_per_sec": SLOW}
    lab.client.ask("PUT", "/_cluster/settings", {"persistent": settings})
    return {
        "overlap_recovery": True,
        "recovery_limits": {"max_bytes_per_sec": None},
        "hooks": {"while_stopped": [{"run": f"rm -rf {folders}"}]},
        "deadlines": {"hold": "2m", "recover": "10m"},
    }


@pytest.mark.parametrize("version", ["9.1.0", "opensearch-2.19.0"])
def test_the_next_node_stops_during_recovery_without_loss(
    process_cluster: ProcessCluster, tmp_path: Path, version: str
) -> None:
    lab = process_cluster(version, nodes=SIX)
    client = lab.client
    seed(client, [POSTS])
    client.ask("PUT", "/posts/_settings", AT_ONCE)
    before = _lives(client)
    with Load(lab.access, LoadProfile(documents_per_second=100)) as load:
        load.wait_acknowledged(100)
        client.ask("PUT", "/load/_settings", AT_ONCE)
        code, lines = restart(lab, tmp_path, playbook=_slowly(lab), seconds=1800)
    assert code == 0, lines[-1]
    assert all(_lives(client)[name] > began for name, began in before.items())

    stops, copyings = _stops(lines), _copyings(client, "posts")
    beside = {node for node, at in stops.items() for one in copyings if one.began < at < one.ended}
    assert len(beside) >= 2, (stops, copyings)
    for node, at in stops.items():
        robbed = [one for one in copyings if one.began < at < one.ended and node in (one.source, one.target)]
        assert robbed == [], f"{node} had a part in what recovered at its stop"
    overlapping = events(lines, "overlapping")
    assert len([line for line in overlapping if line["shards"]]) >= len(beside)
    assert {line["unassigned"] for line in overlapping} == {0}

    lab.wait_ready(status="green")
    verified = load.verify()
    assert (verified.missing, verified.duplicated) == ((), ())
    there = count_documents(client, "posts")
    assert len(there) == POSTS.documents
    assert set(there.values()) == {1}
    found = client.ask("GET", "/_cluster/settings?flat_settings=true")
    assert found["persistent"] == {"indices.recovery.max_bytes_per_sec": SLOW}
    assert found["transient"] == {}


# By hand, with nobody to keep to the rule ------------------------------------------------------------

ONE = SeedIndex(name="one", shards=1, documents=4000, document_bytes=6000)
VERSIONS = ["9.1.0", "opensearch-2.19.0"]


def _master_first(lab: LabCluster) -> list[str]:
    """The names of the nodes, the elected master's first: no election is to blame for what is seen."""
    master = lab.client.ask("GET", "/_cat/master?format=json")[0]["node"]
    return [master, *(node.name for node in lab.nodes if node.name != master)]


def _recovering(lab: LabCluster, *, started: tuple[str, ...], arriving: str) -> None:
    """An index with its primary on the first of `started`, copies on the others, and one on its way."""
    client = lab.client
    first = {"index.routing.allocation.include._name": started[0]}
    settings = {"number_of_shards": 1, "number_of_replicas": 0, **first, **AT_ONCE}
    client.ask("PUT", f"/{ONE.name}", {"settings": settings})
    dice = random.Random(1)  # noqa: S311  (test data, the same each time)
    for begin in range(0, ONE.documents, 500):
        client.ask("POST", f"/{ONE.name}/_bulk", bulk_body(ONE, range(begin, begin + 500), dice))
    client.ask("POST", f"/{ONE.name}/_flush")
    for number, node in enumerate(started[1:], 1):
        _copies(client, replicas=number, on=(*started[:number], node))
        _health(client, "green")
    slow = {"indices.recovery.max_bytes_per_sec": "256kb"}
    client.ask("PUT", "/_cluster/settings", {"persistent": slow})
    _copies(client, replicas=len(started), on=(*started, arriving))
    for _ in range(100):  # assigning is a task of the master's own, or several: each question waits for one
        _health(client, "yellow")
        if "INITIALIZING" in {one["state"] for one in _entries(client)}:
            return
    raise AssertionError(_entries(client))


def _copies(client: LabClient, *, replicas: int, on: tuple[str, ...]) -> None:
    wanted = {"index.number_of_replicas": replicas, "index.routing.allocation.include._name": ",".join(on)}
    client.ask("PUT", f"/{ONE.name}/_settings", wanted)


def _health(client: LabClient, status: str, *, seconds: int = 120) -> dict[str, Any]:
    path = f"/_cluster/health/{ONE.name}?wait_for_status={status}&wait_for_events=languid&timeout={seconds}s"
    found: dict[str, Any] = client.ask("GET", path, accept=(408,), seconds=seconds + 10)
    return found


def _entries(client: LabClient) -> list[dict[str, Any]]:
    """The routing table's entries of the one shard, with node names."""
    state = client.ask("GET", f"/_cluster/state/routing_table,nodes/{ONE.name}")
    names = {node: about["name"] for node, about in state["nodes"].items()}
    entries = state["routing_table"]["indices"][ONE.name]["shards"]["0"]
    return [{**entry, "node": names.get(entry["node"])} for entry in entries]


def _stop_the_source(lab: LabCluster, source: str) -> dict[str, Any]:
    """Withhold allocation, then stop the node from which a copy is being made; health after that."""
    client = lab.client
    client.ask("PUT", "/_cluster/settings", {"persistent": {ALLOCATION: "primaries"}})
    assert [one["state"] for one in _entries(client) if one["state"] == "INITIALIZING"], (
        "it was over too soon"
    )
    lab.stop_nodes([source])
    return _health(client, "green", seconds=10)


@pytest.mark.parametrize("version", VERSIONS)
def test_by_hand_a_stopped_only_source_leaves_the_shard_red(
    process_cluster: ProcessCluster, version: str
) -> None:
    lab = process_cluster(version)
    client, (_, source, arriving) = lab.client, _master_first(lab)
    _recovering(lab, started=(source,), arriving=arriving)
    assert _stop_the_source(lab, source)["status"] == "red"
    states = {(one["primary"], one["state"]) for one in _entries(client)}
    assert states == {(True, "UNASSIGNED"), (False, "UNASSIGNED")}, "what was copied so far is of no use"
    lab.start_nodes([source])
    assert _health(client, "yellow")["status"] == "yellow", "the primary comes back with its node"
    _stays_and_is_made_again(lab, unassigned=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_by_hand_a_stopped_source_loses_the_recovery(process_cluster: ProcessCluster, version: str) -> None:
    lab = process_cluster(version)
    client, (master, source, arriving) = lab.client, _master_first(lab)
    _recovering(lab, started=(source, master), arriving=arriving)
    assert _stop_the_source(lab, source)["status"] == "yellow"
    entries = _entries(client)
    assert [one["node"] for one in entries if one["primary"] and one["state"] == "STARTED"] == [master]
    lost = [one for one in entries if one["state"] == "UNASSIGNED"]
    assert len(lost) == 2, "the copy that was stopped, and the one that was on its way"
    assert {one["unassigned_info"]["reason"] for one in lost} == {"NODE_LEFT", "PRIMARY_FAILED"}
    lab.start_nodes([source])
    _stays_and_is_made_again(lab, unassigned=2)


def _stays_and_is_made_again(lab: LabCluster, *, unassigned: int) -> None:
    """Copies are made again only with allocation back; every document is there then."""
    assert _health(lab.client, "green", seconds=10)["timed_out"]
    assert [one["state"] for one in _entries(lab.client)].count("UNASSIGNED") == unassigned
    back = {ALLOCATION: None, "indices.recovery.max_bytes_per_sec": None}
    lab.client.ask("PUT", "/_cluster/settings", {"persistent": back})
    assert _health(lab.client, "green")["status"] == "green"
    there = count_documents(lab.client, ONE.name)
    assert (len(there), set(there.values())) == (ONE.documents, {1})
