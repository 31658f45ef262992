"""The turn of a node, phase by phase: what is sent to it, and in which order its phases come."""

from __future__ import annotations

from typing import Final

import pytest

from orchestrator.model.phase import REBOOT, NodePhase, Request
from orchestrator.model.policy import Deadlines
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.simulation import machines, mishaps
from orchestrator.simulation.mishaps import How
from tests.simulation import node_mishaps, program_mishaps
from tests.simulation.play import cluster, policy
from tests.simulation.scene import (
    DONE,
    ES1,
    ES2,
    ES3,
    FAILED,
    HELD,
    HOOKS,
    INTERRUPTED,
    PAUSED,
    POOL,
    Played,
    Scene,
    asked,
    at,
    first,
    lost,
    refused,
    resume,
    trip,
    unheard,
)

SHORT: Final = Deadlines(stop=60.0, start=60.0, rejoin=120.0, recover=600.0, hold=600.0, reboot=60.0)
BRIEF: Final = policy(deadlines=SHORT)
OWED: Final = policy(hooks=HOOKS, deadlines=SHORT)
REBOOTED: Final = policy(reboot=True)
TURN: Final = ("stopping", "stopped", "starting", "rejoined")
WHOLE: Final = ("before_stop", "stop", "while_stopped", "start", "after_recovery", "after_recovery")


def _installed_once(played: Played) -> bool:
    return played.verbs(ES2).count("while_stopped") == 1


def _none_after(played: Played) -> bool:
    """No other node was stopped after es2."""
    return played.verbs(ES3) == []


def _waits_for_its_reboot(played: Played) -> None:
    (waits,) = (node for node in played.state.nodes.values() if node.phase is NodePhase.REJOINED)
    assert REBOOT in waits.owed, "it is up, and its turn is not over"
    assert {node.phase for node in played.state.nodes.values()} == {NodePhase.PENDING, NodePhase.REJOINED}


def _renamed(played: Played) -> None:
    played.world.agenda.after(60.0, lambda: played.world.add_node("es2-renamed"))


def _never_installed(played: Played) -> None:
    assert "while_stopped" not in played.verbs(ES2)


def _starts(played: Played, times: int) -> None:
    assert played.verbs(ES2).count("start") == times


def _last_phases(played: Played, *phases: str) -> None:
    assert played.phases(ES2)[-len(phases) :] == [*phases]


def _enabled_with_es2(played: Played) -> None:
    enabled = [
        at for at, said in played.world.story if said.endswith("allocation.enable (persistent) = None")
    ]
    assert enabled
    for until in enabled:
        here = [what for at, what in played.world.story if at <= until and what in ("es2 left", "es2 joined")]
        assert here[-1:] in ([], ["es2 joined"])


def _boots_of_es2(played: Played, times: int) -> None:
    assert played.world.nodes[ES2].boot == times


def _recovered(played: Played, count: int) -> None:
    assert played.state.recovered == count


