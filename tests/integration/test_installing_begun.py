"""How an install step is begun on a real host: as whom, with what input, and what keeps it from beginning."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts import exclusion, installing
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings, Sudo
from orchestrator.model.action import Done, Refused, RunInstall, StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView
from orchestrator.model.upgrade import InstallState, InstallStep, InstallView
from orchestrator.redact import Redactor
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import PATIENCE
from tests.integration.script_service import ScriptService

N1 = NodeName("n1")
SECRET = "hunter22"  # noqa: S105  (of a test)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptService]:
    made = ScriptService(folder=tmp_path / "service").install()
    yield made
    made.end()


@pytest.fixture
def settings(service: ScriptService) -> HostSettings:
    return HostSettings(node=N1, address="localhost", connect=Connect.LOCAL, service=service.settings())


@pytest.fixture
def hosts(settings: HostSettings) -> Iterator[Hosts]:
    with closing(Hosts({N1: settings}, redact=Redactor([SECRET]))) as port:
        yield port


def step(line: str, *, as_root: bool = False) -> RunInstall:
    made = InstallStep(run=line, as_root=as_root)
    return RunInstall(node=N1, number=0, step=made, ticket="run-1/n1/0/1", target="9.1.0", installed=None)


def recorded(hosts: Hosts) -> InstallView | None:
    reading = hosts.observe([N1], rights=False)[N1]
    assert isinstance(reading, HostView), reading
    return reading.install


def ended(hosts: Hosts) -> InstallView:
    seen: list[InstallView | None] = []

    def over() -> bool:
        seen.append(recorded(hosts))
        return seen[-1] is not None and seen[-1].state is not InstallState.RUNNING

    assert wait_until(over, seconds=PATIENCE)
    view = seen[-1]
    assert view is not None
    return view


def test_what_a_step_prints_is_free_of_secrets(hosts: Hosts) -> None:
    """It is journalled, and is in the message of a run that ends by it."""
    hosts.perform(step(f"echo fetched from https://ops:{SECRET}@mirror; echo password={SECRET}x; exit 7"))
    view = ended(hosts)
    assert view.state is InstallState.FAILED
    assert "password=" in view.said
    assert SECRET not in view.said


def test_a_beginning_leaves_no_file_of_its_own(hosts: Hosts, settings: HostSettings) -> None:
    hosts.perform(step("true"))
    assert ended(hosts).state is InstallState.DONE
    script = f'{exclusion.with_lock(settings)}\necho "$lock"'
    lock = subprocess.run(["/bin/sh", "-c", script], text=True, capture_output=True, check=True)  # noqa: S603  (its own script)
    place = Path(lock.stdout.strip())
    assert [one.name for one in place.parent.glob(f"{place.name}.install.begin*")] == []


def test_a_step_waits_for_no_start(hosts: Hosts, service: ScriptService) -> None:
    """The reading that allowed it would be out of date."""
    service.start_takes(8)
    assert isinstance(hosts.perform(StartNode(node=N1)), Done)
    began = time.monotonic()
    result = hosts.perform(step("true"))
    assert isinstance(result, Refused), result
    assert "is held by its start" in result.reason
    assert result.passes
    assert time.monotonic() - began < 8
    assert recorded(hosts) is None


def test_a_step_that_cannot_be_recorded_is_not_begun(
    hosts: Hosts, settings: HostSettings, tmp_path: Path
) -> None:
    """Nobody would know that it ran: a full disk, for one."""
    script = f'{exclusion.with_lock(settings)}\necho "$lock"'
    lock = subprocess.run(["/bin/sh", "-c", script], text=True, capture_output=True, check=True)  # noqa: S603  (its own script)
    bars = Path(f"{lock.stdout.strip()}.install.new")
    bars.mkdir()
    try:
        result = hosts.perform(step(f"touch {tmp_path}/begun"))
    finally:
        bars.rmdir()
    assert isinstance(result, Refused), result
    assert not (tmp_path / "begun").exists()
    assert recorded(hosts) is None


_SUDO = """#!/bin/sh
echo "$*" >>{log}
while [ $# -gt 0 ]; do case $1 in -p) shift 2 ;; -*) shift ;; *) break ;; esac; done
exec "$@"
"""
"""A rule with NOPASSWD: it reads no password, whatever stands on its input."""


@pytest.mark.parametrize(
    ("sudo", "as_root", "words"),
    [
        (Sudo.PASSWORD, True, "-k -S -p  sh -c"),
        (Sudo.PASSWORDLESS, True, "-n sh -c"),
        (Sudo.PASSWORDLESS, False, None),
        (Sudo.OFF, True, None),
    ],
)
def test_a_step_is_roots_and_gets_no_password(
    hosts: Hosts, settings: HostSettings, tmp_path: Path, sudo: Sudo, words: str | None, *, as_root: bool
) -> None:
    """A step that reads its input must not find the password there, and record it."""
    log, folder = tmp_path / "log", tmp_path / "bin"
    folder.mkdir()
    (folder / "sudo").write_text(_SUDO.format(log=log))
    (folder / "sudo").chmod(0o755)
    asked = replace(settings, sudo=sudo, sudo_password=lambda: SECRET)
    action = step("cat; echo read", as_root=as_root)
    subprocess.run(  # noqa: S603  (its own script)
        ["/bin/sh", "-c", installing.begin_script(action, asked)],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        input=installing.stdin(action, asked) or "",
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert ended(hosts) == InstallView(ticket=action.ticket, state=InstallState.DONE, said="read")
    called = log.read_text() if log.exists() else None
    assert called == words if words is None else words in (called or "")
