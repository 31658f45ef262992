"""Runs after a bulk load, left to chance: their indices, their policy, and what goes wrong with merges."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain
from random import Random

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import BaselineRecorded, Event
from orchestrator.model.merging import LoaderSettings, MergePolicy
from orchestrator.model.reading import Instant
from orchestrator.model.work_event import MergeWarned
from orchestrator.simulation import merges, mishaps
from orchestrator.simulation.mishaps import Mishap, Trip, What
from orchestrator.simulation.world import World
from tests.simulation import index_mishaps, node_mishaps, program_mishaps
from tests.simulation.nights import HOWS
from tests.simulation.shapes import IndexShape, Shape

SHARE = 0.2
"""Of the runs merge indices first."""

_SIZES = (64 << 20, 1 << 30, 6 << 30)
_LATE = (11.0, 29.0)
"""A merge that a cluster begins after half a minute of silence is beyond what the run waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """What a seed means for merges."""

    wanted: MergePolicy
    plan: tuple[Mishap, ...]
    trips: tuple[Trip, ...]
    task_list: bool  # the version has one


def by_chance(seed: int, drawn: Shape) -> tuple[Shape, Merging | None]:
    """In one run of five; by dice of its own, so that all else of a seed stays."""
    dice = Random(f"merging {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() >= SHARE:
        return drawn, None
    data = [node.name for node in drawn.nodes if node.holds_data]
    count = dice.randint(1, 4)
    allow_writes = dice.random() < 0.2
    loaded = tuple(_index(dice, number, data, allow_writes=allow_writes) for number in range(1, count + 1))
    task_list = dice.random() < 0.75
    wanted = _policy(dice, drawn, allow_writes=allow_writes)
    plan = tuple(_mishap(dice, data, count) for _ in range(dice.choice((0, 1, 1, 2, 3))))
    if not task_list:
        # A merge that waits in a node's queue behind another one cannot be told from one that has ended.
        wanted = replace(wanted, per_node=1)
        plan = tuple(one for one in plan if not isinstance(one.what, index_mishaps.MergedByOthers))
    bare = {index.name for index in loaded if index.replicas == 0}
    # A closed index can be given no replica, and its only copy goes with its node: its operator has to act.
    plan = tuple(
        one
        for one in plan
        if not (isinstance(one.what, index_mishaps.IndexClosed) and one.what.index in bare)
    )
    merging = Merging(
        wanted=wanted,
        plan=plan,
        trips=tuple(_trip(dice) for _ in range(dice.choice((0, 0, 1, 2)))),
        task_list=task_list,
    )
    return replace(drawn, indices=(*drawn.indices, *loaded)), merging


def _index(dice: Random, number: int, data: list[str], *, allow_writes: bool) -> IndexShape:
    replicas = dice.choice((0, 1, 1, 2))
    return IndexShape(
        name=f"posts-{number}",
        shards=dice.choice((1, 2, 3)),
        replicas=min(replicas, len(data) - 1),
        # The replica that one without is given is copied whole while the gates hold, for minutes at most.
        size=dice.choice(_SIZES if replicas else _SIZES[:1]),
        written=allow_writes and dice.random() < 0.5,
        places=tuple(dice.sample(data, len(data))),
        segments=dice.choice((1, 12, 30, 30)),
        refresh=dice.choice((None, None, "-1")),
        durability=dice.choice((None, "async")),
    )


def _policy(dice: Random, drawn: Shape, *, allow_writes: bool) -> MergePolicy:
    # A copy that a forced zone has no room for never comes, and the run stands down for it each time.
    may_grow = drawn.awareness is None
    return MergePolicy(
        patterns=("posts-*",),
        max_segments=dice.choice((1, 5, 5)),
        allow_writes=allow_writes,
        at_once=dice.choice((1, 2, 2, 3)),
        per_node=dice.choice((1, 1, 2)),
        put_right=LoaderSettings(
            number_of_replicas=1 if may_grow and dice.random() < 0.4 else None,
            refresh_interval=dice.choice((None, "1s", "")),
            translog_durability=dice.choice((None, "request")),
        ),
        deadline=dice.choice((8 * 3600.0, 8 * 3600.0, 400.0)),
    )


def _trip(dice: Random) -> Trip:
    return Trip(
        verb=dice.choice(("force_merge", "force_merge", "refresh", "set_index_settings")),
        how=dice.choice(HOWS),
        first=dice.randint(1, 3),
        times=dice.choice((1, 1, 2)),
        late=dice.uniform(*_LATE),
    )


def _mishap(dice: Random, data: list[str], count: int) -> Mishap:
    """Mostly right after an index was asked to merge, or while it is."""
    what = _what(dice, NodeName(dice.choice(data)), f"posts-{dice.randint(1, count)}")
    if dice.random() < 0.3:
        return Mishap(what=what, after=dice.uniform(0.0, 120.0))
    verb = dice.choice(("force_merge", "force_merge", "force_merge", "refresh", "stop"))
    return Mishap(
        what=what, verb=verb, nth=dice.randint(1, 3), after=dice.choice((0.0, 0.05, 1.0, 10.0, 40.0))
    )


def _what(dice: Random, node: NodeName, index: str) -> What:
    choices: tuple[What, ...] = (
        index_mishaps.WriterBegins(index=index, seconds=dice.choice((3.0, 30.0, 600.0))),
        index_mishaps.MergedByOthers(index=index, max_segments=dice.choice((1, 5, 10))),
        index_mishaps.IndexDeleted(index=index, made_again=dice.random() < 0.5),
        index_mishaps.IndexClosed(index=index),
        node_mishaps.DiskFills(
            node=node, share=dice.choice((0.8995, 0.9999)), seconds=dice.choice((60.0, 900.0))
        ),
        program_mishaps.SegmentsUnreadable(seconds=dice.choice((5.0, 400.0))),
        mishaps.NodeDies(node=node, back_after=dice.choice((5.0, 40.0, 300.0))),
        node_mishaps.RestartedByHand(node=node),
        program_mishaps.StaleReadings(seconds=dice.choice((3.0, 60.0))),
        mishaps.LeaseRemoved(),
    )
    return dice.choice(choices)


def unmerged(world: World, state: RunState, begun: float, written: Collection[Event]) -> list[str]:
    """Copies that have too many segments at the end of a run that is done.

    Not of an index that was written since it was `begun`: what is written makes segments. Of copies that were
    not there to be merged the run has to say that they came back, unless they did after its last look: those
    away when the merge was asked for, and in a run that found the merge under way those missing at its start.
    `written` is the journal.
    """
    merge = state.begun.policy.merge
    warned = [event for event in written if isinstance(event, MergeWarned)]
    started = [event.missing for event in written if isinstance(event, BaselineRecorded)]
    said = {event.index_uuid for event in warned}
    uncounted = any("could not be counted" in event.what for event in warned)
    found: list[str] = []
    for uuid in state.merging.indices if merge else ():
        index = world.indices.get(uuid)
        still = index is not None and not index.closed and not index.written and index.turned_at < begun
        if not still or merge is None:
            continue
        under_way = state.merging.indices[uuid].asked == 0
        missing = [one for one in chain(*started) if one.index_uuid == uuid and under_way]
        lost = tuple(f"[{index.name}][{one.number}] on" for one in missing)
        there = merges.unmerged(world, uuid, merge.max_segments)
        back = merges.unmerged(world, uuid, merge.max_segments, away=True)
        back += [copy for copy in there if copy.startswith(lost)]
        found += [copy for copy in there if copy not in back]
        seen = [copy for copy in back if not _started_since(world, copy, world.last_read)]
        found += [f"{copy}, and nothing says so" for copy in seen if uuid not in said and not uncounted]
    return found


def _started_since(world: World, copy: str, since: Instant) -> bool:
    shard, _, place = copy.partition(":")[0].partition(" on ")
    return any(at >= since and what == f"{shard} started on {place}" for at, what in world.story)
