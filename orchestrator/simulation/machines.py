"""The service manager of each machine: stops and starts are requested and take time."""

from __future__ import annotations

from typing import Final, Protocol

from orchestrator.model.action import ActionResult, Done
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Seconds
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.facts import Fact
from orchestrator.simulation.parts import SimNode

_DOWN: Final = (ServiceState.STOPPED, ServiceState.FAILED)


class Machinery(Protocol):
    """What machines need of the world, for any kind of cluster."""

    agenda: Agenda
    nodes: dict[NodeName, SimNode]
    queues_starts: bool

    def changed(self, what: str) -> None:
        """Something happened."""
        ...

    def jittered(self, seconds: Seconds) -> Seconds:
        """This duration, varied at random."""
        ...

    def process_ended(self, node: SimNode, *, clean: bool) -> None:
        """The process of a node has ended."""
        ...

    def process_began(self, node: SimNode) -> None:
        """The process of a node has started."""
        ...


def stop(world: Machinery, node: SimNode) -> ActionResult:
    """Request a stop. A start that waited is dropped, as a manager replaces a queued job."""
    node.start_queued = False
    if node.service in _DOWN or node.service is ServiceState.STOPPING:
        return Done()
    node.job += 1
    job, node.service = node.job, ServiceState.STOPPING
    if not node.stop_hangs:
        world.agenda.after(world.jittered(node.stop_seconds), lambda: _stopped(world, node, job))
    return Done()


def unhang(world: Machinery, node: SimNode) -> None:
    """A person repairs a stop that hung: it ends now."""
    node.stop_hangs = False
    if node.service is ServiceState.STOPPING:
        job = node.job
        world.agenda.after(0.0, lambda: _stopped(world, node, job))


def _stopped(world: Machinery, node: SimNode, job: int) -> None:
    if node.job != job or node.service is not ServiceState.STOPPING:
        return
    node.service = ServiceState.STOPPED
    if node.process:
        world.process_ended(node, clean=True)
    if node.start_queued:
        node.start_queued = False
        start(world, node)
    elif node.rises_after is not None:
        after, node.rises_after = node.rises_after, None
        world.agenda.after(after, lambda: start(world, node))


def start(world: Machinery, node: SimNode) -> ActionResult:
    """Request a start. During a stop it waits, or is lost where there is no queue."""
    if node.service is ServiceState.STOPPING:
        node.start_queued = node.start_queued or world.queues_starts
    elif node.service in _DOWN:
        node.job += 1
        job, node.service = node.job, ServiceState.STARTING
        world.agenda.after(world.jittered(node.start_seconds), lambda: _started(world, node, job))
    return Done()


def restart(world: Machinery, node: SimNode) -> None:
    """A person stops a node and starts it as soon as it is down."""
    _not_by_us(world, node)
    stop(world, node)
    start(world, node)
    node.start_queued = node.service is ServiceState.STOPPING


def _started(world: Machinery, node: SimNode, job: int) -> None:
    if node.job != job or node.service is not ServiceState.STARTING:
        return
    if node.starts_that_fail > 0:
        node.starts_that_fail -= 1
        node.failed_starts += 1
        node.service = ServiceState.FAILED
        return
    node.service = ServiceState.RUNNING
    world.process_began(node)


def of_one(world: Machinery, node: SimNode) -> list[SimNode]:
    """All nodes of a node's machine, itself included."""
    return [other for other in world.nodes.values() if other.machine == node.machine]


def reboot(world: Machinery, node: SimNode) -> ActionResult:
    """The machine goes down with all its nodes, and returns with a new boot id and its enabled services."""
    nodes, takes = of_one(world, node), node.reboot_seconds
    for each in nodes:
        each.job += 1
        each.unreachable_until = max(each.unreachable_until, world.agenda.now + takes)
        if each.process:
            world.process_ended(each, clean=True)
        each.service, each.disk.state = ServiceState.STOPPED, None
    jobs = [each.job for each in nodes]
    world.agenda.after(takes, lambda: _booted(world, nodes, jobs))
    return Done()


def _booted(world: Machinery, nodes: list[SimNode], jobs: list[int]) -> None:
    for node, job in zip(nodes, jobs, strict=True):
        node.boot += 1
        node.facts.append(Fact(at=world.agenda.now, what="booted", alive=False))
        if node.job == job and node.starts_at_boot:
            start(world, node)


def _not_by_us(world: Machinery, node: SimNode) -> None:
    """A stop that already counts as lost does not cause what takes the node down now."""
    if node.asked_in_vain(world.agenda.now):
        node.stopped_late = world.agenda.now


def die(world: Machinery, node: SimNode) -> None:
    """The process ends by itself: killed, out of memory, power."""
    _not_by_us(world, node)
    node.job += 1
    node.start_queued = False
    node.service = ServiceState.FAILED
    if node.process:
        world.changed(f"{node.name} dies")
        world.process_ended(node, clean=False)
