"""The recovery rate of each node: `indices.recovery.max_bytes_per_sec` without a cluster setting. Pure.

`_cluster/settings?include_defaults` shows only the value of the node that answers. Other nodes may differ: by
their elasticsearch.yml, or by the default, which depends on memory if a node has only the data roles cold and
frozen and no master role (`RecoverySettings`, Elasticsearch 7.11 and later). A cluster setting replaces all
of them. So it is compared with the largest of them: a smaller setting would slow a node down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.elasticsearch.fields import Malformed, given, mapping, number, parse_size, within
from orchestrator.model.cluster import DATA_ROLES, Role
from orchestrator.model.observation import Level, SettingsView

BANDWIDTH: Final = "indices.recovery.max_bytes_per_sec"
UNLIMITED: Final = 0
"""0 and below mean "no limit"."""
_MB: Final = 1 << 20
_GB: Final = 1 << 30
_DEFAULT: Final = 40 * _MB
_OLD_DEFAULT: Final = 20 * _MB
_FIRST_AT_40_MB: Final = (1, 6, 0)
_BY_MEMORY: Final = ((4 * _GB, 40 * _MB), (8 * _GB, 60 * _MB), (16 * _GB, 90 * _MB), (32 * _GB, 125 * _MB))
_MOST: Final = 250 * _MB
_GOES_BY_MEMORY: Final = frozenset({Role.DATA_COLD, Role.DATA_FROZEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRate:
    """The recovery rate in one node's elasticsearch.yml."""

    bytes_per_second: int | None = None  # None if not set
    # `node.bandwidth.recovery.*` is set: the rate depends on it, and no API shows the result
    by_hardware: bool = False


def goes_by_memory(roles: frozenset[Role]) -> bool:
    """Whether the default of a node with these roles depends on its memory."""
    data = roles & DATA_ROLES
    return bool(data) and data <= _GOES_BY_MEMORY and Role.MASTER not in roles


def parse_own_rate(settings: Any, where: str) -> OwnRate:
    """Read the rate from a node's `settings` in `_nodes/settings`.

    Raises:
        Malformed: the value is not a size.
    """
    recovery = within(settings, "indices", "recovery")
    # The second name is read before 5, where the first is absent.
    written = given(within(recovery, "max_bytes_per_sec"), within(recovery, "max_size_per_sec"))
    by_hardware = within(settings, "node", "bandwidth", "recovery") is not None
    if written is None:
        return OwnRate(by_hardware=by_hardware)
    if not isinstance(written, str):
        raise Malformed(f"{where}.{BANDWIDTH} is {written!r}")
    below = written.strip().startswith("-")
    size = UNLIMITED if below else parse_size(written, f"{where}.{BANDWIDTH}")
    return OwnRate(bytes_per_second=size, by_hardware=by_hardware)


def parse_memory(body: Any) -> dict[str, int]:
    """Memory of nodes in bytes, by node id, from `_nodes/{ids}/stats/os`; missing values are left out.

    Raises:
        Malformed: the answer has another form.
    """
    found: dict[str, int] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        total = within(value, "os", "mem", "total_in_bytes")
        if total is not None:
            found[node_id] = number(total, f"nodes.{node_id}.os.mem.total_in_bytes")
    return found


def rate_of(
    roles: frozenset[Role], own: OwnRate, memory: int | None, *, version: tuple[int, int, int]
) -> int | None:
    """Bytes per second that a node may copy, 0 for no limit; None if unknown.

    Args:
        roles: roles of the node.
        own: the rate in its elasticsearch.yml.
        memory: in bytes; if unknown, the largest default is assumed.
        version: of the node.
    """
    if own.by_hardware:
        return None
    if own.bytes_per_second is not None:
        return own.bytes_per_second
    if not goes_by_memory(roles):
        return _DEFAULT if version >= _FIRST_AT_40_MB else _OLD_DEFAULT
    if memory is None:
        return _MOST
    return next((rate for most, rate in _BY_MEMORY if memory <= most), _MOST)


def with_largest_rate(settings: SettingsView, rates: Iterable[int | None]) -> SettingsView:
    """The settings, with the largest of these rates as the rate from configuration files.

    If one of the rates is unknown, none is set, and the rate is not raised.
    """
    if any(settings.at(level, BANDWIDTH) is not None for level in Level):
        return settings
    found = list(rates)
    files = {key: value for key, value in settings.files.items() if key != BANDWIDTH}
    known = [rate for rate in found if rate is not None]
    if known and len(known) == len(found):
        files[BANDWIDTH] = f"{UNLIMITED if UNLIMITED in known else max(known)}b"
    return replace(settings, files=files)
