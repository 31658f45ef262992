"""One simulated run: a world with its ports, and the events with which a run begins, resumes or is restored.

Who drives it is not decided here: the real loop does, over these ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.changes import from_record
from orchestrator.engine.fold import RunState, replay
from orchestrator.engine.waves import selected
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, LeaseTaken, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant
from orchestrator.simulation import bulk, turns, views
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.gates import SimulatedGates
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import Mishap, Seams, Trip
from orchestrator.simulation.parts import SimGate, SimOwner
from orchestrator.simulation.records import MemoryJournal, SimulatedClock, SimulatedLease, SimulatedListener
from orchestrator.simulation.world import World


class Simulation:
    """A world and one run's ports to it.

    Args:
        world: the cluster.
        plan: what happens to it.
        trips: verbs that go wrong.
        run: its id.
        fate: what goes on to happen to a world that had a run before; instead of `plan` and `trips`.
        operator: who runs it, and on which host.
    """

    def __init__(
        self,
        world: World,
        *,
        plan: Sequence[Mishap] = (),
        trips: Sequence[Trip] = (),
        run: str = "run-1",
        fate: Fate | None = None,
        operator: tuple[str, str] = ("ann", "bastion"),
    ) -> None:
        self.world = world
        self.seams = Seams()
        self.fate = fate or Fate(world, plan=plan, trips=trips)
        self.clock = SimulatedClock(world=world, fate=self.fate, ahead=self.fate.clock_ahead)
        self.cluster = SimulatedCluster(world=world, fate=self.fate, seams=self.seams)
        self.hosts = SimulatedHosts(world=world, fate=self.fate, seams=self.seams)
        self.gates = SimulatedGates(world=world)
        self.listener = SimulatedListener(
            world=world, fate=self.fate, clock=self.clock, cluster=self.cluster, hosts=self.hosts
        )
        self.journal = MemoryJournal(run=run, world=world, fate=self.fate, seams=self.seams)
        self.lease = SimulatedLease(world=world, fate=self.fate)
        self.cluster.process = self.hosts.process = self.process
        self.run, (self.operator, self.host) = run, operator
        self.began: Instant = world.agenda.now

    def process(self) -> turns.Process:
        """This process of the program, for the judge."""
        return turns.Process(run=self.run, epoch=self.lease.record.epoch)

    @property
    def _holder(self) -> str:
        return f"{self.operator}@{self.host}"

    def begin(self, policy: Policy, *, planned: tuple[tuple[NodeName, ...], ...] = ()) -> RunState:
        """Journal the beginning of a run over the nodes that the policy selects, in planned waves if any."""
        return self.begin_as(self._start_of(policy, planned))

    def begin_as(self, started: RunStarted) -> RunState:
        """Journal the beginning of this very run, as it would begin on the cluster that this one is like."""
        self.note_what_is(started.policy)
        return self.journalled(started, LeaseTaken(epoch=self.lease.record.epoch, holder=self._holder))

    def take_over(self, policy: Policy) -> RunState | None:
        """Journal a run that only puts back what the record in the cluster tells of; None = nothing."""
        record = self.lease.record
        if record.owes_nothing:
            return None
        self.note_what_is(policy)
        first, *others = from_record(record, self._start_of(policy, ()))
        taken = LeaseTaken(epoch=record.epoch + 1, holder="ben@bastion2", takeover=True)
        self.lease.record = replace(record, epoch=record.epoch + 1, run=self.run, owner="ben@bastion2")
        self._owns()
        return self.journalled(first, taken, *others)

    def _owns(self) -> None:
        """From now on the cluster is this process's: any other one was taken over."""
        self.world.owner = SimOwner(
            epoch=self.lease.record.epoch,
            since=self.world.agenda.now,
            in_hand=lambda: [each.node for each in self.lease.record.in_hand],
        )

    def claim(self) -> None:
        """Take the cluster over where nothing is left to put back."""
        self.lease.record = replace(self.lease.record, epoch=self.lease.record.epoch + 1, run=self.run)
        self._owns()

    def successor(self, run: str) -> Simulation:
        """Another machine's program beside this one, which lives on.

        Each has reads, requests and a disk of its own. It begins with the record that is in the cluster;
        `take_over` then makes the cluster its own.
        """
        other = Simulation(self.world, run=run, operator=("ben", "bastion2"))
        other.lease.record = self.lease.record
        self.lease.succeeded_by = other.lease
        return other

    def elsewhere(self, run: str) -> Simulation:
        """Another machine's program on the same world: it knows of this one what stands in the cluster."""
        other = Simulation(self.world, run=run, fate=self.fate)
        other.lease.record = self.lease.in_cluster
        other.fate.request, other.fate.lease_holder = Request.NONE, None
        other.fate.disk_full_until, other.fate.torn = 0.0, False  # its journal is on a disk of its own
        return other

    def let_go(self, state: RunState) -> None:
        """Release the lease at the end of an attempt, unless something is left for whoever repairs it."""
        if state.outcome is not Outcome.NOT_RESTORED:
            self.lease.record = RunState(run=self.run).lease_record(self.lease.record)

    def note_what_is(self, policy: Policy) -> None:
        """What the run finds is no fault of it."""
        self.world.unassigned_before, self.world.had = self.world.unassigned(), {}
        self.world.away_before = {node.name for node in self.world.nodes.values() if not node.joined}
        for gate in policy.gates:
            self.world.gates.setdefault(gate.name, SimGate())
        self.world.forced.policy = policy.merge
        self.world.hooks = policy.hooks
        self.began = self.world.agenda.now

    def _start_of(self, policy: Policy, planned: tuple[tuple[NodeName, ...], ...]) -> RunStarted:
        view = views.cluster(self.world)
        nodes = selected(view, policy.selection, policy.zone_attribute)
        return RunStarted(
            cluster=self.world.name,
            cluster_uuid=self.world.uuid,
            version=view.version,
            distribution=view.distribution,
            policy=policy,
            nodes=tuple(node.name for node in nodes),
            operator=self.operator,
            host=self.host,
            addresses={node.name: node.address for node in nodes},
            planned=planned,
            indices=bulk.targets(self.world, policy.merge) if policy.merge else (),
        )

    def resume(self, *, retry_failed: bool = False, skip: Sequence[NodeName] = ()) -> RunState:
        """A new process takes the run up."""
        who, where = self.operator, self.host
        return self._taken_up(
            RunResumed(operator=who, host=where, retry_failed=retry_failed, skip=tuple(skip))
        )

    def restore(self) -> RunState:
        """A new process only puts things back."""
        return self._taken_up(RestoreBegun(operator=self.operator, host=self.host))

    def _taken_up(self, event: Event) -> RunState:
        self.fate.request, self.fate.lease_holder = Request.NONE, None
        self.clock.ahead = self.fate.clock_ahead
        if self.lease.deposed:
            record = self.lease.in_cluster
            self.lease.record = replace(record, epoch=record.epoch + 1, run=self.run, owner=self._holder)
            self.lease.succeeded_by = None
            self._owns()
        epoch = self.lease.record.epoch
        return self.journalled(event, LeaseTaken(epoch=epoch, holder=self._holder, takeover=False))

    def journalled(self, *events: Event) -> RunState:
        """Commit these events as a process would; the state that they lead to."""
        self.journal.append(events, self.clock.now())
        self.world.program_since = self.world.agenda.now
        return replay(self.run, self.journal.records)
