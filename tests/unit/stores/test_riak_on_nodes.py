"""What a rolling restart asks of a node, put to five processes on a ring of 64 and read by the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Availability, LimitSet, PartitionCount, ServiceWait
from orchestrator.stores.riak.admin import Command, RiakAdmin, commands_for
from orchestrator.stores.riak.dialect import dialect_of
from orchestrator.stores.riak.http import NodeHttp
from orchestrator.stores.riak.output import CommandOutput
from orchestrator.stores.riak.parse_node import (
    Start,
    Stop,
    parse_pid,
    parse_ping,
    parse_start,
    parse_stop,
    parse_versions,
)
from orchestrator.stores.riak.parse_ring import ring_of
from tests.fakes.riak_world import World
from tests.riak_nodes import RIAK_COMMANDS, RiakNode, name_of, riak_nodes, wait_until

PACE = 0.02
SIZE = 64
OWNED = 13
"""By each of the first four."""
LIMITS_SECONDS = (1.2, 6.0, 30.0)
"""Of our own, for what never ends: the next one where a slow machine had not come to it before the last."""


CUT_OFF = 124


@dataclass(frozen=True, slots=True)
class OnThisMachine:
    """Runs commands where the nodes are."""

    nodes: Sequence[RiakNode]

    def run(self, node: NodeName, command: Command) -> CommandOutput:
        asked = next(each for each in self.nodes if each.name == node)
        program, *words = command.argv
        ask = asked.riak_admin if program == "riak-admin" else asked.riak
        done = ask(*words, seconds=command.timeout)
        code = None if done.returncode == CUT_OFF else done.returncode
        return CommandOutput(exit=code, stdout=done.stdout, stderr=done.stderr)


def admin_of(nodes: Sequence[RiakNode], version: str = "3.2.1") -> RiakAdmin:
    """Asks these nodes."""
    dialect = dialect_of(version)
    assert dialect is not None
    return RiakAdmin(runner=OnThisMachine(nodes), commands=lambda _: commands_for(dialect), dialect=dialect)


@pytest.fixture(scope="module", params=RIAK_COMMANDS, ids=name_of)
def _five(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RiakNode, ...]]:
    types = "big:5, new:2:ready"
    folder = tmp_path_factory.mktemp("five")
    command = request.param
    with riak_nodes(folder, 5, pace=PACE, ring_size=SIZE, bucket_types=types, command=command) as nodes:
        yield nodes


@pytest.fixture
def five(_five: tuple[RiakNode, ...]) -> tuple[RiakNode, ...]:
    """All of them up and without a fault."""

    def bring_up(node: RiakNode) -> None:
        (node.folder / "faults").unlink(missing_ok=True)
        if not node.alive:
            assert node.riak("daemon").returncode == 0

    with ThreadPoolExecutor() as pool:
        list(pool.map(bring_up, _five))
    return _five


@pytest.fixture
def admin(five: tuple[RiakNode, ...]) -> RiakAdmin:
    return admin_of(five)


T = TypeVar("T")


def known(reading: T | Unknown) -> T:
    assert not isinstance(reading, Unknown), reading
    return reading


def service(admin: RiakAdmin, node: NodeName, word: str) -> Command:
    """What a cluster file's service runs: `riak stop`, `start` or `ping`."""
    return Command(argv=(*admin.commands(node).riak, word), timeout=300.0)


def answers(admin: RiakAdmin, node: NodeName) -> bool:
    return known(parse_ping(known(admin.runner.run(node, service(admin, node, "ping")))))


def named(node: RiakNode) -> NodeName:
    return NodeName(node.name)


def http(node: RiakNode) -> NodeHttp:
    return NodeHttp(f"http://127.0.0.1:{node.http}")


def vnodes_of(node: RiakNode) -> int:
    return known(http(node).stats()).kv_vnodes


def clean(admin: RiakAdmin, node: RiakNode) -> bool:
    return known(admin.transfers(named(node))).clean


def has_looked_for_hints(node: RiakNode) -> bool:
    """Whether it runs all vnodes, as every node does once, some time after its start, to look for hints.

    Before that it is as quiet as after it, and no command tells which: with `handoff=stalls` what it holds
    waits until it was seen, however slow the machine is.
    """
    return vnodes_of(node) == SIZE


