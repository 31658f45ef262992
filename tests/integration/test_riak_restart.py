"""A rolling restart of Riak on five hosts over SSH, three nodes by a unit, two by `riak` alone; its traps.

The nodes are those of the test double. One lab for the file; each test finds it at rest and leaves it so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.fixtures_riak_hosts import kept_hosts
from tests.integration.riak_operating import (
    RiakOperator,
    at_rest,
    commands_left,
    limits,
    member,
    pids,
    starts,
    wait_for,
)
from tests.integration.riaklab.running import SCHEDULERS
from tests.riak_nodes import RIAK_COMMANDS, name_of

if TYPE_CHECKING:
    from tests.integration.riaklab.hosts import RiakHosts

pytestmark = [pytest.mark.docker, pytest.mark.part(name="riak")]
PACE = 0.05
PLAIN = ("riak2", "riak4")
FEWER = SCHEDULERS - SCHEDULERS // 6
RAISED = 8
SUDO_SECONDS = 60.0
"""The hosts' sudo ends a `riak stop` or `start` after 30 s: nobody else there can end what is root's."""
STALL_SECONDS = 20.0
"""More than six minutes of the recording, whose longest drain took three."""
DONE, HELD, FAILED = 0, 3, 4


@pytest.fixture(scope="module", params=RIAK_COMMANDS, ids=name_of)
def hosts(request: pytest.FixtureRequest) -> Iterator[RiakHosts]:
    with kept_hosts(request, formed=True, pace=PACE, plain=PLAIN, command=request.param) as lab:
        yield lab


@pytest.fixture
def lab(hosts: RiakHosts) -> RiakHosts:
    """The hosts without any fault, every node up and at rest."""
    for name in hosts.names:
        hosts.faults(name)
        if hosts.get(name, "/ping")[0] != 200:
            hosts.start(name)
    wait_for(lambda: at_rest(hosts), seconds=120, what="what the last test did is not over")
    for name in hosts.names:
        hosts.riak("riak1", f"admin transfer-limit {member(name)} 2")
    return hosts


def fault_while_stopped(lab: RiakHosts, host: str, fault: str) -> dict[str, Any]:
    """A hook that sets a fault on a host the first time that its node is down, and not again."""
    mark = "/run/fault-was-set"
    lab.exec(host, f"rm -f {mark}")
    once = f"test -e {mark} || {{ touch {mark}; riak-double faults {fault}; }}"
    container = lab.host(host).container
    hook = {"run": f"docker exec {container} sh -c '{once}'", "local": True}
    return {"while_stopped": [hook]}


@contextmanager
def stop_limit(lab: RiakHosts, host: str, seconds: int) -> Iterator[None]:
    """Have systemd end a stop of the unit of a host after so many seconds, not after the lab's own limit."""
    folder = "/run/systemd/system/riak.service.d"
    write = f"printf '[Service]\\nTimeoutStopSec={seconds}\\n' > {folder}/limit.conf"
    lab.exec(host, f"mkdir -p {folder} && {write} && systemctl daemon-reload")
    try:
        yield
    finally:
        lab.exec(host, f"rm {folder}/limit.conf && systemctl daemon-reload")


def held_by(lines: list[dict[str, Any]]) -> set[str]:
    return {line["predicate"] for line in lines if line["event"] == "hold"}


def last(lines: list[dict[str, Any]]) -> str:
    return json.dumps(lines[-6:], indent=1)


def test_five_nodes_restart_once_and_limits_are_restored(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab, user="tuner")
    profile = tmp_path / "fewer.yml"
    why = {"why": "the hosts are configured for sixteen", "source": "the rule for sixteen"}
    profile.write_text(
        json.dumps({"applies_to": "riak", "settings": {"erlang.schedulers": {"value": FEWER, **why}}}),
        encoding="utf-8",
    )
    operator.write(tune=str(profile))
    assert lab.riak("riak1", f"admin transfer-limit {member('riak3')} 3").returncode == 0
    found, born, before = limits(lab), pids(lab), starts(lab)
    assert found == {**dict.fromkeys(lab.names, 2), "riak3": 3}
    assert all(f"[smp:{SCHEDULERS}:{SCHEDULERS}]" in lab.stats(n)["sys_system_version"] for n in lab.names)
    for name in lab.names:
        lab.faults(name, writes="on")

    code, lines = operator.orchestrate("restart")

    assert code == DONE, last(lines)
    assert all(born.values())
    after = pids(lab)
    assert all(after.values())
    assert all(after[name] != born[name] for name in lab.names)
    assert {name: number - before[name] for name, number in starts(lab).items()} == dict.fromkeys(
        lab.names, 1
    )
    assert limits(lab) == found
    for name in lab.names:
        conf = lab.exec(name, "cat /etc/riak/riak.conf").stdout
        assert f"erlang.schedulers.total = {FEWER}" in conf
        assert f"[smp:{FEWER}:{FEWER}]" in lab.stats(name)["sys_system_version"]
    assert at_rest(lab)
    left, told = operator.orchestrate("restore")
    assert (left, told[-1]["left"]) == (DONE, [])
    assert "no run has left a record on the hosts" in told[-1]["message"]


