"""`tune` and `diagnose` on Riak's hosts over SSH: of nodes that are down too, and a whole host set right.

The nodes are those of the test double; files, kernel and services of the host are real.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.fixtures_riak_hosts import kept_hosts
from tests.integration.hostlab import docker, kernel
from tests.integration.hostlab.projects import alone
from tests.integration.hostlab.running import LOCK
from tests.integration.mistuned import WRONG
from tests.integration.operating import PROGRAM
from tests.integration.riak_operating import RiakOperator, pids
from tests.integration.riak_processes import RiakProcesses, riak_processes
from tests.integration.riaklab.images import build
from tests.integration.riaklab.running import SCHEDULERS
from tests.riak_nodes import RIAK_COMMANDS, name_of

if TYPE_CHECKING:
    from tests.integration.riaklab.hosts import RiakHosts

NODES = {f"dev{number}@127.0.0.1" for number in (1, 2, 3)}
SECONDS = 120.0
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
DONE, DRIFT = 0, 3


@pytest.fixture(params=RIAK_COMMANDS, ids=name_of)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RiakProcesses]:
    with riak_processes(tmp_path / "lab", 3, pace=0.02, ring_size=16, command=request.param) as lab:
        yield lab


def on_nodes(lab: RiakProcesses, folder: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Ask about nodes that are processes."""
    file = folder / "lab.yml"
    file.write_text(json.dumps(lab.cluster_document()), encoding="utf-8")
    return orchestrate(file, *words)


def orchestrate(file: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Its exit code, its JSON lines and what it said beside them."""
    folder = file.parent
    done = subprocess.run(  # noqa: S603  (the program under test)
        [*PROGRAM, *words, "--cluster", str(file), "--output", "json"],
        env={**os.environ, "HOME": str(folder), "ORCHESTRATE_STATE": f"sqlite:///{folder}/state.db"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_hosts_are_checked_and_sampled_with_nodes_down(lab: RiakProcesses, tmp_path: Path) -> None:
    for down in (lab.nodes[1:2], lab.nodes):
        for node in down:
            node.end()
        _, lines, said = on_nodes(lab, tmp_path, "tune", "check", "--profile", "riak")
        checked = {line["node"] for line in lines if line["event"] == "tunable"}
        assert (checked, lines[-1]["hosts"], lines[-1]["unreachable"]) == (NODES, 3, []), said
        assert "no node of the cluster is called so" not in said
        code, lines, said = on_nodes(lab, tmp_path, "diagnose", "--sample", "1s")
        assert code in (0, 3), said  # what this machine suffers from is its own affair
        assert "read 3 of 3 hosts" in said
        assert lines[-1]["unread"] == []


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[RiakHosts]:
    """One host whose kernel, which is the machine's, may be written to; it is put back."""
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    docker.require_engine()
    with (
        alone(LOCK, print),  # its hosts have the same kernel
        kernel.kept(build(print), print),
        kept_hosts(request, hosts=1, formed=True, pace=0.05) as lab,
    ):
        lab.exec("riak1", "mount -o remount,rw /sys && mount -o remount,bind,rw /proc/sys")
        lab.exec("riak1", "; ".join(f"echo {value} > {path}" for path, value in SYSTEM.items()))
        yield lab


def standing(lab: RiakHosts) -> tuple[str, str]:
    """Every file below /etc with its content's sum, and the kernel's values."""
    files = "find /etc -type f -print0 | sort -z | xargs -0 sha256sum"
    return lab.exec("riak1", files).stdout, lab.exec("riak1", f"grep . {' '.join(SYSTEM)}").stdout


def drift(lines: list[dict[str, Any]]) -> set[str]:
    return {line["tunable"] for line in lines if line["event"] == "tunable" and line["verdict"] == "drift"}


@pytest.mark.docker
@pytest.mark.part(name="riak")  # a minute; the same is done on hosts of the other kind in make test
def test_the_shipped_profile_sets_a_host_right_and_is_taken_back(host: RiakHosts, tmp_path: Path) -> None:
    operator = RiakOperator(folder=tmp_path, lab=host, user="tuner")
    # A container's files lie on a disk that cannot be seen from inside it: memory has none to set.
    unit = {"service": {"manager": "systemd", "unit": "riak"}, "data": ["/run"]}
    operator.write(overrides={"riak1": unit})
    before, born = standing(host), pids(host)
    processors = int(host.exec("riak1", "nproc").stdout)
    fewer = processors - processors // 6

    def asked(*words: str) -> tuple[int, list[dict[str, Any]], str]:
        code, lines, said = orchestrate(operator.file, *words)
        summary = {key: value for key, value in lines[-1].items() if key not in {"ts", "run", "event"}}
        print(f"\n  {' '.join(words)}: exit {code} {summary}")  # noqa: T201  (with `-s`: what this shows)
        for line in (each for each in lines if each.get("verdict") == "drift"):
            print(f"    {line['tunable']}: {line['running']}, not {line['wanted']}")  # noqa: T201  (as above)
        return code, lines, said

    code, lines, said = asked("diagnose", "--sample", "2s")
    assert code in (DONE, DRIFT), said  # what this machine suffers from is its own affair
    assert (lines[-1]["examined"], lines[-1]["unread"]) == (["riak@riak1"], [])
    code, lines, said = asked("tune", "check", "--profile", "riak")
    assert code == DRIFT, said
    wrong = drift(lines)
    assert wrong == OF_KERNEL | {"limits.nofile", "erlang.schedulers"}

    code, lines, said = asked("tune", "apply", "--profile", "riak", "--yes")
    assert code == DONE, said
    assert {line["tunable"] for line in lines if line["event"] == "tuning_applied"} == wrong
    conf = host.exec("riak1", "cat", CONF).stdout
    assert f"erlang.schedulers.total = {fewer}\nerlang.schedulers.online = {fewer}\n" in conf
    assert f"[smp:{SCHEDULERS}:{SCHEDULERS}]" in host.stats("riak1")["sys_system_version"]
    assert "erlang.schedulers: applies to processes that start from now on" in said
    code, lines, said = asked("tune", "check", "--profile", "riak")
    assert (code, drift(lines)) == (DONE, set()), said

    code, lines, said = asked("tune", "revert", "--yes")
    assert code == DONE, said
    assert standing(host) == before
    assert pids(host) == born
    code, lines, said = asked("tune", "check", "--profile", "riak")
    assert (code, drift(lines)) == (DRIFT, wrong), said
