"""The commands of one node exclude each other on its host, under init scripts and under any manager."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.hosts import exclusion, script
from orchestrator.hosts.check import Grade, Point, check_host
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.port import Hosts
from orchestrator.model.action import (
    ActionResult,
    Done,
    InDoubt,
    Moment,
    Refused,
    RunHook,
    StartNode,
    StopNode,
)
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Hook
from orchestrator.redact import Redactor
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import PATIENCE, job_ended, killed_at_work
from tests.integration.script_service import ScriptService
from tests.lab import nodectl
from tests.tools import SHELLS, shell_words

RECORD_WORDS = 7
"""What, since, until, and pid and start time of the holder and of its command."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptService]:
    made = ScriptService(folder=tmp_path / "service").install()
    yield made
    made.end()


def settings_of(service: ScriptService, **changes: object) -> HostSettings:
    values = {"node": "n1", "address": "localhost", "connect": Connect.LOCAL, "service": service.settings()}
    return HostSettings(**{**values, **changes})


@pytest.fixture
def hosts(service: ScriptService) -> Iterator[Hosts]:
    with closing(Hosts({"n1": settings_of(service)})) as port:
        yield port


def seen(hosts: Hosts, *, rights: bool = False) -> HostView:
    reading = hosts.observe(["n1"], rights=rights)["n1"]
    assert isinstance(reading, HostView), reading
    return reading


def runs(hosts: Hosts) -> bool:
    return seen(hosts).service is ServiceState.RUNNING


def hook(line: str, timeout: float = 60.0) -> RunHook:
    return RunHook(node="n1", moment=Moment.BEFORE_STOP, number=0, hook=Hook(run=line, timeout=timeout))


def test_a_start_after_a_kill_only_waits_for_the_first_one(hosts: Hosts, service: ScriptService) -> None:
    service.start_takes(4)
    with killed_at_work(settings_of(service), "start", lambda: service.starts("n1") == 1):
        found = seen(hosts)
        assert found.service is ServiceState.STARTING
        assert "at work on it: its start since 2" in found.detail
        assert isinstance(hosts.perform(StartNode(node="n1")), Done)
        assert wait_until(lambda: runs(hosts), seconds=PATIENCE)
    # The second start ends only after it has seen that the service runs.
    assert wait_until(lambda: job_ended(hosts, "n1"), seconds=PATIENCE)
    assert (service.starts("n1"), len(service.processes("n1"))) == (1, 1)


def test_a_start_waits_for_the_command_of_a_killed_holder(hosts: Hosts, service: ScriptService) -> None:
    service.start_takes(4)
    with killed_at_work(settings_of(service), "start", lambda: service.starts("n1") == 1):
        holder = exclusion.read_holder(said(exclusion.holder_script(settings_of(service))))
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        assert "at work on it: its start" in seen(hosts).detail
        hosts.perform(StartNode(node="n1"))
        assert wait_until(lambda: runs(hosts), seconds=PATIENCE)
    assert wait_until(lambda: job_ended(hosts, "n1"), seconds=PATIENCE)
    assert (service.starts("n1"), len(service.processes("n1"))) == (1, 1)


def test_a_stop_after_a_kill_is_in_doubt_and_a_start_waits(hosts: Hosts, service: ScriptService) -> None:
    hosts.perform(StartNode(node="n1"))
    service.stop_takes(4)
    with killed_at_work(settings_of(service), "stop", lambda: service.stops("n1") == ["begun"]):
        assert seen(hosts).service is ServiceState.STOPPING
        again = hosts.perform(StopNode(node="n1"))
        assert isinstance(again, InDoubt)
        assert "at work on it already: its stop since 2" in again.reason
        assert isinstance(hosts.perform(StartNode(node="n1")), Done)
        assert wait_until(lambda: service.starts("n1") == 2, seconds=PATIENCE)
    assert service.stops("n1") == ["begun", "ended"]
    assert wait_until(lambda: runs(hosts), seconds=PATIENCE)
    assert len(service.processes("n1")) == 1


