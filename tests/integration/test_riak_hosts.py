"""The Riak lab itself: five hosts with the double over real SSH, before anything is tested on them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of

if TYPE_CHECKING:
    from tests.integration.fixtures_riak_hosts import RiakHostsFactory
    from tests.integration.riaklab.hosts import RiakHosts

pytestmark = [pytest.mark.docker, pytest.mark.part(name="riak")]
PACE = 0.1
PLAIN = ("riak2", "riak4")
DRAIN_SECONDS = 300.0
"""Of the recording: its longest took 174. Waits have two minutes more, for a machine with much else to do."""


def wait_until(check: Callable[[], bool], *, seconds: float, what: str) -> None:
    limit = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < limit, what
        time.sleep(0.2)


def transfers(lab: RiakHosts, name: str) -> str:
    done = lab.riak(name, "admin transfers")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def cluster_status(lab: RiakHosts, name: str) -> str:
    return lab.riak(name, "admin cluster status").stdout


def waiting(text: str) -> set[str]:
    """Nodes that say that partitions wait."""
    return set(re.findall(r"'(\S+)' waiting to handoff \d+ partitions", text))


def clean(lab: RiakHosts, name: str) -> bool:
    return transfers(lab, name).startswith("No transfers active\n")


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_of_five_hosts_one_stops_and_its_fallbacks_drain(
    riak_hosts: RiakHostsFactory, command: RiakCommand
) -> None:
    lab = riak_hosts(formed=False, pace=PACE, plain=PLAIN, command=command)
    for name in lab.names[1:]:
        joined = lab.riak(name, "admin cluster join riak@riak1")
        assert joined.stdout == f"Success: staged join request for 'riak@{name}' to 'riak@riak1'\nok\n"
    assert lab.riak("riak1", "admin cluster commit").stdout == "Cluster changes committed\nok\n"
    wait_until(
        lambda: (
            "No pending changes." in lab.riak("riak5", "admin ring-status").stdout
            and all(f"riak@{name}" in cluster_status(lab, "riak5") for name in lab.names)
            and clean(lab, "riak5")
        ),
        seconds=DRAIN_SECONDS * PACE + 120,
        what="they do not become a cluster at rest",
    )
    assert lab.riak("riak3", "admin ringready").stdout.startswith("TRUE All nodes agree on the ring [")
    for name in lab.names:
        lab.faults(name, writes="off")

    stopped = lab.stop("riak2")
    assert (stopped.returncode, stopped.stdout) == (0, "ok\n")
    # The trap: what the official loop waits for stands there while a node is down.
    said = transfers(lab, "riak1")
    assert "\nNo transfers active\n" in said
    assert said.startswith("Nodes ['riak@riak2'] are currently down.\n")
    assert re.search(r"riak@riak2 \|valid \| down! \|", cluster_status(lab, "riak1"))
    assert "riak@riak2" not in lab.stats("riak1")["connected_nodes"]
    assert re.search(r"(?m)^valid .* riak@riak2$", lab.riak("riak1", "admin member-status").stdout)

    # However slow the machine is, what waits is there to be seen until it is let go.
    up = [name for name in lab.names if name != "riak2"]
    for name in lab.names:
        lab.faults(name, writes="on", handoff="stalls")
    wait_until(lambda: waiting(transfers(lab, "riak1")) != set(), seconds=120, what="no fallbacks appear")
    assert waiting(transfers(lab, "riak1")) <= {f"riak@{name}" for name in up}
    assert lab.start("riak2").returncode == 0
    assert lab.get("riak2", "/ping") == (200, "OK")
    assert lab.riak("riak1", "admin wait-for-service riak_kv riak@riak2").stdout == "riak_kv is up\n"
    wait_until(lambda: "riak@riak2" in waiting(transfers(lab, "riak1")), seconds=120, what="no own fallbacks")
    said = transfers(lab, "riak1")
    assert "down" not in said
    assert "transfer type" not in said  # all waits, nothing moves: no cause for alarm
    for name in lab.names:
        lab.faults(name, writes="on")
    wait_until(lambda: clean(lab, "riak1"), seconds=DRAIN_SECONDS * PACE + 120, what="they do not drain")
    assert "down!" not in cluster_status(lab, "riak1")
    assert lab.stats("riak2")["riak_kv_vnodes_running"] in {12, 13}


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_unit_and_plain_hosts_stop_start_and_reboot(
    riak_hosts: RiakHostsFactory, command: RiakCommand
) -> None:
    lab = riak_hosts(hosts=3, formed=True, pace=PACE, plain=("riak2",), ring_size=16, command=command)
    for name in ("riak1", "riak2"):
        before = lab.exec(name, "cat /var/lib/riak-double/pid").stdout
        assert lab.stop(name).returncode == 0
        assert lab.get(name, "/ping") == (0, "")
        assert lab.riak(name, "ping").stdout == f"Node riak@{name} is not responding to pings\n"
        assert lab.start(name).returncode == 0
        assert lab.riak(name, "ping").stdout == "pong\n"
        assert lab.exec(name, "cat /var/lib/riak-double/pid").stdout != before
    assert lab.ssh("riak1", "systemctl is-active riak").stdout == "active\n"
    assert lab.ssh("riak2", "systemctl is-enabled riak").stdout == "disabled\n"
    # A unit whose node was stopped through `riak` is inactive, not failed.
    assert lab.riak("riak1", "stop").returncode == 0
    wait_until(
        lambda: lab.ssh("riak1", "systemctl is-active riak").stdout == "inactive\n", seconds=20, what="active"
    )
    for line in ("sudo -n id", "sudo -n systemctl stop ssh", "sudo -n riak-double end"):
        assert lab.ssh("riak1", line).returncode == 1
    boots = {}
    for name in ("riak1", "riak2"):
        boots[name] = lab.exec(name, "cat /proc/sys/kernel/random/boot_id").stdout
        lab.exec(name, "systemctl --no-block reboot")
        wait_until(lambda name=name: lab.get(name, "/ping")[0] == 0, seconds=60, what="it does not go down")
        lab.wait_up(name)
        assert lab.exec(name, "cat /proc/sys/kernel/random/boot_id").stdout != boots[name]


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_schedulers_of_riak_conf_are_read_at_the_start_of_a_node(
    riak_hosts: RiakHostsFactory, command: RiakCommand
) -> None:
    lab = riak_hosts(hosts=1, formed=True, pace=PACE, command=command)
    assert "[smp:16:16]" in lab.stats("riak1")["sys_system_version"]
    edit = "sudo -n sed -i 's/^\\(erlang.schedulers.[a-z]*\\) = 16/\\1 = 14/' /etc/riak/riak.conf"
    assert lab.ssh("riak1", edit, user="tuner").returncode == 0
    assert lab.riak("riak1", "restart").returncode == 0
    assert lab.riak("riak1", 'rpc erlang system_info "[schedulers]"').stdout == "16\n"
    assert lab.stop("riak1").returncode == 0
    assert lab.start("riak1").returncode == 0
    assert lab.riak("riak1", 'rpc erlang system_info "[schedulers]"').stdout == "14\n"
    assert "[smp:14:14]" in lab.stats("riak1")["sys_system_version"]
