"""Every output that was recorded on a real Riak, read: `data/riak/meanings.md` has the meaning of each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Availability, NodeStats, Transfers
from orchestrator.stores.riak.parse_stats import parse_stats
from tests.fakes.riak_meanings import meaning, parser_of, table, told, value_of
from tests.fakes.riak_transcripts import FILES, Recorded, recorded
from tests.riak_transcripts import STATS, wrapper_recordings

MEANINGS = Path(__file__).parents[2] / "data" / "riak" / "meanings.md"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"


def test_what_every_recorded_command_means() -> None:
    if os.environ.get(REWRITE):
        MEANINGS.write_text(table())
    assert MEANINGS.read_text() == table(), f"run with {REWRITE}=1 and read the diff"


def test_every_command_of_the_files_is_walked() -> None:
    bodies = [file.read_bytes() for file in FILES]
    heads = [line for body in bodies for line in body.split(b"\n") if line.startswith(b"===")]
    packaged = len(wrapper_recordings())
    assert (len(recorded()), len(heads), packaged) == (598, 594, 4)


def of(state: str, command: str) -> list[Recorded]:
    return [each for each in recorded() if each.state == state and each.command == command]


def test_only_an_answer_that_riak_withholds_is_unknown(
    subtests: pytest.Subtests,
) -> None:
    for record in recorded():
        with subtests.test(str(record)):
            if parser_of(record.command) is None:
                assert meaning(record).startswith("not read: ")
                continue
            unidentified = "is not responding to pings" in record.text or "Invalid " in record.text
            answers_in_any_case = record.command.startswith(("riak ping", "riak stop", "riak admin wait-for"))
            assert isinstance(value_of(record), Unknown) is (unidentified and not answers_in_any_case)


def test_clean_is_what_stands_after_every_drain_and_nowhere_else() -> None:
    """The oracle knows nothing of the parser: the text of the clean ones is one and the same."""
    clean = [each for each in recorded() if each.text == "No transfers active\n\nActive Transfers:\n\n\nok\n"]
    read = [each for each in recorded() if isinstance(value := value_of(each), Transfers) and value.clean]
    assert read == clean
    assert len(clean) == 7


def test_no_transfers_beside_a_node_that_is_down_is_not_clean() -> None:
    (record,) = of("dev2down", "riak admin transfers")
    assert "No transfers active" in record.text
    assert meaning(record) == "not clean: dev2 down; dev2 not contacted"


def test_only_cluster_status_tells_that_a_node_is_down() -> None:
    (status,) = of("dev2down", "riak admin cluster status")
    assert [each.availability for each in value_of(status).members] == [
        Availability.UP,
        Availability.DOWN,
        Availability.UP,
    ]
    (members,) = of("dev2down", "riak admin member-status")
    assert "dev2 valid" in meaning(members)


def test_a_wrapped_list_is_one_list() -> None:
    record = of("joining1", "riak admin ringready")[0]
    assert record.text.count("\n") == 3
    assert meaning(record) == "ring ready: dev1, dev2, dev3 agree"


def test_stats_tell_vnodes_ring_and_schedulers() -> None:
    stats = parse_stats(STATS.read_text())
    assert isinstance(stats, NodeStats)
    assert (stats.kv_vnodes, stats.ring_size, sum(stats.ownership.values())) == (6, 16, 16)
    assert sorted(stats.members) == ["dev1@127.0.0.1", "dev2@127.0.0.1", "dev3@127.0.0.1"]
    assert sorted(stats.connected) == ["dev2@127.0.0.1", "dev3@127.0.0.1"]
    assert (stats.schedulers, stats.schedulers_online, stats.release) == (2, 2, "25")


def test_stats_that_are_cut_are_unknown(subtests: pytest.Subtests) -> None:
    for length in range(0, 16_000, 531):
        with subtests.test(length=length):
            assert isinstance(parse_stats(STATS.read_text()[:length]), Unknown)


def test_stats_that_contradict_themselves_are_unknown(subtests: pytest.Subtests) -> None:
    for was, now in [
        ('"riak_kv_vnodes_running":6', '"riak_kv_vnodes_running":"undefined"'),
        ('"ring_num_partitions":16', '"ring_num_partitions":64'),
        ("{'dev3@127.0.0.1',5},", ""),
        ('"connected_nodes":["dev2@127.0.0.1","dev3@127.0.0.1"]', '"connected_nodes":null'),
        ('"ring_members":["dev1@127.0.0.1",', '"ring_members":['),
        ('"nodename":"dev1@127.0.0.1"', '"nodename":"dev1"'),
    ]:
        with subtests.test(was=was, now=now):
            body = STATS.read_text()
            assert was in body
            assert isinstance(parse_stats(body.replace(was, now)), Unknown)


def test_an_unknown_is_told_with_its_reason() -> None:
    assert told(Unknown(reason="why")) == "UNKNOWN: why"
