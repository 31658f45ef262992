"""One HTTP exchange against real sockets: each step has what is left of one deadline."""

from __future__ import annotations

import gzip
import http.client
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import urllib3

from orchestrator.bounded_http import AnswerLimit, Bounds, HttpAnswer, bounded, exchange
from tests.fakes.certificates import Certificates
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, cut, raw, reply

PATIENT = Bounds(connect=20.0, silence=20.0, whole=60.0, answer_bytes=1000)
HEAD = b"HTTP/1.1 200 OK\r\n"


@dataclass
class Watch:
    """A clock that a test moves."""

    time: float = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


def pool_of(server: ScriptedServer, **more: object) -> urllib3.HTTPConnectionPool:
    return bounded(urllib3.PoolManager(**more).connection_from_url(server.url))


def ask(
    server: ScriptedServer, watch: Watch, bounds: Bounds = PATIENT, body: bytes | None = None
) -> HttpAnswer:
    return exchange(pool_of(server), "GET", "/", headers={}, body=body, bounds=bounds, now=watch)


def in_steps(watch: Watch, seconds: float, *parts: bytes) -> Answerer:
    """Each part is sent when the one before was read, so many seconds later."""

    def answer(_asked: Asked, wire: Wire) -> None:
        for part in parts:
            watch.time += seconds
            wire.send(part)
        wire.hang()

    return answer


SLOW: dict[str, bytes] = {
    "headers": HEAD + b"X-A: b\r\n" * 50,
    "a status line": b"HTTP/1.1 200 " + b"x" * 400,
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 30,
    "a body": HEAD + b"Content-Length: 900\r\n\r\n" + b" " * 400,
    "chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 80,
    "a chunk's head": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 400,
    "trailers": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 80,
    "until the end": HEAD + b"Connection: close\r\n\r\n" + b" " * 400,
}


@pytest.mark.parametrize("case", SLOW)
def test_what_arrives_byte_by_byte_ends_at_the_deadline(
    server: ScriptedServer, watch: Watch, case: str
) -> None:
    """A second a byte: no silence is too long, and no part would ever end."""
    server.on("/", in_steps(watch, 1.0, *(SLOW[case][at : at + 1] for at in range(len(SLOW[case])))))
    with pytest.raises(AnswerLimit, match="not whole after 60 s"):
        ask(server, watch)
    assert watch.time >= PATIENT.whole


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP, gzip", "x-unheard"])
def test_a_compressed_answer_is_refused_unread(server: ScriptedServer, watch: Watch, encoding: str) -> None:
    packed = zlib.compress(b"{}" * 10) if encoding == "deflate" else gzip.compress(b"{}" * 10)
    server.on("/", reply(packed, headers={"Content-Encoding": encoding}))
    with pytest.raises(AnswerLimit, match="compressed"):
        ask(server, watch)
    assert server.asked[0].headers["accept-encoding"] == "identity"


def test_identity_is_no_compression(server: ScriptedServer, watch: Watch) -> None:
    server.on("/", reply({"a": 1}, headers={"Content-Encoding": "identity"}))
    assert ask(server, watch).body == b'{"a": 1}'


ENDLESS: dict[str, Callable[[], Answerer]] = {
    "a length": lambda: reply(b" " * 1001),
    "chunks": lambda: raw(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"64\r\n" + (b" " * 100 + b"\r\n64\r\n") * 11
    ),
    "until the end": lambda: raw(HEAD + b"Connection: close\r\n\r\n" + b" " * 1001),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_body_has_a_largest_size(server: ScriptedServer, watch: Watch, case: str) -> None:
    server.on("/", ENDLESS[case]())
    with pytest.raises(AnswerLimit, match="larger than 1000 bytes"):
        ask(server, watch)
    server.on("/", reply(b" " * 1000))
    assert len(ask(server, watch).body) == 1000


def test_a_head_without_end_is_no_answer(server: ScriptedServer, watch: Watch) -> None:
    for line in (b"X-A: b\r\n" * 200, b"X-A: " + b"b" * 70_000):
        server.on("/", raw(HEAD + line + b"\r\n"))
        with pytest.raises(urllib3.exceptions.ProtocolError):
            ask(server, watch)


def test_a_connection_is_used_again_with_a_deadline_of_its_own(server: ScriptedServer, watch: Watch) -> None:
    server.on("/", reply({"a": 1}))
    pool = pool_of(server)
    for _ in range(3):
        assert exchange(pool, "GET", "/", headers={}, bounds=PATIENT, now=watch).status == 200
        watch.time += 100.0
    assert pool.num_connections == 1


def test_after_a_failure_the_connection_is_closed(server: ScriptedServer, watch: Watch) -> None:
    server.on("/", raw(HEAD + b"Content-Length: 9000\r\n\r\n" + b" " * 2000))
    pool = pool_of(server)
    with pytest.raises(AnswerLimit) as caught:  # keeps the frames, and so the answer
        exchange(pool, "GET", "/", headers={}, bounds=PATIENT, now=watch)
    assert server.ended(within=10.0), caught


def test_silence_ends_before_the_deadline(server: ScriptedServer) -> None:
    server.on("/", lambda _asked, wire: wire.hang())
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        exchange(pool_of(server), "GET", "/", headers={}, bounds=replace(PATIENT, silence=0.02))


def test_each_part_of_a_request_has_what_is_left(
    server: ScriptedServer, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []
    send = http.client.HTTPConnection.send

    def sending(connection: http.client.HTTPConnection, data: bytes) -> None:
        given.append(connection.sock.gettimeout())
        watch.time += 55.0
        send(connection, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", sending)
    server.on("/", reply({}))
    with pytest.raises(AnswerLimit, match="not whole after 60 s"):
        ask(server, watch, body=b"x")
    assert given == [20.0, 5.0], "head and body: silence, and then what is left"


def test_all_addresses_of_a_name_share_the_time_to_connect(
    server: ScriptedServer, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []

    class Deaf(socket.socket):
        def connect(self, _place: object) -> None:
            given.append(self.gettimeout())
            raise TimeoutError

    place = socket.getaddrinfo("127.0.0.1", server.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: place * 100)
    monkeypatch.setattr(socket, "socket", Deaf)
    with pytest.raises(urllib3.exceptions.ConnectTimeoutError):
        ask(server, watch)
    assert sum(each or 1e9 for each in given) == pytest.approx(PATIENT.connect)


def test_half_an_answer_is_none(server: ScriptedServer, watch: Watch) -> None:
    for part in (b"Content-Length: 50\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n32\r\n{"):
        server.on("/", cut(HEAD + part))
        with pytest.raises(urllib3.exceptions.HTTPError):
            ask(server, watch)


def test_tls_keeps_the_same_deadline(tmp_path: Path, watch: Watch) -> None:
    certificates = Certificates(tmp_path)
    with ScriptedServer(tls=certificates.context()) as secure:
        pool = pool_of(secure, ca_certs=str(certificates.ca))
        secure.on("/", reply({"a": 1}))
        assert exchange(pool, "GET", "/", headers={}, bounds=PATIENT, now=watch).body == b'{"a": 1}'
        slow = SLOW["headers"]
        secure.on("/", in_steps(watch, 1.0, *(slow[at : at + 1] for at in range(len(slow)))))
        with pytest.raises(AnswerLimit, match="not whole after 60 s"):
            exchange(pool, "GET", "/", headers={}, bounds=PATIENT, now=watch)
