"""The differences between versions of Elasticsearch and OpenSearch: one frozen value per family.

The table has every version since 0.90, to show what older versions need. This version of the program supports
only the families with `accepted`. Sources: the field notes of real nodes, and the breaking-changes pages of
the versions named in the comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from orchestrator.errors import NotInThisVersion

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
ELASTICSEARCH: Final = "elasticsearch"
OPENSEARCH: Final = "opensearch"


class Flush(Enum):
    """The kind of flush that makes recovery fast."""

    PLAIN = "plain"
    SYNCED = "synced"


class VotingExclusions(Enum):
    """The API that removes a node from the voting configuration."""

    NONE = "none"
    PATH = "path"
    QUERY = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The API of one family of versions.

    Attributes:
        family: for people, such as `Elasticsearch 8`.
        accepted: whether this version of the program restarts such a cluster.
        master_timeout: the query parameter that limits the search for a master.
        allocation_key: the setting that disables allocation.
        null_resets: whether `null` removes a setting (5.0 and later); before 5.0 a value is written instead.
        streams: whether `indices.recovery.concurrent_streams` exists (removed in 5.0).
        flush: synced from 1.6 until 7.5; a plain flush does as much from 7.6 (elastic/elasticsearch#50882).
        voting: 7.0 and later; by query parameters from 7.8.
        shutdowns: whether the state may hold node-shutdown records (7.13 and later).
        retry_failed: `_cluster/reroute?retry_failed` (5.0 and later).
        lease_template: where the lease is kept: composable templates from 7.8, `_template` before.
        roles_in_state: whether the cluster state lists nodes' roles and versions (8.0 and later, seen on 8.19
            and 9.1; not on OpenSearch 2.19); otherwise they come from `_nodes`.
        health_timeout_status: HTTP status of health when its wait times out: 200 before 2.0, 408 since.
        merge_call: the force-merge API: `_optimize` before 2.1, `_forcemerge` since.
        merge_task: `_forcemerge?wait_for_completion=false`, which returns a task at once (Elasticsearch 8.1
            and later, elastic/elasticsearch#80463; OpenSearch 2.7 and later,
            opensearch-project/OpenSearch#6434); otherwise the call returns when the merge has ended.
        task_list: `_tasks` (5.0 and later).
        sequence_numbers: whether shards number their operations (6.0 and later).
    """

    family: str
    accepted: bool = False
    master_timeout: str = "master_timeout"
    allocation_key: str = "cluster.routing.allocation.enable"
    null_resets: bool = True
    streams: bool = False
    flush: Flush = Flush.PLAIN
    voting: VotingExclusions = VotingExclusions.QUERY
    shutdowns: bool = True
    retry_failed: bool = True
    lease_template: str = "_index_template"
    roles_in_state: bool = True
    health_timeout_status: int = 408
    merge_call: str = "_forcemerge"
    merge_task: bool = True
    task_list: bool = True
    sequence_numbers: bool = True


_ES_9: Final = Dialect(family="Elasticsearch 9", accepted=True)
_ES_8_1: Final = replace(_ES_9, family="Elasticsearch 8")
_ES_8: Final = replace(_ES_8_1, merge_task=False)
_ES_7_13: Final = replace(_ES_8, family="Elasticsearch 7.13", accepted=False, roles_in_state=False)
_ES_7_8: Final = replace(_ES_7_13, family="Elasticsearch 7.8", shutdowns=False)
_ES_7_6: Final = replace(
    _ES_7_8, family="Elasticsearch 7.6", voting=VotingExclusions.PATH, lease_template="_template"
)
_ES_7: Final = replace(_ES_7_6, family="Elasticsearch 7", flush=Flush.SYNCED)
_ES_6: Final = replace(_ES_7, family="Elasticsearch 6", voting=VotingExclusions.NONE)
_ES_5: Final = replace(_ES_6, family="Elasticsearch 5", sequence_numbers=False)
_ES_2_1: Final = replace(
    _ES_5,
    family="Elasticsearch 2",
    null_resets=False,
    streams=True,
    retry_failed=False,
    task_list=False,
)
_ES_2: Final = replace(_ES_2_1, merge_call="_optimize")
_ES_1_6: Final = replace(_ES_2, family="Elasticsearch 1.6", health_timeout_status=200)
_ES_1: Final = replace(_ES_1_6, family="Elasticsearch 1", flush=Flush.PLAIN)
_ES_0: Final = replace(
    _ES_1, family="Elasticsearch 0.90", allocation_key="cluster.routing.allocation.disable_allocation"
)
_OS_2_7: Final = Dialect(
    family="OpenSearch 2",
    accepted=True,
    master_timeout="cluster_manager_timeout",
    shutdowns=False,
    roles_in_state=False,
)
_OS_2: Final = replace(_OS_2_7, merge_task=False)
_OS_1: Final = replace(_OS_2, family="OpenSearch 1", accepted=False, master_timeout="master_timeout")
_OS_3: Final = replace(_OS_2_7, family="OpenSearch 3", accepted=False)

_FAMILIES: Final[dict[str, tuple[tuple[tuple[int, int], Dialect], ...]]] = {
    ELASTICSEARCH: (
        ((9, 0), _ES_9),
        ((8, 1), _ES_8_1),
        ((8, 0), _ES_8),
        ((7, 13), _ES_7_13),
        ((7, 8), _ES_7_8),
        ((7, 6), _ES_7_6),
        ((7, 0), _ES_7),
        ((6, 0), _ES_6),
        ((5, 0), _ES_5),
        ((2, 1), _ES_2_1),
        ((2, 0), _ES_2),
        ((1, 6), _ES_1_6),
        ((1, 0), _ES_1),
        ((0, 90), _ES_0),
    ),
    OPENSEARCH: (((3, 0), _OS_3), ((2, 7), _OS_2_7), ((2, 0), _OS_2), ((1, 0), _OS_1)),
}
"""By product, each family with the first version it holds for, newest first."""
_NEWEST_MAJOR: Final = {ELASTICSEARCH: 9, OPENSEARCH: 3}


def parse_version(text: str) -> tuple[int, int, int]:
    """The numbers of a version such as `8.19.0`, `9.1.0-SNAPSHOT` or `0.90.13`.

    Raises:
        ValueError: it is not valid.
    """
    match = _VERSION.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no version")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def family_of(distribution: str, version: str) -> Dialect | None:
    """The dialect of a version, accepted or not; None for an unknown version.

    Raises:
        ValueError: the version is not valid.
    """
    major, minor, _ = parse_version(version)
    if major > _NEWEST_MAJOR.get(distribution, -1):
        return None
    families = _FAMILIES[distribution]
    return next((dialect for first, dialect in families if (major, minor) >= first), None)


def dialect_for(distribution: str, version: str) -> Dialect:
    """The dialect to speak.

    Raises:
        NotInThisVersion: such clusters are not restarted by this version of the program.
        ValueError: the version is no version.
    """
    dialect = family_of(distribution, version)
    if dialect is None or not dialect.accepted:
        accepted = sorted(
            {each.family for families in _FAMILIES.values() for _, each in families if each.accepted}
        )
        product = {ELASTICSEARCH: "Elasticsearch", OPENSEARCH: "OpenSearch"}.get(distribution, distribution)
        raise NotInThisVersion(f"{product} {version} (this version restarts {', '.join(accepted)})")
    return dialect
