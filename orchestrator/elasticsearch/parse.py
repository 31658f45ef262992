"""Parse settings, health, recoveries, tasks and disks. Pure.

Extra fields are ignored; missing ones are errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from orchestrator.elasticsearch.calls import MERGE_ACTION
from orchestrator.elasticsearch.fields import (
    Malformed,
    NotYetReported,
    answer_of,
    count,
    given,
    items,
    mapping,
    number,
    parse_size,
    text,
    truth,
    unlisted,
    within,
)
from orchestrator.elasticsearch.parse_cluster import parse_roles
from orchestrator.model.cluster import DATA_ROLES, Health, NodeName, Role, ShardId
from orchestrator.model.observation import (
    Activity,
    Disk,
    HealthView,
    Recovery,
    RunningSnapshot,
    SettingsView,
    SettingValue,
)

_ENDED: Final = ("SUCCESS", "FAILED", "MISSING", "DONE", "FAILURE")
"""States of a part of a snapshot that has ended, the last two as `_snapshot/_status` names them."""


@answer_of("cluster settings")
def parse_settings(body: Any) -> SettingsView:
    """`_cluster/settings?flat_settings&include_defaults`; every level must be present, even if empty."""
    persistent, transient = (_flat(within(body, level), level) for level in ("persistent", "transient"))
    if unlisted(body, "defaults"):  # such a version cannot make a setting absent either
        return SettingsView(persistent=persistent, transient=transient, resets=False)
    defaults = _flat(within(body, "defaults"), "defaults")
    if not defaults:
        raise Malformed("no default is listed")
    return SettingsView(persistent=persistent, transient=transient, files=defaults)


@answer_of("cluster settings")
def parse_archived(body: Any) -> tuple[str, ...]:
    """Names of archived settings, from `_cluster/settings?flat_settings` without defaults."""
    levels = [_flat(within(body, level), level) for level in ("persistent", "transient")]
    return SettingsView(persistent=levels[0], transient=levels[1]).archived


def _flat(value: Any, where: str) -> dict[str, SettingValue]:
    return {key: _setting(one, f"{where}.{key}") for key, one in mapping(value, where).items()}


def _setting(value: Any, where: str) -> SettingValue:
    if isinstance(value, list):
        return tuple(text(each, where) for each in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):  # an empty text is a value
        raise Malformed(f"{where} is {value!r}")
    return value


@answer_of("cluster health")
def parse_health(body: Any) -> HealthView:
    """`_cluster/health`. `timed_out` is read, not the status code, which was 200 before 2.0."""

    def number(name: str) -> int:
        return count(within(body, name), name)

    status = text(within(body, "status"), "status")
    if status not in {health.value for health in Health}:
        raise Malformed(f"status is {status!r}")
    settled = not truth(within(body, "timed_out"), "timed_out")
    return HealthView(
        status=Health(status),
        settled=settled,
        nodes=number("number_of_nodes"),
        active_shards=number("active_shards"),
        initializing_shards=number("initializing_shards"),
        relocating_shards=number("relocating_shards"),
        unassigned_shards=number("unassigned_shards"),
        pending_tasks=number("number_of_pending_tasks"),
        oldest_task=number("task_max_waiting_in_queue_millis") / 1000,
    )


@answer_of("recoveries")
def recovering_indices(body: Any) -> tuple[str, ...]:
    """Names of the indices in a `_recovery` answer."""
    return tuple(mapping(body, "the answer"))


@answer_of("recoveries")
def parse_recoveries(
    body: Any, *, uuids: Mapping[str, str], finished_on: Collection[NodeName]
) -> tuple[Recovery, ...]:
    """`_recovery`: recoveries in progress, and finished ones on some nodes.

    Args:
        body: the answer; an empty object if there are no recoveries.
        uuids: uuids by index name, since the answer has only names. An index that is missing here is already
            deleted, and its recoveries are skipped.
        finished_on: nodes whose finished recoveries are needed. A node lists only recoveries since its last
            start.
    """
    found: list[Recovery] = []
    for index, value in mapping(body, "the answer").items():
        shards = items(given(within(value, "shards"), []), f"{index}.shards")
        if index in uuids:
            found += [_recovery(index, uuids[index], shard) for shard in shards]
    return tuple(each for each in found if not each.done or each.target in finished_on)


def _recovery(index: str, uuid: str, value: Any) -> Recovery:
    where = f"a recovery of [{index}]"
    size = mapping(within(value, "index", "size"), f"{where}: index.size")
    stage = text(within(value, "stage"), f"{where}: stage")
    for end in ("source", "target"):
        if unlisted(within(value, end), "name"):
            node_id = within(value, end, "id")
            raise NotYetReported(f"node {node_id} recovers a copy and is not among the nodes that were read")
    source = within(value, "source", "name")
    return Recovery(
        shard=ShardId(index=index, index_uuid=uuid, number=number(within(value, "id"), f"{where}: id")),
        target=NodeName(text(within(value, "target", "name"), f"{where}: target")),
        source=NodeName(source) if isinstance(source, str) and source else None,
        stage=stage.lower(),
        bytes_total=number(size.get("total_in_bytes"), f"{where}: total_in_bytes"),
        bytes_reused=number(size.get("reused_in_bytes"), f"{where}: reused_in_bytes"),
        bytes_copied=number(size.get("recovered_in_bytes"), f"{where}: recovered_in_bytes"),
        operations_replayed=max(0, number(within(value, "translog", "recovered"), f"{where}: translog")),
        done=stage.upper() == "DONE",
    )


@answer_of("snapshots")
def parse_snapshots(body: Any) -> tuple[RunningSnapshot, ...]:
    """Snapshots in progress, from their record in the cluster state; their nodes are ids.

    The record is absent until the first snapshot; the cluster's name shows that the answer is valid. What
    versions may lack, such as the begin, is only for people.
    """
    text(within(body, "cluster_name"), "cluster_name")
    listed = items(given(within(body, "snapshots", "snapshots"), []), "snapshots")
    return tuple(map(_running_snapshot, listed))


def _running_snapshot(each: Any) -> RunningSnapshot:
    began, listed = within(each, "start_time_millis"), given(within(each, "shards"), [])
    shards = listed if isinstance(listed, list) else []
    left = [shard for shard in shards if within(shard, "state") not in _ENDED]
    unfinished = [shard["node"] for shard in left if isinstance(within(shard, "node"), str)]
    return RunningSnapshot(
        name=f"{text(within(each, 'repository'), 'repository')}/{text(within(each, 'snapshot'), 'snapshot')}",
        aborted=within(each, "state") == "ABORTED",
        since=began / 1000 if isinstance(began, int) and began > 0 else None,
        nodes=tuple(NodeName(node) for node in dict.fromkeys(unfinished)),
        done=1 - len(left) / len(shards) if shards else None,
    )


@answer_of("tasks")
def parse_tasks(
    body: Any,
    *,
    snapshots: tuple[RunningSnapshot, ...],
    members: Mapping[str, NodeName] = MappingProxyType({}),
) -> Activity:
    """`_tasks`, together with the snapshots from a separate reading.

    A member that did not answer is listed as unread; one node in a long garbage collection does not affect
    the others. Any other failure makes the whole reading unknown.

    Args:
        body: the answer.
        snapshots: snapshots in progress.
        members: names by node id.
    """
    nodes = mapping(within(body, "nodes"), "nodes")
    listed = {
        node_id: NodeName(text(within(node, "name"), f"nodes.{node_id}.name"))
        for node_id, node in nodes.items()
    }
    known = {**members, **listed}
    unread: set[NodeName] = set()
    for part in ("node_failures", "task_failures"):
        failures = items(given(within(body, part), []), part)
        ids = [str(within(failure, "node_id")) for failure in failures]
        if part == "node_failures" and all(each in known for each in ids):
            unread = {known[each] for each in ids}
        elif failures:
            raise Malformed(f"{len(failures)} {part.replace('_', ' ')}: {str(failures[0])[:200]}")
    merges: set[NodeName] = set()
    reindexes: set[NodeName] = set()
    for node_id, node in nodes.items():
        for task_id, task in mapping(within(node, "tasks"), f"nodes.{node_id}.tasks").items():
            action = text(within(task, "action"), f"{task_id}.action")
            (merges if action.startswith(MERGE_ACTION) else reindexes).add(listed[node_id])
    return Activity(
        snapshots=snapshots,
        merges=frozenset(merges),
        reindexes=frozenset(reindexes),
        unread=frozenset(unread),
    )


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
def parse_disks(body: Any, settings: SettingsView) -> Mapping[NodeName, Disk]:
    """`_nodes/stats/fs`, compared with the watermarks in the settings.

    A node that did not answer, has no disk (2.x: `node.client`; 5.1 to 7.x: `node.local_storage: false`) or
    sent no proper sizes is left out: its disk alone is unknown.

    Args:
        body: the answer.
        settings: cluster settings, with the defaults under `cluster.routing.allocation.disk.`.
    """
    if not mapping(within(body, "nodes"), "nodes"):
        raise Malformed("no node sent its disks")
    if not number(within(body, "_nodes", "successful"), "_nodes.successful"):
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
            found[name] = _disk(value, f"nodes.{node_id}", low=low, high=high, enabled=enabled)
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


def _disk(value: Any, where: str, *, low: Watermark, high: Watermark, enabled: bool) -> Disk:
    paths = [
        (
            number(within(path, "total_in_bytes"), f"{where}: total_in_bytes"),
            number(within(path, "available_in_bytes"), f"{where}: available_in_bytes"),
        )
        for path in items(within(value, "fs", "data"), f"{where}.fs.data")
    ]
    if not paths or any(total <= 0 for total, _ in paths):
        raise Malformed(f"{where} has no data path")
    measured = enabled and bool(parse_roles(within(value, "roles"), f"{where}.roles") & _MEASURED)
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
