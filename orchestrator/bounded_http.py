"""One HTTP exchange with a server that is not trusted: limits that hold whatever it sends, and no decoding.

urllib3 limits the time between two bytes. A server that sends one header a second would be read for ever, and
a compressed answer of some kilobytes can decode to gigabytes. Here one deadline holds for the whole exchange
from the request to the last byte, an answer has a maximum size, and one with an encoding is refused: none is
ever asked for.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection

Seconds = float
_CHUNK_BYTES: Final = 256 * 1024


class AnswerLimit(Exception):  # noqa: N818  (says what was reached)
    """An answer is larger, slower or of another form than the limits allow. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer.

    Attributes:
        headers: the last of several values of a name is joined to the others with commas.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    reason: str | None = None


def bound(pool: urllib3.HTTPConnectionPool) -> None:
    """Let a pool that has no connection yet make connections that keep to the limit of an `exchange`."""
    pool.ConnectionCls = type("BoundedConnection", (_Bounded, pool.ConnectionCls), {})


def pool_of(url: str, **tls: Any) -> urllib3.HTTPConnectionPool:
    """The connections to the server of a URL, one at a time, `bound`; `tls` counts for `https` alone.

    Raises:
        urllib3.exceptions.HTTPError: it is not a URL.
    """
    secure = url.lower().startswith("https:")
    pool = urllib3.connection_from_url(url, maxsize=1, **(tls if secure else {}))
    bound(pool)
    return pool


def request_uri(url: str) -> str:
    """Path and query of a URL, as a server is asked for them."""
    return urllib3.util.parse_url(url).request_uri


def exchange(
    pool: urllib3.HTTPConnectionPool,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str],
    timeout: urllib3.Timeout,
    within: Seconds,
    most_bytes: int,
    body: bytes | None = None,
    now: Callable[[], Seconds] = time.monotonic,
    received: Callable[[int], None] = lambda _: None,
) -> Answer:
    """Send one request over a pool that is `bound`, once, and read its whole answer. Follows no redirect.

    Args:
        pool: the connections; they are kept unless the answer was not read to its end.
        method: of HTTP.
        target: path and query.
        headers: of the request.
        timeout: to connect, and between two bytes.
        within: seconds for all of it.
        most_bytes: of the body of the answer.
        body: of the request.
        now: monotonic clock.
        received: is called with the number of bytes that were read.

    Raises:
        AnswerLimit: the answer is too large, too slow, or encoded.
        urllib3.exceptions.HTTPError: no connection, no complete answer, or not in time.
        OSError: the connection broke.
    """
    until = now() + within
    try:
        return _exchange(
            pool,
            method,
            target,
            body=body,
            headers={**headers, "accept-encoding": "identity"},
            timeout=timeout,
            limits=_Limits(until=until, now=now, most_bytes=most_bytes, received=received),
        )
    except urllib3.exceptions.ReadTimeoutError:
        if now() < until:
            raise  # it was silent
    raise AnswerLimit(f"the answer was not whole after {within:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    until: Seconds
    now: Callable[[], Seconds]
    most_bytes: int
    received: Callable[[int], None]


_LIMITS: Final = ContextVar[_Limits]("limits")
"""Of the exchange that this thread is in: urllib3 hands nothing on from a request to its connection."""


def _exchange(
    pool: urllib3.HTTPConnectionPool, method: str, target: str, *, limits: _Limits, **request: Any
) -> Answer:
    token = _LIMITS.set(limits)
    try:
        response = pool.urlopen(
            method,
            target,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            **request,
        )
    finally:
        _LIMITS.reset(token)
    parts: list[bytes] = []
    size = 0
    try:
        _require_plain(response.headers.get("content-encoding", ""))
        # read1 returns what one read of the socket brought; read would wait for a full chunk.
        while part := response.read1(_CHUNK_BYTES, decode_content=False):
            parts.append(part)
            size += len(part)
            _require_size(size, limits.most_bytes)
    except BaseException:
        response.close()
        raise
    finally:
        limits.received(size)
        response.release_conn()
    return Answer(
        status=response.status, headers=response.headers, body=b"".join(parts), reason=response.reason
    )


def _require_plain(encoding: str) -> None:
    if encoding.strip().lower() not in ("", "identity"):
        raise AnswerLimit("the answer is compressed, which was not asked for")


def _require_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise AnswerLimit(f"the answer is larger than {most_bytes} bytes")


class _Bounded(HTTPConnection):
    """A connection whose answers are read until a moment, the lines of the header too."""

    def request(self, *arguments: Any, **named: Any) -> None:
        if self.sock is not None:  # reused: it still has the time-out of the last read
            self.sock.settimeout(self.timeout)
        super().request(*arguments, **named)

    def getresponse(self) -> Any:
        limits = _LIMITS.get()
        silence = self.timeout if isinstance(self.timeout, int | float) else limits.until - limits.now()
        self.response_class = partial(_timed, silence=silence, limits=limits)  # type: ignore[assignment]
        return super().getresponse()


def _timed(sock: socket.socket, *, silence: Seconds, limits: _Limits, **named: Any) -> HTTPResponse:
    response = HTTPResponse(sock, **named)
    response.fp = io.BufferedReader(_Until(sock, response.fp.detach(), silence, limits))
    return response


class _Until(io.RawIOBase):
    """What comes from a socket, each read of it with the time that is left."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, silence: Seconds, limits: _Limits) -> None:
        self._sock, self._raw, self._silence, self._limits = sock, raw, silence, limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._limits.until - self._limits.now()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(min(self._silence, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
