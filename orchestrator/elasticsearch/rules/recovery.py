"""What a wave takes down and when it is back; what is missing, and whether the run caused it.

Recovery is relative: a cluster that is yellow for a reason of its own is as healthy after the restart as it
was before, and a run that waited for green would wait for ever. The run waits for the copies that its waves
took down, and for no others.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Final

from orchestrator.elasticsearch.rules.returning import Away, Returns, returns
from orchestrator.elasticsearch.rules.settings import BANDWIDTH, bytes_of
from orchestrator.engine.estimate import PUBLISHED, stored_by_node
from orchestrator.engine.every_kind import some
from orchestrator.engine.predicates import Question
from orchestrator.engine.progress import ShardTaken
from orchestrator.engine.state import RunState
from orchestrator.formats import size
from orchestrator.model.cluster import SERVING, CopyState, Index, NodeName, ShardCopy, ShardId
from orchestrator.model.event import BaselineRecorded, ForeseenNotToReturn, IndexTaken
from orchestrator.model.observation import ClusterView, MissingCopy, Observation, SettingsView
from orchestrator.model.policy import Policy, Wave, ZeroReplicas
from orchestrator.model.prediction import Prediction, Usual
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.remembered import for_the_same_objects

_RESTORED: Final = frozenset({"NEW_INDEX_RESTORED", "EXISTING_INDEX_RESTORED"})
_EXCUSED: Final = _RESTORED | {"INDEX_REOPENED", "INDEX_CLOSED", "DANGLING_INDEX_IMPORTED"}
"""Reasons of copies of an index that was closed, reopened or restored: red for a moment, not by the run."""

_ADDED: Final = "REPLICA_ADDED"

FRESH: Final = _EXCUSED | {"INDEX_CREATED", _ADDED}
"""Reasons of copies that never had a node: without one they are not lost."""

_LEFT: Final = frozenset({"NODE_LEFT", "NODE_RESTARTING"})
"""Reasons of copies whose node left the cluster."""


def baseline_of(view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
    """The missing copies now. Copies that are being recovered do not count: they are expected to arrive."""
    unassigned = [copy for copy in view.not_started if copy.state is CopyState.UNASSIGNED]
    lives = {node.name: node.incarnation for node in view.nodes}
    bystanders = tuple(node.name for node in view.nodes if not (node.holds_data or node.master_eligible))
    return BaselineRecorded(
        missing=counted(unassigned), incarnations=lives, boots=boots, bystanders=bystanders
    )


def counted(copies: list[ShardCopy]) -> tuple[MissingCopy, ...]:
    """Copies by shard, role and reason."""
    counts = Counter((copy.shard, copy.primary, copy.unassigned_reason or "") for copy in copies)
    return tuple(
        MissingCopy(
            index=shard.index,
            index_uuid=shard.index_uuid,
            number=shard.number,
            primary=primary,
            reason=reason,
            count=count,
        )
        for (shard, primary, reason), count in sorted(counts.items(), key=str)
    )


def taken_by(
    state: RunState, view: ClusterView, settings: Reading[SettingsView], wave: Wave
) -> tuple[IndexTaken, ...]:
    """The shards with a started copy on the wave, with their started copies in the whole cluster.

    In an upgrade also shards that have lost a copy since the run began, which only a node on the target can
    hold: a stop of the run may have taken it down that was done late, while no journal could be written.
    """
    displaced = Counter(copy.shard for copy in _displaced(state, view, settings))
    nodes, table, by_node = set(wave.nodes), view.shards, view.routing.by_node
    here = dict.fromkeys(chain.from_iterable(by_node.get(name, ()) for name in wave.nodes))
    by_index: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for shard in {**here, **displaced} if displaced else here:
        places = [copy.node for copy in table[shard] if copy.state in SERVING]
        lost = displaced[shard] if displaced else 0
        if lost or not nodes.isdisjoint(places):
            by_index.setdefault(shard[:2], []).append((shard.number, len(places) + lost))
    metadata = view.metadata
    return tuple(
        IndexTaken(
            index=metadata[uuid].name,
            index_uuid=uuid,
            replicas=metadata[uuid].replicas,
            filters=metadata[uuid].filters,
            started=tuple(sorted(started)),
            open=metadata[uuid].open,
        )
        for (_, uuid), started in sorted(by_index.items())
        if uuid in metadata
    )


def _displaced(state: RunState, view: ClusterView, settings: Reading[SettingsView]) -> Iterator[ShardCopy]:
    """Replicas that were lost in an upgrade, are in no wave's account, and have no place before the next."""
    if state.begun.policy.upgrade is None:
        return
    deciders = returns(state.begun.policy, view, settings)
    for copy in missing_beyond_baseline(state, view):
        lost = copy.state is CopyState.UNASSIGNED and not copy.primary and not _never_had_a_node(view, copy)
        if lost and not deciders.has_a_place(view, copy.shard):
            yield copy


