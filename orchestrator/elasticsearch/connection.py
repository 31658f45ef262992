"""One endpoint: its connections, its product and version, and the exchange of a request and an answer.

One client library for every server, elasticsearch-py, with our own limits on time and size. Our own probe
finds out the product: the client's check of it is an error with the whole answer, which is taken as one.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
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
from elasticsearch import ApiError, Elasticsearch
from elasticsearch.serializer import OrjsonSerializer

from orchestrator.bounded_http import AnswerLimit, Bounds, bounded, exchange
from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import Access, Endpoint, RequestLimits
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.credentials import Credentials, Login
from orchestrator.elasticsearch.dialect import (
    ELASTICSEARCH,
    OPENSEARCH,
    ServerVersion,
    family_of,
    parse_version,
)
from orchestrator.elasticsearch.faults import Answer, Fault, error_fault, transport_fault
from orchestrator.elasticsearch.fields import Malformed, mapping, text, within
from orchestrator.elasticsearch.parse_cluster import Member, parse_version_of
from orchestrator.errors import ConfigError
from orchestrator.model.cluster import NodeName
from orchestrator.ports import Clock
from orchestrator.redact import Redactor
from orchestrator.tls import tls_context
from orchestrator.untrusted import one_line, visible
from orchestrator.untrusted_json import parsed

_PRODUCT_HEADER: Final = "x-elastic-product"
_PLAIN: Final = "application/json"
_TEXT: Final = "text/plain"
_LONGEST_PAGE: Final = 500
"""Characters that are kept of a text: it becomes a part of a reason."""
_FIRST_ERROR_STATUS: Final = 300
_FIRST_WITH_HEADER: Final = (7, 14, 0)

_ANSWER_BYTES: ContextVar[int] = ContextVar("ANSWER_BYTES")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server at an endpoint."""

    distribution: str
    version: str
    name: NodeName
    address: str | None = None  # its `http.publish_address`, None if not in the answer
    node_id: str = ""  # before 5.0 new at each start

    @property
    def member(self) -> Member:
        """The node as the cluster lists it."""
        return Member(
            server=ServerVersion(distribution=self.distribution, version=self.version), http=self.address
        )


