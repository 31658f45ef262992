"""What every `LeasePort` must do: the fake that other tests use, the state database, a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.action import Done, Refused, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Level
from orchestrator.ports import LeasePort
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from orchestrator.stores.elasticsearch.access import Access as ClusterAccess
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.lease import ElasticsearchLease
from tests.fakes.lease import FakeLeasePort

FIRST = LeaseRecord(
    epoch=1,
    run="r1",
    owner="anna@bastion1",
    process="boot/1/2/3",
    started="2026-11-21T04:13:00+00:00",
    debts=(
        SettingChange(level=Level.PERSISTENT, key="a", found=None, wanted="primaries"),
        SettingChange(level=Level.TRANSIENT, key="b", found=("x", "y"), wanted=None),
    ),
    replicas=(ReplicasAdded(index="logs", index_uuid="u", found=0, wanted=1),),
    excluded=("es9",),
    in_hand=(NodeInHand(node=NodeName("es1"), incarnation=Incarnation(ephemeral_id="e")),),
)
OTHER = replace(FIRST, run="r2", owner="ben@bastion2", process="boot/1/9/9")


@pytest.fixture(
    scope="module",  # so that all tests of one place run together
    params=["fake", "state database", pytest.param("a real cluster", marks=pytest.mark.real)],
)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LeasePort]:
    if place == "fake":
        yield FakeLeasePort()
    elif place == "state database":
        store = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=Access.WRITE)
        yield store.lease("cluster-uuid")
        store.close()
    else:
        lab = request.getfixturevalue("process_cluster")("opensearch-2.19.0")
        client = ElasticsearchClient(ClusterAccess(endpoints=lab.endpoints), clock=SystemClock())
        yield ElasticsearchLease(client)
        client.close()


def test_nothing_stands_at_first(port: LeasePort) -> None:
    assert port.read() is None


def test_what_was_created_is_read_whole(port: LeasePort) -> None:
    assert port.create(FIRST) == Done()
    assert port.read() == FIRST


def test_an_epoch_is_created_once(port: LeasePort) -> None:
    assert port.create(FIRST) == Done()
    assert isinstance(port.create(OTHER), Refused)
    assert port.read() == FIRST


def test_the_highest_epoch_counts(port: LeasePort) -> None:
    port.create(FIRST)
    assert port.create(replace(OTHER, epoch=2)) == Done()
    assert port.read() == replace(OTHER, epoch=2)


def test_our_own_record_is_replaced(port: LeasePort) -> None:
    port.create(FIRST)
    changed = replace(FIRST, heartbeat=7, debts=())
    assert port.write(changed) == Done()
    assert port.read() == changed


def test_a_record_that_was_taken_over_is_not_replaced(port: LeasePort) -> None:
    port.create(FIRST)
    port.create(replace(OTHER, epoch=2))
    assert isinstance(port.write(replace(FIRST, heartbeat=1)), Refused)
    assert port.read() == replace(OTHER, epoch=2)


def test_a_record_that_is_gone_is_not_made_again(port: LeasePort) -> None:
    assert isinstance(port.write(FIRST), Refused)
    assert port.read() is None


def test_removing_takes_lower_epochs_along_and_leaves_higher_ones(port: LeasePort) -> None:
    port.create(FIRST)
    port.create(replace(FIRST, epoch=2))
    port.create(replace(OTHER, epoch=3))
    assert port.remove(2) == Done()
    assert port.read() == replace(OTHER, epoch=3)
    assert port.remove(3) == Done()
    assert port.read() is None


def test_what_is_gone_already_is_removed(port: LeasePort) -> None:
    assert port.remove(5) == Done()
