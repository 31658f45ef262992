"""decide(state, observation, now) -> Decision: what a run does next. Pure; asked again after every step.

The order of the questions is the order of their urgency: another run that took over, a node of ours that is
absent, a second failure, a request to stop; then every node's own move (`node.turn`); then the phase of the
run. Only stops need predicates; nothing here holds a start or a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine import admit, beginning, changes, late_stop, limits, recover, refusals, upgrade
from orchestrator.engine.clock import UNWATCHED_SECONDS
from orchestrator.engine.gates import gate_news, gates_passed
from orchestrator.engine.grid import Move, Sight
from orchestrator.engine.kinds.every_kind import not_listed
from orchestrator.engine.kinds.kind import kind_of
from orchestrator.engine.kinds.predicates import by_same_reason, hold_in_brief, hold_in_words
from orchestrator.engine.left_over import left_over, texts
from orchestrator.engine.node import is_next, next_to, rejoined, stirring, turn
from orchestrator.engine.phases import READS
from orchestrator.engine.progress import GOING_UP_OR_DOWN, MAY_BE_DOWN, Mark, NodeProgress
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    POLL_SECONDS,
    QUICK_SECONDS,
    RETRY_SECONDS,
    Decision,
    Retry,
    Situation,
    act,
    members_awaited,
    note,
    pause_after,
    stand_down,
    wait,
)
from orchestrator.engine.state import NOT_BEGUN, RunState
from orchestrator.engine.work import one_a_machine
from orchestrator.errors import ExitCode, SafetyViolation
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
from orchestrator.model.cluster import NodeName, ShardCopy
from orchestrator.model.event import (
    COULD_NOT_FINISH,
    Event,
    GoodReading,
    Hold,
    MembersMissed,
    ReplicasAdded,
    Rescued,
    RunFinished,
    SecondFailure,
    StoodDown,
    StoodStill,
    TakenDown,
    VotingExcluded,
    WaveFinished,
    WaveStarted,
    WorkDone,
    asked_to_stop,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import ClusterView, CopiesActive, MasterElected, Observation, ServiceState
from orchestrator.model.phase import Goal, NodePhase, Outcome, Phase, Request, Work
from orchestrator.model.policy import Kind, Wave, ZeroReplicas
from orchestrator.model.reading import Instant, Seconds, Unknown

_REPROBE_SECONDS: Final[Seconds] = 30.0
"""Seconds between tries of the settings update that changes nothing, while it is refused."""

_PROBES: Final = 3
"""Refusals in a row before settings count as not writable: one may be a busy cluster (429)."""

_VOTERS_FOR_STEP_DOWN: Final = 5
"""One exclusion shrinks three voters to one, since the configuration keeps an odd size."""

_STEP_DOWN_SECONDS: Final[Seconds] = 30.0
"""An election takes seconds; a master that is still the master after that is stopped as it is."""

_WATCHED: Final = frozenset(Phase) - {Phase.MERGING, Phase.MERGED, Phase.ENDED}
"""Phases in which nodes may go down by this run. While indices are merged, it has stopped none yet."""

_TURNING: Final = _WATCHED - {Phase.PREPARING}
"""Phases in which nodes make their moves: merges come before the first of them."""

_NOTHING_DOWN: Final = frozenset({Phase.PREPARING, Phase.MERGING, Phase.MERGED, Phase.GATED})
"""A wave may be chosen there, and its `before_stop` hooks may have run; none of it is stopped."""

Step = Callable[[Situation], Decision]


def decide(
    state: RunState, observation: Observation, now: Instant, *, also: Mapping[Phase, Step] | None = None
) -> Decision:
    """The next step, from what is known and nothing else.

    Args:
        state: of the run.
        observation: one reading of the world.
        now: by the clock of the orchestrator.
        also: steps of phases that are not the core's own (merging).

    Raises:
        SafetyViolation: the state is of no run, or verbs are under way whose outcome is not recorded.
    """
    if state.begun is NOT_BEGUN:
        raise SafetyViolation("a run that has not begun cannot be decided on")
    if state.process.in_flight:
        raise SafetyViolation(f"outcomes are not recorded: {state.process.in_flight}")
    if state.phase is Phase.ENDED:
        return Decision()
    policy = state.begun.policy
    before = Situation(state=state, policy=policy, kind=kind_of(policy.kind), seen=observation, now=now)
    news = _news(before) if before.fresh else ()
    situation = before.after(*news)
    steps = {**STEPS, **(also or {})}
    decision = _urgent(situation) or _moves(situation) or steps[state.phase](situation)
    return replace(decision, events=(*news, *decision.events)) if news else decision


# What a reading shows by itself ------------------------------------


def _news(situation: Situation) -> tuple[Event, ...]:
    """A standstill of the program, owed work that is done, what waits, missing members, red shards."""
    standstill, view = _standstill(situation), situation.view
    waits = situation.kind.news(situation.state, view) if view is not None else None
    done = (*_reboots_done(situation), *upgrade.news(situation), *((waits,) if waits is not None else ()))
    return (*standstill, *done, *_members(situation), *recover.red_news(situation))


def _standstill(situation: Situation) -> tuple[Event, ...]:
    """The program was suspended, or a verb took long, and something is waited for that is later by that."""
    state, at, before = situation.state, situation.seen.at, situation.seen.before
    if before is None or at - before <= UNWATCHED_SECONDS:
        return ()
    moving = state.nodes_in(*GOING_UP_OR_DOWN, NodePhase.REJOINED)
    names = tuple(node.name for node in moving if at - node.since > UNWATCHED_SECONDS)
    counts = names or limits.are_paused(state, before, at)
    return (StoodStill(nodes=names, seconds=at - before - UNWATCHED_SECONDS),) if counts else ()


def _reboots_done(situation: Situation) -> tuple[Event, ...]:
    return tuple(
        WorkDone(node=node.name, work=Work.REBOOT, why="its host has another boot id")
        for node in situation.state.nodes.of(Mark.REBOOTS)
        if situation.rebooted(node)
    )


def _members(situation: Situation) -> tuple[Event, ...]:
    """One more reading without a member, up to the number that counts; nodes being restarted are left out."""
    state, view = situation.state, situation.view
    if view is None or state.baseline is None or state.phase not in _WATCHED:
        return ()
    known = {node.name for node in state.nodes_in(*MAY_BE_DOWN)}
    present, absent = view.members, state.process.absent
    missing = tuple(
        name
        for name in sorted(not_listed(state.baseline.incarnations, state.nodes.names, present))
        if name not in known
        and (name not in absent or absent[name].readings < situation.policy.settle_consecutive)
    )
    back = tuple(name for name in sorted(absent) if name in present or name in known)
    return (MembersMissed(missing=missing, back=back, read=situation.seen.at),) if missing or back else ()


# What goes before the phase ------------------------------------


def _urgent(situation: Situation) -> Decision | None:
    """What comes before the phase of the run; None when nothing does."""
    state, policy = situation.state, situation.policy
    if state.phase is Phase.STANDING_DOWN:
        return _taken_down_late(situation)
    other = state.process.deposed
    if other is not None:
        successor = f"run {other.successor} of {other.owner}"
        reason = f"{successor} took the lease over: it restores the remaining changes"
        return stand_down(state, reason, Outcome.DEPOSED)
    late = _taken_down_late(situation)
    if late is not None:
        return late
    failure = _second_failure(situation)
    if failure is not None:
        reason = f"a second failure: {failure}"
        return stand_down(state, reason, Outcome.FAILED, SecondFailure(what=failure))
    missed = upgrade.missed(situation)
    if missed is not None:
        without = f" without {', '.join(missed.lacks)}" if missed.lacks else ""
        found = f"{missed.node} came back with {missed.version}{without}"
        reason = f"{found}, though its install steps ended well: {missed.wanted} was to be installed"
        return stand_down(state, reason, Outcome.FAILED, missed)
    if state.phase is Phase.FINISHING:
        # All nodes are restarted; the rest is the same as in a stand-down.
        return None
    if state.process.request in (Request.STOP, Request.INTERRUPT):
        reason = asked_to_stop(state.process.requested_by) + state.merges_left
        return stand_down(state, reason, Outcome.INTERRUPTED)
    timeout = situation.over(limits.TIMEOUT)
    if timeout is not None:
        reason = f"--timeout of {timeout:.0f} s ran out{state.merges_left}"
        return stand_down(state, reason, Outcome.HELD)
    refused = refusals.too_long(situation)
    if refused is not None:
        return stand_down(state, refused, Outcome.FAILED)
    withheld_for = _withheld_too_long(situation)
    if withheld_for is not None:
        rebuilds = ", as far as forced awareness lets it" if policy.awareness.forced else ""
        held = f"what the nodes that are down hold{rebuilds}"
        then = f"it is enabled now, and the cluster rebuilds elsewhere {held}"
        lost = state.process.refused
        now_or_later = then if lost is None else f"it cannot be enabled, {lost.refusal.sentence}"
        reason = f"allocation was disabled for {withheld_for:.0f} s: {now_or_later}"
        return stand_down(state, reason, Outcome.FAILED)
    if state.recovering or state.merging.in_progress:
        return None  # recoveries and merges finish before a pause
    if state.phase in _NOTHING_DOWN or (state.phase is Phase.SETTLED and not state.wave):
        return _pause(situation)
    return None


def _pause(situation: Situation) -> Decision | None:
    state, policy = situation.state, situation.policy
    if not state.nodes_in(NodePhase.PENDING) and not state.merging.pending:
        return None
    if state.process.request is Request.PAUSE:
        return stand_down(state, f"asked to pause by {state.process.requested_by}", Outcome.PAUSED)
    done = state.recovered
    if policy.pause_after is not None and not state.paused and done >= policy.pause_after:
        nodes = "node" if done == 1 else "nodes"
        return stand_down(state, f"paused after {done} {nodes}, as asked", Outcome.PAUSED)
    return None


def _taken_down_late(situation: Situation) -> Decision | None:
    """Nodes that a lost stop took down after all."""
    state = situation.state
    if state.phase not in _WATCHED or not situation.fresh:
        return None
    nodes = ((node, sight(situation, node)) for node in stirring(situation))
    late = [node for node, found in nodes if late_stop.took_down(situation, node, found)]
    return note(*late_stop.joined(state, late)) if late else None


def _second_failure(situation: Situation) -> str | None:
    """Something outside the wave that failed while nodes of ours are down or recover."""
    state, view = situation.state, situation.view
    watched = READS[state.phase].failures or bool(state.recovering)
    if not watched or view is None or state.baseline is None or not situation.fresh:
        return None
    ours = {n.name for n in state.wave_nodes if n.phase is not NodePhase.PENDING}
    recovering = {node.name for node in state.recovering_nodes}
    if ours or recovering:
        given_up = {node.name for node in state.nodes_in(NodePhase.FAILED, NodePhase.SKIPPED)}
        spared = ours | given_up | set(state.baseline.bystanders)
        away = [name for name in sorted(state.process.absent) if name not in spared]
        left = [name for name in away if situation.has_left(name) and not _by_lost_stop(situation, name)]
        if left:
            names = ", ".join(sorted(ours | recovering))
            return f"node {left[0]} left the cluster while {names} was away or recovering"
    if state.phase is not Phase.REASSIGNED:
        return None
    red = recover.red(situation)
    return f"{red[0]} has no started copy" if red else None


def _by_lost_stop(situation: Situation, name: NodeName) -> bool:
    node = situation.state.nodes.get(name)
    return node is not None and late_stop.explains(situation, node, situation.seen.at)


def _moves(situation: Situation) -> Decision | None:
    """Every node's own move. A reading with red shards of ours changes the goal of the wave first."""
    state = situation.state
    if state.phase not in _TURNING or not situation.fresh:
        return None
    rescue = _rescue(situation)
    after = situation.after(*rescue)
    turns = [turn(after, node) for node in stirring(after)]
    events: tuple[Event, ...] = (*rescue, *(event for one in turns for event in one.events))
    flips = [one.flip for one in turns if one.flip is not None]
    if flips and state.phase is not Phase.STANDING_DOWN:
        steps = list(zip(stirring(after), turns, strict=True))
        overdue = [node.name for node, one in steps if one.overdue]
        failed = [node.name for node, one in steps if one.enter is NodePhase.FAILED]
        reason = "; ".join(flips)
        return stand_down(state, reason, Outcome.FAILED, *events, overdue=overdue, failed=failed)
    actions = one_a_machine(after, (action for one in turns for action in one.actions))
    return act(*actions, events=events) if events or actions else None


