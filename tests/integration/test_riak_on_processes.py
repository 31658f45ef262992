"""Restarts of nodes of the Riak double, processes behind an sshd each: waves, kills, leases, signals.

What is right afterwards is asked of the nodes: their processes, looked at all the time, the transfer limits
that they print, and their timers. One restart is part of `make test`; the rest is in `make test-riak`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from tests.cli.console import SCRIPT
from tests.integration.chains import Chain, kill_by_chance, kill_everywhere
from tests.integration.hostlab.hosts import wait_until
from tests.integration.killing import KILLED, Bastion, entered
from tests.integration.nursery import Nursery
from tests.integration.restarting import events, orchestrate
from tests.integration.riak_processes import CLAIMANT, RiakProcesses, Watch, riak_processes
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import Show

pytestmark = pytest.mark.timeout(7200)
in_riak = pytest.mark.part(name="riak")

DONE, INTERRUPTED, LEASED = 0, 5, 6
PACE = 0.02
HASTENED_PACE = 0.1
"""A minute of the recording in six seconds: at a higher one handoff is over before anybody can hasten it."""
EXPIRY_SECONDS = 30.0
"""In place of 90."""
LIMIT_SECONDS = 55.0
"""Less than one command may take; a reading sends several after each other."""
PLAYBOOK: Mapping[str, Any] = {
    "kind": "riak",
    "settle": {"consecutive": 2},
    "configuration_management": "ignore",
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "5m", "hold": "1m"},
}
"""As shipped, but for what `killing.PLAYBOOK` has too."""
FOUND = {"dev1": 2, "dev2": 3, "dev3": 2, "dev4": 1, "dev5": 9}
"""The operator's own limits: of one node more than a run would raise it to; the files of the nodes say 2."""
CHOSEN = ("dev2@127.0.0.1", "dev3@127.0.0.1")
ONLY = tuple(word for name in CHOSEN for word in ("--only", name))
TIMER = ("rpc", "application", "get_env", "[riak_core,vnode_management_timer]")


def limits() -> dict[str, int]:
    return {f"{short}@127.0.0.1": limit for short, limit in FOUND.items()}


def timers(lab: RiakProcesses) -> list[str]:
    return [node.riak(*TIMER).stdout.strip() for node in lab.nodes]


def restarted(watch: Watch, chosen: Sequence[str] | None = None, together: int = 1) -> None:
    """One new process for each of these nodes, so many down at once."""
    assert watch.starts() == {name: int(chosen is None or name in chosen) for name in watch.lives}
    assert len(watch.most_down) == together, watch.most_down


# Five nodes ------------------------------------


@pytest.fixture(scope="module", params=[RiakCommand.PACKAGED], ids=name_of)
def five(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RiakProcesses]:
    folder = tmp_path_factory.mktemp("riak")
    with riak_processes(folder, 5, pace=PACE, command=request.param) as lab:
        yield lab


@pytest.fixture
def lab(five: RiakProcesses) -> RiakProcesses:
    """All nodes up, with the operator's limits, under writes."""
    for node in five.nodes:
        if not node.alive:
            node.riak("start")
        node.faults(writes="on")
    five.wait_ready()
    five.limit(**FOUND)
    return five


def test_hastened_nodes_restart_once_and_all_is_restored(bastion_of: BastionOf, tmp_path: Path) -> None:
    with riak_processes(tmp_path / "riak", 5, pace=HASTENED_PACE, command=RiakCommand.PACKAGED) as lab:
        lab.limit(**FOUND)
        bastion = bastion_of(lab, playbook={**PLAYBOOK, "hasten_handoff": True})
        assert bastion.orchestrate("plan", "--steps", "--cluster", str(bastion.file), *ONLY) == DONE, (
            bastion.story()
        )
        for name in CHOSEN:
            assert f"set_env [riak_core,vnode_management_timer,1000] (on {name})" in bastion.said[-1]
        assert "multicall [riak_core_vnode_manager,force_handoffs,[]]" in bastion.said[-1], bastion.story()
        with lab.watched() as watch:
            assert bastion.restart(*ONLY) == DONE, bastion.story()
            lab.wait_ready()
        restarted(watch, CHOSEN)
        assert lab.limits() == limits()
        assert timers(lab) == ["{ok,10000}"] * 5
        assert "cluster: force handoff on every node" in bastion.said[-1], bastion.story()
        assert "not hastened" not in bastion.said[-1], bastion.story()


