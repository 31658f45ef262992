"""`/ping` and `/stats` from a server on this machine, good and bad."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.redact import Redactor
from orchestrator.riak.contact import LIMITS, NodeHttp
from tests.fakes.scripted_http import Answerer, ScriptedServer, cut, hang, reply
from tests.riak_transcripts import STATS
from tests.unit.clusters.cases import known, unread

BODY = STATS.read_bytes()
CLOSE = {"Connection": "close"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
BAD: dict[str, tuple[Answerer, str]] = {
    "no Riak": (reply(b"hello", headers=CLOSE), ""),
    "an error": (reply(b"OK", status=503, headers=CLOSE), ""),
    "half of it": (reply(BODY[:4000], headers=CLOSE), ""),
    "cut": (cut(HEAD % len(BODY) + BODY[:4000]), ""),
    "compressed": (reply(b"OK", headers={"Content-Encoding": "gzip", **CLOSE}), "compressed"),
    "a trickle": (lambda _, wire: wire.trickle(HEAD % 999 + b" " * 999, every=0.02), "not whole"),
    "a flood": (reply(b" " * 50_000, headers=CLOSE), "larger than 40000 bytes"),
    "silence": (hang, ""),
}


def test_ping_and_stats_of_a_node() -> None:
    with ScriptedServer() as server:
        server.on("/ping", reply(b"OK", headers=CLOSE))
        server.on("/stats", reply(BODY, headers=CLOSE))
        assert NodeHttp(f"{server.url}/").ping() is True
        assert known(NodeHttp(server.url).stats()).kv_vnodes == 6


def test_what_is_no_riak_or_no_whole_answer_is_unknown(subtests: pytest.Subtests) -> None:
    limits = replace(LIMITS, silence=0.2, whole=0.3, answer_bytes=40_000)
    for name, (answer, words) in BAD.items():
        with subtests.test(name), ScriptedServer() as server:
            for path in ("/ping", "/stats"):
                server.on(path, answer)
            http = NodeHttp(server.url, limits=limits)
            assert words in unread(http.stats)
            assert words in unread(http.ping)


def test_why_a_node_is_not_reached_is_said_in_plain_words() -> None:
    with ScriptedServer() as server:
        url = server.url
    assert unread(lambda: NodeHttp(url).ping()) == f"{url}/ping: no connection: Connection refused"
    said = unread(lambda: NodeHttp("http://no-such-host.invalid:8098").ping())
    assert said == "http://no-such-host.invalid:8098/ping: the host name does not resolve"


def test_what_a_node_or_a_proxy_repeats_is_shown_without_secrets() -> None:
    stats = {
        name: "s3cret-pass\n" if isinstance(value, int) else value for name, value in json.loads(BODY).items()
    }
    with ScriptedServer() as server:
        server.on("/stats", reply(stats, headers=CLOSE))
        reason = unread(lambda: NodeHttp(server.url, redact=Redactor(["s3cret-pass"]).without_known).stats())
    assert "[redacted]" in reason
    assert "s3cret-pass" not in reason
    assert reason.isprintable()
