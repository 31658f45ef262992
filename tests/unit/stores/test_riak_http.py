"""`/ping` and `/stats` from a server on this machine, good and bad."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import NodeStats
from orchestrator.redact import Redactor
from orchestrator.stores.riak.http import LIMITS, NodeHttp
from tests.riak_transcripts import STATS

Answer = Callable[[BaseHTTPRequestHandler], None]


def whole(body: bytes, status: int = 200, length: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_node_that_answers() -> None:
    with serving(whole(b"OK")) as url:
        assert NodeHttp(f"{url}/").ping() is True


def test_recorded_stats() -> None:
    with serving(whole(STATS.read_bytes())) as url:
        stats = NodeHttp(url).stats()
    assert isinstance(stats, NodeStats)
    assert stats.kv_vnodes == 6


def test_what_is_no_riak_or_no_whole_answer_is_unknown() -> None:
    body = STATS.read_bytes()
    for answer in (
        whole(b"hello"),
        whole(b"OK", 503),
        whole(body[:4000]),
        whole(body[:4000], length=len(body)),
    ):
        with serving(answer) as url:
            assert isinstance(NodeHttp(url).stats(), Unknown)
            assert isinstance(NodeHttp(url).ping(), Unknown)


def test_why_a_node_is_not_reached_is_said_in_plain_words() -> None:
    with serving(whole(b"OK")) as url:
        pass
    said = NodeHttp(url).ping()
    assert said == Unknown(reason=f"{url}/ping: no connection: Connection refused")
    said = NodeHttp("http://no-such-host.invalid:8098").ping()
    assert said == Unknown(reason="http://no-such-host.invalid:8098/ping: the host name does not resolve")


def test_a_trickle_and_a_flood_end_at_the_limits() -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" ")
                time.sleep(0.02)
        except OSError:
            return  # the reader has gone, as it should

    with serving(trickle) as url:
        found = NodeHttp(url, limits=replace(LIMITS, whole=0.1)).stats()
    assert isinstance(found, Unknown)
    assert "not whole" in found.reason
    with serving(whole(b" " * 5000)) as url:
        found = NodeHttp(url, limits=replace(LIMITS, answer_bytes=1000)).stats()
    assert isinstance(found, Unknown)
    assert "larger than 1000 bytes" in found.reason


def test_silence_ends_at_its_limit() -> None:
    over = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        del handler
        over.wait(5)

    with serving(silent) as url:
        found = NodeHttp(url, limits=replace(LIMITS, silence=0.05)).ping()
        over.set()
    assert isinstance(found, Unknown)


def test_what_a_node_or_a_proxy_repeats_is_shown_without_secrets() -> None:
    said = {
        name: "s3cret-pass\n" if isinstance(v, int) else v
        for name, v in json.loads(STATS.read_bytes()).items()
    }
    body = json.dumps(said).encode()
    hide = Redactor(["s3cret-pass"]).without_known
    with serving(whole(body)) as url:
        found = NodeHttp(url, redact=hide).stats()
    assert isinstance(found, Unknown)
    assert "[redacted]" in found.reason
    assert "s3cret-pass" not in found.reason
    assert found.reason.isprintable()


def test_a_compressed_answer_is_refused() -> None:
    def compressed(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()

    with serving(compressed) as url:
        found = NodeHttp(url).ping()
    assert isinstance(found, Unknown)
    assert "compressed" in found.reason
