"""Attempts to connect: a limited number where another one can help."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from orchestrator.hosts.connection import Trouble
from orchestrator.hosts.connections.sessions import LinkError
from orchestrator.model.reading import Seconds

CONNECT_ATTEMPTS: Final = 3
"""A server that just starts refuses for a moment, and one with many log-ins drops some (MaxStartups)."""
_TRANSIENT: Final = frozenset({Trouble.REFUSED, Trouble.CLOSED})
"""Worth another attempt at once. An unresponsive host has used up its limit, and keys do not change."""

T = TypeVar("T")


def with_attempts(
    connect: Callable[[], T], *, wait: Callable[[Seconds], object], closing: threading.Event
) -> T:
    """Connect, again after a transient fault, unless the connections are being closed.

    Raises:
        LinkError: no attempt worked.
    """

    def worth_another(error: BaseException) -> bool:
        transient = isinstance(error, LinkError) and error.unreachable.trouble in _TRANSIENT
        return transient and not closing.is_set()

    def sleep(seconds: Seconds) -> None:
        wait(seconds)

    retrying = Retrying(
        retry=retry_if_exception(worth_another),
        stop=stop_after_attempt(CONNECT_ATTEMPTS),
        wait=wait_exponential(multiplier=0.2, max=1.0),
        sleep=sleep,
        reraise=True,
    )
    return retrying(connect)
