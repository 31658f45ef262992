"""Triggers the mishaps of a scenario, each at its time or after its verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import assert_never

from orchestrator.model.action import Action, WriteSettings, action_name, action_target
from orchestrator.model.merging import BulkView
from orchestrator.model.phase import Request
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds
from orchestrator.ports import ClusterReadings
from orchestrator.simulation import (
    bulk,
    gates,
    index_changes,
    index_mishaps,
    machines,
    membership,
    merges,
    mishaps,
    node_changes,
    node_mishaps,
    program_mishaps,
    riak_mishaps,
    ring_changes,
    segments,
    views,
)
from orchestrator.simulation.mishaps import Mishap, OfCluster, OfIndices, OfMachine, OfProgram, Trip, What
from orchestrator.simulation.parts import GateState
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World


class Fate:
    """The planned and past mishaps of one world.

    Attributes:
        request: the strongest request that a person has made of the program.
        lease_holder: the person who removed our lease by hand, at `lease_taken_at`; None while the lease is
            ours.
        remove_record: removes the program's record from the cluster and returns whether it existed.
        unrefreshed: the period in which no write of our lease arrives.
        unreadable_until: reads of the cluster fail before this moment; `bulk_unreadable_until`: reads of the
            indices that are merged.
        stale_until: reads are answered with `frozen` before this moment, those of indices with `frozen_bulk`.
        unauthorized_until: every call of the cluster is answered with 401 before this moment.
        unwritable_until: every change of settings is answered with 403 before this moment.
        disagree_until: every second reading is `frozen` before this moment; `other_endpoint`: the next one
            is.
        disk_full_until: the journal cannot be written before this moment, for the reason `journal_says`;
            `torn`: it can never be read again either.
        successor: begins the run of the machine that takes over our run; None = only the lease is taken.
        read_at: when the program's last reading began; `read_stale`: that reading reports that it may be old.
        asleep_until: the program's machine is suspended until this moment.
        standing_still: how long the program is suspended at its next reading; `stood` is the sum so far.
        clock_ahead: how far the program's clock is ahead of the world's, from its next process on.
        happened: how often each kind of mishap, and each fate of a verb, happened.
        befell: the same, as single entries.
    """

    def __init__(self, world: World, *, plan: Sequence[Mishap] = (), trips: Sequence[Trip] = ()) -> None:
        self._world = world
        self._waiting = [mishap for mishap in plan if mishap.verb is not None]
        self._trips = list(trips)
        self._seen_by_trip = [0] * len(self._trips)
        self._seen_by_mishap = [0] * len(self._waiting)
        self.request = Request.NONE
        self.lease_holder: str | None = None
        self.lease_taken_at: Instant = 0.0
        self.remove_record: Callable[[], bool] = lambda: True
        self.unrefreshed: tuple[Instant, Instant] = (0.0, 0.0)
        self.unreadable_until: Instant = 0.0
        self.stale_until: Instant = 0.0
        self.bulk_unreadable_until: Instant = 0.0
        self.frozen: ClusterReadings | None = None
        self.frozen_bulk: Reading[BulkView] = NOT_READ
        self.unauthorized_until: Instant = 0.0
        self.unwritable_until: Instant = 0.0
        self.disagree_until: Instant = 0.0
        self.other_endpoint = False
        self.disk_full_until: Instant = 0.0
        self.journal_says = "no space left on device"
        self.torn = False
        self.successor: Callable[[program_mishaps.TakenOver], None] | None = None
        self.read_at: Instant = 0.0
        self.read_stale = False
        self.asleep_until: Instant = 0.0
        self.standing_still: Seconds = 0.0
        self.stood: Seconds = 0.0
        self.clock_ahead: Seconds = 0.0
        self.happened: Counter[str] = Counter()
        self.befell: list[tuple[Instant, What | Trip]] = []
        for mishap in plan:
            if mishap.verb is None:
                world.agenda.after(mishap.after, lambda what=mishap.what: self.befall(what))  # type: ignore[misc]  # a default binds the loop's value

    def sent(self, action: Action) -> Trip | None:
        """The program sends a verb: trigger the mishaps that waited for it, and return its trip, if any."""
        for place, mishap in enumerate(self._waiting):
            if mishap.verb != action_name(action) or mishap.target not in (None, action_target(action)):
                continue
            self._seen_by_mishap[place] += 1
            if self._seen_by_mishap[place] == mishap.nth:
                self._world.agenda.after(mishap.after, lambda what=mishap.what: self.befall(what))  # type: ignore[misc]  # a default binds the loop's value
        met = None
        for place, trip in enumerate(self._trips):
            if trip.matches(action):
                self._seen_by_trip[place] += 1
                if trip.first <= self._seen_by_trip[place] < trip.first + trip.times:
                    met = met or trip
        if met is not None:
            self.happened[f"verb {met.how.value}"] += 1
            self.befell.append((self._world.agenda.now, met))
        return met

    def stood_still(self) -> Seconds:
        """How long the program is suspended at this reading. It sends no heartbeat meanwhile."""
        seconds, self.standing_still = self.standing_still, 0.0
        self.stood += seconds
        if seconds:
            self.asleep_until = self._world.agenda.now + seconds
        return seconds

    def is_judged_by_its_own_reading(self) -> None:
        """Judge by this program's own readings, not by those of another process on the same world."""
        self._world.last_read, self._world.stale_read = self.read_at, self.read_stale

    def late(self, trip: Trip, action: WriteSettings) -> None:
        """A settings update takes effect later, but before any later write."""
        world = self._world
        world.late_writes.append((world.last_read, action.changes))
        world.agenda.after(trip.late, world.apply_late_writes)

    def befall(self, what: What) -> None:
        """Trigger it now."""
        world = self._world
        world.story.append((world.agenda.now, f"mishap: {what}"))
        self.happened[type(what).__name__] += 1
        self.befell.append((world.agenda.now, what))
        match what:
            case (
                mishaps.NodeDies()
                | mishaps.HostCutOff()
                | mishaps.HostHangs()
                | mishaps.RestartedByHand()
                | mishaps.StopHangs()
                | mishaps.StartsFail()
                | mishaps.RisesByItself()
                | mishaps.ManagementRuns()
            ):
                _befall_machine(world, what)
            case (
                mishaps.IndexMade()
                | mishaps.RolledOver()
                | mishaps.SnapshotBegun()
                | mishaps.VoterExcluded()
                | mishaps.SettingMeddled()
                | mishaps.SettingsRefused()
                | mishaps.AllocationsFail()
                | mishaps.GateShut()
            ):
                _befall_cluster(world, what)
            case (
                mishaps.WriterBegins()
                | mishaps.MergedByOthers()
                | mishaps.IndexDeleted()
                | mishaps.IndexClosed()
                | mishaps.DiskFills()
            ):
                _befall_indices(world, what)
            case (
                node_mishaps.NodeFlaps()
                | node_mishaps.NodePauses()
                | node_mishaps.DiesAgain()
                | node_mishaps.DiskLost()
                | node_mishaps.ReturnsChanged()
                | node_mishaps.ZoneLost()
                | node_mishaps.RebootHangs()
                | node_mishaps.HostRefuses()
                | node_mishaps.PeersUnreachable()
                | node_mishaps.HostAnswersLate()
            ):
                node_changes.befall(world, what)
            case (
                index_mishaps.Rollovers()
                | index_mishaps.IndexRestored()
                | index_mishaps.IndexRestoredOver()
                | index_mishaps.IndexReopened()
                | index_mishaps.IndexMounted()
                | index_mishaps.ReplicasSet()
                | index_mishaps.WorkBegun()
                | index_mishaps.RecoveriesStall()
            ):
                index_changes.befall(world, what)
            case (
                riak_mishaps.HandoffStalls()
                | riak_mishaps.OwnershipMoves()
                | riak_mishaps.MemberJoins()
                | riak_mishaps.ClaimantMoves()
                | riak_mishaps.ServiceNeverUp()
                | riak_mishaps.VnodesHalt()
            ):
                if isinstance(world, RiakWorld):
                    ring_changes.befall(world, what)
            case _:
                self._befall_program(what)

    def _befall_program(self, what: OfProgram) -> None:
        """Mishaps between the program and the world."""
        world, now = self._world, self._world.agenda.now
        match what:
            case mishaps.Unreadable(seconds=seconds):
                self.unreadable_until = now + seconds
            case mishaps.SegmentsUnreadable(seconds=seconds):
                self.bulk_unreadable_until = now + seconds
            case mishaps.StaleReadings(seconds=seconds):
                self.stale_until, self.frozen = now + seconds, views.kept(world)
                if world.forced.policy is not None:
                    self.frozen_bulk = bulk.bulk(world, world.indices)
            case mishaps.ProgramStandsStill(seconds=seconds):
                self.standing_still = seconds
            case mishaps.ClockSet(seconds=seconds):
                self.clock_ahead += seconds
            case mishaps.LeaseTaken(holder=holder):
                self._lose_the_lease(holder)
            case mishaps.LeaseUnrefreshed(seconds=seconds):
                self.unrefreshed = (now, now + seconds)
            case mishaps.Asked(request=request):
                self.request = max(self.request, request)
            case mishaps.DiskFull() | program_mishaps.JournalFails():
                self._befall_journal(what)
            case program_mishaps.CredentialsRefused(seconds=seconds, writes=writes):
                self.unwritable_until = now + seconds
                self.unauthorized_until = self.unauthorized_until if writes else now + seconds
            case program_mishaps.EndpointsDisagree(seconds=seconds):
                self.disagree_until, self.frozen = now + seconds, views.kept(world)
            case program_mishaps.TakenOver():
                self._take_over(what)
            case _:
                assert_never(what)

    def _take_over(self, what: program_mishaps.TakenOver) -> None:
        """Suspend the program's machine. Without a `successor`, another machine takes only the lease."""
        self.standing_still = what.seconds
        if self.successor is not None:
            self.successor(what)
        else:
            self._lose_the_lease("eve@elsewhere")

    def _lose_the_lease(self, holder: str) -> None:
        """A person removes the program's record; a record of another program stays."""
        if self.remove_record():
            self.lease_holder, self.lease_taken_at = holder, self._world.agenda.now

    def _befall_journal(self, what: mishaps.DiskFull | program_mishaps.JournalFails) -> None:
        now = self._world.agenda.now
        match what:
            case mishaps.DiskFull(seconds=seconds):
                self.disk_full_until, self.journal_says = now + seconds, "no space left on device"
            case program_mishaps.JournalFails(reason=reason, seconds=seconds):
                self.torn = self.torn or seconds is None
                self.disk_full_until = now + (float("inf") if seconds is None else seconds)
                self.journal_says = reason
            case _:
                assert_never(what)


