"""The versions of Elasticsearch and OpenSearch: which are accepted, and the dialect of each.

The table has every version since 0.90, to show what older versions need. This version of the program supports
only the families with `accepted`. What differs between versions is a table of its own, `eras`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.eras import COMPONENT_TEMPLATE, ERAS, LEGACY_TEMPLATE, Era, spelled
from orchestrator.errors import NotInThisVersion
from orchestrator.names import PRODUCTS

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
ELASTICSEARCH: Final = "elasticsearch"
OPENSEARCH: Final = "opensearch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How to speak to one family of versions: its eras, and the few facts that others than they ask for.

    The docs' table is generated from this class and `ERAS`; a test fails for a field that no code reads.
    """

    family: str = ""  # The name for people, such as `Elasticsearch 8`
    accepted: bool = False  # Whether this version of the program restarts such a cluster
    eras: tuple[Era, ...] = ()  # What it has otherwise than the newest Elasticsearch, newest first
    # The APIs whose templates may hold the lease while this is the lowest version; a new record takes the
    # first. Component templates begin with 7.8. From 6.0 on, other nodes of an upgrade may have them already;
    # a node without them has no handler for the path.
    lease_forms: tuple[str, ...] = (COMPONENT_TEMPLATE, LEGACY_TEMPLATE)
    # Whether every master-eligible node votes, and `minimum_master_nodes` in the nodes' files is the quorum
    # (before 7.0)
    voting_by_count: bool = False
    # Whether there is `_tasks` (2.3). Before, nothing shows the indices of a force-merge.
    task_list: bool = True
    # Whether the cluster state lists the snapshots in progress (2.0; 0.90 has none). Otherwise they are read
    # apart.
    snapshots_in_state: bool = True
    # Whether flags disable allocation, in place of `cluster.routing.allocation.enable` (before 1.0):
    # `disable_replica_allocation` for `primaries`, and `disable_allocation` for `none`
    allocation_flags: bool = False

    def spelled(self, request: HttpRequest) -> HttpRequest:
        """A request of `calls` as servers of this dialect take it."""
        return spelled(request, self.eras)


NEWEST: Final = Dialect()
"""What is spoken while the version is not known, such as in a plan."""

FAMILIES: Final[dict[str, tuple[tuple[tuple[int, int], str, bool], ...]]] = {
    ELASTICSEARCH: (
        ((9, 0), "Elasticsearch 9", True),
        ((8, 0), "Elasticsearch 8", True),
        ((7, 0), "Elasticsearch 7", True),
        ((6, 0), "Elasticsearch 6", True),
        ((5, 0), "Elasticsearch 5", True),
        ((2, 3), "Elasticsearch 2.3", True),
        ((2, 1), "Elasticsearch 2.1", False),
        ((2, 0), "Elasticsearch 2.0", False),
        ((1, 6), "Elasticsearch 1.6", True),
        ((1, 1), "Elasticsearch 1.1", True),
        ((1, 0), "Elasticsearch 1.0", False),
        ((0, 90), "Elasticsearch 0.90", True),
    ),
    OPENSEARCH: (
        ((3, 0), "OpenSearch 3", True),
        ((2, 0), "OpenSearch 2", True),
        ((1, 0), "OpenSearch 1", True),
    ),
}
"""By product, each family: the first version it holds for, its name, and whether it is accepted."""
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
        return f"{PRODUCTS.get(self.distribution, self.distribution)} {self.version}"


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
    minor_version = (major, minor)
    for first, family, accepted in FAMILIES[distribution]:
        if minor_version >= first:
            eras = tuple(era for era in ERAS if _holds(era, distribution, minor_version))
            dialect = Dialect(family=family, accepted=accepted, eras=eras)
            for era in eras:
                dialect = replace(dialect, **era.facts)
            return dialect
    return None


def _holds(era: Era, distribution: str, version: tuple[int, int]) -> bool:
    first, end = era.elasticsearch if distribution == ELASTICSEARCH else era.opensearch
    return first <= version < end


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
        every = {family for families in FAMILIES.values() for _, family, taken in families if taken}
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
