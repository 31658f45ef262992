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
    NodeConfig,
    SerializationError,
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

from orchestrator.bounded_http import AnswerLimit, bound, exchange
from orchestrator.redact import Redactor
from orchestrator.stores.elasticsearch.access import Limits
from orchestrator.untrusted import parsed, visible

SAID_PRODUCT: Final = "x-said-product"
_PRODUCT_HEADER: Final = "x-elastic-product"
_PLAIN: Final = "application/json"
_TEXT: Final = "text/plain"
MOST_BYTES: Final = "x-most-bytes"
"""A header that is not sent: how large the answer to this request may be."""
_FIRST_ERROR_STATUS: Final = 300

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


class AnswerJson(OrjsonSerializer):
    """Reads answers: every text in them is made visible, and without the secrets that the server was sent.

    Args:
        redact: knows these secrets.
    """

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def loads(self, data: bytes) -> Any:
        """The value of an answer; None of an empty one."""
        try:
            return parsed(data, self._redact) if data else None
        except ValueError as error:  # not the base class's message, which repeats the whole answer
            raise SerializationError("the answer is no JSON", errors=(error,)) from error


class AnswerText(TextSerializer):
    """The same for answers that are text."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def loads(self, data: bytes) -> str:
        """The text of an answer."""
        return visible(self._redact(data.decode("utf-8", "replace")))


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

        def __init__(self, config: NodeConfig) -> None:
            super().__init__(config)
            bound(self.pool)

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
            began = now()
            sent = {**self._headers, **(headers or {})}
            most_bytes = min(int(sent.pop(MOST_BYTES, limits.answer_bytes)), limits.answer_bytes)
            traffic.sent(len(method) + len(target) + len(body or b""))
            try:
                answer = exchange(
                    self.pool,
                    method,
                    f"{self.path_prefix}{target}",
                    body=body or None,
                    headers=sent,
                    timeout=urllib3.Timeout(connect=limits.connect, read=silence),
                    within=max(limits.answer, silence),
                    most_bytes=most_bytes,
                    now=now,
                    received=traffic.received,
                )
            except (urllib3.exceptions.HTTPError, OSError, AnswerLimit) as error:
                raise _as_transport_error(error) from error
            found = HttpHeaders(answer.headers)
            if answer.status >= _FIRST_ERROR_STATUS and _PLAIN not in (found.get("content-type") or ""):
                # A proxy's page about an error must not hide the error's status behind its own format.
                found["content-type"] = _TEXT
            meta = ApiResponseMeta(
                node=self.config,
                duration=now() - began,
                http_version="1.1",
                status=answer.status,
                headers=found,
            )
            return NodeApiResponse(meta, answer.body)

    return LimitedNode


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
