"""A plan is what the run then does, and says what a run would wait for, of every strategy and kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, groupby
from typing import Final

import orjson
import pytest

from orchestrator.elasticsearch.rules.kind import Elasticsearch
from orchestrator.elasticsearch.rules.settings import limit_changes, value_today
from orchestrator.engine.state import NOT_BEGUN
from orchestrator.engine.waves import next_wave
from orchestrator.model.action import action_name
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import COULD_NOT_FINISH, Hold, WaveStarted
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Deadlines, DisabledPredicate, Policy, Wave
from orchestrator.model.riak import timer_key
from orchestrator.simulation import views
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_parts import USUAL_TIMER, SimMove
from orchestrator.simulation.world import World
from orchestrator.view.plan import plan_object, plan_text
from tests.fakes.riak_rings import names
from tests.simulation.gated import QUEUE
from tests.simulation.overlapping import overlapped, slow
from tests.simulation.play import cluster, plan_of, policy
from tests.simulation.program import Simulation
from tests.simulation.ringed import (
    by_location,
    by_sets,
    down,
    located,
    riak_policy,
    ringed,
    rolling,
    unlocated,
)
from tests.simulation.safe_sets import NODES, neighbours
from tests.simulation.scene import ES2, HELD, PAUSED, Scene
from tests.simulation.scenes.riak import HASTENED, old
from tests.simulation.scenes.safe_sets import in_sets
from tests.simulation.scenes.waves import IN_ORDER, PAIRS, tiered
from tests.simulation.sharing import always, rebooting, sharing
from tests.simulation.tuned import detune, profile
from tests.simulation.upgrading import upgrading
from tests.simulation.upgrading import wanted as upgrade
from tests.simulation.zones import by_zone, lopsided, paired, zoned

ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT = names(8)
APART: Final = ((ONE, FIVE), (TWO, SIX), (THREE, SEVEN), (FOUR, EIGHT))
FREE: Final = {"max_unavailable": 8, "min_capacity": 0.1}
BY_DEFAULT: Final = "the nodes, by the default of max_unavailable: at most 2 of 8 at once"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A row: a plan, and what it says."""

    name: str  # what it shows
    of: Callable[[], World] = cluster  # the cluster
    wanted: Policy = field(default_factory=policy)  # the policy
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what cannot be read, for `plan_of`
    holds: Sequence[str] = ()  # predicates that hold it
    waves: Sequence[Sequence[str]] | int | None = None  # their nodes, or how many there are
    says: Sequence[str] = ()  # parts of its text, and `silent` those that it has not
    silent: Sequence[str] = ()
    bound: int | None = None  # the fewest waves that there can be, and `reason` how the reason of it begins
    reason: str = ""
    lasting: Sequence[str] = ()  # predicates that no time clears
    shows: Callable[[Plan], object] | None = None  # what else is asked of it

    def check(self) -> None:
        plan = plan_of(self.of(), self.wanted, **self.read)
        text, waves = plan_text(plan, steps=True), [wave.nodes for wave in plan.waves]
        assert [hold.predicate for hold in plan.holds] == [*self.holds], plan.holds
        assert self.waves in (None, len(waves), waves), waves
        assert [part for part in self.says if part not in text] == [], text
        assert [part for part in self.silent if part in text] == [], text
        assert (self.bound, [*self.lasting]) in ((None, []), (plan.lower_bound_waves, [*plan.lasting]))
        assert plan.lower_bound_reason.startswith(self.reason)
        assert self.shows is None or self.shows(plan) is not False


def prepared(of: Callable[[], World], **values: object) -> World:
    world = of()
    for name, value in values.items():
        setattr(world, name, value)
    return world


# What it says -------------------------------------------------------------------------------------------


def _bare() -> World:
    world = zoned()
    world.add_index("bare", replicas=0, places=["es5"])
    return world


def _tuned() -> World:
    world = detune(cluster(3))
    world.nodes[ES2].kernel.clear()
    return world


def _pair() -> World:
    world = sharing()
    world.add_index("pair", places=[NodeName("es2"), NodeName("es5")])
    return world


def _steps(plan: Plan, *verbs: str) -> list[tuple[str, str]]:
    return [(step.target, step.action) for step in plan.steps if step.action in verbs]


