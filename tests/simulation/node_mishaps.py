"""Mishaps of nodes, their machines and networks other than plain death.

The durations here are those of the simulated cluster. No limit of the program is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds
from orchestrator.simulation import machines, membership, merges
from orchestrator.simulation.mishaps import OfMachine, What
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World

if TYPE_CHECKING:
    from orchestrator.simulation.fate import Fate

_MISSED_AFTER: Final[Seconds] = 40.0
"""A member that does not answer for this long is removed (three checks of ten seconds, and pauses)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlaps(What):
    """A node leaves the cluster and rejoins in the same life: its network fails for this long."""

    node: NodeName
    seconds: Seconds = 2.0

    def befall(self, fate: Fate) -> None:
        _flap(fate.world, fate.world.nodes[self.node], self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePauses(What):
    """The process of a node does nothing for a while, as in a long garbage collection.

    It stays a member unless the pause is longer than the cluster's fault detection.
    """

    node: NodeName
    seconds: Seconds = 20.0
    host: bool = False  # the whole machine is paused, so SSH does not answer either

    def befall(self, fate: Fate) -> None:
        _pause(fate.world, fate.world.nodes[self.node], self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiesAgain(What):
    """Each of a node's next lives ends by itself."""

    node: NodeName
    times: int = 1  # how many lives
    # seconds from the start of the process to its end; 1 is before it joins, 30 long after
    after: Seconds = 5.0
    back_after: Seconds | None = None  # seconds until the service manager starts it again; None = it does not

    def befall(self, fate: Fate) -> None:
        node = fate.world.nodes[self.node]
        node.crashes, node.crash_after, node.crash_back = self.times, self.after, self.back_after


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLost(What):
    """At its next start a node has an empty disk, and therefore a new node id."""

    node: NodeName

    def befall(self, fate: Fate) -> None:
        fate.world.nodes[self.node].loses_disk = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnsChanged(What):
    """At its next start a node has another version or another zone. None leaves it unchanged."""

    node: NodeName
    version: str | None = None
    zone: str | None = None

    def befall(self, fate: Fate) -> None:
        node = fate.world.nodes[self.node]
        node.next_version, node.next_zone = self.version or node.next_version, self.zone or node.next_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLost(What):
    """All nodes of a zone die and their machines are unreachable, until a person repairs them."""

    zone: str
    back_after: Seconds = 600.0

    def befall(self, fate: Fate) -> None:
        world, back = fate.world, fate.now + self.back_after
        for node in [node for node in world.nodes.values() if node.zone == self.zone]:
            node.unreachable_until = max(node.unreachable_until, back)
            machines.die(world, node)
            world.agenda.after(self.back_after, partial(machines.start, world, node))


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootHangs(What):
    """The next reboot of a node's machine takes this long."""

    node: NodeName
    seconds: Seconds = 3000.0

    def befall(self, fate: Fate) -> None:
        for each in machines.of_one(fate.world, fate.world.nodes[self.node]):
            each.reboot_seconds = self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRefuses(What):
    """A host refuses the program from now on, for this long."""

    node: NodeName
    seconds: Seconds
    # the host key changed, so that nothing can be read either. Otherwise sudo refuses: the host is read, and
    # every verb is refused.
    key: bool = False

    def befall(self, fate: Fate) -> None:
        for each in machines.of_one(fate.world, fate.world.nodes[self.node]):
            each.refuses_until, each.key_changed = fate.now + self.seconds, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersUnreachable(What):
    """A node reaches the master and no other node, so that no copy can be recovered from or to it."""

    node: NodeName
    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.world.nodes[self.node].apart_from_peers_until = fate.now + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswersLate(What):
    """For a while each reading of a host takes this long, and is answered."""

    node: NodeName
    seconds: Seconds
    takes: Seconds

    def befall(self, fate: Fate) -> None:
        for each in machines.of_one(fate.world, fate.world.nodes[self.node]):
            each.late_until, each.answer_takes = fate.now + self.seconds, self.takes


def _flap(world: World, node: SimNode, seconds: Seconds) -> None:
    if not node.process or node.apart:
        return
    node.apart = True
    life = node.life
    membership.parted(world, node)

    def together() -> None:
        if node.apart and node.life == life:
            node.apart = False
            membership.rejoined(world, node)

    world.agenda.after(seconds, together)


def _pause(world: World, node: SimNode, what: NodePauses) -> None:
    if not node.process:
        return
    life, ends = node.life, world.agenda.now + what.seconds
    node.paused_until = max(node.paused_until, ends)
    if what.host:
        for each in machines.of_one(world, node):
            each.unreachable_until = max(each.unreachable_until, ends)
    for recovery in world.recoveries.running:
        if node.name in (recovery.source, recovery.target):
            recovery.ends += what.seconds
    world.changed(f"{node.name} pauses for {what.seconds:.0f} s")

    def missed() -> None:
        if node.life == life:
            _flap(world, node, ends - world.agenda.now)

    if what.seconds > _MISSED_AFTER:
        world.agenda.after(_MISSED_AFTER, missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHangs(OfMachine):
    """For a while SSH to a host hangs. The host may carry out a command, but does not answer."""

    node: NodeName
    seconds: Seconds
    does: bool = True

    def befall(self, fate: Fate) -> None:
        for each in machines.of_one(fate.world, fate.world.nodes[self.node]):
            each.hangs_until, each.hangs_and_does = fate.now + self.seconds, self.does


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedByHand(OfMachine):
    """Another person restarts a node. It starts again as soon as it has stopped."""

    node: NodeName

    def befall(self, fate: Fate) -> None:
        machines.restart(fate.world, fate.world.nodes[self.node])


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementRuns(OfMachine):
    """Configuration management is at work on the node's machine for so long."""

    node: NodeName
    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        for each in machines.of_one(fate.world, fate.world.nodes[self.node]):
            each.disk.managed = (fate.now, fate.now + self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterExcluded(What):
    """Another operator excludes a node from voting for a while."""

    node: NodeName
    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        world = fate.world
        world.excluded_by_others.add(self.node)
        membership.exclude(world, self.node)
        world.agenda.after(self.seconds, lambda: membership.clear_exclusion(world, self.node))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFills(What):
    """A disk fills for a while with data that is not the cluster's."""

    node: NodeName
    share: float = 0.89
    seconds: Seconds = 600.0

    def befall(self, fate: Fate) -> None:
        merges.fill(fate.world, self.node, self.share, self.seconds)
