"""Riak's commands over the host port: what is taken for an output, and what goes through sudo."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator.hosts.port import Hosts
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.riak.admin import AdminCommand
from orchestrator.riak.output import CommandOutput
from orchestrator.runs.reach import HostRunner

RIAK1 = NodeName("riak@riak1")
PASSWORD = "correct horse"  # noqa: S105  (of the stand-in)
_SUDO = """#!/bin/sh
echo "$*" >>{folder}/sudo.log
while :; do case $1 in -n|-k|-S) shift ;; -p) shift 2 ;; *) break ;; esac; done
case "$(tail -n 1 {folder}/sudo.log)" in *-S*) read -r given; echo "$given" >{folder}/given ;; esac
exec "$@"
"""


def runner(folder: Path, **changes: object) -> Iterator[HostRunner]:
    sudo = folder / "sudo"
    sudo.write_text(_SUDO.format(folder=folder))
    sudo.chmod(0o755)
    values: dict[str, object] = {
        "node": RIAK1,
        "address": "localhost",
        "connect": Connect.LOCAL,
        "environment": {"PATH": f"{folder}:{os.environ['PATH']}"},
    }
    hosts = Hosts({RIAK1: HostSettings(**{**values, **changes})})
    yield HostRunner(lambda _node: hosts)
    hosts.close()


@contextlib.contextmanager
def running(folder: Path, **changes: object) -> Iterator[HostRunner]:
    yield from runner(folder, **changes)


def script(folder: Path, text: str) -> str:
    path = folder / "riak"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def logged(folder: Path) -> list[str]:
    file = folder / "sudo.log"
    return file.read_text().splitlines() if file.exists() else []


def test_an_output_is_kept_as_it_came_with_its_exit_code(tmp_path: Path) -> None:
    riak = script(tmp_path, 'printf "%s|" "$@"; printf "a\\n\\n"; echo b >&2; exit 3')
    with running(tmp_path) as run:
        done = run.run(RIAK1, AdminCommand(argv=(riak, "admin", "transfers")))
    assert done == CommandOutput(exit=3, stdout="admin|transfers|a\n\n", stderr="b\n")
    assert logged(tmp_path) == []


def test_only_what_needs_roots_rights_goes_through_sudo(tmp_path: Path) -> None:
    riak = script(tmp_path, "echo pong")
    with running(tmp_path, sudo=Sudo.PASSWORDLESS) as run:
        assert run.run(RIAK1, AdminCommand(argv=(riak, "ping"))) == CommandOutput(exit=0, stdout="pong\n")
        assert logged(tmp_path) == [f"-n {riak} ping"]
        run.run(RIAK1, AdminCommand(argv=(riak, "x"), as_root=False))
        assert logged(tmp_path) == [f"-n {riak} ping"]


def test_a_password_goes_to_standard_input_alone(tmp_path: Path) -> None:
    riak = script(tmp_path, "echo pong")
    secret = {"sudo": Sudo.PASSWORD, "sudo_password": lambda: PASSWORD}
    with running(tmp_path, **secret) as run:
        assert run.run(RIAK1, AdminCommand(argv=(riak, "ping"))) == CommandOutput(exit=0, stdout="pong\n")
    assert (tmp_path / "given").read_text() == f"{PASSWORD}\n"
    assert len(logged(tmp_path)) == 1
    assert PASSWORD not in logged(tmp_path)[0]
