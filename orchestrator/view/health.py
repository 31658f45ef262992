"""The health of a cluster before a run and at its end, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from orchestrator.model.cluster import Health
from orchestrator.model.event import BaselineRecorded, ClusterSampled, Event
from orchestrator.model.observation import MissingCopy
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, listed

_NAMED: Final = 3
_WHY: Final[Mapping[str, str]] = {
    "NODE_LEFT": "their node left",
    "NODE_RESTARTING": "their node restarts",
    "INDEX_CREATED": "no node since the index was created",
    "REPLICA_ADDED": "no node since the replica was added",
    "ALLOCATION_FAILED": "their allocation failed",
    "CLUSTER_RECOVERED": "no node since the whole cluster started",
    "NEW_INDEX_RESTORED": "not restored from the snapshot yet",
    "EXISTING_INDEX_RESTORED": "not restored from the snapshot yet",
}
"""The cluster's term for why a copy has no node, in words; any other one is shown as it is."""


def missing_in_words(missing: Sequence[MissingCopy]) -> str:
    """`yellow: 2 copies of logs-7 are not assigned (their node left)`; empty if none is missing."""
    if not missing:
        return ""
    count = sum(one.count for one in missing)
    health = Health.RED if any(one.primary for one in missing) else Health.YELLOW
    names = [one_line(name, 80) for name in dict.fromkeys(one.index for one in missing)]
    reasons = dict.fromkeys(_WHY.get(one.reason, one_line(one.reason, 40)) for one in missing if one.reason)
    why = f" ({listed(list(reasons), _NAMED)})" if reasons else ""
    are = "is" if count == 1 else "are"
    copies = counted(count, "copy", "copies")
    return f"{health.value}: {copies} of {listed(names, _NAMED)} {are} not assigned{why}"


def health_in_words(events: Iterable[Event]) -> str:
    """The health before a run and at its last reading; empty if both are green, or nothing shows them.

    Numbers are those before the run: between two readings that are recorded they change.
    """
    missing: Sequence[MissingCopy] = ()
    found: list[Health] = []
    for event in events:
        match event:
            case BaselineRecorded():
                missing = event.missing
            case ClusterSampled(health=health):
                found.append(health)
            case _:
                pass
    first, last = (found[0], found[-1]) if found else (None, None)
    before = missing_in_words(missing) or (first.value if first is not None else "not known")
    if last is None:
        return f"before the run {before}" if missing else ""
    if last is Health.GREEN:
        return "" if first is Health.GREEN and not missing else f"green; before the run {before}"
    if missing and before.startswith(last.value):
        return f"as before the run, {before}"
    return f"{last.value} at the last reading; before the run {before}"
