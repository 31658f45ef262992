"""evolve(state, record) -> state: the only way in which a run's state comes about, live or replayed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from orchestrator.engine.holding import told
from orchestrator.engine.hooks import hook_doubted, hook_ran
from orchestrator.engine.merge_state import evolve_merging, merging_of, with_index
from orchestrator.engine.phases import check_node_step, check_run_step
from orchestrator.engine.resumption import restoring, resumed
from orchestrator.engine.state import NodeProgress, RecoveringWave, RunState, with_node
from orchestrator.model import event as ev
from orchestrator.model.action import (
    Action,
    ForceMerge,
    ProbeSettings,
    Purpose,
    RebootHost,
    RefreshIndex,
    RetryFailed,
    RunHook,
    SettingChange,
    StartNode,
    StopNode,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.gate_event import GateClosed, GateOpened, GatesPassed
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeWarned, WritesRead
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.reading import Instant
from orchestrator.model.replacing import replace
from orchestrator.model.tuning_event import TuningApplied, TuningMissed


def replay(run: str, records: Iterable[ev.Record]) -> RunState:
    """Fold a journal into the state that it tells of.

    Raises:
        SafetyViolation: the journal holds an illegal step.
    """
    state = RunState(run=run)
    for record in records:
        state = evolve(state, record)
    return state


def evolve(state: RunState, record: ev.Record) -> RunState:  # noqa: C901, PLR0911  (one arm an event)
    """The state after one more event.

    Raises:
        SafetyViolation: the event is an illegal step; the state passed in is unchanged.
    """
    at, event = record.at, record.event
    match event:
        case ev.RunStarted():
            return _started(state, event, at)
        case ev.RunResumed():
            return resumed(state, event, at)
        case ev.RestoreBegun():
            return restoring(state, at)
        case ev.LeaseTaken() | ev.LeaseRegained():
            return replace(state, lease_lost=None)
        case ev.LeaseLost(reason=reason):
            return replace(state, lease_lost=reason)
        case ev.Deposed():
            return _deposed(state, event)
        case ev.BaselineRecorded():
            return replace(state, baseline=event)
        case ev.SettingChanged():
            return _setting_changed(state, event, at)
        case ev.SettingRestored():
            return _setting_restored(state, event)
        case ev.ReplicasAdded(index_uuid=uuid):
            return replace(state, replicas={uuid: event, **state.replicas})
        case ev.ReplicasRestored(index_uuid=uuid):
            return replace(state, replicas={key: v for key, v in state.replicas.items() if key != uuid})
        case ev.VotingExcluded(node=node):
            return replace(state, excluded=state.excluded | {node})
        case ev.VotingRestored():
            return replace(state, excluded=frozenset())
        case ev.WaveStarted():
            return _wave_started(state, event, at)
        case WaveGaveWay():
            return _gave_way(state)
        case Overlapping():
            return replace(state, overlapping=event)
        case ev.PhaseEntered(node=None):
            return _run_step(state, event, at)
        case ev.PhaseEntered(node=node) if node is not None:
            return _node_step(state, node, event, at)
        case ev.PhaseEntered():
            return state
        case ev.ActionSent(action=action):
            return _sent(state, action, at)
        case ev.ActionConfirmed(action=action):
            return _confirmed(state, action, at)
        case ev.ActionFailed():
            return _failed(state, event, at)
        case ev.Hold() | ev.HoldsCleared() | GateClosed() | GateOpened() | GatesPassed():
            return told(state, event, at)
        case ev.GoodReading(count=count):
            return replace(state, good_readings=count)
        case ev.Rescued():
            rescued = {node.name: replace(node, rescued=True) for node in state.wave_nodes}
            return replace(state, nodes={**state.nodes, **rescued})
        case ev.SecondFailure(what=what):
            return replace(state, second_failure=what)
        case ev.NodeRecovered() | TuningApplied() | TuningMissed() | ev.StoodDown():
            return state
        case WritesRead() | MergeWarned() | MergeBegun() | IndexMerged():
            return replace(state, merging=evolve_merging(state.merging, event, at))
        case ev.WaveFinished(number=number):
            return _wave_finished(state, number)
        case ev.Requested(request=request, by=by):
            return replace(state, request=max(state.request, request), requested_by=by)
        case ev.StandingDown():
            return _standing_down(state, event)
        case ev.RunFinished():
            return _finished(state, event)
        case _:
            assert_never(event)


def _deposed(state: RunState, event: ev.Deposed) -> RunState:
    """Whatever was changed and not restored is the successor's to restore from here on."""
    return replace(
        state,
        deposed=event,
        debts={},
        replicas={},
        excluded=frozenset(),
        withheld=frozenset(),
        withheld_since=None,
    )