def away_for_good(question: Question, view: ClusterView) -> tuple[Away, ...]:
    """The started copies of a wave that no node would take again, or of which that cannot be evaluated.

    Of a shard that the run found with copies missing, as many may be missing again: an index with more copies
    than the nodes can hold has the others wherever the cluster has put them.
    """
    seen = question.observation
    found = _away(returns(question.policy, view, seen.settings, seen.disks), view, question.wave.nodes)
    spare = _missing_before(question.state) if found else Counter[tuple[str, int]]()
    spare -= Counter((copy.shard.index_uuid, copy.shard.number) for copy in view.not_started)
    kept: list[Away] = []
    for away in found:
        shard = (away.copy.shard.index_uuid, away.copy.shard.number)
        kept += [away] if spare[shard] <= 0 else []
        spare[shard] -= 1
    return tuple(kept)


@for_the_same_objects
def _away(here: Returns, view: ClusterView, nodes: tuple[NodeName, ...]) -> tuple[Away, ...]:
    """Those of a wave; its choice, the predicates and the event at its stop ask for them."""
    return tuple(away for name in nodes for away in here.away(view, name))


def _missing_before(state: RunState) -> Counter[tuple[str, int]]:
    """How many copies of each shard were missing when the run began."""
    found = Counter[tuple[str, int]]()
    for one in state.baseline.missing if state.baseline else ():
        found[one.index_uuid, one.number] += one.count
    return found


def refused_for_good(question: Question, view: ClusterView) -> Iterator[tuple[Away, str]]:
    """Those that are refused, with the reason. A copy in doubt may return, and is waited for."""
    for away in away_for_good(question, view):
        if isinstance(away.said, str):
            yield away, away.said


def not_to_return(question: Question) -> ForeseenNotToReturn | None:
    """The event that names them, when the wave goes although predicates could have held it."""
    view = question.observation.cluster
    found = () if isinstance(view, Unknown) else tuple(refused_for_good(question, view))
    if not found:
        return None
    reasons = dict.fromkeys(said for _, said in found)
    return ForeseenNotToReturn(
        shards=counted([away.copy._replace(primary=False) for away, _ in found]), why="; ".join(reasons)
    )


def shortfall(state: RunState, view: ClusterView | None) -> str:
    """The copies that waves took down, and that still have no node, in words; empty for none.

    A copy that was missing when the run began is none of them, nor is one that a node takes by now.
    """
    missing = [] if view is None else [copy.shard for copy in view.not_started if copy.node is None]
    gone = Counter(shard[1:] for shard in missing) - _missing_before(state)
    left = (shard for shard in dict.fromkeys(missing) if gone[shard[1:]] and state.not_waited.get(shard[1:]))
    shards = [f"[{shard.index}][{shard.number}]" for shard in left]
    return f"copies that were not waited for, since no node takes them back: {some(shards)}" if shards else ""


