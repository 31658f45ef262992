"""Install steps that arrive late on a real host: none is begun after a later one, or beside the service."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator.hosts import exclusion, installing
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings, Manager, ServiceSettings
from orchestrator.model.action import ActionResult, Done, Refused, RunInstall, StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView
from orchestrator.model.upgrade import InstallState, InstallStep, InstallView
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import PATIENCE
from tests.integration.script_service import ScriptService

N1 = NodeName("n1")
ODD = NodeName("n 1; touch owned")
RUNS = "not begun: its service runs"


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
    with closing(Hosts({N1: settings})) as port:
        yield port


def step(ticket: str, line: str, node: NodeName = N1) -> RunInstall:
    made = InstallStep(run=line, as_root=False)
    return RunInstall(node=node, number=0, step=made, ticket=ticket, target="9.1.0", installed=None)


def ended(hosts: Hosts, node: NodeName = N1) -> InstallView:
    seen: list[InstallView] = []

    def over() -> bool:
        reading = hosts.observe([node], rights=False)[node]
        assert isinstance(reading, HostView), reading
        seen.extend([reading.install] if reading.install is not None else [])
        return bool(seen) and seen[-1].state is not InstallState.RUNNING

    assert wait_until(over, seconds=PATIENCE)
    return seen[-1]


def did(hosts: Hosts, ticket: str, log: Path) -> str:
    """Begin a step that writes its ticket down, and wait for its end."""
    assert isinstance(hosts.perform(step(ticket, f"echo {ticket} >>{log}")), Done)
    assert ended(hosts).ticket == ticket
    return ticket


@pytest.mark.proves("installs-in-order")
def test_a_late_older_ticket_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    """Its connection was lost; the step has run under a later ticket since, and the node is down again."""
    log = tmp_path / "log"
    begun = [did(hosts, "run-1/n1/1/10", log)]
    for late in ("run-1/n1/0/2", "run-1/n1/1/9"):
        result = hosts.perform(step(late, f"echo {late} >>{log}"))
        assert isinstance(result, Refused)
        assert "a later install step was begun" in result.reason
        assert not result.passes
    assert ended(hosts).ticket == "run-1/n1/1/10"
    begun += [did(hosts, ticket, log) for ticket in ("run-1/n1/0/11", "run-2/n1/0/1")]
    assert log.read_text().split() == begun


@pytest.fixture
def suspended(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The file that wakes a shell which is suspended as it leaves its connection, and its variables."""
    wakes, folder = tmp_path / "wakes", tmp_path / "bin"
    folder.mkdir()
    (folder / "setsid").write_text(
        f'#!/bin/sh\nuntil [ -e {wakes} ]; do sleep 0.05; done\nexec /usr/bin/setsid "$@"\n'
    )
    (folder / "setsid").chmod(0o755)
    yield wakes, {"PATH": f"{folder}:/usr/bin:/bin:/usr/sbin:/sbin"}
    wakes.touch()


def _sent(action: RunInstall, settings: HostSettings, env: dict[str, str]) -> subprocess.Popen[str]:
    script = installing.begin_script(action, settings)
    return subprocess.Popen(  # noqa: S603  (its own script)
        ["/bin/sh", "-c", script], env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )


