"""Reads cluster, hosts and gates for one decision, in parallel, since each read is slow.

So the reading of a host may be older or newer than that of the cluster, and no decision may depend on the
order. Simulations read one after the other, in both orders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from orchestrator.daemons import MAX_AT_ONCE, Daemons
from orchestrator.engine.clock import STANDSTILL_SECONDS
from orchestrator.engine.memory import CLUSTER
from orchestrator.engine.progress import MAY_BE_DOWN
from orchestrator.engine.silence import Heard
from orchestrator.engine.situation import LOOK_AGAIN, Decision
from orchestrator.engine.state import RunState
from orchestrator.engine.work import to_tune
from orchestrator.kinds import needed
from orchestrator.model.cluster import NodeName
from orchestrator.model.gate import GateView
from orchestrator.model.observation import HostView, Look, Observation
from orchestrator.model.phase import NodePhase
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds, Unauthorized, Unknown
from orchestrator.model.tuning import HostTuning
from orchestrator.model.upgrade import HostReadiness
from orchestrator.ports import Clock, ClusterPort, ClusterReadings, GatePort, HostPort, LeaseKeeper

T = TypeVar("T")
_Hosts: TypeAlias = Mapping[NodeName, Reading[HostView]]
_Gates: TypeAlias = Mapping[str, Reading[GateView]]
_Readiness: TypeAlias = Mapping[NodeName, Reading[HostReadiness]]


_DISAGREE_SECONDS: Final[Seconds] = 120.0
"""For so long a lower version is treated as that of an endpoint that lags behind."""
_HEED_SECONDS: Final[Seconds] = 0.25
"""Interval at which a slow reading checks whether it is still needed."""
_GRACE_SECONDS: Final[Seconds] = 5.0
"""How long to wait for a reading in progress once it is no longer needed."""
_READY_SECONDS: Final[Seconds] = 60.0
"""How long it is believed what a host said of its fitness for an upgrade."""


class ReadingTimes:
    """When each host, and the cluster, was asked in one reading, and how long its answer took.

    Attributes:
        open: those that have not answered, with when they were asked.
        ended: those that have, with when they were asked and the seconds of the answer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[NodeName, Instant] = {}
        self.ended: dict[NodeName, tuple[Instant, Seconds]] = {}

    @property
    def open(self) -> Mapping[NodeName, Instant]:
        """Those that have not answered, with when they were asked."""
        return {name: since for name, since in list(self._since.items()) if name not in self.ended}

    def timed(self, names: Collection[NodeName], read: Callable[[], T]) -> T:
        """The reading of these. It is timed from its own beginning: it may have waited for its turn."""
        since = self._clock.now()
        self._since |= dict.fromkeys(names, since)
        found = read()
        took = self._clock.now() - since
        self.ended |= dict.fromkeys(names, (since, took))
        return found


class ReadingOrder(Enum):
    """The order of reading the cluster and its hosts. One after the other, a reading is repeatable."""

    AT_ONCE = "at once"
    CLUSTER_FIRST = "the cluster, then its hosts"
    HOSTS_FIRST = "the hosts, then their cluster"


