"""A real host over SSH without sudo and without a service manager: who is root there, and its node's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts import exclusion, port
from orchestrator.hosts.check import Grade, HostCheck, Point, check_host
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.port import Hosts
from orchestrator.model.action import (
    Done,
    Moment,
    Refused,
    RunHook,
    StartNode,
    StopNode,
    TuneHost,
)
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Hook
from orchestrator.model.tuning import FileChange, Reload
from orchestrator.redact import Redactor
from tests.integration.hostlab.hosts import wait_until
from tests.integration.lone_host import LoneHost, lone_host
from tests.integration.perform_and_wait import PATIENCE, job_ended, killed_at_work
from tests.integration.script_service import ScriptService

pytestmark = [pytest.mark.docker, pytest.mark.part(name="services")]


@pytest.fixture
def service(tmp_path: Path) -> ScriptService:
    """Its processes end with the host."""
    return ScriptService(folder=tmp_path / "service").install(start_takes=4)


@pytest.fixture
def bare(tmp_path: Path, service: ScriptService) -> Iterator[LoneHost]:
    service.folder.chmod(0o777)
    with lone_host(tmp_path, "bare", "-v", f"{service.folder}:{service.folder}") as host:
        yield host


def seen(hosts: Hosts, *, rights: bool = False) -> HostView:
    reading = hosts.observe(["n1"], rights=rights)["n1"]
    assert isinstance(reading, HostView), reading
    return reading


def living(bare: LoneHost, service: ScriptService) -> int:
    """How many processes of the service run on the host."""
    file = service.folder / "n1.processes"
    return int(bare.run(f"for p in $(cat {file}); do kill -0 $p && echo $p; done 2>/dev/null | wc -l"))


@pytest.mark.parametrize(("user", "folder"), [("root", "/run"), ("deploy", "/run/lock"), ("deploy", "/tmp")])
def test_a_start_sent_again_after_a_kill_is_the_first_one(
    bare: LoneHost, service: ScriptService, user: str, folder: str
) -> None:
    if folder == "/tmp":  # RHEL's /run/lock is root's alone
        bare.run("chmod 755 /run/lock")
    settings = bare.settings(user, service.settings())
    with (
        closing(Hosts({"n1": settings})) as hosts,
        killed_at_work(settings, "start", lambda: service.starts("n1") == 1),
    ):
        view = seen(hosts)
        assert view.service is ServiceState.STARTING
        assert "at work on it: its start since 2" in view.detail
        assert bare.run(f"ls {folder}/orchestrate-*/").startswith("n1-")
        assert isinstance(hosts.perform(StartNode(node="n1")), Done)
        assert wait_until(lambda: seen(hosts).service is ServiceState.RUNNING, seconds=PATIENCE)
        assert wait_until(lambda: job_ended(hosts, "n1"), seconds=PATIENCE)
    assert (service.starts("n1"), living(bare, service)) == (1, 1)


def test_a_root_command_that_cannot_be_ended_keeps_the_lock(
    bare: LoneHost, service: ScriptService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind sudo: this account may end its own processes alone."""
    bare.run("cp /usr/bin/setpriv /usr/local/bin/as-root && chmod 4755 /usr/local/bin/as-root")
    as_root = "/usr/local/bin/as-root --reuid 0 --regid 0 --clear-groups"
    pid = service.folder / "root.pid"
    start = f"{as_root} sh -c 'echo $$ >{pid}; exec sleep 600'; :"
    settings = bare.settings("deploy", replace(service.settings(), start=start))
    monkeypatch.setattr(exclusion, "VERB_SECONDS", 1.0)
    monkeypatch.setattr(exclusion, "OVERDUE_SECONDS", 1)
    with closing(Hosts({"n1": settings})) as hosts:
        hosts.perform(StartNode(node="n1"))
        assert wait_until(pid.exists, seconds=PATIENCE)
        # Its shell is ended at the limit, and the command itself goes on.
        assert wait_until(
            lambda: bare.run(f"cut -d ' ' -f 4 /proc/$(cat {pid})/stat") == "1", seconds=PATIENCE
        )
        assert "at work on it: its start" in seen(hosts).detail
        # A busy host may refuse a stop later than the port waits for it; a reading has the answer then.
        monkeypatch.setattr(port, "QUICK_SECONDS", PATIENCE)

        def named() -> bool:
            refused = hosts.perform(StopNode(node="n1"))
            assert isinstance(refused, Refused)
            assert "held by its start since 2" in refused.reason
            return "it should have ended long ago: end that process" in refused.reason

        assert wait_until(named, seconds=PATIENCE)
        bare.run(f"kill $(cat {pid})")
        assert wait_until(lambda: "at work" not in seen(hosts).detail, seconds=PATIENCE)


def test_where_the_account_is_root_no_sudo_is_needed(bare: LoneHost, service: ScriptService) -> None:
    """Stop, start, a hook, tuning and the check of the rights, on a host without sudo."""
    service.start_takes(0)
    settings = bare.settings("root", service.settings(), sudo=Sudo.AUTO)
    with closing(Hosts({"n1": settings})) as hosts:
        # A verb may come before any reading: the host is asked for its account first.
        assert isinstance(hosts.perform(StartNode(node="n1")), Done)
        assert wait_until(lambda: seen(hosts).service is ServiceState.RUNNING, seconds=PATIENCE)
        assert seen(hosts, rights=True).may_control is True
        tune = TuneHost(
            node="n1",
            tunable="x",
            changes=(FileChange(path="/etc/x.conf", found=None, wanted="y\n", reload=Reload.NONE),),
        )
        done = hosts.perform(tune)
        assert isinstance(done, Done), done
        assert bare.run("cat /etc/x.conf") == "y"
        hook = RunHook(node="n1", moment=Moment.WHILE_STOPPED, number=0, hook=Hook(run="id -u"))
        assert hosts.perform(hook) == Done(output="0")
        assert isinstance(hosts.perform(StopNode(node="n1")), Done)
        assert wait_until(lambda: seen(hosts).service is ServiceState.STOPPED, seconds=PATIENCE)
    assert {one.grade for one in checks(settings)} == {Grade.GOOD}


def test_a_host_without_sudo_says_what_to_do(bare: LoneHost, service: ScriptService) -> None:
    settings = bare.settings("deploy", service.settings(), sudo=Sudo.AUTO)
    with closing(Hosts({"n1": settings})) as hosts:
        stop = hosts.perform(StopNode(node="n1"))
        assert isinstance(stop, Refused)
        assert "there is no sudo on the host: install it, or log in as root" in stop.reason
        view = seen(hosts, rights=True)
        assert view.may_control is False
        assert "there is no sudo on the host" in view.detail
    rights = {one.point: one for one in checks(settings)}
    assert rights[Point.RIGHT_STOP].grade is Grade.BAD
    assert "`hosts.sudo: false`" in rights[Point.RIGHT_STOP].message
    # An account that has the rights by itself says so, and `true` keeps its meaning for root, too.
    without = checks(bare.settings("deploy", service.settings(), sudo=Sudo.OFF))
    assert {one.grade for one in without} == {Grade.GOOD}
    asked_for = checks(bare.settings("root", service.settings(), sudo=Sudo.PASSWORDLESS))
    assert "there is no sudo on the host" in {one.point: one.message for one in asked_for}[Point.RIGHT_STOP]


def checks(settings: HostSettings) -> tuple[HostCheck, ...]:
    with closing(Connections()) as connections:
        return check_host(settings, connections, reboot=False, redact=Redactor())
