"""Transfer limits: what is raised, what counts as found, and how they are put back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from orchestrator.engine.changes import restore_settings
from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.kind import RIAK, kind_of
from orchestrator.engine.kinds.riak.settings import holder, limit_changes, limit_key
from orchestrator.engine.situation import Decision, Situation
from orchestrator.engine.state import RunState
from orchestrator.model.action import Purpose, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionConfirmed, Record, SettingChanged, SettingRestored
from orchestrator.model.observation import ClusterView, Level, Observation, SettingsView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Kind
from orchestrator.model.replacing import replace as changed
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import machines, views
from tests.simulation.ringed import ONE, THREE, TWO, riak_policy, ringed
from tests.states import state_with

AT = 1_000_000.0


def _settings(limits: Mapping[NodeName, int | str]) -> SettingsView:
    return SettingsView(transient={limit_key(name): str(limit) for name, limit in limits.items()})


def _state(**of_two: object) -> RunState:
    """A run that has begun, with one node somewhere in it."""
    state = Simulation(ringed()).begin(riak_policy())
    return changed(state, nodes=state.nodes.changed(changed(state.nodes[TWO], **of_two)))


def _owing(state: RunState, name: NodeName, found: int, wanted: int) -> RunState:
    event = SettingChanged(
        level=Level.TRANSIENT,
        key=limit_key(name),
        found=str(found),
        wanted=str(wanted),
        purpose=Purpose.RAISE_LIMITS,
    )
    return evolve(state, Record(run="run-1", sequence=9, at=AT, event=event))


def _wanted(state: RunState, limits: Mapping[NodeName, int | str]) -> dict[NodeName, tuple[object, object]]:
    changes = limit_changes(state, _settings(limits), riak_policy())
    assert all(change.level is Level.TRANSIENT for change in changes)
    return {node: (c.found, c.wanted) for c in changes if (node := holder(c.key)) is not None}


def test_a_key_tells_its_node() -> None:
    assert holder(limit_key(TWO)) == TWO
    assert holder("cluster.routing.allocation.enable") is None
    assert kind_of(Kind.RIAK) is RIAK


def test_lower_limits_are_raised() -> None:
    assert _wanted(_state(), {ONE: 2, TWO: 7}) == {ONE: ("2", "8"), TWO: ("7", "8")}


def test_no_limit_is_touched_without_a_wish() -> None:
    assert limit_changes(_state(), _settings({ONE: 2}), riak_policy(transfer_limit=None)) == ()


@pytest.mark.parametrize("has", [8, 16])
def test_a_higher_limit_is_never_lowered_and_is_recorded_first(has: int) -> None:
    assert _wanted(_state(), {TWO: has}) == {TWO: (str(has), str(has))}
    assert _wanted(_owing(_state(), TWO, has, has), {TWO: has}) == {}, "it is noted already"
    assert _wanted(_state(phase=NodePhase.RECOVERED), {TWO: has}) == {}, "nothing will make it forget"


def test_a_node_that_is_not_of_the_run_is_raised_and_not_noted() -> None:
    assert _wanted(_state(), {NodeName("riak9@10.0.0.9"): 16}) == {}
    assert _wanted(_state(), {NodeName("riak9@10.0.0.9"): 2}) == {"riak9@10.0.0.9": ("2", "8")}


@pytest.mark.parametrize("said", ["", "offline", "2.5"])
def test_what_is_no_number_is_left(said: str) -> None:
    assert _wanted(_state(), {TWO: said}) == {}


def test_what_is_no_limit_of_a_node_is_left() -> None:
    others = SettingsView(transient={"handoff_concurrency": "2", limit_key(TWO): ("2", "3")})
    assert limit_changes(_state(), others, riak_policy()) == ()


def test_a_restarted_node_without_debt_is_raised_from_its_limit() -> None:
    """As when a run was put back by `restore`, and is taken up again afterwards."""
    restarted = _state(phase=NodePhase.RECOVERED, stopped_at=AT)
    assert restarted.forgetful == {TWO}
    assert not restarted.unrestored.settings
    assert _wanted(restarted, {TWO: 2}) == {TWO: ("2", "8")}


def test_found_of_a_restarted_node_stays_what_was_found_first() -> None:
    restarted = _owing(_state(phase=NodePhase.REJOINED, stopped_at=AT), TWO, 4, 8)
    assert _wanted(restarted, {TWO: 2}) == {TWO: ("4", "8")}
    higher = _owing(_state(phase=NodePhase.REJOINED, stopped_at=AT), TWO, 16, 16)
    assert _wanted(higher, {TWO: 3}) == {TWO: ("16", "16")}


def test_found_of_a_node_that_others_have_changed_is_theirs() -> None:
    assert _wanted(_owing(_state(), TWO, 4, 8), {TWO: 3}) == {TWO: ("3", "8")}


def test_the_first_note_stands_when_the_node_is_raised_again() -> None:
    state = _owing(_state(phase=NodePhase.REJOINED, stopped_at=AT), TWO, 4, 8)
    (again,) = limit_changes(state, _settings({TWO: 2}), riak_policy())
    event = SettingChanged(
        level=again.level,
        key=again.key,
        found=again.found,
        wanted=again.wanted,
        purpose=Purpose.RAISE_LIMITS,
    )
    later = evolve(state, Record(run="run-1", sequence=10, at=AT, event=event))
    assert later.unrestored.settings[Level.TRANSIENT, limit_key(TWO)].found == "4"


# Putting back --------------------------------------------------------------------------------------


def _restore_settings(
    state: RunState, limits: Mapping[NodeName, int], *, away: tuple[NodeName, ...] = ()
) -> Decision | None:
    world = ringed()
    for name in away:
        machines.die(world, world.nodes[name])
    read = views.readings(world).cluster
    assert isinstance(read, ClusterView)
    seen = Observation(at=AT + 9, cluster=read, settings=_settings(limits))
    policy = riak_policy()
    situation = Situation(state=state, policy=policy, kind=RIAK, seen=seen, now=AT + 9)
    return restore_settings(situation, Purpose.PUT_BACK)


def _written(decision: Decision | None) -> dict[NodeName | None, object]:
    assert decision is not None
    return {
        holder(change.key): change.wanted
        for action in decision.actions
        if isinstance(action, WriteSettings)
        for change in action.changes
    }


def _restored(decision: Decision | None) -> dict[NodeName | None, object]:
    assert decision is not None
    return {holder(event.key): event.value for event in decision.events if isinstance(event, SettingRestored)}


def test_nothing_owed_is_nothing_to_do() -> None:
    assert _restore_settings(_state(), {TWO: 2}) is None


def test_a_limit_is_restored_when_it_is_read_as_it_was_found() -> None:
    state = _owing(_state(), TWO, 4, 8)
    first = _restore_settings(state, {TWO: 8})
    assert _written(first) == {TWO: "4"}
    assert first is not None
    confirmed = ActionConfirmed(action=first.actions[0])
    state = evolve(state, Record(run="run-1", sequence=10, at=AT, event=confirmed))
    assert _restored(_restore_settings(state, {TWO: 4})) == {TWO: "4"}
    assert _restored(_restore_settings(state, {TWO: 8})) == {}, "not read back yet"


def test_a_restarted_node_with_its_files_limit_gets_what_it_had() -> None:
    state = _owing(_state(phase=NodePhase.RECOVERED, stopped_at=AT), TWO, 4, 8)
    assert _written(_restore_settings(state, {TWO: 2})) == {TWO: "4"}


def test_what_others_set_meanwhile_is_left() -> None:
    state = state_with(
        _owing(_state(), TWO, 4, 8), confirmed=(WriteSettings(changes=(), purpose=Purpose.PUT_BACK),)
    )
    assert _restored(_restore_settings(state, {TWO: 6})) == {TWO: "6"}


def test_a_node_that_does_not_tell_its_limit_gets_what_it_had() -> None:
    """It is up, and the table of limits has no line of it: nobody has changed anything."""
    state = _owing(_state(), TWO, 4, 8)
    assert _written(_restore_settings(state, {ONE: 2})) == {TWO: "4"}


def test_the_limit_of_a_node_that_stays_down_is_gone_with_it() -> None:
    state = _owing(_state(phase=NodePhase.FAILED, stopped_at=AT), TWO, 4, 8)
    decision = _restore_settings(state, {ONE: 2}, away=(TWO,))
    assert _restored(decision) == {TWO: None}
    assert decision is not None
    (event,) = (event for event in decision.events if isinstance(event, SettingRestored))
    assert "its node is down" in event.note
    assert not decision.actions


@pytest.mark.parametrize("phase", [NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING])
def test_only_the_limit_of_a_node_that_starts_waits(phase: NodePhase) -> None:
    """A run that stands down puts back what it can at once; this one it can only when the node is up."""
    state = _owing(_state(phase=phase, stopped_at=AT), TWO, 4, 8)
    alone = _restore_settings(state, {ONE: 2}, away=(TWO,))
    assert alone is not None
    assert alone.watch is not None
    assert not alone.events
    beside = _restore_settings(_owing(state, THREE, 2, 8), {ONE: 2, THREE: 8}, away=(TWO,))
    assert _written(beside) == {THREE: "2"}
