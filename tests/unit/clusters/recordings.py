"""Answers of real clusters: `tests/data/elasticsearch/VERSION/MOMENT.KIND.json`, and of older generations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.elasticsearch import calls, old_versions
from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.elasticsearch.bulk import parse_bulk_index, parse_bulk_state, parse_merges
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.connection import parse_server
from orchestrator.elasticsearch.dialect import Dialect, family_of
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.old_versions import file_values
from orchestrator.elasticsearch.parse import (
    parse_disks,
    parse_health,
    parse_recoveries,
    parse_settings,
    parse_snapshots,
    parse_tasks,
)
from orchestrator.elasticsearch.parse_cluster import (
    Life,
    parse_cluster,
    parse_index_uuids,
    parse_lives,
    parse_members,
    process_of,
)
from orchestrator.elasticsearch.resolve import parse_names, parse_resolution
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.reading import Reading, Unknown
from tests.fakes.plain import lines
from tests.unit.clusters.cases import known

DATA = Path(__file__).parents[2] / "data"
NEW = sorted(folder.name for folder in (DATA / "elasticsearch").iterdir())
OLD = sorted(folder.name for folder in (DATA / "elasticsearch-old").iterdir())
READ_AS = DATA / "elasticsearch-read"
BULK = ("9.1.0", "8.19.0", "opensearch-2.19.0")
"""The versions of which loaded indices were recorded."""


def dialect_of(version: str) -> Dialect:
    found = family_of(product_of(version), version.rpartition("-")[2])
    assert found is not None
    return found


def product_of(version: str) -> str:
    return version.rpartition("-")[0] or "elasticsearch"


@cache
def _text(version: str, name: str) -> str:
    folder = "elasticsearch" if version in NEW else "elasticsearch-old"
    return (DATA / folder / version / f"{name}.json").read_text()


def raw(version: str, name: str) -> Any:
    """The body of an answer, a copy for each caller."""
    return json.loads(_text(version, name))["body"]


def body(version: str, name: str) -> Any:
    """The answer as it is read: in the newest form."""
    answer, kind = raw(version, name), name.rpartition(".")[2]
    if kind in ASKED:
        answer = reshaped(version, ASKED[kind], answer)
    if version == "0.90.13" and kind == "recoveries":  # it has ids alone
        names = {node_id: NodeName(node["name"]) for node_id, node in body(version, "state")["nodes"].items()}
        answer = old_versions.renamed(answer, names)
    return answer


def reshaped(version: str, request: HttpRequest, answer: Any) -> Any:
    """An answer of this version to a request, in the newest form."""
    return dialect_of(version).spelled(request).reshape(answer)


LIMITS = RequestLimits()
ASKED = {
    "state": calls.state(LIMITS, with_snapshots=False),
    "lives": calls.lives(["x"]),
    "recoveries": calls.recoveries(active_only=False),
    "active": calls.recoveries(active_only=True),
    "health": calls.health(),
    "disks": calls.disks(),
    "settings": calls.settings(LIMITS),
    "snapshots": calls.snapshots(LIMITS),
    "pools": calls.tasks(),
    "segments": calls.segments(["x"]),
    "writes": calls.writes(["x"]),
}
"""The request of a kind of answer."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster at one moment: `settled`, `down`, …; the older generations have one, without a name."""

    version: str
    name: str = ""

    def body(self, kind: str) -> Any:
        return body(self.version, f"{self.name}.{kind}" if self.name else kind)

    def lives(self) -> dict[str, Life]:
        nodes = self.body("state")["nodes"]
        read = parse_lives(self.body("lives"))
        return {process_of(node_id, nodes[node_id]): life for node_id, life in read.items()}

    def parsed(self, state: Any, lives: dict[str, Life] | None = None) -> Reading[ClusterView]:
        """Another state of this cluster, read."""
        known = self.lives() if lives is None else lives
        return reading(parse_cluster, state, known, distribution=product_of(self.version))

    def view(self, lives: dict[str, Life] | None = None) -> ClusterView:
        read = self.parsed(self.body("state"), lives)
        assert isinstance(read, ClusterView), read
        return read

    def settings(self) -> SettingsView:
        """For 5.6.16 a recording of a call that it refuses was made: only its defaults are known."""
        life, *_ = self.lives().values()
        if self.version == "5.6.16":
            return SettingsView(files=file_values(life.settings, "2.4.6"))
        return known(self.read_settings(self.body("settings")))

    def read_settings(self, answer: Any) -> Reading[SettingsView]:
        """Another answer of this cluster, read."""
        life, *_ = self.lives().values()
        settings = reading(parse_settings, answer)
        if isinstance(settings, Unknown) or settings.resets:
            return settings
        return replace(settings, files=file_values(life.settings, life.server.version))


