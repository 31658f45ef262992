"""Waves that made room: when each is done, and when they are waited for before another goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.admit import next_wave_of
from orchestrator.engine.fold import evolve
from orchestrator.engine.kinds.elasticsearch.recovery import baseline_of, lost_beyond_baseline
from orchestrator.engine.kinds.kind import ELASTICSEARCH
from orchestrator.engine.node import RETURNS
from orchestrator.engine.recover import (
    before_the_next,
    finish_recovered,
    held_by_recovery,
    is_back_alone,
    makes_room,
)
from orchestrator.engine.run import decide
from orchestrator.engine.situation import Decision, Situation, needed
from orchestrator.engine.state import Absence, PhaseState, RecoveringWave
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId
from orchestrator.model.event import (
    Event,
    Hold,
    NodeRecovered,
    PhaseEntered,
    Record,
    StandingDown,
    TakenDown,
    WaveFinished,
)
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.policy import Strategy, Wave
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.model.turn import Owed, Work
from orchestrator.simulation.world import World
from tests.simulation.overlapping import overlapped, slow
from tests.states import state_with
from tests.unit.engine.asking import health_of, question

ES2, ES3, ES5 = NodeName("es2"), NodeName("es3"), NodeName("es5")
SHARD = ShardId(index="logs", index_uuid="logs-uuid", number=0)
NOBODY_WORKS_ON = ShardCopy(shard=SHARD, primary=False, state=CopyState.UNASSIGNED)


def _on_its_way_to(node: NodeName) -> ShardCopy:
    return ShardCopy(shard=SHARD, primary=False, state=CopyState.INITIALIZING, node=node)


def _beside(phase: Phase = Phase.GATED, *, pending: bool = True, **fields: object) -> Situation:
    """es2's wave made room; everything that can be read is green."""
    asked = question(slow())
    beside = (RecoveringWave(wave=Wave(number=1, nodes=(ES2,)), since=0.0),)
    nodes = {
        name: replace(node, phase=NodePhase.PENDING if pending else NodePhase.RECOVERED)
        for name, node in asked.state.nodes.items()
    }
    nodes[ES2] = replace(nodes[ES2], phase=NodePhase.REJOINED, owed=frozenset(), stopped_at=0.0)
    state = state_with(asked.state, phase=phase, recovering=beside, nodes=nodes, **fields)
    now = asked.observation.at
    return Situation(state=state, policy=overlapped(), kind=ELASTICSEARCH, seen=asked.observation, now=now)


def _recovering_on(situation: Situation, node: NodeName) -> Situation:
    """One copy of what is on that node is on its way to it."""
    view = situation.view
    assert view is not None
    arriving = next(copy for copy in view.copies if copy.node == node and not copy.primary)
    copies = tuple(
        copy._replace(state=CopyState.INITIALIZING) if copy is arriving else copy for copy in view.copies
    )
    taken = situation.kind.taken(situation.state, view, Wave(number=1, nodes=(node,)))
    after = situation.after(TakenDown(number=1, indices=taken))
    return replace(after, seen=replace(situation.seen, cluster=replace(view, copies=copies)))


@pytest.mark.parametrize("wave", [None, Wave(number=2, nodes=(ES5,))])
@pytest.mark.parametrize("order", [(ES2, ES5), (ES5, ES2)])
def test_of_spare_copies_those_on_the_waves_nodes_are_awaited(
    order: tuple[NodeName, NodeName], wave: Wave | None
) -> None:
    """Somebody has added a replica meanwhile, and it is on its way to another node."""
    situation = _beside(wave=wave)
    view = situation.view
    assert view is not None
    shard = next(copy.shard for copy in view.copies if copy.node == ES2)
    state = situation.after(
        TakenDown(number=1, indices=situation.kind.taken(situation.state, view, Wave(number=1, nodes=(ES2,))))
    ).state
    others = tuple(copy for copy in view.copies if copy.shard != shard)
    here = [copy for copy in view.shards[shard] if copy.node != ES2][:1]
    arriving = [
        ShardCopy(shard=shard, primary=False, state=CopyState.INITIALIZING, node=node) for node in order
    ]
    indices = tuple(replace(index, replicas=2) for index in view.indices)
    after = replace(view, copies=(*others, *here, *arriving), indices=indices)
    assert {copy.node for copy in situation.kind.missing(state, after) if copy.shard == shard} == {
        ES2,
        *(wave.nodes if wave else ()),
    }


