"""Before a stop: the run is prepared, a wave is chosen, the gates are passed, and passed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from orchestrator.engine import overlap
from orchestrator.engine.decision import Decision
from orchestrator.engine.gatekeeping import gate_news, gates_of, gates_passed
from orchestrator.engine.recovered import at_once, depooled, hooks_owed
from orchestrator.engine.refused import HOLD_POLL_SECONDS, held, let_go, of_predicates
from orchestrator.engine.rules import next_wave_of, refusals, refused_as_a_set
from orchestrator.engine.settle import (
    failed_before,
    given_up_nodes,
    put_back,
    restore_voting,
    retry_given_up,
)
from orchestrator.engine.state import NodeProgress, RunState
from orchestrator.engine.steps import LOOK_AGAIN, RETRY_SECONDS, Situation, act, note, stand_down, wait
from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    ExcludeFromVoting,
    Flush,
    Moment,
    ProbeSettings,
    Purpose,
    RunHook,
    SetReplicas,
    StopNode,
    WriteSettings,
    action_target,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    Event,
    Hold,
    ReplicasAdded,
    SettingChanged,
    VotingExcluded,
    WaveStarted,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Wave, ZeroReplicas
from orchestrator.model.reading import Unknown

_VOTERS_FOR_STEP_DOWN: Final = 5
"""One exclusion shrinks three voters to one, since the configuration keeps an odd size."""

_STEP_DOWN_SECONDS: Final = 30.0
"""An election takes seconds; a master that is still the master by then goes as it is."""

_REPROBE_SECONDS: Final = 30.0
"""Between tries of the settings update that changes nothing, while it is refused."""


def preparing(situation: Situation) -> Decision:
    """Record how the cluster was, and prove that its settings can be written, before anything is changed."""
    state = situation.state
    if state.withheld:
        # Left by a process that was killed: nobody waits at a gate with allocation withheld.
        return put_back(situation, Purpose.REASSIGN) or LOOK_AGAIN
    wave = next_wave_of(situation)
    pending = tuple(node.name for node in state.nodes.values() if node.phase is NodePhase.PENDING)
    if situation.view and wave is None:
        baseline = () if state.baseline else (situation.kind.baseline(situation.view, {}),)
        return note(*baseline, run_phase(state.phase, _after_preparing(situation)))
    wave = wave or Wave(number=state.waves_finished + 1, nodes=pending[:1])
    fundamental = tuple(rule for rule in situation.kind.predicates if not rule.may_be_disabled)
    refused = refusals(situation, fundamental, wave)
    if refused:
        return given_up_nodes(situation) or held(situation, refused)
    if state.baseline is None and situation.view:
        boots = {name: boot for name in pending if (boot := _boot(situation, name))}
        machines = {name: host.machine_id for name, host in situation.hosts.items() if host.machine_id}
        return note(replace(situation.kind.baseline(situation.view, boots), machines=machines))
    if state.probed is None:
        return act(ProbeSettings())
    return note(run_phase(state.phase, _after_preparing(situation)))


def _after_preparing(situation: Situation) -> Phase:
    """The merges come before the first wave, once in a run."""
    merges = situation.policy.merge is not None and not situation.state.merging.settled
    return Phase.MERGING if merges else Phase.GATED


def gated(situation: Situation) -> Decision:
    """Choose the wave; when every rule lets it pass, withhold allocation."""
    state, view = situation.state, situation.view
    first = _before_the_choice(situation)
    if first is not None:
        return first
    pending = [node for node in state.nodes.values() if node.phase is NodePhase.PENDING]
    if not pending:
        return _nothing_left(situation)
    wave = _chosen(situation) or Wave(number=state.waves_begun + 1, nodes=(pending[0].name,))
    refused = refusals(situation, situation.kind.predicates, wave)
    if refused or view is None or isinstance(situation.seen.settings, Unknown):
        return _not_let_pass(situation, wave, refused)
    called_off = _called_off(situation)
    if called_off:
        return called_off
    stepping = _step_down(situation, view, wave)
    if stepping:
        return stepping
    return _withhold(situation, wave)


def _before_the_choice(situation: Situation) -> Decision | None:
    """What comes before another wave is thought of; None when nothing does."""
    state = situation.state
    if state.withheld:
        return put_back(situation, Purpose.REASSIGN) or LOOK_AGAIN
    again = situation.now - state.acted_at > _REPROBE_SECONDS
    if state.probed is None or (state.probed is False and again):
        # Not yet tried by this process: a run that is resumed in a wave comes here without PREPARING.
        return act(ProbeSettings())
    restarted = tuple(_restarted_by_others(situation))
    if restarted:
        return note(*restarted)
    hook = next(hooks_owed(situation, _back_but_out_of_service(state)), None)
    if hook is not None:
        return act(hook)
    return overlap.at_the_gates(situation)


def _not_let_pass(situation: Situation, wave: Wave, refused: tuple[Hold, ...]) -> Decision:
    """Mend what can be mended, wait for a recovery that is in the way, else hold."""
    state, view = situation.state, situation.view
    bare = tuple(hold for hold in refused if hold.predicate == "zero_replica_indices")
    if view and refused and bare == refused:
        added = _add_replicas(situation, view, wave)
        if added:
            return added
    waiting = overlap.held_by_recovery(situation, refused)
    if waiting is not None:
        return restore_voting(situation) or waiting
    if view and state.baseline and any(hold.predicate == "no_worse_than_baseline" for hold in refused):
        retrying = retry_given_up(situation, situation.kind.missing(state, view))
        if retrying:
            return retrying
    if state.excluded:
        return restore_voting(situation) or LOOK_AGAIN  # nobody holds with a voter less
    if situation.policy.zero_replicas is ZeroReplicas.ADD_REPLICA:
        # Mended by the run itself once the other rules pass: it is these that hold.
        refused = (*(hold for hold in refused if hold not in bare), *bare)
    return given_up_nodes(situation) or held(situation, refused)


def _chosen(situation: Situation) -> Wave | None:
    """The wave in hand, or a smaller one out of it when the rules would not pass the whole by now."""
    in_hand = situation.state.wave
    if in_hand is not None:
        whole = all(node.phase is NodePhase.PENDING for node in situation.state.wave_nodes)
        if whole and not refused_as_a_set(situation, in_hand):
            return in_hand
    return next_wave_of(situation) or in_hand


def _called_off(situation: Situation) -> Decision | None:
    """A wave called off at its last reading is tried again after a pause, and not for longer than a hold.

    Its gates pass and its last reading does not: without this, allocation would go off and on for ever.
    """
    state, policy, now = situation.state, situation.policy, situation.now
    # In between, predicates may have held the run for as long as they may, and gates for as long as they may.
    limit = policy.deadlines.hold + (policy.deadlines.gate if gates_of(policy) else 0.0)
    if state.called_off_since is None:
        return None
    if now - state.called_off_since > limit:
        reason = f"every last reading before a stop has held for {limit:.0f} s (the journal names the rules)"
        return stand_down(state, reason, Outcome.HELD)
    if now - state.phase_since < HOLD_POLL_SECONDS:
        return wait(now, "a wave that was called off at its last reading", seconds=HOLD_POLL_SECONDS)
    return None


def _nothing_left(situation: Situation) -> Decision:
    state = situation.state
    failed = [node for node in state.nodes.values() if node.phase is NodePhase.FAILED]
    return failed_before(situation, failed) or note(run_phase(state.phase, Phase.FINISHING))


def _restarted_by_others(situation: Situation) -> Iterator[Event]:
    """A node that somebody else restarted since the run began has had its restart."""
    state = situation.state
    if situation.view is None or state.baseline is None:
        return
    for node in state.nodes.values():
        before, member = state.baseline.incarnations.get(node.name), situation.member(node.name)
        if before is None or member is None:
            continue
        boots = (None, state.baseline.boots.get(node.name))
        reboot_due = situation.policy.reboot and _boot(situation, node.name) in boots
        if node.phase is NodePhase.FAILED and member.incarnation.differs_from(node.before or before):
            why = "repaired by somebody else"
            if reboot_due:
                yield node_phase(node.name, NodePhase.FAILED, NodePhase.STARTING, why=why)
                yield node_phase(node.name, NodePhase.STARTING, NodePhase.PENDING, why="its reboot is due")
            else:
                yield node_phase(node.name, NodePhase.FAILED, NodePhase.REJOINED, why=why)
                yield node_phase(node.name, NodePhase.REJOINED, NodePhase.RECOVERED)
        if node.phase is NodePhase.PENDING and not reboot_due and member.incarnation.differs_from(before):
            why = "restarted by somebody else during the run, which counts as its restart"
            yield node_phase(node.name, NodePhase.PENDING, NodePhase.RECOVERED, why=why)


def _back_but_out_of_service(state: RunState) -> list[NodeProgress]:
    """Taken out of service by us and then restarted by somebody else, so that no wave puts it back."""
    wave = state.wave.nodes if state.wave else ()
    recovered = [node for node in state.nodes.values() if node.phase is NodePhase.RECOVERED]
    return [node for node in recovered if depooled(node) and node.name not in wave]


def _boot(situation: Situation, name: NodeName) -> str | None:
    host = situation.seen.host(name)
    return None if isinstance(host, Unknown) else host.boot_id


def _add_replicas(situation: Situation, view: ClusterView, wave: Wave) -> Decision | None:
    """Give a replica to every index without one, once; the copies rule then waits for it."""
    if situation.policy.zero_replicas is not ZeroReplicas.ADD_REPLICA:
        return None
    here = {copy.shard.index_uuid for copy in view.copies if copy.node in wave.nodes}
    bare = [
        index
        for index in view.indices
        if index.uuid in here and index.open and index.replicas == 0 and not index.searchable_snapshot
    ]
    events: list[Event] = []
    actions: list[Action] = []
    for index in bare:
        action = SetReplicas(index=index.name, index_uuid=index.uuid, found=0, wanted=1)
        failure = situation.state.failure_of(action)
        soon = situation.now - situation.state.acted_at < RETRY_SECONDS
        if failure and (soon or not failure.in_doubt):
            continue
        if index.uuid not in situation.state.replicas:
            events.append(ReplicasAdded(index=index.name, index_uuid=index.uuid, found=0, wanted=1))
        actions.append(action)
    return act(*actions, events=events) if actions else None


def _step_down(situation: Situation, view: ClusterView, wave: Wave) -> Decision | None:
    """Have another master elected before the master's own stop, if the playbook wants that and it is safe."""
    state, master = situation.state, view.master
    if state.excluded:
        asked = any(ExcludeFromVoting(node=name) in state.confirmed for name in state.excluded)
        waited = situation.now - state.acted_at
        if asked and master in state.excluded and waited < _STEP_DOWN_SECONDS:
            return wait(situation.now, f"another master than {master}", seconds=0.5)
        # Stepped down, or it will not: either way the exclusion goes before the stop.
        clearing = situation.now - state.phase_since > situation.policy.deadlines.rejoin
        failure = state.failure_of(ClearVotingExclusions())
        if failure and clearing:
            reason = f"voting exclusions could not be cleared: {failure.reason}"
            return stand_down(state, reason, Outcome.FAILED)
        return restore_voting(situation)
    voters = len(view.voters or ())
    if not situation.policy.master_step_down or master not in wave.nodes or voters < _VOTERS_FOR_STEP_DOWN:
        return None
    exclude = ExcludeFromVoting(node=master)
    if state.failure_of(exclude) or exclude in state.confirmed:
        return None  # it stepped down and was elected again, or will not step down: it goes as it is
    return act(exclude, events=(VotingExcluded(node=master),))