def _finished(state: RunState, event: ev.RunFinished) -> RunState:
    """The attempt is over. A canary has been looked at once it paused the run; a pause by hand is none."""
    canary = state.policy.pause_after if state.policy else None
    looked_at = event.outcome is Outcome.PAUSED and canary is not None and state.recovered >= canary
    return replace(state, outcome=event.outcome, message=event.message, paused=state.paused or looked_at)


def _started(state: RunState, event: ev.RunStarted, at: Instant) -> RunState:
    nodes = {name: NodeProgress(name=name, since=at) for name in event.nodes}
    return replace(
        state,
        started=at,
        phase_since=at,
        cluster=event.cluster,
        cluster_uuid=event.cluster_uuid,
        version=event.version,
        distribution=event.distribution,
        repairs=event.repairs,
        policy=event.policy,
        nodes=nodes,
        addresses=event.addresses,
        planned=event.planned,
        data_paths=event.data_paths,
        merging=merging_of(event.indices),
        restarted=frozenset(event.restarted),
    )


def _setting_changed(state: RunState, event: ev.SettingChanged, at: Instant) -> RunState:
    key = (event.level, event.key)
    owed = state.debts.get(key)
    # What was found first is what is owed, however often we write the key afterwards; unless somebody else
    # has set another value since: then that is what was found.
    known = owed is not None and event.found in (owed.found, owed.wanted)
    found = owed.found if owed and known else event.found
    debt = SettingChange(level=event.level, key=event.key, found=found, wanted=event.wanted)
    withheld = state.withheld_since
    keys = state.withheld
    if event.purpose is Purpose.WITHHOLD:
        keys, withheld = keys | {key}, at if withheld is None else withheld
    return replace(state, debts={**state.debts, key: debt}, withheld=keys, withheld_since=withheld)


def _setting_restored(state: RunState, event: ev.SettingRestored) -> RunState:
    debts = {key: v for key, v in state.debts.items() if key != (event.level, event.key)}
    withheld = state.withheld - {(event.level, event.key)}
    return replace(
        state, debts=debts, withheld=withheld, withheld_since=state.withheld_since if withheld else None
    )


def _wave_started(state: RunState, event: ev.WaveStarted, at: Instant) -> RunState:
    nodes = dict(state.nodes)
    at_start = state.baseline.incarnations if state.baseline else {}
    for name in event.wave.nodes:
        nodes[name] = replace(
            nodes[name],
            before=event.incarnations.get(name) or at_start.get(name),
            boot_before=event.boots.get(name),
            doubt_since=None,
            rebooted=False,
            reboot_doubt_since=None,
            rescued=False,
            starts=0,
        )
    return replace(state, wave=event.wave, wave_since=at, nodes=nodes, retries=0, retried_at=0.0)


def _gave_way(state: RunState) -> RunState:
    if state.wave is None:
        return state
    since = state.wave_since if state.wave_since is not None else state.phase_since
    recovering = (*state.recovering, RecoveringWave(wave=state.wave, since=since))
    return replace(state, recovering=recovering, wave=None, wave_since=None)


def _wave_finished(state: RunState, number: int) -> RunState:
    state = replace(state, waves_finished=state.waves_finished + 1)
    others = tuple(one for one in state.recovering if one.wave.number != number)
    if len(others) < len(state.recovering):
        return replace(state, recovering=others)
    return replace(state, wave=None, wave_since=None)


def _wait_again(state: RunState) -> RunState:
    """From the gates back to waiting for the latest wave that made room; one that was chosen is dropped."""
    *others, latest = state.recovering
    return replace(
        state, wave=latest.wave, wave_since=latest.since, recovering=tuple(others), called_off_since=None
    )


