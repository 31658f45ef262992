"""Read all gates of a playbook in parallel, each within its time limit.

Each gate has its own thread, since not every call has a time limit (resolving a name has none). If the last
read of a gate is still running at the next one, the gate counts as unreadable and gets no second thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.errors import ConfigError
from orchestrator.model.gate import (
    AlertmanagerGate,
    CommandGate,
    Gate,
    GateView,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
)
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.runtime.gates import alertmanager, command, http_json, prometheus, rabbitmq
from orchestrator.runtime.gates.http import MOST_BYTES, HttpGet, Secrets
from orchestrator.untrusted import one_line

_MARGIN_SECONDS: Final[Seconds] = 1.0
"""Added to a gate's own limit, for steps that this limit does not cover."""

_LONGEST: Final = 400
"""Characters of what a gate says: it is journalled at every change."""

Redact = Callable[[str], str]
"""Removes secrets from a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """A gate and the function that reads it."""

    name: str
    timeout: Seconds  # limit in seconds
    ask: Callable[[], Reading[GateView]]
    close: Callable[[], None] = field(default=lambda: None)


def asker(gate: Gate, *, secrets: Secrets, run: command.Run, redact: Redact = str) -> Asker:
    """Create the reader of a gate.

    Args:
        gate: the gate.
        secrets: resolves references.
        run: runs a command on this machine.
        redact: removes the known secrets from a server's answer, before a part of it is shown.
    """
    if isinstance(gate, CommandGate):
        of_command = gate
        return Asker(name=gate.name, timeout=gate.timeout, ask=lambda: command.ask(of_command, run))
    most = alertmanager.MOST_BYTES if isinstance(gate, AlertmanagerGate) else MOST_BYTES
    get = HttpGet(gate.at, secrets, redact, most)

    def ask() -> Reading[GateView]:
        match gate:
            case RabbitQueueGate():
                return rabbitmq.ask(gate, get)
            case PrometheusGate():
                return prometheus.ask(gate, get)
            case HttpJsonGate():
                return http_json.ask(gate, get)
            case AlertmanagerGate():
                return alertmanager.ask(gate, get)

    return Asker(name=gate.name, timeout=gate.at.timeout, ask=ask, close=get.close)


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
