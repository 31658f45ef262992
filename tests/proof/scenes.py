"""Runs that show a planted defect where chance makes none, or seldom; each says what went wrong.

A scene asks the ground truth or the end of the run. What it says is wrong; so is a broken assertion or
invariant, and a `SafetyViolation`. Every public function is a scene, by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import isfunction
from itertools import combinations, product
from types import MappingProxyType
from typing import Final

from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.action import ForceMerge, RetryFailed, StartNode, StopNode
from orchestrator.model.cluster import CopyState, NodeName, Role
from orchestrator.model.event import ActionSent, NodeRecovered, WaveStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Selection,
    Strategy,
    Together,
)
from orchestrator.runtime import guard
from orchestrator.simulation import allocation, deciders, installs, machines, merges, mishaps, segments
from orchestrator.simulation.mishaps import HostCutOff, How, Mishap, NodeDies, Trip
from orchestrator.simulation.world import World
from tests.proof.deletions import OF_OVERLAP, SCENARIOS
from tests.simulation.balanced import Endpoints, Gateway
from tests.simulation.chance import chance
from tests.simulation.loaded import index_of, loaded, merged_policy
from tests.simulation.node_mishaps import ReturnsChanged
from tests.simulation.odd import name_hosts
from tests.simulation.old import OF_1_4, OF_1_7, aged
from tests.simulation.overlapping import overlapped, slow, under_way
from tests.simulation.play import cluster, killed, lives, plan_of, play, policy, run
from tests.simulation.program import Simulation
from tests.simulation.ringed import FOUR, TWO, riak_policy, ringed
from tests.simulation.scene import ES1, ES2, ES3, Scene, asked
from tests.simulation.scenes import beginnings, ordinary, returning, riak
from tests.simulation.upgrading import TARGET, upgrading
from tests.simulation.wide import Life
from tests.simulation.zones import by_zone, zoned

Lapse = str | None


def _ended(state: RunState, outcome: Outcome = Outcome.DONE) -> Lapse:
    return None if state.outcome is outcome else f"{state.outcome}: {state.message}"


# Stops, readings and copies ------------------------------------


def a_stop_is_done_late() -> Lapse:
    """Its node was restarted by somebody else meanwhile, and another one is down by then."""
    for late in (14.0, 20.0, 25.0, 29.0):
        world = cluster(3)
        died = Mishap(what=NodeDies(node=ES2, back_after=0.5), verb="stop", after=1.0)
        run(world, plan=[died], trips=[Trip(verb="stop", how=How.LATE, late=late)])
        if world.violations:
            return world.violations[0]
    return None


def a_stop_is_done_when_nobody_waits_for_it() -> Lapse:
    """It was taken as not done, and its node left the wave."""
    for late in (35.0, 40.0):
        world = zoned()
        world.nodes[ES2].start_seconds = 30.0
        trip = Trip(verb="stop", how=How.LATE, target="es5", late=late)
        _, state = run(world, trips=[trip], wanted=by_zone())
        away = [node.name for node in world.nodes.values() if not node.joined]
        if away or world.settings() != ({}, {}):
            return f"{', '.join(away)} away at the end: {state.message}"
    return None


def a_plan_of_single_nodes() -> Lapse:
    """Two nodes of a zone could go together, and the plan that was shown has one at a time."""
    simulation = Simulation(zoned())
    planned = tuple((NodeName(f"es{number}"),) for number in (1, 4, 2, 5, 3, 6))
    state = play(simulation, simulation.begin(by_zone(), planned=planned))
    begun = (one.event for one in simulation.journal.records if isinstance(one.event, WaveStarted))
    wide = [event.wave.nodes for event in begun if len(event.wave.nodes) > 1]
    return f"{wide[0]} in one wave" if wide else _ended(state)


def a_second_node_is_gone() -> Lapse:
    """A node of another zone leaves while the wave is on its way: the run stands down."""
    world = zoned()
    world.nodes[ES2].start_seconds = 60.0
    gone = NodeDies(node=ES3, back_after=300.0)
    _, state = run(world, plan=[Mishap(what=gone, verb="stop", after=20.0)], wanted=by_zone())
    return None if state.process.second_failure is not None else f"es3 left unnoticed: {state.outcome}"


def a_copy_was_missing_before() -> Lapse:
    """A replica had failed before the run began: the run neither waits for it nor has it tried again."""
    world = cluster(3)
    world.add_index("wide", replicas=2)
    shard = next(shard for index, shard in deciders.shards_of(world) if index.name == "wide")
    replica = next(copy for copy in shard.copies if not copy.primary)
    replica.node, replica.state, replica.reason = None, CopyState.UNASSIGNED, "ALLOCATION_FAILED"
    replica.failed_attempts = 5
    simulation, state = run(world)
    if any(isinstance(action, RetryFailed) for action in simulation.cluster.sent):
        return "what had failed before the run is tried again"
    return _ended(state)


def a_wave_made_room() -> Lapse:
    """Each node is recovered when no copy is on its way to it any more, whatever else recovers."""
    pool = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))
    simulation, _ = run(slow(), wanted=overlapped(hooks=pool))
    for record in simulation.journal.records:
        if not isinstance(record.event, NodeRecovered):
            continue
        early = [to for _, to in under_way(simulation, record.at) if to == record.event.node]
        if early:
            return f"{early[0]} counts as recovered while {len(early)} copies are on their way to it"
    return None


# Ordinary nights ------------------------------------


def an_index_that_the_cluster_cannot_spare() -> None:
    """It has no replicas, and its node would go fifth: nothing is stopped for nothing."""
    Scene(
        name="an index that the cluster cannot spare",
        of=ordinary.six,
        indices={"bare": {"replicas": 0, "places": ["es6"]}},
        wanted=ordinary.wanted(),
        ends=Outcome.HELD,
        sent={"stop": 0},
    ).play()


def interrupted_while_a_node_is_down() -> None:
    """Whoever interrupts a run does not wait for its hooks: the node is started first of all."""
    Scene(
        name="interrupted",
        of=ordinary.six,
        wanted=ordinary.wanted(),
        befalls=[asked(Request.INTERRUPT, "stop", ES3, after=1.0)],
        ends=Outcome.INTERRUPTED,
        sent={"hook_while_stopped": 1},
    ).play()


def _row(begins: str) -> Callable[[], object]:
    """The row of ordinary nights, copies that do not return, Riak's nights or gates whose name begins so."""
    rows = (*ordinary.SCENES, *returning.SCENES, *riak.SCENES, *beginnings.SCENES)
    (scene,) = (each for each in rows if each.name.startswith(begins))

    def play() -> None:
        scene.play()

    return play


