"""Runs that are killed: bastions with the program as processes, and looks at the truth past the program.

Every oracle here asks the nodes themselves: how often a process of a node was started (its own log), which
life it is in (its JVM), what the settings are (the lab's own client). Nothing is read from a journal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.integration.doomed import VARIABLE, Place
from tests.integration.lease_records import lease_records
from tests.integration.nursery import BESIDE, DOOMED, Nursery
from tests.lab.nodes import LabCluster
from tests.lab.seed import SeedIndex, seed

RUN_SECONDS = 1500.0


def _seed() -> str:
    """`ORCHESTRATE_SEED`, else the commit: what chance draws differs from one commit to the next alone."""
    words = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD")
    found = ""
    with suppress(OSError):  # no git: the tree was unpacked, and has no commit to name
        found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    return os.environ.get("ORCHESTRATE_SEED") or found or "0"


SEED = _seed()
QUICKEST = "opensearch-2.19.0"

FOUND: Mapping[str, Mapping[str, str]] = {
    "persistent": {
        "cluster.routing.allocation.enable": "all",
        "indices.recovery.max_bytes_per_sec": "61mb",
        "cluster.routing.allocation.node_concurrent_recoveries": "3",
    },
    "transient": {
        "cluster.routing.allocation.node_concurrent_recoveries": "5",
        "cluster.routing.allocation.node_initial_primaries_recoveries": "2",
    },
}
"""What the operator had set before: some transient, some persistent, some both, `enable` in so many words."""

DATA = (
    SeedIndex(name="posts", shards=3, documents=300),
    SeedIndex(name="people", shards=1, replicas=2, documents=100),
)
"""A primary or a copy on every node; small, because what is tested is not the recovery of bytes."""

PLAYBOOK: Mapping[str, Any] = {
    "kind": "elasticsearch",
    "settle": {"consecutive": 2},
    "configuration_management": "ignore",
    "deadlines": {
        "stop": "1m",
        "start": "2m",
        "rejoin": "2m",
        "recover": "3m",
        "withheld": "4m",
        "hold": "1m",
    },
}
"""As shipped, but for limits that make a test that hangs end, and for package managers: other tests may build
images meanwhile, and processes of containers are this machine's too."""


class Described(Protocol):
    """A cluster for which there is a cluster file."""

    def cluster_document(self) -> dict[str, Any]:
        """The content of its cluster file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A cluster as it is."""

    starts: Mapping[str, int]  # processes that each node has been since its folder was made, by its own log
    lives: Mapping[str, tuple[int, int]]  # JVM start time and process id of each node that is in the cluster
    settings: Mapping[str, Mapping[str, Any]]  # flat, level by level
    leases: tuple[str, ...]  # lease records that stand in the cluster


def truth(lab: LabCluster) -> Truth:
    """Look at everything that a run must leave as it was or change once."""
    with closing(lab.client) as client:
        nodes = client.ask("GET", "/_nodes/jvm,process")["nodes"].values()
        settings = client.ask("GET", "/_cluster/settings?flat_settings=true")
        leases = lease_records(client, components=not lab.distribution.before(7, 8))
    return Truth(
        starts={node.name: _starts(lab, node.name) for node in lab.nodes},
        lives={node["name"]: (node["jvm"]["start_time_in_millis"], node["process"]["id"]) for node in nodes},
        settings={level: settings[level] for level in ("persistent", "transient")},
        leases=tuple(leases),
    )


def _starts(lab: LabCluster, node: str) -> int:
    """Each process of a node names itself once in its log, early in its life."""
    log = (lab.directory / node / "console.log").read_text(encoding="utf-8", errors="replace")
    return log.count(f"[{node}] node name [{node}]")


def prepare(lab: LabCluster) -> Truth:
    """Data and settings as an operator has them; the truth before anything is done."""
    with closing(lab.client) as client:
        seed(client, DATA)
        client.ask("PUT", "/_cluster/settings", FOUND)
    return truth(lab)


