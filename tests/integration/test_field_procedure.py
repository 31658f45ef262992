"""The procedure that shortened the restart of an 8 TB cluster, on Elasticsearch 0.90.13 with its settings.

Recovery limits 4, 15, 100mb and 5 streams; a bulk load; every copy merged to five segments; allocation
disabled while a node is down; a rolling restart. Copies that were merged apart have different files: the
restart after the merge copies them once, and the next restart finds them on disk.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.generations import PLAYBOOK, Story, loader, restarted_once, settings_of
from tests.integration.proxying import Received, Recording
from tests.integration.restarting import events, orchestrate
from tests.lab.bulk import GREEN_SECONDS, BulkLoad, load, numbered, write
from tests.lab.nodes import LabCluster
from tests.lab.segments import count_segments, told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.fixtures_processes import Show

pytestmark = [pytest.mark.real, pytest.mark.part(name="generations")]

MOST: Final = 5
WRITERS: Final = 4
"""At a time on one index: its copies then take the documents in different orders."""
POSTS: Final = BulkLoad(
    indices=numbered("posts", 2), documents=4000, shards=1, documents_per_request=100, document_words=40
)
PROCEDURE: Final = {
    **PLAYBOOK,
    "allocation_while_down": "none",
    "recovery_limits": {
        "node_initial_primaries_recoveries": 4,
        "node_concurrent_recoveries": 15,
        "max_bytes_per_sec": "100mb",
        "concurrent_streams": 5,
    },
    "force_merge": {"max_segments": MOST},
}
WITHHELD: Final = "cluster.routing.allocation.disable_allocation"
LIMITS: Final = {
    "cluster.routing.allocation.node_initial_primaries_recoveries": "4",
    "cluster.routing.allocation.node_concurrent_recoveries": "15",
    "indices.recovery.max_bytes_per_sec": "100mb",
    "indices.recovery.concurrent_streams": "5",
}


class _Recorded:
    """A lab whose nodes are reached through proxies that keep the requests."""

    def __init__(self, lab: LabCluster, urls: list[str]) -> None:
        self._lab, self._urls = lab, urls

    def cluster_document(self) -> dict[str, Any]:
        """The lab's cluster file with the proxies as endpoints."""
        return {**self._lab.cluster_document(), "endpoints": self._urls}


def test_the_procedure_of_0_90_with_its_settings(tmp_path: Path, show: Show) -> None:
    story, received = Story("0.90.13, the procedure"), list[Received]()
    files = {"cluster.routing.allocation.node_initial_primaries_recoveries": "2"}
    with ExitStack() as stack:
        lab = stack.enter_context(LabCluster.start(version="0.90.13", heap_mb=256, settings=files))
        proxies = [stack.enter_context(Recording([endpoint], received)) for endpoint in lab.endpoints]
        recorded = _Recorded(lab, [proxy.url for proxy in proxies])
        client = lab.client
        stack.callback(client.close)

        def done(command: str, *words: str) -> tuple[int, int]:
            """Bytes copied and reused by one command that restarts every node once."""
            found: list[dict[str, Any]] = []

            def one() -> None:
                code, lines = orchestrate(
                    recorded, tmp_path, command, *words, playbook=PROCEDURE, seconds=600
                )
                assert code == 0, "\n".join(map(str, lines[-12:]))
                found.extend(events(lines, "node_recovered"))

            restarted_once(lab, story, one)
            copied, reused = (sum(one[key] for one in found) for key in ("bytes_copied", "bytes_reused"))
            seconds = sum(one["seconds"] for one in found)
            story.add(f"{command}: {copied} bytes copied, {reused} reused, {seconds:.1f} s for three nodes")
            return copied, reused

        _bulk_load(lab)
        loaded = count_segments(client, "posts-*")
        story.add(f"loaded: {told(loaded)}")
        done("restart")
        received.clear()
        done("post-bulk-index", "--index", "posts-*")
        _assert_received(received, story)
        merged = count_segments(client, "posts-*")
        story.add(f"merged: {told(merged)}")
        assert max(copy.most for copy in merged) <= MOST < max(copy.most for copy in loaded), str(story)
        copied, reused = done("restart")
        assert copied * 20 < reused, str(story)
        left = settings_of(client)["persistent"]
        assert left[WITHHELD] == "false", left
        assert (left["indices.recovery.concurrent_streams"], left["indices.recovery.max_bytes_per_sec"]) == (
            "3",
            "20mb",
        ), left
        assert left["cluster.routing.allocation.node_initial_primaries_recoveries"] == "2", left
    show(str(story))


def _bulk_load(lab: LabCluster) -> None:
    """Load, then write more from several clients at once, so that copies merge apart."""
    client, dialect = lab.client, loader(lab)
    try:
        load(client, POSTS, dialect=dialect)
        parts = [range(first, first + 1000) for first in range(10_000, 10_000 + 1000 * WRITERS, 1000)]
        for name in POSTS.indices:
            with ThreadPoolExecutor(max_workers=WRITERS) as pool:
                list(pool.map(lambda part, to=name: write(client, to, part, POSTS, dialect=dialect), parts))
        client.ask("POST", f"/{','.join(POSTS.indices)}/_flush")
        client.wait_green(POSTS.indices, GREEN_SECONDS)
    finally:
        client.close()


def _assert_received(received: list[Received], story: Story) -> None:
    """The settings of the procedure, five segments, and allocation disabled at every stop."""
    updates = [one.body["persistent"] for one in received if one.method == "PUT" and "/settings" in one.path]
    merges = [one.path for one in received if "/_optimize" in one.path]
    for one in received:
        if one.method != "GET" and "/_template/" not in one.path:
            story.add(f"  {one.method} {one.path} {one.body or ''}")
    wanted = "_optimize?max_num_segments=5"
    assert sorted(merges) == [f"/{name}/{wanted}" for name in POSTS.indices], str(story)
    first = {
        key: value for update in updates if update.get(WITHHELD) == "true" for key, value in update.items()
    }
    assert first == {WITHHELD: "true", **LIMITS}, str(story)
    switched = [update[WITHHELD] for update in updates if WITHHELD in update]
    assert switched == ["true", "false"] * 3, str(story)
