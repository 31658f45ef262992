"""Reads the world for one decision: the cluster and its hosts at the same time, since each takes its time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from orchestrator.engine.decide import needed
from orchestrator.engine.state import IN_HAND, RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView, Look, Observation
from orchestrator.model.reading import Reading
from orchestrator.ports import Clock, ClusterPort, ClusterReadings, HostPort, LeaseKeeper


class Lookout:
    """Looks at what the next decision needs, and at nothing else.

    Args:
        at_once: False reads one after the other, in order (simulations).
    """

    def __init__(
        self, cluster: ClusterPort, hosts: HostPort, lease: LeaseKeeper, clock: Clock, *, at_once: bool = True
    ) -> None:
        self._cluster, self._hosts, self._lease, self._clock = cluster, hosts, lease, clock
        self._at_once = at_once

    def observe(self, state: RunState) -> Observation:
        """One reading of the world. `at` is the moment before it: nothing in it is older."""
        at = self._clock.now()
        look, nodes = needed(state)
        self._cluster.avoid(frozenset(node.name for node in state.nodes.values() if node.phase in IN_HAND))
        read, hosts = self._read(look, nodes)
        return Observation(
            at=at,
            cluster=read.cluster,
            settings=read.settings,
            health=read.health,
            recoveries=read.recoveries,
            activity=read.activity,
            disks=read.disks,
            hosts=hosts,
            lease=self._lease.view(),
        )

    def _read(
        self, look: Collection[Look], nodes: Collection[NodeName]
    ) -> tuple[ClusterReadings, Mapping[NodeName, Reading[HostView]]]:
        if Look.HOSTS not in look:
            return self._cluster.observe(look), {}
        rights = Look.HOST_RIGHTS in look
        if not self._at_once:
            return self._cluster.observe(look), self._hosts.observe(nodes, rights=rights)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="hosts") as beside:
            hosts = beside.submit(self._hosts.observe, nodes, rights=rights)
            return self._cluster.observe(look), hosts.result()
