"""Copies that a run waits for: of which wave, when a wave is done, and when waves make room."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.elasticsearch.rules import recovery
from orchestrator.elasticsearch.rules.recovery import (
    baseline_of,
    lost_beyond_baseline,
    missing_of_waves,
    shortfall,
    taken_by,
)
from orchestrator.engine.memory import Absence
from orchestrator.engine.node import RETURNS
from orchestrator.engine.progress import ShardTaken
from orchestrator.engine.recover import (
    before_the_next,
    finish_recovered,
    held_by_recovery,
    makes_room,
)
from orchestrator.engine.situation import Decision, Situation
from orchestrator.engine.state import RunState, WaveBegun
from orchestrator.model.cluster import CopyState, Index, NodeName, ShardCopy, ShardId
from orchestrator.model.event import (
    Event,
    Hold,
    NodeRecovered,
    PhaseEntered,
    StandingDown,
    TakenDown,
)
from orchestrator.model.observation import ClusterView, MissingCopy, SettingsView
from orchestrator.model.phase import NodePhase, Owed, Phase, Request, Work
from orchestrator.model.policy import Wave
from orchestrator.model.reading import NOT_READ
from orchestrator.model.upgrade import InstallStep, Upgrade
from tests.simulation.overlapping import overlapped, slow
from tests.simulation.play import cluster
from tests.simulation.zones import forced
from tests.states import state_with
from tests.unit.engine.asking import (
    ES1,
    ES2,
    ES3,
    ES5,
    evolved,
    findings,
    holding,
    question,
    question_about,
    situation_of,
    view_of,
    with_copy,
    with_node,
)

SHARD: Final = ShardId(index="logs", index_uuid="logs-uuid", number=0)
FIRST: Final = Wave(number=1, nodes=(ES2,))


def _copy(shard: ShardId = SHARD, *, to: NodeName | None = None, reason: str = "") -> ShardCopy:
    """A replica on its way to a node, or unassigned for a reason."""
    state = CopyState.UNASSIGNED if to is None else CopyState.INITIALIZING
    return ShardCopy(shard=shard, primary=False, state=state, node=to, unassigned_reason=reason or None)


def _beside(phase: Phase = Phase.GATED, *, pending: bool = True, **fields: Any) -> Situation:
    """es2's wave made room; everything that can be read is green."""
    asked = question_about(slow(), overlapped(), ES2)
    others = NodePhase.PENDING if pending else NodePhase.RECOVERED
    nodes = {name: replace(node, phase=others) for name, node in asked.state.nodes.items()}
    nodes[ES2] = replace(nodes[ES2], phase=NodePhase.REJOINED, owed=frozenset(), stopped_at=0.0)
    beside = (WaveBegun(wave=FIRST, since=0.0, made_room=True),)
    return situation_of(asked, phase, **{"recovering": beside, "nodes": nodes, **fields})


def _back(**fields: Any) -> Situation:
    """es2's wave is back, and no other recovers."""
    return _beside(Phase.REASSIGNED, **{"wave": FIRST, "recovering": (), **fields})


def _seeing(situation: Situation, **parts: Any) -> Situation:
    return replace(situation, seen=replace(situation.seen, **parts))


def _taken(situation: Situation, node: NodeName = ES2) -> RunState:
    """The state after the wave's copies on that node were taken down."""
    wave = Wave(number=1, nodes=(node,))
    taken = situation.kind.taken(situation.state, view_of(situation), NOT_READ, wave)
    return situation.after(TakenDown(number=1, indices=taken)).state


def _recovering_on(situation: Situation, node: NodeName) -> Situation:
    """One copy of what is on that node is on its way to it."""
    arriving = with_copy(
        view_of(situation), lambda one: one.node == node and not one.primary, state=CopyState.INITIALIZING
    )
    return _seeing(replace(situation, state=_taken(situation, node)), cluster=arriving)


def _events(decision: Decision | None, kind: type[Event]) -> list[Any]:
    return [event for event in (decision.events if decision else ()) if isinstance(event, kind)]


