"""`--strategy shard-safe`: few waves, every shard served, on Elasticsearch and on Riak."""

from __future__ import annotations

from functools import partial
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import (
    DisabledPredicate,
    Policy,
    Strategy,
    Together,
    ZeroReplicas,
)
from orchestrator.riak.rules.quorum import breaches
from orchestrator.simulation import mishaps
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World
from tests.fakes.riak_rings import in_blocks, names
from tests.simulation.play import cluster, policy
from tests.simulation.ringed import by_sets, located, unlocated
from tests.simulation.safe_sets import neighbours
from tests.simulation.scene import FAILED, HELD, Played, Scene, at, resume
from tests.simulation.upgrading import upgrading
from tests.simulation.zones import lopsided, zoned

ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT = names(8)
QUORUM: Final = "preference_lists_keep_quorum"


def in_sets(**changes: object) -> Policy:
    return policy(**{"strategy": Strategy.SHARD_SAFE, "max_unavailable": None, **changes})


def _few(most: int, played: Played) -> None:
    """No more waves than that, and mastership moves once."""
    assert len(played.waves) <= most
    assert "es1" not in {name for wave in played.waves[:-1] for name in wave}


def _no_shard_whole(played: Played) -> None:
    """With a large budget only the shards bound a wave."""
    for wave in played.waves:
        for index in played.world.indices.values():
            assert not any({*shard.on_disk} <= {*wave} for shard in index.shards)


def _in_one_zone(played: Played) -> None:
    for wave in played.waves:
        assert len({played.world.nodes[name].zone for name in wave}) == 1, wave


def _six_across() -> World:
    """Three of its nodes may be down at once, also in different zones."""
    world = _allowed_across(cluster(6), 3)
    world.across_zones = True
    return world


def _goes_before(one: str, other: str, played: Played) -> None:
    at = {name: number for number, wave in enumerate(played.waves) for name in wave}
    assert at[NodeName(one)] < at[NodeName(other)]


def _allowed(of: World, down: int) -> World:
    of.allowed_down, of.across_zones = down, False
    return of


def _allowed_across(of: World, down: int) -> World:
    of.allowed_down = down
    return of


# fmt: off
_SETS: Final = (
    *(
        Scene(name=f"shard-safe: eight nodes in at most four waves, {replicas} replicas",
            of=partial(neighbours, replicas), wanted=in_sets(), lives={}, shows=partial(_few, 4))
        for replicas in (1, 2)
    ),
    Scene(name="shard-safe: a shard with one replica never loses both copies",
        of=neighbours, wanted=in_sets(max_unavailable=8, min_capacity=0.1), lives={},
        shows=_no_shard_whole),
    *(
        Scene(
            name=f"shard-safe: where there are zones a wave stays in one, {of.__name__}",
            of=lambda of=of: _allowed(of(), 3),
            wanted=in_sets(zone_attribute="zone"),
            lives={},
            shows=_in_one_zone,
        )
        for of in (zoned, lopsided)
    ),
    Scene(name="shard-safe: an index without replicas leaves the other nodes",
        of=neighbours, indices={"lone": {"replicas": 0, "places": ["es1"]}},
        wanted=in_sets(begin_anyway=True, zero_replicas=ZeroReplicas.REFUSE), ends=HELD,
        lives={"es1": 1}),
    *(
        Scene(name=f"shard-safe: a set that waits for {other} is passed over, zones {zone}",
            of=_six_across, lives={},
            wanted=in_sets(accept_not_returning=("pair",), zone_attribute=zone, max_unavailable=None),
            indices={"pair": {"places": ["es2", other], "rules": {"require._name": other}}},
            shows=partial(_goes_before, other, "es2"), within=600.0)
        for other, zone in (("es4", None), ("es3", None), ("es1", None), ("es1", "zone"))
    ),
    Scene(name="shard-safe: an upgrade takes only nodes of one rank together",
        of=neighbours, wanted=upgrading(strategy=Strategy.SHARD_SAFE, max_unavailable=None),
        shows=lambda played: played.waves[-1] == ("es1",) or len(played.waves) < 8),
)
# fmt: on

# On Riak ----------------------------------------------------------------------------------------------


