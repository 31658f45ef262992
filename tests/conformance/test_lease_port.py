"""What every `LeasePort` must do; run on the fake that other tests use and on the state database."""

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
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
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


@pytest.fixture(params=["fake", "state database"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LeasePort]:
    if request.param == "fake":
        yield FakeLeasePort()
        return
    store = open_store(f"sqlite:///{tmp_path}/state.db", {}, access=Access.WRITE)
    yield store.lease("cluster-uuid")
    store.close()


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
