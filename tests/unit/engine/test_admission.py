"""What a run begins with, what it passes over, and which members it can spare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine import admit, beginning
from orchestrator.engine.kinds.elasticsearch.settings import EXCLUSIONS
from orchestrator.engine.kinds.kind import ELASTICSEARCH
from orchestrator.engine.run import decide
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import Absence
from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import Hold, PhaseEntered, SecondFailure, StandingDown
from orchestrator.model.observation import Level, Observation
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Deadlines, Strategy, Together, Wave
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import allocation
from orchestrator.simulation.mishaps import Asked, Mishap
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, plan_of, play, policy, run
from tests.states import state_with
from tests.unit.engine.asking import ES2, activity_of, cluster_of, question, seeing

ES5 = NodeName("es5")


def _bare(*, on: tuple[str, ...] = ("es2",)) -> World:
    """An index without replicas on each of these nodes."""
    world = cluster(6)
    for name in on:
        world.add_index(f"bare-{name}", replicas=0, places=[name])
    return world


def _situation(world: World, **changes: object) -> Situation:
    asked = question(world, **changes)
    return Situation(
        state=replace(asked.state, phase=Phase.GATED),
        policy=asked.policy,
        kind=ELASTICSEARCH,
        seen=asked.observation,
        now=asked.observation.at,
    )


@pytest.mark.proves("no-replicas")
def test_a_wave_that_cannot_finish_is_named_before_any_begins() -> None:
    """Neither of the first two waves has anything against it; the run does not begin all the same."""
    found = beginning.cannot_finish(_situation(_bare(on=("es2", "es6"))))
    (hold,) = [one for one in found if one.predicate == "zero_replica_indices"]
    assert (hold.count, set(hold.subjects)) == (2, {"index bare-es2", "index bare-es6"})
    assert beginning.cannot_finish(_situation(cluster(6))) == ()
    simulation, state = run(_bare(on=("es6",)), wanted=policy())
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    assert "it could not finish, so it does not begin" in state.message
    held = [record.event for record in simulation.journal.records if isinstance(record.event, Hold)]
    assert [hold.predicate for hold in held] == ["zero_replica_indices"]


def test_resume_asks_again_whether_the_run_can_finish() -> None:
    """A refused run has not begun: `resume` refuses it again until what holds it is corrected."""
    simulation, first = run(_bare(on=("es6",)), wanted=policy())
    began = simulation.world.agenda.now
    for _ in range(2):
        again = play(simulation, simulation.resume())
        assert (again.outcome, again.message) == (Outcome.HELD, first.message)
        assert [one for one in simulation.hosts.sent if isinstance(one, StopNode)] == []
        assert simulation.world.agenda.now - began < 60.0, "it does not wait for what no waiting clears"
    allocation.set_replicas(simulation.world, simulation.world.indices["bare-es6-uuid"], 1)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE


def test_no_node_is_stopped_for_a_reboot_that_is_not_allowed() -> None:
    """The last host may not be rebooted: the plan says so, and the restart begins with no other."""
    world = cluster(3)
    world.nodes[NodeName("es3")].may_reboot = False
    (hold,) = plan_of(world, policy(reboot=True)).holds
    assert (hold.predicate, hold.subject) == ("selected_hosts_ready", "host of es3")
    assert hold.evidence.startswith("the account may not reboot the host: ")
    simulation, state = run(world, wanted=policy(reboot=True))
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    assert "does not begin: selected_hosts_ready: host of es3" in state.message
    assert plan_of(world, policy()).holds == ()


def test_resume_of_a_run_that_has_begun_is_not_refused() -> None:
    """A node was stopped: what is seen afterwards holds the run at its wave, and is no reason to end it."""
    simulation = Simulation(cluster(6), plan=[Mishap(what=Asked(request=Request.PAUSE), verb="stop")])
    paused = play(simulation, simulation.begin(policy()))
    assert (paused.outcome, paused.recovered) == (Outcome.PAUSED, 1)
    simulation.world.add_index("bare", replicas=0, places=["es6"])
    ended = play(simulation, simulation.resume())
    assert ended.outcome is Outcome.HELD
    assert ended.recovered > 1, "it restarted the nodes that nothing holds"
    assert "does not begin" not in ended.message


def test_a_node_that_was_stopped_once_means_begun() -> None:
    """It failed and was skipped on `resume`: no wave is finished and no node is in progress."""
    state = _situation(cluster(6)).state
    assert beginning.has_not_begun(state)
    skipped = replace(state.nodes[ES2], phase=NodePhase.SKIPPED, stopped_at=1.0)
    assert not beginning.has_not_begun(replace(state, nodes=state.nodes.changed(skipped)))


def test_begin_anyway_skips_held_nodes_and_says_so_at_the_end() -> None:
    steps = beginning.skipped_at_planning(_situation(_bare(), begin_anyway=True))
    assert [(step.node, step.to) for step in steps if isinstance(step, PhaseEntered)] == [("es2", "skipped")]
    assert beginning.skipped_at_planning(_situation(cluster(6), begin_anyway=True)) == ()
    simulation, state = run(_bare(), wanted=policy(begin_anyway=True))
    assert state.outcome is Outcome.HELD
    assert "es2 was skipped: held at planning by zero_replica_indices: index bare-es2" in state.message
    stopped = {action.node for action in simulation.hosts.sent if isinstance(action, StopNode)}
    assert stopped == {f"es{number}" for number in (1, 3, 4, 5, 6)}
    assert simulation.world.violations == []


def test_while_a_member_is_away_nothing_is_said_never_to_pass() -> None:
    """Its return may clear it; the run waits for it."""
    held = _situation(_bare())
    view = cluster_of(held.seen.cluster)
    without = replace(view, nodes=tuple(node for node in view.nodes if node.name != "es6"))
    assert beginning.cannot_finish(held)
    assert beginning.cannot_finish(replace(held, seen=replace(held.seen, cluster=without))) == ()


def test_a_run_that_repairs_another_began_with_that_one() -> None:
    state = _situation(_bare()).state
    assert beginning.has_not_begun(state)
    assert not beginning.has_not_begun(replace(state, begun=replace(state.begun, repairs="run-0")))


def test_a_wave_that_may_go_in_parts_bars_no_beginning() -> None:
    """A rollover put both copies of a new index into one zone: that zone goes in two waves."""
    world = cluster(6)  # es1 and es4 are of one zone
    world.add_index("logs-r1", replicas=1, places=["es1", "es4"])
    zone = ((NodeName("es1"), NodeName("es4")),)
    situation = _situation(world, strategy=Strategy.ZONE, max_unavailable=2)
    planned = replace(
        situation, state=replace(situation.state, begun=replace(situation.state.begun, planned=zone))
    )
    assert admit.against_wave(planned, Wave(number=1, nodes=zone[0])), "together they may not"
    assert beginning.cannot_finish(planned) == ()
    assert beginning.skipped_at_planning(planned) == ()
    world.add_index("bare", replicas=0, places=["es4"])
    held = _situation(world, strategy=Strategy.ZONE, max_unavailable=2)
    planned = replace(held, state=replace(held.state, begun=replace(held.state.begun, planned=zone)))
    assert {hold.predicate for hold in beginning.cannot_finish(planned)} == {"zero_replica_indices"}
    steps = beginning.skipped_at_planning(planned)
    assert [step.node for step in steps if isinstance(step, PhaseEntered)] == ["es4"]


@pytest.mark.parametrize(
    ("bare", "pair", "skipped"),
    [(("es2",), None, {"es2"}), ((), ("es2", "es5"), {"es2", "es5"}), ((), ("es2", "es6"), set[str]())],
    ids=["one of them", "only together", "neither"],
)
def test_begin_anyway_parts_a_machine_only_where_one_is_held(
    bare: tuple[str, ...], pair: tuple[str, ...] | None, skipped: set[str]
) -> None:
    """es2 and es5 are on one machine: where each might go alone, and both together may not, neither goes."""
    world = _bare(on=bare)
    if pair is not None:
        world.add_index("pair", replicas=1, places=list(pair))
    for name in ("es2", "es5"):
        world.nodes[NodeName(name)].machine = "shared"
    situation = _situation(world, together=Together.ALWAYS)
    steps = [one for one in beginning.skipped_at_planning(situation) if isinstance(one, PhaseEntered)]
    assert sorted(step.node or "" for step in steps) == sorted(skipped)
    assert bool(beginning.cannot_finish(situation)) is bool(skipped)


def test_a_hold_on_the_cluster_is_counted_once() -> None:
    """It is the same against every planned wave; of seven settings five are named."""
    world = cluster(6)
    for attribute in ("_name", "_id", "_ip", "_publish_ip", "_host_ip", "_host", "zone"):
        world.set(Level.PERSISTENT, f"{EXCLUSIONS}{attribute}", "*")
    zones = tuple((NodeName(f"es{n}"), NodeName(f"es{n + 3}")) for n in (1, 2, 3))
    situation = _situation(world, strategy=Strategy.ZONE, max_unavailable=2)
    planned = replace(situation.state, begun=replace(situation.state.begun, planned=zones))
    found = beginning.cannot_finish(replace(situation, state=planned))
    counts = {hold.predicate: (hold.count, len(hold.subjects)) for hold in found}
    assert counts == {"no_other_maintenance": (7, 5)}


def test_a_busy_candidate_goes_later_without_a_wait() -> None:
    situation = _situation(cluster(6))
    first = admit.next_wave_of(situation)
    assert first is not None
    (name,) = first.nodes
    merging = replace(activity_of(question(cluster(6))), merges=frozenset({name}))
    busy = replace(situation, seen=replace(situation.seen, activity=merging))
    second = admit.next_wave_of(busy)
    assert second is not None
    assert second.nodes != first.nodes
    assert admit.against_wave(busy, first)
    assert not admit.against_wave(busy, second)
    world = cluster(6)
    world.merges.add(name)
    simulation, state = run(world, wanted=policy(deadlines=Deadlines(hold=60.0)))
    assert state.outcome is Outcome.HELD, "it alone is left, and it is still busy"
    stopped = {action.node for action in simulation.hosts.sent if isinstance(action, StopNode)}
    assert name not in stopped
    assert len(stopped) >= 2, "its peers went before it"


def _down(*, bystander: bool, readings: int, since: float) -> Situation:
    """es2 is stopped; es5 has been missing for so long, in so many readings."""
    world = cluster(6)
    if bystander:
        world.nodes[ES5].roles = frozenset({Role.COORDINATING})
    asked = question(world)
    view, now = cluster_of(asked.observation.cluster), asked.observation.at
    asked = seeing(asked, cluster=replace(view, nodes=tuple(n for n in view.nodes if n.name != ES5)))
    nodes = dict(asked.state.nodes)
    nodes.pop(ES5)
    nodes[ES2] = replace(nodes[ES2], phase=NodePhase.STOPPING, since=now)
    state = state_with(
        asked.state,
        phase=Phase.DOWN,
        wave=Wave(number=1, nodes=(ES2,)),
        nodes=nodes,
        absent={ES5: Absence(since=now - since, readings=readings)},
    )
    return Situation(state=state, policy=asked.policy, kind=ELASTICSEARCH, seen=asked.observation, now=now)


def _stands_down(situation: Situation) -> bool:
    seen: Observation = situation.seen
    events = decide(situation.state, seen, situation.now).events
    failed = any(isinstance(event, SecondFailure) for event in events)
    assert failed is any(isinstance(event, StandingDown) for event in events)
    return failed


def test_a_member_is_gone_after_readings_and_half_a_minute() -> None:
    most = policy().settle_consecutive
    assert _stands_down(_down(bystander=False, readings=most, since=31.0))
    assert not _stands_down(_down(bystander=False, readings=most, since=29.0)), "it may be a pause"
    assert not _stands_down(_down(bystander=False, readings=most - 2, since=31.0)), "one reading may be odd"
    assert not _stands_down(_down(bystander=True, readings=most, since=9_000.0))
    assert _down(bystander=True, readings=most, since=31.0).absent_members == ()
    assert _down(bystander=False, readings=most, since=31.0).absent_members == (ES5,)


def test_a_canary_does_not_part_what_shares_a_machine() -> None:
    """A plan ends at its pause; the nodes that it leaves out still count by machine."""
    world = cluster(6)
    for name in ("es3", "es6"):
        world.nodes[NodeName(name)].machine = "host-1"
    wanted = policy(reboot=True, together=Together.REBOOT, pause_after=1, max_unavailable=2)
    plan = plan_of(world, wanted)
    assert (len(plan.waves), plan.holds) == (1, ())
    simulation = Simulation(world)
    first = play(simulation, simulation.begin(wanted, planned=tuple(wave.nodes for wave in plan.waves)))
    assert (first.outcome, first.message) == (Outcome.PAUSED, "paused after 1 node, as asked")
