"""Read all gates of a playbook in parallel, each within its time limit, and judge the answers.

Each gate has its own thread, since not every call has a time limit (resolving a name has none). If the last
read of a gate is still running at the next one, the gate counts as unreadable and gets no second thread.

Of an Alertmanager, all alerts that match are read, silenced and inhibited ones too: a silence that ends makes
no alert a new one. An instant query of Prometheus (or a compatible API) needs a sample, and every sample must
be within the limits. `messages` of a queue of RabbitMQ is the sum of ready and unacknowledged messages; the
management plugin updates it every five seconds by default, so it may be that old.
"""

from __future__ import annotations

import json
import math
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from orchestrator.errors import ConfigError
from orchestrator.model.gate import (
    AlertmanagerGate,
    CommandGate,
    EqualTo,
    FiringAlert,
    Gate,
    GateView,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
    Scalar,
    Silenced,
    Within,
    view_of_alerts,
)
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.runtime.gates_http import MOST_BYTES, Get, HttpGet, Query, Secrets, json_of
from orchestrator.untrusted import one_line

_MARGIN_SECONDS: Final[Seconds] = 1.0
"""Added to a gate's own limit, for steps that this limit does not cover."""
_LONGEST: Final = 400
"""Characters of what a gate says: it is journalled at every change."""

_MOST_ALERT_BYTES: Final = 8 * 1024 * 1024
"""Of an answer of an Alertmanager: an alert with its annotations is about one kilobyte."""
MOST_ALERTS: Final = 5000
"""That match: those of the start are in the journal, 40 bytes each."""
_FINGERPRINT: Final = 64
"""Characters; Alertmanager's have 16."""
_LISTED: Final = {"active": "true", "silenced": "true", "inhibited": "true", "unprocessed": "true"}

_COUNTED_NO_MORE: Final = frozenset({"crashed", "down", "minority", "stopped", "terminated"})
"""States of a queue in which its numbers are outdated."""
_COLUMNS: Final = "name,vhost,state,messages"
"""The fields of a queue that are read, of about a hundred."""

_CANNOT_RUN: Final = (126, 127)
"""Exit codes of a shell for a missing command, or one that it may not run."""

_SHOWN_LINE: Final = 200
"""Characters of the last line of a command's output that evidence shows."""
_SHOWN: Final = 120
"""Characters of a value or an alert that are shown; a longer alert has its fingerprint too: no two are the
same."""
_SHOWN_QUERY: Final = 80
"""Characters of a query or a sample's labels that evidence shows."""

Redact = Callable[[str], str]
"""Removes secrets from a text."""

_HttpGate: TypeAlias = RabbitQueueGate | PrometheusGate | HttpJsonGate | AlertmanagerGate


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a command that ended."""

    exit: int
    output: str = ""  # bounded, and free of secrets


Run = Callable[[str, Seconds], Reading[Ran]]
"""Runs a `/bin/sh` command line with a limit in seconds; `Unknown` if it did not end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """A gate and the function that reads it."""

    name: str
    timeout: Seconds  # limit in seconds
    ask: Callable[[], Reading[GateView]]
    close: Callable[[], None] = field(default=lambda: None)


def asker(gate: Gate, *, secrets: Secrets, run: Run, redact: Redact = str) -> Asker:
    """Create the reader of a gate.

    Args:
        gate: the gate.
        secrets: resolves references.
        run: runs a command on this machine.
        redact: removes the known secrets from a server's answer, before a part of it is shown.
    """
    if isinstance(gate, CommandGate):
        return Asker(name=gate.name, timeout=gate.timeout, ask=partial(ask_command, gate, run))
    most = _MOST_ALERT_BYTES if isinstance(gate, AlertmanagerGate) else MOST_BYTES
    get = HttpGet(gate.at, secrets, redact, most)
    return Asker(name=gate.name, timeout=gate.at.timeout, ask=partial(ask_server, gate, get), close=get.close)


