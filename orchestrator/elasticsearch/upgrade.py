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
from orchestrator.elasticsearch.dialect import NEWEST
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import (
    Malformed,
    ReadFailed,
    answer_of,
    given,
    items,
    mapping,
    number,
    reading,
    text,
    truth,
    within,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import SettingsView
from orchestrator.model.reading import Instant, Unknown, Unsupported
from orchestrator.model.upgrade import ML_UPGRADE_MODE, Deprecation, UpgradeView

_NO_SUCH_API: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
"""The answers of a server without X-Pack to a path of X-Pack (seen on 5.6, 6.8, 7.17, 8.19 and 9.1)."""


def read_upgrade(client: ElasticsearchClient) -> UpgradeView:
    """The fitness of the cluster for an upgrade.

    Raises:
        ReadFailed: indices or settings of nodes were not read.
    """
    created = parse_creations(_body(client, calls.creations(client.limits)))
    settings = parse_node_settings(_body(client, calls.node_settings()))
    youngest = reading(_youngest, client)
    ended, name = (youngest, "") if isinstance(youngest, Unknown) else youngest or (None, "")
    return UpgradeView(
        deprecations=reading(_deprecations, client),
        snapshot_ended=ended,
        snapshot=name,
        created={name: version for name, (version, _) in created.items()},
        read_only=frozenset(name for name, (_, read_only) in created.items() if read_only),
        settings=settings,
    )


def with_modes(client: ElasticsearchClient, settings: SettingsView) -> SettingsView:
    """The settings with the upgrade mode of machine learning; without it where the cluster has none.

    Raises:
        ReadFailed: the mode was not read.
    """
    outcome = client.read(calls.ml_info())
    if isinstance(outcome, Fault):
        if outcome.status in _NO_SUCH_API or outcome.unlicensed:
            return settings
        raise _unread(outcome, "upgrade mode of machine learning")
    if outcome.body is None:  # this version has none
        return settings
    mode = parse_upgrade_mode(outcome.body)
    return replace(settings, persistent={**settings.persistent, ML_UPGRADE_MODE: mode})


def _body(client: ElasticsearchClient, request: calls.HttpRequest) -> Any:
    outcome = client.read(request)
    if isinstance(outcome, Fault):
        raise _unread(outcome)
    return outcome.body


def _unread(fault: Fault, of: str = "") -> ReadFailed:
    """That a part was not read. It may be a little later: an upgrade waits for that before it begins."""
    return ReadFailed(replace(fault.unknown(of), passes=fault.passes))


def _deprecations(client: ElasticsearchClient) -> tuple[Deprecation, ...]:
    request = calls.deprecations()
    outcome = client.read(request)
    if not isinstance(outcome, Fault):
        return parse_deprecations(outcome.body)
    if outcome.status not in _NO_SUCH_API:
        raise _unread(outcome)
    sent = (client.spoken or NEWEST).spelled(request)
    reason = (
        f"this server has no `{sent}`, a part of X-Pack, so it cannot "
        "list what the next major version no longer takes: read its list of breaking changes instead"
    )
    raise ReadFailed(Unsupported(reason=reason))


def _youngest(client: ElasticsearchClient) -> tuple[Instant, str] | None:
    """When the youngest snapshot without a failed shard ended, and its `repository/name`.

    Repositories are asked one by one: one that cannot be read must not hide the snapshots of another.
    """
    found: list[tuple[Instant, str]] = []
    unread: ReadFailed | None = None
    for repository in parse_repositories(_body(client, calls.repositories(client.limits))):
        try:
            body = _body(client, calls.finished_snapshots(client.limits, repository))
            youngest = parse_youngest(body)
        except ReadFailed as error:
            unread = ReadFailed(replace(error.unknown, reason=f"repository {repository}: {error}"))
            continue
        if youngest is not None:
            found.append((youngest[0], f"{repository}/{youngest[1]}"))
    if unread is not None and not found:
        raise unread
    return max(found, default=None)


_CRITICAL: Final = "critical"
_LONGEST_MESSAGE: Final = 300
_OPENSEARCH_BIT: Final = 0x08000000
"""The bit that each version id of OpenSearch has, and none of Elasticsearch."""
_FIRST_INDEX_VERSION: Final = 8_500_000
"""From Elasticsearch 8.11 on the id counts changes of the index format: only its major is the server's."""
_MAJOR, _MINOR, _PATCH = 1_000_000, 10_000, 100


@answer_of("deprecations")
def parse_deprecations(body: Any) -> tuple[Deprecation, ...]:
    """The critical deprecations. Parts are lists, or lists by the name of an index, template or policy."""
    found: list[Deprecation] = []
    if lacking := [part for part in _PARTS if part not in mapping(body, "the answer")]:
        raise Malformed(f"{', '.join(lacking)} is absent")
    for part, value in body.items():
        named = value if isinstance(value, dict) else {part.replace("_", " "): value}
        for subject, listed in named.items():
            found += [
                Deprecation(subject=_subject(part, subject), message=_message(one, part))
                for one in items(listed, part)
                if text(within(one, "level"), f"{part}.level").lower() == _CRITICAL
            ]
    return tuple(found)


_PARTS: Final = ("cluster_settings", "node_settings", "index_settings")
"""What every version lists, from 5.6 on: without a part nothing is known of it."""
_KINDS: Final = {
    "index_settings": "index",
    "data_streams": "data stream",
    "templates": "template",
    "ilm_policies": "policy",
}


def _subject(part: str, subject: str) -> str:
    return f"{_KINDS[part]} {subject}" if part in _KINDS else subject


def _message(one: Any, part: str) -> str:
    message = text(within(one, "message"), f"{part}.message")
    details = within(one, "details")
    whole = f"{message}: {details}" if isinstance(details, str) and details else message
    flat = " ".join(whole.split())
    return flat if len(flat) <= _LONGEST_MESSAGE else f"{flat[:_LONGEST_MESSAGE]}…"


@answer_of("machine learning")
def parse_upgrade_mode(body: Any) -> str:
    """`true` or `false`, as a setting has it."""
    return str(truth(within(body, "upgrade_mode"), "upgrade_mode")).lower()


@answer_of("snapshot repositories")
def parse_repositories(body: Any) -> tuple[str, ...]:
    """The names of the snapshot repositories."""
    return tuple(sorted(mapping(body, "the answer")))


@answer_of("finished snapshots")
def parse_youngest(body: Any) -> tuple[Instant, str] | None:
    """When the youngest snapshot without a failed shard ended, and its name; None if there is none."""
    whole = [
        (
            number(within(one, "end_time_in_millis"), "snapshots.end_time_in_millis") / 1000,
            text(within(one, "snapshot"), "snapshots.snapshot"),
        )
        for one in items(given(within(body, "snapshots"), []), "snapshots")
        if text(within(one, "state"), "snapshots.state") == "SUCCESS"
        and number(given(within(one, "shards", "failed"), 0), "snapshots.shards.failed") == 0
    ]
    return max(whole, default=None)


@answer_of("versions of indices")
def parse_creations(body: Any) -> dict[str, tuple[str, bool]]:
    """By index, the version whose format it has, and whether it is closed to writes for good.

    An archive that was restored from a snapshot of an old version has the format of the version that
    restored it (`version.compatibility`).
    """
    text(within(body, "cluster_name"), "cluster_name")
    found: dict[str, tuple[str, bool]] = {}
    for name, value in mapping(given(within(body, "metadata", "indices"), {}), "indices").items():
        index = within(value, "settings", "index")
        where = f"[{name}] index.version"
        created = within(index, "version", "created")
        format_of = number(given(within(index, "version", "compatibility"), created), where)
        found[name] = (version_of(format_of), _read_only(index, where))
    return found


def _read_only(index: Any, where: str) -> bool:
    """Whether Elasticsearch 9 reads it though it is two majors old (`IndexMetadataVerifier`)."""
    flags = (within(index, "blocks", "write"), within(index, "blocks", "read_only"))
    blocked = any(truth(given(flag, False), where) for flag in flags)
    verified = truth(given(within(index, "verified_read_only"), False), where)
    return blocked and (verified or within(index, "store", "type") == "snapshot")


def version_of(version_id: int) -> str:
    """The version of an id, such as `7.17.28` of 7172899; from Elasticsearch 8.11 on only the major is known.

    Raises:
        Malformed: it is no id of a version.
    """
    if version_id <= 0:
        raise Malformed(f"a version has the id {version_id}")
    if version_id & _OPENSEARCH_BIT:
        return _dotted(version_id ^ _OPENSEARCH_BIT)
    if version_id >= _FIRST_INDEX_VERSION:
        return str(version_id // _MAJOR)
    return _dotted(version_id)


def _dotted(version_id: int) -> str:
    major, rest = divmod(version_id, _MAJOR)
    minor, rest = divmod(rest, _MINOR)
    return f"{major}.{minor}.{rest // _PATCH}"


@answer_of("settings of nodes")
def parse_node_settings(body: Any) -> dict[NodeName, tuple[str, ...]]:
    """By node, the names of its settings; no value is kept."""
    found = {
        NodeName(text(within(node, "name"), f"nodes.{node_id}.name")): tuple(
            sorted(mapping(given(within(node, "settings"), {}), f"nodes.{node_id}.settings"))
        )
        for node_id, node in mapping(within(body, "nodes"), "nodes").items()
    }
    if not found:
        raise Malformed("no node is listed")
    return found