class Lookout:
    """Reads only the parts that the next decision needs.

    Args:
        gates: without it no gate is ever open.
        order: order of the readings; one after the other for simulations.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        hosts: HostPort,
        lease: LeaseKeeper,
        clock: Clock,
        *,
        gates: GatePort | None = None,
        order: ReadingOrder = ReadingOrder.AT_ONCE,
    ) -> None:
        self._cluster, self._hosts, self._lease, self._clock = cluster, hosts, lease, clock
        self._order, self._gates = order, gates
        self._newest: tuple[str, int, Instant] | None = None
        self._before: Instant | None = None
        self._out_of_reach: dict[NodeName, Instant] = {}
        self._unheard: dict[NodeName, Instant] = {}
        self._readiness: tuple[Instant, _Readiness] | None = None

    def observe(
        self,
        state: RunState,
        last: Decision = LOOK_AGAIN,
        *,
        unwanted: Callable[[], bool] = lambda: False,
        heard: Callable[[Mapping[NodeName, Heard]], None] = lambda _heard: None,
    ) -> Observation | None:
        """One reading of cluster, hosts and gates. `at` is the time before it: nothing in it is older.

        Args:
            state: of the run.
            last: the decision before, which may ask for more.
            unwanted: whether the next decision no longer needs this reading.
            heard: called while a slow reading goes on, and after each, with who has answered so far.

        Returns:
            The reading; None when it became unwanted and did not end by itself soon after. What it has asked
            is left to its own limits.
        """
        at, before = self._clock.now(), self._before
        look, nodes = needed(state, last)
        self._cluster.avoid(frozenset(node.name for node in state.nodes_in(*MAY_BE_DOWN)))
        reboot = state.begun.policy.reboot
        ready = partial(self._ready, state, look, at)
        asked = ReadingTimes(self._clock)

        def leaves() -> bool:
            heard({name: Heard(since=self._unheard.get(name, since)) for name, since in asked.open.items()})
            return unwanted()

        found = self._read(look - {Look.BULK}, nodes, leaves, ready, asked, reboot=reboot)
        if found is None:
            return None
        read, of_hosts, gates, readiness = found
        heard(self._heard(asked, read, of_hosts))
        read = self._not_older(read, at)
        self._before = at
        return replace(
            read.seen(at),
            before=before,
            hosts=self._since(of_hosts, at, before),
            readiness=readiness,
            bulk=self._cluster.bulk(tuple(state.merging.indices)) if Look.BULK in look else NOT_READ,
            tuning=self._tuning(state),
            gates=gates,
            lease=self._lease.view(),
        )

    def _since(self, hosts: _Hosts, at: Instant, before: Instant | None) -> _Hosts:
        """Add to each unreachable host the start of that state, not counting a suspension of this process."""
        if before is not None and at - before > STANDSTILL_SECONDS:
            self._out_of_reach.clear()
        found: dict[NodeName, Reading[HostView]] = {}
        for name, host in hosts.items():
            if isinstance(host, Unknown) and host.passes:
                found[name] = replace(host, since=self._out_of_reach.setdefault(name, at))
            else:
                self._out_of_reach.pop(name, None)
                found[name] = host
        return found

    def _heard(self, asked: ReadingTimes, read: ClusterReadings, hosts: _Hosts) -> Mapping[NodeName, Heard]:
        """Who answered this reading. An answer that is not understood is one, and a refusal is one too."""
        found: dict[NodeName, Heard] = {}
        for name, (since, took) in sorted(asked.ended.items()):  # not by who answered first
            part = read.cluster if name == CLUSTER else hosts.get(name, NOT_READ)
            unread = isinstance(part, Unknown) and part is not NOT_READ and not isinstance(part, Unauthorized)
            if isinstance(part, Unknown) and unread and (name == CLUSTER or part.passes):
                first = self._unheard.setdefault(name, since)
                found[name] = Heard(since=first, why=part.reason.removeprefix(f"host of {name}: "))
            else:
                self._unheard.pop(name, None)
                found[name] = Heard(since=since, took=took)
        return found

    def _not_older(self, read: ClusterReadings, at: Instant) -> ClusterReadings:
        """A cluster state older than an earlier reading is unknown: endpoints may disagree for a while.

        So are the settings that came with it: since Elasticsearch 9.0 an endpoint has its own.
        Versions count within one cluster. A version that stays lower belongs to a rebuilt cluster.
        """
        view = read.cluster
        if isinstance(view, Unknown):
            return read
        if self._newest is not None:
            uuid, version, since = self._newest
            if view.uuid == uuid and view.state_version < version and at - since < _DISAGREE_SECONDS:
                older = Unknown(
                    reason=f"an endpoint answered with cluster state {view.state_version}, after {version}"
                )
                settings = read.settings if isinstance(read.settings, Unknown) else older
                return replace(read, cluster=older, settings=settings)
        self._newest = (view.uuid, view.state_version, at)
        return read

    def _tuning(self, state: RunState) -> Mapping[NodeName, Reading[HostTuning]]:
        """Read once per node and wave, between its stop and its start."""
        profile = state.begun.policy.tune
        nodes = to_tune(state)
        return self._hosts.tuning(nodes, profile) if profile and nodes else {}

    def _ready(self, state: RunState, look: Collection[Look], at: Instant) -> _Readiness:
        """Whether hosts can install the target: asked once a minute, but for those that did not answer."""
        upgrade = state.begun.policy.upgrade
        if upgrade is None or Look.UPGRADE not in look:
            return {}
        since, known = self._readiness or (at, {})
        if at - since >= _READY_SECONDS:
            since, known = at, {}
        names = frozenset(node.name for node in state.nodes_in(NodePhase.PENDING))
        unread = {name for name in names if isinstance(known.get(name, NOT_READ), Unknown)}
        if unread:
            known = {**known, **self._hosts.readiness(unread, upgrade)}
        self._readiness = (since, known)
        return known

    def _read(
        self,
        look: Collection[Look],
        nodes: Collection[NodeName],
        unwanted: Callable[[], bool],
        ready: Callable[[], _Readiness],
        asked: ReadingTimes,
        *,
        reboot: bool,
    ) -> tuple[ClusterReadings, _Hosts, _Gates, _Readiness] | None:
        if not look:
            return ClusterReadings(), {}, {}, {}  # finding an endpoint may take as long as a reading
        rights = Look.HOST_RIGHTS in look

        def cluster() -> ClusterReadings:
            return asked.timed((CLUSTER,), lambda: self._cluster.observe(look))

        def hosts(names: Collection[NodeName]) -> _Hosts:
            if Look.HOSTS not in look:
                return {}
            read = partial(self._hosts.observe, names, rights=rights, reboot=rights and reboot)
            return asked.timed(names, read)

        def gates() -> _Gates:
            return self._gates.observe() if Look.GATES in look and self._gates is not None else {}

        match self._order:
            case ReadingOrder.CLUSTER_FIRST:
                return cluster(), hosts(nodes), gates(), ready()
            case ReadingOrder.HOSTS_FIRST:
                read = hosts(nodes)
                return cluster(), read, gates(), ready()
            case ReadingOrder.AT_ONCE:
                beside, each = Daemons(3, "reading"), Daemons(MAX_AT_ONCE, "host")
                of_cluster, of_gates = beside.submit(cluster), beside.submit(gates)
                fitness = beside.submit(ready)
                # One by one, so that it is known which of them does not answer.
                of_hosts = [each.submit(hosts, (name,)) for name in sorted(nodes)]
                parts: tuple[Future[Any], ...] = (of_cluster, of_gates, fitness, *of_hosts)
                until: Instant | None = None
                while wait(parts, _HEED_SECONDS).not_done:
                    if until is None and unwanted():
                        until = self._clock.now() + _GRACE_SECONDS
                    if until is not None and self._clock.now() >= until:
                        return None
                by_name = {name: host for one in of_hosts for name, host in one.result().items()}
                return of_cluster.result(), by_name, of_gates.result(), fitness.result()
