"""What a pipeline calls when a bulk load has ended: what is refused, what is done, what is left to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import Console, Said
from tests.cli.loaded_cluster import LoadedCluster, Posts


@pytest.fixture
def cluster() -> Iterator[LoadedCluster]:
    with LoadedCluster(
        posts_01=Posts(segments=40),
        posts_02=Posts(segments=4),
        closed_01=Posts(open=False),
        secret_01=Posts(hidden=True),
    ) as server:
        yield server


def changed(cluster: LoadedCluster) -> list[str]:
    """Requests that could change something."""
    return [f"{asked.method} {asked.path}" for asked in cluster.asked if asked.method != "GET"]


def merge(console: Console, *more: str, index: str = "posts-*") -> Said:
    line = ("force-merge", "--cluster", "lab.yml", "--index", index, "--output", "json")
    return console.run(*line, *(more or ("--yes",)))


def settle(console: Console, *more: str) -> Said:
    line = ("post-bulk-index", "--cluster", "lab.yml", "--index", "posts-*", "--output", "json")
    return console.run(*line, *more)


@pytest.mark.usefixtures("file")
def test_what_cannot_be_merged_is_left_out_and_named(console: Console) -> None:
    said = merge(console, "--dry-run", index="*")
    assert said.code == ExitCode.DONE
    assert "warning: left out, since closed: closed-01\n" in said.err
    assert "warning: left out, since hidden: secret-01; give the name in full to have it merged\n" in said.err


@pytest.mark.usefixtures("file")
def test_a_plan_shows_what_is_merged_and_what_the_loader_left(
    console: Console, cluster: LoadedCluster
) -> None:
    cluster.indices["posts-01"].refresh_interval = "-1"
    said = settle(console, "--dry-run")
    plan, summary = said.lines
    assert (said.code, plan["max_segments"], summary["outcome"]) == (ExitCode.DONE, 5, "done")
    assert plan["merges"] == [
        {"index": "posts-01", "segments": 40, "bytes": 80_000_000, "due": True},
        {"index": "posts-02", "segments": 4, "bytes": 8_000_000, "due": False},
    ]
    left = {"setting": "index.refresh_interval", "found": "-1", "put_right": False, "wanted": None}
    assert plan["leftovers"] == [{"index": "posts-01", **left}]
    merges = [step for step in plan["steps"] if step["action"] == "force_merge"]
    assert [(step["wave"], step["target"]) for step in merges] == [(0, "index posts-01")]
    assert "POST /posts-01/_forcemerge" in merges[0]["detail"]
    assert said.nodes == ["es1", "es2", "es3"]
    line = ("force-merge", "--cluster", "lab.yml", "--index", "posts-*", "--dry-run")
    shown = console.run(*line).out
    for part in (
        "Merges to at most 5 segments a copy, in this order, before any stop (not in the prediction):",
        "  posts-01        40  80.0 MB  to be merged\n",
        "  posts-02         4   8.0 MB  few enough already\n",
        "  found: refresh_interval -1 on posts-01; not changed: force_merge.put_right of the playbook ",
        "No waves: no node is restarted.\n",
    ):
        assert part in shown
    assert changed(cluster) == []


@pytest.mark.usefixtures("file")
def test_a_merge_is_done_once_and_then_there_is_nothing_to_do(
    console: Console, cluster: LoadedCluster
) -> None:
    said = merge(console)
    *events, summary = said.lines
    assert (said.code, cluster.merges) == (ExitCode.DONE, ["posts-01"])
    assert [event["index"] for event in events if event["event"] == "index_merged"] == ["posts-01"]
    assert (summary["outcome"], summary["exit_code"], summary["nothing_to_do"]) == ("done", 0, False)
    assert (summary["indices_merged"], summary["nodes_restarted"]) == (1, 0)
    merged, few = summary["merges"]
    assert (merged["segments_before"], merged["segments_after"], merged["state"]) == (40, 5, "merged")
    assert (merged["bytes_before"], merged["bytes_after"]) == (80_000_000, 10_000_000)
    assert (few["segments_before"], few["segments_after"], few["state"]) == (4, None, "few")
    assert summary["recovery"]["bytes_copied"] is None
    cluster.asked.clear()
    said = merge(console)
    (summary,) = said.lines
    assert (said.code, summary["outcome"], summary["nothing_to_do"]) == (ExitCode.DONE, "done", True)
    assert summary["message"] == "lab: nothing to do: 2 indices have at most 5 segments a copy"
    assert (cluster.merges, changed(cluster), cluster.templates) == (["posts-01"], [], {})


@pytest.mark.usefixtures("file")
def test_nodes_are_due_until_they_are_restarted_after_the_merge(
    console: Console, cluster: LoadedCluster
) -> None:
    """The merge alone, as a kill before the restart would have left it: the step restarts what is due."""
    assert merge(console).code == ExitCode.DONE
    said = settle(console, "--dry-run")
    assert (said.code, said.nodes) == (ExitCode.DONE, ["es1", "es2", "es3"])
    assert [step for step in said.plan["steps"] if step["action"] == "force_merge"] == []
    cluster.reborn("es1", "es2", "es3")
    said = settle(console, "--yes")
    assert said.code == ExitCode.DONE
    assert said.err == (
        "✓ lab: nothing to do: 2 indices have at most 5 segments a copy, "
        "and every selected node was restarted since they were merged\n"
    )
    said = settle(console, "--dry-run", "--no-restart")
    assert (said.code, said.plan["waves"]) == (ExitCode.DONE, [])


@pytest.mark.usefixtures("file")
def test_index_is_not_written_holds_until_it_is_resumed(console: Console, cluster: LoadedCluster) -> None:
    cluster.indices["posts-01"].written = 10
    said = merge(console, "--yes", "--max-segments", "4")
    (hold,) = said.lines[-1]["holds"]
    assert (said.code, cluster.merges) == (ExitCode.HELD, [])
    assert (hold["predicate"], hold["subject"]) == ("index_is_not_written", "index posts-01")
    status = console.run("status").out
    assert "Merges      0 of 1 index merged; 1 to come; 1 with few enough segments before\n" in status
    assert "correct what holds it (a resumed run keeps its playbook), then continue:\n" in status
    cluster.indices["posts-01"].written = 0
    resumed = console.run("resume", "--yes")
    assert resumed.code == ExitCode.DONE
    assert "posts-01: 40 → 4 segments a copy, 80.0 MB → 8.0 MB" in resumed.out
    assert cluster.merges == ["posts-01"]


@pytest.mark.usefixtures("file")
def test_allow_writes_merges_it_with_a_warning(console: Console, cluster: LoadedCluster) -> None:
    cluster.indices["posts-01"].written = 10
    said = merge(console, "--yes", "--allow-writes")
    assert said.code == ExitCode.DONE
    assert [line["index"] for line in said.lines if line["event"] == "merge_warned"] == ["posts-01"]
    assert cluster.merges == ["posts-01"]
