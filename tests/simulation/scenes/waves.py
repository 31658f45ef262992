"""Waves of several nodes, by zone and by machine: smaller where they must be, each node at its pace."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

import pytest

from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.model.action import Moment, RunHook, StartNode
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import (
    ActionSent,
    BaselineRecorded,
    Hold,
    Rescued,
    SettingRestored,
    StandingDown,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Request
from orchestrator.model.policy import (
    Awareness,
    Deadlines,
    DisabledPredicate,
    Hook,
    Hooks,
    Selection,
    Strategy,
    Together,
    ZeroReplicas,
)
from orchestrator.simulation import mishaps
from orchestrator.simulation.world import World
from tests.simulation.play import policy
from tests.simulation.scene import (
    ES1,
    ES2,
    ES3,
    ES4,
    ES5,
    ES6,
    FAILED,
    HELD,
    INTERRUPTED,
    PAUSED,
    Played,
    Scene,
    asked,
    at,
    elsewhere,
    first,
    late,
    lost,
    refused,
    resume,
    set_node,
    unheard,
)
from tests.simulation.sharing import always, rebooting, sharing
from tests.simulation.zones import ZONED, by_zone, lopsided, paired, zoned

DRAINS: Final = Hooks(
    before_stop=(Hook(run="drain {node}"), Hook(run="depool {node}")),
    while_stopped=(Hook(run="tune {node}"),),
    after_recovery=(Hook(run="pool {node}"),),
)
ZONES: Final = [(ES2, ES5), (ES3, ES6), (ES4, ES1)]
ALONE: Final = [(ES2,), (ES5,), *ZONES[1:]]
"""The waves where those of zone b go one after the other."""


TWELVE: Final = [("es11", "es2", "es5", "es8"), ("es12", "es3", "es6", "es9"), ("es10", "es4", "es7", "es1")]


def _aware() -> World:
    """Three zones of four, and copies of a shard in different zones."""
    world = zoned(12, most=4)
    world.set(Level.PERSISTENT, AWARENESS, "zone")
    return world


def _bare(*nodes: int) -> dict[str, dict[str, object]]:
    """An index without replicas on each of these nodes."""
    return {f"bare-{number}": {"replicas": 0, "places": [f"es{on}"]} for number, on in enumerate(nodes)}


def _sent(played: Played, action: type[StartNode | RunHook]) -> list[tuple[float, StartNode | RunHook]]:
    """When these were sent, in the order of the journal."""
    sent = [(r.at, r.event) for r in played.simulation.journal.records if isinstance(r.event, ActionSent)]
    return [(at, event.action) for at, event in sent if isinstance(event.action, action)]


def _starts(played: Played, node: str) -> list[float]:
    return [at for at, start in _sent(played, StartNode) if start.node == node]


# By zone ----------------------------------------------------------------------------------------------


def _without_labels() -> World:
    world = zoned()
    world.nodes[ES5].zone = world.nodes[ES6].zone = None
    return world


def _cramped() -> World:
    """A new index's second copy goes to es5, which is in the zone of es2 and has the fewest."""
    world = zoned()
    for shard in [s for i in world.indices.values() for s in i.shards]:
        for copy in shard.copies:
            if copy.node == ES5:
                copy.node = next(n for n in (ES4, ES6) if n not in {c.node for c in shard.copies})
                shard.on_disk = {**shard.on_disk, copy.node: shard.on_disk[ES5]}
                shard.leave(ES5)
    return world


def _passed_over_in_service(played: Played) -> None:
    """Hooks of a node that does not go with its wave are undone while it waits."""
    for name in played.world.nodes:
        *before, a, b, c, d = played.hooks(name)
        assert [a, b, c, d] == ["before_stop", "before_stop", "while_stopped", "after_recovery"], name
        assert before in ([], ["before_stop", "after_recovery"]), name
        assert not before or name in (ES2, ES5)


def _most_hooks_at_once(played: Played) -> int:
    return max(Counter(at for at, _ in _sent(played, RunHook)).values())


def _at_its_own_pace(played: Played) -> None:
    """es5 is started at once, and allocation is enabled though es2 hangs."""
    assert _starts(played, ES5)[0] - played.began < 10.0
    (gave_up,) = played.times(StandingDown)
    assert 120.0 < gave_up - played.began < 130.0
    assert min(at for at in played.times(SettingRestored)) - gave_up < 5.0
    assert [node.phase for node in played.state.wave_nodes] == [NodePhase.FAILED, NodePhase.REJOINED]


