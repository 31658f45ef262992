"""What comes of answers of Elasticsearch to a client: tables in `tests/data/exchanges`, over real sockets.

A case has a `server` (answers by path; it is one node of `version` and `build` unless it says otherwise),
what the client is to `do`, and what comes of it: the class that it `is` of, words that its reason, output or
family `says`, a `value`, whether it `passes`, and what was `sent` to change something. An answer is JSON, an
object with `status`, `body`, `headers` or `kind`, a `node`, or text that is `cut` off. The keys of `every`
are those of all cases in the file; `each` has several cases, with what differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.upgrade import read_upgrade, with_modes
from orchestrator.model.action import (
    ClearVotingExclusions,
    Flush,
    ForceMerge,
    ProbeSettings,
    Purpose,
    RefreshIndex,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.observation import Level, Look, SettingsView
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from tests.fakes.scripted_http import ELASTIC, Answerer, ScriptedServer, cut, node, reply
from tests.unit.clusters.cases import DATA, same
from tests.unit.clusters.scripted import MEMBERS, PROBE, sent

Open = Callable[..., ElasticsearchClient]
OF = {"index": "posts", "index_uuid": "u1"}
_MODE = SettingChange(level=Level.PERSISTENT, key=ML_UPGRADE_MODE, found="false", wanted="true")
_ENABLE = SettingChange(
    level=Level.PERSISTENT, key="cluster.routing.allocation.enable", found=None, wanted="none"
)
ACTIONS = {
    "merge": ForceMerge(**OF, max_segments=5),
    "refresh": RefreshIndex(**OF),
    "update": SetIndexSettings(**OF, found={}, wanted={"index.refresh_interval": None}),
    "update nothing": SetIndexSettings(**OF, found={}, wanted={}),
    "replicas": SetReplicas(**OF, found=0, wanted=1),
    "write": WriteSettings(changes=(_ENABLE,), purpose=Purpose.RESTORE),
    "clear": ClearVotingExclusions(),
    "flush": Flush(),
    "probe": ProbeSettings(),
    "write with mode": WriteSettings(changes=(_ENABLE, _MODE), purpose=Purpose.WITHHOLD),
}


def _of_look(look: Look) -> Callable[[ElasticsearchClient, str, str], Any]:
    return lambda client, *_: getattr(ElasticsearchCluster(client).observe([look]), look.name.lower())


_DEEDS: dict[str, Callable[[ElasticsearchClient, str, str], Any]] = {
    **{f"observe {look.name.lower()}": _of_look(look) for look in Look},
    "dialect": lambda client, *_: client.dialect(),
    "server": lambda client, *_: client.server(),
    "upgrade": lambda client, *_: client.dialect() and reading(read_upgrade, client),
    "modes": lambda client, *_: (
        client.dialect() and reading(with_modes, client, SettingsView(persistent={"a": "b"}))
    ),
}


def _answer(said: Any) -> Answerer:
    if isinstance(said, dict) and "node" in said:
        given = {key: value for key, value in said.items() if key not in ("node", "headers")}
        return reply(node(said["node"], **given), headers=said.get("headers"))
    if isinstance(said, dict) and "cut" in said:
        return cut(said["cut"].encode())
    if isinstance(said, dict) and said.keys() & {"status", "body", "headers", "kind"}:
        body = said.get("body", {})
        more = {key: said[key] for key in ("status", "headers", "kind") if key in said}
        return reply(body.encode() if "kind" in said else body, **more)
    return reply(said)


def _cases() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for file in sorted((DATA / "exchanges").glob("*.json")):
        content = json.loads(file.read_text())
        every = content.pop("every", {})
        for name, case in content.items():
            for other in case.pop("each", [{}]):
                server = {**every.get("server", {}), **case.get("server", {}), **other.get("server", {})}
                yield f"{file.stem}: {name}", {**every, **case, **other, "server": server}


def test_what_comes_of_each_exchange(subtests: pytest.Subtests, server: ScriptedServer, client: Open) -> None:
    for name, case in _cases():
        version, product = case.get("version", "9.1.0"), case.get("product", "elasticsearch")
        server.answers.clear()
        headers = ELASTIC if product == "elasticsearch" and version >= "7.14" else {}
        for path in (PROBE, MEMBERS):
            server.on(
                path, reply(node("es1", version=version, build=case.get("build", "zip")), headers=headers)
            )
        for path, said in case["server"].items():
            server.on(path, *map(_answer, said if isinstance(said, list) and "[" not in path else [said]))
        for deed in case["do"] if isinstance(case["do"], list) else [case["do"]]:
            with subtests.test(name, deed=deed, case=case):
                server.asked.clear()
                asking = client(server.url, **case.get("access", {}))
                if deed in ACTIONS:
                    found: Any = ElasticsearchCluster(asking).perform(ACTIONS[deed])
                else:
                    found = _DEEDS[deed](asking, product, version)
                _assert_fits(found, case, sent(server, "POST", "PUT", "DELETE"))


def _assert_fits(found: Any, case: Mapping[str, Any], changes: list[str]) -> None:
    if "is" in case:
        assert type(found).__name__ == case["is"], found
    words = [case["says"]] if isinstance(case.get("says"), str) else case.get("says", ())
    said = [str(getattr(found, name, "")) for name in ("reason", "output", "family")]
    assert all(any(word in each for each in said) for word in words), said
    assert getattr(found, "passes", False) is case.get("passes", getattr(found, "passes", False))
    if "value" in case:
        assert same(found, case["value"]), found
    if "sent" in case:
        assert [target.partition("?")[0] for target in changes] == case["sent"]
