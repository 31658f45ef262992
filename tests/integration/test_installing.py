"""Install steps on a real host: they outlive this program, run once, in their order, and keep starts away."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator.hosts import exclusion, installing
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.model.action import ActionResult, Done, Refused, RunInstall, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView
from orchestrator.model.upgrade import InstallState, InstallStep, InstallView, Upgrade
from orchestrator.redact import Redactor
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import PATIENCE
from tests.integration.script_service import ScriptService
from tests.tools import SHELLS, shell_words

N1 = NodeName("n1")
ODD = NodeName("n 1; touch owned")
TICKET = "run-1/n1/0/1"
SECRET = "hunter22"  # noqa: S105  (of a test)
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
    with closing(Hosts({N1: settings}, redact=Redactor([SECRET]))) as port:
        yield port


def step(
    line: str,
    *,
    ticket: str = TICKET,
    installed: str | None = None,
    node: NodeName = N1,
    as_root: bool = False,
) -> RunInstall:
    made = InstallStep(run=line, as_root=as_root)
    return RunInstall(node=node, number=0, step=made, ticket=ticket, target="9.1.0", installed=installed)


def recorded(hosts: Hosts, node: NodeName = N1) -> InstallView | None:
    reading = hosts.observe([node], rights=False)[node]
    assert isinstance(reading, HostView), reading
    return reading.install


def state(hosts: Hosts) -> InstallState | None:
    view = recorded(hosts)
    return view.state if view else None


def ended(hosts: Hosts, node: NodeName = N1) -> InstallView:
    seen: list[InstallView | None] = []

    def over() -> bool:
        seen.append(recorded(hosts, node))
        return seen[-1] is not None and seen[-1].state is not InstallState.RUNNING

    assert wait_until(over, seconds=PATIENCE)
    assert seen[-1] is not None
    return seen[-1]


def said(script: str, shell: str = "/bin/sh", env: dict[str, str] | None = None) -> str:
    """What a script of ours prints under a shell."""
    done = subprocess.run(  # noqa: S603  (its own script)
        [*shlex.split(shell), "-c", script],
        env=env,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout.strip()


def refused(result: ActionResult, *, passes: bool = True) -> str:
    assert isinstance(result, Refused), result
    assert result.passes is passes
    return result.reason


def started(hosts: Hosts, service: ScriptService) -> None:
    """The service runs."""
    assert isinstance(hosts.perform(StartNode(node=N1)), Done)
    assert wait_until(lambda: bool(service.processes("n1")), seconds=PATIENCE)


def test_a_step_is_begun_and_its_end_recorded(hosts: Hosts, tmp_path: Path) -> None:
    assert recorded(hosts) is None
    log = tmp_path / "log"
    line = f"echo {{version}} on {{node}} >>{log}; sleep 1; echo installed"
    assert isinstance(hosts.perform(step(line)), Done)
    assert state(hosts) is InstallState.RUNNING
    assert ended(hosts) == InstallView(ticket=TICKET, state=InstallState.DONE, said="installed")
    assert isinstance(hosts.perform(step(line)), Done)
    assert state(hosts) is InstallState.DONE
    assert log.read_text() == "9.1.0 on n1\n"


def test_one_that_fails_says_how(hosts: Hosts) -> None:
    hosts.perform(step("echo unpacking; echo no space left >&2; exit 7"))
    assert ended(hosts) == InstallView(ticket=TICKET, state=InstallState.FAILED, said="exit 7: no space left")


@pytest.mark.proves("installs-apart")
def test_a_ticket_is_begun_once_and_another_one_again(hosts: Hosts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = f"echo begun >>{log}; exit 1"
    for ticket in (TICKET, TICKET, "run-1/n1/0/2"):
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


def test_while_a_step_runs_nothing_else_begins(hosts: Hosts, service: ScriptService, tmp_path: Path) -> None:
    """No start waits for it either: one that waits for an hour is sent at a moment that nobody chose."""
    go_on = tmp_path / "go-on"
    hosts.perform(step(f"until [ -e {go_on} ]; do sleep 0.1; done"))
    try:
        began = time.monotonic()
        for action in (StartNode(node=N1), StopNode(node=N1), step("true", ticket="run-2/n1/0/1")):
            assert "is held by its install since 2" in refused(hosts.perform(action))
        assert time.monotonic() - began < PATIENCE
        assert service.starts("n1") == 0
        assert state(hosts) is InstallState.RUNNING
    finally:
        go_on.touch()
    assert ended(hosts).state is InstallState.DONE
    assert isinstance(hosts.perform(StartNode(node=N1)), Done)
    assert wait_until(lambda: service.starts("n1") == 1, seconds=PATIENCE)


def test_no_step_is_begun_beside_the_service(hosts: Hosts, service: ScriptService) -> None:
    """One that arrives late, after the node was started, would replace files that are in use."""
    started(hosts, service)
    assert RUNS in refused(hosts.perform(step("true")))
    assert recorded(hosts) is None


@pytest.mark.proves("installs-apart")
def test_a_step_outlives_the_program(settings: HostSettings, tmp_path: Path) -> None:
    """Its port is closed and all processes of the connection are gone; the next program reads the end."""
    log, go_on = tmp_path / "log", tmp_path / "go-on"
    line = f"echo begun >>{log}; until [ -e {go_on} ]; do sleep 0.1; done; echo ended >>{log}"
    with closing(Hosts({N1: settings})) as first:
        assert isinstance(first.perform(step(line)), Done)
    with closing(Hosts({N1: settings})) as second:
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
    ready = hosts.readiness([N1], wanted)[N1]
    assert not hasattr(ready, "reason"), ready
    assert ready.failed == ("`echo no 9.1.0 for n1 here; exit 3` ended with 3: no 9.1.0 for n1 here",)
    assert ready.free_bytes


# How a step is begun ------------------------------------


def test_what_a_step_prints_is_free_of_secrets(hosts: Hosts) -> None:
    """It is journalled, and is in the message of a run that ends by it."""
    hosts.perform(step(f"echo fetched from https://ops:{SECRET}@mirror; echo password={SECRET}x; exit 7"))
    view = ended(hosts)
    assert view.state is InstallState.FAILED
    assert "password=" in view.said
    assert SECRET not in view.said


def lock_of(settings: HostSettings) -> Path:
    """The file of the node's lock."""
    return Path(said(f'{exclusion.with_functions(settings)}\nfind_lock && echo "$lock"'))


