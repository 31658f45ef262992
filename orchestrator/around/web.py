"""One bounded HTTP request to a server around a run. A redirect is not followed; no text here holds a URL."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import urllib3

from orchestrator.bounded_http import FAULTS, Bounds, bounded, exchange, fault
from orchestrator.config.around import Trust
from orchestrator.tls import tls_context

ANSWER_BYTES: Final = 64 * 1024
_GOOD: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
_AGAIN: Final = (429, 500, 502, 503, 504)


class NotSent(Exception):  # noqa: N818  (names what happened)
    """A request or a message was not delivered, or perhaps not.

    Attributes:
        again: it was certainly not delivered, and another try may deliver it.
        status: of the answer; 0 without one.
    """

    def __init__(self, why: str, *, again: bool = False, status: int = 0) -> None:
        super().__init__(why)
        self.again, self.status = again, status


def tls_of(trust: Trust) -> ssl.SSLContext:
    """What checks certificates. Raises `NotSent` if the file of `ca` cannot be used."""
    try:
        return tls_context(ca=trust.ca, strict=trust.strict)
    except OSError as error:
        raise NotSent(f"{trust.ca}: {error.strerror or type(error).__name__}") from None


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: object = None,
    trust: Trust,
    seconds: float,
    answer_bytes: int = ANSWER_BYTES,
) -> bytes:
    """The body of a good answer.

    Args:
        method: of HTTP.
        url: without a user.
        headers: for logging in.
        body: sent as JSON; None for nothing.
        trust: how certificates are checked.
        seconds: limit of the exchange.
        answer_bytes: limit of the answer.

    Raises:
        NotSent: there is none.
    """
    tls = tls_of(trust) if urlsplit(url).scheme == "https" else None
    manager = urllib3.PoolManager(num_pools=1, maxsize=1, ssl_context=tls)
    try:
        answered = exchange(
            bounded(manager.connection_from_url(url)),
            method,
            urllib3.util.parse_url(url).request_uri,
            headers={"Content-Type": "application/json", "User-Agent": "orchestrate", **headers},
            body=None if body is None else json.dumps(body, allow_nan=False).encode(),
            bounds=Bounds(connect=seconds, silence=seconds, whole=seconds, answer_bytes=answer_bytes),
        )
    except FAULTS as error:
        again = isinstance(error, urllib3.exceptions.NewConnectionError)
        raise NotSent(fault(error, seconds), again=again) from None
    finally:
        manager.clear()
    if answered.status in _REDIRECTS:
        raise NotSent(f"{answered.status}: it redirects, which is not followed: name the target")
    if answered.status not in _GOOD:
        said = f"{answered.status} {answered.reason}".rstrip()
        raise NotSent(said, again=answered.status in _AGAIN, status=answered.status)
    return answered.body
