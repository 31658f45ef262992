"""Golden traces: scenes told line by line. `ORCHESTRATE_REWRITE_GOLDEN=1` writes them: read them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.elasticsearch.rules.settings import awareness_of
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, WriteSettings, action_name, action_target
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    Event,
    GoodReading,
    Hold,
    NodeRecovered,
    PhaseEntered,
    Requested,
    Rescued,
    RestoreBegun,
    RunFinished,
    RunResumed,
    SecondFailure,
    SettingChanged,
    SettingRestored,
    StandingDown,
    WaveStarted,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Policy
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.world import World
from tests.simulation.loaded import RIGHT, left_behind, loaded, merged_policy, merging
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation
from tests.simulation.scene import (
    ES1,
    ES2,
    ES5,
    FAILED,
    INTERRUPTED,
    PAUSED,
    Scene,
    asked,
    at,
    first,
    resume,
    unheard,
)
from tests.simulation.zones import by_zone, forced, lopsided, paired, zoned

TRACES: Final = Path(__file__).resolve().parents[1] / "data" / "traces"
HANGS: Final = first(mishaps.StopHangs(node=ES2, repaired_after=900.0))
SHORT: Final = Deadlines(stop=120.0, start=300.0)
NEW: Final = mishaps.IndexMade(name="new", on=ES2)
REPAIRED: Final = {"ends": FAILED, "away": None, "then": [60.0, resume(retry_failed=True)]}
UNHUNG: Final = {**REPAIRED, "befalls": [HANGS], "then": [900.0, resume(retry_failed=True)]}


def _enabled() -> World:
    world = cluster(3)
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")
    return world


def _by_forced_zone() -> Policy:
    _, awareness = awareness_of(views.readings(forced()).settings, "zone")
    return by_zone(awareness=awareness)


def _loaded() -> World:
    return left_behind(loaded(indices=2, replicas=0))


def _fails(*nodes: str) -> list[mishaps.Mishap]:
    return [first(mishaps.StartsFail(node=node, times=3)) for node in (ES2, ES5) if node in nodes]


# fmt: off
SCENES: Final = (
    Scene(name="undisturbed", of=_enabled),
    Scene(name="start_fails", befalls=_fails(ES2), **REPAIRED),
    Scene(name="stop_hangs", wanted=policy(deadlines=SHORT), **UNHUNG),
    Scene(name="master_dies", of=partial(cluster, 5),
        befalls=[at("stop", mishaps.NodeDies(node=ES1, back_after=120.0), after=2.0)],
        ends=FAILED, away=None, then=[300.0, resume()]),
    Scene(name="rescue", befalls=[at("stop", NEW, ES2)]),
    Scene(name="hold_then_passes", befalls=[at("set_allocation", NEW, after=0.05)]),
    Scene(name="canary", wanted=policy(pause_after=1), ends=PAUSED, then=[60.0, resume()]),
    Scene(name="interrupted_in_wave",
        befalls=[asked(Request.INTERRUPT, "stop", after=2.0)], ends=INTERRUPTED, then=[60.0, resume()]),
    Scene(name="zones", of=zoned, wanted=by_zone()),
    Scene(name="zone_with_both_copies", of=paired, wanted=by_zone()),
    Scene(name="zone_of_three_beside_zones_of_one", of=lopsided, wanted=by_zone()),
    # A whole zone fails to start: nothing of it is rebuilt elsewhere, and it comes back as it went.
    Scene(name="zone_under_forced_awareness", of=forced, wanted=_by_forced_zone(), befalls=_fails(ES2, ES5),
        **{**REPAIRED, "then": [600.0, resume(retry_failed=True)]}),
    Scene(name="zone_with_a_node_that_fails_to_start",
        of=zoned, wanted=by_zone(), befalls=_fails(ES2), **REPAIRED),
    Scene(name="zone_with_a_host_that_hangs_in_stop",
        of=zoned, wanted=by_zone(deadlines=SHORT), **UNHUNG),
    Scene(name="after_a_bulk_load", of=_loaded, wanted=merged_policy(merging(put_right=RIGHT)),
        befalls=[unheard("force_merge", first=2)]),
)
# fmt: on


_START = 1_000_000.0


def narrate(simulation: Simulation, state: RunState) -> str:
    """What was decided on the left margin, what the world did indented beside it.

    Journal and world in the order of time; what happened at one moment, the journal first.
    """
    told = [(r.at, 0, n, line) for n, r in enumerate(simulation.journal.records) if (line := _event(r.event))]
    happened = [
        (at, 1, n, f"        | {what}")
        for n, (at, what) in enumerate(simulation.world.story)
        if "begins on" not in what and "cluster.routing" not in what and "indices.recovery" not in what
    ]
    lines = [f"{at - _START:8.1f} {line}" for at, _, _, line in sorted([*told, *happened])]
    lives = ", ".join(f"{node.name} life {node.life}" for node in simulation.world.nodes.values())
    end = f"{state.outcome.value if state.outcome else 'unfinished'}; {lives}"
    settings = simulation.world.settings()
    return "\n".join(
        [*lines, f"end: {end}", f"settings: persistent {settings[0]} transient {settings[1]}", ""]
    )


def _verb(action: Action) -> str:
    changes = (
        " " + ", ".join(f"{c.key.rpartition('.')[2]}[{c.level.value[0]}]={c.wanted}" for c in action.changes)
        if isinstance(action, WriteSettings)
        else ""
    )
    return f"{action_name(action)} {action_target(action)}{changes}"


def _event(event: Event) -> str | None:  # noqa: C901, PLR0911  (one line an event)
    match event:
        case ActionSent(action=action):
            return f"-> {_verb(action)}"
        case ActionConfirmed() | GoodReading():
            return None
        case ActionFailed(action=action, reason=reason, in_doubt=doubt):
            return f"!! {_verb(action)} {'in doubt' if doubt else 'refused'}: {reason}"
        case PhaseEntered(node=node, from_=old, to=new, why=why):
            return f"{node or 'run'}: {old} -> {new}" + (f" ({why})" if why else "")
        case WaveStarted(wave=wave):
            return f"wave {wave.number}: {', '.join(wave.nodes)} ({wave.why})"
        case SettingChanged(key=key, level=level, found=found, wanted=wanted):
            return f"owes {key} ({level.value}): found {found}, wanted {wanted}"
        case SettingRestored(key=key, level=level, value=value, note=note):
            return f"restored {key} ({level.value}) = {value}" + (f" ({note})" if note else "")
        case Hold(predicate=predicate, subject=subject, evidence=evidence):
            return f"hold {predicate}: {subject}: {evidence}"
        case NodeRecovered(node=node, seconds=seconds):
            return f"{node} recovered in {seconds:.1f} s"
        case Rescued(shards=shards):
            return f"rescued {', '.join(shards)}"
        case SecondFailure(what=what):
            return f"second failure: {what}"
        case Requested(request=request, by=by):
            return f"asked to {request.name.lower()} by {by}"
        case StandingDown(reason=reason):
            return f"standing down: {reason}"
        case MergeBegun(index=index, segments=segments, found=found):
            return f"merge of {index} {'found' if found else 'begun'}: {segments} segments at most"
        case IndexMerged(index=index, segments=segments, seconds=seconds, why=why):
            return f"{index} merged in {seconds:.1f} s: {segments} segments at most" + (
                f" ({why})" if why else ""
            )
        case RunResumed() | RestoreBegun():
            return f"== {event.event} =="
        case RunFinished(outcome=outcome, exit_code=code, message=message):
            return f"== {outcome.value}, exit {code}" + (f": {message}" if message else "")
        case _:
            return event.event


def test_traces_are_as_recorded() -> None:
    told = {
        scene.name: narrate(played.simulation, played.state) for scene in SCENES for played in [scene.play()]
    }
    if os.environ.get("ORCHESTRATE_REWRITE_GOLDEN"):
        for name, text in told.items():
            (TRACES / f"{name}.txt").write_text(text, encoding="utf-8")
    assert told == {path.stem: path.read_text(encoding="utf-8") for path in TRACES.glob("*.txt")}
