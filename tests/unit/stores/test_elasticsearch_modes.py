"""The upgrade mode of machine learning is read, changed and restored as a setting of the cluster.

The packages of the lab have no machine learning: the answers are those of Elastic's documentation, and of its
sources for a licence without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.model.action import Done, InDoubt, Purpose, Refused, SettingChange, WriteSettings
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.act import perform, requests_for
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.dialect import family_of
from orchestrator.stores.elasticsearch.upgrade import with_modes
from tests.fakes.scripted_http import Answerer, ScriptedServer, node, reply

MODE = SettingChange(level=Level.PERSISTENT, key=ML_UPGRADE_MODE, found="false", wanted="true")
ALLOCATION = SettingChange(
    level=Level.PERSISTENT, key="cluster.routing.allocation.enable", found=None, wanted="primaries"
)
BOTH = WriteSettings(changes=(ALLOCATION, MODE), purpose=Purpose.WITHHOLD)
SET, SETTINGS = "/_ml/set_upgrade_mode", "/_cluster/settings"
ACKNOWLEDGED = {"acknowledged": True}
REFUSED = reply({"error": {"type": "x", "reason": "no"}, "status": 403}, status=403)


class _Clock:
    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Retries cost a test nothing."""


@contextmanager
def _served(**answers: Answerer) -> Iterator[tuple[ScriptedServer, ElasticsearchClient]]:
    with ScriptedServer() as server:
        listed = node("es1", version="9.1.0")
        for path in ("/_nodes/_local/http", "/_nodes/http"):
            server.on(path, reply(listed))
        for path, answer in answers.items():
            server.on(path, answer)
        client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=_Clock())
        try:
            yield server, client
        finally:
            client.close()


def test_a_mode_has_a_request_of_its_own_and_goes_first() -> None:
    dialect = family_of("elasticsearch", "9.1.0")
    assert dialect is not None
    mode, settings = (str(request) for request in requests_for(BOTH, dialect))
    assert mode == "POST /_ml/set_upgrade_mode?enabled=true&timeout=30s"
    assert settings.startswith("PUT /_cluster/settings?")
    assert ML_UPGRADE_MODE not in settings
    assert "primaries" in settings


@pytest.mark.parametrize(
    ("mode", "settings", "result", "asked"),
    [
        (reply(ACKNOWLEDGED), reply(ACKNOWLEDGED), Done, [SET, SETTINGS]),
        (REFUSED, reply(ACKNOWLEDGED), Refused, [SET]),
        (reply(ACKNOWLEDGED), REFUSED, InDoubt, [SET, SETTINGS]),
    ],
    ids=["both", "the mode is refused: nothing is written", "half of it: a reading shows which"],
)
def test_a_half_written_update_is_in_doubt(
    mode: Answerer, settings: Answerer, result: type, asked: list[str]
) -> None:
    with _served(**{SET: mode, SETTINGS: settings}) as (server, client):
        assert isinstance(perform(client, BOTH), result)
        assert [each.path for each in server.asked if each.method in ("POST", "PUT")] == asked


def _mode_of(client: ElasticsearchClient, version: str = "9.1.0") -> object:
    dialect = family_of("elasticsearch", version)
    assert dialect is not None
    read = with_modes(client, dialect, SettingsView(persistent={"a": "b"}))
    return read if isinstance(read, Unknown) else dict(read.persistent)


def test_the_mode_is_read_beside_the_settings() -> None:
    for mode in (True, False):
        with _served(**{"/_ml/info": reply({"upgrade_mode": mode})}) as (_, client):
            assert _mode_of(client) == {"a": "b", ML_UPGRADE_MODE: str(mode).lower()}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "no handler found for uri [/_ml/info] and method [GET]"),
        (404, "not found"),
        (403, "current license is non-compliant for [ml]"),
    ],
)
def test_a_cluster_without_machine_learning_has_no_mode(status: int, said: str) -> None:
    answer = reply({"error": {"type": "security_exception", "reason": said}}, status=status)
    with _served(**{"/_ml/info": answer}) as (_, client):
        assert _mode_of(client) == {"a": "b"}


def test_before_6_7_it_is_not_asked_for() -> None:
    with _served(**{"/_ml/info": reply({"upgrade_mode": True})}) as (server, client):
        assert _mode_of(client, "6.6.2") == {"a": "b"}
        assert server.asked == []
        assert _mode_of(client, "6.7.0") != {"a": "b"}


def test_a_missing_right_makes_the_settings_unknown() -> None:
    said = "action [cluster:monitor/xpack/ml/info/get] is unauthorized for user [ops]"
    answer = reply({"error": {"type": "security_exception", "reason": said}}, status=403)
    with _served(**{"/_ml/info": answer}) as (_, client):
        read = _mode_of(client)
        assert isinstance(read, Unknown)
        assert said in read.reason
        assert "docs/reference/elasticsearch-role.yml" in read.reason
    with _served(**{"/_ml/info": reply({"defaults": {}})}) as (_, client):
        assert isinstance(_mode_of(client), Unknown), "an answer without it says nothing"
