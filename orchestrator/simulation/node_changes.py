"""Makes nodes flap, pause, crash again, return changed or be unreachable.

The durations here are those of the simulated cluster. No limit of the program is copied.
"""

from __future__ import annotations

from typing import Final, assert_never

from orchestrator.model.reading import Seconds
from orchestrator.simulation import machines, membership, node_mishaps
from orchestrator.simulation.node_mishaps import OfNodes
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World

_MISSED_AFTER: Final[Seconds] = 40.0
"""A member that does not answer for this long is removed (three checks of ten seconds, and pauses)."""


def befall(world: World, what: OfNodes) -> None:
    """Trigger it now."""
    if isinstance(what, node_mishaps.ZoneLost):
        _lose_zone(world, what)
        return
    node, now = world.nodes[what.node], world.agenda.now
    match what:
        case node_mishaps.NodeFlaps(seconds=seconds):
            _flap(world, node, seconds)
        case node_mishaps.NodePauses():
            _pause(world, node, what)
        case node_mishaps.DiesAgain(times=times, after=after, back_after=back):
            node.crashes, node.crash_after, node.crash_back = times, after, back
        case node_mishaps.DiskLost():
            node.loses_disk = True
        case node_mishaps.ReturnsChanged(version=version, zone=zone):
            node.next_version, node.next_zone = version or node.next_version, zone or node.next_zone
        case node_mishaps.RebootHangs(seconds=seconds):
            for each in machines.of_one(world, node):
                each.reboot_seconds = seconds
        case node_mishaps.HostRefuses(seconds=seconds, key=key):
            for each in machines.of_one(world, node):
                each.refuses_until, each.key_changed = now + seconds, key
        case node_mishaps.PeersUnreachable(seconds=seconds):
            node.apart_from_peers_until = now + seconds
        case node_mishaps.HostAnswersLate(seconds=seconds, takes=takes):
            for each in machines.of_one(world, node):
                each.late_until, each.answer_takes = now + seconds, takes
        case _:
            assert_never(what)


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


def _pause(world: World, node: SimNode, what: node_mishaps.NodePauses) -> None:
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


def _lose_zone(world: World, what: node_mishaps.ZoneLost) -> None:
    back = world.agenda.now + what.back_after
    for node in [node for node in world.nodes.values() if node.zone == what.zone]:
        node.unreachable_until = max(node.unreachable_until, back)
        machines.die(world, node)
        world.agenda.after(what.back_after, lambda node=node: machines.start(world, node))  # type: ignore[misc]  # a default binds the loop's value
