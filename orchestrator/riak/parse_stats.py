"""`/stats`: one JSON object of about 500 numbers, of which a restart needs a dozen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import NodeStats
from orchestrator.riak.output import RiakUnreadable, parsing
from orchestrator.riak.terms import counts_by_node, node_name
from orchestrator.untrusted_json import parsed

_SCHEDULERS: Final = re.compile(r"\[smp:(\d{1,4}):(\d{1,4})\]")
_LARGEST_RING: Final = 65_536
_PIPE: Final = "riak_pipe_vnodes_running"


@parsing("/stats")
def parse_stats(body: str) -> NodeStats:
    """The body of `/stats`. Cut JSON is invalid, so the result is complete or `Unknown`."""
    stats = _object(body)
    size = _count(stats, "ring_num_partitions")
    if not 0 < size <= _LARGEST_RING:
        raise RiakUnreadable(f"a ring of {size} partitions")
    ownership = counts_by_node(_text(stats, "ring_ownership"))
    if sum(ownership.values()) != size:
        raise RiakUnreadable("ring_ownership does not add up to ring_num_partitions")
    members = _nodes(stats, "ring_members")
    if not members.issuperset(node for node, number in ownership.items() if number):
        raise RiakUnreadable("ring_ownership names a node that is no member")
    total, online = _schedulers(stats)
    release = stats.get("sys_otp_release")
    return NodeStats(
        node=node_name(stats.get("nodename")),
        kv_vnodes=_count(stats, "riak_kv_vnodes_running"),
        pipe_vnodes=_count(stats, _PIPE) if _PIPE in stats else 0,
        connected=_nodes(stats, "connected_nodes"),
        members=members,
        ring_size=size,
        ownership=ownership,
        schedulers=total,
        schedulers_online=online,
        release=release if isinstance(release, str) else None,
    )


def _object(body: str) -> Mapping[str, Any]:
    try:
        found = parsed(body)
    except ValueError as error:
        raise RiakUnreadable(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RiakUnreadable("no JSON object")
    return found


def _count(stats: Mapping[str, Any], key: str) -> int:
    value = stats.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RiakUnreadable(f"{key} is {value!r} instead of a number")
    return value


def _text(stats: Mapping[str, Any], key: str) -> str:
    value = stats.get(key)
    if not isinstance(value, str):
        raise RiakUnreadable(f"{key} is {value!r} instead of a text")
    return value


def _nodes(stats: Mapping[str, Any], key: str) -> frozenset[NodeName]:
    value = stats.get(key)
    if not isinstance(value, list):
        raise RiakUnreadable(f"{key} is {value!r} instead of a list of nodes")
    return frozenset(node_name(each) for each in value)


def _schedulers(stats: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Total and online schedulers, from the Erlang VM's title line."""
    title = stats.get("sys_system_version")
    found = _SCHEDULERS.search(title) if isinstance(title, str) else None
    return (int(found[1]), int(found[2])) if found else (None, None)
