"""The parts of Riak's HTTP interface that a restart needs: `/ping` and `/stats` of one node.

`/ping` answers 200 as soon as the listener is up, even if no vnode runs (seen). So it shows that the node
runs, not that it serves requests.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Final

import urllib3

from orchestrator.bounded_http import AnswerLimit, Bounds, bounded, exchange
from orchestrator.model.reading import Seconds
from orchestrator.model.riak import NodeStats
from orchestrator.riak.output import RiakUnreadable
from orchestrator.riak.parse_stats import parse_stats
from orchestrator.tls import REMEDIES, broken, refused_form
from orchestrator.untrusted import one_line

_OK: Final = 200
_ALIVE: Final = "OK"
LIMITS: Final = Bounds(connect=5.0, silence=10.0, whole=30.0, answer_bytes=4_000_000)
"""`/stats` has about 20 kB, and a busy node may need several seconds for it."""


class NodeHttp:
    """One node's HTTP interface. Connections are not kept: the node may restart between two readings.

    Args:
        url: such as `http://10.0.0.1:8098`.
        tls: how an `https` URL is verified.
        fingerprint: SHA-256 of the only trusted certificate, in hexadecimal; nothing else of it is checked.
        redact: removes secrets from an answer and from the reason of a failure.
        now: monotonic clock, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Bounds = LIMITS,
        tls: ssl.SSLContext | None = None,
        fingerprint: str | None = None,
        redact: Callable[[str], str] = str,
        now: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._limits, self._redact = limits, redact
        self._tls, self._fingerprint = tls, fingerprint
        self._now = now

    def ping(self) -> bool:
        """True if it answers `OK`; unreadable if not, although the node may still be up."""
        if self._get("/ping").strip() != _ALIVE:
            raise RiakUnreadable(f"{self._url}/ping: the answer is not {_ALIVE}: is this a Riak?")
        return True

    def stats(self) -> NodeStats:
        """The statistics of the node and of its ring."""
        body = self._get("/stats")
        try:
            return parse_stats(body)
        except RiakUnreadable as error:
            raise RiakUnreadable(f"{self._url}{error.reason}") from None

    def _get(self, path: str) -> str:
        manager = urllib3.PoolManager(
            num_pools=1, ssl_context=self._tls, assert_fingerprint=self._fingerprint
        )
        try:
            answered = exchange(
                bounded(manager.connection_from_url(self._url)),
                "GET",
                urllib3.util.parse_url(self._url + path).request_uri,
                headers={"Accept": "application/json, text/plain, text/html", "Connection": "close"},
                bounds=self._limits,
                now=self._now,
            )
        except (urllib3.exceptions.HTTPError, OSError, AnswerLimit) as error:
            raise self._failed(path, self._redact(one_line(self._in_words(error)))) from None
        finally:
            manager.clear()
        if answered.status != _OK:
            raise self._failed(path, f"HTTP {answered.status}")
        return self._redact(answered.body.decode(errors="replace"))

    def _failed(self, path: str, why: str) -> RiakUnreadable:
        return RiakUnreadable(f"{self._url}{path}: {why}")

    def _in_words(self, error: Exception) -> str:
        """Why the node was not reached, without the library's own object names."""
        cause = error.__cause__
        if isinstance(error, urllib3.exceptions.NameResolutionError):
            return "the host name does not resolve"
        if isinstance(error, urllib3.exceptions.NewConnectionError) and isinstance(cause, OSError):
            return f"no connection: {cause.strerror or cause}"
        strict = self._tls is not None and bool(self._tls.verify_flags & ssl.VERIFY_X509_STRICT)
        form = refused_form(error, strict=strict)
        if form is None:
            return str(error)
        return f"the certificate, or that of its authority, {broken(form)}: {REMEDIES}"
