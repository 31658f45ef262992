"""The composition root: from a cluster file to the ports through which its cluster is reached."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.cli.hosts import host_settings
from orchestrator.cli.riak_runner import HostRunner
from orchestrator.cli.surroundings import Surroundings
from orchestrator.config.cluster import ClusterFile, ClusterSpec, RiakClusterSpec
from orchestrator.config.riak import address_of
from orchestrator.config.secrets import SecretReference, SecretResolver, expand, parse_reference
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.redact import Redactor
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.gate import CommandGate, Gate
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.ports import LeasePort
from orchestrator.runtime.gates.command import Ran
from orchestrator.runtime.gates.port import Gates, asker
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.lease import ElasticsearchLease
from orchestrator.stores.riak.cluster import RiakCluster
from orchestrator.stores.riak.contact import Reach
from orchestrator.stores.riak.lease import NoLease

_KEPT_OF_A_GATE: Final = 4096
"""Bytes of a command's output: one line of it is shown."""


class World:
    """A cluster, reached.

    Attributes:
        file: its cluster file.
        cluster: it as a port.
        lease: the lease in it.
        resolver: where secrets come from.
        redact: takes every secret that was resolved out of what is shown or journalled.
    """

    def __init__(self, file: ClusterFile, around: Surroundings) -> None:
        self.file, self._home = file, around.home
        self.redact = Redactor()
        self.resolver = SecretResolver(
            environment=around.environment,
            folder=file.path.parent,
            home=around.home,
            learn=self.redact.learn,
        )
        self.cluster: ElasticsearchCluster | RiakCluster
        self.lease: LeasePort
        if isinstance(file.spec, ClusterSpec):
            client = ElasticsearchClient(_access(file, file.spec, self.resolver), clock=around.clock)
            self.cluster, self.lease = ElasticsearchCluster(client), ElasticsearchLease(client)
        else:
            file.check_files()
            self.cluster, self.lease = RiakCluster(file.spec.name, self._riak(file.spec)), NoLease()
        self._settings: dict[NodeName, HostSettings] = {}
        self._hosts: Hosts | None = None
        self._gates: Gates | None = None
        self._data: Mapping[NodeName, tuple[str, ...]] = {}

    def hosts(
        self,
        addresses: Mapping[NodeName, str],
        data_paths: Mapping[NodeName, tuple[str, ...]] | None = None,
    ) -> Hosts:
        """The hosts of these nodes and of all that were asked for before; connections are kept.

        A plan is made of the members. A run that first puts back what a dead one left knows of more: of the
        nodes that it left down.

        Args:
            addresses: where the nodes are.
            data_paths: as a run wrote them down when it began: a node that is down tells nobody.
        """
        self._data = {**(data_paths or {}), **self._data}
        settings = host_settings(self.file, addresses, self.resolver)
        self._settings |= {name: self._with_data(one) for name, one in settings.items()}
        if self._hosts is None:
            self._hosts = Hosts(self._settings, redact=self.redact)
        return self._hosts

    def learn_data_paths(self, nodes: Collection[NodeName]) -> str | None:
        """Ask the cluster where these nodes keep their data, for those of which the file does not say.

        To be called before `hosts`. Where it is not known, what concerns disks is unknown.

        Returns:
            Why the cluster could not be asked; None when it could, or nobody has to.
        """
        if all(self.file.host(node).data for node in nodes):
            return None
        told = self.cluster.data_paths()
        if isinstance(told, Unknown):
            return told.reason
        self._data = told
        return None

    @property
    def data_paths(self) -> Mapping[NodeName, tuple[str, ...]]:
        """What `learn_data_paths` learnt."""
        return self._data

    def _with_data(self, settings: HostSettings) -> HostSettings:
        learnt = self._data.get(settings.node, ())
        usable = all(path.startswith("/") and path.isprintable() for path in learnt)
        return replace(settings, data=learnt) if usable and not settings.data else settings

    def _riak(self, spec: RiakClusterSpec) -> Reach:
        """How a Riak cluster is reached: its commands run where its nodes are."""
        tls = spec.tls
        context = ssl.create_default_context(cafile=str(self.file.local_path(tls.ca)) if tls.ca else None)
        if not tls.verify or tls.fingerprint:  # a certificate that is pinned need not be signed by anyone
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if tls.client_cert:
            key = str(self.file.local_path(tls.client_key)) if tls.client_key else None
            context.load_cert_chain(str(self.file.local_path(tls.client_cert)), key)

        def address(node: NodeName) -> str:
            return address_of(node, spec.hosts.nodes)

        return Reach(
            endpoints=spec.endpoints,
            runner=HostRunner(lambda node: self.hosts({node: address(node)})),
            address=address,
            riak=spec.riak.command_words,
            admin=spec.riak.admin_words,
            tls=context,
            fingerprint=tls.fingerprint,
        )

    def members(self, view: ClusterView) -> Mapping[NodeName, str]:
        """Where the nodes of a cluster are; those of a Riak ring that are down among them."""
        addresses = {node.name: node.address for node in view.nodes}
        if isinstance(self.file.spec, RiakClusterSpec) and view.riak is not None:
            ring = view.riak.cluster
            known = () if isinstance(ring, Unknown) else ring.members
            nodes = self.file.spec.hosts.nodes
            addresses = {m.node: address_of(m.node, nodes) for m in known} | addresses
        return addresses

    def gates(self, gates: Sequence[Gate]) -> Gates:
        """The gates of a policy; their secrets are looked up when they are asked first."""
        askers = [asker(self._at_home(gate), secrets=self._secret, run=_run) for gate in gates]
        self._gates = Gates(askers, redact=self.redact)
        return self._gates

    def require_secrets(self, references: Iterable[SecretReference]) -> None:
        """See that the secrets of gates are there, before anything is begun.

        Raises:
            ConfigError: one is not; the reference and its place are named.
        """
        for reference in references:
            self.resolver.resolve(reference)

    def _secret(self, reference: str) -> str:
        return self.resolver.resolve(parse_reference(reference)).reveal()

    def _at_home(self, gate: Gate) -> Gate:
        """The gate with `~` in a path as it is for this account."""
        if isinstance(gate, CommandGate) or gate.at.ca is None:
            return gate
        ca = str(expand(gate.at.ca, folder=self.file.path.parent, home=self._home))
        return replace(gate, at=replace(gate.at, ca=ca))

    def close(self) -> None:
        """Give every connection back."""
        if self._gates is not None:
            self._gates.close()
        if self._hosts is not None:
            self._hosts.close()
        self.cluster.close()


def _run(command: str, timeout: Seconds) -> Reading[Ran]:
    """Run a gate's command on this machine, as hooks with `local: true` are run."""
    done = LocalConnection().run(command, timeout=timeout, keep=_KEPT_OF_A_GATE)
    if isinstance(done, CommandResult):
        return Ran(exit=done.exit, output=f"{done.stdout}\n{done.stderr}")
    return Unknown(reason=done.reason)


def _access(file: ClusterFile, spec: ClusterSpec, resolver: SecretResolver) -> Access:
    file.check_files()
    auth, tls = spec.auth, spec.tls
    key = auth.api_key if auth else None
    basic = auth.basic if auth else None
    return Access(
        endpoints=tuple(spec.endpoints),
        api_key=resolver.resolve(key).reveal() if key else None,
        username=basic.username if basic else None,
        password=resolver.resolve(basic.password).reveal() if basic else None,
        ca=str(file.local_path(tls.ca)) if tls.ca else None,
        verify=tls.verify,
        client_cert=str(file.local_path(tls.client_cert)) if tls.client_cert else None,
        client_key=str(file.local_path(tls.client_key)) if tls.client_key else None,
        fingerprint=tls.fingerprint,
    )
