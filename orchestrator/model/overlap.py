"""Events of waves that overlap with the recovery of earlier waves (`overlap_recovery`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.model.cluster import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveGaveWay:
    """With `overlap_recovery`: the wave is back, and the next may start while copies still recover.

    Attributes:
        copies: not started yet, of any wave.
    """

    number: int
    copies: int
    event: Literal["wave_gave_way"] = "wave_gave_way"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardUnderWay:
    """A shard with a copy that is recovering or moving.

    Attributes:
        nodes: those that have a copy of it or are getting one.
    """

    index: str
    number: int
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping:
    """The last reading before the stop of a wave that does not wait for earlier waves.

    Attributes:
        number: of the wave that stops.
        unassigned: copies beyond the baseline that are not being allocated; 0 by the predicate.
        shards: shards that recover, none of them on the wave by the predicate: `index`, `number`, and the
            `nodes` that have a copy or are getting one.
    """

    number: int
    unassigned: int
    shards: tuple[ShardUnderWay, ...]
    event: Literal["overlapping"] = "overlapping"
