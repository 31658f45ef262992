"""How a generation of servers differs from the newest one, as far as the simulation shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.model.observation import ClusterView, SettingsView

_OPENSEARCH: Final = "opensearch"
_FIRST_WITH_DELAY: Final = (1, 7)
"""`index.unassigned.node_left.delayed_timeout`, and the reasons in `unassigned_info`."""
_FIRST_THAT_KEEPS_MERGES: Final = (1, 6)
_OF_STATUS_ONLY: Final = 1
"""The major version whose snapshots are listed by `_snapshot/_status` alone; 0.90 has no snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The ways of one generation. The defaults are those of the newest."""

    resets: bool = True  # a setting can be made absent again (5.0)
    allocation_flags: bool = False  # flags disable allocation, not `enable` (before 1.0)
    # every master-eligible node votes, and `minimum_master_nodes` of them elect a master (before 7.0)
    voting_by_count: bool = False
    in_sync: bool = True  # the metadata lists the copies in sync, and no other copy becomes a primary (5.0)
    # a copy whose node has left waits before it is made anew elsewhere, and an unassigned copy has a reason
    # (from 1.7)
    delays: bool = True
    snapshots_in_state: bool = True  # the cluster state lists the snapshots in progress (2.0; 0.90 has none)
    # a flush keeps a merge that no write followed (1.6). Before, a restarted node has the segments of its
    # last commit again.
    keeps_merges: bool = True


def ways_of(view: ClusterView, settings: SettingsView) -> Ways:
    """The ways of a cluster that was read."""
    old = view.distribution != _OPENSEARCH
    major, minor, *_ = (*(int(part) for part in view.version.split(".")[:2] if part.isdigit()), 0, 0)
    return Ways(
        resets=settings.resets,
        allocation_flags=settings.allocation_flags,
        voting_by_count=view.voting_by_count,
        in_sync=not old or major >= 5,  # noqa: PLR2004  (a major version is its own name)
        delays=not old or (major, minor) >= _FIRST_WITH_DELAY,
        snapshots_in_state=not old or major != _OF_STATUS_ONLY,
        keeps_merges=not old or (major, minor) >= _FIRST_THAT_KEEPS_MERGES,
    )
