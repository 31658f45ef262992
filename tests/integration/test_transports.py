"""One suite for all ways to a machine: the same command has the same result, and faults are data.

`local` is this machine; `ssh` (paramiko) and `openssh` (the operator's own) reach a real sshd on loopback.
`docker` is a service in a container, which is read, stopped and started through a real engine on this
machine. It runs no commands of ours and has no keys of hosts, so it takes part where a service does.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.daemons import in_parallel
from orchestrator.hosts.check import Grade, Point, check_host
from orchestrator.hosts.connection import (
    KEPT_BYTES,
    CommandResult,
    HostConnection,
    Lost,
    Outcome,
    Trouble,
    Unreachable,
)
from orchestrator.hosts.connections.openssh import Master, OpensshSession, begin
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.connections.sessions import SESSIONS_PER_CONNECTION, CommandOrder
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.script import untranslated
from orchestrator.model.action import (
    ActionResult,
    Done,
    InDoubt,
    Moment,
    RebootHost,
    Refused,
    RunHook,
    StartNode,
    StopNode,
)
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostLimits, HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Hook
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor
from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import wait_until
from tests.integration.hostlab.images import BASE
from tests.integration.script_service import ScriptService
from tests.integration.sshd import Sshd, make_key, tool
from tests.lab import nodectl
from tests.ports import free_port
from tests.tools import needs

REAL = "/var/run/docker.sock"
_SCRIPT = """
trap 'echo begun; sleep $(cat /stop_seconds); echo ended; exit 143' TERM
while :; do sleep 60 & wait $!; done
"""
Answer = Callable[[socket.socket], None]


@dataclass(kw_only=True)
class Engine:
    """Hands on what clients say to the real engine; `close` ends every connection."""

    path: Path  # of the socket
    answer: Answer | None = None  # what new clients get in place of the real engine; None = the real one
    _open: list[socket.socket] = field(default_factory=list)
    _listener: socket.socket | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What makes the docker command use it."""
        return {"DOCKER_HOST": f"unix://{self.path}"}

    def start(self) -> Engine:
        docker.require_engine()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def cut(self) -> None:
        """End every connection."""
        while self._open:
            _end(self._open.pop())

    def close(self) -> None:
        """Be gone."""
        if self._listener is not None:
            _end(self._listener)
            self._listener = None
            self.path.unlink()
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self.answer is not None:
                return self.answer(client)
            with socket.socket(socket.AF_UNIX) as real:
                real.connect(REAL)
                self._open.append(real)
                back = threading.Thread(target=_copy, args=(real, client), daemon=True)
                back.start()
                _copy(client, real)
                back.join()
        return None


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@dataclass(kw_only=True)
class ContainedService:
    """A container that ends as a JVM does when it is asked to; `end` removes it."""

    name: str = field(default_factory=lambda: f"orchestrate-test-{uuid.uuid4().hex[:12]}")

    def install(self) -> ContainedService:
        docker.run(("docker", "create", "--name", self.name, BASE, "/bin/sh", "-c", _SCRIPT))
        self.stop_takes(0)
        return self

    def stop_takes(self, seconds: float) -> None:
        """Let it work for so long when it is asked to end."""
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(f"{seconds}\n")
            file.flush()
            docker.run(("docker", "cp", file.name, f"{self.name}:/stop_seconds"))

    def settings(self) -> ServiceSettings:
        return ServiceSettings(
            manager=Manager.DOCKER, unit=self.name, grace=30.0, program=shutil.which("docker")
        )

    def stops(self, node: str) -> list[str]:
        """What it did when it was asked to end."""
        del node
        return docker.run(("docker", "logs", self.name)).stdout.split()

    def end(self) -> None:
        docker.run(("docker", "rm", "--force", self.name))


REMOTE = (Connect.SSH, Connect.OPENSSH)
DOCKER = "docker"
Service = ScriptService | ContainedService
MEGABYTES = 100 * 1024 * 1024
PASSWORD = "correct horse"  # noqa: S105  (of the stand-in)


@dataclass(kw_only=True)
class Way:
    """One way to a machine."""

    connect: Connect
    folder: Path  # of its own
    client_key: Path
    servers: list[Sshd] = field(default_factory=list)  # those that were started, the target first
    connections: Connections = field(default_factory=Connections)
    engine: Engine | None = None  # the one by which the service is reached; None = it is no container

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def start(self, *options: str, environment: Mapping[str, str] | None = None) -> Sshd:
        """A server; its key is known."""
        server = Sshd(
            folder=self.folder / f"sshd{len(self.servers)}",
            client_key=self.client_key,
            options=options,
            environment=environment or {},
        ).start()
        self.servers.append(server)
        with self.known_hosts.open("a") as file:
            file.write(server.known())
        return server

    @property
    def server(self) -> Sshd:
        return self.servers[0] if self.servers else self.start()

    def settings(self, node: str = "es1", **changes: object) -> HostSettings:
        if self.connect is Connect.LOCAL:
            if self.engine is None:
                changes.pop("limits", None)
            else:
                given: Any = changes.pop("environment", {})
                changes["environment"] = {**self.engine.variables, **given}
            values = {"node": node, "address": "localhost", "connect": Connect.LOCAL}
            return HostSettings(**{**values, **changes})
        return self.server.settings(node, self.known_hosts, connect=self.connect, **changes)

    def to(self, settings: HostSettings | None = None) -> HostConnection:
        connection = self.connections.to(settings or self.settings())
        assert not isinstance(connection, Unreachable), connection
        return connection

    def connect_anew(self) -> None:
        """End the connections; configurations are read again."""
        self.connections.close()
        self.connections = Connections()

    def run(self, command: str, timeout: float = 20.0, **changes: object) -> Outcome:
        return self.to(self.settings(**changes)).run(command, timeout=timeout)

    def cut(self) -> None:
        """End the connections under what is at work."""
        if self.engine is not None:
            self.engine.cut()
        else:
            self.server.signal_sessions(signal.SIGKILL)

    def vanish(self) -> None:
        """Let there be no server any more."""
        if self.engine is not None:
            self.engine.close()
        else:
            self.server.stop()

    def hang(self) -> None:
        """Let the peer take what it is sent and say nothing."""
        if self.engine is not None:
            self.engine.answer = silence
            return
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGSTOP)
        self.server.signal_sessions(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        if self.engine is not None:
            self.engine.answer = None
            return
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGCONT)
        self.server.signal_sessions(signal.SIGCONT)

    def close(self) -> None:
        self.connections.close()
        if self.engine is not None:
            self.engine.close()
        for server in self.servers:
            server.signal_sessions(signal.SIGCONT)
            server.stop()