class Gates:
    """A `GatePort`.

    Args:
        askers: one for each gate.
        redact: removes secrets from a gate's answer, which may hold any text.
        clock: monotonic seconds.
    """

    def __init__(
        self, askers: Sequence[Asker], *, redact: Redact, clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self._askers, self._redact, self._clock = askers, redact, clock
        self._under_way: dict[str, _Asking] = {}

    def observe(self) -> Mapping[str, Reading[GateView]]:
        """Read all gates in parallel. Returns the results by gate name."""
        began = self._clock()
        for each in self._askers:
            last = self._under_way.get(each.name)
            if last is None or last.done.is_set():
                self._under_way[each.name] = _Asking(each)
        read: dict[str, Reading[GateView]] = {}
        for each in self._askers:
            left = began + each.timeout + _MARGIN_SECONDS - self._clock()
            read[each.name] = self._said(self._under_way[each.name].result(max(0.0, left)))
        return read

    def close(self) -> None:
        """Close the connections; reads in progress end by themselves."""
        for each in self._askers:
            last = self._under_way.get(each.name)
            if last is None or last.done.is_set():
                each.close()

    def _said(self, view: Reading[GateView]) -> Reading[GateView]:
        if isinstance(view, Unknown):
            return Unknown(reason=one_line(self._redact(view.reason), _LONGEST))
        alerts = tuple(replace(each, name=self._redact(each.name)) for each in view.alerts)
        evidence = one_line(self._redact(view.evidence), _LONGEST)
        return GateView(open=view.open, evidence=evidence, alerts=alerts)


class _Asking:
    """One read, in a daemon thread."""

    def __init__(self, each: Asker) -> None:
        self._asker = each
        self._view: Reading[GateView] = Unknown(reason=f"no answer within {each.timeout:g} s")
        self._taken = False
        self.done = threading.Event()
        threading.Thread(target=self._work, name=f"gate-{each.name}", daemon=True).start()

    def result(self, timeout: Seconds) -> Reading[GateView]:
        """The result, once; a late result is dropped because it is too old."""
        ended = self.done.wait(timeout)
        late, self._taken = self._taken, True
        if not ended or late:
            return Unknown(reason=f"no answer within {self._asker.timeout:g} s")
        return self._view

    def _work(self) -> None:
        try:
            self._view = self._asker.ask()
        except ConfigError as error:
            self._view = Unknown(reason=str(error))
        except Exception as error:  # noqa: BLE001  (a defect in reading a gate closes the gate; it must not end a run with nodes down)
            self._view = Unknown(reason=f"a defect of the program: {type(error).__name__}")
        finally:
            self.done.set()


def ask_command(gate: CommandGate, run: Run) -> Reading[GateView]:
    """Run the command in its folder."""
    done = run(f"cd -- {shlex.quote(gate.folder)} || exit 126\n{gate.run}", gate.timeout)
    return done if isinstance(done, Unknown) else _judge_command(gate, done)


def _judge_command(gate: CommandGate, done: Ran) -> Reading[GateView]:
    """The state of the gate from the command's result."""
    said = _last_line(done.output)
    if done.exit in _CANNOT_RUN or done.exit < 0:
        how = f"exit code {done.exit}" if done.exit >= 0 else f"killed by signal {-done.exit}"
        return Unknown(reason=f"{gate.run} could not be run in {gate.folder} ({how}){said}")
    return GateView(open=done.exit == 0, evidence=f"exit code {done.exit}{said}")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f": {lines[-1][:_SHOWN_LINE]}" if lines else ""


def ask_server(gate: _HttpGate, get: Get) -> Reading[GateView]:
    """Read the gate from its server."""
    suffix, query = _request(gate)
    body = get(suffix, query)
    if not isinstance(body, Unknown):
        return judge(gate, body)
    match gate:
        case RabbitQueueGate() if ": 404 " in body.reason:
            return Unknown(reason=f"{body.reason}: no queue {gate.queue} in virtual host {gate.vhost}")
        case AlertmanagerGate() if ": 400 " in body.reason:
            return Unknown(reason=f"{body.reason}: it does not take {', '.join(gate.matchers)}")
        case _:
            return body


def _request(gate: _HttpGate) -> tuple[str, Query | None]:
    """What is added to the path of the gate's URL, and the parameters."""
    match gate:
        case RabbitQueueGate():
            path = f"/api/queues/{quote(gate.vhost, safe='')}/{quote(gate.queue, safe='')}"
            return path, {"columns": _COLUMNS}
        case PrometheusGate():
            return "/api/v1/query", {"query": gate.query, "timeout": f"{gate.at.timeout:g}s"}
        case HttpJsonGate():
            return "", None
        case AlertmanagerGate():
            return "/api/v2/alerts", {**_LISTED, "filter": gate.matchers}


def judge(gate: _HttpGate, body: bytes) -> Reading[GateView]:
    """The state of the gate from an answer of its server."""
    answer = json_of(body)
    if isinstance(answer, Unknown):
        return answer
    match gate:
        case RabbitQueueGate():
            return _judge_queue(gate, answer)
        case PrometheusGate():
            return _judge_samples(gate, answer)
        case HttpJsonGate():
            return _judge_document(gate, answer)
        case AlertmanagerGate():
            return _judge_alerts(gate, answer)


def _judge_queue(gate: RabbitQueueGate, answer: Any) -> Reading[GateView]:
    if not isinstance(answer, dict):
        return Unknown(reason="the answer is not a queue")
    state = answer.get("state")
    if state in _COUNTED_NO_MORE:
        return Unknown(reason=f"queue {gate.queue} is {state}: its numbers are those of before")
    found = _number(answer.get("messages"))
    if found is None or found < 0:
        return Unknown(reason=f"the answer does not show how many messages queue {gate.queue} holds")
    is_open = found <= gate.max_messages
    limit = f"at most {_shown(gate.max_messages)} allowed"
    return GateView(open=is_open, evidence=f"{_shown(found)} messages, {limit}")


def _judge_samples(gate: PrometheusGate, answer: Any) -> Reading[GateView]:
    """Judge the samples of a query.

    Without any sample the gate is not open, since the query shows nothing. A warning of the server also keeps
    it closed, since the server may not have read all data.
    """
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
        views.append(_within(value, gate.within, of))
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
        return _number(float(written)) if isinstance(written, str) else _number(written)
    except ValueError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_QUERY else text[:_SHOWN_QUERY] + "…"


def _judge_document(gate: HttpJsonGate, answer: Any) -> Reading[GateView]:
    found = answer
    for step in _steps(gate.path):
        found = _into(found, step, gate.path)
        if isinstance(found, Unknown):
            return found
    if gate.equals is not None:
        return _equal(found, gate.equals, gate.path)
    value = _number(found)
    if value is None or gate.within is None:
        return Unknown(reason=f"{gate.path} is no number but {_quoted(found)}")
    return _within(value, gate.within, gate.path)


def _steps(path: str) -> Sequence[str]:
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


def _judge_alerts(gate: AlertmanagerGate, answer: Any) -> Reading[GateView]:
    """One fingerprint is one alert, listed twice or not."""
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
    return FiringAlert(fingerprint=key, began=began, name=_shown_alert(labels, key), counts=counts)


def _instant(written: str) -> Instant | None:
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return None


def _shown_alert(labels: dict[Any, Any], fingerprint: str) -> str:
    """An alert as PromQL writes it: its name, and its other labels in braces."""
    others = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels) if label != "alertname")
    text = one_line(f"{labels.get('alertname', '')}{f'{{{others}}}' if others else ''}", 10 * _SHOWN)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… {fingerprint}"


