"""One reading of a Riak cluster: it chooses the commands and the nodes that run them.

A Riak command starts an Erlang VM on its node: 0.4 s of processor time on an idle machine, 3 to 20 s under
load. `/ping`, `/stats` and `/proc` start none. So a reading sends only the commands that its decision needs,
each to the member that got the fewest so far:

- Before a stop (`Look.ACTIVITY`) everything is read by the commands. No safety condition rests on `/stats`
  alone.
- While a node starts (`Look.HEALTH`), commands are sent only once `/ping` and `/stats` say that the node is
  ready.
- During a wait for handoff (`Look.RECOVERIES`), the `/stats` of all members are enough as long as they count
  vnodes to hand off. Only `transfers` can confirm that there are none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from orchestrator.daemons import Daemons
from orchestrator.model.cluster import Incarnation, Node, NodeName, Role
from orchestrator.model.observation import ClusterView, Look, SettingsView
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds, Unknown
from orchestrator.model.riak import (
    LOCATION,
    Availability,
    ClusterStatus,
    NodePartitions,
    NodeStats,
    RiakView,
    Ring,
    ServiceWait,
    SignsOfLife,
    Transfers,
    limit_key,
    timer_key,
)
from orchestrator.riak.admin import KV
from orchestrator.riak.contact import Contact, Contacts, usable
from orchestrator.riak.lives import Lives
from orchestrator.riak.output import RiakUnreadable, reading
from orchestrator.riak.parse_ring import numbers_of, ring_of
from orchestrator.riak.rules.recovery import ASKED_AT_LEAST

T = TypeVar("T")

_SERVICE_SECONDS: Final[Seconds] = 5.0
"""A `wait-for-service` prints a line at once and then every few seconds."""
_WAITED_AGAIN_SECONDS: Final[Seconds] = 60.0
"""Between two `wait-for-service` for one node: each may leave a loop behind on the host that runs it."""
_CONFIRMED_SECONDS: Final[Seconds] = 60.0
"""For so long `/stats` alone may confirm that handoff is in progress; then the commands run again."""
_LIMITS_SECONDS: Final[Seconds] = 30.0
"""During a wait for handoff, transfer limits that were read are used for so long."""


def awaits_handoff(look: Collection[Look]) -> bool:
    """Whether a reading only waits for handoff, and is not for a stop."""
    return Look.RECOVERIES in look and Look.ACTIVITY not in look


def up(cluster: ClusterStatus) -> tuple[NodeName, ...]:
    """The members that are up."""
    return tuple(m.node for m in cluster.members if m.availability is Availability.UP)


class Memory:
    """Results that one reading keeps for the next. Thread-safe for the threads of one reading.

    Attributes:
        writes: how often limits or timers were written.
        waited: number of partitions that waited for handoff at the last reading for a stop, by node; None
            before the first in which that could be read.
    """

    def __init__(self, now: Callable[[], Instant]) -> None:
        self.lives = Lives()
        self.now = now
        self._lock = threading.Lock()
        self._waited: dict[NodeName, Instant] = {}
        self._started: set[str] = set()
        self.writes = 0
        self._whole: tuple[Instant, ClusterStatus] | None = None
        self._limits: tuple[Instant, Mapping[NodeName, str | None], SettingsView] | None = None
        self.waited: Mapping[NodeName, int] | None = None

    def keep_status(self, status: ClusterStatus) -> None:
        """Store the current `cluster status`."""
        self._whole = (self.now(), status)

    def status_with_all_up(self) -> ClusterStatus | None:
        """The last `cluster status`, if it is recent and every member was up; else None."""
        if self._whole is None or self.now() - self._whole[0] > _CONFIRMED_SECONDS:
            return None
        status = self._whole[1]
        return status if len(up(status)) == len(status.members) else None

    def keep_limits(self, nodes: Collection[Node], limits: SettingsView, writes: int) -> None:
        """Store the limits of these processes, unless limits were written since the reading began."""
        if writes == self.writes:
            self._limits = (self.now(), _identities(nodes), limits)

    def limits_of(self, nodes: Collection[Node]) -> SettingsView | None:
        """The limits of these same processes, if they were just read and not written since."""
        if self._limits is None:
            return None
        at, identities, limits = self._limits
        known = None not in identities.values() and identities == _identities(nodes)
        return limits if known and self.now() - at <= _LIMITS_SECONDS else None

    def limits_written(self) -> None:
        """Forget the limits."""
        self.writes += 1
        self._limits = None

    def keep_started(self, identity: str) -> None:
        """Store that this process of a node has started every vnode."""
        with self._lock:
            self._started.add(identity)

    def all_started(self, identity: str) -> bool:
        """Whether this process has started every vnode, as far as was read."""
        with self._lock:
            return identity in self._started

    def may_wait_for(self, node: NodeName) -> bool:
        """Whether a `wait-for-service` may be sent for a node: none failed in the last minute."""
        with self._lock:
            last = self._waited.get(node)
        return last is None or self.now() - last >= _WAITED_AGAIN_SECONDS

    def waited_in_vain(self, node: NodeName) -> None:
        """Store that a `wait-for-service` for this node did not end by itself."""
        with self._lock:
            self._waited[node] = self.now()


def _identities(nodes: Collection[Node]) -> dict[NodeName, str | None]:
    return {node.name: node.incarnation.ephemeral_id for node in nodes}


@dataclass(slots=True)
class _Turns:
    """Chooses the member for the next command: the one that got the fewest so far."""

    sent: dict[NodeName, int]

    def next(self) -> NodeName:
        return self.several(1)[0]

    def several(self, number: int) -> list[NodeName]:
        """This many different members, or all if there are fewer."""
        nodes = sorted(self.sent, key=lambda node: self.sent[node])[:number]
        for node in nodes:
            self.sent[node] += 1
        return nodes


class RingReader:
    """One reading of the ring; its parts are read in parallel.

    Args:
        reached: how the cluster is reached.
        reported: the state of the cluster, and the member that reported it.
        avoided: nodes that are being restarted; a peer is asked about them.
        pool: threads for the parts.
        memory: results of earlier readings.
    """

    def __init__(
        self,
        reached: tuple[Contacts, Contact],
        reported: tuple[NodeName, ClusterStatus],
        avoided: frozenset[NodeName],
        pool: Executor,
        memory: Memory,
    ) -> None:
        self._contacts, self._contact = reached
        self._asked, self._cluster = reported
        self._admin, self._avoided = self._contact.admin, avoided
        self._pool, self._memory = pool, memory
        self._up = up(self._cluster)
        self._turns = _Turns({self._asked: 1})

    def counted(self, name: str) -> ClusterView | None:
        """The cluster from `/stats` and `/proc` alone if they prove a handoff in progress, else None.

        What waited before the stop proves nothing: it may never go. So a process of the program that has not
        read how much that was, since another one made the stop, needs the commands.
        """
        waited = self._memory.waited
        if waited is None:
            return None
        asked = {node: self._pool.submit(self._contacts.stats, node) for node in self._up}
        lives = self._lives()
        incarnations = {node: reading(life.result) for node, life in lives.items()}
        try:
            stats = [each.result() for each in asked.values()]
        except RiakUnreadable:
            return None
        if any(isinstance(life, Unknown) for life in incarnations.values()):
            return None
        members = frozenset(self._up)
        agreed = all(
            each.members == members
            and members - {each.node} <= each.connected
            and each.ownership == stats[0].ownership
            for each in stats
        )
        new = {each.node: each.beyond_its_own - waited.get(each.node, 0) for each in stats}
        beyond = {node: number for node, number in new.items() if number > 0}
        if not agreed or not beyond:
            return None
        return self._view(name, RiakView(beyond=beyond), incarnations)

    def view(self, name: str, look: Collection[Look], *, paced: bool = False) -> ClusterView:
        """The members that are up, with their processes, and the requested parts of the ring.

        Args:
            name: name of the cluster.
            look: the requested parts.
            paced: during a wait for handoff, also read the vnodes that nodes have not started.
        """
        incarnations = {node: reading(life.result) for node, life in self._lives().items()}
        self._take_turns(incarnations)
        riak = RiakView(cluster=self._cluster)
        asked = incarnations if paced and awaits_handoff(look) else {}
        unstarted = {node: self._pool.submit(self._unstarted, node, life) for node, life in asked.items()}
        if Look.ACTIVITY in look:
            riak = self._before_a_stop(riak)
        elif awaits_handoff(look):
            riak = self._handoff(riak)
        elif Look.HEALTH in look:
            riak = self._coming_back(riak)
        riak = replace(riak, unstarted={node: reading(each.result) for node, each in unstarted.items()})
        return self._view(name, riak, incarnations)

    def _unstarted(self, node: NodeName, life: Reading[Incarnation]) -> int:
        """The number of vnodes not started; not read again once it is 0, since it stays 0 for a process."""
        identity = None if isinstance(life, Unknown) else life.ephemeral_id
        if identity is not None and self._memory.all_started(identity):
            return 0
        found = self._admin.unstarted(node)
        if identity is not None and found == 0:
            self._memory.keep_started(identity)
        return found

    def settings(self, *, paced: bool) -> SettingsView:
        """The transfer limits of all nodes, as settings; if handoff is hastened, their timers too."""
        timers = {node: self._pool.submit(self._admin.timer, node) for node in self._up if paced}
        limits = self._ask(self._admin.transfer_limits).result().limits
        settings = {limit_key(node): str(limit) for node, limit in limits.items()}
        for node, each in timers.items():
            if isinstance(timer := reading(each.result), int):
                settings[timer_key(node)] = str(timer)
        return SettingsView(transient=settings)

    def _view(
        self, name: str, riak: RiakView, incarnations: Mapping[NodeName, Reading[Incarnation]]
    ) -> ClusterView:
        unidentified = {node: life.reason for node, life in incarnations.items() if isinstance(life, Unknown)}
        claimant = next((m.node for m in self._cluster.members if m.claimant), self._asked)
        locations = {m.node: m.location for m in self._cluster.members if m.location}
        return ClusterView(
            name=name,
            uuid=f"riak:{name}",
            version=self._contact.version,
            distribution="riak",
            state_version=0,
            master=claimant,
            nodes=tuple(self._node(node, incarnations[node], locations.get(node)) for node in self._up),
            indices=(),
            copies=(),
            riak=replace(riak, unidentified=unidentified),
        )

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

    def _lives(self) -> dict[NodeName, Future[Incarnation]]:
        return {node: self._pool.submit(self._life, node) for node in self._up}

    def _life(self, node: NodeName) -> Incarnation:
        self._contacts.refuse_stranger(self._admin, node)
        return self._memory.lives.of(self._admin, node)

    def _take_turns(self, incarnations: Mapping[NodeName, Reading[Incarnation]]) -> None:
        """Send commands to members outside the current wave whose processes were found on their hosts."""
        for node in self._up:
            if node not in self._avoided and not isinstance(incarnations[node], Unknown):
                self._turns.sent.setdefault(node, 0)

    def _ask(self, question: Callable[[NodeName], T]) -> Future[T]:
        """Send a command to the next member."""
        return self._pool.submit(question, self._turns.next())

    # Before a stop ------------------------------------

    def _before_a_stop(self, riak: RiakView) -> RiakView:
        """Read all parts by commands."""
        admin = self._admin
        signs = self._pool.submit(self._signs)
        transfers = self._sent_transfers()
        ready, n_vals = self._ask(admin.ring_ready), self._ask(admin.n_vals)
        found = signs.result()
        stats = found[self._asked].stats if self._asked in found else NOT_READ
        ring: Reading[Ring]
        waiting: Reading[Mapping[NodeName, frozenset[int]]]
        if isinstance(stats, Unknown):
            ring = waiting = stats
        else:
            # Members that are up, and owners of partitions, of which a peer is asked.
            partitions = self._listed({*self._up, *(n for n, number in stats.ownership.items() if number)})
            ring = reading(partial(self._ring, stats, partitions))
            waiting = reading(partial(self._waiting, stats, partitions))
        self._memory.waited = (
            None if isinstance(waiting, Unknown) else {n: len(p) for n, p in waiting.items()}
        )
        return replace(
            riak,
            ring_ready=reading(ready.result),
            signs=found,
            transfers={node: reading(each.result) for node, each in transfers.items()},
            waiting=waiting,
            ring=ring,
            n_vals=reading(lambda: frozenset(n_vals.result().values())),
        )

    def _listed(self, nodes: Collection[NodeName]) -> dict[NodeName, Future[NodePartitions]]:
        """The partitions of each node."""
        return {
            node: self._pool.submit(
                self._admin.partitions, node if node in self._turns.sent else self._asked, node
            )
            for node in sorted(nodes)
        }

    @staticmethod
    def _ring(stats: NodeStats, partitions: Mapping[NodeName, Future[NodePartitions]]) -> Ring:
        """The owners of the partitions."""
        owners = (node for node, number in stats.ownership.items() if number)
        return ring_of({node: partitions[node].result().owned for node in owners}, stats)

    @staticmethod
    def _waiting(
        stats: NodeStats, partitions: Mapping[NodeName, Future[NodePartitions]]
    ) -> Mapping[NodeName, frozenset[int]]:
        """The partitions of others on each of these nodes, by their numbers."""
        found = {node: numbers_of(each.result().others, stats.ring_size) for node, each in partitions.items()}
        return {node: numbers for node, numbers in found.items() if numbers}

    def _handoff(self, riak: RiakView) -> RiakView:
        """What `transfers` says; of nodes of which it says that partitions wait there, which these are."""
        transfers = {node: reading(each.result) for node, each in self._sent_transfers().items()}
        said = [each for each in transfers.values() if isinstance(each, Transfers)]
        holders = {line.node for each in said for line in each.waiting}.intersection(self._up)
        waiting: Reading[Mapping[NodeName, frozenset[int]]] = {}
        if holders:
            asked, listed = self._asked, self._listed(holders)
            waiting = reading(lambda: self._waiting(self._contacts.stats(asked), listed))
        return replace(riak, transfers=transfers, waiting=waiting)

    def _sent_transfers(self) -> dict[NodeName, Future[Transfers]]:
        """Send a command to two members; to one that is being restarted only if there are no two others."""
        chosen = self._turns.several(ASKED_AT_LEAST)
        others = [node for node in usable(self._up, self._avoided) if node not in chosen]
        chosen += others[: ASKED_AT_LEAST - len(chosen)]
        return {node: self._pool.submit(self._admin.transfers, node) for node in chosen}

    # Signs of life ------------------------------------

    def _signs(self) -> dict[NodeName, SignsOfLife]:
        """`/ping` and `/stats` of every node that is up."""
        with Daemons(8, "riak-http") as pool:
            pings = {node: pool.submit(self._contacts.http(node).ping) for node in self._up}
            stats = {node: pool.submit(self._contacts.stats, node) for node in self._up}
            return {
                node: SignsOfLife(ping=reading(pings[node].result), stats=reading(stats[node].result))
                for node in self._up
            }

    def _coming_back(self, riak: RiakView) -> RiakView:
        """Signs of life; once those of the node itself are good, also the views of a peer and the ring."""
        signs = self._signs()
        coming = [node for node in self._up if node in self._avoided]
        ready = [node for node in coming if _looks_ready(node, signs)]
        if coming and not ready:
            return replace(riak, signs=signs)
        agreed = self._ask(self._admin.ring_ready)
        services = self._services(ready)
        signs = {node: replace(sign, service=services.get(node, NOT_READ)) for node, sign in signs.items()}
        return replace(riak, ring_ready=reading(agreed.result), signs=signs)

    def _services(self, nodes: Collection[NodeName]) -> dict[NodeName, Reading[ServiceWait]]:
        """Whether a peer sees the key-value store of these nodes up."""
        if not nodes or not set(self._up) - self._avoided:
            return {}
        peer = self._turns.next()
        found = reading(lambda: self._admin.where_it_is_up(peer))
        if isinstance(found, Unknown) or not found <= {member.node for member in self._cluster.members}:
            return {node: self._waited_for(peer, node) for node in nodes}
        seen = f"{peer} sees it on {', '.join(sorted(found)) or 'no node'}"
        return {
            node: ServiceWait(service=KV, up=node in found, last=f"{KV} is up" if node in found else seen)
            for node in nodes
        }

    def _waited_for(self, peer: NodeName, node: NodeName) -> Reading[ServiceWait]:
        if not self._memory.may_wait_for(node):
            return Unknown(
                reason=f"{KV} was not up at the last `wait-for-service`, which is sent once in "
                f"{_WAITED_AGAIN_SECONDS:.0f} s"
            )
        found = reading(lambda: self._admin.wait_for_service(peer, node, _SERVICE_SECONDS))
        if isinstance(found, Unknown) or not found.up:
            self._memory.waited_in_vain(node)
        return found


def _looks_ready(node: NodeName, signs: Mapping[NodeName, SignsOfLife]) -> bool:
    """Whether the node itself and its peers report over HTTP that it serves."""
    own = signs[node]
    if own.ping is not True or isinstance(own.stats, Unknown) or own.stats.kv_vnodes < own.stats.owned:
        return False
    return all(
        not isinstance(sign.stats, Unknown) and node in sign.stats.connected
        for peer, sign in signs.items()
        if peer != node
    )
