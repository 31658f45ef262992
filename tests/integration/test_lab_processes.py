"""The lab itself, on real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab import leftovers, nodectl
from tests.lab.distributions import cache_folder
from tests.lab.errors import LabError, LabNodeError
from tests.lab.layout import THREE_ZONES
from tests.lab.load import Load, LoadProfile
from tests.lab.nodes import LabCluster
from tests.lab.reset import read_settings, reset
from tests.lab.security import LabUser, Security
from tests.lab.seed import SeedIndex, seed

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]

QUICKEST = "opensearch-2.19.0"


def run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)  # noqa: S603  (the lab's script)


def gone(pid: int) -> bool:
    return nodectl.start_time(pid) is None


def test_no_acknowledged_document_is_lost_while_a_node_restarts(process_cluster: ProcessCluster) -> None:
    cluster = process_cluster("9.1.0")
    seed(cluster.client, [SeedIndex(name="posts", documents=500)])
    before = cluster.pids()
    with Load(cluster.access, LoadProfile(documents_per_second=400)) as load:
        load.wait_acknowledged(200)
        assert run(cluster.nodectl("stop", "es2")).returncode == 0
        assert run(cluster.nodectl("status", "es2")).returncode == nodectl.NOT_RUNNING
        at_stop = load.result().acknowledged
        assert run(cluster.nodectl("start", "es2")).returncode == 0
        at_start = load.result().acknowledged
        cluster.wait_ready(status="green")
    result, verified = load.result(), load.verify()
    assert at_start > at_stop, "nothing was indexed while the node was away: the load proves nothing"
    assert result.searching.failed + result.indexing.failed > 0, "no request met the node that was away"
    assert result.searching.abandoned == 0
    assert verified.acknowledged == result.acknowledged
    assert verified.missing == ()
    assert verified.duplicated == ()
    after = cluster.pids()
    assert after["es2"] != before["es2"]
    assert {name: after[name] for name in ("es1", "es3")} == {name: before[name] for name in ("es1", "es3")}


def test_the_verification_names_a_document_that_went_missing(process_cluster: ProcessCluster) -> None:
    cluster = process_cluster(QUICKEST)
    with Load(cluster.access) as load:
        load.wait_acknowledged(40)
    cluster.client.ask("DELETE", "/load/_doc/d000000007")
    assert load.verify().missing == ("d000000007",)


def test_a_reset_leaves_nothing_of_the_last_test(process_cluster: ProcessCluster) -> None:
    cluster = process_cluster(QUICKEST)
    client = cluster.client
    fresh = read_settings(client)
    seed(client, [SeedIndex(name="posts", documents=10)])
    client.ask(
        "PUT", "/_cluster/settings", {"persistent": {"cluster.routing.allocation.enable": "primaries"}}
    )
    assert read_settings(client) == {
        **fresh,
        ("persistent", "cluster.routing.allocation.enable"): "primaries",
    }
    cluster.stop_nodes(["es3"])
    reset(cluster)
    assert read_settings(client) == fresh
    assert client.ask("GET", "/_cluster/health")["active_primary_shards"] == 0
    assert set(cluster.pids()) == {"es1", "es2", "es3"}


def test_a_node_that_cannot_start_says_why(process_cluster: ProcessCluster) -> None:
    cluster = process_cluster(QUICKEST)
    cluster.stop_nodes(["es1"])
    cluster.configure("es1", {"no.such.setting": "1"})
    with pytest.raises(LabNodeError, match=r"no\.such\.setting"):
        cluster.start_nodes(["es1"])
    assert run(cluster.nodectl("status", "es1")).returncode == nodectl.NOT_RUNNING


def test_the_commands_of_the_cluster_file_restart_a_node(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    cluster = process_cluster(QUICKEST)
    document = json.loads(cluster.write_cluster_file(tmp_path / "lab.yml").read_text())
    service = document["hosts"]["service"]
    before = cluster.pids()["es3"]
    for verb in ("stop", "start", "status"):
        line = service[verb].replace("{node}", "es3")
        assert subprocess.run(line, shell=True, timeout=200, check=False).returncode == 0  # noqa: S602  (what the file says is the test)
    assert cluster.pids()["es3"] != before
    assert cluster.client.ask("GET", "/_cluster/health")["cluster_name"] == document["name"]


def test_nodectl_starts_nothing_twice_and_knows_no_strangers(process_cluster: ProcessCluster) -> None:
    cluster = process_cluster(QUICKEST)
    before = cluster.pids()
    again = run(cluster.nodectl("start", "es1"))
    assert (again.returncode, again.stdout) == (0, "es1 is already running\n")
    assert cluster.pids() == before
    stranger = run(cluster.nodectl("stop", "es9"))
    assert stranger.returncode == 2
    assert "es1, es2, es3" in stranger.stderr


def test_tls_and_users(process_cluster: ProcessCluster) -> None:
    security = Security(users=(LabUser(name="lab", password="lab-password"),))  # noqa: S106  (made for this cluster)
    cluster = process_cluster("9.1.0", security=security)
    assert all(endpoint.startswith("https://") for endpoint in cluster.endpoints)
    assert cluster.client.ask("GET", "/_security/_authenticate")["username"] == "lab"


def test_close_leaves_no_process_and_no_folder() -> None:
    with LabCluster.start(version=QUICKEST, nodes=THREE_ZONES[:1]) as cluster:
        pids, directory = cluster.pids(), cluster.directory
        assert len(pids) == 1
        assert Path(f"/proc/{pids['es1']}").stat().st_uid != 0
    assert all(gone(pid) for pid in pids.values())
    assert not directory.exists()


def test_the_next_sweep_ends_the_nodes_of_a_killed_owner() -> None:
    script = textwrap.dedent(
        f"""
        import json, signal, sys
        from tests.lab.layout import THREE_ZONES
        from tests.lab.nodes import LabCluster
        cluster = LabCluster.start(version="{QUICKEST}", nodes=THREE_ZONES[:1])
        print(json.dumps([str(cluster.directory), list(cluster.pids().values())]), flush=True)
        signal.pause()
        """
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: S603  (our own)
    try:
        assert owner.stdout is not None
        directory, pids = json.loads(owner.stdout.readline())
        assert Path(directory) not in leftovers.sweep(cache_folder()), (
            "a lab whose owner lives is not to be touched"
        )
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
        owner.stdout.close()
        assert not any(gone(pid) for pid in pids)
    finally:
        owner.kill()
        owner.wait(10)
        swept = leftovers.sweep(cache_folder())
    assert Path(directory) in swept
    assert all(gone(pid) for pid in pids)
    assert not Path(directory).exists()


def test_a_folder_that_the_nodes_cannot_enter_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user's nodes run as that user, who can enter its own folders")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(LabError, match="cannot enter"):
        LabCluster.start(version=QUICKEST, directory=closed / "lab")
    assert not (closed / "lab").exists()
