"""The pipeline step on real nodes: merge, restart, the same again, and what is due after a kill between."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import QUICKEST
from tests.integration.restarting import events, orchestrate
from tests.lab.bulk import BulkLoad, load, numbered
from tests.lab.segments import count_segments

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

MOST = 5
POSTS = BulkLoad(indices=numbered("posts", 3), documents=9000, shards=1, documents_per_request=250)
PUT_RIGHT = {"force_merge": {"put_right": {"refresh_interval": "1s", "translog_durability": "request"}}}


def test_the_step_merges_and_restarts_and_a_second_does_nothing(
    process_cluster: ProcessCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = process_cluster(QUICKEST)
    client = lab.client
    step = ("post-bulk-index", "--index", "posts-*")
    try:
        load(client, POSTS)
        client.ask("PUT", "/posts-01/_settings", {"index": {"refresh_interval": "-1"}})
        before = max(copy.most for copy in count_segments(client, "posts-*"))
        lives = set(lab.pids().values())

        code, lines = orchestrate(lab, tmp_path, "force-merge", "--index", "posts-0[1-3]")
        assert (code, lines[-1]["outcome"]) == (2, "refused"), "brackets are no glob of indices"

        code, lines = orchestrate(lab, tmp_path, "force-merge", "--index", "posts-*", playbook=PUT_RIGHT)
        merged = lines[-1]
        assert (code, merged["indices_merged"], merged["nodes_restarted"]) == (0, 3, 0), lines
        assert max(copy.most for copy in count_segments(client, "posts-*")) <= MOST < before
        set_to = client.ask("GET", "/posts-01/_settings?flat_settings=true")["posts-01"]["settings"]
        assert set_to["index.refresh_interval"] == "1s"
        assert set(lab.pids().values()) == lives

        # As if the program had been killed between the merges and the restart: only that is left.
        code, lines = orchestrate(lab, tmp_path, *step, playbook=PUT_RIGHT)
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

        runs = len(orchestrate(lab, tmp_path, *step, playbook=PUT_RIGHT)[1])
        code, lines = orchestrate(lab, tmp_path, *step, playbook=PUT_RIGHT)
        assert (code, runs, lines[-1]["nothing_to_do"]) == (0, 1, True), lines
    finally:
        client.close()
    with capsys.disabled():
        merges = ", ".join(
            f"{one['index']} {one['segments_before']} -> {one['segments_after']}" for one in merged["merges"]
        )
        recovery = {key: restarted["recovery"][key] for key in ("bytes_reused", "bytes_copied")}
        sys.stdout.write(f"\n  {merges}\n  {recovery}\n  {lines[-1]['message']}\n")
