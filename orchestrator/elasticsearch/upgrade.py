"""Read what an upgrade is checked by: four calls, and one for each snapshot repository.

What a version does not have is read as empty. A call that fails makes only its own part unknown, if the part
can say so; otherwise the whole reading.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import NONE, Dialect
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import ReadFailed, reading
from orchestrator.elasticsearch.parse_upgrade import (
    parse_creations,
    parse_deprecations,
    parse_node_settings,
    parse_repositories,
    parse_upgrade_mode,
    parse_youngest,
)
from orchestrator.model.observation import SettingsView
from orchestrator.model.reading import Instant, Unknown, Unsupported
from orchestrator.model.upgrade import ML_UPGRADE_MODE, Deprecation, UpgradeView

_NO_SUCH_API: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
"""The answers of a server without X-Pack to a path of X-Pack (seen on 5.6, 6.8, 7.17, 8.19 and 9.1)."""


def read_upgrade(client: ElasticsearchClient, dialect: Dialect) -> UpgradeView:
    """The fitness of the cluster for an upgrade.

    Raises:
        ReadFailed: indices or settings of nodes were not read.
    """
    created = parse_creations(client.body(calls.creations(dialect, client.limits)))
    settings = parse_node_settings(client.body(calls.node_settings()))
    youngest = reading(_youngest, client, dialect)
    ended, name = (youngest, "") if isinstance(youngest, Unknown) else youngest or (None, "")
    return UpgradeView(
        deprecations=reading(_deprecations, client, dialect),
        snapshot_ended=ended,
        snapshot=name,
        created={name: version for name, (version, _) in created.items()},
        read_only=frozenset(name for name, (_, read_only) in created.items() if read_only),
        settings=settings,
    )


def with_modes(client: ElasticsearchClient, dialect: Dialect, settings: SettingsView) -> SettingsView:
    """The settings with the upgrade mode of machine learning; without it where the cluster has none.

    Raises:
        ReadFailed: the mode was not read.
    """
    if not dialect.ml_mode:
        return settings
    outcome = client.read(calls.ml_info())
    if isinstance(outcome, Fault):
        if outcome.status in _NO_SUCH_API or outcome.unlicensed:
            return settings
        raise ReadFailed(outcome.unknown("upgrade mode of machine learning"))
    mode = parse_upgrade_mode(outcome.body)
    return replace(settings, persistent={**settings.persistent, ML_UPGRADE_MODE: mode})


def _deprecations(client: ElasticsearchClient, dialect: Dialect) -> tuple[Deprecation, ...]:
    if dialect.deprecations == NONE:
        return ()
    outcome = client.read(calls.deprecations(dialect))
    if not isinstance(outcome, Fault):
        return parse_deprecations(outcome.body)
    if outcome.status not in _NO_SUCH_API:
        raise ReadFailed(outcome.unknown())
    reason = (
        f"this server has no `GET /{dialect.deprecations}`, a part of X-Pack, so it cannot "
        "list what the next major version no longer takes: read its list of breaking changes instead"
    )
    raise ReadFailed(Unsupported(reason=reason))


def _youngest(client: ElasticsearchClient, dialect: Dialect) -> tuple[Instant, str] | None:
    """When the youngest snapshot without a failed shard ended, and its `repository/name`.

    Repositories are asked one by one: one that cannot be read must not hide the snapshots of another.
    """
    if not dialect.path_parts:
        return None  # 0.90 has no snapshots
    found: list[tuple[Instant, str]] = []
    unread: ReadFailed | None = None
    for repository in parse_repositories(client.body(calls.repositories(dialect, client.limits))):
        try:
            body = client.body(calls.finished_snapshots(dialect, client.limits, repository))
            youngest = parse_youngest(body)
        except ReadFailed as error:
            unread = ReadFailed(replace(error.unknown, reason=f"repository {repository}: {error}"))
            continue
        if youngest is not None:
            found.append((youngest[0], f"{repository}/{youngest[1]}"))
    if unread is not None and not found:
        raise unread
    return max(found, default=None)
