"""Which nodes next. The plan fixes the order; execution may shrink or delay a wave, never widen it."""

from __future__ import annotations

import fnmatch
from typing import Final

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import Node, NodeName, Role
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import Selection, Wave

_TIERS: Final = (
    Role.DATA_FROZEN,
    Role.DATA_COLD,
    Role.DATA_WARM,
    Role.DATA_HOT,
    Role.DATA_CONTENT,
    Role.DATA,
)
"""From the tier whose copies move least to the one that serves most; the generic `data` role last."""


def rank(node: Node, master: NodeName | None) -> tuple[int, int, str]:
    """The place of a node in the order: no data and no vote, then tiers, then voters, the master last.

    The elected master goes last, so that mastership moves once in a run (Elastic's own order for rolling
    upgrades has the master-eligible nodes last as well).
    """
    if node.name == master:
        group = 3
    elif node.master_eligible:
        group = 2
    else:
        group = 1 if node.holds_data else 0
    # A node of several tiers goes with the last of them.
    tier = max((place for place, role in enumerate(_TIERS) if role in node.roles), default=-1)
    return (group, tier, node.name)


def in_order(nodes: tuple[Node, ...], master: NodeName | None) -> tuple[Node, ...]:
    """Nodes in the order in which a run takes them."""
    return tuple(sorted(nodes, key=lambda node: rank(node, master)))


def selected(view: ClusterView, selection: Selection, zone_attribute: str | None) -> tuple[Node, ...]:
    """The members that a selection means, in order."""

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

    return in_order(tuple(node for node in view.nodes if means(node)), view.master)


def unmatched(view: ClusterView, selection: Selection) -> tuple[str, ...]:
    """Names and globs of a selection that match no member: a typing error is never taken for "none"."""
    names = [node.name for node in view.nodes]
    wanted = (*selection.only, *selection.exclude)
    return tuple(glob for glob in wanted if not fnmatch.filter(names, glob))


def next_wave(state: RunState, view: ClusterView) -> Wave | None:
    """The next wave of `--strategy node`: one node; None when no node is left to restart.

    A node that is absent now keeps its place: the predicate about expected nodes says so.
    """
    pending = [node for node in state.nodes.values() if node.phase is NodePhase.PENDING]
    if not pending:
        return None
    members = {node.name: node for node in view.nodes}
    present = [members[node.name] for node in pending if node.name in members]
    name = in_order(tuple(present), view.master)[0].name if present else pending[0].name
    attribute = state.policy.zone_attribute if state.policy else None
    number = state.waves_finished + 1
    if name == view.master:
        why = "the elected master goes last, so that mastership moves once"
    elif name in members and not members[name].holds_data and not members[name].master_eligible:
        why = "holds no data and has no vote"
    else:
        why = "one node at a time, in order"
    zone = members[name].zone(attribute) if name in members else None
    return Wave(number=number, nodes=(name,), zone=zone, why=why)
