"""One HTTP exchange with a server that does what it likes: limits of time, size and form."""

from __future__ import annotations

import gzip
import ssl
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3

from orchestrator.bounded_http import Answer, AnswerLimit, exchange, pool_of, request_uri
from orchestrator.lab.security import LabUser, Security, write_security
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, raw, reply

OK = b"HTTP/1.1 200 OK\r\n"
SMALL = b"{},{},{}," * 10_000
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    security = Security(users=(LabUser(name="lab", password="lab-password"),))  # noqa: S106  (a test's own)
    write_security(security, ca=folder / "ca.pem", configs=[folder])
    return folder


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, files: Path) -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "node.crt", files / "node.key")
    with ScriptedServer(tls=context if request.param == "https" else None) as running:
        yield running


@pytest.fixture
def pool(server: ScriptedServer, files: Path) -> Iterator[urllib3.HTTPConnectionPool]:
    with pool_of(server.url, cert_reqs="CERT_REQUIRED", ca_certs=str(files / "ca.pem")) as connections:
        yield connections


@pytest.fixture
def ask(pool: urllib3.HTTPConnectionPool) -> Ask:
    def asked(*, within: float = 5.0, most_bytes: int = 1000, silence: float = 5.0, **more: object) -> Answer:
        timeout = urllib3.Timeout(connect=5.0, read=silence)
        return exchange(
            pool, "GET", "/x?a=b", headers={}, timeout=timeout, within=within, most_bytes=most_bytes, **more
        )

    return asked


def trickled(first: bytes, line: bytes) -> Answerer:
    """A line every 10 ms, until the client has had enough."""

    def answer(_asked: Asked, wire: Wire) -> None:
        wire.send(first)
        for _ in range(1000):
            wire.send(line)
            time.sleep(0.01)

    return answer


def test_an_answer_and_the_next_one_over_the_same_connection(server: ScriptedServer, ask: Ask) -> None:
    server.on("/x", reply({"n": 1}), reply({"n": 2}, status=404))
    sizes: list[int] = []
    assert ask(received=sizes.append).body == b'{"n": 1}'
    second = ask(received=sizes.append)
    assert (second.status, second.body, sizes) == (404, b'{"n": 2}', [8, 8])
    assert [each.headers["accept-encoding"] for each in server.asked] == ["identity", "identity"]
    assert server.asked[0].params == {"a": "b"}
    assert len(server._threads) == 2, "one to accept, one connection"


@pytest.mark.parametrize(
    ("first", "line"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OK, b"x-header: y\r\n"),
        (OK, b"x"),
        (OK + b"content-length: 100000\r\n\r\n", b" "),
        (OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (OK + b"transfer-encoding: chunked\r\n\r\n", b"0"),
        (b"H", b"T"),
    ],
    ids=["continue", "header", "one line", "body", "chunks", "chunk size", "status"],
)
def test_a_slow_answer_ends_at_the_limit(server: ScriptedServer, ask: Ask, first: bytes, line: bytes) -> None:
    """Whatever comes slowly. Each has a byte in time, so the limit of silence never ends it."""
    server.on("/x", trickled(first, line))
    with pytest.raises((AnswerLimit, urllib3.exceptions.ProtocolError)) as failed:
        ask(within=0.1, most_bytes=10**6)
    if first != OK or line != b"x-header: y\r\n":  # a hundred lines may come before
        assert "not whole after 0.1 s" in str(failed.value)


def test_silence_ends_before_the_limit_of_the_whole(server: ScriptedServer, ask: Ask) -> None:
    server.on("/x", lambda _asked, wire: wire.hang())
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        ask(silence=0.05, within=30.0)


def test_a_connection_is_used_again_with_its_whole_time(server: ScriptedServer, ask: Ask) -> None:
    """The last read of an answer has only the time that is left; the next request has its own."""
    server.on("/x", reply({}), reply({}))
    ask(within=0.2)
    time.sleep(0.25)
    assert ask(within=5.0).status == 200


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(SMALL)), ("deflate", zlib.compress(SMALL)), ("gzip, gzip", SMALL), ("br", SMALL)],
)
def test_an_encoding_was_not_asked_for(server: ScriptedServer, ask: Ask, encoding: str, body: bytes) -> None:
    server.on("/x", reply(body, headers={"content-encoding": encoding}))
    with pytest.raises(AnswerLimit, match="compressed"):
        ask(most_bytes=10**6)


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"x" * 2000),
        raw(OK + b"\r\n" + b"x" * 2000),
        raw(
            OK
            + b"transfer-encoding: chunked\r\n\r\n"
            + b"400\r\n"
            + b"x" * 1024
            + b"\r\n"
            + b"1\r\nx\r\n" * 9
        ),
    ],
    ids=["length", "until it ends", "chunked"],
)
def test_a_large_answer_ends_at_the_limit(server: ScriptedServer, ask: Ask, answer: Answerer) -> None:
    server.on("/x", answer)
    with pytest.raises(AnswerLimit, match="larger than 1000 bytes"):
        ask()


def test_many_or_long_headers_end_the_exchange(server: ScriptedServer, ask: Ask) -> None:
    for head in (b"x-a: b\r\n" * 1000, b"x-a: " + b"b" * 100_000 + b"\r\n"):
        server.on("/x", raw(OK + head + b"\r\n"))
        with pytest.raises(urllib3.exceptions.HTTPError):
            ask()


def test_no_redirect_is_followed(server: ScriptedServer, ask: Ask) -> None:
    server.on("/x", raw(b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"))
    assert ask().status == 302
    assert server.paths() == ["/x"]


def test_path_and_query_of_a_url() -> None:
    assert request_uri("https://es1:9200/prefix/x?a=b") == "/prefix/x?a=b"
    assert request_uri("http://[::1]:9200") == "/"
