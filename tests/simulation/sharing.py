"""Clusters with two nodes on each machine, and the policies that restart them machine by machine."""

from __future__ import annotations

from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Policy, Together
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, policy


def sharing(nodes: int = 6) -> World:
    """In each of the zones a, b and c two nodes a machine; copies of a shard are on different machines."""
    world = cluster(nodes)
    world.allowed_down, world.one_machine = 2, True
    for number in range(1, nodes + 1):
        first = number if number % 6 in (1, 2, 3) else number - 3
        world.nodes[NodeName(f"es{number}")].machine = f"host-es{first}"
    return world


def always(**changes: object) -> Policy:
    """The shipped playbook, and `hosts.together: always`."""
    return policy(**{"together": Together.ALWAYS, "max_unavailable": None, **changes})


def rebooting(**changes: object) -> Policy:
    """The shipped playbook with `--reboot`."""
    return policy(**{"reboot": True, "max_unavailable": None, **changes})