def _withhold(situation: Situation, wave: Wave) -> Decision:
    state, settings = situation.state, situation.seen.settings
    events: list[Event] = [*let_go(situation)]
    if state.wave != wave:
        members = [node for name in wave.nodes if (node := situation.member(name))]
        lives = {node.name: node.incarnation for node in members}
        boots = {name: boot for name in wave.nodes if (boot := _boot(situation, name))}
        events.append(WaveStarted(wave=wave, incarnations=lives, boots=boots))
    due = tuple(_hooks_due(situation, wave))
    failure = next((failed for hook in due if (failed := state.failure_of(hook))), None)
    if failure:
        reason = f"hook before_stop on {action_target(failure.action)}: {failure.reason}"
        return stand_down(state, reason, Outcome.FAILED)
    if due:
        return act(*at_once(due), events=events)
    if isinstance(settings, Unknown):
        return LOOK_AGAIN
    limits = situation.kind.raise_limits(state, settings, situation.policy)
    withheld = situation.kind.withhold(settings, situation.policy)
    for change, purpose in [(c, Purpose.RAISE_LIMITS) for c in limits] + [
        (c, Purpose.WITHHOLD) for c in withheld
    ]:
        events.append(
            SettingChanged(
                level=change.level, key=change.key, found=change.found, wanted=change.wanted, purpose=purpose
            )
        )
    events.append(run_phase(state.phase, Phase.WITHHELD))
    # One update for all: between two there would be a moment with half of them.
    changes = (*withheld, *limits)
    purpose = Purpose.WITHHOLD if withheld else Purpose.RAISE_LIMITS
    return act(*([WriteSettings(changes=changes, purpose=purpose)] if changes else []), events=events)