def test_a_beginning_leaves_no_file_of_its_own(hosts: Hosts, settings: HostSettings) -> None:
    hosts.perform(step("true"))
    assert ended(hosts).state is InstallState.DONE
    place = lock_of(settings)
    assert [one.name for one in place.parent.glob(f"{place.name}.install.begin*")] == []


def test_a_step_waits_for_no_start(hosts: Hosts, service: ScriptService) -> None:
    """The reading that allowed it would be out of date."""
    service.start_takes(8)
    assert isinstance(hosts.perform(StartNode(node=N1)), Done)
    began = time.monotonic()
    assert "is held by its start" in refused(hosts.perform(step("true")))
    assert time.monotonic() - began < 8
    assert recorded(hosts) is None


def test_a_step_that_cannot_be_recorded_is_not_begun(
    hosts: Hosts, settings: HostSettings, tmp_path: Path
) -> None:
    """Nobody would know that it ran: a full disk, for one."""
    bars = Path(f"{lock_of(settings)}.install.new")
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


# Steps that arrive late ------------------------------------


def did(hosts: Hosts, ticket: str, log: Path) -> str:
    """Begin a step that writes its ticket down, and wait for its end."""
    assert isinstance(hosts.perform(step(f"echo {ticket} >>{log}", ticket=ticket)), Done)
    assert ended(hosts).ticket == ticket
    return ticket


@pytest.mark.proves("installs-in-order")
def test_a_late_older_ticket_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    """Its connection was lost; the step has run under a later ticket since, and the node is down again."""
    log = tmp_path / "log"
    begun = [did(hosts, "run-1/n1/1/10", log)]
    for late in ("run-1/n1/0/2", "run-1/n1/1/9"):
        result = hosts.perform(step(f"echo {late} >>{log}", ticket=late))
        assert "a later install step was begun" in refused(result, passes=False)
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
    with _sent(step(f"echo late >>{log}"), settings, env) as late:
        later = did(hosts, "run-1/n1/0/2", log)
        wakes.touch()
        out, _ = late.communicate(timeout=PATIENCE)
    assert late.returncode == 1
    assert "not begun: a later install step was begun" in out
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
    with _sent(step(f"echo late >>{log}"), settings, env) as late:
        started(hosts, service)
        wakes.touch()
        out, _ = late.communicate(timeout=PATIENCE)
    assert late.returncode == 1
    assert RUNS in out
    assert not log.exists()


def _managed(manager: Manager, tmp_path: Path, answer: str) -> HostSettings:
    """A node whose manager is a script that gives this answer, and whose lock is no other test's."""
    program = tmp_path / "manager"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    service = ServiceSettings(manager=manager, unit=f"es-{uuid4()}", program=str(program))
    return HostSettings(node=N1, address="localhost", connect=Connect.LOCAL, service=service)


def _begun(settings: HostSettings, ticket: str, line: str = "true") -> ActionResult:
    return installing.begin(step(line, ticket=ticket), settings, LocalConnection())


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
    assert exclusion.read_holder(said(exclusion.holder_script(settings))) is None
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize("line", ['echo "$ORCHESTRATE_NODE" >>{log}', "echo '{node}' >>{log}"])
def test_no_shell_executes_a_nodes_name(service: ScriptService, tmp_path: Path, line: str) -> None:
    """A cluster tells the names of its nodes, and steps run as root; the record has them in its tickets."""
    made = HostSettings(node=ODD, address="localhost", connect=Connect.LOCAL, service=service.settings())
    made = replace(made, service=replace(made.service, stop=f"x {tmp_path}", start="x", status="false"))
    log = tmp_path / "log"
    action = step(f"cd {tmp_path}; {line.replace('{log}', str(log))}", ticket=f"run-1/{ODD}/0/1", node=ODD)
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
    assert isinstance(hosts.perform(step(f"until [ -e {go_on} ]; do sleep 0.1; done")), Done)
    try:
        lock = lock_of(settings)
        kept = tmp_path / "kept"
        kept.write_text(lock.read_text())
        folder.mkdir()
        (folder / "sleep").write_text(f"#!/bin/sh\ncat {kept} >{lock}\n")
        (folder / "sleep").chmod(0o755)
        lock.write_text("")
        env = {"PATH": f"{folder}:/usr/bin:/bin"}
        assert said(installing.record_script(settings), env=env).startswith("run-1/n1/0/1 running")
    finally:
        go_on.touch()
    assert ended(hosts).state is InstallState.DONE
