"""Under systemd and Docker, starts and hooks of a node wait for a hook that nobody listens to any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings, Manager, ServiceSettings, Sudo
from orchestrator.model.action import ActionResult, Done, Moment, RunHook, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Hook
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import PATIENCE, killed_at_work

N1 = NodeName("n1")
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
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> HostSettings:
    """One node of this machine, under a stand-in for its manager that keeps its state in `tmp_path`."""
    program = tmp_path / "manager"
    program.write_text(_MANAGER.format(folder=tmp_path))
    program.chmod(0o755)
    # Another unit in each test: the lock on this machine is named after it.
    service = ServiceSettings(manager=request.param, unit=f"es-{tmp_path.name}", program=str(program))
    return HostSettings(node=N1, address="localhost", connect=Connect.LOCAL, sudo=Sudo.OFF, service=service)


@pytest.fixture
def hosts(settings: HostSettings) -> Iterator[Hosts]:
    with closing(Hosts({N1: settings})) as port:
        yield port


def seen(hosts: Hosts) -> HostView:
    reading = hosts.observe([N1], rights=False)[N1]
    assert isinstance(reading, HostView), reading
    return reading


def hook(hosts: Hosts, line: str) -> ActionResult:
    run = Hook(run=line, timeout=60.0)
    return hosts.perform(RunHook(node=N1, moment=Moment.WHILE_STOPPED, number=0, hook=run))


def installing(folder: Path) -> str:
    """A hook that is at work for some seconds."""
    return f"echo begun >>{folder}/log; sleep 4; echo ended >>{folder}/log"


def told(folder: Path) -> list[str]:
    return (folder / "log").read_text().split()


@pytest.mark.proves("hooks-apart")
def test_a_start_waits_for_a_hook_whose_program_was_killed(
    hosts: Hosts, settings: HostSettings, tmp_path: Path
) -> None:
    with killed_at_work(settings, installing(tmp_path), (tmp_path / "log").exists):
        assert isinstance(hosts.perform(StartNode(node=N1)), Done)
        assert isinstance(hosts.perform(StartNode(node=N1)), Done), "the same one"
        found = seen(hosts)
        assert found.service is ServiceState.STARTING
        assert "at work on it: its while_stopped since 2" in found.detail
        assert told(tmp_path) == ["begun"]
        assert wait_until(lambda: seen(hosts).service is ServiceState.RUNNING, seconds=PATIENCE)
    assert told(tmp_path) == ["begun", "ended", "start"]


def test_a_hook_after_a_kill_waits_for_the_first_one(
    hosts: Hosts, settings: HostSettings, tmp_path: Path
) -> None:
    with killed_at_work(settings, installing(tmp_path), (tmp_path / "log").exists):
        assert isinstance(hook(hosts, installing(tmp_path)), Done)
    assert told(tmp_path) == ["begun", "ended"] * 2


def test_an_idle_host_takes_or_refuses_a_start_at_once(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "masked").touch()
    refused = hosts.perform(StartNode(node=N1))
    assert not isinstance(refused, Done)
    assert "Unit is masked" in refused.reason
    (tmp_path / "masked").unlink()
    assert isinstance(hosts.perform(StartNode(node=N1)), Done)
    assert told(tmp_path) == ["start"]
    assert seen(hosts).service is ServiceState.RUNNING
    assert isinstance(hosts.perform(StopNode(node=N1)), Done)
    assert wait_until(lambda: told(tmp_path) == ["start", "stop"], seconds=PATIENCE)
    assert seen(hosts).service is ServiceState.STOPPED


def test_a_host_without_flock_runs_hooks_and_starts_as_before(settings: HostSettings, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            link = tools / program.name
            if program.name != "flock" and not link.is_symlink():
                link.symlink_to(program)
    bare = HostSettings(
        node=N1,
        address="localhost",
        connect=Connect.LOCAL,
        sudo=Sudo.OFF,
        service=settings.service,
        environment={"PATH": str(tools)},
    )
    with closing(Hosts({N1: bare})) as hosts:
        assert isinstance(hook(hosts, f"echo hook >>{tmp_path}/log"), Done)
        assert isinstance(hosts.perform(StopNode(node=N1)), Done)
        assert wait_until(lambda: told(tmp_path) == ["hook", "stop"], seconds=PATIENCE)
        assert isinstance(hosts.perform(StartNode(node=N1)), Done)
    assert told(tmp_path) == ["hook", "stop", "start"]
