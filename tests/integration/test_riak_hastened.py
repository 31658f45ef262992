"""A restart whose handoff is hastened: nodes of the double as processes, each behind an sshd of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import entered
from tests.integration.riak_processes import RiakProcesses, riak_processes
from tests.riak_nodes import RiakCommand

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf

DONE = 0
PACE = 0.1
"""A minute of the recording in six seconds: at a higher one handoff is over before anybody can hasten it."""
CHOSEN = ("dev2@127.0.0.1", "dev3@127.0.0.1")
ONLY = tuple(word for name in CHOSEN for word in ("--only", name))
PLAYBOOK: Mapping[str, Any] = {
    "kind": "riak",
    "hasten_handoff": True,
    "settle": {"consecutive": 2},
    "deadlines": {"stop": "1m", "start": "2m", "rejoin": "2m", "recover": "3m", "hold": "1m"},
}
TIMER = ("rpc", "application", "get_env", "[riak_core,vnode_management_timer]")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RiakProcesses]:
    folder = tmp_path_factory.mktemp("riak")
    with riak_processes(folder, 5, pace=PACE, command=RiakCommand.PACKAGED) as processes:
        yield processes


def timers(lab: RiakProcesses) -> list[str]:
    return [node.riak(*TIMER).stdout.strip() for node in lab.nodes]


def test_nodes_restart_once_and_limits_and_timers_are_restored(
    lab: RiakProcesses, bastion_of: BastionOf
) -> None:
    bastion = bastion_of(lab, playbook=PLAYBOOK)
    limits = lab.limits()
    with lab.watched() as watch:
        assert bastion.restart(*ONLY) == DONE, bastion.story()
        lab.wait_ready()
    assert watch.starts() == {name: int(name in CHOSEN) for name in watch.lives}
    assert len(watch.most_down) == 1
    assert lab.limits() == limits
    assert timers(lab) == ["{ok,10000}"] * 5
    assert "cluster: force handoff on every node" in bastion.said[-1], bastion.story()
    assert "not hastened" not in bastion.said[-1], bastion.story()


def test_a_plan_has_the_commands_that_hasten_it(lab: RiakProcesses, bastion_of: BastionOf) -> None:
    bastion = bastion_of(lab, playbook=PLAYBOOK)
    assert bastion.orchestrate("plan", "--cluster", str(bastion.file), *ONLY) == DONE, bastion.story()
    for name in CHOSEN:
        assert f"set_env [riak_core,vnode_management_timer,1000] (on {name})" in bastion.said[-1]
    assert "multicall [riak_core_vnode_manager,force_handoffs,[]]" in bastion.said[-1], bastion.story()
    assert timers(lab) == ["{ok,10000}"] * 5


def test_the_timer_of_a_killed_run_is_restored_by_its_record(
    lab: RiakProcesses, bastion_of: BastionOf
) -> None:
    first = bastion_of(lab, "first", playbook=PLAYBOOK, foreign=True, expiry=30.0)
    second = bastion_of(lab, "second", playbook={**PLAYBOOK, "hasten_handoff": False}, expiry=30.0)
    limits = lab.limits()
    run = first.begin_restart(*ONLY)
    first.await_seam(run, entered("recovered", node="dev2"))
    run.kill()
    first.end(run)
    assert "{ok,1000}" in timers(lab), "it was killed too early"
    assert second.restore() == DONE, second.story()
    lab.wait_ready()
    assert timers(lab) == ["{ok,10000}"] * 5
    assert lab.limits() == limits
