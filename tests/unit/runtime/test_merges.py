"""What the journals of a cluster tell of merges, whichever of its runs wrote it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy.dialects import postgresql

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import Event, GoodReading, LeaseTaken, RunStarted
from orchestrator.model.policy import Kind, Policy
from orchestrator.model.work_event import IndexMerged, MergeBegun, MergeWarned
from orchestrator.runtime import tables
from orchestrator.runtime.order import merges_query
from orchestrator.runtime.store import RunEntry, StateStore

Entry = Callable[..., RunEntry]
Write = Callable[..., None]


def begun(uuid: str) -> MergeBegun:
    return MergeBegun(index=f"posts-{uuid}", index_uuid=uuid, segments=40, bytes=10**9)


def merged(uuid: str, life: str = "a") -> IndexMerged:
    return IndexMerged(
        index=f"posts-{uuid}",
        index_uuid=uuid,
        segments=5,
        bytes=10**9,
        seconds=60.0,
        incarnations={NodeName("es1"): Incarnation(ephemeral_id=life)},
    )


@pytest.fixture
def write(store: StateStore, entry: Entry) -> Write:
    """Write runs, each with these events, one after the other."""
    number = [0]

    def make(*events: Event, uuid: str = "prod-uuid") -> None:
        number[0] += 1
        began = RunStarted(
            cluster="prod",
            cluster_uuid=uuid,
            version="9.1.0",
            policy=Policy(kind=Kind.ELASTICSEARCH, cluster="prod"),
            nodes=(),
            operator="anna",
            host="bastion1",
        )
        journal = store.create_run(entry(f"run-{number[0]}", started=float(number[0])))
        journal.append((began, *events), float(number[0]))

    return make


def told(store: StateStore, *indices: str) -> tuple[set[str], dict[str, str | None]]:
    past = store.merges("prod-uuid", indices)
    return set(past.unfinished), {
        uuid: end.incarnations[NodeName("es1")].ephemeral_id for uuid, end in past.ended.items()
    }


def test_a_merge_that_began_again_is_unfinished_again(store: StateStore, write: Write) -> None:
    write(begun("i1"), merged("i1", "a"))
    write(begun("i1"), merged("i1", "b"), begun("i1"))
    assert told(store, "i1") == ({"i1"}, {"i1": "b"})


def test_only_events_of_merges_are_read(store: StateStore, write: Write) -> None:
    write(
        *(GoodReading(count=number) for number in range(50)),
        MergeWarned(index="merge_begun", index_uuid="i1", what='"event":"merge_begun"'),
        begun("i1"),
    )
    with store._engine.connect() as connection:
        assert len(connection.execute(merges_query("prod-uuid")).all()) == 1
    assert told(store, "i1") == ({"i1"}, {})


def test_postgresql_takes_the_query_too() -> None:
    """No server is asked: the query is as PostgreSQL takes it."""
    made = merges_query("u").compile(dialect=postgresql.dialect())
    assert "events.event LIKE %(event_1)s::VARCHAR || '%%' ESCAPE '/'" in str(made)
    assert set(made.params.values()) == {
        "u",
        *(f'{{"event":"{name}",' for name in ("lease/_taken", "merge/_begun", "index/_merged")),
    }


@pytest.mark.parametrize("dates", [(1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (1.0, 1.0, 1.0)])
def test_the_order_is_that_of_the_leases_under_any_clocks(
    store: StateStore, entry: Entry, dates: tuple[float, ...]
) -> None:
    """Run 1 began a merge and was killed; run 2 merged; run 1 was resumed, merged and merges again."""
    journals = [store.create_run(entry(f"run-{number}")) for number in (1, 2)]
    line = store._engine
    with line.begin() as connection:
        connection.execute(tables.runs.update().values(cluster_uuid="prod-uuid"))
    for place, (number, events) in enumerate(
        [(1, (begun("i1"),)), (2, (merged("i1", "b"),)), (1, (merged("i1", "c"), begun("i2")))], start=1
    ):
        taken = LeaseTaken(epoch=1, holder="o", ordinal=place)
        journals[number - 1].append((taken, *events), dates[place - 1])
    assert told(store, "i1", "i2") == ({"i2"}, {"i1": "c"})
