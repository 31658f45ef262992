"""A restart of a Riak cluster, killed by SIGKILL around its commits and after its actions.

The nodes are those of the double, each behind an sshd of its own. What is right afterwards is asked of the
nodes: their processes, looked at all the time, and the transfer limits that they print. Here every event is
died at (`make test-all`); in the simulation so it is in `make test` too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from tests.integration.chains import Chain, Rescuer, kill_everywhere
from tests.integration.killing import KILLED, SEED, Bastion, by_chance
from tests.integration.nursery import Nursery
from tests.integration.riak_processes import RiakProcesses, Watch, riak_processes
from tests.riak_nodes import RIAK_COMMANDS, name_of

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf

PACE = 0.02
NODES = 5
KILLS = 4
SURE = 68
"""Commits that every run has, however quick its nodes are."""
PLACES = 250
"""Fewer than every run has."""

PLAYBOOK: Mapping[str, Any] = {
    "kind": "riak",
    "settle": {"consecutive": 2},
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "3m", "hold": "1m"},
}
"""As shipped, but for limits that make a test that hangs end."""

FOUND = {"dev1": 2, "dev2": 3, "dev3": 2, "dev4": 1, "dev5": 9}
"""The operator's own limits: of one node more than a run would raise it to."""


@pytest.fixture(scope="module", params=RIAK_COMMANDS, ids=name_of)
def processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path_factory.mktemp("riak"), NODES, pace=PACE, command=request.param) as lab:
        yield lab


@pytest.fixture
def lab(processes: RiakProcesses) -> RiakProcesses:
    """All nodes up, with the operator's limits, under writes."""
    for node in processes.nodes:
        if not node.alive:
            node.riak("start")
        node.faults(writes="on")
    processes.wait_ready()
    processes.limit(**FOUND)
    return processes


def limits() -> dict[str, int]:
    return {f"{short}@127.0.0.1": limit for short, limit in FOUND.items()}


def riak_bastion(bastion_of: BastionOf, lab: RiakProcesses, nursery: Nursery | None = None) -> Bastion:
    return bastion_of(lab, playbook=PLAYBOOK, nursery=nursery)


def lease(bastion: Bastion) -> object:
    """The record in the state: what a dead run owes stands in it."""
    store = open_store(f"sqlite:///{bastion.folder}/state.db", {}, access=Access.READ, home=bastion.folder)
    try:
        return store.lease("riak:lab").read()
    finally:
        store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Judges by what it has seen of the nodes all the time."""

    lab: RiakProcesses
    watch: Watch
    bastion: Bastion

    def restarted_once(self, story: str) -> None:
        """One new process a node, one down at a time, limits as found, nothing owed."""
        self.lab.wait_ready()
        assert self.watch.starts() == dict.fromkeys(limits(), 1), story
        assert len(self.watch.most_down) == 1, (self.watch.most_down, story)
        assert self.lab.limits() == limits(), story
        assert lease(self.bastion) is None, story

    def put_back(self, story: str) -> None:
        """Every node up, none started twice, never two down, limits as found, nothing owed."""
        assert all(self.lab.up().values()), (self.lab.up(), story)
        assert set(self.watch.starts().values()) <= {0, 1}, (self.watch.starts(), story)
        assert len(self.watch.most_down) <= 1, (self.watch.most_down, story)
        assert self.lab.limits() == limits(), story
        assert lease(self.bastion) is None, story


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The nodes of the double; they go in one order always."""

    lab: RiakProcesses
    bastion: Bastion

    def names(self) -> dict[str, str]:
        return {}

    @contextmanager
    def judged(self) -> Iterator[Watched]:
        with self.lab.watched() as watch:
            yield Watched(lab=self.lab, watch=watch, bastion=self.bastion)


@pytest.mark.part(name="riak")  # some 90 s; every seam is killed in the simulation, in `make test` too
def test_a_restart_killed_four_times_ends_as_an_undisturbed_one(
    lab: RiakProcesses, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)  # noqa: S311  (a seed that can be given again)
    bastion = riak_bastion(bastion_of, lab)
    told = [f"ORCHESTRATE_SEED={SEED}:"]
    with Processes(lab=lab, bastion=bastion).judged() as judge:
        code = None
        for seam in by_chance(chance, KILLS, SURE):
            code = (
                bastion.restart(seam=seam)
                if code is None
                else bastion.orchestrate("resume", "--yes", seam=seam)
            )
            told.append(str(seam))
            if code == 0:
                break  # a resumed run has other seams than an undisturbed one: over before the last kill
            assert code == KILLED, bastion.story()
        if code != 0:
            assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
        judge.restarted_once(bastion.story())
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(told)} ")


@pytest.mark.part(name="riak")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rescue", ["resume", "restore"])
@pytest.mark.proves("riak-killed")
def test_a_run_may_be_killed_anywhere(
    lab: RiakProcesses,
    bastion_of: BastionOf,
    nursery: Nursery,
    capsys: pytest.CaptureFixture[str],
    rescue: str,
) -> None:
    bastion = riak_bastion(bastion_of, lab, nursery)
    rescuers: dict[str, Rescuer | None] = {"resume": None, "restore": lambda: bastion}
    chain = Chain(Processes(lab=lab, bastion=bastion), bastion, rescuers[rescue])
    assert len(chain.wanted) >= PLACES, chain.wanted
    kill_everywhere(chain, rescue, capsys)
