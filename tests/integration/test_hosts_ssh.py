"""The SSH adapter against a real sshd on loopback."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from orchestrator.daemons import in_parallel
from orchestrator.hosts.check import Grade, Point, check_host
from orchestrator.hosts.connection import (
    KEPT_BYTES,
    CommandResult,
    Connection,
    Lost,
    Trouble,
    Unreachable,
)
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.connections.sessions import SESSIONS_PER_CONNECTION
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import HostSettings, Limits
from orchestrator.model.action import Done, InDoubt, Moment, Refused, RunHook, StartNode, StopNode
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.policy import Hook
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor
from tests.integration.script_service import ScriptService
from tests.integration.sshd import SSHD, Sshd, make_key, tool

if not Path(SSHD).exists():
    pytest.fail("these tests need a real sshd: apt-get install openssh-server", pytrace=False)

Start = Callable[..., Sshd]


@pytest.fixture(scope="module")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys") / "id")


@pytest.fixture
def start(tmp_path: Path, client_key: Path) -> Iterator[Start]:
    servers: list[Sshd] = []

    def begin(*options: str) -> Sshd:
        server = Sshd(folder=tmp_path / f"sshd{len(servers)}", client_key=client_key, options=options)
        servers.append(server)
        return server.start()

    yield begin
    for server in servers:
        server.signal_sessions(signal.SIGCONT)
        server.stop()


@pytest.fixture
def connections() -> Iterator[Connections]:
    kept = Connections()
    yield kept
    kept.close()


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


def connected(connections: Connections, settings: HostSettings) -> Connection:
    connection = connections.to(settings)
    assert not isinstance(connection, Unreachable)
    return connection


def run(connection: Connection, command: str, timeout: float = 8.0) -> CommandResult:
    result = connection.run(command, timeout=timeout)
    assert isinstance(result, CommandResult), result
    return result


def test_runs_a_command_and_keeps_its_streams_apart(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    connection = connected(connections, server.settings("es1", known_hosts))
    result = connection.run("read x; echo out $x; echo err >&2; exit 7", timeout=8.0, stdin="given\n")
    assert result == CommandResult(exit=7, stdout="out given\n", stderr="err\n")


def test_one_connection_serves_every_command(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known(hashed=True))
    connection = connected(connections, server.settings("es1", known_hosts))
    ports = {run(connection, "echo $SSH_CONNECTION").stdout.split()[1] for _ in range(5)}
    assert len(ports) == 1


def test_more_commands_than_one_connection_allows_all_run(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    """Nodes may share a host: sshd refused the eleventh command, and its node counted as unread."""
    server = start()
    known_hosts.write_text(server.known())
    nodes = {
        f"es{number}": connected(connections, server.settings(f"es{number}", known_hosts))
        for number in range(2 * SESSIONS_PER_CONNECTION + 4)
    }
    work = {
        name: partial(node.run, "sleep 1; echo $SSH_CONNECTION", timeout=20.0) for name, node in nodes.items()
    }
    found = in_parallel(work, timeout=40.0)
    assert all(isinstance(each, CommandResult) for each in found.values()), found
    ports = Counter(each.stdout.split()[1] for each in found.values() if isinstance(each, CommandResult))
    assert max(ports.values()) <= 2 * SESSIONS_PER_CONNECTION, "those that waited for room are among them"
    assert len(ports) in (2, 3), "and no more connections than it takes"
    assert run(nodes["es0"], "echo $SSH_CONNECTION").stdout.split()[1] in ports, "they are used again"


def test_24_nodes_behind_two_sessions_are_read_and_restarted(
    start: Start, known_hosts: Path, service: ScriptService
) -> None:
    """Six and more nodes on a host exceeded `MaxSessions`, and the refused reading was Unknown."""
    server = start("MaxSessions 2")
    known_hosts.write_text(server.known())
    nodes = [f"es{number}" for number in range(24)]
    port = Hosts({node: server.settings(node, known_hosts, service=service.settings()) for node in nodes})
    with closing(port):
        for action, state in ((StartNode, ServiceState.RUNNING), (StopNode, ServiceState.STOPPED)):
            work = {node: partial(port.perform, action(node=node)) for node in nodes}
            done = in_parallel(work, timeout=120.0)
            assert all(isinstance(one, Done) for one in done.values()), done
            deadline = time.monotonic() + 120
            views: dict[str, object] = {}
            while time.monotonic() < deadline:
                views = dict(port.observe(nodes, rights=True))
                assert all(isinstance(view, HostView) for view in views.values()), views
                if all(isinstance(view, HostView) and view.service is state for view in views.values()):
                    break
                port.watch(nodes, 5.0)
            assert {view.service for view in views.values() if isinstance(view, HostView)} == {state}


def test_an_unknown_host_key_is_refused_with_its_fingerprint(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    result = connected(connections, server.settings("es1", known_hosts)).run("true", timeout=5.0)
    assert isinstance(result, Unreachable)
    assert result.trouble is Trouble.UNKNOWN_KEY
    shown = tool("ssh-keygen", "-lf", f"{server.host_key}.pub").split()[1]
    assert shown in result.reason
    assert "ssh-keyscan" in result.reason
    assert not known_hosts.exists()


def test_a_changed_host_key_is_refused_with_both_fingerprints(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server, other = start(), start()
    known_hosts.write_text(other.known().replace(f":{other.port} ", f":{server.port} "))
    result = connected(connections, server.settings("es1", known_hosts)).run("true", timeout=5.0)
    assert isinstance(result, Unreachable)
    assert result.trouble is Trouble.CHANGED_KEY
    assert result.reason.count("SHA256:") == 2
    assert f"{known_hosts}:1" in result.reason


def test_a_revoked_host_key_is_refused_though_it_is_listed_too(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known() + "@revoked " + server.known())
    result = connected(connections, server.settings("es1", known_hosts)).run("true", timeout=5.0)
    assert isinstance(result, Unreachable)
    assert result.trouble is Trouble.REVOKED_KEY


def test_a_host_with_several_keys_is_asked_for_the_known_one(
    start: Start, connections: Connections, known_hosts: Path, tmp_path: Path
) -> None:
    second = make_key(tmp_path / "rsa_key", kind="rsa")
    server = start(f"HostKey {second}")
    kind, key = second.with_suffix(".pub").read_text().split()[:2]
    known_hosts.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    assert run(connected(connections, server.settings("es1", known_hosts)), "echo well").stdout == "well\n"


def test_a_refused_key_says_what_to_do(
    start: Start, connections: Connections, known_hosts: Path, tmp_path: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    locked = make_key(tmp_path / "locked", passphrase="some words")  # noqa: S106  (of a key made for this test)
    keys = (str(make_key(tmp_path / "stranger")), str(locked), str(tmp_path / "absent"))
    result = connected(connections, server.settings("es1", known_hosts, identities=keys)).run(
        "true", timeout=5.0
    )
    assert isinstance(result, Unreachable)
    assert result.trouble is Trouble.AUTHENTICATION
    assert "passphrase" in result.reason
    assert "no such file" in result.reason
    assert "authorized_keys" in result.reason


def test_the_agents_key_opens_the_door(
    start: Start, connections: Connections, known_hosts: Path, tmp_path: Path, client_key: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    socket = tmp_path / "agent"
    program = shutil.which("ssh-agent")
    assert program is not None
    agent = subprocess.Popen([program, "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)  # noqa: S603  (our own)
    before = os.environ.get("SSH_AUTH_SOCK")
    os.environ["SSH_AUTH_SOCK"] = str(socket)
    try:
        while not socket.exists():
            time.sleep(0.02)
        tool("ssh-add", "-q", str(client_key))
        settings = server.settings("es1", known_hosts, identities=(str(tmp_path / "none"),), use_agent=True)
        assert run(connected(connections, settings), "echo by agent").stdout == "by agent\n"
    finally:
        agent.kill()
        agent.wait()
        if before is None:
            del os.environ["SSH_AUTH_SOCK"]
        else:
            os.environ["SSH_AUTH_SOCK"] = before


def test_a_dropped_connection_is_made_again(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    connection = connected(connections, server.settings("es1", known_hosts))
    first = run(connection, "echo $SSH_CONNECTION").stdout
    server.signal_sessions(signal.SIGKILL)
    second = run(connection, "echo $SSH_CONNECTION").stdout
    assert second.split()[1] != first.split()[1]


def test_a_connection_lost_under_a_command_leaves_it_in_doubt(
    start: Start, connections: Connections, known_hosts: Path, tmp_path: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    connection = connected(connections, server.settings("es1", known_hosts))
    begun = tmp_path / "begun"
    # What it said is on its way before the connection goes: the server forwards it within the second.
    job = connection.start(f"echo so far; sleep 1; touch {begun}; sleep 30", timeout=60.0)
    assert not isinstance(job, Unreachable)
    deadline = time.monotonic() + 30
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    server.signal_sessions(signal.SIGKILL)
    end = job.wait(5.0)
    assert isinstance(end, Lost)
    assert not end.timed_out
    assert end.output.strip() == "so far"


def test_a_command_that_hangs_ends_at_its_limit(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    connection = connected(connections, server.settings("es1", known_hosts))
    began = time.monotonic()
    end = connection.run("echo begun; sleep 60", timeout=1.0)
    assert isinstance(end, Lost)
    assert end.timed_out
    assert end.output.strip() == "begun"
    assert time.monotonic() - began < 30
    assert run(connection, "echo well").stdout == "well\n"


def test_a_flood_ends_at_its_limit(start: Start, connections: Connections, known_hosts: Path) -> None:
    server = start()
    known_hosts.write_text(server.known())
    began = time.monotonic()
    end = connected(connections, server.settings("es1", known_hosts)).run("yes", timeout=1.0)
    assert isinstance(end, Lost)
    assert time.monotonic() - began < 30


def test_a_peer_that_stops_answering_ends_in_the_limit(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    limits = Limits(connect=1.0, banner=1.0, auth=1.0, command=2.0)
    connection = connected(connections, server.settings("es1", known_hosts, limits=limits))
    run(connection, "true")
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    server.signal_sessions(signal.SIGSTOP)
    try:
        began = time.monotonic()
        result = connection.run("true", timeout=2.0)
        assert isinstance(result, Unreachable), result
        assert result.trouble is Trouble.NO_ANSWER
        assert time.monotonic() - began < 40
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.signal_sessions(signal.SIGCONT)
    assert run(connection, "echo back").stdout == "back\n"


def test_a_peer_that_stops_answering_ends_within_the_limit(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    connection = connected(connections, server.settings("es1", known_hosts))
    run(connection, "true")
    job = connection.start("sleep 0.5; echo never heard", timeout=2.0)
    assert not isinstance(job, Unreachable)
    time.sleep(0.2)
    server.signal_sessions(signal.SIGSTOP)
    end = job.wait(5.0)
    assert isinstance(end, Lost)
    assert end.timed_out


def test_a_hundred_megabytes_are_read_and_bounded(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    connection = connected(connections, server.settings("es1", known_hosts))
    size = 100 * 1024 * 1024
    result = run(connection, f"head -c {size} /dev/zero | tr '\\0' x; echo; echo the end", timeout=120.0)
    assert result.exit == 0
    assert result.truncated == size + len("\nthe end\n") - KEPT_BYTES
    assert len(result.stdout) < KEPT_BYTES + 100
    assert result.stdout.endswith("the end\n")


def test_a_daemon_that_keeps_the_output_open_does_not_keep_us(
    start: Start, connections: Connections, known_hosts: Path
) -> None:
    server = start()
    known_hosts.write_text(server.known())
    began = time.monotonic()
    result = run(connected(connections, server.settings("es1", known_hosts)), "sleep 50 & echo $!")
    assert time.monotonic() - began < 40
    os.kill(int(result.stdout), signal.SIGKILL)


def test_a_proxy_jump_of_two_servers_is_followed(
    start: Start, connections: Connections, known_hosts: Path, tmp_path: Path, client_key: Path
) -> None:
    outer, inner, target = start(), start(), start()
    known_hosts.write_text(outer.known() + inner.known() + target.known())
    user = getpass.getuser()
    config = tmp_path / "config"
    config.write_text(
        f"Host outer\n  HostName 127.0.0.1\n  Port {outer.port}\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump outer\n"
        f"Host es1\n  HostName 127.0.0.1\n  Port {target.port}\n  ProxyJump inner\n"
        f"Host *\n  User {user}\n  IdentityFile {client_key}\n  IdentitiesOnly yes\n"
    )
    plain = {"address": "es1", "port": None, "user": None, "identities": (), "ssh_config": (str(config),)}
    connection = connected(connections, target.settings("es1", known_hosts, **plain))
    assert run(connection, "echo through two").stdout == "through two\n"
    assert len(outer.session_servers()) > 0
    assert len(inner.session_servers()) > 0
    outer.signal_sessions(signal.SIGKILL)
    assert run(connection, "echo again").stdout == "again\n"


def test_a_jump_hosts_unknown_key_stops_the_way_there(
    start: Start, connections: Connections, known_hosts: Path, tmp_path: Path
) -> None:
    jump, target = start(), start()
    known_hosts.write_text(target.known())
    config = tmp_path / "config"
    config.write_text(
        f"Host 127.0.0.1\n  ProxyJump jump\nHost jump\n  HostName localhost\n  Port {jump.port}\n"
    )
    settings = target.settings("es1", known_hosts, ssh_config=(str(config),))
    result = connected(connections, settings).run("true", timeout=5.0)
    assert isinstance(result, Unreachable)
    assert result.trouble is Trouble.UNKNOWN_KEY
    assert f"[localhost]:{jump.port}" in result.reason


# -- the host port over SSH


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptService]:
    made = ScriptService(folder=tmp_path / "service").install()
    yield made
    made.end()


@pytest.fixture
def hosts(start: Start, known_hosts: Path, service: ScriptService) -> Iterator[tuple[Hosts, Sshd]]:
    server = start()
    known_hosts.write_text(server.known())
    port = Hosts({"es1": server.settings("es1", known_hosts, service=service.settings())})
    yield port, server
    port.close()


def seen(hosts: Hosts, *, rights: bool = False) -> HostView:
    reading = hosts.observe(["es1"], rights=rights)["es1"]
    assert isinstance(reading, HostView), reading
    return reading


def test_observes_boot_machine_service_and_rights_in_one_go(hosts: tuple[Hosts, Sshd]) -> None:
    view = seen(hosts[0], rights=True)
    assert view.service is ServiceState.STOPPED
    assert view.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert view.may_control is True


def test_a_stop_survives_a_lost_connection_and_is_sent_once(
    hosts: tuple[Hosts, Sshd], service: ScriptService
) -> None:
    port, server = hosts
    assert isinstance(port.perform(StartNode(node="es1")), Done)
    service.stop_takes(6)
    assert isinstance(port.perform(StopNode(node="es1")), Done)
    assert seen(port).service is ServiceState.STOPPING
    server.signal_sessions(signal.SIGKILL)
    states = []
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        reading = port.observe(["es1"], rights=False)["es1"]
        states.append(reading)
        if isinstance(reading, HostView) and reading.service is ServiceState.STOPPED:
            break
        port.watch(["es1"], 5.0)
    assert isinstance(states[-1], HostView)
    assert states[-1].service is ServiceState.STOPPED
    assert service.stops("es1") == ["begun", "ended"]


def test_the_watch_notices_a_change_that_we_did_not_make(
    hosts: tuple[Hosts, Sshd], service: ScriptService
) -> None:
    port, _ = hosts
    port.perform(StartNode(node="es1"))
    assert seen(port).service is ServiceState.RUNNING
    # Not by killing it: how soon a dead process is reaped is not ours.
    threading.Timer(0.7, service.forget, ("es1",)).start()
    began = time.monotonic()
    assert port.watch(["es1"], 60.0) is True
    assert 0.5 < time.monotonic() - began < 40


def test_the_watch_waits_out_its_time_when_nothing_changes(hosts: tuple[Hosts, Sshd]) -> None:
    seen(hosts[0])
    began = time.monotonic()
    assert hosts[0].watch(["es1"], 1.0) is False
    assert time.monotonic() - began > 0.9


def test_an_absent_host_is_unknown_until_it_is_back(hosts: tuple[Hosts, Sshd]) -> None:
    port, server = hosts
    seen(port)
    server.stop()
    reading = port.observe(["es1"], rights=False)["es1"]
    assert isinstance(reading, Unknown)
    assert "refuses" in reading.reason
    assert isinstance(port.perform(StopNode(node="es1")), Refused)
    assert port.watch(["es1"], 0.7) is False
    threading.Timer(0.5, server.start).start()
    assert port.watch(["es1"], 10.0) is True
    assert seen(port).service is ServiceState.STOPPED


def test_hooks_quote_the_node_and_tell_not_run_from_failed(hosts: tuple[Hosts, Sshd]) -> None:
    port, _ = hosts

    def hook(line: str, timeout: float = 5.0) -> object:
        return port.perform(
            RunHook(node="es1", moment=Moment.BEFORE_STOP, number=0, hook=Hook(run=line, timeout=timeout))
        )

    assert hook("echo depool {node} token=abcdef") == Done(output="depool es1 token=[redacted]")
    assert isinstance(hook("no-such-program"), Refused)
    assert isinstance(hook("exit 3"), InDoubt)
    slow = hook("sleep 30", timeout=1.0)
    assert isinstance(slow, InDoubt)
    assert "1 s" in slow.reason


def test_check_names_the_point_that_fails_and_what_to_do(
    start: Start, connections: Connections, known_hosts: Path, service: ScriptService
) -> None:
    server = start()
    settings = server.settings("es1", known_hosts, service=service.settings())

    def grades() -> dict[Point, Grade]:
        checks = check_host(settings, connections, reboot=False, redact=Redactor())
        return {check.point: check.grade for check in checks}

    unknown = grades()
    assert unknown[Point.CONNECT] is Grade.GOOD
    assert unknown[Point.HOST_KEY] is Grade.BAD
    assert unknown[Point.LOG_IN] is Grade.NOT_CHECKED
    known_hosts.write_text(server.known())
    assert set(grades().values()) == {Grade.GOOD}
    server.stop()
    connections.to(settings)
    assert grades()[Point.CONNECT] is Grade.BAD
