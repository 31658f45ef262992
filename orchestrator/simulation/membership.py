"""Members, voters and the master.

Modelled: a clean stop leaves at once, and a crash only when it is noticed. A master needs a majority of the
committed voting configuration. The configuration follows the members and keeps an odd size of at least three.
Excluded nodes do not vote. Without a master no node joins or leaves, and nothing is allocated.
"""

from __future__ import annotations

from typing import Final, Protocol

from orchestrator.elasticsearch.rules.settings import MINIMUM_MASTERS
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation import allocation, deciders
from orchestrator.simulation.parts import SimNode

_ELECTION_SECONDS: Final = 2.0
_SMALLEST_FULL: Final = 3
"""The configuration never shrinks below three voters by itself."""


class Electorate(deciders.Ground, Protocol):
    """What membership needs of the world, besides what allocation needs."""

    voters: set[NodeName]
    revoted: Instant
    elected_at: Instant
    away_before: set[NodeName]
    exclusions: list[NodeName]
    detection_seconds: Seconds

    def jittered(self, seconds: Seconds) -> Seconds:
        """This duration, varied at random."""
        ...

    def judge_down(self) -> None:
        """A process ended: check which nodes the program took down."""
        ...


def process_ended(world: Electorate, node: SimNode, *, clean: bool) -> None:
    """The process of a node has ended. The master notices at once, or only after a while."""
    life, node.process, node.ended = node.life, False, world.agenda.now
    world.judge_down()
    if world.master == node.name:
        world.master = None
        world.changed(f"{node.name} was the master")
        world.agenda.after(_ELECTION_SECONDS, lambda: elect(world))
        return
    _check_majority(world)
    if clean:
        _leave(world, node, life)
    else:
        world.agenda.after(world.detection_seconds, lambda: _leave(world, node, life))


def parted(world: Electorate, node: SimNode) -> None:
    """A running node can reach no other node. The cluster continues without it."""
    if world.master == node.name:
        world.master = None
        world.changed(f"{node.name} was the master, and reaches no other node")
        world.agenda.after(_ELECTION_SECONDS, lambda: elect(world))
        return
    _check_majority(world)
    if node.member_life is not None:
        _leave(world, node, node.member_life)


def rejoined(world: Electorate, node: SimNode) -> None:
    """A node that kept running reaches the others again."""
    if node.process and node.member_life is None and world.agenda.now >= node.joins_at:
        ours = node.stopped_by_us and node.service is ServiceState.STOPPING
        _join(world, node, node.life)
        node.stopped_by_us = ours  # a stop in progress continues
    elif world.master is None:
        elect(world)


def process_began(world: Electorate, node: SimNode) -> None:
    """A new process: it joins as soon as there is a master."""
    node.life += 1
    node.process, node.began = True, world.agenda.now
    node.apart, node.paused_until, node.failed_starts = False, 0.0, 0
    life, takes = node.life, world.jittered(node.join_seconds)
    node.joins_at = world.agenda.now + takes
    world.agenda.after(takes, lambda: _join(world, node, life))


def _leave(world: Electorate, node: SimNode, life: int) -> None:
    if node.member_life != life or world.master is None:
        return  # without a master, the election notices
    node.member_life = None
    world.changed(f"{node.name} left")
    allocation.left(world, node.name)
    allocation.expand(world)
    reconfigure(world)
    allocation.reroute(world)


def _join(world: Electorate, node: SimNode, life: int) -> None:
    if not node.present or node.life != life:
        return
    if world.master is None:
        elect(world)
        return
    if node.member_life is not None and node.member_life != life:
        _leave(world, node, node.member_life)
    if node.member_life == life:
        return
    node.member_life = life
    node.stopped_by_us, node.stopped_late = False, None
    world.away_before.discard(node.name)
    world.changed(f"{node.name} joined")
    allocation.expand(world)
    reconfigure(world)
    allocation.reroute(world)


def _check_majority(world: Electorate) -> None:
    if world.master is not None and not _majority(world):
        world.changed(f"{world.master} steps down: no majority")
        world.master = None


def _majority(world: Electorate) -> bool:
    """Whether enough voters are present: by their configuration, else by `minimum_master_nodes`."""
    alive = sum(world.nodes[name].present for name in world.voters)
    if world.ways.voting_by_count:
        return alive >= deciders.count_of(world, MINIMUM_MASTERS, 1)
    return 2 * alive > len(world.voters)


def elect(world: Electorate) -> None:
    """Elect a master if a majority of the voters is present. It then updates the members."""
    if world.master is not None:
        return
    alive = sorted(name for name in world.voters if world.nodes[name].present)
    ready = [name for name in alive if name not in world.exclusions]
    if not _majority(world) or not ready:
        return
    # A node that stayed is preferred to one that has just come up.
    world.master = min(ready, key=lambda name: (world.nodes[name].began, name))
    world.elected_at = world.agenda.now
    world.changed(f"{world.master} is elected")
    for node in world.nodes.values():
        if node.member_life is not None and not (node.present and node.member_life == node.life):
            _leave(world, node, node.member_life)
    for node in world.nodes.values():
        if node.present and not node.joined and node.joins_at <= world.agenda.now:
            _join(world, node, node.life)
    reconfigure(world)
    allocation.reroute(world)


def reconfigure(world: Electorate) -> None:
    """Adjust the voting configuration to the members. Without one, whoever may be elected votes."""
    if world.ways.voting_by_count:
        world.voters = {node.name for node in world.nodes.values() if Role.MASTER in node.roles}
        return
    eligible = [
        node.name
        for node in world.nodes.values()
        if node.joined and node.present and Role.MASTER in node.roles and node.name not in world.exclusions
    ]
    if not eligible or (len(eligible) < min(_SMALLEST_FULL, len(world.voters)) and not world.exclusions):
        return
    eligible.sort(key=lambda name: (name != world.master, name not in world.voters, name))
    size = len(eligible) if len(eligible) % 2 else len(eligible) - 1
    voters = set(eligible[:size])
    if voters != world.voters:
        world.voters, world.revoted = voters, world.agenda.now


def exclude(world: Electorate, name: NodeName) -> None:
    """Exclude a node from the configuration. A master that is excluded hands over."""
    if name not in world.exclusions:
        world.exclusions.append(name)
    reconfigure(world)
    if world.master == name:
        world.agenda.after(_ELECTION_SECONDS / 2, lambda: _hand_over(world, name))
    world.changed(f"{name} is excluded from voting")


def clear_exclusion(world: Electorate, name: NodeName) -> None:
    """Let a node vote again."""
    if name in world.exclusions:
        world.exclusions.remove(name)
        reconfigure(world)
        world.changed(f"{name} may vote again")


def _hand_over(world: Electorate, name: NodeName) -> None:
    others = [other for other in world.voters if world.nodes[other].present and other != name]
    if world.master != name or name not in world.exclusions or not others:
        return
    world.master = min(others)
    world.changed(f"{world.master} takes over from {name}")
    reconfigure(world)
