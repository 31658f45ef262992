"""How many sessions go over one connection, and when a further connection is made."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import paramiko
import pytest

from orchestrator.hosts.connection import CommandResult, Lost, Streams, Trouble
from orchestrator.hosts.connections import openssh
from orchestrator.hosts.connections.sessions import (
    LOG_INS_AT_A_TIME,
    SESSIONS_PER_CONNECTION,
    CommandOrder,
    LinkError,
    SessionConnection,
    SessionRefusedError,
    Sessions,
)
from orchestrator.hosts.connections.ssh import ChannelSession, SshLink
from orchestrator.hosts.connections.ssh_route import Hop
from orchestrator.model.host_settings import HostLimits


class FakeLink:
    """A connection to a server with a limit of its own."""

    def __init__(self, most: int) -> None:
        self.most, self.open, self.dropped, self.closed = most, 0, 0, False

    def drop(self) -> None:
        self.dropped += 1

    def close(self) -> None:
        self.closed = True


class Server:
    def __init__(self, most: int = 10) -> None:
        self.links: list[FakeLink] = []
        self.most, self.refused = most, 0
        self.sessions = Sessions(self._make, "deploy@riak1:22")

    def _make(self) -> FakeLink:
        self.links.append(FakeLink(self.most))
        return self.links[-1]

    def open(self, patience: float = 0.0) -> FakeLink:
        def attempt(link: FakeLink) -> None:
            if link.open >= link.most:
                self.refused += 1
                raise SessionRefusedError("open failed")
            link.open += 1

        return self.sessions.open(attempt, patience=patience)[0]

    def end(self, link: FakeLink) -> None:
        link.open -= 1
        self.sessions.end(link)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_fewer_sessions_a_connection_need_more_connections(most: int) -> None:
    """With `MaxSessions 2` the third reading of a host was Unknown."""
    server = Server(most)
    links = [server.open() for _ in range(24)]
    assert [link.open for link in server.links] == [most] * (24 // most) + [24 % most] * (24 % most > 0)
    assert server.refused == 1, "its limit is learned once"
    for link in links:
        server.end(link)
    assert server.open() is server.links[0]


def test_a_refused_first_session_is_not_tried_forever() -> None:
    server = Server(0)
    with pytest.raises(SessionRefusedError):
        server.open()
    assert len(server.links) == 1


def test_a_refusal_beside_another_session_is_no_fault() -> None:
    """The session that got the only place may have ended before the refusal of the other one is heard."""
    server, refused = Server(1), []

    def attempt(link: FakeLink) -> None:
        if not refused:
            refused.append(link)
            server.end(server.open())  # by another thread
            raise SessionRefusedError("open failed")
        link.open += 1

    link, _ = server.sessions.open(attempt)
    assert refused == [server.links[0]]
    assert link is server.links[1]


@dataclass
class Late:
    """Sessions that hear late, one fault each, that they sent nothing; then one that has run."""

    faults: list[LinkError]  # those to come
    most: int = 99  # sessions until none can be opened
    links: list[FakeLink] = field(default_factory=list)
    streams: Streams = field(default_factory=Streams)

    def begin(self, link: FakeLink, _order: CommandOrder) -> Late:
        if len(self.links) == self.most:
            raise LinkError(Trouble.NO_ANSWER, "no answer")
        self.links.append(link)
        return self

    def attend(self) -> CommandResult:
        if self.faults:
            raise self.faults.pop(0)
        return CommandResult(exit=0, stdout="well")

    def abort(self) -> None:
        raise AssertionError


def test_a_command_whose_session_was_refused_late_is_sent_again(subtests: pytest.Subtests) -> None:
    """On a busy machine a refusal takes longer than a session is waited for; nothing was sent then."""
    refused, gone = SessionRefusedError("refused"), LinkError(Trouble.CLOSED, "gone")
    well = CommandResult(exit=0, stdout="well")
    for faults, most, timeout, links, ended in [
        ([], 9, 20.0, [0], well),
        ([refused], 9, 20.0, [0, 1], well),
        ([refused, refused], 9, 20.0, [0, 1, 2], well),
        ([gone], 9, 20.0, [0, 0], well),
        ([refused] * 9, 3, 20.0, [0, 1, 2], Lost(reason="no answer", timed_out=False)),
        ([refused], 9, 0.0, [0], Lost(reason="refused", timed_out=True)),
    ]:
        with subtests.test(faults=faults, most=most, timeout=timeout):
            server, late = Server(), Late(list(faults), most)
            assert SessionConnection(server.sessions, late.begin).run("x", timeout=timeout) == ended
            assert [server.links.index(link) for link in late.links] == links
            assert set(server.sessions._in_use.values()) == {0}


def test_new_connections_to_a_server_are_made_a_few_at_a_time() -> None:
    """sshd with MaxSessions 1 and 24 nodes: log-ins beyond the tenth at once were dropped."""
    server, lock = Server(1), threading.Lock()
    server.end(server.open())
    full = threading.Event()
    going = most = 0

    def attempt(link: FakeLink) -> None:
        nonlocal going, most
        with lock:
            if link.open >= 1:
                raise SessionRefusedError("open failed")
            link.open += 1
            going += 1
            most = max(most, going)
            if going > LOG_INS_AT_A_TIME + 1:
                full.set()
        full.wait(0.02)
        with lock:
            going -= 1

    threads = [threading.Thread(target=server.sessions.open, args=(attempt,)) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert len(server.links) == 24
    # One session goes over the connection that is there already.
    assert 1 < most <= LOG_INS_AT_A_TIME + 1


def test_a_short_command_waits_before_a_new_connection() -> None:
    server = Server()
    links = [server.open() for _ in range(SESSIONS_PER_CONNECTION)]
    timer = threading.Timer(0.1, server.end, (links[0],))
    timer.start()
    assert server.open(patience=30.0) is server.links[0]
    timer.join()
    began = time.monotonic()
    assert server.open(patience=0.05) is server.links[1]
    assert time.monotonic() - began >= 0.05


def test_after_close_no_connection_is_open_or_made() -> None:
    server = Server()
    for _ in range(SESSIONS_PER_CONNECTION + 1):
        server.open()
    server.sessions.drop()
    server.sessions.close()
    assert [(link.dropped, link.closed) for link in server.links] == [(1, True)] * 2
    with pytest.raises(LinkError) as caught:
        server.open()
    assert caught.value.unreachable.trouble is Trouble.CLOSED
    assert len(server.links) == 2


class SilentChannel:
    """A channel whose server does not acknowledge a command; closing it ends the wait, as paramiko's does."""

    def __init__(self, transport: object) -> None:
        self._transport, self._closed = transport, threading.Event()

    def get_transport(self) -> object:
        return self._transport

    def exec_command(self, _line: str) -> None:
        assert self._closed.wait(20.0)
        raise paramiko.SSHException("Channel closed.")

    def close(self) -> None:
        self._closed.set()


