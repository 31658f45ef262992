"""The simulated cluster places copies as real servers do, and is judged by the same deciders."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.observation import Activity, Observation
from orchestrator.simulation.deciders import allows, shards_of
from orchestrator.simulation.mirror_elasticsearch import mirrored_elasticsearch
from tests.returning_cases import VERSIONS, recorded_cases
from tests.simulation.play import policy

_MODELLED = {"filter", "data_tier", "shards_limit", "awareness", "same_shard", "node_version"}
_NOT_MODELLED = ("nested attribute", "two attributes", "attribute absent", "absent attribute")
"""Attributes of nodes besides the one of their zone."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_simulated_node_takes_what_a_real_one_takes(version: str, subtests: pytest.Subtests) -> None:
    quiet, found = Activity(snapshots=(), merges=frozenset()), Counter[bool]()
    for name, refuse, view, read, _ in recorded_cases(version):
        if name.endswith(_NOT_MODELLED):
            continue
        none = {"cluster.routing.allocation.enable": "none"}
        settings = replace(read, persistent={**read.persistent, **none})
        seen = Observation(at=0.0, cluster=view, settings=settings, disks={}, activity=quiet)
        world = mirrored_elasticsearch(view, seen, policy(zone_attribute="zone"), 0)
        index, shard = next(
            pair
            for pair in shards_of(world)
            if pair[0].name == "logs" and any(copy.state is CopyState.UNASSIGNED for copy in pair[1].copies)
        )
        for node, deciders in refuse.items():
            with subtests.test(case=name, node=node):
                holds = any(copy.node == node for copy in shard.copies)
                takes = not holds and allows(world, index, shard, world.nodes[NodeName(node)])
                assert takes is _MODELLED.isdisjoint(deciders)
                found[takes] += 1
    assert min(found[True], found[False]) > 10