def _rescue(situation: Situation) -> tuple[Event, ...]:
    """Shards that are red because of the wave: its nodes are started at once, without hooks and tuning.

    No check can close the race between the last reading and the stop: a new index may put its only primary
    on the node in that moment. What was skipped stays owed.
    """
    state = situation.state
    if state.phase not in (Phase.DOWN, Phase.REJOINED):
        return ()
    waiting = [n for n in state.wave_nodes if n.phase in GOING_UP_OR_DOWN and n.goal is Goal.RESTART]
    red = recover.red(situation) if waiting else ()
    return (Rescued(shards=red),) if red else ()


# Before a stop ------------------------------------


def preparing(situation: Situation) -> Decision:
    """Record the state of the cluster, and prove that its settings can be written, before any change."""
    state = situation.state
    if state.unrestored.withheld:
        # Left by a process that was killed: the run never waits with allocation disabled.
        return changes.restore_settings(situation, Purpose.REASSIGN) or LOOK_AGAIN
    pending = tuple(node.name for node in state.nodes_in(NodePhase.PENDING))
    boots = {name: host.boot_id for name, host in situation.hosts.items() if host.boot_id}
    if situation.view and not pending:
        baseline = () if state.baseline else (situation.kind.baseline(situation.view, boots),)
        return note(*baseline, run_phase(state.phase, _after_preparing(situation)))
    wave = Wave(number=state.waves_finished + 1, nodes=pending[:1])  # fundamental rules are about no wave
    fundamental = tuple(rule for rule in situation.kind.predicates if not rule.may_be_disabled)
    refused = admit.refusals(situation, fundamental, wave)
    if refused:
        return admit.failed_and_absent(situation) or admit.held(situation, refused)
    if state.baseline is None and situation.view:
        unread = admit.hosts_to_read(situation, pending)
        if unread:
            return Decision(hosts=unread)
        machines = {name: host.machine_id for name, host in situation.hosts.items() if host.machine_id}
        return note(replace(situation.kind.baseline(situation.view, boots), machines=machines))
    if not state.process.probed and state.process.probes < _PROBES:
        return _probe(situation)
    return note(run_phase(state.phase, _after_preparing(situation)))


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


