"""Answers of real clusters: `tests/data/elasticsearch/VERSION/MOMENT.KIND.json`, and of older generations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.reading import Reading
from orchestrator.stores.elasticsearch import before_one, calls
from orchestrator.stores.elasticsearch.access import Limits
from orchestrator.stores.elasticsearch.dialect import Dialect, family_of
from orchestrator.stores.elasticsearch.file_values import file_values
from orchestrator.stores.elasticsearch.parse import parse_settings
from orchestrator.stores.elasticsearch.parse_cluster import parse_cluster
from orchestrator.stores.elasticsearch.parse_nodes import Life, parse_lives, process_of
from orchestrator.stores.elasticsearch.request import Request

DATA = Path(__file__).parents[2] / "data"
NEW = sorted(folder.name for folder in (DATA / "elasticsearch").iterdir())
OLD = sorted(folder.name for folder in (DATA / "elasticsearch-old").iterdir())
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
    """The answer as it is read: that of 0.90 in the form of later versions."""
    answer, dialect = raw(version, name), dialect_of(version)
    asked: dict[str, Request] = {
        "state": calls.state(dialect, Limits(), with_snapshots=False),
        "lives": calls.lives(["x"], dialect),
    }
    reshape = asked[name].reshape if name in asked else None
    if name == "recoveries" and dialect.recovery_call == "_status":
        names = {node_id: node["name"] for node_id, node in body(version, "state")["nodes"].items()}
        return before_one.recoveries(answer, names)
    return answer if reshape is None else reshape(answer)


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster at one moment: `settled`, `down`, …; the older generations have one, without a name."""

    version: str
    name: str = ""

    def body(self, kind: str) -> Any:
        return body(self.version, f"{self.name}.{kind}" if self.name else kind)

    def lives(self) -> dict[str, Life]:
        nodes = self.body("state")["nodes"]
        read = parse_lives(self.body("lives"), roles_listed=dialect_of(self.version).roles_in_nodes)
        return {process_of(node_id, nodes[node_id]): life for node_id, life in read.items()}

    def parsed(self, state: Any, lives: dict[str, Life] | None = None) -> Reading[ClusterView]:
        """Another state of this cluster, read."""
        known = self.lives() if lives is None else lives
        dialect = dialect_of(self.version)
        return parse_cluster(state, known, distribution=product_of(self.version), dialect=dialect)

    def view(self, lives: dict[str, Life] | None = None) -> ClusterView:
        read = self.parsed(self.body("state"), lives)
        assert isinstance(read, ClusterView), read
        return read

    def settings(self) -> SettingsView:
        """For 5.6.16 a recording of a call that it refuses was made: only its defaults are known."""
        dialect, (life, *_) = dialect_of(self.version), self.lives().values()
        if self.version == "5.6.16":
            return SettingsView(files=file_values(life.settings, "2.4.6"))
        old = None if dialect.null_resets else file_values(life.settings, life.server.version)
        read = parse_settings(self.body("settings"), old_files=old)
        assert isinstance(read, SettingsView), read
        assert read.resets is dialect.null_resets
        return read
