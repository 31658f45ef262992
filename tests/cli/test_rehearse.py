"""`orchestrate rehearse`: what it prints, what it asks of the real cluster, and snapshots."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runs.files import load_snapshot, save_snapshot
from tests.cli.console import Console, Said
from tests.cli.small_cluster import NODES, SmallCluster
from tests.simulation.chance import chance, world_of
from tests.simulation.chance_riak import FIRST, chance_riak
from tests.simulation.chance_riak import world_of as riak_world_of
from tests.simulation.readings import read
from tests.simulation.ringed import riak_policy, ringed

Edit = Callable[[dict[str, Any]], object]
_FAILS = _KILLED = 3
"""A seed by which a node of the small cluster fails, and the program is killed."""


BEGINS: Final = "rehearsing a restart of 3 nodes on a simulation of lab"


def unmarked(said: Said) -> str:
    """What is printed, each line without the mark of a rehearsal."""
    lines = said.out.splitlines()
    assert [line for line in lines if not line.startswith("rehearsal:")] == []
    return "".join(f"{line.removeprefix('rehearsal:').removeprefix(' ')}\n" for line in lines)


def rehearse(console: Console, *words: str, seed: int = 0) -> Said:
    return console.run("rehearse", *words, "--seed", str(seed))


@pytest.fixture
def saved(console: Console, cluster: SmallCluster, file: str) -> Path:
    """A snapshot that is right."""
    path = console.folder / "lab.snapshot"
    assert rehearse(console, "--cluster", file, "--save", str(path)).code == ExitCode.DONE
    cluster.asked.clear()
    return path


@pytest.fixture
def ring(console: Console) -> Path:
    """One of a Riak cluster."""
    path = console.folder / "ring.snapshot"
    save_snapshot(path, *read(ringed(), riak_policy()))
    return path


def test_a_quiet_night_ends_well_and_only_reads_the_cluster(
    console: Console, cluster: SmallCluster, file: str
) -> None:
    said = rehearse(console, "--cluster", file)
    assert said.code == ExitCode.DONE
    for part in (*("no mishap", "Settings: restored", "Nodes down: none", "3 of 3 nodes restarted"),):
        assert part in said.out
    assert "MISHAP" not in said.out
    assert said.err == f"{BEGINS}, without mishaps (--seed 1 invents some)\n"
    assert {asked.method for asked in cluster.asked} == {"GET"}
    assert cluster.templates == {}, "no lease is taken"
    assert not console.state.exists(), "no journal is written"


def test_mishaps_are_invented_only_for_who_asks(console: Console, file: str) -> None:
    """No line of it, in a log or a scrollback, can be taken for one of a real run."""
    asked, by_zero = console.run("rehearse", "--cluster", file), rehearse(console, "--cluster", file, seed=0)
    assert (asked.code, asked.err) == (ExitCode.DONE, by_zero.err)
    assert "Rehearsed the undisturbed run: " in unmarked(asked)
    verbose = unmarked(rehearse(console, "--cluster", file, "--verbose"))
    assert "wave 1: finished" in verbose
    told = rehearse(console, "--cluster", file, "--output", "json").lines
    assert {line["run"] for line in told} == {"rehearsal-0"}


def test_a_night_that_goes_wrong_exits_as_the_run_would(console: Console, file: str) -> None:
    said = rehearse(console, "--cluster", file, "--verbose", seed=_FAILS)
    assert said.code == ExitCode.FAILED
    shown = unmarked(said)
    stopped = re.search(r"Z MISHAP: a stop of (es\d) will never end", shown)
    assert stopped is not None
    name = stopped[1]
    assert f"Nodes down: none\nNodes whose stop has not ended: {name}\n" in shown
    assert f"then {name} failed (code 4)\n" in shown
    assert shown.count(f"Z {name}: start the service\n") <= 2, "it is sent again every few seconds"
    last = f"in a real run: repair {name}, then continue:\n    orchestrate resume RUN --retry-failed\n"
    assert shown.endswith(last)


def test_json_of_a_rehearsal_ends_with_its_summary(console: Console, file: str) -> None:
    said = rehearse(console, "--cluster", file, "--output", "json", seed=_KILLED)
    assert {line["run"] for line in said.lines} == {f"rehearsal-{_KILLED}"}
    *events, rehearsed, last = said.lines
    assert (last["event"], last["exit_code"]) == ("summary", said.code)
    assert (rehearsed["event"], rehearsed["seed"]) == ("rehearsed", _KILLED)
    assert rehearsed["kills"] == sum(each["event"] == "run_resumed" for each in events) > 0
    assert rehearsed["settings_not_as_found"] == []
    assert set(rehearsed["nodes_down"]) <= set(last["failed"])
    mishaps = [each["what"] for each in events if each["event"] == "mishap"]
    assert len(mishaps) == len(rehearsed["mishaps"]) + rehearsed["kills"]
    assert set(rehearsed["mishaps"]) < set(mishaps)
    times = [each["ts"] for each in said.lines]
    assert times == sorted(times)


def test_a_selection_is_rehearsed(console: Console, cluster: SmallCluster, file: str) -> None:
    said = rehearse(console, "--cluster", file, "--only", "es2", "--output", "json")
    assert (said.code, said.lines[-1]["restarted"]) == (ExitCode.DONE, ["es2"])
    cluster.started = 4_000_000_000_000
    said = rehearse(console, "--cluster", file, "--started-before", "2020-01-01T00:00Z")
    assert (said.code, "nothing to restart" in said.err) == (ExitCode.DONE, True)


def test_a_snapshot_is_the_same_night_without_the_cluster(
    console: Console, cluster: SmallCluster, saved: Path
) -> None:
    words = ("--snapshot", str(saved), "--output", "json")
    once, again = (rehearse(console, *words, seed=_FAILS) for _ in range(2))
    assert (cluster.asked, once.code) == ([], again.code)
    nights = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in one.lines] for one in (once, again)
    ]
    assert nights[0] == nights[1]
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    said = rehearse(console, *words)
    assert (said.code, sorted(said.lines[-1]["restarted"])) == (ExitCode.DONE, sorted(NODES))


def test_save_snapshot_keeps_all_that_was_read(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "one.snapshot"
    for seed in (*range(12), *range(FIRST, FIRST + 12)):
        with subtests.test(seed=seed):
            if seed < FIRST:
                started, seen = read(world_of(chance(seed)), chance(seed).wanted)
            else:
                started, seen = read(riak_world_of(chance_riak(seed)), chance_riak(seed).wanted)
            save_snapshot(path, started, seen)
            assert load_snapshot(path) == (started, seen)


def test_a_ring_is_rehearsed_from_a_snapshot(console: Console, ring: Path) -> None:
    said = rehearse(console, "--snapshot", str(ring))
    assert said.code == ExitCode.DONE
    assert "5 of 5 nodes restarted" in said.out
    assert "Settings: restored" in said.out


def test_what_would_hold_and_is_not_simulated_is_named(console: Console, saved: Path) -> None:
    content = json.loads(saved.read_text())
    content["seen"]["cluster"]["shutdowns"] = [content["seen"]["cluster"]["nodes"][0]["node_id"]]
    saved.write_text(json.dumps(content))
    said = rehearse(console, "--snapshot", str(saved))
    assert said.code == ExitCode.DONE
    (warned,) = [line for line in said.err.splitlines() if line.startswith("warning: ")]
    assert "would be held now" in warned
    assert "no_other_maintenance" in warned


def _inner(content: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        content = content[name]
    return content


def _without(*names: str) -> Edit:
    return lambda content: _inner(content, names[:-1]).pop(names[-1])


def _with(value: object, *names: str) -> Edit:
    return lambda content: _inner(content, names[:-1]).update({names[-1]: value})


def _twice(*names: str) -> Edit:
    return lambda content: _inner(content, names).append(_inner(content, names)[0])


_CLUSTER = ("seen", "cluster")
_RIAK = (*_CLUSTER, "riak")
_POLICY = ("started", "policy")


def _shards(*copies: dict[str, Any]) -> Edit:
    """An index of one shard with these copies, on a cluster that has none."""
    shard = {"index": "logs", "index_uuid": "u", "number": 0}
    whole = [{"shard": shard, "state": "STARTED", "primary": False, "node": "es1", **copy} for copy in copies]
    new = {"indices": [{"name": "logs", "uuid": "u"}], "copies": whole}
    return lambda content: _inner(content, _CLUSTER).update(new)


_GONE = {"shard": {"index": "gone", "index_uuid": "u", "number": 0}, "state": "UNASSIGNED", "primary": True}
_MERGED = {"index": "logs", "index_uuid": "u", "segments": 9, "bytes": 1, "due": True}
DAMAGED: list[tuple[Edit, str]] = [
    (_with("plan", "event"), "this is a saved plan, not a snapshot"),
    (_without("schema"), "no schema version"),
    (_with(10**6, "schema"), "later version"),
    (_without("seen"), "seen: is missing"),
    (_with([], "started"), "started: is missing"),
    (_with({"event": "flushed"}, "started"), "does not know"),
    (_without(*_CLUSTER, "copies"), "copies"),
    (_with("soon", "seen", "at"), "at: "),
    (_with({"reason": "503"}, "seen", "settings"), "the settings could not be read: 503"),
    (_with([], "started", "nodes"), "restarts no node"),
    (_with(["es9"], "started", "nodes"), "restarts es9, no member"),
    (_twice("started", "nodes"), "names es2 twice"),
    (_with("soon", *_POLICY), "the snapshot is damaged: policy"),
    (_with("riak", *_POLICY, "kind"), "another kind"),
    (_with(-1.0, *_POLICY, "deadlines", "stop"), "a deadline is below"),
    (_with(10**9, *_POLICY, "settle_consecutive"), "1000000000 good"),
    (_with([_MERGED], "started", "indices"), "merges indices"),
    (_with(1e300, "seen", "at"), "which is no time"),
    (_with([], *_CLUSTER, "nodes"), "no member"),
    (_twice(*_CLUSTER, "nodes"), "lists es1 twice"),
    (_with("es9", *_CLUSTER, "master"), "the master is es9"),
    (_shards({"primary": True, "node": "es9"}), "[logs][0] is on es9, no member"),
    (_shards({}, {"node": "es2"}), "[logs][0] has 0 primaries"),
    (_shards({"primary": True}, {}), "on es1 twice"),
    (_with([_GONE], *_CLUSTER, "copies"), "[gone][0], and no such index"),
]
DAMAGED_RINGS: list[tuple[Edit, str]] = [
    (_with([], *_RIAK, "ring", "owners"), "the ring has no partition"),
    (_with(["riak@x"], *_RIAK, "ring", "owners"), "belong to riak@x, no member"),
    (_twice(*_RIAK, "cluster", "members"), "twice"),
    (_with([], *_RIAK, "n_vals"), "no n_val is in use"),
    (_with([], *_RIAK, "cluster", "members"), "no member of the cluster"),
]


def test_a_damaged_snapshot_is_refused_in_one_message(
    console: Console, saved: Path, ring: Path, subtests: pytest.Subtests
) -> None:
    """Also one whose parts do not fit together."""
    cases = [*((saved, *case) for case in DAMAGED), *((ring, *case) for case in DAMAGED_RINGS)]
    for path, edit, says in cases:
        with subtests.test(says=says):
            content = json.loads(path.read_text())
            edit(content)
            (console.folder / "edited").write_text(json.dumps(content))
            said = console.run("rehearse", "--snapshot", "edited")
            assert (said.code, said.out, said.err.count("\n")) == (ExitCode.USAGE, "", 1)
            assert says in said.err


def test_what_a_disabled_predicate_lets_through_is_no_defect(console: Console, file: str) -> None:
    words = ("--cluster", file, "--disable-predicate", "no_running_snapshot")
    for seed in range(1, 40):
        said = rehearse(console, *words, "--output", "json", seed=seed)
        rehearsed, last = said.lines[-2:]
        assert (last["event"], last["exit_code"]) == ("summary", said.code)
        assert said.code != ExitCode.DEFECT
        if rehearsed["against_rules"]:
            break
    assert "is stopped while snapshot repository/nightly runs" in rehearsed["against_rules"][0]
    shown = rehearse(console, *words, seed=seed)
    assert shown.code == said.code
    assert "Against the rules, of which some are switched off (--disable-predicate):\n" in unmarked(shown)
    assert "is stopped while snapshot repository/nightly runs" in shown.out


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_goes_away_ends_no_rehearsal(saved: Path, output: str) -> None:
    """Its exit code is the run's: 1 would be the word for a defect."""
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
    assert said == f"{BEGINS}, with the mishaps of seed {_FAILS}\n"