def gated(situation: Situation) -> Decision:
    """Choose the wave; when every predicate lets it pass, disable allocation."""
    state, view = situation.state, situation.view
    first = _before_the_choice(situation)
    if first is not None:
        return first
    pending = state.nodes_in(NodePhase.PENDING)
    if not pending:
        failure = admit.failed_before(situation, state.nodes_in(NodePhase.FAILED))
        return failure or note(run_phase(state.phase, Phase.FINISHING))
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
        return replace(held, hosts=admit.hosts_again(situation, wave))
    called_off = admit.called_off(situation)
    if called_off:
        return replace(called_off, hosts=admit.hosts_again(situation, wave))
    unread = frozenset() if state.waves_begun else admit.hosts_to_read(situation, (n.name for n in pending))
    if unread:
        return Decision(hosts=unread)
    return _step_down(situation, view, wave) or _disable(situation, wave)


def _before_the_choice(situation: Situation) -> Decision | None:
    """Before the next wave: settings, nodes that are back or in doubt, a run that cannot finish."""
    state = situation.state
    if state.unrestored.withheld:
        return changes.restore_settings(situation, Purpose.REASSIGN) or LOOK_AGAIN
    again = state.process.probes < _PROBES or situation.rested(_REPROBE_SECONDS)
    if not state.process.probed and again:
        return _probe(situation)
    if situation.fresh:
        returned = _finish_outside(situation)
        if returned is not None:
            return returned
    return recover.before_the_next(situation) or _cannot_begin(situation) or _doubt_awaited(situation)


