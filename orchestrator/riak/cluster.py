"""`ClusterPort` over a Riak cluster: commands on its nodes' machines, and the HTTP port of each node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Final

from orchestrator.daemons import Daemons
from orchestrator.model.action import (
    ActionResult,
    ClusterAction,
    Done,
    ForceHandoff,
    InDoubt,
    ProbeSettings,
    Refused,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import Health, Node, NodeName
from orchestrator.model.merging import BulkView, Resolution
from orchestrator.model.observation import (
    Activity,
    ClusterView,
    ClusterWatch,
    HealthView,
    Look,
    NodesJoined,
    SettingsView,
)
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds, Unknown
from orchestrator.model.riak import ClusterStatus, holder, is_timer
from orchestrator.ports import ClusterReadings
from orchestrator.riak.admin import Commands, RiakAdmin
from orchestrator.riak.contact import Contact, Contacts, Reach, usable
from orchestrator.riak.output import RiakUnreadable, reading
from orchestrator.riak.reading import Memory, RingReader, awaits_handoff, up
from orchestrator.riak.rules.recovery import impossible

_WORKERS: Final = 8
"""Parallel commands: each runs an Erlang VM on its host for a second or two."""
_TRIED: Final = 3
"""Members to try for the state of the cluster before the reading fails."""
_PING_SECONDS: Final[Seconds] = 0.25

_CLUSTER: Final = frozenset({Look.CLUSTER, Look.HEALTH, Look.ACTIVITY, Look.RECOVERIES})
"""Parts that need a reading of the ring."""


class RiakCluster:
    """A Riak cluster as a port.

    A Riak cluster has no name, and its members are its only identity. The operator gives it a name, and the
    predicates check that all members are up and agree.

    Args:
        name: the name in the cluster file.
        reach: how it is reached.
        now: monotonic clock, in seconds.
    """

    def __init__(self, name: str, reach: Reach, *, now: Callable[[], Instant] = time.monotonic) -> None:
        self._name = name
        self._contacts = Contacts(reach)
        self._avoided: frozenset[NodeName] = frozenset()
        self._memory = Memory(now)
        self._closed = threading.Event()

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the requested parts; commands run in parallel."""
        try:
            return self._observed(self._contacts.find(), look)
        except RiakUnreadable as error:
            return _nothing(look, Unknown(reason=error.reason, passes=error.passes))

    def _observed(self, contact: Contact, look: Collection[Look]) -> ClusterReadings:
        """The requested parts, each of which may be unknown; raises if no member shows who is up."""
        with Daemons(_WORKERS, "riak") as pool:
            paced = Look.PACE in look and contact.admin.dialect.can_be_hastened
            if awaits_handoff(look) and not paced and (counted := self._counted(contact, look, pool)):
                return counted
            status = self._status(contact)
            self._memory.keep_status(status[1])
            reader = RingReader((self._contacts, contact), status, self._avoided, pool, self._memory)
            view = reader.view(self._name, look, paced=paced) if _CLUSTER & set(look) else None
            settings: Reading[SettingsView] = NOT_READ
            if Look.SETTINGS in look:
                nodes = view.nodes if view is not None else ()
                recent = paced and awaits_handoff(look)
                settings = reading(partial(self._settings, reader, nodes, recent=recent, paced=paced))
        return _readings(look, view, settings, len(up(status[1])))

    def _counted(self, contact: Contact, look: Collection[Look], pool: Executor) -> ClusterReadings | None:
        """A reading from `/stats` alone if that proves that handoff is in progress, else None."""
        status = self._memory.status_with_all_up()
        if status is None:
            return None
        reported = (usable(up(status), self._avoided)[0], status)
        reader = RingReader((self._contacts, contact), reported, self._avoided, pool, self._memory)
        view = reader.counted(self._name)
        if view is None:
            return None
        settings: Reading[SettingsView] = NOT_READ
        if Look.SETTINGS in look:
            settings = reading(partial(self._settings, reader, view.nodes, recent=True, paced=False))
        return _readings(look, view, settings, len(view.nodes))

    def _settings(
        self, reader: RingReader, nodes: Collection[Node], *, recent: bool, paced: bool
    ) -> SettingsView:
        """The limits, and with `paced` also the timers.

        With `recent`, limits that were just read from the same processes are used.
        """
        known, writes = self._memory.limits_of(nodes) if recent else None, self._memory.writes
        if known is not None:
            return known
        found = reader.settings(paced=paced)
        self._memory.keep_limits(nodes, found, writes)
        return found

    def endpoints(self) -> Mapping[str, str | None]:
        """The problem of each endpoint; None if it answers."""
        return self._contacts.endpoints()

    def only_through(self, together: Iterable[Collection[NodeName]]) -> None:
        """Nothing: each member is reached on its own host."""

    def members(self) -> Reading[tuple[NodeName, ...]]:
        """All members, including those that are down."""
        return reading(lambda: self._contacts.find().members)

    def data_paths(self) -> Reading[Mapping[NodeName, tuple[str, ...]]]:
        """Unknown: Riak does not show its data paths."""
        return Unknown(reason="Riak does not show where its nodes keep their data")

    def resolve(self, patterns: Collection[str]) -> Reading[Resolution]:
        """Riak has no indices."""
        del patterns
        return Unknown(reason="a Riak cluster has no indices")

    def bulk(self, uuids: Collection[str]) -> Reading[BulkView]:
        """Riak has no indices."""
        del uuids
        return Unknown(reason="a Riak cluster has no indices")

    def perform(self, action: ClusterAction) -> ActionResult:
        """Set transfer limits and timers, and hasten handoff; Riak has no other verbs."""
        try:
            contact = self._contacts.find()
            match action:
                case ProbeSettings():
                    self._memory.limits_written()
                    return self._probe(contact)
                case WriteSettings(changes=changes):
                    self._memory.limits_written()
                    return self._write(contact, changes)
                case ForceHandoff():
                    return self._force(contact)
                case _:
                    return Refused(reason=f"Riak has no {type(action).__name__}")
        except RiakUnreadable as error:  # before anything was changed; a change itself ends in doubt
            return Refused(reason=error.reason)

    def describe(self, action: ClusterAction) -> str:
        """The command lines."""
        try:
            contact = self._contacts.find()
        except RiakUnreadable as error:
            return f"(not known: {error.reason})"
        match action:
            case ProbeSettings():
                return " ".join((*self._commands(contact).admin, "transfer-limit NODE (as it is)"))
            case WriteSettings(changes=changes):
                lines = [self._line(self._commands(contact), change) for change in changes]
                return "; ".join(lines)
            case ForceHandoff():
                return " ".join(self._commands(contact).force_handoff.argv)
            case _:
                return f"(no verb of Riak: {type(action).__name__})"

    def _commands(self, contact: Contact) -> Commands:
        """The version of the first member."""
        return contact.admin.commands(usable(contact.members, self._avoided)[0])

    @staticmethod
    def _line(commands: Commands, change: SettingChange) -> str:
        node, number = holder(change.key), _number(change.wanted)
        if node is None or number is None:
            return f"({change.key} is no setting of a node)"
        if is_timer(change.key):
            return f"{' '.join(commands.set_timer(number).argv)} (on {node})"
        return " ".join(commands.set_transfer_limit(node, number).argv)

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Return True when an awaited node answers `/ping`; Riak offers no long poll."""
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
        return reading(self._contacts.http(node).ping) is True

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Send commands to other nodes; a peer is asked about these."""
        self._avoided = frozenset(nodes)
        self._memory.lives.restarting(self._avoided)

    def close(self) -> None:
        """End a watch in progress. Connections belong to the hosts."""
        self._closed.set()

    def _status(self, contact: Contact) -> tuple[NodeName, ClusterStatus]:
        """The state of the cluster, and the member that reported it: the first that answers of a few."""
        reasons = []
        for node in usable(contact.members, self._avoided)[:_TRIED]:
            try:
                return node, contact.admin.cluster_status(node)
            except RiakUnreadable as error:
                reasons.append(error.reason)
        raise RiakUnreadable("; ".join(reasons) or "no member is known")

    def _probe(self, contact: Contact) -> ActionResult:
        """Set one node's limit."""
        asked, _ = self._status(contact)
        limits = contact.admin.transfer_limits(asked).limits
        if asked not in limits:
            return Refused(reason=f"{asked} did not show its transfer limit")
        return _set(contact.admin, asked, asked, limits[asked])

    def _write(self, contact: Contact, changes: Collection[SettingChange]) -> ActionResult:
        wanted: dict[str, tuple[NodeName, int]] = {}
        for change in changes:
            node, number = holder(change.key), _number(change.wanted)
            if node is None or number is None:
                return Refused(reason=f"{change.key} = {change.wanted} is no setting of a node")
            wanted[change.key] = node, number
        asked, _ = self._status(contact)
        # Each node separately: if one fails to set its limit, the others must not stay raised or wait.
        with Daemons(_WORKERS, "riak-limit") as pool:
            under_way = {
                key: pool.submit(_set_timer, contact.admin, node, number)
                if is_timer(key)
                else pool.submit(_set, contact.admin, asked, node, number)
                for key, (node, number) in sorted(wanted.items())
            }
            return _of_all({key: done.result() for key, done in under_way.items()})

    def _force(self, contact: Contact) -> ActionResult:
        """Run on one member, for all members connected to it; only some of them may have accepted."""
        never = impossible(contact.version)
        if never is not None:
            return Refused(reason=never)
        try:
            contact.admin.force_handoff(usable(contact.members, self._avoided)[0])
        except RiakUnreadable as error:
            return InDoubt(reason=error.reason)
        return Done()


