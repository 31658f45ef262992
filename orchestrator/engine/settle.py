"""After a wave is back: allocation as it was found, recovery, and at the end everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.engine import overlap
from orchestrator.engine.decision import Decision
from orchestrator.engine.recovered import at_once, depooled, hooks_owed, with_their_copies
from orchestrator.engine.state import IN_HAND, NodeProgress, RunState
from orchestrator.engine.steps import (
    LOOK_AGAIN,
    QUICK_SECONDS,
    RETRY_SECONDS,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
from orchestrator.errors import ExitCode
from orchestrator.model.action import (
    ClearVotingExclusions,
    ProbeSettings,
    Purpose,
    RetryFailed,
    RunHook,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import CopyState, ShardCopy
from orchestrator.model.event import (
    Event,
    GoodReading,
    ReplicasRestored,
    RunFinished,
    SettingChanged,
    SettingRestored,
    VotingRestored,
    WaveFinished,
    run_phase,
)
from orchestrator.model.observation import SettingsView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Unknown
from orchestrator.model.watch import CopiesActive

ALLOCATION_ATTEMPTS: Final = 5
"""`index.allocation.max_retries`: after so many failures in a row the cluster leaves a copy unassigned."""

_RETRIES: Final = 3
_RETRY_FAILED_SECONDS: Final = 30.0
"""A copy that fails again needs a person, not a loop: few tries, far apart."""


def owed(state: RunState, purpose: Purpose) -> tuple[SettingChange, ...]:
    """Debts by purpose, in an order of their own: what withholds allocation goes first and apart."""
    withholding = purpose is Purpose.REASSIGN
    keys = [key for key in state.debts if (key in state.withheld) is withholding]
    return tuple(state.debts[key] for key in sorted(keys, key=lambda key: (key[0].value, key[1])))


def put_back(situation: Situation, purpose: Purpose) -> Decision | None:
    """Write what was found, read it back, and only then count it as restored; None when nothing is owed.

    It is written even when the reading shows the found value already: an update in doubt may still wait in
    the master's queue, and one that is confirmed after it proves that it does not. A value that is neither
    ours nor the found one was set by somebody else meanwhile: theirs is left, and said so, once an update of
    nothing has proved that none of ours comes after it.
    """
    state, settings, now = situation.state, situation.seen.settings, situation.now
    debts = owed(state, purpose)
    if not debts:
        return None
    if not situation.fresh:
        return LOOK_AGAIN
    if isinstance(settings, Unknown):
        return wait(now, f"settings to be readable: {settings.reason}")
    away = [debt for debt in debts if _gone_with_its_node(situation, debt) or _goes(situation, debt)]
    gone = [debt for debt in away if not _on_its_way(situation, debt)]
    if gone:
        note_ = "its node is down: gone with the process, which comes up with what its files say"
        return note(*(SettingRestored(level=d.level, key=d.key, value=None, note=note_) for d in gone))
    if away:
        debts = tuple(debt for debt in debts if debt not in away)
        if not debts:
            return wait(now, f"its node to be back, so that {away[0].key} can be put back", seconds=1.0)
    foreign = [
        debt
        for debt in debts
        if settings.at(debt.level, debt.key) not in (debt.found, debt.wanted)
        and not _says_nothing(situation, settings, debt)
    ]
    if foreign and not _queue_is_done(state):
        soon = state.failure_of(ProbeSettings()) and now - state.acted_at < RETRY_SECONDS
        return wait(now, "an update that the cluster acknowledges") if soon else act(ProbeSettings())
    if foreign:
        note_ = "changed by somebody else meanwhile: left as it is now"
        return note(
            *(
                SettingRestored(level=d.level, key=d.key, value=settings.at(d.level, d.key), note=note_)
                for d in foreign
            )
        )
    write = WriteSettings(changes=tuple(debt.undone() for debt in debts), purpose=purpose)
    confirmed = [action for action in state.confirmed if isinstance(action, WriteSettings)]
    written = {change for action in confirmed if action.purpose is purpose for change in action.changes}
    back = [
        debt for debt in debts if debt.undone() in written and settings.at(debt.level, debt.key) == debt.found
    ]
    if back:
        return note(*(SettingRestored(level=debt.level, key=debt.key, value=debt.found) for debt in back))
    failure = state.failure_of(write)
    if failure and now - state.acted_at < RETRY_SECONDS:
        return wait(now, f"settings to be put back: {failure.reason}", seconds=RETRY_SECONDS)
    if write in state.confirmed and now - state.acted_at < RETRY_SECONDS:
        return wait(now, "a reading that shows the settings put back", seconds=QUICK_SECONDS)
    return act(write)


def _says_nothing(situation: Situation, settings: SettingsView, debt: SettingChange) -> bool:
    """Whether a value tells of nobody's hand: its node did not tell it, or forgot it when we restarted it."""
    holder = situation.kind.holder(debt.key)
    if holder is None:
        return False
    return settings.at(debt.level, debt.key) is None or holder in situation.state.forgetful


