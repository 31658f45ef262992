"""decide(state, observation, now) -> Decision: what a run does next. Pure; asked again after every step.

Two lists of rules, at the end of this module: `RULES`, and `ENDING` for a run that stands down. The first
rule that answers decides, so their order is the order of urgency: another run that took over, a node of ours
that is absent, a second failure, a request to stop; then every node's own move (`node.turn`); then the phase
of the run. Only stops need predicates; nothing here holds a start or a restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from orchestrator.engine import admit, changes, ending, late_stop, limits, recover, refusals, stop, upgrade
from orchestrator.engine.clock import UNWATCHED_SECONDS
from orchestrator.engine.every_kind import not_listed
from orchestrator.engine.grid import Move, Sight
from orchestrator.engine.kind import KindOfCluster, Row, Rule
from orchestrator.engine.node import is_next, rejoined, stirring, turn
from orchestrator.engine.phases import READS
from orchestrator.engine.progress import GOING_UP_OR_DOWN, MAY_BE_DOWN, Mark, NodeProgress
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    POLL_SECONDS,
    QUICK_SECONDS,
    RETRY_SECONDS,
    Decision,
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
from orchestrator.errors import SafetyViolation
from orchestrator.formats import duration, listed
from orchestrator.model.action import Purpose, StopNode
from orchestrator.model.cluster import NodeName, ShardCopy
from orchestrator.model.event import (
    Event,
    GoodReading,
    MembersMissed,
    Rescued,
    SecondFailure,
    StoodStill,
    WaveFinished,
    WorkDone,
    asked_to_stop,
    run_phase,
)
from orchestrator.model.observation import ClusterView, CopiesActive, Observation, ServiceState
from orchestrator.model.phase import Goal, NodePhase, Outcome, Phase, Request, Work
from orchestrator.model.reading import Instant, Unknown

_WATCHED: Final = frozenset(Phase) - {Phase.MERGING, Phase.MERGED, Phase.ENDED}
"""Phases in which nodes may go down by this run. While indices are merged, it has stopped none yet."""

_TURNING: Final = _WATCHED - {Phase.PREPARING}
"""Phases in which nodes make their moves: merges come before the first of them."""

_NOTHING_DOWN: Final = frozenset({Phase.PREPARING, Phase.MERGING, Phase.MERGED, Phase.GATED})
"""A wave may be chosen there, and its `before_stop` hooks may have run; none of it is stopped."""


def decide(kind: KindOfCluster, state: RunState, observation: Observation, now: Instant) -> Decision:
    """The next step, from what is known and nothing else: the first rule that answers.

    Args:
        kind: of its cluster.
        state: of the run.
        observation: one reading of the world.
        now: by the clock of the orchestrator.

    Raises:
        SafetyViolation: the state is of no run, or verbs are under way whose outcome is not recorded.
    """
    if state.begun is NOT_BEGUN:
        raise SafetyViolation("a run that has not begun cannot be decided on")
    if state.process.in_flight:
        raise SafetyViolation(f"outcomes are not recorded: {state.process.in_flight}")
    if state.phase is Phase.ENDED:
        return Decision()
    before = Situation(state=state, policy=state.begun.policy, kind=kind, seen=observation, now=now)
    news = _news(before) if before.fresh else ()
    situation = before.after(*news)
    answers = (rule(situation) for rule in _rules(situation.state.phase, kind.rules))
    decision = next((answer for answer in answers if answer is not None), None)
    if decision is None:
        raise SafetyViolation(f"no rule decides in {state.phase.value}")
    return replace(decision, events=(*news, *decision.events)) if news else decision


@cache
def _rules(phase: Phase, of_kind: tuple[Row, ...]) -> tuple[Rule, ...]:
    if phase is Phase.STANDING_DOWN:
        return ENDING
    return tuple(rule for phases, rule in (*RULES, *of_kind, DONE) if phase in phases)


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
    still = StoodStill(nodes=names, seconds=at - before - UNWATCHED_SECONDS, read=at)
    return (still,) if counts else ()


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


def deposed(situation: Situation) -> Decision | None:
    """Another run took the lease over."""
    state, other = situation.state, situation.state.process.deposed
    if other is None:
        return None
    successor = f"run {other.successor} of {other.owner}"
    reason = f"{successor} took the lease over: it restores the remaining changes"
    return stand_down(state, reason, Outcome.DEPOSED)


def taken_down_late(situation: Situation) -> Decision | None:
    """Nodes that a lost stop took down after all."""
    state = situation.state
    if not situation.fresh:
        return None
    nodes = ((node, sight(situation, node)) for node in stirring(situation))
    late = [node for node, found in nodes if late_stop.took_down(situation, node, found)]
    return note(*late_stop.joined(state, late)) if late else None


def second_failure(situation: Situation) -> Decision | None:
    """Something outside the wave failed while nodes of ours are down or recover."""
    failure = _second_failure(situation)
    if failure is None:
        return None
    reason = f"a second failure: {failure}"
    return stand_down(situation.state, reason, Outcome.FAILED, SecondFailure(what=failure))


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
            names = sorted(ours | recovering)
            were = "was" if len(names) == 1 else "were"
            return f"node {left[0]} left the cluster while {listed(names)} {were} away or recovering"
    if state.phase is not Phase.REASSIGNED:
        return None
    red = recover.red(situation)
    return f"{red[0]} has no started copy" if red else None


def _by_lost_stop(situation: Situation, name: NodeName) -> bool:
    node = situation.state.nodes.get(name)
    return node is not None and late_stop.explains(situation, node, situation.seen.at)


def version_missed(situation: Situation) -> Decision | None:
    """A node came back without the version that its install steps were to install."""
    missed = upgrade.missed(situation)
    if missed is None:
        return None
    without = f" without {', '.join(missed.lacks)}" if missed.lacks else ""
    found = f"{missed.node} came back with {missed.version}{without}"
    reason = f"{found}, though its install steps ended well: {missed.wanted} was to be installed"
    return stand_down(situation.state, reason, Outcome.FAILED, missed)


def stop_requested(situation: Situation) -> Decision | None:
    """A person asked this run to stop."""
    state = situation.state
    if state.process.request not in (Request.STOP, Request.INTERRUPT):
        return None
    reason = asked_to_stop(state.process.requested_by) + state.merges_left
    return stand_down(state, reason, Outcome.INTERRUPTED)


def out_of_time(situation: Situation) -> Decision | None:
    """`--timeout` ran out."""
    state, timeout = situation.state, situation.over(limits.TIMEOUT)
    if timeout is None:
        return None
    reason = f"--timeout of {duration(timeout)} ran out{state.merges_left}"
    return stand_down(state, reason, limits.TIMEOUT.ends)


def access_refused(situation: Situation) -> Decision | None:
    """The cluster has refused the credentials for too long."""
    refused = refusals.too_long(situation)
    return None if refused is None else stand_down(situation.state, refused, limits.REFUSED.ends)


def disabled_too_long(situation: Situation) -> Decision | None:
    """Allocation has been disabled for too long."""
    state, withheld_for = situation.state, ending.withheld_too_long(situation)
    if withheld_for is None:
        return None
    rebuilds = ", as far as forced awareness lets it" if situation.policy.awareness.forced else ""
    held = f"what the nodes that are down hold{rebuilds}"
    then = f"it is enabled now, and the cluster rebuilds elsewhere {held}"
    lost = state.process.refused
    now_or_later = then if lost is None else f"it cannot be enabled, {lost.refusal.sentence}"
    reason = f"allocation was disabled for {duration(withheld_for)}: {now_or_later}"
    return stand_down(state, reason, limits.WITHHELD.ends)


def pause(situation: Situation) -> Decision | None:
    """A pause, by request or for the canary: before the next wave, after recoveries and merges."""
    state, policy = situation.state, situation.policy
    if state.recovering or state.merging.in_progress or (state.phase is Phase.SETTLED and state.wave):
        return None
    if not state.nodes_in(NodePhase.PENDING) and not state.merging.pending:
        return None
    if state.process.request is Request.PAUSE:
        return stand_down(state, f"asked to pause by {state.process.requested_by}", Outcome.PAUSED)
    done = state.recovered
    if policy.pause_after is not None and not state.paused and done >= policy.pause_after:
        nodes = "node" if done == 1 else "nodes"
        return stand_down(state, f"paused after {done} {nodes}, as asked", Outcome.PAUSED)
    return None


def stale(situation: Situation) -> Decision | None:
    """The reading is older than the last action of the run: what follows needs a new one."""
    return None if situation.fresh else LOOK_AGAIN


def node_moves(situation: Situation) -> Decision | None:
    """Every node's own move. A reading with red shards of ours changes the goal of the wave first."""
    state = situation.state
    if not situation.fresh:
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