def _goes_back(decision: Decision | None) -> bool:
    return [event.to for event in _events(decision, PhaseEntered)] == [Phase.REASSIGNED.value]


# Which copies are awaited ------------------------------------


def _missing(situation: Situation, copies: Iterable[ShardCopy]) -> list[ShardCopy]:
    """Of a shard that es2's wave took, with these copies and two replicas wanted, those that are awaited."""
    view, state = view_of(situation), _taken(situation)
    shard = _of_es2(view)
    others = (copy for copy in view.copies if copy.shard != shard)
    here = [copy for copy in view.shards[shard] if copy.node != ES2][:1]
    indices = tuple(replace(index, replicas=2) for index in view.indices)
    after = replace(view, copies=(*others, *here, *copies), indices=indices)
    return [copy for copy in situation.kind.missing(state, after, NOT_READ) if copy.shard == shard]


def _of_es2(view: ClusterView) -> ShardId:
    return next(copy.shard for copy in view.copies if copy.node == ES2)


def test_which_of_the_spare_copies_are_awaited(subtests: pytest.Subtests) -> None:
    """Somebody has added a replica meanwhile: those on the nodes of waves are awaited, in whatever order.

    A copy of a reopened index hides none that the wave took; which of two copies the cluster builds on a
    returned node is its own affair.
    """
    shard = _of_es2(view_of(_beside()))
    second = Wave(number=2, nodes=(ES5,))
    reopened, left = (_copy(shard, reason=reason) for reason in ("INDEX_REOPENED", "NODE_LEFT"))
    to_es2, to_es5 = _copy(shard, to=ES2), _copy(shard, to=ES5)
    for what, wave, copies, awaited in [
        ("added", None, (to_es2, to_es5), [to_es2]),
        ("added, read in another order", None, (to_es5, to_es2), [to_es2]),
        ("beside a second wave", second, (to_es2, to_es5), [to_es2, to_es5]),
        ("beside a second wave, in another order", second, (to_es5, to_es2), [to_es5, to_es2]),
        ("reopened", None, (reopened, left), [left]),
        ("arrives", None, (replace_reason(to_es2, "INDEX_REOPENED"), left), [ES2]),
    ]:
        with subtests.test(what):
            found = _missing(_beside(wave=wave), copies)
            assert (found if isinstance(awaited[0], ShardCopy) else [copy.node for copy in found]) == awaited


def replace_reason(copy: ShardCopy, reason: str) -> ShardCopy:
    return copy._replace(unassigned_reason=reason)


def test_a_lost_copy_is_not_the_one_that_was_missing_before() -> None:
    """Which of two copies of a shard is read first is chance; the one that never had a node was missing."""
    asked = question(slow())
    view = view_of(asked)
    shard = next(copy.shard for copy in view.copies if not copy.primary)
    new, left = (_copy(shard, reason=reason) for reason in ("INDEX_CREATED", "NODE_LEFT"))
    here = tuple(copy for copy in view.copies if copy.shard != shard or copy.primary)
    state = evolved(asked.state, baseline_of(replace(view, copies=(*here, new)), {}))
    for order in ((new, left), (left, new)):
        assert lost_beyond_baseline(state, replace(view, copies=(*here, *order)), NOT_READ) == (left,)


def test_the_end_names_what_has_no_node_yet(subtests: pytest.Subtests) -> None:
    """Not what a node takes by now, nor what was missing when the run began."""
    asked = question(slow())
    view = view_of(asked)
    shard = next(copy.shard for copy in view.copies if not copy.primary)
    here = tuple(copy for copy in view.copies if copy.shard != shard or copy.primary)
    left, new = (_copy(shard, reason=reason) for reason in ("NODE_LEFT", "INDEX_CREATED"))
    found_so = evolved(asked.state, baseline_of(replace(view, copies=(*here, new)), {}))
    name, not_waited = f"[{shard.index}][{shard.number}]", {shard[1:]: 1}
    for state, copies, named in (
        (asked.state, (left,), True),
        (asked.state, (_copy(shard, to=ES2),), False),
        (found_so, (new,), False),
        (found_so, (new, left), True),
    ):
        with subtests.test(copies=str(copies)):
            said = shortfall(replace(state, not_waited=not_waited), replace(view, copies=(*here, *copies)))
            assert (name in said) is named
    assert shortfall(asked.state, replace(view, copies=(*here, left))) == "", "no wave took it down"