def test_a_reopened_indexs_copy_hides_none_that_the_wave_took() -> None:
    situation = _beside()
    view = situation.view
    assert view is not None
    shard = next(copy.shard for copy in view.copies if copy.node == ES2)
    taken = situation.kind.taken(situation.state, view, Wave(number=1, nodes=(ES2,)))
    state = situation.after(TakenDown(number=1, indices=taken)).state
    here = [copy for copy in view.shards[shard] if copy.node != ES2][:1]
    away = [
        ShardCopy(shard=shard, primary=False, state=CopyState.UNASSIGNED, unassigned_reason=reason)
        for reason in ("INDEX_REOPENED", "NODE_LEFT")
    ]
    others = tuple(copy for copy in view.copies if copy.shard != shard)
    indices = tuple(replace(index, replicas=2) for index in view.indices)
    after = replace(view, copies=(*others, *here, *away), indices=indices)
    missing = [copy for copy in situation.kind.missing(state, after) if copy.shard == shard]
    assert [copy.unassigned_reason for copy in missing] == ["NODE_LEFT"]


def test_an_unassigned_copy_on_a_returned_node_is_awaited() -> None:
    """Which of two copies of a shard the cluster builds there is its own affair (seen under a seed)."""
    situation = _beside()
    view = situation.view
    assert view is not None
    shard = next(copy.shard for copy in view.copies if copy.node == ES2)
    taken = situation.kind.taken(situation.state, view, Wave(number=1, nodes=(ES2,)))
    state = situation.after(TakenDown(number=1, indices=taken)).state
    holders = tuple(
        ShardCopy(shard=shard, primary=not at, state=CopyState.STARTED, node=node.name)
        for at, node in enumerate(node for node in view.nodes if node.holds_data and node.name != ES2)
    )[:1]
    away = (
        ShardCopy(
            shard=shard,
            primary=False,
            state=CopyState.INITIALIZING,
            node=ES2,
            unassigned_reason="INDEX_REOPENED",
        ),
        ShardCopy(shard=shard, primary=False, state=CopyState.UNASSIGNED, unassigned_reason="NODE_LEFT"),
    )
    others = tuple(copy for copy in view.copies if copy.shard != shard)
    indices = tuple(replace(index, replicas=2) for index in view.indices)
    after = replace(view, copies=(*others, *holders, *away), indices=indices)
    missing = [copy for copy in situation.kind.missing(state, after) if copy.shard == shard]
    assert [copy.node for copy in missing] == [ES2]


def test_a_lost_copy_is_not_the_one_that_was_missing_before() -> None:
    """Which of two copies of a shard is read first is chance; the one that never had a node was missing."""
    asked = question(slow())
    view = asked.observation.cluster
    assert isinstance(view, ClusterView)
    shard = next(copy.shard for copy in view.copies if not copy.primary)
    new, left = (
        ShardCopy(shard=shard, primary=False, state=CopyState.UNASSIGNED, unassigned_reason=reason)
        for reason in ("INDEX_CREATED", "NODE_LEFT")
    )
    here = tuple(copy for copy in view.copies if copy.shard != shard or copy.primary)
    before = replace(view, copies=(*here, new))
    state = evolve(asked.state, Record(run="run-1", sequence=10, at=1.0, event=baseline_of(before, {})))
    for order in ((new, left), (left, new)):
        assert lost_beyond_baseline(state, replace(view, copies=(*here, *order))) == (left,)


