"""Copies that the cluster would not allocate again once their node is back: foreseen, held, or accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.model.event import NotWaitedFor, WaveFinished
from orchestrator.model.observation import Level
from orchestrator.model.policy import Selection, ZeroReplicas
from orchestrator.simulation.deciders import LIMIT
from orchestrator.simulation.mishaps import IndexRuled, PlacesRuled
from orchestrator.simulation.world import World
from tests.simulation.index_mishaps import RecoveriesStall
from tests.simulation.node_mishaps import ReturnsChanged
from tests.simulation.play import cluster, policy
from tests.simulation.scene import ES2, HELD, Played, Scene, at, first

QUIET: Final = 400.0
EXCLUDE: Final = "cluster.routing.allocation.exclude._name"
ACCEPTED: Final = policy(accept_not_returning=("pair", "many*"))
BARE: Final = {"zero_replicas": ZeroReplicas.ACCEPT, "zero_replicas_accepted": ("pair",)}
FORESEEN: Final = "foreseen_not_to_return"


def six() -> World:
    return cluster(6)


def _pair(*places: str, **rules: str) -> dict[str, dict[str, object]]:
    """An index with copies on these nodes and these rules, by `require__name` for `require._name`."""
    named = {key.replace("_", ".", 1): value for key, value in rules.items()}
    return {"pair": {"replicas": len(places) - 1, "places": list(places), "rules": named}}


def _two_on_es2() -> World:
    """Both shards of an index have a copy on es2, which may take one of them back, and no other node may."""
    world = six()
    for name in ("archive", "logs"):
        world.delete_index(name)
    index = world.add_index("pair", shards=2, replicas=1, places=["es1", "es2"])
    index.rules = {"total_shards_per_node": "1", "include._name": "es1,es2"}
    return world


def _emptied() -> World:
    """The cluster itself keeps copies off es2 for ever, and the playbook of the run allows for that."""
    world = six()
    world.set(Level.PERSISTENT, "cluster.routing.allocation.total_shards_per_node", "2")
    return world


def _one_each() -> World:
    """es1 has two copies, and may take one of them back; no other node has room."""
    world = cluster(3)
    for name in ("archive", "logs"):
        world.delete_index(name)
    for name, other in (("pair", "es3"), ("ants", "es2")):
        world.add_index(name, places=["es1", other])
    world.set(Level.PERSISTENT, "cluster.routing.allocation.total_shards_per_node", "1")
    return world


def _two_and_one() -> World:
    """Both shards of an index have a copy on es2; es3 has one of another."""
    world = _one_each()
    world.delete_index("pair")
    world.delete_index("ants")
    world.add_index("pair", shards=2, places=["es1", "es2"])
    world.add_index("ants", places=["es3", "es1"])
    world.set(Level.PERSISTENT, LIMIT, None)
    return world


def _shrunk(played: Played) -> None:
    """ILM has shrunk the index after half an hour, and its source is deleted."""
    played.world.agenda.after(1800.0, lambda: played.world.delete_index("pair"))


def _without_waiting(played: Played) -> bool:
    return [one.index for event in played.found(NotWaitedFor) for one in event.shards] == ["pair"]


def _waits_for_the_one(played: Played) -> bool:
    """Its wave ends with one of the two back: which one is the cluster's choice, and nothing foresaw it."""
    at = played.times(WaveFinished)[played.waves.index(("es2",))] - played.simulation.clock.ahead
    back = [what for when, what in played.world.story if when < at and what.endswith("started on es2")]
    shown = sum(one.count for event in played.found(NotWaitedFor) for one in event.shards)
    return [what.startswith("[pair]") for what in back].count(True) == shown == 1