def missing_of_waves(
    state: RunState, view: ClusterView, settings: Reading[SettingsView]
) -> tuple[ShardCopy, ...]:
    """Copies that the waves took down and that are not back, as many of each shard as it lacks.

    The run waits for no copy of an index that is gone, was closed, reopened or restored over; and for no more
    copies than its replicas allow. Where filters or limits of allocation have changed, the deciders say
    whether a node has a place for the copy, as always. If more copies recover than are missing (replicas were
    added), the run waits for all copies on the waves' nodes first: the cluster may allocate any copy of a
    shard to a node that is back, also a copy that never had a node. Last come primaries that start on those
    nodes, of shards that no reading before the stop had.

    A copy that had no place when its wave was back is waited for with every later wave, once a node can hold
    it: the run took it down. So it is in an upgrade, and after a node came back with another version.
    """
    not_started = view.routing.away
    if not not_started:
        return ()
    missing: list[ShardCopy] = []
    metadata, table = view.metadata, view.shards
    deciders = returns(state.begun.policy, view, settings)
    ours = {name for one in state.waves for name in one.wave.nodes}
    for (uuid, number), was in _awaited(state).items():
        index = metadata.get(uuid)
        if index is None:
            continue
        shard = ShardId(index.name, uuid, number)
        away = not_started.get(shard)
        if away is None or index.open is not was.open:
            continue
        lacking = min(was.started, index.replicas + 1) - (len(table[shard]) - len(away))
        if lacking <= 0:
            continue
        if len(away) == 1:  # nearly all of them
            placed = _has_its_node(away[0]) or deciders.has_a_place(view, shard)
            missing += away if placed and not _excused(away[0]) else ()
            continue
        awaited = sum([not _excused(copy) for copy in away])
        if not deciders.has_a_place(view, shard):
            away = tuple(copy for copy in away if _has_its_node(copy))  # awareness came after the index
        order = sorted(away, key=lambda copy: (copy.node is None, copy.node not in ours, _excused(copy)))
        here = sum([copy.node in ours for copy in away])
        missing += order[: min(awaited, max(lacking, here))]
    return (*missing, *_made_meanwhile(state, view, ours))


def _awaited(state: RunState) -> Mapping[tuple[str, int], ShardTaken]:
    """What the waves took down, and what an earlier wave took and left without a place."""
    if not state.displaced:
        return state.taken
    awaited = dict(state.taken)
    for key, was in state.displaced.items():
        awaited[key] = awaited[key].after(was, most=was.started) if key in awaited else was
    return awaited


def _has_its_node(copy: ShardCopy) -> bool:
    """Whether deciders do not count: it is on its way, or it is a primary, forced onto its data."""
    return copy.node is not None or copy.primary


def _excused(copy: ShardCopy) -> bool:
    return copy.unassigned_reason in _EXCUSED


def _made_meanwhile(state: RunState, view: ClusterView, ours: Collection[NodeName]) -> Iterator[ShardCopy]:
    """Primaries that start on the waves' nodes, of shards made between the last reading and a stop."""
    taken, red = state.taken, {shard for shards in red_by_waves(state, view) for shard in shards}
    for copy in view.not_started:
        shard = copy.shard
        rises = copy.primary and copy.state is CopyState.INITIALIZING and copy.node in ours
        if rises and shard in red and (shard.index_uuid, shard.number) not in taken:
            yield copy


def missing_beyond_baseline(state: RunState, view: ClusterView) -> tuple[ShardCopy, ...]:
    """Copies that are not started, except those missing at the start and those that the run ignores."""
    if not view.not_started:
        return ()
    allowed: Counter[tuple[str, int, bool]] = Counter()
    for gone in state.baseline.missing if state.baseline else ():
        allowed[(gone.index_uuid, gone.number, gone.primary)] += gone.count
    for (uuid, number), count in state.not_waited.items():
        allowed[(uuid, number, False)] += count
    beyond = []
    # Of two copies of a shard the one that never had a node is what was missing before.
    for copy in sorted(view.not_started, key=lambda copy: not _never_had_a_node(view, copy)):
        key = (copy.shard.index_uuid, copy.shard.number, copy.primary)
        if copy.state is CopyState.UNASSIGNED and allowed[key] > 0:
            allowed[key] -= 1
            continue
        beyond.append(copy)
    return tuple(beyond)


