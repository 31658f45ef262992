"""Cluster settings that a run changes: which, to what value, and how they are restored.

The effective value of a setting is transient over persistent over elasticsearch.yml. A change is written
persistently, so that it outlives a change of master or a full restart of the cluster, and transiently only
where a transient value would shadow it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from orchestrator.engine.state import RunState
from orchestrator.model.action import SettingChange
from orchestrator.model.allocation import ALLOCATION, withheld
from orchestrator.model.cluster import Zone
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import ClusterView, Level, Look, SettingsView, SettingValue
from orchestrator.model.plan import ValueToday
from orchestrator.model.policy import Awareness, Policy, numbers
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.upgrade import ML_UPGRADE_MODE

REBALANCE: Final = "cluster.routing.rebalance.enable"
AWARENESS: Final = "cluster.routing.allocation.awareness.attributes"
FORCED_AWARENESS: Final = "cluster.routing.allocation.awareness.force."
FILTERS: Final = "cluster.routing.allocation."
EXCLUSIONS: Final = f"{FILTERS}exclude."
INITIAL_PRIMARIES: Final = "cluster.routing.allocation.node_initial_primaries_recoveries"
CONCURRENT_STREAMS: Final = "indices.recovery.concurrent_streams"
"""Before Elasticsearch 5: how many files a node sends at a time. A version that has it has a value of it."""
CONCURRENT_RECOVERIES: Final = "cluster.routing.allocation.node_concurrent_recoveries"
BANDWIDTH: Final = "indices.recovery.max_bytes_per_sec"
MINIMUM_MASTERS: Final = "discovery.zen.minimum_master_nodes"
"""Before Elasticsearch 7: how many master-eligible nodes elect a master."""

_FORCED: Final = re.compile(re.escape(FORCED_AWARENESS) + r"(.+)\.values")

_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}


def bytes_of(value: SettingValue | None) -> int | None:
    """Bytes of a size as Elasticsearch writes it (`40mb`; 1 mb = 1024² bytes); None if it is none."""
    match = (
        re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*", value.lower()) if isinstance(value, str) else None
    )
    unit = _UNITS.get(match.group(2)) if match else None
    return int(float(match.group(1)) * unit) if match and unit else None


def size_of(count: int) -> str:
    """Bytes as Elasticsearch reads them, with the largest unit that divides them: 104857600 is `100mb`."""
    unit = next(unit for unit in ("gb", "mb", "kb", "b") if count % _UNITS[unit] == 0)
    return f"{count // _UNITS[unit]}{unit}"


def count_of(value: SettingValue | None) -> int | None:
    """A whole number that is not negative; None if the value is none."""
    return int(value) if isinstance(value, str) and value.strip().isdigit() else None


def listed(value: SettingValue | None) -> tuple[str, ...]:
    """The values of a list setting, given as a list or as text with commas; empty if it is not set."""
    parts = (value or "").split(",") if isinstance(value, str) or value is None else value
    return tuple(part.strip() for part in parts if part.strip())


def awareness_of(settings: SettingsView, chosen: str | None = None) -> tuple[str | None, Awareness]:
    """The node attribute that defines zones, and the cluster's settings of awareness.

    Transient over persistent over elasticsearch.yml. `chosen` (the cluster file's `zone_attribute`) overrides
    the first attribute of the cluster's own; an attribute that only forced awareness names comes last.
    """
    attributes = listed(settings.effective(AWARENESS))
    keys = sorted({*settings.persistent, *settings.transient, *settings.files})
    forced = {
        match.group(1): listed(settings.effective(key))
        for key in keys
        if (match := _FORCED.fullmatch(key)) and listed(settings.effective(key))
    }
    attribute = chosen or next(iter((*attributes, *forced)), None)
    zones = tuple(Zone(zone) for zone in forced.get(attribute or "", ()))
    return attribute, Awareness(attributes=attributes, forced=zones)


def _change(settings: SettingsView, key: str, wanted: str) -> tuple[SettingChange, ...]:
    """Write `key` persistently, and also transiently if a transient value overrides it."""
    levels = [Level.PERSISTENT]
    if settings.at(Level.TRANSIENT, key) is not None:
        levels.append(Level.TRANSIENT)
    found = [(level, settings.at(level, key)) for level in levels]
    return tuple(
        SettingChange(level=level, key=key, found=value, wanted=wanted)
        for level, value in found
        if value != wanted
    )


def withhold_changes(settings: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
    """The changes that disable allocation of replicas while a node is down."""
    return _change(settings, *withheld(policy.allocation_while_down, by_flags=settings.allocation_flags))


def is_withheld(settings: SettingsView | Unknown, policy: Policy) -> bool:
    """Whether the settings, as read, disable allocation; False if they could not be read."""
    return not isinstance(settings, Unknown) and not withhold_changes(settings, policy)


def value_today(
    settings: SettingsView, key: str, wanted: SettingValue | None, begun: RunStarted
) -> ValueToday:
    """The value of a setting that is in force, its source, and how many times as high the wanted value is."""
    found = settings.effective(key)
    if found is None:
        return ValueToday()
    level = next((level for level in _BY_FORCE if settings.at(level, key) == found), None)
    if level is None and key == BANDWIDTH and (count := bytes_of(found)):
        found = size_of(count)  # the largest of the nodes' own values is read in bytes
    version = numbers(begun.version) if begun.distribution == "elasticsearch" else ()
    slow = bool(version) and version < _FIRST_AT_40_MB
    defaults = {**DEFAULTS, **({BANDWIDTH: "20mb"} if slow else {})}
    is_default = isinstance(found, str) and found.lower() == defaults.get(key)
    before, after = bytes_of(found) or 0, bytes_of(wanted) or 0
    return ValueToday(
        value=found,
        source=level.value if level else "default" if is_default else "file",
        times=after / before if 0 < before < after else None,
    )


_BY_FORCE: Final = (Level.TRANSIENT, Level.PERSISTENT)
DEFAULTS: Final[Mapping[str, SettingValue]] = {
    ALLOCATION: "all",
    REBALANCE: "all",
    INITIAL_PRIMARIES: "4",
    CONCURRENT_RECOVERIES: "2",
    CONCURRENT_STREAMS: "3",
    BANDWIDTH: "40mb",
}
"""The servers' own values, where no file and no update sets another one."""

_FIRST_AT_40_MB: Final = (1, 6)
"""Elasticsearch's first version with a default recovery bandwidth of 40 MB/s; earlier ones have 20 MB/s."""


def limit_changes(
    settings: SettingsView, policy: Policy, _state: RunState | None = None
) -> tuple[SettingChange, ...]:
    """Recovery limits raised for the run, never lowered, and rebalancing disabled.

    A higher persistent value that a lower transient one overrides is kept.

    In an upgrade, machine learning pauses too: its jobs would fail and be tried again at every stop.
    """
    limits = policy.recovery_limits
    changes: list[SettingChange] = []
    counts = (
        (INITIAL_PRIMARIES, limits.node_initial_primaries_recoveries),
        (CONCURRENT_RECOVERIES, limits.node_concurrent_recoveries),
        *(((CONCURRENT_STREAMS, limits.concurrent_streams),) if _has(settings, CONCURRENT_STREAMS) else ()),
    )
    for key, count in counts:
        now = count_of(settings.effective(key))
        # A value that cannot be read may be larger than ours: it is left.
        known = now is not None or settings.effective(key) is None
        if count is not None and known and count > (now or 0):
            changes += (
                one for one in _change(settings, key, str(count)) if (count_of(one.found) or 0) < count
            )
    bandwidth, wanted = bytes_of(settings.effective(BANDWIDTH)), limits.max_bytes_per_sec
    # 0 and below mean "no limit" (documented since 1.x): there is nothing to raise.
    if wanted is not None and bandwidth is not None and 0 < bandwidth < wanted:
        changes += (
            one
            for one in _change(settings, BANDWIDTH, size_of(wanted))
            if one.found is None or 0 < (bytes_of(one.found) or 0) < wanted
        )
    rebalance = policy.rebalance_while_running
    # Elasticsearch 1 has no such setting: it acknowledges the change and stores nothing (seen on 1.7).
    has_it = settings.resets or _has(settings, REBALANCE)
    if rebalance is not None and has_it and settings.effective(REBALANCE) != rebalance:
        changes += _change(settings, REBALANCE, rebalance)
    if policy.upgrade is not None and settings.at(Level.PERSISTENT, ML_UPGRADE_MODE) == "false":
        changes += _change(settings, ML_UPGRADE_MODE, "true")
    return tuple(changes)


def reads_too(state: RunState) -> frozenset[Look]:
    """The mode of machine learning, in an upgrade and as long as it is to be restored."""
    left = (Level.PERSISTENT, ML_UPGRADE_MODE) in state.unrestored.settings
    return frozenset({Look.MODES}) if left or state.begun.policy.upgrade is not None else frozenset()


def _has(settings: SettingsView, key: str) -> bool:
    """Whether a setting of old versions has a value, if only its default."""
    return settings.effective(key) is not None


def set_by_run(state: RunState, settings: SettingsView, level: Level, key: str) -> bool:
    """Whether the current value is the value that this run wrote."""
    debt = state.unrestored.settings.get((level, key))
    return debt is not None and settings.at(level, key) == debt.wanted


def no_zones(view: ClusterView, settings: Reading[SettingsView], policy: Policy, file: str, /) -> str | None:
    """Why `strategy: zone` is refused: no attribute names the zones, or no node has it; None if one does."""
    what_to_do = f"set `zone_attribute` in {file}, or `{AWARENESS}` in the cluster"
    if policy.zone_attribute is None and isinstance(settings, Unknown):
        return (
            f"the cluster's settings cannot be read ({settings.reason}), so its zones are not known: "
            f"set `zone_attribute` in {file}"
        )
    if policy.zone_attribute is None:
        return f"the cluster has no awareness attribute that names zones: {what_to_do}"
    if any(node.zone(policy.zone_attribute) is not None for node in view.nodes):
        return None
    attributes = ", ".join(sorted({name for node in view.nodes for name in node.attributes})) or "none"
    none = f"no node has the attribute {policy.zone_attribute!r}; attributes of the nodes: {attributes}"
    return f"{none}; {what_to_do}"
