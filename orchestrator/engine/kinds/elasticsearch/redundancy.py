"""Predicates on the nodes that stay up during a wave: copies, votes, roles, capacity, disks, zones."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from orchestrator.engine.kinds.elasticsearch.recovery import (
    accepts_without_replicas,
    away_for_good,
    counts_as_safe,
    exempt_from_copies_rule,
    refused_for_good,
)
from orchestrator.engine.kinds.elasticsearch.returning import Away, returns
from orchestrator.engine.kinds.elasticsearch.settings import MINIMUM_MASTERS, count_of
from orchestrator.engine.kinds.predicates import ByPolicy, Finding, OthersFirst, Question
from orchestrator.model.cluster import (
    DATA_ROLES,
    CopyState,
    Index,
    Node,
    NodeName,
    Role,
    ShardId,
)
from orchestrator.model.frozen import for_the_same_objects
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Policy, Wave, ZeroReplicas
from orchestrator.model.reading import Unknown, Unsupported

ROLES_THAT_NEED_NO_MEMBER: Final = frozenset({Role.COORDINATING, Role.VOTING_ONLY, Role.REMOTE})
"""The quorum predicate counts votes; the other roles are services of a node to its own clients."""

SMALLEST_QUORUM: Final = 3
"""Voters below which losing one stops the cluster (2 of 2 and 1 of 1 are needed)."""


def every_shard_keeps_started_copies(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Outside the wave, every shard keeps `min_started_copies` started copies of its in-sync set."""
    for _, finding in _short_of_copies(question.wave.nodes, question.policy, view):
        yield finding