# Merges, and old versions ------------------------------------


def a_copy_moves() -> Lapse:
    """A copy of a loaded index moves to another node for minutes when the run begins."""
    world, seconds = loaded(indices=1), 300.0
    shard = index_of(world, "posts-1").shards[0]
    free = next(name for name in world.nodes if all(copy.node != name for copy in shard.copies))
    allocation.relocate(world, shard.primary, free, seconds)
    there = world.agenda.now + seconds
    simulation, state = run(world, wanted=merged_policy())
    for record in simulation.journal.records:
        if isinstance(record.event, ActionSent) and isinstance(record.event.action, ForceMerge):
            early = there - record.at
            return f"posts-1 is merged {early:.0f} s before its copy is there" if early > 0 else None
    return f"not merged: {state.outcome} {state.message}"


def a_snapshot_runs_on_1_7() -> Lapse:
    """A snapshot is in progress when a run on 1.7 begins, whose cluster state does not list it."""
    world, snapshot = aged(cluster(), OF_1_7, "1.7.6"), "repository/nightly"
    world.begin_snapshot(snapshot)
    world.agenda.after(300.0, lambda: world.end_snapshot(snapshot))
    _, state = run(world)
    return world.violations[0] if world.violations else _ended(state)


def few_segments_on_1_4_without_a_commit() -> Lapse:
    """The server has merged an index by itself on 1.4: its nodes open the last commit after a restart."""
    world = aged(loaded(indices=1), OF_1_4, "1.4.5")
    world.forced.task_list = False
    index, wanted = index_of(world, "posts-1"), merged_policy()
    assert wanted.merge is not None
    segments.merged_without_commit(world, index, 2)
    _, state = run(world, wanted=wanted)
    if left := merges.unmerged(world, index.uuid, wanted.merge.max_segments):
        return f"after the restart: {left[0]} segments"
    return _ended(state)


