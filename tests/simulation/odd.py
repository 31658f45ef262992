"""Rules of allocation by which a copy may stay away, in runs left to chance, and how often they were met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, ForeseenNotToReturn, Hold
from orchestrator.simulation.deciders import LIMIT, PREFIX, SAME_HOST
from orchestrator.simulation.mishaps import (
    IndexPinned,
    IndexRuled,
    Mishap,
    PlacesRuled,
    SnapshotAborted,
    Trip,
    What,
)
from orchestrator.simulation.world import World
from tests.simulation import nights

if TYPE_CHECKING:
    from tests.simulation.chance import Chance

_INDICES: Final = ("logs", "archive", "archive")
_KINDS: Final = ("exclude", "include", "require")
_TIERS: Final = ("data_hot", "data_warm", "data_cold,data_warm", "data_frozen")
_IN_CLUSTER: Final = ((LIMIT, "2"), (LIMIT, "4"), (SAME_HOST, "true"), (AWARENESS, "zone"))


def by_chance(drawn: Chance) -> Chance:
    """In one run of five, none of an ordinary night, by dice of its own, so that all else of a seed stays."""
    dice = Random(f"odd {drawn.seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if drawn.ordinary or dice.random() >= 0.3:
        return drawn
    names = [NodeName(node.name) for node in drawn.shape.nodes]
    plan = tuple(_mishap(dice, names, drawn) for _ in range(dice.choice((1, 1, 2))))
    accepted: tuple[str, ...] = dice.choice(((), (), ("*",), ("logs",)))
    wanted = replace(drawn.wanted, accept_not_returning=accepted)
    return replace(drawn, wanted=wanted, plan=(*plan, *drawn.plan))


def _mishap(dice: Random, names: Sequence[NodeName], drawn: Chance) -> Mishap:
    """Mostly before the run, else at some moment of it."""
    what = _what(dice, names, drawn)
    if dice.random() < 0.6:
        return Mishap(what=what)
    return nights.at_some_moment(dice, list(names), what)


def _what(dice: Random, names: Sequence[NodeName], drawn: Chance) -> What:
    index, node = dice.choice(_INDICES), dice.choice(names)
    pinned = IndexPinned(index=index, node=dice.choice((node, node, NodeName("gone"))))
    key, value = _filter(dice, names, drawn)
    in_index = dice.choice(
        (
            (key, value),
            (key, value),
            ("total_shards_per_node", dice.choice("123")),
            ("include._tier_preference", dice.choice(_TIERS)),
            ("enable", dice.choice(("none", "primaries"))),
        )
    )
    in_cluster = dice.choice(((PREFIX + key, value), *_IN_CLUSTER))
    return dice.choice(
        (
            pinned,
            IndexRuled(index=index, key=in_index[0], value=in_index[1]),
            PlacesRuled(key=in_cluster[0], value=in_cluster[1]),
        )
    )


def _filter(dice: Random, names: Sequence[NodeName], drawn: Chance) -> tuple[str, str]:
    """A filter by one or two nodes, or their zone."""
    some = dice.sample(list(names), dice.choice((1, 2)))
    by = dice.choice(("_name", "_host", "_ip", "_publish_ip", "zone", "_tier"))
    zones, tiers = list(drawn.shape.zones[:1]), [dice.choice(("data_hot", "data_warm"))]
    said = {"_name": some, "_host": [host_of(name) for name in some], "zone": zones, "_tier": tiers}
    machines = {node.name: node.machine or node.name for node in drawn.shape.nodes}
    values = said.get(by, [address_of(machines[name]) for name in some]) or ["a"]
    return f"{dice.choice(_KINDS)}.{by}", ",".join(values)


def host_of(node: str) -> str:
    """The name that the server has of a node's machine."""
    return f"{node}.internal"


def address_of(machine: str) -> str:
    """The address of a machine, which has the number of its first node."""
    return f"10.0.0.{number_of(machine)}"


def number_of(name: str) -> int:
    """The number in a name."""
    return int(name.rpartition("es")[2])


def name_hosts(world: World) -> None:
    """Give each machine an address, and each node the name of its host, before a run."""
    for node in world.nodes.values():
        node.address, node.host = address_of(node.machine), host_of(node.name)


# What was met ------------------------------------


def met(befell: Iterable[What | Trip], events: Iterable[Event]) -> Counter[str]:
    """Mishaps that came about and that the program held for or foresaw, by kind."""
    events = list(events)
    holds = {
        (one.predicate, subject, f"{one.evidence} {one.reasons}")
        for one in events
        if isinstance(one, Hold)
        for subject in (one.subject, *one.subjects)
    }
    taken = (one.shards for one in events if isinstance(one, ForeseenNotToReturn))
    foreseen = {shard.index for shards in taken for shard in shards}
    found: Counter[str] = Counter()
    for what in befell:
        match what:
            case IndexPinned(index=index) | IndexRuled(index=index):
                held = any(p == "copies_can_return" and s == f"index {index}" for p, s, _ in holds)
                found[type(what).__name__] += held or index in foreseen
            case PlacesRuled(key=key):
                word = "awareness" if key == AWARENESS else key
                rules = ("no_other_maintenance", "copies_can_return")
                found["PlacesRuled"] += any(p in rules and (word in s or word in e) for p, s, e in holds)
            case SnapshotAborted():
                found["SnapshotAborted"] += any(
                    p == "no_running_snapshot" and "is aborted" in e for p, _, e in holds
                )
            case _:
                pass
    return found