def lost_beyond_baseline(
    state: RunState, view: ClusterView, settings: Reading[SettingsView]
) -> tuple[ShardCopy, ...]:
    """Unassigned copies that had a node since the run began.

    A copy that a wave took down counts as lost for every unassigned reason. A replica that no node can hold
    does not count, though it may have had a node that now holds another copy of its shard. One that an
    upgrade has displaced counts as soon as a node can hold it.
    """
    if not view.not_started:
        return ()
    beyond = (copy for copy in missing_beyond_baseline(state, view) if not _never_had_a_node(view, copy))
    deciders = returns(state.begun.policy, view, settings)
    placeable = (copy for copy in beyond if _has_its_node(copy) or deciders.has_a_place(view, copy.shard))
    lost = dict.fromkeys((*placeable, *missing_of_waves(state, view, settings)))
    return tuple(copy for copy in lost if copy.state is CopyState.UNASSIGNED)


def _never_had_a_node(view: ClusterView, copy: ShardCopy) -> bool:
    """Whether a copy is new. Auto-expand removes a replica with its node and adds it with the node."""
    index = view.metadata.get(copy.shard.index_uuid)
    expands = index is not None and index.auto_expand is not None
    return copy.unassigned_reason in FRESH and not (expands and copy.unassigned_reason == _ADDED)


def not_waited_for(state: RunState, view: ClusterView) -> tuple[MissingCopy, ...]:
    """Copies without a node when the waves are back: more than their shards had, or of new indices."""
    beyond = missing_beyond_baseline(state, view)
    return counted([copy for copy in beyond if copy.state is CopyState.UNASSIGNED and not copy.primary])


def counts_as_safe(index: Index | None, copy: ShardCopy) -> bool:
    """Started, and in-sync if the version reports that: a stale copy never becomes primary."""
    if not copy.started:
        return False
    in_sync = in_sync_of(index, copy.shard)
    return in_sync is None or copy.allocation_id is None or copy.allocation_id in in_sync


def in_sync_of(index: Index | None, shard: ShardId) -> frozenset[str] | None:
    """Allocation ids of the in-sync copies of a shard; None if the version does not report them."""
    return index.in_sync.get(shard.number) if index and index.in_sync is not None else None


def red_shards(state: RunState, view: ClusterView) -> Iterator[ShardId]:
    """Shards without a started copy that were not red before, are not accepted and are not just created."""
    accepted = state.begun.policy.accept_red
    before = _red_before(state)
    for shard, copies in view.routing.red.items():
        if shard.index in accepted or (shard.index_uuid, shard.number) in before:
            continue
        if any(copy.primary and copy.unassigned_reason in FRESH for copy in copies):
            continue
        yield shard


def is_being_restored(view: ClusterView, copy: ShardCopy) -> bool:
    """Whether a primary comes from a repository just now, or another shard of its index does."""
    if not _of_a_restore(copy):
        return False
    return any(
        other.state is CopyState.INITIALIZING and _of_a_restore(other)
        for other in view.not_started
        if other.shard.index_uuid == copy.shard.index_uuid
    )


def _of_a_restore(copy: ShardCopy) -> bool:
    """By source or reason: a snapshot restore that lost its node continues on another, with a new reason."""
    return copy.from_snapshot or copy.unassigned_reason in _RESTORED


