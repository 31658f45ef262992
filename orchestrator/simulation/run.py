"""One simulated run: a world with its ports, and the events with which a run begins, resumes or is restored.

Who drives it is not decided here: the real loop does, over these ports.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engine.evolve import replay
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import selected
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, LeaseTaken, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.phase import Request
from orchestrator.model.policy import Policy
from orchestrator.simulation import views
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import Mishap, Seams, Trip
from orchestrator.simulation.records import MemoryJournal, SimulatedClock, SimulatedLease, SimulatedListener
from orchestrator.simulation.world import World


class Simulation:
    """A world and one run's ports to it.

    Args:
        world: the cluster.
        plan: what happens to it.
        trips: verbs that go wrong.
    """

    def __init__(
        self, world: World, *, plan: Sequence[Mishap] = (), trips: Sequence[Trip] = (), run: str = "run-1"
    ) -> None:
        self.world = world
        self.seams = Seams()
        self.fate = Fate(world, plan=plan, trips=trips)
        self.clock = SimulatedClock(world=world, fate=self.fate)
        self.cluster = SimulatedCluster(world=world, fate=self.fate, seams=self.seams)
        self.hosts = SimulatedHosts(world=world, fate=self.fate, seams=self.seams)
        self.listener = SimulatedListener(world=world, fate=self.fate, cluster=self.cluster, hosts=self.hosts)
        self.journal = MemoryJournal(run=run, world=world, fate=self.fate, seams=self.seams)
        self.lease = SimulatedLease(world=world, fate=self.fate)
        self.run = run

    def begin(self, policy: Policy, *, planned: tuple[tuple[NodeName, ...], ...] = ()) -> RunState:
        """Journal the beginning of a run over the nodes that the policy selects, in planned waves if any."""
        view = views.cluster(self.world)
        self.world.unassigned_before = self.world.unassigned()
        nodes = selected(view, policy.selection, policy.zone_attribute)
        started = RunStarted(
            cluster=self.world.name,
            cluster_uuid=self.world.uuid,
            version=view.version,
            distribution=view.distribution,
            policy=policy,
            nodes=tuple(node.name for node in nodes),
            operator="ann",
            host="bastion",
            addresses={node.name: node.address for node in nodes},
            planned=planned,
        )
        return self.journalled(started, LeaseTaken(epoch=1, holder="ann@bastion"))

    def resume(self, *, retry_failed: bool = False, skip: Sequence[NodeName] = ()) -> RunState:
        """A new process takes the run up."""
        event = RunResumed(operator="ann", host="bastion", retry_failed=retry_failed, skip=tuple(skip))
        return self._taken_up(event)

    def restore(self) -> RunState:
        """A new process only puts things back."""
        return self._taken_up(RestoreBegun(operator="ann", host="bastion"))

    def _taken_up(self, event: Event) -> RunState:
        self.fate.request, self.fate.lease_holder = Request.NONE, None
        return self.journalled(event, LeaseTaken(epoch=1, holder="ann@bastion", takeover=False))

    def journalled(self, *events: Event) -> RunState:
        """Commit these events as a process would; the state that they lead to."""
        self.journal.append(events, self.clock.now())
        return replay(self.run, self.journal.records)
