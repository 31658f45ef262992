"""24 nodes on one host, by both ways of SSH: a zone is restarted, and its host checked, with no Unknown."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import Console
from tests.integration.big_hosts import ZONES, BigHosts
from tests.integration.sshd import Sshd, make_key
from tests.integration.zoning import story, waves


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
