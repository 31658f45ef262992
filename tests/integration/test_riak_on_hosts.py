"""Riak on hosts over SSH, three nodes by a unit, two by `riak` alone: restarts, their traps, leases.

The nodes are those of the double; sshd, systemd and sudo are real. One lab for the file; each test
finds it at rest and leaves it so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hostlab.hosts import wait_until
from tests.integration.restarting import Begun, orchestrate
from tests.integration.riak_hosts import SCHEDULERS, RiakHosts, member, riak_hosts
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of

pytestmark = [pytest.mark.docker, pytest.mark.part(name="riak"), pytest.mark.timeout(2400)]

FEWER = SCHEDULERS - SCHEDULERS // 6
SUDO_SECONDS = 60.0
"""The hosts' sudo ends a `riak stop` or `start` after 30 s: nobody else there can end what is root's."""
DONE, FAILED, LEASED = 0, 4, 6
DEADLINES = {"stop": "60s", "start": "60s", "rejoin": "60s", "recover": "5m", "hold": "60s"}
"""Those of a machine with much else to do; a test sets the one that it runs into."""
FILES = "/var/tmp/orchestrate-lease.ring-*.json"
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[RiakCommand.PACKAGED], ids=name_of)
def hosts(request: pytest.FixtureRequest) -> Iterator[RiakHosts]:
    with riak_hosts(request, command=request.param) as lab:
        yield lab


@pytest.fixture
def lab(hosts: RiakHosts) -> RiakHosts:
    """The hosts without any fault, every node up and at rest."""
    for name in hosts.names:
        hosts.faults(name)
        if hosts.get(name, "/ping")[0] != 200:
            hosts.start(name)
    assert wait_until(hosts.at_rest, seconds=120), "what the last test did is not over"
    for name in hosts.names:
        hosts.riak("riak1", f"admin transfer-limit {member(name)} 2")
    return hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Somebody with a cluster file, a playbook and a state of their own."""

    folder: Path  # of the operator's own
    lab: RiakHosts  # the hosts
    user: str = "deploy"  # who logs in
    overrides: Mapping[str, Any] = field(default_factory=dict)  # of single hosts, in the cluster file
    # more of its keys; its deadlines add to the usual ones
    playbook: Mapping[str, Any] = field(default_factory=dict)

    def cluster_document(self) -> dict[str, Any]:
        """The content of the cluster file."""
        return self.lab.cluster_document(self.user, self.overrides)

    @property
    def book(self) -> dict[str, Any]:
        """The playbook."""
        deadlines = {**DEADLINES, **self.playbook.get("deadlines", {})}
        return {"kind": "riak", "settle": {"consecutive": 2}, **self.playbook, "deadlines": deadlines}

    def orchestrate(self, command: str, *words: str, code: int = DONE) -> Lines:
        """Run a command to its end, with this exit code; its lines."""
        ended, lines = orchestrate(self, self.folder, command, *words, playbook=self.book)
        assert ended == code, json.dumps(lines[-6:], indent=1)
        return lines

    def begun(self, command: str, *words: str) -> Begun:
        """The same while the test does something."""
        return Begun(self, self.folder, command, *words, playbook=self.book)


def only(host: str) -> tuple[str, str]:
    """The words that restrict a run to the node of a host."""
    return "--only", member(host)


def told(lines: Lines) -> str:
    """The end of an output."""
    return json.dumps(lines[-6:], ensure_ascii=False)


