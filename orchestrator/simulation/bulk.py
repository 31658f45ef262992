"""Readings of the indices that the program merges: `ClusterPort.bulk` over the world."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase

from orchestrator.elasticsearch.rules.due import PastMerges, merge_targets
from orchestrator.model.merging import BulkIndex, BulkView, CopySegments, MergePolicy, MergeTarget
from orchestrator.model.reading import Reading, Unknown
from orchestrator.simulation import merges, segments
from orchestrator.simulation.parts import SimIndex
from orchestrator.simulation.world import World


def bulk(world: World, uuids: Collection[str]) -> Reading[BulkView]:
    """Read those of these indices that exist and are open; Unknown if a started copy does not answer."""
    if world.master is None:
        return Unknown(reason="503 master_not_discovered_exception")
    found = [world.indices[uuid] for uuid in uuids if uuid in world.indices]
    read, closed = {}, set[str]()
    for index in found:
        if index.closed:
            closed.add(index.uuid)
            continue
        silent = _silent(world, index)
        if silent is not None:
            return Unknown(reason=f"_segments: {silent} does not answer")
        read[index.uuid] = _index(world, index)
    return BulkView(indices=read, closed=frozenset(closed))


def _silent(world: World, index: SimIndex) -> str | None:
    """A node that is gone, but has a started copy by the cluster state."""
    for shard in index.shards:
        for copy in shard.started:
            if copy.node is not None and not world.nodes[copy.node].process:
                return copy.node
    return None


def _index(world: World, index: SimIndex) -> BulkIndex:
    copies = []
    for shard in index.shards:
        for copy in shard.started:
            if copy.node is None:
                continue
            count = segments.searched(world, index, shard, copy.node)
            copies.append(
                CopySegments(
                    shard=shard.id,
                    node=copy.node,
                    primary=copy.primary,
                    searched=count,
                    bytes=shard.size,
                    largest_bytes=segments.largest(shard.size, count),
                    committed=None if world.ways.keeps_merges else segments.committed(shard, copy.node),
                )
            )
    has_a_list = world.forced.task_list
    return BulkIndex(
        name=index.name,
        uuid=index.uuid,
        copies=tuple(copies),
        writes=segments.writes(world, index),
        tasks=len(merges.of(world, index.uuid)) if has_a_list else 0,
        tasks_known=has_a_list,
        merging=sum(1 for _ in merges.at_work(world, index.uuid)),
        replicas=index.replicas,
        refresh_interval=index.refresh_interval,
        translog_durability=index.durability,
    )


def of_old(read: Reading[BulkView], old: Reading[BulkView]) -> Reading[BulkView]:
    """Old segments and settings with current tasks, because nodes report their tasks themselves."""
    if isinstance(read, Unknown) or isinstance(old, Unknown):
        return read
    return BulkView(
        indices={
            uuid: replace(old.indices[uuid], tasks=index.tasks, merging=index.merging)
            if uuid in old.indices
            else index
            for uuid, index in read.indices.items()
        },
        closed=read.closed,
    )


def targets(world: World, policy: MergePolicy) -> tuple[MergeTarget, ...]:
    """The open indices of the policy's patterns, as a run without an earlier journal chooses them."""
    named = [
        index.uuid
        for index in world.indices.values()
        if any(fnmatchcase(index.name, pattern) for pattern in policy.patterns)
    ]
    read = bulk(world, named)
    return () if isinstance(read, Unknown) else merge_targets(read, policy, PastMerges())