@pytest.mark.parametrize("node", [ES2, ES3])
def test_a_primary_created_just_before_the_stop_is_awaited(
    node: NodeName,
) -> None:
    """No reading before the stop has it; its only copy went with the node."""
    situation = _beside()
    view = situation.view
    assert view is not None
    left = {"unassigned_reason": "NODE_LEFT", "state": CopyState.INITIALIZING, "node": node}
    rises = ShardCopy(shard=SHARD._replace(index="made", index_uuid="made-uuid"), primary=True, **left)
    after = replace(view, copies=(*view.copies, rises))
    assert situation.kind.missing(situation.state, after) == ((rises,) if node == ES2 else ())


@pytest.mark.parametrize(
    ("before", "since", "again"),
    [(Phase.GATED, 1.0, False), (Phase.GATED, 9.0, True), (Phase.REJOINED, 1.0, True)],
)
def test_a_wave_awaited_again_makes_room_only_after_a_pause(
    before: Phase, since: float, *, again: bool
) -> None:
    """Not all that is against the next wave is asked there: without it the run goes to and fro."""
    asked = _beside(Phase.REASSIGNED)
    wave = Wave(number=1, nodes=(ES2,))
    here = PhaseState(since=asked.now - since, before=before)
    state = state_with(asked.state, wave=wave, recovering=())
    state = replace(state, in_phase=here)
    assert bool(makes_room(replace(asked, state=state), ())) is again


def _back(**fields: object) -> Situation:
    """es2's wave is back, and no other recovers."""
    situation = _beside(Phase.REASSIGNED)
    fields = {"wave": Wave(number=1, nodes=(ES2,)), "recovering": (), **fields}
    return replace(situation, state=state_with(situation.state, **fields))


def test_what_is_against_the_next_wave_is_against_making_room(subtests: pytest.Subtests) -> None:
    """Else the wave would be called off in GATED and waited for again, to and fro."""
    recovers = _recovering_on(_back(), ES2)
    view = recovers.view
    assert view is not None
    lost = tuple(
        copy if copy.started else copy._replace(state=CopyState.UNASSIGNED, node=None) for copy in view.copies
    )
    for what, situation, room in [
        ("nothing", _back(), True),
        ("a recovery in which it has no part", recovers, True),
        (
            "an unassigned copy",
            replace(recovers, seen=replace(recovers.seen, cluster=replace(view, copies=lost))),
            False,
        ),
        ("a member is missing", _back(absent={ES5: Absence(since=0.0)}), False),
        ("its tier", replace(_back(), policy=replace(_back().policy, min_capacity=1.0)), False),
        ("no overlap", replace(_back(), policy=replace(_back().policy, overlap_recovery=False)), False),
    ]:
        with subtests.test(what):
            assert bool(makes_room(situation, ())) is room


def test_a_member_that_is_missing_is_looked_for_every_second() -> None:
    """However long the wave has recovered: the pauses grow only while nothing but copies is awaited."""
    situation = _recovering_on(_back(since=_back().now - 3600.0), ES2)
    view = situation.view
    assert view is not None
    without = replace(view, nodes=tuple(node for node in view.nodes if node.name != ES5))
    for cluster, pause, awaited in ((view, 15.0, set()), (without, 1.0, {ES5})):
        decision = decide(situation.state, replace(situation.seen, cluster=cluster), situation.now)
        assert decision.watch is not None
        assert decision.watch.until - situation.now == pytest.approx(pause)
        assert decision.watch.services == awaited