def _restored_soon(played: Played) -> None:
    (gave_up,) = played.times(StandingDown)
    assert played.times(SettingRestored)[0] - gave_up < 5.0


def _restored_after_it_joined(played: Played) -> None:
    assert played.times(SettingRestored)[0] > played.happened("es2 joined")


def _rescued_at_once(played: Played) -> None:
    (rescued,) = played.times(Rescued)
    started = [min(at for at in _starts(played, name) if at >= rescued) for name in (ES2, ES5)]
    assert max(started) - rescued < 1.0
    ran = [
        (at, hook.node)
        for at, hook in _sent(played, RunHook)
        if isinstance(hook, RunHook) and hook.moment is Moment.WHILE_STOPPED
    ]
    assert sorted(node for _, node in ran) == sorted(played.world.nodes), "each once: it is owed again"
    assert min(at for at, node in ran if node in (ES2, ES5)) > max(started)


def _failed(*names: str) -> object:
    def check(played: Played) -> None:
        state = played.state
        assert {n.name for n in state.nodes.values() if n.phase is NodePhase.FAILED} == {*names}
        assert all(name in state.message for name in names), state.message

    return check


_ES5_FAILS: Final = {
    "of": zoned,
    "wanted": by_zone(),
    "befalls": [first(mishaps.StartsFail(node=ES5, times=99))],
    "ends": FAILED,
    "away": [ES5],
}
# fmt: off
_BY_ZONE: Final = (
    *(
        Scene(name=f"zone: waves, {name}",
            of=of, wanted=wanted, waves=waves, why=why, lives={}, marks=_WIDEST)
        for _WIDEST in [[pytest.mark.proves("widest-wave")]]
        for name, of, wanted, waves, why in (
            ("whole zones", zoned, by_zone(), ZONES, "all of zone b"),
            (
                "zones of three",
                partial(zoned, 9, most=3),
                by_zone(min_capacity=0.6),
                [("es2", "es5", "es8"), ("es3", "es6", "es9"), ("es4", "es7", "es1")],
                "all of zone b",
            ),
            (
                "budget_not_exceeded",
                partial(zoned, 9, most=2),
                by_zone(max_unavailable=2),
                [("es2", "es5"), ("es8",), ("es3", "es6"), ("es9",), ("es4", "es7"), ("es1",)],
                "zone b without es8 (budget_not_exceeded: wave: 3 nodes would be away (es2, es5, es8), 2",
            ),
            (
                "every_shard_keeps_started_copies",
                paired,
                by_zone(),
                ALONE,
                "zone b without es5 (every_shard_keeps_started_copies: index pair: [pair][0]: 0 started",
            ),
            (
                "capacity_remains",
                lopsided,
                by_zone(),
                [("es3", "es4"), ("es2",), ("es5",), ("es1",)],
                "zone b without es2 (capacity_remains: tier data: 2 of 5 nodes would stay up, 50% wanted)",
            ),
            (
                "a node without a zone",
                _without_labels,
                by_zone(),
                [("es5",), ("es6",), ("es2",), ("es3",), ("es4", "es1")],
                "goes alone: it has no node attribute zone, so it may be in any zone",
            ),
        )
    ),
    *(
        Scene(name=f"{strategy.value}: indices that get a replica first split no zone, {how}",
            of=_aware, indices=_bare(*alone),
            wanted=by_zone(strategy=strategy, awareness=Awareness(attributes=("zone",)), min_capacity=0.6,
                zero_replicas=ZeroReplicas.ADD_REPLICA, **more),
            waves=TWELVE, lives={},
            shows=lambda played: not any("add_replica" in why for why in played.whys))
        for how, strategy, alone, more in (
            ("one on each node", Strategy.ZONE, range(1, 13), {}),
            ("three on one node", Strategy.ZONE, (5, 5, 5), {}),
            ("on each node, beside recoveries", Strategy.ZONE, range(1, 13), {"overlap_recovery": True}),
            ("on each node", Strategy.SHARD_SAFE, range(1, 13), {}),
        )
    ),
    Scene(name="zone: no wave is wider than it was planned",
        of=zoned, wanted=by_zone(), planned=tuple(ALONE), waves=ALONE,
        why="the remaining nodes of zone b; no larger than planned", lives={},
        marks=[pytest.mark.proves("widest-wave")]),
    Scene(name="zone: pause_after counts nodes",
        of=partial(zoned, 9, most=3), wanted=by_zone(pause_after=2, min_capacity=0.6), ends=PAUSED,
        then=[resume()], waves=[("es2", "es5"), ("es8",), ("es3", "es6", "es9"), ("es4", "es7", "es1")],
        why="2 nodes of zone b, then a pause (--pause-after)", lives={}),
    Scene(name="zone: a wave that is refused at the last reading is chosen smaller",
        of=_cramped, wanted=by_zone(),
        befalls=[at("set_allocation", mishaps.IndexMade(name="new", on=ES2), after=0.05)],
        waves=[ZONES[0], *ALONE], lives={}, sent={"stop": 6}),
    Scene(name="zone: a wave becomes smaller while its before_stop hooks run",
        of=_cramped, wanted=by_zone(hooks=DRAINS),
        befalls=[at("hook_before_stop", mishaps.IndexMade(name="new", on=ES2))],
        waves=[ZONES[0], *ALONE], lives={}, shows=_passed_over_in_service),
    *(
        Scene(
            name=f"zone: hooks of a wave run {how}",
            of=zoned,
            wanted=by_zone(hooks=hooks),
            shows=lambda played, most=most: _most_hooks_at_once(played) == most,
        )
        for how, hooks, most in (
            ("at once on hosts", DRAINS, 2),
            ("in turn here", Hooks(before_stop=(Hook(run="depool {node}", local=True),)), 1),
        )
    ),
    Scene(name="zone: StopHangs delays the others to deadlines.stop and no longer",
        of=zoned, wanted=by_zone(deadlines=Deadlines(stop=120.0, start=300.0)),
        befalls=[first(mishaps.StopHangs(node=ES2, repaired_after=5_000.0))], ends=FAILED, away=None,
        then=[_at_its_own_pace, 5_000.0, resume(retry_failed=True)], lives={},
        marks=[pytest.mark.proves("slow-host")]),
    Scene(name="zone: a start that hangs delays the others to deadlines.start and no longer",
        of=zoned, nodes={ES2: {"start_seconds": 4_000.0}},
        wanted=by_zone(deadlines=Deadlines(start=200.0)), ends=FAILED, away=[ES2],
        then=[_restored_soon, set_node(ES2, start_seconds=8.0), 5_000.0, resume(retry_failed=True)],
        lives={}),
    Scene(name="zone: interrupted, the copies of a node that is slow to start are not rebuilt elsewhere",
        of=zoned, nodes={ES2: {"start_seconds": 90.0}}, wanted=by_zone(),
        befalls=[asked(Request.INTERRUPT, "stop", after=30.0)], ends=INTERRUPTED,
        then=[_restored_after_it_joined, resume()], lives={}),
    Scene(
        **_ES5_FAILS,
        name="zone: a resume waits for no FAILED node of its wave",
        then=[7200.0, resume(ends=FAILED, says="--retry-failed", within=60.0, away=[ES5])],
        shows=lambda played: played.state.nodes[ES2].phase is NodePhase.RECOVERED,
    ),
    Scene(
        **_ES5_FAILS,
        name="zone: --skip goes on without a FAILED node of its wave",
        then=[7200.0, resume(skip=[ES5], says="skipped: es5", within=600.0, away=[ES5])],
        lives={ES5: 1},
    ),
    *(
        Scene(
            name=f"zone: {' and '.join(failing)} FAILED, resumed {'past it first' if twice else 'at once'}",
            of=zoned,
            wanted=by_zone(),
            befalls=[first(mishaps.StartsFail(node=name, times=9)) for name in failing],
            ends=FAILED,
            away=failing,
            then=[
                _failed(*failing),
                *[resume(ends=FAILED, says="--retry-failed", within=60.0, away=failing)] * twice,
                *(set_node(name, starts_that_fail=0) for name in failing),
                resume(retry_failed=True),
            ],
            waves=ZONES,
            lives={},
        )
        for failing, twice in (((ES2,), 0), ((ES5,), 1), ((ES2, ES5), 1))
    ),
    *(
        Scene(name=f"zone: a stop of {node} that is REFUSED is sent once more",
            of=zoned, wanted=by_zone(), befalls=[refused("stop", target=node)], lives={},
            sent={"stop": 7, f"stop {node}": 2})
        for node in (ES2, ES5)
    ),
    Scene(name="second_failure: a node of another zone leaves, and both of the wave come up",
        of=zoned, nodes={ES2: {"start_seconds": 60.0}}, wanted=by_zone(),
        befalls=[at("stop", mishaps.NodeDies(node=ES3, back_after=300.0), after=20.0)], ends=FAILED,
        says="es3", away=[ES3], events={"second_failure": 1}, then=[300.0]),
    Scene(name="zone: a node that dies again while another hangs has one more start",
        of=zoned, wanted=by_zone(deadlines=Deadlines(stop=300.0, start=100.0)),
        befalls=[
            first(mishaps.StopHangs(node=ES2, repaired_after=2_000.0)),
            at("start", mishaps.NodeDies(node=ES5), ES5, after=40.0)
        ],
        ends=FAILED, away=None, shows=lambda played: played.world.nodes[ES5].joined),
    Scene(name="zone: a node that dies beside a starting one is started again",
        of=zoned, nodes={ES2: {"join_seconds": 90.0}}, wanted=by_zone(),
        befalls=[at("start", mishaps.NodeDies(node=ES5), after=20.0)], lives={ES5: 3},
        sent={"start es5": 2}),
    Scene(name="second_failure: a node of the wave that leaves again is started again",
        of=zoned, nodes={ES2: {"join_seconds": 90.0}}, wanted=by_zone(),
        befalls=[at("restore_allocation", mishaps.NodeDies(node=ES5), after=0.3)], ends=FAILED,
        says="es5 left the cluster again after it had rejoined", sent={"start es5": 2}),
    Scene(name="rescued: a whole wave is started at once, and its hooks run in the next",
        of=zoned, wanted=by_zone(hooks=DRAINS),
        befalls=[at("stop", mishaps.IndexMade(name="new", on=ES2), ES5)], lives={ES2: 3, ES5: 3},
        shows=_rescued_at_once),
    Scene(name="reboot: a zone", of=zoned, wanted=by_zone(reboot=True), boots={}, lives={}),
    Scene(
        name="master_step_down: before its zone goes, as the last",
        of=zoned,
        wanted=by_zone(master_step_down=True),
        shows=lambda played: (
            {*played.waves[-1]} == {ES4, ES1}
            and not [what for _, what in played.world.story if "was the master" in what]
        ),
    ),
    Scene(name="zero_replica_indices: a zone is held as one node is",
        of=zoned, indices={"bare": {"replicas": 0, "places": [ES5]}}, wanted=by_zone(), ends=HELD,
        says="index bare", sent={"stop": 0}),
    Scene(name="record: another machine starts the whole wave",
        of=zoned, wanted=by_zone(), killed="after stop of es5",
        then=[
            60.0, lambda played: [node.node for node in played.simulation.record.in_hand] == [ES2, ES5],
            elsewhere()
        ]),
)
# fmt: on

