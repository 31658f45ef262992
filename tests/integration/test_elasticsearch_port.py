"""The port on real nodes: reading, telling, listening, the lease. Neither mocks nor recordings here."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.model.action import (
    ClearVotingExclusions,
    ClusterAction,
    Done,
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    ProbeSettings,
    Purpose,
    RefreshIndex,
    Refused,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import Health, NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merging import BulkView, Resolution, ResolvedIndex
from orchestrator.model.observation import (
    Activity,
    ClusterView,
    CopiesActive,
    HealthView,
    Level,
    Look,
    MasterElected,
    NodesJoined,
    SettingsView,
)
from orchestrator.model.reading import Unknown
from tests.integration.secured import OPS, READER, SECURED
from tests.lab.nodes import LabCluster
from tests.lab.security import LabUser
from tests.lab.seed import SeedIndex, seed

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

CLUSTER = "9.1.0"
ES1 = NodeName("es1")
_ELSEWHERE = (Look.HOSTS, Look.HOST_RIGHTS, Look.BULK, Look.GATES, Look.PACE, Look.UPGRADE, Look.MODES)
CLUSTER_LOOKS = tuple(look for look in Look if look not in _ELSEWHERE)


class RealClock:
    """Real time; a wait between two tries of a request."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)


def open_client(lab: LabCluster, **more: Any) -> ElasticsearchClient:
    access = lab.access
    login = {"username": access.user, "password": access.password}
    given = {"endpoints": lab.endpoints, "ca": access.ca} | login | more
    return ElasticsearchClient(Access(**given), clock=RealClock())


