"""A hostile text in each field of each recorded answer, one at a time: what of it is in the readings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum

import pytest

from orchestrator.model.observation import EVERYTHING
from orchestrator.model.reading import Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.runtime.clock import SystemClock
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.untrusted import visible
from tests.cli.hostile import EVIL, HOSTILE, PASSWORD
from tests.fakes.recorded_cluster import VERSIONS, Planted, RecordedCluster, fields


def texts(value: object) -> Iterator[str]:
    """Every text in a reading."""
    match value:
        case str() if not isinstance(value, Enum):
            yield value
        case Mapping():
            for key, inner in value.items():
                yield from texts(key)
                yield from texts(inner)
        case tuple() | list() | frozenset() | set():
            for inner in value:
                yield from texts(inner)
        case _ if is_dataclass(value):
            for field in dataclass_fields(value):
                yield from texts(getattr(value, field.name))


def read_of(server: RecordedCluster) -> ClusterReadings:
    access = Access(endpoints=(server.url,), username="orch", password=PASSWORD)
    client = ElasticsearchClient(access, clock=SystemClock())
    try:
        return ElasticsearchCluster(client).observe(EVERYTHING)
    finally:
        client.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_hostile_is_in_a_reading(version: str) -> None:
    found, number, known = [], 0, 0
    with RecordedCluster(version) as server:
        for recording, field in fields(version):
            # With the password in it an answer is read text by text in any case: every second one has none.
            text = HOSTILE if number % 2 else EVIL
            server.planted = Planted(recording=recording, field=field, text=text)
            read = read_of(server)
            number, known = number + 1, known + (not isinstance(read.cluster, Unknown))
            evil = (text for text in texts(read) if visible(text) != text or PASSWORD in text)
            found += [f"{server.planted}: {text!r}" for text in evil]
        server.planted = None
        unspoilt = read_of(server)
    assert not isinstance(unspoilt.cluster, Unknown)
    assert "es1" in set(texts(unspoilt))
    assert number > 150
    assert known > number / 2, "most texts are in a reading, and not in the reason why there is none"
    assert not found, "\n".join(found)