# By machine -------------------------------------------------------------------------------------------

PAIRS: Final = ZONES
"""The waves machine by machine: that of the elected master last, and it last in it."""
LATER: Final = [PAIRS[1], PAIRS[0], PAIRS[2]]
"""The same, with the first machine after its like: it came back before its work was done."""
SINGLES: Final = [(ES2,), (ES3,), (ES4,), (ES5,), (ES6,), (ES1,)]
THREE: Final = Selection(only=("es2", "es3", "es6"))
MACHINES_BY_ZONE: Final = always(**ZONED)
ONE_REBOOT: Final = [pytest.mark.proves("one-reboot")]
SLOW_STOP: Final = {ES5: {"stop_seconds": 40.0}}


def _twelve() -> World:
    """Two machines of two nodes in each zone."""
    world = sharing(12)
    world.allowed_down, world.one_machine = 4, False
    return world


def _reboots(played: Played) -> list[tuple[str, ...]]:
    return [action.nodes for action in played.simulation.hosts.sent if hasattr(action, "nodes")]


def _says(predicate: str, text: str, played: Played) -> bool:
    return played.holds[predicate].endswith(text)


def _both_owe_it(played: Played) -> bool:
    rejoined = {name for name, node in played.state.nodes.items() if node.phase is NodePhase.REJOINED}
    return rejoined == {ES2, ES5}


