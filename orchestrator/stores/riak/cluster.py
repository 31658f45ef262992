"""`ClusterPort` over a Riak cluster: commands on its nodes' machines, and the HTTP port of each node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar

from orchestrator.engine.kinds.riak.predicates import ASKED_AT_LEAST
from orchestrator.engine.kinds.riak.settings import holder, limit_key
from orchestrator.model.action import (
    ActionResult,
    ClusterAction,
    Done,
    InDoubt,
    ProbeSettings,
    Refused,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import Health, Incarnation, Node, NodeName, Role
from orchestrator.model.merging import BulkView
from orchestrator.model.observation import Activity, ClusterView, HealthView, Look, SettingsView
from orchestrator.model.reading import NOT_READ, Reading, Seconds, Unknown
from orchestrator.model.resolution import Resolution
from orchestrator.model.riak import (
    Availability,
    ClusterStatus,
    RiakView,
    SignsOfLife,
    TransferLimits,
    Transfers,
)
from orchestrator.model.watch import ClusterWatch, NodesJoined
from orchestrator.ports import ClusterReadings
from orchestrator.stores.riak.admin import RiakAdmin
from orchestrator.stores.riak.contact import Contact, Contacts, Reach, usable
from orchestrator.stores.riak.lives import life_of

T = TypeVar("T")

_WORKERS: Final = 8
"""Commands at a time: each is an Erlang machine for a second or two on the host that is asked."""
_TRIED: Final = 3
"""Members that are asked for the state of the cluster before the reading is given up."""
_SERVICE_SECONDS: Final[Seconds] = 5.0
"""A `wait-for-service` says something at once and then every few seconds; the next reading asks again."""
_PING_SECONDS: Final[Seconds] = 0.25
LOCATION: Final = "location"
"""The node attribute under which a member's location stands."""

_CLUSTER: Final = frozenset({Look.CLUSTER, Look.HEALTH, Look.ACTIVITY, Look.RECOVERIES})
"""Parts of which the ring's own reading has something."""