class OpenTransport:
    """A connection on which other commands run."""

    ended, opens = False, True

    @property
    def sock(self) -> OpenTransport:
        """What carries it ends with it here."""
        return self

    def open_session(self, *, timeout: float) -> SilentChannel:
        assert timeout
        if not self.opens:
            raise paramiko.SSHException("Timeout opening channel.")
        return SilentChannel(self)

    def is_active(self) -> bool:
        return not self.ended

    def close(self) -> None:
        self.ended = True


def test_a_command_without_acknowledgement_leaves_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may hang: the next command gets a new connection, and those of other nodes keep theirs.

    The connection of the first ends with the last command over it.
    """
    made: list[OpenTransport] = []

    def connect(_link: SshLink) -> OpenTransport:
        made.append(OpenTransport())
        return made[-1]

    monkeypatch.setattr(SshLink, "_connect", connect)
    link = SshLink(cast("Hop", "deploy@riak1:22"), None, HostLimits())
    order = CommandOrder(command="x", stdin=None, timeout=0.2, keep=9)
    other = ChannelSession(link, order, time.monotonic)
    for ended in ([False], [False, True]):
        session = ChannelSession(link, order, time.monotonic)
        assert session.attend() == Lost(reason="deploy@riak1:22 gave no answer within 0.2 s", timed_out=True)
        assert [each.ended for each in made] == ended, "each has a connection of its own"
    for _ in range(2):
        other.abort()
        assert [each.ended for each in made] == [True, True]
    ChannelSession(link, order, time.monotonic)
    link.close()
    assert [each.ended for each in made] == [True, True, True]


def test_a_channel_without_an_answer_leaves_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent: another connection is made once, and commands over the first keep theirs."""
    made: list[OpenTransport] = []

    def connect(_link: SshLink) -> OpenTransport:
        made.append(OpenTransport())
        return made[-1]

    monkeypatch.setattr(SshLink, "_connect", connect)
    link = SshLink(cast("Hop", "deploy@riak1:22"), None, HostLimits())
    first = link.open_session()
    made[0].opens = False
    second = link.open_session()
    assert [each.ended for each in made] == [False, False]
    made[1].opens = False
    with monkeypatch.context() as patched:
        patched.setattr(OpenTransport, "opens", False)
        with pytest.raises(LinkError, match="opened no channel"):
            link.open_session()
    link.release(second)
    assert [each.ended for each in made] == [False, True, True]
    link.release(first)
    assert [each.ended for each in made] == [True, True, True]