def _number(value: object) -> float | None:
    """A finite JSON number; None for everything else, including `true`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _within(value: float, limits: Within, what: str) -> GateView:
    """Whether a number is within the limits."""
    if limits.minimum is not None and value < limits.minimum:
        return GateView(open=False, evidence=f"{what} is {_shown(value)}, below {_shown(limits.minimum)}")
    if limits.maximum is not None and value > limits.maximum:
        return GateView(open=False, evidence=f"{what} is {_shown(value)}, above {_shown(limits.maximum)}")
    wanted = [
        text
        for text, limit in (("at least", limits.minimum), ("at most", limits.maximum))
        if limit is not None
    ]
    bounds = [_shown(limit) for limit in (limits.minimum, limits.maximum) if limit is not None]
    bounds_in_words = " and ".join(f"{word} {bound}" for word, bound in zip(wanted, bounds, strict=True))
    return GateView(open=True, evidence=f"{what} is {_shown(value)}, {bounds_in_words} wanted")


def _equal(value: object, wanted: EqualTo, what: str) -> Reading[GateView]:
    """Whether a value is the wanted one; a text or a truth value never equals a number."""
    if isinstance(value, dict | list):
        return Unknown(reason=f"{what} is no single value")
    same = type(value) is type(wanted.value) or (
        _number(value) is not None and _number(wanted.value) is not None
    )
    is_open = same and value == wanted.value
    more = "" if is_open else f", not {_quoted(wanted.value)}"
    return GateView(open=is_open, evidence=f"{what} is {_quoted(value)}{more}")


def _quoted(value: object | Scalar) -> str:
    """A value as JSON, of limited length."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _shown(value: float) -> str:
    """A number for people: thousands separated, only significant digits."""
    if value == int(value) and abs(value) < 1e15:  # noqa: PLR2004  (above it a float cannot hold single units)
        return f"{int(value):,}"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6g}"  # noqa: PLR2004  (as above, for fractions)
