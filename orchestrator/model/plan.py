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
from orchestrator.model.observation import SettingValue
from orchestrator.model.policy import Kind, Strategy
from orchestrator.model.prediction import Forecast, Prediction

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWave:
    """A wave as planned. Execution may shrink or delay it, never widen it.

    Attributes:
        number: one-based.
        zone: None where the cluster has no awareness or the strategy does not go by it.
        why: one line: why these nodes are next, and why the wave has no more.
    """

    number: int
    nodes: tuple[NodeName, ...]
    predicted: Prediction
    zone: Zone | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action as it would be sent.

    Attributes:
        wave: one-based; 0 is before the first wave. A step after the last wave carries the last one's number.
        order: one-based within the whole plan.
        target: a node's name, `cluster`, or `index NAME`.
        action: the verb's public name.
        detail: the exact call or command line, free of secrets.
    """

    wave: int
    order: int
    target: str
    action: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueToday:
    """The value of a setting that is in force before the run.

    Attributes:
        value: a size as the server writes it (`40mb`); None if nothing sets it and it has no known default.
        source: the level that sets it: `transient`, `persistent`, `default`, or `file` (configuration of the
            nodes); empty without a value.
        times: by how much the run raises it, as a ratio; None if it is no number, or is not raised.
    """

    value: SettingValue | None = None
    source: str = ""
    times: float | None = None


FoundAndWanted: TypeAlias = tuple[SettingValue | None, SettingValue | None]
"""A setting before the run and during it; None is "absent"."""


def by_key(levels: Mapping[str, Mapping[str, T]]) -> dict[str, list[tuple[str, T]]]:
    """By key, each level that has it, and its value there."""
    found: dict[str, list[tuple[str, T]]] = {}
    for level, values in levels.items():
        for key, value in values.items():
            found.setdefault(key, []).append((level, value))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do, and the state of the cluster at planning.

    Attributes:
        distribution: `elasticsearch` or `opensearch`.
        version: lowest version among the nodes.
        target_version: of an upgrade; None for a restart.
        owed: by node, the work beside its restart, as `hooks`, `tuning`, `reboot`, `version`.
        other_versions: for an upgrade, nodes that run another version than the target afterwards.
        fingerprint: `sha256:…` of the plan's inputs. A saved plan is applied only while the fingerprint
            matches.
        lower_bound_waves: no plan of this strategy has fewer waves; None where it is not known.
        lower_bound_reason: why, for people; empty without it.
        overlaps: whether a wave may begin while copies still recover in which it has no part.
        holds: what would hold the run now.
        lasting: predicates among them that waiting cannot clear: the run ends at once.
        settings_changed: key to (found, wanted), of the first level at which the run changes it.
        settings_by_level: the same by each level: `persistent`, `transient`.
        settings_today: the values in force now of the settings that it changes, by key.
        max_segments: maximum segments per copy; None for a restart alone.
        merges: indices of the run, in order; empty for a restart alone.
        leftovers: settings on them that bulk loaders probably left behind.
        timeout: seconds after which the run stands down (`--timeout`); None without a limit.
        predicted_from: source of the predicted times, for people; `measured`: it is earlier runs.
        correction: the factor in all likely times, by what earlier predictions were off.
        stored: bytes that each node stores, as far as known.
        nodes_selected: number of nodes that the run restarts in the end; its waves may have fewer.
        pauses: the run pauses after these waves (`--pause-after`), and `resume` restarts the other nodes.
    """

    cluster: str
    kind: Kind
    distribution: str
    version: str
    strategy: Strategy
    fingerprint: str
    waves: tuple[PlannedWave, ...]
    predicted: Prediction
    timeout: float | None = None
    lower_bound_waves: int | None = None
    lower_bound_reason: str = ""
    overlaps: bool = False
    holds: tuple[Hold, ...] = ()
    lasting: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    settings_changed: Mapping[str, FoundAndWanted] = field(default_factory=dict)
    max_segments: int | None = None
    merges: tuple[MergeTarget, ...] = ()
    leftovers: tuple[LoaderLeftover, ...] = ()
    predicted_from: str = ""
    measured: bool = False
    correction: float = 1.0
    stored: Mapping[NodeName, int] = field(default_factory=dict)
    target_version: str | None = None
    owed: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    other_versions: Mapping[NodeName, str] = field(default_factory=dict)
    nodes_selected: int = 0
    pauses: bool = False
    settings_today: Mapping[str, ValueToday] = field(default_factory=dict)
    settings_by_level: Mapping[str, Mapping[str, FoundAndWanted]] = field(default_factory=dict)

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