class DeadChannel:
    """Of a jump host whose connection is dead, though nothing has noticed yet."""

    closed = _closed = False

    def settimeout(self, _seconds: float) -> None:
        pass

    def send(self, data: bytes) -> int:
        return len(data)

    def recv(self, _size: int) -> bytes:
        return b""

    def close(self) -> None:
        raise EOFError


class DeadJumpHost:
    released = 0

    def open_tcp(self, _host: str, _port: int) -> DeadChannel:
        return DeadChannel()

    def release(self, _channel: object) -> None:
        self.released += 1


HOP = Hop(
    alias="riak1",
    host="127.0.0.1",
    port=22,
    user="deploy",
    key_names=("riak1",),
    identities=(),
    identities_only=True,
    known_hosts=(),
    use_agent=False,
)


def tracebacks_of(link: SshLink) -> list[object]:
    """What paramiko's threads would print on the terminal while the connection is not made."""
    said, before = list[object](), {*threading.enumerate()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading, "excepthook", said.append)
        with pytest.raises(LinkError):
            link.open_session()
        link.close()
        for thread in {*threading.enumerate()} - before:
            thread.join(60.0)
    return said


def test_a_dead_jump_host_is_no_traceback() -> None:
    jump = DeadJumpHost()
    assert tracebacks_of(SshLink(HOP, cast("SshLink", jump), HostLimits(), wait=lambda _seconds: None)) == []
    assert jump.released > 0


def test_a_proxy_command_of_another_account_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as `sudo ip netns exec`: it may not be signalled, and ends with its pipes."""

    def kill(_pid: int, _signal: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", kill)
    hop = replace(HOP, proxy_command="dd of=/dev/null")
    assert tracebacks_of(SshLink(hop, None, HostLimits(banner=0.2), wait=lambda _seconds: None)) == []


def test_a_retired_master_ends_with_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended: list[Path] = []
    monkeypatch.setattr(openssh, "end_master", lambda socket, _clock: ended.append(socket))
    sockets = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    left = iter(sockets)
    monkeypatch.setattr(openssh.Master, "_connect", lambda _master: next(left))
    target = openssh.SshTarget(address="riak1", config=tmp_path / "config", options=())
    shared = openssh.Master(target, tmp_path, HostLimits(), alone=lambda _jump: contextlib.nullcontext())
    first = shared.session("x")
    shared.retire(first)
    second = shared.session("x")
    shared.retire(first)
    assert (second != first, shared.session("x") == second, ended) == (True, True, [])
    shared.forget(second)
    assert ended == [sockets[1]]
    shared.session("x")
    shared.close()
    assert set(ended) == set(sockets)
