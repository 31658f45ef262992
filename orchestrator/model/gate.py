"""Gates: what is asked outside of the cluster before every wave (a queue, a metric, a command).

A gate is part of the policy and so of the journal: it holds references to secrets (`env:NAME`), never values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.reading import Seconds

Scalar: TypeAlias = str | int | float | bool | None
"""A value of JSON that is no object and no list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A number between two limits, both included; at least one of them is set."""

    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualTo:
    """A value of the very same type: the text `5` is not the number 5."""

    value: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAccess:
    """How a server behind a gate is asked.

    Attributes:
        url: with neither a user nor a password in it.
        timeout: seconds that the whole answer may take.
        basic: reference to `user:password`.
        bearer: reference to a token.
        ca: path of the certificates that are trusted; None = the system's.
    """

    url: str
    timeout: Seconds = 10.0
    basic: str | None = None
    bearer: str | None = None
    ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitQueueGate:
    """Open while a queue of RabbitMQ holds no more than so many messages.

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
    """Open while every sample of an instant query is within the limits, and there is one.

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
    """Open while one value of a JSON document is as wanted, by one of the two conditions.

    Attributes:
        name: public: the subject of its hold.
        path: keys and places in lists with dots between them, or a JSON pointer (`/a/b`).
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
        run: command line of `/bin/sh`.
        folder: the folder that it runs in: the playbook's.
    """

    name: str
    run: str
    folder: str
    timeout: Seconds = 30.0
    gate: Literal["command"] = "command"


Gate: TypeAlias = RabbitQueueGate | PrometheusGate | HttpJsonGate | CommandGate


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """What a gate said.

    Attributes:
        open: whether a node may be stopped as far as it is concerned.
        evidence: one line for people, with the numbers; free of secrets.
    """

    open: bool
    evidence: str
