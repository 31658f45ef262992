"""What a kind of cluster brings to the decisions: its predicates, its rules, and how else it differs.

The base class is a cluster that rebuilds nothing elsewhere while a node is away, and that has recovered once
its nodes are back. Each kind says in which ways it is another one. The engine knows no kind: it is given one
(`orchestrator.kinds`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from orchestrator.engine.largest_safe import Bound
from orchestrator.engine.predicates import Predicate, Question
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, SettingChange
from orchestrator.model.cluster import Node, NodeName, ShardCopy, ShardId
from orchestrator.model.event import BaselineRecorded, Event, Hold, IndexTaken, RunStarted
from orchestrator.model.observation import (
    ClusterView,
    Look,
    MissingCopy,
    Observation,
    SettingsView,
    SettingValue,
)
from orchestrator.model.phase import Phase
from orchestrator.model.plan import ValueToday
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.prediction import Usual
from orchestrator.model.reading import Instant, Reading, Unknown

if TYPE_CHECKING:  # a situation has its kind
    from orchestrator.engine.situation import Decision, Situation

Rule: TypeAlias = "Callable[[Situation], Decision | None]"
"""One rule of a run: its decision, or None where it does not apply."""

Row: TypeAlias = "tuple[Collection[Phase], Rule]"
"""A rule, and the phases of the run in which it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWords:
    """What this kind of cluster calls what all kinds have."""

    leader: str  # its `master`
    leader_last: str = ""  # why that one goes last, after `goes last`
    answers: str  # what a reading needs
    lease: str  # what the lease needs
    no_lease: str  # that the lease cannot be read
    no_lease_help: str  # what an operator does then, before `resume`
    undated: str = ""  # what to look at, and then, if a node does not show when its process started
    unread: str = ""  # why it is not read beside a run, for `status`; empty if it is
    copies: str  # what a node brings back
    recovered: str = ""  # what else is over then
    baseline: str = ""  # the state of its nodes before the first stop, after their number
    second_failure: str  # what is done of the run's own after a second failure, and what is restored
    unchecked: str  # what was not awaited of nodes that run again
    # steps of a turn that it calls otherwise (`orchestrator.steps`)
    steps: Mapping[str, str] = field(default_factory=dict)
    awaits: Mapping[Phase, str] = field(default_factory=dict)  # what ends a phase, where that differs


class KindOfCluster(ABC):
    """The particulars of a kind. Every method is pure."""

    words: ClassVar[KindWords]

    predicates: ClassVar[tuple[Predicate, ...]]  # asked before every stop, in order
    rules: ClassVar[tuple[Row, ...]] = ()  # beside those of every kind, asked before a run is done
    merge_predicates: ClassVar[tuple[Predicate, ...]] = ()  # asked before a merge
    # whether changed limits are in the memory of its nodes alone: without a record they can only be shown
    limits_in_memory: ClassVar[bool] = False
    sampled: ClassVar[bool] = False  # whether its readings are recorded for the report
    # values of settings that the server shows only while they are not set
    defaults: ClassVar[Mapping[str, SettingValue]] = MappingProxyType({})

    # Before the first stop ------------------------------------

    @abstractmethod
    def without_zones(
        self, view: ClusterView, settings: Reading[SettingsView], policy: Policy, file: str, /
    ) -> str | None:
        """Why `strategy: zone` is refused, and what to do in `file`, its cluster file; None = it is not."""

    def kept_apart_by_zones(self, view: ClusterView) -> bool:
        """Whether zones keep the copies of a wave apart under `strategy: shard-safe`."""
        return True

    @abstractmethod
    def baseline(self, view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
        """How the cluster is before anything is changed."""

    @abstractmethod
    def usual(self, seen: Observation, policy: Policy) -> Usual:
        """The time of a node where no run has measured it."""

    @abstractmethod
    def bounds(self, policy: Policy, view: ClusterView) -> Iterable[Bound]:
        """What a set of nodes that are down together must leave, for the search of the largest."""

    def may_lead(self, node: Node, /) -> bool:
        """Whether a plan expects the cluster to make this node its master once that one is stopped."""
        return node.master_eligible

    def played(self, seen: Observation, action: Action) -> Observation:
        """The reading that a plan expects after an action, in what only this kind has.

        It is asked about verbs that only some kinds have, and about the start of a node.
        """
        return seen

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

    def withhold(self, settings: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
        """The settings that stop the cluster from rebuilding the data of a stopped node."""
        return ()

    def is_withheld(self, settings: SettingsView | Unknown, policy: Policy) -> bool:
        """Whether the settings, as read, do that; False if they could not be read."""
        return True

    def value_today(
        self, settings: SettingsView, key: str, wanted: SettingValue | None, begun: RunStarted, /
    ) -> ValueToday:
        """The value of a setting that is in force, its source, and how many times as high the wanted one is.

        Args:
            settings: as read.
            key: of the setting.
            wanted: the value during the run.
            begun: the run; the usual values depend on the version.
        """
        return ValueToday()

    def raise_limits(
        self, settings: SettingsView, policy: Policy, state: RunState, /
    ) -> tuple[SettingChange, ...]:
        """The settings that make recovery faster for the run."""
        return ()

    # A wave ------------------------------------

    def foreseen(self, question: Question) -> Event | None:
        """The event at a stop that names what is not waited for after it; None = nothing, or as before."""

    def taken(
        self, state: RunState, view: ClusterView, settings: Reading[SettingsView], wave: Wave
    ) -> tuple[IndexTaken, ...]:
        """What a wave takes down, by the last reading before its stop."""
        return ()

    def not_back(self, view: ClusterView, node: NodeName) -> str | None:
        """What a node that is up in another life lacks to count as back, for people; None = nothing."""

    # Its recovery ------------------------------------

    def missing(
        self, state: RunState, view: ClusterView, settings: Reading[SettingsView]
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
        self, state: RunState, view: ClusterView, settings: Reading[SettingsView], now: Instant
    ) -> Event | None:
        """Once all is back: that it was not made faster as the policy wants; None if it was, or if said."""

    def shortfall(self, state: RunState, view: ClusterView | None, /) -> str:
        """What the whole run left otherwise than it should be, for its last message; empty = nothing."""
        return ""
