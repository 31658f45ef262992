"""A cluster state that has not changed is not read again, nor are the settings in it; and rates of recovery.

No cluster setting may slow down a node that has a speed of recoveries of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import pytest

from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.lease import PREFIX, ElasticsearchLease, lease_body
from orchestrator.elasticsearch.recovery_rates import (
    OwnRate,
    goes_by_memory,
    parse_own_rate,
    rate_of,
    with_largest_rate,
)
from orchestrator.elasticsearch.rules.settings import BANDWIDTH, limit_changes
from orchestrator.model.action import Done, InDoubt
from orchestrator.model.cluster import Role
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Look, SettingsView
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.reading import Unknown
from tests.cli.small_cluster import LEASES, SmallCluster
from tests.fakes.clock import ManualClock
from tests.fakes.scripted_http import Answerer, Asked, Wire, reply
from tests.unit.clusters.cases import known
from tests.unit.clusters.scripted import SETTINGS, STATE

VERSION = "/_cluster/state/version,master_node"
WITH_SNAPSHOTS, VERSION_AND_SNAPSHOTS = f"{STATE},customs", f"{VERSION},customs"
BOTH = (Look.CLUSTER, Look.SETTINGS)
ES1 = f"{0:022d}"
"""The id of the first node."""
LAGS = 120.5
"""For so long a member may lag behind the master's state."""
FORBIDDEN = reply({"error": "x"}, status=403)
RECORD = LeaseRecord(epoch=1, run="r1", owner="ann@bastion", process="p", started="2026-11-21T04:13:00+00:00")


def _settings(limit: str) -> Answerer:
    defaults = {"cluster.routing.rebalance.enable": "all", BANDWIDTH: "40mb"}
    return reply({"persistent": {BANDWIDTH: limit} if limit else {}, "transient": {}, "defaults": defaults})


class _Cluster(SmallCluster):
    """Nodes by name with their roles, and a cluster state with a version and an id."""

    def __init__(self, **roles: list[str]) -> None:
        self.roles = roles or {"es1": ["master", "data"]}
        super().__init__(tuple(self.roles), version="9.1.0")
        self.clock, self.version, self.beats = ManualClock(), 7, 0
        self.templates[f"{PREFIX}1"] = lease_body(RECORD)
        self.becomes(7, "seven")

    def __enter__(self) -> Self:
        super().__enter__()
        client = ElasticsearchClient(Access(endpoints=(self.url,)), clock=self.clock)
        self.adapter, self.lease = ElasticsearchCluster(client), ElasticsearchLease(client)
        return self

    def close(self) -> None:
        self.adapter.close()
        super().close()

    def _roles(self, name: str) -> list[str]:
        return self.roles[name]

    def state(self, version: int, uuid: str | None) -> dict[str, Any]:
        return {**self._state(), "version": version, **({} if uuid is None else {"state_uuid": uuid})}

    def becomes(self, version: int, uuid: str, limit: str = "40mb", master: str = "") -> None:
        """The cluster has another state, or settings."""
        said = self.state(version, uuid)
        known = {"state_uuid": uuid, "version": version, "master_node": master or said["master_node"]}
        self.on(VERSION, reply(known))
        for path in (STATE, WITH_SNAPSHOTS):
            self.on(path, reply(said))
        self.on(SETTINGS, _settings(limit))

    def read(self) -> tuple[int, object]:
        """The version of the state and the limit that are read."""
        found = self.adapter.observe(BOTH)
        return known(found.cluster).state_version, known(found.settings).effective(BANDWIDTH)

    def counted(self) -> tuple[int, int, int]:
        """So many small questions, whole states and readings of the settings."""
        paths = self.paths()
        return paths.count(VERSION), paths.count(STATE), paths.count(SETTINGS)

    def kept(self) -> None:
        """The settings were read again after the time in which a member may lag."""
        self.adapter.observe(BOTH)
        self.clock.wait(LAGS)
        self.adapter.observe(BOTH)

    def beat(self, *, moves: int = 1, acknowledged: bool = True) -> None:
        """A heartbeat, by whose time the state has moved so often."""
        if not acknowledged:
            self.on(f"{LEASES}1", reply({"acknowledged": False}))
        self.beats += 1
        assert isinstance(self.lease.write(replace(RECORD, heartbeat=self.beats)), Done | InDoubt)
        self.moves(moves)

    def moves(self, by: int = 1) -> None:
        self.version += by
        self.becomes(self.version, f"v{self.version}")

    def whole(self) -> int:
        """How many whole states were read for one more reading."""
        before = self.paths().count(STATE)
        known(self.adapter.observe(BOTH).cluster)
        return self.paths().count(STATE) - before


