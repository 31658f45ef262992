"""Runs that merge indices before they restart nodes: limits, holds, failures, and what each says."""

from __future__ import annotations

from typing import Final

from orchestrator.model.event import Hold, HoldsCleared, PhaseEntered
from orchestrator.model.phase import Request
from orchestrator.model.policy import Policy
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.simulation.mishaps import How
from tests.simulation import index_mishaps, node_mishaps, program_mishaps
from tests.simulation.loaded import loaded, merged_policy, merging
from tests.simulation.scene import (
    FAILED,
    HELD,
    INTERRUPTED,
    PAUSED,
    Played,
    Scene,
    asked,
    at,
    first,
    refused,
    resume,
    trip,
)

WRITES: Final = index_mishaps.WriterBegins(index="posts-2")
UNTOUCHED: Final = {f"es{number}": 1 for number in (1, 2, 3)}
NOTHING: Final = {"force_merge": 0, "stop": 0}


def _wanted(**changes: object) -> Policy:
    return merged_policy(merging(**changes))


def _one_at_a_time(played: Played) -> None:
    """And no node goes before the last index is merged."""
    begun = [event.index for event in played.found(MergeBegun)]
    assert sorted(begun) == sorted({*begun})
    phases = [event.to for event in played.found(PhaseEntered) if event.node is None]
    assert phases.index("merged") < phases.index("withheld")


def _clears_while_it_merges(played: Played) -> None:
    """So that a later hold has its whole limit."""
    wanted = (Hold, HoldsCleared, IndexMerged)
    events = [type(record.event) for record in played.simulation.journal.records]
    assert [event for event in events if event in wanted][:3] == list(wanted)


# fmt: off
SCENES: Final = (
    Scene(name="force_merge: each index once, and then every node", of=loaded, wanted=_wanted(),
        sent={"force_merge": 3}, events={"index_merged": 3}, shows=_one_at_a_time),
    *(
        Scene(name=f"force_merge {how.name}: looked for, and sent again only if it is not there", of=loaded,
            wanted=_wanted(), befalls=[trip("force_merge", how)], sent={"force_merge": count},
            events={"index_merged": 3})
        for how, count in ((How.UNACKNOWLEDGED, 3), (How.LOST, 4))
    ),
    Scene(name="force_merge: a killed run that is resumed asks for no merge twice", of=loaded,
        wanted=_wanted(), killed="after force_merge", then=[resume()], sent={"force_merge": 3}),
    Scene(name="force_merge REFUSED for good fails the run", of=loaded, wanted=_wanted(),
        befalls=[refused("force_merge", times=99)], ends=FAILED, lives=UNTOUCHED, sent={"stop": 0}),
    Scene(name="force_merge.deadline: what continues in the cluster is said", of=loaded,
        wanted=_wanted(deadline=2.0), ends=FAILED, lives=UNTOUCHED,
        says=("the merge of posts-", "has not ended within 2s", "continues in the cluster")),
    Scene(name="index_is_not_written: held before any merge", of=loaded, wanted=_wanted(),
        befalls=[first(WRITES)], ends=HELD, sent=NOTHING, lives=UNTOUCHED,
        says=("index_is_not_written (index posts-2): is still written", "--allow-writes")),
    Scene(name="index_is_not_written: one that is written later holds what is left", of=loaded,
        wanted=_wanted(), befalls=[at("force_merge", WRITES, after=1.0)], ends=HELD,
        lives=UNTOUCHED, says="index posts-2): is still written"),
    Scene(name="--allow-writes: a written index is merged, with a warning", of=loaded,
        wanted=_wanted(allow_writes=True), befalls=[first(WRITES)], events={"merge_warned": range(1, 4)}),
    Scene(name="SegmentsUnreadable while an index is merged: the hold ends with it", of=loaded,
        wanted=_wanted(),
        befalls=[at("force_merge", program_mishaps.SegmentsUnreadable(seconds=3.0), after=1.0)],
        sent={"force_merge": 3}, shows=_clears_while_it_merges),
    Scene(name="disk_has_room: its arithmetic", of=loaded, wanted=_wanted(),
        befalls=[first(node_mishaps.DiskFills(node="es2", share=0.8999, seconds=9e9))], ends=HELD,
        lives=UNTOUCHED, sent=NOTHING,
        says=("disk_has_room (index posts-", "merging its copies on es2 may take", "too little")),
    Scene(name="Request.PAUSE waits for the merge and begins no other", of=loaded, wanted=_wanted(),
        befalls=[asked(Request.PAUSE, "force_merge")], ends=PAUSED,
        then=[resume()], sent={"force_merge": 3}),
    Scene(name="Request.STOP leaves at once, and says that the merge goes on", of=loaded, wanted=_wanted(),
        befalls=[asked(Request.STOP, "force_merge")], ends=INTERRUPTED, lives=UNTOUCHED,
        says="the merge of posts-1 continues in the cluster"),
)
# fmt: on
