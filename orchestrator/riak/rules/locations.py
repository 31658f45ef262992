"""Locations of members, which Riak has for zones from 3.0 on."""

from __future__ import annotations

from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.riak import LOCATION


def missing(
    view: ClusterView, _settings: Reading[SettingsView], _policy: Policy, _file: str, /
) -> str | None:
    """Why `strategy: zone` is refused; None if any member that is up has a location."""
    if any(node.zone(LOCATION) is not None for node in view.nodes):
        return None
    return (
        f"no member of {view.name} has a location, which is what Riak has for zones "
        "(from 3.0 on): set them in the cluster, or use --strategy node or shard-safe"
    )


def known(view: ClusterView) -> bool:
    """Whether any member has a location; else only preference lists keep the nodes of a ring apart.

    A member that is down has its location too. With an unknown one the run keeps to locations.
    """
    if view.riak is None or isinstance(view.riak.cluster, Unknown):
        return True
    return any(member.location is not None for member in view.riak.cluster.members)
