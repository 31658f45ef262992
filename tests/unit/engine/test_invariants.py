"""Every invariant notices the step that it is there for; an invariant that cannot break says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.invariant import Step
from orchestrator.engine.state import RunState
from orchestrator.merging.invariants import ALL_INVARIANTS as INVARIANTS
from orchestrator.merging.invariants import broken
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
    Record,
    ReplicasAdded,
    RunFinished,
    RunResumed,
    SettingChanged,
    StoodDown,
    WaveStarted,
    WorkDone,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import Level
from orchestrator.model.overlap import Overlapping, ShardUnderWay
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.model.tuning import ServiceChange, ServiceMode, TuningProfile, TuningSetting
from orchestrator.model.tuning_event import TuningApplied
from orchestrator.model.turn import REBOOT, VERSION, Doubt, Goal, Installing, Owed, Verb, Work
from orchestrator.model.upgrade import InstallState
from orchestrator.model.upgrade_event import InstallEnded, Upgraded
from orchestrator.runs.simulated import Simulation
from tests.simulation.play import cluster, policy
from tests.simulation.upgrading import STEPS, TARGET, upgrading
from tests.states import state_with
from tests.unit.engine.merge_steps import ALSO_BROKEN, ASKED, MERGE_BREAKS, MERGE_HOLDS

ES1, ES2 = NodeName("es1"), NodeName("es2")
KEY = (Level.PERSISTENT, "cluster.routing.allocation.enable")
DEBT = SettingChange(level=KEY[0], key=KEY[1], found=None, wanted="primaries")
STOP = ActionSent(action=StopNode(node=ES1))
DONE = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0)
LOOK = HoldsCleared()
BEGINS = run_phase(Phase.GATED, Phase.WITHHELD)
ADDED = ReplicasAdded(index="bare", index_uuid="bare-uuid", found=0, wanted=1)
ADD = SetReplicas(index="bare", index_uuid="bare-uuid", found=0, wanted=1)
PENDING = NodePhase.PENDING
AT = 1_000_000.0


def _state(phase: Phase = Phase.DOWN, es1: NodePhase = NodePhase.STOPPING, **changes: object) -> RunState:
    """A run with one node of its wave on its way down, allocation withheld; all is as it should be."""
    state = Simulation(cluster(3)).begin(policy())
    right: dict[str, object] = {
        "phase": phase,
        "nodes": {**state.nodes, ES1: replace(state.nodes[ES1], phase=es1)},
        "wave": Wave(number=1, nodes=(ES1,)),
        "settings": {KEY: DEBT},
        "withheld": frozenset({KEY}),
        "withheld_since": AT,
        "since": AT,
    }
    return state_with(state, **{**right, **changes})


def _step(before: RunState, event: Event, after: RunState | None = None, *, passed: float = 1.0) -> Step:
    record = Record(run="run-1", sequence=7, at=AT + passed, event=event)
    return Step(before=before, record=record, after=after or before)


def _with(state: RunState, name: NodeName, phase: NodePhase) -> RunState:
    return replace(state, nodes=state.nodes.changed(replace(state.nodes[name], phase=phase)))


def _changed(found: str | None) -> SettingChanged:
    """Allocation is written once more, to another value of ours, and this stands there now."""
    return SettingChanged(level=KEY[0], key=KEY[1], found=found, wanted="none", purpose=Purpose.WITHHOLD)


def _ended(outcome: Outcome, es1: NodePhase) -> Step:
    return _step(_state(Phase.ENDED, es1), RunFinished(outcome=outcome, exit_code=1, seconds=1.0))


def _beside(*shards: ShardUnderWay, unassigned: int = 0, number: int = 1, overlap: bool = True) -> Step:
    """es1 is stopped while es2, of the wave before, still recovers."""
    read = Overlapping(number=number, unassigned=unassigned, shards=shards)
    state = _state(overlapping=read, policy=policy(overlap_recovery=overlap))
    return _step(_with(state, ES2, NodePhase.REJOINED), STOP)


def _under_way(*nodes: str) -> ShardUnderWay:
    return ShardUnderWay(index="logs", number=0, nodes=tuple(NodeName(name) for name in nodes))


def _rebooted(
    *,
    es1: NodePhase = NodePhase.STOPPED,
    es2: NodePhase = NodePhase.STOPPED,
    also: tuple[NodeName, ...] = (ES2,),
    doubt: Doubt | None = None,
) -> Step:
    """The machine of es1 and es2 is told to reboot."""
    state = _state(wave=Wave(number=1, nodes=(ES1, ES2), machines=((ES1, ES2),)))
    for name, phase in ((ES1, es1), (ES2, es2)):
        node = replace(state.nodes[name], phase=phase, doubt=doubt)
        state = replace(state, nodes=state.nodes.changed(node))
    return _step(state, ActionSent(action=RebootHost(node=ES1, also=also)))


HOOKS = Hooks(before_stop=(Hook(run="a"),), while_stopped=(Hook(run="b"),))
HOOK = ActionSent(action=RunHook(node=ES1, moment=Moment.WHILE_STOPPED, number=0, hook=Hook(run="b")))
DEPOSED = Deposed(successor="run-2", owner="eve@elsewhere", epoch=2, in_hand=(ES2,))
RESTORED = ActionSent(action=WriteSettings(changes=(DEBT.undone(),), purpose=Purpose.REASSIGN))
RESUMED = RunResumed(operator="ann", host="bastion")


def _owing(
    phase: Phase = Phase.DOWN,
    es1: NodePhase = NodePhase.STOPPING,
    *,
    owed: frozenset[Owed] = frozenset(),
    ready: frozenset[int] = frozenset(),
    **changes: object,
) -> RunState:
    """es1 owes this, and nothing else."""
    state = _state(phase, es1, **changes)
    node = replace(state.nodes[ES1], owed=owed, ready=ready)
    return replace(state, nodes=state.nodes.changed(node))


_ALL_DONE = dict.fromkeys(("es1", "es2", "es3"), NodePhase.RECOVERED)


NUMAD = ServiceChange(
    service="numad",
    found=ServiceMode(running=True, enabled=True),
    wanted=ServiceMode(running=False, enabled=False),
)
TUNE = ActionSent(action=TuneHost(node=ES1, tunable="numad", changes=(NUMAD,)))
APPLIED = TuningApplied(node=ES1, tunable="numad", found="running", wanted="off")


def _tuned(tunable: str = "numad", es1: NodePhase = NodePhase.STOPPED, **changes: object) -> RunState:
    """es1 is down, and a profile wants this of its host."""
    settings = (TuningSetting(tunable=tunable, wanted="off"),)
    profile = TuningProfile(name="elasticsearch", applies_to="elasticsearch", settings=settings)
    return _state(es1=es1, policy=policy(tune=profile), **changes)


START = ActionSent(action=StartNode(node=ES1))
INSTALL = ActionSent(
    action=RunInstall(node=ES1, number=0, step=STEPS[0], ticket="run-1/es1/0/1", target=TARGET)
)


TO_INSTALL = Owed(work=Work.INSTALL)


def _ended_step(state: InstallState) -> InstallEnded:
    return InstallEnded(node=ES1, number=0, ticket="run-1/es1/0/1", state=state)


def _installing(es1: NodePhase = NodePhase.STOPPED, **changes: object) -> RunState:
    """es1 is down, and its first install step was sent; no reading has shown its end."""
    state = _state(es1=es1, policy=upgrading(), **changes)
    sent = Installing(number=0, ticket="run-1/es1/0/1", since=AT)
    return replace(state, nodes=state.nodes.changed(replace(state.nodes[ES1], install=sent)))


BREAKS: dict[str, Callable[[], Step]] = {
    "stops_stand_behind_withholding": lambda: _step(_state(settings={}, withheld=frozenset()), STOP),
    "stops_are_sent_from_down_alone": lambda: _step(_state(Phase.GATED), STOP),
    "only_the_wave_is_stopped": lambda: _step(_state(wave=Wave(number=1, nodes=(ES2,))), STOP),
    "budget": lambda: _step(_with(_state(), ES2, NodePhase.STARTING), STOP),
    "a_reboot_takes_down_only_what_is_down": lambda: _rebooted(es2=NodePhase.STOPPING),
    "no_wider_than_planned": lambda: _step(
        _state(planned=((ES1,), (ES2,))), WaveStarted(wave=Wave(number=1, nodes=(ES1, ES2)), incarnations={})
    ),
    "nobody_stops_without_the_lease": lambda: _step(_state(lease_lost="to eve"), STOP),
    "a_finished_node_is_not_stopped": lambda: _step(
        _state(es1=NodePhase.RECOVERED), STOP, _state(es1=NodePhase.STOPPING)
    ),
    "changes_are_written_down_first": lambda: _step(
        _state(settings={}), ActionSent(action=WriteSettings(changes=(DEBT,), purpose=Purpose.WITHHOLD))
    ),
    "what_was_found_stays": lambda: _step(
        _state(),
        _changed("primaries"),
        _state(settings={KEY: replace(DEBT, found="primaries", wanted="none")}),
    ),
    "nobody_waits_with_allocation_off": lambda: _step(_state(Phase.GATED), LOOK, passed=1_921.0),
    "withholding_has_a_limit": lambda: _step(_state(), LOOK, passed=3_121.0),
    "waves_begin_healed": lambda: _step(
        _state(Phase.GATED), BEGINS, _with(_state(Phase.WITHHELD, PENDING), ES2, NodePhase.FAILED)
    ),
    "overlap_leaves_recoveries_alone": lambda: _beside(_under_way("es1", "es2")),
    "done_owes_nothing": lambda: _step(_state(Phase.ENDED, NodePhase.RECOVERED), DONE),
    "what_is_left_is_said": lambda: _step(_state(), StoodDown(outcome=Outcome.FAILED)),
    "nodes_are_brought_up": lambda: _step(
        _state(Phase.ENDED), RunFinished(outcome=Outcome.HELD, exit_code=3, seconds=1.0)
    ),
    "nothing_after_the_end": lambda: _step(_state(Phase.ENDED), STOP),
    "no_stop_after_standing_down": lambda: _step(_state(standing_down=ASKED), STOP),
    "starts_are_for_our_own": lambda: _step(
        _state(es1=NodePhase.RECOVERED), ActionSent(action=StartNode(node=ES1))
    ),
    "work_is_done_on_stopped_nodes": lambda: _step(_state(es1=NodePhase.STARTING), HOOK),
    "recovered_owes_nothing": lambda: _step(
        _state(Phase.SETTLED, NodePhase.REJOINED), node_phase(ES1, NodePhase.REJOINED, NodePhase.RECOVERED)
    ),
    "no_start_beside_an_install": lambda: _step(_installing(es1=NodePhase.STARTING), START),
    "owed_work_leaves_by_evidence": lambda: _step(_state(), RESUMED, _owing()),
    "stops_need_every_hook_before": lambda: _step(_state(policy=policy(hooks=HOOKS)), STOP),
    "a_deposed_run_writes_nothing": lambda: _step(_state(deposed=DEPOSED), RESTORED),
    "hosts_are_tuned_under_stopped_nodes": lambda: _step(_tuned(es1=NodePhase.STARTING), TUNE),
    "only_what_is_wanted_is_tuned": lambda: _step(_tuned("vm.swappiness"), TUNE),
    "tuning_is_told_as_it_was": lambda: _step(_tuned(), APPLIED),
    **MERGE_BREAKS,
}


def test_the_table_names_every_invariant() -> None:
    assert sorted(BREAKS) == sorted(rule.name for rule in INVARIANTS)


def test_it_notices(subtests: pytest.Subtests) -> None:
    for rule in INVARIANTS:
        with subtests.test(rule.name):
            invariant = next(one for one in INVARIANTS if one is rule)
            assert [
                said for said in broken(BREAKS[invariant.name]()) if said.startswith(f"{invariant.name}: ")
            ]


_OWING_NOTHING: dict[str, object] = {"settings": {}, "withheld": frozenset(), "withheld_since": None}


def _done() -> Step:
    state = _state(Phase.ENDED, **_OWING_NOTHING)
    for name, phase in _ALL_DONE.items():
        state = _with(state, NodeName(name), phase)
    return _step(state, DONE)


HOLDS: dict[str, Callable[[], tuple[Step, ...]]] = {
    "stops_stand_behind_withholding": lambda: (_step(_state(), STOP),),
    "stops_are_sent_from_down_alone": lambda: (_step(_state(), STOP),),
    "only_the_wave_is_stopped": lambda: (_step(_state(wave=Wave(number=1, nodes=(ES2, ES1))), STOP),),
    "budget": lambda: (_step(_with(_state(), ES2, NodePhase.RECOVERED), STOP),),
    "a_reboot_takes_down_only_what_is_down": lambda: (
        _rebooted(),
        _rebooted(doubt=Doubt(verb=Verb.REBOOT, since=AT)),  # never accepted: it may never have arrived
        _rebooted(doubt=Doubt(verb=Verb.STOP, since=AT, accepted=True)),
    ),
    "no_wider_than_planned": lambda: (
        _step(
            _state(planned=((ES1, ES2),)),
            WaveStarted(wave=Wave(number=1, nodes=(ES1, ES2)), incarnations={}),
        ),
    ),
    "nobody_stops_without_the_lease": lambda: (
        _step(_state(), STOP),
        _step(_state(lease_lost="to eve"), ActionSent(action=StartNode(node=ES1))),
    ),
    "a_finished_node_is_not_stopped": lambda: (
        _step(
            _with(_state(es1=PENDING), ES2, NodePhase.RECOVERED),
            STOP,
            _with(_state(), ES2, NodePhase.RECOVERED),
        ),
    ),
    "changes_are_written_down_first": lambda: (
        _step(_state(), ActionSent(action=WriteSettings(changes=(DEBT,), purpose=Purpose.WITHHOLD))),
        _step(_state(), ActionSent(action=WriteSettings(changes=(DEBT.undone(),), purpose=Purpose.REASSIGN))),
        _step(_state(replicas={ADDED.index_uuid: ADDED}), ActionSent(action=ADD)),
    ),
    "what_was_found_stays": lambda: (
        _step(_state(), _changed("primaries"), _state(settings={KEY: replace(DEBT, wanted="none")})),
        # Somebody else has set it since: that is what was found now.
        _step(_state(), _changed("all"), _state(settings={KEY: replace(DEBT, found="all", wanted="none")})),
    ),
    "nobody_waits_with_allocation_off": lambda: (
        _step(_state(Phase.GATED), LOOK, passed=1_919.0),
        _step(_state(Phase.DOWN), LOOK, passed=3_000.0),
        _step(_state(Phase.GATED, withheld_since=None), LOOK, passed=5_000.0),
    ),
    "withholding_has_a_limit": lambda: (
        _step(_state(), LOOK, passed=3_119.0),
        _step(_state(withheld_since=None), LOOK, passed=5_000.0),
    ),
    "waves_begin_healed": lambda: (
        _step(
            _state(Phase.GATED, PENDING),
            BEGINS,
            _with(_state(Phase.WITHHELD, PENDING), ES2, NodePhase.RECOVERED),
        ),
    ),
    "overlap_leaves_recoveries_alone": lambda: (
        _beside(_under_way("es2", "es3")),
        _beside(),
        _step(_with(_state(), ES2, NodePhase.RECOVERED), STOP),
        _step(_state(wave=Wave(number=1, nodes=(ES1, ES2))), STOP),
    ),
    "done_owes_nothing": lambda: (_done(),),
    "what_is_left_is_said": lambda: (
        _step(_state(), StoodDown(outcome=Outcome.NOT_RESTORED, left=("allocation",))),
        _step(_state(**_OWING_NOTHING), StoodDown(outcome=Outcome.FAILED)),
    ),
    "nodes_are_brought_up": lambda: (
        _ended(Outcome.HELD, NodePhase.RECOVERED),
        _ended(Outcome.FAILED, NodePhase.FAILED),
        _ended(Outcome.NOT_RESTORED, NodePhase.STARTING),
    ),
    "nothing_after_the_end": lambda: (_step(_state(Phase.STANDING_DOWN), STOP), _step(_done().after, LOOK)),
    "no_stop_after_standing_down": lambda: (
        _step(_state(), STOP),
        _step(_state(standing_down=ASKED), ActionSent(action=StartNode(node=ES1))),
    ),
    "starts_are_for_our_own": lambda: (
        _step(_state(es1=NodePhase.STARTING), ActionSent(action=StartNode(node=ES1))),
    ),
    "work_is_done_on_stopped_nodes": lambda: (
        _step(_state(es1=NodePhase.STOPPED), HOOK),
        _step(_installing(), INSTALL),
    ),
    "no_start_beside_an_install": lambda: (
        _step(_state(es1=NodePhase.STARTING), START),
        _step(_with(_installing(), ES2, NodePhase.STARTING), ActionSent(action=StartNode(node=ES2))),
    ),
    "recovered_owes_nothing": lambda: (
        _step(
            _owing(Phase.SETTLED, NodePhase.REJOINED),
            node_phase(ES1, NodePhase.REJOINED, NodePhase.RECOVERED),
        ),
        _step(_state(), node_phase(ES1, NodePhase.STOPPING, PENDING)),
    ),
    "owed_work_leaves_by_evidence": lambda: (
        _step(_state(), RESUMED, _state()),
        _step(_state(), node_phase(ES1, NodePhase.STARTING, NodePhase.REJOINED), _owing()),
        _step(_owing(owed=frozenset({REBOOT})), WorkDone(node=ES1, work=Work.REBOOT, why=""), _owing()),
        _step(_owing(owed=frozenset({Owed(work=Work.HOOK)})), ActionConfirmed(action=HOOK.action), _owing()),
        _step(_owing(owed=frozenset({TO_INSTALL})), _ended_step(InstallState.DONE), _owing()),
        _step(_owing(owed=frozenset({TO_INSTALL})), _ended_step(InstallState.FOUND), _owing()),
        _step(_owing(owed=frozenset({TO_INSTALL, VERSION})), Upgraded(node=ES1, version=TARGET), _owing()),
    ),
    "stops_need_every_hook_before": lambda: (
        _step(_owing(ready=frozenset({0}), policy=policy(hooks=HOOKS)), STOP),
    ),
    "a_deposed_run_writes_nothing": lambda: (
        _step(_state(), RESTORED),
        _step(_state(deposed=DEPOSED, es1=NodePhase.STARTING), ActionSent(action=StartNode(node=ES1))),
    ),
    "hosts_are_tuned_under_stopped_nodes": lambda: (_step(_tuned(), TUNE),),
    "only_what_is_wanted_is_tuned": lambda: (_step(_tuned(), TUNE),),
    "tuning_is_told_as_it_was": lambda: (_step(state_with(_tuned(), confirmed=(TUNE.action,)), APPLIED),),
    **MERGE_HOLDS,
}
"""What each invariant looks at, as it should be: often just inside the limit that its break is beyond."""


def _kind(step: Step) -> tuple[type[object], ...]:
    event = step.record.event
    return (type(event), type(event.action)) if isinstance(event, ActionSent) else (type(event),)


def test_it_is_silent_about_a_step_as_it_should_be(subtests: pytest.Subtests) -> None:
    for rule in INVARIANTS:
        with subtests.test(rule.name):
            invariant = next(one for one in INVARIANTS if one is rule)
            right = HOLDS[invariant.name]()
            assert [wrong for step in right for wrong in invariant.check(step)] == []
            assert _kind(right[0]) == _kind(BREAKS[invariant.name]()), "a step that it looks at"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (_rebooted(also=()), "es1: not the nodes of one machine of the wave"),
        (_rebooted(es2=NodePhase.PENDING), "es2 (pending) goes down with the host of es1"),
        (_rebooted(es1=NodePhase.STARTING), "es1 (starting) goes down with the host of es1"),
        (
            _rebooted(doubt=Doubt(verb=Verb.REBOOT, since=AT, accepted=True)),
            "the host of es1 was asked to reboot before",
        ),
    ],
    ids=["not all of it", "one not stopped", "one is started", "twice"],
)
def test_a_reboot_is_once_for_all_of_a_machine_that_is_down(step: Step, said: str) -> None:
    assert f"a_reboot_takes_down_only_what_is_down: {said}" in broken(step)


def test_a_node_that_is_back_has_no_hook_of_before_its_stop_left() -> None:
    back = node_phase(ES1, NodePhase.STARTING, NodePhase.REJOINED)
    for ready in (frozenset[int](), frozenset({0})):
        step = _step(_owing(es1=NodePhase.STARTING), back, _owing(es1=NodePhase.REJOINED, ready=ready))
        said = [wrong for wrong in broken(step) if wrong.startswith("stops_need_every_hook_before")]
        assert bool(said) is bool(ready), said


@pytest.mark.parametrize(
    ("machines", "right"), [(((ES1, ES2),), True), ((), False), (((ES1, NodeName("es3")),), False)]
)
def test_without_a_budget_what_is_in_hand_is_of_one_machine(
    machines: tuple[tuple[NodeName, ...], ...], *, right: bool
) -> None:
    wave = Wave(number=1, nodes=(ES1, ES2), machines=machines)
    state = _with(_state(wave=wave, policy=policy(max_unavailable=None)), ES2, NodePhase.STOPPED)
    assert (broken(_step(state, STOP)) == ()) is right


@pytest.mark.parametrize("nodes", [(ES1,), (ES2,), (ES1, ES2), (ES1, NodeName("es3"))])
def test_a_part_of_a_planned_wave_is_not_wider(nodes: tuple[NodeName, ...]) -> None:
    wave = WaveStarted(wave=Wave(number=1, nodes=nodes), incarnations={})
    step = _step(_state(planned=((ES1, ES2),)), wave)
    assert broken(step) == ()


@pytest.mark.parametrize(
    "step",
    [
        _beside(_under_way("es2", "es3"), _under_way("es1", "es3")),
        _beside(unassigned=1),
        _beside(number=2),
        _step(_with(_state(), ES2, NodePhase.REJOINED), STOP),
    ],
    ids=["a part in one of two", "a copy unassigned", "read for another wave", "nothing read"],
)
def test_no_stop_beside_a_recovery_without_a_reading_for_it(step: Step) -> None:
    said = [wrong for rule in INVARIANTS for wrong in rule.check(step)]
    assert len(said) == 1
    assert "is stopped while" in said[0] or "has a part in the recovery of [logs][0]" in said[0]


def test_a_wave_begins_beside_a_recovery_with_overlap_alone() -> None:
    for overlap in (True, False):
        before = _state(Phase.GATED, policy=policy(overlap_recovery=overlap))
        after = _state(Phase.WITHHELD, PENDING, policy=policy(overlap_recovery=overlap))
        step = _step(before, BEGINS, _with(after, ES2, NodePhase.REJOINED))
        assert bool([wrong for rule in INVARIANTS for wrong in rule.check(step)]) is not overlap


def test_a_run_is_done_with_every_node_ready_and_nothing_owed() -> None:
    assert broken(_done()) == ()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            _step(_tuned(wave=Wave(number=1, nodes=(ES2,))), TUNE),
            "the host of es1 (stopped) is tuned in down",
        ),
        (_step(_tuned(phase=Phase.REASSIGNED), TUNE), "the host of es1 (stopped) is tuned in reassigned"),
        (
            _step(
                _tuned(),
                ActionSent(action=TuneHost(node=ES1, tunable="numad", changes=())),
            ),
            "numad of es1 is set, and nothing says what was found",
        ),
        (
            _step(
                state_with(_tuned(), in_flight=(TUNE.action,)),
                node_phase(ES1, NodePhase.STOPPED, NodePhase.STARTING),
            ),
            "es1 continues while numad is under way",
        ),
    ],
    ids=["not of the wave", "not while it is down", "nothing to undo it by", "under way"],
)
def test_tuning_has_its_place_and_its_record(step: Step, said: str) -> None:
    assert [wrong for rule in INVARIANTS for wrong in rule.check(step) if said in wrong]


def test_a_rescued_node_is_not_tuned() -> None:
    state = _tuned()
    rescued = replace(state, nodes=state.nodes.changed(replace(state.nodes[ES1], goal=Goal.BRING_UP)))
    assert "es1 is tuned, and it is to be brought up at once" in " ".join(broken(_step(rescued, TUNE)))


def test_merges_have_their_place_and_their_count(subtests: pytest.Subtests) -> None:
    for name, (step, said) in ALSO_BROKEN.items():
        with subtests.test(name=name):
            assert said in broken(step)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            _step(_state(Phase.STANDING_DOWN, NodePhase.STOPPED), HOOK),
            "hook_while_stopped on es1 (stopped) in standing_down",
        ),
        (
            _step(_owing(Phase.SETTLED, PENDING), node_phase(ES1, PENDING, NodePhase.RECOVERED)),
            "es1 counts as recovered from pending",
        ),
        (
            _step(_owing(), node_phase(ES1, NodePhase.STOPPING, PENDING)),
            "es1 is to be restarted and needs no work",
        ),
        (
            _step(_state(deposed=DEPOSED), ActionSent(action=StartNode(node=ES2))),
            "a_deposed_run_writes_nothing",
        ),
        (
            _step(_installing(NodePhase.STARTING), INSTALL),
            "install on es1 (starting) in down",
        ),
        (
            _step(_owing(owed=frozenset({TO_INSTALL})), _ended_step(InstallState.FAILED), _owing()),
            "no more after install_ended",
        ),
        (
            _step(
                _owing(Phase.SETTLED, NodePhase.REJOINED, owed=frozenset({VERSION})),
                node_phase(ES1, NodePhase.REJOINED, NodePhase.RECOVERED),
            ),
            "es1 counts as recovered from rejoined and still needs",
        ),
    ],
    ids=[
        "a stand-down has no time for it",
        "not back",
        "nothing is owed",
        "the other run starts it",
        "a step beside its process",
        "a step that failed",
        "not the version",
    ],
)
def test_a_turn_is_whole_and_a_deposed_run_leaves_others_alone(step: Step, said: str) -> None:
    assert [wrong for wrong in broken(step) if said in wrong]


def test_an_absent_setting_is_restored_to_a_value(subtests: pytest.Subtests) -> None:
    """Before 5.0 no setting can become absent again: its effective value is written, and only to restore."""
    value = replace(DEBT.undone(), wanted="all")
    was_set = {KEY: replace(DEBT, found="none")}
    for name, state, change, purpose, right in [
        ("restored", _state(), value, Purpose.REASSIGN, True),
        ("not to restore it", _state(), value, Purpose.WITHHOLD, False),
        ("from another value", _state(), replace(value, found="none"), Purpose.REASSIGN, False),
        ("it was set before", _state(settings=was_set), value, Purpose.REASSIGN, False),
        ("no record", _state(settings={}), value, Purpose.PUT_BACK, False),
    ]:
        with subtests.test(name):
            step = _step(state, ActionSent(action=WriteSettings(changes=(change,), purpose=purpose)))
            wrong = [line for line in broken(step) if line.startswith("changes_are_written_down_first")]
            assert (wrong == []) is right
