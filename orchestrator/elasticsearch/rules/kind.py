"""Elasticsearch and OpenSearch as a kind of cluster: each method is a function of these rules."""

from __future__ import annotations

from orchestrator.elasticsearch.rules import merge, optimism, predicates, recovery, sets, settings
from orchestrator.engine.kind import KindOfCluster, KindWords


class Elasticsearch(KindOfCluster):
    """Elasticsearch and OpenSearch: what differs between their versions is the store's dialect."""

    words = KindWords(
        leader="elected master",
        leader_last=", so that mastership moves once",
        answers="a master",
        lease="a master",
        no_lease="no master was elected",
        no_lease_help="Start the master-eligible nodes that are down, these first, and read their logs",
        undated="see whether `GET /_nodes/jvm` lists it, then ",
        copies="all its copies",
        baseline=", every copy started",
        second_failure="nodes are started, allocation is restored",
        unchecked="the run ended before its copies were checked",
    )
    predicates = predicates.PREDICATES
    merge_predicates = merge.OWN_RULES
    sampled = True
    rules = merge.RULES
    defaults = settings.DEFAULTS

    without_zones = staticmethod(settings.no_zones)

    baseline = staticmethod(recovery.baseline_of)
    usual = staticmethod(recovery.usual_restart)
    bounds = staticmethod(sets.bounds)
    played = staticmethod(optimism.played)
    reads_too = staticmethod(settings.reads_too)

    withhold = staticmethod(settings.withhold_changes)
    is_withheld = staticmethod(settings.is_withheld)
    value_today = staticmethod(settings.value_today)
    raise_limits = staticmethod(settings.limit_changes)

    foreseen = staticmethod(recovery.not_to_return)
    taken = staticmethod(recovery.taken_by)

    missing = staticmethod(recovery.missing_of_waves)
    unplaced = staticmethod(recovery.not_waited_for)
    red = staticmethod(recovery.red_by_waves)
    shortfall = staticmethod(recovery.shortfall)