def _run_step(state: RunState, event: ev.PhaseEntered, at: Instant) -> RunState:
    new = Phase(event.to)
    check_run_step(state.phase, new)
    if state.phase is Phase.MERGED and new is not Phase.STANDING_DOWN:
        state = replace(state, merging=replace(state.merging, settled=True))
    called_off = new is Phase.GATED and state.wave is not None
    if state.phase is Phase.GATED and new is Phase.REASSIGNED and state.recovering:
        state = _wait_again(state)
    if state.phase is Phase.WITHHELD and new is Phase.REASSIGNED and state.called_off_since is None:
        state = replace(state, called_off_since=at)
    return replace(
        state,
        phase=new,
        phase_since=at,
        confirmed=(),
        failed=(),
        good_readings=0,
        holds=(),
        holding_since=None,
        gates_closed_since=None,
        gates_passed=frozenset() if new is Phase.WITHHELD else state.gates_passed,
        overlapping=None if new is Phase.WITHHELD else state.overlapping,
        wave=None if called_off else state.wave,
        wave_since=None if called_off else state.wave_since,
    )


def _node_step(state: RunState, name: NodeName, event: ev.PhaseEntered, at: Instant) -> RunState:
    node = state.nodes[name]
    new = NodePhase(event.to)
    check_node_step(name, node.phase, new)
    changed = replace(
        node,
        phase=new,
        since=at,
        asked=False,
        asked_at=0.0,
        stopped_at=at if new is NodePhase.STOPPING else node.stopped_at,
        failure=event.why if new is NodePhase.FAILED else None,
    )
    if new is NodePhase.STOPPING:
        state = replace(state, called_off_since=None)
    return replace(state, nodes={**state.nodes, name: changed})


def _of_machine(state: RunState, reboot: RebootHost, **changes: object) -> RunState:
    """The state with the same said of every node that a reboot is for."""
    for name in reboot.nodes:
        state = with_node(state, name, **changes)
    return state


def _sent(state: RunState, action: Action, at: Instant) -> RunState:
    state = replace(state, in_flight=(*state.in_flight, action), acted_at=at)
    match action:
        case StopNode(node=name):
            return with_node(state, name, asked_at=at, stops=state.nodes[name].stops + 1)
        case StartNode(node=name):
            return with_node(state, name, asked_at=at, starts=state.nodes[name].starts + 1)
        case RebootHost():
            return _of_machine(state, action, asked_at=at, rebooted=True)
        case RetryFailed():
            return replace(state, retries=state.retries + 1, retried_at=at)
        case ForceMerge(index_uuid=uuid) if uuid in state.merging.indices:
            asked = state.merging.indices[uuid].asked + 1
            merging = with_index(state.merging, uuid, asked=asked, asked_at=at, refreshed_at=None)
            return replace(state, merging=merging)
        case _:
            return state


def _standing_down(state: RunState, event: ev.StandingDown) -> RunState:
    return replace(
        state,
        stand_down_reason=event.reason,
        stand_down_outcome=event.outcome,
        overdue=frozenset(event.overdue),
    )


def _landed(state: RunState, action: Action, at: Instant) -> RunState:
    flying = list(state.in_flight)
    if action in flying:
        flying.remove(action)
    return replace(state, in_flight=tuple(flying), acted_at=at)


def _confirmed(state: RunState, action: Action, at: Instant) -> RunState:
    state = _landed(state, action, at)
    still_failed = tuple(f for f in state.failed if f.action != action)
    state = replace(state, confirmed=(*state.confirmed, action), failed=still_failed)
    match action:
        case StopNode(node=name):
            return with_node(state, name, asked=True, doubt_since=None)
        case StartNode(node=name):
            return with_node(state, name, asked=True)
        case RebootHost():
            return _of_machine(state, action, reboot_doubt_since=None)
        case RunHook():
            return hook_ran(state, action)
        case RefreshIndex(index_uuid=uuid):
            return replace(state, merging=with_index(state.merging, uuid, refreshed_at=at))
        case ProbeSettings():
            return replace(state, probed=True)
        case _:
            return state


def _failed(state: RunState, event: ev.ActionFailed, at: Instant) -> RunState:
    state = _landed(state, event.action, at)
    state = replace(state, failed=(*(f for f in state.failed if f.action != event.action), event))
    match event.action:
        case StopNode(node=name) if event.in_doubt:
            return with_node(state, name, doubt_since=at)
        case RebootHost():
            since = at if event.in_doubt else None
            return _of_machine(state, event.action, rebooted=event.in_doubt, reboot_doubt_since=since)
        case RunHook() if event.in_doubt:
            return hook_doubted(state, event.action)
        case ProbeSettings():
            return replace(state, probed=False)
        case _:
            return state
