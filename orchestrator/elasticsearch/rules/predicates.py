"""The predicates of Elasticsearch and OpenSearch, in the order in which they are checked.

The docs' catalogue is generated from the list at the end; the names are public. Those of every kind are in
`every_kind.py`, those of an upgrade in `upgrade.py`. A missing reading is a hold: unknown is never healthy.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from orchestrator.elasticsearch.rules import upgrade
from orchestrator.elasticsearch.rules.recovery import (
    accepts_without_replicas,
    away_for_good,
    counts_as_safe,
    exempt_from_copies_rule,
    is_being_restored,
    lost_beyond_baseline,
    red_shards,
    refused_for_good,
)
from orchestrator.elasticsearch.rules.returning import (
    Away,
    Filters,
    cluster_filters,
    refuses,
    returns,
)
from orchestrator.elasticsearch.rules.settings import FILTERS, MINIMUM_MASTERS, count_of, set_by_run
from orchestrator.engine import every_kind
from orchestrator.engine.every_kind import on_cluster, some
from orchestrator.engine.predicates import (
    SUBJECTS,
    ByPolicy,
    Finding,
    OthersFirst,
    Predicate,
    Question,
    disabling,
)
from orchestrator.formats import duration, listed
from orchestrator.model.allocation import DISABLING, disables
from orchestrator.model.cluster import (
    DATA_ROLES,
    CopyState,
    Health,
    Index,
    Node,
    NodeName,
    Role,
    ShardId,
)
from orchestrator.model.observation import ClusterView, Level, RunningSnapshot, SettingsView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Policy, Wave, ZeroReplicas, numbers
from orchestrator.model.reading import Instant, Unknown, Unsupported
from orchestrator.model.remembered import for_the_same_objects
from orchestrator.next_command import next_command

# The whole cluster: is it safe to stop now? ------------------------------------

OLDEST_TASK_SECONDS: Final = 30.0
"""Elasticsearch's own limit for a master operation: a task this old shows a master that lags."""


def no_other_maintenance(question: Question, view: ClusterView) -> Iterator[Finding]:
    """No other maintenance: no allocation settings, exclusions or shutdown records made outside this run."""
    settings = question.observation.settings
    if isinstance(settings, Unknown):
        yield "cluster settings", settings
        return
    yield from _foreign_settings(question, settings, view)
    foreign = [name for name in view.voting_exclusions if name not in question.state.unrestored.excluded]
    if foreign:
        yield "voting exclusions", f"{some(sorted(foreign))}: made outside this run"
    if view.shutdowns:
        yield "node shutdown", f"records for {some(sorted(view.shutdowns))}"


_WHOSE: Final = (
    "not set by this run: enable allocation again when the work that needs this is done"
    f" (`{next_command('explain', 'repair-by-hand')}`)"
)


_OVERRIDE: Final = "`PUT /_cluster/settings` (persistent)"


def _foreign_settings(question: Question, settings: SettingsView, view: ClusterView) -> Iterator[Finding]:
    for key in sorted(DISABLING):
        for level in Level:
            value = settings.at(level, key)
            if disables(key, value) and not set_by_run(question.state, settings, level, key):
                yield key, f"is {value} ({level.value}), {_WHOSE}"
        from_file = settings.files.get(key)
        if settings.effective(key) == from_file and disables(key, from_file):
            yield key, f"is {from_file} in elasticsearch.yml: {_OVERRIDE} sets it without a restart"
    for kind, filters in cluster_filters(settings, from_files=False).items():
        yield from _drains(kind, filters, view)


def _drains(kind: str, filters: Filters, view: ClusterView) -> Iterator[Finding]:
    """The filters of a kind that keep copies off a node, or off one with copies (`include`, `require`)."""
    excludes = kind == "exclude"
    parts: Iterable[Filters] = [{name: values} for name, values in filters.items()] if excludes else [filters]
    for part in parts:
        subject = f"{FILTERS}{kind}.{next(iter(part))}"
        off = {node.name: refuses(kind, part, node) for node in view.nodes}
        if not excludes:
            off = {name: refused for name, refused in off.items() if view.routing.by_node.get(name)}
        names: list[str] = sorted(name for name, refused in off.items() if refused is True)
        in_doubt = next((each for each in off.values() if isinstance(each, Unknown)), None)
        if names and excludes:
            shown = ",".join(*part.values())
            yield subject, f"excludes {shown} from allocation: a node is being emptied"
        elif names:
            shown = ", ".join(f"{kind}.{name}: {','.join(values)}" for name, values in part.items())
            yield subject, f"{shown} leaves out {some(names)}: nodes are being emptied"
        elif in_doubt is not None:
            yield subject, in_doubt


