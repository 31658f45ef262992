"""A restart of a Riak cluster, killed by SIGKILL around its commits and after its actions.

The nodes are those of the double, each behind an sshd of its own. What is right afterwards is asked of the
nodes: their processes, looked at all the time, and the transfer limits that they print. All seams, each in a
run of its own, take hours (`make test-all`); four kills of one run are part of `make test`.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from tests.integration.killing import KILLED, Bastion, Seam, When, assert_killed, by_chance, seams
from tests.integration.riak_processes import RiakProcesses, Watch, riak_processes

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf

PACE = 0.02
NODES = 5
KILLS = 4
APPENDS, PERFORMS = 80, 19
"""More than a run of five nodes has (76 and 18): a slow machine has more readings to tell of."""
SURE: Mapping[When, int] = {When.BEFORE: 68, When.AFTER: 68, When.ACTED: 16}
"""What every run has, however quick its nodes are."""
SEAMS = seams(APPENDS, PERFORMS)
USAGE = 2
SEED = os.environ.get("ORCHESTRATE_SEED") or str(random.SystemRandom().randrange(10**6))

PLAYBOOK: Mapping[str, Any] = {
    "kind": "riak",
    "settle": {"consecutive": 2},
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "3m", "hold": "1m"},
}
"""As shipped, but for limits that make a test that hangs end."""

FOUND = {"dev1": 2, "dev2": 3, "dev3": 2, "dev4": 1, "dev5": 9}
"""The operator's own limits: of one node more than a run would raise it to."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path_factory.mktemp("riak"), NODES, pace=PACE) as lab:
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


def riak_bastion(bastion_of: BastionOf, lab: RiakProcesses) -> Bastion:
    return bastion_of(lab, playbook=PLAYBOOK)


def assert_nothing_owed(bastion: Bastion) -> None:
    """No lease is left in the state: what a dead run owes stands in it."""
    state = f"sqlite:///{bastion.folder}/state.db"
    store = open_store(state, {}, access=Access.READ, home=bastion.folder)
    try:
        assert store.lease("riak:lab").read() is None, bastion.story()
    finally:
        store.close()


def assert_restarted_once(lab: RiakProcesses, watch: Watch, bastion: Bastion) -> None:
    """The end of an undisturbed run: one new process a node, one down at a time, limits as found."""
    lab.wait_ready()
    assert watch.starts() == dict.fromkeys(limits(), 1), bastion.story()
    assert len(watch.most_down) == 1, (watch.most_down, bastion.story())
    assert lab.limits() == limits(), bastion.story()
    assert_nothing_owed(bastion)


def assert_put_back(lab: RiakProcesses, watch: Watch, bastion: Bastion) -> None:
    """The end of a restore: every node up, none started twice, never two down, limits as found."""
    assert all(lab.up().values()), (lab.up(), bastion.story())
    assert set(watch.starts().values()) <= {0, 1}, (watch.starts(), bastion.story())
    assert len(watch.most_down) <= 1, (watch.most_down, bastion.story())
    assert lab.limits() == limits(), bastion.story()


def nothing_to_resume(bastion: Bastion, seam: Seam) -> bool:
    """Whether the run had not begun, or had ended, when it was killed; `seam` is where."""
    last = bastion.passed()[-1][1]
    return seam == Seam(when=When.BEFORE, number=1) or (
        seam.when is When.AFTER and any(each.startswith("run_finished") for each in last)
    )


@pytest.mark.exhaustive  # some 90 s; every seam is killed in the simulation, in `make test` too
def test_a_restart_killed_four_times_by_chance_ends_as_an_undisturbed_one_does(
    lab: RiakProcesses, bastion_of: BastionOf, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)  # noqa: S311  (a seed that can be given again)
    bastion = riak_bastion(bastion_of, lab)
    told = [f"ORCHESTRATE_SEED={SEED}:"]
    with lab.watched() as watch:
        code = None
        for seam in by_chance(chance, KILLS, SURE[When.BEFORE]):
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
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(told)} ")
    assert_restarted_once(lab, watch, bastion)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seam", SEAMS, ids=str)
def test_resume_ends_as_an_undisturbed_run_does(
    lab: RiakProcesses, bastion_of: BastionOf, seam: Seam
) -> None:
    bastion = riak_bastion(bastion_of, lab)
    with lab.watched() as watch:
        assert_killed(bastion, bastion.restart(seam=seam), seam, SURE)
        if nothing_to_resume(bastion, seam):
            assert bastion.orchestrate("resume", "--yes") == USAGE, bastion.story()
            # What is left is the lease of a dead process: the next run, or a restore, takes it away.
            code = bastion.restart() if seam.when is When.BEFORE else bastion.restore()
            assert code == 0, bastion.story()
        else:
            assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
    assert_restarted_once(lab, watch, bastion)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seam", SEAMS, ids=str)
def test_restore_puts_back_what_was_found(lab: RiakProcesses, bastion_of: BastionOf, seam: Seam) -> None:
    bastion = riak_bastion(bastion_of, lab)
    with lab.watched() as watch:
        assert_killed(bastion, bastion.restart(seam=seam), seam, SURE)
        assert bastion.restore() == 0, bastion.story()
    assert_put_back(lab, watch, bastion)
    assert_nothing_owed(bastion)