def _doubt_awaited(situation: Situation) -> Decision | None:
    """No wave begins while a lost verb may take effect: its node is not fit, and may go down too."""
    nodes = [node for node in situation.state.nodes.of(Mark.OPEN) if node.doubt is not None]
    doubtful = [node.name for node in nodes if sight(situation, node) is Sight.DOUBT]
    if not doubtful:
        return None
    what = f"a command on {', '.join(doubtful)} whose result is unknown and which may still take effect"
    return wait(situation.now, what, services=doubtful)


def _finish_outside(situation: Situation) -> Decision | None:
    """Nodes that are back and in no wave: their hooks, and their last step, at once."""
    state = situation.state
    recovering = {node.name for node in state.recovering_nodes}
    back = [node for node in next_to(Move.FINISH, situation) if node.name not in recovering]
    return recover.finish_with_hooks(situation, back) if back else None


def _cannot_begin(situation: Situation) -> Decision | None:
    """A run that cannot finish does not begin: all holds that waiting cannot clear are reported at once."""
    state = situation.state
    if not situation.readable or not situation.fresh or not beginning.has_not_begun(state):
        return None
    if situation.unread_for_now:
        return None  # it holds like any reading that failed
    if situation.policy.begin_anyway:
        skipped = beginning.skipped_at_planning(situation)
        return note(*skipped) if skipped else None
    lasting = beginning.cannot_finish(situation)
    if not lasting:
        return None
    more = f" (and {len(lasting) - 1} predicates more)" if len(lasting) > 1 else ""
    reason = f"{COULD_NOT_FINISH}: {hold_in_words(lasting[0])}{more}"
    return stand_down(state, reason, Outcome.HELD, *admit.of_predicates(lasting))


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
    return admit.failed_and_absent(situation) or admit.held(situation, refused)


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
    events: list[Event] = [*admit.let_go(situation)]
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


def withheld(situation: Situation) -> Decision:
    """Allocation is disabled: flush, read once more, and stop or call off. Never wait here."""
    state, policy, wave = situation.state, situation.policy, situation.state.wave
    if wave is None or not situation.fresh:
        return LOOK_AGAIN
    failure = next((f for f in state.in_phase.failed if isinstance(f.action, WriteSettings)), None)
    if failure and not failure.in_doubt:
        why = f"settings could not be written: {failure.reason}"
        undone = changes.never_written(situation, failure)
        return note(*undone, run_phase(state.phase, Phase.REASSIGNED, why=why))
    flush = Flush()
    if policy.flush and flush not in state.in_phase.confirmed and not state.failure_of(flush):
        # A flush that fails costs recovery time and nothing else: it is in the journal.
        return act(flush)
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