def red_by_waves(state: RunState, view: ClusterView) -> tuple[tuple[ShardId, ...], tuple[ShardId, ...]]:
    """Shards that are red because of the run, and those of them that are excused for a moment.

    Red by the run: without a started copy, and with one when the wave went down, or left by a node that the
    wave took (an index made between the last reading and the stop).
    """
    found: list[ShardId] = []
    excused: list[ShardId] = []
    accepted, before = state.begun.policy.accept_red, _red_before(state)
    for shard, copies in view.routing.red.items():
        if shard.index in accepted or (shard.index_uuid, shard.number) in before:
            continue
        was = state.taken.get((shard.index_uuid, shard.number))
        left = any(copy.unassigned_reason in _LEFT for copy in copies)
        if not (was or left) or _may_be_away(state, view, shard):
            continue
        if any(copy.primary and is_being_restored(view, copy) for copy in copies):
            continue
        index = view.metadata.get(shard.index_uuid)
        # A replica of a restored index may have no data. Then only the absent node of its primary helps.
        by_hand = any(
            copy.unassigned_reason in (_EXCUSED if copy.primary else _EXCUSED - _RESTORED) for copy in copies
        )
        turned = index is not None and was is not None and index.open is not was.open
        (excused if by_hand or turned else found).append(shard)
    return tuple(found), tuple(excused)


def _red_before(state: RunState) -> set[tuple[str, int]]:
    """Shards whose primary was missing when the run began."""
    missing = state.baseline.missing if state.baseline else ()
    return {(one.index_uuid, one.number) for one in missing if one.primary}


def _may_be_away(state: RunState, view: ClusterView, shard: ShardId) -> bool:
    """Whether the playbook accepts that this shard is away while its node is, or a repository has it."""
    policy, index = state.begun.policy, view.metadata.get(shard.index_uuid)
    if index is None:
        return False
    subject = f"index {shard.index}"
    without_replicas = index.replicas == 0 and (
        accepts_without_replicas(policy, index) or policy.disables("zero_replica_indices", subject)
    )
    return (
        index.searchable_snapshot
        or without_replicas
        or policy.disables("every_shard_keeps_started_copies", subject)
    )


def exempt_from_copies_rule(index: Index | None) -> bool:
    """Indices that another predicate decides on: without replicas (policy), or backed by a repository.

    None is not exempt: no other predicate would check an index without metadata.
    """
    return index is not None and (index.searchable_snapshot or index.replicas == 0)


def accepts_without_replicas(policy: Policy, index: Index) -> bool:
    """Whether the playbook accepts that this index is away while its node is."""
    return policy.zero_replicas is ZeroReplicas.ACCEPT and any(
        fnmatch.fnmatchcase(index.name, glob) for glob in policy.zero_replicas_accepted
    )


# How long it takes ------------------------------------

# A copy that was written while its node was away copies what it lacks, as a rule little; at worst a node
# copies all that it holds, at the rate that recoveries may have.

_RATE: Final = 40 << 20
"""Bytes a second: the server's default for `indices.recovery.max_bytes_per_sec`."""
_COPIED: Final = 0.02
"""The likely part of its data that a node copies."""


def usual_restart(seen: Observation, policy: Policy) -> Usual:
    """The time of each node from its stop until its copies are back, without a past run to go by."""
    stored = stored_by_node(seen)
    if not stored:
        return PUBLISHED
    rate = _rate(seen, policy)
    published = PUBLISHED.node
    nodes = {
        name: Prediction(
            low=published.low,
            likely=published.likely + _COPIED * held / rate,
            high=published.high + held / rate,
        )
        for name, held in stored.items()
    }
    most = max(stored.values())
    if most < rate:  # a second at worst
        return Usual(node=published, nodes=nodes, rests_on=PUBLISHED.rests_on)
    return Usual(
        node=published,
        nodes=nodes,
        rests_on=f"{PUBLISHED.rests_on}; and the time to copy {100 * _COPIED:.0f} % of a node's data, at "
        f"worst all of it: nodes have up to {size(most)}, copied at {size(rate)} a second",
    )


def _rate(seen: Observation, policy: Policy) -> int:
    """Bytes that a node may copy in a second while a wave recovers."""
    found = None if isinstance(seen.settings, Unknown) else bytes_of(seen.settings.effective(BANDWIDTH))
    return max(policy.recovery_limits.max_bytes_per_sec or 0, found or 0) or _RATE