@pytest.mark.parametrize("hosts", RIAK_COMMANDS, ids=name_of, indirect=True)
def test_five_nodes_restart_once_and_limits_are_restored(lab: RiakHosts, tmp_path: Path) -> None:
    """Under writes; a tuning profile sets the schedulers of each."""
    profile = tmp_path / "fewer.yml"
    why = {"why": "the hosts are configured for sixteen", "source": "the rule for sixteen"}
    content = {"applies_to": "riak", "settings": {"erlang.schedulers": {"value": FEWER, **why}}}
    profile.write_text(json.dumps(content), encoding="utf-8")
    operator = Operator(folder=tmp_path, lab=lab, user="tuner", playbook={"tune": str(profile)})
    assert lab.riak("riak1", f"admin transfer-limit {member('riak3')} 3").returncode == 0
    found, born, before = lab.limits(), lab.pids(), lab.starts()
    assert found == {**dict.fromkeys(lab.names, 2), "riak3": 3}
    for name in lab.names:
        lab.faults(name, writes="on")
    operator.orchestrate("restart")
    after = lab.pids()
    assert all(after[name] and after[name] != born[name] for name in lab.names)
    assert lab.starts() == {name: times + 1 for name, times in before.items()}
    assert lab.limits() == found
    for name in lab.names:
        assert f"erlang.schedulers.total = {FEWER}" in lab.exec(name, "cat /etc/riak/riak.conf")
        assert lab.schedulers(name) == f"[smp:{FEWER}:{FEWER}]"
    assert lab.at_rest()
    restored = operator.orchestrate("restore")
    assert restored[-1]["left"] == []
    assert "no run has left a record on the hosts" in restored[-1]["message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a command of Riak does wrong, and how a run of that node ends.

    Attributes:
        faults: of the double, on the host of the node.
        says: what the run says at its end.
        starts: how often the node was started.
        left: a command that is not left on the host.
        resumed: how the run is resumed after a repair, and what says so if it is not with the first words.
    """

    host: str
    faults: Mapping[str, str]
    code: int
    left: str
    says: str = ""
    starts: int = 0
    deadlines: Mapping[str, str] = field(default_factory=dict)
    retry: bool = False


FAULTS = {
    "a start that never ends": Fault(
        host="riak2", faults={"start": "loops"}, code=DONE, starts=1, left="start"
    ),
    "a start without effect": Fault(
        host="riak2",
        faults={"start": "loops-down"},
        deadlines={"start": "10s"},
        code=FAILED,
        says="did not start within 10s",
        left="start",
        retry=True,
    ),
    # Ended from outside it leaves its loop behind, so a peer is asked by `riak rpc`.
    "a wait for a service that never ends": Fault(
        host="riak3",
        faults={"wait_for_service": "never"},
        code=DONE,
        starts=1,
        left="admin wait-for-service",
    ),
    "a stop that hangs": Fault(
        host="riak2",
        faults={"stop": "hangs"},
        deadlines={"stop": "10s"},
        code=FAILED,
        says="did not stop within 10s",
        left="stop",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_command_of_riak_that_never_ends(lab: RiakHosts, tmp_path: Path, what: str) -> None:
    """It is ended at its limit, and leaves a node that is up or named."""
    fault = FAULTS[what]
    operator = Operator(folder=tmp_path, lab=lab, playbook={"deadlines": fault.deadlines})
    lab.faults(fault.host, **fault.faults)
    before, born = lab.starts(), lab.pids()
    lines = operator.orchestrate("restart", *only(fault.host), code=fault.code)
    assert fault.says in told(lines)
    once = {**before, fault.host: before[fault.host] + 1}
    assert lab.starts() == (once if fault.starts else before)
    down = fault.host if fault.retry else ""
    assert set(lab.limits(down=down).values()) == {2}
    if not fault.starts and not down:
        assert lab.pids() == born, "a stop without effect leaves the node up"
    assert wait_until(lambda: not lab.commands_left(fault.host, fault.left), seconds=SUDO_SECONDS), what
    if fault.retry:
        lab.faults(fault.host)
        lines = operator.orchestrate("resume", code=FAILED)
        assert "repair it, then resume with --retry-failed" in lines[-1]["message"]
        assert lab.starts() == before
        operator.orchestrate("resume", "--retry-failed")
        assert lab.starts() == once
        assert set(lab.limits().values()) == {2}
        assert lab.at_rest()


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


@pytest.mark.parametrize("outlasts", [False, True], ids=["ended by systemd", "outlasts the run"])
def test_behind_a_stop_that_hangs_in_systemd_a_start_is_queued(
    lab: RiakHosts, tmp_path: Path, *, outlasts: bool
) -> None:
    """What systemd was asked for it does: it ends a stop that takes too long, and then what is to stop."""
    host = "riak3"
    deadlines = {"stop": "10s", "start": "20s" if outlasts else "4m"}
    operator = Operator(folder=tmp_path, lab=lab, playbook={"deadlines": deadlines})
    lab.faults(host, stop="hangs")
    before, born = lab.starts(), lab.pids()
    once = {**before, host: before[host] + 1}
    with stop_limit(lab, host, 1200 if outlasts else 20):
        lines = operator.orchestrate("restart", *only(host), code=FAILED)
        assert "did not stop within 10s" in told(lines)
        assert set(lab.limits().values()) == {2}
        lab.faults(host)
        if outlasts:
            assert "did not start within 20s: deactivating" in told(lines)
            assert (lab.pids(), lab.starts()) == (born, before)
            lab.exec(host, "kill -KILL $(systemctl show -P ControlPID riak)")  # by whoever sees to the host
            assert wait_until(lambda: lab.starts() == once, seconds=120), "the queued start is not done"
            operator.orchestrate("resume", "--retry-failed")
        else:
            assert "a start is queued behind its stop" in told(lines)
            assert lab.starts() == once
            assert lab.get(host, "/ping") == (200, "OK")
            operator.orchestrate("resume")
    assert lab.starts() == once
    assert set(lab.limits().values()) == {2}
    assert lab.at_rest()


def test_a_stop_of_a_node_stopped_by_others_is_no_failure(lab: RiakHosts, tmp_path: Path) -> None:
    # Somebody's stop, right before the run's own, which exits with 1 then.
    stop = "/usr/sbin/riak stop && /usr/sbin/riak stop"
    command = {"manager": "command", "stop": stop, "start": "/usr/sbin/riak start"}
    service = {**command, "status": "sudo -n /usr/sbin/riak ping"}
    operator = Operator(folder=tmp_path, lab=lab, user="tuner", overrides={"riak2": {"service": service}})
    before = lab.starts()
    operator.orchestrate("restart", *only("riak2"))
    assert lab.starts() == {**before, "riak2": before["riak2"] + 1}
    assert set(lab.limits().values()) == {2}


def test_a_second_operator_may_restore_only_a_dead_run(lab: RiakHosts, tmp_path: Path) -> None:
    """Each has a state file of their own: a majority of the hosts decides."""
    for name in ("anna", "ben"):
        (tmp_path / name).mkdir()
    anna = Operator(folder=tmp_path / "anna", lab=lab)
    ben = Operator(folder=tmp_path / "ben", lab=lab, user="tuner")
    assert lab.riak("riak1", f"admin transfer-limit {member('riak1')} 3").returncode == 0
    found, before = lab.limits(), lab.starts()

    def records() -> dict[str, dict[str, Any]]:
        """The lease's last file, by host."""
        said = {name: lab.exec(name, f"cat {FILES} 2>/dev/null; true") for name in lab.names}
        return {name: json.loads(text.splitlines()[-1]) for name, text in said.items() if text}

    with anna.begun("restart"):
        assert wait_until(lambda: lab.starts() != before, seconds=120), "no node is restarted"
        lines = ben.orchestrate("restart", code=LEASED)
        assert "another run holds the lease on ring: run " in lines[-1]["message"]
        kept = records()
        assert sorted(kept) == sorted(lab.names)
        record = kept["riak5"]["record"]
        assert record["run"] in lines[-1]["message"]
        assert {debt["found"] for debt in record["debts"]} == {"2", "3"}
    # It was killed with the block.
    ben.orchestrate("restore")
    assert wait_until(lab.at_rest, seconds=120), "a node is not back"
    assert lab.limits() == found
    assert all(number - before[name] <= 1 for name, number in lab.starts().items())
    # They log in with two accounts: Anna's file cannot be removed by Ben, so the lease is marked as released.
    assert {each["lease"] for each in records().values()} == {"released"}
    anna.orchestrate("restart", *only("riak3"))