def test_a_primary_created_just_before_the_stop_is_awaited() -> None:
    """No reading before the stop has it; its only copy went with the node."""
    situation = _beside()
    made = _copy(SHARD._replace(index="made", index_uuid="made-uuid"), to=ES2, reason="NODE_LEFT")
    for node in (ES2, ES3):
        rises = made._replace(primary=True, node=node)
        after = replace(view_of(situation), copies=(*view_of(situation).copies, rises))
        assert situation.kind.missing(situation.state, after, NOT_READ) == ((rises,) if node == ES2 else ())


def test_a_primary_is_awaited_whatever_the_filters_say(subtests: pytest.Subtests) -> None:
    """It is forced onto the node that has its data; a replica that no node may have is not awaited."""
    asked, shard = question(), SHARD._replace(index="own", index_uuid="own-uuid")
    kept = json.dumps({"require": {"box": "new"}})
    primary = ShardCopy(shard=shard, primary=True, state=CopyState.STARTED, node=ES2)
    elsewhere = primary._replace(node=ES3)
    replica = primary._replace(primary=False)
    left = {"state": CopyState.UNASSIGNED, "node": None, "unassigned_reason": "NODE_LEFT"}
    for what, rules in (
        ("no rules", {}),
        ("disabled", {"allocation_enable": "none"}),
        ("filtered", {"filters": kept}),
    ):
        for copies, after, awaited in (
            ([primary], [primary._replace(**left)], 1),
            (
                [primary, replica._replace(node=ES3)],
                [primary._replace(**left), replica._replace(**left)],
                1 if rules else 2,
            ),
            ([elsewhere, replica], [elsewhere, replica._replace(**left)], 0 if rules else 1),
        ):
            with subtests.test(what, copies=copies):
                index = Index(name="own", uuid="own-uuid", replicas=len(copies) - 1, **rules)
                indices = (*view_of(asked).indices, index)
                before = view_of(asked).changed({shard: tuple(copies)}, indices=indices)
                taken = TakenDown(number=1, indices=taken_by(asked.state, before, NOT_READ, asked.wave))
                state = state_with(evolved(asked.state, taken), wave=asked.wave)
                view = before.changed({shard: tuple(after)})
                found = (
                    len(missing_of_waves(state, view, NOT_READ)),
                    len(lost_beyond_baseline(state, view, NOT_READ)),
                )
                assert found == (awaited, awaited)


def test_as_many_copies_stay_as_the_playbook_says() -> None:
    """Three copies of each shard, one in each zone: two stay when a zone goes."""
    rule, world = "every_shard_keeps_started_copies", forced()
    for least, passes in ((1, True), (2, True), (3, False)):
        for wave in (("es2",), ("es2", "es5")):
            asked = question(world, wave=wave, min_started_copies=least, max_unavailable=2)
            assert holding(asked) == ([] if passes else [rule])
            for subject, evidence in findings(asked, rule):
                assert subject == "index logs"
                assert "2 started in-sync copies elsewhere on es" in evidence
                assert evidence.endswith("3 wanted")


# Making room ------------------------------------


