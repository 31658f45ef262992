"""A gate on one value of a JSON document from a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.model.gate import GateView, HttpJsonGate
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.gates.http import Get, json_of
from orchestrator.runtime.gates.values import equal, number, quoted, within


def ask(gate: HttpJsonGate, get: Get) -> Reading[GateView]:
    """Read the document."""
    body = get()
    return body if isinstance(body, Unknown) else judge(gate, body)


def judge(gate: HttpJsonGate, body: bytes) -> Reading[GateView]:
    """The state of the gate from a document."""
    found = json_of(body)
    for step in steps(gate.path):
        if isinstance(found, Unknown):
            break
        found = _into(found, step, gate.path)
    if isinstance(found, Unknown):
        return found
    if gate.equals is not None:
        return equal(found, gate.equals, gate.path)
    value = number(found)
    if value is None or gate.within is None:
        return Unknown(reason=f"{gate.path} is no number but {quoted(found)}")
    return within(value, gate.within, gate.path)


def steps(path: str) -> Sequence[str]:
    """Keys and indices of a path with dots, or of a JSON pointer (RFC 6901) if it begins with `/`."""
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    return path.split(".")


def _into(found: Any, step: str, path: str) -> Any:
    if isinstance(found, dict) and step in found:
        return found[step]
    if isinstance(found, list) and step.isascii() and step.isdigit() and int(step) < len(found):
        return found[int(step)]
    return Unknown(reason=f"the answer has nothing at {path}")
