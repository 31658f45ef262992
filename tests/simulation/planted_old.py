"""Defects planted in what the program does on old versions only; see `planted.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from orchestrator.model.merging import CopySegments
from orchestrator.model.phase import Outcome
from orchestrator.simulation import merges, segments
from orchestrator.stores.elasticsearch import dialect
from tests.simulation import play
from tests.simulation.loaded import index_of, loaded, merged_policy
from tests.simulation.old import OF_1_4, OF_1_7, aged
from tests.simulation.planting import Defect, Swap

SNAPSHOT: Final = "repository/nightly"
_SNAPSHOT_SECONDS: Final = 300.0
_FEW: Final = 2


def a_snapshot_runs_on_1_7() -> str | None:
    """A snapshot is in progress when a run on 1.7 begins, whose cluster state does not list it."""
    world = aged(play.cluster(), OF_1_7, "1.7.6")
    world.begin_snapshot(SNAPSHOT)
    world.agenda.after(_SNAPSHOT_SECONDS, lambda: world.end_snapshot(SNAPSHOT))
    _, state = play.run(world)
    if world.violations:
        return world.violations[0]
    return None if state.outcome is Outcome.DONE else f"not done: {state.outcome} {state.message}"


def few_segments_on_1_4_without_a_commit() -> str | None:
    """The server has merged an index by itself on 1.4: its nodes open the last commit after a restart."""
    world = aged(loaded(indices=1), OF_1_4, "1.4.5")
    world.forced.task_list = False
    index, wanted = index_of(world, "posts-1"), merged_policy()
    assert wanted.merge is not None
    segments.merged_without_commit(world, index, _FEW)
    _, state = play.run(world, wanted=wanted)
    if left := merges.unmerged(world, index.uuid, wanted.merge.max_segments):
        return f"after the restart: {left[0]} segments"
    return None if state.outcome is Outcome.DONE else f"not done: {state.outcome} {state.message}"


def _with_snapshots_in_every_state(families: Any) -> Any:
    return {
        product: tuple((first, replace(each, snapshot_call=dialect.STATE)) for first, each in rows)
        for product, rows in families.items()
    }


OLD: Final[tuple[Defect, ...]] = (
    Defect(
        name="looks for every snapshot in the cluster state",
        says="a node of 1.7 is stopped while a snapshot runs",
        swaps=(Swap(owner=dialect, name="FAMILIES", by=_with_snapshots_in_every_state),),
        scenario=a_snapshot_runs_on_1_7,
    ),
    Defect(
        name="counts no committed segments",
        says="before 1.6 an index is not merged whose few segments no commit has",
        swaps=(Swap(owner=CopySegments, name="segments", by=lambda _: property(lambda copy: copy.searched)),),
        scenario=few_segments_on_1_4_without_a_commit,
    ),
)