def _written_down(played: Played) -> bool:
    (began,) = played.found(BaselineRecorded)
    machines = {name: f"{node.machine}-machine" for name, node in played.world.nodes.items()}
    return began.machines == machines and {*machines} == {*began.boots}


def _pair(one: str, other: str) -> dict[str, dict[str, object]]:
    return {"pair": {"places": [one, other]}}


def _held(name: str, predicate: str, text: str, **more: object) -> Scene:
    """Held before anything is sent to a host, by a predicate whose evidence ends so."""
    return Scene(
        **{
            "name": name,
            "of": sharing,
            "ends": HELD,
            "sent": {"stop": 0, "set_allocation": 0},
            "shows": partial(_says, predicate, text),
            **more,
        }
    )


TOGETHER: Final = "es2, es5 go together, being on one machine: "
COPIES: Final = "every_shard_keeps_started_copies"
# fmt: off
_BY_MACHINE: Final = (
    *(
        Scene(name=f"together: waves, {name}", of=sharing, wanted=wanted, waves=waves, lives={})
        for name, wanted, waves in (
            ("always", always(), PAIRS),
            ("always, max_unavailable 2", always(max_unavailable=2), PAIRS),
            ("reboot", rebooting(), PAIRS),
            ("always, reboot", always(reboot=True), PAIRS),
            ("reboot by zone", always(**{**ZONED, "together": Together.REBOOT}), PAIRS),
            ("a restart", policy(), SINGLES),
            ("never", policy(together=Together.NEVER), SINGLES),
        )
    ),
    Scene(name="together: of a machine only what is selected goes",
        of=sharing, wanted=always(selection=THREE), waves=[(ES2,), (ES3, ES6)]),
    Scene(name="together: a canary takes a whole machine",
        of=sharing, wanted=always(pause_after=1), ends=PAUSED,
        then=[lambda played: played.waves == PAIRS[:1], resume()], waves=PAIRS),
    *(
        Scene(
            name=f"together: a canary of {after} of a zone is cut between machines",
            of=_twelve,
            wanted=always(**ZONED, pause_after=after),
            ends=PAUSED,
            shows=lambda played, count=count: played.waves[0] == ("es2", "es5", "es11", "es8")[:count],
            why=""
            if count == 4
            else "2 nodes of zone b, then a pause (--pause-after); together, each on one",
        )
        for after, count in ((1, 2), (3, 2), (4, 4))
    ),
    Scene(
        name="together: of a zone whole machines are left for later",
        of=_twelve,
        indices={"pair": {"places": ["es2", "es8"]}},
        wanted=MACHINES_BY_ZONE,
        why=f"zone b without es11, es8 ({COPIES}: index pair: ",
        shows=lambda played: (
            played.waves[:2] == [("es2", "es5"), ("es11", "es8")]
            and played.whys[0].endswith("; together, each on one machine: es2+es5")
        ),
    ),
    Scene(name="budget_not_exceeded: an index that the run itself would repair is no hold",
        of=sharing, indices={"bare": {"replicas": 0, "places": [ES2]}},
        wanted=always(max_unavailable=1, zero_replicas=ZeroReplicas.ADD_REPLICA), ends=HELD,
        says="by budget_not_exceeded (wave): 2 nodes would be away"),
    *(
        _held(f"{COPIES}: a machine that may not stop whole holds with advice, {name}",
            COPIES, f"0 started in-sync copies elsewhere, 1 wanted; {TOGETHER}{advice}",
            indices=_pair(ES2, ES5), wanted=wanted)
        for name, wanted, advice in (
            ("always", always(), "give the index more replicas, or set `hosts.together: never`"),
            ("by zone", MACHINES_BY_ZONE, "give the index more replicas, or set `hosts.together: never`"),
            ("reboot", rebooting(), "give the index more replicas, or restart without `--reboot`"),
        )
    ),
    Scene(name=f"{COPIES}: the machine is not named where one node is refused too",
        of=sharing, indices=_pair(ES2, ES1), wanted=always(min_started_copies=2), ends=HELD,
        shows=lambda played: "together" not in played.holds[COPIES]),
    _held(
        "budget_not_exceeded: a budget smaller than the machine holds",
        "budget_not_exceeded",
        f"wave: 2 nodes would be away (es2, es5), 1 allowed; {TOGETHER}"
        "allow as many with `max_unavailable`, or set `hosts.together: never`",
        wanted=always(max_unavailable=1),
    ),
    _held(
        "budget_not_exceeded: without a budget one machine is away at once",
        "budget_not_exceeded",
        "wave: 3 nodes would be away (es2, es3, es5), one machine allowed",
        befalls=[at("probe_settings", mishaps.NodeDies(node=ES3))],
        away=[ES3],
        wanted=always(
            disabled_predicates=tuple(
                DisabledPredicate(name=name)
                for name in (
                    "expected_nodes_present",
                    "no_worse_than_baseline",
                    COPIES,
                    "capacity_remains",
                    "selected_hosts_ready",
                )
            )
        ),
    ),
    *(
        _held(f"selected_hosts_ready: a reboot that would take another node along holds, {name}",
            "selected_hosts_ready", "host of es2: es5 on the same machine would go down with it",
            wanted=wanted,
            then=[lambda played, ways=ways: {hold.ways for hold in played.found(Hold)} == {(ways,)}])
        for name, wanted, ways in (
            (
                "never",
                rebooting(together=Together.NEVER, max_unavailable=1),
                "`hosts.together: reboot` in the cluster file, so that they go together, or no `--reboot`",
            ),
            (
                "not selected",
                rebooting(selection=THREE),
                "all of them selected, so that they go together, or no `--reboot`",
            ),
        )
    ),
    Scene(name="reboot: one of a machine once all its nodes are down",
        of=sharing, nodes=SLOW_STOP, wanted=rebooting(), boots={}, lives={},
        shows=lambda played: _reboots(played) == PAIRS, marks=ONE_REBOOT),
    *(
        Scene(
            name=f"reboot: in doubt, {one.how.name}, that of a machine is not sent again blindly",
            of=sharing,
            wanted=rebooting(),
            befalls=[one],
            boots={},
            lives={},
            shows=lambda played, times=times: _reboots(played).count(PAIRS[0]) == times,
        )
        for one, times in (
            (lost("reboot", target=ES2), 2),
            (unheard("reboot", target=ES2), 1),
            (late("reboot", 20.0, ES2), 1),
            (refused("reboot", target=ES2), 2),
        )
    ),
    Scene(name="reboot: refused three times, both nodes are started and owe it",
        of=sharing, wanted=rebooting(), befalls=[refused("reboot", times=3)], ends=FAILED,
        says="the host of es2 was asked to reboot 3 times: sudo: a password is required",
        then=[_both_owe_it, resume()], boots={}),
    Scene(name="reboot: StopHangs keeps the machine from it",
        of=sharing, wanted=rebooting(deadlines=Deadlines(stop=120.0)),
        befalls=[first(mishaps.StopHangs(node=ES5, repaired_after=2000.0))], ends=FAILED, away=None,
        then=[
            lambda played: (_reboots(played), played.world.nodes[ES2].joined) == ([], True), 3000.0,
            resume(retry_failed=True)
        ],
        boots={}),
    Scene(
        name="reboot: RisesByItself puts that of the machine off",  # it would die while nobody has stopped it
        of=sharing,
        nodes=SLOW_STOP,
        wanted=rebooting(),
        befalls=[first(mishaps.RisesByItself(node=ES2, after=0.5))],
        waves=[PAIRS[0], *LATER],
        shows=lambda played: _reboots(played) == LATER,
        marks=ONE_REBOOT,
    ),
    Scene(name="reboot: a stop that was never done puts that of the machine off",
        of=sharing, wanted=rebooting(), befalls=[lost("stop", target=ES5)], boots={},
        shows=lambda played: _reboots(played) == [PAIRS[1], (ES5, ES2), PAIRS[2]]),
    Scene(
        name="reboot: rescued, both nodes of the machine are started, and it comes later",
        of=sharing,
        nodes=SLOW_STOP,
        wanted=rebooting(),
        befalls=[at("stop", mishaps.IndexMade(name="raced", on=ES2, replicas=1), ES2)],
        shows=lambda played: played.waves.count(PAIRS[0]) == 2 and sorted(_reboots(played)) == sorted(PAIRS),
    ),
    Scene(name="BaselineRecorded: which machine each node is on",
        of=sharing, wanted=always(), shows=_written_down),
    Scene(name="HostCutOff: a host that fails to respond keeps its machine",
        of=sharing, wanted=always(),
        befalls=[at("start", mishaps.HostCutOff(node=ES3, seconds=400.0), ES5)], waves=PAIRS),
)
# fmt: on

