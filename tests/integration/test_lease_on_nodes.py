"""The lease on real nodes of every form, beside templates of others that apply to every index."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier

import pytest

from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import dialect_for
from orchestrator.elasticsearch.eras import COMPONENT_TEMPLATE, LEGACY_TEMPLATE
from orchestrator.elasticsearch.lease import PREFIX, ElasticsearchLease, lease_body
from orchestrator.model.action import Done, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.runtime.waiting import SystemClock
from tests.integration.fixtures_processes import ProcessCluster
from tests.integration.lease_records import lease_records
from tests.lab.layout import THREE_ZONES
from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="versions"), pytest.mark.timeout(600)]

VERSIONS = (
    "9.1.0",
    "8.19.0",
    "7.17.28",
    "7.5.2",
    "6.8.23",
    "opensearch-3.1.0",
    "opensearch-2.19.0",
    "opensearch-1.3.20",
)
WITHOUT_COMPONENTS = ("7.5.2", "6.8.23")
STRICT = ("9.1.0", "8.19.0")
"""They refuse a legacy template that a composable one would hide."""
OLD = dialect_for("elasticsearch", "7.5.2")
FIRST = LeaseRecord(epoch=1, run="r1", owner="ann@bastion", process="p1", started="2026-11-01T00:00:00Z")
OTHER = replace(FIRST, run="r2", owner="ben@laptop", process="p2")
PATTERNS = {"everything": ["*"], "dashes": ["*-*"], "hidden": [".*"]}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab(version: str, process_cluster: ProcessCluster) -> Iterator[LabCluster]:
    """A node with templates of others, as far as its version has them."""
    cluster = process_cluster(version, nodes=THREE_ZONES[:1])
    if version not in WITHOUT_COMPONENTS:
        for priority, (name, patterns) in enumerate(PATTERNS.items()):
            body = {
                "index_patterns": patterns,
                "priority": priority,
                "template": {"settings": {"number_of_shards": 1}},
            }
            cluster.client.ask("PUT", f"/_index_template/{name}", body)
    yield cluster
    if version not in WITHOUT_COMPONENTS:
        for name in PATTERNS:
            cluster.client.ask("DELETE", f"/_index_template/{name}", accept=(404,))


@contextmanager
def client_of(lab: LabCluster) -> Iterator[ElasticsearchClient]:
    client = ElasticsearchClient(Access(endpoints=lab.endpoints), clock=SystemClock())
    yield client
    client.close()


def test_the_lease_is_taken_kept_and_taken_over(lab: LabCluster, version: str) -> None:
    lab.client.ask("PUT", f"/{PREFIX}1-index")  # an index may be called nearly so
    form = LEGACY_TEMPLATE if version in WITHOUT_COMPONENTS else COMPONENT_TEMPLATE
    with client_of(lab) as client:
        lease, theirs = ElasticsearchLease(client), ElasticsearchLease(client)
        assert lease.try_out() == Done()
        assert lease_records(lab.client, components=form == COMPONENT_TEMPLATE) == []
        assert lease.read() is None
        assert lease.create(FIRST) == Done()
        assert f"{PREFIX}1" in str(lab.client.ask("GET", f"/{form}/{PREFIX}*"))
        assert isinstance(theirs.create(OTHER), Refused)
        beat = replace(FIRST, heartbeat=1, owner="x" * 100_000)
        assert lease.write(beat) == Done()
        assert theirs.read() == beat
        taken = replace(OTHER, epoch=2)
        assert theirs.create(taken) == Done()
        assert lease.read() == taken
        assert isinstance(lease.write(replace(beat, heartbeat=2)), Refused)
        assert theirs.remove(2) == Done()
        assert theirs.read() is None


def test_a_legacy_record_counts_and_is_removed(lab: LabCluster, version: str) -> None:
    """One of an earlier version of the program, which a template of others may forbid to create."""
    path, body = f"/_template/{PREFIX}4?create=true", lease_body(replace(OTHER, epoch=4), LEGACY_TEMPLATE)
    answer = lab.client.send(lab.endpoints[0], "PUT", path, body)
    assert answer.ok is (version not in STRICT), answer
    if not answer.ok:
        assert answer.status == 400
        for name in PATTERNS:
            lab.client.ask("DELETE", f"/_index_template/{name}")
        lab.client.ask("PUT", path, body)
    with client_of(lab) as client:
        lease = ElasticsearchLease(client)
        assert lease.read() == replace(OTHER, epoch=4)
        assert isinstance(lease.create(replace(FIRST, epoch=4)), Refused)
        assert lease.create(replace(FIRST, epoch=5)) == Done()
        assert lease.remove(5) == Done()
        assert lease.read() is None


@pytest.mark.parametrize("version", ["9.1.0", "8.19.0", "7.17.28", "opensearch-2.19.0"], indirect=True)
def test_of_two_forms_at_once_at_most_one_is_held(lab: LabCluster) -> None:
    for name in PATTERNS:
        lab.client.ask("DELETE", f"/_index_template/{name}")
    held: list[tuple[bool, ...]] = []
    with client_of(lab) as newer, client_of(lab) as older:
        assert newer.dialect() == older.dialect()
        both = replace(newer.dialect(), lease_forms=OLD.lease_forms)
        older.dialect_to_write = lambda: both
        for _ in range(40):
            start = Barrier(2)

            def take(client: ElasticsearchClient, record: LeaseRecord, start: Barrier = start) -> bool:
                lease = ElasticsearchLease(client)
                start.wait(10)
                return lease.create(record) == Done()

            with ThreadPoolExecutor(2) as pool:
                held.append(tuple(pool.map(take, (newer, older), (FIRST, OTHER))))
            assert ElasticsearchLease(newer).remove(1) == Done()
    assert (True, True) not in held, {each: held.count(each) for each in set(held)}
