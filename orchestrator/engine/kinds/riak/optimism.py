"""The ring as it is when all has gone well: what a plan sees after each restart."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.kinds.riak.predicates import ASKED_AT_LEAST
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import NodeStats, RiakView, RingReady, ServiceWait, SignsOfLife, Transfers


def at_rest(view: ClusterView) -> RiakView | None:
    """What a Riak cluster would tell with every member back and nothing to hand off; None of another kind."""
    if view.riak is None:
        return None
    members = frozenset(node.name for node in view.nodes)
    return replace(
        view.riak,
        ring_ready=RingReady(agreed=True, nodes=tuple(sorted(members))),
        signs={name: _well(view.riak, name, members) for name in members},
        transfers={name: Transfers() for name in sorted(members)[:ASKED_AT_LEAST]},
    )


def _well(riak: RiakView, name: NodeName, members: frozenset[NodeName]) -> SignsOfLife:
    found = riak.signs.get(name, SignsOfLife()).stats
    stats = (
        NodeStats(
            node=name, kv_vnodes=1, connected=members, members=members, ring_size=1, ownership={name: 1}
        )
        if isinstance(found, Unknown)
        else replace(found, connected=members, kv_vnodes=found.ownership.get(name, 0))
    )
    return SignsOfLife(ping=True, stats=stats, service=ServiceWait(service="riak_kv", up=True, last=""))
