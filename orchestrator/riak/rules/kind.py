"""Riak as a kind of cluster: each method is a function of these rules."""

from __future__ import annotations

from orchestrator.engine.kind import KindOfCluster
from orchestrator.riak.rules import optimism, predicates, quorum, recovery


class Riak(KindOfCluster):
    """Nothing is rebuilt elsewhere while a node is away, so nothing is withheld; hints wait for it."""

    predicates = predicates.PREDICATES

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
