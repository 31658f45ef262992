"""The simulated cluster's API: `ClusterPort` over the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, assert_never

from orchestrator.model.action import (
    ActionResult,
    ClearVotingExclusions,
    ClusterAction,
    Done,
    ExcludeFromVoting,
    Flush,
    InDoubt,
    ProbeSettings,
    Refused,
    RetryFailed,
    SetReplicas,
    WriteSettings,
    action_name,
    action_target,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Look
from orchestrator.model.reading import NOT_READ, Seconds, Unknown
from orchestrator.model.watch import ClusterWatch, CopiesActive, MasterElected, NodesJoined
from orchestrator.ports import ClusterReadings
from orchestrator.simulation import allocation, deciders, membership, views
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.mishaps import How, Seams
from orchestrator.simulation.world import World

_READ_SECONDS: Final = 0.05
_WRITE_SECONDS: Final = 0.1
_TIMEOUT_SECONDS: Final = 10.0
_WRITES: Final = (ProbeSettings, WriteSettings)


@dataclass(slots=True, kw_only=True)
class SimulatedCluster:
    """The cluster as the program reads and tells it.

    Attributes:
        sent: every verb that was sent, for the tests.
        avoided: nodes that the program sends nothing to.
    """

    world: World
    fate: Fate
    seams: Seams
    sent: list[ClusterAction] = field(default_factory=list)
    avoided: frozenset[NodeName] = frozenset()

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the parts asked for; all of them tell of the moment in which the reading begins."""
        began = self.world.agenda.now
        if began < self.fate.unreadable_until:
            self.world.agenda.advance(1.0)
            gone = Unknown(reason="no endpoint answers (connection refused)")
            return _parts(
                ClusterReadings(
                    cluster=gone, settings=gone, health=gone, recoveries=gone, activity=gone, disks=gone
                ),
                look,
            )
        if began < self.fate.stale_until and self.fate.frozen is not None:
            read = self.fate.frozen
            self.world.stale_read = True
        else:
            read = views.readings(self.world, look)
            self.world.stale_read = False
            if Look.CLUSTER in look:
                self.world.last_read = began
        stood_still = self.fate.stood_still()
        self.world.agenda.advance(_READ_SECONDS + stood_still)
        if stood_still:
            self.world.program_since = self.world.agenda.now
        return _parts(read, look)

    def perform(self, action: ClusterAction) -> ActionResult:
        """Do it, unless a mishap has it otherwise; the program may be killed right after."""
        result = self._perform(action)
        self.seams.point(f"after {action_name(action)} of {action_target(action)}")
        return result

    def _perform(self, action: ClusterAction) -> ActionResult:
        self.sent.append(action)
        trip = self.fate.sent(action)
        self.world.agenda.advance(_WRITE_SECONDS)
        refused = self._refusal(action)
        if refused is not None:
            return Refused(reason=refused)
        match trip.how if trip else None:
            case How.REFUSED:
                return Refused(reason="429 rejected")
            case How.LOST:
                self.world.agenda.advance(_TIMEOUT_SECONDS)
                return InDoubt(reason="read timed out")
            case How.LATE if isinstance(action, WriteSettings) and trip is not None:
                self.fate.late(trip, action)
                self.world.agenda.advance(_TIMEOUT_SECONDS)
                return InDoubt(reason="read timed out")
            case How.UNACKNOWLEDGED | How.LATE:
                self._do(action)
                self.world.agenda.advance(_TIMEOUT_SECONDS)
                return InDoubt(reason="connection reset by peer")
            case _:
                self._do(action)
                return Done()

    def _refusal(self, action: ClusterAction) -> str | None:
        if self.world.master is None:
            return "503 master_not_discovered_exception"
        if isinstance(action, _WRITES):
            return self.world.refuse_settings
        return None

    def _do(self, action: ClusterAction) -> None:
        world = self.world
        match action:
            case WriteSettings(changes=changes):
                world.write(changes)
            case RetryFailed():
                allocation.retry_failed(world)
            case SetReplicas(index_uuid=uuid, wanted=wanted):
                if uuid in world.indices:
                    allocation.set_replicas(world, world.indices[uuid], wanted)
            case ExcludeFromVoting(node=name):
                membership.exclude(world, name)
            case ClearVotingExclusions():
                world.exclusions.clear()
                membership.reconfigure(world)
                world.changed("voting exclusions are cleared")
            case ProbeSettings() | Flush():
                world.apply_late_writes()
            case _:
                assert_never(action)

    def describe(self, action: ClusterAction) -> str:
        """The call as a real adapter would say it, in short."""
        match action:
            case WriteSettings(changes=changes):
                body: dict[str, dict[str, object]] = {}
                for change in changes:
                    body.setdefault(change.level.value, {})[change.key] = change.wanted
                return f"PUT /_cluster/settings {json.dumps(body, sort_keys=True)}"
            case SetReplicas(index=index, wanted=wanted):
                return f'PUT /{index}/_settings {{"index.number_of_replicas": {wanted}}}'
            case _:
                return f"{action_name(action)} on {action_target(action)}"

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Let time pass until it holds."""
        return self.world.agenda.until(self.holds(watch), timeout)

    def holds(self, watch: ClusterWatch) -> Callable[[], bool]:
        """Whether what is watched for holds in the world."""
        world = self.world
        match watch:
            case NodesJoined(count=count):
                return lambda: sum(node.joined for node in world.nodes.values()) >= count
            case CopiesActive(count=count):
                return lambda: sum(len(s.started) for _, s in deciders.shards_of(world)) >= count
            case MasterElected():
                return lambda: world.master is not None
            case _:
                assert_never(watch)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Remember them; the tests ask."""
        self.avoided = frozenset(nodes)

    def close(self) -> None:
        """Nothing is open."""


def _parts(read: ClusterReadings, look: Collection[Look]) -> ClusterReadings:
    return ClusterReadings(
        cluster=read.cluster if Look.CLUSTER in look else NOT_READ,
        settings=read.settings if Look.SETTINGS in look else NOT_READ,
        health=read.health if Look.HEALTH in look else NOT_READ,
        recoveries=read.recoveries if Look.RECOVERIES in look else NOT_READ,
        activity=read.activity if Look.ACTIVITY in look else NOT_READ,
        disks=read.disks if Look.DISKS in look else NOT_READ,
    )