def assert_restarted_once(
    lab: LabCluster,
    before: Truth,
    where: str = "",
    *,
    nodes: Sequence[str] | None = None,
    released: bool = True,
) -> None:
    """The end of an undisturbed run: each of these nodes in another life, by one start; all else the same.

    Not `released`: it was killed after its end, and its lease stands until it has run out.
    """
    lab.wait_ready(status="green", seconds=60)
    after = truth(lab)
    wanted = {name: int(nodes is None or name in nodes) for name in before.starts}
    assert {name: after.starts[name] - before.starts[name] for name in wanted} == wanted, where
    assert set(after.lives) == set(before.lives), where
    for name, times in wanted.items():
        assert (after.lives[name] != before.lives[name]) == bool(times), f"{where}: {name}"
    assert after.settings == before.settings, where
    assert not released or after.leases == (), where


def assert_put_back(lab: LabCluster, before: Truth, where: str = "") -> None:
    """The end of a restore or a stand-down: settings as found, every node up, none restarted twice."""
    after = truth(lab)
    assert after.settings == before.settings, where
    assert set(after.lives) == set(before.lives), where
    for name in before.starts:
        born_again = after.lives[name] != before.lives[name]
        assert after.starts[name] - before.starts[name] == int(born_again), f"{where}: {name}"
    assert after.leases == (), where


