"""Parse disks and the watermarks of allocation. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.elasticsearch.fields import (
    Malformed,
    answer_of,
    given,
    items,
    mapping,
    number,
    parse_size,
    text,
    within,
)
from orchestrator.elasticsearch.parse_nodes import attributed_roles, parse_roles
from orchestrator.model.cluster import DATA_ROLES, NodeName, Role
from orchestrator.model.observation import Disk, SettingsView, SettingValue

DISK_FIELDS: Final = (
    "_nodes",
    "nodes.*.name",
    "nodes.*.roles",
    "nodes.*.fs.data.total_in_bytes",
    "nodes.*.fs.data.available_in_bytes",
)
STORED_FIELDS: Final = ("nodes.*.name", "nodes.*.indices.store.size_in_bytes")
DATA_PATH_FIELDS: Final = ("nodes.*.name", "nodes.*.fs.data.path")
_PREFIX: Final = "cluster.routing.allocation.disk."
_MEASURED: Final = DATA_ROLES - {Role.DATA_FROZEN}
"""Roles whose nodes have the low and high watermarks; a frozen node's cache fills its disk by design."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How much of a disk must stay free."""

    free_bytes: int | None = None  # if set as a size
    used_share: float | None = None  # if set as a percentage or ratio, 0 to 1
    # maximum of bytes that must be free, even on a large disk (8.5 and later)
    max_headroom: int | None = None

    def must_stay_free(self, *, total: int) -> float:
        """Bytes that must stay free on a path of this size."""
        if self.free_bytes is not None:
            return self.free_bytes
        needed = total * (1 - (self.used_share if self.used_share is not None else 1.0))
        return needed if self.max_headroom is None else min(needed, self.max_headroom)

    def passed(self, *, total: int, available: int) -> bool:
        """Whether a path is over the watermark."""
        return available < self.must_stay_free(total=total)

    def room(self, *, total: int, available: int) -> int:
        """Bytes that may still be written before the path is over the watermark; 0 if it already is."""
        return max(0, int(available - self.must_stay_free(total=total)))


def parse_watermark(value: SettingValue | None, headroom: SettingValue | None, where: str) -> Watermark:
    """A watermark setting: `85%`, `0.85`, or `50gb` that must stay free.

    A headroom of -1 is no headroom. The default becomes -1 once the watermark itself is set (seen on 8.19).

    Raises:
        Malformed: it has none of these forms.
    """
    written = text(value, where)
    largest = None if headroom in (None, "-1") else parse_size(text(headroom, where), f"{where}.max_headroom")
    if written.endswith("%"):
        return Watermark(used_share=_share(written.removesuffix("%"), where) / 100, max_headroom=largest)
    if re.fullmatch(r"[01]?\.\d+|[01]", written):
        return Watermark(used_share=_share(written, where), max_headroom=largest)
    return Watermark(free_bytes=parse_size(written, where))


def _share(value: str, where: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise Malformed(f"{where} is {value!r}") from error


@answer_of("disks")
def parse_disks(body: Any, settings: SettingsView, *, roles_listed: bool = True) -> Mapping[NodeName, Disk]:
    """`_nodes/stats/fs`, compared with the watermarks in the settings.

    A node that did not answer, has no disk (2.x: `node.client`; 5.1 to 7.x: `node.local_storage: false`) or
    sent no proper sizes is left out: its disk alone is unknown.

    Args:
        body: the answer.
        settings: cluster settings, with the defaults under `cluster.routing.allocation.disk.`.
        roles_listed: whether this version lists roles and counts the nodes that answered (5.0).
    """
    if not mapping(within(body, "nodes"), "nodes"):
        raise Malformed("no node sent its disks")
    if roles_listed and not number(within(body, "_nodes", "successful"), "_nodes.successful"):
        raise Malformed("no node sent its disks")
    low, high = (
        parse_watermark(
            settings.effective(f"{_PREFIX}watermark.{name}"),
            settings.effective(f"{_PREFIX}watermark.{name}.max_headroom"),
            f"{_PREFIX}watermark.{name}",
        )
        for name in ("low", "high")
    )
    enabled = settings.effective(f"{_PREFIX}threshold_enabled") != "false"
    found: dict[NodeName, Disk] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        name = NodeName(text(within(value, "name"), f"nodes.{node_id}.name"))
        with suppress(Malformed):
            found[name] = _disk(
                value, f"nodes.{node_id}", low=low, high=high, enabled=enabled, roles_listed=roles_listed
            )
    return found


@answer_of("stored bytes")
def parse_stored(body: Any) -> Mapping[NodeName, int]:
    """Bytes of the copies on each node; a node that does not say it is left out."""
    found: dict[NodeName, int] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        size = within(value, "indices", "store", "size_in_bytes")
        if size is not None:
            name = NodeName(text(within(value, "name"), f"nodes.{node_id}.name"))
            with suppress(Malformed):
                found[name] = number(size, f"nodes.{node_id}.indices.store.size_in_bytes")
    return found


@answer_of("data paths")
def parse_data_paths(body: Any) -> Mapping[NodeName, tuple[str, ...]]:
    """Data paths by node from `_nodes/stats/fs`; a node without paths in the answer is left out."""
    found: dict[NodeName, tuple[str, ...]] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        where = f"nodes.{node_id}"
        paths = tuple(
            text(within(path, "path"), f"{where}.fs.data.path")
            for path in items(given(within(value, "fs", "data"), []), f"{where}.fs.data")
        )
        if paths:
            found[NodeName(text(within(value, "name"), f"{where}.name"))] = paths
    return found


def _disk(
    value: Any, where: str, *, low: Watermark, high: Watermark, enabled: bool, roles_listed: bool
) -> Disk:
    paths = [
        (
            number(within(path, "total_in_bytes"), f"{where}: total_in_bytes"),
            number(within(path, "available_in_bytes"), f"{where}: available_in_bytes"),
        )
        for path in items(within(value, "fs", "data"), f"{where}.fs.data")
    ]
    if not paths or any(total <= 0 for total, _ in paths):
        raise Malformed(f"{where} has no data path")
    roles = parse_roles(within(value, "roles"), f"{where}.roles") if roles_listed else attributed_roles(value)
    measured = enabled and bool(roles & _MEASURED)
    return Disk(
        used_share=max(1 - available / total for total, available in paths),
        over_low=measured and any(low.passed(total=total, available=free) for total, free in paths),
        over_high=measured and any(high.passed(total=total, available=free) for total, free in paths),
        # A shard stays on one data path, so its merge cannot use free space on another. Its path is not read,
        # so the path with the least room is used.
        room_bytes=min(
            high.room(total=total, available=free) if measured else max(0, free) for total, free in paths
        ),
    )
