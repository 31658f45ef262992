"""A cluster state that has not changed is not read again, nor are the settings in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.model.action import Done, InDoubt
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Look
from orchestrator.model.reading import Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.lease import PREFIX, ElasticsearchLease, lease_body
from tests.fakes.clock import ManualClock
from tests.fakes.scripted_http import Asked, ScriptedServer, Wire, reply
from tests.unit.stores.cases import known
from tests.unit.stores.scripted import SETTINGS, STATE, be

VERSION = "/_cluster/state/version,master_node"
WITH_SNAPSHOTS = f"{STATE},customs"
VERSION_AND_SNAPSHOTS = f"{VERSION},customs"
LIVES = "/_nodes/id-es1/jvm,http,settings,plugins"
BOTH = (Look.CLUSTER, Look.SETTINGS)
LAGS = 120.5
"""For so long a member may lag behind the master's state."""


def _state(version: int, uuid: str | None) -> dict[str, Any]:
    return {
        "cluster_name": "prod",
        "cluster_uuid": "u",
        "version": version,
        **({} if uuid is None else {"state_uuid": uuid}),
        "master_node": "id-es1",
        "nodes": {
            "id-es1": {
                "name": "es1",
                "ephemeral_id": "life-es1",
                "transport_address": "127.0.0.1:9300",
                "roles": ["master", "data"],
                "version": "9.1.0",
                "attributes": {},
            }
        },
        "metadata": {
            "cluster_uuid": "u",
            "cluster_coordination": {"last_committed_config": ["id-es1"], "voting_config_exclusions": []},
            "indices": {},
        },
        "routing_table": {"indices": {}},
    }


def _settings(limit: str) -> dict[str, Any]:
    limits = {"indices.recovery.max_bytes_per_sec": limit}
    return {"persistent": limits, "transient": {}, "defaults": {"cluster.routing.rebalance.enable": "all"}}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    life = {
        "name": "es1",
        "version": "9.1.0",
        "roles": ["master", "data"],
        "jvm": {"start_time_in_millis": 1},
        "settings": {},
    }
    with ScriptedServer() as running:
        be(running).on(LIVES, reply({"nodes": {"id-es1": life}}))
        for path in (STATE, WITH_SNAPSHOTS):
            running.on(path, reply(_state(7, "seven")))
        running.on(VERSION, reply({"state_uuid": "seven", "master_node": "id-es1"}))
        running.on(SETTINGS, reply(_settings("40mb")))
        running.on("/_tasks", reply({"nodes": {}}))
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _version_and_limit(read: ClusterReadings) -> tuple[int, object]:
    limit = known(read.settings).effective("indices.recovery.max_bytes_per_sec")
    return known(read.cluster).state_version, limit


def _becomes(server: ScriptedServer, version: int, uuid: str, limit: str = "40mb") -> None:
    """The cluster has another state."""
    server.on(VERSION, reply({"state_uuid": uuid, "master_node": "id-es1"}))
    server.on(STATE, reply(_state(version, uuid)))
    server.on(SETTINGS, reply(_settings(limit)))


def _counted(server: ScriptedServer) -> tuple[int, int, int]:
    """So many small questions, whole states and readings of the settings."""
    paths = server.paths()
    return paths.count(VERSION), paths.count(STATE), paths.count(SETTINGS)


