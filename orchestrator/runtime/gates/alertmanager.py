"""Alerts that fire, from the API of Alertmanager (v2): which of them match, and which of those count.

All that match are read, silenced and inhibited ones too: a silence that ends makes no alert a new one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from orchestrator.model.gate import (
    AlertmanagerGate,
    FiringAlert,
    GateView,
    Silenced,
    view_of_alerts,
)
from orchestrator.model.reading import Instant, Reading, Unknown
from orchestrator.runtime.gates.http import Get, json_of
from orchestrator.untrusted import one_line

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of an answer: an alert with its annotations is about one kilobyte."""

MOST_ALERTS: Final = 5000
"""That match: those of the start are in the journal, 40 bytes each."""

_SHOWN: Final = 120
"""Characters of an alert that are shown; a longer one has its fingerprint too: no two are the same."""

_LISTED: Final = {"active": "true", "silenced": "true", "inhibited": "true", "unprocessed": "true"}


def ask(gate: AlertmanagerGate, get: Get) -> Reading[GateView]:
    """Read the alerts that match."""
    body = get("/api/v2/alerts", {**_LISTED, "filter": gate.matchers})
    if isinstance(body, Unknown):
        if ": 400 " in body.reason:
            return Unknown(reason=f"{body.reason}: it does not take {', '.join(gate.matchers)}")
        return body
    return judge(gate, body)


def judge(gate: AlertmanagerGate, body: bytes) -> Reading[GateView]:
    """The state of the gate from an answer of the API. One fingerprint is one alert, listed twice or not."""
    answer = json_of(body)
    if isinstance(answer, Unknown):
        return answer
    if not isinstance(answer, list):
        return Unknown(reason="the answer is not a list of alerts")
    if len(answer) > MOST_ALERTS:
        reason = f"{len(answer):,} alerts match, more than {MOST_ALERTS:,}: have fewer of them by `matchers`"
        return Unknown(reason=reason)
    alerts: dict[str, FiringAlert] = {}
    for each in answer:
        alert = _alert(gate, each)
        if alert is None:
            return Unknown(reason="the answer holds something that is no alert")
        known = alerts.get(alert.fingerprint)
        if known is None or (known.counts, known.began) < (alert.counts, alert.began):
            alerts[alert.fingerprint] = alert
    return view_of_alerts(tuple(alerts.values()), [alert for alert in alerts.values() if alert.counts])


def _alert(gate: AlertmanagerGate, found: Any) -> FiringAlert | None:
    """An alert of the list; None if it has another form."""
    match found:
        case {"fingerprint": str(key), "labels": dict(labels), "startsAt": str(at), "status": dict(status)}:
            began = _instant(at)
        case _:
            return None
    if began is None or not (key.isalnum() and len(key) <= _FINGERPRINT):
        return None
    ignored = gate.silenced is Silenced.IGNORE and bool(status.get("silencedBy"))
    counts = not (ignored or status.get("inhibitedBy"))
    return FiringAlert(fingerprint=key, began=began, name=_shown(labels, key), counts=counts)


_FINGERPRINT: Final = 64
"""Characters; Alertmanager's have 16."""


def _instant(written: str) -> Instant | None:
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return None


def _shown(labels: dict[Any, Any], fingerprint: str) -> str:
    """An alert as PromQL writes it: its name, and its other labels in braces."""
    others = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels) if label != "alertname")
    text = one_line(f"{labels.get('alertname', '')}{f'{{{others}}}' if others else ''}", 10 * _SHOWN)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… {fingerprint}"
