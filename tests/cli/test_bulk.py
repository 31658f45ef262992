"""What a pipeline calls when a bulk load has ended: what is refused, what is done, what is left to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
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


@pytest.fixture
def file(console: Console, cluster: LoadedCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    monkeypatch.setenv("HOME", str(console.home))
    return cluster.write_file(console.folder)


def changed(cluster: LoadedCluster) -> list[str]:
    """Requests that could change something."""
    return [f"{asked.method} {asked.path}" for asked in cluster.asked if asked.method != "GET"]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("command", ["post-bulk-index", "force-merge"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--index: name the indices that were loaded, such as --index 'posts-*'"),
        (["--index", ""], "--index: the name of an index, or a glob, is needed"),
        (["--index", "eu:posts-*"], "--index eu:posts-*: names indices of another cluster, and a merge is "),
        (
            ["--index", "posts-*", "--index", "pots-*"],
            "--index pots-*: lab has no index, alias or data stream",
        ),
        (
            ["--index", "closed-*"],
            "--index closed-*: closed-01 is closed, and the segments of a closed index",
        ),
        (["--index", "secret-*"], "--index secret-*: secret-01 is hidden: give the name in full"),
        (["--index", "posts-*", "--max-segments", "0"], "--max-segments 0: must be at least 1"),
        (["--index", "posts-*", "--timeout", "5"], "--timeout 5: must be a duration"),
        (
            ["--index", "posts-*", "--disable-predicate", "x"],
            "--disable-predicate x: there is no such predicate",
        ),
    ],
)
def test_bad_input_is_told_in_one_message_and_changes_nothing(
    *,
    command: str,
    arguments: list[str],
    message: str,
    file: str,
    cluster: LoadedCluster,
    console: Console,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([command, "--cluster", file, "--yes", *arguments]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"orchestrate: {message}")
    assert said.err.count("\n") == 1
    assert changed(cluster) == []
    assert not console.state.exists()


@pytest.mark.parametrize("command", ["post-bulk-index", "force-merge"])
def test_without_a_terminal_and_without_yes_nothing_begins(
    command: str, file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--cluster", file, "--index", "posts-*"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "orchestrate: there is no terminal for the question: check with `--dry-run`, then add --yes\n"
    )
    assert cluster.asked == []


def test_what_matches_and_cannot_be_merged_is_left_out_and_named(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["force-merge", "--cluster", file, "--index", "*", "--dry-run"]) == ExitCode.DONE
    said = capsys.readouterr().err
    assert "warning: left out, since closed: closed-01\n" in said
    assert "warning: left out, since hidden: secret-01; give the name in full to have it merged\n" in said


def test_a_plan_shows_what_is_merged_and_what_the_loader_left(
    file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.indices["posts-01"].refresh_interval = "-1"
    assert (
        run(["post-bulk-index", "--cluster", file, "--index", "posts-*", "--dry-run", "--output", "json"])
        == ExitCode.DONE
    )
    plan, summary = lines(capsys)
    assert (plan["event"], plan["max_segments"], summary["outcome"]) == ("plan", 5, "done")
    assert plan["merges"] == [
        {"index": "posts-01", "segments": 40, "bytes": 80_000_000, "due": True},
        {"index": "posts-02", "segments": 4, "bytes": 8_000_000, "due": False},
    ]
    assert plan["leftovers"] == [
        {
            "index": "posts-01",
            "setting": "index.refresh_interval",
            "found": "-1",
            "put_right": False,
            "wanted": None,
        }
    ]
    merges = [step for step in plan["steps"] if step["action"] == "force_merge"]
    assert [(step["wave"], step["target"]) for step in merges] == [(0, "index posts-01")]
    assert "POST /posts-01/_forcemerge" in merges[0]["detail"]
    assert {name for wave in plan["waves"] for name in wave["nodes"]} == {"es1", "es2", "es3"}
    assert changed(cluster) == []


def test_the_plan_in_text(file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.indices["posts-01"].refresh_interval = "-1"
    assert run(["force-merge", "--cluster", file, "--index", "posts-*", "--dry-run"]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert (
        "Merges to at most 5 segments a copy, in this order, before any stop (not in the prediction):" in said
    )
    assert "  posts-01        40  80.0 MB  to be merged\n" in said
    assert "  posts-02         4   8.0 MB  few enough already\n" in said
    assert (
        "  found: refresh_interval -1 on posts-01; not changed: force_merge.put_right of the playbook "
        "does not name it\n"
    ) in said
    assert "No waves: no node is restarted.\n" in said


def _merged(file: str, *more: str) -> int:
    return run(["force-merge", "--cluster", file, "--index", "posts-*", "--yes", "--output", "json", *more])


def test_a_merge_is_done_once_and_then_there_is_nothing_to_do(
    file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _merged(file) == ExitCode.DONE
    *events, summary = lines(capsys)
    assert cluster.merges == ["posts-01"]
    assert [event["index"] for event in events if event["event"] == "index_merged"] == ["posts-01"]
    assert (summary["outcome"], summary["exit_code"], summary["nothing_to_do"]) == ("done", 0, False)
    assert (summary["indices_merged"], summary["nodes_restarted"]) == (1, 0)
    merged, few = summary["merges"]
    assert (merged["segments_before"], merged["segments_after"], merged["state"]) == (40, 5, "merged")
    assert (merged["bytes_before"], merged["bytes_after"]) == (80_000_000, 10_000_000)
    assert (few["segments_before"], few["segments_after"], few["state"]) == (4, None, "few")
    assert summary["recovery"]["bytes_copied"] is None
    cluster.asked.clear()
    assert _merged(file) == ExitCode.DONE
    (summary,) = lines(capsys)
    assert (summary["event"], summary["outcome"], summary["nothing_to_do"]) == ("summary", "done", True)
    assert summary["message"] == "lab: nothing to do: 2 indices have at most 5 segments a copy"
    assert (cluster.merges, changed(cluster), cluster.templates) == (["posts-01"], [], {})


def test_nodes_are_due_until_they_are_restarted_after_the_merge(
    file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The merge alone, as a kill before the restart would have left it: the step restarts what is due."""
    assert _merged(file) == ExitCode.DONE
    capsys.readouterr()
    line = ["post-bulk-index", "--cluster", file, "--index", "posts-*", "--dry-run", "--output", "json"]
    assert run(line) == ExitCode.DONE
    plan, _ = lines(capsys)
    assert sorted(name for wave in plan["waves"] for name in wave["nodes"]) == ["es1", "es2", "es3"]
    assert [step for step in plan["steps"] if step["action"] == "force_merge"] == []
    cluster.reborn("es1", "es2", "es3")
    assert run(["post-bulk-index", "--cluster", file, "--index", "posts-*", "--yes"]) == ExitCode.DONE
    assert capsys.readouterr().err == (
        "lab: nothing to do: 2 indices have at most 5 segments a copy, "
        "and every selected node was restarted since they were merged\n"
    )
    assert run([*line, "--no-restart"]) == ExitCode.DONE
    plan, _ = lines(capsys)
    assert plan["waves"] == []


