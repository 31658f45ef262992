"""Stops whose connection was lost, and which their hosts do later, or never: no node is left down by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from orchestrator.model.action import RebootHost
from orchestrator.model.event import NotWaitedFor, StoodStill
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Strategy,
)
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation import machines
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.mishaps import (
    HostCutOff,
    IndexMade,
    NodeDies,
    ProgramStalls,
    StopHangs,
    Unreadable,
)
from orchestrator.simulation.world import World
from tests.simulation.index_mishaps import WorkBegun
from tests.simulation.node_mishaps import HostHangs, RestartedByHand, ZoneLost
from tests.simulation.play import cluster, policy
from tests.simulation.program_mishaps import StaleReadings
from tests.simulation.scene import (
    DONE,
    ES1,
    ES2,
    ES3,
    ES4,
    ES5,
    FAILED,
    HOOKS,
    INTERRUPTED,
    PAUSED,
    POOL,
    Played,
    Scene,
    asked,
    at,
    elsewhere,
    gone,
    late,
    lost,
    restore,
    resume,
    successor,
    take_over,
    unheard,
)
from tests.simulation.zones import by_zone, zoned

SHORT: Final = Deadlines(stop=120.0, start=120.0, rejoin=120.0, hold=240.0)
WANTED: Final = policy(deadlines=SHORT)
LONG_AFTER: Final = 8000.0
TAKEN_AS_LOST: Final = "after restore_allocation"
"""The point at which the first wave is over, whose stop is taken as not done."""
SLOW: Final = {"replicas": 1, "places": [ES3, ES1], "size": 2 << 30, "delay": 0.0, "keeps": 0.0}


def _all_served(played: Played) -> None:
    assert [
        str(shard.id) for _, shard in shards_of(played.world) if len(shard.started) < len(shard.copies)
    ] == []
    assert played.found(NotWaitedFor) == []


def _one_down_at_a_time(played: Played) -> None:
    down = set[str]()
    for _, what in played.world.story:
        name, _, how = what.partition(" ")
        down = down | {name} if how == "left" else down - {name} if how == "joined" else down
        assert len(down) < 2, f"{down} are down together"


def _never_down(played: Played) -> None:
    assert played.world.nodes[ES5].life == 1


def _reboot_while_asleep(played: Played) -> None:
    """Its host reboots while the program is suspended."""
    world, es3 = played.world, played.world.nodes[ES3]

    def reboot() -> None:
        if played.simulation.fate.asleep_until > world.agenda.now:
            machines.reboot(world, es3)
        else:
            world.agenda.after(1.0, reboot)

    world.agenda.after(1.0, reboot)


def _slow_to_copy() -> World:
    world = cluster()
    for _, shard in shards_of(world):
        shard.size = 4 << 30
    return world


def _six() -> World:
    world = cluster(6)
    world.allowed_down = 2
    return world


_BY = {"restore": restore(), "resume": resume()}
_STOOD_STILL = (LONG_AFTER, gone(ES2), ProgramStalls(seconds=600.0), HostCutOff(node=ES2, seconds=700.0))
"""The stop was done while no process watched; the next one is suspended in its first reading."""


def _zone_lost_while_es4_shuts_down(played: Played) -> None:
    """Its zone has the elected master, and no host of it answers."""
    fate = played.simulation.fate
    played.world.agenda.after(22.0, lambda: fate.befall(ZoneLost(zone="a", back_after=4000.0)))


# fmt: off
SCENES: Final = (
    *(
        Scene(name=f"a run that is asked to {request.name} does not end while its lost stop may be done",
            wanted=WANTED, befalls=[asked(request, "stop", after=50.0), late("stop", 110.0, ES2)],
            ends=ends, then=[LONG_AFTER], marks=[pytest.mark.proves("lost-stop")])
        for request, ends in ((Request.PAUSE, PAUSED), (Request.INTERRUPT, INTERRUPTED))
    ),
    Scene(name="restore while a stop is done late and its zone is lost: the node is named", of=zoned,
        wanted=replace(WANTED, hooks=HOOKS), befalls=[late("stop", 20.0, ES4)], killed="after stop of es4",
        then=[_zone_lost_while_es4_shuts_down, restore(ends=FAILED, says="es4: it did not start", away=None)],
        lives={"es1": 1, "es2": 2, "es3": 2, "es4": 1, "es5": 1, "es6": 1}),
    Scene(name="a run that is DONE does not end while its lost stop may be done",
        wanted=WANTED, befalls=[late("stop", 110.0, ES3)], then=[LONG_AFTER]),
    *(
        Scene(
            name=f"ProgramStalls while a lost stop is awaited: read again, {reads.name}, {silent:.0f} s",
            wanted=WANTED,
            befalls=[
                asked(Request.INTERRUPT, "stop", after=33.0),
                at("stop", ProgramStalls(seconds=600.0), after=50.0),
                at("stop", HostCutOff(node=ES2, seconds=silent), after=60.0),
                late("stop", 70.0, ES2),
            ],
            reads=reads,
            ends=INTERRUPTED,
            shows=lambda played: played.happened("es2 left"),
        )
        for reads, silent in zip(ReadingOrder, (0.0, 640.0, 640.0), strict=True)
    ),
    *(
        Scene(name=f"ProgramStalls with an old reading: a late stop is not ruled out, {reads.name}",
            befalls=[at("stop", ProgramStalls(seconds=500.0), after=5.0), late("stop", 20.0)],
            reads=reads, shows=lambda played: played.phases(ES2)[:2] == ["stopping", "stopped"])
        for reads in ReadingOrder
    ),
    Scene(name="a late stop of the elected master is repaired without a majority",
        wanted=WANTED,
        befalls=[
            at("stop", NodeDies(node=ES3, back_after=600.0), ES1, after=15.0), late("stop", 70.0, ES1)
        ],
        ends=FAILED, says="a second failure: node es3 left the cluster", away=[ES3], then=[LONG_AFTER]),
    *(
        Scene(
            name=f"copies that a late stop took down are waited for, {why}",
            indices={"slow-0": SLOW, "slow-1": SLOW},
            wanted=WANTED,
            befalls=[*by_hand, late("stop", 110.0, ES3)],
            shows=lambda played: (
                _all_served(played),
                [what for _, what in played.world.story].count("es3 left") == 2,
            )[-1],
        )
        for why, by_hand in (
            ("it was taken as not done", ()),
            ("somebody restarted the node", (at("stop", RestartedByHand(node=ES3), ES3, after=2.0),)),
        )
    ),
    *(
        Scene(name=f"{by} starts a node that a lost stop took after a kill",
            wanted=WANTED, befalls=[late("stop", 70.0, ES2)], killed=TAKEN_AS_LOST,
            then=[LONG_AFTER, gone(ES2), attempt])
        for by, attempt in _BY.items()
    ),
    Scene(name="a lost stop is awaited on a host that rebooted before it",
        nodes={ES3: {"reboot_seconds": 10.0}},
        wanted=policy(deadlines=SHORT, hooks=Hooks(while_stopped=(Hook(run="patch {node}"),))),
        befalls=[at("start", ProgramStalls(seconds=100.0), ES2), late("stop", 5.0, ES3)],
        prepares=_reboot_while_asleep, then=[LONG_AFTER], boots={ES1: 1, ES2: 1}),
    Scene(name="a lost stop that is done while a resume is PREPARING is repaired",
        wanted=WANTED, befalls=[late("stop", 70.0, ES2)], killed=TAKEN_AS_LOST,
        then=[Unreadable(seconds=150.0), resume()], shows=lambda played: played.happened("es2 left")),
    *(
        Scene(name=f"a resume that StoodStill at first starts the node, deadlines.stop {stop:.0f} s",
            wanted=policy(deadlines=replace(SHORT, stop=stop)), befalls=[late("stop", 70.0, ES2)],
            killed=TAKEN_AS_LOST, then=[*_STOOD_STILL, resume()],
            shows=lambda played: played.found(StoodStill) != [])
        for stop in (20.0, 30.0, 120.0)
    ),
    *(
        Scene(name=f"a resume after one that StoodStill and was killed {point} starts the node",
            wanted=WANTED, befalls=[late("stop", 70.0, ES2)], killed=TAKEN_AS_LOST,
            then=[*_STOOD_STILL, resume(killed=point), resume()])
        for point in ("after the commit of members_missed", "before the commit of stood_still")
    ),
    Scene(
        name="copies that a late stop took after a kill are back before after_recovery hooks",
        indices={"slow": {"replicas": 2, "places": [ES1, ES2, ES3], "size": 8 << 30, "keeps": 0.0}},
        wanted=policy(deadlines=SHORT, hooks=Hooks(after_recovery=(Hook(run="pool {node}"),))),
        befalls=[late("stop", 70.0, ES2)],
        killed=TAKEN_AS_LOST,
        then=[300.0, gone(ES2), resume()],
        shows=lambda played: (
            not [fact for node in played.world.nodes.values() for fact in node.facts if fact.missing]
        ),
    ),
    *(
        Scene(name=f"{by} awaits a stop in doubt after a kill and a restart by hand",
            wanted=WANTED, befalls=[late("stop", 110.0, ES2)], killed="after stop of es2",
            then=[RestartedByHand(node=ES2), 30.0, attempt, LONG_AFTER])
        for by, attempt in _BY.items()
    ),
    Scene(name="a resumed run waits for a lost stop with allocation enabled",
        befalls=[lost("stop", target=ES2)], killed=TAKEN_AS_LOST, then=[resume()],
        sent={"set_allocation": 1 + 3}),
    Scene(name="a resume stops no node while a lost stop may be done",
        befalls=[at("restore_allocation", WorkBegun(node=ES2, seconds=90.0)), late("stop", 42.0, ES2)],
        killed=TAKEN_AS_LOST, then=[resume()], shows=_one_down_at_a_time),
    Scene(name="another machine knows by the record a stop in doubt of a node that was started",
        wanted=WANTED,
        befalls=[at("stop", NodeDies(node=ES2), ES2, after=20.0), late("stop", 70.0, ES2)],
        killed=TAKEN_AS_LOST, then=[300.0, gone(ES2), elsewhere()]),
    Scene(name="a run that is DONE and was killed before it released its lease has nothing to restore",
        wanted=WANTED, killed="after stop of es3",
        then=[
            resume(killed="after the commit of phase_entered, run_finished"), 100.0,
            take_over(nothing=True), successor()
        ],
        lives={ES1: 3, ES2: 3, ES3: 3}),
    Scene(name="another machine restarts no node that a stop in doubt left up",
        wanted=WANTED, killed="after stop of es3",
        then=[
            resume(killed="after the commit of phase_entered, run_finished"), 100.0, elsewhere(),
            resume()
        ],
        lives={}, marks=[pytest.mark.proves("stop-in-doubt")]),
    # Taken as not done, and done in the course of the run -----------------------------------------------
    *(
        Scene(name=f"a stop done {seconds} s late is brought up by the run itself",
            befalls=[late("stop", seconds)], lives={}, events={"lease_lost": 0})
        for seconds in (1.0, 29.0, 31.3)
    ),
    Scene(name="a stop that is sent again has its own time in doubt",
        befalls=[lost("stop"), replace(late("stop", 28.0), first=2)], lives={}, sent={"stop": 4}),
    Scene(name="rescued: a node whose stop never happened goes on",
        wanted=policy(deadlines=Deadlines(hold=600.0)),
        befalls=[
            at("stop", IndexMade(name="new", on=ES3, replicas=0)),
            at("stop", NodeDies(node=ES3, back_after=2.0), after=1.0), lost("stop")
        ],
        lives={}),
    *(
        Scene(
            name=f"a stop done {seconds} s late takes no restarted node down unseen, it died after {dies} s",
            befalls=[at("stop", NodeDies(node=ES2, back_after=0.5), after=dies), late("stop", seconds)],
            marks=[pytest.mark.proves("lost-stop")],
        )
        for seconds, dies in ((14.0, 0.3), (20.0, 1.0), (25.0, 0.3), (29.0, 1.0))
    ),
    Scene(name="a lost stop: the same life for half a minute, then another stop",
        befalls=[lost("stop", target=ES2)], lives={},
        phases={
            ES2: ["stopping", "pending", "stopping", "stopped", "starting", "rejoined", "recovered"]
        }),
    *(
        Scene(
            name=f"a lost stop done after it was taken as not done: while_stopped hooks run, {how}",
            nodes=nodes,
            wanted=policy(hooks=HOOKS, deadlines=replace(SHORT, stop=60.0)),
            befalls=[late("stop", 34.0, ES2)],
            shows=lambda played: (
                played.phases(ES2)[:2] == ["stopping", "pending"]
                and played.verbs(ES2).count("while_stopped") == 1
            ),
        )
        for how, nodes in (("it takes time", {}), ("in a moment", {ES2: {"stop_seconds": 0.01}}))
    ),
    Scene(name="StopHangs: a start is queued behind a lost stop that is done late, and hangs",
        wanted=policy(
            hooks=HOOKS, deadlines=Deadlines(stop=60.0, start=60.0, rejoin=120.0, hold=600.0)
        ),
        befalls=[late("stop", 34.0, ES2)],
        prepares=lambda played: played.simulation.fate.befall(StopHangs(node=ES2, repaired_after=2000.0)),
        ends=FAILED, then=[4000.0]),
    Scene(name="a late stop behind StaleReadings: after_recovery hooks wait for the copies",
        of=_slow_to_copy, wanted=policy(hooks=POOL),
        befalls=[at("restore_allocation", StaleReadings(seconds=60.0), after=0.05), late("stop", 60.0, ES1)],
        shows=lambda played: [
            fact.missing for fact in played.world.nodes[ES1].facts if fact.what == "hook after_recovery 0"
        ] == [()]),
    # In a wave of several ------------------------------------------------------------------------------
    *(
        Scene(name=f"zone: a stop that is done {seconds} s late is repaired",
            of=zoned, nodes={ES2: {"start_seconds": 30.0}}, wanted=by_zone(),
            befalls=[late("stop", seconds, ES5)], marks=[pytest.mark.proves("lost-stop")])
        for seconds in (2.0, 29.0, 31.0, 36.4, 37.6, 38.8, 40.0, 44.0)
    ),
    Scene(name="zone: a stop in doubt counts from its answer",  # which the other one of the wave waits for
        of=_six, wanted=policy(strategy=Strategy.ZONE, max_unavailable=2),
        befalls=[unheard("stop"), replace(late("stop", 70.0), first=2)]),
    *(
        Scene(name=f"zone: a stop done {seconds} s late, interrupted {after} s after it, is repaired",
            of=zoned, nodes={ES2: {"start_seconds": 30.0}}, wanted=by_zone(),
            befalls=[late("stop", seconds, ES5), asked(Request.INTERRUPT, "stop", ES5, after=after)],
            ends=INTERRUPTED)
        for seconds, after in ((31.0, 30.0), (38.0, 42.0))
    ),
    *(
        Scene(name=f"--retry-failed reboots no FAILED node that runs past the gates, {host}",
            of=zoned, wanted=by_zone(reboot=True, deadlines=Deadlines(stop=120.0, start=120.0)),
            befalls=[lost("stop", target=ES5), at("stop", HostCutOff(node=ES5, seconds=2000.0), ES5)],
            ends=FAILED, then=[_never_down, 3000.0, *hangs, resume(retry_failed=True)], boots={},
            shows=lambda played: played.simulation.hosts.sent.count(RebootHost(node=ES5)) == 1)
        for host, hangs in (
            ("its host answers", ()),
            ("its host is slow to answer", (HostHangs(node=ES5, seconds=20.0),)),
        )
    ),
    *(
        Scene(name=f"a node that left its wave {why} after {seconds:.0f} s",
            of=zoned, nodes={ES2: {"join_seconds": 1000.0}},
            wanted=by_zone(deadlines=Deadlines(start=1800.0, rejoin=1800.0, withheld=3600.0)),
            befalls=[lost("stop", target=ES5), at("stop", NodeDies(node=ES5), ES5, after=seconds)],
            ends=ends, away=away, events={"second_failure": len(away)})
        for seconds, why, ends, away in (
            (300.0, "is still ours to bring up", DONE, ()),
            (700.0, "is a second_failure", FAILED, (ES5,)),
        )
    ),
)
# fmt: on
