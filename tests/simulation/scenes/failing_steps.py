"""Single steps that go wrong: each ends in its limit, nothing turns without waiting, and nothing is left."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from orchestrator.model.action import SetReplicas, WriteSettings
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.event import ActionFailed, HookUnproven, StandingDown
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    RecoveryLimits,
    ZeroReplicas,
)
from orchestrator.simulation import mishaps
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.mishaps import Mishap, Trip
from orchestrator.view.summary import summary, summary_lines
from orchestrator.view.words import sentence
from tests.simulation import program_mishaps
from tests.simulation.play import cluster, policy
from tests.simulation.scene import (
    DONE,
    ES1,
    ES2,
    ES3,
    ES4,
    FAILED,
    HELD,
    INTERRUPTED,
    NOT_RESTORED,
    POOL,
    Played,
    Scene,
    asked,
    at,
    first,
    late,
    looking,
    lost,
    refused,
    restore,
    resume,
    unheard,
)
from tests.simulation.zones import by_zone, zoned

TWICE: Final = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
)
HOOKED: Final = policy(hooks=TWICE)
IN_SERVICE: Final = ("before_stop", "after_recovery", "after_recovery")
"""The hooks of a node that went through its turn once, or was taken out of service and put back."""
STEPS_DOWN: Final = policy(master_step_down=True)
ADDS: Final = policy(zero_replicas=ZeroReplicas.ADD_REPLICA)
BARE: Final = {"bare": {"replicas": 0, "places": [ES2]}}
HELD_SOON: Final = policy(deadlines=Deadlines(hold=600.0))
NO_LIMITS: Final = {
    "recovery_limits": RecoveryLimits(
        node_initial_primaries_recoveries=None, node_concurrent_recoveries=None, max_bytes_per_sec=None
    ),
    "rebalance_while_running": None,
}
"""Allocation is the only setting that such a run changes."""
five = partial(cluster, 5)


def _ran(played: Played, *moments: str) -> None:
    assert played.hooks(ES2) == [*moments]


def _most_failed(played: Played) -> int:
    logs = next(index for index in played.world.indices.values() if index.name == "logs")
    return max(10_000 - shard.failing for shard in logs.shards)


# Voting exclusions -----------------------------------------------------------------------------------


def _excluded(played: Played) -> list[object]:
    return [*played.world.exclusions]


def _hands_over(played: Played) -> None:
    """The exclusion is gone, and another master elected, before the master stops."""
    world = played.world
    left = played.happened("es1 left")
    assert next(at for at, what in world.story if "takes over from es1" in what) < left
    assert played.happened("es1 is excluded from voting") < left
    assert played.happened("voting exclusions are cleared") < left
    assert not [what for _, what in world.story if "was the master" in what]


# fmt: off
_EXCLUSIONS: Final = (
    *(
        Scene(name=f"exclude_from_voting {one('stop').how.name}: the master goes as it is",
            of=five, wanted=STEPS_DOWN, befalls=[one("exclude_from_voting", times=9)],
            sent={"clear_voting_exclusions": range(4)}, shows=lambda played: _excluded(played) == [])
        for one in (refused, lost, unheard)
    ),
    Scene(name="master_step_down: before its own stop", of=five, wanted=STEPS_DOWN, shows=_hands_over),
    # One of two would be left with three voters, and one of three here.
    Scene(name="exclude_from_voting: none of 4 voters",
        of=partial(cluster, 4), wanted=STEPS_DOWN, sent={"exclude_from_voting": 0}),
    Scene(name="clear_voting_exclusions refused for good: one try in five seconds, and NOT_RESTORED",
        of=five, wanted=STEPS_DOWN, befalls=[refused("clear_voting_exclusions", times=10_000)],
        marks=[pytest.mark.proves("stand-down")], ends=NOT_RESTORED,
        sent={"clear_voting_exclusions": range(1, 1500)}, shows=lambda played: _excluded(played) != []),
    Scene(name="clear_voting_exclusions refused once: cleared after a long hold",
        of=five, wanted=STEPS_DOWN,
        befalls=[
            at("restore_allocation", mishaps.SnapshotBegun(name="repo/nightly", seconds=700.0), nth=4),
            refused("clear_voting_exclusions")
        ],
        shows=lambda played: _excluded(played) == []),
    Scene(
        name="voting_excluded: an exclusion does not outlast the gates",
        of=five,
        wanted=STEPS_DOWN,
        befalls=[at("exclude_from_voting", mishaps.SnapshotBegun())],
        ends=HELD,
        shows=lambda played: (
            played.happened("voting exclusions are cleared")
            < played.happened("es1 is excluded from voting") + 60.0
        ),
    ),
)
# fmt: on

# Replicas ---------------------------------------------------------------------------------------------


def _replicas(played: Played, index: str = "bare") -> int:
    return next(each.replicas for each in played.world.indices.values() if each.name == index)


def _set_to(played: Played) -> list[int]:
    return [action.wanted for action in played.sent(SetReplicas) if isinstance(action, SetReplicas)]


def _set_by_others(played: Played) -> None:
    bare = next(index for index in played.world.indices.values() if index.name == "bare")
    assert bare.replicas == 1
    played.simulation.cluster.perform(SetReplicas(index="bare", index_uuid=bare.uuid, found=1, wanted=2))


def _removed_while_it_serves() -> Scene:
    """Another node has the primary while es2 is down, and dies: for a while nobody has one."""
    deaths: list[NodeName] = []
    at_removal: list[CopyState] = []

    def look(played: Played, what: str) -> None:
        world, simulation = played.world, played.simulation
        primary = next(i for i in world.indices.values() if i.name == "bare").shards[0].primary
        sent = simulation.cluster.sent[-1]
        if what == "after start of es2" and primary.node is not None and not deaths:
            # Documents were written meanwhile, so that the copy on es2 is stale.
            deaths.append(primary.node)
            died = mishaps.NodeDies(node=primary.node, back_after=100.0)
            world.agenda.after(4.0, lambda: simulation.fate.befall(died))
        if what.startswith("after set_replicas") and isinstance(sent, SetReplicas) and sent.wanted == 0:
            at_removal.append(primary.state)

    return Scene(
        name="set_replicas: an added one is removed only while every primary serves",
        of=five,
        indices=BARE,
        wanted=ADDS,
        prepares=looking(look),
        ends=None,
        shows=lambda played: deaths != [] and {*at_removal} == {CopyState.STARTED} and _replicas(played) == 0,
    )


# fmt: off
_REPLICAS: Final = (
    *(
        Scene(
            name=f"set_replicas {one('stop').how.name}: what may have been added is taken away",
            indices=BARE,
            wanted=ADDS,
            befalls=[one("set_replicas")],
            ends=ends,
            shows=lambda played: (
                (_replicas(played), _set_to(played)[-1]) == (0, 0) and not played.state.unrestored.replicas
            ),
        )
        for one, ends in ((lost, DONE), (unheard, DONE), (refused, None))
    ),
    Scene(name="set_replicas LOST: removed though unseen, since it may wait in the queue of the master",
        indices=BARE, wanted=ADDS, befalls=[asked(Request.STOP, "set_replicas"), lost("set_replicas")],
        marks=[pytest.mark.proves("stand-down")], ends=INTERRUPTED,
        shows=lambda played: _set_to(played) == [1, 0] and not played.state.unrestored.replicas),
    Scene(name="set_replicas: what somebody else has set meanwhile stays",
        indices=BARE, wanted=ADDS, killed="after stop of es2", then=[_set_by_others, 100.0, restore()],
        shows=lambda played: _replicas(played) == 2),
    Scene(name="set_replicas: an added one that never started is taken away",
        indices={"big": {"replicas": 0, "places": [ES2], "size": 600 << 30}}, wanted=ADDS, ends=HELD,
        shows=lambda played: _replicas(played, "big") == 0),
    _removed_while_it_serves(),
)
# fmt: on

# Settings ---------------------------------------------------------------------------------------------


def _refused_from(verb: str, *, until: float | None = None) -> list[Mishap | Trip]:
    """Every settings update is refused from a while after this verb, for good or for so many seconds."""
    refusing = at(verb, program_mishaps.SettingsRefused(reason="403 not allowed any more"), after=0.5)
    if until is None:
        return [refusing]
    return [refusing, at(verb, program_mishaps.SettingsRefused(reason=""), after=until)]


_LOST_ALWAYS: Final = lost("set_allocation", times=100_000)
# fmt: off
_SETTINGS: Final = (
    Scene(name="StaleReadings: settings that were restored and are not seen yet are read with a pause",
        befalls=[at("restore_allocation", program_mishaps.StaleReadings(seconds=20.0))],
        shows=lambda played: len(played.sent(WriteSettings)) < 14),
    Scene(name="called off: every wave for deadlines.hold ends in a hold",
        wanted=HELD_SOON, befalls=[_LOST_ALWAYS], ends=HELD,
        says="every wave was called off before its stop for 10m 0s", lives={ES1: 1, ES2: 1, ES3: 1},
        shows=lambda played: len(played.sent(WriteSettings)) < 150),
    Scene(name="called off: the limit counts beside a predicate",
        wanted=HELD_SOON,
        befalls=[first(mishaps.SnapshotBegun(seconds=None), after=400.0), _LOST_ALWAYS], ends=HELD,
        says=("every wave was called off before its stop for 10m 0s", "now held by no_running_snapshot"),
        within=700.0),
    Scene(
        name="settings_are_writable: a refused update holds the run, and leaves nothing to restore",
        wanted=policy(deadlines=Deadlines(hold=600.0), **NO_LIMITS),
        befalls=_refused_from("restore_allocation"),
        ends=HELD,
        says=("settings_are_writable", "403 not allowed any more"),
        lives={ES1: 1, ES3: 1},
        shows=lambda played: len(played.sent(WriteSettings)) == 3,  # one wave, and the refused update
    ),
    Scene(name="settings_are_writable: updates are accepted again after 300 s",
        wanted=policy(deadlines=Deadlines(hold=600.0), **NO_LIMITS),
        befalls=_refused_from("restore_allocation", until=300.0)),
    Scene(name="settings_are_writable: of a refused update only earlier writes are left",
        wanted=HELD_SOON, befalls=_refused_from("restore_allocation"), ends=NOT_RESTORED,
        shows=lambda played: ALLOCATION not in {key for _, key in played.state.unrestored.settings}),
)
# fmt: on

# Hooks ------------------------------------------------------------------------------------------------


def _in_service_before_the_next(played: Played) -> None:
    out = set[NodeName]()
    for node, moment, _ in played.simulation.hosts.hooks:
        out = out | {node} if moment == "before_stop" else out - {node}
        assert len(out) <= 1, f"{sorted(out)} are out of service at once: {played.simulation.hosts.hooks}"
    assert out == set()


def _each_to_its_limit(played: Played) -> None:
    """Each after_recovery hook has it for itself, from its own first failure."""
    down = min(played.times(StandingDown))
    for number in (0, 1):
        failed = [
            record.at
            for record in played.simulation.journal.records
            if isinstance(record.event, ActionFailed)
            and getattr(record.event.action, "number", None) == number
            and record.at < down
        ]
        assert 120.0 < failed[-1] - failed[0] < 120.0 + 30.0, number


def _lines(played: Played) -> list[str]:
    outcome = played.state.outcome
    assert outcome is not None
    return summary_lines(summary(played.state, outcome, played.told, played.world.agenda.now))


_UNSEEN: Final = "es2: the run ended before its copies were checked"


def _reported_once(played: Played) -> None:
    assert played.state.message == "hook after_recovery on es2: ssh to es2: connection lost"
    (stood_down,) = (event for event in played.told if event.event == "stood_down")
    assert sentence(stood_down) == "stood down (failed): all settings are restored"
    assert "  Hooks     es2: restarted, after_recovery hooks not done" in _lines(played)
    assert not [line for line in _lines(played) if "copies" in line]


def _ran_beside(played: Played) -> None:
    ran = [fact.alive for fact in played.world.nodes[NodeName("es5")].facts if "while_stopped" in fact.what]
    assert ran == [True, False]
    assert HookUnproven(node=NodeName("es5"), number=0) in played.events


_FAILS_AFTER: Final = unheard("hook_after_recovery", times=99)
_HELD_LONG: Final = first(mishaps.SnapshotBegun(name="repo/first", seconds=700.0))
# fmt: off
_HOOKS: Final = (
    Scene(name="hooks: out of service again after called off, stood down and resumed",
        wanted=HOOKED, befalls=[asked(Request.STOP, "set_allocation")], ends=INTERRUPTED,
        then=[lambda played: _ran(played, *IN_SERVICE), resume()], hooks={ES2: IN_SERVICE * 2}),
    Scene(
        name="hooks: a node that is stopped twice is taken out of service twice",  # no hook puts it back
        wanted=policy(
            hooks=Hooks(before_stop=TWICE.before_stop, while_stopped=(Hook(run="install {node}"),))
        ),
        befalls=[first(mishaps.RisesByItself(node=ES2, after=0.0))],
        lives={ES2: 3},
        hooks={ES2: ["before_stop", "before_stop", "while_stopped"]},
    ),
    Scene(name="hooks: a node restarted by hand is in service before the next goes out",
        of=lambda: cluster(6), wanted=HOOKED,
        befalls=[
            at("hook_before_stop", mishaps.Unreadable(seconds=30.0)),
            at("hook_before_stop", mishaps.NodeDies(node=ES2, back_after=1.0))
        ],
        within=600.0, lives={}, hooks={ES2: IN_SERVICE}, shows=_in_service_before_the_next),
    *(
        Scene(name=f"hooks: one that was {one('stop').how.name} is undone as one that ran",
            wanted=HOOKED, befalls=[one("hook_before_stop", target=ES2)], ends=FAILED,
            shows=lambda played: played.hooks(ES2)[-2:] == ["after_recovery", "after_recovery"])
        for one in (lost, unheard)
    ),
    Scene(name="hooks: on a host out of reach they are repeated, however long the run holds",
        wanted=HOOKED,
        befalls=[
            _HELD_LONG, at("hook_before_stop", mishaps.SnapshotBegun(name="repo/next", seconds=300.0)),
            at("hook_before_stop", mishaps.HostCutOff(node=ES2, seconds=40.0), after=20.0)
        ],
        events={"action_failed": range(1, 100)}, hooks={ES2: IN_SERVICE * 2}),
    Scene(name="hooks: on a host out of reach each is repeated to deadlines.rejoin",
        wanted=policy(hooks=TWICE, deadlines=Deadlines(rejoin=120.0)),
        befalls=[
            _HELD_LONG, at("hook_before_stop", mishaps.SnapshotBegun(name="repo/next", seconds=3000.0)),
            at("hook_before_stop", mishaps.HostCutOff(node=ES2, seconds=9000.0), after=20.0)
        ],
        ends=FAILED, says="hook after_recovery on es2", shows=_each_to_its_limit),
    Scene(name="hooks: one that a kill came upon is undone as one that ran",
        wanted=HOOKED, killed="after hook_before_stop", then=[restore()], hooks={ES2: IN_SERVICE}),
    Scene(
        name="hooks: each process takes a node out of service before its stop",
        wanted=HOOKED,  # a load balancer may have put it back since the kill
        killed="after flush",
        then=[3600.0, resume()],
        hooks={ES2: ["before_stop", *IN_SERVICE]},
    ),
    Scene(name="HookUnproven: one that ran beside a process that rose runs in another turn",
        of=zoned, nodes={"es5": {"stop_seconds": 3.8, "start_seconds": 1.0}},
        wanted=by_zone(reboot=True, hooks=Hooks(while_stopped=(Hook(run="install {node}"),))),
        befalls=[
            first(mishaps.RisesByItself(node=NodeName("es5"), after=2.0)), unheard("reboot", target=ES2)
        ],
        shows=_ran_beside),
    Scene(name="hooks: one that fails in a stand down is a failure, and so is that of a restore",
        wanted=HOOKED,
        befalls=[asked(Request.STOP, "stop", after=1.0), refused("hook_after_recovery", times=99)],
        marks=[pytest.mark.proves("stand-down")], ends=FAILED, says="hook after_recovery on es2",
        then=[restore(ends=FAILED)]),
    Scene(name="hooks: one that fails after a wave is reported once",
        wanted=HOOKED, befalls=[_FAILS_AFTER], ends=FAILED, shows=_reported_once),
    Scene(name="hooks: a node that awaits its copies when its hook fails is named so",
        wanted=HOOKED, befalls=[_FAILS_AFTER, asked(Request.STOP, "restore_allocation")], ends=FAILED,
        shows=lambda played: any(_UNSEEN in line for line in _lines(played))),
    Scene(name="hooks: a node that FAILED is named with the hooks that it still needs",
        wanted=policy(hooks=POOL), befalls=[first(mishaps.StartsFail(node=ES2, times=3))], ends=FAILED,
        says="after_recovery hooks did not run on es2", away=[ES2], then=[resume(retry_failed=True)],
        shows=lambda played: played.state.message == ""),
)
# fmt: on


# Copies that the cluster gives up on ------------------------------------------------------------------


def _all_back(played: Played) -> None:
    played.world.agenda.advance(60.0)
    assert [shard for _, shard in shards_of(played.world) if len(shard.started) < len(shard.copies)] == []


_RECOVER_SOON: Final = policy(deadlines=Deadlines(recover=900.0))
# fmt: off
_COPIES: Final = (
    Scene(name="retry_failed: copies that the cluster gave up on are tried again",
        wanted=_RECOVER_SOON, befalls=[at("start", mishaps.AllocationsFail(index="logs", times=5))],
        sent={"retry_failed": range(1, 3)}),
    Scene(
        name="retry_failed: copies that fail for good are tried again three times in a wave",
        wanted=_RECOVER_SOON,
        befalls=[at("start", mishaps.AllocationsFail(index="logs", times=10_000))],
        ends=HELD,
        sent={"retry_failed": range(1, 4)},
        shows=lambda played: _most_failed(played) == 5 * (1 + 3),  # five in a row, after each new try
    ),
    Scene(name="retry_failed: copies that were given up later are tried again before the next wave",
        of=five,
        indices={
            "slow": {"places": [ES1, ES4], "size": 8 << 30, "keeps": 0.0},
            "apart": {"places": [ES3, ES2]}
        },
        befalls=[
            at("restore_allocation", mishaps.NodeDies(node=ES2, back_after=5.0), nth=5),
            at("restore_allocation", mishaps.AllocationsFail(index="apart", times=5), nth=5)
        ],
        sent={"retry_failed": range(1, 100)}, shows=_all_back),
    Scene(name="retry_failed: at the gates too, after a stand down and a restore",
        befalls=[
            at("start", mishaps.AllocationsFail(index="logs", times=5)),
            asked(Request.STOP, "restore_allocation", after=3.0)
        ],
        ends=INTERRUPTED, then=[restore(ends=None), resume()], sent={"retry_failed": range(1, 100)}),
)
# fmt: on


# Nodes that FAILED, and nodes that are skipped --------------------------------------------------------

_FAILS: Final = first(mishaps.StartsFail(node=ES2, times=99))
# fmt: off
_FAILED: Final = (
    *(
        Scene(name=f"--skip: goes on without a node that is down, {expected=}, {budget=}",
            of=five, wanted=policy(max_unavailable=budget, expect_nodes=expected), befalls=[_FAILS],
            ends=FAILED, away=[ES2],
            then=[7200.0, resume(skip=[ES2], says="skipped: es2", within=600.0, away=[ES2])],
            lives={ES2: 1})
        for expected, budget in ((None, None), (5, 1))
    ),
    *(
        Scene(name=f"--skip: a node whose stop was {unclear.how.name} is not started",
            of=five, befalls=[_FAILS, unclear], ends=FAILED, away=[ES2],
            then=[30.0, resume(skip=[ES2], says="skipped: es2", away=[ES2])], lives={ES2: 1})
        for unclear in (unheard("stop", target=ES2), late("stop", 10.0, ES2))
    ),
    Scene(name="--skip: another node that is down holds the run",
        of=five, wanted=HELD_SOON, befalls=[_FAILS], ends=FAILED, away=[ES2],
        then=[
            7200.0, mishaps.NodeDies(node=ES3),
            resume(skip=[ES2], ends=HELD, says="node es3", away=[ES2, ES3])
        ],
        sent={"stop": 1}),
    Scene(name="--retry-failed: a resume without it ends at once, and says why",
        befalls=[_FAILS], ends=FAILED, says="it was started 3 times", away=[ES2],
        then=[resume(ends=FAILED, says="--retry-failed", within=60.0, away=[ES2])],
        shows=lambda played: [s.message.count("it was started 3 times") for s in played.states] == [1, 1]),
)
# fmt: on

SCENES: Final = (*_EXCLUSIONS, *_REPLICAS, *_SETTINGS, *_HOOKS, *_COPIES, *_FAILED)
