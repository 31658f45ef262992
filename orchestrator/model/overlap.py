"""What the journal says of waves that go beside the recoveries of others (`overlap_recovery`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.model.cluster import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveGaveWay:
    """With `overlap_recovery`: the wave is back, and the next may go while its copies are on their way.

    Attributes:
        copies: not started yet, of whatever wave.
    """

    number: int
    copies: int
    event: Literal["wave_gave_way"] = "wave_gave_way"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardUnderWay:
    """A shard of which a copy is on its way.

    Attributes:
        nodes: those that have a copy of it or are getting one.
    """

    index: str
    number: int
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping:
    """The last reading before the stop of a wave that does not wait for those before it.

    Attributes:
        number: of the wave that stops.
        unassigned: copies that nobody works on, beyond the baseline: 0 by the rule.
        shards: what recovers, none of it on the wave by the rule: `index`, `number`, and the `nodes` that
            have a copy or are getting one.
    """

    number: int
    unassigned: int
    shards: tuple[ShardUnderWay, ...]
    event: Literal["overlapping"] = "overlapping"
