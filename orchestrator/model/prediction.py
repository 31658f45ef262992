"""Predicted durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted duration, as a range: recovery depends on what is written meanwhile."""

    low: Seconds
    likely: Seconds
    high: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The time of a node in a kind of cluster, used while no run of this cluster has measured it."""

    node: Prediction
    rests_on: str  # source of the figures, for people
    instead: str = ""  # what the policy would do to save time, and why this cluster cannot; empty otherwise
    # of single nodes, where what they store is known; any other takes the time of `node`
    nodes: Mapping[NodeName, Prediction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What was predicted when a run began."""

    in_all: Prediction  # of the whole run
    # likely seconds of each node, those of its wave shared among the wave's nodes
    nodes: Mapping[NodeName, Seconds] = field(default_factory=dict)
    # bytes that each node stored, as far as known: the next prediction compares
    stored: Mapping[NodeName, int] = field(default_factory=dict)
    # whether it rests on past runs of this cluster, so that its error corrects the next one
    measured: bool = False
    correction: float = 1.0  # the factor in all likely times, by what earlier predictions were off
