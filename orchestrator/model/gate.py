"""Gates: checks outside the cluster before every wave (a queue, a metric, a command).

A gate is part of the policy and so of the journal: it holds references to secrets (`env:NAME`), never values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, Literal, TypeAlias

from orchestrator.model.reading import Instant, Seconds

Scalar: TypeAlias = str | int | float | bool | None
"""A JSON value that is neither an object nor a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A number between two limits, both included; at least one of them is set."""

    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualTo:
    """A value of the same type: the text `5` is not the number 5."""

    value: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAccess:
    """How to query the server of a gate."""

    url: str  # without user and password
    timeout: Seconds = 10.0  # seconds for the whole answer
    basic: str | None = None  # reference to `user:password`
    bearer: str | None = None  # reference to a token
    ca: str | None = None  # path of the certificates that are trusted; None = the system's
    strict: bool = True  # whether the form of certificates is checked too


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitQueueGate:
    """Open while a RabbitMQ queue holds at most this many messages."""

    name: str  # public: the subject of its hold
    at: HttpAccess  # the management plugin's API
    queue: str
    max_messages: int  # ready and unacknowledged ones together
    vhost: str = "/"
    gate: Literal["rabbitmq_queue"] = "rabbitmq_queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusGate:
    """Open while an instant query returns samples and every sample is within the limits."""

    name: str  # public: the subject of its hold
    at: HttpAccess
    query: str
    within: Within
    gate: Literal["prometheus"] = "prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpJsonGate:
    """Open while one value of a JSON document meets one of the two conditions."""

    name: str  # public: the subject of its hold
    at: HttpAccess
    path: str  # keys and list positions joined by dots, or a JSON pointer (`/a/b`)
    within: Within | None = None
    equals: EqualTo | None = None
    gate: Literal["http_json"] = "http_json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGate:
    """Open while a command on this machine exits with 0."""

    name: str  # public: the subject of its hold
    run: str  # command line for `/bin/sh`
    folder: str  # the working directory: the playbook's folder
    timeout: Seconds = 30.0
    gate: Literal["command"] = "command"


class Silenced(Enum):
    """Whether a gate counts alerts that are silenced."""

    IGNORE = "ignore"
    COUNT = "count"


class Since(Enum):
    """Which alerts a gate counts: those that began to fire during the run, or all."""

    START = "start"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerGate:
    """Open while no alert fires that matches, less those that do not count."""

    name: str  # public: the subject of its hold
    at: HttpAccess
    matchers: tuple[str, ...]  # as Alertmanager writes them, such as `cluster="prod"`; all of them apply
    silenced: Silenced = Silenced.IGNORE
    since: Since = Since.START
    gate: Literal["alertmanager"] = "alertmanager"


Gate: TypeAlias = RabbitQueueGate | PrometheusGate | HttpJsonGate | CommandGate | AlertmanagerGate


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """An alert that fires and matches."""

    fingerprint: str  # of its labels
    began: Instant  # when it began to fire, by the server; later if it was resolved and fires again
    name: str  # for people: its name and other labels, of limited length, free of secrets
    counts: bool = True  # whether it may hold a run: it is neither inhibited nor silenced and ignored


def alert_name(shown: str) -> str:
    """The name alone of an alert that is shown with its labels."""
    return shown.partition("{")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The reading of a gate."""

    # whether this gate allows stopping a node; of alerts, before those are left out that fired when the run
    # began
    open: bool
    evidence: str  # one line for people, with the numbers; free of secrets
    alerts: tuple[FiringAlert, ...] = ()  # all that fire and match, if the gate reads alerts
    # of a gate that alerts close, the first of them; `count`: how many they are
    subjects: tuple[str, ...] = ()
    count: int = 0


_NAMED: Final = 5
"""Alerts that evidence names; the count says how many there are."""


def view_of_alerts(alerts: Sequence[FiringAlert], counted: Sequence[FiringAlert]) -> GateView:
    """The reading of a gate that these alerts close: `counted`, of all that match; none = it is open."""
    count, exempt = len(counted), len(alerts) - len(counted)
    subjects = tuple(islice(dict.fromkeys(sorted(alert.name for alert in counted)), _NAMED))
    if counted:
        more = f" and {count - len(subjects)} more" if count > len(subjects) else ""
        evidence = f"{count} {'alert fires' if count == 1 else 'alerts fire'}: {', '.join(subjects)}{more}"
    else:
        evidence = "no alert fires" + (f" ({exempt} exempt)" if exempt else "")
    return GateView(open=not counted, evidence=evidence, alerts=tuple(alerts), subjects=subjects, count=count)
