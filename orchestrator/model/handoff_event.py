"""Events of handoff on Riak: what waits for it, and where it was not hastened (`hasten_handoff`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPartition:
    """A partition that waits for handoff.

    Attributes:
        partition: its number in the ring.
        holder: the node that has it; `owner`: the node to which it belongs.
    """

    partition: int
    holder: NodeName
    owner: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffWaits:
    """Riak: before a stop, other partitions than before wait for handoff while no transfer moves data.

    Attributes:
        partitions: empty where none waits, or where something moves, is down or does not run.
    """

    partitions: tuple[WaitingPartition, ...]
    event: Literal["handoff_waits"] = "handoff_waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffLeftWaiting:
    """Riak: a node is about to be stopped while these partitions wait, which its recovery does not wait for.

    Attributes:
        partitions: empty where none waits any more that waited before an earlier stop.
        seconds: for how long they have waited without a change.
    """

    partitions: tuple[WaitingPartition, ...]
    seconds: Seconds
    event: Literal["handoff_left_waiting"] = "handoff_left_waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHastened:
    """Riak: handoff after the restart of these nodes could not be hastened, or only in part.

    The wave then waits by `transfers` alone, until handoff can be forced again.
    """

    nodes: tuple[NodeName, ...]
    why: str
    event: Literal["not_hastened"] = "not_hastened"


HandoffEvent: TypeAlias = HandoffWaits | HandoffLeftWaiting | NotHastened
