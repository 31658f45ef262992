"""HTTP transport: one client library for every server, with limits on time and size, and counters.

elasticsearch-py 9 requests `application/vnd.elasticsearch+json; compatible-with=9`, which Elasticsearch 7 and
OpenSearch refuse, and accepts only servers that send `X-Elastic-Product`. A `transport_class`, the client's
own extension point, undoes both here. Our own probe finds out the product first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import urllib3
from elastic_transport import (
    ApiResponseMeta,
    ConnectionTimeout,
    HttpHeaders,
    TlsError,
    Transport,
    TransportApiResponse,
    TransportError,
    Urllib3HttpNode,
)
from elastic_transport import ConnectionError as LostConnection
from elastic_transport._node import NodeApiResponse  # returned by the base class, yet not exported
from elastic_transport.client_utils import DEFAULT, DefaultType

from orchestrator.stores.elasticsearch.access import Limits

SAID_PRODUCT: Final = "x-said-product"
_PRODUCT_HEADER: Final = "x-elastic-product"
_PLAIN: Final = "application/json"
_TEXT: Final = "text/plain"
_CHUNK_BYTES: Final = 256 * 1024
_FIRST_ERROR_STATUS: Final = 300

# Errors are returned as faults with their reasons. The library also logs every lost node, and without logging
# set up Python prints that to standard error, between the run's own lines.
logging.getLogger("elastic_transport").addHandler(logging.NullHandler())


class AnswerLimit(Exception):  # noqa: N818  (says what was reached)
    """An answer was larger or slower than the limits allow."""


class Traffic:
    """Requests and bytes of bodies and request lines, for the benchmark. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = 0
        self.bytes_sent = 0
        self.bytes_received = 0

    def sent(self, size: int) -> None:
        """Count one request with its bytes."""
        with self._lock:
            self.requests += 1
            self.bytes_sent += size

    def received(self, size: int) -> None:
        """Count bytes of an answer."""
        with self._lock:
            self.bytes_received += size


class PlainTransport(Transport):
    """Sends and accepts plain JSON, never retries, and accepts every product.

    OpenSearch and Elasticsearch before 7.14 would fail the client's own product check, so this class adds the
    header that the check expects. The server's real header is in `SAID_PRODUCT`, for the first probe.
    """

    def perform_request(
        self, method: str, target: str, *, body: Any | None = None, headers: Any = DEFAULT, **more: Any
    ) -> TransportApiResponse:
        """Send one request, once."""
        plain = HttpHeaders({} if headers is DEFAULT else headers)
        plain["accept"] = _PLAIN
        if body is not None:
            plain["content-type"] = _PLAIN
        else:
            plain.pop("content-type", None)
        more["max_retries"] = 0
        meta, parsed = super().perform_request(method, target, body=body, headers=plain, **more)
        # Deprecation warnings would become Python warnings. Only one concerns this program: transient
        # settings, which it writes only where a transient value already exists.
        kept = {name: value for name, value in meta.headers.items() if name.lower() != "warning"}
        kept[SAID_PRODUCT] = meta.headers.get(_PRODUCT_HEADER) or ""
        kept[_PRODUCT_HEADER] = "Elasticsearch"
        answered = ApiResponseMeta(
            status=meta.status,
            http_version=meta.http_version,
            headers=HttpHeaders(kept),
            duration=meta.duration,
            node=meta.node,
        )
        return TransportApiResponse(answered, parsed)


def limited_node(traffic: Traffic, limits: Limits, now: Callable[[], float]) -> type[Urllib3HttpNode]:
    """A node class for `elastic_transport` that counts each whole answer and limits its time and size.

    The library's own node limits only the silence between two bytes, so a slow answer may never end.

    Args:
        traffic: counts requests and bytes.
        limits: limits of a request.
        now: monotonic clock, in seconds.
    """

    class LimitedNode(Urllib3HttpNode):
        """One server, by urllib3."""

        def perform_request(
            self,
            method: str,
            target: str,
            body: bytes | None = None,
            headers: HttpHeaders | None = None,
            request_timeout: DefaultType | float | None = DEFAULT,
        ) -> NodeApiResponse:
            """Send one request and read its whole answer.

            Raises:
                TransportError: no complete answer; the cause says how far the request got.
            """
            silence = request_timeout if isinstance(request_timeout, int | float) else limits.silence
            began, allowed = now(), max(limits.answer, silence)
            traffic.sent(len(method) + len(target) + len(body or b""))
            try:
                response = self.pool.urlopen(
                    method,
                    f"{self.path_prefix}{target}",
                    body=body or None,
                    headers={**self._headers, **(headers or {})},
                    retries=False,
                    redirect=False,
                    preload_content=False,
                    timeout=urllib3.Timeout(connect=limits.connect, read=silence),
                )
                data = self._whole(response, began + allowed)
            except (urllib3.exceptions.HTTPError, OSError, AnswerLimit) as error:
                raise _as_transport_error(error) from error
            found = HttpHeaders(response.headers)
            if response.status >= _FIRST_ERROR_STATUS and _PLAIN not in (found.get("content-type") or ""):
                # A proxy's page about an error must not hide the error's status behind its own format.
                found["content-type"] = _TEXT
            meta = ApiResponseMeta(
                node=self.config,
                duration=now() - began,
                http_version="1.1",
                status=response.status,
                headers=found,
            )
            return NodeApiResponse(meta, data)

        def _whole(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
            parts: list[bytes] = []
            size = 0
            try:
                # read1 returns what one read of the socket brought; read would wait for a full chunk.
                while part := response.read1(_CHUNK_BYTES):
                    parts.append(part)
                    size += len(part)
                    _hold_to(limits, size=size, late=now() > deadline)
            except BaseException:
                response.close()
                raise
            finally:
                traffic.received(size)
                response.release_conn()
            return b"".join(parts)

    return LimitedNode


def _hold_to(limits: Limits, *, size: int, late: bool) -> None:
    if size > limits.answer_bytes:
        raise AnswerLimit(f"the answer is larger than {limits.answer_bytes} bytes")
    if late:
        raise AnswerLimit(f"the answer was not whole after {limits.answer:.0f} s")


def _as_transport_error(error: Exception) -> TransportError:
    match error:
        case urllib3.exceptions.SSLError():
            return TlsError(str(error), errors=(error,))
        case urllib3.exceptions.NewConnectionError():
            return LostConnection(str(error), errors=(error,))
        case urllib3.exceptions.TimeoutError():
            return ConnectionTimeout(str(error), errors=(error,))
        case _:
            return LostConnection(str(error), errors=(error,))
