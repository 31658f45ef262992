"""The cluster as it will be when a new run has restored what a dead run left: its plan is made of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.engine.kind import KindOfCluster
from orchestrator.engine.optimism import OptimisticWorld
from orchestrator.engine.state import RunState
from orchestrator.engine.upgrade import version_after
from orchestrator.model.action import Purpose, SetReplicas, SettingChange, WriteSettings
from orchestrator.model.allocation import DISABLING
from orchestrator.model.cluster import CopyState, Health, Incarnation, Node, NodeName, Role, ShardCopy
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import (
    ClusterView,
    Disk,
    HealthView,
    MissingCopy,
    Observation,
    ServiceState,
)
from orchestrator.model.reading import Unknown

_ROOMY: Final = Disk(used_share=0.0, over_low=False, over_high=False)
"""The disk of a node that is down: it held its copies before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journalled:
    """What the journal of the dead run adds to its record."""

    attributes: Mapping[NodeName, Mapping[str, str]] = field(default_factory=dict)  # of its last nodes
    versions: Mapping[NodeName, str] = field(default_factory=dict)  # with which its nodes start
    missing: Sequence[MissingCopy] = ()  # copies that were missing before it began
    # shards of which it took copies down, by index uuid and number; None where that is not known
    taken: Collection[tuple[str, int]] | None = None

    @classmethod
    def of(cls, state: RunState) -> Journalled:
        """From the state that the journal leads to."""
        attribute, waves = state.begun.policy.zone_attribute, [one.wave for one in state.waves]
        late = [node.lost_stop.taken for node in state.nodes.values() if node.lost_stop is not None]
        return cls(
            attributes={
                name: {attribute: wave.zone}
                for wave in waves
                for name in wave.nodes
                if attribute and wave.zone
            },
            versions={node.name: version_after(state.begun, node) for node in state.nodes.values()},
            missing=state.baseline.missing if state.baseline else (),
            # a restore from a record knows only that these nodes were to be started
            taken=None if state.begun.repairs else frozenset(state.taken).union(*late),
        )


def as_restored(
    kind: KindOfCluster, seen: Observation, left: LeaseRecord, journal: Journalled
) -> Observation:
    """An observation in which the changes that this record lists are restored, and its nodes are back.

    Only settings that still have the value of the dead run are restored, as by the run that does it. A node
    that is down comes back with copies that no node holds now. Copies that its journal does not know as taken
    down by that run stay lost. Nodes of Riak stay down: the record does not have their part of the ring.

    Args:
        kind: of the cluster.
        seen: the cluster as the dead run left it.
        left: the record of that run.
        journal: what its journal adds.
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
    absent = list(_absent(view, seen, left, journal))
    back = _with_members(view, left, absent)
    if absent or any(one.key in DISABLING for one in ours):
        back = _assigned(back, left, journal)
    after = _without_replicas(kind, replace(after, cluster=back), left)
    back = after.cluster if isinstance(after.cluster, ClusterView) else back
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
    journal: Journalled,
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
            version=journal.versions.get(hand.node) or view.version,
            address=hand.address,
            attributes=journal.attributes.get(hand.node, {}),
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


def _assigned(view: ClusterView, left: LeaseRecord, journal: Journalled) -> ClusterView:
    """Copies without a node are started: on a node of the record first, else on any that lacks the shard."""
    first = [one.node for one in left.in_hand if one.node in view.members]
    holders = [*first, *(node.name for node in view.nodes if node.holds_data and node.name not in first)]
    missing = Counter[tuple[str, int]]()
    for one in journal.missing:
        missing[one.index_uuid, one.number] += one.count
    changed = {}
    for shard in dict.fromkeys(copy.shard for copy in view.not_started):
        key, copies = (shard.index_uuid, shard.number), list(view.shards[shard])
        ours = journal.taken is None or key in journal.taken
        if not ours and not any(one.started for one in copies):
            continue  # it was lost without that run: the start of its nodes brings nothing back
        away = [at for at, copy in enumerate(copies) if _comes_back(copy)]
        for at in away[: max(0, len(away) - missing[key])]:
            copies[at] = _started(copies[at], copies, holders)
        changed[shard] = tuple(copies)
    return view.changed(changed) if changed else view


def _comes_back(copy: ShardCopy) -> bool:
    return copy.state is CopyState.UNASSIGNED and not copy.failed_attempts and not copy.from_snapshot


def _without_replicas(kind: KindOfCluster, seen: Observation, left: LeaseRecord) -> Observation:
    """The replicas that the dead run added are gone, where their number is still the one it wrote."""
    for added in left.replicas:
        view = seen.cluster
        index = None if isinstance(view, Unknown) else view.metadata.get(added.index_uuid)
        if index is not None and index.replicas == added.wanted:
            removal = SetReplicas(
                index=added.index, index_uuid=added.index_uuid, found=added.wanted, wanted=added.found
            )
            seen = kind.played(seen, removal)
    return seen


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