@pytest.fixture
def rested(five: tuple[RiakNode, ...], admin: RiakAdmin) -> tuple[RiakNode, ...]:
    """All of them up with nothing to hand off, now or later: the gate at which a run waits before a stop."""

    for node in five:
        known(admin.set_transfer_limit(named(five[0]), named(node), 16))
        node.faults(vnodes="none", handoff="stalls")
    wait_until(lambda: not any(vnodes_of(node) for node in five), "vnodes go on running")
    for node in five:
        node.faults(handoff="stalls")
    wait_until(lambda: all(has_looked_for_hints(node) for node in five), "they do not look for hints")
    for node in five:
        node.faults()
    wait_until(lambda: all(clean(admin, each) for each in five), "handoff does not end")
    return five


def test_every_question_of_a_restart_is_answered_and_read(
    five: tuple[RiakNode, ...], admin: RiakAdmin
) -> None:
    names = frozenset(named(node) for node in five)
    wait_until(lambda: all(vnodes_of(node) >= OWNED - 1 for node in five), "vnodes do not run")
    for node in five:
        name = named(node)
        assert answers(admin, name) is True
        assert http(node).ping() is True
        assert parse_pid(known(admin.runner.run(name, admin.commands(name).pid))) == node.pid
        assert parse_versions(known(admin.runner.run(name, admin.commands(name).versions))) == "3.2.1"
        ready, status = known(admin.ring_ready(name)), known(admin.ring_status(name))
        assert (ready.agreed, frozenset(ready.nodes)) == (True, names)
        assert (status.claimant, status.ring_ready, status.pending) == (named(five[0]), True, ())
        assert {each.node for each in known(admin.members(name))} == names
        assert {each.node for each in known(admin.cluster_status(name)).members} == names
        assert {each.node for each in known(admin.transfers(name)).waiting} <= names
        assert known(admin.transfer_limits(name)).limits == dict.fromkeys(names, 2)
        stats = known(http(node).stats())
        assert (stats.node, stats.members, stats.connected) == (name, names, names - {name})
        assert stats.ring_size == SIZE
        assert stats.kv_vnodes >= stats.ownership[name]
    last = five[-1]
    assert known(admin.n_vals(named(last))) == {"default": 3, "big": 5, "new": 2}
    stats = known(http(last).stats())
    owned = {named(node): known(admin.partitions(named(last), named(node))) for node in five}
    ring = known(ring_of(owned, stats))
    assert known(admin.where_it_is_up(named(last))) == names
    assert {len(set(ring.preference_list(first, 4))) for first in range(ring.size)} == {4}
    assert ring.ownership == stats.ownership


def test_a_node_is_stopped_and_started_as_the_program_does_it(
    rested: tuple[RiakNode, ...], admin: RiakAdmin
) -> None:
    peer, node = rested[:2]
    asked, name = named(peer), named(node)
    before = node.pid
    run = admin.runner.run
    assert admin.set_transfer_limit(asked, name, 8) == LimitSet(limit=8, node=name)
    assert parse_stop(known(run(name, service(admin, name, "stop")))) is Stop.STOPPED
    assert parse_stop(known(run(name, service(admin, name, "stop")))) is Stop.SILENT
    assert answers(admin, name) is False
    _is_seen_down(admin, asked, name)
    node.faults(handoff="stalls")
    assert parse_start(known(run(name, service(admin, name, "start")))) is Start.STARTED
    assert parse_start(known(run(name, service(admin, name, "start")))) is Start.WAS_RUNNING
    assert parse_pid(known(run(name, admin.commands(name).pid))) == node.pid != before
    assert admin.wait_for_service(asked, name, 30.0) == ServiceWait(
        service="riak_kv", up=True, last="riak_kv is up"
    )
    wait_until(lambda: vnodes_of(node) >= OWNED, "its vnodes do not run")
    assert known(admin.transfer_limits(asked)).limits[name] == 2, "a limit that was set outlives the restart"
    wait_until(lambda: has_looked_for_hints(node), "it does not look whether it holds hints")
    node.faults()
    for each in rested:
        assert known(admin.set_transfer_limit(asked, named(each), 16)).limit == 16
    wait_until(lambda: all(clean(admin, each) for each in rested[:2]), "handoff does not end")
    assert vnodes_of(node) == OWNED