def test_what_is_against_the_next_wave_is_against_making_room(subtests: pytest.Subtests) -> None:
    """Else the wave would be called off in GATED and waited for again, to and fro.

    Each of its nodes has to run; one that came back without its turn is in a later wave again.
    """
    recovers = _recovering_on(_back(), ES2)
    lost = with_copy(view_of(recovers), lambda one: not one.started, state=CopyState.UNASSIGNED, node=None)

    def two(phase: NodePhase) -> Situation:
        situation = _back(wave=Wave(number=1, nodes=(ES2, ES5)))
        return replace(situation, state=with_node(situation.state, ES5, phase=phase))

    def under(**policy: Any) -> Situation:
        return replace(_back(), policy=replace(_back().policy, **policy))

    for what, situation, room in [
        ("nothing", _back(), True),
        ("a recovery in which it has no part", recovers, True),
        ("an unassigned copy", _seeing(recovers, cluster=lost), False),
        ("a member is missing", _back(absent={ES5: Absence(since=0.0)}), False),
        ("its tier", under(min_capacity=1.0), False),
        ("no overlap", under(overlap_recovery=False), False),
        ("another without its turn", two(NodePhase.PENDING), True),
        ("another is back", two(NodePhase.REJOINED), True),
        ("another has failed", two(NodePhase.FAILED), False),
    ]:
        with subtests.test(what):
            assert bool(makes_room(situation, ())) is room


# When a wave is done ------------------------------------


def test_a_node_that_keeps_returning_with_work_ends_the_run() -> None:
    situation = _beside()
    said = "es2 still needs hook while_stopped 0, and came back without it 4 times"
    for returns, reasons in ((RETURNS - 1, []), (RETURNS, [said])):
        owed = frozenset({Owed(work=Work.HOOK)})
        again = replace(situation, state=with_node(situation.state, ES2, owed=owed, returns=returns))
        down = _events(finish_recovered(again, ()), StandingDown)
        assert [event.reason for event in down] == reasons


def test_before_the_next_wave_when_those_beside_are_awaited(subtests: pytest.Subtests) -> None:
    """Nothing is done by a reading that may be old. A recovery may be the cause of some predicates' holds."""
    situation = _beside()
    assert _events(before_the_next(situation), NodeRecovered)
    health = replace(situation.seen.health, settled=False)
    assert before_the_next(_seeing(situation, health=health)) is None
    for what, asked, back in [
        ("nodes are left", _beside(), False),
        ("a pause", _beside(request=Request.PAUSE), True),
        ("somebody restarted the last ones", _beside(pending=False), True),
    ]:
        with subtests.test(what):
            assert _goes_back(before_the_next(_recovering_on(asked, ES2))) is back
    for rule, back in [
        ("cluster_not_red", True),
        ("no_worse_than_baseline", True),
        ("every_shard_keeps_started_copies", True),
        ("no_recovery_on_candidates", True),
        ("no_running_snapshot", False),
        ("expected_nodes_present", False),
    ]:
        with subtests.test(rule):
            refused = (Hold(predicate=rule, subject="index logs", evidence="as it is"),)
            assert _goes_back(held_by_recovery(_beside(), refused)) is back
            assert held_by_recovery(_beside(recovering=()), refused) is None


# Copies that an upgrade has lost without a wave's account ------------------------------------

TARGET, OLD = "9.2.0", "9.1.0"
WAVE: Final = Wave(number=2, nodes=(ES1,))


def _lost(reason: str = "NODE_LEFT", *, upgrade: bool = True) -> tuple[RunState, ClusterView, ShardCopy]:
    """The replica of a shard is away that es1 had, whose primary is on a node with the target."""
    to = Upgrade(target=TARGET, install=(InstallStep(run="install {version}"),))
    asked = question(cluster(3), upgrade=to if upgrade else None)
    view = view_of(asked)
    shard = next(copy.shard for copy in view.copies if copy.node == ES1 and not copy.primary)
    primary, away = view.primary(shard), _copy(shard, reason=reason)
    assert primary is not None
    nodes = tuple(replace(one, version=TARGET if one.name == primary.node else OLD) for one in view.nodes)
    others = tuple(copy for copy in view.copies if copy.shard != shard)
    return asked.state, replace(view, nodes=nodes, copies=(*others, primary, away)), away


def _all(view: ClusterView, version: str) -> ClusterView:
    """Every node on one version: each may hold any copy."""
    return replace(view, nodes=tuple(replace(node, version=version) for node in view.nodes))


