# ruff: noqa: E501  (the table is read by its rows: a gate, its place and its message in one line each)
"""Gates of a playbook: what they become, what they are called, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.gates import gates_in, secrets_in
from orchestrator.config.playbook import PlaybookSpec, check_playbook
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.gate import (
    CommandGate,
    EqualTo,
    HttpAccess,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
    Within,
)

FOLDER = Path("/etc/orchestrate/playbooks")
CONTRACT = """
  - rabbitmq_queue: {url: "http://mq:15672", queue: ingest, max_messages: 2000000, auth: env:MQ_AUTH}
  - prometheus: {url: "http://prom:9090", query: "sum(rate(docs_indexed[5m]))", min: 1000}
  - http_json: {url: "https://ok/x?format=json", path: "status", equals: ok}
  - command: {run: "./ok-to-continue.sh"}
"""


def _spec(gates: str) -> PlaybookSpec:
    document = parse(f"kind: elasticsearch\ngates:{gates}", "f.yml")
    spec = check_playbook(document, path=Path("f.yml"), name="f").spec
    assert isinstance(spec, PlaybookSpec)
    return spec


def test_the_gates_of_the_contract() -> None:
    assert gates_in(_spec(CONTRACT).gates, FOLDER) == (
        RabbitQueueGate(
            name="rabbitmq_queue ingest",
            at=HttpAccess(url="http://mq:15672", basic="env:MQ_AUTH"),
            queue="ingest",
            max_messages=2_000_000,
        ),
        PrometheusGate(
            name="prometheus",
            at=HttpAccess(url="http://prom:9090"),
            query="sum(rate(docs_indexed[5m]))",
            within=Within(minimum=1000.0),
        ),
        HttpJsonGate(
            name="http_json status",
            at=HttpAccess(url="https://ok/x?format=json"),
            path="status",
            equals=EqualTo(value="ok"),
        ),
        CommandGate(name="command ok-to-continue.sh", run="./ok-to-continue.sh", folder=str(FOLDER)),
    )


def test_gates_that_would_be_called_the_same_are_numbered() -> None:
    spec = _spec("\n  - command: {run: x}\n  - command: {run: x}\n  - command: {run: x, name: command x 2}\n")
    assert [gate.name for gate in gates_in(spec.gates, FOLDER)] == ["command x", "command x 3", "command x 2"]


def test_relative_paths_start_at_the_playbook_and_a_home_stays() -> None:
    spec = _spec(
        "\n  - http_json: {url: 'https://a', path: x, equals: 1, auth: 'file:mq.txt', ca: ca.pem}"
        "\n  - http_json: {url: 'https://a', path: x, equals: 1, bearer: 'file:~/token', ca: ~/ca.pem}\n"
    )
    first, second = gates_in(spec.gates, FOLDER)
    assert isinstance(first, HttpJsonGate)
    assert isinstance(second, HttpJsonGate)
    assert (first.at.basic, first.at.ca) == (f"file:{FOLDER}/mq.txt", f"{FOLDER}/ca.pem")
    assert (second.at.bearer, second.at.ca) == ("file:~/token", "~/ca.pem")
    assert [str(one) for one in secrets_in(spec.gates, FOLDER)] == [f"file:{FOLDER}/mq.txt", "file:~/token"]


def test_a_wanted_value_keeps_its_type(subtests: pytest.Subtests) -> None:
    for written in ["5", "5.5", "true", "null", "'5'"]:
        with subtests.test(written=written):
            gate = gates_in(
                _spec(f"\n  - http_json: {{url: 'http://a', path: x, equals: {written}}}\n").gates, FOLDER
            )[0]
            assert isinstance(gate, HttpJsonGate)
            assert gate.equals is not None
            assert repr(gate.equals.value) == {"true": "True", "null": "None"}.get(written, written)


QUEUE = "url: 'http://mq:1', queue: q, max_messages: 1"


def test_what_is_wrong_is_said_with_its_place(subtests: pytest.Subtests) -> None:
    for gate, message in [
        (
            "{}",
            "f.yml:3: gates[0]: needs exactly one of `rabbitmq_queue`, `prometheus`, `http_json`, `command`",
        ),
        (
            "{command: {run: a}, prometheus: {url: 'http://p:1', query: up, min: 1}}",
            "f.yml:3: gates[0]: needs exactly one of `rabbitmq_queue`, `prometheus`, `http_json`, `command`",
        ),
        ("{rabbitmq: {}}", "f.yml:3: gates[0]: unknown key `rabbitmq`; did you mean `rabbitmq_queue`?"),
        ("{command: {}}", "f.yml:3: gates[0].command.run: is missing"),
        (
            "{command: {run: a, timeout: 5m}}",
            "f.yml:3: gates[0].command.timeout: must be at most 60s: gates are asked with allocation off, too",
        ),
        (
            "{rabbitmq_queue: {" + QUEUE + ", auth: 'guest:guest'}}",
            "f.yml:3: gates[0].rabbitmq_queue.auth: a secret is never written here; write a reference to it: env:NAME, file:/path, command:… or keyring:service/user",
        ),
        (
            "{rabbitmq_queue: {url: 'http://u:p@mq:1', queue: q, max_messages: 1}}",
            "f.yml:3: gates[0].rabbitmq_queue.url: must not hold a user or a password; `auth` is for them, by reference",
        ),
        (
            "{rabbitmq_queue: {url: 'mq:1', queue: q, max_messages: 1}}",
            "f.yml:3: gates[0].rabbitmq_queue.url: must begin with http:// or https://",
        ),
        (
            "{rabbitmq_queue: {url: 'http://mq:1/?a=b', queue: q, max_messages: 1}}",
            "f.yml:3: gates[0].rabbitmq_queue.url: must end with the port or a path; the query of the API is put after it",
        ),
        (
            "{rabbitmq_queue: {url: 'http://mq:1', queue: q, max_messages: -1}}",
            "f.yml:3: gates[0].rabbitmq_queue.max_messages: must be at least 0",
        ),
        (
            "{prometheus: {url: 'http://p:1', query: up}}",
            "f.yml:3: gates[0].prometheus: needs `min`, `max` or both",
        ),
        (
            "{prometheus: {url: 'http://p:1', query: up, min: 2, max: 1}}",
            "f.yml:3: gates[0].prometheus: `min` is above `max`: it would never open",
        ),
        (
            "{prometheus: {url: 'http://p:1', query: up, min: many}}",
            "f.yml:3: gates[0].prometheus.min: must be a number",
        ),
        (
            "{prometheus: {url: 'http://p:1', query: up, min: 1, auth: env:A, bearer: env:B}}",
            "f.yml:3: gates[0].prometheus: needs one of `auth` and `bearer`, not both",
        ),
        (
            "{http_json: {url: 'http://p:1', path: x}}",
            "f.yml:3: gates[0].http_json: needs `equals`, or `min`, `max` or both",
        ),
        (
            "{http_json: {url: 'http://p:1', path: x, equals: 1, min: 1}}",
            "f.yml:3: gates[0].http_json: needs either `equals` or limits, not both",
        ),
        (
            "{http_json: {url: 'http://p:1/?api_key=x', path: x, equals: 1}}",
            "f.yml:3: gates[0].http_json.url: must not hold a secret; `auth` or `bearer` is for it, by reference",
        ),
        (
            "{command: {run: a, name: ' x'}}",
            "f.yml:3: gates[0].command.name: must be one line of printable text, without spaces around it",
        ),
    ]:
        with subtests.test(gate=gate, message=message):
            with pytest.raises(ConfigError) as caught:
                _spec(f"\n  - {gate}\n")
            assert str(caught.value) == message


def test_two_gates_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two gates are called x"):
        _spec("\n  - command: {run: a, name: x}\n  - command: {run: b, name: x}\n")
