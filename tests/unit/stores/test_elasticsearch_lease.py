"""The record of the lease, to JSON and back, and what becomes of one that cannot be read."""

from __future__ import annotations

import pytest

from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Level
from orchestrator.model.reading import Unknown
from orchestrator.stores.elasticsearch.dialect import LEGACY_TEMPLATE
from orchestrator.stores.elasticsearch.lease import lease_body
from orchestrator.stores.lease_record import decode, encode

RECORD = LeaseRecord(
    epoch=3,
    run="r1",
    owner="ops@bastion",
    process="boot/1/2",
    started="2026-11-01T00:00:00Z",
    heartbeat=7,
    debts=(
        SettingChange(level=Level.PERSISTENT, key="a", found=None, wanted="primaries"),
        SettingChange(level=Level.TRANSIENT, key="b", found=("x", "y"), wanted=None),
    ),
    replicas=(ReplicasAdded(index="i", index_uuid="u", found=0, wanted=1),),
    excluded=(NodeName("es3"),),
    in_hand=(NodeInHand(node=NodeName("es1"), incarnation=Incarnation(ephemeral_id="e", started_at_ms=5)),),
)


def test_round_trip() -> None:
    assert decode(encode(RECORD)) == RECORD


def test_what_is_absent_is_null_and_apart_from_a_value() -> None:
    debts = encode(RECORD)["debts"]
    assert (debts[0]["found"], debts[1]["found"], debts[1]["wanted"]) == (None, ["x", "y"], None)


def test_the_pattern_can_match_no_index() -> None:
    body = lease_body(RECORD, form=LEGACY_TEMPLATE)
    (pattern,) = body["index_patterns"]
    assert pattern.startswith("-"), "no index may be called so"
    assert "*" not in pattern
    assert set(body) == {"index_patterns", "order", "aliases"}, "no settings or mappings"


def test_a_record_that_cannot_be_read_is_unknown(subtests: pytest.Subtests) -> None:
    for damage in [
        {"epoch": "three"},
        {"debts": [{"level": "eternal", "key": "a", "found": None, "wanted": None}]},
        {"debts": [{"level": "persistent", "key": "a", "wanted": "x"}]},
        {"in_hand": None},
        {"of_a_later_version": 1},
    ]:
        with subtests.test(str(damage)):
            read = decode(encode(RECORD) | damage)
            assert isinstance(read, Unknown)
            assert next(iter(damage)) in read.reason


def test_what_is_no_record_at_all(subtests: pytest.Subtests) -> None:
    for value in [None, 3, "x", [], {}]:
        with subtests.test(value=value):
            assert isinstance(decode(value), Unknown)
