"""Judges the program's merges, by the ground truth and by what the program could have read.

Changes after the program's last reading of the indices are not its fault.
"""

from __future__ import annotations

from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import MergePolicy
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation import gates, merges, segments
from orchestrator.simulation.facts import IN_DOUBT
from orchestrator.simulation.parts import SimIndex, SimNode
from orchestrator.simulation.world import World

_A_WRITE: Seconds = 0.05
"""After this long, an index that is being written shows it in its counters."""


def asked(world: World, index: SimIndex, *, holder: str | None, sent: Instant | None = None) -> None:
    """Record what is wrong with merging this index now.

    `holder`: another process has held the lease since before the program's last reading; None = the program
    has it. `sent`: when a call was sent that only arrives now.
    """
    forced, policy = world.forced, world.forced.policy
    forced.asked[index.uuid] += 1
    late = sent is not None and world.agenda.now - sent >= IN_DOUBT
    for other in merges.of(world, index.uuid):
        # With a task list the port reads the tasks first, and does not request the merge again.
        harmless = sent is None and forced.task_list and other.began >= forced.last_look
        if other.ours and not late and not harmless:
            world.violated(f"{index.name} is merged twice at a time")
        elif not other.ours and other.began < forced.last_look and sent is None:
            world.violated(f"{index.name} is merged though a merge of it by another client runs")
    if holder is not None:
        world.violated(f"{index.name} is merged while {holder} has the lease")
    if policy is None:
        world.violated(f"{index.name} is merged, and the run merges nothing")
        return
    if sent is None:
        if world.stale_read:
            world.violated(f"{index.name} is merged on a reading that says it may be old")
        _judge_limits(world, index, policy)
        _judge_writes(world, index, policy)
        _judge_disks(world, index, policy)
        gates.judge(world, f"{index.name} is merged")


def _judge_limits(world: World, index: SimIndex, policy: MergePolicy) -> None:
    """Check the limits in all and per node, by our merges that still have work."""
    ours = [merge for merge in merges.running(world) if merge.ours and merge.uuid != index.uuid]
    others = {merge.uuid: merge for merge in ours if merges.has_work(world, merge)}
    if len(others) >= policy.at_once:
        names = ", ".join(sorted(merge.index for merge in others.values()))
        world.violated(f"{index.name} is merged beside {names}: {policy.at_once} at once")
    here = {copy.node for shard in index.shards for copy in shard.started}
    for node in sorted(str(name) for name in here):
        beside = [merge.index for merge in others.values() if any(left[1] == node for left in merge.left)]
        if len(beside) >= policy.per_node:
            world.violated(f"{index.name} is merged on {node} beside {', '.join(sorted(beside))}")


def _judge_writes(world: World, index: SimIndex, policy: MergePolicy) -> None:
    """Writes between two readings of the program could have been read."""
    counted = any(shard.primary.serves for shard in index.shards)
    if policy.allow_writes or not index.written or not counted:
        return
    if index.turned_at + _A_WRITE < world.forced.last_look:
        world.violated(f"{index.name} is merged while it is written")


def _judge_disks(world: World, index: SimIndex, policy: MergePolicy) -> None:
    """During its merge a node stores a copy twice. Disks are read before the indices are."""
    needed: dict[NodeName, int] = {}
    for shard in index.shards:
        for copy in shard.started:
            if copy.node is not None and _to_merge(world, index, copy.node, policy):
                needed[copy.node] = max(needed.get(copy.node, 0), shard.size)
    for node, size in needed.items():
        filled = world.forced.filled_at.get(node, 0.0)
        if merges.room(world, node) < size and filled < world.last_read:
            world.violated(f"{index.name} is merged, and the disk of {node} has no room for it")


def _to_merge(world: World, index: SimIndex, node: NodeName, policy: MergePolicy) -> bool:
    here = [shard for shard in index.shards if any(copy.node == node for copy in shard.started)]
    return any(segments.left(world, index, shard, node) > policy.max_segments for shard in here)


def stopped(world: World, node: SimNode) -> None:
    """Record that a node is stopped while it merges, or is about to: that work is lost."""
    for merge in merges.running(world) if world.forced.running else ():
        waiting = any(left[1] == node.name for left in merge.left)
        if waiting and merge.began < world.last_read:
            whose = "our merge" if merge.ours else "somebody's merge"
            world.violated(f"{node.name} is stopped while {whose} of {merge.index} runs on it")
