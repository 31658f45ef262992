"""`post-bulk-index` and `force-merge` on real nodes: merges and restarts.

The oracles ask the nodes: `_segments` for every copy of every shard, primary and replica, and each node's own
log for how often it was started.
"""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import QUICKEST, assert_restarted_once, truth
from tests.integration.restarting import events, orchestrate
from tests.integration.zoning import SIX_IN_THREE
from tests.lab.bulk import POSTS, BulkLoad, load, numbered
from tests.lab.segments import CopySegments, count_segments, told

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.client import LabClient

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]
in_merges = pytest.mark.part(name="merges")

MOST = 5
STEP = ("post-bulk-index", "--index", "posts-*")
FEW = BulkLoad(indices=numbered("posts", 3), documents=9000, shards=1, documents_per_request=250)
PUT_RIGHT = {"force_merge": {"put_right": {"refresh_interval": "1s", "translog_durability": "request"}}}


def most_segments(client: LabClient) -> int:
    """Of any copy."""
    return max(copy.most for copy in count_segments(client, "posts-*"))


def test_the_step_merges_and_restarts_and_a_second_does_nothing(
    process_cluster: ProcessCluster, tmp_path: Path, show: Show
) -> None:
    lab = process_cluster(QUICKEST)
    with closing(lab.client) as client:
        load(client, FEW)
        client.ask("PUT", "/posts-01/_settings", {"index": {"refresh_interval": "-1"}})
        before = most_segments(client)
        lives = set(lab.pids().values())

        code, lines = orchestrate(lab, tmp_path, "force-merge", "--index", "posts-0[1-3]")
        assert (code, lines[-1]["outcome"]) == (2, "refused"), "brackets are no glob of indices"

        code, lines = orchestrate(lab, tmp_path, "force-merge", "--index", "posts-*", playbook=PUT_RIGHT)
        merged = lines[-1]
        assert (code, merged["indices_merged"], merged["nodes_restarted"]) == (0, 3, 0), lines
        assert most_segments(client) <= MOST < before
        set_to = client.ask("GET", "/posts-01/_settings?flat_settings=true")["posts-01"]["settings"]
        assert set_to["index.refresh_interval"] == "1s"
        assert set(lab.pids().values()) == lives

        # As if the program had been killed between the merges and the restart: only that is left.
        code, lines = orchestrate(lab, tmp_path, *STEP, playbook=PUT_RIGHT)
        restarted = lines[-1]
        assert (code, restarted["indices_merged"], restarted["nodes_restarted"]) == (0, 0, 3), lines
        assert events(lines, "merge_begun") == []
        assert not set(lab.pids().values()) & lives
        # Most copies are brought up to date by operations; one whose retention lease its new primary does not
        # know yet is copied whole. Which it was the servers say; what began after the run had counted a node
        # is left out.
        back = {one["node"]: datetime.fromisoformat(one["ts"]) for one in events(lines, "node_recovered")}
        copied = dict.fromkeys((node.name for node in lab.nodes), 0)
        recoveries = client.ask("GET", "/_cat/recovery?format=json&bytes=b&h=*")
        for copy in recoveries:
            if datetime.fromisoformat(copy["start_time"]) <= back[copy["target_node"]]:
                copied[copy["target_node"]] += int(copy["bytes_recovered"])
        told = restarted["recovery"]["by_node"]
        assert {name: node["bytes_copied"] for name, node in told.items()} == copied, recoveries
        assert restarted["recovery"]["bytes_copied"] == sum(copied.values())

        runs = len(orchestrate(lab, tmp_path, *STEP, playbook=PUT_RIGHT)[1])
        code, lines = orchestrate(lab, tmp_path, *STEP, playbook=PUT_RIGHT)
        assert (code, runs, lines[-1]["nothing_to_do"]) == (0, 1, True), lines
    merges = [
        f"{one['index']} {one['segments_before']} -> {one['segments_after']}" for one in merged["merges"]
    ]
    show(f"{', '.join(merges)}; {lines[-1]['message']}")


def assert_whole(copies: list[CopySegments], wanted: BulkLoad) -> None:
    """Every copy is there and started, none beside another of its shard, and has its documents."""
    assert len(copies) == wanted.copies, told(copies)
    assert len({(copy.index, copy.shard, copy.node) for copy in copies}) == wanted.copies
    assert {copy.state for copy in copies} == {"STARTED"}
    each = wanted.documents // len(wanted.indices)
    assert sum(copy.documents for copy in copies if copy.primary) == each * len(wanted.indices)
    assert sum(copy.documents for copy in copies) == each * len(wanted.indices) * (1 + wanted.replicas)


@in_merges
@pytest.mark.parametrize("version", ["9.1.0", QUICKEST])
def test_300_000_documents_come_to_five_segments_a_copy(
    process_cluster: ProcessCluster, tmp_path: Path, show: Show, version: str
) -> None:
    """And a second step does nothing."""
    lab = process_cluster(version, nodes=SIX_IN_THREE)
    with closing(lab.client) as client:
        load(client, POSTS)
        before, lives = count_segments(client, "posts-*"), truth(lab)
        assert_whole(before, POSTS)
        assert min(min(copy.searched, copy.committed) for copy in before) > 2 * MOST, told(before)
        code, lines = orchestrate(lab, tmp_path, *STEP)
        assert code == 0, lines[-5:]
        assert_restarted_once(lab, lives)
        after = count_segments(client, "posts-*")
        assert_whole(after, POSTS)
        assert max(copy.most for copy in after) <= MOST, told(after)
        lives = truth(lab)
        code, again = orchestrate(lab, tmp_path, *STEP)
        assert code == 0, again
        assert truth(lab) == lives, "nothing was due, and something was done"
        assert count_segments(client, "posts-*") == after
    show(f"{version}: {told(before)}; {lines[-1]}; {told(after)}")


# What holds a merge ------------------------------------


def _holds(lines: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    return {(line["predicate"], line["subject"]): line["evidence"] for line in events(lines, "hold")}