def lease(bastion: Bastion) -> object:
    """The record in the state: what a dead run owes stands in it."""
    store = open_store(
        f"sqlite:///{bastion.folder}/state.db", {}, access=DatabaseUse.READ, home=bastion.folder
    )
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
        self._restored(story)

    def put_back(self, story: str) -> None:
        """Every node up, none started twice, never two down, limits as found, nothing owed."""
        assert all(self.lab.up().values()), (self.lab.up(), story)
        assert set(self.watch.starts().values()) <= {0, 1}, (self.watch.starts(), story)
        assert len(self.watch.most_down) <= 1, (self.watch.most_down, story)
        self._restored(story)

    def _restored(self, story: str) -> None:
        assert self.lab.limits() == limits(), story
        assert lease(self.bastion) is None, story


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The nodes of the double; they go in one order always."""

    lab: RiakProcesses
    bastion: Bastion

    def names(self) -> dict[str, str]:
        return {}

    @contextmanager
    def judged(self) -> Iterator[Watched]:
        with self.lab.watched() as watch:
            yield Watched(lab=self.lab, watch=watch, bastion=self.bastion)


@in_riak
@pytest.mark.parametrize("five", RIAK_COMMANDS, ids=name_of, indirect=True)
def test_killed_by_chance_a_run_ends_as_an_undisturbed_one(
    lab: RiakProcesses, bastion_of: BastionOf, nursery: Nursery, show: Show
) -> None:
    bastion = bastion_of(lab, playbook=PLAYBOOK, nursery=nursery)
    site, ways = Site(lab=lab, bastion=bastion), {"resume": None, "restore": lambda: bastion}
    befell = kill_by_chance(site, bastion, range(8, 30), kills=8, rescuers=ways)
    show(befell)


@in_riak
@pytest.mark.proves("riak-killed")
def test_a_run_may_be_killed_anywhere(
    lab: RiakProcesses, bastion_of: BastionOf, nursery: Nursery, show: Show
) -> None:
    bastion = bastion_of(lab, playbook=PLAYBOOK, nursery=nursery)
    chain = Chain(Site(lab=lab, bastion=bastion), bastion)
    assert len(chain.wanted) >= 250, chain.wanted
    kill_everywhere(chain, "resume", show)


@in_riak
@pytest.mark.proves("riak-lease")
def test_a_second_run_is_refused_and_a_killed_one_restored(lab: RiakProcesses, bastion_of: BastionOf) -> None:
    """Two programs, each with a state of its own, see each other on the cluster's hosts."""
    first = bastion_of(lab, "first", playbook=PLAYBOOK, foreign=True, expiry=EXPIRY_SECONDS)
    second = bastion_of(lab, "second", playbook=PLAYBOOK, expiry=EXPIRY_SECONDS)
    with lab.watched() as watch:
        run = first.begin_restart()
        first.await_seam(run, entered("starting", node="dev2"))
        assert second.restart() == LEASED, second.story()
        held = r"another run holds the lease on lab: run (\S+) of (\S+@\S+), since"
        holder = re.search(held, second.said[-1])
        assert holder is not None, second.story()
        assert run.poll() is None, "the first run is over: nothing was shown"
        run.kill()
        assert first.end(run) == KILLED
        assert holder.group(1) in first.aside("status")[1]
        (file,) = lab.leases.iterdir()
        record = json.loads(file.read_text())["record"]
        assert record["run"] == holder.group(1)
        original = {debt["key"]: debt["found"] for debt in record["debts"]}
        assert original == {f"transfer_limit.{name}": str(limit) for name, limit in limits().items()}
        assert "dev2@127.0.0.1" in record["restarted"]
        assert lab.limits() != limits(), "the first run was killed too late"
        assert second.restore() == DONE, second.story()
        assert "it expires in" in second.said[-1], second.story()
        lab.wait_ready()
    assert lab.limits() == limits(), second.story()
    assert set(watch.starts().values()) <= {0, 1}, second.story()
    assert len(watch.most_down) == 1, second.story()
    assert list(lab.leases.iterdir()) == []


@in_riak
def test_a_lease_in_the_state_alone_writes_nothing_to_hosts(
    lab: RiakProcesses, bastion_of: BastionOf
) -> None:
    bastion = bastion_of(lab, "alone", playbook={**PLAYBOOK, "lease": "state"})
    assert bastion.restart("--only", "dev3@127.0.0.1") == DONE, bastion.story()
    assert list(lab.leases.iterdir()) == []


@in_riak
def test_the_timer_of_a_killed_run_is_restored_by_its_record(bastion_of: BastionOf, tmp_path: Path) -> None:
    with riak_processes(tmp_path / "riak", 5, pace=HASTENED_PACE, command=RiakCommand.PACKAGED) as lab:
        hastened = {**PLAYBOOK, "hasten_handoff": True}
        first = bastion_of(lab, "first", playbook=hastened, foreign=True, expiry=EXPIRY_SECONDS)
        second = bastion_of(lab, "second", playbook=PLAYBOOK, expiry=EXPIRY_SECONDS)
        found = lab.limits()
        run = first.begin_restart(*ONLY)
        first.await_seam(run, entered("recovered", node="dev2"))
        run.kill()
        first.end(run)
        assert "{ok,1000}" in timers(lab), "it was killed too early"
        assert second.restore() == DONE, second.story()
        lab.wait_ready()
        assert timers(lab) == ["{ok,10000}"] * 5
        assert lab.limits() == found


