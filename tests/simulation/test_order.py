"""The order of waves in a cluster with tiers, dedicated masters and coordinating-only nodes, run for run."""

from __future__ import annotations

from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.event import WaveStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Policy
from orchestrator.simulation.world import World
from tests.simulation.play import lives, plan_of, policy, run
from tests.simulation.sharing import always
from tests.simulation.zones import by_zone

_NODES = (
    ("m1", "a", {Role.MASTER}),
    ("m2", "b", {Role.MASTER}),
    ("m3", "c", {Role.MASTER}),
    ("hot1", "a", {Role.DATA_HOT, Role.DATA_CONTENT, Role.INGEST}),
    ("hot2", "b", {Role.DATA_HOT, Role.DATA_CONTENT, Role.INGEST}),
    ("content1", "c", {Role.DATA_CONTENT}),
    ("warm1", "a", {Role.DATA_WARM}),
    ("warm2", "c", {Role.DATA_WARM}),
    ("cold1", "b", {Role.DATA_COLD}),
    ("cold2", "e", {Role.DATA_COLD}),
    ("frozen1", "c", {Role.DATA_FROZEN}),
    ("frozen2", "e", {Role.DATA_FROZEN}),
    ("web1", "d", {Role.COORDINATING}),
    ("web2", "a", {Role.COORDINATING}),
    ("ml1", "d", {Role.ML}),
    ("ml2", "b", {Role.ML}),
)
"""m1 is the elected master; zone d has neither data nor a vote, zone e no vote."""


def _tiered() -> World:
    world = World(allowed_down=4)
    for name, zone, roles in _NODES:
        world.add_node(name, zone=zone, roles=frozenset(roles))
    for name, places in (
        ("logs", ["hot1", "hot2"]),
        ("users", ["hot2", "content1"]),
        ("posts", ["content1", "hot1"]),
        ("logs-old", ["warm1", "warm2"]),
        ("logs-older", ["cold1", "cold2"]),
        ("logs-oldest", ["frozen1", "frozen2"]),
    ):
        world.add_index(name, places=places)
    return world


def _waves(world: World, wanted: Policy) -> list[str]:
    simulation, state = run(world, wanted=wanted)
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    waves = [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    return [" ".join(nodes) for nodes in waves]


IN_ORDER = (
    "frozen1 frozen2 cold1 cold2 warm1 warm2 content1 hot1 hot2 ml1 ml2 web1 web2 m2 m3 m1".split()  # noqa: SIM905  (read as a line)
)


def test_nodes_go_by_role_and_tier_and_masters_go_last() -> None:
    wanted = policy(zone_attribute="zone")
    planned = [" ".join(wave.nodes) for wave in plan_of(_tiered(), wanted).waves]
    world = _tiered()
    world.one_machine = True
    assert _waves(world, wanted) == planned == IN_ORDER


def test_zone_by_zone_each_when_its_last_node_would_go() -> None:
    assert _waves(_tiered(), by_zone()) == [
        "frozen2 cold2",
        "ml1 web1",
        "cold1 hot2 ml2 m2",
        "frozen1 warm2 content1 m3",
        "warm1 hot1 web2 m1",
    ]


def test_a_machine_goes_when_its_last_node_would() -> None:
    """A coordinating node with a hot one, a master with a warm one, the elected master with a cold one."""
    world = _tiered()
    world.one_machine = True
    for machine in (("web2", "hot2"), ("m3", "warm1"), ("cold1", "m1")):
        for name in machine:
            world.nodes[NodeName(name)].machine = machine[0]
    assert _waves(world, always()) == [
        *("frozen1", "frozen2", "cold2", "warm2", "content1", "hot1", "ml1", "ml2", "web1", "hot2 web2"),
        *("m2", "warm1 m3", "cold1 m1"),
    ]