def test_a_node_down_at_the_start_holds_without_transfers(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write(deadlines={"hold": "8s"})
    assert lab.stop("riak5").returncode == 0
    assert "\nNo transfers active\n" in lab.riak("riak1", "admin transfers").stdout
    before = starts(lab)

    code, lines = operator.orchestrate("restart")

    assert code == HELD, last(lines)
    assert "all_members_up" in held_by(lines)
    assert starts(lab) == before
    assert lab.get("riak5", "/ping")[0] == 0
    assert lab.start("riak5").returncode == 0
    wait_for(lambda: at_rest(lab), seconds=120, what="it is not back")
    assert set(limits(lab).values()) == {2}


def test_a_node_that_answers_without_a_vnode_is_not_ready(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab)
    hooks = fault_while_stopped(lab, "riak3", "vnodes=none")
    operator.write(deadlines={"rejoin": "10s"}, hooks=hooks)
    before = starts(lab)

    code, lines = operator.orchestrate("restart", "--only", member("riak3"))

    assert code == FAILED, last(lines)
    assert "of its 13 vnodes run" in last(lines) or "of its 12 vnodes run" in last(lines)
    assert lab.get("riak3", "/ping") == (200, "OK")
    assert set(limits(lab).values()) == {2}
    assert starts(lab) == {**before, "riak3": before["riak3"] + 1}

    lab.faults("riak3")
    code, lines = operator.orchestrate("resume")
    assert code == DONE, last(lines)
    assert set(limits(lab).values()) == {2}
    assert at_rest(lab)


def test_handoff_that_stalls_for_a_while_is_waited_for(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write()
    for name in lab.names:
        lab.faults(name, writes="on", handoff="stalls")
    before = starts(lab)
    with operator.begun("restart", "--only", member("riak2")) as run:
        wait_for(lambda: starts(lab) != before, seconds=120, what="it is not restarted")
        wait_for(
            lambda: "waiting to handoff" in lab.riak("riak1", "admin transfers").stdout,
            seconds=60,
            what="nothing waits",
        )
        time.sleep(STALL_SECONDS)
        assert run.process.poll() is None, last(run.lines())
        assert "waiting to handoff" in lab.riak("riak1", "admin transfers").stdout
        assert limits(lab)["riak1"] == RAISED
        for name in lab.names:
            lab.faults(name, writes="on")
        code, lines = run.end()
    assert code == DONE, last(lines)
    assert starts(lab) == {**before, "riak2": before["riak2"] + 1}
    assert set(limits(lab).values()) == {2}
    assert at_rest(lab)


def test_a_start_command_that_never_ends_is_ended(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write()
    lab.faults("riak2", start="loops")
    before = starts(lab)
    code, lines = operator.orchestrate("restart", "--only", member("riak2"))
    assert code == DONE, last(lines)
    assert starts(lab) == {**before, "riak2": before["riak2"] + 1}
    assert set(limits(lab).values()) == {2}
    wait_for(
        lambda: not commands_left(lab, "riak2", "start"), seconds=SUDO_SECONDS, what="riak start is left"
    )


def test_a_start_without_effect_ends_the_run_at_its_deadline(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write(deadlines={"start": "10s"})
    lab.faults("riak2", start="loops-down")
    before = starts(lab)
    code, lines = operator.orchestrate("restart", "--only", member("riak2"))
    assert code == FAILED, last(lines)
    assert "did not start within 10 s" in last(lines)
    assert limits(lab, down="riak2") == dict.fromkeys(["riak1", "riak3", "riak4", "riak5"], 2)
    wait_for(
        lambda: not commands_left(lab, "riak2", "start"), seconds=SUDO_SECONDS, what="riak start is left"
    )
    assert starts(lab) == before

    lab.faults("riak2")
    code, lines = operator.orchestrate("resume")
    assert code == FAILED, last(lines)
    assert "repair it, then resume with --retry-failed" in lines[-1]["message"]
    assert starts(lab) == before
    code, lines = operator.orchestrate("resume", "--retry-failed")
    assert code == DONE, last(lines)
    assert starts(lab) == {**before, "riak2": before["riak2"] + 1}
    assert set(limits(lab).values()) == {2}
    assert at_rest(lab)


def test_a_wait_for_service_that_never_ends_is_not_sent(lab: RiakHosts, tmp_path: Path) -> None:
    """Ended from outside it leaves its loop behind, so a peer is asked by `riak rpc`."""
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write()
    for name in lab.names:
        lab.faults(name, wait_for_service="never")
    before = starts(lab)
    code, lines = operator.orchestrate("restart", "--only", member("riak3"))
    assert code == DONE, last(lines)
    assert starts(lab) == {**before, "riak3": before["riak3"] + 1}
    assert not any(commands_left(lab, name, "admin wait-for-service") for name in lab.names)
    for name in lab.names:
        lab.faults(name)
    assert at_rest(lab)


def test_a_stop_that_hangs_ends_the_run_with_the_node_up(lab: RiakHosts, tmp_path: Path) -> None:
    host = "riak2"
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write(deadlines={"stop": "10s"})
    lab.faults(host, stop="hangs")
    before, born = starts(lab), pids(lab)
    code, lines = operator.orchestrate("restart", "--only", member(host))
    assert code == FAILED, last(lines)
    assert "did not stop within 10 s" in last(lines)
    assert lab.get(host, "/ping") == (200, "OK")
    assert (pids(lab), starts(lab)) == (born, before)
    assert set(limits(lab).values()) == {2}
    wait_for(lambda: not commands_left(lab, host, "stop"), seconds=SUDO_SECONDS, what="riak stop is left")


def test_systemd_ends_a_hanging_stop_and_the_node_starts(lab: RiakHosts, tmp_path: Path) -> None:
    host = "riak3"
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write(deadlines={"stop": "10s", "start": "4m"})
    lab.faults(host, stop="hangs")
    before = starts(lab)
    with stop_limit(lab, host, 20):
        code, lines = operator.orchestrate("restart", "--only", member(host))
    assert code == FAILED, last(lines)
    assert "did not stop within 10 s" in last(lines)
    assert "a start is queued behind its stop" in last(lines)
    # What systemd was asked for it does: it ends a stop that takes too long, and then what is to stop.
    once = {**before, host: before[host] + 1}
    assert starts(lab) == once
    assert lab.get(host, "/ping") == (200, "OK")
    assert set(limits(lab).values()) == {2}

    lab.faults(host)
    code, lines = operator.orchestrate("resume")
    assert code == DONE, last(lines)
    assert starts(lab) == once
    assert set(limits(lab).values()) == {2}
    assert at_rest(lab)


def test_a_stop_that_outlasts_the_run_is_resumed_later(lab: RiakHosts, tmp_path: Path) -> None:
    host = "riak3"
    operator = RiakOperator(folder=tmp_path, lab=lab)
    operator.write(deadlines={"stop": "10s", "start": "20s"})
    lab.faults(host, stop="hangs")
    before, born = starts(lab), pids(lab)
    with stop_limit(lab, host, 1200):
        code, lines = operator.orchestrate("restart", "--only", member(host))
        assert code == FAILED, last(lines)
        assert "did not stop within 10 s" in last(lines)
        assert "not back within 20 s: deactivating" in last(lines)
        assert (pids(lab), starts(lab)) == (born, before)
        assert set(limits(lab).values()) == {2}

        lab.faults(host)
        lab.exec(host, "kill -KILL $(systemctl show -P ControlPID riak)")  # by whoever sees to the host
        once = {**before, host: before[host] + 1}
        wait_for(lambda: starts(lab) == once, seconds=120, what="the start that was queued is not done")
        code, lines = operator.orchestrate("resume", "--retry-failed")
    assert code == DONE, last(lines)
    assert starts(lab) == once
    assert set(limits(lab).values()) == {2}
    assert at_rest(lab)


def test_a_stop_of_a_node_stopped_by_others_is_no_failure(lab: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=lab, user="tuner")
    # Somebody's stop, right before the run's own, which exits with 1 then.
    stop = "/usr/sbin/riak stop && /usr/sbin/riak stop"
    command = {"manager": "command", "stop": stop, "start": "/usr/sbin/riak start"}
    service = {**command, "status": "sudo -n /usr/sbin/riak ping"}
    operator.write(overrides={"riak2": {"service": service}})
    before = starts(lab)
    code, lines = operator.orchestrate("restart", "--only", member("riak2"))
    assert code == DONE, last(lines)
    assert starts(lab) == {**before, "riak2": before["riak2"] + 1}
    assert set(limits(lab).values()) == {2}
