"""A changed routing table is the same as one that is read anew, and costs its origin nothing."""

from __future__ import annotations

import random

import pytest

from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId
from orchestrator.model.copies import Copies

SHARDS = [ShardId(f"logs-{number // 3}", f"uuid-{number // 3}", number % 3) for number in range(12)]


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
            table = {shard: _copies(dice, shard) for shard in SHARDS[:10]}
            copies = Copies(copy for each in table.values() for copy in each)
            for _ in range(12):
                new = {shard: _copies(dice, shard) for shard in dice.sample(SHARDS, dice.randint(0, 4))}
                before, listed = copies, list(copies)
                copies, table = copies.changed(new), table | new
                if dice.randint(0, 1):
                    continue  # what was not asked of this table is known of the next one all the same
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
                test = dice.choice([_one_serves, _one_serves, _has_three])
                assert (
                    copies.where(test)
                    == anew.where(test)
                    == {s for s, found in table.items() if test(s, found)}
                )


def test_copies_in_other_states_are_a_change_that_moves_none() -> None:
    dice = random.Random(2)  # noqa: S311  (repeatable)
    copies = Copies(copy for shard in SHARDS for copy in _copies(dice, shard))
    assert copies.red is not None  # known of the table before
    for shard in SHARDS:
        states = (dice.choice(list(CopyState)) for _ in range(len(SHARDS)))
        other = {shard: tuple(copy._replace(state=next(states)) for copy in copies.by_shard[shard])}
        changed, copies = copies.changed(other), copies.in_other_states(other)
        assert (copies, len(copies), copies.active) == (changed, len(changed), changed.active)
        assert (copies.by_node, copies.away, copies.red) == (changed.by_node, changed.away, changed.red)


def _one_serves(_: ShardId, copies: tuple[ShardCopy, ...]) -> bool:
    return sum(copy.started for copy in copies) == 1


def _has_three(_: ShardId, copies: tuple[ShardCopy, ...]) -> bool:
    return len(copies) == 3


def test_a_test_is_asked_again_of_changed_shards_only() -> None:
    dice, asked = random.Random(1), list[ShardId]()  # noqa: S311  (repeatable)
    copies = Copies(copy for shard in SHARDS for copy in _copies(dice, shard))

    def test(shard: ShardId, _: tuple[ShardCopy, ...]) -> bool:
        asked.append(shard)
        return True

    for _ in range(2):
        assert copies.where(test) == set(SHARDS)
    assert asked == SHARDS
    for shard in SHARDS[2:4]:
        copies = copies.changed({shard: _copies(dice, shard)})
        assert copies.active <= len(copies)
    assert copies.where(test) == set(SHARDS)
    assert asked[len(SHARDS) :] == SHARDS[2:4]
