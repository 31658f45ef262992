"""How a cluster of each kind is reached, by its file: the one place where their ports are listed."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from orchestrator.config.cluster import ClusterFile
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.config.reaching import TlsSpec
from orchestrator.config.riak import RiakClusterSpec
from orchestrator.config.secrets import SecretResolver
from orchestrator.elasticsearch.access import OnlyThrough
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.errors import ConfigError
from orchestrator.hosts.port import Hosts
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.merging import Resolution
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Reading, Unknown
from orchestrator.ports import Clock, ClusterLeasePort, ClusterPort
from orchestrator.redact import Redactor
from orchestrator.riak.admin import Programs
from orchestrator.riak.cluster import RiakCluster
from orchestrator.riak.contact import Reach
from orchestrator.riak.lease import RiakLease
from orchestrator.riak.lease_files import Folder
from orchestrator.runs.reach import HostRunner, access_of, renewal_of
from orchestrator.tls import tls_context


class ReachedCluster(ClusterPort, Protocol):
    """A cluster that is reached over a network."""

    def endpoints(self) -> Mapping[str, str | None]:
        """What is wrong with each endpoint; None if it answers."""
        ...

    def only_through(self, together: Iterable[Collection[NodeName]]) -> OnlyThrough | None:
        """The nodes through which alone the cluster can be reached from here, if they go down `together`."""
        ...

    def data_paths(self) -> Reading[Mapping[NodeName, tuple[str, ...]]]:
        """Where each node keeps its data."""
        ...

    def resolve(self, patterns: Sequence[str]) -> Reading[Resolution]:
        """The indices that these patterns match."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WayToCluster:
    """What the file and the process give to reach the cluster."""

    file: ClusterFile
    resolver: SecretResolver
    clock: Clock
    redact: Redactor
    hosts: Callable[[Mapping[NodeName, str]], Hosts]  # the hosts of these nodes, by address


class PortsOfKind(ABC):
    """The ports to a cluster of one kind. Each is made when it is first used.

    Args:
        way: what they are made from.
    """

    def __init__(self, way: WayToCluster) -> None:
        self._way = way

    @property
    @abstractmethod
    def cluster(self) -> ReachedCluster:
        """The cluster's API; raises `ConfigError` if a file or secret that it needs is missing."""

    @property
    def lease(self) -> ClusterLeasePort:
        """The lease in the cluster; raises `ConfigError` of a kind that has none there."""
        kind = self._way.file.spec.kind
        raise ConfigError(f"a cluster of kind `{kind}` keeps no lease: write `lease: state` in its playbook")

    def members(self, view: ClusterView) -> Mapping[NodeName, str]:
        """The addresses of the nodes, including those that are known to be down."""
        return {node.name: node.address for node in view.nodes}


class PortsOfElasticsearch(PortsOfKind):
    """One client for cluster and lease."""

    @cached_property
    def cluster(self) -> ElasticsearchCluster:
        """The cluster's API, over HTTP."""
        return ElasticsearchCluster(self._client)

    @cached_property
    def lease(self) -> ElasticsearchLease:
        """The lease in the cluster state."""
        return ElasticsearchLease(self._client)

    @cached_property
    def _client(self) -> ElasticsearchClient:
        way, spec = self._way, self._way.file.spec
        assert isinstance(spec, ClusterSpec)  # noqa: S101  (by the table below)
        access = access_of(way.file, spec, way.resolver)
        renewal = renewal_of(spec, way.resolver)
        return ElasticsearchClient(access, clock=way.clock, redact=way.redact, renewal=renewal)


class PortsOfRiak(PortsOfKind):
    """Commands on the machines of the nodes, and their HTTP ports."""

    def __init__(self, way: WayToCluster) -> None:
        super().__init__(way)
        assert isinstance(way.file.spec, RiakClusterSpec)  # noqa: S101  (by the table below)
        self._spec = way.file.spec
        self._runner = HostRunner(lambda node: way.hosts({node: self._address(node)}))

    @cached_property
    def cluster(self) -> RiakCluster:
        """The cluster's API, by its commands."""
        self._way.file.check_files()
        return RiakCluster(self._spec.name, self.reach)

    @cached_property
    def lease(self) -> RiakLease:
        """The lease in files on the hosts."""
        folder = Folder(path=self._spec.riak.lease_directory, cluster=self._spec.name)
        return RiakLease(self._runner, lambda: self.cluster.members(), folder)  # noqa: PLW0108  (made when asked)

    @property
    def reach(self) -> Reach:
        """Its commands run where its nodes are."""
        return Reach(
            endpoints=self._spec.endpoints,
            runner=self._runner,
            address=self._address,
            machine=self._machine,
            programs=self._programs,
            tls=self._tls(self._spec.tls),
            fingerprint=self._spec.tls.fingerprint,
            redact=self._way.redact.without_known,
        )

    def _machine(self, node: NodeName) -> str:
        """A name for a node's machine: nodes with the same one share it."""
        host = self._way.file.host(node)
        return "this machine" if host.connect is Connect.LOCAL else host.address

    def _programs(self, node: NodeName) -> Programs:
        """Riak's commands on a node's machine."""
        words = self._way.file.riak_words(node)
        assert words is not None  # noqa: S101  (the file is one of a Riak cluster)
        return Programs(riak=words.command, admin=words.admin)

    def _tls(self, tls: TlsSpec) -> ssl.SSLContext:
        """The TLS of the HTTPS ports."""
        path = self._way.file.local_path
        context = tls_context(
            ca=str(path(tls.ca)) if tls.ca else None,
            verify=tls.verify and tls.fingerprint is None,
            strict=tls.strict,
        )
        if tls.client_cert:
            key = str(path(tls.client_key)) if tls.client_key else None
            context.load_cert_chain(str(path(tls.client_cert)), key)
        return context

    def members(self, view: ClusterView) -> Mapping[NodeName, str]:
        """With the members of the ring that are down."""
        ring = view.riak.cluster if view.riak is not None else None
        known = () if ring is None or isinstance(ring, Unknown) else ring.members
        return {member.node: self._address(member.node) for member in known} | {**super().members(view)}

    def _address(self, node: NodeName) -> str:
        """The address of a node's machine, as the file has it: for SSH and for HTTP."""
        return self._way.file.host(node).address


PORTS: Final[Mapping[Kind, Callable[[WayToCluster], PortsOfKind]]] = {
    Kind.ELASTICSEARCH: PortsOfElasticsearch,
    Kind.RIAK: PortsOfRiak,
}