def _hooks_due(situation: Situation, wave: Wave) -> Iterator[RunHook]:
    for name in wave.nodes:
        done = situation.state.nodes[name].hooks_done
        for number, hook in enumerate(situation.policy.hooks.before_stop):
            if (Moment.BEFORE_STOP.value, number) not in done:
                yield RunHook(node=name, moment=Moment.BEFORE_STOP, number=number, hook=hook)


def withheld(situation: Situation) -> Decision:
    """Allocation is withheld: flush, read once more, and stop or give allocation back. Never a wait."""
    state, policy, wave = situation.state, situation.policy, situation.state.wave
    if wave is None or not situation.fresh:
        return LOOK_AGAIN
    failure = next((f for f in state.failed if isinstance(f.action, WriteSettings)), None)
    if failure and not failure.in_doubt:
        return stand_down(state, f"settings could not be written: {failure.reason}", Outcome.HELD)
    flush = Flush()
    if policy.flush and flush not in state.confirmed and not state.failure_of(flush):
        # A flush that fails costs recovery time and nothing else: it is in the journal, and the run goes on.
        return act(flush)
    refused = refusals(situation, situation.kind.predicates, wave)
    off = not isinstance(situation.seen.settings, Unknown) and not situation.kind.withhold(
        situation.seen.settings, policy
    )
    if not off:
        evidence = "the update is not in the settings that were read back"
        refused = (*refused, Hold(predicate="allocation_is_withheld", subject="cluster", evidence=evidence))
    changed = [node.name for node in state.wave_nodes if not situation.same_life(node)]
    late = [n for n in state.wave_nodes if n.name in changed and situation.stop_may_come_late(n)]
    if late:
        # A stop of ours that was in doubt was done after all: the node is ours to bring up.
        why = "its stop was done late"
        steps = [node_phase(node.name, node.phase, NodePhase.STOPPING, why=why) for node in late]
        return note(run_phase(state.phase, Phase.DOWN), *steps)
    if refused or changed:
        why = (
            f"{refused[0].predicate}: {refused[0].subject}: {refused[0].evidence}"
            if refused
            else (f"{changed[0]} is not in the life in which it was chosen")
        )
        news = gate_news(state, policy, situation.seen)
        step = run_phase(state.phase, Phase.REASSIGNED, why=f"last reading: {why}")
        return note(*of_predicates(refused), *news, step)
    steps = [node_phase(name, NodePhase.PENDING, NodePhase.STOPPING) for name in wave.nodes]
    stops = [StopNode(node=name) for name in wave.nodes]
    last = (*overlap.evidence(situation), *gates_passed(policy, situation.seen))
    return act(*stops, events=(*last, run_phase(state.phase, Phase.DOWN), *steps))
