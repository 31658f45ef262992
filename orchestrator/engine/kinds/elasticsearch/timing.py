"""Predicted duration of a restart without past runs: published times, and what each node stores.

A copy that was written while its node was away copies what it lacks, as a rule little; at worst a node copies
all that it holds, at the rate that recoveries may have.
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.estimate import PUBLISHED
from orchestrator.engine.kinds.elasticsearch.settings import BANDWIDTH, bytes_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Observation
from orchestrator.model.policy import Policy
from orchestrator.model.prediction import Prediction, Usual
from orchestrator.model.reading import Unknown

_RATE: Final = 40 << 20
"""Bytes a second: the server's default for `indices.recovery.max_bytes_per_sec`."""
_COPIED: Final = 0.02
"""The likely part of its data that a node copies."""


def stored_by_node(seen: Observation) -> dict[NodeName, int]:
    """Bytes of the copies on each node, as far as they were read."""
    disks = {} if isinstance(seen.disks, Unknown) else seen.disks
    return {name: disk.stored_bytes for name, disk in disks.items() if disk.stored_bytes is not None}


def usual_restart(seen: Observation, policy: Policy) -> Usual:
    """The time of each node from its stop until its copies are back, without a past run to go by."""
    stored = stored_by_node(seen)
    if not stored:
        return PUBLISHED
    rate = _rate(seen, policy)
    published = PUBLISHED.node
    nodes = {
        name: Prediction(
            low=published.low,
            likely=published.likely + _COPIED * size / rate,
            high=published.high + size / rate,
        )
        for name, size in stored.items()
    }
    most = max(stored.values())
    return Usual(
        node=published,
        nodes=nodes,
        rests_on=f"{PUBLISHED.rests_on}; and on up to {most / 1e9:.1f} GB a node, of which it copies "
        f"{100 * _COPIED:.0f} % as a rule and all at worst, at {rate / 1e6:.0f} MB a second",
    )


def _rate(seen: Observation, policy: Policy) -> int:
    """Bytes that a node may copy in a second while a wave recovers."""
    found = None if isinstance(seen.settings, Unknown) else bytes_of(seen.settings.effective(BANDWIDTH))
    return max(policy.recovery_limits.max_bytes_per_sec or 0, found or 0) or _RATE
