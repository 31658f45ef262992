"""Hosts are tuned between a node's stop and its start: journalled first, named, and never in its way."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from orchestrator.model.action import TuneHost
from orchestrator.model.event import ActionFailed, ActionSent
from orchestrator.model.phase import Request
from orchestrator.model.policy import Hook, Hooks
from orchestrator.model.tuning import OnFailure, ValueChange
from orchestrator.model.work_event import TuningApplied, TuningMissed
from orchestrator.simulation import mishaps
from orchestrator.simulation.tuning import UNREADABLE
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, policy
from tests.simulation.scene import (
    DONE,
    ES1,
    ES2,
    ES3,
    FAILED,
    INTERRUPTED,
    PAUSED,
    Played,
    Scene,
    asked,
    at,
    lost,
    refused,
    resume,
    unheard,
)
from tests.simulation.tuned import WANTED, detune, profile

CUT: Final = 4.38
"""So long after the stop of a node, its tuning has been read and is not sent yet."""
PATCHED: Final = Hooks(while_stopped=(Hook(run="patch {node}"),))
TUNED: Final = ["stop", "tune", "tune", "tune", "start"]
WHEN_DOWN: Final = [pytest.mark.proves("tuned-when-down")]
SPARES: Final = [pytest.mark.proves("tuning-spares")]


def out_of_tune() -> World:
    return detune(cluster(3))


def tuning(name: str, *stopping: str, **more: object) -> Scene:
    """Every host has all values at the end, and nothing is missed, unless a row says so."""
    return Scene(
        **{
            "name": name,
            "of": out_of_tune,
            "wanted": policy(tune=profile(*stopping)),
            "events": {"tuning_missed": 0},
            "shows": as_wanted,
            **more,
        }
    )


def as_wanted(played: Played) -> None:
    assert [node.kernel for node in played.world.nodes.values()] == [WANTED] * len(played.world.nodes)


def missed(played: Played) -> list[tuple[str, str, OnFailure]]:
    return [(event.node, event.tunable, event.on_failure) for event in played.found(TuningMissed)]


def _written_first(played: Played) -> None:
    """Each change is journalled before it is made, with what was found."""
    as_wanted(played)
    for node in played.world.nodes:
        events = [
            each.event if isinstance(each, TuningApplied) else each.action
            for each in played.events
            if (isinstance(each, TuningApplied) and each.node == node)
            or (
                isinstance(each, ActionSent)
                and isinstance(each.action, TuneHost)
                and each.action.node == node
            )
        ]
        assert [isinstance(each, TuneHost) for each in events] == [True] * 3 + [False] * 3
    first = played.sent(TuneHost)[0]
    assert isinstance(first, TuneHost)
    path = "/proc/sys/vm.swappiness"
    assert first.changes == (ValueChange(path=path, found="found", wanted=WANTED["vm.swappiness"]),)
    assert [change.undone().wanted for change in first.changes if isinstance(change, ValueChange)] == [
        "found"
    ]


def _found_once(played: Played) -> None:
    """What the journal says was there before, the first word counting."""
    as_wanted(played)
    found: dict[tuple[str, str], str] = {}
    for action in played.sent(TuneHost):
        for change in action.changes if isinstance(action, TuneHost) else ():
            if isinstance(change, ValueChange):
                found.setdefault((action.node, change.path), change.found)
    assert found == {(node, f"/proc/sys/{name}"): "found" for node in played.world.nodes for name in WANTED}


def _unreadable() -> World:
    world = out_of_tune()
    world.nodes[ES1].kernel["vm.swappiness"] = UNREADABLE
    return world


def _others_set(played: Played, on_failure: OnFailure) -> None:
    """A run that stops for it sets nothing more."""
    assert missed(played) == [(ES1, "vm.swappiness", on_failure)]
    others = {tunable: value for tunable, value in WANTED.items() if tunable != "vm.swappiness"}
    assert (others.items() <= played.world.nodes[ES1].kernel.items()) is (on_failure is OnFailure.WARN)


def _one_touched(played: Played) -> None:
    assert [node.life for node in played.world.nodes.values()].count(2) == 1


def _named_untuned(played: Played) -> bool:
    tuned = ("es1", "vm.swappiness") in {(e.node, e.tunable) for e in played.found(TuningApplied)}
    return tuned or ("es1", "", OnFailure.WARN) in missed(played)


def _only_tune_failed(played: Played) -> None:
    as_wanted(played)
    assert {type(event.action) for event in played.found(ActionFailed)} == {TuneHost}


# fmt: off
SCENES: Final = (
    tuning("tune: every host is set right between stop and start, and what was found is journalled first",
        verbs=dict.fromkeys(("es1", "es2", "es3"), TUNED), shows=_written_first, marks=WHEN_DOWN),
    tuning("tune: a host that is right already is left alone",
        of=cluster, verbs={ES1: ["stop", "start"]}, shows=None),
    tuning("tune: nothing without a profile", wanted=policy(), sent={"tune": 0}, shows=None),
    tuning("tune: while_stopped hooks run before it",
        wanted=policy(tune=profile(), hooks=PATCHED),
        verbs={ES1: ["stop", "while_stopped", *TUNED[1:]]}),
    *(
        tuning(f"tune: a tunable that cannot be set, {one.how.name}, is named and ends no run",
            befalls=[one], lives={}, events={"tuning_missed": 1},
            shows=lambda played: missed(played)[0][2] is OnFailure.WARN, marks=SPARES)
        for one in (refused("tune"), lost("tune"), unheard("tune"))
    ),
    *(
        tuning(f"tune: a host that is cut off for a moment is tuned after it, on_failure {name}",
            *stopping, befalls=[at("stop", mishaps.HostCutOff(node=ES2, seconds=20.0), ES2, after=CUT)],
            shows=_only_tune_failed)
        for name, stopping in (("warn", ()), ("stop", tuple(WANTED)))
    ),
    tuning("tune: a node whose host is cut off longer is started first, and tuned in another turn",
        befalls=[at("stop", mishaps.HostCutOff(node=ES2, seconds=300.0), ES2, after=CUT)],
        lives={ES2: 3}),
    *(
        tuning(
            f"tune: on_failure stop, {one.how.name}, ends the run with its node up, and it is still owed",
            *WANTED, befalls=[one], ends=FAILED, says="vm.swappiness on es",
            events={"tuning_missed": 1}, then=[_one_touched, resume()], lives={ES2: 3}, marks=SPARES)
        for one in (refused("tune"), lost("tune"))
    ),
    *(
        tuning(
            f"tune: a value that cannot be read is never taken for right, on_failure {on_failure.value}",
            *stopping, of=_unreadable, ends=ends, events={},
            shows=partial(_others_set, on_failure=on_failure))
        for on_failure, stopping, ends in (
            (OnFailure.WARN, (), DONE),
            (OnFailure.STOP, ("vm.swappiness",), FAILED),
        )
    ),
    *(
        tuning(f"tune: a host unread for {seconds:.0f} s keeps its node down for no longer, {stopping}",
            *stopping, wanted=policy(tune=profile(*stopping), hooks=PATCHED),
            befalls=[at("hook_while_stopped", mishaps.HostCutOff(node=ES2, seconds=seconds), ES2)],
            lives={ES2: life})
        for seconds, stopping, life in ((8.0, (), 2), (60.0, (), 3), (60.0, ("vm.swappiness",), 3))
    ),
    tuning("tune: rescued, a node does not wait for it, and its next turn tunes it",
        befalls=[at("stop", mishaps.IndexMade(name="new", on=ES2), ES2)],
        events={"rescued": 1, "tuning_missed": 0}, verbs={ES2: ["stop", "start", *TUNED]},
        marks=WHEN_DOWN),
    tuning("tune: a node that comes up by itself is said to be untuned",
        nodes={ES1: {"rises_after": 0.01}}, events={}, shows=_named_untuned),
    *(
        tuning(f"tune: killed {point} the rest is set by resume",
            killed=point, then=[resume()], shows=_found_once, marks=WHEN_DOWN)
        for point in (f"after tune of {node}#{nth}" for node, nth in ((ES1, 1), (ES2, 2), (ES3, 3)))
    ),
    tuning("tune: only nodes whose turn it was",
        wanted=policy(tune=profile(), pause_after=1), ends=PAUSED, sent={"tune": 3}, shows=None),
    tuning("tune: what a stand down starts is not tuned first",
        befalls=[asked(Request.STOP, "stop", ES2, after=1.0)], ends=INTERRUPTED,
        verbs={ES2: ["stop", "start"]}, shows=None),
)
# fmt: on
