"""Send requests: choice of node, limits and retries. Only this module retries a request.

A read is tried again at another endpoint. A write is tried again only if no connection was made, so that
nothing can have been done. Every other failure is returned as a `Fault`, which says whether the server may
have done anything. This module does not wait for the *cluster* to become ready.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import tenacity

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import (
    Access,
    Endpoint,
    EndpointBook,
    OnlyThrough,
    RequestLimits,
    is_own,
    parse_endpoint,
)
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.connection import EndpointConnection, Server, Traffic
from orchestrator.elasticsearch.credentials import Credentials, Renewal
from orchestrator.elasticsearch.dialect import NEWEST, Dialect, dialect_of
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.fields import ReadFailed, answer_of
from orchestrator.elasticsearch.old_versions import parse_names, renamed
from orchestrator.elasticsearch.parse_cluster import Member, ids_without_name, parse_members
from orchestrator.errors import ConfigError, NotInThisVersion
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import reasons_by_place
from orchestrator.ports import Clock
from orchestrator.redact import Redactor

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_CONNECTIONS_TRIED: Final = 3
"""To an endpoint that is no node's own address, to see if it leads to several nodes."""
_OTHERS_TRIED: Final = 3
"""Nodes whose published addresses are tried: if these do not answer, the network forbids all of them."""