def test_a_safe_set_is_chosen_as_if_what_recovers_were_back() -> None:
    """Else a planned set is split: of three copies two may be away together, of two copies one."""
    world = World(allowed_down=3)
    for number in range(1, 5):
        world.add_node(f"es{number}")
    world.add_index("logs", replicas=2, places=["es2", "es3", "es4"])
    wanted = overlapped(
        strategy=Strategy.SHARD_SAFE, zone_attribute=None, max_unavailable=3, min_capacity=0.1
    )
    asked = question(world, wave=("es2",))
    nodes = asked.state.nodes.changed(replace(asked.state.nodes[ES2], phase=NodePhase.REJOINED))
    beside = (RecoveringWave(wave=asked.wave, since=0.0),)
    state = state_with(asked.state, policy=wanted, recovering=beside, nodes=nodes)
    seen, now = asked.observation, asked.observation.at
    back = Situation(state=state, policy=wanted, kind=ELASTICSEARCH, seen=seen, now=now)
    view = back.view
    assert view is not None
    copies = tuple(
        copy._replace(state=CopyState.INITIALIZING) if copy.node == ES2 else copy for copy in view.copies
    )
    recovers = replace(back, seen=replace(seen, cluster=replace(view, copies=copies)))
    for situation in (back, recovers):
        wave = next_wave_of(situation)
        assert wave is not None
        assert {"es3", "es4"} <= set(wave.nodes), wave


@pytest.mark.parametrize(
    ("phase", "room"),
    [(NodePhase.PENDING, True), (NodePhase.REJOINED, True), (NodePhase.FAILED, False)],
)
def test_a_wave_makes_room_when_each_of_its_nodes_runs(phase: NodePhase, *, room: bool) -> None:
    """One that came back without its turn is in a later wave again."""
    situation = _back(wave=Wave(number=1, nodes=(ES2, ES5)))
    es5 = replace(situation.state.nodes[ES5], phase=phase)
    state = replace(situation.state, nodes=situation.state.nodes.changed(es5))
    assert bool(makes_room(replace(situation, state=state), ())) is room


def _events(decision: Decision | None) -> tuple[Event, ...]:
    return decision.events if decision is not None else ()


def _goes_back(decision: Decision | None) -> bool:
    return [e.to for e in _events(decision) if isinstance(e, PhaseEntered)] == [Phase.REASSIGNED.value]


def test_a_wave_that_made_room_is_done_when_its_copies_are_back(subtests: pytest.Subtests) -> None:
    for missing, phase, finished in [
        ((), Phase.GATED, True),
        ((_on_its_way_to(ES3),), Phase.REASSIGNED, True),
        # It is the last that is remembered: what is built anew elsewhere is waited for.
        ((_on_its_way_to(ES3),), Phase.GATED, False),
        ((_on_its_way_to(ES2),), Phase.REASSIGNED, False),
        # It may be one of es2's: nobody can tell.
        ((NOBODY_WORKS_ON,), Phase.REASSIGNED, False),
    ]:
        with subtests.test(missing=missing, phase=phase, finished=finished):
            second = Wave(number=2, nodes=(ES3,))
            situation = _beside(phase, wave=second, wave_since=_beside().now)
            events = _events(finish_recovered(situation, missing))
            assert any(isinstance(event, NodeRecovered) and event.node == ES2 for event in events) is finished
            took = [
                event.seconds for event in events if isinstance(event, WaveFinished) and event.number == 1
            ]
            assert took == ([situation.now] if finished else []), "since it began, at 0"


def test_what_has_ended_is_read_before_a_wave_is_done() -> None:
    """It is many times larger than what runs, and needed only for the figures.

    Hosts that were read are read again: where endpoints disagree, the next reading may need these instead.
    """
    beside = _beside(Phase.REASSIGNED, wave=Wave(number=2, nodes=(ES3,)))
    unread = replace(beside, seen=replace(beside.seen, finished=NOT_READ))
    decision = finish_recovered(unread, ())
    assert unread.seen.hosts
    assert decision == Decision(finished=True, hosts=frozenset(unread.seen.hosts))
    assert Look.FINISHED in needed(unread.state, decision)[0]
    assert Look.FINISHED not in needed(unread.state)[0]
    assert finish_recovered(replace(beside, seen=replace(beside.seen, finished=Unknown(reason="no"))), ())