def _each_tuned(plan: Plan) -> None:
    tuned = ["stop", "tune", "tune", "tune", "start"]
    each = {
        name: [verb for node, verb in _steps(plan, "stop", "tune", "start") if node == name]
        for name in cluster().nodes
    }
    assert each == {"es1": tuned, "es2": ["stop", "start"], "es3": tuned}


def _machines(plan: Plan) -> None:
    both = "both nodes to restart on machine host-{}.example{}"
    assert [wave.why for wave in plan.waves] == [
        both.format("es2", ""),
        both.format("es3", ""),
        both.format("es1", "; with the elected master, so it goes last"),
    ]


def _one_reboot(plan: Plan) -> None:
    assert [node for node, _ in _steps(plan, "reboot")] == ["es2", "es3", "es4"]
    assert [node for node, _ in _steps(plan, "stop")] == [node for pair in PAIRS for node in pair]


def _canary(nodes: int, of: int, plan: Plan) -> None:
    assert (len(plan.nodes), plan.nodes_selected, plan.pauses) == (nodes, of, True)
    assert plan.steps[-1].action == "restore_settings", "what a pause puts back is planned too"


def _one_hold_of_two(reboot: bool, plan: Plan) -> None:  # noqa: FBT001
    sound = plan_of(cluster(3), policy(reboot=reboot))
    (hold,) = plan.holds
    assert (hold.count, {*hold.subjects}) == (2, {"host of es1", "host of es2"})
    assert (plan.waves, plan.predicted) == (sound.waves, sound.predicted)
    assert [(s.target, s.action) for s in plan.steps] == [(s.target, s.action) for s in sound.steps]


def _slowest(plan: Plan) -> None:
    alone = plan_of(zoned(), policy(zone_attribute="zone"))
    assert len(alone.waves) == 2 * len(plan.waves)
    each = {wave.nodes[0]: wave.predicted for wave in alone.waves}
    for wave in plan.waves:
        assert wave.predicted.likely == max(each[name].likely for name in wave.nodes)
    assert plan.predicted.likely == pytest.approx(sum(wave.predicted.likely for wave in plan.waves))


def _as_without_overlap(plan: Plan) -> None:
    """Nothing is on record: their nodes are away one after another."""
    assert plan.waves[0].why == "one node at a time, zone by zone"
    assert plan.predicted.low == sum(wave.predicted.low for wave in plan.waves)
    assert plan.predicted == plan_of(slow(), overlapped(overlap_recovery=False)).predicted


# fmt: off
PLANS: Final = (
    Planned(name="a zone takes as long as its slowest node", of=zoned, wanted=by_zone(), shows=_slowest),
    *(
        Planned(name=f"a canary of {nodes} is planned to its pause and is no hold",
            of=of, wanted=wanted, shows=partial(_canary, nodes, len(of().nodes)))
        for of, wanted, nodes in (
            (cluster, policy(pause_after=1), 1), (partial(zoned, 9), by_zone(pause_after=2), 2)
        )
    ),
    Planned(name="a pause after all nodes is none", wanted=policy(pause_after=3),
        shows=lambda plan: not plan.pauses),
    Planned(name="a zone refused even in part is a hold", of=_bare, wanted=by_zone(),
        holds=["zero_replica_indices"], shows=lambda plan: plan.holds[0].subject == "index bare"),
    *(
        Planned(name=f"unreachable hosts are one hold of a plan of all nodes, reboot {reboot}",
            wanted=policy(reboot=reboot), read={"out_of_reach": ["es1", "es2"]},
            holds=["selected_hosts_ready"], shows=partial(_one_hold_of_two, reboot))
        for reboot in (False, True)
    ),
    *(
        Planned(name=f"--timeout {timeout} does not shorten a plan and is named", waves=3,
            wanted=policy(timeout=timeout), says=[said] * short, silent=[said] * (not short),
            shows=lambda plan, timeout=timeout: plan.timeout == timeout)
        for said in ["--timeout 1s is shorter than the run is likely to take"]
        for timeout, short in ((1.0, True), (86400.0, False), (None, False))
    ),
    Planned(name="overlap_recovery is said to be on",
        of=slow, wanted=overlapped(), says=["overlap_recovery"], shows=_as_without_overlap),
    Planned(name="without overlap_recovery nothing is said of it",
        of=slow, wanted=overlapped(overlap_recovery=False), silent=["overlap_recovery"]),
    Planned(name="overlap_recovery without zones", of=slow, wanted=overlapped(zone_attribute=None),
        shows=lambda plan: plan.waves[0].why == "one node at a time, in order"),
    Planned(name="each tune is a step", of=_tuned, wanted=policy(tune=profile()), shows=_each_tuned),
    Planned(name="plugins of an upgrade are no hold",
        wanted=upgrading(upgrade=upgrade(plugins=("analysis-icu",))), waves=[("es2",), ("es3",), ("es1",)]),
    Planned(name="machines are named", of=sharing, wanted=always(), waves=PAIRS, shows=_machines),
    Planned(name="a machine has one reboot", of=sharing, wanted=rebooting(), waves=PAIRS,
        shows=_one_reboot),
    Planned(name="a planned machine is never split", of=_pair, wanted=always(), waves=PAIRS,
        holds=["every_shard_keeps_started_copies"]),
    Planned(name="by role and tier", of=tiered, wanted=policy(zone_attribute="zone"), waves=IN_ORDER),
)
# fmt: on