@pytest.fixture(
    scope="module",
    params=[
        CLUSTER,
        *(
            pytest.param(other, marks=pytest.mark.part(name="versions"))
            for other in ("opensearch-2.19.0", "8.19.0")
        ),
    ],
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab(version: str, process_cluster: ProcessCluster) -> LabCluster:
    return process_cluster(version, security=None if version.startswith("opensearch") else SECURED)


@pytest.fixture
def client(lab: LabCluster) -> Iterator[ElasticsearchClient]:
    opened = open_client(lab)
    yield opened
    opened.close()


@pytest.fixture
def port(client: ElasticsearchClient) -> ElasticsearchCluster:
    return ElasticsearchCluster(client)


def view(port: ElasticsearchCluster) -> ClusterView:
    read = port.observe([Look.CLUSTER]).cluster
    assert isinstance(read, ClusterView), read
    return read


def settings(port: ElasticsearchCluster) -> SettingsView:
    read = port.observe([Look.SETTINGS]).settings
    assert isinstance(read, SettingsView), read
    return read


def change(level: Level, key: str, wanted: Any) -> SettingChange:
    return SettingChange(level=level, key=key, found=None, wanted=wanted)


def write(*changes: SettingChange) -> WriteSettings:
    return WriteSettings(changes=changes, purpose=Purpose.WITHHOLD)


def test_one_reading_of_everything(lab: LabCluster, port: ElasticsearchCluster) -> None:
    seed(lab.client, [SeedIndex(name="posts", documents=300)])
    lab.wait_ready(status="green")
    seen = port.observe(CLUSTER_LOOKS)
    assert isinstance(seen.cluster, ClusterView), seen.cluster
    assert isinstance(seen.health, HealthView), seen.health
    assert seen.health.status is Health.GREEN
    assert seen.health.active_shards == sum(copy.started for copy in seen.cluster.copies)
    assert [node.zone("zone") for node in seen.cluster.nodes] == ["a", "b", "c"]
    assert seen.cluster.voters is not None
    assert len(seen.cluster.voters) == 3
    assert isinstance(seen.settings, SettingsView)
    assert (seen.settings.persistent, seen.settings.transient) == ({}, {})
    assert seen.settings.effective("cluster.routing.allocation.enable") == "all"
    assert seen.settings.effective("cluster.routing.allocation.awareness.attributes") == ("zone",)
    assert seen.recoveries == ()
    assert not isinstance(seen.activity, Unknown), seen.activity
    assert (seen.activity.snapshots, seen.activity.merges, seen.activity.reindexes) == ((), set(), set())
    assert not isinstance(seen.disks, Unknown), seen.disks
    assert set(seen.disks) == {"es1", "es2", "es3"}


def test_a_reading_costs_few_requests(client: ElasticsearchClient, port: ElasticsearchCluster) -> None:
    port.observe(CLUSTER_LOOKS)  # the first one learns what never changes
    wanted: dict[tuple[Look, ...], int] = {
        (Look.CLUSTER,): 1,
        (Look.SETTINGS,): 1,
        (Look.HEALTH,): 1,
        (Look.RECOVERIES,): 1,
        (Look.ACTIVITY,): 2,
        (Look.DISKS,): 2,
        (Look.CLUSTER, Look.SETTINGS, Look.HEALTH): 3,
        CLUSTER_LOOKS: 7,
    }
    found = {}
    for looks in wanted:
        before = client.traffic.requests
        port.observe(looks)
        found[looks] = client.traffic.requests - before
    assert found == wanted


def test_what_each_node_stores_is_told_on_request(lab: LabCluster, port: ElasticsearchCluster) -> None:
    lab.client.ask("PUT", "/kept/_doc/1?refresh=true", {"text": "x" * 1000})
    read = port.observe([Look.DISKS, Look.STORED]).disks
    assert not isinstance(read, Unknown), read
    assert all(disk.stored_bytes is not None for disk in read.values())
    assert sum(disk.stored_bytes or 0 for disk in read.values()) > 0
    unasked = port.observe([Look.DISKS]).disks
    assert not isinstance(unasked, Unknown), unasked
    assert {disk.stored_bytes for disk in unasked.values()} == {None}
    lab.client.ask("DELETE", "/kept")


def test_each_change_gives_the_state_another_id(lab: LabCluster, port: ElasticsearchCluster) -> None:
    """While the id is the same, the state is not read again."""
    key = "indices.recovery.max_bytes_per_sec"

    def told() -> tuple[object, int, int]:
        before, version = port.traffic.bytes_received, view(port).state_version
        cost = port.traffic.bytes_received - before
        return settings(port).persistent.get(key), version, cost

    _, version, _ = told()
    for limit in ("51mb", "52mb", None):
        lab.client.ask("PUT", "/_cluster/settings", {"persistent": {key: limit}})
        found, changed, whole = told()
        assert found == limit
        assert changed > version
        same, version, small = told()
        assert (same, version) == (limit, changed)
        assert small < 200 < whole


@pytest.mark.proves("settings-restored")
def test_settings_go_back_as_they_were_found(lab: LabCluster, port: ElasticsearchCluster) -> None:
    enable, limit = "cluster.routing.allocation.enable", "indices.recovery.max_bytes_per_sec"
    attributes = "cluster.routing.allocation.awareness.attributes"
    lab.client.ask("PUT", "/_cluster/settings", {"persistent": {enable: "all"}, "transient": {limit: "55mb"}})
    before = settings(port)
    assert before.persistent == {enable: "all"}
    assert before.transient == {limit: "55mb"}
    wanted = (
        change(Level.PERSISTENT, enable, "primaries"),
        change(Level.TRANSIENT, limit, "99mb"),
        change(Level.PERSISTENT, limit, "99mb"),
        change(Level.PERSISTENT, attributes, ("zone", "rack")),
    )
    assert port.perform(write(*wanted)) == Done()
    changed = settings(port)
    assert changed.persistent == {enable: "primaries", limit: "99mb", attributes: ("zone", "rack")}
    assert changed.transient == {limit: "99mb"}
    back = [replace(each, wanted=before.at(each.level, each.key)) for each in wanted]
    assert port.perform(write(*back)) == Done()
    assert settings(port) == before


def test_an_unknown_setting_is_refused_and_changes_nothing(port: ElasticsearchCluster) -> None:
    before = settings(port)
    done = port.perform(
        write(
            change(Level.PERSISTENT, "cluster.routing.allocation.enable", "none"),
            change(Level.PERSISTENT, "no.such.setting", "1"),
        )
    )
    assert isinstance(done, Refused)
    assert "no.such.setting" in done.reason
    assert settings(port) == before


def test_the_probe_fails_where_an_update_would(lab: LabCluster, port: ElasticsearchCluster) -> None:
    before = view(port).state_version
    assert port.perform(ProbeSettings()) == Done()
    assert view(port).state_version == before, "it changes nothing"
    block = "cluster.blocks.read_only"
    lab.client.ask("PUT", "/_cluster/settings", {"persistent": {block: True}})
    try:
        probed = port.perform(ProbeSettings())
        real = port.perform(write(change(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")))
    finally:
        lab.client.ask("PUT", "/_cluster/settings", {"persistent": {block: None}})
    assert isinstance(probed, Refused)
    assert isinstance(real, Refused)
    assert "read-only" in probed.reason
    assert probed.reason == real.reason


def test_a_node_goes_and_comes_back(
    lab: LabCluster, client: ElasticsearchClient, port: ElasticsearchCluster
) -> None:
    seed(lab.client, [SeedIndex(name="posts", documents=500)])
    lab.wait_ready(status="green")
    before = view(port)
    down = next(node.name for node in before.nodes if node.name != before.master)
    port.avoid([down])
    assert port.perform(Flush()).__class__ is Done
    lab.stop_nodes([down])
    # The process is gone a moment before the master has noticed.
    lab.client.ask("GET", "/_cluster/health?wait_for_nodes=2&timeout=30s")
    gone = view(port)
    assert gone.node(down) is None
    missing = [copy for copy in gone.copies if not copy.started]
    assert missing
    assert {copy.unassigned_reason for copy in missing} == {"NODE_LEFT"}
    began = time.monotonic()
    assert port.watch(NodesJoined(count=3), 1.0) is False
    assert time.monotonic() - began < 40
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(port.watch, NodesJoined(count=3), 60.0)
        lab.start_nodes([down])
        assert joined.result(timeout=60) is True
    assert port.watch(CopiesActive(count=len(before.copies)), 60.0) is True
    port.avoid([])
    after = view(port)
    old, new = before.node(down), after.node(down)
    assert old is not None
    assert new is not None
    assert new.incarnation.differs_from(old.incarnation)
    assert new.incarnation.started_at_ms is not None
    assert old.incarnation.started_at_ms is not None
    assert new.incarnation.started_at_ms > old.incarnation.started_at_ms
    untouched = [node.name for node in before.nodes if node.name != down]
    for name in untouched:
        assert before.node(name) == after.node(name)
    recoveries = port.observe([Look.RECOVERIES, Look.FINISHED]).finished
    assert not isinstance(recoveries, Unknown)
    here = [each for each in recoveries if each.target == down]
    assert here, "finished recoveries of the restarted node are told"
    assert {each.target for each in recoveries if each.done} == {down}
    assert sum(each.bytes_reused + each.bytes_copied for each in here) >= 0
    assert {each.shard for each in here} == {copy.shard for copy in after.copies if copy.node == down}
    assert client.traffic.requests < 40


def test_the_master_steps_down(lab: LabCluster, port: ElasticsearchCluster) -> None:
    before = view(port)
    assert before.master is not None
    assert port.perform(ExcludeFromVoting(node=before.master)) == Done()
    assert port.watch(MasterElected(), 30.0) is True
    excluded = view(port)
    assert excluded.voting_exclusions == (before.master,)
    assert excluded.master not in (None, before.master)
    assert port.perform(ClearVotingExclusions()) == Done()
    assert view(port).voting_exclusions == ()
    assert lab.pids()


def test_replicas_of_that_index_and_of_no_other(lab: LabCluster, port: ElasticsearchCluster) -> None:
    lab.client.ask("PUT", "/lonely", {"settings": {"number_of_shards": 1, "number_of_replicas": 0}})
    first = next(index for index in view(port).indices if index.name == "lonely")
    add = SetReplicas(index="lonely", index_uuid=first.uuid, found=0, wanted=1)
    assert port.perform(add) == Done()
    assert next(index.replicas for index in view(port).indices if index.name == "lonely") == 1
    lab.client.ask("DELETE", "/lonely")
    gone = port.perform(replace(add, found=1, wanted=0))
    assert isinstance(gone, Done)
    assert "gone" in gone.output
    lab.client.ask("PUT", "/lonely", {"settings": {"number_of_shards": 1, "number_of_replicas": 1}})
    other = port.perform(replace(add, found=1, wanted=0))
    assert isinstance(other, Done)
    assert "another one" in other.output
    assert next(index.replicas for index in view(port).indices if index.name == "lonely") == 1


def test_a_member_that_stands_still_hides_nothing_of_the_others(lab: LabCluster) -> None:
    """As in a long garbage collection: it neither tells its tasks nor its disks, and is a member still.

    Where the cluster puts it out between two requests of a reading, the reading says nothing of this.
    """
    names = [node.name for node in lab.nodes]
    for _ in range(5):
        lab.wait_ready()
        with closing(open_client(lab)) as asked:
            master = view(ElasticsearchCluster(asked)).master
        still = next(name for name in names if name != master)
        others = [name for name in names if name != still]
        pid = lab.pids()[still]
        with closing(open_client(lab, endpoints=tuple(lab.endpoint(name) for name in others))) as client:
            port = ElasticsearchCluster(client)
            port.observe([Look.CLUSTER])
            os.kill(pid, signal.SIGSTOP)
            try:
                read = port.observe([Look.CLUSTER, Look.ACTIVITY, Look.DISKS])
                afterwards = view(port)
            finally:
                os.kill(pid, signal.SIGCONT)
        if afterwards.node(NodeName(still)) is not None:
            break
    else:
        pytest.fail("five times the cluster put it out before the reading had ended")
    assert isinstance(read.cluster, ClusterView), read
    assert isinstance(read.activity, Activity), read
    assert read.activity.unread == {still}
    assert not isinstance(read.disks, Unknown), read
    assert set(read.disks) == set(others)


def test_verbs_are_harmless_when_sent_twice(port: ElasticsearchCluster) -> None:
    for action in (Flush(), RetryFailed(), ClearVotingExclusions()):
        for _ in range(2):
            assert isinstance(port.perform(action), Done), action


RECORD = LeaseRecord(epoch=1, run="r1", owner="ops@here", process="b/1/2", started="2026-11-01T00:00:00Z")


def test_heartbeats_do_not_make_the_state_another(
    lab: LabCluster, client: ElasticsearchClient, port: ElasticsearchCluster
) -> None:
    """Each makes it one version later. What others change is seen with the next reading all the same."""
    lease, first = ElasticsearchLease(client), view(port).state_version
    assert lease.create(RECORD) == Done()
    for beat in range(1, 6):
        assert lease.write(replace(RECORD, heartbeat=beat)) == Done()
    sent = client.traffic.requests
    kept = view(port)
    assert (kept.state_version, client.traffic.requests - sent) == (first, 1)
    for number in range(5):
        lab.client.ask("PUT", f"/beside-{number}", {"settings": {"number_of_replicas": 0}})
        assert lease.write(replace(RECORD, heartbeat=10 + number)) == Done()
        names = {index.name for index in view(port).indices}
        assert f"beside-{number}" in names
    assert lease.remove(1) == Done()


def test_only_one_gets_an_epoch(lab: LabCluster) -> None:
    clients = [open_client(lab) for _ in range(6)]
    start = threading.Barrier(len(clients))

    def take(number: int) -> bool:
        start.wait(10)
        result = ElasticsearchLease(clients[number]).create(replace(RECORD, run=f"r{number}"))
        return isinstance(result, Done)

    with ThreadPoolExecutor(len(clients)) as pool:
        taken = list(pool.map(take, range(len(clients))))
    record = ElasticsearchLease(clients[0]).read()
    for client in clients:
        client.close()
    assert taken.count(True) == 1
    assert isinstance(record, LeaseRecord)
    assert record.run == f"r{taken.index(True)}"


def test_a_lease_that_cannot_be_read_is_unknown(lab: LabCluster, client: ElasticsearchClient) -> None:
    kept = {"filter": {"term": {"orchestrate": json.dumps({"epoch": "one"})}}}
    template = {"index_patterns": ["-x"], "order": 3, "aliases": {"orchestrate": kept}}
    lab.client.ask("PUT", "/_template/orchestrate-lease-1", template)
    read = ElasticsearchLease(client).read()
    assert isinstance(read, Unknown)
    assert "orchestrate-lease-1 holds no record" in read.reason
    assert isinstance(ElasticsearchLease(client).write(RECORD), Refused)


@pytest.fixture
def secured(process_cluster: ProcessCluster) -> LabCluster:
    return process_cluster(CLUSTER, security=SECURED)


def as_user(lab: LabCluster, user: LabUser, password: str | None = None) -> ElasticsearchClient:
    return open_client(lab, username=user.name, password=password or user.password)


def test_the_shipped_role_is_enough(secured: LabCluster) -> None:
    for name in ("posts", "others"):
        secured.client.ask("PUT", f"/{name}", {"settings": {"number_of_replicas": 1}})
    client = as_user(secured, OPS)
    port, lease = ElasticsearchCluster(client), ElasticsearchLease(client)
    seen = port.observe(CLUSTER_LOOKS)
    for look in set(CLUSTER_LOOKS) - {Look.STORED}:
        assert not isinstance(getattr(seen, look.name.lower()), Unknown), getattr(seen, look.name.lower())
    assert not isinstance(seen.disks, Unknown)
    assert all(disk.stored_bytes is not None for disk in seen.disks.values())
    indices = {index.name: index for index in view(port).indices}
    posts, other = indices["posts"], indices["others"]
    actions: tuple[ClusterAction, ...] = (
        ProbeSettings(),
        write(change(Level.PERSISTENT, "cluster.routing.allocation.enable", "primaries")),
        write(change(Level.PERSISTENT, "cluster.routing.allocation.enable", None)),
        Flush(),
        RetryFailed(),
        SetReplicas(index="posts", index_uuid=posts.uuid, found=1, wanted=2),
        SetIndexSettings(
            index="posts", index_uuid=posts.uuid, found={}, wanted={"index.refresh_interval": "5s"}
        ),
        ForceMerge(index="posts", index_uuid=posts.uuid, max_segments=5),
        RefreshIndex(index="posts", index_uuid=posts.uuid),
        ExcludeFromVoting(node=ES1),
        ClearVotingExclusions(),
    )
    for action in actions:
        assert isinstance(port.perform(action), Done), action
    assert port.resolve(["post*"]) == Resolution(open=(ResolvedIndex(name="posts", uuid=posts.uuid),))
    bulk = port.bulk([posts.uuid])
    assert isinstance(bulk, BulkView), bulk
    assert set(bulk.indices) == {posts.uuid}
    others = port.bulk([other.uuid])
    assert isinstance(others, Unknown), "only what the role names may be merged"
    assert "indices:monitor/segments" in others.reason
    refused = port.perform(ForceMerge(index="others", index_uuid=other.uuid, max_segments=5))
    assert isinstance(refused, Refused)
    assert "indices:admin/forcemerge" in refused.reason
    assert lease.create(RECORD) == Done()
    assert lease.write(RECORD) == Done()
    assert lease.remove(1) == Done()
    client.close()


def test_what_is_missing_is_named(secured: LabCluster) -> None:
    reader = as_user(secured, READER)
    done = ElasticsearchCluster(reader).perform(ProbeSettings())
    assert isinstance(done, Refused)
    assert "user reader may not PUT /_cluster/settings (403)" in done.reason
    assert "cluster:admin/settings/update" in done.reason
    assert "`orchestrate explain elasticsearch-role.yml`" in done.reason
    recoveries = ElasticsearchCluster(reader).observe([Look.RECOVERIES]).recoveries
    assert isinstance(recoveries, Unknown)
    assert "indices:monitor/recovery" in recoveries.reason
    reader.close()
    wrong = as_user(secured, OPS, "not-this-one")
    refused = ElasticsearchCluster(wrong).perform(ProbeSettings())
    assert isinstance(refused, Refused)
    assert "refused user ops (401)" in refused.reason
    assert "not-this-one" not in refused.reason
    wrong.close()
    key = open_client(secured, username=None, password=None, api_key="bm8ta2V5Om5vbmU=")
    denied = ElasticsearchCluster(key).observe([Look.HEALTH]).health
    assert isinstance(denied, Unknown)
    assert "refused the API key (401)" in denied.reason
    key.close()