# Waves of eight nodes ------------------------------------

APART = ("north", "east", "south", "west", "north", "east", "south", "west")
"""On a ring of 64, eight nodes own every eighth partition: two of one location are four partitions apart."""
CLOSE = ("north", "north", "east", "east", "south", "south", "west", "west")
"""Two of one location own partitions side by side, which is two of three owners of a key."""
MIXED = ("north", "north", "east", "south", "north", "east", "south", "west")
"""dev1, dev2 and dev5 share a location, and dev1 and dev2 preference lists."""


@in_riak
@pytest.mark.parametrize(
    ("strategy", "places", "together", "waves"),
    [
        ("zone", APART, 2, 4),
        ("zone", CLOSE, 1, 8),
        ("shard-safe", (), 2, 4),
        ("shard-safe", MIXED, 2, None),
    ],
    ids=["apart", "side by side", "no locations", "mixed"],
)
def test_nodes_go_together_as_far_as_every_key_keeps_its_quorum(
    tmp_path: Path, strategy: str, places: tuple[str, ...], together: int, waves: int | None
) -> None:
    """`zone`: the nodes of a location; `shard-safe`: nodes that share no preference list, of one location."""
    playbook = {**PLAYBOOK, "strategy": strategy}
    with riak_processes(tmp_path / "riak", 8, pace=PACE, locations=places) as lab:
        for node in lab.nodes:
            node.faults(writes="on")
        lab.limit(dev2=4)
        found = lab.limits()
        code, lines = orchestrate(lab, tmp_path, "plan", playbook=playbook)
        assert code == DONE, lines
        (plan,) = events(lines, "plan")
        owners = json.loads(lab.nodes[0].double("report").stdout)["ring"]["owners"]
        with lab.watched() as watch:
            code, lines = orchestrate(lab, tmp_path, "restart", playbook=playbook)
        assert code == DONE, lines[-1]["message"]
        restarted(watch, together=together)
        assert lab.limits() == found
    begun = [event["wave"]["nodes"] for event in events(lines, "wave_started")]
    assert begun == [wave["nodes"] for wave in plan["waves"]]
    assert waves is None or len(begun) == waves, begun
    assert CLAIMANT in begun[-1], "it goes last"
    around = [*owners, *owners[:2]]
    for at in range(len(owners)):
        assert max(len({*around[at : at + 3]} & {*wave}) for wave in begun) == 1, around[at : at + 3]
    place = {f"dev{number}@127.0.0.1": place for number, place in enumerate(places, start=1)}
    assert all(len({place[name] for name in wave}) == 1 for wave in begun if places), begun


# Signals while no command of Riak answers ------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path / "riak", 3, pace=PACE, ring_size=16) as lab:
        yield lab


@in_riak
def test_a_signal_ends_a_command_though_none_of_riak_answers(
    three: RiakProcesses, bastion_of: BastionOf, subtests: pytest.Subtests
) -> None:
    """Each of them has a limit of a minute, and nobody waits for it: before there is a run, and in one."""
    bastion = bastion_of(three, playbook={"kind": "riak", "deadlines": {"hold": "20m"}})
    limits = three.limits()
    for command, number in (
        ("plan", signal.SIGINT),
        ("validate", signal.SIGTERM),
        ("restart --yes", signal.SIGINT),
    ):
        with subtests.test(command=command):
            words = [*command.split(), "--cluster", str(bastion.file)]
            with subprocess.Popen(  # noqa: S603  (the program under test)
                ["/usr/bin/env", "--default-signal", str(SCRIPT), *words],  # as from a terminal
                env={**os.environ, "HOME": str(bastion.folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as begun:
                try:
                    with three.silent() as asked:
                        assert wait_until(asked.exists, seconds=60), "no command was given"
                        begun.send_signal(number)
                        said, _ = begun.communicate(timeout=LIMIT_SECONDS)
                finally:
                    begun.kill()
            assert begun.returncode == INTERRUPTED, said
            assert "interrupted before anything was changed" in said
            assert list(three.leases.iterdir()) == []
    assert three.nodes[2].riak("stop").returncode == 0
    with three.watched() as watch:
        run = bastion.begin_restart()
        bastion.await_seam(run, entered("gated", node=""))  # where a node that is down holds it
        with three.silent() as asked:
            assert wait_until(asked.exists, seconds=60), "no command was given"
            run.send_signal(signal.SIGTERM)
            assert bastion.end(run, LIMIT_SECONDS) == INTERRUPTED, bastion.story()
    assert "everything is restored" in bastion.said[-1], bastion.story()
    assert max(watch.starts().values()) == 0
    assert three.nodes[2].riak("start").returncode == 0
    three.wait_ready()
    assert three.limits() == limits
    assert list(three.leases.iterdir()) == []
