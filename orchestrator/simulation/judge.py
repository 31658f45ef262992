"""Judges what the program does to a simulated world, by the ground truth and never by its readings.

Changes after the program's last reading are not its fault, nor are races that no check can exclude.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName, Role
from orchestrator.model.observation import Level, ServiceState
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation import merge_judge, turns
from orchestrator.simulation.deciders import may_return, places_for, replicas_go_anywhere
from orchestrator.simulation.facts import IN_DOUBT
from orchestrator.simulation.parts import SimCopy, SimIndex, SimNode, SimShard
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World

_ADDED = "REPLICA_ADDED"
_NEVER_ANYWHERE = frozenset({"INDEX_CREATED", _ADDED, "NEW_INDEX_RESTORED", "EXISTING_INDEX_RESTORED"})
"""Reasons of copies that were never lost with a node: a stop beside them removes no redundancy."""

_TURNED = frozenset({"INDEX_CLOSED", "INDEX_REOPENED"})
"""Reasons of copies unassigned by closing or opening an index: they are still on disk and in sync."""

_FORGOTTEN: Seconds = 180.0
"""A stop that a host carries out this long after the request is not attributed to the program."""

_CHANGED: Seconds = 60.0
"""A shard of an index that was closed, opened or restored over may be red this long without being lost."""

_ONE_READING: Seconds = 0.3
"""Longer than the parts of one observation are apart."""

_LEFT_DOWN: Seconds = 300.0
"""Far longer than hooks take. A node whose host answers has to be started within this time."""


def stop(world: World, node: SimNode) -> None:
    """Record what is wrong with stopping this node at this moment.

    Changes after the program's last reading are not its fault: no reading can be newer than itself.
    """
    name = node.name
    if not node.process:
        node.stopped_by_us = True  # it just died by itself; a program that requests a stop must start it
        return
    node.restarts_by_us += 1
    turns.stopped(world, node)
    busy = node.name in world.merges | world.reindexes
    if busy and world.busy_since.get(node.name, 0.0) < world.last_read:
        world.violated(f"{name} is stopped while other people's work runs on it")
    if node.disk.managed[0] <= node.host_read < node.disk.managed[1]:
        world.violated(f"{name} is stopped while configuration management is at work on its host")
    if world.stale_read:
        world.violated(f"{name} is stopped on a reading that says it may be old")
    asked = [n for n in world.nodes.values() if n.stopped_by_us and n.name != name]
    others = [n for n in asked if not (n.asked_in_vain(world.agenda.now) or _stopped_unseen(world, n))]
    down = [n.name for n in others]
    elsewhere = [n for n in others if n.machine != node.machine]
    if len(down) >= world.allowed_down or (world.one_machine and elsewhere):
        world.violated(f"{name} is stopped while {', '.join(down)} is down by us")
    elif not world.across_zones and any(n.zone is None or n.zone != node.zone for n in elsewhere):
        world.violated(f"{name} is stopped while {', '.join(down)} of another zone is down by us")
    _judge_quorum(world, node, others)
    if replicas_go_anywhere(world) and not world.news(ALLOCATION):
        world.violated(f"{name} is stopped with allocation on")
    away = [n.name for n in _missed(world) if n.name not in {*down, name}]
    for other in away:
        if not world.news(other) and other not in world.away_before:
            world.violated(f"{name} is stopped while {other} is away")
    for snapshot in world.snapshots:
        if not world.news(snapshot):
            world.violated(f"{name} is stopped while snapshot {snapshot} runs")
    merge_judge.stopped(world, node)
    left = any(at >= world.last_read and what.endswith(" left") for at, what in world.story[-200:])
    beside_others = left or bool(down)
    for index, shard in world.placement.on(name, or_waiting=not beside_others):
        _judge_shard(world, index, shard, node, down)
        _judge_recovery(world, index, shard, node, beside_others=beside_others)
        _judge_return(world, index, shard, node)
    if isinstance(world, RiakWorld):
        world.judge_stop(node, others)
    node.stopped_by_us = True


def _stopped_unseen(world: World, node: SimNode) -> bool:
    """Whether a stop that could count as lost was carried out after its node was read last.

    Of one observation the hosts may be read before the cluster, which lists a node for a moment longer. Of a
    host that does not answer, the list is all there is.
    """
    silent = max(node.unreachable_until, node.hangs_until, node.refuses_until) >= world.last_read
    if silent and world.news(node.name):
        return node.stopped_late is not None
    same_observation = node.host_read >= world.last_read - _ONE_READING
    read = node.host_read if same_observation else world.last_read
    return node.stopped_late is not None and node.stopped_late >= read


def late_stop(world: World, node: SimNode, sent: Instant, read: Instant) -> None:
    """Record what the program did while its own stop could still be carried out.

    Changes by others after `read`, the reading on which the stop was `sent`, are not its fault. After half a
    minute without an answer a stop may count as lost, and other nodes may be stopped. After minutes it cannot
    be distinguished from a stop by other people, unless there was no reading in the meantime: a process that
    resumes the run of a killed program finds the node in its wave.
    """
    if not node.process:
        return
    if world.agenda.now - sent >= _FORGOTTEN and world.last_read - sent >= IN_DOUBT:
        node.stopped_by_us = node.stopped_by_us and node.service is ServiceState.STOPPING
        return
    node.stopped_by_us = True
    if node.service is not ServiceState.STOPPING:
        node.stopped_late = world.agenda.now if world.agenda.now - sent >= IN_DOUBT else None
    others_failed = any(at >= sent and what.endswith(" left") for at, what in reversed(world.story[-200:]))
    others_allow = any(set_.at >= read for level in Level for set_ in world.meddled[level, ALLOCATION])
    blameless = others_failed or others_allow or world.agenda.now - sent >= IN_DOUBT
    if replicas_go_anywhere(world) and not blameless:
        world.violated(f"a late stop of {node.name} meets allocation on")


def delay(world: World, node: SimNode, what: str) -> None:
    """Record what is wrong with doing this on the host of a node that is down, instead of a start.

    The program could have read that a shard waits for the node, or that another node is away. This does not
    hold without a master, now or at the last reading, because the master reports it. A node whose own stop is
    in doubt seems to be away by that stop, for any cause. A node that is being started counts as on its way.
    """
    unread = world.stale_read or world.master is None or world.elected_at >= world.last_read
    if node.process or not node.stopped_by_us or unread:
        return
    for index, shard in world.placement.lost:
        lost = shard.lost_at is not None and shard.lost_at < world.last_read
        changed = index.changed_at + _CHANGED >= world.agenda.now or shard.never
        if not lost or changed or _exempt(world, index) or node.name not in shard.on_disk:
            continue
        if shard.on_disk[node.name] in shard.in_sync:
            world.violated(f"{what} on {node.name} while {shard.id} waits for it")
    down = [n for n in _missed(world) if not n.process and n.service is not ServiceState.STARTING]
    for other in [n.name for n in down if not n.stopped_by_us]:
        in_doubt = world.agenda.now - world.nodes[other].stop_lost_at <= IN_DOUBT
        if not in_doubt and not world.news(other) and other not in world.away_before:
            world.violated(f"{what} on {node.name} while {other} is away")


def reboot(world: World, node: SimNode, of: SimNode) -> None:
    """Record a reboot that takes down a running node, a stop without a check of the predicates."""
    seen = node.began + node.join_seconds < world.last_read
    if node.process and not node.stopped_by_us and seen and not world.news(node.name):
        world.violated(f"the reboot for {of.name} takes down {node.name}, which was not stopped")


def _missed(world: World) -> list[SimNode]:
    """Nodes that are away and that the cluster needs: those with data or with a vote."""
    return [n for n in world.nodes.values() if not n.joined and (n.holds_data or Role.MASTER in n.roles)]


def start(world: World, node: SimNode) -> None:
    """Record that a node was left down though its host could be reached."""
    if node.process or not node.stopped_by_us:
        return
    out_of_reach = max(node.unreachable_until, node.hangs_until, node.refuses_until)
    since = max(node.ended, node.disk.ended, world.program_since, out_of_reach)
    if world.agenda.now - since > _LEFT_DOWN:
        world.violated(f"{node.name} was left down for {world.agenda.now - since:.0f} s")
    node.ended = world.agenda.now


def _exempt(world: World, index: SimIndex) -> bool:
    """Whether the index may be away while its node is."""
    accepted = world.exempt_without_replicas if index.replicas == 0 else ()
    by_name = index.name in world.exempt_indices or any(fnmatchcase(index.name, glob) for glob in accepted)
    return index.searchable_snapshot or by_name


def _judge_quorum(world: World, node: SimNode, others: Sequence[SimNode]) -> None:
    """Without the nodes that already have a stop request, a majority of the voters must remain."""
    going = {node.name, *(other.name for other in others)}
    left = {name for name in world.voters - going if world.nodes[name].joined or world.news(name)}
    unread = world.revoted >= world.last_read  # the configuration changed after the reading
    needed = node.name in world.voters and not world.may_lose_master and not unread
    if needed and 2 * len(left) <= len(world.voters):
        world.violated(f"{node.name} is stopped with no majority left: {len(left)} of {len(world.voters)}")


def _judge_shard(
    world: World, index: SimIndex, shard: SimShard, node: SimNode, down: Collection[NodeName]
) -> None:
    moving = {c.node for c in shard.copies if c.relocating_to} | {c.relocating_to for c in shard.copies}
    if node.name in moving and not world.news(str(shard.id)):
        world.violated(f"{node.name} is stopped while {shard.id} moves from or to it")
    here = [c for c in shard.started if c.node == node.name]
    if not here or _exempt(world, index) or index.made_at >= world.last_read:
        return
    # Copies on a dead node count until the master removes it: they cannot be read as lost.
    others = [
        c for c in shard.started if c.node not in {node.name, *down} and c.allocation_id in shard.in_sync
    ]
    resized = f"{index.name} has {index.replicas} replicas"
    given_up = not others and any(
        at >= world.last_read and what == resized for at, what in world.story[-200:]
    )
    if not others and not given_up and not any(world.news(str(n)) for n in [*shard.on_disk, shard.id]):
        world.violated(f"{node.name} is stopped with the last in-sync copy of {shard.id}")


def _judge_return(world: World, index: SimIndex, shard: SimShard, node: SimNode) -> None:
    """A copy for which no node is left is not taken down, unless the playbook names its index.

    The only copy of a shard is allocated to its node by force. As many copies as were missing before may be.
    """
    started = [copy.node for copy in shard.started]
    if node.name not in started or len(started) == 1:
        return
    if len(shard.copies) - len(started) < world.unassigned_before[shard.id]:
        return
    unread = max(index.ruled_at, index.made_at, world.ruled_at) >= world.last_read
    if unread or any(fnmatchcase(index.name, glob) for glob in world.exempt_returning):
        return
    if not may_return(world, index, shard, node) and not world.news(str(shard.id)):
        world.violated(f"{node.name} is stopped, and no node takes its copy of {shard.id} again")


def _judge_recovery(
    world: World, index: SimIndex, shard: SimShard, node: SimNode, *, beside_others: bool
) -> None:
    """A recovery that loses its source is not assigned again, nor is a copy without a recovery yet.

    `beside_others`: other nodes are down, which may be why a copy is unassigned.
    """
    if index.made_at >= world.last_read or world.news(str(shard.id)):
        return
    arriving = [c for c in shard.copies if c.state is CopyState.INITIALIZING and c.node != node.name]
    if arriving and any(copy.node == node.name for copy in shard.copies):
        world.violated(f"{node.name} is stopped while {shard.id} recovers on {arriving[0].node} with it")
    if not beside_others and _lacks_a_copy(world, index, shard):
        world.violated(f"{node.name} is stopped while a copy of {shard.id} is unassigned")
    if any(copy.node == node.name for copy in shard.started):
        world.had[shard.id] = (len(shard.started), world.agenda.now)


def _lacks_a_copy(world: World, index: SimIndex, shard: SimShard) -> bool:
    """Whether it has fewer started copies than at the last stop beside it, or lost one in the run.

    A copy beyond what the nodes can hold is always missing, for any reason that it shows. A copy of an index
    that was closed or opened is excused while the primary serves: the stop leaves as many copies as any stop
    does, and no node has lost the copy. One that others added may never have had a node, whatever it says.
    """
    had, places = world.had.get(shard.id), places_for(world, index, shard)
    if had is not None:
        count, at = had
        placed = sum(copy.state is not CopyState.UNASSIGNED for copy in shard.copies)
        return index.changed_at < at and placed < min(count, index.replicas + 1, places)
    lost = sum(c.state is CopyState.UNASSIGNED and _had_a_node(index, shard, c) for c in shard.copies)
    added = index.replicas - world.replicas_before.get(index.uuid, index.replicas)
    return lost > max(world.unassigned_before[shard.id], len(shard.copies) - places, added)


def _had_a_node(index: SimIndex, shard: SimShard, copy: SimCopy) -> bool:
    """Whether an unassigned copy is a loss. A replica that follows the number of nodes left with a node."""
    if copy.reason in _TURNED:
        return not shard.primary.serves
    if copy.reason == _ADDED:
        return index.auto_expand is not None
    return copy.reason not in _NEVER_ANYWHERE