# While nodes are down ------------------------------------


def down(situation: Situation) -> Decision:
    """Every node of the wave made its move; continue when each runs again, or when none was stopped."""
    state = situation.state
    if not situation.fresh:
        return LOOK_AGAIN
    touched = [node for node in state.wave_nodes if node.phase is not NodePhase.PENDING]
    if not touched:
        stops = (one for one in state.in_phase.failed if isinstance(one.action, StopNode))
        reason = next((one.reason for one in stops if not one.in_doubt), "the same lives")
        return note(run_phase(state.phase, Phase.REASSIGNED, why=f"no node was stopped: {reason}"))
    if all(_runs(situation, node) for node in touched):
        return note(run_phase(state.phase, Phase.REJOINED))
    return _listen(situation, touched)


def _runs(situation: Situation, node: NodeProgress) -> bool:
    """Its service runs, or it is a member already: the cluster is watched from here on."""
    if node.phase not in GOING_UP_OR_DOWN:
        return True
    if node.phase is not NodePhase.STARTING:
        return False
    host = situation.seen.host(node.name)
    running = not isinstance(host, Unknown) and host.service is ServiceState.RUNNING
    seen = sight(situation, node)
    return seen is Sight.NEW or (seen is Sight.COMING and running)


def _listen(situation: Situation, nodes: list[NodeProgress]) -> Decision:
    phases = sorted({f"{node.name} {node.phase.value}" for node in nodes})
    starting = any(node.phase is NodePhase.STARTING for node in nodes)
    return wait(
        situation.now,
        f"services: {', '.join(phases)}",
        services=[node.name for node in nodes],
        cluster=members_awaited(situation) if starting else None,
    )


def rejoining(situation: Situation) -> Decision:
    """Started; wait until the master lists every node in a new life, in several readings that agree."""
    state = situation.state
    if not situation.fresh:
        return LOOK_AGAIN
    nodes = [node for node in state.wave_nodes if node.phase is NodePhase.STARTING]
    away = [node.name for node in nodes if not is_next(Move.REJOIN, situation, node)]
    lacking = _lacking(situation, [node for node in nodes if node.name not in away])
    if away or lacking or not situation.settled:
        return _not_back(situation, away, lacking)
    agreeing = _agreeing(situation) if nodes else None
    if agreeing is not None:
        return agreeing
    steps = [rejoined(situation, node) for node in nodes]
    return note(*steps, run_phase(state.phase, Phase.REASSIGNED))


def _agreeing(situation: Situation) -> Decision | None:
    """One more good reading to count; None once enough of them agree in a row."""
    count = situation.state.in_phase.good_readings + 1
    if count >= situation.policy.settle_consecutive:
        return None
    progress = (GoodReading(count=count),)
    return wait(situation.now, "readings that agree", seconds=QUICK_SECONDS, events=progress)


def _lacking(situation: Situation, nodes: list[NodeProgress]) -> dict[NodeName, str]:
    """What nodes that are up still lack to count as back, if the kind of cluster needs more of them."""
    view = situation.view
    if view is None:
        return {}
    said = {node.name: situation.kind.not_back(view, node.name) for node in nodes}
    return {name: what for name, what in said.items() if what is not None}


def _not_back(situation: Situation, away: list[NodeName], lacking: Mapping[NodeName, str]) -> Decision:
    state, now, late = situation.state, situation.now, situation.over(limits.REJOIN)
    lack = [f"{name} ({what})" for name, what in lacking.items()]
    names = ", ".join([*away, *lack]) or "a reading that is not stale"
    if late is not None:
        reason = f"{names}: not back in the cluster within {late:.0f} s"
        return stand_down(state, reason, Outcome.FAILED, overdue=[*away, *lacking])
    broken = (GoodReading(count=0, why=f"{names} not back"),) if state.in_phase.good_readings else ()
    return wait(
        now,
        f"{names} to rejoin",
        seconds=1.0,
        services=away,
        cluster=members_awaited(situation),
        events=broken,
    )


# After they are back ------------------------------------