# While nodes are down ------------------------------------


def none_stopped(situation: Situation) -> Decision | None:
    """Every stop of the wave was refused, or was not done: the wave is called off."""
    state = situation.state
    if _touched(state):
        return None
    stops = (one for one in state.in_phase.failed if isinstance(one.action, StopNode))
    reason = next((one.reason for one in stops if not one.in_doubt), "the same lives")
    return note(run_phase(state.phase, Phase.REASSIGNED, why=f"no node was stopped: {reason}"))


def _touched(state: RunState) -> list[NodeProgress]:
    return [node for node in state.wave_nodes if node.phase is not NodePhase.PENDING]


def all_run(situation: Situation) -> Decision | None:
    """Every node of the wave made its move, and runs again."""
    state = situation.state
    if all(_runs(situation, node) for node in _touched(state)):
        return note(run_phase(state.phase, Phase.REJOINED))
    return None


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


def await_services(situation: Situation) -> Decision:
    """Listen to the hosts of the wave; once one starts, to the cluster as well."""
    nodes = _touched(situation.state)
    starting = any(node.phase is NodePhase.STARTING for node in nodes)
    return wait(
        situation.now,
        services=[node.name for node in nodes],
        cluster=members_awaited(situation) if starting else None,
    )


def await_members(situation: Situation) -> Decision:
    """Started; wait until the master lists every node in a new life, in several readings that agree."""
    state = situation.state
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
    named = [*away, *(f"{name} ({what})" for name, what in lacking.items())] or [
        "a reading that is not stale"
    ]
    names = listed(named)
    if late is not None:
        reason = f"{names}: not back in the cluster within {duration(late)}"
        return stand_down(state, reason, limits.REJOIN.ends, overdue=[*away, *lacking])
    broken = (GoodReading(count=0, why=f"{names} not back"),) if state.in_phase.good_readings else ()
    return wait(
        now,
        f"{listed(named, 3)} to join the cluster",
        seconds=1.0,
        services=away,
        cluster=members_awaited(situation),
        events=broken,
    )


