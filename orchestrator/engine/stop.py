"""Up to the stop of a wave: what is recorded and proved once, its choice, the last reading, the stop itself.

The rules of the phases PREPARING, GATED and WITHHELD; their order is in `run.RULES`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.engine import admit, changes, recover
from orchestrator.engine.gates import gate_news, gates_passed
from orchestrator.engine.grid import Move, Sight
from orchestrator.engine.node import is_next, next_to
from orchestrator.engine.predicates import hold_in_brief, hold_in_words
from orchestrator.engine.progress import Mark
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    RETRY_SECONDS,
    Decision,
    Retry,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
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
    COULD_NOT_FINISH,
    Event,
    Hold,
    ReplicasAdded,
    TakenDown,
    VotingExcluded,
    WaveStarted,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Wave, ZeroReplicas
from orchestrator.model.reading import Seconds, Unknown

_REPROBE_SECONDS: Final[Seconds] = 30.0
"""Seconds between tries of the settings update that changes nothing, while it is refused."""

_PROBES: Final = 3
"""Refusals in a row before settings count as not writable: one may be a busy cluster (429)."""

_VOTERS_FOR_STEP_DOWN: Final = 5
"""One exclusion shrinks three voters to one, since the configuration keeps an odd size."""

_STEP_DOWN_SECONDS: Final[Seconds] = 30.0
"""An election takes seconds; a master that is still the master after that is stopped as it is."""


# Once, before any change ------------------------------------


def enable_allocation(situation: Situation) -> Decision | None:
    """Allocation was left disabled by a process that was killed: the run never waits with it disabled."""
    return changes.restore_settings(situation, Purpose.REASSIGN)


def nothing_to_restart(situation: Situation) -> Decision | None:
    """No node is to be restarted: there may be indices to merge."""
    state = situation.state
    if situation.view is None or state.nodes_in(NodePhase.PENDING):
        return None
    baseline = () if state.baseline else (situation.kind.baseline(situation.view, _boots(situation)),)
    return note(*baseline, run_phase(state.phase, _after_preparing(situation)))


def _boots(situation: Situation) -> dict[NodeName, str]:
    return {name: host.boot_id for name, host in situation.hosts.items() if host.boot_id}


def unfit_to_begin(situation: Situation) -> Decision | None:
    """A predicate that no playbook can disable is not met: nothing is recorded or written before it is."""
    state = situation.state
    pending = tuple(node.name for node in state.nodes_in(NodePhase.PENDING))
    wave = Wave(number=state.waves_finished + 1, nodes=pending[:1])  # fundamental rules are about no wave
    fundamental = tuple(rule for rule in situation.kind.predicates if not rule.may_be_disabled)
    refused = admit.refusals(situation, fundamental, wave)
    if not refused:
        return None
    return admit.failed_and_absent(situation) or admit.hold_or_stand_down(situation, refused)


def record_baseline(situation: Situation) -> Decision | None:
    """Record the state of the cluster before any change."""
    state = situation.state
    if state.baseline is not None or situation.view is None:
        return None
    unread = admit.hosts_to_read(situation, (node.name for node in state.nodes_in(NodePhase.PENDING)))
    if unread:
        return Decision(hosts=unread)
    machines = {name: host.machine_id for name, host in situation.hosts.items() if host.machine_id}
    return note(replace(situation.kind.baseline(situation.view, _boots(situation)), machines=machines))


def probe_settings(situation: Situation) -> Decision | None:
    """Prove that the cluster's settings can be written, before any change; less often while it refuses."""
    process = situation.state.process
    tried = process.probes >= _PROBES
    late = situation.state.phase is Phase.GATED and situation.rested(_REPROBE_SECONDS)
    return None if process.probed or (tried and not late) else _probe(situation)


def begin(situation: Situation) -> Decision:
    """All is recorded and proved."""
    return note(run_phase(situation.state.phase, _after_preparing(situation)))


def _probe(situation: Situation) -> Decision:
    """A settings update that changes nothing."""
    process, now = situation.state.process, situation.now
    if process.probed is False and not situation.rested():
        return wait(now, "a settings update that the cluster acknowledges", seconds=RETRY_SECONDS)
    return act(ProbeSettings())


def _after_preparing(situation: Situation) -> Phase:
    """The merges come before the first wave, once in a run."""
    merges = situation.policy.merge is not None and not situation.state.merging.settled
    return Phase.MERGING if merges else Phase.GATED


def finish_outside(situation: Situation) -> Decision | None:
    """Nodes that are back and in no wave: their hooks, and their last step, at once."""
    state = situation.state
    if not situation.fresh:
        return None
    recovering = {node.name for node in state.recovering_nodes}
    back = [node for node in next_to(Move.FINISH, situation) if node.name not in recovering]
    return recover.finish_with_hooks(situation, back) if back else None


