"""Install steps on a real host: they outlive this program, run once, and keep starts away."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.hosts import exclusion, installing
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings
from orchestrator.model.action import ActionResult, Done, Refused, RunInstall, StartNode, StopNode
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.upgrade import InstallState, InstallStep, InstallView, Upgrade
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import PATIENCE
from tests.integration.script_service import ScriptService
from tests.tools import SHELLS, shell_words


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptService]:
    made = ScriptService(folder=tmp_path / "service").install()
    yield made
    made.end()


def settings_of(service: ScriptService) -> HostSettings:
    return HostSettings(node="n1", address="localhost", connect=Connect.LOCAL, service=service.settings())


@pytest.fixture
def settings(service: ScriptService) -> HostSettings:
    return settings_of(service)


@pytest.fixture
def hosts(settings: HostSettings) -> Iterator[Hosts]:
    with closing(Hosts({"n1": settings})) as port:
        yield port


def step(
    line: str, *, ticket: str = "run-1/n1/0/1", number: int = 0, installed: str | None = None
) -> RunInstall:
    made = InstallStep(run=line, as_root=False)
    return RunInstall(node="n1", number=number, step=made, ticket=ticket, target="9.1.0", installed=installed)


def recorded(hosts: Hosts) -> InstallView | None:
    reading = hosts.observe(["n1"], rights=False)["n1"]
    assert isinstance(reading, HostView), reading
    return reading.install


def state(hosts: Hosts) -> InstallState | None:
    view = recorded(hosts)
    return view.state if view else None


def ended(hosts: Hosts) -> InstallView:
    assert wait_until(lambda: state(hosts) is not InstallState.RUNNING, seconds=PATIENCE)
    view = recorded(hosts)
    assert view is not None
    return view


def test_a_step_is_begun_and_its_end_recorded(hosts: Hosts, tmp_path: Path) -> None:
    assert recorded(hosts) is None
    log = tmp_path / "log"
    line = f"echo {{version}} on {{node}} >>{log}; sleep 1; echo installed"
    assert isinstance(hosts.perform(step(line)), Done)
    assert state(hosts) is InstallState.RUNNING
    assert ended(hosts) == InstallView(ticket="run-1/n1/0/1", state=InstallState.DONE, said="installed")
    assert isinstance(hosts.perform(step(line)), Done)
    assert state(hosts) is InstallState.DONE
    assert log.read_text() == "9.1.0 on n1\n"


def test_one_that_fails_says_how(hosts: Hosts) -> None:
    hosts.perform(step("echo unpacking; echo no space left >&2; exit 7"))
    assert ended(hosts) == InstallView(
        ticket="run-1/n1/0/1", state=InstallState.FAILED, said="exit 7: no space left"
    )


@pytest.mark.proves("installs-apart")
def test_a_ticket_is_begun_once_and_another_one_again(hosts: Hosts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = f"echo begun >>{log}; exit 1"
    for ticket in ("run-1/n1/0/1", "run-1/n1/0/1", "run-1/n1/0/2"):
        assert isinstance(hosts.perform(step(line, ticket=ticket)), Done)
        assert ended(hosts).ticket == ticket
    assert log.read_text().split() == ["begun", "begun"]


def test_what_is_on_the_disk_is_not_installed(hosts: Hosts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = step(f"echo begun >>{log}", installed="test {version} = 9.1.0")
    assert isinstance(hosts.perform(found), Done)
    assert ended(hosts).state is InstallState.FOUND
    assert not log.exists()
    missing = step(f"echo begun >>{log}", ticket="run-1/n1/0/2", installed="test {version} = 9.2.0")
    assert isinstance(hosts.perform(missing), Done)
    assert ended(hosts).state is InstallState.DONE
    assert log.read_text() == "begun\n"


def refusal(result: ActionResult) -> str:
    assert isinstance(result, Refused), result
    assert result.passes
    return result.reason


def test_while_a_step_runs_nothing_else_begins(hosts: Hosts, service: ScriptService, tmp_path: Path) -> None:
    """No start waits for it either: one that waits for an hour is sent at a moment that nobody chose."""
    go_on = tmp_path / "go-on"
    hosts.perform(step(f"until [ -e {go_on} ]; do sleep 0.1; done"))
    try:
        began = time.monotonic()
        for action in (StartNode(node="n1"), StopNode(node="n1"), step("true", ticket="run-2/n1/0/1")):
            assert "is held by its install since 2" in refusal(hosts.perform(action))
        assert time.monotonic() - began < PATIENCE
        assert service.starts("n1") == 0
        assert state(hosts) is InstallState.RUNNING
    finally:
        go_on.touch()
    assert ended(hosts).state is InstallState.DONE
    assert isinstance(hosts.perform(StartNode(node="n1")), Done)
    assert wait_until(lambda: service.starts("n1") == 1, seconds=PATIENCE)


def test_no_step_is_begun_beside_the_service(hosts: Hosts, service: ScriptService) -> None:
    """One that arrives late, after the node was started, would replace files that are in use."""
    hosts.perform(StartNode(node="n1"))
    assert wait_until(lambda: service.starts("n1") == 1, seconds=PATIENCE)
    view = hosts.observe(["n1"], rights=False)["n1"]
    assert isinstance(view, HostView)
    assert view.service is ServiceState.RUNNING
    result = hosts.perform(step("true"))
    assert isinstance(result, Refused)
    assert "its service runs" in result.reason
    assert recorded(hosts) is None


@pytest.mark.proves("installs-apart")
def test_a_step_outlives_the_program(settings: HostSettings, tmp_path: Path) -> None:
    """Its port is closed and all processes of the connection are gone; the next program reads the end."""
    log, go_on = tmp_path / "log", tmp_path / "go-on"
    line = f"echo begun >>{log}; until [ -e {go_on} ]; do sleep 0.1; done; echo ended >>{log}"
    with closing(Hosts({"n1": settings})) as first:
        assert isinstance(first.perform(step(line)), Done)
    with closing(Hosts({"n1": settings})) as second:
        assert state(second) is InstallState.RUNNING
        assert isinstance(second.perform(step(line)), Done)
        go_on.touch()
        assert ended(second).state is InstallState.DONE
    assert log.read_text().split() == ["begun", "ended"]


def test_one_that_was_killed_is_lost(hosts: Hosts, settings: HostSettings) -> None:
    hosts.perform(step("sleep 600"))
    holder = exclusion.read_holder(said(exclusion.holder_script(settings)))
    assert holder is not None
    assert holder.what == "install"
    os.kill(holder.pid, signal.SIGKILL)
    assert state(hosts) is InstallState.RUNNING, "its command still runs, and bars a start"
    work = exclusion.read_holder(said(exclusion.holder_script(settings)))
    assert work is not None
    os.killpg(work.pid, signal.SIGKILL)
    assert ended(hosts).state is InstallState.LOST


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("yes | head -c 3000000; echo end", "end"),
        ("cat; echo read", "read"),
        ("sleep 300 >/dev/null 2>&1 & echo $! ; echo left", "left"),
    ],
    ids=["prints much", "reads its input", "leaves a daemon"],
)
def test_whatever_a_step_does_it_ends(hosts: Hosts, line: str, says: str) -> None:
    hosts.perform(step(line))
    view = ended(hosts)
    assert view.state is InstallState.DONE
    assert view.said.splitlines()[-1] == says
    assert len(view.said) <= 1500
    for pid in [int(word) for word in view.said.split() if "left" in view.said and word.isdigit()]:
        os.kill(pid, signal.SIGTERM)


def test_without_a_lock_nothing_is_begun(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusion, "FOLDERS", (str(tmp_path / "absent"),))
    result = hosts.perform(step(f"touch {tmp_path}/begun"))
    assert isinstance(result, Refused)
    assert "no lock can be taken" in result.reason
    assert not (tmp_path / "begun").exists()


def said(line: str, shell: str = "/bin/sh") -> str:
    end = LocalConnection().run(f"{shell} -c {shlex.quote(line)}", timeout=PATIENCE)
    assert isinstance(end, CommandResult), end
    return end.stdout.strip()


@pytest.mark.parametrize("name", SHELLS)
def test_every_shell_begins_and_reads_it(settings: HostSettings, hosts: Hosts, name: str) -> None:
    shell = shlex.join(shell_words(name))
    said(installing.begin_script(step("echo well", ticket="run-1"), settings), shell)
    assert ended(hosts) == InstallView(ticket="run-1", state=InstallState.DONE, said="well")
    assert said(installing.record_script(settings), shell).splitlines() == ["run-1 0", "well"]


def test_a_host_says_whether_it_can_install(hosts: Hosts) -> None:
    wanted = Upgrade(
        target="9.1.0",
        install=(InstallStep(run="true"),),
        verify=("test {version} = 9.1.0", "echo no {version} for {node} here; exit 3"),
    )
    ready = hosts.readiness(["n1"], wanted)["n1"]
    assert not hasattr(ready, "reason"), ready
    assert ready.failed == (  # type: ignore[union-attr]  # a reading, by the line above
        "`echo no 9.1.0 for n1 here; exit 3` ended with 3: no 9.1.0 for n1 here",
    )
    assert ready.free_bytes  # type: ignore[union-attr]