@pytest.mark.proves("installs-in-order")
def test_one_that_wakes_after_a_later_one_is_refused(
    hosts: Hosts, settings: HostSettings, suspended: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    wakes, env = suspended
    log = tmp_path / "log"
    with _sent(step("run-1/n1/0/1", f"echo late >>{log}"), settings, env) as late:
        later = did(hosts, "run-1/n1/0/2", log)
        wakes.touch()
        said, _ = late.communicate(timeout=PATIENCE)
    assert late.returncode == 1
    assert "not begun: a later install step was begun" in said
    assert ended(hosts).ticket == later
    assert log.read_text().split() == [later]


@pytest.mark.proves("installs-in-order")
def test_one_that_wakes_after_the_start_is_refused(
    hosts: Hosts,
    service: ScriptService,
    settings: HostSettings,
    suspended: tuple[Path, dict[str, str]],
    tmp_path: Path,
) -> None:
    wakes, env = suspended
    log = tmp_path / "log"
    with _sent(step("run-1/n1/0/1", f"echo late >>{log}"), settings, env) as late:
        hosts.perform(StartNode(node=N1))
        assert wait_until(lambda: bool(service.processes("n1")), seconds=PATIENCE)
        wakes.touch()
        said, _ = late.communicate(timeout=PATIENCE)
    assert late.returncode == 1
    assert RUNS in said
    assert not log.exists()


def _managed(manager: Manager, tmp_path: Path, answer: str) -> HostSettings:
    """A node whose manager is a script that gives this answer, and whose lock is no other test's."""
    program = tmp_path / "manager"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    service = ServiceSettings(manager=manager, unit=f"es-{uuid4()}", program=str(program))
    return HostSettings(node=N1, address="localhost", connect=Connect.LOCAL, service=service)


def _begun(settings: HostSettings, ticket: str, line: str = "true") -> ActionResult:
    return installing.begin(step(ticket, line), settings, LocalConnection())


@pytest.mark.parametrize(
    ("manager", "answer", "runs"),
    [
        (Manager.SYSTEMD, "ActiveState=active", True),
        (Manager.SYSTEMD, "ActiveState=activating", True),
        (Manager.SYSTEMD, "ActiveState=deactivating", True),
        (Manager.SYSTEMD, "ActiveState=inactive\nJob=0", False),
        (Manager.SYSTEMD, "ActiveState=inactive\nJob=71", True),
        (Manager.SYSTEMD, "ActiveState=failed", False),
        (Manager.DOCKER, "running|0|2026-01-01|", True),
        (Manager.DOCKER, "restarting|1|2026-01-01|", True),
        (Manager.DOCKER, "exited|143|2026-01-01|running", False),
    ],
)
@pytest.mark.proves("installs-in-order")
def test_under_every_manager_none_begins_beside_it(
    manager: Manager, answer: str, tmp_path: Path, *, runs: bool
) -> None:
    settings = _managed(manager, tmp_path, f"printf '%s\\n' {shlex.quote(answer)}")
    result = _begun(settings, f"{tmp_path}/n1/0/1", f"touch {tmp_path}/begun")
    assert isinstance(result, Refused if runs else Done), result
    if isinstance(result, Refused):
        assert RUNS in result.reason
        assert result.passes, "the next reading shows that the node is up: that ends no run"
        assert not (tmp_path / "begun").exists()


def test_a_manager_that_hangs_keeps_no_start_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is asked under the lock, which an install step keeps for as long as it needs."""
    monkeypatch.setattr(installing, "_RUNNING_SECONDS", 1)
    settings = _managed(Manager.SYSTEMD, tmp_path, "sleep 300")
    result = _begun(settings, "run-1/n1/0/1", f"touch {tmp_path}/begun")
    assert isinstance(result, Refused), result
    assert "does not say whether it runs" in result.reason
    assert exclusion.read_holder(_said(exclusion.holder_script(settings))) is None
    assert not (tmp_path / "begun").exists()


def _said(script: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(  # noqa: S603  (its own script)
        ["/bin/sh", "-c", script], env=env, text=True, capture_output=True, timeout=PATIENCE, check=False
    )
    return done.stdout.strip()


@pytest.mark.parametrize("line", ['echo "$ORCHESTRATE_NODE" >>{log}', "echo '{node}' >>{log}"])
def test_no_shell_executes_a_nodes_name(service: ScriptService, tmp_path: Path, line: str) -> None:
    """A cluster tells the names of its nodes, and steps run as root; the record has them in its tickets."""
    made = HostSettings(node=ODD, address="localhost", connect=Connect.LOCAL, service=service.settings())
    made = replace(made, service=replace(made.service, stop=f"x {tmp_path}", start="x", status="false"))
    log = tmp_path / "log"
    action = step(f"run-1/{ODD}/0/1", f"cd {tmp_path}; {line.replace('{log}', str(log))}", ODD)
    with closing(Hosts({ODD: made})) as port:
        for _ in range(2):
            done = port.perform(action)
            if "{node}" in line:
                assert isinstance(done, Refused)
                assert "Rename the node" in done.reason
                assert port.describe(action).startswith("(refused: ")
                continue
            assert isinstance(done, Done)
            view = ended(port, ODD)
            assert (view.ticket, view.state) == (action.ticket, InstallState.DONE)
    assert log.exists() is ("{node}" not in line)
    if log.exists():
        assert log.read_text().splitlines() == [ODD]
    assert not (tmp_path / "owned").exists()


def test_a_holder_written_again_is_not_lost(hosts: Hosts, settings: HostSettings, tmp_path: Path) -> None:
    """The file of the lock is empty for a moment, once the command of a step is at work."""
    go_on, folder = tmp_path / "go-on", tmp_path / "bin"
    assert isinstance(hosts.perform(step("run-1/n1/0/1", f"until [ -e {go_on} ]; do sleep 0.1; done")), Done)
    try:
        lock = Path(_said(f'{exclusion.with_functions(settings)}\nfind_lock && echo "$lock"'))
        kept = tmp_path / "kept"
        kept.write_text(lock.read_text())
        folder.mkdir()
        (folder / "sleep").write_text(f"#!/bin/sh\ncat {kept} >{lock}\n")
        (folder / "sleep").chmod(0o755)
        lock.write_text("")
        env = {"PATH": f"{folder}:/usr/bin:/bin"}
        assert _said(installing.record_script(settings), env).startswith("run-1/n1/0/1 running")
    finally:
        go_on.touch()
    assert ended(hosts).state is InstallState.DONE