# Riak ------------------------------------


def fallbacks_that_wait_at_the_start() -> Lapse:
    """A node was away before the run, and is back."""
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(30.0)
    machines.start(world, world.nodes[FOUR])
    world.agenda.advance(35.0)
    run(world, wanted=riak_policy())
    return next(iter(world.violations), None)


def a_node_that_starts_when_the_run_is_killed() -> Lapse:
    """Two of them away at once, when the next process knows nothing of the first."""

    def begun() -> tuple[Simulation, RunState]:
        world = ringed()
        world.nodes[TWO].start_seconds = 40.0
        simulation = Simulation(world)
        return simulation, simulation.begin(riak_policy())

    simulation, state = begun()
    play(simulation, state)
    asked = simulation.seams.passed.index(f"after start of {TWO}")
    simulation, state = begun()
    simulation.seams.crash_at = 1 + asked
    killed(simulation, state)
    play(simulation, simulation.resume())
    return next(iter(simulation.world.violations), None)


# The largest safe sets ------------------------------------

_EIGHT: Final = tuple(f"es{number}" for number in range(1, 9))
_FREE: Final = {"max_unavailable": 8, "min_capacity": 0.1}


def _of_data(names: tuple[str, ...], voters: tuple[str, ...]) -> World:
    """Nodes in no zone; with `voters`, the others have data only."""
    world = World(allowed_down=len(_EIGHT))
    world.across_zones = True
    for name in names:
        if voters:
            world.add_node(name, roles=frozenset({Role.MASTER if name in voters else Role.DATA}))
        else:
            world.add_node(name)
    return world


def _ring() -> World:
    """Eight nodes, each of which shares shards with its two neighbours."""
    world = _of_data(_EIGHT, ())
    for number in range(24):
        world.add_index(f"logs-{number}", places=[_EIGHT[number % 8], _EIGHT[(number + 1) % 8]])
    return world


def _with_voters() -> World:
    """Four nodes of data, each two with a shard of their own, and three voters without."""
    world = _of_data(_EIGHT[:7], _EIGHT[4:7])
    for one, other in combinations(_EIGHT[:4], 2):
        world.add_index(f"{one}-{other}", places=[one, other])
    return world


def _crown() -> World:
    """Eight nodes of data, each odd one with shards of all even ones but the next, and three voters."""
    world = _of_data((*_EIGHT, "m1", "m2", "m3"), ("m1", "m2", "m3"))
    for one, other in product(_EIGHT[::2], _EIGHT[1::2]):
        if _EIGHT.index(other) != _EIGHT.index(one) + 1:
            world.add_index(f"{one}-{other}", places=[one, other])
    return world


