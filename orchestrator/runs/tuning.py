"""Tuning of hosts without a restart: which hosts, and changes made and undone, each in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from orchestrator.config.cluster import ClusterFile
from orchestrator.daemons import in_parallel
from orchestrator.errors import JournalError, UsageError
from orchestrator.model.action import ActionResult, Done, HostAction, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, HostFacts
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.policy import Selection
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.model.tuning import HostTuning, TunableState, TuningProfile
from orchestrator.model.work_event import TuningApplied, TuningMissed
from orchestrator.next_command import next_command
from orchestrator.ports import Clock
from orchestrator.runs.connection import Connection, Process
from orchestrator.runs.from_file import FilePorts, Members
from orchestrator.runs.reach import host_settings
from orchestrator.runtime.lease import ClusterHolder
from orchestrator.runtime.ledger import Ledger, OwedChange, Tuning
from orchestrator.runtime.store import StateStore
from orchestrator.tuning.boot import is_part, is_shared
from orchestrator.tuning.tunable import FactReads
from orchestrator.tuning.undoing import Back, Ours, Standing, again, rank, reads_for, standing, whole
from orchestrator.view.text import counted

NEEDS_RESTART: Final = "a running service needs a restart"


class TuningPort(Protocol):
    """What tuning needs of hosts; `Hosts` is one."""

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        """Compare each node's host with a profile, in parallel."""
        ...

    def facts(self, reads: Mapping[NodeName, FactReads]) -> Mapping[NodeName, Reading[HostFacts]]:
        """Read the requested facts from each node's host, in parallel."""
        ...

    def perform(self, action: HostAction) -> ActionResult:
        """Make the changes of one tunable, and read each back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedHosts:
    """The hosts that a command works on."""

    clock: Clock
    cluster: str  # its name
    port: TuningPort
    nodes: tuple[NodeName, ...]  # the selected nodes with a known host address
    addresses: Mapping[NodeName, str]  # by node, all that are known
    # by node, an id of its machine; nodes that share a machine have the same id
    machines: Mapping[NodeName, str]
    # selected nodes without a known address, each with the reason
    unplaced: Mapping[NodeName, Unknown] = field(default_factory=dict)
    check_free: Callable[[], None] = lambda: None  # raises `LeaseError` while a run holds the cluster
    # a command on the same cluster and state, as it can be typed
    command: Callable[[str], str] = next_command
    running: str = NEEDS_RESTART  # how processes that run get what counts at their start

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
    expected = file.spec.expect.nodes if isinstance(file, ClusterFile) else None
    if expected is not None and members.uuid is not None and len(members.addresses) < expected:
        few = f"{counted(len(members.addresses), 'node')} known, {expected} expected (`expect.nodes`)"
        process.warn(f"{few}: the hosts of nodes that are down are not among these")
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
        one = "; name one" if "," in zone else ""
        raise UsageError(f"no selected node is in zone {zone}; {said}{one}")
    return found


def _members(ports: FilePorts, process: Process, known: Mapping[NodeName, str]) -> Members:
    """From the cluster; where it cannot be read or there is none, from its file: hosts are tuned anyway."""
    file = ports.file
    members = ports.known_members(known)
    unread = members.unread
    if unread is None:
        return members
    if not members.addresses:
        raise UsageError(
            f"cluster {file.spec.name} cannot be read ({unread.reason}), and {file.path} names no node under "
            "`hosts.overrides`: it is unknown which hosts are meant"
        )
    process.warn(
        f"cluster {file.spec.name} cannot be read ({unread.reason}): the hosts are those that {file.path} "
        "names under `hosts.overrides`"
    )
    return members


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
    records = connection.recorded(lambda store: _leases(store, name, uuid), list[LeaseRecord]())
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
            advice = f"tune when it has ended. If it is dead: `{connection.on_cluster('restore')}`"
            raise ClusterHolder.of(name, record, alive=connection.process.alive).refusal(advice=advice)


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


Found = Mapping[NodeName, Reading[HostTuning]]
"""The state of hosts compared with a profile."""

Owed = Mapping[str, tuple[OwedChange, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """One subject that is still to be undone, and its state on the host."""

    node: NodeName
    owed: OwedChange
    standing: Reading[Standing]
    reached: bool = True  # False when the host could not be read at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The result of undoing one subject; `result` is None when it was not begun."""

    debt: Debt
    result: ActionResult | None