def reassigned(situation: Situation) -> Decision:
    """Allocation is restored; then wait until what the wave took down is back."""
    state, late = situation.state, situation.over(limits.RECOVERY)
    restoring = changes.restore_settings(situation, Purpose.REASSIGN)
    if restoring is not None:
        return _in_time(situation, restoring, "allocation")
    touched = [node for node in state.wave_nodes if node.phase is not NodePhase.PENDING]
    if not touched:
        return note(run_phase(state.phase, Phase.GATED))
    if not situation.fresh:
        return LOOK_AGAIN
    raising = changes.raise_again(situation)
    if raising is not None:
        return raising
    view = situation.view
    unsettled = situation.kind.unsettled(state, view) if view is not None else None
    missing = None
    if view is not None and situation.settled:
        missing = situation.kind.missing(state, view, situation.seen.settings)
    # Waiting does not bring back a failed or skipped node. GATED decides whether the run may continue.
    awaited = (node for node in touched if node.phase not in (NodePhase.FAILED, NodePhase.SKIPPED))
    away = [node.name for node in awaited if situation.member(node.name) is None]
    absent = [*away, *(name for name in situation.absent_members if name not in away)]
    finishing = recover.finish_recovered(situation, missing) if missing is not None else None
    if finishing is not None:
        return finishing
    onwards = () if unsettled or absent else _onwards(situation, missing)
    if onwards:
        return recover.retry_unplaced(situation, onwards) or _agreeing(situation) or note(*onwards)
    failed = admit.failed_and_absent(situation) if missing or unsettled else None
    if failed is not None:
        return failed
    if late is not None:
        names = ", ".join(sorted({str(copy.shard) for copy in missing or ()})[:5])
        what = names or unsettled or ", ".join(absent) or "the cluster cannot be read"
        reason = f"not recovered within {late:.0f} s: {what}"
        return stand_down(state, reason, Outcome.HELD)
    return _recovering(situation, missing, unsettled, absent)


def _in_time(situation: Situation, restoring: Decision, what: str) -> Decision:
    """The actions that restore, within their limit. A setting that was read as restored is never late."""
    refused = refusals.too_long(situation)
    late = situation.over(limits.RESTORING) is not None or refused is not None
    if late and not restoring.at_once:
        known = situation.state.process.refused
        because = refused or (known.refusal.sentence if known is not None else "")
        reason = f"{what} could not be restored yet{f': {because}' if because else ''}"
        return stand_down(situation.state, reason, Outcome.FAILED)
    return restoring


def _onwards(situation: Situation, missing: tuple[ShardCopy, ...] | None) -> tuple[Event, ...]:
    """The next phase: everything is back, or with overlap as much as needed; empty while it is not."""
    state, view = situation.state, situation.view
    if missing is None or view is None:
        return ()
    if not missing:
        news = recover.without_a_place(situation)
        slow = situation.kind.recovered(state, view, situation.seen.settings, situation.now)
        return (*news, *slow, run_phase(state.phase, Phase.SETTLED))
    if recover.is_back_alone(situation, missing):
        why = "its copies have recovered; copies of earlier waves have not"
        return (run_phase(state.phase, Phase.SETTLED, why=why),)
    return recover.makes_room(situation, missing)


def _recovering(
    situation: Situation,
    missing: tuple[ShardCopy, ...] | None,
    unsettled: str | None,
    absent: list[NodeName],
) -> Decision:
    state, now, view = situation.state, situation.now, situation.view
    lacking = "the cluster cannot be read" if missing is None else "copies are missing"
    why = unsettled or (f"{absent[0]} is absent" if absent else lacking)
    broken = (GoodReading(count=0, why=why),) if state.in_phase.good_readings else ()
    if missing is None or view is None:
        return wait(now, "a reading of the cluster", seconds=1.0, events=broken)
    if absent:
        names = ", ".join(absent)
        return wait(now, f"{names} to be back", seconds=1.0, services=absent, events=broken)
    if unsettled:
        return _unsettled(situation, view, unsettled, broken)
    retrying = recover.retry_given_up(situation, missing)
    if retrying is not None:
        return replace(retrying, events=(*broken, *retrying.events))
    given_up = [copy for copy in missing if recover.given_up(copy)]
    active = view.routing.active
    what = f"{len(missing)} shard copies to recover"
    if given_up:
        first = given_up[0]
        what += f"; {first.shard} failed {first.failed_attempts} times (ask _cluster/allocation/explain)"
    pause = pause_after(now - state.in_phase.since)
    until = CopiesActive(count=active + recover.fewest_awaited(state, missing))
    return wait(now, what, seconds=pause, cluster=until, events=broken)


def _unsettled(situation: Situation, view: ClusterView, why: str, broken: tuple[Event, ...]) -> Decision:
    """Wait for what recovers by itself, and make it faster if the playbook wants that."""
    state, now = situation.state, situation.now
    faster, news = situation.kind.hastened(state, view, now)
    events = (*broken, *news)
    pause = RETRY_SECONDS if faster is not None and state.failure_of(faster) else POLL_SECONDS
    if faster is not None and situation.rested(pause):
        return act(faster, events=events)
    return wait(now, why, events=events)


