"""The cluster settings that disable allocation, and the values that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.model.observation import SettingValue

ALLOCATION: Final = "cluster.routing.allocation.enable"
DISABLE_NEW: Final = "cluster.routing.allocation.disable_new_allocation"
FLAGS: Final[Mapping[str, str]] = {
    "primaries": "cluster.routing.allocation.disable_replica_allocation",
    "none": "cluster.routing.allocation.disable_allocation",
}
"""Before Elasticsearch 1, by the value of `enable` that does as much. Primaries of new indices are started
under both: only `DISABLE_NEW` prevents that."""
DISABLING: Final = frozenset({ALLOCATION, DISABLE_NEW, *FLAGS.values()})
"""Every setting that can disable allocation."""
_OFF: Final = frozenset({"false", "0", "off", "no"})
"""A flag with any other value is set (`Booleans.parseBoolean`, Elasticsearch 0.90)."""


def withheld(allocation_while_down: str, *, by_flags: bool) -> tuple[str, str]:
    """The setting that disables allocation while a node is down, and its value.

    Args:
        allocation_while_down: of the policy: `primaries` or `none`.
        by_flags: whether the version has flags instead of `enable`.
    """
    return (FLAGS[allocation_while_down], "true") if by_flags else (ALLOCATION, allocation_while_down)


def disables(key: str, value: SettingValue | None) -> bool:
    """Whether this value of a setting of `DISABLING` disables allocation in whole or in part.

    Servers read `enable` in any case, and Elasticsearch 5 shows its default as `ALL` (seen on 5.6.16).
    """
    if value is None or key != ALLOCATION:
        return value is not None and value not in _OFF
    return not isinstance(value, str) or value.lower() != "all"
