"""A changed routing table is the same as one that is read anew, and costs its origin nothing."""

from __future__ import annotations

import random

import pytest

from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId
from orchestrator.model.copies import Copies

SHARDS = [ShardId(f"logs-{number // 3}", f"uuid-{number // 3}", number % 3) for number in range(60)]


def _copies(dice: random.Random, shard: ShardId) -> tuple[ShardCopy, ...]:
    found = []
    for place in dice.sample(range(6), dice.randint(1, 3)):
        state = dice.choice([CopyState.STARTED, CopyState.STARTED, *CopyState])
        node = None if state is CopyState.UNASSIGNED else NodeName(f"es{place}")
        found.append(ShardCopy(shard=shard, primary=not found, state=state, node=node))
    return tuple(found)


def test_a_change_gives_what_reading_it_all_again_gives(subtests: pytest.Subtests) -> None:
    for seed in range(20):
        with subtests.test(seed=seed):
            dice = random.Random(seed)  # noqa: S311  (repeatable)
            table = {shard: _copies(dice, shard) for shard in SHARDS[:50]}
            copies = Copies(copy for each in table.values() for copy in each)
            for _ in range(12):
                new = {shard: _copies(dice, shard) for shard in dice.sample(SHARDS, dice.randint(0, 4))}
                before, listed = copies, list(copies)
                copies, table = copies.changed(new), table | new
                anew = Copies(copy for each in table.values() for copy in each)
                assert list(before) == listed
                assert (list(copies), copies, len(copies)) == (list(anew), anew, len(anew))
                assert dict(copies.by_shard) == anew.by_shard
                assert list(copies.by_shard) == list(anew.by_shard), (
                    "a plan must not depend on the order of hashes"
                )
                for node in (NodeName(f"es{number}") for number in range(7)):
                    assert copies.on(node) == anew.on(node)
                assert dict(copies.away) == anew.away
                assert sorted(copies.not_started, key=str) == sorted(anew.not_started, key=str)
                assert copies.active == anew.active == sum(copy.started for copy in anew)
                assert dict(copies.moving) == anew.moving
                assert dict(copies.red) == anew.red
                assert dict(copies.arrived) == anew.arrived