# The largest safe sets ----------------------------------------------------------------------------------


def _with_voters() -> World:
    """Four nodes of data, each two with a shard of their own, and three voters without; es5 is the master."""
    world = World(allowed_down=len(NODES))
    world.across_zones = True
    for name in NODES[:7]:
        world.add_node(name, roles=frozenset({Role.MASTER if name > "es4" else Role.DATA}))
    for one, other in combinations(NODES[:4], 2):
        world.add_index(f"{one}-{other}", places=[one, other])
    return world


def _has_data(plan: Plan) -> list[bool]:
    return [bool({*wave.nodes} & {*NODES[:4]}) for wave in plan.waves]


def _mixed(plan: Plan) -> bool:
    return any({*wave.nodes} & {*NODES[:4]} and {*wave.nodes} - {*NODES[:4]} for wave in plan.waves)


def _master_last(plan: Plan) -> bool:
    """It holds no data here, so it has room in each that has no other voter."""
    return ["es5" in wave.nodes for wave in plan.waves] == [*([False] * (len(plan.waves) - 1)), True]


def _several_zones(plan: Plan) -> bool:
    zones = {name: node.zone for name, node in zoned(6).nodes.items()}
    return any(len({zones[name] for name in wave.nodes}) > 1 for wave in plan.waves)


def _sets_follow(plan: Plan) -> None:
    more = [f"{left} more {'set' if left == 1 else 'sets'}" for left in range(len(plan.waves) - 1, 0, -1)]
    assert [said in wave.why for said, wave in zip(more, plan.waves, strict=False)] == [True] * len(more)
    assert "more set" not in plan.waves[-1].why


_ONE_ZONE: Final = (DisabledPredicate(name="one_zone_at_a_time"),)
_BUSY: Final = partial(prepared, neighbours, snapshots=("nightly",))
_LASTING: Final = (
    ("every_shard_keeps_started_copies", {"min_started_copies": 9}),
    ("capacity_remains", {"min_capacity": 0.9}),
)
"""More copies than there are, which no time brings; and what bars every node alone."""
# fmt: off
SETS: Final = (
    Planned(name="why there cannot be fewer waves", of=neighbours, wanted=in_sets(), reason=BY_DEFAULT,
        silent=["needs as few"], shows=_sets_follow),
    Planned(name="no bound by node", of=neighbours, shows=lambda plan: plan.lower_bound_waves is None),
    *(
        Planned(name=f"a plan that cannot begin says so and states no bound, {why}",
            of=neighbours, wanted=in_sets(**changes), holds=[why],
            says=["checks. Waiting cannot clear it: without --begin-anyway a run ends at once"],
            shows=lambda plan, why=why: (plan.lasting, plan.lower_bound_waves) == ((why,), None))
        for why, changes in _LASTING
    ),
    Planned(name="a plan that is held for a while has a bound", of=_BUSY, wanted=in_sets(),
        holds=["no_running_snapshot"], says=["waits for it to clear.\nMore: orchestrate explain no_running_"],
        shows=lambda plan: plan.lasting == () and plan.lower_bound_waves is not None),
    Planned(name="zone needs as few", of=zoned, wanted=in_sets(zone_attribute="zone"),
        says=["; `--strategy zone` needs as few)"]),
    Planned(name="node needs as few", of=neighbours, wanted=in_sets(max_unavailable=1),
        says=[
            "can be down with no other; it is the elected master, so it goes last",
            "; `--strategy node` needs as few)",
        ]),
    Planned(name="zones go together where the playbook lets them",
        of=partial(prepared, zoned, across_zones=True, allowed_down=6), shows=_several_zones,
        wanted=in_sets(zone_attribute="zone", disabled_predicates=_ONE_ZONE, **FREE)),
    Planned(name="the set with the elected master is the last",
        of=_with_voters, wanted=in_sets(**FREE), shows=lambda plan: _master_last(plan) and _mixed(plan)),
    Planned(name="an upgrade mixes no ranks in a set, and data goes before voters",
        of=_with_voters, wanted=in_sets(upgrade=upgrade(), **FREE),
        shows=lambda plan: not _mixed(plan) and _has_data(plan) == sorted(_has_data(plan), reverse=True)),
    Planned(name="the sets of each zone are counted apart",
        of=partial(prepared, zoned, allowed_down=3), wanted=in_sets(zone_attribute="zone"),
        shows=lambda plan: (
            plan.lower_bound_waves == len(plan.waves)
            and "zones, one after the other" in plan.lower_bound_reason
        )),
)
# fmt: on

