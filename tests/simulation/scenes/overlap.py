"""`overlap_recovery: true`: the next wave beside the recoveries before it, and never in their way."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from orchestrator.model.cluster import CopyState, NodeName, Role
from orchestrator.model.event import (
    NodeRecovered,
    PhaseEntered,
    SettingChanged,
    SettingRestored,
    WaveFinished,
)
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, RecoveryLimits, Strategy
from orchestrator.simulation import mishaps
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.world import World
from tests.simulation.overlapping import (
    SLOW,
    halves,
    on_disk,
    overlapped,
    slow,
    slowed,
    stops,
    threefold,
    under_way,
)
from tests.simulation.scene import (
    ALLOCATION,
    ES2,
    ES3,
    ES4,
    FAILED,
    HELD,
    PAUSED,
    POOL,
    Played,
    Scene,
    asked,
    at,
    refused,
    resume,
)
from tests.simulation.zones import zoned

SNAPSHOT: Final = mishaps.SnapshotBegun(name="repo/nightly")
APART: Final = overlapped(overlap_recovery=False)


def overlaps(played: Played) -> int:
    """How many nodes were stopped beside a recovery."""
    return sum(bool(under_way(played.simulation, at)) for at, _ in stops(played.simulation))


def _served(played: Played) -> bool:
    return all(
        copy.state is CopyState.STARTED for _, shard in shards_of(played.world) for copy in shard.copies
    )


def _none_with_a_part(played: Played) -> None:
    for moment, node in stops(played.simulation):
        for shard, _ in under_way(played.simulation, moment):
            assert node not in on_disk(played.world, shard), f"{node} at {moment}, {shard}"


def _more() -> World:
    world = zoned()
    world.add_index("more", shards=3, places=[ES4, NodeName("es1")])
    return slowed(world)


def _waits_for_the_unassigned(played: Played) -> None:
    """Two copies at a time: the others of es4 were unassigned for a while."""
    (first, _), (second, _) = stops(played.simulation)[:2]
    began = [one.began for one in played.world.recoveries if one.target == ES4]
    assert [at for at in began if at > first + 30.0]
    assert max(began) < second


def _zone_by_zone(played: Played) -> bool:
    nodes = [node for _, node in stops(played.simulation)]
    return "".join(str(played.world.nodes[each].zone) for each in nodes) == "aabbbccca" and nodes[-1] == "es1"


def _halves_apart(played: Played) -> None:
    simulation = played.simulation
    times = {node: at for at, node in stops(simulation)}
    assert under_way(simulation, times[ES3]), "zone c beside zone b"
    assert not [shard for shard, _ in under_way(simulation, times[ES4]) if shard.index == "right"], (
        "d waits for c"
    )


def _limits_once(played: Played) -> None:
    """Limits are raised once and restored after the last recovery, allocation once a wave."""
    raised = [event.key for event in played.found(SettingChanged)]
    restored = [event.key for event in played.found(SettingRestored)]
    for key in {*raised}:
        assert raised.count(key) == restored.count(key) == (6 if key == ALLOCATION else 1), key
    records = played.simulation.journal.records
    limits = [r.at for r in records if isinstance(r.event, SettingRestored) and r.event.key != ALLOCATION]
    assert min(limits) >= max(played.times(NodeRecovered))


def _hooks_with_their_own_copies(played: Played) -> None:
    recovered = [
        (r.at, r.event) for r in played.simulation.journal.records if isinstance(r.event, NodeRecovered)
    ]
    for moment, event in recovered:
        ends = [one.ends for one in played.world.recoveries if one.target == event.node]
        assert max(ends) <= moment < max(ends) + 5.0, event.node
        assert played.hooks(event.node) == ["before_stop", "after_recovery"]
    assert [event.number for event in played.found(WaveFinished)] == [1, 2, 3, 4, 5, 6]


def _stubborn() -> World:
    """Its index has allocation of its own, so that it goes to another node while its own is down."""
    world = World()
    world.add_node("es1", roles=frozenset({Role.MASTER}))
    for name in ("es2", "es3", "es4"):
        world.add_node(name)
    index = world.add_index("stubborn", places=["es3", "es4"])
    index.allocation_enable, index.delay = "all", 1.0
    index.keeps, index.shards[0].size = 0.0, SLOW
    return world


def _ends_sooner() -> World:
    """In ten seconds: a recovery ends, and fails, while the next node is down."""
    world = slow()
    for _, shard in shards_of(world):
        shard.size //= 6
    return world


def _assigned_with_allocation(played: Played) -> None:
    story = played.world.story
    failed = next(at for at, what in story if "failed on es4" in what)
    again = next(at for at, what in story if "begins on es4" in what and at > failed)
    records = played.simulation.journal.records
    enabled = [r.at for r in records if isinstance(r.event, SettingRestored) and r.event.key == ALLOCATION]
    assert abs(again - enabled[1]) < 2.0, "with the allocation that came back, and not before"


def _on_its_way_again(played: Played) -> None:
    """The other copy of a shard of es2 is on its way again, and then the snapshot ends."""
    world = played.world

    def meddle() -> None:
        shard = next(s for _, s in shards_of(world) if s.primary.node == ES2)
        other = next(c for c in shard.copies if c.node != ES2)
        other.state = CopyState.INITIALIZING
        world.agenda.after(20.0, lambda: setattr(other, "state", CopyState.STARTED))
        world.snapshots = ()

    world.agenda.after(40.0, meddle)


def _back_to_waiting(played: Played) -> None:
    entered = played.found(PhaseEntered)
    back = [step.why for step in entered if (step.from_, step.to) == ("gated", "reassigned")]
    assert back[0].startswith("every_shard_keeps_started_copies (index logs"), "its other copy is not started"


# fmt: off
SCENES: Final = (
    Scene(
        name="overlap_recovery: the next node stops while the last one recovers",
        of=slow,
        wanted=overlapped(hooks=POOL),
        lives={},
        events={"overlapping": range(3, 7)},
        shows=lambda played: (
            (
                overlaps(played) >= 3,
                _limits_once(played),
                _hooks_with_their_own_copies(played),
            )[0]
            and _served(played)
        ),
    ),
    Scene(name="overlap_recovery: without it nothing of it is in the journal",
        of=slow, wanted=APART, lives={}, events={"wave_gave_way": 0, "overlapping": 0},
        shows=lambda played: overlaps(played) == 0),
    *(
        Scene(name=f"overlap_recovery: no node stops that has a part in what recovers, {nodes} nodes",
            of=partial(slow, nodes, seed=seed), wanted=overlapped(), lives={}, shows=_none_with_a_part,
            marks=[pytest.mark.proves("overlap")])
        for seed, nodes in ((0, 3), (3, 6), (5, 9))
    ),
    *(
        Scene(name=f"overlap_recovery: three nodes that all share do not overlap, {name}",
            of=of, wanted=overlapped(), lives={}, shows=lambda played: overlaps(played) == 0)
        for name, of in (("two copies", partial(slow, 3)), ("three copies", threefold))
    ),
    Scene(name="overlap_recovery: no node stops while a copy waits to recover",
        of=_more, wanted=overlapped(recovery_limits=RecoveryLimits(node_concurrent_recoveries=None)),
        lives={}, shows=_waits_for_the_unassigned),
    Scene(name="overlap_recovery: zone by zone, and the master last",
        of=partial(slow, 9), wanted=overlapped(), lives={}, shows=_zone_by_zone),
    Scene(name="overlap_recovery: whole zones overlap where they share nothing",
        of=halves, wanted=overlapped(strategy=Strategy.ZONE, max_unavailable=None),
        waves=[("es2", "es6"), ("es3", "es7"), ("es4", "es8"), ("es5", "es1")], lives={},
        shows=_halves_apart),
    Scene(
        name="overlap_recovery: a copy that is rebuilt elsewhere is waited for at the end",
        of=_stubborn,
        wanted=overlapped(),
        lives={},
        shows=lambda played: (
            played.waves[-2:] == [("es4",), ("es1",)]
            and under_way(played.simulation, stops(played.simulation)[-1][0]) != []
            and _served(played)
        ),
    ),
    Scene(name="overlap_recovery: a hook that fails beside the next wave ends the run",
        of=slow, wanted=overlapped(hooks=POOL), befalls=[refused("hook_after_recovery", times=9)],
        ends=FAILED, says="hook after_recovery"),
    Scene(
        name="overlap_recovery: a canary pauses when its nodes have recovered",
        of=slow,
        wanted=overlapped(pause_after=2),
        ends=PAUSED,
        then=[
            lambda played: (
                (len(stops(played.simulation)), overlaps(played), played.state.recovered) == (2, 1, 2)
            ),
            resume(),
        ],
        lives={},
        shows=lambda played: overlaps(played) > 1,
    ),
    Scene(
        name="overlap_recovery: Request.PAUSE waits for all that recovers",
        of=slow,
        wanted=overlapped(),
        befalls=[asked(Request.PAUSE, "stop", nth=2, after=20.0)],
        ends=PAUSED,
        then=[
            lambda played: (
                {node.phase.value for node in played.state.nodes.values()} == {"recovered", "pending"}
            ),
            lambda played: len(stops(played.simulation)) == 2,
            resume(),
        ],
        lives={},
    ),
    *(
        Scene(name=f"second_failure: a node that recovers dies beside the next wave, {how}",
            of=slow, wanted=overlapped(),
            befalls=[at("stop", mishaps.NodeDies(node=ES4), nth=2, after=after)], ends=FAILED,
            then=[
                lambda played: len(stops(played.simulation)) == 2,
                lambda played: len([e for e in played.events if e.event == "second_failure"]) > 0,
                resume()
            ])
        for how, after in (("stopping", 0.5), ("rejoined", 16.0))
    ),
    Scene(name="second_failure: a node that recovers dies while the gates hold the run",
        of=slow, wanted=overlapped(),
        befalls=[at("start", SNAPSHOT, after=5.0), at("start", mishaps.NodeDies(node=ES4), after=30.0)],
        ends=FAILED, says="a second failure: es4 left the cluster", sent={"stop": 1}),
    Scene(name="overlap_recovery: a recovery that fails beside a wave waits for allocation",
        of=_ends_sooner, wanted=overlapped(deadlines=Deadlines(recover=3600.0)),
        befalls=[at("stop", mishaps.AllocationsFail(index="logs", times=1), nth=2)], lives={},
        shows=_assigned_with_allocation),
    Scene(name="overlap_recovery: a recovery that never ends has deadlines.recover",
        of=slow, wanted=overlapped(deadlines=Deadlines(recover=1800.0)),
        befalls=[at("start", mishaps.AllocationsFail(index="logs", times=1000))], ends=HELD,
        says="not recovered within 30m 0s"),
    Scene(name="overlap_recovery: a recovery that begins sends the run from the gates back to waiting",
        of=slow, wanted=overlapped(), befalls=[at("start", SNAPSHOT, after=5.0)],
        prepares=_on_its_way_again, lives={}, shows=_back_to_waiting),
    Scene(name="overlap_recovery: a resumed run waits for its waves, and overlaps again",
        of=slow, wanted=overlapped(), killed="after stop of es2", then=[resume()], lives={},
        shows=lambda played: overlaps(played) >= 2),
)
# fmt: on