def cannot_begin(situation: Situation) -> Decision | None:
    """A run that cannot finish does not begin: all holds that waiting cannot clear are reported at once."""
    state = situation.state
    if not situation.readable or not situation.fresh or not admit.has_not_begun(state):
        return None
    if situation.unread_for_now:
        return None  # it holds like any reading that failed
    if situation.policy.begin_anyway:
        skipped = admit.skipped_at_planning(situation)
        return note(*skipped) if skipped else None
    lasting = admit.cannot_finish(situation)
    if not lasting:
        return None
    more = f" (and {len(lasting) - 1} predicates more)" if len(lasting) > 1 else ""
    reason = f"{COULD_NOT_FINISH}: {hold_in_words(lasting[0])}{more}"
    return stand_down(state, reason, Outcome.HELD, *admit.of_predicates(lasting), never_began=True)


def await_doubt(situation: Situation) -> Decision | None:
    """No wave begins while a lost verb may take effect: its node is not fit, and may go down too."""
    nodes = [node for node in situation.state.nodes.of(Mark.OPEN) if node.doubt is not None]
    doubtful = [node.name for node in nodes if sight(situation, node) is Sight.DOUBT]
    if not doubtful:
        return None
    what = f"a command on {', '.join(doubtful)} whose result is unknown and which may still take effect"
    return wait(situation.now, what, services=doubtful)


def no_node_left(situation: Situation) -> Decision | None:
    """Every node had its turn, and is seen to be over: one that is back and in no wave may still owe work."""
    state = situation.state
    if state.nodes_in(NodePhase.PENDING):
        return None
    back = [node.name for node in state.nodes_in(NodePhase.REJOINED)]
    if back:
        return recover.await_seen_again(situation, back)
    failed = admit.failed_before(situation, state.nodes_in(NodePhase.FAILED))
    return failed or note(run_phase(state.phase, Phase.FINISHING))


def admit_wave(situation: Situation) -> Decision:
    """Choose the wave; when every predicate lets it pass, disable allocation."""
    state, view = situation.state, situation.view
    pending = state.nodes_in(NodePhase.PENDING)
    wave = admit.chosen(situation) or Wave(number=state.waves_begun + 1, nodes=(pending[0].name,))
    unread = admit.hosts_to_read(situation, wave.nodes)
    if unread:
        return Decision(hosts=unread)
    refused = admit.refusals(situation, situation.kind.predicates, wave)
    blocked = bool(refused) or not situation.readable
    undo = recover.hooks_after(situation, admit.candidates_to_undo(situation, wave, held=blocked))
    if undo is not None:
        return undo
    failed = recover.failed_hook(situation)
    if failed is not None:
        return recover.stand_down_for(situation, failed)
    if blocked or view is None:
        held = _not_admitted(situation, view, wave, refused)
        return replace(held, hosts=admit.hosts_of_held(situation, wave))
    called_off = admit.called_off(situation)
    if called_off:
        return replace(called_off, hosts=admit.hosts_of_held(situation, wave))
    unread = frozenset() if state.waves_begun else admit.hosts_to_read(situation, (n.name for n in pending))
    if unread:
        return Decision(hosts=unread)
    return _step_down(situation, view, wave) or _disable(situation, wave)


def _not_admitted(
    situation: Situation, view: ClusterView | None, wave: Wave, refused: tuple[Hold, ...]
) -> Decision:
    """A predicate is not met: do what the run can do about that itself, or hold."""
    voting = changes.restore_voting(situation)
    if voting is not None and (voting.events or voting.actions):
        return voting  # no exclusion outlasts the gates
    if view is not None and situation.readable:
        first = _add_replicas(situation, view, wave) or recover.held_by_recovery(situation, refused)
        if first is not None:
            return first
        retrying = recover.retry_given_up(situation, tuple(view.not_started))
        if retrying is not None and any(hold.predicate == "no_worse_than_baseline" for hold in refused):
            return retrying
    return admit.failed_and_absent(situation) or admit.hold_or_stand_down(situation, refused)


def _add_replicas(situation: Situation, view: ClusterView, wave: Wave) -> Decision | None:
    """Give a replica to every index without one, once; the predicate on copies then waits for it."""
    if situation.policy.zero_replicas is not ZeroReplicas.ADD_REPLICA:
        return None
    here = {copy.shard.index_uuid for copy in view.on(wave.nodes)}
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
        pause = RETRY_SECONDS if failure is None or failure.in_doubt else _REPROBE_SECONDS
        if situation.retry(action, pause=pause) is not Retry.NOW:
            continue
        if index.uuid not in situation.state.unrestored.replicas:
            events.append(ReplicasAdded(index=index.name, index_uuid=index.uuid, found=0, wanted=1))
        actions.append(action)
    return act(*actions, events=events) if actions else None


