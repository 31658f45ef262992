"""What every `LeasePort` must do: a fake, the state database, hosts of Riak, a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.elasticsearch.access import Access as ClusterAccess
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.model.action import Done, Refused, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Level
from orchestrator.model.phase import HooksOf
from orchestrator.ports import LeasePort
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock
from tests.fakes.lease import FakeLeasePort
from tests.fakes.lease_hosts import lease_hosts
from tests.integration.secured import OPS, SECURED

CLUSTER = "9.1.0"

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
RIAK = replace(
    FIRST,
    debts=(
        SettingChange(level=Level.TRANSIENT, key="transfer_limit.riak@a", found="2", wanted="8"),
        SettingChange(level=Level.TRANSIENT, key="transfer_limit.riak@b", found="9", wanted="9"),
    ),
    replicas=(),
    excluded=(),
    in_hand=(NodeInHand(node=NodeName("riak@a"), incarnation=Incarnation(), address="10.0.0.1"),),
    out_of_service=(NodeName("riak@a"),),
    hooks_of=HooksOf(run="r0", playbook="o'clock"),
    restarted=(NodeName("riak@b"),),
)


@pytest.fixture(
    scope="module",  # so that all tests of one place run together
    params=[
        "fake",
        "state database",
        "hosts of Riak",
        pytest.param("a real cluster", marks=pytest.mark.real),
    ],
)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LeasePort]:
    if place == "fake":
        yield FakeLeasePort()
    elif place == "state database":
        store = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=DatabaseUse.WRITE)
        yield store.lease("cluster-uuid")
        store.close()
    elif place == "hosts of Riak":
        yield lease_hosts(tmp_path, 3).lease()
    else:
        lab = request.getfixturevalue("process_cluster")(CLUSTER, security=SECURED)
        access = ClusterAccess(
            endpoints=lab.endpoints, ca=lab.access.ca, username=OPS.name, password=OPS.password
        )
        client = ElasticsearchClient(access, clock=SystemClock())
        yield ElasticsearchLease(client)
        client.close()


@pytest.fixture
def first(place: str) -> LeaseRecord:
    """A record such as this kind of cluster has."""
    return RIAK if place == "hosts of Riak" else FIRST


@pytest.fixture
def other(first: LeaseRecord) -> LeaseRecord:
    """Somebody else's."""
    return replace(first, run="r2", owner="ben@bastion2", process="boot/1/9/9")


def test_nothing_stands_at_first(port: LeasePort) -> None:
    assert port.read() is None


def test_what_was_created_is_read_whole(port: LeasePort, first: LeaseRecord) -> None:
    assert port.create(first) == Done()
    assert port.read() == first


def test_an_epoch_is_created_once(port: LeasePort, first: LeaseRecord, other: LeaseRecord) -> None:
    assert port.create(first) == Done()
    assert isinstance(port.create(other), Refused)
    assert port.read() == first


def test_the_highest_epoch_counts(port: LeasePort, first: LeaseRecord, other: LeaseRecord) -> None:
    port.create(first)
    assert port.create(replace(other, epoch=2)) == Done()
    assert port.read() == replace(other, epoch=2)


def test_our_own_record_is_replaced(port: LeasePort, first: LeaseRecord) -> None:
    port.create(first)
    changed = replace(first, heartbeat=7, debts=())
    assert port.write(changed) == Done()
    assert port.read() == changed


def test_a_record_that_was_taken_over_is_not_replaced(
    port: LeasePort, first: LeaseRecord, other: LeaseRecord
) -> None:
    port.create(first)
    port.create(replace(other, epoch=2))
    assert isinstance(port.write(replace(first, heartbeat=1)), Refused)
    assert port.read() == replace(other, epoch=2)


def test_a_record_that_is_gone_is_not_made_again(port: LeasePort, first: LeaseRecord) -> None:
    assert isinstance(port.write(first), Refused)
    assert port.read() is None


def test_removing_takes_lower_epochs_and_leaves_higher_ones(
    port: LeasePort, first: LeaseRecord, other: LeaseRecord
) -> None:
    port.create(first)
    port.create(replace(first, epoch=2))
    port.create(replace(other, epoch=3))
    assert port.remove(2) == Done()
    assert port.read() == replace(other, epoch=3)
    assert port.remove(3) == Done()
    assert port.read() is None


def test_what_is_gone_already_is_removed(port: LeasePort) -> None:
    assert port.remove(5) == Done()