# fmt: off
AUTOMATON: Final = (
    Scene(name="interrupted in STOPPED: started at once, and its hook runs in another turn",
        wanted=OWED, befalls=[asked(Request.INTERRUPT, "stop", ES2, after=1.0)], ends=INTERRUPTED,
        within=60.0, then=[_never_installed, resume()],
        phases={ES2: ["stopping", "starting", "rejoined", "pending", *TURN, "recovered"]},
        shows=_installed_once),
    Scene(name="RisesByItself: no start is sent, and the while_stopped hook runs in another turn",
        nodes={ES2: {"rises_after": 0.01}}, wanted=OWED,
        phases={ES2: ["stopping", "starting", "rejoined", "pending", *TURN, "recovered"]},
        verbs={ES2: ["before_stop", "stop", "after_recovery", "after_recovery", *WHOLE]}),
    Scene(
        name="killed in STOPPED and booted by itself: the restart counts, the hook is still owed",
        wanted=OWED,
        killed="after stop of es2",
        then=[20.0, node_mishaps.RestartedByHand(node=ES2), 60.0, resume()],
        shows=lambda played: (
            _installed_once(played) and played.phases(ES2)[:3] == ["stopping", "starting", "rejoined"]
        ),
    ),
    Scene(name="FAILED after three starts; --retry-failed goes on where it is",
        wanted=OWED, befalls=[first(mishaps.StartsFail(node=ES2, times=3))], ends=FAILED, away=[ES2],
        then=[
            lambda played: _starts(played, 3),
            lambda played: _last_phases(played, "starting", "failed"), resume(retry_failed=True)
        ],
        sent={"stop es2": 1, "hook_while_stopped es2": 1}),
    Scene(name="FAILED and started by people: the run takes the node as it is",
        wanted=OWED, befalls=[first(mishaps.StartsFail(node=ES2, times=3))], ends=FAILED, away=[ES2],
        then=[node_mishaps.RestartedByHand(node=ES2), 60.0, resume()], sent={"stop es2": 1},
        shows=lambda played: _last_phases(played, "failed", "rejoined", "recovered")),
    Scene(name="restarted before its turn: put into service, and needs no stop",
        wanted=policy(hooks=POOL, deadlines=SHORT),
        befalls=[at("hook_before_stop", mishaps.NodeDies(node=ES2, back_after=1.0), ES2)], lives={},
        verbs={ES2: ["before_stop", "after_recovery"]}),
    Scene(name="StopHangs: the run stands down at deadlines.stop, and starts the node once it is gone",
        wanted=BRIEF, befalls=[first(mishaps.StopHangs(node=ES2, repaired_after=80.0))], ends=FAILED,
        says="es2 did not stop within 1m 0s"),
    Scene(name="HostCutOff in STOPPED: started after half a minute, and the hook is owed",
        wanted=OWED, befalls=[at("stop", mishaps.HostCutOff(node=ES2, seconds=45.0), ES2, after=2.0)],
        shows=_installed_once),
    Scene(name="RestartedByHand while it recovers: accounted for, and no failure",
        wanted=BRIEF, befalls=[at("restore_allocation", node_mishaps.RestartedByHand(node=ES2), after=0.05)],
        lives={ES2: 3}),
    Scene(name="a node that never joins has FAILED at its limit, and nothing else is stopped",
        nodes={ES2: {"join_seconds": 100_000.0}}, wanted=BRIEF, ends=FAILED, says="es2", away=[ES2],
        shows=_none_after),
    Scene(name="a node under another name has FAILED, and the run says which name joined instead",
        nodes={ES2: {"join_seconds": 100_000.0}}, wanted=BRIEF, prepares=_renamed, ends=FAILED,
        says="es2-renamed joined instead: compare `node.name`", away=[ES2], shows=_none_after),
    Scene(name="DiskLost: another node id and no copies, and it is back once they are rebuilt",
        wanted=BRIEF, befalls=[first(node_mishaps.DiskLost(node=ES2))],
        phases={ES2: [*TURN, "recovered"]},
        shows=lambda played: played.world.nodes[ES2].node_id == "id-es2-anew"),
    Scene(name="--skip of a node whose before_stop hooks ran: they are undone",
        wanted=OWED, killed="after hook_before_stop", then=[resume(skip=[ES2])], lives={ES2: 1},
        verbs={ES2: ["before_stop", "after_recovery", "after_recovery"]}),
    Scene(name="--skip: all of its hooks are undone, though the cluster is not read between them",
        wanted=OWED,
        befalls=[
            first(mishaps.StartsFail(node=ES2, times=3)),
            at("hook_after_recovery", mishaps.Unreadable(seconds=20.0), ES2, after=0.05)
        ],
        ends=FAILED, away=[ES2],
        then=[node_mishaps.RestartedByHand(node=ES2), 60.0, resume(skip=[ES2])],
        verbs={ES2: [*WHOLE[:4], "start", "start", *WHOLE[4:]]}),
    Scene(name="the last node, restarted before its turn and then not read, still gets its turn",
        wanted=OWED,
        befalls=[
            at("hook_before_stop", node_mishaps.RestartedByHand(node=ES1), ES1, after=0.05),
            at("hook_after_recovery", mishaps.Unreadable(seconds=20.0), ES1, after=0.05)
        ],
        lives={ES1: 3}, phases={ES1: ["rejoined", "pending", *TURN, "recovered"]}),
    Scene(name="a reboot that is lost is waited for, and sent again",
        wanted=policy(reboot=True, deadlines=SHORT), befalls=[lost("reboot")], boots={}),
)
# fmt: on


