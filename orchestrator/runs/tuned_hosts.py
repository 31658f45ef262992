"""The hosts that `tune` works on: which nodes, where their hosts are, and whether a run is under way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from orchestrator.config.cluster import ClusterFile
from orchestrator.errors import JournalError, LeaseError, UsageError
from orchestrator.hosts.settings import HostSettings
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.action import ActionResult, HostAction
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, HostFacts
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.policy import Selection
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import HostTuning, TuningProfile
from orchestrator.next_command import next_command
from orchestrator.ports import Clock
from orchestrator.runs.connection import Connection, Process
from orchestrator.runs.file_hosts import host_settings
from orchestrator.runs.from_file import FilePorts, Members
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import StateMissing, StateStore

NEEDS_RESTART: Final = "a running service needs a restart"


class TuningPort(Protocol):
    """What tuning needs of hosts; `Hosts` is one."""

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        """Compare each node's host with a profile, in parallel."""
        ...

    def facts(self, reads: Mapping[NodeName, Reads]) -> Mapping[NodeName, Reading[HostFacts]]:
        """Read the requested facts from each node's host, in parallel."""
        ...

    def perform(self, action: HostAction) -> ActionResult:
        """Make the changes of one tunable, and read each back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedHosts:
    """The hosts that a command works on.

    Attributes:
        cluster: its name.
        nodes: the selected nodes with a known host address.
        addresses: by node, all that are known.
        machines: by node, an id of its machine; nodes that share a machine have the same id.
        unplaced: selected nodes without a known address, each with the reason.
        check_free: raises `LeaseError` while a run holds the cluster.
        command: a command on the same cluster and state, as it can be typed.
        running: how processes that run get what counts at their start.
    """

    clock: Clock
    cluster: str
    port: TuningPort
    nodes: tuple[NodeName, ...]
    addresses: Mapping[NodeName, str]
    machines: Mapping[NodeName, str]
    unplaced: Mapping[NodeName, Unknown] = field(default_factory=dict)
    check_free: Callable[[], None] = lambda: None
    command: Callable[[str], str] = next_command
    running: str = NEEDS_RESTART

    def read(self, profile: TuningProfile) -> Mapping[NodeName, Reading[HostTuning]]:
        """Compare every selected host with a profile."""
        found = self.port.tuning(self.nodes, profile) if self.nodes else {}
        return {**found, **self.unplaced}

    def machine(self, node: NodeName) -> str:
        """The id of a node's machine; without one, the node's name."""
        return self.machines.get(node, node)

    def by_machine(self, nodes: Collection[NodeName]) -> list[tuple[NodeName, ...]]:
        """Nodes that share a machine together."""
        groups: dict[str, list[NodeName]] = {}
        for node in nodes:
            groups.setdefault(self.machine(node), []).append(node)
        return [tuple(group) for group in groups.values()]


def hosts_to_tune(
    connection: Connection,
    ports: FilePorts,
    *,
    only: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    zone: str | None = None,
    known: Mapping[NodeName, str] | None = None,
) -> TunedHosts:
    """Find the nodes and their hosts.

    Args:
        connection: the cluster.
        ports: its ports, from a cluster file.
        only: names and globs of nodes; all when empty.
        exclude: names and globs of nodes to leave out.
        zone: only nodes of this zone; None for any.
        known: nodes that are known from elsewhere, with their addresses.

    Raises:
        OrchestratorError: the cluster is another one, no node is known, or the selection leaves none.
    """
    file, process = ports.file, connection.process
    ports.require_secrets(())
    members = _members(ports, process, known or {})
    nodes = in_zone(ports, select(tuple(members.addresses), only, exclude), zone)
    if members.uuid is not None and isinstance(found := ports.data_paths(nodes), Unknown):
        process.warn(f"where nodes keep their data could not be read: {found.reason}")
    settings = host_settings(file, members.addresses, ports.resolver)
    placed = {
        node: one.address for node, one in settings.items() if one.connect is Connect.LOCAL or one.address
    }
    nowhere = f"its address is not known: name it under `hosts.overrides` in {file.path}"
    return TunedHosts(
        clock=process.clock,
        cluster=file.spec.name,
        port=ports.hosts(placed),
        nodes=tuple(node for node in nodes if node in placed),
        addresses=placed,
        machines={node: _machine(settings[node]) for node in placed},
        unplaced={node: Unknown(reason=f"{node}: {nowhere}") for node in nodes if node not in placed},
        check_free=lambda: _check_free(connection, members.uuid),
        command=connection.on_cluster,
        running=f"for running nodes: `{connection.on_cluster('restart')}`"
        if isinstance(file, ClusterFile)
        else NEEDS_RESTART,
    )


def select(nodes: Collection[NodeName], only: Collection[str], exclude: Collection[str]) -> list[NodeName]:
    """The selected nodes, by name or glob, in order.

    Raises:
        UsageError: a name matches nothing, or none is left.
    """
    names, selection = ", ".join(sorted(nodes)) or "none", Selection(only=tuple(only), exclude=tuple(exclude))
    if strangers := selection.unmatched(nodes):
        raise UsageError(f"no node is called {', '.join(strangers)}; there are {names}")
    found = [node for node in sorted(nodes) if selection.names(node)]
    if not found:
        raise UsageError(f"the selection leaves no node; there are {names}")
    return found


def in_zone(ports: FilePorts, nodes: Collection[NodeName], zone: str | None) -> list[NodeName]:
    """Those of the nodes that are in a zone; all of them without one.

    Raises:
        UsageError: the zones cannot be read, or none of the nodes is in this one.
    """
    if zone is None:
        return [*nodes]
    zones = ports.zones()
    if isinstance(zones, Unknown):
        raise UsageError(f"--zone {zone}: the zones are not known: {zones.reason}")
    found = [node for node in nodes if zones.get(node) == zone]
    if not found:
        there = ", ".join(sorted({*zones.values()}))
        said = f"the zones are {there}" if there else "no node has a zone"
        raise UsageError(f"no selected node is in zone {zone}; {said}")
    return found


def _members(ports: FilePorts, process: Process, known: Mapping[NodeName, str]) -> Members:
    """From the cluster; where it cannot be read or there is none, from its file: hosts are tuned anyway."""
    file, read = ports.file, ports.read_members()
    if not isinstance(read, Unknown):
        addresses = {**known, **read.addresses}
        for warning in file.overrides_without_node(addresses):
            process.warn(warning)
        return replace(read, addresses=addresses)
    named = {
        NodeName(name): address or known.get(NodeName(name), "")
        for name, address in file.named_nodes().items()
    }
    addresses = {**known, **named}
    if not addresses:
        raise UsageError(
            f"cluster {file.spec.name} cannot be read ({read.reason}), and {file.path} names no node under "
            "`hosts.overrides`: it is unknown which hosts are meant"
        )
    process.warn(
        f"cluster {file.spec.name} cannot be read ({read.reason}): the hosts are those that {file.path} "
        "names under `hosts.overrides`"
    )
    return Members(addresses=addresses, uuid=None)


def _machine(settings: HostSettings) -> str:
    if settings.connect is Connect.LOCAL:
        return f"this machine {settings.root}"
    return f"{settings.address}:{settings.port or ''}"


def _check_free(connection: Connection, uuid: str | None) -> None:
    """Check that no run is under way on the cluster, by the leases here and in the cluster itself.

    Raises:
        LeaseError: a run is: with its operator, its begin and its machine.
        JournalError: the leases cannot be read.
    """
    name = connection.ports.name
    try:
        with connection.state(Access.READ) as store:
            records = _leases(store, name, uuid)
    except StateMissing:
        records = []
    if uuid is not None:
        there = connection.ports.lease.read()
        if isinstance(there, Unknown):
            connection.process.warn(
                f"whether another machine's run holds {name} cannot be read: {there.reason}"
            )
        elif there is not None:
            records.append(there)
    for record in records:
        if not connection.process.gone(record.process):
            raise LeaseError(
                f"another run holds the lease on {name}: run {record.run} of {record.owner}, since "
                f"{record.started}; tune when it has ended. If it is dead: "
                f"`{connection.on_cluster('restore')}`"
            )


def _leases(store: StateStore, name: str, uuid: str | None) -> list[LeaseRecord]:
    """Leases on the cluster in the state database; without its uuid, on those that runs of its name had."""
    uuids = (
        {uuid} if uuid is not None else {entry.cluster_uuid for entry in store.runs(cluster=name)} | {name}
    )
    records: list[LeaseRecord] = []
    for each in sorted(uuids):
        found = store.lease(each).read()
        if isinstance(found, Unknown):
            raise JournalError(found.reason)
        if found is not None:
            records.append(found)
    return records