def cluster_not_red(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every shard has a started copy, except in indices that the operator accepts."""
    away = [copy for copy in view.not_started if copy.primary]
    red = {copy.shard.index for copy in away if not is_being_restored(view, copy)}
    names = sorted(red.difference(question.policy.accept_red))
    accept = f"begin another run with `accept: {{red: [{', '.join(names)}]}}` in the playbook"
    yield from ((f"index {name}", f"a primary is not started: repair it, or {accept}") for name in names)
    health = question.observation.health
    if not away and not isinstance(health, Unknown) and health.status is Health.RED:
        yield "health", "red, though every primary in the routing table is started"
    if isinstance(health, Unknown):
        yield "health", health


_LOST_FOR_GOOD: Final = (
    "If they are lost for good, begin another run: it accepts what is missing at its start"
)


def no_worse_than_baseline(question: Question, view: ClusterView) -> Iterator[Finding]:
    """Every copy that was assigned when the run began is assigned now, on any node.

    Unassigned copies of new indices and of new replicas do not count. Nor do copies that recover:
    `no_recovery_on_candidates` holds the nodes that take part in a recovery.
    """
    missing = lost_beyond_baseline(question.state, view, question.observation.settings)
    if missing:
        names = sorted({str(copy.shard) for copy in missing})
        reasons = sorted({copy.unassigned_reason for copy in missing if copy.unassigned_reason})
        why = f" ({', '.join(reasons)})" if reasons else ""
        yield "shard copies", f"{len(missing)} not started: {some(names)}{why}. {_LOST_FOR_GOOD}"
    red = sorted(str(shard) for shard in red_shards(question.state, view))
    if red:
        yield "primaries", f"without a started copy: {some(red)}"


# The nodes that stay up during a wave: copies, votes, roles, capacity ------------------------------------

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


@for_the_same_objects
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


# Versions, disks and what runs now ------------------------------------


def version_order(question: Question, view: ClusterView) -> Iterator[Finding]:
    """In a cluster of mixed versions, no node of the wave is older than the primaries of its copies.

    This includes primaries on the wave: if a copy on a newer node becomes the primary, the stopped copy
    cannot return to its older node.

    In an upgrade the nodes of the wave come back with the target. A run whose hooks do the upgrade continues,
    once one of its own nodes has a newer version.
    """
    if len({node.version for node in view.nodes}) <= 1:
        return
    versions = {node.name: numbers(node.version) for node in view.nodes}
    if question.policy.upgrade is not None:
        versions |= dict.fromkeys(question.wave.nodes, numbers(question.policy.upgrade.target))
    newest = max(versions.values(), default=())
    done = [node.name for node in question.state.nodes_in(NodePhase.RECOVERED)]
    began = numbers(question.state.begun.version)
    if any(versions.get(name, began) > began for name in done):
        return
    wave = set(question.wave.nodes)
    for name in question.wave.nodes:
        if versions.get(name, newest) == newest:
            continue
        stranded = sorted(
            str(copy.shard)
            for copy in view.on((name,))
            if any(
                versions.get(other.node or name, ()) > versions[name]
                for other in view.shards[copy.shard]
                if other.node not in wave and (other.primary or (copy.primary and other.started))
            )
        )
        if stranded:
            older = f"older than the nodes that have or get the primaries of {some(stranded)}"
            hooked = f"{disabling('version_order', f'node {name}')} if hooks of the playbook upgrade it"
            way = f"an upgrade, so that {name} comes back with the newer version, or {hooked}"
            yield f"node {name}", ByPolicy(evidence=older, way=way)


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


def no_running_snapshot(question: Question) -> Iterator[Finding]:
    """No snapshot is running: no backup of the cluster is being made."""
    activity = question.observation.activity
    if isinstance(activity, Unknown):
        yield "snapshots", activity
        return
    for snapshot in activity.snapshots:
        yield f"snapshot {snapshot.name}", _state_of(snapshot, question.observation.at)


def _state_of(snapshot: RunningSnapshot, now: Instant) -> str:
    on = f" on {listed(snapshot.nodes, SUBJECTS)}" if snapshot.nodes else ""
    began = "" if snapshot.since is None else f"; it began {duration(max(0.0, now - snapshot.since))} ago"
    if not snapshot.aborted:
        done = "" if snapshot.done is None else f", {int(snapshot.done * 100)}% of its shards are done"
        return f"is running{on}{done}{began}"
    return (
        f"is aborted and has not ended{on}{began}. Where waiting does not help, a restart of"
        f" {'that node' if len(snapshot.nodes) == 1 else 'its nodes'} ends it, with this predicate disabled:"
        " nothing of the snapshot is lost by it"
    )


def no_force_merge_or_reindex_on_candidates(question: Question) -> Iterator[Finding]:
    """No force-merge, reindex, update-by-query or delete-by-query runs on a node of the wave."""
    activity = question.observation.activity
    if isinstance(activity, Unknown):
        yield "tasks", activity
        return
    for name in question.wave.nodes:
        if name in activity.unread:
            yield f"node {name}", "its tasks were not in the answer"
        if name in activity.merges:
            yield f"node {name}", "a force-merge runs there"
        if name in activity.reindexes:
            yield f"node {name}", "a reindex, update-by-query or delete-by-query runs there"


def pending_tasks_drained(question: Question) -> Iterator[Finding]:
    """No task of the master has waited for more than 30 seconds."""
    health = question.observation.health
    if isinstance(health, Unknown):
        yield "pending tasks", health
    elif health.oldest_task > OLDEST_TASK_SECONDS:
        yield "pending tasks", f"{health.pending_tasks} wait, the oldest for {duration(health.oldest_task)}"


# The list ------------------------------------

OBSERVATION_IS_FRESH: Final = Predicate(
    why="A decision on an old or partial reading can stop a node that the cluster cannot spare now.",
    then="Wait: the run reads again. If it lasts, the hold names the part that cannot be read, and why.",
    check=every_kind.fresh("cluster", "settings", "health", "activity", "disks"),
    may_be_disabled=False,
)

PREDICATES: Final[tuple[Predicate, ...]] = (
    OBSERVATION_IS_FRESH,
    every_kind.CLUSTER_IS_THE_ONE_NAMED,
    every_kind.LEASE_IS_HELD,
    Predicate(
        why="Archived settings block every update: this must be known before allocation is disabled.",
        then="Correct what the cluster answers, as the hold quotes it, and run the command again.",
        check=every_kind.settings_are_writable,
        passes_with_time=False,
    ),
    Predicate(
        why="Disabled allocation, exclusions or shutdown records are signs of other maintenance.",
        then="Find out whose work it is. When it is done, enable allocation again and remove what it left.",
        check=on_cluster(no_other_maintenance),
        passes_with_time=False,
    ),
    Predicate(
        why="If a node is down already, the next node may hold the last copy of a shard.",
        then="Start the node, or repair its host. Without it for good: see what the hold says.",
        check=on_cluster(every_kind.expected_nodes_present),
        of_absence=True,
    ),
    Predicate(
        why="A cluster that has lost primaries needs repair, not restarts.",
        then=(
            "`GET /_cluster/allocation/explain` shows why a primary is not assigned. Get its node or disk "
            "back, then `POST /_cluster/reroute?retry_failed=true`; or delete the index and restore it "
            "from a snapshot. If the index may stay red, name it in `accept: {red: [INDEX]}` of the "
            "playbook: the run does not protect its copies, so what is left of them can be down together. "
            "Allocate a stale or an empty primary only as the last way: writes are lost."
        ),
        check=on_cluster(cluster_not_red),
        by_recovery=True,
    ),
    Predicate(
        why="The previous wave must have recovered. Copies missing before the run are not waited for.",
        then="Wait for the copies; `GET /_cluster/allocation/explain` shows why one is not assigned.",
        check=on_cluster(no_worse_than_baseline),
        by_recovery=True,
    ),
    Predicate(
        why="If all started copies of a shard are on the wave, the shard is unavailable meanwhile.",
        then="Wait for copies that recover, or give the index a replica that another node may take.",
        check=on_cluster(every_shard_keeps_started_copies),
        lasting=on_cluster(copies_that_no_time_brings),
        about_wave=True,
        by_recovery=True,
        remedy="give the index more replicas",
    ),
    Predicate(
        why="A recovery that loses its source is not assigned again while allocation is disabled.",
        then="Wait for the recovery: `GET /_cat/recovery?active_only=true` shows how far it is.",
        check=on_cluster(no_recovery_on_candidates),
        about_wave=True,
        by_recovery=True,
        remedy="let the recovery end",
    ),
    Predicate(
        why="The run would wait until its limit for copies that the cluster does not allocate again.",
        then="Correct the filter, the limit or the setting that the hold names, or accept the index.",
        check=on_cluster(copies_can_return),
        lasting=on_cluster(copies_that_never_return),
        about_wave=True,
        own_reasons=True,
    ),
    Predicate(
        why="An index without replicas is red while its node is down. The operator must accept that.",
        then="Add a replica, or accept the index as the hold shows: it is red while its node is down.",
        check=on_cluster(zero_replica_indices),
        passes_with_time=False,
        about_wave=True,
    ),
    Predicate(
        why="Without a majority of voters there is no master, and no setting can be restored.",
        then="Add master-eligible nodes, or get those that are away back, so that a majority is left.",
        check=on_cluster(master_quorum_survives),
        passes_with_time=False,
        about_wave=True,
    ),
    Predicate(
        why="If the only node of a tier or role stops, its service stops too.",
        then="Give another node the role, or stop the clients that need it and disable this predicate.",
        check=on_cluster(every_role_keeps_a_member),
        passes_with_time=False,
        about_wave=True,
    ),
    Predicate(
        why="With too few data nodes, the cluster cannot serve its queries.",
        then="Restart fewer nodes at a time, or lower `min_capacity` in the playbook.",
        check=on_cluster(capacity_remains),
        passes_with_time=False,
        about_wave=True,
    ),
    Predicate(
        why="Copies of a shard are in different zones. Stops in two zones can stop all copies of it.",
        then="Select nodes of one zone, or correct the zone of a node.",
        check=on_cluster(every_kind.one_zone_at_a_time),
        about_wave=True,
        remedy="give them one zone",
    ),
    every_kind.BUDGET_NOT_EXCEEDED,
    Predicate(
        why="A copy cannot be allocated to a node with an older version than the node of its primary.",
        then="Upgrade the nodes with the older version first, or with this run.",
        check=on_cluster(version_order),
        passes_with_time=False,
        about_wave=True,
    ),
    Predicate(
        why="Between these versions nodes cannot be in one cluster, or cannot read each other's data.",
        then="Upgrade to the version in between that the hold names, then to the target.",
        check=upgrade.upgrade_path_is_supported,
        of_upgrade=True,
        may_be_disabled=False,
        passes_with_time=False,
    ),
    Predicate(
        why="A node that has written data with a newer version does not start with an older one.",
        then="Choose a target that is not older than any node.",
        check=upgrade.no_node_is_newer,
        of_upgrade=True,
        may_be_disabled=False,
        passes_with_time=False,
    ),
    Predicate(
        why="A node does not start with an index that its version cannot open.",
        then="Reindex the indices, or delete them, before the upgrade.",
        check=upgrade.indices_open_in_target,
        of_upgrade=True,
        passes_with_time=False,
    ),
    Predicate(
        why="What the next major version no longer takes keeps its nodes from starting, or its clients out.",
        then="Do what the deprecation says; `GET /_migration/deprecations` has all of them.",
        check=upgrade.no_critical_deprecations,
        of_upgrade=True,
        passes_with_time=False,
    ),
    Predicate(
        why="After the first upgraded node there is no way back but a snapshot.",
        then="Take a snapshot, and run the command again.",
        check=upgrade.snapshot_is_recent,
        of_upgrade=True,
        passes_with_time=False,
    ),
    Predicate(
        why="A node does not start with a setting that its version does not know.",
        then="Take the setting out of the nodes' files.",
        check=upgrade.settings_known_to_target,
        of_upgrade=True,
        passes_with_time=False,
    ),
    Predicate(
        why="A package or plugin that is missing on one host must be found before the first stop.",
        then="Run the `upgrade.verify` line by hand on the host, and correct what it says.",
        check=upgrade.hosts_can_install,
        of_upgrade=True,
        lasting=upgrade.hosts_that_never_can,
        own_reasons=True,
    ),
    Predicate(
        why="A start without a terminal waits for the password, and fails.",
        then="Remove the password of the keystore, or continue without this check as the hold shows.",
        check=upgrade.keystores_need_no_password,
        of_upgrade=True,
        passes_with_time=False,
    ),
    Predicate(
        why="A disk that fills up leaves half of a package.",
        then="Free disk space on the host, or continue without this check as the hold shows.",
        check=upgrade.disk_space_for_install,
        of_upgrade=True,
        passes_with_time=False,
        own_reasons=True,
    ),
    Predicate(
        why="Above a watermark the cluster does not allocate the copies of the node again.",
        then="Free disk space, add a disk or a node, or move copies off the node.",
        check=on_cluster(disk_below_watermark),
        about_wave=True,
        unread_in_recovery=True,
    ),
    Predicate(
        why="A snapshot is partial if one of its nodes stops.",
        then="Wait for its end, or delete it, as `DELETE /_snapshot/REPOSITORY/NAME`: it is then lost.",
        check=no_running_snapshot,
    ),
    Predicate(
        why="A restart ends that work, and hours of it are lost.",
        then="Wait for its end: `GET /_tasks?detailed` shows it. A reindex can be cancelled there.",
        check=no_force_merge_or_reindex_on_candidates,
        about_wave=True,
        unread_in_recovery=True,
    ),
    Predicate(
        why="An overloaded master is slow to see nodes leave and join.",
        then="Find out what loads the master: `GET /_cluster/pending_tasks` lists what waits.",
        check=pending_tasks_drained,
    ),
    every_kind.SELECTED_HOSTS_READY,
    every_kind.NO_MANAGEMENT_RUN_ON_CANDIDATES,
    every_kind.GATES_OPEN,
)
