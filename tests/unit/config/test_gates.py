"""Gates of a playbook: what they become and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.gates import gates_in, secrets_in
from orchestrator.config.playbook import PlaybookSpec, check_playbook
from orchestrator.config.yaml import parse
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


def _spec(gates: str) -> PlaybookSpec:
    document = parse(f"kind: elasticsearch\ngates:{gates}", "f.yml")
    spec = check_playbook(document, path=Path("f.yml"), name="f").spec
    assert isinstance(spec, PlaybookSpec)
    return spec


def test_the_gates_of_the_contract() -> None:
    contract = """
  - rabbitmq_queue: {url: "http://mq:15672", queue: ingest, max_messages: 2000000, auth: env:MQ_AUTH}
  - prometheus: {url: "http://prom:9090", query: "sum(rate(docs_indexed[5m]))", min: 1000}
  - http_json: {url: "https://ok/x?format=json", path: "status", equals: ok}
  - command: {run: "./ok-to-continue.sh"}
"""
    assert gates_in(_spec(contract).gates, FOLDER) == (
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
    for written, value in [("5", 5), ("5.5", 5.5), ("true", True), ("null", None), ("'5'", "5")]:
        with subtests.test(written=written):
            text = f"\n  - http_json: {{url: 'http://a', path: x, equals: {written}}}\n"
            (gate,) = gates_in(_spec(text).gates, FOLDER)
            assert isinstance(gate, HttpJsonGate)
            assert gate.equals is not None
            assert repr(gate.equals.value) == repr(value)
