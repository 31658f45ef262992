"""Resets a lab cluster to the state of a new one, so that the next test does not need to boot one."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tests.lab.client import LabClient
from tests.lab.errors import LabError
from tests.lab.nodes import LabCluster

LEVELS = ("persistent", "transient")


def read_settings(client: LabClient) -> dict[tuple[str, str], Any]:
    """All cluster settings without the defaults, by level and dotted name."""
    read = client.ask("GET", "/_cluster/settings?flat_settings=true")
    return {(level, name): value for level in LEVELS for name, value in read[level].items()}


def reset(cluster: LabCluster) -> None:
    """Reset a cluster to its state after its first start; only its age differs.

    Nodes that are down or have a changed configuration are restarted. Indices, settings, the program's
    templates and voting exclusions are removed.
    """
    changed = [node.name for node in cluster.nodes if cluster.configure(node.name, {})]
    cluster.stop_nodes(changed)
    cluster.start_nodes()
    cluster.wait_ready()
    with closing(cluster.client) as client:
        old = cluster.distribution
        clear(client, voting=not old.before(7), components=not old.before(7, 8))
    cluster.wait_ready(status="green")


def clear(client: LabClient, *, voting: bool = True, components: bool = True) -> None:
    """Remove indices, settings, the program's templates and voting exclusions from a cluster with a master.

    Voting exclusions came with 7.0, component templates with 7.8.
    """
    if voting:
        client.ask("DELETE", "/_cluster/voting_config_exclusions?wait_for_removal=false")
    state = client.ask("GET", "/_cluster/state/metadata?filter_path=metadata.indices.*.state")
    for name in state.get("metadata", {}).get("indices", {}):
        client.ask("DELETE", f"/{name}", accept=(404,))
    for form in ("_component_template", "_template") if components else ("_template",):
        client.ask("DELETE", f"/{form}/orchestrate-*", accept=(404,))
    found = read_settings(client)
    for level in LEVELS:
        if names := [name for at, name in found if at == level]:
            client.ask("PUT", "/_cluster/settings", {level: dict.fromkeys(names)})
    if left := read_settings(client):
        raise LabError(f"settings that cannot be removed: {left}")