# Riak ---------------------------------------------------------------------------------------------------

_OTHERS: Final = re.compile(
    r"\b(?:cop(?:y|ies)|shards?(?!-safe)|tier|allocat\w+|indices|index|master|reroute|segments?)\b",
    re.IGNORECASE,
)
"""What Riak has none of. Its words: vnodes, partitions, handoff, transfers, preference lists."""


def _one_hold(node: str, plan: Plan) -> None:
    """It names all that follows, in the object too."""
    (hold,) = plan.holds
    assert hold.subject == node
    assert "down!" in hold.evidence
    assert {"ring_ready", "no_transfers", "expected_nodes_present"} <= {*hold.also}
    assert all(follows in hold.evidence for follows in hold.also)
    (shown,) = plan_object(plan)["holds"]
    assert shown["also"] == [*hold.also]


def _moving(of: Callable[[], RiakWorld], to: str = ONE) -> RiakWorld:
    world = of()
    world.moves.append(SimMove(partition=0, to=NodeName(to), since=world.agenda.now))
    return world


def _away() -> RiakWorld:
    return down(ringed(), THREE)


def _handing_off() -> RiakWorld:
    world = ringed()
    for number, owner in enumerate(world.ring.owners):
        if owner != ONE:
            world.fall_back(number, ONE)
    return world


def _others_hold(plan: Plan) -> None:
    assert {"ring_ready", "no_transfers"} <= {hold.predicate for hold in plan.holds}
    assert not any(hold.also for hold in plan.holds)


def _waves_of_the_sound(plan: Plan) -> None:
    """With one command for all nodes of a machine the plan showed one node, which did not come back."""
    waves = [{*wave.nodes} for wave in plan.waves]
    assert all({*wave.nodes} in waves for wave in plan_of(ringed(), riak_policy()).waves)


def _hastening(plan: Plan) -> None:
    hastening = ["raise_limits", "force_handoff"]
    for wave, after in ((1, []), (5, ["restore_settings"])):
        steps = [step.action for step in plan.steps if step.wave == wave]
        assert steps == ["stop", "start", *hastening, *after]
    five = (ONE, TWO, THREE, FOUR, FIVE)
    assert plan.settings_changed == {timer_key(name): (str(USUAL_TIMER), "1000") for name in five}
    by_hand = [f"transfer_limit.{node}" for node in (TWO, THREE)]  # which go with their lives
    sent = Scene(name="hastened", of=rolling, wanted=_HASTENS, differs=by_hand).play().sent()
    once = [name for name, _ in groupby(action_name(action) for action in sent)]
    assert [step.action for step in plan.steps] == once, "but for a force that is sent again"


