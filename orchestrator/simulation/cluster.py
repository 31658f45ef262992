"""The simulated cluster's API: `ClusterPort` over the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from orchestrator.model.action import (
    ActionResult,
    ClearVotingExclusions,
    ClusterAction,
    Done,
    ExcludeFromVoting,
    Flush,
    ForceHandoff,
    ForceMerge,
    InDoubt,
    ProbeSettings,
    RefreshIndex,
    Refused,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    WriteSettings,
    action_name,
    action_target,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import BulkView
from orchestrator.model.observation import ClusterWatch, CopiesActive, Look, MasterElected, NodesJoined
from orchestrator.model.reading import NOT_READ, Instant, Reading, Refusal, Seconds, Unauthorized, Unknown
from orchestrator.model.riak import holder
from orchestrator.ports import ClusterReadings
from orchestrator.simulation import (
    allocation,
    bulk,
    membership,
    merge_judge,
    merges,
    segments,
    turns,
    views,
)
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.mishaps import How, Seams
from orchestrator.simulation.parts import SimIndex
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import Way, World

_READ_SECONDS: Final = 0.05
_WRITE_SECONDS: Final = 0.1
_NOTICED_SECONDS: Final[Seconds] = 65.0
"""A process notices within this time that its lease is gone, at the latest when a heartbeat fails."""
_TIMEOUT_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 5.0
"""How long the real adapter waits for a merge that is no task."""

LOGIN_REFUSED: Final = Refusal(
    endpoint="https://es1:9200", credentials="user ops", source="env:ES_PASSWORD", fixed=True
)
RIGHT_TAKEN: Final = replace(LOGIN_REFUSED, status=403, call="PUT /_cluster/settings")

_WRITES: Final = (ProbeSettings, WriteSettings)


@dataclass(slots=True, kw_only=True)
class SimulatedCluster:
    """The cluster that the program reads and changes."""

    world: World
    fate: Fate
    seams: Seams
    sent: list[ClusterAction] = field(default_factory=list)  # every verb that was sent, for the tests
    avoided: frozenset[NodeName] = frozenset()  # nodes to which the program sends nothing
    happened: int = 0  # events of the world before the latest reading
    # which process of the program this is, of several on one world
    process: Callable[[], turns.SimulatedProcess] = turns.SimulatedProcess
    # whether the program looks for snapshots in the cluster state. Otherwise it reads their status, which
    # lists them on every version.
    reads_state_for_snapshots: Callable[[], bool] = lambda: False
    way: Way | None = None  # of its requests; None if each arrives

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the requested parts, all as of the moment in which the reading begins."""
        began, fate = self.world.agenda.now, self.fate
        self.happened = self.world.agenda.happened
        lost = self.way.read() if self.way is not None else None
        if lost is not None:
            self._pass(_WRITE_SECONDS)
            return _parts(_nothing(lost), look)
        if began < max(fate.unreadable_until, fate.unauthorized_until):
            refused = began >= fate.unreadable_until
            self._pass(_WRITE_SECONDS if refused else 1.0)
            gone = (
                Unauthorized(reason=LOGIN_REFUSED.sentence, refusal=LOGIN_REFUSED)
                if refused
                else Unknown(reason="no endpoint answers (connection refused)")
            )
            return _parts(_nothing(gone), look)
        if fate.frozen is not None and (began < fate.stale_until or self._from_the_other(began)):
            read = fate.frozen
            self.world.stale_read = fate.read_stale = True
        else:
            read = views.readings(self.world, look)
            self.world.stale_read = fate.read_stale = False
            if Look.CLUSTER in look:
                self.world.last_read = fate.read_at = began
        self._pass(_READ_SECONDS)
        return _parts(self._with_listed_snapshots(read), look)

    def _pass(self, seconds: Seconds) -> None:
        """The time of a reading; the machine of the program may be suspended in it."""
        stood_still = self.fate.stood_still()
        self.world.agenda.advance(seconds + stood_still)
        if stood_still:
            self.world.program_since = self.world.agenda.now

    def _with_listed_snapshots(self, read: ClusterReadings) -> ClusterReadings:
        """Without the snapshots where the program looks for them in a cluster state that lists none."""
        activity = read.activity
        if self.world.ways.snapshots_in_state or isinstance(activity, Unknown) or not activity.snapshots:
            return read
        if not self.reads_state_for_snapshots():
            return read
        return replace(read, activity=replace(activity, snapshots=()))

    def _from_the_other(self, now: Instant) -> bool:
        """Whether this reading comes from the endpoint that disagrees with the others."""
        fate = self.fate
        fate.other_endpoint = now < fate.disagree_until and not fate.other_endpoint
        return fate.other_endpoint

    def bulk(self, uuids: Collection[str]) -> Reading[BulkView]:
        """Read these indices. Segments are as of the moment in which the reading begins."""
        began = self.world.agenda.now
        if began < max(self.fate.unreadable_until, self.fate.bulk_unreadable_until):
            self.world.agenda.advance(1.0)
            return Unknown(reason="_segments: no endpoint answers (connection refused)")
        read = bulk.bulk(self.world, uuids)
        if began < self.fate.stale_until:
            read = bulk.of_old(read, self.fate.frozen_bulk)
        elif not isinstance(read, Unknown):
            self.world.forced.last_look = began
        self.world.agenda.advance(_READ_SECONDS)
        return read

    def perform(self, action: ClusterAction) -> ActionResult:
        """Do the action, unless a mishap prevents it. The program may be killed right after."""
        result = self._perform(action)
        self.seams.point(f"after {action_name(action)} of {action_target(action)}")
        return result

    def _perform(self, action: ClusterAction) -> ActionResult:
        self.sent.append(action)
        self.fate.is_judged_by_its_own_reading()
        turns.changes(self.world, action, self.process())
        trip = self.fate.sent(action)
        self.world.agenda.advance(_WRITE_SECONDS)
        lost = self.way.write() if self.way is not None else None
        if lost is not None:
            return lost
        if self.world.agenda.now < self.fate.unauthorized_until:
            return Refused(reason=LOGIN_REFUSED.sentence, refusal=LOGIN_REFUSED)
        if self.world.agenda.now < self.fate.unwritable_until and isinstance(action, _WRITES):
            return Refused(reason=RIGHT_TAKEN.sentence, refusal=RIGHT_TAKEN)
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
            case How.LATE if isinstance(action, ForceMerge) and trip is not None:
                sent, look = self.world.agenda.now, self.world.forced.last_look
                self.world.agenda.after(trip.late, lambda: self._merge(action, look, sent))
                self.world.agenda.advance(_TIMEOUT_SECONDS)
                return InDoubt(reason="read timed out")
            case How.UNACKNOWLEDGED | How.LATE | How.PARTLY:
                self._do(_first_of(action) if trip is not None and trip.how is How.PARTLY else action)
                self.world.agenda.advance(_TIMEOUT_SECONDS)
                return InDoubt(reason="connection reset by peer")
            case _:
                self._do(action)
                return self._heard(action)

    def _heard(self, action: ClusterAction) -> ActionResult:
        """The answer. A merge that is no task would answer at its end, which is not waited for."""
        if isinstance(self.world, RiakWorld) and isinstance(action, WriteSettings):
            away = [name for change in action.changes if (name := holder(change.key)) not in self.world.up]
            return InDoubt(reason=f"{away[0]}: the transfer limit could not be set") if away else Done()
        forced, uuid = self.world.forced, getattr(action, "index_uuid", "")
        if not isinstance(action, ForceMerge) or forced.task_list or not merges.of(self.world, uuid):
            return Done()
        if self.world.agenda.until(lambda: not merges.of(self.world, uuid), _PATIENCE_SECONDS):
            return Done(output="merged")
        return InDoubt(reason="no answer within 5 s")

    def _refusal(self, action: ClusterAction) -> str | None:
        if self.world.master is None:
            return "503 master_not_discovered_exception"
        if isinstance(action, _WRITES):
            return self.world.refuse_settings
        if isinstance(self.world, RiakWorld):
            if isinstance(action, ForceHandoff):
                return None
            return f"Riak has no {action_name(action)}"
        if isinstance(action, ForceMerge | RefreshIndex | SetIndexSettings):
            return self._refusal_of(action)
        return None

    def _refusal_of(self, action: ForceMerge | RefreshIndex | SetIndexSettings) -> str | None:
        """The answer for an index that is gone or closed; an index that is gone needs no merge."""
        index = self._named(action)
        if index is None and isinstance(action, ForceMerge):
            return None
        if index is None:
            return f"404 index_not_found_exception: no such index [{action.index}]"
        if index.closed and not isinstance(action, SetIndexSettings):
            return f"400 index_closed_exception: closed [{action.index}]"
        return None

    def _named(self, action: ForceMerge | RefreshIndex | SetIndexSettings) -> SimIndex | None:
        """The index of that name, even if its uuid differs."""
        indices = self.world.indices
        named = (index for index in indices.values() if index.name == action.index)
        return indices.get(action.index_uuid) or next(named, None)

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
            case ForceMerge():
                self._merge(action, world.forced.last_look)
            case RefreshIndex():
                self._refresh(action)
            case SetIndexSettings():
                self._set(action)
            case ExcludeFromVoting(node=name):
                membership.exclude(world, name)
            case ClearVotingExclusions():
                world.exclusions.clear()
                membership.reconfigure(world)
                world.changed("voting exclusions are cleared")
            case ForceHandoff():
                if isinstance(world, RiakWorld):
                    world.force_handoff()
            case Flush():
                world.apply_late_writes()
                segments.flush(world)
            case ProbeSettings():
                world.apply_late_writes()
            case _:
                assert_never(action)

    def _merge(self, action: ForceMerge, look: Instant, sent: Instant | None = None) -> None:
        """`look` is the program's last reading before it sent this, at `sent` if it only arrives now.

        Later readings do not count, because a merge cannot be cancelled.
        """
        world, index = self.world, self._named(action)
        if index is None or index.closed:
            return
        taken = self.fate.lease_holder is not None and self.fate.lease_taken_at + _NOTICED_SECONDS < look
        merge_judge.asked(world, index, holder=self.fate.lease_holder if taken else None, sent=sent)
        if index.uuid != action.index_uuid and index.made_at < look:
            world.violated(f"{index.name} is merged, which is another index than the one of the run")
        if sent is None and world.forced.task_list and merges.of(world, index.uuid):
            return  # the adapter reads the tasks first
        merges.begin(world, index, action.max_segments, ours=True)

    def _refresh(self, action: RefreshIndex) -> None:
        index = self._named(action)
        if index is not None:
            segments.refresh(index)

    def _set(self, action: SetIndexSettings) -> None:
        index = self._named(action)
        if index is None:
            return
        for key, value in action.wanted.items():
            match key:
                case "index.number_of_replicas":
                    allocation.set_replicas(self.world, index, int(value or 1))
                case "index.refresh_interval":
                    index.refresh_interval = value
                case "index.translog.durability":
                    index.durability = value
                case _:
                    raise ValueError(f"the simulated cluster has no setting {key}")
        if index.refresh_interval != segments.BY_HAND:
            segments.refresh(index)

    def describe(self, action: ClusterAction) -> str:
        """The call in short, as a real adapter describes it."""
        match action:
            case WriteSettings(changes=changes):
                body: dict[str, dict[str, object]] = {}
                for change in changes:
                    body.setdefault(change.level.value, {})[change.key] = change.wanted
                return f"PUT /_cluster/settings {json.dumps(body, sort_keys=True)}"
            case SetReplicas(index=index, wanted=wanted):
                return f'PUT /{index}/_settings {{"index.number_of_replicas": {wanted}}}'
            case ForceMerge(index=index, max_segments=most):
                return f"POST /{index}/_forcemerge?max_num_segments={most}&wait_for_completion=false"
            case SetIndexSettings(index=index, wanted=settings):
                return f"PUT /{index}/_settings {json.dumps(dict(settings), sort_keys=True)}"
            case _:
                return f"{action_name(action)} on {action_target(action)}"

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Let time pass until the watch holds."""
        return self.world.agenda.until(self.holds(watch), timeout)

    def holds(self, watch: ClusterWatch) -> Callable[[], bool]:
        """A check whether the watch holds in the world."""
        world = self.world
        match watch:
            case NodesJoined(count=count):
                return lambda: len(world.placement.members.nodes) >= count
            case CopiesActive(count=count):
                return lambda: views.active(world) >= count
            case MasterElected():
                return lambda: world.master is not None
            case _:
                assert_never(watch)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Remember the nodes, for the tests and for the peers of a Riak node that is down."""
        self.avoided = frozenset(nodes)
        if self.way is not None:
            self.way.avoid(nodes)
        if isinstance(self.world, RiakWorld):
            self.world.asked_after = self.avoided

    def close(self) -> None:
        """Do nothing: no connection is open."""


def _first_of(action: ClusterAction) -> ClusterAction:
    """The part that is done of an action done in part: the first of several settings."""
    return replace(action, changes=action.changes[:1]) if isinstance(action, WriteSettings) else action


def _nothing(why: Unknown) -> ClusterReadings:
    """Every part unread."""
    return ClusterReadings(cluster=why, settings=why, health=why, recoveries=why, activity=why, disks=why)


def _parts(read: ClusterReadings, look: Collection[Look]) -> ClusterReadings:
    return ClusterReadings(
        cluster=read.cluster if Look.CLUSTER in look else NOT_READ,
        settings=read.settings if Look.SETTINGS in look else NOT_READ,
        health=read.health if Look.HEALTH in look else NOT_READ,
        recoveries=read.recoveries if Look.RECOVERIES in look else NOT_READ,
        finished=read.finished if Look.FINISHED in look else NOT_READ,
        activity=read.activity if Look.ACTIVITY in look else NOT_READ,
        disks=read.disks if Look.DISKS in look else NOT_READ,
        upgrade=read.upgrade if Look.UPGRADE in look else NOT_READ,
    )
