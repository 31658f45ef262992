"""`orchestrate rehearse`: what it prints, what it asks of the real cluster, and snapshots."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.runs.files import load_snapshot, save_snapshot
from tests.cli.console import Console
from tests.cli.small_cluster import NODES, SmallCluster
from tests.simulation.chance import chance, world_of
from tests.simulation.chance_riak import FIRST, chance_riak
from tests.simulation.chance_riak import world_of as riak_world_of
from tests.simulation.readings import read
from tests.simulation.ringed import riak_policy, ringed

Edit = Callable[[dict[str, Any]], object]
_FAILS, _KILLED = 2, 2
"""A seed by which a node of the small cluster fails, and one by which the program is killed."""


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture
def saved(console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]) -> Path:
    """A snapshot that is right."""
    path = console.folder / "lab.snapshot"
    file = cluster.write_file(console.folder)
    assert run(["rehearse", "--cluster", file, "--seed", "0", "--save", str(path)]) == ExitCode.DONE
    capsys.readouterr()
    return path


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_quiet_night_ends_well_and_only_reads_the_cluster(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder)
    assert run(["rehearse", "--cluster", file, "--seed", "0"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert "nothing went wrong" in said.out
    assert "settings: restored" in said.out
    assert "nodes down: none" in said.out
    assert "MISHAP" not in said.out
    assert "3 of 3 nodes restarted" in said.out
    assert said.err == "rehearsing a restart of 3 nodes on a simulation of lab, seed 0\n"
    assert {asked.method for asked in cluster.asked} == {"GET"}
    assert cluster.templates == {}, "no lease is taken"
    assert not console.state.exists(), "no journal is written"


def test_a_night_that_goes_wrong_exits_as_the_run_would(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder)
    assert run(["rehearse", "--cluster", file, "--seed", str(_FAILS)]) == ExitCode.FAILED
    said = capsys.readouterr().out
    stopped = re.search(r"Z MISHAP: a stop of (es\d) will never end", said)
    assert stopped is not None
    name = stopped[1]
    assert f"  nodes down: none\n  nodes whose stop has not ended: {name}\n" in said
    assert f"NOT RESTORED: node {name}: failed" in said
    assert said.count(f"Z {name}: start the service\n") <= 2, "it is sent again every few seconds"
    assert "a real run would be continued by: orchestrate resume RUN --retry-failed" in said
    assert "orchestrate restore rehearsal" not in said, "nobody can take up a rehearsal"


def test_json_is_one_object_a_line_with_the_summary_last(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder)
    code = run(["rehearse", "--cluster", file, "--seed", str(_KILLED), "--output", "json"])
    lines = objects(capsys.readouterr().out)
    assert {line["run"] for line in lines} == {f"rehearsal-{_KILLED}"}
    *events, told, last = lines
    assert (last["event"], last["exit_code"]) == ("summary", code)
    assert told["event"] == "rehearsed"
    assert told["seed"] == _KILLED
    assert told["kills"] == sum(each["event"] == "run_resumed" for each in events) > 0
    assert told["settings_not_as_found"] == []
    assert set(told["nodes_down"]) <= set(last["failed"])
    mishaps = [each["what"] for each in events if each["event"] == "mishap"]
    assert len(mishaps) == len(told["mishaps"]) + told["kills"]
    assert set(told["mishaps"]) < set(mishaps)
    times = [each["ts"] for each in lines]
    assert times == sorted(times)


def test_flags_choose_what_is_rehearsed(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder)
    code = run(["rehearse", "--cluster", file, "--seed", "0", "--only", "es2", "--output", "json"])
    assert code == ExitCode.DONE
    assert objects(capsys.readouterr().out)[-1]["restarted"] == ["es2"]


def test_a_snapshot_is_the_same_night_without_the_cluster(
    console: Console, cluster: SmallCluster, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del console
    cluster.asked.clear()
    code = run(["rehearse", "--snapshot", str(saved), "--seed", str(_FAILS), "--output", "json"])
    once = objects(capsys.readouterr().out)
    assert run(["rehearse", "--snapshot", str(saved), "--seed", str(_FAILS), "--output", "json"]) == code
    again = objects(capsys.readouterr().out)
    assert cluster.asked == []
    for line in (once[-2], again[-2]):
        del line["seconds"]
    assert once == again
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


@pytest.mark.parametrize("seed", [*range(12), *range(FIRST, FIRST + 12)])
def test_what_is_saved_is_what_is_read(tmp_path: Path, seed: int) -> None:
    if seed < FIRST:
        drawn = chance(seed)
        started, seen = read(world_of(drawn), drawn.wanted)
    else:
        on_riak = chance_riak(seed)
        started, seen = read(riak_world_of(on_riak), on_riak.wanted)
    path = tmp_path / "one.snapshot"
    save_snapshot(path, started, seen)
    assert load_snapshot(path) == (started, seen)


def test_a_ring_is_rehearsed_from_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ring.snapshot"
    save_snapshot(path, *read(ringed(), riak_policy()))
    assert run(["rehearse", "--snapshot", str(path), "--seed", "0"]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert "5 of 5 nodes restarted" in said
    assert "settings: restored" in said


def test_what_holds_and_is_not_simulated_is_told(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(saved.read_text())
    content["seen"]["cluster"]["shutdowns"] = [content["seen"]["cluster"]["nodes"][0]["node_id"]]
    saved.write_text(json.dumps(content))
    assert run(["rehearse", "--snapshot", str(saved), "--seed", "0"]) == ExitCode.DONE
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1
    assert "would be held now" in warned[0]
    assert "no_other_maintenance" in warned[0]


def _without(*names: str) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        for name in names[:-1]:
            content = content[name]
        del content[names[-1]]

    return edit


def _with(value: object, *names: str) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        for name in names[:-1]:
            content = content[name]
        content[names[-1]] = value

    return edit


def refused(saved: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the edited snapshot is refused."""
    content = json.loads(saved.read_text())
    edit(content)
    saved.write_text(json.dumps(content))
    assert run(["rehearse", "--snapshot", str(saved)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.out == ""
    return said.err


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(_with("plan", "event"), "this is a saved plan, not a snapshot", id="another file"),
        pytest.param(_without("schema"), "no schema version", id="no schema"),
        pytest.param(_with(10**6, "schema"), "later version", id="a later version's"),
        pytest.param(_without("seen"), "seen: is missing", id="nothing seen"),
        pytest.param(_with([], "started"), "started: is missing", id="no beginning"),
        pytest.param(_with({"event": "flushed"}, "started"), "does not know", id="no event"),
        pytest.param(_without("seen", "cluster", "copies"), "copies", id="no copies"),
        pytest.param(_with("soon", "seen", "at"), "at: ", id="no time"),
        pytest.param(
            _with({"reason": "503"}, "seen", "settings"), "the settings could not be read: 503", id="unread"
        ),
    ],
)
def test_a_damaged_snapshot_is_refused_in_one_message(
    saved: Path, capsys: pytest.CaptureFixture[str], edit: Edit, says: str
) -> None:
    assert says in refused(saved, edit, capsys)


