"""After the merges: restore loader settings, wait until the copies have settled, refresh and flush.

At the end of the run segments are counted once more: a copy that came back has the segments it had before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from orchestrator.engine import limits, run
from orchestrator.engine.kinds.elasticsearch.recovery import missing_beyond_baseline
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    RETRY_SECONDS,
    Decision,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
from orchestrator.merging.belief import not_to_be_believed
from orchestrator.model.action import Action, Flush, RefreshIndex, SetIndexSettings, action_target
from orchestrator.model.event import RunFinished, run_phase
from orchestrator.model.merging import BulkIndex, BulkView, LoaderSettings
from orchestrator.model.observation import ClusterView, CopiesActive
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Unknown
from orchestrator.model.work_event import MergeWarned

REPLICAS, REFRESH, DURABILITY = (
    "index.number_of_replicas",
    "index.refresh_interval",
    "index.translog.durability",
)

_NAMED: Final = 3
"""Copies of an index that a warning names."""


def settling(situation: Situation) -> Decision:
    """Set the settings, wait for every copy, refresh, flush; then the first wave, or the end.

    Replicas come after the merge: a new copy then copies the merged segments once, and is identical.
    """
    state, view, bulk, now = situation.state, situation.view, situation.seen.bulk, situation.now
    if not situation.fresh:
        return LOOK_AGAIN
    over = limits.settling(state).is_over(now)
    doubtful = not_to_be_believed(situation)
    if isinstance(bulk, Unknown) or view is None or doubtful:
        why = f"{doubtful[0].subject}: {doubtful[0].evidence}" if doubtful else ""
        why = bulk.reason if isinstance(bulk, Unknown) else why
        if over:
            return stand_down(state, f"the merged indices could not be read: {why}", Outcome.FAILED)
        return wait(now, f"a reading of the merged indices: {why}")
    right = tuple(_put_right(situation, view, bulk))
    failed = next((failure for action in right if (failure := state.failure_of(action))), None)
    if failed is not None and (over or not failed.in_doubt):
        what = f"the settings of {action_target(failed.action)} could not be put right: {failed.reason}"
        return stand_down(state, what, Outcome.FAILED)
    if right and failed is not None and now - state.process.acted_at < RETRY_SECONDS:
        return wait(now, "settings of the loaded indices to be put right", seconds=RETRY_SECONDS)
    if right:
        return act(*right)
    missing = [c for c in missing_beyond_baseline(state, view) if c.shard.index_uuid in bulk.indices]
    if missing:
        what = f"{len(missing)} copies of the loaded indices to start, {missing[0].shard} first"
        if over:
            return stand_down(state, f"the copies did not settle: {what}", Outcome.FAILED)
        started = view.routing.active
        return wait(now, what, cluster=CopiesActive(count=started + len(missing)))
    tried = (*state.in_phase.confirmed, *(failure.action for failure in state.in_phase.failed))
    # A refresh or a flush that fails costs recovery time and nothing else: it is in the journal.
    refreshes = [RefreshIndex(index=index.name, index_uuid=index.uuid) for index in bulk.indices.values()]
    ends: tuple[Action, ...] = (*refreshes, Flush())
    todo = [action for action in ends if action not in tried]
    if todo:
        return act(*todo)
    pending = state.nodes_in(NodePhase.PENDING)
    return note(run_phase(state.phase, Phase.GATED if pending else Phase.FINISHING))


def finishing(situation: Situation) -> Decision:
    """The end of a run, as in the core; copies that have too many segments then are named before it."""
    decision, state, bulk = run.finishing(situation), situation.state, situation.seen.bulk
    ends = any(isinstance(event, RunFinished) for event in decision.events)
    if not ends or not state.merging.indices:
        return decision
    if isinstance(bulk, Unknown) and not limits.last_count(state).is_over(situation.now):
        return wait(situation.now, f"a last count of the segments: {bulk.reason}")
    return replace(decision, events=(*_unmerged(situation), *decision.events))


def _unmerged(situation: Situation) -> Iterator[MergeWarned]:
    """Indices with copies of too many segments; an index that is written has had its warning before."""
    bulk, policy, merges = situation.seen.bulk, situation.policy.merge, situation.state.merging.indices
    if isinstance(bulk, Unknown):
        first = next(iter(merges.values())).target
        others = f", nor those of {len(merges) - 1} others" if len(merges) > 1 else ""
        said = f"its segments could not be counted at the end of the run{others}: {bulk.reason}"
        yield MergeWarned(index=first.index, index_uuid=first.index_uuid, what=said)
        return
    for uuid, one in merges.items():
        index = bulk.indices.get(uuid)
        if index is None or policy is None or one.warned:
            continue
        many = [copy for copy in index.copies if copy.segments > policy.max_segments]
        if many:
            named = ", ".join(f"{copy.shard} on {copy.node}: {copy.segments}" for copy in many[:_NAMED])
            more = f" and {len(many) - _NAMED} more" if len(many) > _NAMED else ""
            said = (
                f"too many segments at the end of the run ({named}{more}): a copy that was away during the "
                "merge comes back with those that it had; run the same command again to merge them"
            )
            yield MergeWarned(index=index.name, index_uuid=uuid, what=said)


def _put_right(situation: Situation, view: ClusterView, bulk: BulkView) -> Iterator[SetIndexSettings]:
    """What is not yet as the playbook wants loaded indices to be."""
    policy = situation.policy.merge
    if policy is None:
        return
    for index in bulk.indices.values():
        meta = view.metadata.get(index.uuid)
        wanted = changes(index, policy.put_right, expands=meta is not None and meta.auto_expand is not None)
        if not wanted:
            continue
        action = SetIndexSettings(
            index=index.name,
            index_uuid=index.uuid,
            found={key: found_of(index)[key] for key in wanted},
            wanted=wanted,
        )
        # Accepted, but read in another form (`1000ms` for `1s`): it is not sent forever.
        if action not in situation.state.in_phase.confirmed:
            yield action


def found_of(index: BulkIndex) -> dict[str, str | None]:
    """The current values of the settings that bulk loaders change."""
    return {
        REPLICAS: str(index.replicas),
        REFRESH: index.refresh_interval,
        DURABILITY: index.translog_durability,
    }


def changes(index: BulkIndex, right: LoaderSettings, *, expands: bool) -> dict[str, str | None]:
    """The settings to change on an index; empty when all are right. None removes a setting.

    Only values that a loader seems to have left are changed: an index with two replicas, or with a refresh
    interval of its own, has them on purpose.

    Args:
        index: the index as read.
        right: the wanted settings.
        expands: `auto_expand_replicas` sets the number of its replicas, so that a value has no effect.
    """
    wanted: dict[str, str | None] = {}
    if right.number_of_replicas is not None and not expands:
        wanted[REPLICAS] = str(right.number_of_replicas)
    if right.refresh_interval is not None:
        wanted[REFRESH] = right.refresh_interval or None
    if right.translog_durability is not None:
        wanted[DURABILITY] = right.translog_durability
    left = dict(left_behind(index))
    return {key: value for key, value in wanted.items() if key in left and left[key] != value}


def left_behind(index: BulkIndex) -> tuple[tuple[str, str], ...]:
    """What a bulk loader seems to have left: settings with values that only suit a load."""
    found = []
    if index.replicas == 0:
        found.append((REPLICAS, "0"))
    if index.refresh_interval is not None and index.refresh_interval.startswith("-1"):
        found.append((REFRESH, index.refresh_interval))
    if index.translog_durability == "async":
        found.append((DURABILITY, "async"))
    return tuple(found)
