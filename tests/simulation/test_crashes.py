"""Killed at every point: before a commit, after it, and after an action before its outcome is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache, partial
from typing import Final

import pytest

from orchestrator.model.event import Overlapping, OwedAgain
from orchestrator.model.policy import Strategy
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.simulation import merges
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, lives, policy
from tests.simulation.ringed import by_sets, riak_policy, ringed, rolling, unlocated
from tests.simulation.safe_sets import neighbours
from tests.simulation.scene import (
    EVERY,
    HOOKS,
    Attempt,
    Played,
    Scene,
    elsewhere,
    late,
    restore,
    resume,
)
from tests.simulation.sharing import rebooting, sharing
from tests.simulation.upgrading import TARGET, upgrading
from tests.simulation.ways import WAYS, world_of


def _unmerged(world: World) -> list[str]:
    loads = [uuid for uuid, index in world.indices.items() if index.name != "logs"]
    return [copy for uuid in loads for copy in merges.unmerged(world, uuid, 5)]


def _merged_once(played: Played) -> bool:
    return not _unmerged(played.world) and max(played.world.forced.asked.values()) == 1


def _upgraded_once(played: Played) -> None:
    """Every step ran once on every node."""
    world = played.world
    facts = Counter(fact.what for node in world.nodes.values() for fact in node.facts)
    assert {node.version for node in world.nodes.values()} == {TARGET}
    assert (facts["installed 0"], facts["installed 1"]) == (3, 3)


def _as_their_files_say(played: Played) -> None:
    """Every limit is as found, and nothing is at a fallback."""
    assert isinstance(played.world, RiakWorld)
    assert played.world.fallbacks == []


def _learning() -> World:
    world = cluster(3)
    world.persistent[ML_UPGRADE_MODE] = "false"
    return world


def _way(name: str, **more: object) -> Scene:
    return Scene(**{"name": name, "lives": {}, **more})


_SETS: Final = policy(strategy=Strategy.SHARD_SAFE, max_unavailable=None)
RUNS: Final = {
    scene.name: scene
    for scene in (
        *(_way(way, of=partial(world_of, way), wanted=wanted) for way, (_, wanted) in WAYS.items()),
        _way("hooks", wanted=policy(hooks=HOOKS)),
        _way("rebooted", of=sharing, wanted=rebooting(), boots={}),
        _way("upgraded", of=_learning, wanted=upgrading(), shows=_upgraded_once),
        _way("sets", of=neighbours, wanted=_SETS),
        _way("riak", of=partial(ringed, 4, 16), wanted=riak_policy(), shows=_as_their_files_say),
        _way("riak in sets", of=unlocated, wanted=by_sets(), shows=_as_their_files_say),
        _way("hastened", of=partial(rolling, 4, 16), wanted=riak_policy(hasten_handoff=True)),
    )
}
"""How the run goes that is killed."""
RUNS["merged"] = replace(RUNS["merged"], shows=_merged_once)


@cache
def _points(name: str) -> tuple[str, ...]:
    """The points that the run passes undisturbed."""
    return tuple(RUNS[name].play().simulation.seams.passed)


def _killed(name: str, point: int, *then: Attempt | float, **more: object) -> None:
    what = _points(name)[point - 1]
    if "run_finished" in what and what.startswith("after"):
        then = ()  # what is left is a lease without a pending change, which runs out
    replace(RUNS[name], name=f"{name}: {what}", killed=point, then=then, **more).play()


def _once_more(played: Played) -> None:
    """A node that was brought up before its turn was over has another one."""
    again = [event.node for event in played.found(OwedAgain)]
    assert len(again) <= 2
    assert lives(played.world) == {name: 2 + again.count(name) for name in played.world.nodes}


def _restarted_once_at_most(played: Played) -> None:
    assert max(lives(played.world).values()) <= 2


def _some(name: str, first: int) -> range:
    """By turns with the other test; where every point is wanted, both take it."""
    return range(first, len(_points(name)) + 1, 2 * EVERY if EVERY > 1 else 1)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.proves("killed")
def test_resume_ends_like_an_undisturbed_run(name: str, subtests: pytest.Subtests) -> None:
    for point in _some(name, 3):
        with subtests.test(point=point):
            _killed(name, point, float(point % 3) * 5.0, resume())


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.proves("killed")
def test_restore_puts_everything_back(name: str, subtests: pytest.Subtests) -> None:
    """On the same machine, on another one, which has only the record, and then resumed to the end."""
    for number, point in enumerate(_some(name, 3 + EVERY)):
        with subtests.test(point=point):
            then, shows = _RESTORED[number % 3]
            _killed(name, point, 60.0, *then, lives=None, boots=None, shows=shows)


_RESTORED: Final = (
    ((restore(),), _restarted_once_at_most),
    ((elsewhere(nothing=True),), _restarted_once_at_most),
    ((restore(), resume()), _once_more),
)


# What each way does -----------------------------------------------------------------------------------


def test_the_runs_that_are_killed_do_what_they_are_named_for() -> None:
    zone, overlap, merged = (RUNS[way].play() for way in ("zone", "overlap", "merged"))
    assert zone.waves == [("es2", "es5"), ("es3", "es6"), ("es4", "es1")]
    assert len(overlap.found(Overlapping)) >= 3
    assert _unmerged(RUNS["merged"].world())
    assert len([point for point in merged.simulation.seams.passed if "force_merge" in point]) == 2
    assert len(_points("riak")) > 100


# In a merge -------------------------------------------------------------------------------------------


def _in_a_merge(first: int, every: int) -> range:
    """Points between the beginning of the merges and the first wave."""
    return range(first + 4, 2 + _points("merged").index("after refresh of index posts-2"), every)


@pytest.mark.parametrize("after", [0.5, 30.0])
def test_killed_in_a_merge_no_index_is_merged_twice(after: float, subtests: pytest.Subtests) -> None:
    """Each is asked for once, whenever somebody takes the run up: it finds what runs, or what was made."""
    for point in _in_a_merge(1, max(1, EVERY // 3)):
        with subtests.test(point=point):
            _killed("merged", point, after, resume())


def test_killed_in_a_merge_another_machine_begins_anew(subtests: pytest.Subtests) -> None:
    def again(played: Played) -> None:
        played.simulation = played.simulation.elsewhere("run-3")

    begins = Attempt(begins=lambda played: played.simulation.begin(RUNS["merged"].wanted))
    for point in _in_a_merge(2, max(3, EVERY)):
        with subtests.test(point=point):
            then = (95.0, elsewhere(nothing=True), again, begins)
            replace(RUNS["merged"], killed=point, then=then, shows=lambda p: not _unmerged(p.world)).play()


@pytest.mark.parametrize("seconds", [12.0, 22.0, 29.0])
def test_a_merge_on_its_way_at_the_kill_is_not_sent_again(seconds: float) -> None:
    """A node that stood still begins with it when another process has looked already, and found nothing."""
    killed = {"killed": "after force_merge of index posts-1", "then": [resume()]}
    replace(RUNS["merged"], befalls=[late("force_merge", seconds)], **killed).play()