def _on_its_way(situation: Situation, debt: SettingChange) -> bool:
    """Whether the node that has this setting in its memory is away by us, and to come back."""
    holder = situation.kind.holder(debt.key)
    node = situation.state.nodes.get(holder) if holder else None
    return node is not None and node.phase in IN_HAND - {NodePhase.FAILED}


def _goes(situation: Situation, debt: SettingChange) -> bool:
    """Whether its node is still up in the life that our stop ends: what is written now is forgotten again."""
    holder = situation.kind.holder(debt.key)
    node = situation.state.nodes.get(holder) if holder else None
    return node is not None and _on_its_way(situation, debt) and situation.same_life(node)


def _gone_with_its_node(situation: Situation, debt: SettingChange) -> bool:
    """Whether a setting stands in the memory of a node that is no member now."""
    holder = situation.kind.holder(debt.key)
    return holder is not None and situation.view is not None and situation.member(holder) is None


def _raise_again(situation: Situation) -> Decision | None:
    """Once a wave, raise the limits that its nodes have forgotten: what they missed comes back by them."""
    state, settings = situation.state, situation.seen.settings
    asked = (*state.confirmed, *(failed.action for failed in state.failed))
    if isinstance(settings, Unknown) or any(isinstance(action, WriteSettings) for action in asked):
        return None
    wave = {node.name for node in state.wave_nodes}
    changes = tuple(
        change
        for change in situation.kind.raise_limits(state, settings, situation.policy)
        if situation.kind.holder(change.key) in wave
    )
    if not changes:
        return None
    purpose = Purpose.RAISE_LIMITS
    raised = [
        SettingChanged(level=c.level, key=c.key, found=c.found, wanted=c.wanted, purpose=purpose)
        for c in changes
    ]
    return act(WriteSettings(changes=changes, purpose=purpose), events=raised)


def _queue_is_done(state: RunState) -> bool:
    """Whether an update of ours was answered in this phase: the master works them off one after the other."""
    answered = [*state.confirmed, *(failed.action for failed in state.failed if not failed.in_doubt)]
    return any(isinstance(action, WriteSettings | ProbeSettings) for action in answered)


def reassigned(situation: Situation) -> Decision:
    """Allocation goes back; then wait until nothing is missing that was not missing before the run."""
    state, policy, now = situation.state, situation.policy, situation.now
    late = now - state.recovery_since > policy.deadlines.recover
    putting_back = put_back(situation, Purpose.REASSIGN)
    if putting_back is not None:
        if now - state.phase_since > policy.deadlines.rejoin and not putting_back.at_once:
            return stand_down(state, "allocation could not be put back yet", Outcome.FAILED)
        return putting_back
    touched = [node for node in state.wave_nodes if node.phase is not NodePhase.PENDING]
    if not touched:
        return note(run_phase(state.phase, Phase.GATED))
    if not situation.fresh:
        return LOOK_AGAIN
    raising = _raise_again(situation)
    if raising is not None:
        return raising
    view, health = situation.view, situation.seen.health
    unsettled = situation.kind.unsettled(view) if view is not None else None
    if view is None or isinstance(health, Unknown) or not health.settled:
        missing: tuple[ShardCopy, ...] | None = None
    else:
        missing = situation.kind.missing(state, view)
    finishing = overlap.finish_recovered(situation, missing) if missing is not None else None
    if finishing is not None:
        return finishing
    onwards = () if unsettled else _onwards(situation, missing)
    if onwards:
        count = state.good_readings + 1
        if count >= policy.settle_consecutive:
            return note(*onwards)
        progress = (GoodReading(count=count),)
        return wait(now, "readings that agree", seconds=QUICK_SECONDS, events=progress)
    failed = given_up_nodes(situation) if missing or unsettled else None
    if failed is not None:
        return failed
    if late:
        names = ", ".join(sorted({str(copy.shard) for copy in missing or ()})[:5])
        what = names or unsettled or "the cluster cannot be read"
        reason = f"not recovered within {policy.deadlines.recover:.0f} s: {what}"
        return stand_down(state, reason, Outcome.HELD)
    return _recovering(situation, missing, unsettled)


