"""Endpoints that are no node's own address: balancers of several nodes, and a proxy beside one.

The program's own client chooses among the endpoints, and the network below is simulated. The judge asks
nothing of the client: it sees which endpoint each request went to, and which nodes were up behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from orchestrator.elasticsearch.access import Access, Endpoint
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.connection import EndpointConnection, Server
from orchestrator.elasticsearch.faults import Answer, Fault, error_fault
from orchestrator.model.action import InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Instant, Unknown
from orchestrator.ports import Clock
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World
from tests.simulation.odd import number_of

BALANCED, PROXIED = "a balancer before several nodes", "a proxy beside one node"
_CHECKED_SECONDS: Final = 2.0
"""A balancer notices within it that a node is down."""
_REQUEST: Final = HttpRequest(method="GET", path="/_cluster/state")
_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The endpoints of a cluster file."""

    behind: Mapping[str, tuple[NodeName, ...]]  # the nodes behind each URL
    direct: bool  # the addresses that nodes publish can be reached

    @property
    def kinds(self) -> Counter[str]:
        """How many there are of each kind."""
        return Counter(BALANCED if len(names) > 1 else PROXIED for names in self.behind.values())


def by_chance(seed: int, names: Sequence[NodeName]) -> Endpoints | None:
    """In one run of eight, by dice of its own, so that all else of a seed stays."""
    dice = Random(f"endpoints {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() >= 1 / 8:
        return None
    some = tuple(dice.sample(list(names), min(len(names), dice.choice((2, 3, len(names))))))
    balancer, proxy = {"http://10.9.0.1:9200": some}, {"http://10.9.0.2:9200": (dice.choice(names),)}
    return Endpoints(
        behind=dice.choice((balancer, balancer, proxy, balancer | proxy, proxy | balancer)),
        direct=dice.random() < 0.5,
    )


@dataclass(slots=True)
class Gateway:
    """The endpoints before a world."""

    world: World
    endpoints: Endpoints
    # requests that an endpoint answered while a node behind it was avoided, by kind of endpoint
    met: Counter[str] = field(default_factory=Counter)

    def __call__(self, clock: Clock) -> Way:
        """The way of a new process."""
        return Way(Network(self.world, self.endpoints, self.met), clock)


@dataclass(slots=True)
class Network:
    """What is behind the endpoints, for the requests of one process."""

    world: World
    endpoints: Endpoints
    # requests that an endpoint answered while a node behind it was avoided, by kind of endpoint
    met: Counter[str]
    tried: list[str] = field(default_factory=list)  # the endpoints of the request that is under way, in order
    avoided: frozenset[NodeName] = frozenset()  # nodes that are being restarted, by the program's word
    _turns: Counter[str] = field(default_factory=Counter)
    _checked: dict[str, tuple[Instant, list[SimNode]]] = field(default_factory=dict)

    def behind(self, url: str) -> SimNode | None:
        """The node to which a request to this endpoint gets; None if it gets to none."""
        names = self.endpoints.behind.get(url)
        if names is None:
            return self._at(url)
        now, kept = self.world.agenda.now, self._checked.get(url)
        if kept is None or now - kept[0] >= _CHECKED_SECONDS:
            kept = self._checked[url] = (now, self.up(url))
        self._turns[url] += 1
        pool = kept[1]
        node = pool[self._turns[url] % len(pool)] if pool else None
        return node if node is not None and _answers(self.world, node) else None

    def up(self, url: str) -> list[SimNode]:
        """The nodes behind a configured endpoint that answer."""
        nodes = (self.world.nodes[name] for name in self.endpoints.behind[url])
        return [node for node in nodes if _answers(self.world, node)]

    def _at(self, url: str) -> SimNode | None:
        """The node at a published address."""
        if not self.endpoints.direct:
            self.world.agenda.advance(_CONNECT_SECONDS)
            return None
        of_url = (node for node in self.world.nodes.values() if url == f"http://{published(node)}")
        return next((node for node in of_url if _answers(self.world, node)), None)

    def judge(self, fault: Fault | None) -> None:
        """Record an endpoint that was passed over, and a request that failed though one leads to a node."""
        direct = next((n for n, url in enumerate(self.tried) if url not in self.endpoints.behind), None)
        for url, names in self.endpoints.behind.items():
            if direct is not None and url not in self.tried[:direct]:
                self.world.violated(f"{url} is avoided, and leads to {', '.join(names)}")
            if fault is not None and url not in self.tried and (up := self.up(url)):
                self.world.violated(f"no answer, though {url} leads to {up[0].name}: {fault.reason}")
        if fault is None and (names := self.endpoints.behind.get(self.tried[-1])):
            self.met[BALANCED if len(names) > 1 else PROXIED] += not self.avoided.isdisjoint(names)


def _answers(world: World, node: SimNode) -> bool:
    return node.present and node.joined and world.agenda.now >= node.paused_until


def published(node: SimNode) -> str:
    """The address that a node publishes; each has a port of its own."""
    return f"{node.place}:{9200 + number_of(node.name)}"


class _Link(EndpointConnection):
    """Connections to one endpoint of the network."""

    def __init__(self, network: Network, endpoint: Endpoint) -> None:
        self.endpoint, self._network = endpoint, network

    def probe(self, *, silence: float | None = None) -> Server | Fault:
        del silence
        self._network.tried.append(self.endpoint.url)
        node = self._network.behind(self.endpoint.url)
        if node is None:
            return self._fault()
        version, address = node.version, published(node)
        return Server(
            distribution="elasticsearch",
            version=version,
            name=node.name,
            address=address,
            node_id=node.node_id,
        )

    def exchange(self, request: HttpRequest) -> Answer | Fault:
        del request
        self._network.tried.append(self.endpoint.url)
        node = self._network.behind(self.endpoint.url)
        return self._fault() if node is None else Answer(status=200, body={}, node=node.name)

    def _fault(self) -> Fault:
        url = self.endpoint.url
        if url in self._network.endpoints.behind:
            access = Access(endpoints=(url,))
            return error_fault(502, "Bad Gateway", url=url, call="GET /_cluster/state", access=access)
        return Fault(reason=f"{url} takes no connections", nothing_done=True, elsewhere=True, passes=True)

    def reconnect(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Client(ElasticsearchClient):
    """The program's client on the network."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network = network
        super().__init__(Access(endpoints=tuple(network.endpoints.behind)), clock=clock)
        world = network.world
        self.learn(
            {
                node.name: Server(
                    distribution="elasticsearch",
                    version=node.version,
                    name=node.name,
                    address=published(node),
                ).member
                for node in world.nodes.values()
            }
        )

    def _connection(self, endpoint: Endpoint) -> EndpointConnection:
        if endpoint not in self._connections:
            self._connections[endpoint] = _Link(self._network, endpoint)
        return self._connections[endpoint]


class Way:
    """The way of one process to the cluster."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network, self._client = network, _Client(network, clock)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """As `ClusterPort.avoid`."""
        self._client.avoid(nodes)
        self._network.avoided = frozenset(nodes)

    def read(self) -> Unknown | None:
        """What a read fails with; None if it gets to a node."""
        fault = self._sent(writes=False)
        return None if fault is None else fault.unknown()

    def write(self) -> Refused | InDoubt | None:
        """The same of a write."""
        fault = self._sent(writes=True)
        if fault is None:
            return None
        return fault.refused() if fault.nothing_done else InDoubt(reason=fault.reason)

    def _sent(self, *, writes: bool) -> Fault | None:
        self._network.tried.clear()
        answer = self._client.write(_REQUEST) if writes else self._client.read(_REQUEST)
        fault = answer if isinstance(answer, Fault) else None
        if not writes:
            self._network.judge(fault)
        return fault
