"""Riak: undisturbed, disturbed, killed while a node starts, and with handoff that is hastened."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Final

from orchestrator.engine.state import RunState
from orchestrator.model.action import ForceHandoff, WriteSettings, action_name
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    FallbacksHome,
    NodeRecovered,
    PhaseEntered,
    SettingChanged,
    SettingRestored,
)
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.policy import Deadlines, DisabledPredicate, Selection
from orchestrator.model.riak import timer_key
from orchestrator.model.work_event import HandoffLeftWaiting, NotHastened
from orchestrator.simulation import machines, mishaps
from orchestrator.simulation.mishaps import How
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_mishaps import MemberJoins, OwnershipMoves, ServiceNeverUp
from orchestrator.simulation.riak_parts import USUAL_TIMER
from orchestrator.simulation.world import World
from tests.fakes.riak_rings import claimed, together
from tests.simulation.ringed import (
    ABOUT_ABSENCE,
    FIVE,
    FOUR,
    ONE,
    RAISED,
    THREE,
    TWO,
    WEEKS,
    by_location,
    by_sets,
    down,
    located,
    riak_policy,
    ringed,
    rolling,
    stuck,
)
from tests.simulation.scene import (
    FAILED,
    HELD,
    HOUR,
    Attempt,
    Played,
    Scene,
    asked,
    at,
    before,
    elsewhere,
    lost,
    refused,
    restore,
    resume,
    set_node,
    trip,
)

IN_ORDER: Final = [(TWO,), (THREE,), (FOUR,), (FIVE,), (ONE,)]
HASTENED: Final = riak_policy(hasten_handoff=True)
QUORUM: Final = "preference_lists_keep_quorum"


def ring(name: str, **more: object) -> Scene:
    return Scene(**{"name": name, "of": ringed, "wanted": riak_policy(), **more})


def without(*predicates: str, **changes: object) -> dict[str, object]:
    """A policy that accepts these predicates."""
    off = tuple(DisabledPredicate(name=name) for name in predicates)
    return {"wanted": riak_policy(disabled_predicates=off, **changes)}


def world_of(played: Played) -> RiakWorld:
    assert isinstance(played.world, RiakWorld)
    return played.world


class Watched(RiakWorld):
    """Looks itself at each end of a process who serves what, and how often."""

    def __init__(self) -> None:
        super().__init__(claimed(5, 64))
        self.most_silent = 0
        self.ended: list[NodeName] = []
        self.configure(TWO, configured=2, limit=4)
        self.configure(THREE, configured=3, limit=16)

    def judge_down(self) -> None:
        super().judge_down()
        self.ended += [node.name for node in self.nodes.values() if node.ended == self.agenda.now]
        silent = self.silent()
        for first_of in range(self.ring.size):
            of_list = [(first_of + step) % self.ring.size in silent for step in range(3)]
            self.most_silent = max(self.most_silent, sum(of_list))


def _one_of_each_list(played: Played) -> None:
    """Of no preference list more than one partition of three was away, and limits are as set by hand."""
    world = played.world
    assert isinstance(world, Watched)
    assert (world.limits[TWO], world.limits[THREE]) == (4, 16), "their files say 2 and 3"
    assert world.ended == [TWO, THREE, FOUR, FIVE, ONE]
    assert (world.most_silent, world.fallbacks) == (1, [])
    assert world.handed > 64, "each node's partitions were taken over, and its own fallbacks came beside"


def _noted_raised_restored(played: Played) -> None:
    """A limit that was above that of the run."""
    sent = [action for action in played.sent(WriteSettings) if isinstance(action, WriteSettings)]
    changes = [(c.found, c.wanted) for action in sent for c in action.changes if THREE in c.key]
    assert changes == [("16", "16")] * 3


def _usual() -> RiakWorld:
    return RiakWorld(claimed(5, 64))


def _down(*, back: bool, written: bool = True) -> RiakWorld:
    """FOUR was stopped half a minute ago, and may be back."""
    world = ringed()
    world.written = written
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(30.0 if back else 60.0)
    if back:
        machines.start(world, world.nodes[FOUR])
        world.agenda.advance(35.0)
    return world


def _idle(inactivity: float, handing: float | None = None) -> RiakWorld:
    world = RiakWorld(claimed(5, 64))
    world.inactivity = inactivity
    world.handing_seconds = handing or world.handing_seconds
    return world


def _half_running() -> RiakWorld:
    world = ringed()
    world.vnodes[TWO].most = 5
    return world


def _no_queue() -> RiakWorld:
    world = ringed()
    world.queues_starts = False
    return world


def _limits_of_its_files(played: Played) -> None:
    world = world_of(played)
    assert world.limits == {**ringed(4, 16).limits, TWO: 2}, "the other one is gone with its life"


def _waited_long(played: Played) -> bool:
    return played.state.waves_finished == 5 and played.world.agenda.now - played.began > 5 * 0.8 * 600.0


def _start_four(played: Played) -> None:
    machines.start(played.world, played.world.nodes[FOUR])
    played.world.agenda.advance(300.0)


def _by_two_limits() -> RiakWorld:
    world = ringed()
    world.configure(TWO, configured=16, limit=4)
    return world


# fmt: off
_RUNS: Final = (
    ring("riak: each node once, every limit restored",
        of=Watched, waves=IN_ORDER, lives={}, shows=_one_of_each_list),
    ring("riak: a limit that was higher before is restored", shows=_noted_raised_restored),
    *(
        ring(
            f"riak: a restarted node gets its partitions by the run's transfer_limit {limit}",
            of=_usual,
            wanted=riak_policy(transfer_limit=limit),
            shows=lambda played, most=most: max(world_of(played).most_at_once.values()) == most,
        )
        for limit, most in ((RAISED, RAISED), (None, 2))
    ),
    ring("second_failure: a second riak node that dies in the wave",
        befalls=[at("start", mishaps.NodeDies(node=FOUR), TWO, after=3.0)], ends=None,
        says=f"a second failure: node {FOUR} left", away=[FOUR],
        then=[lambda played: world_of(played).limits[TWO] == 4, _start_four, resume()]),
    ring("riak: vnodes that never run are not counted as back, though `/ping` answers",
        of=_half_running, wanted=riak_policy(deadlines=Deadlines(rejoin=300.0)), ends=FAILED,
        says=f"{TWO} (5 of its 13 vnodes run): not back in the cluster within 5m 0s",
        events={"good_reading": 0}, lives={ONE: 1, THREE: 1, FOUR: 1, FIVE: 1}),
    ring("riak: a service that no peer sees is not counted as back",
        prepares=lambda played: ServiceNeverUp(node=TWO).on_ring(world_of(played)), ends=None,
        says=(f"{TWO} (riak_kv is not up, asked of a peer", "not back in the cluster within"), away=None,
        shows=lambda played: played.world.nodes[FIVE].life == 1),
    *(
        ring(f"riak: a long wait without an active transfer is no alarm, transfer_limit {limit}",
            of=partial(_idle, 600.0, 20.0), wanted=riak_policy(transfer_limit=limit),
            events={"standing_down": 0}, shows=_waited_long)
        for limit in (RAISED, None)
    ),
    ring("riak: what is never handed off holds the run at deadlines.recover",
        of=partial(_idle, float("inf")), wanted=riak_policy(deadlines=Deadlines(recover=600.0)),
        ends=HELD, says=("not recovered within 10m 0s: transfers by", "waiting to be handed off"),
        lives={ONE: 1, THREE: 1, FOUR: 1, FIVE: 1}),
    *(
        ring(f"all_members_up: a node that is down at the start holds the run, without {off or 'none'}",
            of=partial(_down, back=False, written=False), ends=HELD, says=(says, FOUR), away=[FOUR],
            sent={"stop": 0, "raise_limits": 0}, **without(*off))
        for off, says in (((), "by all_members_up (riak4"), (("all_members_up", "ring_ready"), QUORUM))
    ),
    *(
        ring(f"no_transfers: fallbacks that wait at the start, without {off or 'none'}",
            of=partial(_down, back=True), violates=violates, **without(*off))
        for off, violates in (((), ""), (("no_transfers",), "wait to be handed off"))
    ),
    *(
        ring(f"riak: {verb} that goes wrong once, {how.name}, leaves the cluster as found",
            of=partial(ringed, 4, 16), befalls=[trip(verb, how)], lives={})
        for how, verb in product(How, ["stop", "start", "raise_limits", "restore_settings"])
    ),
    ring(
        "riak: a node that does not come up takes its limit with it",
        of=partial(ringed, 4, 16),
        nodes={TWO: {"starts_that_fail": 9}},
        ends=None,
        away=[TWO],
        then=[
            lambda played: (
                [e.key for e in played.found(SettingRestored) if "its node is down" in e.note]
                == [f"transfer_limit.{TWO}"]
            ),
            set_node(TWO, starts_that_fail=0),
            resume(retry_failed=True, differs=[f"transfer_limit.{TWO}"]),
        ],
        shows=_limits_of_its_files,
    ),
    ring(
        "riak: the limit of a stopping node is restored once it is up",  # its files say 2
        of=_no_queue,
        befalls=[at("stop", mishaps.NodeDies(node=FOUR, back_after=30.0), TWO, after=0.05)],
        ends=FAILED,
        says="a second failure",
        away=None,
        then=[60.0],
        shows=lambda played: (played.world.nodes[TWO].life, world_of(played).limits[TWO]) == (2, 4),
    ),
    ring("record: another machine restores limits of riak nodes that were restarted",
        of=_by_two_limits, killed=f"after stop of {THREE}",
        then=[lambda played: world_of(played).limits[TWO] == 16, elsewhere()]),
)
# fmt: on

# What waits for handoff for good -----------------------------------------------------------------------

STILL: Final = 900.0
"""So long what waits may not change before it holds a run no more."""


def _waits(played: Played) -> list[tuple[float, int]]:
    """At each stop whose reading differs from that of the stop before: how long what waits was unchanged."""
    return [(event.seconds, len(event.partitions)) for event in played.found(HandoffLeftWaiting)]


def _still_there(played: Played) -> bool:
    """All of it waits to the end, it was said once, and no node waited longer than its restart takes."""
    ((seconds, count),) = _waits(played)
    slowest = max(event.seconds for event in played.found(NodeRecovered))
    return (count, len(world_of(played).fallbacks)) == (6, 6) and seconds >= STILL and slowest < STILL


def _cured(played: Played) -> bool:
    """What waited for its owner was handed off once that was back: each stop found one less."""
    assert [count for _, count in _waits(played)] == [3, 2, 1, 0]
    return world_of(played).fallbacks == []


def _cured_by_owners() -> RiakWorld:
    """No key is written, so a node that is back has nothing else to wait for."""
    world = stuck(ONE, cured_by=frozenset({TWO, THREE, FOUR, FIVE}))
    world.written = False
    for vnodes in world.vnodes.values():
        vnodes.own_fallbacks = 0
    return world


def _none_allowed() -> RiakWorld:
    """Handoff was turned off on one node by hand, and was not turned on again."""
    world = stuck(ONE)
    world.configure(ONE, configured=2, limit=0)
    return world


def _joins() -> RiakWorld:
    """A node was staged to join, and nobody committed the plan."""
    world = stuck(ONE)
    MemberJoins(node=NodeName("riak@staged"), seconds=float("inf")).on_ring(world)
    return world


def _down_for_weeks() -> RiakWorld:
    """A node died weeks ago and was never marked as down; the others hold what it missed."""
    world = down(ringed(), FOUR)
    for each in world.fallbacks:
        each.since -= WEEKS
    return world


def _alone(played: Played) -> bool:
    """The holders go alone, the other nodes in pairs."""
    return (ONE,) in played.waves and (TWO,) in played.waves and max(map(len, played.waves)) > 1


def _out_of_reach(seconds: float, how: mishaps.What | None, played: Played) -> None:
    """At its last restore no member reaches FOUR for so long; its process runs."""

    def look(played: Played, _looks: object) -> None:
        entered = [event.to for event in played.found(PhaseEntered) if event.node is None]
        if entered[-1:] == [Phase.FINISHING.value] and not played.noted:
            _cut_off(seconds, played)
            if how is not None:
                played.simulation.fate.befall(how)

    before("cluster", "observe", look)(played)


def _cut_off(seconds: float, played: Played) -> None:
    """No member reaches FOUR from now on, for so long."""
    world, four = played.world, played.world.nodes[FOUR]
    life, four.member_life = four.member_life, None
    played.note("no member reaches it")
    world.changed(f"no member reaches {FOUR}")
    world.agenda.after(seconds, lambda: _in_reach(world, life))


def _in_reach(world: World, life: int | None) -> None:
    world.nodes[FOUR].member_life = life
    world.changed(f"{FOUR} is in reach")


def _restored_there(played: Played) -> bool:
    return bool(played.noted) and world_of(played).limits[FOUR] == 2


# fmt: off
_OUT_OF_REACH: Final = (
    *(
        ring(f"restore_settings: a node that no member reaches for {seconds:.0f} s keeps its limit: {what}",
            prepares=partial(_out_of_reach, seconds, how), shows=_restored_there, lives={}, within=HOUR)
        for what, seconds, how in (
            ("its host shows that it runs", 8.0, None),
            ("its host shows that for longer", 90.0, None),
            ("its host is out of reach, too", 20.0, mishaps.HostCutOff(node=FOUR, seconds=20.0)),
        )
    ),
    ring("restore: another machine waits for a node that no member reaches, and restores its limit",
        killed=f"after start of {TWO}", then=[partial(_cut_off, 150.0), elsewhere()], shows=_restored_there),
    ring("restore: another machine does not wait for a node that is down for good",
        killed=f"after start of {TWO}", away=[FOUR],
        then=[40.0, mishaps.NodeDies(node=FOUR, back_after=None), elsewhere(away=[FOUR], within=120.0)]),
)

_WAITING: Final = (
    ring("no_transfers: what has waited for weeks holds for 15 minutes and is not waited for",
        of=partial(stuck, ONE, TWO), says=f"3 on {ONE} for", lives={}, shows=_still_there),
    ring("no_transfers: disabled, a wave does not wait for what waited before it",
        of=partial(stuck, ONE, TWO), within=HOUR, lives={}, **without("no_transfers")),
    ring("no_transfers: what a restart of its owner cures is handed off before the next stop",
        of=_cured_by_owners, shows=_cured),
    ring("no_transfers: a transfer limit of 0 holds, with the command that sets another one",
        of=_none_allowed, ends=HELD, says=f"the transfer limit of {ONE} is 0; set one with `riak admin",
        sent={"stop": 0}),
    ring("no_pending_ownership_change: a node that was staged and never committed holds all the same",
        of=_joins, ends=HELD, says="riak@staged): it is joining", sent={"stop": 0}),
    ring("all_members_up: what waits for a node that is down for weeks is not passed over",
        of=_down_for_weeks, ends=HELD, says=FOUR, away=[FOUR], sent={"stop": 0}),
    ring("all_members_up: disabled with what follows, what waits for a node that is down still holds",
        of=_down_for_weeks, ends=HELD, away=[FOUR],
        says=f"no_transfers (transfers by {ONE} and 1 more): {FOUR} is down",
        sent={"stop": 0}, **without("all_members_up", "ring_ready", "expected_nodes_present", QUORUM)),
    ring("waiting_partitions_go_alone: in sets of several nodes",
        of=partial(stuck, ONE, TWO, nodes=9), wanted=by_sets(), shows=_alone),
    *(
        ring(f"resume: what waited before the stop is not waited for, killed {point}",
            of=partial(stuck, ONE, TWO), killed=point, then=[resume(within=2 * HOUR)], lives={})
        for point in (f"after stop of {ONE}", f"after start of {TWO}", "after the commit of handoff_waits",
                      "after the commit of handoff_left_waiting")
    ),
    ring("restore: nodes that hold waiting partitions are started, and none is waited for",
        of=partial(stuck, ONE, TWO), killed=f"after stop of {TWO}", then=[restore(within=HOUR)]),
)
# fmt: on

# By location ------------------------------------------------------------------------------------------


def _half_way(played: Played) -> RunState:
    """A peer is asked only after nodes that are down by the run: of the others nothing more is wanted."""
    state = played.simulation.resume()
    phases = {node.name: node.phase for node in state.wave_nodes}
    assert phases == {ONE: NodePhase.REJOINED, FIVE: NodePhase.STARTING}
    return state


# fmt: off
_BY_LOCATION: Final = (
    ring("zone: riak nodes that share no preference list go together",
        of=partial(located, (ONE, FIVE)), wanted=by_location(), lives={},
        prepares=lambda played: FIVE not in together(world_of(played).ring, world_of(played).n_vals, ONE),
        shows=lambda played: {ONE, FIVE} in map(set, played.waves)),
    ring(f"{QUORUM}: a location that would take a quorum goes in parts",
        of=partial(located, (ONE, TWO)), wanted=by_location(),
        shows=lambda played: all(len(wave) == 1 for wave in played.waves)),
    ring(f"{QUORUM}: without it the judge sees the quorum go",
        of=partial(located, (ONE, TWO)),
        wanted=by_location(disabled_predicates=(DisabledPredicate(name=QUORUM),)),
        violates="takes the quorum"),
    ring("resume: a wave half of which counts as back is continued",
        of=partial(located, (ONE, FIVE)), nodes={FIVE: {"start_seconds": 100.0}},
        wanted=by_location(selection=Selection(only=(ONE, FIVE))),
        befalls=[asked(Request.STOP, "start", after=20.0)],
        killed="after the commit of phase_entered#5", then=[Attempt(begins=_half_way)]),
)
# fmt: on

# Killed while a node starts ---------------------------------------------------------------------------

SLOW: Final = 40.0
"""So long the node takes to come up, in seconds: a run that forgot it would be at the next one by then."""
SLOW_TWO: Final = {"nodes": {TWO: {"start_seconds": SLOW}}}
STARTING: Final = {
    "it was never sent": "after the commit of phase_entered, phase_entered, action_sent#2",
    "nobody knows how it ended": f"after start of {TWO}",
    "it is confirmed": "after the commit of action_confirmed#4",
    "its service runs and nothing more": "after the commit of phase_entered#4",
}


def _still_starting(played: Played, **how: object) -> RunState:
    state = played.simulation.resume(**how)
    assert (state.phase, state.nodes[TWO].phase) == (Phase.DOWN, NodePhase.STARTING)
    assert [node.name for node in state.wave_nodes] == [TWO]
    return state


def _goes_on(**how: object) -> Attempt:
    return Attempt(begins=partial(_still_starting, **how))


def _no_stop_before(played: Played) -> bool:
    """One start in all, and no stop of another node before it has recovered."""
    names = [
        f"{event.action.__class__.__name__}" if event.event == "action_sent" else event.event
        for event in played.events
        if event.event in ("action_sent", "node_recovered", "run_resumed")
    ]
    assert (
        sum(action_name(each) == "start" and each.node == TWO for each in played.simulation.hosts.sent) == 1
    )
    resumed = names.index("run_resumed")
    return "StopNode" not in names[resumed : names.index("node_recovered", resumed)]


# fmt: off
_KILLED: Final = (
    *(
        ring(
            f"resume: past no riak node in STARTING, {why}, {pause:.0f} s, without {len(off)} predicates",
            killed=point, then=[pause, _goes_on()], lives={}, shows=_no_stop_before, **SLOW_TWO,
            **without(*off))
        for pause, off in ((0.0, ABOUT_ABSENCE), (2 * SLOW, ()))
        for why, point in STARTING.items()
    ),
    *(
        ring(f"--skip: not of a riak node that was starting, {why}",
            killed=point, then=[_goes_on(skip=[TWO])], lives={}, **SLOW_TWO)
        for why, point in STARTING.items()
    ),
    ring("--skip: not of a riak node that was down already",
        killed=f"after stop of {TWO}", then=[resume(skip=[TWO, FOUR])], lives={FOUR: 1}, **SLOW_TWO),
    ring("resume: no run goes past a FAILED riak node until --retry-failed",
        nodes={TWO: {"starts_that_fail": 9}}, ends=None, away=[TWO],
        then=[
            set_node(TWO, starts_that_fail=0),
            resume(ends=FAILED, says="resume with --retry-failed", away=[TWO])
        ],
        sent={f"start {TWO}": 3}),
    ring("restore: a FAILED riak node has one more start",
        nodes={TWO: {"starts_that_fail": 9}}, ends=None, away=[TWO],
        then=[set_node(TWO, starts_that_fail=0), restore(differs=[f"transfer_limit.{TWO}"])],
        lives={ONE: 1, THREE: 1, FOUR: 1, FIVE: 1}),
    ring("resume: a riak node that died after its start is started again",
        killed=STARTING["it is confirmed"], then=[SLOW / 2, mishaps.NodeDies(node=TWO), SLOW, resume()],
        sent={f"start {TWO}": 2}, **SLOW_TWO),
    ring("--retry-failed: a riak node has its starts again",
        befalls=[refused("start", target=TWO, times=4)], ends=None, away=[TWO],
        then=[resume(retry_failed=True, differs=[f"transfer_limit.{TWO}"])]),
)
# fmt: on

# Handoff that is hastened -----------------------------------------------------------------------------


def hastened(name: str, **more: object) -> Scene:
    return Scene(**{"name": name, "of": rolling, "wanted": HASTENED, **more})


def _why(played: Played) -> list[tuple[tuple[str, ...], str]]:
    return [(event.nodes, event.why) for event in played.found(NotHastened)]


def _timers_restored(played: Played) -> None:
    """Each is recorded before it is set; when the others have handed back is told once a wave."""
    changed = {event.key: (event.found, event.wanted) for event in played.found(SettingChanged)}
    timers = {key: value for key, value in changed.items() if key.startswith("vnode_management_timer")}
    assert timers == {timer_key(name): (str(USUAL_TIMER), "1000") for name in (ONE, TWO, THREE, FOUR, FIVE)}
    restored = {event.key: event.value for event in played.found(SettingRestored)}
    assert {key: restored[key] for key in timers} == dict.fromkeys(timers, str(USUAL_TIMER))
    home = [event.number for event in played.found(FallbacksHome)]
    assert home == sorted({*home})
    assert len(home) >= 4
    assert played.found(FallbacksHome)[0].seconds < played.found(NodeRecovered)[0].seconds
    assert (_why(played), played.state.message) == ([], "")
    assert played.sent(ForceHandoff)
    assert world_of(played).fallbacks == []


def _unlisted(joins: float, climbs: float) -> RiakWorld:
    """Nothing moves in these seconds, and what a node has on its disk for others is not found yet."""
    world = rolling()
    world.climb_seconds, world.written = climbs, False
    for node in world.nodes.values():
        node.join_seconds = joins
    return world


def old() -> RiakWorld:
    """Of a version whose handoff cannot be hastened."""
    world = rolling()
    for node in world.nodes.values():
        node.version = "3.0.16"
    return world


def muted() -> RiakWorld:
    """On one node the account may not read the state of the vnode manager."""
    world = rolling()
    world.vnodes[FIVE].mute = "sudo: a password is required"
    return world


def _never_forced(why: str, played: Played) -> None:
    order = (TWO, THREE, FOUR, FIVE, ONE)
    assert _why(played) == [((name,), why) for name in order]
    assert played.state.message == f"handoff was not hastened after the restart of {', '.join(order)} ({why})"


def _refused_always(played: Played) -> None:
    assert {name for names, _ in _why(played) for name in names} == {*played.world.nodes}
    assert all("it could not be forced" in why for _, why in _why(played))


def _of_two_alone(played: Played) -> None:
    ((nodes, why),) = _why(played)
    assert nodes == (TWO,)
    assert f"every {USUAL_TIMER} ms" in why


# fmt: off
_HASTENED: Final = (
    hastened("hasten_handoff: each timer is recorded and restored", lives={}, shows=_timers_restored),
    *(
        hastened(
            f"hasten_handoff: a node back before its vnode manager lists it is waited for, {joins} s",
            of=partial(_unlisted, joins, climbs))
        for joins, climbs in ((2.0, 3.0), (3.0, 5.0))
    ),
    hastened("hasten_handoff: nothing is forced while partitions change their owner",
        befalls=[at("stop", OwnershipMoves(to=ONE, partitions=4, seconds=20.0), TWO, after=10.0)],
        sent={"force_handoff": range(1, 10_000)}),
    *(
        hastened(f"hasten_handoff: force_handoff {one('stop').how.name} costs time alone",
            befalls=[one("force_handoff", times=5)])
        for one in (refused, lost)
    ),
    *(
        hastened(f"NotHastened: a run that hastened nothing names every node, {of.__name__}",
            of=of, sent={"force_handoff": 0}, shows=partial(_never_forced, why))
        for of, why in (
            (old, "only Riak 3.2 can be hastened, and this is 3.0.16"),
            (muted, f"the vnodes that {FIVE} has not started are unknown: sudo: a password is required"),
        )
    ),
    hastened("NotHastened: force_handoff that is refused every time",
        befalls=[refused("force_handoff", times=10_000)], says="it could not be forced",
        shows=_refused_always),
    hastened("NotHastened: a timer that was not shortened, of its node alone",
        befalls=[refused("raise_limits", first=2)], says=f"after the restart of {TWO} (",
        shows=_of_two_alone),
)
# fmt: on

SCENES: Final = (*_RUNS, *_OUT_OF_REACH, *_WAITING, *_BY_LOCATION, *_KILLED, *_HASTENED)
