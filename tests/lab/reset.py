"""Resets a lab cluster to the state of a new one, so that the next test does not need to boot one."""

from __future__ import annotations

from collections.abc import Mapping

from tests.lab.client import LabClient
from tests.lab.errors import LabError
from tests.lab.nodes import LabCluster
from tests.lab.settings import LEVELS, read_settings


def reset(cluster: LabCluster) -> None:
    """Reset a cluster to its state after its first start; only its age differs.

    Nodes that are down or have a changed configuration are restarted. Indices, settings, the program's
    templates and voting exclusions are removed.

    Raises:
        LabError: something could not be removed, so the cluster is not fit for another test.
    """
    changed = [node.name for node in cluster.nodes if cluster.configure(node.name, {})]
    cluster.stop_nodes(changed)
    cluster.start_nodes()
    cluster.wait_ready()
    client = cluster.client
    try:
        old = cluster.distribution
        clear(client, voting=not old.before(7), components=not old.before(7, 8))
    finally:
        client.close()
    cluster.wait_ready(status="green")


def clear(client: LabClient, *, voting: bool = True, components: bool = True) -> None:
    """Remove indices, settings, the program's templates and voting exclusions from a cluster with a master.

    Args:
        client: of the cluster.
        voting: whether there may be voting exclusions (7.0).
        components: whether there may be component templates (7.8).

    Raises:
        LabError: something could not be removed, so the cluster is not fit for another test.
    """
    if voting:
        client.ask("DELETE", "/_cluster/voting_config_exclusions?wait_for_removal=false")
    for name in _indices(client.ask("GET", "/_cluster/state/metadata?filter_path=metadata.indices.*.state")):
        client.ask("DELETE", f"/{name}", accept=(404,))
    for form in ("_component_template", "_template") if components else ("_template",):
        client.ask("DELETE", f"/{form}/orchestrate-*", accept=(404,))
    found = read_settings(client)
    cleared = {level: dict.fromkeys(getattr(found, level)) for level in LEVELS}
    if any(cleared.values()):
        client.ask("PUT", "/_cluster/settings", {level: names for level, names in cleared.items() if names})
    left = read_settings(client)
    if left.persistent or left.transient:
        raise LabError(f"settings that cannot be removed: {left}")


def _indices(state: Mapping[str, Mapping[str, Mapping[str, object]]]) -> tuple[str, ...]:
    return tuple(state.get("metadata", {}).get("indices", {}))
