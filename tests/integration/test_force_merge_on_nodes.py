"""Merging after a bulk load on real nodes: what is read before, meanwhile and afterwards; asked for once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.bulk import force_merge
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.eras import merge_ends_the_call
from orchestrator.elasticsearch.faults import Fault
from orchestrator.model.action import Done, ForceMerge, RefreshIndex
from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import BulkIndex, BulkView, Resolution
from orchestrator.model.reading import Unknown
from orchestrator.runtime.waiting import SystemClock
from tests.lab.distributions import Product

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

# That nothing is merged twice is in `make test-merges` too: test_killed_everywhere.py.
pytestmark = [pytest.mark.real, pytest.mark.part(name="merges")]

QUICKEST = "opensearch-2.19.0"
LOADS = 8
"""Bulk requests, each with a refresh: about so many segments has each copy then, and too many."""
MOST = 5
MANY_TIERS = {"refresh_interval": "-1", "merge.policy.segments_per_tier": 50}
"""The servers leave so many segments alone, so that only a force-merge merges."""
BUSY_SHARDS = 100
MERGED_SECONDS = 120.0


@pytest.fixture(params=[QUICKEST, "9.1.0", "8.19.0"])
def lab(request: pytest.FixtureRequest, process_cluster: ProcessCluster) -> LabCluster:
    return process_cluster(str(request.param))


@pytest.fixture
def bastions(lab: LabCluster) -> Iterator[tuple[ElasticsearchCluster, ElasticsearchCluster]]:
    """Two ways to the cluster that know nothing of each other, and ask different nodes first."""
    ways = [open_client(lab, *order) for order in (lab.endpoints, lab.endpoints[::-1])]
    yield ElasticsearchCluster(ways[0]), ElasticsearchCluster(ways[1])
    for way in ways:
        way.close()


def open_client(lab: LabCluster, *endpoints: str) -> ElasticsearchClient:
    return ElasticsearchClient(Access(endpoints=endpoints or lab.endpoints), clock=SystemClock())


def load(lab: LabCluster, index: str, *, documents: int = 60, times: int = LOADS, **settings: Any) -> None:
    """Fill an index in many small segments."""
    lab.client.ask("PUT", f"/{index}", {"aliases": {f"all-{index}": {}}, "settings": MANY_TIERS | settings})
    lab.wait_ready(status="green")  # a copy that is made meanwhile is made with segments of its own
    pool = urllib3.PoolManager(retries=False)
    for turn in range(times):
        lines = [json.dumps({"text": f"word{number} of {turn}"}) for number in range(documents)]
        body = "".join(f'{{"index":{{}}}}\n{line}\n' for line in lines)
        answer = pool.request(
            "POST",
            f"{lab.endpoints[0]}/{index}/_bulk?refresh=true",
            body=body,
            headers={"content-type": "application/json"},
        )
        assert answer.json()["errors"] is False
    pool.clear()
    lab.wait_ready(status="green")


def hang_up(lab: LabCluster, path: str) -> None:
    """Ask for a force-merge and do not wait for it."""
    pool = urllib3.PoolManager(retries=False)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        pool.request("POST", f"{lab.endpoints[1]}{path}", timeout=urllib3.Timeout(connect=10, read=0.5))
    pool.clear()


@contextmanager
def merges_that_last(lab: LabCluster) -> Iterator[None]:
    """Have merges wait while the context lasts.

    Elasticsearch begins none while a disk is fuller than its watermark for merges (8.19 and 9.1). OpenSearch
    has no such thing; there a merge waits for the one thread that a node has for them, and gets it when some
    shards that were before it are done, which takes seconds, and need not be waited for.
    """
    if lab.distribution.product is Product.OPENSEARCH:
        hang_up(lab, "/busy/_forcemerge?max_num_segments=1")
        yield
        return
    mark, check = "indices.merge.disk.watermark.high", "indices.merge.disk.check_interval"
    lab.client.ask("PUT", "/_cluster/settings", {"persistent": {mark: "1%", check: "1s"}})
    time.sleep(2)  # twice the interval in which nodes look at their disks
    try:
        yield
    finally:
        lab.client.ask("PUT", "/_cluster/settings", {"persistent": {mark: None, check: None}})


def read(port: ElasticsearchCluster, uuids: list[str]) -> dict[str, BulkIndex]:
    view = port.bulk(uuids)
    assert isinstance(view, BulkView), view
    return {index.name: index for index in view.indices.values()}


def wait_for(port: ElasticsearchCluster, uuids: list[str], ready: Callable[[BulkIndex], bool]) -> None:
    limit = time.monotonic() + MERGED_SECONDS
    while not all(ready(index) for index in read(port, uuids).values()):
        assert time.monotonic() < limit, read(port, uuids)
        time.sleep(0.2)


def merges_made(lab: LabCluster, index: str) -> int:
    """Merges that the nodes have carried out of an index, by their own count."""
    answer = lab.client.ask("GET", f"/{index}/_stats/merge")
    return int(answer["_all"]["total"]["merges"]["total"])


def test_an_index_is_merged_once_whoever_asks(
    lab: LabCluster, bastions: tuple[ElasticsearchCluster, ElasticsearchCluster]
) -> None:
    one, other = bastions
    load(lab, "posts", number_of_shards=2, number_of_replicas=1)
    load(lab, "people", number_of_shards=1, number_of_replicas=2)
    if lab.distribution.product is Product.OPENSEARCH:
        load(lab, "busy", documents=300, times=2, number_of_shards=BUSY_SHARDS, number_of_replicas=2)
    resolved = one.resolve(["posts", "peo*"])
    assert isinstance(resolved, Resolution), resolved
    uuids = [index.uuid for index in resolved.open]
    before = read(one, uuids)
    posts = before["posts"]
    assert (len(posts.copies), len(before["people"].copies)) == (4, 3)
    assert min(copy.segments for index in before.values() for copy in index.copies) > MOST
    assert (posts.writes.operations, posts.writes.sequence) == (60 * LOADS, 60 * LOADS - 2)
    assert not posts.under_way
    assert (posts.replicas, posts.refresh_interval, posts.translog_durability) == (1, "-1", None)
    made = merges_made(lab, "posts")

    merge = ForceMerge(index="posts", index_uuid=posts.uuid, max_segments=MOST)
    with merges_that_last(lab):
        first, second = one.perform(merge), other.perform(merge)
        assert isinstance(first, Done)
        assert second == Done(output=f"runs already: {first.output}")
        hang_up(lab, "/all-people/_forcemerge?max_num_segments=1")
        while_it_lasts = read(other, uuids)
    assert {name: index.tasks for name, index in while_it_lasts.items()} == {"posts": 1, "people": 1}
    assert while_it_lasts["posts"].under_way
    assert while_it_lasts["posts"].segments == posts.segments

    wait_for(one, uuids, lambda index: not index.under_way)
    for name in ("posts", "people"):
        refresh = RefreshIndex(index=name, index_uuid=before[name].uuid)
        assert isinstance(one.perform(refresh), Done)
    after = read(one, uuids)
    assert [copy.segments <= MOST for copy in after["posts"].copies] == [True] * 4
    assert [copy.segments for copy in after["people"].copies] == [1] * 3
    assert after["posts"].writes == posts.writes, "a merge writes nothing"
    assert merges_made(lab, "posts") == made + 4, "one for each copy"
    assert isinstance(one.perform(merge), Done)
    wait_for(one, uuids, lambda index: not index.under_way)
    assert merges_made(lab, "posts") == made + 4, "there was nothing left to merge"


@pytest.mark.parametrize("lab", ["9.1.0", "8.19.0"], indirect=True)
def test_a_call_that_waits_for_the_end_is_found_among_the_tasks(
    lab: LabCluster, bastions: tuple[ElasticsearchCluster, ElasticsearchCluster]
) -> None:
    """As versions are spoken to that give no task; and the node that was asked dies while it lasts."""
    _, other = bastions
    load(lab, "posts", number_of_shards=1, number_of_replicas=2)
    found = other.resolve(["posts"])
    assert isinstance(found, Resolution), found
    (uuid,) = (index.uuid for index in found.open)
    merge = ForceMerge(index="posts", index_uuid=uuid, max_segments=MOST)
    asked = lab.nodes[0].name
    client: Any = open_client(lab, lab.endpoints[0])
    dialect = client.dialect()
    assert not isinstance(dialect, Fault)
    write = client.write
    client.write = lambda request: write(merge_ends_the_call(request))
    with merges_that_last(lab):
        began = time.monotonic()
        done = force_merge(client, dialect, merge)
        assert time.monotonic() - began < 30
        client.close()
        assert isinstance(done, Done), done
        assert done.output.startswith("task ")
        os.kill(lab.pids()[asked], signal.SIGKILL)
        other.avoid([NodeName(asked)])
        limit = time.monotonic() + MERGED_SECONDS
        while isinstance(left := other.bulk([uuid]), Unknown):
            assert time.monotonic() < limit, left  # until the master has noticed
            time.sleep(0.5)
        assert left.indices[uuid].tasks == 1
        assert other.perform(merge) == Done(output=f"runs already: {done.output}")
    wait_for(other, [uuid], lambda index: not index.under_way and index.segments <= MOST)
