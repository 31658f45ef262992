"""What the wave took down, and whether it is back; and recoveries that overlap the next wave.

The run waits only for what it caused. The last reading before the stop records the copies on the wave
(`TakenDown`). The wave has recovered when each of those shards has its copies again. Copies that are
unassigned for another reason are reported (`NotWaitedFor`).

Overlapped recovery (`overlap_recovery`): the next wave begins while earlier waves still recover. A wave
may stop once no copy that the run took down is unassigned, and for every shard with a copy on it all its
other copies are STARTED: a recovery that loses its source is not assigned again while allocation is
disabled. The condition itself is in the predicates `no_worse_than_baseline` and `no_recovery_on_candidates`.
This module decides when the next wave may begin, when the run waits for a wave again, and when it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.admit import HOLD_POLL_SECONDS, next_wave_of, question_of, refusals
from orchestrator.engine.grid import Move
from orchestrator.engine.node import RETURNS, debt_in_words, is_next
from orchestrator.engine.predicates import hold_in_brief
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import (
    RETRY_SECONDS,
    Decision,
    Retry,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
from orchestrator.engine.state import RunState
from orchestrator.formats import duration, listed
from orchestrator.model.action import Moment, RetryFailed, RunHook
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId
from orchestrator.model.event import (
    Event,
    Hold,
    NodeRecovered,
    NotWaitedFor,
    Overlapping,
    OwedAgain,
    RedExcused,
    ShardUnderWay,
    WaveFinished,
    WaveGaveWay,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request, in_order
from orchestrator.model.policy import Wave
from orchestrator.model.reading import NOT_READ, Seconds, Unknown
from orchestrator.model.remembered import for_the_same_objects

ALLOCATION_ATTEMPTS: Final = 5
"""`index.allocation.max_retries`: after so many failures in a row the cluster leaves a copy unassigned."""

_RETRIES: Final = 3
_RETRY_FAILED_SECONDS: Final[Seconds] = 30.0
"""A copy that fails again needs a person, not a loop: few tries, far apart."""

_WATCHED_FOR_RED: Final = (Phase.DOWN, Phase.REJOINED, Phase.REASSIGNED)


# Red shards ------------------------------------


def red(situation: Situation) -> tuple[str, ...]:
    """Shards that are red because of the run, without those that are excused for a moment."""
    found, passing = _red(situation)
    if situation.over(limits.EXCUSED) is not None:
        found = (*found, *passing)
    return tuple(str(shard) for shard in found)


def red_news(situation: Situation) -> tuple[Event, ...]:
    """The event that red shards are excused for a moment, or that none is any more."""
    if situation.view is None or situation.state.phase not in _WATCHED_FOR_RED:
        return ()
    _, passing = _red(situation)
    if bool(passing) is (situation.state.process.excused_since is not None):
        return ()
    subjects = tuple(str(shard) for shard in passing[:5])
    return (RedExcused(count=len(passing), subjects=subjects),)


def _red(situation: Situation) -> tuple[tuple[ShardId, ...], tuple[ShardId, ...]]:
    """Shards that are red because of the run: those that count at once, and those excused for a moment.

    With the wave back and allocation enabled all of them are excused: a primary starts from its own disk, and
    another node that leaves for a moment brings its copies back.
    """
    if situation.view is None:
        return (), ()
    found, excused = situation.kind.red(situation.state, situation.view)
    return ((), (*found, *excused)) if situation.state.phase is Phase.REASSIGNED else (found, excused)


# Back with their copies ------------------------------------


def hooks_after(situation: Situation, nodes: Iterable[NodeProgress]) -> Decision | None:
    """The next `after_recovery` hooks of these nodes, hosts in parallel; hooks of this machine one by one.

    None when none is due. A hook whose host was not reached is sent again before the next ones.
    """
    state = situation.state
    due: dict[NodeName, RunHook] = {}
    awaited: list[str] = []
    for node in nodes:
        for number in node.undo:
            hook = situation.policy.hooks.after_recovery[number]
            action = RunHook(node=node.name, moment=Moment.AFTER_RECOVERY, number=number, hook=hook)
            failure, retry = state.failure_of(action), situation.retry(action)
            if retry is Retry.NOW:
                due[node.name] = action
            elif retry is Retry.LATER and failure is not None:
                awaited.append(f"hook after_recovery on {node.name}: {failure.reason}")
            if retry is not Retry.NEVER:
                break
    if due:
        return act(*hooks_at_once(due.values()))
    return wait(situation.now, awaited[0], seconds=RETRY_SECONDS) if awaited else None


def hooks_at_once(due: Iterable[RunHook]) -> tuple[RunHook, ...]:
    """The next hook of each node, hosts in parallel; hooks that run on this machine go one by one."""
    first: dict[NodeName, RunHook] = {}
    for hook in due:
        first.setdefault(hook.node, hook)
    on_hosts = tuple(hook for hook in first.values() if not hook.hook.local)
    return on_hosts or tuple(first.values())[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedHook:
    """An `after_recovery` hook that failed for good."""

    node: NodeName
    reason: str

    @property
    def sentence(self) -> str:
        """What failed where, and why."""
        return f"hook after_recovery on {self.node}: {self.reason}"


def failed_hook(situation: Situation, nodes: Iterable[NodeProgress] | None = None) -> FailedHook | None:
    """The `after_recovery` hook that failed for good since the phase was entered; None when none did."""
    state = situation.state
    names = None if nodes is None else {node.name for node in nodes}
    for failed in state.in_phase.failed:
        hook = failed.action
        if not isinstance(hook, RunHook) or hook.moment is not Moment.AFTER_RECOVERY:
            continue
        if (names is None or hook.node in names) and situation.retry(hook) is Retry.NEVER:
            return FailedHook(node=hook.node, reason=failed.reason)
    return None


def stand_down_for(situation: Situation, failed: FailedHook, *events: Event) -> Decision:
    """Stand down because this hook failed for good."""
    return stand_down(situation.state, failed.sentence, Outcome.FAILED, *events, hook_on=failed.node)


def finish_with_hooks(
    situation: Situation, back: list[NodeProgress], *then: Event, onwards: tuple[Event, ...] = ()
) -> Decision:
    """The hooks of nodes that are back, their last step, these events, and `onwards` if the run continues."""
    hooks = hooks_after(situation, back)
    if hooks is not None:
        return hooks
    events = (*finish(situation, back), *then)
    failed = failed_hook(situation, back)
    if failed is not None:
        return stand_down_for(situation, failed, *events)
    restless = _restless(situation.after(*events).state)
    if restless is not None:
        return stand_down(situation.state, restless, Outcome.FAILED, *events)
    return note(*events, *onwards)


def await_seen_again(situation: Situation, names: Iterable[NodeName]) -> Decision:
    """Wait until a reading shows these nodes: nothing else can say that nothing is left to do for them."""
    away, late = tuple(names), situation.over(limits.SEEN_AGAIN)
    if late is not None:
        reason = f"{', '.join(away)}: not seen in the cluster for {duration(late)}"
        return stand_down(situation.state, reason, limits.SEEN_AGAIN.ends)
    return wait(situation.now, f"{listed(away)} to be back", seconds=1.0)


def finish(situation: Situation, nodes: Iterable[NodeProgress]) -> tuple[Event, ...]:
    """The last step of nodes that are back: RECOVERED, or PENDING if they still have owed work."""
    events: list[Event] = []
    for node in nodes:
        if not node.owed:
            if node.stopped_at is not None:
                events.append(_figures(situation, node))
            events.append(node_phase(node.name, node.phase, NodePhase.RECOVERED))
        elif node.work:
            what = in_order(node.work)
            why, work = "it came up before this was done", f"still needs {', '.join(what)}"
            events.append(OwedAgain(node=node.name, what=what, why=why))
            events.append(node_phase(node.name, node.phase, NodePhase.PENDING, why=work))
    return tuple(events)


def _restless(state: RunState) -> str | None:
    """The node that keeps coming back with owed work, past the limit; None when none does."""
    found = next((node for node in state.nodes_in(NodePhase.PENDING) if node.returns > RETURNS), None)
    if found is None:
        return None
    return f"{debt_in_words(found)}, and came back without it {found.returns} times"


def _figures(situation: Situation, node: NodeProgress) -> NodeRecovered:
    read = situation.seen.finished
    seconds = situation.now - (node.stopped_at if node.stopped_at is not None else node.since)
    if isinstance(read, Unknown):
        return NodeRecovered(node=node.name, seconds=seconds)
    here = _by_target(read).get(node.name, ())
    return NodeRecovered(
        node=node.name,
        seconds=seconds,
        bytes_reused=sum(recovery.bytes_reused for recovery in here),
        bytes_copied=sum(recovery.bytes_copied for recovery in here),
        operations_replayed=sum(recovery.operations_replayed for recovery in here),
    )


@for_the_same_objects
def _by_target(recoveries: tuple[Recovery, ...]) -> Mapping[NodeName, Sequence[Recovery]]:
    """Asked for each node of a wave, which may be a third of the cluster."""
    found: dict[NodeName, list[Recovery]] = {}
    for recovery in recoveries:
        found.setdefault(recovery.target, []).append(recovery)
    return found


def foreseen(situation: Situation, wave: Wave) -> tuple[Event, ...]:
    """The event that names the copies of a wave that will not return; none without such copies."""
    found = situation.kind.foreseen(question_of(situation, wave))
    return () if found is None else (found,)


def without_a_place(situation: Situation) -> tuple[Event, ...]:
    """The event that names the copies that the run does not wait for; none without such copies."""
    view = situation.view
    unplaced = situation.kind.unplaced(situation.state, view) if view is not None else ()
    why = "no node can hold these copies now; those that a wave took down are waited for once one can"
    return (NotWaitedFor(shards=unplaced, why=why),) if unplaced else ()


# Copies that the cluster no longer tries to allocate ------------------------------------


def retry_given_up(situation: Situation, missing: tuple[ShardCopy, ...]) -> Decision | None:
    """Retry copies that the cluster no longer allocates, a few times a wave and far apart; None = not now."""
    process = situation.state.process
    rested = situation.now - process.retried_at > _RETRY_FAILED_SECONDS
    if rested and process.retries < _RETRIES and any(given_up(copy) for copy in missing):
        return act(RetryFailed())
    return None


def retry_unplaced(situation: Situation, onwards: Iterable[Event]) -> Decision | None:
    """The same for copies that the run does not wait for: a failure other than the wave took them down."""
    news = (event for event in onwards if isinstance(event, NotWaitedFor))
    shards = {(missing.index_uuid, missing.number) for event in news for missing in event.shards}
    away = situation.view.not_started if situation.view is not None else ()
    copies = (copy for copy in away if (copy.shard.index_uuid, copy.shard.number) in shards)
    return retry_given_up(situation, tuple(copies))


def given_up(copy: ShardCopy) -> bool:
    """Whether the cluster has stopped trying to place a copy."""
    return copy.state is CopyState.UNASSIGNED and copy.failed_attempts >= ALLOCATION_ATTEMPTS


# Overlap ------------------------------------


def makes_room(situation: Situation, missing: tuple[ShardCopy, ...]) -> tuple[Event, ...]:
    """The steps by which the current wave makes room for the next; none while a predicate is against it."""
    state, wave = situation.state, situation.state.wave
    back = all(node.phase in (NodePhase.REJOINED, NodePhase.PENDING) for node in state.wave_nodes)
    if not situation.policy.overlap_recovery or wave is None or not back:
        return ()
    if _pausing(state) or state.process.absent:
        return ()
    here = state.in_phase
    if here.before is Phase.GATED and situation.now - here.since < HOLD_POLL_SECONDS:
        return ()  # holds on the next wave there do not count here: else the run could go back and forth
    after = replace(situation, state=state.with_room())
    every = situation.kind.predicates
    following = next_wave_of(after, unread=frozenset(rule.name for rule in every if rule.unread_in_recovery))
    asked = (rule for rule in every if not rule.unread_in_recovery)
    rules = tuple(rule for rule in asked if rule.about_wave or rule.by_recovery)
    if following is None or refusals(after, rules, following):
        return ()
    why = f"no part in what still recovers: {', '.join(following.nodes)}"
    return (
        WaveGaveWay(number=wave.number, copies=len(missing)),
        run_phase(state.phase, Phase.GATED, why=why),
    )


def is_back_alone(situation: Situation, missing: tuple[ShardCopy, ...]) -> bool:
    """Whether the current wave has its copies while an earlier wave does not: each is done on its own."""
    state = situation.state
    names = frozenset(node.name for node in state.wave_nodes)
    return bool(state.recovering) and not _unassigned(missing) and not _arriving(missing) & names


def finish_recovered(situation: Situation, missing: tuple[ShardCopy, ...]) -> Decision | None:
    """Finish one wave that made room and has its copies; None when there is none.

    Nothing shows to which node an unassigned copy belongs, so none is finished while there is one. The last
    one also waits for copies that are rebuilt on other nodes: after it the run forgets what it took down.
    """
    state = situation.state
    if _unassigned(missing):
        return None
    arriving = _arriving(missing)
    last = len(state.recovering) == 1 and (state.wave is None or state.phase is Phase.GATED)
    if last and arriving:
        return None
    for one in state.recovering:
        nodes = [state.nodes[name] for name in one.wave.nodes]
        back = [node for node in nodes if node.phase is NodePhase.REJOINED]
        present = all(is_next(Move.FINISH, situation, node) for node in back)
        if present and not any(node.name in arriving for node in back):
            if situation.seen.finished is NOT_READ:
                return Decision(finished=True, hosts=frozenset(situation.seen.hosts))
            finished = WaveFinished(number=one.wave.number, seconds=situation.now - one.since)
            return finish_with_hooks(situation, back, *without_a_place(situation), finished)
    return None


def fewest_awaited(state: RunState, missing: tuple[ShardCopy, ...]) -> int:
    """How many copies have to start before any wave can be done: those on their way to its nodes."""
    if not state.recovering:
        return len(missing)
    arriving = (sum(copy.node in one.wave.nodes for copy in missing) for one in state.waves)
    return min((count for count in arriving if count), default=len(missing))


def before_the_next(situation: Situation) -> Decision | None:
    """Before the next wave is chosen: finish waves that are done, and wait for the others if need be."""
    state, view = situation.state, situation.view
    if not state.recovering:
        return None
    if view is not None and situation.settled:
        finishing = finish_recovered(situation, situation.kind.missing(state, view, situation.seen.settings))
        if finishing is not None:
            return finishing
    if _pausing(state):
        return _wait_again(state, "a pause was requested: no further wave starts beside this one")
    if not state.nodes_in(NodePhase.PENDING):
        return _wait_again(state, "no node is left to restart")
    return None


def held_by_recovery(situation: Situation, refused: tuple[Hold, ...]) -> Decision | None:
    """Wait again for a wave that made room, if a recovery is in the way after all; None = none is."""
    passing = {rule.name for rule in situation.kind.predicates if rule.by_recovery}
    first = next((hold for hold in refused if hold.predicate in passing), None)
    if first is None or not situation.state.recovering:
        return None
    return _wait_again(situation.state, hold_in_brief(first))


def _wait_again(state: RunState, why: str) -> Decision:
    return note(run_phase(state.phase, Phase.REASSIGNED, why=why))


def _pausing(state: RunState) -> bool:
    """Whether the run is to pause before another wave; nodes that recover count."""
    if state.process.request is Request.PAUSE:
        return True
    most = state.begun.policy.pause_after
    had = len(state.nodes_in(NodePhase.RECOVERED, NodePhase.REJOINED))
    return most is not None and not state.paused and had >= most


def overlap_evidence(situation: Situation, wave: Wave) -> tuple[Event, ...]:
    """The recoveries at the last reading before a stop, for the journal and for the checks of a run."""
    state, view = situation.state, situation.view
    if not state.recovering or view is None:
        return ()
    missing = situation.kind.missing(state, view, situation.seen.settings)
    shards = sorted({copy.shard for copy in missing if copy.state is not CopyState.UNASSIGNED})
    under_way = tuple(
        ShardUnderWay(
            index=shard.index,
            number=shard.number,
            nodes=tuple(sorted({c.node for c in view.shards[shard] if c.node is not None})),
        )
        for shard in shards
    )
    return (Overlapping(number=wave.number, unassigned=len(_unassigned(missing)), shards=under_way),)


def _unassigned(missing: tuple[ShardCopy, ...]) -> tuple[ShardCopy, ...]:
    return tuple(copy for copy in missing if copy.state is CopyState.UNASSIGNED)


def _arriving(missing: tuple[ShardCopy, ...]) -> frozenset[NodeName]:
    return frozenset(copy.node for copy in missing if copy.node is not None)
