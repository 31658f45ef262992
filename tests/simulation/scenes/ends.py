"""How a run ends for people: what its last line says to type is typed, and does what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.phase import Request
from orchestrator.model.policy import Selection
from orchestrator.simulation import allocation
from orchestrator.simulation.mishaps import NodeDies, SnapshotBegun, StartsFail
from orchestrator.simulation.world import World
from orchestrator.view.summary import summary, summary_lines
from tests.simulation.ends import next_of, parsed
from tests.simulation.play import cluster, policy
from tests.simulation.scene import (
    DONE,
    ES2,
    ES3,
    FAILED,
    HELD,
    HOUR,
    INTERRUPTED,
    NOT_RESTORED,
    PAUSED,
    RESTORED,
    Attempt,
    Played,
    Scene,
    asked,
    at,
    elsewhere,
    first,
    take_over,
)
from tests.simulation.scenes.refused import LONG, taken

BARE: Final = {"bare": {"replicas": 0, "places": ["es6"]}}


def _last(played: Played) -> RunState:
    """The state of the run, also of one whose program was killed."""
    return replay(played.simulation.run, played.simulation.journal.records)


def typed(command: str, **ends: object) -> Attempt:
    """What the end, or the status of a killed run, says to type is this; it is typed."""

    def begins(played: Played) -> RunState | None:
        said = next_of(_last(played))
        assert said == f"orchestrate {command}"
        verb, given = parsed(said)
        match verb:
            case "resume":
                assert given["run"] == played.simulation.run
                return played.simulation.resume(retry_failed=given["retry_failed"])
            case "restore":
                assert given["run"] == played.simulation.run
                return played.simulation.restore()
            case _:
                assert given["cluster"] == played.world.name
                only = Selection(only=tuple(given["only"]))
                return played.simulation.begin(replace(played.simulation.policy, selection=only))

    return Attempt(begins=begins, **ends)


def _ends(*parts: str) -> Callable[[Played], None]:
    """The end of the attempt before has these lines, or parts of them."""

    def look(played: Played) -> None:
        state = played.state
        assert state.outcome is not None
        stopped = played.simulation.attempt.stopped
        end = summary(state, state.outcome, played.told, played.world.agenda.now, stopped=stopped)
        lines = summary_lines(end)
        for part in parts:
            assert any(part in line for line in lines), lines

    return look


def _replicated(played: Played) -> None:
    allocation.set_replicas(played.world, played.world.indices["bare-uuid"], 1)


def _of_six() -> World:
    return cluster(6)


# fmt: off
SCENES: Final = (
    Scene(name="ends: done, there is nothing to type", shows=lambda played: next_of(played.state) == ""),
    Scene(name="ends: a node failed", befalls=[at("stop", StartsFail(node=ES2, times=3), ES2)],
        ends=FAILED, away=[ES2],
        then=[
            _ends("✗ prod: 0 of 3 nodes restarted in ", ", then es2 failed (code 4)",
                "it was started 3 times", "Nodes down  es2", "repair es2, then continue:"),
            typed("resume run-1 --retry-failed", ends=DONE)
        ]),
    Scene(name="ends: stood down without a failed node",
        befalls=[at("start", NodeDies(node=ES3, back_after=400.0), ES2, after=3.0)], ends=FAILED, away=[ES3],
        then=[
            _ends(", then it stood down (code 4)", "a second failure: ", "repair what failed, then"),
            1500.0, typed("resume run-1 --retry-failed", ends=DONE)
        ]),
    Scene(name="ends: held", befalls=[first(SnapshotBegun(seconds=2 * HOUR))], ends=HELD, lives={},
        then=[
            _ends(", then held (code 3)", "Held by        no_running_snapshot", "Nodes down  none"),
            2 * HOUR, typed("resume run-1", ends=DONE)
        ]),
    Scene(name="ends: not begun", of=_of_six, indices=BARE, ends=HELD,
        then=[
            _ends("✗ prod: not begun: what holds it does not pass by waiting (code 3)"),
            _replicated, typed("resume run-1", ends=DONE)
        ]),
    Scene(name="ends: a node was skipped", of=_of_six, indices=BARE, wanted=policy(begin_anyway=True),
        ends=HELD,
        then=[
            _ends("correct what holds es6, then begin another run, with the options of this one:"),
            _replicated, typed("restart --cluster prod --only es6", ends=DONE)
        ]),
    Scene(name="ends: paused", wanted=policy(pause_after=1), ends=PAUSED,
        then=[
            _ends("✓ prod: 1 of 3 nodes restarted in ", ", then paused (code 9)", "Settings  as before"),
            typed("resume run-1", ends=DONE)
        ]),
    Scene(name="ends: interrupted", befalls=[asked(Request.STOP, "stop")], ends=INTERRUPTED,
        then=[
            _ends(
                "0 of 3 nodes restarted (es2 stopped and started again) in ", ", then interrupted (code 5)",
                "Not checked  es2: the run ended before its copies were checked",
            ),
            typed("resume run-1", ends=DONE)
        ]),
    Scene(name="ends: not restored, and restored by hand",
        befalls=[taken(LONG, "restore_settings", after=0.0)], ends=NOT_RESTORED,
        then=[
            _ends(", then ended NOT RESTORED (code 8)", "NOT RESTORED  setting cluster.routing",
                "have the credentials accepted, then restore:"),
            LONG, typed("restore run-1", ends=RESTORED),
            _ends("✓ prod: restored after run run-1: 3 settings as before"),
        ]),
    Scene(name="ends: killed, restored by hand, and resumed", killed="after stop of es2",
        then=[
            typed("restore run-1", ends=RESTORED),
            _ends("✓ prod: restored after run run-1: ", " settings as before; es2 started (it was down for "),
            typed("resume run-1", ends=DONE)
        ]),
    Scene(name="ends: killed, and restored by a run on the same machine", killed="after stop of es2",
        then=[
            60.0, take_over(ends=RESTORED),
            _ends(" settings as before; es2 started (it was down for 1m "),
        ]),
    Scene(name="ends: killed after a start, and restored by hand", killed="after start of es2",
        then=[
            100.0, typed("restore run-1", ends=RESTORED),
            _ends(" settings as before; es2 is in the cluster, not started by this restore"),
        ]),
    Scene(name="ends: killed after a start, and restored by another run", killed="after start of es2",
        then=[
            100.0, take_over(ends=RESTORED),
            _ends(" settings as before; es2 is in the cluster, not started by this restore"),
        ]),
    Scene(name="ends: restored from the record, where a node stays down", killed="after stop of es2",
        befalls=[at("stop", StartsFail(node=ES2, times=3), ES2)],
        then=[
            elsewhere(ends=FAILED, away=[ES2]),
            _ends("✗ prod: restore after run run-1: ", "; then es2 failed (code 4)"),
            typed("restore run-2", ends=RESTORED),
            _ends("✓ prod: restored after run run-1: es2 started"),
        ]),
)
# fmt: on
