"""Which endpoint is which node, and in which order endpoints are used."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from orchestrator.elasticsearch.access import Endpoint, published_places
from orchestrator.model.cluster import NodeName


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
        for name, address in addresses.items():
            places = published_places(address)
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
