"""A hostile text in a field of a cluster's answers, and each place where a command could bring it out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.untrusted import visible
from tests.cli.console import Console
from tests.cli.hostile import HOSTILE, PASSWORD, evil
from tests.fakes.recorded_cluster import Planted, RecordedCluster, fields

VERSION = "9.1.0"
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" >> "$HOME/arguments"
echo 'deploy@host: Permission denied (publickey).' >&2
exit 255
"""
"""What runs instead of `ssh`: it notes its arguments."""
COMMANDS = (
    ("validate",),
    ("plan",),
    ("plan", "--output", "json"),
    ("diagnose", "--sample", "1s"),
    ("restart", "--dry-run"),
)
RUN = (("restart", "--yes"), ("status",), ("history",))
"""Where the cluster can be read: elsewhere a run waits a minute for its lease."""
A_FEW = (
    Planted(recording="settled.state", field=("nodes", "Hd50fHRjRNmFA67choVO7Q", "name"), text=HOSTILE),
    Planted(
        recording="settled.state",
        field=("nodes", "Hd50fHRjRNmFA67choVO7Q", "transport_address"),
        text=HOSTILE,
    ),
    Planted(
        recording="settled.settings",
        field=("transient", "cluster.routing.allocation.exclude._name"),
        text=HOSTILE,
    ),
)


@pytest.fixture
def attacked(console: Console) -> Console:
    """A console whose `ssh` notes its arguments."""
    bin_folder = console.home / "bin"
    bin_folder.mkdir()
    (bin_folder / "ssh").write_text(STAND_IN)
    (bin_folder / "ssh").chmod(0o755)
    path = f"{bin_folder}:{console.variables()['PATH']}"
    return replace(console, environment={"ES_PASSWORD": PASSWORD, "PATH": path})


def written(console: Console, url: str) -> str:
    book = console.folder / "book.yml"
    book.write_text(json.dumps({"kind": "elasticsearch", "deadlines": {"hold": "1s"}}))
    document = {
        "kind": "elasticsearch",
        "name": "lab",
        "endpoints": [url],
        "auth": {"basic": {"username": "orch", "password": "env:ES_PASSWORD"}},
        "playbook": str(book),
        "hosts": {"connect": "openssh", "user": "deploy"},
    }
    file = console.folder / "lab.yml"
    file.write_text(json.dumps(document))
    return str(file)


def attack(console: Console, planted: Planted, *more: tuple[str, ...]) -> list[str]:
    """Every command once, with the text planted, and these too; what came out."""
    found = []
    with RecordedCluster(VERSION) as server:
        server.planted = planted
        file = written(console, server.url)
        for command in (*COMMANDS, *more):
            named = command if command[0] in {"status", "history"} else (*command, "--cluster", file)
            said = console.run(*named)
            found += [f"{planted}, {' '.join(command)}: {one}" for one in evil(console, said)]
        new = console.folder / "new.yml"
        login = ("--username", "orch", "--password", "env:ES_PASSWORD", "--connect", "openssh")
        said = console.run("init", "--out", str(new), "--endpoint", server.url, *login)
        found += [f"{planted}, init: {one}" for one in evil(console, said)]
        if new.exists():
            found += [f"{planted}: {one!r}" for one in new.read_text().splitlines() if visible(one) != one]
            new.unlink()
    return found


@pytest.mark.parametrize("planted", A_FEW, ids=str)
def test_a_hostile_text_comes_out_nowhere(attacked: Console, planted: Planted) -> None:
    assert not attack(attacked, planted, *RUN)


@pytest.mark.part(name="long")
def test_no_field_brings_a_hostile_text_out(attacked: Console) -> None:
    found = []
    for recording, field in fields(VERSION):
        found += attack(attacked, Planted(recording=recording, field=field, text=HOSTILE))
    assert not found, "\n".join(found)
