"""Rehearsals of clusters that are really there: read as they are, played elsewhere, and left alone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import QUICKEST, Described, prepare, truth
from tests.integration.restarting import PROGRAM, events, held_by
from tests.integration.riak_processes import riak_processes

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

NIGHTS = (1, 2, 3, 4, 5)
HELD, FAILED = 3, 4
ENDS = {0, HELD, FAILED}
"""Of nights: a defect would be 1, something that is not put back 8."""

Lines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsing:
    """The program on a cluster, with files of its own."""

    lab: Described
    folder: Path
    kind: str

    def run(self, *words: str) -> tuple[int, Lines]:
        """Run a command that changes nothing; the exit code and every JSON line."""
        home: Mapping[str, str] = {
            "HOME": str(self.folder),
            "ORCHESTRATE_STATE": f"sqlite:///{self.folder}/state.db",
        }
        done = subprocess.run(  # noqa: S603  (the program under test)
            [*PROGRAM, *words, "--output", "json"],
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            check=False,
            timeout=120.0,
        )
        assert done.stdout, done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def file(self) -> str:
        """The cluster file."""
        book, file = self.folder / "book.yml", self.folder / "lab.yml"
        book.write_text(json.dumps({"kind": self.kind, "settle": {"consecutive": 2}}))
        file.write_text(json.dumps({**self.lab.cluster_document(), "playbook": str(book)}))
        return str(file)


def order(lines: Lines) -> list[list[str]]:
    """The waves of a run."""
    return [line["wave"]["nodes"] for line in events(lines, "wave_started")]


def through_the_nights(rehearsing: Rehearsing, nodes: Sequence[str]) -> None:
    """Quietly, in the order of the plan; then from what was saved, through nights that go wrong."""
    saved = rehearsing.folder / "lab.snapshot"
    _, planned = rehearsing.run("plan", "--cluster", rehearsing.file())
    code, lines = rehearsing.run(
        "rehearse", "--cluster", rehearsing.file(), "--seed", "0", "--save", str(saved)
    )
    told, last = lines[-2:]
    assert (code, sorted(last["restarted"])) == (0, sorted(nodes)), last
    assert order(lines) == [wave["nodes"] for wave in planned[0]["waves"]]
    assert (told["mishaps"], told["settings_not_as_found"], told["nodes_down"]) == ([], [], [])
    wrong = 0
    for seed in NIGHTS:
        code, lines = rehearsing.run("rehearse", "--snapshot", str(saved), "--seed", str(seed))
        assert code in ENDS, lines[-1]
        assert lines[-2]["settings_not_as_found"] == [], seed
        wrong += len(lines[-2]["mishaps"]) + lines[-2]["kills"]
    assert wrong >= len(NIGHTS), "something went wrong in most of them"


@pytest.mark.real
def test_a_cluster_is_rehearsed_as_it_is_and_left_alone(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    rehearsing = Rehearsing(lab=lab, folder=tmp_path, kind="elasticsearch")
    through_the_nights(rehearsing, [node.name for node in lab.nodes])
    lab.client.ask("PUT", "/bare", {"settings": {"number_of_shards": 3, "number_of_replicas": 0}})
    lab.wait_ready(status="green")
    code, lines = rehearsing.run("rehearse", "--cluster", rehearsing.file(), "--seed", "0")
    assert (code, held_by(lines)) == (HELD, {("zero_replica_indices", "index bare")})
    after = truth(lab)
    assert (after.starts, after.lives, after.settings) == (before.starts, before.lives, before.settings)
    assert after.leases == ()


def test_a_ring_is_rehearsed_as_it_is_and_left_alone(tmp_path: Path) -> None:
    with riak_processes(tmp_path / "ring", 4, pace=0.02) as lab, lab.watched() as watch:
        lab.limit(dev2=3)
        rehearsing = Rehearsing(lab=lab, folder=tmp_path, kind="riak")
        names = [node.name for node in lab.nodes]
        through_the_nights(rehearsing, names)
        third = lab.nodes[2]
        assert watch.starts() == dict.fromkeys(names, 0)
        assert lab.limits() == {name: 3 if name.startswith("dev2@") else 2 for name in names}
        assert third.riak("stop").returncode == 0
        code, lines = rehearsing.run("rehearse", "--cluster", rehearsing.file(), "--seed", "0")
        assert code == HELD, lines[-1]
        assert "all_members_up" in {predicate for predicate, _ in held_by(lines)}
        assert not third.alive