# After they are back ------------------------------------


def enable_allocation_in_time(situation: Situation) -> Decision | None:
    """After the wave allocation is restored first, within a limit."""
    restoring = changes.restore_settings(situation, Purpose.REASSIGN)
    return None if restoring is None else ending.in_time(situation, restoring, "allocation")


def called_off(situation: Situation) -> Decision | None:
    """No node of the wave was stopped: the next one is chosen."""
    state = situation.state
    return None if _touched(state) else note(run_phase(state.phase, Phase.GATED))


def await_copies(situation: Situation) -> Decision:
    """Wait until what the wave took down is back."""
    state, late, view = situation.state, situation.over(limits.RECOVERY), situation.view
    unsettled = situation.kind.unsettled(state, view) if view is not None else None
    missing = None
    if view is not None and situation.settled:
        missing = situation.kind.missing(state, view, situation.seen.settings)
    # Waiting does not bring back a failed or skipped node. GATED decides whether the run may continue.
    given_up = (NodePhase.FAILED, NodePhase.SKIPPED)
    awaited = (node for node in _touched(state) if node.phase not in given_up)
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
        reason = f"not recovered within {duration(late)}: {what}"
        return stand_down(state, reason, limits.RECOVERY.ends)
    return _recovering(situation, missing, unsettled, absent)


def _onwards(situation: Situation, missing: tuple[ShardCopy, ...] | None) -> tuple[Event, ...]:
    """The next phase: everything is back, or with overlap as much as needed; empty while it is not."""
    state, view = situation.state, situation.view
    if missing is None or view is None:
        return ()
    if not missing:
        news = recover.without_a_place(situation)
        slow = situation.kind.recovered(state, view, situation.seen.settings, situation.now)
        said = () if slow is None else (slow,)
        return (*news, *said, run_phase(state.phase, Phase.SETTLED))
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
        return wait(now, f"{listed(absent)} to be back", seconds=1.0, services=absent, events=broken)
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


