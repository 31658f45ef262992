"""The cluster as it will be when a new run has restored what a dead run left: its plan is made of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.engine.kind import KindOfCluster
from orchestrator.engine.optimism import OptimisticWorld
from orchestrator.model.action import Purpose, SettingChange, WriteSettings
from orchestrator.model.allocation import DISABLING
from orchestrator.model.cluster import CopyState, Health, Incarnation, Node, NodeName, Role, ShardCopy
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import ClusterView, Disk, HealthView, Observation, ServiceState
from orchestrator.model.reading import Unknown

_ROOMY: Final = Disk(used_share=0.0, over_low=False, over_high=False)
"""The disk of a node that is down: it held its copies before."""


def as_restored(
    kind: KindOfCluster,
    seen: Observation,
    left: LeaseRecord,
    attributes: Mapping[NodeName, Mapping[str, str]],
) -> Observation:
    """An observation in which the changes that this record lists are restored, and its nodes are back.

    Only settings that still have the value of the dead run are restored, as by the run that does it. A node
    that is down comes back with copies that no node holds now. Nodes of Riak stay down: the record does not
    have their part of the ring.

    Args:
        kind: of the cluster.
        seen: the cluster as the dead run left it.
        left: the record of that run.
        attributes: of its nodes, where they are known.
    """
    ours = _still_there(seen, left)
    restore = WriteSettings(changes=ours, purpose=Purpose.RESTORE)
    after = OptimisticWorld(kind=kind, seen=seen).done(restore).seen
    if not isinstance(after.settings, Unknown):
        # A default that the dead run would have written was not in force: it had a reason to change that.
        known = ((one, kind.defaults.get(one.key)) for one in ours)
        unset = {one.key: value for one, value in known if value is not None and value != one.found}
        after = replace(after, settings=replace(after.settings, files={**unset, **after.settings.files}))
    view = seen.cluster
    if isinstance(view, Unknown) or view.riak is not None:
        return after
    absent = list(_absent(view, seen, left, attributes))
    back = _with_members(view, left, absent)
    if absent or any(one.key in DISABLING for one in ours):
        back = _assigned(back, left)
    after = replace(after, cluster=back)
    if not isinstance(seen.health, Unknown):
        after = replace(after, health=_health(seen.health, back, len(absent)))
    if not isinstance(seen.disks, Unknown):
        after = replace(after, disks={**{node.name: _ROOMY for node in absent}, **seen.disks})
    running, names = ServiceState.RUNNING, [one.node for one in left.in_hand]
    return OptimisticWorld(kind=kind, seen=after).on_hosts(names, service=running, detail=running.value).seen


def _still_there(seen: Observation, left: LeaseRecord) -> tuple[SettingChange, ...]:
    """The changes of settings that a restore would write, each with its original value as the wanted one."""
    settings = seen.settings
    if isinstance(settings, Unknown):
        return ()
    return tuple(
        replace(one, found=one.wanted, wanted=settings.restored(one.key, one.found))
        for one in left.debts
        if settings.at(one.level, one.key) == one.wanted
    )


def _absent(
    view: ClusterView,
    seen: Observation,
    left: LeaseRecord,
    attributes: Mapping[NodeName, Mapping[str, str]],
) -> Iterator[Node]:
    """The nodes of the record that are not members: like a member, with the vote of a voter that is gone."""
    gone = sorted((view.voters or frozenset()) - {node.node_id for node in view.nodes})
    for hand in left.in_hand:
        if hand.node in view.members or not view.nodes:
            continue
        vote = gone.pop(0) if gone else None
        yield replace(
            view.nodes[0],
            name=hand.node,
            node_id=vote or f"absent-{hand.node}",
            incarnation=Incarnation(ephemeral_id=f"restored-{hand.node}", started_at_ms=int(seen.at * 1000)),
            roles=frozenset({Role.DATA} if vote is None else {Role.DATA, Role.MASTER}),
            address=hand.address,
            attributes=attributes.get(hand.node, {}),
            own_name="",
            host="",
        )


def _with_members(view: ClusterView, left: LeaseRecord, absent: Sequence[Node]) -> ClusterView:
    """These nodes are members, and no node is excluded from voting by the dead run."""
    members = {**view.members, **{node.name: node for node in absent}}
    voters = view.voters
    if voters is not None and not view.voting_by_count:
        voters = voters.union(members[name].node_id for name in left.excluded if name in members)
    excluded = tuple(name for name in view.voting_exclusions if name not in left.excluded)
    return view.changed({}, members, voting_exclusions=excluded, voters=voters)


def _assigned(view: ClusterView, left: LeaseRecord) -> ClusterView:
    """Copies without a node are started: on a node of the record first, else on any that lacks the shard."""
    first = [one.node for one in left.in_hand if one.node in view.members]
    holders = [*first, *(node.name for node in view.nodes if node.holds_data and node.name not in first)]
    changed = {}
    for shard in dict.fromkeys(copy.shard for copy in view.not_started):
        copies = list(view.shards[shard])
        for at, copy in enumerate(copies):
            if copy.state is CopyState.UNASSIGNED and not copy.failed_attempts and not copy.from_snapshot:
                copies[at] = _started(copy, copies, holders)
        changed[shard] = tuple(copies)
    return view.changed(changed) if changed else view


def _started(copy: ShardCopy, copies: Sequence[ShardCopy], holders: Sequence[NodeName]) -> ShardCopy:
    taken = {one.node for one in copies}
    node = next((name for name in holders if name not in taken), None)
    if node is None:
        return copy
    return copy._replace(state=CopyState.STARTED, node=node, unassigned_reason=None)


def _health(health: HealthView, view: ClusterView, back: int) -> HealthView:
    missing = view.not_started
    red = any(copy.primary for copy in missing)
    status = Health.RED if red else Health.YELLOW if missing else Health.GREEN
    unassigned = sum(copy.state is CopyState.UNASSIGNED for copy in missing)
    return replace(
        health,
        status=status,
        nodes=health.nodes + back,
        active_shards=health.active_shards + health.unassigned_shards - unassigned,
        unassigned_shards=unassigned,
    )