class RiakCluster:
    """A Riak cluster as a port.

    It has no name of its own and no identity but its members: the name is the operator's, and the rules ask
    whether all members are up and agree.

    Args:
        name: of the cluster file.
        reach: how it is reached.
    """

    def __init__(self, name: str, reach: Reach) -> None:
        self._name = name
        self._contacts = Contacts(reach)
        self._avoided: frozenset[NodeName] = frozenset()
        self._closed = threading.Event()

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the parts asked for; commands run side by side."""
        contact = self._contacts.find()
        if isinstance(contact, Unknown):
            return _nothing(look, contact)
        status = self._status(contact)
        if isinstance(status, Unknown):
            return _nothing(look, status)
        with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="riak") as pool:
            reader = _Reader((self._contacts, contact), status, self._avoided, pool)
            limits = pool.submit(contact.admin.transfer_limits, status[0]) if Look.SETTINGS in look else None
            view = reader.view(self._name, look) if _CLUSTER & set(look) else None
            settings = _settings(limits.result()) if limits is not None else NOT_READ
        up = len(_up(status[1]))
        return ClusterReadings(
            cluster=view if view is not None else NOT_READ,
            settings=settings,
            health=_health(up) if Look.HEALTH in look else NOT_READ,
            activity=Activity() if Look.ACTIVITY in look else NOT_READ,
        )

    def endpoints(self) -> Mapping[str, str | None]:
        """What is wrong with each endpoint; None where it answers."""
        return self._contacts.endpoints()

    def members(self) -> Reading[tuple[NodeName, ...]]:
        """Every member, also those that are down."""
        contact = self._contacts.find()
        return contact if isinstance(contact, Unknown) else contact.members

    def data_paths(self) -> Reading[Mapping[NodeName, tuple[str, ...]]]:
        """Riak tells nobody where it keeps its data."""
        return Unknown(reason="Riak does not tell where its nodes keep their data")

    def resolve(self, patterns: Collection[str]) -> Reading[Resolution]:
        """Riak has no indices."""
        del patterns
        return Unknown(reason="a Riak cluster has no indices")

    def bulk(self, uuids: Collection[str]) -> Reading[BulkView]:
        """Riak has no indices."""
        del uuids
        return Unknown(reason="a Riak cluster has no indices")

    def perform(self, action: ClusterAction) -> ActionResult:
        """Set transfer limits; everything else is no verb of Riak."""
        contact = self._contacts.find()
        if isinstance(contact, Unknown):
            return Refused(reason=contact.reason)
        match action:
            case ProbeSettings():
                return self._probe(contact)
            case WriteSettings(changes=changes):
                return self._write(contact, changes)
            case _:
                return Refused(reason=f"Riak knows no {type(action).__name__}")

    def describe(self, action: ClusterAction) -> str:
        """The command lines."""
        contact = self._contacts.find()
        if isinstance(contact, Unknown):
            return f"(not known: {contact.reason})"
        match action:
            case ProbeSettings():
                return " ".join((*contact.admin.commands.admin, "transfer-limit NODE (as it is)"))
            case WriteSettings(changes=changes):
                lines = [self._line(contact, change) for change in changes]
                return "; ".join(lines)
            case _:
                return f"(no verb of Riak: {type(action).__name__})"

    @staticmethod
    def _line(contact: Contact, change: SettingChange) -> str:
        node, limit = holder(change.key), _number(change.wanted)
        if node is None or limit is None:
            return f"({change.key} is no transfer limit)"
        return " ".join(contact.admin.commands.set_transfer_limit(node, limit).argv)

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Return True when a node that is waited for answers `/ping`; Riak offers nothing to listen to."""
        limit = time.monotonic() + timeout
        awaited = self._avoided if isinstance(watch, NodesJoined) else frozenset()
        before = {node for node in awaited if self._answers(node)}
        while (left := limit - time.monotonic()) > 0:
            if self._closed.wait(min(left, _PING_SECONDS)):
                return False
            if any(self._answers(node) for node in awaited - before):
                return True
        return False

    def _answers(self, node: NodeName) -> bool:
        return self._contacts.http(node).ping() is True

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Ask others than these; a peer is asked of them."""
        self._avoided = frozenset(nodes)

    def close(self) -> None:
        """End a watch that goes on. Connections belong to the hosts."""
        self._closed.set()

    def _status(self, contact: Contact) -> Reading[tuple[NodeName, ClusterStatus]]:
        """The state of the cluster, and who told it: the first of a few members that does."""
        reasons = []
        for node in usable(contact.members, self._avoided)[:_TRIED]:
            status = contact.admin.cluster_status(node)
            if not isinstance(status, Unknown):
                return node, status
            reasons.append(status.reason)
        return Unknown(reason="; ".join(reasons) or "no member is known")

    def _limits(self, contact: Contact) -> Reading[tuple[NodeName, TransferLimits]]:
        status = self._status(contact)
        if isinstance(status, Unknown):
            return status
        limits = contact.admin.transfer_limits(status[0])
        return limits if isinstance(limits, Unknown) else (status[0], limits)

    def _probe(self, contact: Contact) -> ActionResult:
        """Set one node's limit to what it is."""
        found = self._limits(contact)
        if isinstance(found, Unknown):
            return Refused(reason=found.reason)
        asked, limits = found
        if asked not in limits.limits:
            return Refused(reason=f"{asked} did not tell its transfer limit")
        return _set(contact.admin, asked, asked, limits.limits[asked])

    def _write(self, contact: Contact, changes: Collection[SettingChange]) -> ActionResult:
        wanted: dict[NodeName, int] = {}
        for change in changes:
            node, limit = holder(change.key), _number(change.wanted)
            if node is None or limit is None:
                return Refused(reason=f"{change.key} = {change.wanted} is no transfer limit")
            wanted[node] = limit
        status = self._status(contact)
        if isinstance(status, Unknown):
            return Refused(reason=status.reason)
        # Each for itself: one node that does not take its limit must not keep the others raised, nor waiting.
        with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="riak-limit") as pool:
            under_way = {
                node: pool.submit(_set, contact.admin, status[0], node, limit)
                for node, limit in sorted(wanted.items())
            }
            return _of_all({node: done.result() for node, done in under_way.items()})


def _of_all(done: Mapping[NodeName, ActionResult]) -> ActionResult:
    """What became of a write to several nodes: in doubt as soon as any of it was done, or may have been."""
    failed = {node: result.reason for node, result in done.items() if not isinstance(result, Done)}
    if not failed:
        return Done()
    said = "; ".join(
        reason if node in reason else f"transfer limit of {node}: {reason}" for node, reason in failed.items()
    )
    if len(failed) == len(done):
        refused = all(isinstance(result, Refused) for result in done.values())
        return Refused(reason=said) if refused else InDoubt(reason=said)
    others = ", ".join(node for node in done if node not in failed)
    return InDoubt(reason=f"{said}; set on {others}")


def _set(admin: RiakAdmin, asked: NodeName, node: NodeName, limit: int) -> ActionResult:
    done = admin.set_transfer_limit(asked, node, limit)
    if isinstance(done, Unknown):
        return InDoubt(reason=done.reason)
    if done.failed:
        return Refused(reason=f"{', '.join(done.failed)}: the transfer limit could not be set")
    if (done.node, done.limit) != (node, limit):
        whose = done.node or "every node"
        return InDoubt(reason=f"{asked} was told {limit} for {node}, and says that {whose} has {done.limit}")
    return Done()


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _up(cluster: ClusterStatus) -> tuple[NodeName, ...]:
    return tuple(m.node for m in cluster.members if m.availability is Availability.UP)


def _nothing(look: Collection[Look], why: Unknown) -> ClusterReadings:
    """What was asked for, and could not be read."""
    return ClusterReadings(
        cluster=why if _CLUSTER & set(look) else NOT_READ,
        settings=why if Look.SETTINGS in look else NOT_READ,
        health=why if Look.HEALTH in look else NOT_READ,
        activity=why if Look.ACTIVITY in look else NOT_READ,
    )