def finish_wave(situation: Situation) -> Decision:
    """The wave is back: its hooks, its figures, then the next wave or the end."""
    state, now = situation.state, situation.now
    nodes = [node for node in state.wave_nodes if node.phase is NodePhase.REJOINED]
    away = [node.name for node in nodes if not is_next(Move.FINISH, situation, node)]
    if away:
        return recover.await_seen_again(situation, away)
    wave, onwards = state.wave, run_phase(state.phase, Phase.GATED)
    finished = (WaveFinished(number=wave.number, seconds=now - state.wave_since),) if wave else ()
    return recover.finish_with_hooks(situation, nodes, *finished, onwards=(onwards,))


# Which rule decides ------------------------------------

_ALL: Final = frozenset(Phase)
_BEFORE_THE_END: Final = _ALL - {Phase.FINISHING}

RULES: Final[tuple[Row, ...]] = (
    # What goes before the phase
    (_ALL, deposed),
    (_WATCHED, taken_down_late),
    (_ALL, second_failure),
    (_ALL, version_missed),
    # Once all nodes are restarted, the rest is the same as in a stand-down.
    (_BEFORE_THE_END, stop_requested),
    (_BEFORE_THE_END, out_of_time),
    (_BEFORE_THE_END, access_refused),
    (_BEFORE_THE_END, disabled_too_long),
    (_NOTHING_DOWN | {Phase.SETTLED}, pause),
    (_TURNING, node_moves),
    # Before a stop
    ((Phase.PREPARING, Phase.GATED), stop.enable_allocation),
    ((Phase.PREPARING,), stop.nothing_to_restart),
    ((Phase.PREPARING,), stop.unfit_to_begin),
    ((Phase.PREPARING,), stop.record_baseline),
    ((Phase.PREPARING, Phase.GATED), stop.probe_settings),
    ((Phase.PREPARING,), stop.begin),
    ((Phase.GATED,), stop.finish_outside),
    ((Phase.GATED,), recover.before_the_next),
    ((Phase.GATED,), stop.cannot_begin),
    ((Phase.GATED,), stop.await_doubt),
    ((Phase.GATED,), stop.no_node_left),
    ((Phase.GATED,), stop.admit_wave),
    # After the wave allocation is restored first, whatever the reading shows.
    ((Phase.REASSIGNED,), enable_allocation_in_time),
    ((Phase.REASSIGNED,), called_off),
    ((Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.REASSIGNED, Phase.SETTLED), stale),
    ((Phase.WITHHELD,), stop.not_written),
    ((Phase.WITHHELD,), stop.flush),
    ((Phase.WITHHELD,), stop.stop_or_call_off),
    # While nodes are down
    ((Phase.DOWN,), none_stopped),
    ((Phase.DOWN,), all_run),
    ((Phase.DOWN,), await_services),
    ((Phase.REJOINED,), await_members),
    # After they are back
    ((Phase.REASSIGNED,), changes.raise_again),
    ((Phase.REASSIGNED,), await_copies),
    ((Phase.SETTLED,), finish_wave),
    # Every node is restarted
    ((Phase.FINISHING,), ending.restore_in_time),
    ((Phase.FINISHING,), ending.hooks_of_all),
    ((Phase.FINISHING,), ending.hook_failed),
    ((Phase.FINISHING,), ending.lost_stop_awaited),
)
"""The rules of a run and the phases in which each is asked; the first that answers decides."""

DONE: Final[Row] = ((Phase.FINISHING,), ending.done)
"""The last rule of a run."""

ENDING: Final[tuple[Rule, ...]] = (
    taken_down_late,
    node_moves,
    stale,
    ending.back_again,
    ending.end_without_access,
    ending.await_nodes,
    ending.leave_to_successor,
    ending.await_a_reading,
    ending.restore,
    ending.await_starts,
    ending.undo,
    ending.lost_stop_awaited,
    ending.end,
)
"""The rules of a run that stands down, in their order.

Nodes, which are started whatever else is; a master; allocation; other settings and exclusions;
`after_recovery` hooks of nodes whose `before_stop` ran. The lease is released last, with the run. A node that
stays down is FAILED, and delays nothing after it. A deposed run restores nothing: its successor does.
"""
