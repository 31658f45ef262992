"""The nodes that a run selects, and the order in which it restarts them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Final

from orchestrator.model.cluster import DATA_ROLES, Node, NodeName, Role
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Selection

_TIERS: Final = (
    Role.DATA_FROZEN,
    Role.DATA_COLD,
    Role.DATA_WARM,
    Role.DATA_HOT,
    Role.DATA_CONTENT,
    Role.DATA,
)
"""From the tier whose copies move least to the tier that serves most; the generic `data` role last."""

_MASTER: Final = 3
"""The place of the elected master, after all other members."""


def rank(node: Node, master: NodeName | None) -> tuple[int, int]:
    """The place of a node in the order: tiers of data, then no data and no vote, then voters, master last.

    It is Elastic's order for rolling upgrades. The elected master goes last: mastership moves once in a run.
    """
    group, tier = _place(node.roles)
    return (_MASTER if node.name == master else group), tier


@cache
def _place(roles: frozenset[Role]) -> tuple[int, int]:
    """Few sets of roles are different, and many nodes are put in order for every wave."""
    group = 2 if Role.MASTER in roles else 0 if roles & DATA_ROLES else 1
    # A node of several tiers goes with the last of them.
    return group, max((place for place, role in enumerate(_TIERS) if role in roles), default=-1)


def in_order(nodes: Iterable[Node], master: NodeName | None) -> tuple[Node, ...]:
    """Nodes in the order in which a run restarts them, by name where they are alike."""
    return tuple(sorted(nodes, key=lambda node: (rank(node, master), node.name)))


def selected(view: ClusterView, selection: Selection, zone_attribute: str | None) -> tuple[Node, ...]:
    """The members that a selection matches, in order."""

    def means(node: Node) -> bool:
        if selection.only and not any(fnmatch.fnmatchcase(node.name, glob) for glob in selection.only):
            return False
        if any(fnmatch.fnmatchcase(node.name, glob) for glob in selection.exclude):
            return False
        if selection.zone is not None and node.zone(zone_attribute) != selection.zone:
            return False
        if selection.started_before is not None:
            started = node.incarnation.started_at_ms
            return started is not None and started / 1000 < selection.started_before
        return True

    return in_order(filter(means, view.nodes), view.master)


def undated(view: ClusterView, selection: Selection, zone_attribute: str | None) -> tuple[NodeName, ...]:
    """The nodes with an unknown start time: it is unclear whether `started_before` selects them."""
    if selection.started_before is None:
        return ()
    whatever = selected(view, replace(selection, started_before=None), zone_attribute)
    return tuple(node.name for node in whatever if node.incarnation.started_at_ms is None)


def unmatched(view: ClusterView, selection: Selection) -> tuple[str, ...]:
    """Names and globs of a selection that match no member: a typing error never counts as "none"."""
    names = [node.name for node in view.nodes]
    wanted = (*selection.only, *selection.exclude)
    return tuple(glob for glob in wanted if not fnmatch.filter(names, glob))


def nodes_to_restart(started: RunStarted, *, paused: bool = False) -> int:
    """How many nodes a run restarts until it pauses (`--pause-after`) or ends: the count of every view.

    The waves of its plan count, if they are more than was asked: nodes of one machine go together.

    Args:
        started: the beginning of the run.
        paused: whether it has paused already, and continues to its end.
    """
    most = started.policy.pause_after
    if most is None or paused:
        return len(started.nodes)
    planned = {name for wave in started.planned for name in wave}
    return min(len(started.nodes), max(most, len(planned)))
