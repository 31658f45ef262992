"""A cluster that gives the answers of real nodes (`tests/data/elasticsearch/`), and a planted text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, reply

DATA = Path(__file__).parents[1] / "data" / "elasticsearch"
VERSIONS = ("9.1.0", "8.19.0", "7.17.28", "opensearch-2.19.0")
_RECORDINGS = (
    (r"/_nodes/_local/.*", "probe"),
    (r"/_nodes/stats/fs", "settled.disks"),
    (r"/_nodes/[^/]*(/.*)?", "settled.lives"),
    (r"/_cluster/state/(metadata|customs)", "names"),
    (r"/_cluster/state/.*", "settled.state"),
    (r"/_cluster/settings", "settled.settings"),
    (r"/_cluster/health", "settled.health"),
    (r"/_tasks.*", "busy.tasks"),
    (r"/_recovery", "recovering.recoveries"),
    (r"/_snapshot/_status|/_snapshot/.*", "busy.snapshots"),
)
"""Paths and the recording that answers them; the first one that matches."""

Step = str | int
Field = tuple[Step, ...]
"""The way to a value in an answer; a last step of `""` is the name of the field itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A text in the place of one value, or of one name, of one recording."""

    recording: str
    field: Field
    text: str

    def __str__(self) -> str:
        return f"{self.recording}: {'.'.join(map(str, self.field))}"


@cache
def recorded(version: str, name: str) -> Any:
    """The body of a recorded answer; that of 9.1.0 where the version has none."""
    file = DATA / version / f"{name}.json"
    body = json.loads((file if file.exists() else DATA / "9.1.0" / file.name).read_text())["body"]
    if name == "settled.lives":  # also the answer to `_nodes/http`, which has the type of the build
        for node in body["nodes"].values():
            node["build_type"] = "tar"
    return body


def fields(version: str) -> Iterator[tuple[str, Field]]:
    """Each field of each recording, once: those with the same last two steps are one."""
    for name in dict.fromkeys(name for _, name in _RECORDINGS):
        seen = set[tuple[Step, ...]]()
        for field in fields_of(recorded(version, name)):
            kind = tuple("*" if isinstance(step, int) else step for step in field)[-2:]
            if kind not in seen:
                seen.add(kind)
                yield name, field


def fields_of(value: Any, way: Field = ()) -> Iterator[Field]:
    match value:
        case dict():
            for key, inner in value.items():
                yield (*way, key, "")
                yield from fields_of(inner, (*way, key))
        case list():
            for at, inner in enumerate(value):
                yield from fields_of(inner, (*way, at))
        case _:
            yield way


def spoilt(value: Any, field: Field, text: str) -> Any:
    step, *rest = field
    if rest == [""]:
        return {f"{key}{text}" if key == step else key: inner for key, inner in value.items()}
    inner = spoilt(value[step], tuple(rest), text) if rest else _spoilt_text(value[step], text)
    if isinstance(value, list):
        return [inner if at == step else one for at, one in enumerate(value)]
    return {**value, step: inner}


def _spoilt_text(value: Any, text: str) -> str:
    return f"{value}{text}" if isinstance(value, str) else text


class RecordedCluster(ScriptedServer):
    """Its nodes are reached at one port. `planted` is in every answer from now on."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version, self.planted = version, None
        self.leases: dict[str, Any] = {}
        self.answers = _Answers(self._answer)

    planted: Planted | tuple[Planted, ...] | None
    """One text, or one in each of several recordings."""

    def _answer(self, asked: Asked, wire: Wire) -> None:
        if asked.path.startswith("/_component_template/"):
            return self._lease(asked, wire)
        name = next((name for path, name in _RECORDINGS if re.fullmatch(path, asked.path)), None)
        if asked.method != "GET" or name is None:
            return reply({"acknowledged": True} if asked.method != "GET" else {})(asked, wire)
        body = recorded(self.version, name)
        if name == "names" and self.leases:
            kept = {"component_template": {"component_template": self.leases}}
            body = {**body, "metadata": {**body["metadata"], **kept}}
        for planted in self.planted if isinstance(self.planted, tuple) else (self.planted,):
            if planted is not None and planted.recording == name:
                body = spoilt(body, planted.field, planted.text)
        headers = {} if self.version.startswith("opensearch") else None
        return reply(body, headers=headers)(asked, wire)

    def _lease(self, asked: Asked, wire: Wire) -> None:
        name = asked.path.rpartition("/")[2]
        meant = {each: kept for each, kept in self.leases.items() if fnmatch(each, name)}
        if asked.method == "PUT":
            self.leases[name] = asked.json
        elif asked.method == "DELETE":
            self.leases = {each: kept for each, kept in self.leases.items() if each not in meant}
        else:
            listed = [{"name": each, "component_template": kept} for each, kept in meant.items()]
            return reply({"component_templates": listed})(asked, wire)
        return reply({"acknowledged": True})(asked, wire)


class _Answers(dict[str, list[Answerer]]):
    def __init__(self, answer: Callable[[Asked, Wire], None]) -> None:
        super().__init__()
        self._answer = answer

    def get(self, key: str, default: Any = None) -> Any:
        return default if " " in key else [self._answer]