def _is_seen_down(admin: RiakAdmin, asked: NodeName, name: NodeName) -> None:
    """The trap: `No transfers active` stands there while the node is down."""
    text = known(admin.runner.run(asked, admin.commands(asked).asking("transfers"))).stdout
    assert "No transfers active" in text
    transfers, ready = known(admin.transfers(asked)), known(admin.ring_ready(asked))
    status = known(admin.cluster_status(asked))
    assert (transfers.clean, ready.agreed, ready.down) == (False, False, (name,))
    assert [each.node for each in status.members if each.availability is not Availability.UP] == [name]


def test_limits_raised_on_all_nodes_end_handoff_sooner() -> None:
    took = {}
    names = [f"riak{number}@127.0.0.1" for number in range(1, 6)]
    for limit in (2, 8):
        world = World(names=names, size=SIZE)
        world.run(300)
        for name in names:
            world.set(name, writes="on")
        world.stop(names[1])
        world.run(30)
        world.start(names[1])
        for name in names:
            assert "Set transfer limit" in world.ask(names[0], f"admin transfer-limit {name} {limit}")
        took[limit] = world.clean(within=900)
    assert took[8] < took[2]


def test_ping_is_true_while_no_vnode_runs(five: tuple[RiakNode, ...], admin: RiakAdmin) -> None:
    node = five[2]
    node.faults(vnodes="none")
    wait_until(lambda: vnodes_of(node) == 0, "vnodes go on running")
    assert http(node).ping() is True
    assert answers(admin, named(node)) is True
    assert not known(admin.transfers(named(five[0]))).clean


@pytest.mark.parametrize("fault", ["loops", "loops-down"])
def test_a_start_that_never_ends_is_ended_and_proves_nothing(
    five: tuple[RiakNode, ...], admin: RiakAdmin, fault: str
) -> None:
    node = five[3]
    assert node.riak("stop").returncode == 0
    node.faults(start=fault)
    for seconds in LIMITS_SECONDS:
        start = Command(argv=service(admin, named(node), "start").argv, timeout=seconds)
        output = known(admin.runner.run(named(node), start))
        assert output.exit is None
        assert isinstance(parse_start(output), Unknown)
        if node.alive or fault == "loops-down":
            break
    if fault == "loops":
        wait_until(lambda: answers(admin, named(node)) is True, "it starts no node")
    assert node.alive is (fault == "loops")
    assert answers(admin, named(node)) is (fault == "loops")


def test_a_wait_for_a_service_that_never_comes_is_ended(five: tuple[RiakNode, ...], admin: RiakAdmin) -> None:
    peer, node = five[:2]
    peer.faults(wait_for_service="never")
    asked = (admin.wait_for_service(named(peer), named(node), seconds) for seconds in LIMITS_SECONDS)
    found = next(each for each in asked if not isinstance(each, Unknown))  # the first that said something
    assert found == ServiceWait(service="riak_kv", up=False, last="[]")


@pytest.mark.parametrize("fault", ["hangs", "refused"])
def test_a_stop_that_hangs_or_is_refused_leaves_the_node_up(
    five: tuple[RiakNode, ...], admin: RiakAdmin, fault: str
) -> None:
    node = five[4]
    node.faults(stop=fault)
    ends = fault == "refused"
    stop = service(admin, named(node), "stop")
    stop = stop if ends else replace(stop, timeout=LIMITS_SECONDS[0])
    found = parse_stop(known(admin.runner.run(named(node), stop)))
    # No word is also what a node says that is down: it takes a ping to tell.
    assert found is Stop.SILENT if ends else isinstance(found, Unknown)
    assert answers(admin, named(node)) is True


def test_a_handoff_that_stalls_waits_without_an_active_transfer(
    five: tuple[RiakNode, ...], admin: RiakAdmin
) -> None:
    node = five[1]
    node.faults(handoff="stalls")
    assert node.riak("stop").returncode == 0
    assert node.riak("start").returncode == 0
    wait_until(lambda: has_looked_for_hints(node), "it does not look whether it holds hints")
    transfers = known(admin.transfers(named(five[0])))
    waiting = PartitionCount(node=named(node), partitions=SIZE - OWNED)
    # Others may still hand off to each other what an earlier test has left.
    assert [each for each in transfers.active if node.name in (each.source, each.target)] == []
    assert not transfers.clean
    assert waiting in transfers.waiting