def copies_that_no_time_brings(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Shards that would have too few though every copy that their index asks for is safe: none will follow.

    Of indices without replicas, on which `zero_replica_indices` decides, those to which the run would add one
    that no node may take.
    """
    yield from _without_a_place(question, view)
    metadata = view.metadata
    for shard, finding in _short_of_copies(question.wave.nodes, question.policy, view):
        index = metadata.get(shard.index_uuid)
        if index is None or index.replicas == 0:
            continue
        if all(counts_as_safe(index, copy) for copy in view.shards[shard]):
            yield finding


def _without_a_place(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Indices on the wave to which the run would add a replica that no node may take."""
    bare = _without_replicas(view.indices)
    if question.policy.zero_replicas is not ZeroReplicas.ADD_REPLICA or not bare:
        return
    deciders = returns(question.policy, view, question.observation.settings)
    for shard in dict.fromkeys(copy.shard for copy in view.on(question.wave.nodes)):
        index = bare.get(shard.index_uuid)
        if index is None or not index.open or index.name in question.policy.accept_red:
            continue
        if not deciders.has_a_place(view, shard):
            remedy = f"`zero_replica_indices: {{accept: [{index.name}]}}` in the playbook"
            lacks = "no node may take the replica that the run would add"
            yield (
                f"index {index.name}",
                f"{lacks}: allow another node to have it, or begin another run with {remedy}",
            )


@for_the_same_objects
def _short_of_copies(
    nodes: tuple[NodeName, ...], policy: Policy, view: ClusterView
) -> tuple[tuple[ShardId, Finding], ...]:
    """Shards with a started copy on the wave and fewer than `min_started_copies` safe ones elsewhere."""
    wave, found = set(nodes), list[tuple[ShardId, Finding]]()
    for shard in dict.fromkeys(copy.shard for copy in view.on(nodes) if copy.started):
        index, copies = view.metadata.get(shard.index_uuid), view.shards[shard]
        if shard.index in policy.accept_red or exempt_from_copies_rule(index):
            continue
        safe = [copy.node for copy in copies if copy.node not in wave and counts_as_safe(index, copy)]
        if len(safe) < policy.min_started_copies:
            where = f" on {', '.join(str(node) for node in safe)}" if safe else ""
            said = (
                f"{shard}: {len(safe)} started in-sync copies elsewhere{where}, "
                f"{policy.min_started_copies} wanted"
            )
            found.append((shard, (f"index {shard.index}", said)))
    return tuple(found)


def copies_can_return(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every started copy on the wave has a node that takes it back, or its index is accepted by name.

    An accepted copy goes last: a node whose restart needs it as another copy of its shard is restarted first.
    """
    if isinstance(question.observation.settings, Unknown):
        yield "cluster settings", question.observation.settings
        return
    found = away_for_good(question, view)
    yield from _not_accepted(question.policy, found)
    for name in dict.fromkeys(away.copy.node for away in found if away.copy.node):
        for other, shard in _before(question, view, name).items():
            said = f"after {name}, {other} would have the last copies of {shard}: {other} is restarted first"
            yield f"index {shard.index}", OthersFirst(evidence=said)


def copies_that_never_return(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Of these, those that stay: not of an index that ILM shrinks now, nor of a node that only goes later."""
    found = away_for_good(question, view)
    yield from _not_accepted(question.policy, [away for away in found if not away.index.shrinks])
    for name in dict.fromkeys(away.copy.node for away in found if away.copy.node):
        yield from _in_a_circle(question, view, name)


def _not_accepted(policy: Policy, found: Iterable[Away]) -> Iterator[Finding]:
    for index, copy, said in ((away.index, away.copy, away.said) for away in found):
        subject = f"index {index.name}"
        if is_waived(policy, index):
            continue
        if isinstance(said, Unknown):
            doubt = f"whether {copy.shard} would come back to {copy.node} is not known: {said.reason}"
            yield subject, replace(said, reason=doubt)
            continue
        then = "wait until ILM has shrunk it" if index.shrinks else "correct that"
        accept = f"`accept: {{not_returning: [{index.name}]}}` in the playbook"
        stays = f"{copy.shard} would not come back to {copy.node}, and no other node takes it: {said}"
        yield subject, f"{stays}: {then}, or begin another run with {accept}"


def is_waived(policy: Policy, index: Index) -> bool:
    """Whether the playbook accepts by name that copies of this index do not come back."""
    return any(fnmatch.fnmatchcase(index.name, glob) for glob in policy.accept_not_returning)


def _before(question: Question, view: ClusterView, name: NodeName) -> Mapping[NodeName, ShardId]:
    """The nodes to restart before this one, each with a shard whose copy on this one does not return.

    Without that copy they could not be stopped any more.
    """
    policy, found = question.policy, dict[NodeName, ShardId]()
    alone = replace(question, wave=Wave(number=question.wave.number, nodes=(name,)))
    pending = {node.name for node in question.state.nodes_in(NodePhase.PENDING)}.difference((name,))
    for index, shard in ((away.index, away.copy.shard) for away, _ in refused_for_good(alone, view)):
        off = policy.disables("every_shard_keeps_started_copies", f"index {index.name}")
        if off or index.name in policy.accept_red or exempt_from_copies_rule(index):
            continue
        if not is_waived(policy, index):
            continue  # it holds the run by itself
        left = [copy.node for copy in view.shards[shard] if counts_as_safe(index, copy) and copy.node != name]
        if len(left) - 1 < policy.min_started_copies:
            found |= {node: shard for node in left if node is not None and node in pending}
    return found


def _in_a_circle(question: Question, view: ClusterView, name: NodeName) -> Iterator[Finding]:
    """The finding that a node would have to go before itself: no order of restarts avoids that."""
    first, seen = dict(_before(question, view, name)), set[NodeName]()
    while following := first.keys() - seen:
        node = min(following)
        if node == name:
            shard = first[node]
            yield (
                f"index {shard.index}",
                f"no order of restarts keeps {shard} started: correct that",
            )
            return
        seen.add(node)
        first |= _before(question, view, node)


def no_recovery_on_candidates(question: Question, view: ClusterView) -> Iterator[Finding]:
    """No shard with a copy on the wave has a copy that is being recovered or moved."""
    wave = set(question.wave.nodes)
    for shard, copies in view.moving.items():
        touched = any(copy.node in wave or copy.relocating_to in wave for copy in copies)
        moving = [c for c in copies if c.state in (CopyState.INITIALIZING, CopyState.RELOCATING)]
        if touched:
            where = ", ".join(f"{c.state.value} on {c.node}" for c in moving)
            yield f"shard {shard}", where


def zero_replica_indices(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every index with a copy on the wave has a replica, or the operator accepts it by name."""
    bare = _without_replicas(view.indices)
    if not bare:
        return
    here: dict[str, set[NodeName]] = {}
    for copy in view.on(question.wave.nodes):
        if copy.node is not None and copy.shard.index_uuid in bare:
            here.setdefault(copy.shard.index_uuid, set()).add(copy.node)
    for uuid, nodes in sorted(here.items()):
        index = bare[uuid]
        if (
            not accepts_without_replicas(question.policy, index)
            and index.name not in question.policy.accept_red
        ):
            alone = f"is on {', '.join(sorted(nodes))} and has no replicas: "
            if question.policy.zero_replicas is ZeroReplicas.ADD_REPLICA:
                alone += "the run adds one first"
            else:
                remedy = (
                    f"`zero_replica_indices: {{accept: [{index.name}]}}` or `add_replica` in the playbook"
                )
                alone += f"add one, or begin another run with {remedy}"
            yield f"index {index.name}", alone


def _without_replicas(indices: tuple[Index, ...]) -> Mapping[str, Index]:
    return {one.uuid: one for one in indices if one.replicas <= 0 and not one.searchable_snapshot}


_NO_MASTER: Final = "`accept: {master_outage: true}` in the playbook"


def master_quorum_survives(question: Question, view: ClusterView) -> Iterator[Finding]:
    """The committed voting configuration keeps a majority without the wave."""
    if view.voters is None:
        yield "voting configuration", Unsupported(reason="not shown by this version: count the masters")
        return
    wave = [node for name in question.wave.nodes if (node := view.node(name))]
    lost = sorted(node.name for node in wave if node.node_id in view.voters)
    if not lost:
        return
    if view.voting_by_count:
        yield from _masters_by_count(question, len(view.voters), lost)
        return
    if len(view.voters) < SMALLEST_QUORUM:
        if not question.policy.accept_master_outage:
            needed = f"one of {len(view.voters)} voters: no master without it"
            yield f"node {lost[0]}", ByPolicy(evidence=needed, way=_NO_MASTER)
        return
    left = sum(node.node_id in view.voters for node in view.nodes) - len(lost)
    if 2 * left <= len(view.voters):
        yield f"node {lost[0]}", f"{left} of {len(view.voters)} voters would be left: no majority"


def _masters_by_count(question: Question, voters: int, lost: Sequence[NodeName]) -> Iterator[Finding]:
    """Before Elasticsearch 7, `minimum_master_nodes` decides. Below a majority, two masters are possible."""
    settings = question.observation.settings
    if isinstance(settings, Unknown):
        yield MINIMUM_MASTERS, settings
        return
    minimum = count_of(settings.effective(MINIMUM_MASTERS)) or 1
    if 2 * minimum <= voters:
        yield MINIMUM_MASTERS, f"is {minimum}, below a majority of {voters}: set it to {voters // 2 + 1}"
    elif voters - len(lost) < minimum and not (
        voters < SMALLEST_QUORUM and question.policy.accept_master_outage
    ):
        too_few = f"{voters - len(lost)} of {voters} voters would be left, and {minimum} elect a master"
        few = voters < SMALLEST_QUORUM
        yield f"node {lost[0]}", ByPolicy(evidence=too_few, way=_NO_MASTER) if few else too_few


def every_role_keeps_a_member(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every tier and role of the wave's nodes has another member outside the wave."""
    kinds = _kinds_in_wave(question.wave.nodes, view)
    inside = {role for roles in kinds for role in served(roles)}
    everywhere, in_wave = _by_role(_kinds_of_nodes(view.nodes)), _by_role(kinds)
    for role in sorted(inside - ROLES_THAT_NEED_NO_MEMBER, key=lambda role: role.value):
        if everywhere[role] > in_wave[role] or (role is Role.MASTER and question.policy.accept_master_outage):
            continue
        names = ", ".join(sorted(question.wave.nodes))
        only = f"no node outside the wave ({names}) has it: its service stops with them"
        yield f"role {role.value}", ByPolicy(evidence=only, way=_NO_MASTER if role is Role.MASTER else "")


def served(roles: frozenset[Role]) -> frozenset[Role]:
    """The services that a node has for others: a voting-only node votes, and can never be elected."""
    return roles - {Role.MASTER} if Role.VOTING_ONLY in roles else roles


def tiers_too(roles: frozenset[Role]) -> frozenset[Role]:
    """The same, and every tier for a node that is just `data`, as all nodes before 7.10 are."""
    here = served(roles)
    return here | DATA_ROLES if Role.DATA in here else here


def _by_role(kinds: Mapping[frozenset[Role], int]) -> Counter[Role]:
    """How many nodes have each role, tiers too."""
    found = Counter[Role]()
    for roles, count in kinds.items():
        for role in tiers_too(roles):
            found[role] += count
    return found


def _kinds_in_wave(wave: tuple[NodeName, ...], view: ClusterView) -> Counter[frozenset[Role]]:
    """The same of the members in a wave."""
    return Counter([node.roles for name in wave if (node := view.node(name))])


@for_the_same_objects
def _kinds_of_nodes(nodes: tuple[Node, ...]) -> Counter[frozenset[Role]]:
    """Which roles nodes have together, and how many of them."""
    return Counter(map(attrgetter("roles"), nodes))


def capacity_remains(question: Question, view: ClusterView) -> Iterator[Finding]:
    """At least the share `min_capacity` of each tier's data nodes stays up."""
    least, members = question.policy.min_capacity, _by_role(_kinds_of_nodes(view.nodes))
    in_wave = _by_role(_kinds_in_wave(question.wave.nodes, view))
    tiers = DATA_ROLES & set().union(*_kinds_of_nodes(view.nodes))
    for tier in sorted(tiers, key=lambda role: role.value):
        left = members[tier] - in_wave[tier]
        if left < least * members[tier]:
            said = f"{left} of {members[tier]} nodes would stay up, {least:.0%} wanted"
            yield f"tier {tier.value}", ByPolicy(evidence=said, way="a lower `min_capacity` in the playbook")


def disk_below_watermark(question: Question, view: ClusterView) -> Iterator[Finding]:
    """The disks of the wave's data nodes are below the low watermark.

    Disks of other nodes do not count: the copies of the wave come back to the wave.
    """
    disks = question.observation.disks
    if isinstance(disks, Unknown):
        yield "disks", disks
        return
    for node in (view.node(name) for name in question.wave.nodes):
        if node is None or not node.holds_data:
            continue
        disk = disks.get(node.name)
        if disk is None:
            yield f"node {node.name}", "its disk was not read"
        elif disk.over_high:
            yield f"node {node.name}", f"disk {disk.used_share:.0%} used: above the high watermark"
        elif disk.over_low:
            yield (
                f"node {node.name}",
                f"disk {disk.used_share:.0%} used: above the low watermark, no copy returns",
            )
