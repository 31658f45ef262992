"""Riak as a kind of cluster: each method is a function of these rules."""

from __future__ import annotations

from orchestrator.engine.kind import KindOfCluster, KindWords
from orchestrator.model.cluster import Node
from orchestrator.model.phase import Phase
from orchestrator.riak.rules import locations, optimism, predicates, quorum, recovery
from orchestrator.steps import CHECK, DISABLE, HANDOFF, RECOVER


class Riak(KindOfCluster):
    """Nothing is rebuilt elsewhere while a node is away, so nothing is withheld; hints wait for it."""

    limits_in_memory = True
    words = KindWords(
        leader="claimant",
        answers="a node that answers",
        lease="a majority of the machines",
        no_lease="the lease could not be read",
        no_lease_help="Start the nodes and the machines that are down, these first, and read their logs",
        unread="a Riak cluster is read by commands on its hosts",
        copies="all its vnodes",
        recovered="; its handoff is done",
        baseline=" up",
        second_failure="ours are started, limits are restored",
        unchecked="the run ended before its handoff was checked",
        steps={RECOVER: HANDOFF, DISABLE: CHECK},
        awaits={
            Phase.REASSIGNED: "handoff: no transfer waiting or active, every primary partition running",
            Phase.FINISHING: "the transfer limits to be restored",
            Phase.STANDING_DOWN: "the nodes of this run to be started and the transfer limits to be restored",
        },
    )
    predicates = predicates.PREDICATES

    without_zones = staticmethod(locations.missing)
    kept_apart_by_zones = staticmethod(locations.known)

    baseline = staticmethod(recovery.baseline_of)
    usual = staticmethod(recovery.usual_restart)
    bounds = staticmethod(quorum.bounds)
    played = staticmethod(optimism.played)
    reads_too = staticmethod(recovery.reads_too)
    folded = staticmethod(optimism.folded)
    news = staticmethod(recovery.news)

    value_today = staticmethod(recovery.value_today)
    raise_limits = staticmethod(recovery.raised)

    foreseen = staticmethod(recovery.left_waiting)
    not_back = staticmethod(recovery.not_back)

    unsettled = staticmethod(recovery.unsettled)
    hastened = staticmethod(recovery.hastened)
    recovered = staticmethod(recovery.missed)
    shortfall = staticmethod(recovery.shortfall)

    def may_lead(self, _node: Node, /) -> bool:
        """Each node can be the claimant."""
        return True
