"""Defects planted in the search of the largest safe sets, and in the rules that its sets must leave."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import combinations, product
from typing import Any, Final

from orchestrator.engine import waves
from orchestrator.engine.kinds.elasticsearch import sets
from orchestrator.engine.largest_safe import Sets
from orchestrator.model.cluster import Role
from orchestrator.model.event import WaveStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Policy, Strategy
from orchestrator.simulation.world import World
from tests.simulation.planting import Defect, Swap, always, without
from tests.simulation.play import lives, plan_of, policy, run
from tests.simulation.zones import zoned

_EIGHT: Final = tuple(f"es{number}" for number in range(1, 9))
_FEWEST: Final = 4
"""Waves of the ring: no two neighbours go together, and two of the eight by the usual budget."""


def _wanted(**changes: object) -> Policy:
    return policy(**{"strategy": Strategy.SHARD_SAFE, "max_unavailable": None, **changes})


def _ring() -> World:
    """Eight nodes in no zone, each of which shares shards with its two neighbours."""
    world = World(allowed_down=len(_EIGHT))
    world.across_zones = True
    for name in _EIGHT:
        world.add_node(name)
    for number in range(24):
        world.add_index(f"logs-{number}", places=[_EIGHT[number % 8], _EIGHT[(number + 1) % 8]])
    return world


def _with_voters() -> World:
    """Four nodes of data, each two with a shard of their own, and three voters without."""
    world = World(allowed_down=len(_EIGHT))
    world.across_zones = True
    for name in _EIGHT[:7]:
        world.add_node(name, roles=frozenset({Role.MASTER} if name > "es4" else {Role.DATA}))
    for one, other in combinations(_EIGHT[:4], 2):
        world.add_index(f"{one}-{other}", places=[one, other])
    return world


def _crown() -> World:
    """Eight nodes of data, each odd one with shards of all even ones but the next, and three voters."""
    world = World(allowed_down=len(_EIGHT))
    world.across_zones = True
    for name in _EIGHT:
        world.add_node(name, roles=frozenset({Role.DATA}))
    for name in ("m1", "m2", "m3"):
        world.add_node(name, roles=frozenset({Role.MASTER}))
    for one, other in product(_EIGHT[::2], _EIGHT[1::2]):
        if _EIGHT.index(other) != _EIGHT.index(one) + 1:
            world.add_index(f"{one}-{other}", places=[one, other])
    return world


def _zoned() -> World:
    return zoned(6)


def _lapse(world: Callable[[], World], *, most: int, **changes: object) -> Callable[[], str | None]:
    """What a whole run says that is not as it must be; None when it is."""

    @wraps(world)
    def lapse() -> str | None:
        cluster, asked = world(), _wanted(**changes)
        master = cluster.master
        plan = plan_of(world(), asked)
        simulation, state = run(cluster, wanted=asked)
        took = [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
        if cluster.violations:
            return str(cluster.violations[0])
        if state.outcome is not Outcome.DONE or set(lives(cluster).values()) != {2}:
            return f"{state.outcome}: {state.message}"
        if len(took) > most:
            return f"{len(took)} waves, and {most} suffice"
        if [wave.nodes for wave in plan.waves] != took:
            return "what is planned is not what is run"
        if plan.lower_bound_waves is None or plan.lower_bound_waves > len(took):
            return "fewer waves than there can be"
        if master not in took[-1]:
            return "mastership moves more than once"
        return None

    return lapse


_FREE: Final = {"max_unavailable": 8, "min_capacity": 0.1}
_ring_lapse = _lapse(_ring, most=_FEWEST)
_free_lapse = _lapse(_ring, most=3, **_FREE)
_crown_lapse = _lapse(_crown, most=3, **_FREE)
_voters_lapse = _lapse(_with_voters, most=4, **_FREE)
_zones_lapse = _lapse(_zoned, most=3, zone_attribute="zone")


def _one_by_one(_: Any) -> Any:
    return lambda self, **_: tuple((unit,) for unit in self._units)


def _excluding_nothing(bound: Any) -> Any:
    def forgets(self: Sets, one: Any, place: Any) -> None:
        if not one.name.startswith("shard"):
            bound(self, one, place)

    return forgets


def _as_given(_: Any) -> Any:
    return lambda self, _: iter([range(len(self._units))])


def _in_order(_: Any) -> Any:
    return lambda self, _: list(range(len(self._units)))


def _all_together(_: Any) -> Any:
    return lambda choice: iter([choice.units])


def _too_many(at_least: Any) -> Any:
    def more(self: Sets) -> tuple[int, str]:
        count, why = at_least(self)
        return count + 3, why

    return more


SETS: Final = (
    Defect(
        name="takes every node for a set of its own",
        says="shard-safe needs as many waves as there are nodes",
        swaps=(Swap(owner=Sets, name="fewest", by=_one_by_one),),
        scenario=_ring_lapse,
    ),
    Defect(
        name="forgets the shards in the search",
        says="a set is planned that the predicates make smaller, so there are more of them",
        swaps=(Swap(owner=Sets, name="_bound", by=_excluding_nothing),),
        scenario=_free_lapse,
    ),
    Defect(
        name="forgets the shards everywhere",
        says="a wave takes the last started copy of a shard",
        swaps=(
            Swap(owner=Sets, name="_bound", by=_excluding_nothing),
            without("every_shard_keeps_started_copies"),
        ),
        scenario=_free_lapse,
    ),
    Defect(
        name="forgets the voters everywhere",
        says="a wave takes the majority of the voters",
        swaps=(
            Swap(owner=sets, name="_of_voters", by=always(())),
            Swap(owner=sets, name="_of_roles", by=always(())),
            without("master_quorum_survives", "every_role_keeps_a_member"),
        ),
        scenario=_voters_lapse,
    ),
    Defect(
        name="tries only the order of the run",
        says="pairs are taken for sets, though fewer sets would do",
        swaps=(
            Swap(owner=Sets, name="_orders", by=_as_given),
            Swap(owner=Sets, name="improved", by=_in_order),
        ),
        scenario=_crown_lapse,
    ),
    Defect(
        name="takes the nodes of all zones together",
        says="a set has nodes of several zones, and the predicates leave what they can",
        swaps=(Swap(owner=waves, name="_together", by=_all_together),),
        scenario=_zones_lapse,
    ),
    Defect(
        name="states too high a bound",
        says="the plan says that there cannot be fewer waves, and there can",
        swaps=(Swap(owner=Sets, name="at_least", by=_too_many),),
        scenario=_ring_lapse,
    ),
)
