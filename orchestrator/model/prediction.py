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
    """The time of a node in a kind of cluster, used while no run of this cluster has measured it.

    Attributes:
        nodes: of single nodes, where what they store is known; any other takes the time of `node`.
        rests_on: source of the figures, for people.
        instead: what the policy would do to save time, and why this cluster cannot; empty otherwise.
    """

    node: Prediction
    rests_on: str
    instead: str = ""
    nodes: Mapping[NodeName, Prediction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What was predicted when a run began.

    Attributes:
        in_all: of the whole run.
        nodes: likely seconds of each node, those of its wave shared among the wave's nodes.
        stored: bytes that each node stored, as far as known: the next prediction compares.
        measured: whether it rests on past runs of this cluster, so that its error corrects the next one.
        correction: the factor in all likely times, by what earlier predictions were off.
    """

    in_all: Prediction
    nodes: Mapping[NodeName, Seconds] = field(default_factory=dict)
    stored: Mapping[NodeName, int] = field(default_factory=dict)
    measured: bool = False
    correction: float = 1.0