_HASTENS: Final = riak_policy(hasten_handoff=True, transfer_limit=None)
_OFF: Final = (DisabledPredicate(name="all_members_up"),)
_BY_LOCATION: Final = by_sets(zone_attribute="location")
# fmt: off
RINGS: Final = (
    Planned(name="riak: a healthy ring has no hold", of=ringed, wanted=riak_policy()),
    *(
        Planned(name=f"riak: a node that is down is one hold, {node}",
            of=partial(lambda node: down(ringed(), node), node), wanted=riak_policy(expect_nodes=5),
            holds=["all_members_up"], shows=partial(_one_hold, node),
            says=["✗ all_members_up (", "HELD by 1 of 17 checks. ", "not met for the same reason: "])
        for node in (ONE, THREE, FIVE)
    ),
    Planned(name="riak: a machine out of reach with its node is one hold too",
        of=_away, wanted=riak_policy(), read={"out_of_reach": [THREE]}, holds=["all_members_up"]),
    Planned(name="riak: what a down node does not explain is another hold",
        of=partial(_moving, _away, TWO), wanted=riak_policy(), read={"out_of_reach": [FIVE]},
        holds=["all_members_up", "no_pending_ownership_change", "selected_hosts_ready"]),
    Planned(name="riak: handoff is a hold", of=_handing_off, wanted=riak_policy(), holds=["no_transfers"]),
    *(
        Planned(name=f"riak: {len(untold)} nodes without a process id are one hold",
            of=ringed, wanted=riak_policy(), read={"untold": untold}, holds=["lives_are_told"], waves=5,
            shows=_waves_of_the_sound)
        for untold in (names(5), (ONE, TWO))
    ),
    Planned(name="riak: hastening is planned as it is done", of=rolling, wanted=_HASTENS, shows=_hastening,
        says=[
            "force_handoff is sent again every 2 s until handoff is done",
            "vnode_management_timer.",
        ]),
    Planned(name="riak: of a version that cannot be hastened", of=old, wanted=HASTENED, waves=5,
        silent=["force_handoff"]),
    Planned(name="riak: nothing is forced while partitions change their owner",
        of=partial(_moving, rolling), wanted=HASTENED, waves=5, silent=["force_handoff"],
        holds=["no_pending_ownership_change"]),
    Planned(name="riak sets: why there cannot be fewer waves", of=unlocated, wanted=by_sets(), waves=4,
        bound=4, reason=BY_DEFAULT, silent=["needs as few"],
        shows=lambda plan: plan.waves[-1].why.endswith("together, with the claimant, so they go last")),
    Planned(name="riak sets: six nodes", of=partial(unlocated, 6), wanted=by_sets(max_unavailable=6),
        waves=4, bound=4,
        shows=lambda plan: plan.lower_bound_reason.endswith("no two of them can be down together")),
    Planned(name="riak sets: sixteen nodes", of=partial(unlocated, 16), wanted=by_sets(), waves=4),
    Planned(name="riak sets: no bound by node", of=unlocated, wanted=riak_policy(),
        shows=lambda plan: plan.lower_bound_waves is None),
    Planned(name="riak sets: node needs as few", of=partial(unlocated, 5), wanted=by_sets(),
        says=["; `--strategy node` needs as few)"]),
    Planned(name="riak sets: zone needs as few", of=partial(located, *APART), wanted=_BY_LOCATION, waves=4,
        says=["; `--strategy zone` needs as few)"]),
    Planned(name="riak zones: as few where locations are apart",
        of=partial(located, *APART), wanted=by_location(), waves=4),
    Planned(name="riak sets: several n_vals bound a wave: with n_val 2 in use no single node may be down",
        of=lambda: RiakWorld(unlocated().ring, n_vals=frozenset({2, 3})), wanted=by_sets(),
        holds=["preference_lists_keep_quorum"]),
)
# fmt: on


def test_plans_say_what_they_are_to_say(subtests: pytest.Subtests) -> None:
    for row in (*PLANS, *SETS, *RINGS):
        with subtests.test(plan=row.name):
            row.check()


def test_with_the_first_predicate_off_the_others_hold_alone() -> None:
    _others_hold(plan_of(_away(), riak_policy(disabled_predicates=_OFF)))


def test_a_plan_of_riak_has_no_words_of_another_kind() -> None:
    plans = [plan_of(row.of(), row.wanted, **row.read) for row in RINGS]
    assert [
        line for plan in plans for line in plan_text(plan, steps=True).splitlines() if _OTHERS.search(line)
    ] == []


