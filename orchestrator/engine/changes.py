"""What the run changed and has to restore: settings, voting exclusions, added replicas.

The run records each original value before it changes it. It always writes that value again, even if a reading
shows it already, and reads it to confirm the restore. Settings that disable allocation are restored first,
in a call of their own.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.progress import GOING_UP_OR_DOWN
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    QUICK_SECONDS,
    RETRY_SECONDS,
    Decision,
    Retry,
    Situation,
    act,
    note,
    wait,
)
from orchestrator.engine.state import RunState
from orchestrator.model.action import (
    NOT_ABSENT,
    Action,
    ClearVotingExclusions,
    ProbeSettings,
    Purpose,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.allocation import DISABLING
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionFailed,
    Event,
    ReplicasAdded,
    ReplicasRestored,
    RestoreBegun,
    RunStarted,
    SettingChanged,
    SettingRestored,
    VotingExcluded,
    VotingRestored,
    WaveStarted,
    node_phase,
    run_phase,
)
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import ServiceState, SettingsView, SettingValue
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Unknown


def disable_allocation(situation: Situation, *events: Event) -> Decision:
    """Disable allocation and raise the limits in one update: with two, for a moment only half would be set.

    The run goes to WITHHELD whether or not a value has to be changed: the last reading sees what is there.
    """
    state, settings = situation.state, situation.seen.settings
    if isinstance(settings, Unknown):
        return LOOK_AGAIN
    raised = situation.kind.raise_limits(settings, situation.policy, state)
    disabled = situation.kind.withhold(settings, situation.policy)
    recorded = [
        *(_changed(change, Purpose.RAISE_LIMITS) for change in raised),
        *(_changed(change, Purpose.WITHHOLD) for change in disabled),
    ]
    purpose = Purpose.WITHHOLD if disabled else Purpose.RAISE_LIMITS
    changes = (*disabled, *raised)
    write = (WriteSettings(changes=changes, purpose=purpose),) if changes else ()
    return act(*write, events=(*events, *recorded, run_phase(state.phase, Phase.WITHHELD)))


def _changed(change: SettingChange, purpose: Purpose) -> SettingChanged:
    return SettingChanged(
        level=change.level, key=change.key, found=change.found, wanted=change.wanted, purpose=purpose
    )


def never_written(situation: Situation, failure: ActionFailed) -> tuple[Event, ...]:
    """Settings that only a refused update would have changed: they need no restore.

    Allocation is restored after each wave, so no earlier update of it can be pending. Limits are raised once
    a run: an earlier update, or an earlier process, may have set them already. Riak sets them node by node,
    so a part may be done.
    """
    state = situation.state
    if not isinstance(failure.action, WriteSettings):
        return ()
    first = not (state.waves_begun or state.process.resumed)
    return tuple(
        _restored(one, one.found, "never written: it was refused")
        for one in failure.action.changes
        if (first or (one.level, one.key) in state.unrestored.withheld) and one.holder is None
    )


def unrestored(state: RunState, purpose: Purpose) -> tuple[SettingChange, ...]:
    """Changed settings by purpose, in a fixed order: those that disable allocation go first, and apart."""
    left, withholding = state.unrestored, purpose is Purpose.REASSIGN
    return tuple(debt for key, debt in left.in_order if (key in left.withheld) is withholding)


def restore_settings(situation: Situation, purpose: Purpose) -> Decision | None:
    """Write the original values, read them, and only then count them as restored; None = none is left.

    They are written even if the reading shows them already: an update in doubt may still wait in the
    master's queue, and a later update that is confirmed proves that it does not.
    """
    state, settings, now = situation.state, situation.seen.settings, situation.now
    debts = unrestored(state, purpose)
    if not debts:
        return None
    if not situation.fresh:
        return LOOK_AGAIN
    if isinstance(settings, Unknown):
        return wait(now, f"settings to be readable: {settings.reason}")
    confirmed = [action for action in state.in_phase.confirmed if isinstance(action, WriteSettings)]
    written = {change for action in confirmed if action.purpose is purpose for change in action.changes}
    steps = [_next_step(situation, settings, debt, written) for debt in debts]
    restored = [step for step in steps if isinstance(step, SettingRestored)]
    if restored:
        return note(*restored)
    probe = next((step for step in steps if isinstance(step, ProbeSettings)), None)
    if probe is not None:
        soon = situation.retry(probe) is not Retry.NOW
        return wait(now, "an update that the cluster acknowledges") if soon else act(probe)
    changes = tuple(step for step in steps if isinstance(step, SettingChange))
    if not changes:
        return wait(now, next(step for step in steps if isinstance(step, str)), seconds=1.0)
    write = WriteSettings(changes=changes, purpose=purpose)
    failure = state.failure_of(write)
    failing = f"settings to be restored: {failure.reason}" if failure else ""
    return _send(situation, write, failing, "a reading that shows the settings restored")


def _next_step(
    situation: Situation, settings: SettingsView, debt: SettingChange, written: Container[SettingChange]
) -> SettingRestored | SettingChange | ProbeSettings | str:
    """What follows for one changed setting: that it is restored, what to write, or what it waits for.

    A value that is neither ours nor the original was set by others meanwhile. It is left and reported, once
    an update that changes nothing has proved that no update of ours is still queued.

    Args:
        situation: with a fresh reading.
        settings: as read.
        debt: the change of the run.
        written: the changes that the cluster has confirmed since.
    """
    state, node = situation.state, situation.state.nodes.get(debt.holder) if debt.holder else None
    away = debt.holder is not None and situation.view is not None and situation.member(debt.holder) is None
    restarts = node is not None and node.phase in GOING_UP_OR_DOWN
    if away and not restarts and debt.holder is not None and _has_ended(situation, debt.holder):
        ended = "its node is down: the value ended with the process, which starts with the value of its files"
        return _restored(debt, None, ended)
    # A node that is still up in the life that our stop ends loses what is written now.
    if away or (node is not None and restarts and situation.same_process(node)):
        return f"its node to be back, so that {debt.key} can be restored"
    shown, undone = settings.at(debt.level, debt.key), debt.undone()
    # Before Elasticsearch 5 a setting cannot become absent again.
    original = replace(undone, wanted=settings.restored(debt.key, undone.wanted))
    # No sign of others: the node did not report the value, or our restart cleared it.
    silent = debt.holder is not None and (shown is None or debt.holder in state.forgetful)
    if shown not in (debt.found, debt.wanted, original.wanted) and not silent:
        outside = "changed outside this run: the new value stays"
        return _restored(debt, shown, outside) if _queue_is_done(state) else ProbeSettings()
    if original.wanted is None and not settings.resets:  # nothing is written rather than a guess
        return f"the value of {debt.key} in elasticsearch.yml, which it is restored to"
    if original in written and shown == original.wanted:
        return _restored(debt, shown, "" if shown == debt.found else NOT_ABSENT)
    return original


_ENDED: Final = (ServiceState.STOPPED, ServiceState.FAILED, ServiceState.STARTING)
"""States of a service that has no process, or that begins a new one."""


def _has_ended(situation: Situation, name: NodeName) -> bool:
    """Whether the process of a node that is no member has ended: one that is out of reach keeps its values.

    Its host shows it. A host that was not read shows nothing: then the node has to be gone for a while. One
    that failed has been away for longer, by the limits of its restart, and the run ends with its name. A run
    without a baseline follows no members: the node was not seen since all others were back.
    """
    state, host = situation.state, situation.hosts.get(name)
    if name in state.nodes and state.nodes[name].phase is NodePhase.FAILED:
        return True
    if host is not None:
        return host.service in _ENDED
    if state.baseline is None:
        return situation.over(limits.UNFOLLOWED) is not None
    return situation.has_left(name)


def _restored(debt: SettingChange, value: SettingValue | None, why: str) -> SettingRestored:
    return SettingRestored(level=debt.level, key=debt.key, value=value, note=why)


def _queue_is_done(state: RunState) -> bool:
    """Whether an update of ours was answered in this phase: the master processes updates in order."""
    here = state.in_phase
    answered = [*here.confirmed, *(failed.action for failed in here.failed if not failed.in_doubt)]
    return any(isinstance(action, WriteSettings | ProbeSettings) for action in answered)


def _send(situation: Situation, action: Action, failing: str, unseen: str) -> Decision:
    """Send what restores; again after a pause, if it failed or no reading shows its effect."""
    state, now = situation.state, situation.now
    if action in state.in_phase.confirmed and not situation.rested():
        return wait(now, unseen, seconds=QUICK_SECONDS)
    if state.failure_of(action) and not situation.rested():
        return wait(now, failing, seconds=RETRY_SECONDS)
    return act(action)


def raise_again(situation: Situation) -> Decision | None:
    """Once a wave, raise the limits that its nodes lost in the restart: their recovery depends on them."""
    state, settings = situation.state, situation.seen.settings
    asked = (*state.in_phase.confirmed, *(failed.action for failed in state.in_phase.failed))
    if isinstance(settings, Unknown) or any(isinstance(action, WriteSettings) for action in asked):
        return None
    wave = {node.name for node in state.wave_nodes}
    changes = tuple(
        change
        for change in situation.kind.raise_limits(settings, situation.policy, state)
        if change.holder in wave
    )
    if not changes:
        return None
    purpose = Purpose.RAISE_LIMITS
    raised = [_changed(change, purpose) for change in changes]
    return act(WriteSettings(changes=changes, purpose=purpose), events=raised)


def restore_all(situation: Situation) -> Decision | None:
    """Restore settings, exclusions and replicas; None when everything is restored."""
    for purpose in (Purpose.REASSIGN, Purpose.RESTORE):
        restoring = restore_settings(situation, purpose)
        if restoring is not None:
            return restoring
    return restore_voting(situation) or _restore_replicas(situation)


def restore_voting(situation: Situation) -> Decision | None:
    """Clear our exclusions and confirm it by a reading; None when there are none."""
    state, view = situation.state, situation.view
    ours, action = state.unrestored.excluded, ClearVotingExclusions()
    if not ours:
        return None
    shown = situation.fresh and view is not None and not ours & set(view.voting_exclusions)
    if shown and action in state.in_phase.confirmed:
        return note(VotingRestored())
    return _send(
        situation, action, "voting exclusions to be cleared", "a reading without our voting exclusions"
    )


def _restore_replicas(situation: Situation) -> Decision | None:
    """An added replica is removed only while every primary of its index is started: it may be the good copy.

    On an index too large for the time that a run holds, it may never have been copied itself.

    As with settings, the original number is written even if the reading shows it, and one that is neither
    ours nor the original is left.
    """
    state, view, now = situation.state, situation.view, situation.now
    for uuid, added in sorted(state.unrestored.replicas.items()):
        action = SetReplicas(index=added.index, index_uuid=uuid, found=added.wanted, wanted=added.found)
        if view is None or not situation.fresh:
            return wait(now, "a reading of the cluster", seconds=1.0)
        shown = view.metadata[uuid].replicas if uuid in view.metadata else None
        removed = shown == added.found and action in state.in_phase.confirmed
        if removed or shown not in (added.found, added.wanted):
            return note(ReplicasRestored(index_uuid=uuid))
        primaries = [c for c in view.copies if c.shard.index_uuid == uuid and c.primary]
        if shown == added.wanted and not all(copy.started for copy in primaries):
            return wait(now, f"every primary of {added.index}, before its added replica goes away")
        removal = f"the replica of {added.index} to be removed"
        return _send(situation, action, removal, removal)
    return None


def from_record(record: LeaseRecord, started: RunStarted) -> tuple[Event, ...]:
    """The first events of a run that only restores the pending changes of a lease record.

    Args:
        record: the last lease record of the run that was taken over.
        started: how the new run begins. Its nodes become the record's nodes in progress and out of service.
            Its own policy has their `after_recovery` hooks; without hooks they stay out of service.
    """
    to_start = tuple(node.node for node in record.in_hand)
    addresses: dict[NodeName, str] = {
        **started.addresses,
        **{node.node: node.address for node in record.in_hand if node.address},
    }
    # The new run only restores: it starts nodes of the record, reboots none, and merges nothing.
    policy = replace(started.policy, reboot=False, merge=None)
    events: list[Event] = [
        replace(
            started,
            nodes=tuple(dict.fromkeys((*to_start, *record.out_of_service))),
            addresses=addresses,
            policy=policy,
            indices=(),
            repairs=record.debtor,
            out_of_service=record.out_of_service,
            hooks_of=record.hooks_of,
            restarted=record.restarted,
        )
    ]
    for debt in record.debts:
        purpose = Purpose.WITHHOLD if debt.key in DISABLING else Purpose.RAISE_LIMITS
        events.append(_changed(debt, purpose))
    events += [
        ReplicasAdded(index=r.index, index_uuid=r.index_uuid, found=r.found, wanted=r.wanted)
        for r in record.replicas
    ]
    events += [VotingExcluded(node=name) for name in record.excluded]
    if to_start:
        lives = {node.node: node.incarnation for node in record.in_hand}
        why = f"in progress in run {record.debtor}"
        events.append(WaveStarted(wave=Wave(number=1, nodes=to_start, why=why), incarnations=lives))
        events += [node_phase(name, NodePhase.PENDING, NodePhase.STOPPING, why=why) for name in to_start]
    events.append(
        RestoreBegun(
            operator=started.operator, host=started.host, takes_over=record.debtor, state=started.state
        )
    )
    return tuple(events)
