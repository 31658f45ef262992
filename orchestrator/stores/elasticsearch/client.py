"""Send requests: choice of node, limits and retries. Only this module retries a request.

A read is tried again at another endpoint. A write is tried again only if no connection was made, so that
nothing can have been done. Every other failure is returned as a `Fault`, which says whether the server may
have done anything. This module does not wait for the *cluster* to become ready.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import tenacity

from orchestrator.errors import ConfigError, NotInThisVersion
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import reasons_by_place
from orchestrator.ports import Clock
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.access import Access, Endpoint, Limits, parse_endpoint
from orchestrator.stores.elasticsearch.connection import Connection, Server
from orchestrator.stores.elasticsearch.dialect import Dialect, dialect_for
from orchestrator.stores.elasticsearch.endpoints import EndpointBook
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.parse_nodes import http_addresses
from orchestrator.stores.elasticsearch.request import Request
from orchestrator.stores.elasticsearch.transport import Traffic

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0


class _TryElsewhere(Exception):  # noqa: N818  (an instruction to the retry below, never seen outside)
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class ElasticsearchClient:
    """Requests to one cluster. Safe to share between threads.

    Attributes:
        access: how it is reached.
        limits: of a request.
        traffic: what went over the wire so far.

    Raises:
        ConfigError: an endpoint, certificate or key cannot be used.
    """

    def __init__(self, access: Access, *, clock: Clock, limits: Limits | None = None) -> None:
        if not access.endpoints:
            raise ConfigError("needs at least one URL", key="endpoints")
        self.access = access
        self.limits = limits or Limits()
        self.traffic = Traffic()
        self._clock = clock
        self._lock = threading.RLock()
        self._book = EndpointBook(configured=tuple(parse_endpoint(url) for url in access.endpoints))
        self._connections: dict[Endpoint, Connection] = {}
        self._servers: dict[Endpoint, Server] = {}
        self._peers_known = False
        for endpoint in self._book.configured:
            self._connection(endpoint)

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Send nothing to these nodes from now on.

        The node behind each endpoint is read now, while it still answers. So are the addresses of the other
        nodes, if they are unknown.
        """
        if nodes:
            with self._lock:
                unknown = [each for each in self._book.unidentified() if each not in self._book.failed]
                peers_known = self._peers_known
            for endpoint in unknown:
                self._identify(endpoint)
            if not peers_known:
                self._learn_from(self._sent(calls.addresses(), retry_lost=True))
        with self._lock:
            self._book.avoid(nodes)

    def learn(self, addresses: Mapping[NodeName, str]) -> None:
        """Store the `http.publish_address` of nodes."""
        with self._lock:
            self._book.learn(addresses)
            self._peers_known = True

    def endpoints(self) -> Mapping[str, str | None]:
        """The problem of each configured endpoint, by URL; None if it answers. Sends a request to each."""
        with self._lock:
            configured = self._book.configured
        faults = {endpoint.url: self._identify(endpoint) for endpoint in configured}
        return {url: fault.reason if fault else None for url, fault in faults.items()}

    def server(self) -> Server | Fault:
        """What answers: the product and the version, accepted or not; else what is wrong with each one."""
        with self._lock:
            known = next(iter(self._servers.values()), None)
        if known is not None:
            return known
        wrong: dict[str, str] = {}
        outcome = self._sent(calls.addresses(), retry_lost=True, wrong=wrong)
        if isinstance(outcome, Fault):
            return self._with_each(outcome, wrong)
        self._learn_from(outcome)
        with self._lock:
            return next(iter(self._servers.values()))

    def dialect(self) -> Dialect | Fault:
        """The dialect of the cluster; a fault for versions that this program does not restart."""
        server = self.server()
        if isinstance(server, Fault):
            return server
        try:
            return dialect_for(server.distribution, server.version)
        except NotInThisVersion as error:
            return Fault(reason=str(error), nothing_done=True)

    def read(self, request: Request) -> Answer | Fault:
        """Send a read; retry at another endpoint if it gets no answer."""
        return self._sent(request, retry_lost=True)

    def write(self, request: Request) -> Answer | Fault:
        """Send a write; retry only if no connection was made."""
        return self._sent(request, retry_lost=False)

    def once(self, request: Request) -> Answer | Fault:
        """Send a request to one endpoint, once: for a long poll, which the caller repeats."""
        with self._lock:
            endpoints = self._book.usable()
        return self._attempt(request, endpoints[0]) if endpoints else self._nowhere()

    def _sent(
        self, request: Request, *, retry_lost: bool, wrong: dict[str, str] | None = None
    ) -> Answer | Fault:
        """Send it; `wrong` receives the last reason of each endpoint that failed, by URL."""
        began = self._clock.now()
        tried: list[Endpoint] = []

        def next_endpoint() -> Endpoint | None:
            # An endpoint is tried again only after all others.
            endpoints = self._usable()
            return next((each for each in endpoints if each not in tried), next(iter(endpoints), None))

        def attempt() -> Answer | Fault:
            endpoint = next_endpoint()
            if endpoint is None:
                return self._nowhere()
            tried.append(endpoint)
            outcome = self._attempt(request, endpoint)
            if isinstance(outcome, Fault) and wrong is not None:
                wrong[endpoint.url] = outcome.reason
            if isinstance(outcome, Fault) and outcome.elsewhere and (retry_lost or outcome.nothing_done):
                raise _TryElsewhere(outcome)
            return outcome

        def exhausted(state: tenacity.RetryCallState) -> bool:
            # tenacity's own stop_after_delay reads the real clock.
            late = self._clock.now() - began > self.limits.answer
            return late or state.attempt_number >= max(self.limits.attempts, len(self._usable()))

        def pause(state: tenacity.RetryCallState) -> float:
            if any(each not in tried for each in self._usable()):
                return 0.0
            return min(_FIRST_PAUSE * 2.0**state.attempt_number, _LONGEST_PAUSE)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_TryElsewhere),
            stop=exhausted,
            wait=pause,
            sleep=self._clock.wait,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except _TryElsewhere as last:
            return last.fault

    def _with_each(self, outcome: Fault, wrong: Mapping[str, str]) -> Fault:
        """The fault of a request that failed everywhere, with the reason of each endpoint, in their order."""
        if len(wrong) < 2:  # noqa: PLR2004  (with one endpoint its reason is the whole one)
            return outcome
        with self._lock:
            urls = [endpoint.url for endpoint in self._book.configured]
        ordered = {url: wrong[url] for url in (*urls, *wrong) if url in wrong}
        return replace(outcome, reason=reasons_by_place(ordered))

    def _usable(self) -> tuple[Endpoint, ...]:
        with self._lock:
            return self._book.usable() or self._book.unidentified()

    def _attempt(self, request: Request, endpoint: Endpoint) -> Answer | Fault:
        """One request to one endpoint, which is probed before its first request."""
        with self._lock:
            known = endpoint in self._servers
        if not known:
            fault = self._identify(endpoint)
            if fault is not None:
                return fault
        with self._lock:
            avoided = self._book.node_of(endpoint) in self._book.avoided
        if avoided:
            # An endpoint whose node was unknown answers: read the addresses of the other nodes from it.
            self._learn_from(self._connection(endpoint).exchange(calls.addresses()))
            reason = f"{endpoint.url} is a node that goes down"
            return Fault(reason=reason, nothing_done=True, elsewhere=bool(self._usable()))
        outcome = self._connection(endpoint).exchange(request)
        with self._lock:
            if isinstance(outcome, Fault) and outcome.status is None:
                self._book.went_wrong(endpoint)
            else:
                self._book.succeeded(endpoint)
        return outcome

    def _identify(self, endpoint: Endpoint) -> Fault | None:
        """Read product and node of an endpoint. Returns its problem, or None."""
        server = self._connection(endpoint).probe()
        with self._lock:
            if isinstance(server, Fault):
                self._book.went_wrong(endpoint)
                return server
            self._servers[endpoint] = server
            self._book.names[endpoint] = server.name
            if server.address is not None:
                self._book.learn({server.name: server.address})
        return None

    def _learn_from(self, outcome: Answer | Fault) -> None:
        if isinstance(outcome, Fault):
            return  # no addresses: only the configured endpoints are used
        self.learn(http_addresses(outcome.body))

    def _connection(self, endpoint: Endpoint) -> Connection:
        with self._lock:
            if endpoint not in self._connections:
                self._connections[endpoint] = Connection(
                    self.access, endpoint, traffic=self.traffic, limits=self.limits, clock=self._clock
                )
            return self._connections[endpoint]

    def _nowhere(self) -> Fault:
        names = ", ".join(sorted(self._book.avoided))
        reason = f"every endpoint that is known is a node that goes down ({names}): list more `endpoints`"
        return Fault(reason=reason, nothing_done=True)