def _onwards(situation: Situation, missing: tuple[ShardCopy, ...] | None) -> tuple[Event, ...]:
    """Out of this phase: all is back, or with overlap as much as has to be; none while it is not."""
    phase = situation.state.phase
    if missing is None:
        return ()
    if not missing:
        return (run_phase(phase, Phase.SETTLED),)
    if overlap.is_back_alone(situation, missing):
        return (run_phase(phase, Phase.SETTLED, why="its copies are back; those of waves before it are not"),)
    return overlap.makes_room(situation, missing)


def _recovering(
    situation: Situation, missing: tuple[ShardCopy, ...] | None, unsettled: str | None
) -> Decision:
    state, now, view = situation.state, situation.now, situation.view
    broken = (GoodReading(count=0, why=unsettled or "copies are missing"),) if state.good_readings else ()
    if missing is None or view is None:
        return wait(now, "a reading of the cluster", seconds=1.0, events=broken)
    if unsettled:
        return wait(now, unsettled, events=broken)
    retrying = retry_given_up(situation, missing)
    if retrying is not None:
        return replace(retrying, events=(*broken, *retrying.events))
    given_up = [copy for copy in missing if _given_up(copy)]
    active = sum(copy.started for copy in view.copies)
    what = f"{len(missing)} shard copies to recover"
    if given_up:
        first = given_up[0]
        what += f"; {first.shard} failed {first.failed_attempts} times (ask _cluster/allocation/explain)"
    return wait(now, what, cluster=CopiesActive(count=active + len(missing)), events=broken)


def given_up_nodes(situation: Situation) -> Decision | None:
    """Give up at once on a wait that no time ends: a node that failed is away, and nobody starts it."""
    if situation.view is None:
        return None
    failed = [node for node in situation.state.nodes.values() if node.phase is NodePhase.FAILED]
    return failed_before(situation, [node for node in failed if situation.member(node.name) is None])


def failed_before(situation: Situation, failed: list[NodeProgress]) -> Decision | None:
    """Stand down with what became of these nodes and what to do; None when there are none."""
    if not failed:
        return None
    reason = f"{failed[0].name} failed: {failed[0].failure}; repair it, then resume with --retry-failed"
    return stand_down(situation.state, reason, Outcome.FAILED)


def retry_given_up(situation: Situation, missing: tuple[ShardCopy, ...]) -> Decision | None:
    """Try copies again that the cluster has given up on, a few times a wave and far apart; None = not now."""
    state = situation.state
    wanted = any(_given_up(copy) for copy in missing)
    if wanted and state.retries < _RETRIES and situation.now - state.retried_at > _RETRY_FAILED_SECONDS:
        return act(RetryFailed())
    return None


def _given_up(copy: ShardCopy) -> bool:
    return copy.state is CopyState.UNASSIGNED and copy.failed_attempts >= ALLOCATION_ATTEMPTS


def settled(situation: Situation) -> Decision:
    """The wave is back: its hooks, its figures, and on to the next or to the end."""
    state, now = situation.state, situation.now
    nodes = [node for node in state.wave_nodes if node.phase is NodePhase.REJOINED]
    hooks = at_once(hooks_owed(situation, nodes))
    if hooks:
        return act(*hooks)
    events: list[Event] = [*with_their_copies(situation, nodes)]
    if state.wave:
        seconds = now - (state.wave_since if state.wave_since is not None else now)
        events.append(WaveFinished(number=state.wave.number, seconds=seconds))
    hook_failure = next((f for f in state.failed if isinstance(f.action, RunHook)), None)
    if hook_failure:
        return stand_down(state, f"hook after_recovery: {hook_failure.reason}", Outcome.FAILED, *events)
    return note(*events, run_phase(state.phase, Phase.GATED))