def _befall_machine(world: World, what: OfMachine) -> None:
    node, now = world.nodes[what.node], world.agenda.now
    match what:
        case mishaps.NodeDies(back_after=back):
            machines.die(world, node)
            if back is not None:
                world.agenda.after(back, lambda: machines.start(world, node))
        case mishaps.HostCutOff(seconds=seconds):
            for each in machines.of_one(world, node):
                each.unreachable_until = max(each.unreachable_until, now + seconds)
        case mishaps.HostHangs(seconds=seconds, does=does):
            for each in machines.of_one(world, node):
                each.hangs_until, each.hangs_and_does = now + seconds, does
        case mishaps.RestartedByHand():
            machines.restart(world, node)
        case mishaps.StopHangs(repaired_after=repaired):
            node.stop_hangs = True
            if repaired is not None:
                world.agenda.after(repaired, lambda: machines.unhang(world, node))
        case mishaps.StartsFail(times=times):
            node.starts_that_fail = times
        case mishaps.RisesByItself(after=after):
            node.rises_after = after
        case mishaps.ManagementRuns(seconds=seconds):
            for each in machines.of_one(world, node):
                each.disk.managed = (now, now + seconds)
        case _:
            assert_never(what)


def _befall_cluster(world: World, what: OfCluster) -> None:
    match what:
        case mishaps.IndexMade(name=name, on=place, replicas=replicas):
            world.create_index(name, on=place, replicas=replicas)
        case mishaps.RolledOver(index=name, to=new):
            world.roll_over(name, new)
        case mishaps.SnapshotBegun(name=name, seconds=seconds):
            world.begin_snapshot(name)
            if seconds is not None:
                world.agenda.after(seconds, lambda: world.end_snapshot(name))
        case mishaps.VoterExcluded(node=node, seconds=seconds):
            world.excluded_by_others.add(node)
            membership.exclude(world, node)
            world.agenda.after(seconds, lambda: membership.clear_exclusion(world, node))
        case mishaps.SettingMeddled(key=key, value=value, level=level):
            world.meddle(level, key, value)
        case mishaps.SettingsRefused(reason=reason):
            world.refuse_settings = reason or None
        case mishaps.AllocationsFail(index=name, times=times):
            for shard in [
                one for index in world.indices.values() if index.name == name for one in index.shards
            ]:
                shard.failing = times
        case mishaps.GateShut(name=name, seconds=seconds, readable=readable):
            gates.shut(world, name, GateState.CLOSED if readable else GateState.UNREADABLE, seconds)
        case _:
            assert_never(what)


def _befall_indices(world: World, what: OfIndices) -> None:
    """Mishaps of indices and their merges; no effect on an index that is gone."""
    if isinstance(what, mishaps.DiskFills):
        merges.fill(world, what.node, what.share, what.seconds)
        return
    index = next((index for index in world.indices.values() if index.name == what.index), None)
    if index is None or world.master is None:
        return
    match what:
        case mishaps.WriterBegins(seconds=seconds):
            segments.turn(world, index, written=True)
            if seconds is not None:
                world.agenda.after(seconds, lambda: segments.turn(world, index, written=False))
        case mishaps.MergedByOthers(max_segments=most):
            if not index.closed:
                merges.begin(world, index, most, ours=False)
        case mishaps.IndexDeleted(index=name, made_again=again):
            world.delete_index(name)
            if again:
                world.create_index(name, replicas=index.replicas)
                again_made = next(made for made in world.indices.values() if made.name == name)
                segments.turn(world, again_made, written=False)
        case mishaps.IndexClosed():
            segments.turn(world, index, written=False)
            index.closed = True
            world.changed(f"{index.name} is closed")
        case _:
            assert_never(what)