def test_an_index_that_is_written_holds_the_merge_and_is_named(
    file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.indices["posts-01"].written = 10
    assert _merged(file) == ExitCode.HELD
    *_, summary = lines(capsys)
    (hold,) = summary["holds"]
    assert (hold["predicate"], hold["subject"]) == ("index_is_not_written", "index posts-01")
    assert cluster.merges == []


def test_a_run_that_was_held_is_resumed_without_any_flag(
    file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.indices["posts-01"].written = 10
    assert _merged(file, "--max-segments", "4") == ExitCode.HELD
    said = _status(capsys)
    assert "  merges: 0 of 1 index merged; 1 to come; 1 with few enough segments before\n" in said
    assert "  to continue with 1 index: orchestrate resume " in said
    cluster.indices["posts-01"].written = 0
    assert run(["resume", "--yes"]) == ExitCode.DONE
    assert "posts-01: 40 -> 4 segments a copy, 80.0 MB -> 8.0 MB" in capsys.readouterr().out
    assert cluster.merges == ["posts-01"]


def _status(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["status"]) == ExitCode.DONE
    return capsys.readouterr().out


def test_allow_writes_takes_it_and_says_what_that_means(
    file: str, cluster: LoadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.indices["posts-01"].written = 10
    assert _merged(file, "--allow-writes") == ExitCode.DONE
    *events, _ = lines(capsys)
    assert [event["index"] for event in events if event["event"] == "merge_warned"] == ["posts-01"]
    assert cluster.merges == ["posts-01"]
