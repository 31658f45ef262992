"""Which node answers behind which endpoint, and which endpoints may be used now. Pure book-keeping."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from orchestrator.model.cluster import NodeName
from orchestrator.stores.elasticsearch.access import Endpoint, published_places


@dataclass(slots=True)
class EndpointBook:
    """What is known of the endpoints.

    An endpoint is known to be a node by that node's own word (`_nodes/_local`), or by the published address
    that the cluster lists for it. An endpoint behind which several nodes answer in turn (a load balancer) is
    taken for the one that answered first: list the nodes themselves.

    Attributes:
        configured: as the user lists them, in that order.
        names: the node behind an endpoint.
        published: a node's places, as the cluster lists them.
        avoided: nodes that nothing may be sent to.
        failed: endpoints that took no connection the last time, oldest first: tried last.
    """

    configured: tuple[Endpoint, ...]
    names: dict[Endpoint, NodeName] = field(default_factory=dict)
    published: dict[NodeName, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    avoided: frozenset[NodeName] = frozenset()
    failed: dict[Endpoint, None] = field(default_factory=dict)

    def learn(self, addresses: Mapping[NodeName, str]) -> None:
        """Take note of nodes' `http.publish_address`."""
        for name, address in addresses.items():
            places = published_places(address)
            if places:
                self.published[name] = places

    def node_of(self, endpoint: Endpoint) -> NodeName | None:
        """The node of an endpoint, None if unknown."""
        if endpoint in self.names:
            return self.names[endpoint]
        return next(
            (name for name, places in self.published.items() if endpoint.place in places),
            None,
        )

    def usable(self) -> tuple[Endpoint, ...]:
        """Endpoints that a request may go to, the best first.

        While nodes are avoided, only endpoints of other, known nodes are used. If no configured endpoint is
        left, other nodes are used at their published addresses, with the same scheme.
        """
        if not self.avoided:
            return self._healthy_first(self.configured)
        allowed = [each for each in self.configured if self._allowed(each)]
        return self._healthy_first(tuple(allowed)) or self._healthy_first(self._discovered())

    def unidentified(self) -> tuple[Endpoint, ...]:
        """Configured endpoints whose node is unknown."""
        return tuple(each for each in self.configured if self.node_of(each) is None)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Replace the set of nodes that get no requests."""
        self.avoided = frozenset(nodes)

    def succeeded(self, endpoint: Endpoint) -> None:
        """The endpoint answered."""
        self.failed.pop(endpoint, None)

    def went_wrong(self, endpoint: Endpoint) -> None:
        """The endpoint did not answer; others come first from now on."""
        self.failed.pop(endpoint, None)
        self.failed[endpoint] = None

    def _allowed(self, endpoint: Endpoint) -> bool:
        name = self.node_of(endpoint)
        return name is not None and name not in self.avoided

    def _discovered(self) -> tuple[Endpoint, ...]:
        scheme = self.configured[0].scheme
        return tuple(
            Endpoint(scheme=scheme, host=host, port=port)
            for name, places in sorted(self.published.items())
            if name not in self.avoided
            for host, port in places[:1]
        )

    def _healthy_first(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        order = {endpoint: place for place, endpoint in enumerate(self.failed, start=1)}
        return tuple(sorted(endpoints, key=lambda each: order.get(each, 0)))
