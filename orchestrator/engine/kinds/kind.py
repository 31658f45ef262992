"""What a kind of cluster brings to the decisions: its predicates, and the methods in which it differs.

The base class is a cluster that rebuilds nothing elsewhere while a node is away, and that has recovered once
its nodes are back. Each kind says in which ways it is another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.kinds.elasticsearch import catalogue, recovery, sets, settings
from orchestrator.engine.kinds.predicates import Predicate, Question
from orchestrator.engine.kinds.riak import catalogue as riak_catalogue
from orchestrator.engine.kinds.riak import optimism as riak_optimism
from orchestrator.engine.kinds.riak import quorum
from orchestrator.engine.kinds.riak import recovery as riak_recovery
from orchestrator.engine.largest_safe import Bound
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, SettingChange
from orchestrator.model.cluster import NodeName, ShardCopy, ShardId
from orchestrator.model.event import BaselineRecorded, Event, Hold, IndexTaken
from orchestrator.model.observation import ClusterView, Look, MissingCopy, Observation, SettingsView
from orchestrator.model.policy import Kind, Policy, Wave
from orchestrator.model.prediction import Usual
from orchestrator.model.reading import Instant, Reading, Unknown


@dataclass(frozen=True)
class KindOfCluster(ABC):
    """The particulars of a kind. Every method is pure."""

    predicates: tuple[Predicate, ...]  # asked before every stop, in order

    # Before the first stop ------------------------------------

    @abstractmethod
    def baseline(self, view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
        """How the cluster is before anything is changed."""

    @abstractmethod
    def usual(self, seen: Observation, policy: Policy) -> Usual:
        """The time of a node where no run has measured it."""

    @abstractmethod
    def bounds(self, policy: Policy, view: ClusterView) -> Iterable[Bound]:
        """What a set of nodes that are down together must leave, for the search of the largest."""

    def reads_too(self, state: RunState) -> frozenset[Look]:
        """Parts of the cluster's state that a decision needs besides those of every kind."""
        return frozenset()

    def folded(
        self, found: tuple[Hold, ...], rules: tuple[Predicate, ...], question: Question
    ) -> tuple[Hold, ...]:
        """The holds, with those that follow from another one listed in that one (`Hold.also`)."""
        return found

    def news(self, state: RunState, view: ClusterView) -> Event | None:
        """The event that other data than before waits for something without end; None = none does."""

    # Its settings ------------------------------------

    def withhold(self, found: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
        """The settings that stop the cluster from rebuilding the data of a stopped node."""
        return ()

    def is_withheld(self, found: SettingsView | Unknown, policy: Policy) -> bool:
        """Whether the settings, as read, do that; False if they could not be read."""
        return True

    @abstractmethod
    def raise_limits(self, state: RunState, found: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
        """The settings that make recovery faster for the run."""

    # A wave ------------------------------------

    def foreseen(self, question: Question) -> Event | None:
        """The event at a stop that names what is not waited for after it; None = nothing, or as before."""

    def taken(
        self, state: RunState, view: ClusterView, found: Reading[SettingsView], wave: Wave
    ) -> tuple[IndexTaken, ...]:
        """What a wave takes down, by the last reading before its stop."""
        return ()

    def not_back(self, view: ClusterView, node: NodeName) -> str | None:
        """What a node that is up in another life lacks to count as back, for people; None = nothing."""

    # Its recovery ------------------------------------

    def missing(
        self, state: RunState, view: ClusterView, found: Reading[SettingsView]
    ) -> tuple[ShardCopy, ...]:
        """What the waves took down and is not back yet."""
        return ()

    def unplaced(self, state: RunState, view: ClusterView) -> tuple[MissingCopy, ...]:
        """Copies without a node although the waves are back: reported, and not waited for."""
        return ()

    def red(self, state: RunState, view: ClusterView) -> tuple[tuple[ShardId, ...], tuple[ShardId, ...]]:
        """Shards that are red because of the run, and those of them that are excused for a moment."""
        return (), ()

    def unsettled(self, state: RunState, view: ClusterView) -> str | None:
        """What recovers in another way than by copies, for people; None = nothing."""

    def hastened(
        self, state: RunState, view: ClusterView, now: Instant
    ) -> tuple[Action | None, tuple[Event, ...]]:
        """While that recovers: the verb that makes it faster, and what is new about it (each event once).

        The verb is sent every two seconds; None where it cannot be made faster.
        """
        return None, ()

    def recovered(
        self, state: RunState, view: ClusterView, found: Reading[SettingsView], now: Instant
    ) -> tuple[Event, ...]:
        """Once all is back: that it was not made faster as the policy wants, if not said before."""
        return ()

    @abstractmethod
    def shortfall(self, state: RunState, view: ClusterView | None) -> str:
        """What the whole run left otherwise than it should be, for its last message; empty = nothing."""


class Elasticsearch(KindOfCluster):
    """Elasticsearch and OpenSearch: what differs between their versions is the store's dialect."""

    def baseline(self, view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
        return recovery.baseline_of(view, boots)

    def usual(self, seen: Observation, policy: Policy) -> Usual:
        return recovery.usual_restart(seen, policy)

    def bounds(self, policy: Policy, view: ClusterView) -> Iterable[Bound]:
        return sets.bounds(policy, view)

    def reads_too(self, state: RunState) -> frozenset[Look]:
        return settings.reads_too(state)

    def withhold(self, found: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
        return settings.withhold_changes(found, policy)

    def is_withheld(self, found: SettingsView | Unknown, policy: Policy) -> bool:
        return settings.is_withheld(found, policy)

    def raise_limits(self, state: RunState, found: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
        return settings.limit_changes(found, policy)

    def foreseen(self, question: Question) -> Event | None:
        return recovery.not_to_return(question)

    def taken(
        self, state: RunState, view: ClusterView, found: Reading[SettingsView], wave: Wave
    ) -> tuple[IndexTaken, ...]:
        return recovery.taken_by(state, view, found, wave)

    def missing(
        self, state: RunState, view: ClusterView, found: Reading[SettingsView]
    ) -> tuple[ShardCopy, ...]:
        return recovery.missing_of_waves(state, view, found)

    def unplaced(self, state: RunState, view: ClusterView) -> tuple[MissingCopy, ...]:
        return recovery.not_waited_for(state, view)

    def red(self, state: RunState, view: ClusterView) -> tuple[tuple[ShardId, ...], tuple[ShardId, ...]]:
        return recovery.red_by_waves(state, view)

    def shortfall(self, state: RunState, view: ClusterView | None) -> str:
        return recovery.shortfall(state, view)


class Riak(KindOfCluster):
    """Nothing is rebuilt elsewhere while a node is away, so nothing is withheld; hints wait for it."""

    def baseline(self, view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
        return riak_recovery.baseline_of(view, boots)

    def usual(self, seen: Observation, policy: Policy) -> Usual:
        """By Riak's own timers, and the size of the ring."""
        view = None if isinstance(seen.cluster, Unknown) else seen.cluster
        return riak_recovery.usual_restart(view, policy, seen.settings)

    def bounds(self, policy: Policy, view: ClusterView) -> Iterable[Bound]:
        return quorum.bounds(policy, view)

    def reads_too(self, state: RunState) -> frozenset[Look]:
        return riak_recovery.reads_too(state)

    def folded(
        self, found: tuple[Hold, ...], rules: tuple[Predicate, ...], question: Question
    ) -> tuple[Hold, ...]:
        return riak_optimism.folded(found, rules, question)

    def news(self, state: RunState, view: ClusterView) -> Event | None:
        return riak_recovery.news(state, view)

    def raise_limits(self, state: RunState, found: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
        """The transfer limits of all nodes, and with `hasten_handoff` the timers of restarted ones."""
        return (
            *riak_recovery.limit_changes(state, found, policy),
            *riak_recovery.timer_changes(state, found, policy),
        )

    def foreseen(self, question: Question) -> Event | None:
        return riak_recovery.left_waiting(question)

    def not_back(self, view: ClusterView, node: NodeName) -> str | None:
        return riak_recovery.not_back(view, node)

    def unsettled(self, state: RunState, view: ClusterView) -> str | None:
        return riak_recovery.unsettled(state, view)

    def hastened(
        self, state: RunState, view: ClusterView, now: Instant
    ) -> tuple[Action | None, tuple[Event, ...]]:
        """Handoff is forced. New is that only the wave itself has data left, or that it cannot be forced."""
        events = (riak_recovery.home(state, view, now), riak_recovery.given_up(state, view, now))
        return riak_recovery.forced(state, view), tuple(event for event in events if event is not None)

    def recovered(
        self, state: RunState, view: ClusterView, found: Reading[SettingsView], now: Instant
    ) -> tuple[Event, ...]:
        """That handoff was not or only partly hastened."""
        missed = riak_recovery.missed(state, view, found, now)
        return (missed,) if missed is not None else ()

    def shortfall(self, state: RunState, view: ClusterView | None) -> str:
        return riak_recovery.shortfall(state)


ELASTICSEARCH: Final = Elasticsearch(predicates=catalogue.PREDICATES)
RIAK: Final = Riak(predicates=riak_catalogue.PREDICATES)


def kind_of(kind: Kind) -> KindOfCluster:
    """The particulars of a kind by its name in the cluster file."""
    match kind:
        case Kind.ELASTICSEARCH:
            return ELASTICSEARCH
        case Kind.RIAK:
            return RIAK
