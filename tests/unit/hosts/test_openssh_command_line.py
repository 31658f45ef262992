"""The command lines by which the operator's own `ssh` is called: what no configuration may change."""

from __future__ import annotations

import itertools
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.hosts.connection import CommandResult, HostConnection, Lost, Trouble, Unreachable
from orchestrator.hosts.connections import sessions
from orchestrator.hosts.connections.pool import Connections
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostLimits, HostSettings

FORCED = {
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "NoHostAuthenticationForLocalhost=no",
    "UpdateHostKeys=no",
    "PermitLocalCommand=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "RequestTTY=no",
}
SSH = """#!/bin/sh
{ for word in "$@"; do printf '%s\\037' "$word"; done; echo; } >>"$FAKE_SSH/calls"
for line in "$@"; do :; done
for word in "$@"; do
    case $word in
        -G) [ "$line" = gate ] || cat "$FAKE_SSH/options"; exit 0 ;;
        -O) exit 1 ;;
        -N) [ ! -e "$FAKE_SSH/slow" ] || [ ! -e "$FAKE_SSH/connected" ] || sleep 0.7
            touch "$FAKE_SSH/connected"; exit 0 ;;
    esac
done
if [ -e "$FAKE_SSH/late" ]; then
    rm "$FAKE_SSH/late"; sleep 0.3; echo 'Session open refused by peer' >&2; exit 255
fi
if [ -e "$FAKE_SSH/killed" ]; then kill -TERM $$; fi
if [ -e "$FAKE_SSH/silent" ]; then exit 0; fi
if [ -e "$FAKE_SSH/dies" ]; then echo 'Connection to es1 closed.' >&2; exit 255; fi
exec /bin/sh -c "$line"
"""


class Ssh:
    """A program in the place of `ssh` that writes its arguments down, and runs commands on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ssh").write_text(SSH.replace("$FAKE_SSH", str(folder)))
        (folder / "ssh").chmod(0o755)
        (folder / "options").touch()

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call."""
        lines = (self.folder / "calls").read_text().split("\037\n")
        return [line.split("\037") for line in lines if line]

    def makes(self, *words: str) -> list[list[str]]:
        """The calls that have one of these words."""
        return [call for call in self.calls if set(words) & set(call)]

    @property
    def sessions(self) -> list[list[str]]:
        """The calls that run a command on the host."""
        return [call for call in self.calls if not {"-G", "-O", "-N"} & set(call)]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    made = Ssh(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    return made


@pytest.fixture
def connections() -> Iterator[Connections]:
    made = Connections()
    yield made
    made.close()


def to(connections: Connections, **changes: object) -> HostConnection:
    values = {"node": NodeName("es1"), "address": "es1", "connect": Connect.OPENSSH, **changes}
    made = connections.to(HostSettings(**values))
    assert not isinstance(made, Unreachable)
    return made


def options(call: list[str]) -> list[str]:
    return [word for before, word in itertools.pairwise(call) if before == "-o"]


def test_what_is_forced_stands_first_on_the_command_line(ssh: Ssh, connections: Connections) -> None:
    """Of options given twice, `ssh` takes the first: those of the command line come before any file."""
    (ssh.folder / "options").write_text("proxyjump gate\n")
    known = ("/etc/ours",)
    assert isinstance(to(connections, user="ops", known_hosts=known).run("true", timeout=20.0), CommandResult)
    with_configuration = [call for call in ssh.calls if "/dev/null" not in call]
    assert len(ssh.makes("-N")) == 2, "the jump host, and the host"
    for call in with_configuration:
        assert call[0] == "-F"
        assert set(options(call)[: len(FORCED) + 1]) >= FORCED, call
    text = Path(with_configuration[0][1]).read_text()
    lines = text.splitlines()
    assert {option.replace("=", " ") for option in FORCED} <= set(lines[: len(FORCED) + 1])
    assert {'UserKnownHostsFile "/etc/ours"', "GlobalKnownHostsFile /dev/null"} <= set(lines)
    assert lines.index("GlobalKnownHostsFile /dev/null") < next(
        number for number, line in enumerate(lines) if line.startswith("Include")
    )
    for call in ssh.makes("-N"):
        assert {"-T", "-a", "-x", "-k", "-f"} <= set(call)
        assert call[-2] == "--"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("hostname es1;id", "'es1;id' is neither an IP address nor a host name"),
        ("hostname -oProxyCommand=x", "neither an IP address nor a host name"),
        ("user $(id)", "'$(id)' cannot be the name of an account"),
        ("user -l", "'-l' cannot be the name of an account"),
        ("proxyjump gate;id", "'gate;id' is neither an IP address nor a host name"),
        ("proxyjump -oProxyCommand=x", "neither an IP address nor a host name"),
        ("proxyjump a`b@gate", "'a`b' cannot be the name of an account"),
        ("proxyjump gate,a b", "'a b' is neither an IP address nor a host name"),
    ],
)
def test_no_bad_host_or_user_of_a_configuration_is_connected(
    ssh: Ssh, connections: Connections, options: str, words: str
) -> None:
    """Versions of `ssh` differ in what they refuse to put into a ProxyCommand, which a shell reads."""
    (ssh.folder / "options").write_text(f"{options}\n")
    found = to(connections, address="es1").run("true", timeout=20.0)
    assert isinstance(found, Unreachable)
    assert found.trouble is Trouble.SETTINGS
    assert words in found.reason
    assert not [call for call in ssh.makes("-N") if call[-1] != "gate"], "no log-in at the host"


