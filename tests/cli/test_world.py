"""The world that a command composes: hosts of nodes that it learns of later."""

from __future__ import annotations

import pytest

from orchestrator.cli.options import Output
from orchestrator.cli.surroundings import surroundings
from orchestrator.cli.world import World
from orchestrator.model.action import Done, StartNode
from orchestrator.model.cluster import NodeName
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

MEMBER, AWAY = NodeName("es1"), NodeName("es7")


@pytest.mark.parametrize("first", [{MEMBER: "127.0.0.1"}, {}])
def test_a_node_that_a_dead_run_left_down_is_started_though_a_plan_was_made_without_it(
    console: Console, first: dict[NodeName, str]
) -> None:
    """A plan knows of members alone; who is away is in the record of the run that has it in hand."""
    started = console.folder / "started"
    service = {"manager": "command", "stop": "true", "start": f"touch {started}", "status": "true"}
    with SmallCluster() as server:
        around = surroundings(Output.TEXT)
        file = around.cluster(server.write_file(console.folder, hosts={"service": service}))
        world = World(file, around)
        try:
            planned = world.hosts(first)
            hosts = world.hosts({MEMBER: "127.0.0.1", AWAY: "127.0.0.1"})
            assert isinstance(hosts.perform(StartNode(node=AWAY)), Done)
            assert hosts is planned, "its connections are kept"
        finally:
            world.close()
    assert started.exists()