def settled(situation: Situation) -> Decision:
    """The wave is back: its hooks, its figures, then the next wave or the end."""
    state, now = situation.state, situation.now
    nodes = [node for node in state.wave_nodes if node.phase is NodePhase.REJOINED]
    if not situation.fresh:
        return LOOK_AGAIN
    away = ", ".join(node.name for node in nodes if not is_next(Move.FINISH, situation, node))
    if away:
        late = situation.over(limits.SEEN_AGAIN)
        if late is not None:
            return stand_down(state, f"{away}: not seen in the cluster for {late:.0f} s", Outcome.HELD)
        return wait(now, f"{away} to be back", seconds=1.0)
    wave, onwards = state.wave, run_phase(state.phase, Phase.GATED)
    finished = (WaveFinished(number=wave.number, seconds=now - state.wave_since),) if wave else ()
    return recover.finish_with_hooks(situation, nodes, *finished, onwards=(onwards,))


def finishing(situation: Situation) -> Decision:
    """Every node is restarted: restore everything and end."""
    state = situation.state
    restoring = changes.restore_all(situation)
    if restoring is not None:
        return _in_time(situation, restoring, "settings")
    owing = next_to(Move.UNDO, situation)
    hooks = recover.hooks_after(situation, owing)
    if hooks is not None:
        return hooks
    failed = recover.failed_hook(situation)
    if failed is not None:
        return recover.stand_down_for(situation, failed)
    lost = _lost_stop_awaited(situation)
    if lost is not None:
        return lost
    skipped = state.nodes_in(NodePhase.SKIPPED)
    not_admitted = [f"{node.name} was skipped: {node.failure}" for node in skipped if node.failure]
    outcome = Outcome.HELD if not_admitted else Outcome.DONE
    message = f"skipped: {', '.join(node.name for node in skipped)}" if skipped else ""
    upgraded = (upgrade.mixed(situation), upgrade.archived(situation))
    said = ("; ".join(not_admitted) or message, situation.kind.shortfall(state, situation.view), *upgraded)
    message = "; ".join(text for text in said if text)
    return note(run_phase(state.phase, Phase.ENDED), _ended(situation, outcome, message))


# Standing down ------------------------------------


def standing_down(situation: Situation) -> Decision:
    """Nodes were started (`_moves`, with the goal to bring up); now everything else, and the end.

    The order: nodes; a master; allocation; other settings and exclusions; `after_recovery` hooks of nodes
    whose `before_stop` ran. The lease is released last, with the run. A node that stays down is FAILED, and
    delays nothing after it. A deposed run restores nothing: the other run now restores its changes.
    """
    state, policy, now = situation.state, situation.policy, situation.now
    if not situation.fresh:
        return LOOK_AGAIN
    # Unlike in a wave, one reading is enough: a stand-down does not wait for several that agree.
    back = [rejoined(situation, node) for node in next_to(Move.REJOIN, situation)]
    if back:
        return note(*back)
    if state.process.deposed is None and refusals.too_long(situation) and not _unstarted(situation):
        return _undo(situation, late=True) or _lost_stop_awaited(situation) or _end(situation)
    awaited = _awaited(situation)
    starting = [node.name for node in state.nodes_in(*GOING_UP_OR_DOWN) if not _theirs(state, node)]
    overdue = _withheld_too_long(situation) is not None
    if awaited and state.process.second_failure is None and not overdue:
        # Nodes come before allocation: copies that return need not be rebuilt elsewhere.
        names = ", ".join(awaited)
        return wait(
            now, f"{names} to be back", seconds=1.0, services=awaited, cluster=members_awaited(situation)
        )
    if state.process.deposed is not None:
        return _end(situation)
    late = situation.over(limits.STANDING_DOWN) is not None
    if situation.view is None and (state.unrestored.anything or state.in_turn):
        if late:
            return _end(situation)
        whom = "a node that answers" if policy.kind is Kind.RIAK else "a master"
        return wait(now, whom, seconds=1.0, cluster=MasterElected())
    restoring = changes.restore_all(situation)
    if restoring is not None and (restoring.at_once or not late):
        return restoring
    if starting and restoring is None and not overdue:
        return wait(now, f"{', '.join(starting)} to be back", seconds=1.0, services=starting)
    return _undo(situation, late=late) or _lost_stop_awaited(situation) or _end(situation)


def _undo(situation: Situation, *, late: bool) -> Decision | None:
    """The `after_recovery` hooks that are due; after the limit, also for nodes that were not seen back."""
    owing = [node for node in situation.state.nodes.of(Mark.UNDOES) if node.phase not in MAY_BE_DOWN]
    seen = [node for node in owing if late or is_next(Move.UNDO, situation, node)]
    hooks = recover.hooks_after(situation, seen)
    if hooks is not None:
        return hooks
    unseen = [node.name for node in owing if node not in seen]
    return wait(situation.now, f"{', '.join(unseen)} to be back", seconds=1.0) if unseen else None


