"""What a run after a bulk load has to do: which indices, which nodes, and when nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.merging.due import (
    PastMerges,
    leftovers,
    merge_targets,
    nodes_due,
)
from orchestrator.model.cluster import Incarnation, NodeName, ShardId
from orchestrator.model.merge_event import IndexMerged
from orchestrator.model.merging import (
    BulkIndex,
    BulkView,
    CopySegments,
    LoaderLeftover,
    LoaderSettings,
    MergePolicy,
    MergeTarget,
    Writes,
)
from orchestrator.model.observation import ClusterView
from orchestrator.simulation import views
from tests.simulation.play import cluster

POLICY = MergePolicy(patterns=("posts-*",), max_segments=5)
REPLICAS, REFRESH, DURABILITY = (
    "index.number_of_replicas",
    "index.refresh_interval",
    "index.translog.durability",
)


def index(name: str, *segments: int, size: int = 100, **settings: object) -> BulkIndex:
    """An index with a copy of so many segments on each of n1, n2, …."""
    copies = tuple(
        CopySegments(
            shard=ShardId(index=name, index_uuid=f"uuid-{name}", number=0),
            node=NodeName(f"n{number}"),
            primary=number == 1,
            searched=count,
            bytes=size,
            largest_bytes=size,
        )
        for number, count in enumerate(segments, start=1)
    )
    made = BulkIndex(name=name, uuid=f"uuid-{name}", copies=copies, writes=Writes(operations=0, sequence=0))
    return replace(made, **settings)


def bulk(*indices: BulkIndex) -> BulkView:
    return BulkView(indices={one.uuid: one for one in indices})


def ended(name: str, lives: Mapping[NodeName, Incarnation]) -> dict[str, IndexMerged]:
    uuid = f"uuid-{name}"
    return {
        uuid: IndexMerged(index=name, index_uuid=uuid, segments=5, bytes=1, seconds=1.0, incarnations=lives)
    }


def targets(*indices: BulkIndex, past: PastMerges | None = None) -> tuple[MergeTarget, ...]:
    return merge_targets(bulk(*indices), POLICY, past or PastMerges())


def test_one_copy_with_too_many_segments_makes_an_index_due() -> None:
    found = {one.index: one.due for one in targets(index("a", 5, 6), index("b", 5, 5))}
    assert found == {"a": True, "b": False}


def test_a_merge_without_a_seen_end_is_due_with_few_segments() -> None:
    (one,) = targets(index("a", 5), past=PastMerges(unfinished=frozenset({"uuid-a"})))
    assert one.due


def test_the_largest_goes_first_and_equal_ones_by_name() -> None:
    names = [one.index for one in targets(index("c", 9, size=7), index("b", 9, size=7), index("a", 9))]
    assert names == ["a", "b", "c"]


VIEW = views.cluster(cluster(3))
ALL = tuple(node.name for node in VIEW.nodes)
LIVES = {node.name: node.incarnation for node in VIEW.nodes}
OTHERS = {name: Incarnation(ephemeral_id=f"earlier-{name}") for name in ALL}


def due(
    *found: MergeTarget,
    past: Mapping[str, IndexMerged] | None = None,
    left: tuple[LoaderLeftover, ...] = (),
    view: ClusterView = VIEW,
) -> tuple[NodeName, ...]:
    return nodes_due(ALL, view, found, PastMerges(ended=past or {}), left)


def test_all_nodes_are_due_when_an_index_is() -> None:
    assert due(*targets(index("a", 6))) == ALL


def test_no_node_is_due_when_nothing_was_ever_merged() -> None:
    assert due(*targets(index("a", 5))) == ()


def test_a_node_is_due_in_the_life_in_which_a_merge_ended() -> None:
    assert due(*targets(index("a", 5)), past=ended("a", LIVES)) == ALL
    half = {**LIVES, ALL[0]: OTHERS[ALL[0]]}
    assert due(*targets(index("a", 5)), past=ended("a", half)) == ALL[1:]


def test_a_node_that_has_been_restarted_since_is_not_due() -> None:
    assert due(*targets(index("a", 5)), past=ended("a", OTHERS)) == ()


def test_a_node_that_came_in_later_is_not_due() -> None:
    known = {name: LIVES[name] for name in ALL[:2]}
    assert due(*targets(index("a", 5)), past=ended("a", known)) == ALL[:2]


def test_the_end_of_any_of_the_indices_counts_and_of_no_other() -> None:
    both = targets(index("a", 5), index("b", 5))
    assert due(*both, past={**ended("a", OTHERS), **ended("b", LIVES)}) == ALL
    assert due(*both, past=ended("c", LIVES)) == ()


def test_a_node_whose_life_is_not_told_counts_as_not_restarted() -> None:
    silent = replace(VIEW, nodes=tuple(replace(node, incarnation=Incarnation()) for node in VIEW.nodes))
    assert due(*targets(index("a", 5)), past=ended("a", LIVES), view=silent) == ALL


LOADED = {"replicas": 0, "refresh_interval": "-1", "translog_durability": "async"}


def test_a_loaders_leftover_is_found_without_a_playbook_entry() -> None:
    found = leftovers(bulk(index("a", 1, **LOADED), index("b", 1)), LoaderSettings(), VIEW)
    assert {(one.index, one.setting, one.found, one.put_right) for one in found} == {
        ("a", REPLICAS, "0", False),
        ("a", REFRESH, "-1", False),
        ("a", DURABILITY, "async", False),
    }


def test_what_the_playbook_speaks_of_is_put_right() -> None:
    right = LoaderSettings(number_of_replicas=1, refresh_interval="", translog_durability="request")
    found = leftovers(bulk(index("a", 1, **LOADED)), right, VIEW)
    assert {one.setting: (one.put_right, one.wanted) for one in found} == {
        REPLICAS: (True, "1"),
        REFRESH: (True, None),
        DURABILITY: (True, "request"),
    }


def test_an_index_without_a_loader_has_no_leftover() -> None:
    right = LoaderSettings(number_of_replicas=2, refresh_interval="30s", translog_durability="request")
    assert leftovers(bulk(index("a", 1)), right, VIEW) == ()


@pytest.mark.parametrize(("put_right", "nodes"), [(True, ALL), (False, ())])
def test_all_nodes_are_due_when_a_leftover_is_put_right(
    put_right: bool,  # noqa: FBT001  (a column of the table)
    nodes: tuple[NodeName, ...],
) -> None:
    left = (LoaderLeftover(index="a", setting=REPLICAS, found="0", put_right=put_right),)
    assert due(*targets(index("a", 5)), left=left) == nodes