def _quorum_kept(waves: int, played: Played) -> None:
    world = played.world
    assert isinstance(world, RiakWorld)
    assert len(played.waves) == waves
    assert all(not breaches(world.ring, world.n_vals, wave) for wave in played.waves)
    assert world.master is not None
    assert world.fallbacks == []


def _on_one_machine() -> RiakWorld:
    world = unlocated()
    for one, other in ((ONE, FIVE), (TWO, SIX)):
        world.nodes[other].machine = world.nodes[one].machine
    return world


def _blocks(*, together: bool = False) -> RiakWorld:
    """Every node has preference lists of its own there."""
    world = RiakWorld(in_blocks(8, 64))
    world.across_zones, world.allowed_down = together, 2 if together else world.allowed_down
    return world


def _no_owner_twice(played: Played) -> None:
    world = played.world
    assert isinstance(world, RiakWorld)
    assert [len(wave) for wave in played.waves] == [2, 2, 2, 2]
    for wave in played.waves:
        assert all(len(each.nodes) == 1 for each in breaches(world.ring, {3}, wave)), wave


def _slow_to_hand_off() -> RiakWorld:
    world = unlocated()
    world.inactivity = 200.0
    return world


def _hastened() -> RiakWorld:
    world = unlocated()
    world.rolling = True
    return world


# fmt: off
_ON_RIAK: Final = (
    *(
        Scene(name=f"shard-safe: a ring of {size} partitions on {nodes} nodes in {waves} waves",
            of=partial(unlocated, nodes, size), wanted=by_sets(), lives={},
            shows=partial(_quorum_kept, waves))
        for nodes, size, waves in ((5, 64, 5), (9, 128, 4))  # of more rings plans say how many
    ),
    Scene(
        name="shard-safe: with locations a wave stays in one",
        # `zone` takes ONE and FOUR, and then the other two: THREE shares a list with each.
        of=lambda: _allowed(located((ONE, TWO, FIVE, SIX), (THREE, FOUR, SEVEN, EIGHT)), 4),
        wanted=by_sets(zone_attribute="location"),
        lives={},
        shows=lambda played: (_in_one_zone(played), len(played.waves))[1] == 4,
    ),
    *(
        Scene(name=f"shard-safe: a key keeps its quorum within a large budget, without {rule}",
            of=lambda: _allowed_across(unlocated(), 8),
            wanted=by_sets(
                max_unavailable=8, disabled_predicates=(DisabledPredicate(name=rule),) if rule else ()
            ),
            lives={}, shows=lambda played: len(played.waves) == 4)
        for rule in (None, QUORUM)
    ),
    Scene(name=f"{QUORUM}: a ring in blocks is held as with node",
        of=_blocks, wanted=by_sets(), ends=HELD, lives=dict.fromkeys(names(8), 1)),
    Scene(name=f"{QUORUM}: a node that is accepted goes with no other owner of its lists",
        of=partial(_blocks, together=True),
        wanted=by_sets(
            disabled_predicates=tuple(DisabledPredicate(name=QUORUM, subject=name) for name in names(8))
        ),
        lives={}, violates="quorum", shows=_no_owner_twice),
    Scene(
        name="shard-safe: nodes of one machine go together if they can",
        of=_on_one_machine,
        wanted=by_sets(together=Together.ALWAYS),
        lives={},
        shows=lambda played: {ONE, FIVE} in map(set, played.waves) and {TWO, SIX} in map(set, played.waves),
    ),
    Scene(name="shard-safe: the next wave waits for the handoff of every node",
        of=_slow_to_hand_off, nodes={SIX: {"start_seconds": 60.0}}, wanted=by_sets(), lives={},
        shows=partial(_quorum_kept, 4)),
    Scene(name="second_failure: a node that dies beside a wave of a set stands the run down",
        of=unlocated, wanted=by_sets(),
        befalls=[at("start", mishaps.NodeDies(node=FOUR, back_after=400.0), SIX, after=3.0)],
        ends=FAILED, says=f"a second failure: node {FOUR} left", away=[FOUR], then=[1500.0, resume()]),
    Scene(name="shard-safe: hastened waves of several nodes",
        of=_hastened, wanted=by_sets(hasten_handoff=True), lives={}, shows=partial(_quorum_kept, 4)),
)
# fmt: on


SCENES: Final = (*_SETS, *_ON_RIAK)
