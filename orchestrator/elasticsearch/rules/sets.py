"""What a set of nodes that are down together must leave, as bounds for the search of the largest one.

They are what the predicates about a wave check (`predicates.py`, `every_kind.py`), without those that the
operator has disabled. The predicates decide in the end: a bound that is too loose makes a wave smaller than
it was planned, and never lets one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.elasticsearch.rules.predicates import (
    ROLES_THAT_NEED_NO_MEMBER,
    SMALLEST_QUORUM,
    served,
    tiers_too,
)
from orchestrator.elasticsearch.rules.recovery import counts_as_safe, exempt_from_copies_rule
from orchestrator.engine.every_kind import budget_bounds
from orchestrator.engine.largest_safe import Bound
from orchestrator.model.cluster import DATA_ROLES, NodeName, Role
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Policy


def bounds(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    """Every bound of this cluster."""
    yield from budget_bounds(policy, view)
    yield from _of_roles(policy, view)
    yield from _of_voters(policy, view)
    yield from _of_shards(policy, view)


def _of_roles(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    members: dict[Role, list[NodeName]] = {}
    in_tier: dict[Role, list[NodeName]] = {}
    for node in view.nodes:
        for role in served(node.roles):
            members.setdefault(role, []).append(node.name)
        for role in tiers_too(node.roles):
            in_tier.setdefault(role, []).append(node.name)
    for role, names in members.items():
        accepted = role is Role.MASTER and policy.accept_master_outage
        if role in ROLES_THAT_NEED_NO_MEMBER or accepted:
            continue
        service, tier = f"role {role.value}", f"tier {role.value}"
        if not policy.disables("every_role_keeps_a_member", service):
            yield Bound(name=service, counts=dict.fromkeys(names, 1), most=len(in_tier[role]) - 1)
        if role in DATA_ROLES and not policy.disables("capacity_remains", tier):
            stay = math.ceil(policy.min_capacity * len(in_tier[role]))
            yield Bound(name=tier, counts=dict.fromkeys(in_tier[role], 1), most=len(in_tier[role]) - stay)


def _of_voters(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    if view.voters is None or (policy.accept_master_outage and len(view.voters) < SMALLEST_QUORUM):
        return
    if policy.disables("master_quorum_survives", "voting configuration"):
        return
    voters = [node.name for node in view.nodes if node.node_id in view.voters]
    most = len(voters) - (len(view.voters) // 2 + 1)
    yield Bound(name="voters", counts=dict.fromkeys(voters, 1), most=most)


def _of_shards(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    metadata, least = view.metadata, policy.min_started_copies
    rule = "every_shard_keeps_started_copies"
    off = {index.name for index in view.indices if policy.disables(rule, f"index {index.name}")}
    unbound = policy.accept_red | off
    for shard, copies in view.shards.items():
        index = metadata.get(shard.index_uuid)
        if exempt_from_copies_rule(index) or shard.index in unbound:
            continue
        safe = [copy.node for copy in copies if copy.node is not None and counts_as_safe(index, copy)]
        yield Bound(name=f"shard {shard}", counts=dict.fromkeys(safe, 1), most=len(safe) - least)