@pytest.fixture(scope="module")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys") / "id")


@pytest.fixture
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    if request.param == DOCKER and docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    engine = Engine(path=tmp_path / "engine").start() if request.param == DOCKER else None
    connect = Connect.LOCAL if engine else request.param
    key = request.getfixturevalue("client_key") if connect in REMOTE else tmp_path / "no-key"
    made = Way(connect=connect, folder=tmp_path, client_key=key, engine=engine)
    yield made
    made.close()


@pytest.fixture
def service(way: Way, tmp_path: Path) -> Iterator[Service]:
    made = ContainedService() if way.engine else ScriptService(folder=tmp_path / "service")
    try:
        yield made.install()
    finally:
        made.end()


WELL = CommandResult(exit=0, stdout="well\n")


def unreachable(result: Outcome, trouble: Trouble, *words: str) -> str:
    """The reason of a connection that is not made for this trouble, which names these words."""
    assert isinstance(result, Unreachable), result
    assert result.trouble is trouble, result
    assert [word for word in words if word not in result.reason] == []
    return result.reason


def configured(folder: Path, text: str) -> dict[str, Any]:
    """Settings with a configuration of the operator's `ssh`."""
    (folder / "config").write_text(text)
    return {"ssh_config": (str(folder / "config"),)}


def names(way: Connect | str) -> str:
    return way if isinstance(way, str) else way.value


in_docker = pytest.param(DOCKER, marks=pytest.mark.docker)
every_service = pytest.mark.parametrize("way", [*Connect, in_docker], indirect=True, ids=names)
remote_services = pytest.mark.parametrize("way", [*REMOTE, in_docker], indirect=True, ids=names)
every_way = pytest.mark.parametrize("way", list(Connect), indirect=True, ids=lambda way: way.value)
remote_ways = pytest.mark.parametrize("way", REMOTE, indirect=True, ids=lambda way: way.value)
local_alone = pytest.mark.parametrize("way", [Connect.LOCAL], indirect=True, ids=["local"])
ssh_alone = pytest.mark.parametrize("way", [Connect.SSH], indirect=True, ids=["ssh"])
openssh_alone = pytest.mark.parametrize("way", [Connect.OPENSSH], indirect=True, ids=["openssh"])


# -- what a command gets, and what comes back


@every_way
def test_input_output_and_exit_code_arrive_as_they_are(way: Way) -> None:
    """Byte by byte; quotes in quotes multiply, and a line on the host has at most 128 KiB."""
    connection = way.to()
    result = connection.run("read x; echo out $x; echo err >&2; exit 7", timeout=20.0, stdin="given\n")
    assert result == CommandResult(exit=7, stdout="out given\n", stderr="err\n")
    for code in (0, 1, 124, 127, 255):
        assert connection.run(f"exit {code}", timeout=20.0) == CommandResult(exit=code, stdout="")
    for printed in (
        "",
        "\n",
        "no newline",
        "\n\n\ntext\n\n",
        "@@orchestrate-0 end script 1\n",
        "caf\u00e9 \u20ac\n",
    ):
        assert way.run(f"printf %s '{printed}'") == CommandResult(exit=0, stdout=printed)
    text = "it's; " * 9000
    long = untranslated(f'printf %s {len(text)}; : "{text}"')
    assert way.run(long) == CommandResult(exit=0, stdout=str(len(text)))


@every_way
def test_100_megabytes_are_read_and_bounded(way: Way) -> None:
    noise = f"head -c {MEGABYTES} /dev/zero | tr '\\0' x; echo; echo the end"
    line = f"{noise}; head -c 1000000 /dev/zero >&2; exit 3"
    result = way.run(line, timeout=120.0)
    assert isinstance(result, CommandResult), result
    assert result.exit == 3
    assert result.truncated == MEGABYTES + len("\nthe end\n") + 1000000 - 2 * KEPT_BYTES
    assert len(result.stdout) < KEPT_BYTES + 100
    assert result.stdout.endswith("the end\n")


@every_way
def test_a_daemon_that_keeps_the_output_open_does_not_keep_us(way: Way) -> None:
    began = time.monotonic()
    result = way.run("sleep 50 & echo $!")
    assert isinstance(result, CommandResult), result
    assert time.monotonic() - began < 20
    os.kill(int(result.stdout), signal.SIGKILL)


@every_way
def test_a_command_past_its_limit_is_in_doubt(way: Way) -> None:
    """One that says little, and one that floods."""
    for line in ("echo so far; sleep 50", "yes"):
        began = time.monotonic()
        result = way.run(line, timeout=1.5)
        assert isinstance(result, Lost)
        assert result.timed_out
        assert line == "yes" or result.output == "so far"
        assert time.monotonic() - began < 20
        assert isinstance(way.run("true"), CommandResult)


@every_way
def test_a_job_is_heard_of_as_soon_as_it_ends(way: Way) -> None:
    ended = threading.Event()
    job = way.to().start("echo at work; sleep 0.5; exit 4", timeout=20.0, ended=ended.set)
    assert not isinstance(job, Unreachable)
    assert job.poll() is None
    assert ended.wait(20.0)
    assert job.poll() == CommandResult(exit=4, stdout="at work\n")


@every_way
def test_a_job_that_is_closed_is_no_longer_heard(way: Way) -> None:
    job = way.to().start("sleep 60", timeout=90.0)
    assert not isinstance(job, Unreachable)
    job.close()
    assert isinstance(job.wait(20.0), Lost)


