"""The state of a run: legal steps and no others, owed work, doubts, and what a new process begins with."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine.fold import evolve, owed_by, replay
from orchestrator.engine.phases import MAY_WAIT_WITHHELD, NODE_STEPS, NODE_STEPS_BY_COMMAND, READS, RUN_STEPS
from orchestrator.engine.progress import FINAL_NODE_PHASES, NodeProgress
from orchestrator.engine.state import Absence, RunState
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import Action, Moment, RebootHost, RunHook, StartNode, StopNode
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    BaselineRecorded,
    Event,
    IndexTaken,
    MembersMissed,
    NotWaitedFor,
    PhaseEntered,
    Record,
    RedExcused,
    Requested,
    Rescued,
    RestoreBegun,
    RunResumed,
    StoodStill,
    TakenDown,
    WaveFinished,
    WaveStarted,
    WorkDone,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import MissingCopy
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.model.turn import REBOOT, RESTART, TUNING, Doubt, Goal, Owed, Verb, Work
from orchestrator.runs.simulated import Simulation
from tests.simulation.play import cluster, policy
from tests.states import state_with

ES1, ES2 = NodeName("es1"), NodeName("es2")
AT: Final = 1_000_001.0
RESUMED = RunResumed(operator="ann", host="b")
TWO = Hooks(
    before_stop=(Hook(run="a"),),
    while_stopped=(Hook(run="d"), Hook(run="e")),
    after_recovery=(Hook(run="b {node}"), Hook(run="c {node}")),
)
HOOKS = frozenset({Owed(work=Work.HOOK), Owed(work=Work.HOOK, number=1)})
UNDO = frozenset({Owed(work=Work.UNDO), Owed(work=Work.UNDO, number=1)})


def _state(**changes: object) -> RunState:
    return Simulation(cluster(3)).begin(policy(**changes))


def _after(state: RunState, *events: Event, at: float = AT) -> RunState:
    for event in events:
        state = evolve(state, Record(run=state.run, sequence=1, at=at, event=event))
    return state


def _with(state: RunState, name: str = ES1, **fields: object) -> RunState:
    node: NodeProgress = replace(state.nodes[NodeName(name)], **fields)
    return replace(state, nodes=state.nodes.changed(node))


def _done(state: RunState, action: Action, *, at: float = AT) -> RunState:
    return _after(state, ActionSent(action=action), ActionConfirmed(action=action), at=at)


def _hook(moment: Moment, number: int) -> RunHook:
    return RunHook(node=ES1, moment=moment, number=number, hook=Hook(run="x"))


# Legal steps ---------------------------------------------------------------------------------------------


def test_a_step_of_a_run_is_in_the_table_or_changes_nothing() -> None:
    state, wrong = _state(), []
    for old, new in itertools.product(Phase, Phase):
        before = replace(state, phase=old)
        try:
            entered = _after(before, run_phase(old, new)).phase is new
        except SafetyViolation as said:
            entered = False
            wrong += [] if old.value in str(said) and before == replace(state, phase=old) else [(old, new)]
        wrong += [] if entered is (new in RUN_STEPS[old]) else [(old, new)]
    assert wrong == []


def test_a_step_of_a_node_is_in_the_table_or_changes_nothing() -> None:
    state, wrong = _state(), []
    for old, new in itertools.product(NodePhase, NodePhase):
        before = _with(state, phase=old)
        try:
            entered = _after(before, node_phase(ES1, old, new)).nodes[ES1].phase is new
        except SafetyViolation as said:
            entered = False
            wrong += [] if "es1" in str(said) and before == _with(state, phase=old) else [(old, new)]
        wrong += [] if entered is (new in NODE_STEPS[old]) else [(old, new)]
    assert wrong == []


def test_the_tables_name_every_phase_and_lead_to_the_end() -> None:
    assert set(RUN_STEPS) == set(READS) == set(Phase)
    assert set(NODE_STEPS) == set(NodePhase)
    for phase in set(Phase) - {Phase.ENDED, Phase.STANDING_DOWN}:
        assert Phase.STANDING_DOWN in RUN_STEPS[phase], f"no way to stand down from {phase}"
    assert RUN_STEPS[Phase.ENDED] == frozenset()
    assert frozenset({NodePhase.RECOVERED, NodePhase.SKIPPED}) == FINAL_NODE_PHASES
    before_recovered = {old for old in NodePhase if NodePhase.RECOVERED in NODE_STEPS[old]}
    assert before_recovered == {NodePhase.REJOINED}
    assert {old for old in NodePhase if NodePhase.STOPPING in NODE_STEPS[old]} == {NodePhase.PENDING}


def test_allocation_may_be_off_only_around_a_stop() -> None:
    assert frozenset({Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.STANDING_DOWN}) == MAY_WAIT_WITHHELD


def test_a_phase_without_a_name_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        _after(_state(), PhaseEntered(from_="gated", to="sideways"))


def test_a_replay_is_a_fold() -> None:
    simulation = Simulation(cluster(3))
    state = simulation.begin(policy())
    assert replay(simulation.run, simulation.journal.records) == state
    assert replay(simulation.run, simulation.journal.records[:1]) != replay(simulation.run, [])


def test_only_a_stronger_request_replaces_another() -> None:
    state = _after(_state(), Requested(request=Request.STOP, by="ann"))
    assert _after(state, Requested(request=Request.PAUSE, by="bob")).process.request is Request.STOP
    assert _after(state, Requested(request=Request.INTERRUPT, by="bob")).process.request is Request.INTERRUPT


# Owed work -----------------------------------------------------------------------------------------------


def test_work_is_owed_from_the_start_and_later_as_undo_alone() -> None:
    """No event of any kind adds another item: undo comes with a stop, or with a hook before it."""
    state = _state(hooks=TWO, reboot=True)
    assert state.nodes[ES1].owed == {RESTART, REBOOT, *HOOKS} == owed_by(state.begun.policy)
    stop = _after(state, ActionSent(action=StopNode(node=ES1))).nodes[ES1]
    assert stop.owed - state.nodes[ES1].owed == UNDO
    out = _after(state, ActionSent(action=_hook(Moment.BEFORE_STOP, 0))).nodes[ES1]
    assert out.owed - state.nodes[ES1].owed == UNDO
    assert out.ready_since == AT
    repairing = _state(hooks=TWO)
    repaired = _after(RunState(run="run-1"), replace(repairing.begun, repairs="run-0"))
    assert repaired.nodes[ES1].owed == frozenset(), "its turn is the other run's to finish, the restart too"


def test_owed_work_leaves_by_evidence_alone() -> None:
    state = _with(_state(hooks=TWO), owed=frozenset({RESTART, REBOOT, TUNING}) | HOOKS | UNDO)
    owed = state.nodes[ES1].owed
    starting = _with(state, phase=NodePhase.STARTING)
    leaves: list[tuple[str, RunState, frozenset[Owed]]] = [
        ("a start", _done(state, StartNode(node=ES1)), frozenset()),
        ("a stop", _done(state, StopNode(node=ES1)), frozenset()),
        ("a reboot that was sent", _done(state, RebootHost(node=ES1)), frozenset()),
        ("another boot", _after(state, WorkDone(node=ES1, work=Work.REBOOT, why="")), frozenset({REBOOT})),
        ("tuned", _after(state, WorkDone(node=ES1, work=Work.TUNING, why="")), frozenset({TUNING})),
        (
            "a hook that was sent",
            _after(state, ActionSent(action=_hook(Moment.WHILE_STOPPED, 0))),
            frozenset(),
        ),
        (
            "a hook that failed",
            _after(state, ActionFailed(action=_hook(Moment.WHILE_STOPPED, 0), reason="1", in_doubt=False)),
            frozenset(),
        ),
        (
            "a hook that ended well",
            _done(state, _hook(Moment.WHILE_STOPPED, 1)),
            frozenset({Owed(work=Work.HOOK, number=1)}),
        ),
        ("undone", _done(state, _hook(Moment.AFTER_RECOVERY, 0)), frozenset({Owed(work=Work.UNDO)})),
        (
            "another life",
            _after(starting, node_phase(ES1, NodePhase.STARTING, NodePhase.REJOINED)),
            frozenset({RESTART}),
        ),
        ("a new process", _after(state, RESUMED), frozenset()),
        ("restore", _after(state, RestoreBegun(operator="ann", host="b")), frozenset()),
    ]
    wrong = [what for what, after, gone in leaves if owed - after.nodes[ES1].owed != gone]
    assert wrong == []


def test_a_node_is_ready_for_its_stop_until_its_hooks_are_undone() -> None:
    out = _done(_state(hooks=TWO), _hook(Moment.BEFORE_STOP, 0))
    assert out.nodes[ES1].ready == {0}
    half = _done(out, _hook(Moment.AFTER_RECOVERY, 0))
    assert (half.nodes[ES1].ready, half.nodes[ES1].ready_since, half.nodes[ES1].undo) == (
        frozenset(),
        AT,
        (1,),
    )
    back = _done(half, _hook(Moment.AFTER_RECOVERY, 1)).nodes[ES1]
    assert (back.ready, back.ready_since, back.undo) == (frozenset(), None, ())


def test_returns_with_work_owed_are_counted_for_one_attempt() -> None:
    back = _with(_state(), phase=NodePhase.REJOINED)
    again = _after(back, node_phase(ES1, NodePhase.REJOINED, NodePhase.PENDING))
    assert again.nodes[ES1].returns == 1
    assert _after(again, RESUMED).nodes[ES1].returns == 0
    undone = _with(_state(), phase=NodePhase.STOPPING)
    undone = _after(undone, node_phase(ES1, NodePhase.STOPPING, NodePhase.PENDING))
    assert undone.nodes[ES1].returns == 0, "a stop that was never done is no return"


# Goals, tries and doubts ---------------------------------------------------------------------------------


def test_what_is_sent_is_under_way_until_its_outcome_is_recorded() -> None:
    start = StartNode(node=ES1, counts=True)
    sent = _after(_state(), ActionSent(action=start))
    assert (sent.process.in_flight, sent.nodes[ES1].start_sent, sent.process.acted_at) == ((start,), AT, AT)
    done = _after(sent, ActionConfirmed(action=start))
    assert (done.process.in_flight, done.nodes[ES1].tries) == ((), 1)
    failed = _after(sent, ActionFailed(action=start, reason="sudo", in_doubt=False))
    assert (failed.process.in_flight, failed.nodes[ES1].tries) == ((), 1)
    assert failed.failure_of(start) is not None
    lost = _after(sent, ActionFailed(action=start, reason="lost", in_doubt=True))
    assert lost.nodes[ES1].tries == 0, "nobody answered"
    barred = _after(sent, ActionFailed(action=start, reason="not sent", in_doubt=False, unsent=True))
    assert barred.nodes[ES1].tries == 0, "no host was told to start it"
    reboot = RebootHost(node=ES1)
    unsent = ActionFailed(action=reboot, reason="not sent", in_doubt=False, unsent=True)
    assert _done(_state(), reboot).nodes[ES1].reboots == 1
    assert _after(_state(), ActionSent(action=reboot), unsent).nodes[ES1].reboots == 0
    other = StartNode(node=ES1)
    assert _done(_state(), other).nodes[ES1].tries == 0, "its process was not seen to be gone"


def test_a_verb_fails_since_its_first_failure_in_a_row() -> None:
    hook = RunHook(node=ES1, moment=Moment.BEFORE_STOP, number=0, hook=Hook(run="a"))
    state = _with(_state(), ready_since=AT - 900.0, since=AT - 900.0)
    for at in (AT, AT + 7.0):
        sent = _after(state, ActionSent(action=hook), at=at)
        state = _after(sent, ActionFailed(action=hook, reason="out of reach", in_doubt=False), at=at)
    assert state.failing_since(hook) == AT
    well = _after(_after(state, ActionSent(action=hook)), ActionConfirmed(action=hook))
    assert well.failing_since(hook) is None
    assert _after(state, RESUMED, at=AT + 9.0).failing_since(hook) is None


def test_a_verb_is_in_doubt_until_refused_or_its_effect_is_seen() -> None:
    stop = StopNode(node=ES1)
    sent = _with(_after(_state(), ActionSent(action=stop)), phase=NodePhase.STOPPING)
    lost = Doubt(verb=Verb.STOP, since=AT)
    accepted = replace(lost, accepted=True, heard=True)
    gone = node_phase(ES1, NodePhase.STOPPING, NodePhase.STOPPED)
    confirmed = _after(sent, ActionConfirmed(action=stop))
    reboot = RebootHost(node=ES1, also=(ES2,))
    both = _done(_state(), reboot)
    refused = ActionFailed(action=reboot, reason="sudo", in_doubt=False)
    found = [
        ("sent", sent.nodes[ES1].doubt, lost),
        ("accepted", confirmed.nodes[ES1].doubt, accepted),
        ("lost", _after(sent, ActionFailed(action=stop, reason="?", in_doubt=True)).nodes[ES1].doubt, lost),
        (
            "refused",
            _after(sent, ActionFailed(action=stop, reason="?", in_doubt=False)).nodes[ES1].doubt,
            None,
        ),
        ("accepted and gone", _after(confirmed, gone).nodes[ES1].doubt, None),
        ("lost and gone: it may still arrive", _after(sent, gone).nodes[ES1].doubt, lost),
        ("a reboot is for the whole machine", both.nodes[ES2].doubt, replace(accepted, verb=Verb.REBOOT)),
        (
            "in another boot",
            _after(both, WorkDone(node=ES2, work=Work.REBOOT, why="")).nodes[ES2].doubt,
            None,
        ),
        ("a refused reboot", _after(_state(), ActionSent(action=reboot), refused).nodes[ES2].doubt, None),
        (
            "a stop that was accepted is not ended by a reboot being done",
            _after(confirmed, WorkDone(node=ES1, work=Work.TUNING, why="")).nodes[ES1].doubt,
            accepted,
        ),
    ]
    assert [what for what, is_, wanted in found if is_ != wanted] == []


def test_a_doubt_begins_again_with_a_new_process() -> None:
    limit = policy().deadlines.stop
    for ago, accepted, kept in ((5.0, False, True), (limit + 1, False, False), (limit + 1, True, True)):
        for phase in (NodePhase.PENDING, NodePhase.STOPPED, NodePhase.RECOVERED):
            state = _with(
                _state(),
                phase=phase,
                doubt=Doubt(verb=Verb.STOP, since=AT, accepted=accepted, heard=accepted),
            )
            state = state_with(state, acted_at=AT + ago)
            doubt = _after(state, RESUMED, at=AT + ago).nodes[ES1].doubt
            wanted = Doubt(verb=Verb.STOP, since=AT + ago, heard=accepted) if kept else None
            assert doubt == wanted, (ago, accepted, phase)
    stopping = _after(_with(_state(), phase=NodePhase.STOPPING), RESUMED)
    unsent = Doubt(verb=Verb.STOP, since=AT, heard=True)
    assert stopping.nodes[ES1].doubt == unsent, "killed before its stop was sent, or another run's stop"


def test_a_stop_in_doubt_is_still_lost_when_the_next_one_is_sent() -> None:
    """Its node died and was started before the host did it, which it may do after the next one too."""
    lost, accepted = (Doubt(verb=Verb.STOP, since=AT, accepted=done) for done in (False, True))
    for doubt, found, later in (
        (lost, None, AT),
        (lost, AT + 5.0, AT + 5.0),
        (accepted, None, None),
        (None, 3.0, 3.0),
    ):
        again = _done(_with(_state(), doubt=doubt, lost_at=found), StopNode(node=ES1), at=AT + 33.0)
        assert again.nodes[ES1].lost_at == later
        assert again.nodes[ES1].doubt == Doubt(verb=Verb.STOP, since=AT + 33.0, accepted=True, heard=True)


def test_a_stop_is_lost_once_it_is_taken_as_not_done() -> None:
    stop, back = StopNode(node=ES1), node_phase(ES1, NodePhase.STOPPING, NodePhase.PENDING)
    sent = _with(_after(_state(), ActionSent(action=stop)), phase=NodePhase.STOPPING)
    in_doubt = _after(sent, ActionFailed(action=stop, reason="?", in_doubt=True))
    refused = _after(sent, ActionFailed(action=stop, reason="?", in_doubt=False))
    gone = _after(in_doubt, node_phase(ES1, NodePhase.STOPPING, NodePhase.STOPPED))
    assert _after(in_doubt, back, at=AT + 30.0).nodes[ES1].lost_at == AT + 30.0
    assert [each.nodes[ES1].lost_at for each in (in_doubt, gone, _after(refused, back))] == [None] * 3


def test_a_stop_that_no_host_accepted_may_come_after_the_start() -> None:
    """Its process may have ended by itself while the stop was on its way. Later returns change nothing."""
    gone = node_phase(ES1, NodePhase.STOPPING, NodePhase.STOPPED)
    starting = (
        node_phase(ES1, NodePhase.STOPPED, NodePhase.STARTING),
        ActionSent(action=StartNode(node=ES1)),
    )
    rejoined = node_phase(ES1, NodePhase.STARTING, NodePhase.REJOINED)
    for doubt, lost in (
        (Doubt(verb=Verb.STOP, since=AT), AT),
        (Doubt(verb=Verb.STOP, since=AT, heard=True), None),
        (Doubt(verb=Verb.STOP, since=AT, heard=True, accepted=True), None),
        (Doubt(verb=Verb.REBOOT, since=AT), None),
    ):
        state = _after(_with(_state(), phase=NodePhase.STOPPING, doubt=doubt), _taken(1, "logs"))
        back = _after(_after(state, gone, *starting), rejoined, at=AT + 30.0)
        assert back.nodes[ES1].lost_at == lost, doubt
        assert back.nodes[ES1].lost_taken == ({} if lost is None else state.taken), doubt
        again = node_phase(ES1, NodePhase.REJOINED, NodePhase.STARTING)
        twice = _after(_after(back, again), rejoined, at=AT + 90.0)
        assert twice.nodes[ES1].lost_at == lost, doubt


def test_a_lost_stop_stays_lost_for_a_new_process() -> None:
    limit = policy().deadlines.stop
    for acted, missed, kept in ((5.0, None, True), (limit + 9, None, False), (limit + 9, limit - 1, True)):
        state = state_with(_with(_state(), lost_at=AT), acted_at=AT + acted)
        if missed is not None:
            state = _after(state, MembersMissed(missing=(ES1,)), at=AT + missed)
        again = _after(state, RESUMED, at=AT + 8000.0).nodes[ES1].lost_at
        assert again == (AT + 8000.0 if kept else None), (acted, missed)


def test_after_a_rescue_or_late_stop_a_node_is_only_brought_up() -> None:
    down = _with(_state(), phase=NodePhase.STOPPED)
    down = _after(down, WaveStarted(wave=Wave(number=1, nodes=(ES1,)), incarnations={}))
    rescued = _after(down, Rescued(shards=("logs 0",)))
    assert rescued.nodes[ES1].goal is Goal.BRING_UP
    assert rescued.nodes[ES2].goal is Goal.RESTART, "the wave alone"
    back = _after(
        rescued,
        node_phase(ES1, NodePhase.STOPPED, NodePhase.STARTING),
        node_phase(ES1, NodePhase.STARTING, NodePhase.REJOINED),
    )
    assert back.nodes[ES1].goal is Goal.RESTART
    for phase in (NodePhase.PENDING, NodePhase.RECOVERED, NodePhase.SKIPPED, NodePhase.REJOINED):
        late = _after(_with(_state(), phase=phase), node_phase(ES1, phase, NodePhase.STARTING))
        assert late.nodes[ES1].goal is Goal.BRING_UP, phase
    own = _after(down, node_phase(ES1, NodePhase.STOPPED, NodePhase.STARTING))
    assert own.nodes[ES1].goal is Goal.RESTART


def test_a_member_is_missed_in_a_row_of_readings() -> None:
    state = _after(_state(), MembersMissed(missing=(ES1,)))
    state = _after(state, MembersMissed(missing=(ES1, ES2)), at=AT + 9.0)
    assert (state.process.absent[ES1].since, state.process.absent[ES1].readings) == (AT, 2)
    assert (state.process.absent[ES2].since, state.process.absent[ES2].readings) == (AT + 9.0, 1)
    assert set(_after(state, MembersMissed(missing=(), back=(ES1,))).process.absent) == {ES2}


def test_time_in_which_the_program_stood_still_does_not_count() -> None:
    state = _after(_with(_state(), lost_at=AT - 5.0), MembersMissed(missing=(ES2,), back=()))
    state = _after(state, RedExcused(count=1, subjects=("logs[0]",)))
    after = _after(state, StoodStill(nodes=(ES1,), seconds=600.0), at=AT + 602.0)
    found = (after.process.absent[ES2].since, after.process.absent[ES2].readings)
    assert (*found, after.process.excused_since) == (AT + 602.0, 0, AT + 600.0)
    slow = _after(state, StoodStill(nodes=(ES1,), seconds=20.0), at=AT + 50.0)
    assert slow.process.absent[ES2] == Absence(since=AT + 20.0, readings=1), "a reading that took long"
    assert after.nodes[ES1].lost_at == AT + 602.0, "it may have been done while nobody watched"
    assert slow.nodes[ES1].lost_at == AT + 15.0
    soon = _after(state, StoodStill(nodes=(ES1,), seconds=600.0), at=AT + 10.0)
    assert soon.process.absent[ES2].since == AT + 10.0, "never later than now"


def test_the_life_accounted_for_is_that_of_the_last_return() -> None:
    lives = [Incarnation(ephemeral_id=str(number)) for number in range(3)]
    wave = WaveStarted(wave=Wave(number=1, nodes=(ES1,)), incarnations={ES1: lives[0]})
    state = _after(_with(_state(), life=None), wave)
    assert state.nodes[ES1].life == lives[0]
    again = WaveStarted(wave=Wave(number=2, nodes=(ES1,)), incarnations={ES1: lives[1]})
    assert _after(state, again).nodes[ES1].life == lives[0], "a life is renewed at a return alone"
    back = node_phase(ES1, NodePhase.STARTING, NodePhase.REJOINED, incarnation=lives[2])
    assert _after(_with(state, phase=NodePhase.STARTING), back).nodes[ES1].life == lives[2]


# A new process -------------------------------------------------------------------------------------------


def test_a_new_process_moves_no_node_and_begins_where_they_are() -> None:
    """DOWN if one is in hand, else REASSIGNED if one is back, else PREPARING; a FAILED one waits."""
    going = {NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING}
    wrong = []
    for one, other in itertools.product(NodePhase, NodePhase):
        state = _with(_with(_state(), "es1", phase=one), "es2", phase=other)
        resumed = _after(replace(state, phase=Phase.GATED), RESUMED)
        wanted = Phase.PREPARING
        if NodePhase.REJOINED in (one, other):
            wanted = Phase.REASSIGNED
        if {one, other} & going:
            wanted = Phase.DOWN
        stayed = [resumed.nodes[name].phase for name in (ES1, ES2)] == [one, other]
        ours = {n for n, p in ((ES1, one), (ES2, other)) if p in going | {NodePhase.REJOINED}}
        wave = set(resumed.wave.nodes) if resumed.wave else set()
        if not stayed or resumed.phase is not wanted or wave != ours:
            wrong.append((one.value, other.value, resumed.phase.value, wave))
        restored = _after(state, RestoreBegun(operator="ann", host="b"))
        tries_again = [NodePhase.STARTING if p is NodePhase.FAILED else p for p in (one, other)]
        if [restored.nodes[name].phase for name in (ES1, ES2)] != tries_again:
            wrong.append((one.value, other.value, "restore"))
        if restored.phase is not Phase.STANDING_DOWN or not restored.process.restoring:
            wrong.append((one.value, other.value, restored.phase.value))
    assert wrong == []


def test_a_new_process_counts_every_time_from_its_own_beginning() -> None:
    stop = StopNode(node=ES1)
    state = _after(
        _state(),
        run_phase(Phase.PREPARING, Phase.GATED),
        run_phase(Phase.GATED, Phase.WITHHELD),
        run_phase(Phase.WITHHELD, Phase.DOWN),
        node_phase(ES1, NodePhase.PENDING, NodePhase.STOPPING),
        ActionSent(action=stop),
    )
    later = AT + 500.0
    resumed = _after(_with(state, tries=3, reboots=3, goal=Goal.BRING_UP), RESUMED, at=later)
    node = resumed.nodes[ES1]
    assert resumed.process.in_flight == ()
    assert (
        resumed.process.started == resumed.in_phase.since == node.since == resumed.process.acted_at == later
    )
    assert (node.tries, node.reboots, node.goal, node.stopped_at) == (0, 0, Goal.RESTART, AT)
    assert _after(state, RESUMED, at=AT - 9.0).nodes[ES1].stopped_at == AT - 9.0, "its clock was set back"
    assert resumed.process.absent == {}


def test_a_failed_node_waits_for_a_person() -> None:
    state = _with(_state(), phase=NodePhase.FAILED, failure="x")
    left = _after(state, RESUMED)
    assert (left.nodes[ES1].phase, left.nodes[ES1].failure) == (NodePhase.FAILED, "x")
    again = _after(state, replace(RESUMED, retry_failed=True))
    assert (again.nodes[ES1].phase, again.phase) == (NodePhase.STOPPED, Phase.DOWN)
    assert RESTART in again.nodes[ES1].owed, "what it owes is done while it is down"
    for phase in (NodePhase.FAILED, NodePhase.PENDING):
        skipped = _after(_with(_state(), phase=phase), replace(RESUMED, skip=(ES1,)))
        assert (skipped.nodes[ES1].phase, skipped.phase) == (NodePhase.SKIPPED, Phase.PREPARING)
    down = _after(_with(_state(), phase=NodePhase.STOPPED), replace(RESUMED, skip=(ES1,)))
    assert down.nodes[ES1].phase is NodePhase.STOPPED, "one that is down is brought up first"


def test_the_steps_by_command_are_what_resume_and_restore_do() -> None:
    commands = {
        "resume --retry-failed": replace(RESUMED, retry_failed=True),
        "resume --skip": replace(RESUMED, skip=(ES1,)),
        "restore": RestoreBegun(operator="ann", host="b"),
    }
    for old in (NodePhase.FAILED, NodePhase.PENDING):
        state = _with(_state(), phase=old, failure="x" if old is NodePhase.FAILED else None)
        entered = {command: _after(state, event).nodes[ES1].phase for command, event in commands.items()}
        steps = {new: command for command, new in entered.items() if new is not old}
        assert NODE_STEPS_BY_COMMAND[old] == steps


# Waves ---------------------------------------------------------------------------------------------------


def _gave_way() -> RunState:
    """Wave 1 (es2) has made room; the run chooses again."""
    wave = Wave(number=1, nodes=(ES2,))
    state = replace(_state(), phase=Phase.REASSIGNED, wave=wave, wave_since=1_000_000.0)
    state = _with(state, "es2", phase=NodePhase.REJOINED)
    return _after(state, WaveGaveWay(number=1, copies=3), run_phase(Phase.REASSIGNED, Phase.GATED))


def test_a_wave_that_made_room_is_kept_until_it_is_finished() -> None:
    state = _gave_way()
    assert state.wave is None
    assert [one.wave.number for one in state.recovering] == [1]
    assert (state.waves_finished, state.waves_begun) == (0, 1)
    assert [node.name for node in state.recovering_nodes] == ["es2"]
    again = _after(state, run_phase(Phase.GATED, Phase.REASSIGNED))
    assert again.wave is not None
    assert (again.wave.number, again.wave_since, again.recovering) == (1, 1_000_000.0, ())
    second = WaveStarted(wave=Wave(number=2, nodes=(ES1,)), incarnations={})
    beside = _after(state, second, WaveFinished(number=1, seconds=9.0))
    assert (beside.recovering, beside.waves_finished, beside.waves_begun) == ((), 1, 1)
    assert beside.wave is not None, "the current wave stays"
    first_done = _after(state, second, WaveFinished(number=2, seconds=9.0))
    assert first_done.wave is None
    assert [one.wave.number for one in first_done.recovering] == [1]


def test_a_new_process_takes_what_recovers_or_is_down_as_a_wave() -> None:
    state = _after(
        _gave_way(),
        WaveStarted(wave=Wave(number=2, nodes=(ES1,)), incarnations={}),
        run_phase(Phase.GATED, Phase.WITHHELD),
        Overlapping(number=2, unassigned=0, shards=()),
        run_phase(Phase.WITHHELD, Phase.DOWN),
        node_phase(ES1, NodePhase.PENDING, NodePhase.STOPPING),
    )
    assert state.overlapping is not None
    resumed = _after(state, RESUMED)
    assert resumed.wave is not None
    assert (resumed.wave.number, set(resumed.wave.nodes)) == (1, {"es1", "es2"})
    assert (resumed.phase, resumed.recovering, resumed.overlapping) == (Phase.DOWN, (), None)


def test_overlap_alone_counts_recovery_from_the_latest_return() -> None:
    state = state_with(_with(_state(), "es2", phase=NodePhase.REJOINED), since=2_000_000.0)
    assert state.recovery_since == 2_000_000.0
    overlap = state_with(state, policy=policy(overlap_recovery=True))
    assert overlap.recovery_since == state.nodes[ES2].since < 2_000_000.0


def _taken(number: int, index: str, *, started: int = 2, replicas: int = 1) -> TakenDown:
    counts, uuid = ((0, started),), f"{index}-uuid"
    one = IndexTaken(index=index, index_uuid=uuid, replicas=replicas, filters="", started=counts)
    return TakenDown(number=number, indices=(one,))


def test_a_finished_wave_is_waited_for_no_more() -> None:
    wave = WaveStarted(wave=Wave(number=1, nodes=(ES1,)), incarnations={})
    withheld = (wave, run_phase(Phase.GATED, Phase.WITHHELD), _taken(1, "logs"))
    called_off = (
        run_phase(Phase.WITHHELD, Phase.DOWN),
        run_phase(Phase.DOWN, Phase.REASSIGNED),
        run_phase(Phase.REASSIGNED, Phase.GATED),
    )
    gated = _after(_state(), run_phase(Phase.PREPARING, Phase.GATED))
    assert set(_after(gated, *withheld).taken) == {("logs-uuid", 0)}
    assert _after(gated, *withheld, *called_off).taken == {}
    beside = replace(_gave_way(), taken=_after(gated, _taken(1, "old")).taken)
    assert ("old-uuid", 0) in _after(beside, *withheld, *called_off).taken, "one of them still recovers"
    assert _after(beside, WaveFinished(number=1, seconds=9.0)).taken == {}
    chosen = _after(beside, replace(wave, wave=Wave(number=2, nodes=(ES1,))))
    assert _after(chosen, WaveFinished(number=1, seconds=9.0)).taken == {}, "nothing of the next is down yet"


def _missing(name: str, *, primary: bool = False, reason: str = "NODE_LEFT", count: int = 1) -> MissingCopy:
    uuid = f"{name}-uuid"
    return MissingCopy(index=name, index_uuid=uuid, number=0, primary=primary, reason=reason, count=count)


def _unplaced(*names: str) -> NotWaitedFor:
    return NotWaitedFor(shards=tuple(map(_missing, names)), why="no node can hold them")


_FAILED, _PRIMARY, _OTHER = (
    _missing("logs", reason="ALLOCATION_FAILED"),
    _missing("logs", primary=True),
    _missing("x"),
)


@pytest.mark.parametrize(
    ("started", "missing", "kept"),
    [
        (2, (_missing("logs", count=2),), (_missing("logs", count=2),)),
        (3, (_missing("logs", count=2),), (_missing("logs"),)),
        (3, (_missing("logs"), _FAILED), (_missing("logs"),)),
        (4, (_missing("logs"), _FAILED, _OTHER), (_OTHER,)),
        (1, (_PRIMARY, _missing("logs", count=3)), (_missing("logs", count=3),)),
        (5, (_missing("logs"),), ()),
    ],
)
def test_what_is_there_when_a_wave_takes_it_is_excused_no_more(
    started: int, missing: tuple[MissingCopy, ...], kept: tuple[MissingCopy, ...]
) -> None:
    """Of four copies of a shard; the wave found so many of them."""
    state = _after(_state(), BaselineRecorded(missing=missing, incarnations={}))
    after = _after(state, _taken(1, "logs", started=started, replicas=3)).baseline
    assert after is not None
    assert after.missing == kept


def test_what_was_not_waited_for_is_awaited_once_it_was_back() -> None:
    unplaced = _unplaced("logs", "logs")
    state = _after(_state(), _taken(1, "logs", started=3, replicas=3), unplaced)
    key = ("logs-uuid", 0)
    assert state.not_waited[key] == 2
    assert _after(state, _unplaced("logs")).not_waited[key] == 3, "one more was lost since"
    state = replace(state, taken={})
    assert _after(state, _taken(2, "logs", started=2, replicas=3)).not_waited[key] == 2
    again = _after(state, _taken(2, "logs", started=4, replicas=3))
    assert again.not_waited[key] == 0
    assert _after(again, _unplaced("logs")).displaced[key].started == 4


def test_copies_without_a_place_are_remembered() -> None:
    """The first wave found the most copies: it took them down, and the next ones found them missing."""
    state = _after(_state(), _taken(1, "logs", started=2), _unplaced("logs", "new"))
    assert {key: was.started for key, was in state.displaced.items()} == {("logs-uuid", 0): 2}
    state = replace(state, taken={})
    state = _after(state, _taken(2, "logs", started=1), _taken(2, "more", started=2), _unplaced("logs"))
    assert {key: was.started for key, was in state.displaced.items()} == {("logs-uuid", 0): 2}
    state = _after(state, _unplaced("more"))
    assert {key: was.started for key, was in state.displaced.items()} == {
        ("logs-uuid", 0): 2,
        ("more-uuid", 0): 2,
    }


@pytest.mark.parametrize(
    ("first", "second", "changes", "awaited"),
    [
        (5, 4, {}, 5),
        (4, 5, {}, 5),
        (5, 4, {"replicas": 3}, 4),  # somebody took a replica away in between
        (5, 3, {"replicas": 3}, 4),
        (5, 4, {"open": False}, 4),  # or closed the index
        (5, 4, {"filters": "exclude._name=es9"}, 4),  # or said where it may be
    ],
)
def test_two_waves_are_awaited_with_what_the_first_one_found(
    first: int, second: int, changes: dict[str, Any], awaited: int
) -> None:
    """A copy of the first may not be back when the second takes its shard: the run took both down."""
    (one,) = _taken(1, "logs", started=first).indices
    (two,) = _taken(2, "logs", started=second).indices
    took = (
        TakenDown(number=1, indices=(replace(one, replicas=4),)),
        TakenDown(number=2, indices=(replace(two, **{"replicas": 4, **changes}),)),
    )
    assert [was.started for was in _after(_gave_way(), *took).taken.values()] == [awaited]


def test_an_absence_counts_from_the_reading_that_found_it() -> None:
    """The reading may have taken long: the program was suspended in it."""
    late = _after(_state(), MembersMissed(missing=(ES2,), read=AT - 600.0), at=AT)
    assert late.process.absent[ES2] == Absence(since=AT - 600.0, readings=1)
    assert _after(_state(), MembersMissed(missing=(ES2,)), at=AT).process.absent[ES2].since == AT


def test_a_wave_that_stopped_nothing_is_called_off_at_once() -> None:
    wave = Wave(number=1, nodes=(ES1,))
    refused = (
        WaveStarted(wave=wave, incarnations={}),
        run_phase(Phase.GATED, Phase.WITHHELD),
        run_phase(Phase.WITHHELD, Phase.DOWN),
        run_phase(Phase.DOWN, Phase.REASSIGNED),
        run_phase(Phase.REASSIGNED, Phase.GATED),
    )
    state = _after(_state(), run_phase(Phase.PREPARING, Phase.GATED), *refused)
    assert (state.process.called_off_since, state.wave) == (AT, None)
    assert _after(state, *refused, at=AT + 60.0).process.called_off_since == AT
    stopped = _after(
        _with(state, phase=NodePhase.STOPPING), node_phase(ES1, NodePhase.STOPPING, NodePhase.STOPPED)
    )
    assert stopped.process.called_off_since is None