class EndpointConnection:
    """The connections to one endpoint. Safe to share between threads.

    Args:
        credentials: the login, the same for all endpoints.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """

    def __init__(
        self,
        access: Access,
        endpoint: Endpoint,
        *,
        traffic: Traffic,
        limits: RequestLimits,
        clock: Clock,
        redact: Redactor,
        credentials: Credentials,
    ) -> None:
        self.endpoint = endpoint
        self._redact = redact
        self._credentials = credentials
        self._access = access
        self._client = Elasticsearch(
            [endpoint.url],
            transport_class=PlainTransport,
            node_class=bounded_node(traffic, limits, clock.now),
            max_retries=0,
            serializers=serializers(redact),
            **(_tls(access) if endpoint.scheme == "https" else {}),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def exchange(self, request: HttpRequest) -> Answer | Fault:
        """Send one request, once."""
        outcome = self._exchange(request)
        return self._shown(outcome) if isinstance(outcome, Fault) else outcome[0]

    def reconnect(self) -> None:
        """Close the connections that are not in use: the next request makes a new one."""
        for node in self._client.transport.node_pool.all():
            close_idle(node)

    def probe(self, *, silence: float | None = None) -> Server | Fault:
        """Read the product and version of this endpoint, on a new connection; `silence`: of `HttpRequest`."""
        self.reconnect()
        outcome = self._probed(silence)
        return self._shown(outcome) if isinstance(outcome, Fault) else outcome

    def _shown(self, fault: Fault) -> Fault:
        """The fault with a reason that may be shown: a server or a proxy may repeat what it was sent."""
        return replace(fault, reason=visible(self._redact(fault.reason)))

    def _probed(self, silence: float | None) -> Server | Fault:
        outcome = self._exchange(replace(calls.identity(), silence=silence))
        if isinstance(outcome, Fault):
            return outcome
        answer, said = outcome
        try:
            server = parse_server(answer.body, said)
        except Malformed as error:
            reason = f"{self.endpoint.url} answers, but is neither Elasticsearch nor OpenSearch ({error})"
            return Fault(reason=reason, nothing_done=True, elsewhere=True)
        wrong = _against(self._access, server, said)
        if wrong is not None:
            return Fault(reason=f"{self.endpoint.url} {wrong}", nothing_done=True, elsewhere=True)
        return server if self._access.product is None else replace(server, distribution=self._access.product)

    def _exchange(self, request: HttpRequest) -> tuple[Answer, str] | Fault:
        """Send the request; again at once if its login was refused and there is another secret now."""
        while True:
            login = self._credentials.login(self.endpoint.url)
            if isinstance(login, Fault):
                return login
            outcome = self._sent(request, login)
            if not isinstance(outcome, Fault):
                self._credentials.accepted(login, self.endpoint.url)
                return outcome
            if outcome.refusal is None:
                if outcome.logged_in:
                    self._credentials.accepted(login, self.endpoint.url)
                elif outcome.status is None and outcome.nothing_done:
                    self._credentials.unsent(login)
                return outcome
            refused = self._credentials.refused(login, outcome)
            if refused is not None:
                return refused

    def _sent(self, request: HttpRequest, login: Login) -> tuple[Answer, str] | Fault:
        client = self._client
        headers = {"authorization": login.header} if login.header else None
        if request.silence is not None:
            client = client.options(request_timeout=request.silence)
        token = _ANSWER_BYTES.set(request.answer_bytes)
        try:
            response = client.perform_request(
                request.method, request.target, headers=headers, body=request.body
            )
            meta, body = response.meta, response.body
        except ApiError as error:  # also of another product
            meta, body = error.meta, error.body
        except TransportError as error:
            return transport_fault(error, url=self.endpoint.url, strict=self._access.strict)
        finally:
            _ANSWER_BYTES.reset(token)
        if meta.status >= _FIRST_ERROR_STATUS and meta.status not in request.accept:
            return error_fault(
                meta.status,
                body,
                url=self.endpoint.url,
                call=f"{request.method} {request.path}",
                access=self._access,
            )
        try:
            body = request.reshape(body)
        except Malformed as error:
            call = f"{request.method} {request.path}"
            return Fault(reason=f"the answer to {call} is not what it should be: {error}", nothing_done=False)
        return Answer(status=meta.status, body=body), meta.headers.get(_PRODUCT_HEADER) or ""


class PlainTransport(Transport):
    """Sends and accepts plain JSON.

    elasticsearch-py 9 requests `application/vnd.elasticsearch+json; compatible-with=9`, which Elasticsearch 7
    and OpenSearch refuse. A `transport_class` is the client's own extension point.
    """

    def perform_request(
        self, method: str, target: str, *, body: Any | None = None, headers: Any = DEFAULT, **more: Any
    ) -> TransportApiResponse:
        """Send one request."""
        plain = HttpHeaders({} if headers is DEFAULT else headers)
        plain["accept"] = _PLAIN
        if body is not None:
            plain["content-type"] = _PLAIN
        meta, answered = super().perform_request(method, target, body=body, headers=plain, **more)
        # Deprecation warnings would become Python warnings. Only one concerns this program: transient
        # settings, which it writes only where a transient value already exists.
        kept = {name: value for name, value in meta.headers.items() if name.lower() != "warning"}
        return TransportApiResponse(replace(meta, headers=HttpHeaders(kept)), answered)


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
                answer_bytes=min(limits.answer_bytes, _ANSWER_BYTES.get()),
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


def _tls(access: Access) -> dict[str, Any]:
    """The client's options for TLS.

    Raises:
        ConfigError: a file cannot be used.
    """
    verify = access.verify and access.fingerprint is None
    with _naming("tls.ca", access.ca or "the system's certificates"):
        context = tls_context(ca=access.ca, verify=verify, strict=access.strict)
    if access.client_cert is not None:
        with _naming("tls.client_cert", access.client_cert):
            context.load_cert_chain(access.client_cert, access.client_key)
    return {"ssl_context": context, "ssl_assert_fingerprint": access.fingerprint}


@contextmanager
def _naming(key: str, file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{file} cannot be used: {error}", key=key) from error


def _against(access: Access, server: Server, said_product: str) -> str | None:
    """Why this server is refused: its product is hidden and not named, or it is not what is named."""
    listed = server.member.server
    known = said_product == "Elasticsearch" or parse_version(server.version) < _FIRST_WITH_HEADER
    # No line of the cluster file helps against a version that is not restarted: it is refused by its number.
    known = known or family_of(ELASTICSEARCH, server.version) is None
    if access.product is None or access.version is None:
        if known or server.distribution == OPENSEARCH:
            return None
        return (
            f"answers as version {server.version} without its product, which Elasticsearch names since 7.14. "
            "If a proxy removes the header `X-Elastic-Product`, write `product` and `version` in the "
            "cluster file"
        )
    named = ServerVersion(distribution=access.product, version=access.version)
    if known and server.distribution != access.product:
        return f"is {listed}, and the cluster file names {named}"
    if parse_version(server.version) < parse_version(access.version):
        return f"is version {server.version}, below that of the cluster file: {named}"
    return None


def parse_server(body: Any, said_product: str) -> Server:
    """The product and version that answered the probe.

    Elasticsearch sends its name in a header since 7.14. Without the header, `parse_version_of` decides.

    Raises:
        Malformed: this is not the answer of a node.
    """
    nodes = list(mapping(within(body, "nodes"), "nodes").items())
    if len(nodes) != 1:
        raise Malformed(f"{len(nodes)} nodes say that they answered")
    node_id, value = nodes[0]
    node = mapping(value, "the node")
    listed = parse_version_of(node, "the node")
    address = within(node, "http", "publish_address")
    return Server(
        distribution=ELASTICSEARCH if said_product == "Elasticsearch" else listed.distribution,
        version=listed.version,
        name=NodeName(text(node.get("name"), "name")),
        address=address if isinstance(address, str) else None,
        node_id=node_id,
    )