@ssh_alone
def test_a_job_is_closed_on_a_connection_just_lost(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is known only by what is sent: the end of a watch must not end the run with it."""

    def lost(*_: object) -> None:
        raise EOFError

    job = way.to().start("sleep 60", timeout=90.0)
    assert not isinstance(job, Unreachable)
    monkeypatch.setattr("paramiko.packet.Packetizer.send_message", lost)
    job.close()
    monkeypatch.undo()
    assert isinstance(job.wait(20.0), Lost)
    assert way.run("true") == CommandResult(exit=0, stdout="")


@every_way
def test_24_commands_at_once(way: Way) -> None:
    """Nodes may share a host, whose sshd refuses the eleventh session of a connection."""
    nodes = {f"es{n}": way.to(way.settings(f"es{n}")) for n in range(24)}
    line = "sleep 1; echo {} $SSH_CONNECTION"
    work = {node: partial(one.run, line.format(node), timeout=30.0) for node, one in nodes.items()}
    done = in_parallel(work, timeout=90.0)
    said = {node: getattr(one, "stdout", "").split() for node, one in done.items()}
    assert {node: words[:1] for node, words in said.items()} == {node: [node] for node in nodes}, done
    if way.connect is Connect.SSH:
        ports = Counter(words[2] for words in said.values())
        assert max(ports.values()) <= 2 * SESSIONS_PER_CONNECTION, "those that waited for room are among them"
        assert len(ports) in (2, 3), "and no more connections than it takes"
        assert port_of(nodes["es0"]) in ports, "they are used again"


def port_of(connection: HostConnection) -> str:
    """The client's port of the connection under a command."""
    result = connection.run("echo $SSH_CONNECTION", timeout=20.0)
    assert isinstance(result, CommandResult), result
    return result.stdout.split()[1]


@remote_ways
def test_one_connection_serves_until_it_is_lost(way: Way) -> None:
    way.known_hosts.write_text(way.server.known(hashed=True))
    connection = way.to()
    ports = {port_of(connection) for _ in range(5)}
    assert len(ports) == 1
    way.cut()
    assert port_of(connection) not in ports


@local_alone
def test_the_limit_ends_the_whole_process_group(way: Way) -> None:
    end = way.run("sleep 50 & echo $!; wait", timeout=0.5)
    assert isinstance(end, Lost)
    assert end.timed_out
    assert wait_until(lambda: nodectl.start_time(int(end.output)) is None, seconds=30)


@pytest.mark.parametrize("way", [Connect.LOCAL, Connect.OPENSSH], indirect=True)
def test_ctrl_c_ends_no_command(way: Way) -> None:
    """A terminal signals its process group, and a closed one its session: both are other ones here."""
    job = way.to().start("echo begun; sleep 1.25; echo done", timeout=20.0)
    assert not isinstance(job, Unreachable)
    lines = [line.split(None, 2) for line in tool("ps", "-eo", "pgid,sid,args").splitlines()]
    ours = [words for words in lines if "sleep 1.25" in words[2] or "ControlMaster=yes" in words[2]]
    assert ours
    for group, session, args in ours:
        assert (int(group), int(session)) != (os.getpgid(0), os.getsid(0)), args
        assert int(group) != os.getpgid(0), args
    assert job.wait(20.0) == CommandResult(exit=0, stdout="begun\ndone\n")


# -- verbs


def hosts_of(way: Way, service: Service, /, **changes: object) -> Hosts:
    values: dict[str, object] = {"service": service.settings(), "sudo": Sudo.OFF, **changes}
    return Hosts({"es1": way.settings(**values)}, redact=Redactor([PASSWORD]), connections=way.connections)


def seen(hosts: Hosts) -> HostView:
    view = hosts.observe(["es1"], rights=True)["es1"]
    assert isinstance(view, HostView), view
    return view


def until(hosts: Hosts, state: ServiceState) -> HostView:
    deadline = time.monotonic() + 60
    while (view := seen(hosts)).service is not state:
        assert time.monotonic() < deadline, f"{view.service} and not {state}"
        hosts.watch(["es1"], 5.0)
    return view


@every_service
def test_a_service_is_stopped_and_started(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    assert seen(hosts).service is ServiceState.STOPPED
    for action, state in ((StartNode, ServiceState.RUNNING), (StopNode, ServiceState.STOPPED)):
        assert isinstance(hosts.perform(action(node="es1")), Done)
        view = until(hosts, state)
        assert view.may_control is True
        assert view.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@every_service
def test_the_end_of_a_stop_wakes_the_watch(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    hosts.perform(StartNode(node="es1"))
    until(hosts, ServiceState.RUNNING)
    service.stop_takes(5)
    assert isinstance(hosts.perform(StopNode(node="es1")), Done)
    assert seen(hosts).service is ServiceState.STOPPING
    assert hosts.watch(["es1"], 60.0) is True
    until(hosts, ServiceState.STOPPED)


@pytest.mark.parametrize("way", [in_docker], indirect=True, ids=names)
def test_a_killed_container_is_no_clean_stop_and_can_start(way: Way, service: Service) -> None:
    assert isinstance(service, ContainedService)
    hosts = hosts_of(way, service, service=replace(service.settings(), grace=1.0))
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    until(hosts, ServiceState.RUNNING)
    service.stop_takes(600)
    assert isinstance(hosts.perform(StopNode(node="es1")), Done)
    until(hosts, ServiceState.FAILED)
    service.stop_takes(0)
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    until(hosts, ServiceState.RUNNING)


@every_way
def test_the_watch_ends_at_a_change_by_others_or_its_time(way: Way, service: ScriptService) -> None:
    hosts = hosts_of(way, service)
    hosts.perform(StartNode(node="es1"))
    until(hosts, ServiceState.RUNNING)
    began = time.monotonic()
    assert hosts.watch(["es1"], 1.0) is False
    assert time.monotonic() - began > 0.9
    # Not by killing it: how soon a dead process is reaped is not ours.
    threading.Timer(0.7, service.forget, ("es1",)).start()
    began = time.monotonic()
    assert hosts.watch(["es1"], 60.0) is True
    assert 0.5 < time.monotonic() - began < 40


@every_way
def test_a_hook_that_did_not_run_is_told_from_one_that_failed(
    way: Way, service: ScriptService, tmp_path: Path
) -> None:
    """Whatever took a node out of service is to be undone: 127 may be the end of a line that did so."""
    hosts = hosts_of(way, service)
    script, not_run = tmp_path / "depool", tmp_path / "not-to-be-run"
    script.write_text(f"#!/bin/sh\necho $1 >>{tmp_path}/out-of-service\nno-such-program\n")
    script.chmod(0o755)
    not_run.touch(mode=0o644)

    def ran(line: str, timeout: float = 5.0) -> ActionResult:
        hook = Hook(run=line, timeout=timeout)
        return hosts.perform(RunHook(node="es1", moment=Moment.BEFORE_STOP, number=0, hook=hook))

    assert ran("echo depool {node} token=abcdef") == Done(output="depool es1 token=[redacted]")
    for line in ("no-such-program {node}", f"{not_run} {{node}}"):
        assert isinstance(ran(line), Refused), line
    half = f"echo {{node}} >>{tmp_path}/out-of-service; no-such-program"
    for line in ("exit 3", half, f"{script} {{node}}"):
        assert isinstance(ran(line), InDoubt), line
    slow = ran("sleep 30", timeout=1.0)
    assert isinstance(slow, InDoubt)
    assert "1 s" in slow.reason


@remote_ways
def test_a_check_names_the_point_that_fails(way: Way, service: ScriptService) -> None:
    settings = way.settings(service=service.settings())

    def grades() -> dict[Point, Grade]:
        checks = check_host(settings, way.connections, reboot=False, redact=Redactor())
        return {check.point: check.grade for check in checks}

    way.known_hosts.write_text("")
    unknown = grades()
    assert unknown[Point.CONNECT] is Grade.GOOD
    assert unknown[Point.HOST_KEY] is Grade.BAD
    assert unknown[Point.LOG_IN] is Grade.NOT_CHECKED
    way.known_hosts.write_text(way.server.known())
    assert set(grades().values()) == {Grade.GOOD}
    way.vanish()
    way.connections.to(settings)
    assert grades()[Point.CONNECT] is Grade.BAD


@every_service
def test_a_refused_sudo_is_refused_and_not_in_doubt(way: Way, service: Service, tmp_path: Path) -> None:
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    sudo.chmod(0o755)
    path = {"PATH": f"{sudo.parent}:{os.environ['PATH']}"}
    local = way.connect is Connect.LOCAL
    if not local:
        way.start(environment=path)
    changes = {"environment": path} if local else {}
    hosts = hosts_of(way, service, sudo=Sudo.PASSWORDLESS, **changes)
    result = hosts.perform(StopNode(node="es1"))
    assert isinstance(result, Refused), result
    assert "sudo refused: sudo: a password is required" in result.reason
    assert service.stops("es1") == []


# -- connections that are lost, hang, or are not made


@remote_ways
def test_a_connection_lost_under_a_command_is_in_doubt(way: Way) -> None:
    connection = way.to()
    begun = way.folder / "begun"
    # What it said is on its way before the connection goes: the server forwards it within the second.
    job = connection.start(f"echo so far; sleep 1; touch {begun}; sleep 60", timeout=90.0)
    assert not isinstance(job, Unreachable)
    assert wait_until(begun.exists, seconds=20)
    way.cut()
    end = job.wait(30.0)
    assert isinstance(end, Lost), end
    assert not end.timed_out
    assert end.output.strip() == "so far"
    assert connection.run("echo again", timeout=20.0) == CommandResult(exit=0, stdout="again\n")


@remote_services
@pytest.mark.parametrize("kind", [InDoubt, Done], ids=["while it is begun", "later"])
def test_a_stop_whose_connection_is_lost_goes_on(
    way: Way, service: Service, monkeypatch: pytest.MonkeyPatch, kind: type[ActionResult]
) -> None:
    monkeypatch.setattr("orchestrator.hosts.port.QUICK_SECONDS", 60.0 if kind is InDoubt else 0.5)
    hosts = hosts_of(way, service)
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    until(hosts, ServiceState.RUNNING)
    service.stop_takes(4)

    def cut() -> None:
        assert wait_until(lambda: service.stops("es1") == ["begun"], seconds=40)
        way.cut()

    if kind is InDoubt:
        threading.Thread(target=cut).start()
    result = hosts.perform(StopNode(node="es1"))
    if kind is Done:
        assert seen(hosts).service is ServiceState.STOPPING
        cut()
    assert isinstance(result, kind), result
    assert wait_until(lambda: isinstance(hosts.observe(["es1"], rights=True)["es1"], HostView), seconds=40)
    until(hosts, ServiceState.STOPPED)
    assert service.stops("es1") == ["begun", "ended"], "sent once"


@remote_services
def test_a_stop_that_reaches_no_server_is_refused(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    way.vanish()
    result = hosts.perform(StopNode(node="es1"))
    assert isinstance(result, Refused), result
    assert isinstance(hosts.observe(["es1"], rights=True)["es1"], Unknown)
    assert service.stops("es1") == []


@remote_ways
def test_a_host_that_is_back_wakes_the_watch(way: Way, service: ScriptService) -> None:
    hosts = hosts_of(way, service)
    seen(hosts)
    way.vanish()
    assert isinstance(hosts.observe(["es1"], rights=True)["es1"], Unknown)
    assert hosts.watch(["es1"], 0.7) is False
    threading.Timer(0.5, way.server.start).start()
    assert hosts.watch(["es1"], 20.0) is True
    assert seen(hosts).service is ServiceState.STOPPED


@remote_services
def test_a_service_behind_a_peer_that_hangs_is_unknown(way: Way, service: Service) -> None:
    limits = HostLimits(connect=2.0, banner=2.0, auth=2.0, command=3.0, keepalive=2.0)
    hosts = hosts_of(way, service, limits=limits)
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    until(hosts, ServiceState.RUNNING)
    way.hang()
    began = time.monotonic()
    view = hosts.observe(["es1"], rights=True)["es1"]
    assert isinstance(view, Unknown), view
    assert time.monotonic() - began < 40
    way.wake()
    deadline = time.monotonic() + 40
    while isinstance(hosts.observe(["es1"], rights=True)["es1"], Unknown):
        assert time.monotonic() < deadline


def flood(connection: socket.socket) -> None:
    """Answer with an error of 100 MB."""
    connection.recv(65536)
    head = f"HTTP/1.1 500 So\r\nContent-Type: application/json\r\nContent-Length: {MEGABYTES}\r\n\r\n"
    connection.sendall(head.encode())
    banner_in_one_line(connection)


@pytest.mark.parametrize("way", [in_docker], indirect=True, ids=names)
def test_an_engine_that_floods_is_unknown_in_a_few_words(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    assert way.engine is not None
    way.engine.answer = flood
    view = hosts.observe(["es1"], rights=True)["es1"]
    assert isinstance(view, Unknown), view
    assert len(view.reason) < 1000
    result = hosts.perform(StopNode(node="es1"))
    assert isinstance(result, InDoubt | Refused), result
    assert len(result.reason) < 2 * KEPT_BYTES


@remote_ways
def test_a_peer_that_hangs_ends_in_the_limit(way: Way) -> None:
    limits = HostLimits(connect=2.0, banner=2.0, auth=2.0, command=3.0, keepalive=2.0)
    connection = way.to(way.settings(limits=limits))
    begun = way.folder / "begun"
    job = connection.start(f"touch {begun}; sleep 1; echo never heard", timeout=2.0)
    assert not isinstance(job, Unreachable)
    assert wait_until(begun.exists, seconds=20)
    way.hang()
    began = time.monotonic()
    end = job.wait(20.0)
    assert isinstance(end, Lost), end
    assert end.timed_out
    result = connection.run("true", timeout=3.0)
    assert isinstance(result, Unreachable | Lost), result
    assert not isinstance(result, Lost) or result.timed_out
    if way.connect is Connect.SSH:
        assert isinstance(result, Unreachable)
        assert result.trouble is Trouble.NO_ANSWER
    assert time.monotonic() - began < 40
    way.wake()
    deadline = time.monotonic() + 40
    while not isinstance(connection.run("true", timeout=10.0), CommandResult):
        assert time.monotonic() < deadline


@contextlib.contextmanager
def talker(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that is no sshd; its port."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            talk(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def silence(connection: socket.socket) -> None:
    connection.recv(1)
    time.sleep(60)  # says nothing; the client gives up


def banner_in_lines(connection: socket.socket) -> None:
    for _ in range(100):
        connection.sendall((b"x" * 1023 + b"\n") * 1024)


def banner_in_one_line(connection: socket.socket) -> None:
    for _ in range(100):
        connection.sendall(b"x" * 1024 * 1024)


@remote_ways
@pytest.mark.parametrize(
    "talk", [silence, banner_in_lines, banner_in_one_line], ids=lambda talk: talk.__name__
)
def test_a_banner_without_end_and_none_at_all_end_in_the_limit(
    way: Way, talk: Callable[[socket.socket], None]
) -> None:
    limits = HostLimits(connect=2.0, banner=2.0, auth=2.0, command=5.0)
    began = time.monotonic()
    with talker(talk) as port:
        result = way.run("true", port=port, limits=limits)
    assert isinstance(result, Unreachable), result
    assert time.monotonic() - began < 40


@remote_ways
def test_a_greeting_of_100_megabytes_costs_no_result(way: Way) -> None:
    home = way.folder / "sshd0" / "home"
    home.mkdir(parents=True)
    (home / ".bashrc").write_text(f"head -c {MEGABYTES} /dev/zero | tr '\\0' x\necho\n")
    result = way.run("echo well; exit 5", timeout=120.0)
    assert isinstance(result, CommandResult), result
    assert result.exit == 5
    assert result.stdout.endswith("well\n")


@remote_ways
def test_a_banner_before_the_log_in_is_no_output(way: Way, tmp_path: Path) -> None:
    (tmp_path / "banner").write_text("Private system.\n" * 200)
    way.start(f"Banner {tmp_path}/banner")
    assert way.run("echo well") == WELL


# -- host keys


@remote_ways
def test_an_unknown_a_changed_and_a_revoked_host_key_are_refused(way: Way) -> None:
    server, other = way.start(), way.start()
    name = f"[127.0.0.1]:{server.port}"
    own, strange = (" ".join(one.known().split()[1:]) for one in (server, other))
    prints = [tool("ssh-keygen", "-lf", f"{one.host_key}.pub").split()[1] for one in (server, other)]
    for lines, trouble, said in (
        ("", Trouble.UNKNOWN_KEY, (prints[0], "ssh-keyscan")),
        (f"{name} {strange}\n", Trouble.CHANGED_KEY, (*prints, f"{way.known_hosts}:1")),
        (f"@revoked {name} {own}\n{name} {own}\n", Trouble.REVOKED_KEY, ()),
        (f"{name} {own}\n@revoked {name} {own}\n", Trouble.REVOKED_KEY, ()),
    ):
        way.known_hosts.write_text(lines)
        result = way.run("echo never")
        # The other one hands on what `ssh` says.
        unreachable(result, trouble, *(said if way.connect is Connect.SSH else ()))
        assert isinstance(result, Unreachable)
        assert not result.passes
        assert way.known_hosts.read_text() == lines, "nothing is recorded"


@remote_ways
def test_a_host_with_several_keys_is_asked_for_the_known_one(way: Way) -> None:
    second = make_key(way.folder / "rsa_key", kind="rsa")
    server = way.start(f"HostKey {second}")
    known = " ".join(second.with_suffix(".pub").read_text().split()[:2])
    way.known_hosts.write_text(f"[127.0.0.1]:{server.port} {known}\n")
    assert way.run("echo well") == WELL


@remote_ways
def test_no_configuration_of_the_operator_accepts_a_key(way: Way, tmp_path: Path) -> None:
    lax = "StrictHostKeyChecking no\n  NoHostAuthenticationForLocalhost yes\n  UpdateHostKeys yes\n"
    way.start()
    way.known_hosts.write_text("")
    unreachable(way.run("true", **configured(tmp_path, f"Host *\n  {lax}")), Trouble.UNKNOWN_KEY)
    assert way.known_hosts.read_text() == ""


@remote_ways
def test_a_host_key_alias_is_looked_up_without_the_port(way: Way, tmp_path: Path) -> None:
    server = way.start()
    way.known_hosts.write_text(f"es-one {' '.join(server.known().split()[1:])}\n")
    alias = configured(tmp_path, "Host 127.0.0.1\n  HostKeyAlias es-one\n")
    assert way.run("echo well", **alias) == WELL


# -- hosts behind others, and old ones


@remote_ways
def test_hosts_behind_two_jump_hosts_share_one_connection(way: Way, tmp_path: Path) -> None:
    target, outer, inner = way.start(), way.start(), way.start()
    config = tmp_path / "config"
    config.write_text(
        f"Host outer\n  HostName 127.0.0.1\n  Port {outer.port}\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump outer\n"
        f"Host es*\n  HostName 127.0.0.1\n  Port {target.port}\n  ProxyJump inner\n"
        f"Host *\n  User {getpass.getuser()}\n  IdentityFile {way.client_key}\n  IdentitiesOnly yes\n"
    )
    changes = {"port": None, "user": None, "identities": (), "ssh_config": (str(config),)}
    work = {f"es{n}": partial(way.run, f"echo {n}", address=f"es{n}", **changes) for n in range(6)}
    done = in_parallel(work, timeout=60.0)
    assert {name: getattr(one, "stdout", one) for name, one in done.items()} == {
        f"es{n}": f"{n}\n" for n in range(6)
    }
    for server, least, most in ((outer, 1, 1), (inner, 1, 1), (target, 1, 6)):
        log = (server.folder / "log").read_text()
        assert least <= log.count("Accepted publickey") <= most, log
    outer.signal_sessions(signal.SIGKILL)
    again = way.run("echo again", address="es1", **changes)
    if isinstance(again, Lost):  # it met the shared connection as that broke: it may have been carried out
        again = way.run("echo again", address="es1", **changes)
    assert again == CommandResult(exit=0, stdout="again\n")


@remote_ways
def test_the_key_of_a_jump_host_is_checked_too(way: Way, tmp_path: Path) -> None:
    target, jump = way.start(), way.start()
    config = tmp_path / "config"
    config.write_text(
        f"Host jump\n  HostName localhost\n  Port {jump.port}\n  StrictHostKeyChecking no\n"
        f"Host es1\n  HostName 127.0.0.1\n  Port {target.port}\n  ProxyJump jump\n"
    )
    result = way.run("true", address="es1", port=None, ssh_config=(str(config),))
    unreachable(result, Trouble.UNKNOWN_KEY, f"[localhost]:{jump.port}")


RSA_ONLY = ("HostKeyAlgorithms ssh-rsa", "PubkeyAcceptedAlgorithms ssh-rsa")


def old_server(way: Way) -> dict[str, Any]:
    """A server that has only RSA with SHA-1; a configuration that lets `ssh` reach it."""
    key = make_key(way.folder / "rsa_key", kind="rsa")
    way.client_key = make_key(way.folder / "id_rsa", kind="rsa")
    name = f"sshd{len(way.servers)}"
    server = Sshd(folder=way.folder / name, client_key=way.client_key, options=RSA_ONLY)
    server.folder.mkdir(parents=True)
    for file in (key, key.with_suffix(".pub")):
        target = server.folder / file.name.replace("rsa_key", "host_key")
        target.write_bytes(file.read_bytes())
        target.chmod(0o600)
    way.servers.append(server.start())
    way.known_hosts.write_text(server.known())
    text = "Host 127.0.0.1\n  HostKeyAlgorithms +ssh-rsa\n  PubkeyAcceptedAlgorithms ssh-rsa\n"
    return configured(way.folder, text)


@remote_ways
def test_an_old_server_is_reached_by_openssh_as_it_is_configured(way: Way) -> None:
    """The other way names this one."""
    old = old_server(way)
    if way.connect is Connect.SSH:
        unreachable(way.run("true", **old), Trouble.PROTOCOL, "`hosts.connect: openssh`")
        return
    assert way.run("echo well", **old) == WELL
    plain = Way(connect=Connect.OPENSSH, folder=way.folder, client_key=way.client_key, servers=way.servers)
    unreachable(plain.run("true"), Trouble.PROTOCOL)
    plain.connections.close()


def certified(way: Way) -> None:
    """A server with a host certificate; only the authority is known."""
    authority = make_key(way.folder / "ca")
    server = Sshd(folder=way.folder / "sshd0", client_key=way.client_key)
    server.folder.mkdir()
    make_key(server.host_key)
    tool(
        "ssh-keygen",
        "-q",
        "-s",
        str(authority),
        "-h",
        "-I",
        "es1",
        "-n",
        "127.0.0.1",
        f"{server.host_key}.pub",
    )
    server.options = (f"HostCertificate {server.host_key}-cert.pub",)
    way.servers.append(server.start())
    key = authority.with_suffix(".pub").read_text()
    way.known_hosts.write_text(f"@cert-authority * {key}")


@remote_ways
def test_a_certified_host_is_known_to_openssh_by_its_authority(way: Way) -> None:
    """The other way names this one."""
    certified(way)
    if way.connect is Connect.OPENSSH:
        assert way.run("echo well") == WELL
    else:
        words = ("known_hosts:1", "`hosts.connect: openssh`")
        unreachable(way.run("true"), Trouble.UNKNOWN_KEY, *words)


# -- what `connect: openssh` takes from the operator, and what it does not


@openssh_alone
def test_a_match_exec_is_followed(way: Way, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f'Match originalhost es1 exec "true"\n  HostName 127.0.0.1\n  Port {way.server.port}\n')
    settings = {"address": "es1", "port": None, "ssh_config": (str(config),)}
    assert way.run("echo well", **settings) == WELL


PROXY = """\
import os, socket, sys, threading
open({file!r}, "w").write("\\n".join(f"{{name}}={{value}}" for name, value in os.environ.items()))
server = socket.create_connection(("127.0.0.1", {port}))
def answers():
    while data := server.recv(65536):
        os.write(1, data)
threading.Thread(target=answers, daemon=True).start()
while data := os.read(0, 65536):
    server.sendall(data)
"""


def keys_by_a_command(way: Way, tmp_path: Path) -> str:
    """The host's key is in no file: a command prints it, as that of SSSD does. The line for it."""
    (tmp_path / "known-by-command").write_text(way.server.known())
    return f"KnownHostsCommand {needs('cat')} {tmp_path}/known-by-command"


@remote_ways
@pytest.mark.parametrize("kind", ["before SSSD 2.10", "since SSSD 2.10", "without a Match"])
def test_a_machine_of_freeipa_reaches_its_hosts_by_openssh(
    way: Way, service: ScriptService, tmp_path: Path, kind: str
) -> None:
    """As `ipa-client-install` writes it; the check of the other way names the line to write."""
    (tmp_path / "proxy.py").write_text(PROXY.format(file=str(tmp_path / "seen"), port=way.server.port))
    command = keys_by_a_command(way, tmp_path)
    lines = {
        "before SSSD 2.10": f"GlobalKnownHostsFile {tmp_path}/known-by-command\nMatch exec true\n"
        f"\tProxyCommand {sys.executable} {tmp_path}/proxy.py -p %p %h\n",
        "since SSSD 2.10": f"Match exec true\n\t{command}\n",
        "without a Match": f"{command}\n",
    }
    config = configured(tmp_path, f"UserKnownHostsFile {tmp_path}/none\n{lines[kind]}")
    settings = way.settings(service=service.settings(), **config)
    checks = check_host(replace(settings, known_hosts=()), way.connections, reboot=False, redact=Redactor())
    by_point = {one.point: one for one in checks}
    if way.connect is Connect.OPENSSH:
        assert {one.grade for one in checks} == {Grade.GOOD}
        assert by_point[Point.LOG_IN].message == "logged in with `connect: openssh`"
    else:
        assert by_point[Point.RESOLVE].grade is Grade.BAD
        reaches = ". `connect: openssh` reaches it: write this line under `hosts`"
        assert by_point[Point.RESOLVE].message.endswith(reaches)


@remote_ways
def test_no_command_adds_to_known_hosts_of_the_cluster_file(way: Way, tmp_path: Path) -> None:
    config = configured(tmp_path, f"{keys_by_a_command(way, tmp_path)}\nVerifyHostKeyDNS yes\n")
    assert way.run("echo well", **config) == WELL
    way.known_hosts.write_text("")
    way.connect_anew()
    unreachable(way.run("true", **config), Trouble.UNKNOWN_KEY)


@ssh_alone
def test_what_is_not_followed_is_named_where_it_fails(way: Way, tmp_path: Path) -> None:
    for line, trouble, changes in [
        ("VerifyHostKeyDNS yes", Trouble.UNKNOWN_KEY, {}),
        ("BindAddress 127.0.0.9", Trouble.REFUSED, {"port": free_port()}),
        ("PKCS11Provider /usr/lib/p11.so", Trouble.AUTHENTICATION, {"identities": (str(tmp_path / "no"),)}),
    ]:
        files = f"UserKnownHostsFile {tmp_path}/none\nGlobalKnownHostsFile {tmp_path}/none\n"
        settings = way.settings(**configured(tmp_path, f"{files}{line}\n"), **changes)
        if trouble is Trouble.UNKNOWN_KEY:
            settings = replace(settings, known_hosts=())
        way.connect_anew()
        result = way.to(settings).run("true", timeout=20.0)
        unreachable(result, trouble, f"`{line}`", "`hosts.connect: openssh`")


@ssh_alone
def test_host_keys_that_no_list_of_algorithms_has_are_refused(way: Way, tmp_path: Path) -> None:
    """As system-wide crypto policies have it."""
    rsa = make_key(way.folder / "rsa_key", kind="rsa")
    server = way.start(f"HostKey {rsa}")
    known = " ".join(rsa.with_suffix(".pub").read_text().split()[:2])
    way.known_hosts.write_text(f"[127.0.0.1]:{server.port} {known}\n")
    for line, trouble, word in [
        ("HostKeyAlgorithms rsa-sha2-256-cert-v01@openssh.com", Trouble.PROTOCOL, "HostKeyAlgorithms"),
        ("HostKeyAlgorithms -*rsa*", Trouble.CHANGED_KEY, "it shows ssh-ed25519"),
        ("RequiredRSASize 4096", Trouble.PROTOCOL, "has 3072 bits"),
    ]:
        way.connect_anew()
        unreachable(way.run("true", **configured(tmp_path, f"{line}\n")), trouble, word)
    for line in ("HostKeyAlgorithms rsa-sha2-512,ssh-ed25519", "RSAMinSize 3072", "HostKeyAlgorithms +x"):
        way.connect_anew()
        assert way.run("echo well", **configured(tmp_path, f"{line}\n")) == WELL, line


@openssh_alone
def test_nothing_else_of_the_configuration_reaches_a_command(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its command, nor a terminal, nor a forwarding, nor a local command, nor variables."""
    config = tmp_path / "config"
    trap = tmp_path / "local-command"
    config.write_text(
        "Host *\n  RemoteCommand echo trapped\n  RequestTTY force\n  ForwardAgent yes\n  ForwardX11 yes\n"
        f"  PermitLocalCommand yes\n  LocalCommand touch {trap}\n  SendEnv SECRET\n  SetEnv OTHER=trapped\n"
        f"  LocalForward {tmp_path}/forwarded 127.0.0.1:22\n  LogLevel QUIET\n"
        f"  ControlPath {tmp_path}/own-%C\n  ControlMaster auto\n"
    )
    way.start("AcceptEnv *", "PermitTTY yes", "X11Forwarding yes")
    monkeypatch.setenv("SECRET", "trapped")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    result = way.run("env; tty; echo ended", ssh_config=(str(config),))
    assert isinstance(result, CommandResult), result
    assert result.stdout.endswith("not a tty\nended\n")
    for word in ("trapped", "SSH_AUTH_SOCK", "DISPLAY", "SSH_TTY"):
        assert word not in result.stdout + result.stderr
    assert not trap.exists()
    assert not (tmp_path / "forwarded").exists()
    assert list(tmp_path.glob("own-*")) == []


@openssh_alone
def test_the_folder_is_closed_to_others_and_ends_with_the_run(way: Way) -> None:
    assert isinstance(way.run("true"), CommandResult)
    folder = way.connections._openssh._folder
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    sockets = [path for path in folder.iterdir() if path.is_socket()]
    assert len(sockets) == 1
    assert way.server.session_servers()
    way.connections.close()
    assert not folder.exists()
    deadline = time.monotonic() + 20
    while way.server.session_servers():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@openssh_alone
def test_a_machine_without_ssh_says_what_to_install(
    way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = way.settings()
    monkeypatch.setenv("PATH", str(tmp_path))
    unreachable(way.to(settings).run("true", timeout=5.0), Trouble.SETTINGS, "openssh-client")


@openssh_alone
def test_what_ssh_says_is_handed_on(way: Way, tmp_path: Path) -> None:
    for config, trouble in (
        ("Host *\n  nonsense yes\n", Trouble.SETTINGS),
        ("Host *\n  HostName no-such-host.invalid\n", Trouble.RESOLVE),
    ):
        unreachable(way.run("true", **configured(tmp_path, config)), trouble)


# -- keys of the client


@remote_ways
def test_keys_that_open_nothing_are_refused_with_the_reason(way: Way, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="some words")  # noqa: S106  (of a key made for this test)
    keys = (make_key(tmp_path / "stranger"), locked, tmp_path / "absent")
    result = way.run("true", identities=tuple(map(str, keys)))
    paramiko = ("passphrase", "no such file", "authorized_keys")
    words = paramiko if way.connect is Connect.SSH else ("Permission denied",)
    unreachable(result, Trouble.AUTHENTICATION, *words)


@remote_ways
def test_a_key_of_the_agent_logs_in(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "agent")
    command = [needs("ssh-agent"), "-D", "-a", address]

    def listens() -> bool:
        """The agent's file is there before anything listens on it."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(address) == 0

    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as agent:  # noqa: S603  (our own)
        try:
            assert wait_until(listens, seconds=20)
            monkeypatch.setenv("SSH_AUTH_SOCK", address)
            tool("ssh-add", "-q", str(way.client_key))
            result = way.run("echo by agent", identities=(str(tmp_path / "none"),), use_agent=True)
            assert result == CommandResult(exit=0, stdout="by agent\n")
        finally:
            agent.kill()


# -- many nodes on a host


@remote_ways
@pytest.mark.parametrize("most", [1, 2])
def test_24_nodes_on_a_host_that_allows_few_sessions(way: Way, service: ScriptService, most: int) -> None:
    way.start(f"MaxSessions {most}")
    nodes = [f"es{number}" for number in range(24)]
    settings = {node: way.settings(node, service=service.settings(), sudo=Sudo.OFF) for node in nodes}
    hosts = Hosts(settings, connections=way.connections)
    for action, state in ((StartNode, ServiceState.RUNNING), (StopNode, ServiceState.STOPPED)):
        work = {node: partial(hosts.perform, action(node=node)) for node in nodes}
        done = in_parallel(work, timeout=120.0)
        assert {node: one for node, one in done.items() if not isinstance(one, Done)} == {}
        services: set[ServiceState] = set()
        deadline = time.monotonic() + 120
        while services != {state}:
            assert time.monotonic() < deadline, services
            hosts.watch(nodes, 1.0)
            views = hosts.observe(nodes, rights=True)
            assert all(isinstance(view, HostView) for view in views.values()), views
            services = {view.service for view in views.values() if isinstance(view, HostView)}


@openssh_alone
def test_refusals_that_are_heard_late_leave_no_doubt(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: no session is waited for before it counts as begun."""

    def at_once(
        link: Master, order: CommandOrder, *, within: float, clock: Callable[[], float]
    ) -> OpensshSession:
        return begin(link, order, within=min(within, 0.0), clock=clock)

    monkeypatch.setattr("orchestrator.hosts.connections.openssh.begin", at_once)
    way.start("MaxSessions 1")
    connection = way.to()
    work = {str(n): partial(connection.run, f"sleep 0.2; echo {n}", timeout=60.0) for n in range(8)}
    done = in_parallel(work, timeout=90.0)
    assert done == {n: CommandResult(exit=0, stdout=f"{n}\n") for n in work}


# -- this machine


@local_alone
def test_a_start_waits_behind_the_stop_that_is_under_way(way: Way, service: ScriptService) -> None:
    hosts = hosts_of(way, service)
    assert hosts.perform(StartNode(node="es1")) == Done(output="started es1")
    first = service.pid("es1")
    service.stop_takes(120)
    hosts.perform(StopNode(node="es1"))
    assert hosts.perform(StartNode(node="es1")) == Done(output="waits behind the stop that is under way")
    assert service.pid("es1") == first
    assert seen(hosts).service is ServiceState.STOPPING
    service.stop_takes(0)
    until(hosts, ServiceState.RUNNING)
    assert service.pid("es1") not in (None, first)


@local_alone
def test_a_start_that_fails_is_refused_and_seen_as_failed(way: Way, service: ScriptService) -> None:
    service.breaks()
    hosts = hosts_of(way, service)
    result = hosts.perform(StartNode(node="es1"))
    assert isinstance(result, Refused)
    view = seen(hosts)
    assert view.service is ServiceState.FAILED
    assert "disk full" in result.reason
    assert "exited 7" in view.detail
    assert "hunter22" not in result.reason + view.detail


@local_alone
def test_a_start_command_that_fails_is_refused_with_its_words(way: Way) -> None:
    """Such a refusal is tried three times (`tests/simulation/scenes/failing_steps.py`)."""
    for line, said in (
        ("/bin/sh -c 'oops {node}", "exit 2: "),
        ("echo no space left; exit 7", "exit 7: no space left"),
        ("./no-such-program", "exit 127: "),
    ):
        commands = ServiceSettings(manager=Manager.COMMAND, stop="true", start=line, status="false")
        with contextlib.closing(Hosts({"es2": way.settings("es2", service=commands)})) as hosts:
            result = hosts.perform(StartNode(node="es2"))
        assert isinstance(result, Refused), result
        assert said in result.reason
        assert not result.passes
        assert result.refusal is None


@local_alone
def test_a_job_goes_on_when_the_port_is_closed(way: Way, service: ScriptService) -> None:
    hosts = hosts_of(way, service)
    hosts.perform(StartNode(node="es1"))
    service.stop_takes(2)
    hosts.perform(StopNode(node="es1"))
    hosts.close()
    assert wait_until(lambda: service.stops("es1") == ["begun", "ended"], seconds=20)


@local_alone
def test_no_settings_no_stop_and_no_reboot_of_this_machine(way: Way, service: ScriptService) -> None:
    hosts = hosts_of(way, service)
    assert isinstance(hosts.observe(["other", "es1"], rights=False)["other"], Unknown)
    assert isinstance(hosts.perform(StopNode(node="other")), Refused)
    assert isinstance(hosts.perform(RebootHost(node="es1")), Refused)


@local_alone
def test_a_machine_without_sudo_is_no_reason_to_hold_root(
    way: Way, service: ScriptService, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "sudo":
            (tools / program.name).symlink_to(program)
    hosts = hosts_of(way, service, sudo=Sudo.AUTO, environment={"PATH": str(tools)})
    view, started = seen(hosts), hosts.perform(StartNode(node="es1"))
    if os.geteuid() == 0:
        assert view.may_control is True
        assert started == Done(output="started es1")
        assert hosts.describe(StartNode(node="es1")) == f"{service.folder}/service start es1"
    else:
        assert "there is no sudo on the host: install it, or log in as root" in view.detail
        assert isinstance(started, Refused)
        assert hosts.describe(StartNode(node="es1")) == f"sudo -n {service.folder}/service start es1"
