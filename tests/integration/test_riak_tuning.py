"""`tune` and `diagnose` on Riak's hosts over SSH: of nodes that are down too, and a whole host tuned.

The nodes are those of the test double; files, kernel and services of the host are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hostlab import docker, kernel
from tests.integration.hostlab.projects import alone
from tests.integration.hostlab.running import LOCK
from tests.integration.mistuned import WRONG
from tests.integration.restarting import events, orchestrate
from tests.integration.riak_hosts import SCHEDULERS, RiakHosts, build, riak_hosts
from tests.integration.riak_processes import riak_processes

pytestmark = pytest.mark.part(name="riak")

DONE, DRIFT = 0, 3
BOOK = {"kind": "riak"}
Lines = list[dict[str, Any]]
CONF = "/etc/riak/riak.conf"
SYSTEM = {
    path: value for path, value in WRONG.items() if "tcp_retries2" not in path and "map_count" not in path
}
"""What the kernel has from its boot on, and Riak's profile sets otherwise."""
OF_KERNEL = {
    "transparent_hugepage.enabled",
    "transparent_hugepage.defrag",
    "transparent_hugepage.khugepaged_defrag",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
}


def test_hosts_are_checked_and_sampled_with_nodes_down(tmp_path: Path) -> None:
    with riak_processes(tmp_path / "lab", 3, pace=0.02, ring_size=16) as lab:
        names = {node.name for node in lab.nodes}
        for down in (lab.nodes[1:2], lab.nodes):
            for node in down:
                node.end()
            _, lines = orchestrate(lab, tmp_path, "tune check", "--profile", "riak", playbook=BOOK)
            assert {line["node"] for line in events(lines, "tunable")} == names
            assert (lines[-1]["hosts"], lines[-1]["unreachable"]) == (len(names), [])
            code, lines = orchestrate(lab, tmp_path, "diagnose", "--sample", "1s", playbook=BOOK)
            assert code in (DONE, DRIFT), lines  # what this machine suffers from is its own affair
            assert (sorted(lines[-1]["examined"]), lines[-1]["unread"]) == (sorted(names), [])


@dataclass(frozen=True, slots=True)
class Described:
    """The hosts, of which the account may do all, and one is described further."""

    lab: RiakHosts
    first: dict[str, Any]

    def cluster_document(self) -> dict[str, Any]:
        """The content of the cluster file."""
        return self.lab.cluster_document("tuner", {"riak1": self.first})


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[RiakHosts]:
    """One host whose kernel, which is the machine's, may be written to; it is put back."""
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    docker.require_engine()
    with (
        alone(LOCK, print),  # its hosts have the same kernel
        kernel.kept(build(print), print),
        riak_hosts(request, hosts=1) as lab,
    ):
        lab.exec("riak1", "mount -o remount,rw /sys && mount -o remount,bind,rw /proc/sys")
        lab.exec("riak1", "; ".join(f"echo {value} > {path}" for path, value in SYSTEM.items()))
        yield lab


def standing(lab: RiakHosts) -> tuple[str, str]:
    """Every file below /etc with its content's sum, and the kernel's values."""
    files = "find /etc -type f -print0 | sort -z | xargs -0 sha256sum"
    return lab.exec("riak1", files), lab.exec("riak1", f"grep . {' '.join(SYSTEM)}")


def drift(lines: Lines) -> set[str]:
    return {line["tunable"] for line in events(lines, "tunable") if line["verdict"] == "drift"}


@pytest.mark.docker
@pytest.mark.timeout(2400)
def test_the_shipped_profile_sets_a_host_right_and_is_reverted(host: RiakHosts, tmp_path: Path) -> None:
    # A container's files lie on a disk that cannot be seen from inside it: memory has none to set.
    unit = {"service": {"manager": "systemd", "unit": "riak"}, "data": ["/run"]}
    lab = Described(host, unit)
    before, born = standing(host), host.pids()
    processors = int(host.exec("riak1", "nproc"))
    fewer = processors - processors // 6

    def asked(*words: str, codes: tuple[int, ...] = (DONE,)) -> Lines:
        code, lines = orchestrate(lab, tmp_path, *words, playbook=BOOK)
        assert code in codes, lines[-3:]
        return lines

    lines = asked("diagnose", "--sample", "2s", codes=(DONE, DRIFT))  # its findings are this machine's own
    assert (lines[-1]["examined"], lines[-1]["unread"]) == (["riak@riak1"], [])
    check = ("tune check", "--profile", "riak")
    wrong = drift(asked(*check, codes=(DRIFT,)))
    assert wrong == OF_KERNEL | {"limits.nofile", "erlang.schedulers"}
    lines = asked("tune apply", "--profile", "riak")
    assert {line["tunable"] for line in events(lines, "tuning_applied")} == wrong
    conf = host.exec("riak1", "cat", CONF)
    assert f"erlang.schedulers.total = {fewer}\nerlang.schedulers.online = {fewer}\n" in conf
    assert host.schedulers("riak1") == f"[smp:{SCHEDULERS}:{SCHEDULERS}]", "it applies from the next start on"
    assert drift(asked(*check)) == set()
    asked("tune revert")
    assert standing(host) == before
    assert host.pids() == born
    assert drift(asked(*check, codes=(DRIFT,))) == wrong
