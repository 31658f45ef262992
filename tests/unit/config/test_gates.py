"""Gates of a playbook: what they become and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.elasticsearch import PlaybookSpec
from orchestrator.config.gates import gates_in, secrets_in
from orchestrator.config.playbook import check_playbook
from orchestrator.config.yaml import parse
from orchestrator.model.gate import HttpJsonGate
from tests.fakes.cases import cases
from tests.fakes.plain import plain

FOLDER = Path("/etc/orchestrate/playbooks")


def _spec(gates: str) -> PlaybookSpec:
    document = parse(f"kind: elasticsearch\ngates:{gates}", "f.yml")
    spec = check_playbook(document, path=Path("f.yml"), name="f").spec
    assert isinstance(spec, PlaybookSpec)
    return spec


def test_what_gates_become(subtests: pytest.Subtests) -> None:
    """And the secrets among them; relative paths start at the playbook, and a home stays."""
    for text, expected in cases("config/read/gates.txt"):
        with subtests.test(text):
            gates = _spec(f"\n{text}").gates
            secrets = [f"secret {each}" for each in secrets_in(gates, FOLDER)]
            assert [f"{plain(gate)}" for gate in gates_in(gates, FOLDER)] + secrets == expected


def test_a_wanted_value_keeps_its_type(subtests: pytest.Subtests) -> None:
    for written, value in [("5", 5), ("5.5", 5.5), ("true", True), ("null", None), ("'5'", "5")]:
        with subtests.test(written=written):
            text = f"\n  - http_json: {{url: 'http://a', path: x, equals: {written}}}\n"
            (gate,) = gates_in(_spec(text).gates, FOLDER)
            assert isinstance(gate, HttpJsonGate)
            assert gate.equals is not None
            assert repr(gate.equals.value) == repr(value)
