"""Faults of a host, of what stands between and of our own are readings and results, never exceptions."""

from __future__ import annotations

import contextlib
import shlex
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from orchestrator.errors import ConfigError
from orchestrator.model.action import InDoubt, Moment, Refused, RunHook, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostLimits, HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView
from orchestrator.model.policy import Hook
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TuningProfile
from orchestrator.model.upgrade import InstallStep, Upgrade
from orchestrator.tuning.tunable import FactReads
from orchestrator.tuning.tuner import TunableHosts

ES1 = NodeName("es1")
QUICK = HostLimits(connect=2.0, banner=2.0, auth=2.0, command=5.0)


def hosts_of(folder: Path, *, config: str = "", known: str = "", **changes: object) -> TunableHosts:
    """The port over one host, `es1`, with files of its own."""
    (folder / "config").write_text(config)
    (folder / "known_hosts").write_text(known)
    values: dict[str, object] = {
        "node": "es1",
        "address": "127.0.0.1",
        "user": "ops",
        "known_hosts": (str(folder / "known_hosts"),),
        "ssh_config": (str(folder / "config"),),
        "use_agent": False,
        "limits": QUICK,
    }
    return TunableHosts({"es1": HostSettings(**{**values, **changes})})


def said(hosts: TunableHosts) -> str:
    """The reason for which `es1` is not read, and for which its stop is certainly not sent."""
    with contextlib.closing(hosts):
        reading = hosts.observe(["es1"], rights=False)["es1"]
        result = hosts.perform(StopNode(node="es1"))
    assert isinstance(reading, Unknown)
    assert isinstance(result, Refused)
    return reading.reason


@contextlib.contextmanager
def server(talk: bytes | paramiko.PKey) -> Iterator[int]:
    """A server that says a few bytes, or does a key exchange with this host key; its port."""
    ends = threading.Event()
    sessions: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            if isinstance(talk, bytes):
                with contextlib.suppress(OSError):  # the client has gone
                    connection.sendall(talk)
                ends.wait(10.0)
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(talk)
            with contextlib.suppress(paramiko.SSHException, OSError, EOFError):  # the client hangs up
                transport.start_server(server=paramiko.ServerInterface())
            ends.wait(10.0)
            transport.close()

    def accept() -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                sessions.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
                sessions[-1].start()

    acceptor = threading.Thread(target=accept)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
            acceptor.join()
            ends.set()
            for session in sessions:
                session.join()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("ProxyCommand no-such-program %h", "correct `ProxyCommand no-such-program 127.0.0.1` in the SSH"),
        ('ProxyCommand nc "%h', "cannot be run (No closing quotation)"),
        ("Port ssh", "`Port ssh` of 127.0.0.1 must be a port"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_configuration_that_cannot_be_followed(tmp_path: Path, config: str, words: str) -> None:
    assert words in said(hosts_of(tmp_path, config=f"Host *\n {config}\n"))


def test_a_home_of_nobody(tmp_path: Path) -> None:
    with server(b"SSH-2.0-x\r\n") as port:
        reason = said(hosts_of(tmp_path, port=port, known_hosts=("~no-such-user/known_hosts",)))
    assert "known hosts cannot be read" in reason


def test_a_server_whose_words_make_no_sense(tmp_path: Path) -> None:
    names = struct.pack(">I", 4) + b"\xff\xfe\xff\xfe"  # no text in any encoding that SSH knows
    payload = b"\x14" + bytes(16) + names + bytes(63)
    padding = 8 + (8 - (len(payload) + 5) % 8)
    packet = struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)
    with server(b"SSH-2.0-x\r\n" + packet) as port:
        reason = said(hosts_of(tmp_path, port=port))
    assert "answered what is not understood (UnicodeDecodeError" in reason


def test_a_spoiled_known_hosts_line_of_this_host_is_named(tmp_path: Path) -> None:
    key = paramiko.ECDSAKey.generate()
    with server(key) as port:
        known = f"[127.0.0.1]:1 ssh-rsa \u00e9\n[127.0.0.1]:{port} ssh-rsa \u00e9\n"
        reason = said(hosts_of(tmp_path, port=port, known=known))
        assert f"; {tmp_path / 'known_hosts'}:2 cannot be read: correct or delete it" in reason
        known += f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n"
        assert "cannot be read" not in said(hosts_of(tmp_path, port=port, known=known))


# -- the net at the port: nobody foresaw these


