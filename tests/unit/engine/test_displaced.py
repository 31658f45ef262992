"""Copies that an upgrade has lost without a wave's account: with which wave they are waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.elasticsearch import recovery
from orchestrator.engine.kinds.elasticsearch.recovery import missing_of_waves, taken_by
from orchestrator.engine.progress import ShardTaken
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import CopyState, Node, NodeName, ShardCopy, ShardId
from orchestrator.model.event import Event, IndexTaken, NotWaitedFor, Record, TakenDown
from orchestrator.model.observation import ClusterView, MissingCopy
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import InstallStep, Upgrade
from tests.simulation.play import cluster
from tests.states import state_with
from tests.unit.engine.asking import question

TO_92 = Upgrade(target="9.2.0", install=(InstallStep(run="install {version}"),))
OLD, WAVE = "9.1.0", Wave(number=2, nodes=(NodeName("es1"),))


def _lost(reason: str = "NODE_LEFT", **changes: object) -> tuple[RunState, ClusterView]:
    """The replica of a shard is away that es1 had, whose primary is on a node with the target."""
    asked = question(cluster(3), **{"upgrade": TO_92, **changes})
    view = asked.observation.cluster
    assert not isinstance(view, Unknown)
    shard = next(copy.shard for copy in view.copies if copy.node == "es1" and not copy.primary)
    primary = view.primary(shard)
    assert primary is not None
    away = ShardCopy(shard=shard, primary=False, state=CopyState.UNASSIGNED, unassigned_reason=reason)
    nodes = tuple(
        replace(node, version=TO_92.target if node.name == primary.node else OLD) for node in view.nodes
    )
    others = tuple(copy for copy in view.copies if copy.shard != shard)
    return asked.state, replace(view, nodes=nodes, copies=(*others, primary, away))


def _counted(state: RunState, view: ClusterView) -> dict[tuple[str, int], int]:
    return {(one.index, n): count for one in taken_by(state, view, WAVE) for n, count in one.started}


def _alike(view: ClusterView) -> tuple[Node, ...]:
    """The nodes on one version: each may hold any copy."""
    return tuple(replace(node, version=OLD) for node in view.nodes)


def _away(view: ClusterView) -> ShardCopy:
    return next(copy for copy in view.copies if not copy.started)


def test_a_lost_copy_without_a_place_is_the_next_waves() -> None:
    """Its node was stopped late, came back as it was, and the shard has its primary on an upgraded one."""
    state, view = _lost()
    shard = _away(view).shard
    assert _counted(state, view)[shard.index, shard.number] == 2
    taken = TakenDown(number=2, indices=taken_by(state, view, WAVE))
    after = evolve(state_with(state, wave=WAVE), Record(run="run-1", sequence=10, at=1.0, event=taken))
    assert missing_of_waves(after, view) == (), "nobody waits for what no node can hold"
    upgraded = replace(view, nodes=tuple(replace(node, version=TO_92.target) for node in view.nodes))
    assert [copy.shard for copy in missing_of_waves(after, upgraded)] == [shard]


@pytest.mark.parametrize(
    ("reason", "changes"),
    [("NODE_LEFT", {"upgrade": None}), ("REPLICA_ADDED", {})],
    ids=["a restart", "a copy that never had a node"],
)
def test_what_no_upgrade_has_lost_is_no_waves(reason: str, changes: dict[str, object]) -> None:
    state, view = _lost(reason, **changes)
    shard = _away(view).shard
    assert _counted(state, view).get((shard.index, shard.number)) is None


def _missing_before(state: RunState, shard: ShardId) -> RunState:
    gone = MissingCopy(
        index=shard.index,
        index_uuid=shard.index_uuid,
        number=shard.number,
        primary=False,
        reason="NODE_LEFT",
        count=1,
    )
    assert state.baseline is not None
    return state_with(state, baseline=replace(state.baseline, missing=(gone,)))


def test_what_was_missing_before_is_no_waves() -> None:
    state, view = _lost()
    shard = _away(view).shard
    before = _missing_before(state, shard)
    assert _counted(before, view).get((shard.index, shard.number)) is None


def _evolved(state: RunState, *events: Event) -> RunState:
    for event in events:
        state = evolve(state, Record(run="run-1", sequence=10, at=1.0, event=event))
    return state


def _taken(view: ClusterView, shard: ShardId, started: int) -> TakenDown:
    index = view.metadata[shard.index_uuid]
    one = IndexTaken(
        index=shard.index,
        index_uuid=shard.index_uuid,
        replicas=index.replicas,
        filters=index.filters,
        started=((shard.number, started),),
        open=index.open,
    )
    return TakenDown(number=2, indices=(one,))


@pytest.mark.parametrize("excused_by", ["the start", "an earlier wave"])
def test_what_came_back_before_its_wave_is_the_runs(excused_by: str) -> None:
    """An upgraded node had taken the copy that was missing; then a wave took one that has no place now."""
    state, view = _lost()
    shard = _away(view).shard
    if excused_by == "the start":
        state = _missing_before(state, shard)
    else:
        state = replace(state, not_waited={(shard.index_uuid, shard.number): 1})
    state = state_with(state, wave=WAVE)
    upgraded = replace(view, nodes=tuple(replace(node, version=TO_92.target) for node in view.nodes))
    for started, unplaced in ((1, []), (2, [shard.number])):
        took = _evolved(state, _taken(view, shard, started))
        found = recovery.not_waited_for(took, view)
        assert [one.number for one in found] == unplaced, started
        after = _evolved(took, NotWaitedFor(shards=found, why="no place"))
        assert recovery.not_waited_for(after, view) == (), "it is said once"
        later = replace(after, taken={})
        assert [copy.shard.number for copy in missing_of_waves(later, upgraded)] == unplaced


def test_a_lost_copy_with_a_place_holds_the_wave_instead() -> None:
    """`no_worse_than_baseline` does; whoever disables it waits for none of these copies."""
    state, view = _lost()
    shard = _away(view).shard
    old = replace(view, nodes=tuple(replace(node, version=OLD) for node in view.nodes))
    assert _counted(state, old).get((shard.index, shard.number)) is None


def test_the_larger_count_of_two_waves_is_awaited(subtests: pytest.Subtests) -> None:
    """Unless its index was closed or moved in between: then the earlier count is of another time."""
    now = ShardTaken(started=2, filters="")
    key = ("logs-uuid", 0)
    for was, awaited in [
        (replace(now, started=3), 3),
        (replace(now, started=1), 2),
        (replace(now, started=3, filters="zone=b"), 2),
        (replace(now, started=3, open=False), 2),
    ]:
        with subtests.test(was=was):
            state = state_with(_lost()[0], taken={key: now}, displaced={key: was})
            assert recovery._awaited(state)[key].started == awaited
            assert recovery._awaited(replace(state, taken={}))[key] == was


@pytest.mark.parametrize("changes", [{"filters": "zone=b"}, {"open": False}], ids=["moved", "closed"])
def test_a_copy_of_an_index_that_was_changed_is_awaited_no_more(changes: dict[str, object]) -> None:
    state, view = _lost(upgrade=None)
    shard = _away(view).shard
    index = view.metadata[shard.index_uuid]
    was = ShardTaken(started=2, filters=index.filters, open=index.open)
    for taken, awaited in ((was, 1), (replace(was, **changes), 0)):
        after = state_with(state, wave=WAVE, taken={(shard.index_uuid, shard.number): taken})
        assert len(missing_of_waves(after, replace(view, nodes=_alike(view)))) == awaited
