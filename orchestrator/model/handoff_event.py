"""What the journal says of hastened handoff of Riak (`hasten_handoff`): where it was wanted and not done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.model.cluster import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHastened:
    """Riak: handoff after the restart of these nodes is not hastened as the playbook wants, or only in part.

    A wave that waits for it goes by `transfers` alone from then on, until handoff can be forced again.
    """

    nodes: tuple[NodeName, ...]
    why: str
    event: Literal["not_hastened"] = "not_hastened"
