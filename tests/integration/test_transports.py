"""One suite for all ways to a machine: the same command has the same result, and faults are data.

`local` is this machine; `ssh` (paramiko) and `openssh` (the operator's own) reach a real sshd on loopback.
`docker` is a service in a container, which is read, stopped and started through a real engine on this
machine. It runs no commands of ours and has no keys of hosts, so it takes part where a service does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.secrets import parse_reference
from orchestrator.daemons import in_parallel
from orchestrator.hosts.connection import (
    KEPT_BYTES,
    CommandResult,
    Connection,
    Lost,
    Outcome,
    Trouble,
    Unreachable,
)
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import HostSettings, Limits, Sudo
from orchestrator.model.action import Done, InDoubt, Refused, StartNode, StopNode
from orchestrator.model.hosts import Connect
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Unknown
from tests.integration.engine import ContainedService, Engine
from tests.integration.hostlab import docker
from tests.integration.script_service import ScriptService
from tests.integration.sshd import SSHD, Sshd, make_key, tool

if not Path(SSHD).exists():
    pytest.fail("these tests need a real sshd: apt-get install openssh-server", pytrace=False)

REMOTE = (Connect.SSH, Connect.OPENSSH)
DOCKER = "docker"
Service = ScriptService | ContainedService
MEGABYTES = 100 * 1024 * 1024


@dataclass(kw_only=True)
class Way:
    """One way to a machine.

    Attributes:
        folder: of its own.
        servers: those that were started, the target first.
        engine: the one by which the service is reached; None = it is no container.
    """

    connect: Connect
    folder: Path
    client_key: Path
    servers: list[Sshd] = field(default_factory=list)
    connections: Connections = field(default_factory=Connections)
    engine: Engine | None = None

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
            return HostSettings(**{**values, **changes})  # type: ignore[arg-type]  # field names by keyword
        return self.server.settings(node, self.known_hosts, connect=self.connect, **changes)

    def to(self, settings: HostSettings | None = None) -> Connection:
        connection = self.connections.to(settings or self.settings())
        assert not isinstance(connection, Unreachable), connection
        return connection

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
def way(request: pytest.FixtureRequest, tmp_path: Path, client_key: Path) -> Iterator[Way]:
    if request.param == DOCKER and docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    engine = Engine(path=tmp_path / "engine").start() if request.param == DOCKER else None
    connect = Connect.LOCAL if engine else request.param
    made = Way(connect=connect, folder=tmp_path, client_key=client_key, engine=engine)
    yield made
    made.close()


@pytest.fixture
def service(way: Way, tmp_path: Path) -> Iterator[Service]:
    made = ContainedService() if way.engine else ScriptService(folder=tmp_path / "service")
    try:
        yield made.install()
    finally:
        made.end()


def names(way: Connect | str) -> str:
    return way if isinstance(way, str) else way.value


in_docker = pytest.param(DOCKER, marks=pytest.mark.docker)
every_service = pytest.mark.parametrize("way", [*Connect, in_docker], indirect=True, ids=names)
remote_services = pytest.mark.parametrize("way", [*REMOTE, in_docker], indirect=True, ids=names)
every_way = pytest.mark.parametrize("way", list(Connect), indirect=True, ids=lambda way: way.value)
remote_ways = pytest.mark.parametrize("way", REMOTE, indirect=True, ids=lambda way: way.value)
openssh_alone = pytest.mark.parametrize("way", [Connect.OPENSSH], indirect=True, ids=["openssh"])


# -- what a command gets, and what comes back


@every_way
def test_streams_input_and_exit_code(way: Way) -> None:
    connection = way.to()
    result = connection.run("read x; echo out $x; echo err >&2; exit 7", timeout=20.0, stdin="given\n")
    assert result == CommandResult(exit=7, stdout="out given\n", stderr="err\n")
    for code in (0, 1, 124, 127, 255):
        assert connection.run(f"exit {code}", timeout=20.0) == CommandResult(exit=code, stdout="")


@every_way
def test_output_is_kept_byte_by_byte(way: Way) -> None:
    for printed in ("", "\n", "no newline", "\n\n\ntext\n\n", "orchestrate-end-0 1\n", "caf\u00e9 \u20ac\n"):
        assert way.run(f"printf %s '{printed}'") == CommandResult(exit=0, stdout=printed)


@every_way
def test_a_long_script_in_many_quotes_arrives_as_it_is(way: Way) -> None:
    """Quotes in quotes multiply, and a line on the host has at most 128 KiB."""
    from orchestrator.hosts.script import shell  # noqa: PLC0415

    text = "it's; " * 9000
    assert way.run(shell(f'printf %s {len(text)}; : "{text}"')) == CommandResult(
        exit=0, stdout=str(len(text))
    )


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
    began = time.monotonic()
    result = way.run("echo so far; sleep 50", timeout=1.5)
    assert isinstance(result, Lost)
    assert result.timed_out
    assert result.output == "so far"
    assert time.monotonic() - began < 15
    assert isinstance(way.run("true"), CommandResult)


@every_way
def test_a_flood_ends_in_the_limit(way: Way) -> None:
    began = time.monotonic()
    result = way.run("yes", timeout=1.5)
    assert isinstance(result, Lost)
    assert time.monotonic() - began < 20


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


@pytest.mark.parametrize("way", [Connect.SSH], indirect=True, ids=["ssh"])
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
    work = {str(n): partial(way.to().run, f"sleep 0.3; echo {n}", timeout=30.0) for n in range(24)}
    done = in_parallel(work, timeout=90.0)
    assert {name: getattr(one, "stdout", one) for name, one in done.items()} == {n: f"{n}\n" for n in work}


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


def hosts_of(way: Way, service: Service, **changes: object) -> Hosts:
    values: dict[str, object] = {"service": service.settings(), "sudo": Sudo.OFF, **changes}
    return Hosts({"es1": way.settings(**values)}, connections=way.connections)


def until(hosts: Hosts, state: ServiceState) -> HostView:
    deadline = time.monotonic() + 60
    while True:
        view = hosts.observe(["es1"], rights=True)["es1"]
        assert isinstance(view, HostView), view
        if view.service is state:
            return view
        assert time.monotonic() < deadline, f"{view.service} and not {state}"
        hosts.watch(["es1"], 5.0)


@every_service
def test_a_service_is_stopped_and_started(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    for action, state in ((StartNode, ServiceState.RUNNING), (StopNode, ServiceState.STOPPED)):
        assert isinstance(hosts.perform(action(node="es1")), Done)
        assert until(hosts, state).may_control is True


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
    job = connection.start("echo begun; sleep 60", timeout=90.0)
    assert not isinstance(job, Unreachable)
    deadline = time.monotonic() + 20
    while "begun" not in job.output() and time.monotonic() < deadline:
        time.sleep(0.05)
    way.server.signal_sessions(signal.SIGKILL)
    end = job.wait(30.0)
    assert isinstance(end, Lost), end
    assert not end.timed_out
    assert "begun" in end.output
    assert connection.run("echo again", timeout=20.0) == CommandResult(exit=0, stdout="again\n")


@remote_services
def test_a_stop_whose_connection_is_lost_is_in_doubt_and_goes_on(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    until(hosts, ServiceState.RUNNING)
    service.stop_takes(3)
    cut = threading.Timer(0.8, way.cut)
    cut.start()
    result = hosts.perform(StopNode(node="es1"))
    cut.join()
    assert isinstance(result, InDoubt | Done), result
    deadline = time.monotonic() + 40
    while service.stops("es1") != ["begun", "ended"]:
        assert time.monotonic() < deadline, service.stops("es1")
        time.sleep(0.1)


@remote_services
def test_a_stop_that_reaches_no_server_is_refused(way: Way, service: Service) -> None:
    hosts = hosts_of(way, service)
    assert isinstance(hosts.perform(StartNode(node="es1")), Done)
    way.vanish()
    result = hosts.perform(StopNode(node="es1"))
    assert isinstance(result, Refused), result
    assert isinstance(hosts.observe(["es1"], rights=True)["es1"], Unknown)
    assert service.stops("es1") == []


@remote_services
def test_a_service_behind_a_peer_that_hangs_is_unknown(way: Way, service: Service) -> None:
    limits = Limits(connect=2.0, banner=2.0, auth=2.0, command=3.0, keepalive=2.0)
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
def test_a_server_that_is_gone_is_refused_and_nothing_was_sent(way: Way) -> None:
    connection = way.to()
    assert isinstance(connection.run("true", timeout=20.0), CommandResult)
    way.server.stop()
    result = connection.run("true", timeout=20.0)
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.REFUSED
    assert result.passes
    way.server.start()
    assert isinstance(connection.run("true", timeout=20.0), CommandResult)


@remote_ways
def test_a_peer_that_hangs_ends_in_the_limit(way: Way) -> None:
    limits = Limits(connect=2.0, banner=2.0, auth=2.0, command=3.0, keepalive=2.0)
    connection = way.to(way.settings(limits=limits))
    assert isinstance(connection.run("true", timeout=20.0), CommandResult)
    way.hang()
    began = time.monotonic()
    result = connection.run("true", timeout=3.0)
    assert isinstance(result, Unreachable | Lost), result
    assert not isinstance(result, Lost) or result.timed_out
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
    limits = Limits(connect=2.0, banner=2.0, auth=2.0, command=5.0)
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
    assert way.run("echo well") == CommandResult(exit=0, stdout="well\n")


# -- host keys


@remote_ways
def test_an_unknown_a_changed_and_a_revoked_host_key_are_refused(way: Way) -> None:
    server, other = way.start(), way.start()
    name = f"[127.0.0.1]:{server.port}"
    own, strange = (" ".join(one.known().split()[1:]) for one in (server, other))
    for lines, trouble in (
        ("", Trouble.UNKNOWN_KEY),
        (f"{name} {strange}\n", Trouble.CHANGED_KEY),
        (f"@revoked {name} {own}\n{name} {own}\n", Trouble.REVOKED_KEY),
    ):
        way.known_hosts.write_text(lines)
        result = way.run("echo never")
        assert isinstance(result, Unreachable), result
        assert result.trouble is trouble, result
        assert not result.passes
        assert way.known_hosts.read_text() == lines, "nothing is recorded"


@remote_ways
def test_no_configuration_of_the_operator_accepts_a_key(way: Way, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host *\n  StrictHostKeyChecking no\n  NoHostAuthenticationForLocalhost yes\n  UpdateHostKeys yes\n"
    )
    way.start()
    way.known_hosts.write_text("")
    result = way.run("true", ssh_config=(str(config),))
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.UNKNOWN_KEY
    assert way.known_hosts.read_text() == ""


@remote_ways
def test_a_host_key_alias_is_looked_up_without_the_port(way: Way, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host 127.0.0.1\n  HostKeyAlias es-one\n")
    server = way.start()
    way.known_hosts.write_text(f"es-one {' '.join(server.known().split()[1:])}\n")
    assert way.run("echo well", ssh_config=(str(config),)) == CommandResult(exit=0, stdout="well\n")


# -- hosts behind others, and old ones


@remote_ways
def test_hosts_behind_a_jump_host_share_one_connection_to_it(way: Way, tmp_path: Path) -> None:
    target, jump = way.start(), way.start()
    config = tmp_path / "config"
    config.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        f"Host es*\n  HostName 127.0.0.1\n  Port {target.port}\n  ProxyJump jump\n"
    )
    changes = {"port": None, "ssh_config": (str(config),)}
    work = {f"es{n}": partial(way.run, f"echo {n}", address=f"es{n}", **changes) for n in range(6)}
    done = in_parallel(work, timeout=60.0)
    assert {name: getattr(one, "stdout", one) for name, one in done.items()} == {
        f"es{n}": f"{n}\n" for n in range(6)
    }
    log = (jump.folder / "log").read_text()
    assert log.count("Accepted publickey") == 1, log
    assert (target.folder / "log").read_text().count("Accepted publickey") >= 1


@remote_ways
def test_the_key_of_a_jump_host_is_checked_too(way: Way, tmp_path: Path) -> None:
    target, jump = way.start(), way.start()
    config = tmp_path / "config"
    config.write_text(
        f"Host jump\n  HostName localhost\n  Port {jump.port}\n  StrictHostKeyChecking no\n"
        f"Host es1\n  HostName 127.0.0.1\n  Port {target.port}\n  ProxyJump jump\n"
    )
    result = way.run("true", address="es1", port=None, ssh_config=(str(config),))
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.UNKNOWN_KEY


RSA_ONLY = ("HostKeyAlgorithms ssh-rsa", "PubkeyAcceptedAlgorithms ssh-rsa")


def old_server(way: Way) -> Path:
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
    config = way.folder / "config"
    config.write_text("Host 127.0.0.1\n  HostKeyAlgorithms +ssh-rsa\n  PubkeyAcceptedAlgorithms ssh-rsa\n")
    return config


@openssh_alone
def test_an_old_server_is_reached_as_its_configuration_allows(way: Way) -> None:
    config = old_server(way)
    assert way.run("echo well", ssh_config=(str(config),)) == CommandResult(exit=0, stdout="well\n")
    refused = Way(connect=Connect.OPENSSH, folder=way.folder, client_key=way.client_key, servers=way.servers)
    result = refused.run("true")
    refused.connections.close()
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.PROTOCOL


@pytest.mark.parametrize("way", [Connect.SSH], indirect=True)
def test_an_old_server_is_refused_with_the_way_that_reaches_it(way: Way) -> None:
    result = way.run("true", ssh_config=(str(old_server(way)),))
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.PROTOCOL
    assert "`hosts.connect: openssh`" in result.reason


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


@openssh_alone
def test_a_host_with_a_certificate_is_known_by_its_authority(way: Way) -> None:
    certified(way)
    assert way.run("echo well") == CommandResult(exit=0, stdout="well\n")


@pytest.mark.parametrize("way", [Connect.SSH], indirect=True)
def test_a_certified_host_is_refused_with_the_way_to_it(way: Way) -> None:
    certified(way)
    result = way.run("true")
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.UNKNOWN_KEY
    assert "known_hosts:1" in result.reason
    assert "`hosts.connect: openssh`" in result.reason


# -- what `connect: openssh` takes from the operator, and what it does not


@openssh_alone
def test_a_match_exec_is_followed(way: Way, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f'Match originalhost es1 exec "true"\n  HostName 127.0.0.1\n  Port {way.server.port}\n')
    settings = {"address": "es1", "port": None, "ssh_config": (str(config),)}
    assert way.run("echo well", **settings) == CommandResult(exit=0, stdout="well\n")


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


@pytest.mark.part(name="hosts")
@remote_ways
def test_a_proxy_command_gets_no_variable_that_a_file_names(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, script, seen = tmp_path / "config", tmp_path / "proxy.py", tmp_path / "seen"
    script.write_text(PROXY.format(file=str(seen), port=way.server.port))
    config.write_text(f"Host *\n  ProxyCommand {sys.executable} {script}\n")
    monkeypatch.setenv("T_SUDO_PASSWORD", "planted")
    monkeypatch.setenv("ORCHESTRATE_STATE", "postgresql+psycopg://o:planted@db/state")
    monkeypatch.setenv("KRB5CCNAME", "FILE:/tmp/krb5")
    parse_reference("env:T_SUDO_PASSWORD")
    assert way.run("echo well", ssh_config=(str(config),)) == CommandResult(exit=0, stdout="well\n")
    assert "planted" not in seen.read_text()
    assert {"KRB5CCNAME=FILE:/tmp/krb5", f"HOME={os.environ['HOME']}"} <= set(seen.read_text().splitlines())


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
def test_no_secret_is_in_a_command_line(way: Way) -> None:
    job = way.to().start(
        "read password; sleep 2.75; echo ${#password}", timeout=20.0, stdin="correct horse\n"
    )
    assert not isinstance(job, Unreachable)
    lines = ""
    deadline = time.monotonic() + 20
    while "sleep 2.75" not in lines:
        assert time.monotonic() < deadline
        lines = tool("ps", "-eo", "args")
    assert "correct horse" not in lines
    assert job.wait(20.0) == CommandResult(exit=0, stdout="13\n")


@openssh_alone
def test_a_machine_without_ssh_says_what_to_install(
    way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = way.settings()
    monkeypatch.setenv("PATH", str(tmp_path))
    result = way.to(settings).run("true", timeout=5.0)
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.SETTINGS
    assert "openssh-client" in result.reason


@openssh_alone
@pytest.mark.parametrize(
    ("config", "trouble"),
    [
        ("Host *\n  nonsense yes\n", Trouble.SETTINGS),
        ("Host *\n  HostName no-such-host.invalid\n", Trouble.RESOLVE),
    ],
)
def test_what_ssh_says_is_handed_on(way: Way, tmp_path: Path, config: str, trouble: Trouble) -> None:
    (tmp_path / "config").write_text(config)
    result = way.run("true", ssh_config=(str(tmp_path / "config"),))
    assert isinstance(result, Unreachable), result
    assert result.trouble is trouble, result


@openssh_alone
def test_a_stranger_is_not_let_in(way: Way, tmp_path: Path) -> None:
    result = way.run("true", identities=(str(make_key(tmp_path / "stranger")),))
    assert isinstance(result, Unreachable), result
    assert result.trouble is Trouble.AUTHENTICATION
    assert "Permission denied" in result.reason


# -- many nodes on a host


@remote_ways
@pytest.mark.parametrize("most", [1, 2])
def test_24_nodes_on_a_host_that_allows_few_sessions(way: Way, service: ScriptService, most: int) -> None:
    way.start(f"MaxSessions {most}")
    nodes = [f"es{number}" for number in range(24)]
    settings = {node: way.settings(node, service=service.settings(), sudo=Sudo.OFF) for node in nodes}
    hosts = Hosts(settings, connections=way.connections)
    done = in_parallel({node: partial(hosts.perform, StartNode(node=node)) for node in nodes}, timeout=120.0)
    assert {node: one for node, one in done.items() if not isinstance(one, Done)} == {}
    for _ in range(3):
        views = hosts.observe(nodes, rights=True)
        assert all(isinstance(view, HostView) for view in views.values()), views
        hosts.watch(nodes, 1.0)
    assert {view.service for view in views.values() if isinstance(view, HostView)} == {ServiceState.RUNNING}