@pytest.fixture
def cluster() -> Iterator[_Cluster]:
    with _Cluster() as running:
        yield running


def test_the_same_state_is_asked_for_its_id_alone(cluster: _Cluster) -> None:
    for pause in (LAGS, 1.0, 1.0, 1.0):
        assert cluster.read() == (7, "40mb")
        cluster.clock.wait(pause)
    assert cluster.counted() == (3, 1, 2)


def test_settings_of_a_node_that_lags_are_read_again(cluster: _Cluster) -> None:
    """Since 9.0 any node answers with the settings that it has applied, while the state is the master's."""
    for pause in (60.0, 59.0):
        assert cluster.read() == (7, "40mb")
        cluster.clock.wait(pause)
    cluster.on(SETTINGS, _settings("80mb"))
    assert cluster.read() == (7, "80mb"), "it has applied the state"


def test_two_minutes_count_to_the_question_and_for_each_state(cluster: _Cluster) -> None:
    def late(asked: Asked, wire: Wire) -> None:
        cluster.clock.wait(LAGS - 100.0)
        _settings("40mb")(asked, wire)

    cluster.read()
    cluster.clock.wait(100.0)
    cluster.on(SETTINGS, late)
    assert cluster.read() == (7, "40mb")
    cluster.on(SETTINGS, _settings("80mb"))
    assert cluster.read() == (7, "80mb")
    cluster.clock.wait(2 * LAGS)
    cluster.becomes(8, "eight", "80mb")
    cluster.read()
    cluster.on(SETTINGS, _settings("90mb"))
    assert cluster.read() == (8, "90mb")


def test_another_state_is_read_whole_with_its_settings(cluster: _Cluster) -> None:
    cluster.kept()
    cluster.becomes(8, "eight", "80mb")
    assert [cluster.read() for _ in range(2)] == [(8, "80mb")] * 2
    assert cluster.counted() == (3, 2, 4)


def test_settings_alone_and_of_a_state_without_id_are_read(cluster: _Cluster) -> None:
    cluster.kept()
    cluster.on(SETTINGS, _settings("80mb"))
    assert known(cluster.adapter.observe([Look.SETTINGS]).settings).effective(BANDWIDTH) == "80mb"
    cluster.on(VERSION, reply({}))
    cluster.on(STATE, reply(cluster.state(8, None)))
    assert cluster.read() == (8, "80mb")


def test_settings_that_could_not_be_read_are_read_again(cluster: _Cluster) -> None:
    cluster.adapter.observe(BOTH)
    cluster.clock.wait(LAGS)
    cluster.on(SETTINGS, FORBIDDEN)
    assert isinstance(cluster.adapter.observe(BOTH).settings, Unknown)
    cluster.on(SETTINGS, _settings("40mb"))
    assert cluster.read() == (7, "40mb")


NO_PROOF = (
    *({}, {"state_uuid": None}, {"state_uuid": "seven"}, {"state_uuid": "seven", "master_node": None}),
    *({"state_uuid": "seven", "master_node": "another"}, []),
)


def test_an_id_that_is_not_said_is_no_proof(subtests: pytest.Subtests) -> None:
    for answer in (*map(reply, NO_PROOF), FORBIDDEN):
        with subtests.test(answer=answer), _Cluster() as cluster:
            cluster.on(VERSION, answer)
            for _ in range(3):
                cluster.adapter.observe(BOTH)
            assert cluster.counted()[1:] == (3, 3)
    with _Cluster() as cluster:
        cluster.on(STATE, reply(cluster.state(7, None)))
        for _ in range(3):
            cluster.adapter.observe(BOTH)
        assert cluster.counted() == (0, 3, 3), "a server without ids is not asked for one"


def test_a_state_with_facts_that_are_missing_is_read_again(cluster: _Cluster) -> None:
    lives = f"/_nodes/{next(iter(cluster.nodes))}/jvm,http,settings,plugins"
    life = cluster.answers[lives]
    cluster.on(lives, FORBIDDEN)
    cluster.adapter.observe(BOTH)
    cluster.on(lives, *life)
    read = known(cluster.adapter.observe(BOTH).cluster)
    assert [node.incarnation.started_at_ms for node in read.nodes] == [1]