def test_every_jump_host_is_checked(ssh: Ssh, connections: Connections) -> None:
    """The second one too, which `ssh` reaches by the first one."""
    script = (ssh.folder / "ssh").read_text()
    (ssh.folder / "ssh").write_text(
        script.replace("-G)", "-G) [ \"$line\" != far ] || { echo 'hostname $(id)'; exit 0; };")
    )
    (ssh.folder / "options").write_text("proxyjump gate,far\n")
    found = to(connections).run("true", timeout=20.0)
    assert isinstance(found, Unreachable)
    assert "the SSH configuration of far: '$(id)' is neither" in found.reason
    assert [call[-1] for call in ssh.makes("-N")] == ["gate"]


def test_a_session_reads_no_configuration_and_never_logs_in(ssh: Ssh, connections: Connections) -> None:
    found = to(connections, address="es1.example", user="ops").run("echo hello", timeout=20.0)
    assert found == CommandResult(exit=0, stdout="hello\n")
    (call,) = ssh.sessions
    assert call[:3] == ["-F", "/dev/null", "-S"]
    assert "ControlMaster=no" in options(call)
    assert [one for one in options(call) if one.startswith("ProxyCommand=sh -c 'echo ")]
    assert {"-T", "-a", "-x", "-k"} <= set(call)
    assert call[-3:-1] == ["--", "es1.example"]
    assert all(one[-2] == "--" for one in ssh.makes("-G", "-N"))


def test_closing_ends_every_connection_and_makes_none(ssh: Ssh, connections: Connections) -> None:
    """Those to jump hosts too, which are in the same folder; a kept connection is not made again."""
    kept = to(connections)
    kept.run("true", timeout=20.0)
    (made,) = ssh.makes("-N")
    host = Path(made[made.index("-S") + 1])
    assert stat.S_IMODE(host.parent.stat().st_mode) == 0o700
    at = (host, host.parent / "jump-0")
    sockets = [socket.socket(socket.AF_UNIX) for _ in at]
    for one, path in zip(sockets, at, strict=True):
        one.bind(str(path))
    connections.close()
    ended = [call[call.index("-S") + 1] for call in ssh.makes("-O") if "exit" in call]
    assert sorted(ended) == sorted(map(str, at))
    for one in sockets:
        one.close()
    assert not host.parent.exists()
    before = len(ssh.calls)
    found = kept.run("true", timeout=20.0)
    assert isinstance(found, Unreachable)
    assert found.trouble is Trouble.CLOSED
    assert len(ssh.calls) == before


def test_keys_of_an_agent_are_offered_unless_refused(ssh: Ssh, connections: Connections) -> None:
    for number, agent in enumerate((True, False)):
        to(connections, address=f"es{number}", use_agent=agent).run("true", timeout=20.0)
        text = Path(ssh.makes("-N")[-1][1]).read_text()
        assert ("IdentityAgent none" in text.splitlines()) is not agent


def test_a_password_for_sudo_is_in_no_argument(ssh: Ssh, connections: Connections) -> None:
    secret = "open sesame"  # noqa: S105  (of a fake)
    job = to(connections).start("read x; echo ${#x}", timeout=20.0, stdin=f"{secret}\n")
    assert not isinstance(job, Unreachable)
    assert job.wait(20.0) == CommandResult(exit=0, stdout=f"{len(secret)}\n")
    assert not [call for call in ssh.calls for word in call if secret in word]


def test_variables_of_the_program_reach_no_session(
    ssh: Ssh, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATE_SECRET", "open sesame")
    found = to(connections).run("echo ${ORCHESTRATE_SECRET-none}", timeout=20.0)
    assert found == CommandResult(exit=0, stdout="none\n")
    assert len(ssh.sessions) == 1


def test_a_late_refusal_is_no_doubt(ssh: Ssh, connections: Connections) -> None:
    (ssh.folder / "late").touch()
    connection = to(connections, limits=HostLimits(connect=0.05, banner=0.05))
    assert connection.run("echo hello", timeout=20.0) == CommandResult(exit=0, stdout="hello\n")
    assert len(ssh.sessions) == len(ssh.makes("-N")) == 2, "on a connection of its own"


@pytest.mark.parametrize("ends", ["limit", "close", "minute"])
def test_a_refused_command_is_not_sent_once_given_up(
    ssh: Ssh, connections: Connections, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Neither while a second connection is made, nor within a limit of hours: it may be a stop."""
    for name in ("late", "slow"):
        (ssh.folder / name).touch()
    if ends == "minute":
        monkeypatch.setattr(sessions, "SENT_AGAIN_SECONDS", 0.6)
    connection = to(connections, limits=HostLimits(connect=0.05, banner=0.05))
    job = connection.start("echo hello", timeout=0.8 if ends == "limit" else 20.0)
    assert not isinstance(job, Unreachable)
    if ends == "close":
        assert job.wait(0.6) is None, "it is about to be sent again"
        job.close()
    assert isinstance(job.wait(5.0), Lost)
    assert len(ssh.makes("-N")) == 2
    assert len(ssh.sessions) == 1


@pytest.mark.parametrize("fate", ["killed", "silent", "dies"])
def test_an_end_of_ssh_without_our_mark_is_in_doubt(ssh: Ssh, connections: Connections, fate: str) -> None:
    """It ended with this service, or a startup file closed the output, or it exits 255 by itself: the command
    may have run, and a second session would run it twice."""
    connection = to(connections)
    assert isinstance(connection.run("true", timeout=20.0), CommandResult)
    (ssh.folder / fate).touch()
    found = connection.run("true", timeout=20.0)
    assert isinstance(found, Lost)
    assert not found.timed_out
    assert len(ssh.sessions) == 2