class ElasticsearchClient:
    """Requests to one cluster. Safe to share between threads.

    `redact` learns the secrets of `access`, and removes every known secret from all answers. `renewal` is the
    source of the secret, if it can change while the program runs.

    Attributes:
        access: how it is reached.
        clock: the time of the waits here.
        limits: of a request.
        redact: removes the secrets of this process from what is answered; it learns those of `access`.
        traffic: what went over the wire so far.
        own_updates: of the cluster's state, by the lease.

    Raises:
        ConfigError: an endpoint, certificate or key cannot be used.
    """

    def __init__(
        self,
        access: Access,
        *,
        clock: Clock,
        limits: RequestLimits | None = None,
        redact: Redactor | None = None,
        renewal: Renewal | None = None,
    ) -> None:
        if not access.endpoints:
            raise ConfigError("needs at least one URL", key="endpoints")
        self.access = access
        self.limits = limits or RequestLimits()
        self._redact = redact or Redactor()
        self._credentials = Credentials(access, clock=clock, redact=self._redact, renewal=renewal)
        self.traffic = Traffic()
        self.own_updates = OwnUpdates()
        self.clock = clock
        self._lock = threading.RLock()
        self._book = EndpointBook(configured=tuple(parse_endpoint(url) for url in access.endpoints))
        self._connections: dict[Endpoint, EndpointConnection] = {}
        self._servers: dict[Endpoint, Server] = {}
        self._members: dict[NodeName, Member] | None = None
        self._names: dict[str, NodeName] = {}
        self._spoken: Dialect | None = None
        self._refused = False
        for endpoint in self._book.configured:
            self._connection(endpoint)

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Send nothing to these nodes from now on where anything else answers.

        The node behind each endpoint that answered the last time is read now, while it still answers: it may
        be another one than before. So are the addresses of the other nodes, if they are unknown.
        """
        with self._lock:
            more = not self._book.avoided.issuperset(nodes)
            asked = [each for each in self._book.configured if each not in self._book.failed] if more else []
            listed = self._members is not None
        for endpoint in asked:
            self._identify(endpoint, silence=self.limits.connect)  # one that hangs must not delay the stop
        if more and not listed:
            self._learn_members()
        with self._lock:
            self._book.avoid(nodes)

    def only_through(self, together: Iterable[Collection[NodeName]]) -> OnlyThrough | None:
        """The nodes through which alone the cluster can be reached from here, if they go down `together`.

        What is not a node's own address is connected to several times: a load balancer may change the node.
        """
        through: set[NodeName] = set()
        urls: list[str] = []
        for endpoint in self._book.configured:
            names = self._behind(endpoint)
            if len(names) > 1:
                return None
            through |= names
            urls += [endpoint.url] if names else []
        if not through or not any(through.issubset(each) for each in together):
            return None
        with self._lock:
            others = (self._members or {}).keys() - through
            found = self._book.discovered(through)[:_OTHERS_TRIED]
        tried = [self._connection(endpoint).probe() for endpoint in found]
        if not others or any(isinstance(each, Server) and each.name not in through for each in tried):
            return None
        wrong = next(
            (each.reason for each in tried if isinstance(each, Fault)), "their addresses are unknown"
        )
        return OnlyThrough(nodes=frozenset(through), urls=tuple(urls), wrong=wrong)

    def _behind(self, endpoint: Endpoint) -> frozenset[NodeName]:
        """The nodes that an endpoint leads to, as far as a few connections show; empty if none answers."""
        seen: set[NodeName] = set()
        for _ in range(_CONNECTIONS_TRIED):
            if self._identify(endpoint) is not None:
                break
            with self._lock:
                name, own = self._servers[endpoint].name, self._book.node_of(endpoint)
                seen |= {name} | (self._book.sharing(name) if endpoint in self._book.names else set())
            if own is not None or len(seen) > 1:
                break
        return frozenset(seen)

    def learn(self, members: Mapping[NodeName, Member]) -> None:
        """Take note of the versions and addresses of nodes that are new or were restarted."""
        with self._lock:
            self._members = {**(self._members or {}), **members}
            self._book.learn({name: each.http for name, each in members.items() if each.http is not None})

    def call(self, names: Mapping[str, NodeName]) -> None:
        """Know nodes before 5.0, by their ids, under these names: answers may have others."""
        with self._lock:
            self._names |= names
            for endpoint, server in self._servers.items():
                if server.node_id in names:
                    self._servers[endpoint] = replace(server, name=names[server.node_id])
                    if endpoint in self._book.names:
                        self._book.names[endpoint] = names[server.node_id]

    def only(self, present: Collection[NodeName]) -> None:
        """Forget nodes that left the cluster, except nodes that are down for a restart and will return."""
        with self._lock:
            kept = frozenset(present) | self._book.avoided
            self._members = {name: each for name, each in (self._members or {}).items() if name in kept}
            self._book.only(kept)

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
        outcome = self._sent(calls.members(), retry_lost=True, wrong=wrong)
        if isinstance(outcome, Fault):
            return self._with_each(outcome, wrong)
        self._learn_from(outcome)
        with self._lock:
            return next(iter(self._servers.values()))

    def dialect(self) -> Dialect | Fault:
        """The dialect of the lowest version among all nodes; a fault if a node's version is not restarted."""
        server = self.server()
        if isinstance(server, Fault):
            return server
        with self._lock:
            listed, refused = self._members is not None, self._refused
        if refused or not listed:  # a node that was refused may have left
            wrong = self._learn_members()
            if wrong is not None:
                return wrong
        with self._lock:
            versions = {str(name): each.server for name, each in (self._members or {}).items()}
            if self.access.product is not None:
                versions = {
                    name: replace(each, distribution=self.access.product) for name, each in versions.items()
                }
            for probed in self._servers.values():
                # A node is listed under the version that it shows to others: OpenSearch 1 may show 7.10.2.
                if probed.name in versions and probed.distribution != versions[probed.name].distribution:
                    versions[probed.name] = probed.member.server
        try:
            spoken = dialect_of(versions)
        except NotInThisVersion as error:
            with self._lock:
                self._refused = True
            return Fault(reason=str(error), nothing_done=True)
        with self._lock:
            self._spoken, self._refused = spoken, False
        return spoken

    def dialect_to_read(self) -> Dialect:
        """As `dialect`.

        Raises:
            ReadFailed: the dialect is unknown.
        """
        found = self.dialect()
        if isinstance(found, Fault):
            raise ReadFailed(found.unknown())
        return found

    @property
    def spoken(self) -> Dialect | None:
        """The dialect of all nodes that were known at the last look; None before the first."""
        with self._lock:
            return self._spoken

    def dialect_to_write(self) -> Dialect | Fault:
        """As `dialect`, but the last accepted one if a node of another version has joined since.

        Then nothing can be read and no further node is stopped, but settings are still restored and the
        lease is kept.
        """
        found = self.dialect()
        with self._lock:
            return self._spoken if isinstance(found, Fault) and self._spoken is not None else found

    def read(self, request: HttpRequest) -> Answer | Fault:
        """Send a read; retry at another endpoint if it gets no answer, or one of a node that may be down."""
        return self._sent(request, retry_lost=True)

    def body(self, request: HttpRequest) -> Any:
        """The body of the answer to a read.

        Raises:
            ReadFailed: the read failed.
        """
        outcome = self.read(request)
        if isinstance(outcome, Fault):
            raise ReadFailed(outcome.unknown())
        return outcome.body

    def write(self, request: HttpRequest) -> Answer | Fault:
        """Send a write; retry only if no connection was made."""
        return self._sent(request, retry_lost=False)

    def once(self, request: HttpRequest) -> Answer | Fault:
        """Send a request to one endpoint, once: for a long poll, which the caller repeats."""
        return self._attempt(request, self._usable()[0])

    def _sent(
        self, request: HttpRequest, *, retry_lost: bool, wrong: dict[str, str] | None = None
    ) -> Answer | Fault:
        """Send it; `wrong` receives the last reason of each endpoint that failed, by URL."""
        began = self.clock.now()
        tried: list[Endpoint] = []

        def untried() -> Endpoint | None:
            return next((each for each in self._usable() if each not in tried), None)

        def better_elsewhere(fault: Fault, endpoint: Endpoint) -> bool:
            if fault.elsewhere:
                return retry_lost or fault.nothing_done
            # No master is elected, perhaps only in the view of the node behind this endpoint. Published
            # addresses are no help: in an election, each that takes no connection would cost its limit.
            with self._lock:
                up = self._book.is_up(endpoint)
            return retry_lost and fault.passes and not up and untried() in self._book.configured

        def attempt() -> tuple[Answer | Fault, bool]:
            """What came of one endpoint, and whether another one may do better."""
            endpoint = untried() or self._usable()[0]
            tried.append(endpoint)
            outcome = self._attempt(request, endpoint)
            if not isinstance(outcome, Fault):
                return outcome, False
            if wrong is not None:
                wrong[endpoint.url] = outcome.reason
            return outcome, better_elsewhere(outcome, endpoint)

        def exhausted(state: tenacity.RetryCallState) -> bool:
            # tenacity's own stop_after_delay reads the real clock.
            late = self.clock.now() - began > self.limits.answer
            return late or state.attempt_number >= max(self.limits.attempts, len(self._usable()))

        def pause(state: tenacity.RetryCallState) -> float:
            if untried() is not None:
                return 0.0
            return min(_FIRST_PAUSE * 2.0**state.attempt_number, _LONGEST_PAUSE)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda attempted: attempted[1]),
            stop=exhausted,
            wait=pause,
            sleep=self.clock.wait,
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        outcome, _ = retrying(attempt)
        return outcome

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
            return self._book.usable()

    def _attempt(self, request: HttpRequest, endpoint: Endpoint) -> Answer | Fault:
        """One request to one endpoint, which is probed before its first request."""
        request = (self.spoken or NEWEST).spelled(request)
        if request.instead is not None:
            return Answer(status=HTTPStatus.OK, body=request.instead.answer)
        with self._lock:
            known = endpoint in self._servers
        if not known:
            fault = self._identify(endpoint)
            if fault is not None:
                return fault
        outcome = self._connection(endpoint).exchange(request)
        with self._lock:
            astray = isinstance(outcome, Fault) and outcome.passes and not self._book.is_up(endpoint)
            if isinstance(outcome, Fault) and (
                outcome.status is None or outcome.refusal is not None or astray
            ):
                self._went_wrong(endpoint, outcome)
            else:
                self._book.succeeded(endpoint)
        if astray:
            self._connection(endpoint).reconnect()  # a load balancer may lead to another node then
        return outcome if isinstance(outcome, Fault) else self._with_names(outcome)

    def _went_wrong(self, endpoint: Endpoint, fault: Fault) -> None:
        if not fault.held_back:
            self._book.went_wrong(endpoint)

    def _identify(self, endpoint: Endpoint, *, silence: float | None = None) -> Fault | None:
        """Read product and node of an endpoint, on a new connection. Returns its problem, or None."""
        server = self._connection(endpoint).probe(silence=silence)
        own = isinstance(server, Server) and is_own(endpoint, server.address)
        with self._lock:
            if isinstance(server, Fault):
                self._went_wrong(endpoint, server)
                return server
            server = replace(server, name=self._names.get(server.node_id, server.name))
            self._servers[endpoint] = server
            self._book.answered(endpoint, server.name, own=own)
            if server.address is not None:
                self._book.learn({server.name: server.address})
        return None

    def _learn_members(self) -> Fault | None:
        """Read the version and address of each node; what is wrong if that fails."""
        return self._learn_from(self._sent(calls.members(), retry_lost=True))

    def _learn_from(self, outcome: Answer | Fault) -> Fault | None:
        """Take note of all nodes; what is wrong if they are not listed."""
        if isinstance(outcome, Fault):
            return outcome
        try:
            with answer_of("nodes"):
                unnamed = ids_without_name(outcome.body)
            with self._lock:
                unnamed -= self._names.keys()
            if unnamed:
                more = self.read(calls.own_names())
                if isinstance(more, Fault):
                    return more
                with answer_of("names of nodes"):
                    self.call(parse_names(more.body))
            with answer_of("nodes"):
                members = parse_members(self._with_names(outcome).body)
        except ReadFailed as error:
            return Fault(reason=str(error), nothing_done=True)
        self.learn(members)
        self.only(members)
        return None

    def _with_names(self, answer: Answer) -> Answer:
        with self._lock:
            return replace(answer, body=renamed(answer.body, self._names)) if self._names else answer

    def _connection(self, endpoint: Endpoint) -> EndpointConnection:
        with self._lock:
            if endpoint not in self._connections:
                self._connections[endpoint] = EndpointConnection(
                    self.access,
                    endpoint,
                    traffic=self.traffic,
                    limits=self.limits,
                    clock=self.clock,
                    redact=self._redact,
                    credentials=self._credentials,
                )
            return self._connections[endpoint]


class OwnUpdates:
    """Counts the updates of our lease that were begun after a reading. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings = 0
        self._acknowledged: list[int] = []

    def was_read(self) -> int:
        """A state has just been read. Returns the number of the reading, for `since`."""
        with self._lock:
            self._readings += 1
            self._acknowledged.clear()  # only the last reading is asked for
            return self._readings

    def begin(self) -> int:
        """An update is to be sent: one that may already be part of a reading after this does not count."""
        with self._lock:
            return self._readings

    def acknowledge(self, begun: int) -> None:
        """The update has certainly been made, once. `begun` is what `begin` returned."""
        with self._lock:
            self._acknowledged.append(begun)

    def since(self, reading: int) -> int:
        """How many updates were begun after this reading, and have been made.

        To be asked before the state is: each of these is then part of its version.
        """
        with self._lock:
            return sum(begun >= reading for begun in self._acknowledged)
