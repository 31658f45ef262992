"""The state of a run: legal steps and no others, owed work, doubts, and what a new process begins with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine.fold import owed_by
from orchestrator.engine.grid import NODE_STEPS, NODE_STEPS_BY_COMMAND
from orchestrator.engine.phases import MAY_WAIT_WITHHELD, READS, RUN_STEPS
from orchestrator.engine.progress import FINAL_NODE_PHASES, LostStop, Mark, NodeProgress, Nodes
from orchestrator.engine.state import RunState
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import Action, Moment, RebootHost, RunHook, RunInstall, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    BaselineRecorded,
    Event,
    Hold,
    IndexTaken,
    PhaseEntered,
    RestoreBegun,
    RunResumed,
    StandingDown,
    TakenDown,
    WaveGaveWay,
    WaveStarted,
    WorkDone,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import MissingCopy
from orchestrator.model.phase import (
    REBOOT,
    RESTART,
    TUNING,
    Doubt,
    Goal,
    Installing,
    NodePhase,
    Outcome,
    Owed,
    Phase,
    Verb,
    Work,
)
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.model.upgrade import InstallStep
from orchestrator.model.work_event import Note, Remembered
from tests.simulation.play import cluster, policy
from tests.states import state_with
from tests.unit.engine.asking import ES1, ES2, begun, evolved, with_node
from tests.unit.view import samples

AT: Final = 1_000_001.0
RESUMED: Final = RunResumed(operator="ann", host="b")
RESTORE: Final = RestoreBegun(operator="ann", host="b")
TWO: Final = Hooks(
    before_stop=(Hook(run="a"),),
    while_stopped=(Hook(run="d"), Hook(run="e")),
    after_recovery=(Hook(run="b {node}"), Hook(run="c {node}")),
)
HOOKS: Final = frozenset({Owed(work=Work.HOOK), Owed(work=Work.HOOK, number=1)})
UNDO: Final = frozenset({Owed(work=Work.UNDO), Owed(work=Work.UNDO, number=1)})
PENDING, STOPPING, STOPPED = NodePhase.PENDING, NodePhase.STOPPING, NodePhase.STOPPED
STARTING, REJOINED, RECOVERED = NodePhase.STARTING, NodePhase.REJOINED, NodePhase.RECOVERED
GONE: Final = node_phase(ES1, STOPPING, STOPPED)
BACK: Final = node_phase(ES1, STARTING, REJOINED)


def _state(**changes: object) -> RunState:
    return begun(cluster(3), policy(**changes))


def _after(state: RunState, *events: Event, at: float = AT) -> RunState:
    return evolved(state, *events, at=at)


def _es1(phase: NodePhase = PENDING, **fields: object) -> RunState:
    """A run with es1 in this phase."""
    return with_node(_state(), ES1, phase=phase, **fields)


def _done(action: Action) -> tuple[Event, ...]:
    return ActionSent(action=action), ActionConfirmed(action=action)


def _failed(action: Action, *, in_doubt: bool = False, unsent: bool = False) -> tuple[Event, ...]:
    ended = ActionFailed(action=action, reason="sudo", in_doubt=in_doubt, unsent=unsent)
    return ActionSent(action=action), ended


def _hook(moment: Moment, number: int = 0) -> RunHook:
    return RunHook(node=ES1, moment=moment, number=number, hook=Hook(run="x"))


def _steps(*phases: Phase) -> tuple[Event, ...]:
    return tuple(run_phase(old, new) for old, new in itertools.pairwise(phases))


# Legal steps ------------------------------------


def test_a_step_is_in_the_table_or_changes_nothing() -> None:
    state = _state()
    for old, new in itertools.product(Phase, Phase):
        before = replace(state, phase=old)
        if new in RUN_STEPS[old]:
            assert _after(before, run_phase(old, new)).phase is new
        else:
            with pytest.raises(SafetyViolation, match=old.value):
                _after(before, run_phase(old, new))
    for one, other in itertools.product(NodePhase, NodePhase):
        there = with_node(state, ES1, phase=one)
        if other in NODE_STEPS[one]:
            assert _after(there, node_phase(ES1, one, other)).nodes[ES1].phase is other
        else:
            with pytest.raises(SafetyViolation, match="es1"):
                _after(there, node_phase(ES1, one, other))
    with pytest.raises(ValueError, match="sideways"):
        _after(state, PhaseEntered(from_="gated", to="sideways"))


def test_the_tables_name_every_phase_and_lead_to_the_end() -> None:
    assert set(RUN_STEPS) == set(READS) == set(Phase)
    assert set(NODE_STEPS) == set(NodePhase)
    for phase in set(Phase) - {Phase.ENDED, Phase.STANDING_DOWN}:
        assert Phase.STANDING_DOWN in RUN_STEPS[phase], f"no way to stand down from {phase}"
    assert RUN_STEPS[Phase.ENDED] == frozenset()
    assert frozenset({RECOVERED, NodePhase.SKIPPED}) == FINAL_NODE_PHASES
    for phase, only in ((RECOVERED, REJOINED), (STOPPING, PENDING)):
        assert [old for old in NodePhase if phase in NODE_STEPS[old]] == [only]
    assert frozenset({Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.STANDING_DOWN}) == MAY_WAIT_WITHHELD


# Owed work ------------------------------------


def test_owed_work_comes_from_the_policy_and_leaves_by_evidence(subtests: pytest.Subtests) -> None:
    """No event of any kind adds another item: undo comes with a stop, or with a hook before it."""
    first = _state(hooks=TWO, reboot=True)
    assert first.nodes[ES1].owed == {RESTART, REBOOT, *HOOKS} == owed_by(first.begun.policy)
    for action in (StopNode(node=ES1), _hook(Moment.BEFORE_STOP)):
        assert _after(first, ActionSent(action=action)).nodes[ES1].owed == first.nodes[ES1].owed | UNDO
    repaired = _after(RunState(run="run-1"), replace(_state(hooks=TWO).begun, repairs="run-0"))
    assert repaired.nodes[ES1].owed == frozenset(), "its turn is the other run's to finish, the restart too"
    owed = frozenset({RESTART, REBOOT, TUNING}) | HOOKS | UNDO
    down = _hook(Moment.WHILE_STOPPED, 1)
    for what, events, gone in [
        ("a start", _done(StartNode(node=ES1)), set()),
        ("a stop", _done(StopNode(node=ES1)), set()),
        ("a reboot that was sent", _done(RebootHost(node=ES1)), set()),
        ("another boot", (WorkDone(node=ES1, work=Work.REBOOT, why=""),), {REBOOT}),
        ("tuned", (WorkDone(node=ES1, work=Work.TUNING, why=""),), {TUNING}),
        ("a hook that was sent", (ActionSent(action=down),), set()),
        ("a hook that failed", _failed(down), set()),
        ("a hook that ended well", _done(down), {Owed(work=Work.HOOK, number=1)}),
        ("undone", _done(_hook(Moment.AFTER_RECOVERY)), {Owed(work=Work.UNDO)}),
        ("another life", (BACK,), {RESTART}),
        ("a new process", (RESUMED,), set()),
        ("restore", (RESTORE,), set()),
    ]:
        with subtests.test(what):
            state = with_node(_state(hooks=TWO), ES1, owed=owed, phase=STARTING)
            assert owed - _after(state, *events).nodes[ES1].owed == gone


# Tries and doubts ------------------------------------


def test_what_is_sent_is_under_way_until_its_outcome_is_recorded(subtests: pytest.Subtests) -> None:
    start, reboot = StartNode(node=ES1, counts=True), RebootHost(node=ES1)
    sent = _after(_state(), ActionSent(action=start))
    assert (sent.process.in_flight, sent.nodes[ES1].start_sent, sent.process.acted_at) == ((start,), AT, AT)
    for what, events, tries, reboots in [
        ("started", _done(start), 1, 0),
        ("refused", _failed(start), 1, 0),
        ("nobody answered", _failed(start, in_doubt=True), 0, 0),
        ("no host was told", _failed(start, unsent=True), 0, 0),
        ("its process was not seen to be gone", _done(StartNode(node=ES1)), 0, 0),
        ("rebooted", _done(reboot), 0, 1),
        ("no host was told to reboot", _failed(reboot, unsent=True), 0, 0),
    ]:
        with subtests.test(what):
            after = _after(_state(), *events)
            node = after.nodes[ES1]
            assert (after.process.in_flight, node.tries, node.reboots) == ((), tries, reboots)
    assert _after(_state(), *_failed(start)).failure_of(start) is not None


def test_a_verb_is_in_doubt_until_refused_or_its_effect_is_seen(subtests: pytest.Subtests) -> None:
    stop, reboot = StopNode(node=ES1), RebootHost(node=ES1, also=(ES2,))
    lost = Doubt(verb=Verb.STOP, since=AT)
    accepted = replace(lost, accepted=True, heard=True)
    booted = WorkDone(node=ES2, work=Work.REBOOT, why="")
    for what, events, name, doubt in [
        ("sent", (ActionSent(action=stop),), ES1, lost),
        ("accepted", _done(stop), ES1, accepted),
        ("lost", _failed(stop, in_doubt=True), ES1, lost),
        ("refused", _failed(stop), ES1, None),
        ("accepted and gone", (*_done(stop), GONE), ES1, None),
        ("lost and gone: it may still arrive", (ActionSent(action=stop), GONE), ES1, lost),
        ("a reboot is for the whole machine", _done(reboot), ES2, replace(accepted, verb=Verb.REBOOT)),
        ("in another boot", (*_done(reboot), booted), ES2, None),
        ("a refused reboot", _failed(reboot), ES2, None),
        (
            "an accepted stop is not ended by other work",
            (*_done(stop), WorkDone(node=ES1, work=Work.TUNING, why="")),
            ES1,
            accepted,
        ),
    ]:
        with subtests.test(what):
            assert _after(_es1(STOPPING), *events).nodes[name].doubt == doubt


def test_a_stop_in_doubt_is_lost_once_it_is_taken_as_not_done(subtests: pytest.Subtests) -> None:
    """Also when the next one is sent: its host may do it after that one too."""
    stop, again = StopNode(node=ES1), node_phase(ES1, STOPPING, PENDING)
    in_doubt = _after(_es1(STOPPING), *_failed(stop, in_doubt=True))
    assert _after(in_doubt, again, at=AT + 30.0).nodes[ES1].lost_stop == LostStop(since=AT + 30.0)
    refused = _after(_es1(STOPPING), *_failed(stop), again)
    assert [one.nodes[ES1].lost_stop for one in (in_doubt, _after(in_doubt, GONE), refused)] == [None] * 3
    lost, accepted = (Doubt(verb=Verb.STOP, since=AT, accepted=done) for done in (False, True))
    for doubt, found, later in (
        (lost, None, AT),
        (lost, AT + 5.0, AT + 5.0),
        (accepted, None, None),
        (None, 3.0, 3.0),
    ):
        with subtests.test(doubt=doubt, found=found):
            before = _es1(doubt=doubt, lost_stop=found and LostStop(since=found))
            node = _after(before, *_done(stop), at=AT + 33.0).nodes[ES1]
            assert node.lost_stop == (later and LostStop(since=later))
            assert node.doubt == Doubt(verb=Verb.STOP, since=AT + 33.0, accepted=True, heard=True)
    down, reboot = _es1(STOPPED, doubt=lost), RebootHost(node=ES1, also=())
    assert _after(down, *_failed(reboot)).nodes[ES1].lost_stop == LostStop(since=AT)
    booted = WorkDone(node=ES1, work=Work.REBOOT, why="another boot")
    assert _after(down, *_done(reboot), booted).nodes[ES1].lost_stop is None, "it ended with its host"


# A new process ------------------------------------


def test_a_new_process_moves_no_node_and_begins_where_they_are() -> None:
    """DOWN if one goes up or down, else REASSIGNED if one is back, else PREPARING; a FAILED one waits."""
    going = {STOPPING, STOPPED, STARTING}
    for one, other in itertools.product(NodePhase, NodePhase):
        state = with_node(_es1(one), ES2, phase=other)
        resumed = _after(replace(state, phase=Phase.GATED), RESUMED)
        wanted = Phase.REASSIGNED if REJOINED in (one, other) else Phase.PREPARING
        assert resumed.phase is (Phase.DOWN if {one, other} & going else wanted)
        assert [resumed.nodes[name].phase for name in (ES1, ES2)] == [one, other]
        ours = {name for name, phase in ((ES1, one), (ES2, other)) if phase in going | {REJOINED}}
        assert set(resumed.wave.nodes if resumed.wave else ()) == ours
        restored = _after(state, RESTORE)
        again = [STARTING if phase is NodePhase.FAILED else phase for phase in (one, other)]
        assert [restored.nodes[name].phase for name in (ES1, ES2)] == again
        assert (restored.phase, restored.process.restoring) == (Phase.STANDING_DOWN, True)


def test_a_failed_node_waits_for_a_person() -> None:
    failed = _es1(NodePhase.FAILED, failure="x")
    left, again = _after(failed, RESUMED), _after(failed, replace(RESUMED, retry_failed=True))
    assert (left.nodes[ES1].phase, left.nodes[ES1].failure) == (NodePhase.FAILED, "x")
    assert (again.nodes[ES1].phase, again.phase) == (STOPPED, Phase.DOWN)
    assert RESTART in again.nodes[ES1].owed, "what it owes is done while it is down"
    skip = replace(RESUMED, skip=(ES1,))
    for phase, wanted in (
        (NodePhase.FAILED, (NodePhase.SKIPPED, Phase.PREPARING)),
        (PENDING, (NodePhase.SKIPPED, Phase.PREPARING)),
        (STOPPED, (STOPPED, Phase.DOWN)),  # one that is down is brought up first
    ):
        skipped = _after(_es1(phase), skip)
        assert (skipped.nodes[ES1].phase, skipped.phase) == wanted
    commands = {
        "resume --retry-failed": replace(RESUMED, retry_failed=True),
        "resume --skip": skip,
        "restore": RESTORE,
    }
    for old in (NodePhase.FAILED, PENDING):
        state = _es1(old, failure="x" if old is NodePhase.FAILED else None)
        entered = {command: _after(state, event).nodes[ES1].phase for command, event in commands.items()}
        steps = {new: command for command, new in entered.items() if new is not old}
        assert NODE_STEPS_BY_COMMAND[old] == steps


def _gave_way() -> RunState:
    """Wave 1 (es2) has made room; the run chooses again."""
    wave = Wave(number=1, nodes=(ES2,))
    state = state_with(_state(), phase=Phase.REASSIGNED, wave=wave, wave_since=1_000_000.0)
    state = with_node(state, ES2, phase=REJOINED)
    return _after(state, WaveGaveWay(number=1, copies=3), *_steps(Phase.REASSIGNED, Phase.GATED))


# Copies that waves took down ------------------------------------


def test_a_wave_that_stopped_nothing_is_called_off_at_once() -> None:
    wave = WaveStarted(wave=Wave(number=1, nodes=(ES1,)), incarnations={})
    refused = (wave, *_steps(Phase.GATED, Phase.WITHHELD, Phase.DOWN, Phase.REASSIGNED, Phase.GATED))
    state = _after(_state(), *_steps(Phase.PREPARING, Phase.GATED), *refused)
    assert (state.process.called_off_since, state.wave) == (AT, None)
    assert _after(state, *refused, at=AT + 60.0).process.called_off_since == AT
    assert _after(with_node(state, ES1, phase=STOPPING), GONE).process.called_off_since is None


def _taken(number: int, index: str, *, started: int = 2, replicas: int = 1, **changes: Any) -> TakenDown:
    usual = {"index_uuid": f"{index}-uuid", "replicas": replicas, "filters": "", "started": ((0, started),)}
    return TakenDown(number=number, indices=(IndexTaken(index=index, **{**usual, **changes}),))


def _missing(name: str, *, primary: bool = False, reason: str = "NODE_LEFT", count: int = 1) -> MissingCopy:
    uuid = f"{name}-uuid"
    return MissingCopy(index=name, index_uuid=uuid, number=0, primary=primary, reason=reason, count=count)


def test_what_is_there_when_a_wave_takes_it_is_excused_no_more(subtests: pytest.Subtests) -> None:
    """Of four copies of a shard; the wave found so many of them."""
    logs, other = _missing("logs"), _missing("x")
    failed, primary = _missing("logs", reason="ALLOCATION_FAILED"), _missing("logs", primary=True)
    for started, missing, kept in [
        (2, (_missing("logs", count=2),), (_missing("logs", count=2),)),
        (3, (_missing("logs", count=2),), (logs,)),
        (3, (logs, failed), (logs,)),
        (4, (logs, failed, other), (other,)),
        (1, (primary, _missing("logs", count=3)), (_missing("logs", count=3),)),
        (5, (logs,), ()),
    ]:
        with subtests.test(started=started, missing=missing):
            baseline = BaselineRecorded(missing=missing, incarnations={})
            after = _after(_state(), baseline, _taken(1, "logs", started=started, replicas=3)).baseline
            assert after is not None
            assert after.missing == kept


def test_two_waves_are_awaited_with_what_the_first_one_found(subtests: pytest.Subtests) -> None:
    """A copy of the first may not be back when the second takes its shard: the run took both down.

    Not if somebody took a replica away in between, or closed the index.
    """
    for first, second, changes, awaited in [
        (5, 4, {}, 5),
        (4, 5, {}, 5),
        (5, 4, {"replicas": 3}, 4),
        (5, 3, {"replicas": 3}, 4),
        (5, 4, {"open": False}, 4),
    ]:
        with subtests.test(first=first, second=second, changes=changes):
            one = _taken(1, "logs", started=first, replicas=4)
            two = _taken(2, "logs", **{"started": second, "replicas": 4, **changes})
            taken = _after(_gave_way(), one, two).taken
            assert [was.started for was in taken.values()] == [awaited]


# Nodes and replace, against a plain way ------------------------------------

NAMES: Final = [NodeName(f"es{number}") for number in range(12)]
EXPECTED: Final = {
    Mark.OPEN: lambda node: node.doubt is not None or node.lost_stop is not None,
    Mark.AWAKE: lambda node: (
        node.doubt is not None
        or node.lost_stop is not None
        or (RESTART not in node.owed if node.phase is PENDING else node.phase not in FINAL_NODE_PHASES)
    ),
    Mark.INSTALLS: lambda node: node.install is not None,
    Mark.REBOOTS: lambda node: REBOOT in node.owed,
    Mark.UNDOES: lambda node: Owed(work=Work.UNDO, number=1) in node.owed,
}


def _drawn(dice: random.Random, name: NodeName) -> NodeProgress:
    owed: Sequence[Owed] = (RESTART, REBOOT, TUNING, Owed(work=Work.UNDO, number=1))
    return NodeProgress(
        name=name,
        phase=dice.choice([*NodePhase]),
        doubt=dice.choice([None, None, Doubt(verb=Verb.STOP, since=1.0)]),
        lost_stop=dice.choice([None, None, LostStop(since=2.0)]),
        owed=frozenset(item for item in owed if dice.random() < 1 / 2),
        install=dice.choice([None, Installing(number=0, ticket="t", since=1.0)]),
        returns=dice.randint(0, 9),
    )


def test_nodes_of_each_phase_and_mark_in_the_order_of_the_run() -> None:
    for seed in range(20):
        dice = random.Random(seed)  # noqa: S311  (repeatable)
        nodes = Nodes(_drawn(dice, name) for name in NAMES)
        all_ = dict(nodes)
        for _ in range(30):
            new = [_drawn(dice, name) for name in dice.sample(NAMES, dice.randint(0, 4))]
            before, kept = nodes, dict(nodes)
            nodes = nodes.changed(*new)
            all_ |= {node.name: node for node in new}
            assert dict(before) == kept, "what was made of it changes nothing in it"
            assert (dict(nodes), list(nodes), nodes.names) == (all_, NAMES, before.names)
            for mark, wanted in EXPECTED.items():
                assert nodes.of(mark) == tuple(node for node in all_.values() if wanted(node)), mark
            for phases in (*([phase] for phase in NodePhase), dice.sample([*NodePhase], 3)):
                assert nodes.of(*phases) == tuple(node for node in all_.values() if node.phase in phases)
    with pytest.raises(KeyError):
        Nodes([NodeProgress(name=NAMES[0])]).changed(NodeProgress(name=NAMES[1]))


# Late effects ------------------------------------


def test_action_failed_in_doubt_counts_from_its_answer(subtests: pytest.Subtests) -> None:
    """It may have left this machine at any moment until its call ended, so its reach begins there."""
    for action in (StopNode(node=ES1), RebootHost(node=ES1)):
        with subtests.test(action=action):
            sent, failed = _failed(action, in_doubt=True)
            doubt = _after(_after(_es1(STOPPING), sent), failed, at=AT + 70).nodes[ES1].doubt
            assert doubt is not None
            assert doubt.since == AT + 70


def test_pending_again_after_a_rescue_has_the_goal_to_restart() -> None:
    """Its stop was not done. If it shows another life later, it was, and its copies and hooks are awaited."""
    state = _es1(STOPPING, goal=Goal.BRING_UP)
    assert _after(state, node_phase(ES1, STOPPING, PENDING)).nodes[ES1].goal is Goal.RESTART


def test_a_refused_install_keeps_the_step_that_was_lost_before() -> None:
    """The earlier one may be done late, and is then why the later one was refused."""
    lost, later = (Installing(number=0, ticket=ticket, since=AT) for ticket in ("/1", "/2"))
    state = _es1(STOPPED, lost_install=lost, install=later)
    step = RunInstall(node=ES1, number=0, ticket="/2", step=InstallStep(run="x"), target="9.1.0")
    assert _after(state, _failed(step)[1]).nodes[ES1].lost_install == lost


def test_what_held_the_run_is_known_until_it_is_resumed() -> None:
    hold = Hold(predicate="cluster_not_red", subject="cluster", evidence="red")
    down = StandingDown(reason="held for 1s", outcome=Outcome.HELD)
    state = _after(_state(), hold, down, run_phase(Phase.PREPARING, Phase.STANDING_DOWN))
    assert (state.in_phase.holds, state.process.held_by) == ((), (hold,))
    assert _after(state, RESUMED).process.held_by == ()


def test_resume_begins_without_what_only_a_process_remembers(subtests: pytest.Subtests) -> None:
    examples = samples.examples()
    for event in (one for one in examples if isinstance(one, Remembered)):
        with subtests.test(event.event):
            assert _after(_state(), event, RESUMED) == _after(_state(), RESUMED)
    for event in (one for one in examples if isinstance(one, Note)):
        with subtests.test(event.event):
            assert _after(_state(), event) == _state()