def _step_down(situation: Situation, view: ClusterView, wave: Wave) -> Decision | None:
    """Have another master elected before the master's own stop, if the playbook wants that and it is safe."""
    state, master = situation.state, view.master
    ours = state.unrestored.excluded
    if ours:
        asked = any(ExcludeFromVoting(node=name) in state.in_phase.confirmed for name in ours)
        if asked and master in ours and not situation.rested(_STEP_DOWN_SECONDS):
            return wait(situation.now, f"another master than {master}", seconds=0.5)
        # It stepped down, or it will not: in both cases the exclusion is removed before the stop.
        failure = state.failure_of(ClearVotingExclusions())
        if failure and situation.fails_too_long(failure.action):
            reason = f"voting exclusions could not be cleared: {failure.reason}"
            return stand_down(state, reason, Outcome.FAILED)
        return changes.restore_voting(situation)
    voters = 0 if view.voting_by_count else len(view.voters or ())
    if not situation.policy.master_step_down or master not in wave.nodes or voters < _VOTERS_FOR_STEP_DOWN:
        return None
    exclude = ExcludeFromVoting(node=master)
    if state.failure_of(exclude) or exclude in state.in_phase.confirmed:
        return None  # it was elected again, or will not step down: stop it as it is
    return act(exclude, events=(VotingExcluded(node=master),))


def _disable(situation: Situation, wave: Wave) -> Decision:
    """The wave is admitted: its `before_stop` hooks, then allocation."""
    state = situation.state
    events: list[Event] = [*admit.cleared(situation)]
    if state.wave != wave:
        members = [node for name in wave.nodes if (node := situation.member(name))]
        lives = {node.name: node.incarnation for node in members}
        hosts = {name: situation.seen.host(name) for name in wave.nodes}
        boots = {n: h.boot_id for n, h in hosts.items() if not isinstance(h, Unknown) and h.boot_id}
        events.append(WaveStarted(wave=wave, incarnations=lives, boots=boots))
    due = [
        RunHook(node=name, moment=Moment.BEFORE_STOP, number=number, hook=hook)
        for name in wave.nodes
        for number, hook in enumerate(situation.policy.hooks.before_stop)
        if number not in state.nodes[name].ready
    ]
    failure = next((failed for hook in due if (failed := state.failure_of(hook))), None)
    if failure:
        reason = f"hook before_stop on {action_target(failure.action)}: {failure.reason}"
        retry = situation.retry(failure.action)
        if retry is Retry.NEVER:
            return stand_down(state, reason, Outcome.FAILED)
        if retry is Retry.LATER:
            return wait(situation.now, reason, seconds=RETRY_SECONDS)
    if due:
        return act(*recover.hooks_at_once(due), events=events)
    return changes.disable_allocation(situation, *events)


def not_written(situation: Situation) -> Decision | None:
    """The update that disables allocation was refused: the wave is called off."""
    state = situation.state
    failure = next((f for f in state.in_phase.failed if isinstance(f.action, WriteSettings)), None)
    if failure is None or failure.in_doubt:
        return None
    why = f"settings could not be written: {failure.reason}"
    undone = changes.never_written(situation, failure)
    return note(*undone, run_phase(state.phase, Phase.REASSIGNED, why=why))


def flush(situation: Situation) -> Decision | None:
    """Flush once; one that fails costs recovery time and nothing else: it is in the journal."""
    state, flushing = situation.state, Flush()
    tried = flushing in state.in_phase.confirmed or state.failure_of(flushing)
    return act(flushing) if situation.policy.flush and not tried else None


def stop_or_call_off(situation: Situation) -> Decision:
    """The last reading admits the stop, or the wave is called off: never wait with allocation disabled."""
    state, policy, wave = situation.state, situation.policy, situation.state.wave
    if wave is None:
        return LOOK_AGAIN
    refused = admit.refusals(situation, situation.kind.predicates, wave)
    if not situation.kind.is_withheld(situation.seen.settings, policy):
        evidence = "the update is not in the settings that were read back"
        refused = (*refused, Hold(predicate="allocation_is_withheld", subject="cluster", evidence=evidence))
    unfit = [node.name for node in state.wave_nodes if not is_next(Move.STOP, situation, node)]
    if refused or unfit or situation.view is None:
        why = hold_in_brief(refused[0]) if refused else f"{unfit[0]} has changed since it was chosen"
        news = gate_news(state, situation.seen)
        step = run_phase(state.phase, Phase.REASSIGNED, why=f"last reading: {why}")
        return note(*admit.of_predicates(refused), *news, step)
    return _stop(situation, situation.view, wave)


def _stop(situation: Situation, view: ClusterView, wave: Wave) -> Decision:
    """Every predicate passed at the last reading: record what the wave takes down, and stop it."""
    steps = [node_phase(name, NodePhase.PENDING, NodePhase.STOPPING) for name in wave.nodes]
    stops = [StopNode(node=name) for name in wave.nodes]
    taken = situation.kind.taken(situation.state, view, situation.seen.settings, wave)
    events: tuple[Event, ...] = (
        *recover.overlap_evidence(situation, wave),
        *gates_passed(situation.state, situation.seen),
        *((TakenDown(number=wave.number, indices=taken),) if taken else ()),
        *recover.foreseen(situation, wave),
        run_phase(situation.state.phase, Phase.DOWN),
        *steps,
    )
    return act(*stops, events=events)
