"""What a kind of cluster brings to the decisions: one frozen value of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.kinds.elasticsearch import recovery, settings
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.predicates import Predicate
from orchestrator.engine.state import RunState
from orchestrator.errors import NotInThisVersion
from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import NodeName, ShardCopy, ShardId
from orchestrator.model.event import BaselineRecorded
from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.policy import Kind, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfCluster:
    """The particulars of a kind.

    Attributes:
        predicates: asked before every stop, in order.
        baseline: how the cluster is before anything is changed.
        withhold: the settings that keep the cluster from rebuilding what a stopped node holds.
        raise_limits: the settings that make recovery faster for the run.
        missing: what is not back yet, beyond the baseline.
        red: what is without a serving copy and was not accepted to be.
    """

    predicates: tuple[Predicate, ...]
    baseline: Callable[[ClusterView, dict[NodeName, str]], BaselineRecorded]
    withhold: Callable[[SettingsView, Policy], tuple[SettingChange, ...]]
    raise_limits: Callable[[SettingsView, Policy], tuple[SettingChange, ...]]
    missing: Callable[[RunState, ClusterView], tuple[ShardCopy, ...]]
    red: Callable[[RunState, ClusterView], tuple[ShardId, ...]]


ELASTICSEARCH: Final = KindOfCluster(
    predicates=PREDICATES,
    baseline=recovery.baseline_of,
    withhold=settings.withhold_changes,
    raise_limits=settings.limit_changes,
    missing=recovery.missing_beyond_baseline,
    red=recovery.unaccepted_red,
)
"""Elasticsearch and OpenSearch: what differs between their versions is the store's dialect."""


def kind_of(kind: Kind) -> KindOfCluster:
    """The particulars of a kind by its name in the cluster file."""
    match kind:
        case Kind.ELASTICSEARCH:
            return ELASTICSEARCH
        case Kind.RIAK:
            raise NotInThisVersion("kind: riak")
