"""Values of settings that no update has set, where `_cluster/settings` does not list them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.elasticsearch.dialect import parse_version
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS
from orchestrator.model.observation import SettingsView

_FIRST_WITH_ENABLE: Final = (1, 0, 0)
_PREFIX: Final = "cluster.routing.allocation."
_REBALANCE: Final = "cluster.routing.rebalance.enable"
MINIMUM_MASTERS: Final = "discovery.zen.minimum_master_nodes"
_DEFAULTS: Final[Mapping[str, str]] = {
    ALLOCATION: "all",
    _REBALANCE: "all",
    f"{_PREFIX}node_initial_primaries_recoveries": "4",
    f"{_PREFIX}node_concurrent_recoveries": "2",
    f"{_PREFIX}disk.threshold_enabled": "true",
    f"{_PREFIX}disk.watermark.low": "85%",
    f"{_PREFIX}disk.watermark.high": "90%",
    "indices.recovery.max_bytes_per_sec": "40mb",
    "indices.recovery.concurrent_streams": "3",
}
"""Elasticsearch 1.6 to 2.4 (`ThrottlingAllocationDecider`, `DiskThresholdDecider`, `RecoverySettings`)."""
_SLOW_RECOVERY: Final = {"indices.recovery.max_bytes_per_sec": "20mb"}
"""Before 1.6."""
_OLD_DISKS: Final = {
    f"{_PREFIX}disk.threshold_enabled": "false",
    f"{_PREFIX}disk.watermark.low": "0.7",
    f"{_PREFIX}disk.watermark.high": "0.85",
}
"""Before 1.3 (seen in 0.90.13)."""
_FIRST_WITH_DISKS: Final = (1, 3, 0)
_FLAGS: Final = dict.fromkeys((DISABLE_NEW, *FLAGS.values()), "false")
"""Before 1.0, in place of `enable`."""
_EARLIER_NAMES: Final = {
    "indices.recovery.max_bytes_per_sec": "indices.recovery.max_size_per_sec",
    "indices.recovery.concurrent_streams": "index.shard.recovery.concurrent_streams",
}
"""Names of settings in elasticsearch.yml that a server before 5 reads where the later name is absent."""
_FIRST_READ: Final = {f"{_PREFIX}node_concurrent_recoveries": f"{_PREFIX}concurrent_recoveries"}
"""Names that it reads before these (`ThrottlingAllocationDecider`)."""
_FIRST_AT_40_MB: Final = (1, 6, 0)
_FIRST_VOTING: Final = (7, 0, 0)
"""The first version with a voting configuration instead of `minimum_master_nodes`."""
_FIRST_WITH_REBALANCE: Final = (2, 0, 0)
_READ: Final = (_PREFIX, "cluster.routing.rebalance.", "indices.recovery.", "discovery.zen.")


def file_values(settings: Mapping[str, str], version: str) -> dict[str, str]:
    """The values of absent settings on a node before 5.0: its elasticsearch.yml, else its version's defaults.

    Args:
        settings: the node's own settings, by their dotted names.
        version: of the node.
    """
    numbers = parse_version(version)
    slow = _SLOW_RECOVERY if numbers < _FIRST_AT_40_MB else {}
    disks = _OLD_DISKS if numbers < _FIRST_WITH_DISKS else {}
    earlier, first = (
        {key: settings[name] for key, name in names.items() if name in settings}
        for names in (_EARLIER_NAMES, _FIRST_READ)
    )
    own = {key: value for key, value in settings.items() if key.startswith(_READ)}
    found = {**_DEFAULTS, **slow, **disks, **earlier, **own, **first}
    if numbers < _FIRST_WITH_REBALANCE:
        del found[_REBALANCE]
    if numbers < _FIRST_WITH_ENABLE:
        found = {**_FLAGS, **{key: value for key, value in found.items() if key != ALLOCATION}}
    return found


def with_smallest_quorum(
    settings: SettingsView, nodes: Iterable[tuple[str, Mapping[str, str]]]
) -> SettingsView:
    """The settings, with the smallest `minimum_master_nodes` in the nodes' files as the files' value.

    A node without it elects a master alone, as with 1. In an upgrade to 7, nodes of 7 take the number from
    the elected master and need not have it: they are left out.

    Args:
        settings: without it.
        nodes: version and own settings of each node.
    """
    counting = [own for version, own in nodes if parse_version(version) < _FIRST_VOTING]
    counts = [own.get(MINIMUM_MASTERS, "1") for own in counting]
    numbers = [int(count) if count.isdigit() else 1 for count in counts]
    return replace(settings, files={**settings.files, MINIMUM_MASTERS: str(min(numbers, default=1))})
