"""Answers that repeat secrets, forge lines or have no measure: what comes in is safe to show and to hold.

A hostile text is put into each field of each recorded answer: every kind of field once, in one of the
versions that have it, and in as many recordings at once as there are.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any

import pytest

from orchestrator import untrusted_json
from orchestrator.elasticsearch.access import Access, RequestLimits
from orchestrator.elasticsearch.calls import AnswerBytes, by_copy, by_node, get
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.faults import Answer
from orchestrator.model.action import Flush, Refused
from orchestrator.model.observation import EVERYTHING, Look
from orchestrator.model.reading import Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.redact import Redactor
from orchestrator.runtime.waiting import SystemClock
from orchestrator.untrusted import visible
from tests.cli.hostile import EVIL, HOSTILE
from tests.cli.hostile import PASSWORD as SHOWN
from tests.fakes.recorded_cluster import VERSIONS, Planted, RecordedCluster, fields
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, cut, reply
from tests.unit.clusters.cases import why
from tests.unit.clusters.scripted import HEALTH, PROBE

PASSWORD = 's3cret"Pass!'  # noqa: S105  (a test's own)
KEY = b64encode(b"id-1:k3y-of-the-api").decode()
READ = get(HEALTH)
Open = Callable[..., ElasticsearchClient]


@pytest.fixture
def opened(server: ScriptedServer, client: Open) -> Open:
    def open_client(redact: Redactor | None = None, **auth: str) -> ElasticsearchClient:
        secrets = auth or {"username": "orch", "password": PASSWORD}
        return client(server.url, limits=RequestLimits(attempts=1), redact=redact, **secrets)

    return open_client


# In each field of a recorded answer ------------------------------------------------------------------------


def texts(value: object) -> Iterator[str]:
    """Every text in a reading."""
    match value:
        case str() if not isinstance(value, Enum):
            yield value
        case Mapping():
            for key, inner in value.items():
                yield from texts(key)
                yield from texts(inner)
        case tuple() | list() | frozenset() | set():
            for inner in value:
                yield from texts(inner)
        case _ if is_dataclass(value):
            for field in dataclass_fields(value):
                yield from texts(getattr(value, field.name))


def read_of(server: RecordedCluster) -> ClusterReadings:
    access = Access(endpoints=(server.url,), username="orch", password=SHOWN)
    client = ElasticsearchClient(access, clock=SystemClock())
    try:
        return ElasticsearchCluster(client).observe(EVERYTHING)
    finally:
        client.close()


def plantings() -> dict[str, list[tuple[Planted, ...]]]:
    """By version: in each round one text in each recording, with and without the password in turn."""
    having: dict[Any, list[tuple[str, Any]]] = defaultdict(list)
    for version in VERSIONS:
        for recording, field in fields(version):
            kind = tuple("*" if isinstance(step, int) else step for step in field)[-2:]
            having[recording, kind].append((version, field))
    found: dict[str, dict[str, list[Planted]]] = {version: defaultdict(list) for version in VERSIONS}
    for number, ((recording, _), places) in enumerate(having.items()):
        version, field = places[number % len(places)]
        # With the password in it an answer is read text by text in any case: every second one has none.
        text = HOSTILE if number % 2 else EVIL
        found[version][recording].append(Planted(recording=recording, field=field, text=text))
    return {
        version: [tuple(filter(None, each)) for each in zip_longest(*by_recording.values())]
        for version, by_recording in found.items()
    }


def test_nothing_hostile_is_in_a_reading() -> None:
    found, number, known = [], 0, 0
    for version, rounds in plantings().items():
        with RecordedCluster(version) as server:
            for planted in rounds:
                server.planted = planted
                read = read_of(server)
                number, known = number + 1, known + (not isinstance(read.cluster, Unknown))
                evil = (text for text in texts(read) if visible(text) != text or SHOWN in text)
                found += [f"{version} {', '.join(map(str, planted))}: {text!r}" for text in evil]
            server.planted = None
            unspoilt = read_of(server)
        assert not isinstance(unspoilt.cluster, Unknown)
        assert "es1" in set(texts(unspoilt))
    assert sum(len(planted) for rounds in plantings().values() for planted in rounds) > 200
    assert known > number / 3, "many texts are in a reading, and not in the reason why there is none"
    assert not found, "\n".join(found)


# Secrets ---------------------------------------------------------------------------------------------------


def echo(text: str, *, page: bool = False, status: int = 400) -> Answerer:
    """An answer that has the header with the credentials in it."""

    def answer(asked: Asked, wire: Wire) -> None:
        said = text.format(asked.headers["authorization"])
        kind = "text/html" if page else "application/json"
        reply(said.encode() if page else {"error": {"type": "x", "reason": said}}, status=status, kind=kind)(
            asked, wire
        )

    return answer


ECHOES: dict[str, Answerer] = {
    "a header in a reason": echo("rejected authorization=[{}]"),
    "a password in a reason": reply(
        {"error": {"reason": f"password is {PASSWORD} ok, k3y-of-the-api"}}, status=401
    ),
    "a name of an error": reply({"error": {"type": PASSWORD, "reason": None}}, status=403),
    "JSON in a reason": reply({"error": json.dumps({"user": f"orch:{PASSWORD}"})}, status=500),
    "a page of a proxy": echo("<pre>Authorization: {}\r\nx: s3cret%22Pass%21", page=True, status=502),
    "a name of a field": reply({f"{PASSWORD}": {}, "nodes": {KEY: {"name": PASSWORD}, PASSWORD: 1}}),
    "a secret where a reason is cut": reply({"error": {"reason": "x" * 392 + PASSWORD}}, status=400),
    "a secret where a page is cut": reply(b"x" * 392 + b"k3y-of-the-api", status=400, kind="text/html"),
    "a secret where a page ends": reply(b"x" * 392 + PASSWORD.encode(), status=400, kind="text/html"),
    "no HTTP": lambda asked, wire: cut(asked.headers["authorization"].encode() + b"\r\n")(asked, wire),
}


def test_what_repeats_a_secret_is_shown_without_it(
    subtests: pytest.Subtests, server: ScriptedServer, opened: Open
) -> None:
    for auth in ({}, {"api_key": KEY}):
        for case, answer in ECHOES.items():
            with subtests.test(case, auth=list(auth)):
                server.on(PROBE, answer)
                reason = why(opened(**auth).read(READ))
                kind, _, header = server.asked[-1].headers["authorization"].partition(" ")
                own = [PASSWORD, json.dumps(PASSWORD)[1:-1], "s3cret"] if kind == "Basic" else ["k3y-of"]
                assert not [each for each in (*own, header, header.rstrip("=")) if each in reason]
                assert reason.isprintable()


def test_a_secret_in_an_answer_is_gone_before_it_is_read(server: ScriptedServer, opened: Open) -> None:
    redact = Redactor()
    redact.learn("sudo-s3cret")  # of another part of the program
    body = {"a": ["x sudo-s3cret", {PASSWORD: 1}], "b": "token=abc", "c": "line\nforged\u202e"}
    server.on(HEALTH, reply(body))
    shown = {
        "a": ["x [redacted]", {"[redacted]": 1}],
        "b": "token=abc",
        "c": "line\\nforged\\u202e",
    }
    assert opened(redact).read(READ) == Answer(status=200, body=shown)
    assert "s3cret" not in redact(PASSWORD)
    server.on(HEALTH, reply({"a": ["plainSecret"], "plainSecret": 1}))
    answer = opened(username="orch", password="plainSecret").read(READ)  # noqa: S106  (a test's own)
    assert answer == Answer(status=200, body={"a": ["[redacted]"], "[redacted]": 1})


def test_a_reason_loses_what_looks_like_a_secret(server: ScriptedServer, opened: Open) -> None:
    """The credentials of another account, that a proxy repeats; and what a refused change may journal."""
    server.on("/x", reply({"error": {"reason": "got Authorization: Bearer of-another"}}, status=400))
    assert why(opened().read(get("/x"))) == (
        "GET /x was answered with 400: got Authorization: Bearer [redacted]"
    )
    server.on("/_flush", echo("bad Authorization: {} \x1b[31m\r\nDone"))
    done = ElasticsearchCluster(opened()).perform(Flush())
    assert isinstance(done, Refused)
    assert done.reason == (
        r"POST /_flush was answered with 400: bad Authorization: Basic [redacted] \x1b[31m\r\nDone"
    )


# Without measure -------------------------------------------------------------------------------------------

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


def test_an_answer_without_measure_is_unknown(
    subtests: pytest.Subtests, server: ScriptedServer, opened: Open
) -> None:
    for case, (body, headers) in MONSTERS.items():
        with subtests.test(case):
            server.on(PROBE, reply(body, headers=headers))
            seen = ElasticsearchCluster(opened()).observe([Look.HEALTH, Look.CLUSTER])
            assert isinstance(seen.cluster, Unknown)
            assert isinstance(seen.health, Unknown)
            assert len(seen.health.reason) < 1000


def test_the_size_of_an_answer_is_limited_by_its_kind(server: ScriptedServer, opened: Open) -> None:
    for request, most in (
        (get("/x"), AnswerBytes.SMALL),
        (by_node("/x"), AnswerBytes.BY_NODE),
        (by_copy("/x"), AnswerBytes.BY_COPY),
    ):
        assert request.answer_bytes is most
    server.on("/x", reply(b'"' + b"x" * AnswerBytes.SMALL + b'"'))
    client = opened()
    assert "larger than 4194304 bytes" in why(client.read(get("/x")))
    assert isinstance(client.read(by_node("/x")), Answer)


def test_json_has_a_largest_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of three bytes takes up to two hundred in memory."""
    monkeypatch.setattr(untrusted_json, "_MOST_VALUES", 20)
    assert len(untrusted_json.parsed(b"[" + b"{}," * 8 + b"{}]")) == 9
    for many in (b"[" + b"{}," * 30 + b"{}]", b"[" * 60 + b"]" * 60, b"[" + b"1," * 60 + b"1]"):
        with pytest.raises(ValueError, match="more than 20 values"):
            untrusted_json.parsed(many)
    assert untrusted_json.parsed(b'"a\x7f"') == "a\\x7f", "JSON allows a character that deletes as it is"