def test_an_undisturbed_run_does_what_was_planned(subtests: pytest.Subtests) -> None:
    for name, of, wanted, ends in (
        ("node by node", cluster, policy(), None),
        ("zones", zoned, by_zone(), None),
        ("both copies in one zone", paired, by_zone(), None),
        ("one large zone", lopsided, by_zone(), None),
        ("a budget", partial(zoned, 9), by_zone(max_unavailable=2), None),
        ("sets", neighbours, in_sets(), None),
        ("a canary of sets is one node", neighbours, in_sets(pause_after=1), PAUSED),
        ("a canary of sets of a ring is one node", unlocated, by_sets(pause_after=1), PAUSED),
        *((f"held for good: {why}", neighbours, in_sets(**changes), HELD) for why, changes in _LASTING),
        ("riak", ringed, riak_policy(), None),
        ("riak sets", unlocated, by_sets(), None),
    ):
        with subtests.test(name=name):
            plan = plan_of(of(), wanted)
            planned = tuple(wave.nodes for wave in plan.waves)
            more = {"says": COULD_NOT_FINISH} if ends is HELD else {}
            scene = Scene(name=name, of=of, wanted=wanted, planned=() if ends else planned, **more)
            played = replace(scene, ends=ends or scene.ends).play()
            done = [event.wave for event in played.found(WaveStarted)]
            told = [(w.number, w.zone, w.nodes, w.why) for w in plan.waves]
            assert ends is not PAUSED or [len(wave) for wave in played.waves] == [1]
            assert [(w.number, w.zone, w.nodes, w.why) for w in done] == (told if ends is not HELD else [])


# Time ---------------------------------------------------------------------------------------------------


def test_what_is_to_save_time_does(subtests: pytest.Subtests) -> None:
    across = partial(prepared, unlocated, across_zones=True)
    for name, share, slowly, quickly in (
        ("overlap", 0.8, (slow, overlapped(overlap_recovery=False)), (slow, overlapped())),
        ("fewer waves", 0.6, (across, riak_policy()), (across, by_sets())),
        (
            "hastened",
            1.0,
            (unlocated, by_sets()),
            (partial(prepared, unlocated, rolling=True), by_sets(hasten_handoff=True)),
        ),
    ):
        with subtests.test(name=name):
            took = []
            for of, wanted in (slowly, quickly):
                played = Scene(name=name, of=of, wanted=wanted, lives={}).play()
                took.append(played.world.agenda.now - played.began)
            assert took[1] < share * took[0]


# Limits -------------------------------------------------------------------------------------------------

BANDWIDTH: Final = "indices.recovery.max_bytes_per_sec"
ALLOCATION, REBALANCE = "cluster.routing.allocation.enable", "cluster.routing.rebalance.enable"
RECOVERIES: Final = "cluster.routing.allocation.node_concurrent_recoveries"


def test_a_plan_says_by_how_much_limits_are_raised(subtests: pytest.Subtests) -> None:
    faster = "so that copies come back faster"
    two_levels = "persistent not set → 100mb; transient 25mb → 100mb"
    for layer, key, value, said in [
        ("files", BANDWIDTH, "40mb", f"40mb (default) → 100mb, 2.5 times, {faster}"),
        ("files", BANDWIDTH, "41943040b", f"40mb (default) → 100mb, 2.5 times, {faster}"),
        ("files", BANDWIDTH, "80mb", f"80mb (from the nodes' configuration) → 100mb, 1.25 times, {faster}"),
        ("persistent", BANDWIDTH, "50mb", f"50mb → 100mb, 2 times, {faster}"),
        ("transient", BANDWIDTH, "25mb", f"25mb (transient) → 100mb ({two_levels}), 4 times, {faster}"),
        ("files", RECOVERIES, "2", f"2 (default) → 15, 7.5 times, {faster}"),
        ("persistent", BANDWIDTH, "200mb", None),
        ("transient", BANDWIDTH, "0b", None),
        ("files", BANDWIDTH, "1gb", None),
        ("persistent", RECOVERIES, "20", None),
    ]:
        with subtests.test(layer=layer, value=value):
            world = cluster(3)
            getattr(world, layer)[key] = value
            plan = plan_of(world, policy())
            assert (key in plan.settings_changed) is (said is not None)
            assert (f"  {key}: {said}\n" in plan_text(plan, steps=True)) is (said is not None), plan_text(
                plan, steps=True
            )
            assert (key in plan.settings_today) is (said is not None)


