"""From a cluster file to a connection: cluster, hosts, gates, lease and secrets as in the file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from orchestrator.around.ways import RunContext
from orchestrator.config.around import Around
from orchestrator.config.cluster import (
    ClusterFile,
    HostsFile,
    HostsFileSpec,
    load_hosts,
    of_cluster,
)
from orchestrator.config.gates import secrets_in
from orchestrator.config.lookup import KindOfFile, Places, find, is_path, standard_places
from orchestrator.config.playbook import Playbook, around_in, load_playbook
from orchestrator.config.policy import Overrides, build_policy, profile_wanted, require_kind, require_playbook
from orchestrator.config.secrets import Scheme, SecretReference, SecretResolver, expand, parse_reference
from orchestrator.config.tuning import load_profile
from orchestrator.elasticsearch.access import OnlyThrough
from orchestrator.elasticsearch.rules.settings import awareness_of
from orchestrator.errors import ConfigError, OrchestratorError, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.gate import CommandGate, Gate
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.merging import Resolution
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.policy import HostChanges, Policy
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import TuningProfile
from orchestrator.ports import Clock, ClusterLeasePort
from orchestrator.redact import Redactor
from orchestrator.runs.connection import (
    ClusterPorts,
    Connection,
    DataPaths,
    PolicySource,
    Process,
    Threads,
)
from orchestrator.runs.kinds import PORTS, PortsOfKind, ReachedCluster, WayToCluster
from orchestrator.runs.reach import (
    access_to,
    host_changes,
    host_settings,
    run_here,
    run_with_input,
)
from orchestrator.runs.report import named_page, write_at_end
from orchestrator.runs.selection import predicate_names, require_cluster
from orchestrator.runtime.database import DatabaseUse, named_state
from orchestrator.runtime.gates import Gates, asker
from orchestrator.runtime.identity import host_name, operator_name
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock
from orchestrator.tuning.registry import RULES
from orchestrator.tuning.tuner import TunableHosts

_log = logging.getLogger("orchestrator.runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where cluster files, playbooks and tuning profiles are looked up."""

    environment: Mapping[str, str]
    home: Path
    warn: Callable[[str], None]  # receives what is odd in a cluster file

    @property
    def places(self) -> Places:
        """Where names are looked up."""
        return standard_places(self.environment, home=self.home)

    def cluster(self, name: str) -> ClusterFile:
        """Read the file of a cluster, of that name or path.

        Raises:
            ConfigError: it cannot be found or is wrong.
            UsageError: it names hosts without a cluster.
        """
        return of_cluster(self.hosts(name))

    def hosts(self, name: str) -> HostsFile:
        """Read the cluster file of that name or path, of any kind; raises as `cluster`, but for that."""
        file = load_hosts(find(KindOfFile.CLUSTER, name, self.places), home=self.home)
        for warning in map(str, file.warnings):
            self.warn(warning)
        return file

    def playbook(self, name: str) -> Playbook:
        """Read the playbook of that name or path.

        Raises:
            ConfigError: it cannot be found or is wrong.
        """
        return load_playbook(find(KindOfFile.PLAYBOOK, name, self.places))

    def tuning_profile(self, name: str) -> TuningProfile:
        """Read the tuning profile of that name or path.

        Raises:
            ConfigError: it cannot be found or is wrong.
        """
        return load_profile(find(KindOfFile.TUNING, name, self.places), rules=RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The nodes of a cluster, as far as they are known."""

    addresses: Mapping[NodeName, str]  # by node; empty if unknown
    uuid: str | None = None  # the cluster's; None without a cluster, or where it could not be read
    unread: Unknown | None = None  # why the cluster could not be read


class FilePorts(ClusterPorts):
    """`ClusterPorts` as a cluster file describes them.

    Of a file of hosts without a cluster, the members that need one raise `UsageError`.

    Attributes:
        file: the cluster file.
        resolver: where secrets come from.
        redact: takes every secret that was resolved out of what is shown or journalled.
    """

    def __init__(self, file: HostsFile, files: Files, clock: Clock, redact: Redactor | None = None) -> None:
        self.file, self._files, self._clock = file, files, clock
        self.redact = redact or Redactor()
        self.resolver = SecretResolver(
            environment=files.environment, folder=file.path.parent, home=files.home, learn=self._learn
        )
        self._settings: dict[NodeName, HostSettings] = {}
        self._hosts: TunableHosts | None = None
        self._gates: Gates | None = None
        self._data: DataPaths = {}
        self._books: dict[str, Playbook] = {}

    def _learn(self, secret: str) -> None:
        """A secret from now on; of `user:password`, the password alone is one too."""
        self.redact.learn(secret)
        self.redact.learn(secret.partition(":")[2])

    @cached_property
    def _kind(self) -> PortsOfKind:
        file = self._of_cluster
        return PORTS[file.spec.kind](
            WayToCluster(
                file=file, resolver=self.resolver, clock=self._clock, redact=self.redact, hosts=self.hosts
            )
        )

    @cached_property
    def cluster(self) -> ReachedCluster:
        """The cluster's API.

        Raises:
            ConfigError: a file or secret that the connection needs is missing.
        """
        return self._kind.cluster

    @cached_property
    def lease(self) -> ClusterLeasePort:
        """The lease in the cluster."""
        return self._kind.lease

    @property
    def _of_cluster(self) -> ClusterFile:
        """The cluster file; raises `UsageError` if it has no cluster."""
        return of_cluster(self.file)

    @property
    def name(self) -> str:
        """The name that the cluster must report."""
        return self.file.spec.name

    @property
    def source(self) -> str:
        """The path of the cluster file."""
        return str(self.file.path)

    @property
    def cluster_file(self) -> str:
        """The same, resolved."""
        return str(self.file.path.resolve())

    def access(self, nodes: Collection[NodeName]) -> Mapping[str, str]:
        """How the file says that cluster and hosts are reached, by key."""
        return access_to(self._of_cluster, nodes)

    def resolve(self, patterns: Sequence[str]) -> Reading[Resolution]:
        """The indices that these patterns match."""
        return self.cluster.resolve(patterns)

    def policy(self, playbook: str | None, overrides: Overrides) -> PolicySource:
        """Read playbook and tuning profile, and check what can be checked without the cluster.

        Raises:
            OrchestratorError: a file or a flag is wrong.
        """
        file = self._of_cluster
        book = self._files.playbook(playbook or file.spec.playbook)
        require_playbook(file, book)
        self._books[book.name] = book
        wanted = profile_wanted(file, book, overrides)
        tuning = self._files.tuning_profile(wanted) if wanted else None

        def build(nodes: int | None) -> Policy:
            policy = build_policy(
                file,
                book,
                overrides,
                predicates=predicate_names(file.spec.kind),
                nodes=nodes,
                now=self._clock.now(),
                tuning=tuning,
            )
            # Free text of a person, for the journal and for all who read it.
            return replace(policy, reason=policy.reason and self.redact(policy.reason))

        build(None)  # a wrong flag is reported before the cluster is read
        secrets = secrets_in(book.spec.gates, book.path.resolve().parent)
        return PolicySource(build=build, secrets=tuple(secrets))

    def around(self, playbook: str) -> tuple[Around, RunContext] | None:
        """What surrounds a run with the playbook of this name, from the files of today; None if nothing does.

        Raises:
            UsageError: the file has no cluster.
        """
        around = around_in(self._of_cluster, self._book(playbook))
        if around.empty:
            return None
        return around, self.run_context

    @property
    def run_context(self) -> RunContext:
        """What messages about this cluster need of the program."""
        return RunContext(
            resolve=lambda reference: self.resolver.resolve(reference).reveal(),
            learn=self.redact.learn,
            redact=self.redact,
            run_command=run_with_input,
            cluster=self.name,
            run="",
        )

    def _book(self, name: str) -> Playbook | None:
        """The playbook of a run: as it was read for it, else that of the cluster file, or of this name."""
        own = self._of_cluster.spec.playbook
        for wanted in (own, *([] if is_path(name) else [name])):
            if name in self._books:
                break
            with suppress(ConfigError):
                book = self._files.playbook(wanted)
                self._books[book.name] = book
        if name not in self._books:
            self._files.warn(f"there is no playbook {name} any more: its `notify` and run hooks are not used")
        return self._books.get(name)

    def tuning_profile(self, named: str | None) -> TuningProfile:
        """The wanted tuning profile: the named one, the playbook's, or that of the cluster's kind.

        Of hosts without a cluster: the named one or the file's, for any kind of store.

        Raises:
            ConfigError: it cannot be found or is wrong.
            UsageError: it is for another kind of store, or none is named for hosts without a cluster.
        """
        if isinstance(self.file.spec, HostsFileSpec):
            return self._files.tuning_profile(named or _profile_of(self.file.spec, self.file.path))
        file = self._of_cluster
        playbook = self._files.playbook(file.spec.playbook)
        require_playbook(file, playbook)
        profile = self._files.tuning_profile(named or playbook.spec.tune or file.spec.kind.value)
        require_kind(file, profile)
        return profile

    def warnings_for(self, nodes: Collection[NodeName]) -> Sequence[str]:
        """Overrides in the file that match none of these nodes."""
        return self.file.overrides_without_node(nodes)

    def dead_endpoints(self) -> Sequence[str]:
        """What is wrong with each endpoint that does not answer, if there are several. Asks each of them."""
        several = len(self._of_cluster.spec.endpoints) > 1
        return [wrong for wrong in self.cluster.endpoints().values() if wrong] if several else []

    def only_through(self, together: Iterable[Collection[NodeName]]) -> OnlyThrough | None:
        """The nodes through which alone the cluster can be reached from here, if they go down `together`."""
        return self.cluster.only_through(together)

    def hosts(self, addresses: Mapping[NodeName, str], data_paths: DataPaths | None = None) -> TunableHosts:
        """The hosts of these nodes and of all nodes of earlier calls."""
        self._data = {**(data_paths or {}), **self._data}
        settings = host_settings(self.file, addresses, self.resolver)
        self._settings |= {name: self._with_data(one) for name, one in settings.items()}
        self._hosts = self._hosts or TunableHosts(self._settings, redact=self.redact)
        return self._hosts

    def changes(
        self, addresses: Mapping[NodeName, str], files: Sequence[str], *, reboot: bool
    ) -> Mapping[NodeName, Reading[HostChanges]]:
        """Read what has changed on the hosts of these nodes."""
        return host_changes(self.hosts(addresses), addresses, files, reboot=reboot)

    def data_paths(self, nodes: Collection[NodeName]) -> Reading[DataPaths]:
        """Read where these nodes keep their data, unless the file names it for all of them."""
        if all(self.file.host(node).data is not None for node in nodes):
            return self._data
        if not isinstance(found := self.cluster.data_paths(), Unknown):
            self._data = found
        return found

    def _with_data(self, settings: HostSettings) -> HostSettings:
        learnt = self._data.get(settings.node, ())
        usable = all(path.startswith("/") and path.isprintable() for path in learnt)
        return replace(settings, data=learnt) if usable and settings.data is None else settings

    def learn_secrets(self, references: Iterable[SecretReference]) -> None:
        """Have `redact` remove these secrets and those of the file that can be read without a command.

        A command may ask a person for a password, and what it prints is in no journal.
        """
        for reference in (*self.file.secret_references(), *references):
            if reference.scheme is not Scheme.COMMAND:
                with suppress(ConfigError):
                    self._secret(str(reference))

    def known_members(self, known: Mapping[NodeName, str] | None = None) -> Members:
        """The nodes of the cluster; where it cannot be read or there is none, those that the file names.

        Args:
            known: nodes that are known from elsewhere, with their addresses.

        Raises:
            UsageError: another cluster answers at the endpoints.
            ConfigError: a file or secret that the connection needs is missing.
        """
        known, uuid = known or {}, None
        found: Mapping[NodeName, str] = {
            NodeName(name): address for name, address in self.file.named_nodes().items()
        }
        if isinstance(self.file, ClusterFile):
            read = self.cluster.observe({Look.CLUSTER}).cluster
            if isinstance(read, Unknown):
                found = {node: address or known.get(node, "") for node, address in found.items()}
                return Members(addresses={**known, **found}, unread=read)
            view = require_cluster(read, self.file.spec.name, str(self.file.path))
            found, uuid = self.members(view), view.uuid
        else:
            self.file.check_files()
        addresses = {**known, **found}
        for warning in self.file.overrides_without_node(addresses):
            self._files.warn(warning)
        return Members(addresses=addresses, uuid=uuid)

    def zones(self) -> Reading[Mapping[NodeName, str]]:
        """The zone of each node that has one; of hosts without a cluster, their groups."""
        spec = self.file.spec
        if isinstance(spec, HostsFileSpec):
            return {NodeName(name): host.group for name, host in spec.hosts.names.items() if host.group}
        read = self.cluster.observe({Look.CLUSTER, Look.SETTINGS})
        attribute = spec.zones_by()
        if attribute is None:
            if isinstance(read.settings, Unknown):
                return read.settings
            attribute, _ = awareness_of(read.settings)
        if isinstance(read.cluster, Unknown):
            return read.cluster
        return {node.name: zone for node in read.cluster.nodes if (zone := node.zone(attribute))}

    def members(self, view: ClusterView) -> Mapping[NodeName, str]:
        """The addresses of the nodes, including nodes of a Riak ring that are down."""
        return self._kind.members(view)

    def gates(self, gates: Sequence[Gate]) -> Gates:
        """The gates of a policy; their secrets are looked up at the first reading."""
        ask = partial(asker, secrets=self._secret, run=run_here, redact=self.redact.without_known)
        self._gates = Gates([ask(self._at_home(gate)) for gate in gates], redact=self.redact)
        return self._gates

    def secret_files(self, references: Iterable[SecretReference]) -> Sequence[Path]:
        """The files that hold these secrets or those of the cluster file, each once."""
        named = (self.resolver.path(one) for one in (*self.file.secret_references(), *references))
        return tuple(dict.fromkeys(path for path in (*named, self.file.private_key()) if path is not None))

    def require_secrets(self, references: Iterable[SecretReference]) -> None:
        """See that these secrets, and the sudo passwords of the file, are there before anything is begun.

        Raises:
            ConfigError: one is not; the reference and its place are named.
        """
        for reference in (*self.file.sudo_passwords(), *references):
            self.resolver.resolve(reference)

    def _secret(self, reference: str) -> str:
        """The secret of a gate."""
        return self.resolver.resolve(parse_reference(reference)).reveal()

    def _at_home(self, gate: Gate) -> Gate:
        """The gate, with `~` in a path expanded for this account."""
        if isinstance(gate, CommandGate) or gate.at.ca is None:
            return gate
        ca = str(expand(gate.at.ca, folder=self.file.path.parent, home=self._files.home))
        return replace(gate, at=replace(gate.at, ca=ca))

    def close(self) -> None:
        """Close every connection."""
        for port in (self._gates, self._hosts):
            if port is not None:
                port.close()
        if "cluster" in self.__dict__:
            self.cluster.close()


def _profile_of(spec: HostsFileSpec, path: Path) -> str:
    """The profile in a file of hosts without a cluster; raises `UsageError` if it names none."""
    if spec.tune is None:
        raise UsageError(
            f"{path}: no tuning profile is named: hosts without a cluster have no default; name one with"
            " --profile, or as `tune` in this file"
        )
    return spec.tune


def connection_to(ports: FilePorts, files: Files, process: Process, state: str | None) -> Connection:
    """A connection over ports of a cluster file.

    Args:
        ports: closed with the connection.
        files: has the environment and home in which the state is looked up.
        process: this process.
        state: URL of the state database; None looks in the usual places.
    """

    def ended(run: str) -> None:
        write_at_end(connection, run, ports.redact)

    def page(run: str) -> str:
        with suppress(OrchestratorError, OSError), connection.state(DatabaseUse.READ) as store:
            return named_page(store, run, files.home)
        return ""

    connection = Connection(
        ports=ports,
        process=replace(process, ended=ended, page=page),
        state=lambda access: open_store(state, files.environment, access=access, home=files.home),
        kept_in=named_state(state, files.environment),
    )
    return connection


def connect(
    cluster_file: str | Path, *, state: str | None = None, tell: Callable[[str], None] | None = None
) -> Connection:
    """Connect to the cluster of a cluster file. The cluster is not read yet.

    Args:
        cluster_file: name or path, as after `--cluster`. Of hosts without a cluster, for `tune` alone.
        state: where journals are kept, as after `--state`; None looks in the usual places.
        tell: receives warnings and notes, one line each; None logs them.

    Returns:
        What `plan`, `restart`, `resume`, `restore` and `rehearse` take. Close it, or use it in a `with`.

    Raises:
        ConfigError: the file cannot be found or is wrong.
    """
    clock, said = SystemClock(), tell or _log.info
    process = Process(
        clock=clock,
        operator=operator_name(os.environ),
        host=host_name(),
        background=Threads(clock),
        wake=clock.wake,
        tell=said,
    )
    files = Files(environment=os.environ, home=Path.home(), warn=process.warn)
    return connection_to(FilePorts(files.hosts(str(cluster_file)), files, clock), files, process, state)
