"""The differences between versions of Elasticsearch and OpenSearch: one frozen value per family.

The table has every version since 0.90, to show what older versions need. This version of the program supports
only the families with `accepted`. Sources: the field notes of real nodes, and the breaking-changes pages of
the versions named in the comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from orchestrator.errors import NotInThisVersion

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
ELASTICSEARCH: Final = "elasticsearch"
OPENSEARCH: Final = "opensearch"
STATE: Final = "_cluster/state"
NONE: Final = "none"
LEGACY_TEMPLATE: Final = "_template"
COMPONENT_TEMPLATE: Final = "_component_template"


class FlushForm(Enum):
    """The kind of flush that makes recovery fast."""

    PLAIN = "plain"
    SYNCED = "synced"


class ClusterUuid(Enum):
    """The place of the cluster's uuid in its state."""

    NONE = "none"
    METADATA = "metadata"
    TOP = "top"


class VotingExclusions(Enum):
    """The API that removes a node from the voting configuration."""

    NONE = "none"
    PATH = "path"
    QUERY = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The API of one family of versions.

    The docs' table is generated from this class and `FAMILIES`; a test fails for a field that no code reads.
    """

    family: str  # The name for people, such as `Elasticsearch 8`
    accepted: bool = False  # Whether this version of the program restarts such a cluster
    master_timeout: str = "master_timeout"  # The query parameter that limits the search for a master
    settings_wait: bool = True  # Whether `GET _cluster/settings` takes that parameter. Version 5 refuses it.
    # Whether `null` removes a setting and `include_defaults` lists defaults (5.0). Before, the effective
    # value is written when a setting cannot be removed again; it comes from the elected master's
    # elasticsearch.yml, else from the version's defaults.
    null_resets: bool = True
    # Synced from 1.6 to 7.5; a plain flush does as much from 7.6 (elastic/elasticsearch#50882)
    flush: FlushForm = FlushForm.PLAIN
    # Whether `expand_wildcards` has `hidden` (7.7). Before, there are no hidden indices.
    hidden_wildcard: bool = True
    # Voting exclusions: from 7.0 by path, from 7.8 by query. Before 7.0 there is no voting configuration:
    # every master-eligible node votes, and `minimum_master_nodes` is the quorum.
    voting: VotingExclusions = VotingExclusions.QUERY
    # Whether `_cluster/reroute` has `retry_failed` (5.0). Before, the server tries for ever.
    retry_failed: bool = True
    # The APIs whose templates may hold the lease while this is the lowest version; a new record takes the
    # first. Component templates begin with 7.8. From 6.0 on, other nodes of an upgrade may have them already;
    # a node without them has no handler for the path.
    lease_forms: tuple[str, ...] = (COMPONENT_TEMPLATE, LEGACY_TEMPLATE)
    # The field for the pattern in the legacy template of the lease: `template` before 6.0, which 6 reads as
    # well
    lease_pattern: str = "index_patterns"
    # Where the state has the cluster's uuid: at its top from 7.0, in the metadata from 2.0. Before, a cluster
    # has none, and its name is used instead.
    cluster_uuid: ClusterUuid = ClusterUuid.TOP
    # Whether health has the age of the oldest task in the master's queue (2.0). Before, it is 0 if the queue
    # was drained, else the time that health waited for it.
    queue_times: bool = True
    # The API that lists snapshots in progress: from 2.0 the cluster state, from 1.1 `_snapshot/_status`.
    # Version 1.0 has snapshots and no list: it is not restarted. 0.90 has none.
    snapshot_call: str = STATE
    # Whether the state lists an id for each process (5.0). Before, the node id is new at each start, so it is
    # used instead; a node without `node.name` has a new name too, and is known by its address, with its port
    # if `transport.tcp.port` fixes it.
    ephemeral_ids: bool = True
    # Whether index metadata lists the copies in sync (5.0). Before, every started copy counts.
    in_sync: bool = True
    roles_in_nodes: bool = True  # Whether `_nodes` lists roles (5.0). Before, roles are node attributes.
    # Whether the cluster state lists roles and versions of nodes (8.0; not OpenSearch). Otherwise they are
    # read from `_nodes`.
    roles_in_state: bool = True
    merge_call: str = "_forcemerge"  # The force-merge API: `_optimize` before 2.1
    # Whether a flush keeps a merge that no write followed (1.6). Before, a restarted node has the segments of
    # the last commit again: they count too (seen on 0.90.13 and 1.4.5).
    merge_committed: bool = True
    # Whether `_forcemerge` returns a task at once (8.1, elastic/elasticsearch#80463; OpenSearch 2.7,
    # opensearch-project/OpenSearch#6434). Otherwise the call returns when the merge has ended.
    merge_task: bool = True
    # Whether there is `_tasks` (2.3). Before, a force-merge is seen in the thread pool of its node, and
    # nothing shows its indices.
    task_list: bool = True
    # Whether the path names the parts of the cluster state, of nodes and of statistics that are read (1.0).
    # Before, query parameters do, settings come back flat, and an update of an index's settings takes query
    # parameters for settings.
    path_parts: bool = True
    # Whether every call takes `expand_wildcards=none` (1.6). Version 1.1 refuses it, and up to 1.5 an update
    # of an index's settings takes it for a setting (seen on 1.1.2, 1.4.5, 1.5.2).
    expand_none: bool = True
    # Whether `cluster.routing.allocation.enable` exists (1.0). Before, there are the flags
    # `disable_replica_allocation`, in place of `primaries`, and `disable_allocation`, in place of `none`; the
    # flags of an index are shown as its `enable`.
    allocation_enable: bool = True
    # The API that lists recoveries (1.1). Before, `_status` shows them, with ids of nodes.
    recovery_call: str = "_recovery"
    # Whether a legacy template keeps aliases (1.1), with the lease in one. Before, the lease is in a setting
    # of the template.
    lease_in_alias: bool = True
    # Whether shards number their operations (6.0). Before, operations are counted.
    sequence_numbers: bool = True
    # The API that lists what the next major version no longer takes: below `_xpack` before 7.0; `none` before
    # 5.0 and on OpenSearch
    deprecations: str = "_migration/deprecations"
    ml_mode: bool = True  # Whether machine learning has an upgrade mode (6.7); not on OpenSearch
    # Whether the youngest snapshots can be listed alone (7.16). Before, all are listed.
    snapshot_pages: bool = True


NEWEST: Final = Dialect(family="")
"""What is spoken while the version is not known, such as in a plan."""
_ES_9: Final = Dialect(family="Elasticsearch 9", accepted=True)
_ES_8_1: Final = replace(_ES_9, family="Elasticsearch 8")
_ES_8: Final = replace(_ES_8_1, merge_task=False)
_ES_7_16: Final = replace(_ES_8, family="Elasticsearch 7", roles_in_state=False)
_ES_7_8: Final = replace(_ES_7_16, snapshot_pages=False)
_ES_7_7: Final = replace(
    _ES_7_8, voting=VotingExclusions.PATH, lease_forms=(LEGACY_TEMPLATE, COMPONENT_TEMPLATE)
)
_ES_7_6: Final = replace(_ES_7_7, hidden_wildcard=False)
_ES_7: Final = replace(_ES_7_6, flush=FlushForm.SYNCED)
_ES_6_7: Final = replace(
    _ES_7,
    family="Elasticsearch 6",
    voting=VotingExclusions.NONE,
    settings_wait=False,
    cluster_uuid=ClusterUuid.METADATA,
    deprecations="_xpack/migration/deprecations",
)
_ES_6: Final = replace(_ES_6_7, ml_mode=False)
_ES_5: Final = replace(
    _ES_6,
    family="Elasticsearch 5",
    lease_forms=(LEGACY_TEMPLATE,),
    lease_pattern="template",
    sequence_numbers=False,
)
_ES_2_3: Final = replace(
    _ES_5,
    family="Elasticsearch 2.3",
    null_resets=False,
    retry_failed=False,
    ephemeral_ids=False,
    in_sync=False,
    roles_in_nodes=False,
    deprecations=NONE,
)
_ES_2_1: Final = replace(_ES_2_3, family="Elasticsearch 2.1", accepted=False, task_list=False)
_ES_2: Final = replace(_ES_2_1, family="Elasticsearch 2.0", merge_call="_optimize")
_ES_1_6: Final = replace(
    _ES_2,
    family="Elasticsearch 1.6",
    accepted=True,
    cluster_uuid=ClusterUuid.NONE,
    queue_times=False,
    snapshot_call="_snapshot/_status",
)
_ES_1_1: Final = replace(
    _ES_1_6, family="Elasticsearch 1.1", flush=FlushForm.PLAIN, merge_committed=False, expand_none=False
)
_ES_1: Final = replace(
    _ES_1_1,
    family="Elasticsearch 1.0",
    accepted=False,
    snapshot_call=NONE,
    recovery_call="_status",
    lease_in_alias=False,
)
_ES_0_90: Final = replace(
    _ES_1,
    family="Elasticsearch 0.90",
    accepted=True,
    snapshot_call=STATE,
    path_parts=False,
    allocation_enable=False,
)
_OS_2_7: Final = Dialect(
    family="OpenSearch 2",
    accepted=True,
    master_timeout="cluster_manager_timeout",
    roles_in_state=False,
    deprecations=NONE,
    ml_mode=False,
    snapshot_pages=False,
)
_OS_2: Final = replace(_OS_2_7, merge_task=False)
_OS_1: Final = replace(_OS_2, family="OpenSearch 1", master_timeout="master_timeout")
_OS_3: Final = replace(_OS_2_7, family="OpenSearch 3")

FAMILIES: Final[dict[str, tuple[tuple[tuple[int, int], Dialect], ...]]] = {
    ELASTICSEARCH: (
        ((9, 0), _ES_9),
        ((8, 1), _ES_8_1),
        ((8, 0), _ES_8),
        ((7, 16), _ES_7_16),
        ((7, 8), _ES_7_8),
        ((7, 7), _ES_7_7),
        ((7, 6), _ES_7_6),
        ((7, 0), _ES_7),
        ((6, 7), _ES_6_7),
        ((6, 0), _ES_6),
        ((5, 0), _ES_5),
        ((2, 3), _ES_2_3),
        ((2, 1), _ES_2_1),
        ((2, 0), _ES_2),
        ((1, 6), _ES_1_6),
        ((1, 1), _ES_1_1),
        ((1, 0), _ES_1),
        ((0, 90), _ES_0_90),
    ),
    OPENSEARCH: (((3, 0), _OS_3), ((2, 7), _OS_2_7), ((2, 0), _OS_2), ((1, 0), _OS_1)),
}
"""By product, each family with the first version it holds for, newest first."""
_NEWEST_MAJOR: Final = {ELASTICSEARCH: 9, OPENSEARCH: 3}
_NEVER_RELEASED: Final[dict[str, tuple[int, ...]]] = {ELASTICSEARCH: (3, 4)}
_MOST_NAMED: Final = 5
"""Nodes that a refusal names one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """The product and the version of a node."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{_PRODUCTS.get(self.distribution, self.distribution)} {self.version}"


_PRODUCTS: Final = {ELASTICSEARCH: "Elasticsearch", OPENSEARCH: "OpenSearch"}


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
    if major > _NEWEST_MAJOR.get(distribution, -1) or major in _NEVER_RELEASED.get(distribution, ()):
        return None
    families = FAMILIES[distribution]
    return next((dialect for first, dialect in families if (major, minor) >= first), None)


def dialect_for(distribution: str, version: str) -> Dialect:
    """The dialect to speak to a cluster of one version.

    Raises:
        NotInThisVersion: such clusters are not restarted by this version of the program.
        ValueError: the version is no version.
    """
    return dialect_of({"": ServerVersion(distribution=distribution, version=version)})


def dialect_of(nodes: Mapping[str, ServerVersion]) -> Dialect:
    """The dialect to speak to a cluster: that of the lowest version among all its nodes.

    During an upgrade the master or the node behind an endpoint may have any of the versions. Each version
    that may be in one cluster with a lower one answers that one's requests.

    Args:
        nodes: every node of the cluster, by name; at least one.

    Raises:
        NotInThisVersion: a node has a version that is not restarted, or nodes have different products.
        ValueError: a version is no version.
    """
    versions = sorted(frozenset(nodes.values()), key=lambda node: parse_version(node.version))
    if len({each.distribution for each in versions}) > 1:
        raise NotInThisVersion(f"a cluster of different products ({_named(nodes)})")
    accepted: list[Dialect] = []
    strange: list[ServerVersion] = []
    for each in versions:
        dialect = family_of(each.distribution, each.version)
        if dialect is None or not dialect.accepted:
            strange.append(each)
        else:
            accepted.append(dialect)
    if strange:
        every = {each.family for families in FAMILIES.values() for _, each in families if each.accepted}
        named = _named({name: node for name, node in nodes.items() if node in strange})
        raise NotInThisVersion(f"{named} (this version restarts {', '.join(sorted(every))})")
    return accepted[0]


def _named(nodes: Mapping[str, ServerVersion]) -> str:
    """Versions with the nodes that have them: `Elasticsearch 10.0.0 on es1, es2`."""
    found: dict[str, list[str]] = {}
    for name, node in sorted(nodes.items()):
        found.setdefault(str(node), []).append(name)
    return ", ".join(f"{version}{_on(names)}" for version, names in sorted(found.items()))


def _on(names: Sequence[str]) -> str:
    """`on es1, es2`; empty for a version without a node's name."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f" on {', '.join(names[:_MOST_NAMED])}{more}" if any(names) else ""
