"""HTTP transport: one client library for every server, with limits on time and size, and counters.

elasticsearch-py 9 requests `application/vnd.elasticsearch+json; compatible-with=9`, which Elasticsearch 7 and
OpenSearch refuse, and accepts only servers that send `X-Elastic-Product`. A `transport_class`, the client's
own extension point, undoes both here. Our own probe finds out the product first.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import urllib3
from elastic_transport import (
    ApiResponseMeta,
    BaseNode,
    ConnectionTimeout,
    HttpHeaders,
    NodeConfig,
    SerializationError,
    Serializer,
    TextSerializer,
    TlsError,
    Transport,
    TransportApiResponse,
    TransportError,
    Urllib3HttpNode,
)
from elastic_transport import ConnectionError as LostConnection
from elastic_transport._node import NodeApiResponse  # returned by the base class, yet not exported
from elastic_transport.client_utils import DEFAULT, DefaultType
from elasticsearch.serializer import OrjsonSerializer

from orchestrator.bounded_http import AnswerLimit, Bounds, bounded, exchange
from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.redact import Redactor
from orchestrator.untrusted import one_line
from orchestrator.untrusted_json import parsed

SAID_PRODUCT: Final = "x-said-product"
_PRODUCT_HEADER: Final = "x-elastic-product"
_PLAIN: Final = "application/json"
_TEXT: Final = "text/plain"
_LONGEST_PAGE: Final = 500
"""Characters that are kept of a text: it becomes a part of a reason."""
_FIRST_ERROR_STATUS: Final = 300

ANSWER_BYTES: ContextVar[int] = ContextVar("ANSWER_BYTES")
"""Maximum size of the answer to the request of this thread: the library carries no property of a request."""

# Errors are returned as faults with their reasons. The library also logs every lost node, and without logging
# set up Python prints that to standard error, between the run's own lines.
logging.getLogger("elastic_transport").addHandler(logging.NullHandler())


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


def bounded_node(traffic: Traffic, limits: RequestLimits, now: Callable[[], float]) -> type[Urllib3HttpNode]:
    """A node class for `elastic_transport` that counts each whole answer and limits its time and size.

    Args:
        traffic: counts requests and bytes.
        limits: limits of a request.
        now: monotonic clock, in seconds.
    """

    class BoundedNode(Urllib3HttpNode):
        """One server, by `bounded_http`."""

        def __init__(self, config: NodeConfig) -> None:
            super().__init__(config)
            if config.ssl_context is not None:
                # The library's own pool would trust the authorities of `certifi` too.
                self.pool = urllib3.HTTPSConnectionPool(
                    config.host,
                    config.port,
                    maxsize=config.connections_per_node,
                    block=True,
                    ssl_context=config.ssl_context,
                    assert_fingerprint=config.ssl_assert_fingerprint,
                )
            bounded(self.pool)

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
            bounds = Bounds(
                connect=limits.connect,
                silence=silence,
                whole=max(limits.answer, silence),
                answer_bytes=min(limits.answer_bytes, ANSWER_BYTES.get()),
            )
            began = now()
            traffic.sent(len(method) + len(target) + len(body or b""))
            try:
                answered = exchange(
                    self.pool,
                    method,
                    f"{self.path_prefix}{target}",
                    headers={**self._headers, **(headers or {})},
                    body=body or None,
                    bounds=bounds,
                    now=now,
                )
            except (urllib3.exceptions.HTTPError, OSError, AnswerLimit) as error:
                raise _as_transport_error(error) from error
            traffic.received(len(answered.body))
            found = HttpHeaders(answered.headers)
            if answered.status >= _FIRST_ERROR_STATUS and _PLAIN not in (found.get("content-type") or ""):
                # A proxy's page about an error must not hide the error's status behind its own format.
                found["content-type"] = _TEXT
            meta = ApiResponseMeta(
                node=self.config,
                duration=now() - began,
                http_version="1.1",
                status=answered.status,
                headers=found,
            )
            return NodeApiResponse(meta, answered.body)

    return BoundedNode


def close_idle(node: BaseNode) -> None:
    """Close the connections of a node that are not in use: a load balancer leads each to one server."""
    pool = node.pool.pool if isinstance(node, Urllib3HttpNode) else None
    if pool is None:
        return
    idle: list[Any] = []
    with suppress(queue.Empty):
        while True:
            idle.append(pool.get(block=False))
    for each in idle:
        if each is not None:
            each.close()
        with suppress(queue.Full):  # another thread has made a connection meanwhile
            pool.put(each, block=False)


def serializers(secrets: Redactor) -> dict[str, Serializer]:
    """What reads answers: every text that comes in is visible and without the known secrets."""

    class Json(OrjsonSerializer):
        """The servers' JSON; half the time of the standard library for a large cluster state."""

        def loads(self, data: bytes) -> Any:
            """The value; None for an empty body."""
            try:
                return parsed(data, secrets) if data else None
            except ValueError as error:
                raise SerializationError(str(error), errors=(error,)) from error

    class Text(TextSerializer):
        """The pages of proxies."""

        def loads(self, data: bytes) -> str:
            """The text, on one line."""
            return one_line(secrets.without_known(data.decode(errors="replace")), _LONGEST_PAGE)

    return {_PLAIN: Json(), Text.mimetype: Text()}


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
