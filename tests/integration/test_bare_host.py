"""A real host over SSH without sudo and without a service manager: who is root there, and its node's lock."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.hosts import exclusion, port
from orchestrator.hosts.check import Grade, HostCheck, Point, check_host
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.action import (
    Done,
    Moment,
    Refused,
    RunHook,
    StartNode,
    StopNode,
    TuneHost,
)
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Hook
from orchestrator.model.tuning import FileChange, Reload
from orchestrator.redact import Redactor
from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import wait_until, write_known_hosts
from tests.integration.hostlab.images import BASE, HOSTS
from tests.integration.hostlab.reaching import LabHost, execute
from tests.integration.perform_and_wait import PATIENCE, job_ended, killed_at_work
from tests.integration.script_service import ScriptService
from tests.integration.sshd import make_key

BUILD_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BareHost:
    """A running one.

    Attributes:
        host: its address and its container.
        identity: the key of both users.
        known_hosts: with its host key.
    """

    host: LabHost
    identity: Path
    known_hosts: Path

    def settings(self, user: str, service: ServiceSettings, **changes: object) -> HostSettings:
        """How node `n1` is reached there."""
        values = {
            "node": "n1",
            "address": self.host.address,
            "user": user,
            "identities": (str(self.identity),),
            "known_hosts": (str(self.known_hosts),),
            "use_agent": False,
            "ssh_config": (),
            "service": service,
        }
        return HostSettings(**{**values, **changes})

    def run(self, line: str) -> str:
        """What a shell line prints there, as root and past SSH."""
        return execute(self.host, line).stdout.strip()


def _image() -> str:
    text = (HOSTS / "Dockerfile.bare").read_text(encoding="utf-8")
    base = docker.run(("docker", "image", "inspect", "--format", "{{.Id}}", BASE), check=False).stdout.strip()
    image = f"orchestrator-lab:bare-{hashlib.sha256(f'{base}{text}'.encode()).hexdigest()[:12]}"
    if docker.run(("docker", "image", "inspect", image), check=False).returncode != 0:
        docker.run(("docker", "build", "-t", image, "-"), stdin=text, seconds=BUILD_SECONDS)
    return image


@contextmanager
def bare_host(folder: Path, shared: Path) -> Iterator[BareHost]:
    """One, until the end of the context.

    Args:
        folder: for its keys.
        shared: a folder that is under the same path there.
    """
    docker.require_engine()
    identity = make_key(folder / "id")
    name = f"orchestrator-lab-bare-{secrets.token_hex(4)}"
    mounts = ("--tmpfs", "/run", "--tmpfs", "/run/lock", "-v", f"{shared}:{shared}")
    docker.run(
        ("docker", "run", "--detach", "--rm", "--name", name, *mounts, _image()), seconds=BUILD_SECONDS
    )
    try:
        address = docker.run(
            ("docker", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
        ).stdout.strip()
        host = LabHost(name="n1", address=address, zone="", container=name)
        key = identity.with_suffix(".pub").read_text(encoding="utf-8").strip()
        for home, user in (("/root", "root"), ("/home/deploy", "deploy")):
            execute(
                host,
                f"install -d -m 700 -o {user} {home}/.ssh && echo '{key}' >{home}/.ssh/authorized_keys"
                f" && chown {user} {home}/.ssh/authorized_keys",
            )
        known_hosts = folder / "known_hosts"
        write_known_hosts(known_hosts, [host])
        yield BareHost(host=host, identity=identity, known_hosts=known_hosts)
    finally:
        docker.run(("docker", "rm", "--force", name), check=False)


pytestmark = [pytest.mark.docker, pytest.mark.part(name="services")]


@pytest.fixture
def service(tmp_path: Path) -> ScriptService:
    """Its processes end with the host."""
    return ScriptService(folder=tmp_path / "service").install(start_takes=4)


@pytest.fixture
def bare(tmp_path: Path, service: ScriptService) -> Iterator[BareHost]:
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    service.folder.chmod(0o777)
    with bare_host(tmp_path, service.folder) as host:
        yield host


def seen(hosts: Hosts, *, rights: bool = False) -> HostView:
    reading = hosts.observe(["n1"], rights=rights)["n1"]
    assert isinstance(reading, HostView), reading
    return reading


def living(bare: BareHost, service: ScriptService) -> int:
    """How many processes of the service run on the host."""
    file = service.folder / "n1.processes"
    return int(bare.run(f"for p in $(cat {file}); do kill -0 $p && echo $p; done 2>/dev/null | wc -l"))


@pytest.mark.parametrize(("user", "folder"), [("root", "/run"), ("deploy", "/run/lock"), ("deploy", "/tmp")])
def test_a_start_sent_again_after_a_kill_is_the_first_one(
    bare: BareHost, service: ScriptService, user: str, folder: str
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
    bare: BareHost, service: ScriptService, monkeypatch: pytest.MonkeyPatch
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


def test_where_the_account_is_root_no_sudo_is_needed(bare: BareHost, service: ScriptService) -> None:
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
            changes=(FileChange(path="/etc/x.conf", found=None, wanted="y\n", reload=Reload.NOBODY),),
        )
        done = hosts.perform(tune)
        assert isinstance(done, Done), done
        assert bare.run("cat /etc/x.conf") == "y"
        hook = RunHook(node="n1", moment=Moment.WHILE_STOPPED, number=0, hook=Hook(run="id -u"))
        assert hosts.perform(hook) == Done(output="0")
        assert isinstance(hosts.perform(StopNode(node="n1")), Done)
        assert wait_until(lambda: seen(hosts).service is ServiceState.STOPPED, seconds=PATIENCE)
    assert {one.grade for one in checks(settings)} == {Grade.GOOD}


def test_a_host_without_sudo_says_what_to_do(bare: BareHost, service: ScriptService) -> None:
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
