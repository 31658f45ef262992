"""Gates: checks outside the cluster before every wave (a queue, a metric, a command).

A gate is part of the policy and so of the journal: it holds references to secrets (`env:NAME`), never values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.reading import Seconds

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


Gate: TypeAlias = RabbitQueueGate | PrometheusGate | HttpJsonGate | CommandGate


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The reading of a gate.

    Attributes:
        open: whether this gate allows stopping a node.
        evidence: one line for people, with the numbers; free of secrets.
    """

    open: bool
    evidence: str
