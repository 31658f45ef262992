"""Recorded outputs, damaged: cut, wrapped, out of order, with lines or characters missing.

A damaged text never reads as good news where the whole one was none. What no reader of one text can see is
a forgery: a text from which exactly the lines with the bad news are gone, several of them apart from each
other, is the clean text itself. So the damage here is what happens: one end is lost, one piece is lost,
lines change places, a line is wrapped, a line comes twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import (
    Availability,
    ClusterStatus,
    Membership,
    RiakMember,
    RingReady,
    RingStatus,
    ServiceWait,
    TransferLimits,
    Transfers,
)
from orchestrator.stores.riak import parse_members, parse_ring, parse_transfers
from orchestrator.stores.riak.dialect import Dialect, dialect_of
from orchestrator.stores.riak.output import CommandOutput
from tests.fakes.riak_meanings import parser_of
from tests.fakes.riak_transcripts import Recorded, recorded


def good(command: str, value: Any) -> bool:
    """Whether somebody could take it for leave to go on."""
    match value:
        case Unknown():
            return False
        case RingReady(agreed=agreed):
            return agreed
        case RingStatus(claimant_up=up, ring_ready=ready, pending=pending, unreachable=unreachable):
            return up and ready is True and not pending and not unreachable
        case ClusterStatus(ring_ready=ready, members=members):
            return ready is True and all(each.availability is Availability.UP for each in members)
        case Transfers():
            return value.clean
        case ServiceWait(up=up):
            return up
        case bool():
            return value and command == "riak ping"
        case tuple() if value and isinstance(value[0], RiakMember):
            return all(each.membership is Membership.VALID and each.pending_share is None for each in value)
    return False


@cache
def judged() -> tuple[Recorded, ...]:
    """Each different text once, of the commands whose reading can be good or bad news."""
    kinds = (
        "riak ping",
        "riak admin ringready",
        "riak admin ring-status",
        "riak admin member-status",
        "riak admin cluster status",
        "riak admin transfers",
        "riak admin wait-for-service riak_kv",
    )
    found = {
        (each.command, each.exit, each.text): each for each in recorded() if each.command.startswith(kinds)
    }
    return tuple(found.values())


def read(record: Recorded, text: str) -> Any:
    parse = parser_of(record.command)
    assert parse is not None
    return parse(replace(record, text=text).output)


def is_good(record: Recorded, text: str) -> bool:
    return good(record.command, read(record, text))


BAD = tuple(each for each in judged() if not is_good(each, each.text))
GOOD = tuple(each for each in judged() if is_good(each, each.text))
SHAPES = tuple({re.sub(r"\d+", "0", f"{each.command} {each.text}"): each for each in BAD}.values())
"""One of those that differ in their numbers alone."""
in_turn = pytest.mark.parametrize("record", BAD, ids=str)
each_shape = pytest.mark.parametrize("record", SHAPES, ids=str)
good_in_turn = pytest.mark.parametrize("record", GOOD, ids=str)


def test_there_are_both_kinds() -> None:
    assert (len(BAD), len(GOOD)) == (105, 17)
    assert {each.command for each in BAD if each.exit == 0} > {"riak admin ringready", "riak admin transfers"}


def test_bad_news_that_is_cut_is_no_good_news(subtests: pytest.Subtests) -> None:
    for record in BAD:
        with subtests.test(str(record)):
            assert not any(is_good(record, record.text[:end]) for end in range(len(record.text)))
            lines = record.text.splitlines(keepends=True)
            assert not any(is_good(record, "".join(lines[start:])) for start in range(len(lines)))


def without_a_piece(record: Recorded) -> Iterator[str]:
    lines = record.text.splitlines(keepends=True)
    for start in range(len(lines)):
        for end in range(start + 1, len(lines) + 1):
            yield "".join(lines[:start] + lines[end:])


def test_bad_news_that_lacks_any_run_of_lines_is_no_good_news(subtests: pytest.Subtests) -> None:
    for record in SHAPES:
        with subtests.test(str(record)):
            assert [text for text in without_a_piece(record) if is_good(record, text)] == []


def test_limits_that_lack_lines_are_fewer_and_never_other_ones() -> None:
    """Nothing says how many there should be, so each node's limit is read as that node's alone."""
    (record,) = (
        each for each in recorded() if each.state == "dev2down" and each.command.endswith("transfer-limit")
    )
    whole = read(record, record.text)
    assert whole.limits == {"dev1@127.0.0.1": 3, "dev3@127.0.0.1": 2}
    for text in (*without_a_piece(record), *(record.text[:end] for end in range(len(record.text) - 1))):
        found = read(record, text)
        if isinstance(found, TransferLimits):
            assert found.limits.items() <= whole.limits.items()
            assert set(found.offline) <= set(whole.offline)


def test_a_command_that_did_not_end_is_no_good_news(subtests: pytest.Subtests) -> None:
    for record in BAD:
        with subtests.test(str(record)):
            assert not is_good(replace(record, exit=None), record.text)


def test_good_news_that_is_cut_is_unknown_or_the_same(subtests: pytest.Subtests) -> None:
    """The same only where nothing but a line end is lost, or lines of waiting before the word `is up`."""
    for record in GOOD:
        with subtests.test(str(record)):
            whole = read(record, record.text)
            for end in range(len(record.text) - 1):
                assert isinstance(read(record, record.text[:end]), Unknown), record.text[:end]
            assert read(record, record.text[:-1]) == whole


def test_good_news_from_a_command_that_did_not_end_is_unknown(subtests: pytest.Subtests) -> None:
    for record in GOOD:
        with subtests.test(str(record)):
            assert not is_good(replace(record, exit=None), record.text)


def test_good_news_with_a_bad_exit_code_or_term_is_unknown(subtests: pytest.Subtests) -> None:
    for record in GOOD:
        with subtests.test(str(record)):
            assert not is_good(replace(record, exit=1), record.text)
            if record.command.startswith("riak admin") and not record.command.startswith("riak admin wait"):
                for term in ("error", "{error,1}"):
                    assert not is_good(record, record.text.replace("\nok\n", f"\n{term}\n"))
                    assert not is_good(record, f"{term}\n{record.text}")


def test_good_news_of_a_node_that_is_down_is_unknown(subtests: pytest.Subtests) -> None:
    for record in GOOD:
        with subtests.test(str(record)):
            if record.command.startswith("riak admin wait"):
                continue  # it is said by design while the node is not up yet
            said = "Node dev1@127.0.0.1 is not responding to pings\n"
            assert not is_good(record, said + record.text)
            assert not is_good(record, record.text + said)


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_damaged_bad_news_is_no_good_news(data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(BAD))
    text = record.text
    for _ in range(data.draw(st.integers(1, 3))):
        text = data.draw(st.sampled_from([_gap, _swap, _wrap, _twice]))(data, text)
    assert not is_good(record, text)


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_a_wrapped_text_reads_as_the_same_or_unknown(data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(judged()))
    found = read(record, _wrap(data, record.text))
    assert isinstance(found, Unknown) or found == read(record, record.text)


def _gap(data: st.DataObject, text: str) -> str:
    """Some characters are lost, anywhere."""
    start = data.draw(st.integers(0, len(text)))
    return text[:start] + text[data.draw(st.integers(start, len(text))) :]


def _swap(data: st.DataObject, text: str) -> str:
    return "".join(data.draw(st.permutations(text.splitlines(keepends=True)[:12])))


def _wrap(data: st.DataObject, text: str) -> str:
    at = data.draw(st.integers(0, len(text)))
    return f"{text[:at]}\n{' ' * data.draw(st.sampled_from([0, 1, 34]))}{text[at:]}"


def _twice(data: st.DataObject, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = data.draw(st.integers(0, len(lines) - 1))
    return "".join(lines[: at + 1] + lines[at:])


def older(version: str) -> Dialect:
    found = dialect_of(version)
    assert found is not None
    return found


def untermed(record: Recorded) -> str:
    return record.text.removesuffix("ok\n").removesuffix("error\n")


PARSERS = {
    "riak admin ring-status": parse_ring.parse_ring_status,
    "riak admin member-status": parse_members.parse_member_status,
    "riak admin cluster status": parse_members.parse_cluster_status,
    "riak admin transfers": parse_transfers.parse_transfers,
}


def test_before_the_return_term_the_last_line_shows_a_cut(subtests: pytest.Subtests) -> None:
    records = [
        each for each in judged() if each.exit == 0 and each.command in PARSERS and "\nok\n" in each.text
    ]
    for record, version in product(records, ["2.9.10", "3.0.16"]):
        with subtests.test(str(record), version=version):
            whole = untermed(record)
            values = [
                PARSERS[record.command](CommandOutput(exit=0, stdout=whole[:end]), older(version))
                for end in range(len(whole) + 1)
            ]
            assert values[-1] == read(record, record.text)
            kept = 0 if "Nodes [" in whole or "unreachable: [" in whole else len(whole.rstrip())
            news = [good(record.command, value) for value in values]
            assert not any(news[:kept])
            assert news[-1] or not any(news)
