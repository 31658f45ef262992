"""An instant query of Prometheus (or a compatible API): every sample must be within the limits.

Without any sample the gate is not open, since the query shows nothing. A warning of the server also keeps it
closed, since the server may not have read all data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from orchestrator.model.gate import GateView, PrometheusGate
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.gates.http import Get, json_of
from orchestrator.runtime.gates.values import number, within

_SHOWN: Final = 80
"""Characters of a query or a sample's labels that evidence shows."""


def ask(gate: PrometheusGate, get: Get) -> Reading[GateView]:
    """Evaluate the query now."""
    body = get("/api/v1/query", {"query": gate.query, "timeout": f"{gate.at.timeout:g}s"})
    return body if isinstance(body, Unknown) else judge(gate, body)


def judge(gate: PrometheusGate, body: bytes) -> Reading[GateView]:
    """The state of the gate from an answer of the API."""
    answer = json_of(body)
    if isinstance(answer, Unknown):
        return answer
    if not isinstance(answer, dict) or answer.get("status") != "success":
        return Unknown(reason="the answer is not that of a query that succeeded")
    warnings = answer.get("warnings")
    if warnings:
        first = warnings[0] if isinstance(warnings, list) else warnings
        return Unknown(reason=f"the server warns that its answer may lack something: {_short(str(first))}")
    samples = list(_samples(answer.get("data")))
    what = _short(gate.query)
    if not samples:
        return Unknown(reason=f"{what} has no sample")
    views: list[GateView] = []
    for labels, written in samples:
        value = _value(written)
        of = f"{what} of {labels}" if labels and len(samples) > 1 else what
        if value is None:
            return Unknown(reason=f"{of} is no number ({_short(str(written))})")
        views.append(within(value, gate.within, of))
    return next((view for view in views if not view.open), views[0])


def _samples(data: object) -> Iterator[tuple[str, object]]:
    """Labels and value of each sample; empty if the answer has another form."""
    if not isinstance(data, dict):
        return
    result = data.get("result")
    match data.get("resultType"):
        case "scalar" if isinstance(result, list):
            yield "", result[-1] if result else None
        case "vector" if isinstance(result, list):
            for one in result:
                sample = one if isinstance(one, dict) else {}
                value = sample.get("value")
                yield _labels(sample.get("metric")), value[-1] if isinstance(value, list) and value else None
        case _:
            return


def _labels(metric: object) -> str:
    labels: Mapping[Any, Any] = metric if isinstance(metric, dict) else {}
    return _short(", ".join(f"{name}={value}" for name, value in labels.items()))


def _value(written: object) -> float | None:
    """A sample's value, which the API writes as text."""
    try:
        return number(float(written)) if isinstance(written, str) else number(written)
    except ValueError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