def _of_all(done: Mapping[str, ActionResult]) -> ActionResult:
    """The result of writing several settings; in doubt if any of them may have been written."""
    failed = {key: result.reason for key, result in done.items() if not isinstance(result, Done)}
    if not failed:
        return Done()
    said = "; ".join(
        reason if str(holder(key)) in reason else f"{_in_words(key)}: {reason}"
        for key, reason in failed.items()
    )
    if len(failed) == len(done):
        refused = all(isinstance(result, Refused) for result in done.values())
        return Refused(reason=said) if refused else InDoubt(reason=said)
    others = ", ".join(dict.fromkeys(str(holder(key)) for key in done if key not in failed))
    return InDoubt(reason=f"{said}; set on {others}")


def _in_words(key: str) -> str:
    return f"{'vnode_management_timer' if is_timer(key) else 'transfer limit'} of {holder(key)}"


def _set_timer(admin: RiakAdmin, node: NodeName, milliseconds: int) -> ActionResult:
    try:
        admin.set_timer(node, milliseconds)
    except RiakUnreadable as error:
        return InDoubt(reason=error.reason)
    return Done()


def _set(admin: RiakAdmin, asked: NodeName, node: NodeName, limit: int) -> ActionResult:
    try:
        done = admin.set_transfer_limit(asked, node, limit)
    except RiakUnreadable as error:
        return InDoubt(reason=error.reason)
    if done.failed:
        return Refused(reason=f"{', '.join(done.failed)}: the transfer limit could not be set")
    if (done.node, done.limit) != (node, limit):
        whose = done.node or "every node"
        return InDoubt(reason=f"{asked} was sent {limit} for {node} and says that {whose} has {done.limit}")
    return Done()


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _nothing(look: Collection[Look], why: Unknown) -> ClusterReadings:
    """The requested parts that could not be read."""
    return ClusterReadings(
        cluster=why if _CLUSTER & set(look) else NOT_READ,
        settings=why if Look.SETTINGS in look else NOT_READ,
        health=why if Look.HEALTH in look else NOT_READ,
        activity=why if Look.ACTIVITY in look else NOT_READ,
    )


def _readings(
    look: Collection[Look], view: ClusterView | None, settings: Reading[SettingsView], members_up: int
) -> ClusterReadings:
    return ClusterReadings(
        cluster=view if view is not None else NOT_READ,
        settings=settings,
        health=_health(members_up) if Look.HEALTH in look else NOT_READ,
        activity=Activity() if Look.ACTIVITY in look else NOT_READ,
    )


def _health(members_up: int) -> HealthView:
    """The cluster's health. Riak has no health report of its own and no master's queue."""
    return HealthView(
        status=Health.GREEN,
        settled=True,
        nodes=members_up,
        active_shards=0,
        initializing_shards=0,
        relocating_shards=0,
        unassigned_shards=0,
        pending_tasks=0,
        oldest_task=0.0,
    )