# By role ----------------------------------------------------------------------------------------------

_TIERS: Final = (
    ("m1", "a", {Role.MASTER}),
    ("m2", "b", {Role.MASTER}),
    ("m3", "c", {Role.MASTER}),
    ("hot1", "a", {Role.DATA_HOT, Role.DATA_CONTENT, Role.INGEST}),
    ("hot2", "b", {Role.DATA_HOT, Role.DATA_CONTENT, Role.INGEST}),
    ("content1", "c", {Role.DATA_CONTENT}),
    ("warm1", "a", {Role.DATA_WARM}),
    ("warm2", "c", {Role.DATA_WARM}),
    ("cold1", "b", {Role.DATA_COLD}),
    ("cold2", "e", {Role.DATA_COLD}),
    ("frozen1", "c", {Role.DATA_FROZEN}),
    ("frozen2", "e", {Role.DATA_FROZEN}),
    ("web1", "d", {Role.COORDINATING}),
    ("web2", "a", {Role.COORDINATING}),
    ("ml1", "d", {Role.ML}),
    ("ml2", "b", {Role.ML}),
)
"""m1 is the elected master; zone d has neither data nor a vote, zone e no vote."""


def tiered(*machines: tuple[str, str], one_machine: bool = True) -> World:
    """Tiers, dedicated masters and coordinating-only nodes; these pairs are on one machine each."""
    world = World(allowed_down=4)
    for name, zone, roles in _TIERS:
        world.add_node(name, zone=zone, roles=frozenset(roles))
    for name, places in (
        ("logs", ["hot1", "hot2"]),
        ("users", ["hot2", "content1"]),
        ("posts", ["content1", "hot1"]),
        ("logs-old", ["warm1", "warm2"]),
        ("logs-older", ["cold1", "cold2"]),
        ("logs-oldest", ["frozen1", "frozen2"]),
    ):
        world.add_index(name, places=places)
    world.one_machine = one_machine
    for one, other in machines:
        world.nodes[NodeName(one)].machine = world.nodes[NodeName(other)].machine = one
    return world