# Snapshots -------------------------------------------------------------------------------------------------


def _with_snapshot(uuid: str, name: str) -> dict[str, Any]:
    shards = [{"state": "ABORTED", "node": ES1}, {"state": "INIT", "node": "gone"}]
    running = [{"repository": "daily", "snapshot": name, "state": "STARTED", "shards": shards}]
    same = {"cluster_name": "prod", "state_uuid": uuid, "master_node": ES1}
    return {**same, "snapshots": {"snapshots": running}}


def _snapshots(cluster: _Cluster) -> tuple[str, ...]:
    read = known(cluster.adapter.observe([*BOTH, Look.ACTIVITY]).activity)
    assert all(snapshot.nodes == ("es1", "gone") for snapshot in read.snapshots)
    return tuple(snapshot.name for snapshot in read.snapshots)


def test_a_state_read_without_snapshots_does_not_tell_them(cluster: _Cluster) -> None:
    """They are read beside its id, once, and not with the whole state."""
    cluster.on(VERSION_AND_SNAPSHOTS, reply(_with_snapshot("seven", "snap-1")))
    cluster.adapter.observe(BOTH)
    assert [_snapshots(cluster) for _ in range(2)] == [("daily/snap-1",)] * 2
    paths = cluster.paths()
    assert [paths.count(each) for each in (VERSION_AND_SNAPSHOTS, VERSION)] == [1, 1]
    assert [paths.count(each) for each in (STATE, WITH_SNAPSHOTS)] == [1, 0]


def test_snapshots_of_another_state_are_read_with_it(cluster: _Cluster) -> None:
    cluster.on(VERSION_AND_SNAPSHOTS, reply(_with_snapshot("eight", "snap-1")))
    cluster.on(WITH_SNAPSHOTS, reply({**cluster.state(9, "nine"), **_with_snapshot("nine", "snap-2")}))
    cluster.adapter.observe(BOTH)
    read = cluster.adapter.observe([*BOTH, Look.ACTIVITY])
    assert known(read.cluster).state_version == 9
    assert [snapshot.name for snapshot in known(read.activity).snapshots] == ["daily/snap-2"]


def test_snapshots_unread_beside_the_id_are_read_with_the_state() -> None:
    for answer in (FORBIDDEN, reply([])):
        with _Cluster() as cluster:
            cluster.on(VERSION_AND_SNAPSHOTS, answer)
            cluster.adapter.observe(BOTH)
            assert _snapshots(cluster) == ()
            assert cluster.paths().count(WITH_SNAPSHOTS) == 1


def test_snapshots_untold_beside_the_id_are_not_none(cluster: _Cluster) -> None:
    """Without the cluster's name nothing shows that the answer has all its parts."""
    cluster.on(VERSION_AND_SNAPSHOTS, reply({"state_uuid": "seven", "master_node": ES1}))
    cluster.adapter.observe(BOTH)
    assert isinstance(cluster.adapter.observe([*BOTH, Look.ACTIVITY]).activity, Unknown)


# The lease's own updates -----------------------------------------------------------------------------------


@pytest.fixture
def leased(cluster: _Cluster) -> _Cluster:
    cluster.adapter.observe(BOTH)
    return cluster


def _beat_and_read(leased: _Cluster) -> int:
    leased.beat()
    return leased.whole()


def test_heartbeats_alone_do_not_make_the_state_another(leased: _Cluster) -> None:
    assert [_beat_and_read(leased) for _ in range(3)] == [0, 0, 0]
    leased.beat()
    leased.beat()
    assert [leased.whole() for _ in range(2)] == [0, 0]


def test_a_change_beside_heartbeats_is_read(leased: _Cluster) -> None:
    leased.beat(moves=2)
    assert leased.whole() == 1
    assert _beat_and_read(leased) == 0
    leased.moves()
    assert leased.whole() == 1


def test_a_heartbeat_in_doubt_counts_for_nothing(leased: _Cluster) -> None:
    """It may have been made or not: another change may stand in its place."""
    leased.beat(acknowledged=False)
    assert leased.whole() == 1


def test_the_same_record_again_counts_for_nothing(leased: _Cluster) -> None:
    """It leaves the state as it is, so another change would pass for it."""
    leased.beat()
    leased.beats -= 1
    leased.beat()
    assert leased.whole() == 1