NO_LIMIT: Final[Seconds] = 24 * 3600.0
"""For all hosts together: each call is bounded by itself, and a change under way is never abandoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The result of the changes of one tunable on one host."""

    node: NodeName
    state: TunableState
    result: ActionResult

    @property
    def failed(self) -> bool:
        """Whether it is not confirmed as done."""
        return not isinstance(self.result, Done)

    @property
    def event(self) -> TuningApplied | TuningMissed:
        """The same as an event."""
        node, state = self.node, self.state
        if isinstance(self.result, Done):
            return TuningApplied(node=node, tunable=state.tunable, found=state.former, wanted=state.wanted)
        return TuningMissed(
            node=node, tunable=state.tunable, why=self.result.reason, on_failure=state.on_failure
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Everything that was begun."""

    made: tuple[Made, ...]
    # tunables that were not begun, because of a signal or of a state that cannot be written
    left_out: int = 0
    broken: JournalError | None = None  # why the ledger could not be written; nothing was changed after that


def agreed(shown: Found, now: Found) -> Found:
    """Changes that were shown and still apply: a host may have changed during the question."""
    kept: dict[NodeName, HostTuning | Unknown] = {}
    for node, tuning in now.items():
        before = shown.get(node)
        if isinstance(tuning, Unknown) or not isinstance(before, HostTuning):
            kept[node] = tuning if isinstance(tuning, Unknown) else HostTuning(states=())
        else:
            asked_for = [(state.tunable, state.changes) for state in before.drifted]
            same = tuple(state for state in tuning.drifted if (state.tunable, state.changes) in asked_for)
            kept[node] = HostTuning(states=same)
    return kept


class _Begins:
    """Whether a further change may begin: not after a signal, nor once the ledger could not be written.

    Args:
        stop: whether there was a signal.
    """

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self.broken: JournalError | None = None

    def __bool__(self) -> bool:
        return self.broken is None and not self._stop()

    def after(self, write: Callable[[], None]) -> bool:
        """Write to the ledger; False, and no further change begins, if that fails."""
        try:
            write()
        except JournalError as error:
            self.broken = error
            return False
        return True


def make(
    where: TunedHosts,
    profile: TuningProfile,
    ledger: Ledger,
    found: Found,
    *,
    operator: str,
    stop: Callable[[], bool],
) -> Making:
    """Make the changes that hosts need; machines in parallel, the nodes of one machine one after the other.

    Args:
        where: the hosts.
        profile: for a second reading of machines with several nodes.
        ledger: written before each change.
        found: the hosts as they were read.
        operator: for the ledger.
        stop: whether to begin nothing more.
    """
    wanted = {node: states for node in found if (states := _drifted(found, node))}
    begins = _Begins(stop)

    def tune(node: NodeName, states: Sequence[TunableState]) -> list[Made]:
        done: list[Made] = []
        for state in states:
            planned = Tuning(
                node=node,
                tunable=state.tunable,
                changes=state.changes,
                operator=operator,
                address=where.addresses.get(node, ""),
            )
            if not (begins and begins.after(partial(ledger.record, planned, where.clock.now()))):
                break
            action = TuneHost(
                node=node,
                tunable=state.tunable,
                changes=state.changes,
                found=state.running,
                wanted=state.wanted,
            )
            done.append(Made(node=node, state=state, result=where.port.perform(action)))
        return done

    def work(nodes: Sequence[NodeName]) -> tuple[list[Made], int]:
        """The nodes of one machine; each after the first is read again, for its host has changed since."""
        done, left_out = list[Made](), 0
        for place, node in enumerate(nodes):
            states: Sequence[TunableState] = wanted[node]
            if place > 0 and begins:
                again = where.port.tuning([node], profile)[node]
                if isinstance(again, Unknown):
                    why = Refused(reason=again.reason)
                    done += [Made(node=node, state=state, result=why) for state in states]
                    continue
                names = {state.tunable for state in states}
                states = [state for state in again.drifted if state.tunable in names]
            made = tune(node, states)
            done, left_out = done + made, left_out + len(states) - len(made)
        return done, left_out

    machines = {nodes: partial(work, nodes) for nodes in where.by_machine(wanted)}
    results = in_parallel(machines, timeout=NO_LIMIT).values()
    made = sorted((one for some, _ in results for one in some), key=lambda one: one.node)
    return Making(made=tuple(made), left_out=sum(left for _, left in results), broken=begins.broken)


def _drifted(found: Found, node: NodeName) -> tuple[TunableState, ...]:
    tuning = found[node]
    return () if isinstance(tuning, Unknown) else tuning.drifted


def look(where: TunedHosts, owed: Owed) -> list[Debt]:
    """Read the hosts, each machine once, and compare them with the changes to undo."""
    spokesmen: dict[str, NodeName] = {}
    for machine, some in owed.items():
        names = [node for one in some for node in one.nodes]
        spokesmen[machine] = next((node for node in names if node in where.nodes), names[0])
    reads = {
        node: reads_for([one.wrote[0] for one in owed[machine]])
        for machine, node in spokesmen.items()
        if node in where.nodes
    }
    facts = where.port.facts(reads) if reads else {}
    debts: list[Debt] = []
    for machine, node in spokesmen.items():
        read = facts.get(node) or where.unplaced.get(node) or Unknown(reason=f"the host of {node} is unknown")
        in_order = sorted(owed[machine], key=lambda one: rank(one.wrote[0]))
        if isinstance(read, Unknown):
            debts += [Debt(node=node, owed=one, standing=read, reached=False) for one in in_order]
            continue
        # A part that another state database found stays with the text that it has there.
        parts = {one.subject for one in in_order if is_part(first := one.wrote[0]) and first.found is None}
        found = whole([(one.wrote[0], standing(read, one.undoing, parts=parts)) for one in in_order])
        debts += [Debt(node=node, owed=one, standing=each) for one, each in zip(in_order, found, strict=True)]
    return debts


def selected(owed: Owed, nodes: Collection[NodeName]) -> Owed:
    """The changes of these nodes. What all nodes of a host share stays as long as another one needs it."""
    found: dict[str, tuple[OwedChange, ...]] = {}
    for machine, some in owed.items():
        meant = [one for one in some if any(node in nodes for node in one.nodes)]
        if any(is_part(one.wrote[0]) for one in some if one not in meant):
            meant = [one for one in meant if not is_shared(one.wrote[0])]
        if meant:
            found[machine] = tuple(meant)
    return found


def still_agreed(shown: Sequence[Debt], now: Sequence[Debt]) -> list[Debt]:
    """The changes that were agreed to. If the host's state has changed since, the change becomes unknown."""
    agreed = {(debt.node, debt.owed.subject): debt.standing for debt in shown}
    later = Unknown(reason="it changed after the question was shown; run the command again")
    return [
        Debt(node=debt.node, owed=debt.owed, standing=later)
        if isinstance(debt.standing, Ours) and agreed.get((debt.node, debt.owed.subject)) != debt.standing
        else debt
        for debt in now
    ]


def undo(
    where: TunedHosts, ledger: Ledger, debts: Sequence[Debt], *, operator: str, stop: Callable[[], bool]
) -> tuple[list[Undone], JournalError | None]:
    """Undo subjects that have our values, in order on each machine; record restored subjects as undone.

    Returns:
        All subjects with their results; and why the ledger could not be written: then no more was undone.
    """
    begins = _Begins(stop)
    by_node: dict[NodeName, list[Debt]] = {}
    for debt in debts:
        by_node.setdefault(debt.node, []).append(debt)

    def work(of_machine: Sequence[Debt]) -> list[Undone]:
        done: list[Undone] = []
        ranks = [rank(debt.owed.wrote[0]) for debt in of_machine if isinstance(debt.standing, Ours)]
        lowest = min(ranks, default=0)
        for debt in of_machine:
            set_again = lowest < rank(debt.owed.wrote[0])
            result = _undo(where.port, debt, set_again=set_again) if begins else None
            if isinstance(result, Done):
                begins.after(partial(ledger.undone, debt.owed, operator=operator, at=where.clock.now()))
            done.append(Undone(debt=debt, result=result))
        return done

    results = in_parallel({node: partial(work, some) for node, some in by_node.items()}, timeout=NO_LIMIT)
    return [one for node in by_node for one in results[node]], begins.broken


def _undo(port: TuningPort, debt: Debt, *, set_again: bool) -> ActionResult | None:
    """Undo one subject; None if there is nothing of ours to undo.

    If an earlier undo may have `set_again` a value that was right, it is set once more.
    """
    match debt.standing:
        case Ours(change=change):
            pass
        case Back(why=why) as back:
            kept = again(debt.owed.wrote[0], back, reset=set_again)
            if kept is None:
                return Done(output=why)
            change = kept
        case _:
            return None
    return port.perform(TuneHost(node=debt.node, tunable=debt.owed.tunable, changes=(change,)))
