"""What bars a run's beginning or a stop: waves that cannot finish, members that are away, gates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.elasticsearch.rules.settings import EXCLUSIONS
from orchestrator.engine import admit
from orchestrator.engine.gates import closed_gates, gate_news, gates_passed
from orchestrator.engine.memory import Absence
from orchestrator.engine.merge_state import MergeProgress, Merging
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RunState
from orchestrator.kinds import decide, needed
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import (
    AlertsAtStart,
    Event,
    GateClosed,
    GateOpened,
    GatesPassed,
    Hold,
    HoldsCleared,
    PhaseEntered,
    RunResumed,
    SecondFailure,
    StandingDown,
    run_phase,
)
from orchestrator.model.gate import (
    AlertmanagerGate,
    FiringAlert,
    GateView,
    Since,
    view_of_alerts,
)
from orchestrator.model.merging import MergeTarget
from orchestrator.model.observation import Level, Look, Observation
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import DisabledPredicate, Strategy, Wave
from orchestrator.model.reading import Reading, Unknown
from orchestrator.simulation.world import World
from tests.simulation.gated import ALERTS, QUEUE, SCRIPT
from tests.simulation.play import cluster, policy
from tests.states import state_with
from tests.unit.engine.asking import (
    ES1,
    ES2,
    ES3,
    ES4,
    ES5,
    ES6,
    evolved,
    question,
    situation_of,
    view_of,
    with_node,
)

PAIRS: Final = ((ES1, ES4), (ES2, ES5), (ES3, ES6))


def _bare(*names: str) -> World:
    """An index without replicas on each of these nodes."""
    world = cluster(6)
    for name in names:
        world.add_index(f"bare-{name}", replicas=0, places=[name])
    return world


def _situation(world: World, planned: tuple[tuple[NodeName, ...], ...] = (), **changes: Any) -> Situation:
    asked = situation_of(question(world, **changes))
    state = replace(asked.state, begun=replace(asked.state.begun, planned=planned))
    return replace(asked, state=state)


def _skipped(situation: Situation) -> list[str]:
    steps = admit.skipped_at_planning(situation)
    return sorted(str(step.node) for step in steps if isinstance(step, PhaseEntered) and step.to == "skipped")


# What a run begins with ------------------------------------


def test_a_wave_that_cannot_finish_is_named_before_any_begins() -> None:
    """Neither of the first two waves has anything against it; the run does not begin all the same.

    While a member is away nothing is said never to pass.
    """
    held = _situation(_bare("es2", "es6"))
    (hold,) = [one for one in admit.cannot_finish(held) if one.predicate == "zero_replica_indices"]
    assert (hold.count, set(hold.subjects)) == (2, {"index bare-es2", "index bare-es6"})
    without = tuple(node for node in view_of(held).nodes if node.name != ES6)
    away = replace(held, seen=replace(held.seen, cluster=replace(view_of(held), nodes=without)))
    assert admit.cannot_finish(away) == admit.cannot_finish(_situation(cluster(6))) == ()


def test_a_wave_that_may_go_in_parts_bars_no_beginning() -> None:
    """A rollover put both copies of a new index into one zone: that zone goes in two waves."""
    world = cluster(6)  # es1 and es4 are of one zone
    world.add_index("logs-r1", replicas=1, places=["es1", "es4"])
    zones: dict[str, Any] = {"strategy": Strategy.ZONE, "max_unavailable": 2}
    situation = _situation(world, PAIRS[:1], **zones)
    assert admit.against_wave(situation, Wave(number=1, nodes=PAIRS[0])), "together they may not"
    assert (admit.cannot_finish(situation), _skipped(situation)) == ((), [])
    world.add_index("bare", replicas=0, places=["es4"])
    held = _situation(world, PAIRS[:1], **zones)
    assert {hold.predicate for hold in admit.cannot_finish(held)} == {"zero_replica_indices"}
    assert _skipped(held) == ["es4"]
    for attribute in ("_name", "_id", "_ip", "_publish_ip", "_host_ip", "_host", "zone"):
        world.set(Level.PERSISTENT, f"{EXCLUSIONS}{attribute}", "*")
    found = admit.cannot_finish(_situation(world, PAIRS, **zones))
    counts = {hold.predicate: (hold.count, len(hold.subjects)) for hold in found}
    assert counts["no_other_maintenance"] == (6, 5), "the same against every wave; `_id` has no *"


def test_a_member_is_gone_after_readings_and_half_a_minute(subtests: pytest.Subtests) -> None:
    """While a node is stopped that is a second failure; not of a coordinating node, nor after a pause."""
    most = policy().settle_consecutive
    for what, roles, readings, since, gone in [
        ("gone", None, most, 31.0, True),
        ("it may be a pause", None, most, 29.0, False),
        ("one reading may be odd", None, most - 2, 31.0, False),
        ("a bystander", frozenset({Role.COORDINATING}), most, 9_000.0, False),
    ]:
        with subtests.test(what):
            world = cluster(6)
            world.nodes[ES5].roles = roles or world.nodes[ES5].roles
            asked = question(world)
            view, at = view_of(asked), asked.observation.at
            state = with_node(asked.state, ES2, phase=NodePhase.STOPPING, since=at)
            nodes = {name: node for name, node in state.nodes.items() if name != ES5}
            absent = {ES5: Absence(since=at - since, readings=readings)}
            asked = replace(asked, state=state)
            down = situation_of(asked, Phase.DOWN, wave=asked.wave, nodes=nodes, absent=absent)
            without = replace(view, nodes=tuple(node for node in view.nodes if node.name != ES5))
            events = decide(down.state, replace(down.seen, cluster=without), at).events
            kinds = {type(event) for event in events} & {SecondFailure, StandingDown}
            assert kinds == ({SecondFailure, StandingDown} if gone else set())
            seen = replace(down, seen=replace(down.seen, cluster=without))
            assert seen.absent_members == ((ES5,) if roles is None and readings else ())


# Gates ------------------------------------

GATED: Final = policy(gates=(QUEUE, SCRIPT))
OPEN: Final = GateView(open=True, evidence="12 messages")
SHUT: Final = GateView(open=False, evidence="640 messages")
UNREAD: Final = Unknown(reason="timed out")
CLOSED: Final = GateClosed(gate=QUEUE.name, evidence="640 messages")
OPENED: Final = GateOpened(gate=QUEUE.name, evidence="12 messages")
SNAPSHOT: Final = Hold(predicate="no_running_snapshot", subject="repo", evidence="runs")


def _seen(*views: Reading[GateView] | None) -> Observation:
    """The queue, then the script; None was not asked."""
    asked = zip((QUEUE.name, SCRIPT.name), views, strict=False)
    return Observation(at=0.0, gates={name: view for name, view in asked if view is not None})


def _gated(*events: Event, phase: Phase = Phase.GATED) -> RunState:
    """A run with both gates after these events, a second apart from 100 on."""
    state = state_with(RunState(run="run-1"), policy=GATED, phase=phase)
    for place, event in enumerate(events):
        state = evolved(state, event, at=100.0 + place)
    return state


def test_a_gate_bars_unless_it_was_read_and_is_open(subtests: pytest.Subtests) -> None:
    unasked = "it was not asked"
    for views, closed in [
        ((OPEN, OPEN), {}),
        ((SHUT, OPEN), {QUEUE.name: "640 messages"}),
        ((OPEN, UNREAD), {SCRIPT.name: "timed out"}),
        ((OPEN,), {SCRIPT.name: unasked}),
        ((), {QUEUE.name: unasked, SCRIPT.name: unasked}),
    ]:
        with subtests.test(views=views):
            found = closed_gates(_gated(), _seen(*views))
            assert [(hold.predicate, hold.subject) for hold in found] == [
                ("gates_open", one) for one in closed
            ]
            assert all(why in hold.evidence for hold, why in zip(found, closed.values(), strict=True))
    disabled = (DisabledPredicate(name="gates_open", subject=QUEUE.name),)
    off = state_with(_gated(), policy=replace(GATED, disabled_predicates=disabled))
    seen = _seen(SHUT, OPEN)
    assert closed_gates(off, seen) == gate_news(off, seen) == ()
    assert gates_passed(off, seen) == (GatesPassed(gates={SCRIPT.name: "12 messages"}),)


def test_the_journal_is_told_once_of_what_closes_and_what_opens() -> None:
    closing = gate_news(_gated(), _seen(SHUT, UNREAD))
    why = "cannot be read, so it counts as closed: timed out"
    assert closing == (CLOSED, GateClosed(gate=SCRIPT.name, evidence=why, readable=False))
    state = _gated(*closing)
    assert gate_news(state, _seen(SHUT, UNREAD)) == ()
    assert gate_news(state, _seen(OPEN, UNREAD)) == (OPENED,)


def _fires(*alerts: FiringAlert) -> GateView:
    return view_of_alerts(alerts, [alert for alert in alerts if alert.counts])


DISK: Final = FiringAlert(fingerprint="d", began=100.0, name='DiskFull{instance="es1"}')
QUIET: Final = FiringAlert(fingerprint="q", began=100.0, name="Quiet", counts=False)
SINCE_START: Final = AlertsAtStart(gate=ALERTS.name, alerts={"d": 100.0, "q": 100.0})
NONE_AT_START: Final = AlertsAtStart(gate=ALERTS.name, alerts={})


def _resumed(*alerts: str) -> RunResumed:
    return RunResumed(operator="ann", host="bastion", accept_alerts=alerts)


def test_alerts_that_fired_at_the_start_do_not_close_a_gate(subtests: pytest.Subtests) -> None:
    """One that was resolved and fires again has begun later: it is a new one. So is another fingerprint."""
    always = replace(ALERTS, since=Since.ALWAYS)
    again, twin = replace(DISK, began=200.0), replace(DISK, fingerprint="e")
    rows: list[tuple[str, AlertmanagerGate, list[Event], GateView, bool]] = [
        ("at the first reading", ALERTS, [], _fires(DISK), False),
        ("still", ALERTS, [SINCE_START], _fires(DISK), False),
        (
            "by an older Alertmanager of a pair",
            ALERTS,
            [SINCE_START],
            _fires(replace(DISK, began=99.0)),
            False,
        ),
        ("again", ALERTS, [SINCE_START], _fires(again), True),
        ("another", ALERTS, [SINCE_START], _fires(DISK, twin), True),
        ("one whose silence has ended", ALERTS, [SINCE_START], _fires(replace(QUIET, counts=True)), False),
        ("one that is silenced", ALERTS, [NONE_AT_START], _fires(QUIET), False),
        ("after a resume", ALERTS, [NONE_AT_START, _resumed()], _fires(DISK), True),
        ("accepted by name", ALERTS, [NONE_AT_START, _resumed("DiskFull")], _fires(DISK, again), False),
        (
            "accepted with labels",
            ALERTS,
            [NONE_AT_START, _resumed(DISK.name), _resumed()],
            _fires(DISK),
            False,
        ),
        ("another accepted", ALERTS, [NONE_AT_START, _resumed("Disk")], _fires(DISK), True),
        ("of any time", always, [], _fires(DISK), True),
        ("of any time, accepted", always, [_resumed("DiskFull")], _fires(DISK), False),
    ]
    for what, gate, past, view, closed in rows:
        with subtests.test(what):
            wanted = policy(gates=(gate,))
            state = state_with(RunState(run="run-1"), policy=wanted, phase=Phase.GATED)
            for event in past:
                state = evolved(state, event, at=100.0)
            state = state_with(state, phase=Phase.GATED)
            found = closed_gates(state, Observation(at=0.0, gates={gate.name: view}))
            assert [hold.subject for hold in found] == ([gate.name] if closed else [])


def test_the_journal_has_the_alerts_of_the_start_and_each_change() -> None:
    state = state_with(RunState(run="run-1"), policy=policy(gates=(ALERTS,)), phase=Phase.GATED)

    def news(*alerts: FiringAlert, unread: bool = False) -> tuple[Event, ...]:
        nonlocal state
        view = UNREAD if unread else _fires(*alerts)
        found = gate_news(state, Observation(at=0.0, gates={ALERTS.name: view}))
        for event in found:
            state = evolved(state, event, at=100.0)
        return found

    other = FiringAlert(fingerprint="o", began=200.0, name="Other")
    why = "cannot be read, so it counts as closed: timed out"
    assert news(unread=True) == (GateClosed(gate=ALERTS.name, evidence=why, readable=False),)
    assert news(DISK, QUIET) == (
        SINCE_START,
        GateOpened(gate=ALERTS.name, evidence="no alert fires (2 exempt)"),
    )
    assert news(DISK) == ()
    said = "1 alert fires: Other"
    assert news(DISK, other) == (GateClosed(gate=ALERTS.name, evidence=said, count=1, subjects=("Other",)),)
    assert news(DISK, other) == news(unread=True) == ()
    second = replace(other, fingerprint="p", name="Second")
    said = "2 alerts fire: Other, Second"
    both = GateClosed(gate=ALERTS.name, evidence=said, count=2, subjects=("Other", "Second"))
    assert news(DISK, other, second) == (both,)
    assert closed_gates(state, Observation(at=0.0)) == (
        Hold(predicate="gates_open", subject=ALERTS.name, evidence=f"{why[:-9]}it was not asked"),
    )
    assert news() == (GateOpened(gate=ALERTS.name, evidence="no alert fires"),)
    assert news(replace(DISK, began=300.0))[0].event == "gate_closed"


def test_gates_are_asked_where_something_may_go_on(subtests: pytest.Subtests) -> None:
    """While a wave is chosen, and any index may be merged: a copy of a merged one may come back."""
    asking = {Phase.GATED, Phase.WITHHELD}
    for phase in Phase:
        with subtests.test(phase=phase):
            state = _gated(phase=phase)
            assert (Look.GATES in needed(state)[0]) is (phase in asking)
            assert Look.GATES not in needed(state_with(state, policy=policy()))[0]
            assert phase in asking or gate_news(state, _seen()) == ()
    target = MergeTarget(index="posts", index_uuid="u", segments=1, bytes=1, due=False)
    for ended in (False, True):
        merging = Merging(indices={"u": MergeProgress(target=target, ended=ended)})
        state = replace(_gated(phase=Phase.MERGING), merging=merging)
        assert (Look.GATES in needed(state)[0]) is not ended


def test_the_clock_of_gates_runs_while_any_is_closed(subtests: pytest.Subtests) -> None:
    """That of predicates is another one; a new process and a new phase count anew."""
    script = GateClosed(gate=SCRIPT.name, evidence="640 messages")
    for what, events, since, holding_since, subjects in [
        ("one of two is open", (CLOSED, script, OPENED), 100.0, None, [SCRIPT.name]),
        ("all are open", (CLOSED, OPENED), None, None, []),
        ("beside a predicate", (CLOSED, SNAPSHOT), 100.0, 101.0, [QUEUE.name, "repo"]),
        ("left alone", (CLOSED, SNAPSHOT, HoldsCleared(but_gates=True)), 100.0, None, [QUEUE.name]),
        ("all cleared", (CLOSED, SNAPSHOT, HoldsCleared()), None, None, []),
        ("a new process", (CLOSED, RunResumed(operator="ann", host="b")), None, None, []),
        ("a new phase", (CLOSED, run_phase(Phase.GATED, Phase.WITHHELD)), None, None, []),
    ]:
        with subtests.test(what):
            here = _gated(*events).in_phase
            assert (here.gates_closed_since, here.holding_since) == (since, holding_since)
            assert [hold.subject for hold in here.holds] == subjects