def test_beside_a_hook_a_stop_is_refused_and_a_start_waits(
    hosts: Hosts, service: ScriptService, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with killed_at_work(settings_of(service), f"touch {begun}; sleep 4; echo done >>{begun}", begun.exists):
        refused = hosts.perform(StopNode(node="n1"))
        assert isinstance(refused, Refused)
        assert "is held by its while_stopped since 2" in refused.reason
        assert "(pid " in refused.reason
        hosts.perform(StartNode(node="n1"))
        assert service.starts("n1") == 0
        assert wait_until(lambda: service.starts("n1") == 1, seconds=PATIENCE)
    assert begun.read_text() == "done\n"


def test_a_hook_after_a_kill_waits_for_the_first_one(
    hosts: Hosts, service: ScriptService, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    line = f"echo begun >>{log}; sleep 2; echo ended >>{log}"
    with killed_at_work(settings_of(service), line, log.exists):
        assert isinstance(hosts.perform(hook(line)), Done)
    assert log.read_text().split() == ["begun", "ended", "begun", "ended"]


def test_a_hook_that_hangs_is_ended_with_all_its_processes(hosts: Hosts) -> None:
    result = hosts.perform(hook("sleep 600 & echo $!; trap '' TERM; wait; sleep 600", timeout=1))
    assert isinstance(result, InDoubt)
    assert "no end within 1 s" in result.reason
    pid = next(int(word) for word in result.reason.split() if word.isdigit() and int(word) > 2)
    assert nodectl.start_time(pid) is None
    assert isinstance(hosts.perform(StartNode(node="n1")), Done)
    assert wait_until(lambda: runs(hosts), seconds=PATIENCE)


def test_a_start_that_hangs_is_ended_and_the_next_one_goes(
    hosts: Hosts, service: ScriptService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start_takes(600)
    with monkeypatch.context() as patched:
        patched.setattr(exclusion, "VERB_SECONDS", 2.0)
        hosts.perform(StartNode(node="n1"))
    assert wait_until(lambda: seen(hosts).service is ServiceState.FAILED, seconds=PATIENCE)
    assert "the command was ended at its limit of 2 s" in seen(hosts).detail
    service.start_takes(0)
    hosts.perform(StartNode(node="n1"))
    assert wait_until(lambda: runs(hosts), seconds=PATIENCE)


def test_a_start_command_that_is_the_node_itself_is_left_alone(
    hosts: Hosts, service: ScriptService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit must not end the node, and its lock must not bar the next stop."""
    monkeypatch.setattr(script, "LOOK_SECONDS", 1)
    monkeypatch.setattr(exclusion, "VERB_SECONDS", 8.0)
    service.stays()
    hosts.perform(StartNode(node="n1"))
    assert wait_until(lambda: job_ended(hosts, "n1"), seconds=PATIENCE)
    time.sleep(8)
    assert runs(hosts)
    assert isinstance(hosts.perform(StopNode(node="n1")), Done)
    assert wait_until(lambda: seen(hosts).service is ServiceState.STOPPED, seconds=PATIENCE)


def said(line: str, shell: str = "/bin/sh") -> str:
    """What a script prints under one shell."""
    end = LocalConnection().run(f"{shell} -c {shlex.quote(line)}", timeout=PATIENCE)
    assert isinstance(end, CommandResult), end
    return end.stdout.strip()


@pytest.mark.parametrize("name", SHELLS)
def test_every_shell_takes_turns_and_names_a_hung_holder(
    service: ScriptService, name: str, tmp_path: Path
) -> None:
    settings, shell = settings_of(service), shlex.join(shell_words(name))
    log = tmp_path / "log"
    line = f"echo begun >>{log}; sleep 1; echo ended >>{log}; exit 3"
    turn = exclusion.exclusive(settings, "start", line, limit=60, patience=60)
    one = f"{shell} -c {shlex.quote(turn)}"
    both = f"{one} & first=$!; {one}; echo $?; wait $first; echo $?"
    assert said(both, shell).split() == ["3", "3"]
    assert log.read_text().split() == ["begun", "ended"] * 2
    # A holder that nobody could end: it is long past its limit.
    hung = exclusion.exclusive(settings, "reboot", "sleep 600", limit=600, patience=0)
    with subprocess.Popen(  # noqa: S603  (the script under test)
        [*shell.split(), "-c", hung], start_new_session=True
    ) as holder:
        lock = wait_for_record(settings, "reboot")
        words = lock.read_text().split()
        lock.write_text(" ".join((*words[:2], "1", *words[3:])) + "\n")
        message = said(exclusion.exclusive(settings, "start", line, limit=60, patience=60), shell)
        assert f"is held by its reboot since {words[1]} (pid {holder.pid}); it should have ended" in message
        os.kill(holder.pid, signal.SIGKILL)
        os.killpg(int(words[5]), signal.SIGKILL)
    # Killed, with its command: the lock is free, whatever the record says.
    assert said(exclusion.exclusive(settings, "stop", "echo goes", limit=60, patience=0), shell) == "goes"
    assert said(script.limited("sleep 600", 1).replace("exit $code", "echo $code"), shell) == "124"
    assert said(f"echo secret | {{ {script.limited('read -r word; echo $word', 60)}\n}}", shell) == "secret"


def wait_for_record(settings: HostSettings, what: str) -> Path:
    """The lock file of a node, as soon as its holder and the holder's command are named."""
    name = re.search(r"name=(\S+)", exclusion.holder_script(settings))
    assert name is not None
    found: list[Path] = []

    def named() -> bool:
        found[:] = [
            file
            for folder in exclusion.FOLDERS
            if (file := Path(folder, f"orchestrate-{os.geteuid()}", name[1])).exists()
            and file.read_text().startswith(f"{what} ")
            and len(file.read_text().split()) == RECORD_WORDS
        ]
        return bool(found)

    assert wait_until(named, seconds=PATIENCE)
    return found[0]


def without_flock(folder: Path) -> Path:
    """A folder with all programs but that one."""
    tools = folder / "tools"
    tools.mkdir()
    for programs in ("/usr/bin", "/bin"):
        for program in Path(programs).iterdir():
            link = tools / program.name
            if program.name != "flock" and not link.is_symlink():
                link.symlink_to(program)
    return tools


def test_without_flock_nothing_stops_but_a_node_still_starts(service: ScriptService, tmp_path: Path) -> None:
    tools = without_flock(tmp_path)
    settings = settings_of(service, environment={"PATH": str(tools)})
    with closing(Hosts({"n1": settings})) as hosts:
        view = seen(hosts, rights=True)
        assert view.may_control is False
        assert "cannot exclude each other on its host (there is no flock): install util-linux" in view.detail
        stop = hosts.perform(StopNode(node="n1"))
        assert isinstance(stop, Refused)
        assert "no lock can be taken on this host" in stop.reason
        assert hosts.perform(StartNode(node="n1")) == Done(output="started n1")
    with closing(Connections()) as connections:
        checks = {one.point: one for one in check_host(settings, connections, reboot=True, redact=Redactor())}
        assert checks[Point.LOCK].grade is Grade.BAD
        assert (checks[Point.RIGHT_STOP].grade, checks[Point.RIGHT_REBOOT].grade) == (Grade.GOOD, Grade.BAD)
        usual = check_host(settings_of(service), connections, reboot=False, redact=Redactor())
        assert usual[-1].point is Point.LOCK
        assert usual[-1].grade is Grade.GOOD


# Under systemd and Docker: starts and hooks wait for a hook that nobody listens to any more ------------

_MANAGER = """#!/bin/sh
# What systemctl and docker say and do of one unit that starts and stops at once.
cd {folder} || exit 1
active=inactive sub=dead status=exited
[ ! -e running ] || active=active sub=running status=running
case " $* " in
*' show '*) printf 'LoadState=loaded\\nActiveState=%s\\nSubState=%s\\n' $active $sub ;;
*' inspect '*) echo "$status|0||" ;;
*' start '*) [ ! -e masked ] || {{ echo 'Failed to start es.service: Unit is masked.' >&2; exit 1; }}
    echo start >>log; touch running ;;
*' stop '*) echo stop >>log; rm -f running ;;
esac
"""


@pytest.fixture(params=[Manager.SYSTEMD, Manager.DOCKER], ids=lambda manager: manager.value)
def managed(request: pytest.FixtureRequest, tmp_path: Path) -> HostSettings:
    """One node of this machine, under a stand-in for its manager that keeps its state in `tmp_path`."""
    program = tmp_path / "manager"
    program.write_text(_MANAGER.format(folder=tmp_path))
    program.chmod(0o755)
    # Another unit in each test: the lock on this machine is named after it.
    service = ServiceSettings(manager=request.param, unit=f"es-{tmp_path.name}", program=str(program))
    return HostSettings(node="n1", address="localhost", connect=Connect.LOCAL, sudo=Sudo.OFF, service=service)


@pytest.fixture
def managed_hosts(managed: HostSettings) -> Iterator[Hosts]:
    with closing(Hosts({"n1": managed})) as port:
        yield port


def ran(hosts: Hosts, line: str) -> ActionResult:
    run = Hook(run=line, timeout=60.0)
    return hosts.perform(RunHook(node="n1", moment=Moment.WHILE_STOPPED, number=0, hook=run))


def installing(folder: Path, *, takes: str = "sleep 4") -> str:
    """A hook that is at work for some seconds."""
    return f"echo begun >>{folder}/log; {takes}; echo ended >>{folder}/log"


def told(folder: Path) -> list[str]:
    return (folder / "log").read_text().split()


@pytest.mark.proves("hooks-apart")
def test_a_start_waits_for_a_hook_whose_program_was_killed(
    managed_hosts: Hosts, managed: HostSettings, tmp_path: Path
) -> None:
    let = tmp_path / "let"
    takes = f"n=0; until [ -e {let} ] || [ $n -ge 120 ]; do sleep 1; n=$((n + 1)); done"
    with killed_at_work(managed, installing(tmp_path, takes=takes), (tmp_path / "log").exists):
        assert isinstance(managed_hosts.perform(StartNode(node="n1")), Done)
        assert isinstance(managed_hosts.perform(StartNode(node="n1")), Done), "the same one"
        found = seen(managed_hosts)
        assert found.service is ServiceState.STARTING
        assert "at work on it: its while_stopped since 2" in found.detail
        assert told(tmp_path) == ["begun"]
        let.touch()
        assert wait_until(lambda: seen(managed_hosts).service is ServiceState.RUNNING, seconds=PATIENCE)
    assert told(tmp_path) == ["begun", "ended", "start"]


def test_a_hook_after_a_kill_waits_under_a_manager_too(
    managed_hosts: Hosts, managed: HostSettings, tmp_path: Path
) -> None:
    with killed_at_work(managed, installing(tmp_path), (tmp_path / "log").exists):
        assert isinstance(ran(managed_hosts, installing(tmp_path)), Done)
    assert told(tmp_path) == ["begun", "ended"] * 2


def test_an_idle_host_takes_or_refuses_a_start_at_once(managed_hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "masked").touch()
    refused = managed_hosts.perform(StartNode(node="n1"))
    assert not isinstance(refused, Done)
    assert "Unit is masked" in refused.reason
    (tmp_path / "masked").unlink()
    assert isinstance(managed_hosts.perform(StartNode(node="n1")), Done)
    assert told(tmp_path) == ["start"]
    assert seen(managed_hosts).service is ServiceState.RUNNING
    assert isinstance(managed_hosts.perform(StopNode(node="n1")), Done)
    assert wait_until(lambda: told(tmp_path) == ["start", "stop"], seconds=PATIENCE)
    assert seen(managed_hosts).service is ServiceState.STOPPED


def test_a_managed_host_without_flock_runs_hooks_and_starts(managed: HostSettings, tmp_path: Path) -> None:
    tools = without_flock(tmp_path)
    bare = HostSettings(
        node="n1",
        address="localhost",
        connect=Connect.LOCAL,
        sudo=Sudo.OFF,
        service=managed.service,
        environment={"PATH": str(tools)},
    )
    with closing(Hosts({"n1": bare})) as hosts:
        assert isinstance(ran(hosts, f"echo hook >>{tmp_path}/log"), Done)
        assert isinstance(hosts.perform(StopNode(node="n1")), Done)
        assert wait_until(lambda: told(tmp_path) == ["hook", "stop"], seconds=PATIENCE)
        assert isinstance(hosts.perform(StartNode(node="n1")), Done)
    assert told(tmp_path) == ["hook", "stop", "start"]