def test_a_plan_has_every_level_that_it_changes(subtests: pytest.Subtests) -> None:
    for key, before, ours in [
        (ALLOCATION, {"transient": "all"}, "primaries"),
        (ALLOCATION, {"transient": "all", "persistent": "all"}, "primaries"),
        (REBALANCE, {"transient": "all"}, "none"),
        (BANDWIDTH, {"transient": "25mb", "persistent": "50mb"}, "100mb"),
        (ALLOCATION, {"persistent": "all"}, "primaries"),
    ]:
        with subtests.test(key=key, before=before):
            world = cluster(3)
            for layer, value in before.items():
                getattr(world, layer)[key] = value
            plan = plan_of(world, policy())
            found = {level: values[key] for level, values in plan.settings_by_level.items() if key in values}
            assert found == {level: (before.get(level), ours) for level in ("persistent", *before)}
            (line,) = [line for line in plan_text(plan, steps=True).splitlines() if key in line]
            both = "; transient" in line
            assert both == (len(found) > 1), line
            said = orjson.loads(orjson.dumps(plan_object(plan)))["settings_by_level"]
            assert {level: said[level][key]["from"] for level in found} == {
                level: before.get(level) for level in found
            }


def test_a_higher_value_behind_a_transient_one_is_kept(subtests: pytest.Subtests) -> None:
    for key, low, high, ours in [
        (BANDWIDTH, "60mb", "200mb", "100mb"),
        (BANDWIDTH, "60mb", "-1", "100mb"),
        (RECOVERIES, "3", "30", "15"),
    ]:
        with subtests.test(key=key, high=high):
            settings = SettingsView(persistent={key: high}, transient={key: low}, files={})
            changes = [one for one in limit_changes(settings, policy()) if one.key == key]
            assert [(one.level, one.found, one.wanted) for one in changes] == [(Level.TRANSIENT, low, ours)]


def test_the_default_bandwidth_is_that_of_the_version() -> None:
    settings = SettingsView(persistent={}, transient={}, files={BANDWIDTH: "20971520b"})
    begun = replace(NOT_BEGUN, distribution="elasticsearch")
    for version, source in [("1.5.2", "default"), ("1.6.0", "file")]:
        today = value_today(settings, BANDWIDTH, "100mb", replace(begun, version=version))
        assert (today.value, today.source, today.times) == ("20mb", source, 5.0)


def test_of_sets_that_all_are_held_the_first_one_is_named() -> None:
    world = zoned(6)
    state = Simulation(world).begin(in_sets(zone_attribute="zone"))
    asked = list[Wave]()

    def no(wave: Wave) -> tuple[Hold, ...]:
        asked.append(wave)
        return (Hold(predicate="cluster_not_red", subject="index logs", evidence="red"),)

    wave = next_wave(state, views.cluster(world), no, Elasticsearch.words)
    assert wave is not None
    assert (wave.nodes, wave.why) == (asked[0].nodes[:1], "held even alone")
    assert len({each.zone for each in asked}) == 3, "every zone was tried"


def test_a_plan_in_full_has_every_wait_with_its_limit() -> None:
    """Between the steps; JSON has the steps alone."""
    plan = plan_of(cluster(2), policy(gates=(QUEUE,), deadlines=Deadlines(gate=7200.0)))
    lines = [line.strip() for line in plan_text(plan, steps=True).splitlines()]
    begun = lines.index("wave 2: es1")
    assert [re.sub(r"^\d+ +(\S+ +\S+).*", r"\1", line) for line in lines[begun + 1 : begun + 10]] == [
        "wait for all checks to pass, at most 1h 0m (deadlines.hold)",
        f"wait for gates to open: {QUEUE.name}, at most 2h 0m (deadlines.gate)",
        "cluster  set_allocation",
        "cluster  flush",
        "es1      stop",
        "es1      start",
        "wait for es1 to join the cluster, at most 10m 0s (deadlines.rejoin)",
        "cluster  restore_allocation",
        "wait for the copies of es1 to recover, at most 8h 0m (deadlines.recover)",
    ]
    assert [step["order"] for step in plan_object(plan)["steps"]] == [*range(1, len(plan.steps) + 1)]  # type: ignore[attr-defined]  # a list
