"""24 nodes on one host, by both ways of SSH: a zone is restarted, and its host checked, with no Unknown."""

from __future__ import annotations

import getpass
import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import Answerer, Asked, Wire, reply
from tests.integration.script_service import ScriptService
from tests.integration.sshd import Sshd, make_key
from tests.integration.zoning import story, waves
from tests.lab import nodectl

ZONES = {zone: tuple(f"{zone}{number:02d}" for number in range(24)) for zone in "ab"}
VOTERS = ZONES["b"][:3]
_LIVES = re.compile(r"/_nodes/([^/]+)/jvm,http,settings,plugins")


class _Answers(dict[str, list[Answerer]]):
    """Answers by path; nodes may be asked for in any combination."""

    def __init__(self, known: dict[str, list[Answerer]], cluster: BigHosts) -> None:
        super().__init__(known)
        self._cluster = cluster

    def get(self, key: str, default: Any = None) -> Any:
        if found := _LIVES.fullmatch(key):
            return [self._cluster.told(found[1].split(","))]
        return super().get(key) or default


class BigHosts(SmallCluster):
    """The cluster as its nodes tell of it. Use as a context manager; its services end with it.

    Args:
        folder: of the services.
        sshds: of the hosts, by zone; one key logs in to both.
        known_hosts: with their keys.
    """

    def __init__(self, folder: Path, sshds: Mapping[str, Sshd], known_hosts: Path) -> None:
        self.service = ScriptService(folder=folder).install()
        self._sshds, self._known_hosts = sshds, known_hosts
        super().__init__((*ZONES["b"], *ZONES["a"]), version="9.1.0")
        self.answers = _Answers(self.answers, self)
        self.on("/_cluster/health", self._health)
        for name in self.nodes.values():
            script = str(folder / "service")
            subprocess.run([script, "start", name], check=True, capture_output=True)  # noqa: S603  (our own)

    def close(self) -> None:
        super().close()
        self.service.end()

    def told(self, wanted: list[str]) -> Answerer:
        """What these nodes tell of themselves."""
        return reply({"nodes": {node: told for node, told in self._http().items() if node in wanted}})

    def file(self, folder: Path, connect: str) -> str:
        """The cluster file; its path."""
        service = self.service.settings()
        ports = {name: self._sshds[zone].port for zone, names in ZONES.items() for name in names}
        return self.write_file(
            folder,
            zone_attribute="zone",
            hosts={
                "connect": connect,
                "user": getpass.getuser(),
                "identity": str(self._sshds["a"].client_key),
                "known_hosts": str(self._known_hosts),
                "service": {
                    "manager": "command",
                    "stop": service.stop,
                    "start": service.start,
                    "status": service.status,
                },
                "overrides": {name: {"address": "127.0.0.1", "port": port} for name, port in ports.items()},
            },
        )

    def _there(self) -> dict[str, str]:
        return {node: name for node, name in self.nodes.items() if self._life(name)}

    def _life(self, name: str) -> int:
        """The process's id; 0 = it is down."""
        pid = self.service.pid(name)
        return pid if pid is not None and nodectl.start_time(pid) is not None else 0

    def _roles(self, name: str) -> list[str]:
        return ["master", "data"] if name in VOTERS else ["data"]

    def _attributes(self, name: str) -> dict[str, str]:
        return {"zone": next(zone for zone, names in ZONES.items() if name in names)}

    def _health(self, asked: Asked, wire: Wire) -> None:
        health: dict[str, Any] = {
            "status": "green",
            "timed_out": False,
            "number_of_nodes": len(self._there()),
        }
        counts = ("active", "initializing", "relocating", "unassigned")
        health |= dict.fromkeys((f"{what}_shards" for what in counts), 0)
        reply(health | {"number_of_pending_tasks": 0, "task_max_waiting_in_queue_millis": 0})(asked, wire)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[BigHosts]:
    key = make_key(tmp_path / "id")
    sshds = {
        zone: Sshd(folder=tmp_path / f"sshd-{zone}", client_key=key, options=("MaxSessions 10",)).start()
        for zone in ZONES
    }
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("".join(sshd.known() for sshd in sshds.values()))
    try:
        with BigHosts(tmp_path / "service", sshds, known_hosts) as running:
            yield running
    finally:
        for sshd in sshds.values():
            sshd.stop()


@pytest.fixture
def console(tmp_path: Path) -> Console:
    for name in ("home", "folder"):
        (tmp_path / name).mkdir()
    return Console(home=tmp_path / "home", folder=tmp_path / "folder")


@pytest.mark.parametrize("connect", ["ssh", "openssh"])
def test_a_zone_of_24_nodes_on_one_host(hosts: BigHosts, console: Console, connect: str) -> None:
    file = hosts.file(console.folder, connect)
    checked = console.run("tune", "check", "--cluster", file, "--output", "json")
    told = [line for line in checked.lines if line["event"] == "tunable"]
    assert {line["node"] for line in told} == {*ZONES["a"], *ZONES["b"]}, checked.err
    assert [line for line in told if line["verdict"] == "unknown"] == []

    words = ("--strategy", "zone", "--zone", "a", "--yes", "--output", "json")
    run = console.run("restart", "--cluster", file, *words)
    assert run.code == 0, story(run.out) + run.err
    assert waves(run.out) == [ZONES["a"]], story(run.out)
    for name in ZONES["a"]:
        assert (hosts.service.stops(name), hosts.service.starts(name)) == (["begun", "ended"], 2), name
        assert len(hosts.service.processes(name)) == 1
    assert {hosts.service.starts(name) for name in ZONES["b"]} == {1}
    assert [event for event in journal(console) if "unknown" in json.dumps(event).lower()] == []


def journal(console: Console) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{console.state}?mode=ro", uri=True)) as state:
        return [json.loads(text) for (text,) in state.execute("select event from events order by sequence")]