@pytest.mark.parametrize(("target", "finished"), [(ES3, True), (ES2, False)])
def test_an_earlier_wave_is_done_when_its_nodes_copies_are_back(target: NodeName, *, finished: bool) -> None:
    """The other one may be in hand, or have made room as well: what is left is waited for with that one."""
    in_hand = _beside(Phase.REASSIGNED, wave=Wave(number=2, nodes=(ES5,)))
    gated = _beside()
    other = RecoveringWave(wave=Wave(number=2, nodes=(ES5,)), since=0.0)
    both = replace(gated.state, recovering=(*gated.state.recovering, other))
    for situation in (in_hand, replace(gated, state=both)):
        missing = (_on_its_way_to(target), _on_its_way_to(ES5))
        events = _events(finish_recovered(situation, missing))
        assert any(isinstance(event, WaveFinished) and event.number == 1 for event in events) is finished


def test_a_node_that_keeps_returning_with_work_ends_the_run() -> None:
    situation = _beside()
    for returns, ends in ((RETURNS - 1, False), (RETURNS, True)):
        es2 = replace(situation.state.nodes[ES2], owed=frozenset({Owed(work=Work.HOOK)}), returns=returns)
        nodes = situation.state.nodes.changed(es2)
        again = replace(situation, state=replace(situation.state, nodes=nodes))
        events = _events(finish_recovered(again, ()))
        assert [event.reason for event in events if isinstance(event, StandingDown)] == (
            ["es2 still needs hook while_stopped 0, and came back without it 4 times"] if ends else []
        )


@pytest.mark.parametrize(
    ("missing", "back"),
    [
        ((_on_its_way_to(ES2),), True),
        ((_on_its_way_to(ES5),), False),
        ((_on_its_way_to(ES2), NOBODY_WORKS_ON), False),
    ],
)
def test_the_wave_in_hand_is_done_before_those_that_made_room(
    missing: tuple[ShardCopy, ...], *, back: bool
) -> None:
    situation = _beside(Phase.REASSIGNED, wave=Wave(number=2, nodes=(ES5,)))
    assert is_back_alone(situation, missing) is back


def test_nothing_is_done_by_a_reading_that_may_be_old() -> None:
    situation = _beside()
    assert any(isinstance(event, NodeRecovered) for event in _events(before_the_next(situation)))
    health = replace(health_of(question(slow())), settled=False)
    assert before_the_next(replace(situation, seen=replace(situation.seen, health=health))) is None


@pytest.mark.parametrize(
    ("situation", "back"),
    [
        (_beside(), False),
        (_beside(request=Request.PAUSE), True),
        # Somebody else restarted the last ones: the run does not end while es2 recovers.
        (_beside(pending=False), True),
    ],
    ids=["nodes are left", "a pause", "none is left"],
)
def test_when_they_are_waited_for_before_the_next(situation: Situation, *, back: bool) -> None:
    assert _goes_back(before_the_next(_recovering_on(situation, ES2))) is back


def test_what_a_recovery_may_be_the_cause_of_is_waited_for(subtests: pytest.Subtests) -> None:
    for rule, back in [
        ("cluster_not_red", True),
        ("no_worse_than_baseline", True),
        ("every_shard_keeps_started_copies", True),
        ("no_recovery_on_candidates", True),
        ("no_running_snapshot", False),
        ("expected_nodes_present", False),
    ]:
        with subtests.test(rule=rule, back=back):
            refused = (Hold(predicate=rule, subject="index logs", evidence="as it is"),)
            assert _goes_back(held_by_recovery(_beside(), refused)) is back
            alone = replace(_beside(), state=replace(_beside().state, recovering=()))
            assert held_by_recovery(alone, refused) is None