# What each answer is read as: `data/elasticsearch-read/VERSION.txt` -----------------------------------------


def read_as(version: str) -> str:
    """Every answer of a version as the program reads it: a line for each node, index, copy, …"""
    folder = DATA / ("elasticsearch" if version in NEW else "elasticsearch-old") / version
    found: list[str] = []
    for name in sorted(file.stem for file in folder.glob("*.json")):
        moment, _, kind = name.rpartition(".")
        if kind in READ and (version, name) not in UNREAD:
            found += [f"{name} {line}" for line in READ[kind](Moment(version, moment), body(version, name))]
    return "".join(f"{line}\n" for line in found)


UNREAD = {("5.6.16", "settings")}
"""5.6 refuses the call that was recorded."""


def _state(at: Moment, body: Any) -> Iterator[str]:
    lived = "settled" if at.name == "busy" else at.name
    view = at.parsed(body, Moment(at.version, lived).lives())
    if isinstance(view, ClusterView):
        for part in ("nodes", "indices", "copies"):
            yield from lines(part, tuple(getattr(view, part)))
        view = replace(view, nodes=(), indices=(), copies=())
    yield from lines("cluster", view)
    yield from lines("snapshots", reading(parse_snapshots, body))
    yield from lines("uuids", reading(parse_index_uuids, body))


def _recoveries(at: Moment, body: Any) -> Iterator[str]:
    view = at.view()
    uuids = {index.name: index.uuid or "x" for index in view.indices}
    every = [node.name for node in view.nodes]
    yield from lines("under way", reading(parse_recoveries, body, uuids=uuids, finished_on=()))
    yield from lines("with finished ones", reading(parse_recoveries, body, uuids=uuids, finished_on=every))


def _disks(at: Moment, body: Any) -> Iterator[str]:
    settings = replace(at, name=at.name.replace("down", "settled")).settings()
    yield from lines("disk", reading(parse_disks, body, settings))


def _server(at: Moment, body: Any) -> Iterator[str]:
    elastic = at.name == "" and at.version in NEW and "opensearch" not in at.version
    yield from lines("server", parse_server(body, "Elasticsearch" if elastic else ""))
    yield from lines("members", parse_members(body))


def _settings(at: Moment, body: Any) -> Iterator[str]:
    settings = at.read_settings(body)
    if isinstance(settings, SettingsView):
        for level in ("persistent", "transient", "files"):
            yield from lines(level, getattr(settings, level))
        settings = replace(settings, persistent={}, transient={}, files={})
    yield from lines("settings", settings)


def _bulk(at: Moment, body: Any) -> Iterator[str]:
    states = reading(parse_bulk_state, body)
    if isinstance(states, Unknown):
        yield from lines("indices", states)
        return
    for state in states.values():
        yield from lines(state.name, state)
        if state.open:
            segments, writes = at.body("segments"), at.body("writes")
            read = reading(parse_bulk_index, state, segments=segments, writes=writes)
            yield from lines(state.name, read)


def _names(_at: Moment, body: Any) -> Iterator[str]:
    yield from lines("names", reading(parse_names, body))
    for pattern in ("*", "all-posts,stream-a"):
        yield from lines(pattern, reading(parse_resolution, body, [pattern]))


READ: dict[str, Callable[[Moment, Any], Iterator[str]]] = {
    "state": _state,
    "recoveries": _recoveries,
    "active": _recoveries,
    "health": lambda _, body: lines("health", reading(parse_health, body)),
    "disks": _disks,
    "probe": _server,
    "identity": _server,
    "settings": _settings,
    "tasks": lambda _, body: lines("activity", reading(parse_tasks, body, snapshots=())),
    "snapshots": lambda _, body: lines("snapshots", reading(parse_snapshots, body)),
    "pools": lambda _, body: lines("activity", reading(parse_tasks, body, snapshots=())),
    "merges": lambda _, body: lines("merge", reading(parse_merges, body)),
    "indices": _bulk,
    "names": _names,
}
"""By the kind of an answer; lives are part of the state, segments and writes of the loaded indices."""