def _shards(*copies: dict[str, Any]) -> Edit:
    """An index of one shard with these copies, on a cluster that has none."""
    shard = {"index": "logs", "index_uuid": "u", "number": 0}
    whole = [{"shard": shard, "state": "STARTED", "primary": False, "node": "es1", **copy} for copy in copies]

    def edit(content: dict[str, Any]) -> None:
        content["seen"]["cluster"]["indices"] = [{"name": "logs", "uuid": "u"}]
        content["seen"]["cluster"]["copies"] = whole

    return edit


def _twice(*names: str) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        for name in names:
            content = content[name]
        assert isinstance(content, list)
        content.append(content[0])

    return edit


_CLUSTER = ("seen", "cluster")
_GONE = {"shard": {"index": "gone", "index_uuid": "u", "number": 0}, "state": "UNASSIGNED", "primary": True}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(_with([], "started", "nodes"), "restarts no node", id="nobody"),
        pytest.param(_with(["es9"], "started", "nodes"), "restarts es9, no member", id="a stranger"),
        pytest.param(_twice("started", "nodes"), "names es2 twice", id="one twice"),
        pytest.param(_with("soon", "started", "policy"), "the snapshot is damaged: policy", id="no policy"),
        pytest.param(_with("riak", "started", "policy", "kind"), "another kind", id="another kind"),
        pytest.param(
            _with(-1.0, "started", "policy", "deadlines", "stop"), "a deadline is below", id="no deadline"
        ),
        pytest.param(
            _with(10**9, "started", "policy", "settle_consecutive"),
            "1000000000 good",
            id="no end of readings",
        ),
        pytest.param(
            _with(
                [{"index": "logs", "index_uuid": "u", "segments": 9, "bytes": 1, "due": True}],
                "started",
                "indices",
            ),
            "merges indices",
            id="merges",
        ),
        pytest.param(_with(1e300, "seen", "at"), "which is no time", id="a time that stands still"),
        pytest.param(_with([], *_CLUSTER, "nodes"), "no member", id="no nodes"),
        pytest.param(_twice(*_CLUSTER, "nodes"), "lists es1 twice", id="a node twice"),
        pytest.param(_with("es9", *_CLUSTER, "master"), "the master is es9", id="a master that is none"),
        pytest.param(_shards({"primary": True, "node": "es9"}), "[logs][0] is on es9, no member", id="where"),
        pytest.param(_shards({}, {"node": "es2"}), "[logs][0] has 0 primaries", id="no primary"),
        pytest.param(_shards({"primary": True}, {}), "on es1 twice", id="two copies on a node"),
        pytest.param(_with([_GONE], *_CLUSTER, "copies"), "[gone][0], and no such index", id="of nothing"),
    ],
)
def test_a_snapshot_of_parts_that_do_not_fit_is_refused(
    saved: Path, capsys: pytest.CaptureFixture[str], edit: Edit, says: str
) -> None:
    assert says in refused(saved, edit, capsys)