# fmt: off
_OF_A_START: Final = (
    *(
        Scene(name=f"ProgramStalls {seconds:.0f} s, {after} s after a start, {reads.name}",
            befalls=[
                first(mishaps.StartsFail(node=ES2, times=1)),
                at("start", mishaps.ProgramStalls(seconds=seconds), ES2, after=after)
            ],
            reads=reads, ends=ends, says=says, events={"node_failed": 0}, then=then, lives={})
        for after, reads in zip((1.0, 6.0, 7.9), ReadingOrder, strict=True)
        for seconds, ends, says, then in (
            (1200.0, DONE, "", ()),
            (3600.0, FAILED, "allocation was disabled for", (resume(),)),
        )
    ),
    Scene(name="ProgramStalls: a host that is not read after it is not unstopped",
        nodes={ES2: {"stop_seconds": 30.0}},
        befalls=[
            at("stop", mishaps.ProgramStalls(seconds=1200.0), ES2, after=5.0),
            at("stop", mishaps.HostCutOff(node=ES2, seconds=1230.0), ES2, after=4.0)
        ]),
    Scene(name="second_failure: a node that needed three starts dies again, and is started again",
        befalls=[
            first(mishaps.StartsFail(node=ES2, times=2)),
            at("restore_allocation", mishaps.NodeDies(node=ES2), after=1.0)
        ],
        ends=FAILED, says="left the cluster again", then=[resume()]),
    Scene(
        name="second_failure: a node that rejoined and leaves is started within a minute",
        indices={"big": {"shards": 1, "places": [ES1, ES2], "size": 10 << 30, "keeps": 0.0}},
        befalls=[at("restore_allocation", mishaps.NodeDies(node=ES2), after=5.0)],
        ends=FAILED,
        shows=lambda played: (
            played.happened("es2 joined", since=played.happened("es2 dies")) - played.happened("es2 dies")
            < 60.0
        ),
        marks=[pytest.mark.proves("second-failure")],
    ),
    *(
        Scene(
            name=f"StaleReadings: a node that ended is not unstopped by an old list, {how}",
            wanted=policy(reboot=reboot),
            befalls=[
                at("stop", program_mishaps.StaleReadings(seconds=90.0), ES2),
                *[at("stop", node_mishaps.DiesAgain(node=ES2, after=1.0), ES2)] * dies,
            ],
            shows=lambda played: (
                "pending" not in played.phases(ES2) and played.world.nodes[ES2].restarts_by_us == 1
            ),
        )
        for how, reboot, dies in (
            ("restarted", False, 0),
            ("restarted, and it dies again", False, 1),
            ("rebooted", True, 0),
            ("rebooted, and it dies again", True, 1),
        )
    ),
    Scene(name="StaleReadings: allocation is enabled only with the node, which joined and is gone again",
        befalls=[
            at("start", program_mishaps.StaleReadings(seconds=20.0), nth=1, after=10.1),
            at("start", mishaps.NodeDies(node=ES2), after=10.2)
        ],
        ends=None, shows=_enabled_with_es2, marks=[pytest.mark.proves("rejoined")]),
    Scene(name="--retry-failed: a node whose host was away and that never stopped is seen to run",
        befalls=[at("stop", mishaps.HostCutOff(node=ES2, seconds=2000.0)), lost("stop")], ends=FAILED,
        then=[2000.0, resume(retry_failed=True, within=200.0)], lives={}),
    Scene(name="DiskFull: a start that was not journalled after a stop in doubt counts",
        befalls=[at("stop", mishaps.DiskFull(seconds=600.0))], ends=FAILED, then=[600.0, resume()],
        events={"node_recovered": 3}, lives={}),
    *(
        Scene(name=f"ClockSet by {set_by:.0f} s: a stop in doubt, {how.name}, is settled all the same",
            befalls=[trip("stop", how)], killed="after the commit of action_failed",
            then=[program_mishaps.ClockSet(seconds=set_by), resume(within=200.0)], lives={})
        for set_by in (-86400.0, 86400.0)
        for how in (How.LOST, How.UNACKNOWLEDGED)
    ),
    Scene(name="RestartedByHand of a node that a dead process knew as stopped counts as its restart",
        killed="after stop of es2",
        then=[lambda played: machines.restart(played.world, played.world.nodes[ES2]), 60.0, resume()],
        lives={ES2: 2}),
)
# fmt: on


