"""Read what an upgrade is checked by: four calls, and one for each snapshot repository.

What a version does not have is read as empty. A call that fails makes only its own part unknown, if the part
can say so; otherwise the whole reading.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import NONE, Dialect
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.parse_upgrade import (
    parse_creations,
    parse_deprecations,
    parse_node_settings,
    parse_repositories,
    parse_upgrade_mode,
    parse_youngest,
)
from orchestrator.elasticsearch.request import HttpRequest
from orchestrator.model.observation import SettingsView
from orchestrator.model.reading import Instant, Reading, Unknown, Unsupported
from orchestrator.model.upgrade import ML_UPGRADE_MODE, Deprecation, UpgradeView

_NO_SUCH_API: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
"""The answers of a server without X-Pack to a path of X-Pack (seen on 5.6, 6.8, 7.17, 8.19 and 9.1)."""


def read_upgrade(client: ElasticsearchClient, dialect: Dialect) -> Reading[UpgradeView]:
    """The fitness of the cluster for an upgrade."""
    indices = _body(client, calls.creations(dialect, client.limits))
    created = indices if isinstance(indices, Unknown) else parse_creations(indices[0])
    if isinstance(created, Unknown):
        return created
    nodes = _body(client, calls.node_settings())
    settings = nodes if isinstance(nodes, Unknown) else parse_node_settings(nodes[0])
    if isinstance(settings, Unknown):
        return settings
    youngest = _youngest(client, dialect)
    known = None if isinstance(youngest, Unknown) else youngest
    return UpgradeView(
        deprecations=_deprecations(client, dialect),
        snapshot_ended=youngest if isinstance(youngest, Unknown) else known[0] if known else None,
        snapshot=known[1] if known else "",
        created={name: version for name, (version, _) in created.items()},
        read_only=frozenset(name for name, (_, read_only) in created.items() if read_only),
        settings=settings,
    )


def with_modes(
    client: ElasticsearchClient, dialect: Dialect, settings: SettingsView
) -> Reading[SettingsView]:
    """The settings with the upgrade mode of machine learning; without it where the cluster has none."""
    if not dialect.ml_mode:
        return settings
    outcome = client.read(calls.ml_info())
    if isinstance(outcome, Fault):
        if outcome.status in _NO_SUCH_API or outcome.unlicensed:
            return settings
        return Unknown(reason=f"upgrade mode of machine learning: {outcome.reason}", passes=outcome.passes)
    mode = parse_upgrade_mode(outcome.body)
    if isinstance(mode, Unknown):
        return mode
    return replace(settings, persistent={**settings.persistent, ML_UPGRADE_MODE: mode})


def _body(client: ElasticsearchClient, request: HttpRequest) -> tuple[Any] | Unknown:
    """The body of an answer, in a tuple so that no body can be mistaken for a failure."""
    outcome = client.read(request)
    return _unknown(outcome) if isinstance(outcome, Fault) else (outcome.body,)


def _unknown(fault: Fault) -> Unknown:
    return Unknown(reason=fault.reason, passes=fault.passes)


def _deprecations(client: ElasticsearchClient, dialect: Dialect) -> Reading[tuple[Deprecation, ...]]:
    if dialect.deprecations == NONE:
        return ()
    outcome = client.read(calls.deprecations(dialect))
    if not isinstance(outcome, Fault):
        return parse_deprecations(outcome.body)
    if outcome.status in _NO_SUCH_API:
        return Unsupported(
            reason=f"this server has no `GET /{dialect.deprecations}`, a part of X-Pack, so it cannot "
            "list what the next major version no longer takes: read its list of breaking changes instead"
        )
    return _unknown(outcome)


def _youngest(client: ElasticsearchClient, dialect: Dialect) -> Reading[tuple[Instant, str] | None]:
    """When the youngest snapshot without a failed shard ended, and its `repository/name`.

    Repositories are asked one by one: one that cannot be read must not hide the snapshots of another.
    """
    if not dialect.path_parts:
        return None  # 0.90 has no snapshots
    listed = _body(client, calls.repositories(dialect, client.limits))
    repositories = listed if isinstance(listed, Unknown) else parse_repositories(listed[0])
    if isinstance(repositories, Unknown):
        return repositories
    found: list[tuple[Instant, str]] = []
    unread: Unknown | None = None
    for repository in repositories:
        read = _body(client, calls.finished_snapshots(dialect, client.limits, repository))
        youngest = read if isinstance(read, Unknown) else parse_youngest(read[0])
        if isinstance(youngest, Unknown):
            unread = Unknown(reason=f"repository {repository}: {youngest.reason}", passes=youngest.passes)
        elif youngest is not None:
            found.append((youngest[0], f"{repository}/{youngest[1]}"))
    return max(found) if found else unread