class Secret:
    """A password's source that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self) -> str:
        raise self.error


def here(node: str, **changes: object) -> HostSettings:
    values: dict[str, object] = {
        "node": node,
        "address": "localhost",
        "connect": Connect.LOCAL,
        "service": ServiceSettings(manager=Manager.COMMAND, stop="true", start="true", status="true"),
    }
    return HostSettings(**{**values, **changes})


def failing(error: Exception) -> HostSettings:
    return here("es1", sudo=Sudo.PASSWORD, sudo_password=Secret(error))


def test_a_defect_on_one_host_is_reported_and_leaves_others() -> None:
    with contextlib.closing(
        TunableHosts({"es1": failing(ZeroDivisionError("oh")), "es2": here("es2")})
    ) as hosts:
        for nodes in (["es1"], ["es1", "es2"]):  # one is read without a thread of its own
            readings = hosts.observe(nodes, rights=True)
            reading = readings["es1"]
            assert isinstance(reading, Unknown)
            assert "a defect of this program, please report it: ZeroDivisionError: oh" in reading.reason
        assert isinstance(readings["es2"], HostView)
        result = hosts.perform(StopNode(node="es1"))
        assert isinstance(result, InDoubt)
        assert "ZeroDivisionError" in result.reason


def test_a_defect_is_no_reason_to_look_again_at_once() -> None:
    with contextlib.closing(TunableHosts({"es1": failing(ZeroDivisionError())})) as hosts:
        hosts.observe(["es1"], rights=True)
        assert hosts.watch(["es1"], 0.3) is False


@pytest.mark.parametrize(
    "said",
    [
        r"\nCannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n",
        r"\nError: No such container: es\n",
        r"\n\nfailed to connect to the docker API\n\ncheck the path\n\n",
    ],
)
def test_an_engine_that_stays_away_is_no_reason_to_look_again(tmp_path: Path, said: str) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\nprintf {shlex.quote(said)} >&2\nexit 1\n")
    docker.chmod(0o755)
    service = ServiceSettings(manager=Manager.DOCKER, unit="es", program=str(docker))
    with contextlib.closing(TunableHosts({"es1": here("es1", service=service)})) as hosts:
        assert isinstance(hosts.observe(["es1"], rights=False)["es1"], Unknown)
        assert hosts.watch(["es1"], 0.3) is False
        docker.write_text("#!/bin/sh\necho 'running|0|x||false'\n")
        assert hosts.watch(["es1"], 30.0) is True


def test_a_missing_secret_is_no_defect_and_nothing_was_sent() -> None:
    with contextlib.closing(
        TunableHosts({"es1": failing(ConfigError("is empty", key="hosts.sudo"))})
    ) as hosts:
        assert hosts.observe(["es1"], rights=True)["es1"] == Unknown(
            reason="host of es1: hosts.sudo: is empty"
        )
        assert hosts.perform(StopNode(node="es1")) == Refused(reason="hosts.sudo: is empty")


def test_an_interrupt_is_not_held_back() -> None:
    settings = here("es1", sudo=Sudo.PASSWORD, sudo_password=Secret(KeyboardInterrupt()))
    with contextlib.closing(TunableHosts({"es1": settings})) as hosts, pytest.raises(KeyboardInterrupt):
        hosts.perform(StopNode(node="es1"))


def test_an_unreachable_or_unresolved_host_may_be_asked_again(tmp_path: Path) -> None:
    """What someone has to change first, such as a configuration, does not pass. The same of every reading."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    hook = RunHook(node=ES1, moment=Moment.AFTER_RECOVERY, number=0, hook=Hook(run="true"))
    passes = []
    for number, changes in enumerate(
        ({"port": closed}, {"address": "es1.invalid"}, {"config": "Port ssh\n"})
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with contextlib.closing(hosts_of(folder, **changes)) as hosts:
            results = [hosts.perform(action) for action in (hook, StopNode(node=ES1))]
            readings = (
                hosts.observe([ES1], rights=False)[ES1],
                hosts.tuning([ES1], TuningProfile(name="none", applies_to="hosts", settings=()))[ES1],
                hosts.facts({ES1: FactReads()})[ES1],
                hosts.readiness([ES1], Upgrade(target="9.1.0", install=(InstallStep(run="true"),)))[ES1],
            )
        assert all(isinstance(result, Refused) for result in results), results
        if "address" in changes:
            words = ("does not resolve", "correct the address of es1.invalid in the cluster file")
            assert [word for word in words if word not in str(results)] == []
        passes.append([isinstance(one, Refused | Unknown) and one.passes for one in (*results, *readings)])
    assert passes == [[True] * 6, [True] * 6, [False] * 6]
