"""Every invariant notices the step that it is there for; an invariant that cannot break says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import (
    Moment,
    Purpose,
    RebootHost,
    RunHook,
    RunInstall,
    SetReplicas,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionSent,
    Deposed,
    Event,
    HoldsCleared,
    Overlapping,
    Record,
    ReplicasAdded,
    RunFinished,
    RunResumed,
    SettingChanged,
    ShardUnderWay,
    StoodDown,
    WaveStarted,
    WorkDone,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import (
    REBOOT,
    VERSION,
    Doubt,
    Installing,
    NodePhase,
    Outcome,
    Owed,
    Phase,
    Verb,
    Work,
)
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.model.tuning import ServiceChange, ServiceMode, TuningProfile, TuningSetting
from orchestrator.model.upgrade import InstallState
from orchestrator.model.work_event import InstallEnded, TuningApplied, Upgraded
from orchestrator.simulation.invariants import JournalStep
from orchestrator.simulation.merge_invariants import ALL_INVARIANTS as INVARIANTS
from orchestrator.simulation.merge_invariants import broken
from tests.simulation.play import cluster, policy
from tests.simulation.upgrading import STEPS, TARGET, upgrading
from tests.states import state_with
from tests.unit.engine.asking import ALLOCATION, ES1, ES2, ES3, begun, with_node
from tests.unit.engine.merge_steps import ALSO_BROKEN, ASKED, MERGE_STEPS

AT: Final = 1_000_000.0
PENDING, STOPPING, STOPPED = NodePhase.PENDING, NodePhase.STOPPING, NodePhase.STOPPED
STARTING, REJOINED, RECOVERED = NodePhase.STARTING, NodePhase.REJOINED, NodePhase.RECOVERED
KEY: Final = (Level.PERSISTENT, ALLOCATION)
DEBT: Final = SettingChange(level=KEY[0], key=KEY[1], found=None, wanted="primaries")
NOTHING: Final[dict[str, Any]] = {"settings": {}, "withheld": frozenset(), "withheld_since": None}
BOTH: Final = Wave(number=1, nodes=(ES1, ES2))

STOP: Final = ActionSent(action=StopNode(node=ES1))
START: Final = ActionSent(action=StartNode(node=ES1))
DONE: Final = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0)
LOOK: Final = HoldsCleared()
BEGINS: Final = run_phase(Phase.GATED, Phase.WITHHELD)
BACK: Final = node_phase(ES1, STARTING, REJOINED)
RECOVERS: Final = node_phase(ES1, REJOINED, RECOVERED)
UNDONE: Final = node_phase(ES1, STOPPING, PENDING)
BOTH_BEGIN: Final = WaveStarted(wave=BOTH, incarnations={})
ADDED: Final = ReplicasAdded(index="bare", index_uuid="bare-uuid", found=0, wanted=1)
ADD: Final = ActionSent(action=SetReplicas(index="bare", index_uuid="bare-uuid", found=0, wanted=1))
HOOKS: Final = Hooks(before_stop=(Hook(run="a"),), while_stopped=(Hook(run="b"),))
HOOK: Final = ActionSent(action=RunHook(node=ES1, moment=Moment.WHILE_STOPPED, number=0, hook=Hook(run="b")))
DEPOSED: Final = Deposed(successor="run-2", owner="eve@elsewhere", epoch=2, in_hand=(ES2,))
RESUMED: Final = RunResumed(operator="ann", host="bastion")
NUMAD: Final = ServiceChange(
    service="numad",
    found=ServiceMode(running=True, enabled=True),
    wanted=ServiceMode(running=False, enabled=False),
)
TUNE: Final = ActionSent(action=TuneHost(node=ES1, tunable="numad", changes=(NUMAD,)))
APPLIED: Final = TuningApplied(node=ES1, tunable="numad", found="running", wanted="off")
INSTALL: Final = ActionSent(
    action=RunInstall(node=ES1, number=0, step=STEPS[0], ticket="run-1/es1/0/1", target=TARGET)
)
TO_INSTALL: Final = Owed(work=Work.INSTALL)


def _state(phase: Phase = Phase.DOWN, es1: NodePhase = STOPPING, **changes: Any) -> RunState:
    """A run with one node of its wave on its way down, allocation withheld; all is as it should be."""
    state = begun(cluster(3), policy())
    right: dict[str, Any] = {
        "phase": phase,
        "nodes": {**state.nodes, ES1: replace(state.nodes[ES1], phase=es1)},
        "wave": Wave(number=1, nodes=(ES1,)),
        "settings": {KEY: DEBT},
        "withheld": frozenset({KEY}),
        "withheld_since": AT,
        "since": AT,
    }
    return state_with(state, **{**right, **changes})


def _owing(
    phase: Phase = Phase.DOWN,
    es1: NodePhase = STOPPING,
    *owed: Owed,
    ready: frozenset[int] = frozenset(),
    **changes: Any,
) -> RunState:
    """es1 owes this, and nothing else."""
    return with_node(_state(phase, es1, **changes), ES1, owed=frozenset(owed), ready=ready)


def _es2(state: RunState, phase: NodePhase) -> RunState:
    return with_node(state, ES2, phase=phase)


def _step(
    before: RunState, event: Event, after: RunState | None = None, *, passed: float = 1.0
) -> JournalStep:
    record = Record(run="run-1", sequence=7, at=AT + passed, event=event)
    return JournalStep(before=before, record=record, after=after or before)


def _writes(change: SettingChange, purpose: Purpose, **changes: Any) -> JournalStep:
    return _step(_state(**changes), ActionSent(action=WriteSettings(changes=(change,), purpose=purpose)))


def _changed(found: str | None, after: SettingChange) -> JournalStep:
    """Allocation is written once more, to another value of ours, and this stands there now."""
    again = SettingChanged(level=KEY[0], key=KEY[1], found=found, wanted="none", purpose=Purpose.WITHHOLD)
    return _step(_state(), again, _state(settings={KEY: replace(after, wanted="none")}))


def _ended(outcome: Outcome, es1: NodePhase) -> JournalStep:
    return _step(_state(Phase.ENDED, es1), RunFinished(outcome=outcome, exit_code=1, seconds=1.0))


def _all_done() -> JournalStep:
    state = _es2(_state(Phase.ENDED, RECOVERED, **NOTHING), RECOVERED)
    return _step(with_node(state, ES3, phase=RECOVERED), DONE)


def _beside(*shards: ShardUnderWay, unassigned: int = 0, number: int = 1) -> JournalStep:
    """es1 is stopped while es2, of the wave before, still recovers."""
    read = Overlapping(number=number, unassigned=unassigned, shards=shards)
    state = _state(overlapping=read, policy=policy(overlap_recovery=True))
    return _step(_es2(state, REJOINED), STOP)


def _under_way(*nodes: NodeName) -> ShardUnderWay:
    return ShardUnderWay(index="logs", number=0, nodes=nodes)


def _begins(es2: NodePhase, *, overlap: bool = False) -> JournalStep:
    """A wave begins while es2 is in this phase."""
    wanted = policy(overlap_recovery=overlap)
    after = _es2(_state(Phase.WITHHELD, PENDING, policy=wanted), es2)
    return _step(_state(Phase.GATED, policy=wanted), BEGINS, after)


def _rebooted(
    *,
    es1: NodePhase = STOPPED,
    es2: NodePhase = STOPPED,
    also: tuple[NodeName, ...] = (ES2,),
    doubt: Doubt | None = None,
) -> JournalStep:
    """The machine of es1 and es2 is told to reboot."""
    state = _state(wave=replace(BOTH, machines=((ES1, ES2),)))
    for name, phase in ((ES1, es1), (ES2, es2)):
        state = with_node(state, name, phase=phase, doubt=doubt)
    return _step(state, ActionSent(action=RebootHost(node=ES1, also=also)))


def _tuned(tunable: str = "numad", es1: NodePhase = STOPPED, **changes: Any) -> RunState:
    """es1 is down, and a profile wants this of its host."""
    settings = (TuningSetting(tunable=tunable, wanted="off"),)
    profile = TuningProfile(name="elasticsearch", applies_to="elasticsearch", settings=settings)
    return _state(es1=es1, policy=policy(tune=profile), **changes)


def _ended_step(state: InstallState) -> JournalStep:
    ended = InstallEnded(node=ES1, number=0, ticket="run-1/es1/0/1", state=state)
    return _step(_owing(Phase.DOWN, STOPPING, TO_INSTALL), ended, _owing())


def _installing(es1: NodePhase = STOPPED) -> RunState:
    """es1 is down, and its first install step was sent; no reading has shown its end."""
    sent = Installing(number=0, ticket="run-1/es1/0/1", since=AT)
    return with_node(_state(es1=es1, policy=upgrading()), ES1, install=sent)


def _starting_wave(*nodes: NodeName) -> JournalStep:
    wave = WaveStarted(wave=Wave(number=1, nodes=nodes), incarnations={})
    return _step(_state(planned=((ES1, ES2),)), wave)


STEPS_OF: Final[Mapping[str, tuple[JournalStep, ...]]] = {
    # the step that breaks it, then those that do not: often just inside the limit that the first is beyond
    "stops_stand_behind_withholding": (
        _step(_state(settings={}, withheld=frozenset()), STOP),
        _step(_state(), STOP),
    ),
    "stops_are_sent_from_down_alone": (_step(_state(Phase.GATED), STOP), _step(_state(), STOP)),
    "only_the_wave_is_stopped": (
        _step(_state(wave=Wave(number=1, nodes=(ES2,))), STOP),
        _step(_state(wave=Wave(number=1, nodes=(ES2, ES1))), STOP),
    ),
    "budget": (_step(_es2(_state(), STARTING), STOP), _step(_es2(_state(), RECOVERED), STOP)),
    "a_reboot_takes_down_only_what_is_down": (
        _rebooted(es2=STOPPING),
        _rebooted(),
        _rebooted(doubt=Doubt(verb=Verb.REBOOT, since=AT)),  # never accepted: it may never have arrived
        _rebooted(doubt=Doubt(verb=Verb.STOP, since=AT, accepted=True)),
    ),
    "no_wider_than_planned": (
        _step(_state(planned=((ES1,), (ES2,))), BOTH_BEGIN),
        _starting_wave(ES1, ES3),
    ),
    "nobody_stops_without_the_lease": (
        _step(_state(lease_lost="to eve"), STOP),
        _step(_state(), STOP),
    ),
    "a_finished_node_is_not_stopped": (
        _step(_state(es1=RECOVERED), STOP, _state(es1=STOPPING)),
        _step(_es2(_state(es1=PENDING), RECOVERED), STOP, _es2(_state(), RECOVERED)),
    ),
    "changes_are_written_down_first": (
        _writes(DEBT, Purpose.WITHHOLD, settings={}),
        _writes(DEBT, Purpose.WITHHOLD),
        _writes(DEBT.undone(), Purpose.REASSIGN),
        _step(_state(replicas={ADDED.index_uuid: ADDED}), ADD),
    ),
    "what_was_found_stays": (
        _changed("primaries", replace(DEBT, found="primaries")),
        _changed("primaries", DEBT),
        _changed("all", replace(DEBT, found="all")),  # somebody else has set it since
    ),
    "nobody_waits_with_allocation_off": (
        _step(_state(Phase.GATED), LOOK, passed=1_921.0),
        _step(_state(Phase.GATED), LOOK, passed=1_919.0),
    ),
    "withholding_has_a_limit": (
        _step(_state(), LOOK, passed=3_121.0),
        _step(_state(), LOOK, passed=3_119.0),
    ),
    "waves_begin_healed": (
        _begins(NodePhase.FAILED),
        _begins(RECOVERED),
        _begins(REJOINED, overlap=True),
    ),
    "overlap_leaves_recoveries_alone": (
        _beside(_under_way(ES1, ES2)),
        _beside(_under_way(ES2, ES3)),
        _beside(),
    ),
    "done_owes_nothing": (_step(_state(Phase.ENDED, RECOVERED), DONE), _all_done()),
    "what_is_left_is_said": (
        _step(_state(), StoodDown(outcome=Outcome.FAILED)),
        _step(_state(), StoodDown(outcome=Outcome.NOT_RESTORED, left=("allocation",))),
        _step(_state(**NOTHING), StoodDown(outcome=Outcome.FAILED)),
    ),
    "nodes_are_brought_up": (
        _ended(Outcome.HELD, STOPPING),
        _ended(Outcome.HELD, RECOVERED),
        _ended(Outcome.NOT_RESTORED, STARTING),
    ),
    "nothing_after_the_end": (
        _step(_state(Phase.ENDED), STOP),
        _step(_state(Phase.STANDING_DOWN), STOP),
        _step(_all_done().after, LOOK),
    ),
    "no_stop_after_standing_down": (
        _step(_state(standing_down=ASKED), STOP),
        _step(_state(), STOP),
    ),
    "starts_are_for_our_own": (_step(_state(es1=RECOVERED), START), _step(_state(es1=STARTING), START)),
    "work_is_done_on_stopped_nodes": (
        _step(_state(es1=STARTING), HOOK),
        _step(_state(es1=STOPPED), HOOK),
        _step(_installing(), INSTALL),
    ),
    "no_start_beside_an_install": (
        _step(_installing(STARTING), START),
        _step(_state(es1=STARTING), START),
    ),
    "recovered_owes_nothing": (
        _step(_state(Phase.SETTLED, REJOINED), RECOVERS),
        _step(_owing(Phase.SETTLED, REJOINED), RECOVERS),
        _step(_state(), UNDONE),
    ),
    "owed_work_leaves_by_evidence": (
        _step(_state(), RESUMED, _owing()),
        _step(_state(), RESUMED, _state()),
        _step(_state(), BACK, _owing()),
        _step(_owing(Phase.DOWN, STOPPING, REBOOT), WorkDone(node=ES1, work=Work.REBOOT, why=""), _owing()),
        _step(
            _owing(Phase.DOWN, STOPPING, Owed(work=Work.HOOK)), ActionConfirmed(action=HOOK.action), _owing()
        ),
        _ended_step(InstallState.DONE),
        _ended_step(InstallState.FOUND),
        _step(
            _owing(Phase.DOWN, STOPPING, TO_INSTALL, VERSION), Upgraded(node=ES1, version=TARGET), _owing()
        ),
    ),
    "stops_need_every_hook_before": (
        _step(_state(policy=policy(hooks=HOOKS)), STOP),
        _step(_owing(ready=frozenset({0}), policy=policy(hooks=HOOKS)), STOP),
    ),
    "a_deposed_run_writes_nothing": (
        _writes(DEBT.undone(), Purpose.REASSIGN, deposed=DEPOSED),
        _writes(DEBT.undone(), Purpose.REASSIGN),
        _step(_state(deposed=DEPOSED, es1=STARTING), START),
    ),
    "hosts_are_tuned_under_stopped_nodes": (_step(_tuned(es1=STARTING), TUNE), _step(_tuned(), TUNE)),
    "only_what_is_wanted_is_tuned": (_step(_tuned("vm.swappiness"), TUNE), _step(_tuned(), TUNE)),
    "tuning_is_told_as_it_was": (
        _step(_tuned(), APPLIED),
        _step(state_with(_tuned(), confirmed=(TUNE.action,)), APPLIED),
    ),
    **MERGE_STEPS,
}

SAID: Final[tuple[tuple[str, JournalStep], ...]] = (
    ("a_reboot_takes_down_only_what_is_down: es1: not the nodes of one machine", _rebooted(also=())),
    ("es2 (pending) goes down with the host of es1", _rebooted(es2=PENDING)),
    ("es1 (starting) goes down with the host of es1", _rebooted(es1=STARTING)),
    (
        "the host of es1 was asked to reboot before",
        _rebooted(doubt=Doubt(verb=Verb.REBOOT, since=AT, accepted=True)),
    ),
    (
        "stops_need_every_hook_before",  # a node that is back has none left
        _step(_owing(es1=STARTING), BACK, _owing(es1=REJOINED, ready=frozenset({0}))),
    ),
    ("has a part in the recovery of [logs][0]", _beside(_under_way(ES2, ES3), _under_way(ES1, ES3))),
    ("is stopped while", _beside(unassigned=1)),
    ("es1 (stopped) is tuned in down", _step(_tuned(wave=Wave(number=1, nodes=(ES2,))), TUNE)),
    (
        "numad of es1 is set, and nothing says what was found",
        _step(_tuned(), ActionSent(action=TuneHost(node=ES1, tunable="numad", changes=()))),
    ),
    (
        "es1 continues while numad is under way",
        _step(state_with(_tuned(), in_flight=(TUNE.action,)), node_phase(ES1, STOPPED, STARTING)),
    ),
    (
        "hook_while_stopped on es1 (stopped) in standing_down",
        _step(_state(Phase.STANDING_DOWN, STOPPED), HOOK),
    ),
    (
        "es1 counts as recovered from pending",
        _step(_owing(Phase.SETTLED, PENDING), node_phase(ES1, PENDING, RECOVERED)),
    ),
    ("es1 is to be restarted and needs no work", _step(_owing(), UNDONE)),
    ("no more after install_ended", _ended_step(InstallState.FAILED)),
    *ALSO_BROKEN,
)
"""Other steps that break one, and what is said of each."""


def _kind(step: JournalStep) -> tuple[type[object], ...]:
    event = step.record.event
    return (type(event), type(event.action)) if isinstance(event, ActionSent) else (type(event),)


def test_every_invariant_notices_the_step_that_breaks_it(subtests: pytest.Subtests) -> None:
    assert sorted(STEPS_OF) == sorted(rule.name for rule in INVARIANTS)
    for rule in INVARIANTS:
        with subtests.test(rule.name):
            wrong, *right = STEPS_OF[rule.name]
            assert [said for said in broken(wrong) if said.startswith(f"{rule.name}: ")]
            assert [said for step in right for said in rule.check(step)] == []
            assert _kind(right[0]) == _kind(wrong), "a step that it looks at"
    assert broken(_all_done()) == ()
    for nodes in ((ES1,), (ES2,), (ES1, ES2), (ES1, ES3)):
        assert broken(_starting_wave(*nodes)) == ()


def test_what_a_broken_invariant_says(subtests: pytest.Subtests) -> None:
    for said, step in SAID:
        with subtests.test(said):
            assert [line for line in broken(step) if said in line]


def test_the_budget_without_a_number_is_one_machine() -> None:
    for machines, right in ((((ES1, ES2),), True), ((), False), (((ES1, ES3),), False)):
        state = _state(wave=replace(BOTH, machines=machines), policy=policy(max_unavailable=None))
        assert (broken(_step(_es2(state, STOPPED), STOP)) == ()) is right


def test_an_absent_setting_is_restored_to_a_value(subtests: pytest.Subtests) -> None:
    """Before 5.0 no setting can become absent again: its effective value is written, and only to restore."""
    value = replace(DEBT.undone(), wanted="all")
    was_set = {"settings": {KEY: replace(DEBT, found="none")}}
    for what, state, change, purpose, right in [
        ("restored", {}, value, Purpose.REASSIGN, True),
        ("not to restore it", {}, value, Purpose.WITHHOLD, False),
        ("from another value", {}, replace(value, found="none"), Purpose.REASSIGN, False),
        ("it was set before", was_set, value, Purpose.REASSIGN, False),
        ("no record", {"settings": {}}, value, Purpose.RESTORE, False),
    ]:
        with subtests.test(what):
            said = [line.partition(":")[0] for line in broken(_writes(change, purpose, **state))]
            assert ("changes_are_written_down_first" not in said) is right