def test_a_heartbeat_before_the_reading_counts_for_nothing(leased: _Cluster) -> None:
    updates = leased.lease._client.own_updates
    begun = updates.begin()
    leased.moves()
    assert leased.whole() == 1
    updates.acknowledge(begun)  # it is part of what was read
    leased.moves()
    assert leased.whole() == 1


def test_another_master_is_read_whole(leased: _Cluster) -> None:
    leased.beat()
    leased.becomes(8, "v8", master="another")
    assert leased.whole() == 1


# Rates of recovery -----------------------------------------------------------------------------------------

MB, GB = 1 << 20, 1 << 30
NOW = (9, 1, 0)
COLD, FROZEN = frozenset({Role.DATA_COLD}), frozenset({Role.DATA_FROZEN})
HOT = frozenset({Role.DATA_HOT, Role.DATA_CONTENT})
BY_MEMORY = {
    4 * GB: 40,
    4 * GB + 1: 60,
    8 * GB: 60,
    16 * GB: 90,
    32 * GB: 125,
    32 * GB + 1: 250,
    512 * GB: 250,
}
"""The default of a cold or frozen node, as in Elasticsearch's `RecoverySettings`."""


def test_rate_of_a_node_by_its_roles_and_memory() -> None:
    for roles in (COLD, FROZEN, COLD | FROZEN, COLD | {Role.INGEST}):
        assert goes_by_memory(roles)
        for size, rate in BY_MEMORY.items():
            assert rate_of(roles, OwnRate(), size, version=NOW) == rate * MB
        assert rate_of(roles, OwnRate(), None, version=NOW) == 250 * MB, "the largest, as for unknown memory"
    others: list[frozenset[Role]] = [HOT, COLD | {Role.MASTER}, COLD | HOT]
    for roles in (*others, frozenset({Role.DATA}), frozenset({Role.COORDINATING})):
        assert not goes_by_memory(roles)
        assert rate_of(roles, OwnRate(), 512 * GB, version=NOW) == 40 * MB
    assert rate_of(HOT, OwnRate(), None, version=(1, 5, 2)) == 20 * MB, "before 1.6 the default is half"
    assert rate_of(HOT, OwnRate(), None, version=(1, 6, 0)) == 40 * MB


def test_what_a_nodes_file_says_goes_before_its_default() -> None:
    for value, roles, rate in (("30mb", COLD, 30 * MB), ("-1", HOT, 0), ("0b", HOT, 0)):
        own = parse_own_rate({"indices": {"recovery": {"max_bytes_per_sec": value}}}, "x")
        assert rate_of(roles, own, 64 * GB, version=NOW) == rate
    by_hardware = parse_own_rate({"node": {"bandwidth": {"recovery": {"network": "1gb"}}}}, "x")
    assert rate_of(HOT, by_hardware, None, version=NOW) is None


def test_the_limit_is_above_the_fastest_node_or_not_raised() -> None:
    answered, policy = (
        SettingsView(files={BANDWIDTH: "40mb"}),
        Policy(kind=Kind.ELASTICSEARCH, cluster="prod"),
    )
    for other, raised in [(40 * MB, True), (90 * MB, True), (125 * MB, False), (0, False), (None, False)]:
        changes = limit_changes(with_largest_rate(answered, [40 * MB, other]), policy)
        assert any(change.key == BANDWIDTH for change in changes) is raised, other
    written = replace(answered, persistent={BANDWIDTH: "50mb"})
    assert with_largest_rate(written, [250 * MB]) == written, "a cluster setting counts for every node"


@pytest.mark.parametrize(("memory", "rate"), [(16 * GB, 90 * MB), (64 * GB, 250 * MB), (None, 250 * MB)])
def test_the_rate_of_a_node_that_does_not_answer_counts(memory: int | None, rate: int) -> None:
    with _Cluster(hot1=["data_hot", "data_content", "master"], cold1=["data_cold"]) as cluster:
        cluster.becomes(7, "seven", "")
        (cold1,) = (node for node, name in cluster.nodes.items() if name == "cold1")
        path = f"/_nodes/{cold1}/stats/os"
        said = {} if memory is None else {"os": {"mem": {"total_in_bytes": memory}}}
        cluster.on(path, reply({"cluster_name": "prod", "nodes": {cold1: said}}))
        for _ in range(2):
            read = known(cluster.adapter.observe(BOTH).settings)
            assert read.files[BANDWIDTH] == f"{rate}b"
        assert cluster.paths().count(path) == 1
