"""Answers that repeat secrets, forge lines or have no measure: what comes in is safe to show and to hold."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator

import pytest

from orchestrator import untrusted_json
from orchestrator.model.action import Flush, Refused
from orchestrator.model.observation import Look
from orchestrator.model.reading import Unknown
from orchestrator.redact import Redactor
from orchestrator.runtime.clock import SystemClock
from orchestrator.stores.elasticsearch.access import Access, Limits
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.request import AnswerBytes, by_copy, by_node, get
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, cut, node, reply

PASSWORD = 's3cret"Pass!'  # noqa: S105  (a test's own)
KEY = b64encode(b"id-1:k3y-of-the-api").decode()
ONCE = Limits(attempts=1)
PROBE = "/_nodes/_local/http"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        running.on(PROBE, reply(node("es1")))
        running.on("/_nodes/http", reply(node("es1")))
        yield running


def client_of(server: ScriptedServer, redact: Redactor | None = None, **auth: str) -> ElasticsearchClient:
    secrets = auth or {"username": "orch", "password": PASSWORD}
    access = Access(endpoints=(server.url,), **secrets)  # type: ignore[arg-type]  # any of its fields
    return ElasticsearchClient(access, clock=SystemClock(), limits=ONCE, redact=redact)


def forms(server: ScriptedServer) -> list[str]:
    """How the secret of this client may look; the other one is not known to it."""
    kind, _, header = server.asked[0].headers["authorization"].partition(" ")
    own = [PASSWORD, json.dumps(PASSWORD)[1:-1], "s3cret"] if kind == "Basic" else ["k3y-of"]
    return [*own, header, header.rstrip("=")]


ECHOES: dict[str, Answerer] = {
    "a header in a reason": lambda asked, wire: reply(
        {"error": {"type": "x", "reason": f"rejected authorization=[{asked.headers['authorization']}]"}},
        status=400,
    )(asked, wire),
    "a password in a reason": reply(
        {"error": {"reason": f"password is {PASSWORD} ok, k3y-of-the-api"}}, status=401
    ),
    "a name of an error": reply({"error": {"type": PASSWORD, "reason": None}}, status=403),
    "JSON in a reason": reply({"error": json.dumps({"user": f"orch:{PASSWORD}"})}, status=500),
    "a page of a proxy": lambda asked, wire: reply(
        f"<pre>Authorization: {asked.headers['authorization']}\r\nx: s3cret%22Pass%21".encode(),
        status=502,
        kind="text/html",
    )(asked, wire),
    "a name of a field": reply({f"{PASSWORD}": {}, "nodes": {KEY: {"name": PASSWORD}, PASSWORD: 1}}),
    "a secret where a reason is cut": reply({"error": {"reason": "x" * 392 + PASSWORD}}, status=400),
    "a secret where a page is cut": reply(b"x" * 392 + b"k3y-of-the-api", status=400, kind="text/html"),
    "a secret where a page ends": reply(b"x" * 392 + PASSWORD.encode(), status=400, kind="text/html"),
    "no HTTP": lambda asked, wire: cut(asked.headers["authorization"].encode() + b"\r\n")(asked, wire),
}


@pytest.mark.parametrize("case", ECHOES)
@pytest.mark.parametrize("auth", [{}, {"api_key": KEY}], ids=["password", "key"])
def test_what_repeats_a_secret_is_shown_without_it(
    server: ScriptedServer, case: str, auth: dict[str, str]
) -> None:
    server.on(PROBE, ECHOES[case])
    client = client_of(server, **auth)
    fault = client.read(get("/_cluster/health"))
    assert isinstance(fault, Fault)
    assert not [each for each in forms(server) if each in fault.reason]
    assert fault.reason.isprintable()
    client.close()


def test_a_secret_in_an_answer_is_gone_before_it_is_read(server: ScriptedServer) -> None:
    redact = Redactor()
    redact.learn("sudo-s3cret")  # of another part of the program
    body = {"a": ["x sudo-s3cret", {PASSWORD: 1}], "b": "token=abc", "c": "line\nforged\u202e"}
    server.on("/_cluster/health", reply(body))
    answer = client_of(server, redact).read(get("/_cluster/health"))
    assert isinstance(answer, Answer)
    assert answer.body == {
        "a": ["x [redacted]", {"[redacted]": 1}],
        "b": "token=abc",
        "c": "line\\nforged\\u202e",
    }
    assert "s3cret" not in redact(PASSWORD)


def test_a_plain_answer_is_searched_for_secrets_too(server: ScriptedServer) -> None:
    server.on("/_cluster/health", reply({"a": ["plainSecret"], "plainSecret": 1}))
    client = client_of(server, username="orch", password="plainSecret")  # noqa: S106  (a test's own)
    answer = client.read(get("/_cluster/health"))
    assert answer == Answer(status=200, body={"a": ["[redacted]"], "[redacted]": 1})


def test_a_reason_loses_what_looks_like_a_secret(server: ScriptedServer) -> None:
    """The credentials of somebody else, that a proxy repeats."""
    server.on("/x", reply({"error": {"reason": "got Authorization: Bearer of-another"}}, status=400))
    fault = client_of(server).read(get("/x"))
    assert isinstance(fault, Fault)
    assert fault.reason == "GET /x was answered with 400: got Authorization: Bearer [redacted]"


def test_a_refused_change_has_a_reason_that_may_be_journalled(server: ScriptedServer) -> None:
    def echo(asked: Asked, wire: Wire) -> None:
        reason = f"bad Authorization: {asked.headers['authorization']} \x1b[31m\r\nDone"
        reply({"error": {"type": "x", "reason": reason}}, status=400)(asked, wire)

    server.on("/_flush", echo)
    done = ElasticsearchCluster(client_of(server)).perform(Flush())
    assert isinstance(done, Refused)
    assert (
        done.reason
        == r"POST /_flush was answered with 400: bad Authorization: Basic [redacted] \x1b[31m\r\nDone"
    )


MONSTERS: dict[str, tuple[bytes, dict[str, str]]] = {
    "gzip": (gzip.compress(b"[" + b"{}," * 1_000_000 + b"{}]"), {"Content-Encoding": "gzip"}),
    "deflate": (b"x", {"Content-Encoding": "deflate"}),
    "100,000 deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, {}),
    "201 deep, with an escape": (b'{"a":' * 201 + b'"\\n"' + b"}" * 201, {}),
    "invalid UTF-8": (b'{"cluster_name":"\xff\xfe","nodes":{}}', {}),
    "5,000 digits": (b'{"nodes":{"a":{"name":1' + b"0" * 5000 + b"}}}", {}),
    "a million keys": (b"{" + b",".join(b'"%d":1' % each for each in range(1_000_000)) + b"}", {}),
    "nothing": (b"", {}),
}


@pytest.mark.parametrize("case", MONSTERS)
def test_an_answer_without_measure_is_unknown(server: ScriptedServer, case: str) -> None:
    body, headers = MONSTERS[case]
    server.on(PROBE, reply(body, headers=headers))
    seen = ElasticsearchCluster(client_of(server)).observe([Look.HEALTH, Look.CLUSTER])
    assert isinstance(seen.health, Unknown)
    assert isinstance(seen.cluster, Unknown)
    assert len(seen.health.reason) < 1000


def test_the_size_of_an_answer_is_limited_by_its_kind(server: ScriptedServer) -> None:
    client = client_of(server)
    for request, most in (
        (get("/x"), AnswerBytes.SMALL),
        (by_node("/x"), AnswerBytes.BY_NODE),
        (by_copy("/x"), AnswerBytes.BY_COPY),
    ):
        assert request.answer_bytes is most
    server.on("/x", reply(b'"' + b"x" * AnswerBytes.SMALL + b'"'))
    small, large = client.read(get("/x")), client.read(by_node("/x"))
    assert isinstance(small, Fault)
    assert "larger than 4194304 bytes" in small.reason
    assert isinstance(large, Answer)


def test_json_has_a_largest_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of three bytes takes up to two hundred in memory."""
    monkeypatch.setattr(untrusted_json, "_MOST_VALUES", 20)
    assert len(untrusted_json.parsed(b"[" + b"{}," * 8 + b"{}]")) == 9
    for many in (b"[" + b"{}," * 30 + b"{}]", b"[" * 60 + b"]" * 60, b"[" + b"1," * 60 + b"1]"):
        with pytest.raises(ValueError, match="more than 20 values"):
            untrusted_json.parsed(many)


def test_a_character_that_deletes_is_visible() -> None:
    """JSON allows it as it is."""
    assert untrusted_json.parsed(b'"a\x7f"') == "a\\x7f"