def _settings(limits: Reading[TransferLimits]) -> Reading[SettingsView]:
    if isinstance(limits, Unknown):
        return limits
    return SettingsView(transient={limit_key(node): str(limit) for node, limit in limits.limits.items()})


def _health(up: int) -> HealthView:
    """Riak has no summary of its own, and no queue of a master that a reading could be older than."""
    return HealthView(
        status=Health.GREEN,
        settled=True,
        nodes=up,
        active_shards=0,
        initializing_shards=0,
        relocating_shards=0,
        unassigned_shards=0,
        pending_tasks=0,
        oldest_task=0.0,
    )


class _Reader:
    """One reading of the ring, its parts side by side."""

    def __init__(
        self,
        reached: tuple[Contacts, Contact],
        status: tuple[NodeName, ClusterStatus],
        avoided: frozenset[NodeName],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._contacts, self._contact = reached
        self._asked, self._cluster = status
        self._admin, self._avoided, self._pool = self._contact.admin, avoided, pool
        self._up = _up(self._cluster)

    def view(self, name: str, look: Collection[Look]) -> ClusterView:
        """The members that are up, with their lives, and what was asked for of the ring."""
        admin, asked = self._admin, self._asked
        lives = {node: self._pool.submit(self._life, node) for node in self._up}
        members = self._pool.submit(admin.members, asked)
        status = self._pool.submit(admin.ring_status, asked)
        riak = RiakView(cluster=self._cluster)
        if Look.HEALTH in look:
            ready = self._pool.submit(admin.ring_ready, asked)
            signs = self._signs()
            riak = replace(riak, ring_ready=ready.result(), signs=signs)
        if Look.ACTIVITY in look or Look.RECOVERIES in look:
            riak = replace(riak, transfers=self._transfers())
        if Look.ACTIVITY in look:
            riak = self._with_ring(riak)
        told = {node: life.result() for node, life in lives.items()}
        untold = {node: life.reason for node, life in told.items() if isinstance(life, Unknown)}
        riak = replace(riak, members=members.result(), ring_status=status.result(), untold=untold)
        claim = riak.ring_status
        locations = {m.node: m.location for m in self._cluster.members if m.location}
        return ClusterView(
            name=name,
            uuid=f"riak:{name}",
            version=self._contact.version,
            distribution="riak",
            state_version=0,
            master=asked if isinstance(claim, Unknown) else claim.claimant,
            nodes=tuple(self._node(node, told[node], locations.get(node)) for node in self._up),
            indices=(),
            copies=(),
            riak=riak,
        )

    def _life(self, node: NodeName) -> Reading[Incarnation]:
        return self._contacts.stranger(self._admin, node) or life_of(self._admin, node)

    def _node(self, name: NodeName, found: Reading[Incarnation], location: str | None) -> Node:
        return Node(
            name=name,
            node_id=name,
            incarnation=Incarnation() if isinstance(found, Unknown) else found,
            roles=frozenset({Role.DATA}),
            version=self._contact.version,
            address=self._contacts.address(name),
            attributes={LOCATION: location} if location else {},
        )

    def _signs(self) -> Mapping[NodeName, SignsOfLife]:
        """`/ping` and `/stats` of every node that is up; of those in hand, what a peer sees of them too."""
        pings = {node: self._pool.submit(self._contacts.http(node).ping) for node in self._up}
        stats = {node: self._pool.submit(self._contacts.stats, node) for node in self._up}
        peers = [node for node in self._up if node not in self._avoided]
        services = {
            node: self._pool.submit(self._admin.wait_for_service, peers[0], node, _SERVICE_SECONDS)
            for node in self._up
            if node in self._avoided and peers
        }
        return {
            node: SignsOfLife(
                ping=pings[node].result(),
                stats=stats[node].result(),
                service=services[node].result() if node in services else NOT_READ,
            )
            for node in self._up
        }

    def _transfers(self) -> Mapping[NodeName, Reading[Transfers]]:
        others = [node for node in usable(self._up, self._avoided) if node != self._asked]
        chosen = (self._asked, *others)[:ASKED_AT_LEAST]
        return dict(zip(chosen, self._pool.map(self._admin.transfers, chosen), strict=True))

    def _with_ring(self, riak: RiakView) -> RiakView:
        stats = self._contacts.stats(self._asked)
        if isinstance(stats, Unknown):
            return replace(riak, ring=stats, n_vals=stats)
        n_vals: Callable[[NodeName], Reading[Mapping[str, int]]] = self._admin.n_vals
        found = self._pool.submit(n_vals, self._asked)
        ring = self._admin.ring(self._asked, stats)
        types = found.result()
        return replace(
            riak, ring=ring, n_vals=types if isinstance(types, Unknown) else frozenset(types.values())
        )