def _missing_before(state: RunState, shard: ShardId) -> RunState:
    uuid, number = shard.index_uuid, shard.number
    gone = MissingCopy(
        index=shard.index, index_uuid=uuid, number=number, primary=False, reason="NODE_LEFT", count=1
    )
    assert state.baseline is not None
    return state_with(state, baseline=replace(state.baseline, missing=(gone,)))


def test_a_lost_copy_without_a_place_is_the_next_waves(subtests: pytest.Subtests) -> None:
    """Its node was stopped late, came back as it was, and the shard has its primary on an upgraded one.

    With a place, `no_worse_than_baseline` holds the wave instead.
    """
    state, view, away = _lost()
    restart = _lost(upgrade=False)
    added = _lost("REPLICA_ADDED")
    for what, of, seen, counted in [
        ("lost by an upgrade", state, view, 2),
        ("lost in a restart", restart[0], restart[1], None),
        ("a copy that never had a node", added[0], added[1], None),
        ("missing before", _missing_before(state, away.shard), view, None),
        ("it has a place", state, _all(view, OLD), None),
    ]:
        with subtests.test(what):
            found = {
                (one.index, n): count
                for one in taken_by(of, seen, NOT_READ, WAVE)
                for n, count in one.started
            }
            assert found.get((away.shard.index, away.shard.number)) == counted
    taken = TakenDown(number=2, indices=taken_by(state, view, NOT_READ, WAVE))
    after = evolved(state_with(state, wave=WAVE), taken)
    assert missing_of_waves(after, view, NOT_READ) == (), "nobody waits for what no node can hold"
    assert [copy.shard for copy in missing_of_waves(after, _all(view, TARGET), NOT_READ)] == [away.shard]


def test_of_two_counts_the_larger_is_awaited_of_the_same_index(subtests: pytest.Subtests) -> None:
    """One that was closed in between: then the earlier count is of another time."""
    now, key = ShardTaken(started=2), ("logs-uuid", 0)
    for was, awaited in [
        (replace(now, started=3), 3),
        (replace(now, started=1), 2),
        (replace(now, started=3, open=False), 2),
    ]:
        with subtests.test(was=was):
            state = state_with(_lost()[0], taken={key: now}, displaced={key: was})
            assert recovery._awaited(state)[key].started == awaited
            assert recovery._awaited(replace(state, taken={}))[key] == was
    state, view, away = _lost(upgrade=False)
    index = view.metadata[away.shard.index_uuid]
    was = ShardTaken(started=2, open=index.open)
    for taken, count in ((was, 1), (replace(was, open=False), 0)):
        key = (away.shard.index_uuid, away.shard.number)
        after = state_with(state, wave=WAVE, taken={key: taken})
        assert len(missing_of_waves(after, _all(view, OLD), NOT_READ)) == count


@pytest.mark.parametrize(
    ("of_index", "of_cluster", "count"),
    [
        ("", {}, 1),
        ('{"require": {"_name": "es1"}}', {}, 1),
        ('{"require": {"_name": "gone"}}', {}, 0),
        ("", {"require._name": "gone"}, 0),
        ("", {"require._name": "es1"}, 1),
        ("", {"total_shards_per_node": "1"}, 0),
    ],
)
def test_only_deciders_end_the_wait_for_a_copy(of_index: str, of_cluster: dict[str, str], count: int) -> None:
    """Changed rules do not, if a node has a place by them: the cluster rebuilds the copy there."""
    state, view, away = _lost(upgrade=False)
    key = away.shard.index_uuid
    indices = tuple(
        replace(one, filters=of_index) if one.uuid == key else one for one in _all(view, OLD).indices
    )
    now = replace(_all(view, OLD), indices=indices)
    rules = {f"cluster.routing.allocation.{name}": value for name, value in of_cluster.items()}
    after = state_with(state, wave=WAVE, taken={(key, away.shard.number): ShardTaken(started=2)})
    assert len(missing_of_waves(after, now, SettingsView(persistent=rules))) == count
