"""Event of hastened handoff on Riak (`hasten_handoff`): cases in which it was not possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.model.cluster import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHastened:
    """Riak: handoff after the restart of these nodes could not be hastened, or only in part.

    The wave then waits by `transfers` alone, until handoff can be forced again.
    """

    nodes: tuple[NodeName, ...]
    why: str
    event: Literal["not_hastened"] = "not_hastened"
