"""Golden traces: scenes told line by line. `ORCHESTRATE_REWRITE_GOLDEN=1` writes them: read them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.engine.kinds.elasticsearch.settings import awareness_of
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Policy
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.world import World
from tests.simulation.loaded import RIGHT, left_behind, loaded, merged_policy, merging
from tests.simulation.narrate import narrate
from tests.simulation.play import cluster, policy
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


def test_traces_are_as_recorded() -> None:
    told = {
        scene.name: narrate(played.simulation, played.state) for scene in SCENES for played in [scene.play()]
    }
    if os.environ.get("ORCHESTRATE_REWRITE_GOLDEN"):
        for name, text in told.items():
            (TRACES / f"{name}.txt").write_text(text, encoding="utf-8")
    assert told == {path.stem: path.read_text(encoding="utf-8") for path in TRACES.glob("*.txt")}