def test_the_same_state_is_asked_for_its_id_alone(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    for pause in (LAGS, 1.0, 1.0, 1.0):
        assert _version_and_limit(port.observe(BOTH)) == (7, "40mb")
        clock.wait(pause)
    assert _counted(server) == (3, 1, 2)


def test_settings_of_a_node_that_lags_are_read_again(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    """Since 9.0 any node answers with the settings that it has applied, while the state is the master's."""
    for pause in (60.0, 59.0):
        assert _version_and_limit(port.observe(BOTH)) == (7, "40mb")
        clock.wait(pause)
    server.on(SETTINGS, reply(_settings("80mb")))
    assert _version_and_limit(port.observe(BOTH)) == (7, "80mb"), "it has applied the state"


def test_two_minutes_count_to_the_question(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    def late(asked: Asked, wire: Wire) -> None:
        clock.wait(LAGS - 100.0)
        reply(_settings("40mb"))(asked, wire)

    port.observe(BOTH)
    clock.wait(100.0)
    server.on(SETTINGS, late)
    assert _version_and_limit(port.observe(BOTH)) == (7, "40mb")
    server.on(SETTINGS, reply(_settings("80mb")))
    assert _version_and_limit(port.observe(BOTH)) == (7, "80mb")


def test_two_minutes_count_for_each_state(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    port.observe(BOTH)
    clock.wait(2 * LAGS)
    _becomes(server, 8, "eight")
    port.observe(BOTH)
    server.on(SETTINGS, reply(_settings("80mb")))
    assert _version_and_limit(port.observe(BOTH)) == (8, "80mb")


def test_another_state_is_read_whole_with_its_settings(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    port.observe(BOTH)
    clock.wait(LAGS)
    port.observe(BOTH)
    _becomes(server, 8, "eight", "80mb")
    for _ in range(2):
        assert _version_and_limit(port.observe(BOTH)) == (8, "80mb")
    assert _counted(server) == (3, 2, 4)


@pytest.mark.parametrize(
    "answer",
    [
        reply({}),
        reply({"state_uuid": None}),
        reply({"state_uuid": "seven"}),
        reply({"state_uuid": "seven", "master_node": None}),
        reply({"state_uuid": "seven", "master_node": "id-es2"}),
        reply([]),
        reply({"error": "x"}, status=403),
    ],
)
def test_an_id_that_is_not_told_is_no_proof(
    server: ScriptedServer, port: ElasticsearchCluster, answer: Any
) -> None:
    server.on(VERSION, answer)
    for _ in range(3):
        port.observe(BOTH)
    assert _counted(server)[1:] == (3, 3)


def test_a_server_without_ids_is_not_asked_for_one(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    server.on(STATE, reply(_state(7, None)))
    for _ in range(3):
        port.observe(BOTH)
    assert _counted(server) == (0, 3, 3)


def test_settings_alone_are_always_read(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    port.observe(BOTH)
    clock.wait(LAGS)
    port.observe(BOTH)
    server.on(SETTINGS, reply(_settings("80mb")))
    read = known(port.observe([Look.SETTINGS]).settings)
    assert read.effective("indices.recovery.max_bytes_per_sec") == "80mb"


def test_settings_that_could_not_be_read_are_read_again(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    port.observe(BOTH)
    clock.wait(LAGS)
    server.on(SETTINGS, reply({"error": "x"}, status=403))
    assert isinstance(port.observe(BOTH).settings, Unknown)
    server.on(SETTINGS, reply(_settings("40mb")))
    assert _version_and_limit(port.observe(BOTH)) == (7, "40mb")


def _with_snapshot(uuid: str, *names: str) -> dict[str, Any]:
    running = [{"repository": "daily", "snapshot": name, "state": "STARTED"} for name in names]
    same = {"cluster_name": "prod", "state_uuid": uuid, "master_node": "id-es1"}
    return {**same, "snapshots": {"snapshots": running}}


def _snapshots(read: ClusterReadings) -> tuple[str, ...]:
    return known(read.activity).snapshots


def test_a_state_read_without_snapshots_does_not_tell_them(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    """They are read beside its id, once, and not with the whole state."""
    server.on(VERSION_AND_SNAPSHOTS, reply(_with_snapshot("seven", "snap-1")))
    port.observe(BOTH)
    for _ in range(2):
        assert _snapshots(port.observe([*BOTH, Look.ACTIVITY])) == ("daily/snap-1",)
    paths = server.paths()
    assert [paths.count(each) for each in (VERSION_AND_SNAPSHOTS, VERSION)] == [1, 1]
    assert [paths.count(each) for each in (STATE, WITH_SNAPSHOTS)] == [1, 0]


def test_snapshots_of_another_state_are_read_with_it(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    server.on(VERSION_AND_SNAPSHOTS, reply(_with_snapshot("eight", "snap-1")))
    server.on(WITH_SNAPSHOTS, reply({**_state(9, "nine"), **_with_snapshot("nine", "snap-2")}))
    port.observe(BOTH)
    read = port.observe([*BOTH, Look.ACTIVITY])
    assert (_version_and_limit(read), _snapshots(read)) == ((9, "40mb"), ("daily/snap-2",))


@pytest.mark.parametrize("answer", [reply({"error": "x"}, status=403), reply([])])
def test_snapshots_unread_beside_the_id_are_read_with_the_state(
    server: ScriptedServer, port: ElasticsearchCluster, answer: Any
) -> None:
    server.on(VERSION_AND_SNAPSHOTS, answer)
    port.observe(BOTH)
    assert _snapshots(port.observe([*BOTH, Look.ACTIVITY])) == ()
    assert server.paths().count(WITH_SNAPSHOTS) == 1


def test_snapshots_untold_beside_the_id_are_not_none(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    """Without the cluster's name nothing shows that the answer has all its parts."""
    server.on(VERSION_AND_SNAPSHOTS, reply({"state_uuid": "seven", "master_node": "id-es1"}))
    port.observe(BOTH)
    assert isinstance(port.observe([*BOTH, Look.ACTIVITY]).activity, Unknown)


def test_a_state_with_facts_that_are_missing_is_read_again(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    life = server.answers[LIVES][0]
    server.on(LIVES, reply({"error": "x"}, status=403))
    port.observe(BOTH)
    server.on(LIVES, life)
    read = known(port.observe(BOTH).cluster)
    assert [node.incarnation.started_at_ms for node in read.nodes] == [1]


def test_settings_of_an_earlier_state_are_not_those_of_a_later(
    server: ScriptedServer, port: ElasticsearchCluster, clock: ManualClock
) -> None:
    port.observe(BOTH)
    clock.wait(LAGS)
    port.observe(BOTH)
    server.on(VERSION, reply({}))
    server.on(STATE, reply(_state(8, None)))
    server.on(SETTINGS, reply(_settings("80mb")))
    assert _version_and_limit(port.observe(BOTH)) == (8, "80mb")


# The lease's own updates ------------------------------------------------------------------------------------

RECORD = LeaseRecord(epoch=1, run="r1", owner="ann@bastion", process="p", started="2026-11-21T04:13:00+00:00")
TEMPLATE = f"/_component_template/{PREFIX}1"


class _Leased:
    """A cluster whose state moves with each update; `writes` is what happens as a heartbeat arrives."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server, self.version, self.beats = server, 7, 0
        client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=ManualClock())
        self.port, self.lease = ElasticsearchCluster(client), ElasticsearchLease(client)
        self.port.observe(BOTH)

    def moves(self, by: int = 1) -> None:
        self.version += by
        uuid = f"v{self.version}"
        _becomes(self.server, self.version, uuid)
        self.server.on(VERSION, reply({"state_uuid": uuid, "version": self.version, "master_node": "id-es1"}))

    def beat(self, *, moves: int = 1, acknowledged: bool = True) -> None:
        record = replace(RECORD, heartbeat=self.beats)
        listed = [{"name": f"{PREFIX}1", "component_template": lease_body(record)}]
        self.server.on(f"/_component_template/{PREFIX}*", reply({"component_templates": listed}))
        self.server.on(f"/_template/{PREFIX}*", reply({}, status=404))
        self.server.on(TEMPLATE, reply({"acknowledged": acknowledged}))
        self.beats += 1
        assert isinstance(self.lease.write(replace(record, heartbeat=self.beats)), Done | InDoubt)
        self.moves(moves)

    def whole(self) -> int:
        """How many whole states were read for one more reading."""
        before = self.server.paths().count(STATE)
        known(self.port.observe(BOTH).cluster)
        return self.server.paths().count(STATE) - before


@pytest.fixture
def leased(server: ScriptedServer) -> Iterator[_Leased]:
    made = _Leased(server)
    yield made
    made.port.close()


def test_heartbeats_alone_do_not_make_the_state_another(leased: _Leased) -> None:
    assert [leased.beat() or leased.whole() for _ in range(3)] == [0, 0, 0]
    leased.beat()
    leased.beat()
    assert leased.whole() == 0
    assert leased.whole() == 0


def test_a_change_beside_heartbeats_is_read(leased: _Leased) -> None:
    leased.beat(moves=2)
    assert leased.whole() == 1
    leased.beat()
    assert leased.whole() == 0
    leased.moves()
    assert leased.whole() == 1


def test_a_heartbeat_in_doubt_counts_for_nothing(leased: _Leased) -> None:
    """It may have been made or not: another change may stand in its place."""
    leased.beat(acknowledged=False)
    assert leased.whole() == 1


def test_the_same_record_again_counts_for_nothing(leased: _Leased) -> None:
    """It leaves the state as it is, so another change would pass for it."""
    leased.beat()
    leased.beats -= 1
    leased.beat(moves=1)
    assert leased.whole() == 1


def test_a_heartbeat_before_the_reading_counts_for_nothing(leased: _Leased) -> None:
    updates = leased.lease._client.own_updates
    begun = updates.begin()
    leased.moves()
    assert leased.whole() == 1
    updates.acknowledge(begun)  # it is part of what was read
    leased.moves()
    assert leased.whole() == 1


def test_another_master_is_read_whole(leased: _Leased) -> None:
    leased.beat()
    leased.server.on(VERSION, reply({"state_uuid": "v8", "version": 8, "master_node": "id-es2"}))
    assert leased.whole() == 1
