"""The plan of a run: its waves, its exact steps, and its current holds.

The fields are a public contract: `plan.json` and `--output json` use these names
(`predicted` is `predicted_seconds` there).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from orchestrator.model.cluster import NodeName, Zone
from orchestrator.model.event import Hold
from orchestrator.model.merging import LoaderLeftover, MergeTarget
from orchestrator.model.observation import MissingCopy, SettingValue
from orchestrator.model.policy import Kind, Strategy
from orchestrator.model.prediction import Forecast, Prediction

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWave:
    """A wave as planned. Execution may shrink or delay it, never widen it."""

    number: int  # one-based
    nodes: tuple[NodeName, ...]
    predicted: Prediction
    zone: Zone | None = None  # None where the cluster has no awareness or the strategy does not go by it
    why: str = ""  # one line: why these nodes are next, and why the wave has no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action as it would be sent."""

    # one-based; 0 is before the first wave. A step after the last wave carries the last one's number.
    wave: int
    order: int  # one-based within the whole plan
    target: str  # a node's name, `cluster`, or `index NAME`
    action: str  # the verb's public name
    detail: str  # the exact call or command line, free of secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWait:
    """What a run waits for between two steps, and for how long at most."""

    wave: int  # as of a step
    after: int  # the order of the step before it; 0 before the first
    what: str
    limit: float  # seconds
    key: str  # of the limit, in the playbook's `deadlines`


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueToday:
    """The value of a setting that is in force before the run."""

    # a size as the server writes it (`40mb`); None if nothing sets it and it has no known default
    value: SettingValue | None = None
    # the level that sets it: `transient`, `persistent`, `default`, or `file` (configuration of the nodes);
    # empty without a value
    source: str = ""
    # by how much the run raises it, as a ratio; None if it is no number, or is not raised
    times: float | None = None


FoundAndWanted: TypeAlias = tuple[SettingValue | None, SettingValue | None]
"""A setting before the run and during it; None is "not set"."""


def by_key(levels: Mapping[str, Mapping[str, T]]) -> dict[str, list[tuple[str, T]]]:
    """By key, each level that has it, and its value there."""
    found: dict[str, list[tuple[str, T]]] = {}
    for level, values in levels.items():
        for key, value in values.items():
            found.setdefault(key, []).append((level, value))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do, and the state of the cluster at planning."""

    cluster: str
    kind: Kind
    distribution: str  # `elasticsearch` or `opensearch`
    version: str  # lowest version among the nodes
    strategy: Strategy
    # `sha256:…` of the plan's inputs. A saved plan is applied only while the fingerprint matches.
    fingerprint: str
    waves: tuple[PlannedWave, ...]
    predicted: Prediction
    # seconds after which the run stands down (`--timeout`); None without a limit
    timeout: float | None = None
    # no plan of this strategy has fewer waves; None where it is not known
    lower_bound_waves: int | None = None
    lower_bound_reason: str = ""  # why, for people; empty without it
    overlaps: bool = False  # whether a wave may begin while copies still recover in which it has no part
    holds: tuple[Hold, ...] = ()  # what would hold the run now
    predicates: int = 0  # how many are checked before every stop, less those that are switched off
    lasting: tuple[str, ...] = ()  # predicates among them that waiting cannot clear: the run ends at once
    steps: tuple[Step, ...] = ()
    waits: tuple[PlannedWait, ...] = ()  # between the steps, in order
    # key to (found, wanted), of the first level at which the run changes it
    settings_changed: Mapping[str, FoundAndWanted] = field(default_factory=dict)
    max_segments: int | None = None  # maximum segments per copy; None for a restart alone
    merges: tuple[MergeTarget, ...] = ()  # indices of the run, in order; empty for a restart alone
    leftovers: tuple[LoaderLeftover, ...] = ()  # settings on them that bulk loaders probably left behind
    predicted_from: str = ""  # source of the predicted times, for people; `measured`: it is earlier runs
    measured: bool = False
    correction: float = 1.0  # the factor in all likely times, by what earlier predictions were off
    # bytes that each node stores, as far as known
    stored: Mapping[NodeName, int] = field(default_factory=dict)
    target_version: str | None = None  # of an upgrade; None for a restart
    # by node, the work beside its restart, as `hooks`, `tuning`, `reboot`, `version`
    owed: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    # for an upgrade, nodes that run another version than the target afterwards
    other_versions: Mapping[NodeName, str] = field(default_factory=dict)
    nodes_selected: int = 0  # number of nodes that the run restarts in the end; its waves may have fewer
    # the run pauses after these waves (`--pause-after`), and `resume` restarts the other nodes
    pauses: bool = False
    # the values in force now of the settings that it changes, by key
    settings_today: Mapping[str, ValueToday] = field(default_factory=dict)
    # the same by each level: `persistent`, `transient`
    settings_by_level: Mapping[str, Mapping[str, FoundAndWanted]] = field(default_factory=dict)
    missing: tuple[MissingCopy, ...] = ()  # copies that are not assigned now; the run does not wait for them

    @property
    def nodes(self) -> frozenset[NodeName]:
        """The nodes of its waves."""
        return frozenset(name for wave in self.waves for name in wave.nodes)

    @property
    def forecast(self) -> Forecast:
        """What it predicts, for the run's journal."""
        nodes = {name: wave.predicted.likely / len(wave.nodes) for wave in self.waves for name in wave.nodes}
        return Forecast(
            in_all=self.predicted,
            nodes=nodes,
            stored=self.stored,
            measured=self.measured,
            correction=self.correction,
        )
