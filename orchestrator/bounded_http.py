"""One HTTP exchange with a server that is not trusted: limited in time and size, and never decompressed.

urllib3 limits the silence between two reads, so a head or a body that arrives byte by byte may never end, and
it decompresses what a server says is compressed. Here each step has the time that is left of one deadline:
each address of the host, TLS, sending, each line of the head and each part of the body. Only the resolver of
names keeps its own limits.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

_CHUNK_BYTES: Final = 256 * 1024
_NOT_ENCODED: Final = ("", "identity")


class AnswerLimit(Exception):  # noqa: N818  (says what was reached)
    """An answer is larger or slower than it may be, or compressed."""


FAULTS: Final = (HTTPError, OSError, ValueError, AnswerLimit)
"""What an exchange raises where there is no whole answer, or where it cannot be asked."""


def is_plain(tls_error: str) -> bool:
    """Whether a server answered TLS in the clear, in the wording of OpenSSL before or since 3.2."""
    words = tls_error.lower().replace("_", " ")
    return "wrong version number" in words or "record layer failure" in words


def fault(error: Exception, seconds: float) -> str:
    """One of `FAULTS` in words; the library's own texts hold addresses of objects, and may hold the URL.

    Args:
        error: it.
        seconds: the limit of the exchange.
    """
    match error:
        case AnswerLimit():
            return str(error)
        case NameResolutionError():
            return "its name does not resolve"
        case NewConnectionError():  # before the time-out, which is its base class in the library
            return "connection refused"
        case ConnectTimeoutError() | ReadTimeoutError():
            return f"no answer within {seconds:g} s"
        case SSLError():
            inner = error.args[0] if error.args else error
            if is_plain(str(inner)):
                return "it does not speak TLS: is it http:// there?"
            return f"TLS: {str(inner).partition(chr(10))[0][:200]}"
        case UnicodeError() | ValueError():
            return "it cannot be asked: the URL or the secret holds characters that HTTP does not take"
        case _:
            return f"connection broken ({type(error).__name__})"


def basic(pair: str) -> str:
    """The value of `Authorization` for `user:password`.

    In UTF-8, as servers read it: the library's own `make_headers` takes Latin-1.
    """
    return f"Basic {b64encode(pair.encode()).decode('ascii')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one exchange."""

    connect: float  # seconds to connect to all addresses of the host, and as many for TLS
    silence: float  # seconds between two bytes of the answer
    whole: float  # seconds for the exchange, from the first connection to the last byte
    answer_bytes: int  # maximum size of the answer's body


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A whole answer."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """The exchange of this thread."""

    bounds: Bounds
    deadline: float
    now: Callable[[], float]

    def left(self, most: float) -> float:
        """The seconds that the next step may take.

        Raises:
            AnswerLimit: none are left.
        """
        left = self.deadline - self.now()
        if left <= 0:
            raise AnswerLimit(f"the answer was not whole after {self.bounds.whole:g} s")
        return min(left, most)


_current: ContextVar[_Exchange] = ContextVar("_current")
"""A connection comes from urllib3's pool: this is how it gets the deadline of the exchange that uses it."""


def bounded(pool: urllib3.HTTPConnectionPool) -> urllib3.HTTPConnectionPool:
    """Make every connection of this pool keep the limits of an `exchange`, and be of no other use."""
    pool.ConnectionCls = type("Bounded", (_Bounded, pool.ConnectionCls), {})
    return pool


def exchange(
    pool: urllib3.HTTPConnectionPool,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    bounds: Bounds,
    now: Callable[[], float] = time.monotonic,
) -> HttpAnswer:
    """Send one request, once, and read its whole answer. A redirect is an answer.

    Args:
        pool: `bounded` connections to the server.
        method: of HTTP.
        target: path and query.
        headers: in addition to what HTTP needs.
        body: of the request.
        bounds: limits of the exchange.
        now: monotonic clock, in seconds.

    Raises:
        AnswerLimit: the answer reached a limit, or is compressed.
        urllib3.exceptions.HTTPError: there is no whole answer.
        OSError: the same.
    """
    token = _current.set(_Exchange(bounds=bounds, deadline=now() + bounds.whole, now=now))
    try:
        response = pool.urlopen(
            method,
            target,
            body=body,
            headers={**headers, "accept-encoding": "identity"},
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            pool_timeout=math.ceil(bounds.whole),
            timeout=urllib3.Timeout(connect=bounds.connect, read=bounds.silence),
        )
        try:
            whole = _whole(response, bounds.answer_bytes)
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()
    finally:
        _current.reset(token)
    return HttpAnswer(
        status=response.status, reason=response.reason or "", headers=response.headers, body=whole
    )


def _whole(response: urllib3.BaseHTTPResponse, answer_bytes: int) -> bytes:
    if response.headers.get("content-encoding", "").strip().lower() not in _NOT_ENCODED:
        raise AnswerLimit("the answer is compressed, although no compression was accepted")
    parts: list[bytes] = []
    size = 0
    # read1 returns what one read of the socket brought; read would wait for a full chunk.
    while part := response.read1(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > answer_bytes:
            raise AnswerLimit(f"the answer is larger than {answer_bytes} bytes")
    return b"".join(parts)


class _Wire(io.RawIOBase):
    """The stream below an answer's buffer."""

    def __init__(self, sock: socket.socket, stream: io.RawIOBase) -> None:
        self._sock, self._stream = sock, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        current = _current.get()
        self._sock.settimeout(current.left(current.bounds.silence))
        try:
            return self._stream.readinto(buffer)
        except TimeoutError:
            current.left(0.0)  # of the whole exchange, rather than of silence
            raise

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer whose every read of the socket has the time that is left."""

    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_Wire(sock, self.fp.detach()))


class _Bounded(HTTPConnection):
    """A connection whose every step has the time that is left. In front of HTTP's or TLS's own class."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        """Connect. urllib3 would give the limit to each address of the host."""
        current = _current.get()
        try:
            places = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        failed: OSError | None = None
        for family, kind, protocol, _, place in places:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(current.left(current.bounds.connect / len(places)))
                sock.connect(place)
                sock.settimeout(current.left(current.bounds.connect))  # of TLS
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        if isinstance(failed, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {self.host} in time") from failed
        raise NewConnectionError(self, f"no connection to {self.host}: {failed}") from failed

    def send(self, data: Any) -> None:
        """Send a part of the request."""
        if self.sock is None:
            self.connect()
        current = _current.get()
        self.sock.settimeout(current.left(current.bounds.silence))
        super().send(data)