def restore_all(situation: Situation) -> Decision | None:
    """Settings, exclusions and replicas as they were found; None when nothing is owed any more."""
    for purpose in (Purpose.REASSIGN, Purpose.PUT_BACK):
        putting_back = put_back(situation, purpose)
        if putting_back is not None:
            return putting_back
    return restore_voting(situation) or _restore_replicas(situation)


def restore_voting(situation: Situation) -> Decision | None:
    """Clear the exclusions of ours, and see them gone; None when none is owed."""
    state, view, now = situation.state, situation.view, situation.now
    if not state.excluded:
        return None
    action = ClearVotingExclusions()
    soon = now - state.acted_at < RETRY_SECONDS
    if action in state.confirmed:
        if situation.fresh and view is not None and not state.excluded & set(view.voting_exclusions):
            return note(VotingRestored())
        if soon:
            return wait(now, "a reading without our voting exclusions", seconds=QUICK_SECONDS)
    elif state.failure_of(action) and soon:
        return wait(now, "voting exclusions to be cleared", seconds=RETRY_SECONDS)
    return act(action)


def _restore_replicas(situation: Situation) -> Decision | None:
    """An added replica goes away only while every primary of its index is started: it may be the good copy.

    It may never have been copied itself, on an index too large for the time that a run holds.

    As with settings, what was found is written even where the reading shows it: the update that added the
    replica may be in doubt and still on its way. A number that is neither ours nor the found one was set by
    somebody else meanwhile: theirs is left.
    """
    state, view, now = situation.state, situation.view, situation.now
    for uuid, added in sorted(state.replicas.items()):
        action = SetReplicas(index=added.index, index_uuid=uuid, found=added.wanted, wanted=added.found)
        if view is None or not situation.fresh:
            return wait(now, "a reading of the cluster", seconds=1.0)
        index = next((index for index in view.indices if index.uuid == uuid), None)
        if index is None or index.replicas not in (added.found, added.wanted):
            return note(ReplicasRestored(index_uuid=uuid))
        if index.replicas == added.found and action in state.confirmed:
            return note(ReplicasRestored(index_uuid=uuid))
        primaries = [c for c in view.copies if c.shard.index_uuid == uuid and c.primary]
        if index.replicas == added.wanted and not all(copy.started for copy in primaries):
            return wait(now, f"every primary of {added.index}, before its added replica goes away")
        tried = state.failure_of(action) or action in state.confirmed
        if tried and now - state.acted_at < RETRY_SECONDS:
            return wait(now, f"the replica of {added.index} to be taken away", seconds=RETRY_SECONDS)
        return act(action)
    return None


def finishing(situation: Situation) -> Decision:
    """Every node is restarted: put everything back and end."""
    state, now = situation.state, situation.now
    restoring = restore_all(situation)
    if restoring is not None:
        # What a reading shows to be back is back, however late it came.
        if now - state.phase_since > situation.policy.deadlines.rejoin and not restoring.at_once:
            return stand_down(state, "settings could not be put back yet", Outcome.FAILED)
        return restoring
    hooks = at_once(hooks_owed(situation, [n for n in state.nodes.values() if depooled(n)]))
    if hooks:
        return act(*hooks)
    hook_failure = next((f for f in state.failed if isinstance(f.action, RunHook)), None)
    if hook_failure:
        return stand_down(state, f"hook after_recovery: {hook_failure.reason}", Outcome.FAILED)
    skipped = [node.name for node in state.nodes.values() if node.phase is NodePhase.SKIPPED]
    message = f"skipped: {', '.join(skipped)}" if skipped else ""
    return note(
        run_phase(state.phase, Phase.ENDED),
        RunFinished(
            outcome=Outcome.DONE, exit_code=int(ExitCode.DONE), seconds=now - state.started, message=message
        ),
    )