def _lost_stop_awaited(situation: Situation) -> Decision | None:
    """The last wait of a run."""
    lost = late_stop.awaited(situation)
    if not lost:
        return None
    what = f"a stop of {', '.join(lost)} whose connection was lost and which may still be done"
    return wait(situation.now, what, services=lost)


def _theirs(state: RunState, node: NodeProgress) -> bool:
    return state.process.deposed is not None and node.name in state.process.deposed.in_hand


def _awaited(situation: Situation) -> list[NodeName]:
    """Nodes for which allocation waits: nodes that are back wait for no node whose time is over."""
    state = situation.state
    nodes = [node for node in state.nodes.values() if not _theirs(state, node)]
    back = any(node.phase is NodePhase.REJOINED for node in nodes)
    down = state.process.standing_down
    passed_over = down.overdue if back and down else ()
    return [n.name for n in nodes if n.phase in GOING_UP_OR_DOWN and n.name not in passed_over]


def _withheld_too_long(situation: Situation) -> Seconds | None:
    """How long allocation has been disabled, if too long: then it is restored, even during a wave."""
    since = situation.state.unrestored.withheld_since
    late = since is not None and situation.over(limits.WITHHELD) is not None
    return situation.now - since if since is not None and late else None


def _unstarted(situation: Situation) -> list[NodeName]:
    """Nodes whose service is not seen to run, or may still stop: a start needs no answer of the cluster."""
    state, hosts = situation.state, situation.hosts
    ours = [node for node in state.nodes_in(*GOING_UP_OR_DOWN) if not _theirs(state, node)]
    settled = [
        node.name for node in ours if not late_stop.may_still_stop(situation, node, sight(situation, node))
    ]
    up = {name for name in settled if name in hosts and hosts[name].service is ServiceState.RUNNING}
    return [node.name for node in ours if node.name not in up]


_EXIT: Final = {
    Outcome.DONE: ExitCode.DONE,
    Outcome.RESTORED: ExitCode.DONE,
    Outcome.HELD: ExitCode.HELD,
    Outcome.FAILED: ExitCode.FAILED,
    Outcome.INTERRUPTED: ExitCode.INTERRUPTED,
    Outcome.PAUSED: ExitCode.PAUSED,
    Outcome.NOT_RESTORED: ExitCode.NOT_RESTORED,
    Outcome.DEPOSED: ExitCode.LEASED,
}


def exit_code_of(outcome: Outcome) -> ExitCode:
    """The exit code of an outcome."""
    return _EXIT[outcome]


def _ended(situation: Situation, outcome: Outcome, message: str) -> RunFinished:
    return RunFinished(
        outcome=outcome,
        exit_code=int(_EXIT[outcome]),
        seconds=situation.now - situation.state.process.started,
        message=message,
    )


def _end(situation: Situation) -> Decision:
    state = situation.state
    left = texts(left_over(state, running=situation.hosts.keys() - set(_unstarted(situation))))
    failed = state.nodes_in(NodePhase.FAILED)
    down = state.process.standing_down
    outcome, reason = (down.outcome, down.reason) if down else (Outcome.RESTORED, "")
    if state.process.deposed is not None:
        outcome = Outcome.DEPOSED
    hook = recover.failed_hook(situation)
    if left:
        outcome = Outcome.NOT_RESTORED
    elif (failed or hook) and outcome is not Outcome.DEPOSED:
        outcome = Outcome.FAILED
    # The reason of a stand-down is often the failure of the node or hook itself: mention it once.
    said = down.failed if down else ()
    others = {node.name: node.failure or "" for node in failed if node.name not in said}
    also = [f"{', '.join(names)}: {why}" for why, names in by_same_reason(others.items()).items()]
    out = ", ".join(node.name for node in failed if node.undo and outcome is not Outcome.DEPOSED)
    unserved = f"after_recovery hooks did not run on {out}" if out else ""
    of_hook = "" if hook is None or (down and hook.node == down.hook_on) else hook.sentence
    message = "; ".join(text for text in (reason, *also, unserved, of_hook) if text)
    return note(
        StoodDown(outcome=outcome, left=left),
        run_phase(state.phase, Phase.ENDED),
        _ended(situation, outcome, message),
    )


STEPS: Final[Mapping[Phase, Step]] = {
    Phase.PREPARING: preparing,
    Phase.GATED: gated,
    Phase.WITHHELD: withheld,
    Phase.DOWN: down,
    Phase.REJOINED: rejoining,
    Phase.REASSIGNED: reassigned,
    Phase.SETTLED: settled,
    Phase.FINISHING: finishing,
    Phase.STANDING_DOWN: standing_down,
}
"""The next step in each phase of the core; a run that has ended has none."""
