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
    """How to query the server of a gate.

    Attributes:
        url: without user and password.
        timeout: seconds for the whole answer.
        basic: reference to `user:password`.
        bearer: reference to a token.
        ca: path of the certificates that are trusted; None = the system's.
        strict: whether the form of certificates is checked too.
    """

    url: str
    timeout: Seconds = 10.0
    basic: str | None = None
    bearer: str | None = None
    ca: str | None = None
    strict: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitQueueGate:
    """Open while a RabbitMQ queue holds at most this many messages.

    Attributes:
        name: public: the subject of its hold.
        at: the management plugin's API.
        max_messages: ready and unacknowledged ones together.
    """

    name: str
    at: HttpAccess
    queue: str
    max_messages: int
    vhost: str = "/"
    gate: Literal["rabbitmq_queue"] = "rabbitmq_queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusGate:
    """Open while an instant query returns samples and every sample is within the limits.

    Attributes:
        name: public: the subject of its hold.
    """

    name: str
    at: HttpAccess
    query: str
    within: Within
    gate: Literal["prometheus"] = "prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpJsonGate:
    """Open while one value of a JSON document meets one of the two conditions.

    Attributes:
        name: public: the subject of its hold.
        path: keys and list positions joined by dots, or a JSON pointer (`/a/b`).
    """

    name: str
    at: HttpAccess
    path: str
    within: Within | None = None
    equals: EqualTo | None = None
    gate: Literal["http_json"] = "http_json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGate:
    """Open while a command on this machine exits with 0.

    Attributes:
        name: public: the subject of its hold.
        run: command line for `/bin/sh`.
        folder: the working directory: the playbook's folder.
    """

    name: str
    run: str
    folder: str
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
    """Open while no alert fires that matches, less those that do not count.

    Attributes:
        name: public: the subject of its hold.
        matchers: as Alertmanager writes them, such as `cluster="prod"`; all of them apply.
    """

    name: str
    at: HttpAccess
    matchers: tuple[str, ...]
    silenced: Silenced = Silenced.IGNORE
    since: Since = Since.START
    gate: Literal["alertmanager"] = "alertmanager"


Gate: TypeAlias = RabbitQueueGate | PrometheusGate | HttpJsonGate | CommandGate | AlertmanagerGate


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """An alert that fires and matches.

    Attributes:
        fingerprint: of its labels.
        began: when it began to fire, by the server; later if it was resolved and fires again.
        name: for people: its name and other labels, of limited length, free of secrets.
        counts: whether it may hold a run: it is neither inhibited nor silenced and ignored.
    """

    fingerprint: str
    began: Instant
    name: str
    counts: bool = True


def alert_name(shown: str) -> str:
    """The name alone of an alert that is shown with its labels."""
    return shown.partition("{")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The reading of a gate.

    Attributes:
        open: whether this gate allows stopping a node; of alerts, before those are left out that fired when
            the run began.
        evidence: one line for people, with the numbers; free of secrets.
        alerts: all that fire and match, if the gate reads alerts.
        subjects: of a gate that alerts close, the first of them; `count`: how many they are.
    """

    open: bool
    evidence: str
    alerts: tuple[FiringAlert, ...] = ()
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