_RIAK = (*_CLUSTER, "riak")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(_with([], *_RIAK, "ring", "owners"), "the ring has no partition", id="no ring"),
        pytest.param(_with(["riak@x"], *_RIAK, "ring", "owners"), "belong to riak@x, no member", id="owner"),
        pytest.param(_twice(*_RIAK, "members"), "twice", id="a member twice"),
        pytest.param(_with([], *_RIAK, "n_vals"), "no n_val is in use", id="no n_val"),
        pytest.param(_with([], *_RIAK, "members"), "no member of the cluster", id="no members"),
    ],
)
def test_nor_is_a_ring_whose_parts_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: Edit, says: str
) -> None:
    path = tmp_path / "ring.snapshot"
    save_snapshot(path, *read(ringed(), riak_policy()))
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    assert run(["rehearse", "--snapshot", str(path)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1


def test_what_a_disabled_rule_lets_through_is_no_defect(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder)
    off = ("--disable-predicate", "no_running_snapshot")
    for seed in range(1, 40):
        code = run(["rehearse", "--cluster", file, "--seed", str(seed), *off, "--output", "json"])
        told, last = objects(capsys.readouterr().out)[-2:]
        assert (last["event"], last["exit_code"]) == ("summary", code)
        assert code != ExitCode.DEFECT
        if told["against_rules"]:
            break
    assert "is stopped while snapshot repository/nightly runs" in told["against_rules"][0]
    assert run(["rehearse", "--cluster", file, "--seed", str(seed), *off]) == code
    said = capsys.readouterr().out
    assert "against the rules, of which some are switched off (--disable-predicate):\n" in said
    assert "is stopped while snapshot repository/nightly runs" in said


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_goes_away_ends_no_rehearsal(console: Console, saved: Path, output: str) -> None:
    """Its exit code is the run's: 1 would be the word for a defect."""
    del console
    words = ("rehearse", "--snapshot", str(saved), "--seed", str(_FAILS), "--output", output)
    program = [sys.executable, "-m", "orchestrator", *words]
    with subprocess.Popen(  # noqa: S603  (the program under test)
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == ExitCode.FAILED
    assert said == f"rehearsing a restart of 3 nodes on a simulation of lab, seed {_FAILS}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name either a cluster"),
        (["--cluster", "prod", "--snapshot", "x"], "name either a cluster"),
        (["--snapshot", "nowhere.snapshot"], "nowhere.snapshot"),
        (["--snapshot", "x", "--only", "es1"], "flags included"),
        (["--snapshot", "x", "--save", "y"], "flags included"),
        (["--snapshot", "x", "--playbook", "y"], "flags included"),
        (["--cluster", "prod", "--seed", "-1"], "--seed"),
        (["--cluster", "prod", "--seed", "many"], "--seed"),
    ],
)
def test_wrong_flags_are_told(
    console: Console, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    del console
    assert run(["rehearse", *arguments]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_a_snapshot_that_cannot_be_saved_is_told_before_the_play(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder)
    assert (
        run(["rehearse", "--cluster", file, "--save", str(console.folder / "no" / "where")]) == ExitCode.USAGE
    )
    said = capsys.readouterr()
    assert "the snapshot cannot be saved: No such file or directory" in said.err
    assert said.out == ""


def test_a_selection_of_which_nothing_is_due_is_no_rehearsal(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.started = 4_000_000_000_000
    file = cluster.write_file(console.folder)
    assert run(["rehearse", "--cluster", file, "--started-before", "2020-01-01T00:00Z"]) == ExitCode.DONE
    assert "nothing to restart" in capsys.readouterr().err


def test_every_node_of_the_cluster_is_rehearsed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rehearse", "--snapshot", str(saved), "--seed", "0", "--output", "json"]) == ExitCode.DONE
    assert sorted(objects(capsys.readouterr().out)[-1]["restarted"]) == sorted(NODES)