# fmt: off
SCENES: Final = (
    Scene(name="an index kept on es1, with a copy on es2: named before the first stop", of=six,
        indices=_pair("es1", "es2", require__name="es1"), ends=HELD, sent={"stop": 0}, within=60.0,
        says="index pair): [pair][0] would not come back to es2, and no other node takes it"),
    Scene(name="an index kept on es1 that has no copy elsewhere holds nothing", of=six, within=QUIET,
        indices=_pair("es1", require__name="es1"), wanted=policy(**BARE), events={FORESEEN: 0},
        violates="pair"),
    Scene(name="a copy on es2 that another node takes is waited for", of=six, within=QUIET,
        indices=_pair("es1", "es2", exclude__name="es2"), events={FORESEEN: 0, "not_waited_for": 0}),
    Scene(name="accepted by name: not waited for, and es1 goes first, though it is the elected master",
        of=six, indices=_pair("es1", "es2", require__name="es1"), wanted=ACCEPTED, within=QUIET,
        events={FORESEEN: 1}, waves=[("es3",), ("es4",), ("es5",), ("es6",), ("es1",), ("es2",)],
        says="copies that were not waited for, since no node takes them back: [pair][0]"),
    Scene(name="of three copies two do not return: the third is kept", of=six, wanted=ACCEPTED, within=QUIET,
        indices=_pair("es1", "es2", "es3", require__name="es1"), events={FORESEEN: 2}),
    Scene(name="two copies that do not return, each of which the other node needs: no order helps", of=six,
        indices=_pair("es2", "es3", require__name="gone"), wanted=ACCEPTED, ends=HELD, sent={"stop": 0},
        within=60.0, says="no order of restarts keeps [pair][0] started"),
    Scene(name="total_shards_per_node: as many copies as a node has over its limit stay away", of=_two_on_es2,
        ends=HELD, sent={"stop": 0}, within=60.0, says="total_shards_per_node is 1"),
    Scene(name="of two that are foreseen to stay away one returns: it is waited for", of=_two_on_es2,
        wanted=replace(ACCEPTED, selection=Selection(only=(ES2,))), within=QUIET, events={FORESEEN: 1},
        befalls=[at("start", RecoveriesStall(seconds=60.0), ES2)], shows=_waits_for_the_one),
    Scene(name="total_shards_per_node of the cluster, lowered under what nodes have", of=_emptied, ends=HELD,
        sent={"stop": 0}, within=60.0, says="cluster.routing.allocation.total_shards_per_node is 2"),
    *(
        Scene(name=f"no node takes the replica that the run would add ({how}): named before the first stop",
            of=six, indices=_pair("es4", **rules), wanted=policy(zero_replicas=ZeroReplicas.ADD_REPLICA),
            ends=HELD, sent={"stop": 0}, within=60.0,
            says="index pair): no node may take the replica that the run would add")
        for how, rules in (
            ("pinned", {"require__name": "es4"}),
            ("one node of its zone", {"include__name": "es4,gone"}),
            ("the others excluded", {"exclude__name": "es1,es2,es3,es5,es6"}),
        )
    ),
    Scene(name="a node takes the replica that the run adds, and no other node may", of=six, within=QUIET,
        indices=_pair("es4", include__name="es4,es5"), wanted=policy(zero_replicas=ZeroReplicas.ADD_REPLICA)),
    Scene(name="total_shards_per_node of the cluster: of two copies either may stay away", of=_one_each,
        wanted=ACCEPTED, ends=HELD, sent={"stop": 0}, within=60.0, says="index ants): [ants][0]"),
    Scene(name="while ILM shrinks an index, others go first and the run waits for the end", of=six,
        indices={"pair": {**_pair("es1", "es2", require__name="es1")["pair"], "shrinks": True}},
        prepares=_shrunk, within=2200.0, events={FORESEEN: 0}),
    Scene(name="a node comes back with another zone, where its index may not be: not waited for", of=six,
        indices=_pair("es2", "es3", "es5", "es6", include_zone="b,c"), wanted=policy(), within=QUIET,
        befalls=[at("stop", ReturnsChanged(node=ES2, zone="d"), ES2)], shows=_without_waiting,
        says="copies that were not waited for, since no node takes them back: [pair][0]"),
    Scene(name="an index whose own setting allocates none: named before the first stop", of=six,
        indices=_pair("es1", "es2"), befalls=[first(IndexRuled(index="pair", key="enable", value="none"))],
        ends=HELD, sent={"stop": 0}, within=60.0, says="index.routing.allocation.enable is none"),
    Scene(name="kept elsewhere while its node is down: waited for there", of=six, within=QUIET,
        indices=_pair("es2", "es4"), events={"not_waited_for": 0},
        befalls=[at("stop", IndexRuled(index="pair", key="include._name", value="es4,es5"), ES2)]),
    Scene(name="the cluster excludes es2 while it is down, and no other node takes its copy", of=six,
        indices=_pair("es1", "es2", include__name="es1,es2"), ends=HELD, shows=_without_waiting,
        befalls=[at("stop", PlacesRuled(key=EXCLUDE, value=ES2), ES2)]),
    Scene(name="a limit of the cluster comes while es2 is down, which takes one of two back", of=_two_and_one,
        befalls=[at("stop", PlacesRuled(key=LIMIT, value="1"), ES2)], ends=HELD,
        shows=_without_waiting),
)
# fmt: on