# fmt: off
_REBOOTS: Final = (
    Scene(
        name="reboot: after a signal it is done by the resume",
        wanted=REBOOTED,
        befalls=[asked(Request.INTERRUPT, "stop", after=1.0)],
        ends=INTERRUPTED,
        within=60.0,  # a node that was only started is not waited for
        then=[lambda played: _boots_of_es2(played, 1), resume()],
        boots={},
        marks=[pytest.mark.proves("rebooted")],
    ),
    Scene(
        name="reboot: a rescued node is started without it at once",
        wanted=REBOOTED,
        befalls=[at("stop", mishaps.IndexMade(name="new", on=ES2, replicas=0))],
        ends=HELD,
        boots={ES1: 1, ES2: 1},
        shows=lambda played: (
            played.happened("cluster.routing.allocation.enable (persistent) = None") < played.began + 60.0
        ),
    ),
    Scene(name="reboot: a slow boot has deadlines.reboot in a stand down",
        nodes={ES2: {"reboot_seconds": 900.0}}, wanted=REBOOTED,
        befalls=[asked(Request.INTERRUPT, "reboot", after=5.0)], ends=INTERRUPTED,
        boots={ES1: 1, ES3: 1}),
    Scene(name="reboot: a service that no boot starts is started by the run",
        nodes={"*": {"starts_at_boot": False}}, wanted=REBOOTED, boots={}),
    Scene(name="reboot: a node whose index is a searchable snapshot is no rescue",
        indices={
            "mounted": {"replicas": 0, "places": [ES2], "written": False, "searchable_snapshot": True}
        },
        wanted=REBOOTED, boots={}, lives={}),
    Scene(
        name="reboot: none is begun once the lease is lost",  # which shows at the next heartbeat
        nodes={"*": {"stop_seconds": 20.0}},
        wanted=policy(reboot=True, deadlines=Deadlines(hold=60.0)),
        befalls=[at("stop", mishaps.LeaseRemoved(), after=1.0)],
        ends=HELD,
        then=[lambda played: _boots_of_es2(played, 1), resume()],
        boots={},
    ),
    Scene(
        name="reboot: one that was lost is not repeated without the lease",  # the node is started instead
        wanted=REBOOTED,
        befalls=[at("reboot", mishaps.LeaseRemoved(), after=5.0), lost("reboot")],
        ends=None,
        says="lease",
        sent={"reboot": 1},
    ),
    *(
        Scene(name=f"reboot: in doubt, {one('reboot').how.name}, it is sent again if it was not done",
            wanted=REBOOTED, befalls=[one("reboot")], within=400.0, boots={}, sent={"reboot": times})
        for one, times in ((lost, 4), (unheard, 3))
    ),
    *(
        Scene(
            name=f"reboot: a stand down does not wait for one that is never done, {one('reboot').how.name}",
            wanted=policy(reboot=True, deadlines=Deadlines(reboot=120.0)),
            befalls=[one("reboot", times=99)],
            ends=FAILED,
            within=120.0 + 90.0,
            shows=_waits_for_its_reboot,
        )
        for one in (lost, refused)
    ),
    Scene(name="reboot: proven by another boot, and by no restart",
        wanted=policy(
            reboot=True, deadlines=Deadlines(stop=60.0, start=60.0, reboot=120.0, rejoin=60.0)
        ),
        befalls=[first(mishaps.RisesByItself(node=ES2, after=0.0))], boots={},
        marks=[pytest.mark.proves("rebooted")]),
    Scene(name="reboot: each machine boots once", wanted=REBOOTED, boots={}, lives={}),
)
# fmt: on


# fmt: off
_UNDISTURBED: Final = (
    *(
        Scene(
            name=f"undisturbed: each of {nodes} nodes once, every setting as found, the master last",
            of=lambda nodes=nodes: cluster(nodes),
            wanted=policy(hooks=HOOKS),
            lives={},
            hooks={ES2: ["before_stop", "while_stopped", "after_recovery", "after_recovery"]},
            shows=lambda played: played.waves[-1] == (ES1,) and not played.state.unrestored.anything,
        )
        for nodes in (3, 6)
    ),
    Scene(name="pause_after: a canary pauses once, and a resume goes on to the end",
        of=lambda: cluster(5), wanted=policy(pause_after=1), ends=PAUSED,
        says="paused after 1 node, as asked", then=[lambda played: _recovered(played, 1), resume()],
        lives={}),
    Scene(name="pause_after: a canary counts over a kill",
        of=lambda: cluster(5), wanted=policy(pause_after=2), killed="after stop of es3",
        then=[resume(ends=PAUSED)], shows=lambda played: _recovered(played, 2)),
    Scene(name="pause_after: a canary pauses though somebody paused the run before",
        of=lambda: cluster(6), wanted=policy(pause_after=3), befalls=[asked(Request.PAUSE, "start")],
        ends=PAUSED,
        then=[
            lambda played: _recovered(played, 1), resume(ends=PAUSED),
            lambda played: _recovered(played, 3), resume()
        ],
        lives={}),
)
# fmt: on


SCENES: Final = (*AUTOMATON, *_OF_A_START, *_REBOOTS, *_UNDISTURBED)