def _sets(world: Callable[[], World], most: int, **changes: object) -> Lapse:
    """A lapse unless a whole run by `shard-safe` is as planned, in no more waves than suffice."""
    asked = policy(**{"strategy": Strategy.SHARD_SAFE, "max_unavailable": None, **changes})
    nodes, plan = world(), plan_of(world(), asked)
    master = nodes.master
    simulation, state = run(nodes, wanted=asked)
    took = [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    if nodes.violations:
        return nodes.violations[0]
    if state.outcome is not Outcome.DONE or set(lives(nodes).values()) != {2}:
        return f"{state.outcome}: {state.message}"
    if len(took) > most:
        return f"{len(took)} waves, and {most} suffice"
    if [wave.nodes for wave in plan.waves] != took:
        return "what is planned is not what is run"
    if plan.lower_bound_waves is None or plan.lower_bound_waves > len(took):
        return "fewer waves than there can be"
    return None if master in took[-1] else "mastership moves more than once"


# Copies that may stay away, and endpoints ------------------------------------


_ON_TWO: Final = {"include._name": "es1,es4"}


def _may_stay_away(rules: Mapping[str, str], settings: Mapping[str, str] = MappingProxyType({})) -> Lapse:
    """A lapse unless a run is held before its first stop: a copy of `pair` on es1 or es4 has no place again.

    The two share a machine and a zone. es1 and es2 are hot, and all others warm.
    """
    world = cluster(6)
    world.add_index("pair", places=["es1", "es4"])
    for node in world.nodes.values():
        node.roles = frozenset({Role.MASTER, Role.DATA_HOT if node.name in (ES1, ES2) else Role.DATA_WARM})
    world.nodes[NodeName("es4")].machine = "es1"
    name_hosts(world)
    world.indices["pair-uuid"].rules = rules
    for key, value in settings.items():
        world.set(Level.PERSISTENT, key, value)
    _, state = run(world, wanted=policy(deadlines=Deadlines(hold=60.0)))
    return world.violations[0] if world.violations else _ended(state, Outcome.HELD)


def endpoints_of_a_balancer() -> Lapse:
    """Nothing else leads to the cluster, and the balancer leads to another node at each connection."""
    world = cluster(3)
    name_hosts(world)
    nodes = tuple(world.nodes)
    world.endpoints = Gateway(world, Endpoints(behind={"http://10.9.0.1:9200": nodes}, direct=False))
    _, state = run(world)
    return world.violations[0] if world.violations else _ended(state)


# Upgrades ------------------------------------


def _upgraded(simulation: Simulation, state: RunState, ends: Outcome = Outcome.DONE) -> Lapse:
    """What is wrong with an upgrade that has ended."""
    world, wanted = simulation.world, state.begun.policy
    if world.violations:
        return "; ".join(world.violations)
    if state.outcome is not ends or ends is not Outcome.DONE:
        return _ended(state, ends)
    lacks = [lack for name in state.nodes for lack in installs.lacking(world.nodes[name], wanted, 0.0)]
    return "; ".join(lacks) or None


def _slowly(seconds: float) -> World:
    world = cluster(3)
    for each in world.nodes.values():
        each.disk.seconds = seconds
    return world


def _interrupted(*more: Mishap) -> Lapse:
    """Somebody interrupts the run while a step of 200 s runs."""
    asked = Mishap(what=mishaps.PersonAsked(request=Request.INTERRUPT), verb="install", after=5.0)
    ran = run(_slowly(200.0), plan=[asked, *more], wanted=upgrading())
    return _upgraded(*ran, ends=Outcome.INTERRUPTED)


def interrupted_while_its_host_is_away() -> Lapse:
    cut_off = [HostCutOff(node=each, seconds=60.0) for each in (ES1, ES2, ES3)]
    return _interrupted(*(Mishap(what=one, verb="install", target=one.node, after=3.0) for one in cut_off))


def _rising(after: float) -> Lapse:
    """Something starts the first node so long after its stop."""
    world = cluster(3)
    world.nodes[ES1].rises_after = after
    return _upgraded(*run(world, wanted=upgrading()))


def a_step_fails() -> Lapse:
    """The first step fails once on one node, and the run is resumed."""
    world = cluster(3)
    world.nodes[ES1].disk.fails = 1
    simulation, state = run(world, wanted=upgrading())
    if state.outcome is Outcome.FAILED:
        state = play(simulation, simulation.resume())
    return _upgraded(simulation, state)


def it_is_on_the_disk() -> Lapse:
    world = cluster(3)
    world.nodes[ES1].disk.holds = world.nodes[ES1].next_version = TARGET
    simulation, state = run(world, wanted=upgrading())
    again = [fact.what for fact in world.nodes[ES1].facts if fact.what.startswith("installed")]
    return f"{again[0]} on es1, where all of it was" if again else _upgraded(simulation, state)


def _in_its_first_step(seconds: float, limit: float) -> Simulation:
    """A run whose program is killed right after it has sent its first install step."""
    wanted, point = upgrading(deadlines=Deadlines(install=limit)), 0
    for at in (1, None):
        simulation = Simulation(_slowly(seconds))
        state = simulation.begin(wanted)
        simulation.seams.crash_at = point if at is None else None
        if at is None:
            assert killed(simulation, state)
            return simulation
        play(simulation, state, limit=1e6)
        names = simulation.seams.passed
        point = next(n for n, name in enumerate(names, start=1) if name.startswith("after install"))
    raise AssertionError("no step was sent")


def _killed_in_a_step(seconds: float, pause: float, limit: float) -> Lapse:
    """The next process finds the step at work, and the steps after it take 20 s."""
    simulation = _in_its_first_step(seconds, limit)
    simulation.world.agenda.advance(pause)
    for each in simulation.world.nodes.values():
        each.disk.seconds = 20.0
    return _upgraded(simulation, play(simulation, simulation.resume()))


def a_defect_in_a_step() -> Lapse:
    """What the program starts blindly after a defect of its own, while an install step runs."""
    simulation = _in_its_first_step(100.0, 3600.0)
    state = replay(simulation.run, simulation.journal.records)
    starts = guard.blind_starts(state, busy=guard.busy_hosts(state))
    return f"{starts[0].node} is started beside its step" if starts else None


def a_step_does_not_end() -> Lapse:
    world = cluster(3)
    world.nodes[ES1].disk.seconds = 40_000.0
    simulation = Simulation(world)
    begun = simulation.begin(upgrading(deadlines=Deadlines(install=600.0)))
    state = play(simulation, begun, limit=20_000.0)
    started = any(isinstance(one, StartNode) and one.node == ES1 for one in simulation.hosts.sent)
    return "es1 is started beside its step" if started else _upgraded(simulation, state, ends=Outcome.FAILED)


def _on_one_machine() -> World:
    world = cluster(6)
    world.allowed_down = 2
    for name, other in (("es1", "es4"), ("es2", "es5"), ("es3", "es6")):
        world.nodes[NodeName(other)].machine = world.nodes[NodeName(name)].machine
    return world


def nodes_of_one_machine() -> Lapse:
    """They go in one wave, by their zone, and not because of their machine."""
    wanted = upgrading(
        strategy=Strategy.ZONE, zone_attribute="zone", max_unavailable=None, together=Together.NEVER
    )
    return _upgraded(*run(_on_one_machine(), wanted=wanted))


def it_returns_with_another_version() -> Lapse:
    changed = Mishap(what=ReturnsChanged(node=ES1, version="9.1.0"), verb="start", target=ES1, after=0.0)
    simulation, state = run(cluster(3), plan=[changed], wanted=upgrading())
    stops = sum(isinstance(one, StopNode) and one.node == ES1 for one in simulation.hosts.sent)
    if stops > 1:
        return f"es1 is stopped {stops} times, and comes back as it was each time"
    return _upgraded(simulation, state, ends=Outcome.FAILED)


def the_same_again() -> Lapse:
    """An upgrade of a cluster that runs the target stops nothing."""
    simulation, _ = run(cluster(3), wanted=upgrading())
    again = Simulation(simulation.world, run="run-2")
    state = play(again, again.begin(upgrading()))
    stopped = [one.node for one in again.hosts.sent if isinstance(one, StopNode)]
    return f"{stopped} stopped, which run the target" if stopped else _upgraded(again, state)


def half_of_it_is_upgraded() -> Lapse:
    """Another run has upgraded one node, which has the primaries now."""
    world = cluster(3)
    run(world, wanted=upgrading(selection=Selection(only=("es1",))))
    rest = Simulation(world, run="run-2")
    return _upgraded(rest, play(rest, rest.begin(upgrading())))


def a_machine_is_half_upgraded() -> Lapse:
    """One of its two nodes runs the target, and the run reboots the machine of the other one."""
    world = _on_one_machine()
    there = world.nodes[NodeName("es4")]
    there.version = there.next_version = there.disk.holds = TARGET
    return _upgraded(*run(world, wanted=upgrading(reboot=True, max_unavailable=None)))


def _here() -> list[Callable[[], object]]:
    """Every public function of this module."""
    functions = [each for each in globals().values() if isfunction(each) and each.__module__ == __name__]
    return [each for each in functions if not each.__name__.startswith("_")]


SCENES: Final[Mapping[str, Callable[[], object]]] = {
    **SCENARIOS,
    **{name: scenario for name, (_, scenario) in OF_OVERLAP.items()},
    **{scene.__name__: scene for scene in _here()},
    "an_alert_fires": _row("alertmanager: an alert that begins during the run holds it, after"),
    "an_alert_fires_again": _row("alertmanager: one that was resolved and fires again"),
    "a_stop_is_refused": _row("a call that fails once ends no run: stop REFUSED"),
    "a_node_is_rescued": _row("rescued: an index made between"),
    "a_disk_is_full": _row("DiskFills"),
    "a_snapshot_begins_late": _row("SnapshotBegun after before_stop"),
    "an_index_with_a_copy_too_many": _row(
        "a copy without a place is not waited for, IndexMade while it is down"
    ),
    "an_index_is_reopened": _row(
        "others work on indices beside a node after 5.0 s: IndexReopened(index='archive'"
    ),
    "a_candidate_is_busy": _row("a candidate that force-merges"),
    "a_node_flaps_for_a_moment": _row("NodeFlaps: es5 for 5.0 s after start of es2"),
    "partitions_that_wait_for_weeks": _row("no_transfers: what has waited for weeks"),
    "partitions_that_wait_and_hold_no_stop": _row("no_transfers: disabled"),
    "a_restart_that_cures_a_handoff": _row("no_transfers: what a restart of its owner cures"),
    "a_transfer_limit_of_0": _row("no_transfers: a transfer limit of 0"),
    "waiting_partitions_in_sets": _row("waiting_partitions_go_alone"),
    "killed_while_partitions_wait": _row(
        "resume: what waited before the stop is not waited for, killed after stop"
    ),
    "a_ring": partial(_sets, _ring, 4),  # no two neighbours go together, and two of eight by the usual budget
    "a_ring_without_a_budget": partial(_sets, _ring, 3, **_FREE),
    "voters_without_data": partial(_sets, _with_voters, 4, **_FREE),
    "a_crown": partial(_sets, _crown, 3, **_FREE),
    "sets_in_zones": partial(_sets, partial(zoned, 6), 3, zone_attribute="zone"),
    "kept_on_a_host": partial(_may_stay_away, {"require._host": "es1.internal"}),
    "kept_on_a_tier": partial(_may_stay_away, {**_ON_TWO, "include._tier_preference": "data_hot"}),
    "two_where_one_may_be": partial(_may_stay_away, _ON_TWO, {deciders.SAME_HOST: "true"}),
    "more_than_a_node_may_have": partial(_may_stay_away, {}, {deciders.LIMIT: "1"}),
    "either_may_stay_away": _row("total_shards_per_node of the cluster: of two copies either"),
    "allocated_nowhere": _row("an index whose own setting allocates none"),
    "kept_elsewhere_meanwhile": _row("kept elsewhere while its node is down"),
    "returns_after_all": _row("of two that are foreseen to stay away one returns"),
    "another_zone_meanwhile": _row("a node comes back with another zone"),
    "excluded_meanwhile": _row("the cluster excludes es2 while it is down"),
    "a_limit_comes_meanwhile": _row("a limit of the cluster comes while es2 is down"),
    "more_than_a_zone_may_have": partial(_may_stay_away, _ON_TWO, {AWARENESS: "zone"}),
    "an_upgrade": lambda: _upgraded(*run(cluster(3), wanted=upgrading())),
    "interrupted_in_a_step": _interrupted,
    # In its first step nothing of the target is on the disk; in the second one it comes up with the target,
    # and without what that step installs.
    "something_starts_the_node": partial(_rising, 5.0),
    "something_starts_the_node_between_steps": partial(_rising, 25.0),
    "killed_in_a_step": partial(_killed_in_a_step, 100.0, 5.0, 3600.0),
    # The step ends within its limit, counted from the beginning of the next process.
    "killed_in_a_long_step": partial(_killed_in_a_step, 900.0, 700.0, 600.0),
    # It takes a node down that comes back as it was; a shard of it has its primary on an upgraded node.
    "a_late_stop_without_a_journal": lambda: Life(chance(800425)).live(),
}
"""By name: what planted defects are shown by, and the scenarios of the predicates."""
