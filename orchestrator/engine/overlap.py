"""Overlapped recovery (`overlap_recovery: true`): the next wave goes while those before it still recover.

The rule: a wave may stop once, beyond the baseline, no copy is unassigned, and for every shard with a copy on
it all its other copies are STARTED. So no source of a running recovery is in the wave: with allocation
withheld, a recovery that loses its source is not assigned again until allocation is back. The rule itself
stands in the predicates `no_worse_than_baseline` and `no_recovery_on_candidates`; this module says when a
wave makes room for the next one, when it is waited for again, and when one that made room is done.

Recoveries are waited for in REASSIGNED alone, with their own limit. A wave makes room there only when the
rule would let the next one stop by that very reading, and on several readings in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from orchestrator.engine.decision import Decision
from orchestrator.engine.recovered import at_once, hooks_owed, with_their_copies
from orchestrator.engine.rules import next_wave_of, refusals
from orchestrator.engine.state import NodeProgress, RecoveringWave, RunState
from orchestrator.engine.steps import Situation, act, note, stand_down
from orchestrator.model.action import Moment, RunHook
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy
from orchestrator.model.event import Event, Hold, WaveFinished, run_phase
from orchestrator.model.overlap import Overlapping, ShardUnderWay, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.reading import Unknown

_BY_RECOVERY: Final = frozenset(
    {
        "cluster_not_red",
        "no_worse_than_baseline",
        "every_shard_keeps_started_copies",
        "no_recovery_on_candidates",
    }
)
"""Rules that a recovery under way may be the cause of: their refusal passes when it ends."""


def makes_room(situation: Situation, missing: tuple[ShardCopy, ...]) -> tuple[Event, ...]:
    """The steps by which the wave in hand makes room for the next; none while the rule is against it."""
    state, wave = situation.state, situation.state.wave
    back = all(node.phase in (NodePhase.REJOINED, NodePhase.PENDING) for node in state.wave_nodes)
    if not situation.policy.overlap_recovery or wave is None or not back or _pausing(state):
        return ()
    since = state.wave_since if state.wave_since is not None else state.phase_since
    beside = (*state.recovering, RecoveringWave(wave=wave, since=since))
    after = replace(situation, state=replace(state, wave=None, wave_since=None, recovering=beside))
    following = next_wave_of(after)
    rules = tuple(rule for rule in situation.kind.predicates if rule.of_the_set or rule.name in _BY_RECOVERY)
    if following is None or refusals(after, rules, following):
        return ()
    why = f"no part in what still recovers: {', '.join(following.nodes)}"
    return (
        WaveGaveWay(number=wave.number, copies=len(missing)),
        run_phase(state.phase, Phase.GATED, why=why),
    )


def is_back_alone(situation: Situation, missing: tuple[ShardCopy, ...]) -> bool:
    """Whether the wave in hand has its copies while a wave before it has not: each is done when it is."""
    state = situation.state
    names = frozenset(node.name for node in state.wave_nodes)
    return bool(state.recovering) and not _unassigned(missing) and not _arriving(missing) & names


def finish_recovered(situation: Situation, missing: tuple[ShardCopy, ...]) -> Decision | None:
    """Finish one wave that made room and has its copies by now; None when there is none.

    Nobody can tell to which node an unassigned copy belongs, so none is finished while there is one.
    """
    state = situation.state
    if _unassigned(missing):
        return None
    arriving = _arriving(missing)
    for one in state.recovering:
        nodes = [state.nodes[name] for name in one.wave.nodes]
        back = [node for node in nodes if node.phase is NodePhase.REJOINED]
        if not any(node.name in arriving for node in back):
            return _finish(situation, one, back)
    return None


def _finish(situation: Situation, one: RecoveringWave, back: list[NodeProgress]) -> Decision:
    hooks = at_once(hooks_owed(situation, back))
    if hooks:
        return act(*hooks)
    finished = WaveFinished(number=one.wave.number, seconds=situation.now - one.since)
    events = (*with_their_copies(situation, back), finished)
    failure = next(_hook_failures(situation.state, one), None)
    if failure is not None:
        reason = f"hook after_recovery: {failure}"
        return stand_down(situation.state, reason, Outcome.FAILED, *events)
    return note(*events)


def _hook_failures(state: RunState, one: RecoveringWave) -> Iterator[str]:
    for failed in state.failed:
        hook = failed.action
        if isinstance(hook, RunHook) and hook.moment is Moment.AFTER_RECOVERY and hook.node in one.wave.nodes:
            yield failed.reason


def at_the_gates(situation: Situation) -> Decision | None:
    """Before the next wave is chosen: waves that are done by now, and why to wait for the others first."""
    state, view, health = situation.state, situation.view, situation.seen.health
    if not state.recovering:
        return None
    if view is not None and not isinstance(health, Unknown) and health.settled:
        finishing = finish_recovered(situation, situation.kind.missing(state, view))
        if finishing is not None:
            return finishing
    if _pausing(state):
        return _wait_again(state, "a pause was asked for: no further wave beside this one")
    if all(node.phase is not NodePhase.PENDING for node in state.nodes.values()):
        return _wait_again(state, "no node is left to restart")
    return None


def held_by_recovery(situation: Situation, refused: tuple[Hold, ...]) -> Decision | None:
    """Back to waiting for a wave that made room, if a recovery is in the way after all; None = none is."""
    first = next((hold for hold in refused if hold.predicate in _BY_RECOVERY), None)
    if first is None or not situation.state.recovering:
        return None
    return _wait_again(situation.state, f"{first.predicate}: {first.subject}: {first.evidence}")


def _wait_again(state: RunState, why: str) -> Decision:
    return note(run_phase(state.phase, Phase.REASSIGNED, why=why))


def _pausing(state: RunState) -> bool:
    """Whether the run is to pause before another wave; nodes that recover count as had."""
    if state.request is Request.PAUSE:
        return True
    most = state.policy.pause_after if state.policy else None
    had = state.recovered + sum(node.phase is NodePhase.REJOINED for node in state.nodes.values())
    return most is not None and not state.paused and had >= most


def evidence(situation: Situation) -> tuple[Event, ...]:
    """What recovers at the last reading before a stop, for the journal and whoever judges the run by it."""
    state, view = situation.state, situation.view
    if not state.recovering or view is None or state.wave is None:
        return ()
    missing = situation.kind.missing(state, view)
    shards = sorted({copy.shard for copy in missing if copy.state is not CopyState.UNASSIGNED})
    under_way = tuple(
        ShardUnderWay(
            index=shard.index,
            number=shard.number,
            nodes=tuple(sorted({c.node for c in view.copies if c.shard == shard and c.node is not None})),
        )
        for shard in shards
    )
    unassigned = len(_unassigned(missing))
    return (Overlapping(number=state.wave.number, unassigned=unassigned, shards=under_way),)


def _unassigned(missing: tuple[ShardCopy, ...]) -> tuple[ShardCopy, ...]:
    return tuple(copy for copy in missing if copy.state is CopyState.UNASSIGNED)


def _arriving(missing: tuple[ShardCopy, ...]) -> frozenset[NodeName]:
    return frozenset(copy.node for copy in missing if copy.node is not None)
