"""What a kind of cluster brings to the decisions: one frozen value of pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.kinds.elasticsearch import catalogue, recovery, sets, settings, timing
from orchestrator.engine.kinds.predicates import Predicate, Question
from orchestrator.engine.kinds.riak import catalogue as riak_catalogue
from orchestrator.engine.kinds.riak import hasten, waiting
from orchestrator.engine.kinds.riak import optimism as riak_optimism
from orchestrator.engine.kinds.riak import recovery as riak_recovery
from orchestrator.engine.kinds.riak import sets as riak_sets
from orchestrator.engine.kinds.riak import settings as riak_settings
from orchestrator.engine.kinds.riak import timing as riak_timing
from orchestrator.engine.largest_safe import Bound
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, SettingChange
from orchestrator.model.cluster import NodeName, ShardCopy, ShardId
from orchestrator.model.event import BaselineRecorded, Event, Hold, IndexTaken
from orchestrator.model.observation import ClusterView, Look, MissingCopy, Observation, SettingsView
from orchestrator.model.policy import Kind, Policy, Wave
from orchestrator.model.prediction import Usual
from orchestrator.model.reading import Instant, Reading, Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfCluster:
    """The particulars of a kind.

    Attributes:
        predicates: asked before every stop, in order.
        baseline: how the cluster is before anything is changed.
        withhold: the settings that stop the cluster from rebuilding the data of a stopped node.
        is_withheld: whether the settings, as read, do that; False if they could not be read.
        raise_limits: the settings that make recovery faster for the run.
        taken: what a wave takes down, by the last reading before its stop.
        news: the event that other data than before waits for something without end; None = none does.
        foreseen: the event at a stop that names what its recovery does not wait for, by the same reading;
            None = nothing, or as before.
        missing: what the waves took down and is not back yet.
        unplaced: copies without a node although the waves are back: reported, and not waited for.
        red: shards that are red because of the run, and those of them that are excused for a moment.
        holder: by a setting's key, the node that keeps it in memory and loses it with that process; None for
            settings that the cluster keeps.
        not_back: what a node that is up in another life lacks to count as back, for people; None = nothing.
        unsettled: what recovers in another way than by copies, for people; None = nothing.
        hastened: the verb that makes that faster, sent every two seconds; None = none.
        half_way: the event that a part of it is done, once a phase; None = not so, or reported before.
        given_up: during the wait, the event that it cannot be made faster; None as above.
        missed: at its end, the event that it was not made faster as the policy wants; None as above.
        shortfall: the same of the whole run, for its last message; empty = none.
        usual: the time of a node where no run has measured it.
        reads_too: parts of the cluster's state that a decision needs besides those of every kind.
        folded: the holds, with those that follow from another one listed in that one (`Hold.also`).
        bounds: what a set of nodes that are down together must leave, for the search of the largest.
    """

    predicates: tuple[Predicate, ...]
    baseline: Callable[[ClusterView, dict[NodeName, str]], BaselineRecorded]
    withhold: Callable[[SettingsView, Policy], tuple[SettingChange, ...]]
    is_withheld: Callable[[SettingsView | Unknown, Policy], bool]
    raise_limits: Callable[[RunState, SettingsView, Policy], tuple[SettingChange, ...]]
    taken: Callable[[RunState, ClusterView, Reading[SettingsView], Wave], tuple[IndexTaken, ...]]
    news: Callable[[RunState, ClusterView], Event | None]
    foreseen: Callable[[Question], Event | None]
    missing: Callable[[RunState, ClusterView, Reading[SettingsView]], tuple[ShardCopy, ...]]
    unplaced: Callable[[RunState, ClusterView], tuple[MissingCopy, ...]]
    red: Callable[[RunState, ClusterView], tuple[tuple[ShardId, ...], tuple[ShardId, ...]]]
    holder: Callable[[str], NodeName | None]
    not_back: Callable[[ClusterView, NodeName], str | None]
    unsettled: Callable[[RunState, ClusterView], str | None]
    hastened: Callable[[RunState, ClusterView], Action | None]
    half_way: Callable[[RunState, ClusterView, Instant], Event | None]
    given_up: Callable[[RunState, ClusterView, Instant], Event | None]
    missed: Callable[[RunState, ClusterView, Reading[SettingsView], Instant], Event | None]
    shortfall: Callable[[RunState, ClusterView | None], str]
    usual: Callable[[Observation, Policy], Usual]
    reads_too: Callable[[RunState], frozenset[Look]]
    folded: Callable[[tuple[Hold, ...], tuple[Predicate, ...], Question], tuple[Hold, ...]]
    bounds: Callable[[Policy, ClusterView], Iterable[Bound]]


ELASTICSEARCH: Final = KindOfCluster(
    predicates=catalogue.PREDICATES,
    baseline=recovery.baseline_of,
    withhold=settings.withhold_changes,
    is_withheld=settings.is_withheld,
    raise_limits=lambda _state, found, policy: settings.limit_changes(found, policy),
    taken=recovery.taken_by,
    news=lambda _state, _view: None,
    foreseen=recovery.not_to_return,
    missing=recovery.missing_of_waves,
    unplaced=recovery.not_waited_for,
    red=recovery.red_by_waves,
    holder=lambda _key: None,
    not_back=lambda _view, _node: None,
    unsettled=lambda _state, _view: None,
    hastened=lambda _state, _view: None,
    half_way=lambda _state, _view, _now: None,
    given_up=lambda _state, _view, _now: None,
    missed=lambda _state, _view, _settings, _now: None,
    shortfall=recovery.shortfall,
    usual=timing.usual_restart,
    reads_too=settings.reads_too,
    folded=lambda found, _rules, _question: found,
    bounds=sets.bounds,
)
"""Elasticsearch and OpenSearch: what differs between their versions is the store's dialect."""

RIAK: Final = KindOfCluster(
    predicates=riak_catalogue.PREDICATES,
    baseline=riak_recovery.baseline_of,
    withhold=lambda _found, _policy: (),
    is_withheld=lambda _found, _policy: True,
    raise_limits=lambda state, found, policy: (
        *riak_settings.limit_changes(state, found, policy),
        *hasten.timer_changes(state, found, policy),
    ),
    taken=lambda _state, _view, _settings, _wave: (),
    news=waiting.news,
    foreseen=waiting.left_waiting,
    missing=lambda _state, _view, _settings: (),
    unplaced=lambda _state, _view: (),
    red=lambda _state, _view: ((), ()),
    holder=riak_settings.holder,
    not_back=riak_recovery.not_back,
    unsettled=riak_recovery.unsettled,
    hastened=hasten.forced,
    half_way=hasten.home,
    given_up=hasten.given_up,
    missed=hasten.missed,
    shortfall=lambda state, _view: "; ".join(
        text for text in (hasten.shortfall(state), waiting.shortfall(state)) if text
    ),
    usual=lambda seen, policy: riak_timing.usual_restart(
        None if isinstance(seen.cluster, Unknown) else seen.cluster, policy, seen.settings
    ),
    reads_too=hasten.reads_too,
    folded=riak_optimism.folded,
    bounds=riak_sets.bounds,
)
"""Riak rebuilds nothing elsewhere while a node is away, so nothing is withheld; hints wait for its return."""


def kind_of(kind: Kind) -> KindOfCluster:
    """The particulars of a kind by its name in the cluster file."""
    match kind:
        case Kind.ELASTICSEARCH:
            return ELASTICSEARCH
        case Kind.RIAK:
            return RIAK
