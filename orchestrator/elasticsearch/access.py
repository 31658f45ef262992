"""How a cluster is reached: credentials, TLS, limits of a request, and which endpoint is which node."""

from __future__ import annotations

import re
import socket
from base64 import b64decode
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError
from orchestrator.model.cluster import NodeName
from orchestrator.untrusted import UntrustedValue, address

_PUBLISHED: Final = re.compile(r"(?:(?P<name>[^/]+)/)?(?P<host>\[[^\]]+\]|[^:/]+):(?P<port>[0-9]{1,5})")
"""`127.0.0.1:9200`, `[::1]:9200`, or `es1.example.org/10.1.0.1:9200` where a name was published."""
_FRAMED: Final = re.compile(r"inet\[/?(?P<bare>.+)\]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Endpoints, credentials and TLS settings of a cluster."""

    endpoints: tuple[str, ...]  # URLs of nodes, in the order of preference
    api_key: str | None = field(default=None, repr=False)  # the encoded form (`id:key` in base 64)
    username: str | None = None  # for basic authentication; goes with `password`
    password: str | None = field(default=None, repr=False)
    source: str = ""  # the reference of the secret, such as `env:ES_PASSWORD`, for messages
    fixed: bool = False  # the source cannot change while the program runs
    ca: str | None = None  # file of the trusted certificates; by default the system's
    verify: bool = True  # whether certificates are checked at all
    strict: bool = True  # whether their form is checked too
    # file of our own certificate; it needs `client_key` unless it also holds the key
    client_cert: str | None = None
    client_key: str | None = None
    # SHA-256 of the trusted certificate, in hexadecimal; replaces the check by `ca`
    fingerprint: str | None = None
    product: str | None = None  # what the nodes are, where a proxy hides it; it goes with `version`
    version: str | None = None  # the lowest version among the nodes

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may show: also the pair that a header holds, and the two parts of a key."""
        found = []
        if self.password is not None:
            found += [self.password, f"{self.username}:{self.password}"]
        if self.api_key is not None:
            found += [self.api_key]
            with suppress(ValueError):  # it is no base 64: the cluster refuses it
                pair = b64decode(self.api_key + "==", validate=False).decode(errors="replace")
                found += [pair, pair.partition(":")[2]]
        return tuple(found)

    @property
    def credentials(self) -> str:
        """The kind of credentials, for people; never their values."""
        if self.api_key is not None:
            return "the API key"
        return f"user {self.username}" if self.username is not None else "a request without credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of one request. They hold even if the server does not answer."""

    connect: float = 5.0  # seconds to connect, and as many for TLS
    silence: float = 20.0  # seconds between two bytes of an answer
    # seconds for a whole exchange, or as long as `silence` if that is more; this ends an answer that arrives
    # too slowly
    answer: float = 60.0
    # seconds that the server searches for an elected master. It is short, because the caller decides whether
    # to wait for an election.
    elected_master: float = 5.0
    # maximum size of any answer; 100,000 shards take about 100 MB unfiltered. Most kinds of requests have a
    # smaller one of their own (`AnswerBytes`).
    answer_bytes: int = 512 * 1024 * 1024
    attempts: int = 3  # how often a request is tried in all, if a repeat is harmless


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Endpoint:
    """The target of HTTP requests."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The URL without user information, which is never kept here."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def place(self) -> tuple[str, int]:
        """The host and port that are compared with a node's published address."""
        return (self.host, self.port)


def parse_endpoint(url: str) -> Endpoint:
    """Read an endpoint as the user wrote it.

    Raises:
        ConfigError: it is not an http(s) URL, or it holds a user or a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a URL: {error}", key="endpoints") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ConfigError(f"{url!r} must be like https://host:9200", key="endpoints")
    if parts.username is not None:
        raise ConfigError(
            f"credentials belong under `auth`, not in the URL of {parts.hostname}", key="endpoints"
        )
    return Endpoint(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port if port is not None else _DEFAULT_PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
    )


def bare_address(published: str) -> str:
    """An address without its frame: before 2.0 it is `inet[es1/10.1.0.1:9300]` or `inet[/10.1.0.1:9300]`."""
    framed = _FRAMED.fullmatch(published)
    return framed["bare"] if framed else published


def without_brackets(host: str) -> str:
    """`::1` from `[::1]`, and any other host as it is."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def published_places(published: str) -> tuple[tuple[str, int], ...]:
    """Host and port of a node's `http.publish_address`, the name first; empty if it is no place.

    The form with a name (`es1.example.org/10.1.0.1:9200`) exists since Elasticsearch 7.0.
    """
    match = _PUBLISHED.fullmatch(bare_address(published))
    if match is None:
        return ()
    hosts = [match["name"], without_brackets(match["host"])]
    try:
        return tuple((address(host).lower(), int(match["port"])) for host in hosts if host)
    except UntrustedValue:
        return ()


@dataclass(slots=True)
class EndpointBook:
    """What is known of the endpoints.

    An endpoint is a node only if it has that node's own address: the node that answers there publishes it,
    and no other node does. Anything else (a load balancer, a tunnel, an address that all nodes publish) may
    lead to any node, and to another one at the next connection. It is never avoided. Once it fails, other
    endpoints come first, since it may lead to a node that is down.
    """

    configured: tuple[Endpoint, ...]  # as the user lists them, in that order
    # the node that answered at an endpoint with the address that it publishes
    names: dict[Endpoint, NodeName] = field(default_factory=dict)
    # a node's places, as the cluster lists them
    published: dict[NodeName, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    avoided: frozenset[NodeName] = frozenset()  # nodes that go down or are down
    # endpoints that gave no answer the last time, oldest first: tried last. Where a node that is down may be
    # behind one (not `is_up`), trouble that passes counts as no answer.
    failed: dict[Endpoint, None] = field(default_factory=dict)

    def learn(self, addresses: Mapping[NodeName, str]) -> None:
        """Take note of nodes' `http.publish_address`."""
        for name, published in addresses.items():
            places = published_places(published)
            if places:
                self.published[name] = places

    def only(self, nodes: Collection[NodeName]) -> None:
        """Forget addresses of other nodes that one of these has now. What else has left may come back."""
        taken = {place for name in nodes for place in self.published.get(name, ())}
        self.published = {
            name: places
            for name, places in self.published.items()
            if name in nodes or taken.isdisjoint(places)
        }

    def answered(self, endpoint: Endpoint, name: NodeName, *, own: bool) -> None:
        """A node answered on a new connection, at its own address (`is_own`) or not."""
        if own:
            self.names[endpoint] = name
        else:
            self.names.pop(endpoint, None)

    def node_of(self, endpoint: Endpoint) -> NodeName | None:
        """The node whose own address an endpoint has; None if there is none."""
        name = self.names.get(endpoint)
        return None if name is None or self.sharing(name) else name

    def is_up(self, endpoint: Endpoint) -> bool:
        """Whether it is the own address of a node that is not avoided."""
        name = self.node_of(endpoint)
        return name is not None and name not in self.avoided

    def sharing(self, name: NodeName) -> frozenset[NodeName]:
        """Other nodes that publish the same address as this one."""
        places = frozenset(self.published.get(name, ()))
        others = ((other, each) for other, each in self.published.items() if other != name)
        return frozenset(other for other, each in others if not places.isdisjoint(each))

    def usable(self) -> tuple[Endpoint, ...]:
        """Endpoints in the order in which a request tries them.

        While nodes are avoided, other nodes are also used at their published addresses, with the same scheme.
        The endpoints of avoided nodes come after them: where nothing else answers, one may be up again.
        """
        down = tuple(each for each in self.configured if self.node_of(each) in self.avoided)
        first = self._healthy_first(tuple(each for each in self.configured if each not in down))
        if not self.avoided:
            return first
        found = self._healthy_first(self.discovered(self.avoided))
        untried = tuple(each for each in found if each not in self.failed)
        return (*first, *untried, *self._healthy_first(down), *found[len(untried) :])

    def discovered(self, without: Collection[NodeName]) -> tuple[Endpoint, ...]:
        """The published addresses of all nodes but these that are not configured."""
        scheme = self.configured[0].scheme
        found = (
            Endpoint(scheme=scheme, host=host, port=port)
            for name, places in sorted(self.published.items())
            if name not in without
            for host, port in places[:1]
        )
        return tuple(each for each in found if each not in self.configured)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Replace the set of nodes that get requests last."""
        self.avoided = frozenset(nodes)

    def succeeded(self, endpoint: Endpoint) -> None:
        """The endpoint answered."""
        self.failed.pop(endpoint, None)

    def went_wrong(self, endpoint: Endpoint) -> None:
        """The endpoint did not answer; others come first from now on."""
        self.failed.pop(endpoint, None)
        self.failed[endpoint] = None

    def _healthy_first(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        order = {endpoint: place for place, endpoint in enumerate(self.failed, start=1)}
        return tuple(sorted(endpoints, key=lambda each: order.get(each, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyThrough:
    """The nodes through which alone a cluster can be reached from here."""

    nodes: frozenset[NodeName]
    urls: tuple[str, ...]  # the endpoints that lead to them
    wrong: str  # why another node cannot be reached at the address that it publishes

    def __str__(self) -> str:
        """What it means for a wave with all of these nodes, why, and what to do."""
        return (
            f"nothing of the cluster can be read while {', '.join(sorted(self.nodes))} "
            f"{'are' if len(self.nodes) > 1 else 'is'} down: {', '.join(self.urls)} led to no other node, "
            f"and no other node can be reached directly ({self.wrong}). "
            "Add the URL of another node to `endpoints`"
        )


def is_own(endpoint: Endpoint, address: str | None) -> bool:
    """Whether a node with this `http.publish_address` is at an endpoint, by every address of its host.

    A name that also has an IPv6 address, which the node does not publish, is therefore not its own: it looks
    like one name for several nodes, and to avoid that could leave nothing to ask. While the node is down,
    this costs one request. Then other endpoints come first.
    """
    own = published_places(address or "")
    if endpoint.place in own or not own:
        return bool(own)
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all((str(place[0]), endpoint.port) in own for *_, place in found)