@dataclass(slots=True, kw_only=True)
class Bastion:
    """A machine with the program, a cluster file and a state of its own, or one that it shares."""

    folder: Path  # the bastion's own
    lab: Described  # the cluster
    # seconds after which a silent lease may be taken over; None leaves the program's own 90
    expiry: float | None = None
    foreign: bool = False  # whether its processes belong to a machine on which nobody can look for them
    # the keys of its playbook, but for the two that follow
    playbook: Mapping[str, Any] = field(default_factory=lambda: PLAYBOOK)
    hooks: Mapping[str, Any] = field(default_factory=dict)  # of its playbook
    strategy: str = "node"  # of its playbook
    together: str = "reboot"  # when nodes of one machine go in one wave, by its cluster file
    document: Mapping[str, Any] = field(default_factory=dict)  # more keys of its cluster file
    # forks the processes that it runs to their end; without one, each is started anew
    nursery: Nursery | None = None
    state: str | None = None  # the URL of a state that machines share; None for a file of its own
    file: Path = field(init=False)
    said: list[str] = field(init=False, default_factory=list)
    _begun: list[subprocess.Popen[str]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        book = self.folder / "playbook.yml"
        book.write_text(
            json.dumps({**self.playbook, "hooks": self.hooks, "strategy": self.strategy}), encoding="utf-8"
        )
        document = {**self.lab.cluster_document(), "playbook": str(book), **self.document}
        document["hosts"] = {**document["hosts"], "together": self.together}
        self.file = self.folder / "lab.yml"
        self.file.write_text(json.dumps(document), encoding="utf-8")

    @property
    def trace(self) -> Path:
        """Lists the seams that the last process passed."""
        return self.folder / "trace.jsonl"

    def passed(self) -> list[tuple[str, list[str]]]:
        """The seams that the last process passed, with what it did there.

        It may be writing a line just now: what follows the last end of a line is left for the next look.
        """
        if not self.trace.exists():
            return []
        whole, _, _ = self.trace.read_text(encoding="utf-8").rpartition("\n")
        return [(seam, detail) for seam, detail in map(json.loads, whole.splitlines())]

    def begin(self, *words: str, **doom: Any) -> subprocess.Popen[str]:
        """Start the program and let it run, or die (`doom` as in `_told`); its output goes to pipes."""
        return self._start(words, self._told(**doom))

    def _told(
        self,
        *,
        seam: int | None = None,
        at: str | None = None,
        among: Sequence[Place] = (),
        waves: int = 0,
        phase: str = "",
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """What the next process is told of its fate.

        Args:
            seam: it dies at so many-th place around a commit or after an action.
            at: it dies after the commit of an event that is told with this text.
            among: it dies at the first of these that it passes.
            waves: how many had finished before it.
            phase: in which the run was before it, by its journal.
            names: what to call nodes where places are told.
        """
        self.trace.unlink(missing_ok=True)
        told: dict[str, Any] = {"trace": str(self.trace), "names": dict(names or {})}
        told.update(among=list(among), waves=waves, phase=phase)
        if seam is not None:
            told["seam"] = seam
        if at is not None:
            told["at"] = at
        return told

    def aside(self, *words: str) -> tuple[int, str]:
        """Run the program from another terminal, to its end; the exit code and what it said."""
        process = self._start(words, {})
        out, _ = process.communicate(timeout=RUN_SECONDS)
        return process.returncode, out

    def _start(self, words: Sequence[str], told: dict[str, Any]) -> subprocess.Popen[str]:
        process = subprocess.Popen(  # noqa: S603  (the program under test)
            [sys.executable, str(DOOMED), *words],
            env={**os.environ, **BESIDE, **self._environment(told)},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._begun.append(process)
        return process

    def _environment(self, told: dict[str, Any]) -> dict[str, str]:
        expiry = {} if self.expiry is None else {"expiry": self.expiry}
        return {
            VARIABLE: json.dumps({**told, **expiry, "foreign": self.foreign}),
            "ORCHESTRATE_STATE": self.state or f"sqlite:///{self.folder}/state.db",
            "HOME": str(self.folder),
        }

    def close(self) -> None:
        """End what a failed test left running: it must not go on with the next test's cluster."""
        for process in self._begun:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def end(self, process: subprocess.Popen[str], seconds: float = RUN_SECONDS) -> int:
        """Wait for the end; the exit code. What was said is kept in `said`."""
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            self.said.append(out)
            raise
        self.said.append(out)
        return process.returncode

    def orchestrate(self, *words: str, **doom: Any) -> int:
        """Run the program to its end, or to its death (`doom` as in `_told`); the exit code (-9: killed)."""
        if self.nursery is None:
            return self.end(self.begin(*words, **doom))
        told = self._environment(self._told(**doom))
        code, said = self.nursery.run(words, told, self.folder, RUN_SECONDS)
        self.said.append(said)
        return code

    def restart(self, *words: str, **doom: Any) -> int:
        """`orchestrate restart` on the cluster."""
        return self.orchestrate("restart", "--cluster", str(self.file), "--yes", *words, **doom)

    def restore(self) -> int:
        """`orchestrate restore` of the cluster."""
        return self.orchestrate("restore", "--cluster", str(self.file))

    def begin_restart(self, *words: str) -> subprocess.Popen[str]:
        """The same, to be disturbed from outside."""
        return self.begin("restart", "--cluster", str(self.file), "--yes", *words)

    def story(self) -> str:
        """All that was said, and the seams of the last process: for a failing test."""
        seams = "\n".join(f"  {seam} {', '.join(detail)}" for seam, detail in self.passed())
        return "\n--- next process ---\n".join(self.said) + f"\n--- seams of the last one ---\n{seams}\n"

    def await_seam(
        self, process: subprocess.Popen[str], wanted: Callable[[str, list[str]], bool], seconds: float = 900.0
    ) -> None:
        """Return as soon as the process has passed such a seam; fail when it ends or takes too long.

        The trace is a file: it offers nothing to wait on, so it is looked at.
        """
        limit = time.monotonic() + seconds
        while not any(wanted(seam, detail) for seam, detail in self.passed()):
            assert process.poll() is None, f"ended too early: {process.communicate()[0]}"
            assert time.monotonic() < limit, f"not reached within {seconds:.0f} s: {self.story()}"
            time.sleep(0.02)


def entered(phase: str, *, node: str = "es") -> Callable[[str, list[str]], bool]:
    """For `await_seam`: the entry of a node into a phase is committed; with `node=""`, of the run."""
    return lambda seam, detail: (
        seam.startswith("after:")
        and any(each.startswith(f"phase_entered {node}") and each.endswith(f" {phase}") for each in detail)
    )


KILLED = -signal.SIGKILL
