"""What a plan expects after the verbs of Elasticsearch: new replicas, merged indices, another master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.elasticsearch.rules.settings import awareness_of
from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    ExcludeFromVoting,
    ForceMerge,
    SetIndexSettings,
    SetReplicas,
)
from orchestrator.model.cluster import CopyState, Node, NodeName, ShardCopy
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import ClusterView, Observation
from orchestrator.model.reading import Unknown


def played(seen: Observation, action: Action) -> Observation:
    """The reading that a plan expects after an action."""
    view = seen.cluster
    if isinstance(view, Unknown):
        return seen
    match action:
        case SetReplicas():
            return _with_replicas(seen, view, action)
        case ExcludeFromVoting(node=name):
            master = next((n.name for n in view.nodes if n.master_eligible and n.name != name), None)
            excluded = (*view.voting_exclusions, name)
            return replace(seen, cluster=view.changed({}, master=master, voting_exclusions=excluded))
        case ClearVotingExclusions():
            return replace(seen, cluster=view.changed({}, voting_exclusions=()))
        case ForceMerge() | SetIndexSettings():
            return _with_index(seen, view, action)
        case _:
            return seen


def _with_replicas(seen: Observation, view: ClusterView, action: SetReplicas) -> Observation:
    indices = tuple(
        replace(index, replicas=action.wanted) if index.uuid == action.index_uuid else index
        for index in view.indices
    )
    made = {
        shard: tuple(
            each
            for copy in copies
            if copy.primary
            for each in (copy, *_replicas(seen, view, copy, action.wanted))
        )
        for shard, copies in view.shards.items()
        if shard.index_uuid == action.index_uuid
    }
    return replace(seen, cluster=view.changed(made, indices=indices))


def _with_index(seen: Observation, view: ClusterView, action: ForceMerge | SetIndexSettings) -> Observation:
    """The index is merged, or has its settings for after the load."""
    bulk = seen.bulk
    found = None if isinstance(bulk, Unknown) else bulk.indices.get(action.index_uuid)
    if found is None or isinstance(bulk, Unknown):
        return seen
    if isinstance(action, ForceMerge):
        changed = _merged(found, action.max_segments)
    else:
        changed = _put_right(found, action.wanted)
    after = replace(seen, bulk=replace(bulk, indices={**bulk.indices, action.index_uuid: changed}))
    if changed.replicas == found.replicas:
        return after
    uuid, before, wanted = action.index_uuid, found.replicas, changed.replicas
    replicas = SetReplicas(index=action.index, index_uuid=uuid, found=before, wanted=wanted)
    return _with_replicas(after, view, replicas)


def _merged(index: BulkIndex, max_segments: int) -> BulkIndex:
    """The index with no copy of more segments than that."""
    copies = tuple(
        replace(copy, searched=min(copy.searched, max_segments), committed=None) for copy in index.copies
    )
    return replace(index, copies=copies)


def _put_right(index: BulkIndex, wanted: Mapping[str, str | None]) -> BulkIndex:
    """The index with these settings."""
    replicas = wanted.get("index.number_of_replicas")
    return replace(
        index,
        replicas=index.replicas if replicas is None else int(replicas),
        refresh_interval=wanted.get("index.refresh_interval", index.refresh_interval),
        translog_durability=wanted.get("index.translog.durability", index.translog_durability),
    )


def _replicas(seen: Observation, view: ClusterView, primary: ShardCopy, count: int) -> tuple[ShardCopy, ...]:
    """New replicas, as awareness places them: first where no copy has the same value of an attribute."""
    settings = seen.settings
    attributes = () if isinstance(settings, Unknown) else awareness_of(settings)[1].attributes
    used = [node for node in view.nodes if node.name == primary.node]

    def alike(node: Node) -> int:
        return sum(
            node.attributes.get(each) == other.attributes.get(each) for each in attributes for other in used
        )

    free, places = [n for n in view.nodes if n.holds_data and n.name != primary.node], list[NodeName]()
    while free and len(places) < count:
        used.append(free.pop(free.index(min(free, key=alike))))
        places.append(used[-1].name)
    return tuple(
        ShardCopy(shard=primary.shard, primary=False, state=CopyState.STARTED, node=place) for place in places
    )