def _in_order(line: str) -> list[tuple[str, ...]]:
    """Waves, each of which is words joined by `+`."""
    return [tuple(wave.split("+")) for wave in line.split()]


IN_ORDER: Final = _in_order(
    "frozen1 frozen2 cold1 cold2 warm1 warm2 content1 hot1 hot2 ml1 ml2 web1 web2 m2 m3 m1"
)
# fmt: off
_BY_ROLE: Final = (
    Scene(name="order: by role and tier, and masters last",
        of=tiered, wanted=policy(zone_attribute="zone"), waves=IN_ORDER, lives={}),
    Scene(name="order: zone by zone, each when its last node would go",
        of=partial(tiered, one_machine=False), wanted=by_zone(),
        waves=_in_order(
            "frozen2+cold2 ml1+web1 cold1+hot2+ml2+m2 frozen1+warm2+content1+m3 warm1+hot1+web2+m1"
        ),
        lives={}),
    Scene(
        name="order: a machine goes when its last node would",
        # A coordinating node with a hot one, a master with a warm one, the elected master with a cold one.
        of=partial(tiered, ("web2", "hot2"), ("m3", "warm1"), ("cold1", "m1")),
        wanted=always(),
        waves=_in_order(
            "frozen1 frozen2 cold2 warm2 content1 hot1 ml1 ml2 web1 hot2+web2 m2 warm1+m3 cold1+m1"
        ),
        lives={},
    ),
)
# fmt: on

SCENES: Final = (*_BY_ZONE, *_BY_MACHINE, *_BY_ROLE)
