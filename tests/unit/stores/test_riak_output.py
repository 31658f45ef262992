"""What is taken for the whole of an output, and lists that Riak wraps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import RingReady, RingStatus, Transfers
from orchestrator.stores.riak import parse_pace
from orchestrator.stores.riak.output import Malformed, Return, said, unwrapped
from orchestrator.stores.riak.parse_node import parse_pid, parse_version, parse_watched_nodes
from orchestrator.stores.riak.parse_ring import parse_ring_status, parse_ringready
from orchestrator.stores.riak.parse_transfers import parse_transfers
from tests.fakes.riak_meanings import parser_of, value_of
from tests.fakes.riak_rings import names
from tests.fakes.riak_transcripts import recorded
from tests.unit.stores.riak_outputs import V29, V32, out

ONE, TWO, THREE = names(3)


def test_the_return_term_is_the_last_thing_that_is_said(subtests: pytest.Subtests) -> None:
    for end in ["ok\n", "ok", "ok\n\n", "ok\r\n", "ok  \n \n\n"]:
        with subtests.test(end=end):
            found = said(out(f"all is well\n{end}"), V32)
            assert (found.lines, found.returned) == (("all is well",), Return.OK)


@pytest.mark.parametrize("term", ["error", "{error,1}", "{error,{badrpc,nodedown}}"])
def test_a_return_term_that_is_an_error_is_no_leave_to_believe(term: str) -> None:
    found = said(out(f"all is well\n{term}\n"), V32)
    assert found.returned is Return.ERROR
    with pytest.raises(Malformed, match="the return term is an error"):
        found.must_be_ok()


@pytest.mark.parametrize("term", ["ok", "error", "{error,1}"])
def test_a_return_term_in_the_middle_ends_another_answer(term: str) -> None:
    with pytest.raises(Malformed, match="in the middle"):
        said(out(f"all is well\n{term}\nall is well\nok\n"), V32)


def test_an_old_version_has_no_return_term_and_none_is_missed() -> None:
    found = said(out("all is well\n"), V29)
    assert (found.lines, found.returned) == (("all is well",), Return.NONE)
    with pytest.raises(Malformed, match="the return term is missing after 'all is well'"):
        said(out("all is well\n"), V32)
    with pytest.raises(Malformed, match="the return term is missing after nothing at all"):
        said(out(" \n\n"), V32)


def test_lines_between_which_a_bracket_is_open_are_one() -> None:
    assert unwrapped(["before", "a [b,", "   c,", "  {d,", "   e}] f", "after", "[g]", "h"]) == [
        "before",
        "a [b, c, {d, e}] f",
        "after",
        "[g]",
        "h",
    ]
    assert unwrapped(["  indented", "x ['a[b',", "  c]", "y"]) == ["  indented", "x ['a[b', c]", "y"]
    assert unwrapped(["a] closed too often", "b [c,", "d]"]) == ["a] closed too often", "b [c, d]"]
    assert unwrapped(["a [b,", "never closed"]) == ["a [b, never closed"]


def test_members_that_are_down_in_a_wrapped_list() -> None:
    text = (
        f"Nodes ['{ONE}',\n       '{TWO}'] are currently down.\n"
        f"'{THREE}' waiting to handoff 3 partitions\n\nActive Transfers:\n\n\nok\n"
    )
    found = parse_transfers(out(text), V32)
    assert isinstance(found, Transfers), found
    assert (found.down, [each.partitions for each in found.waiting]) == ((ONE, TWO), [3])


def _ring_status(pending: str, unreachable: str) -> str:
    return (
        f"{'=' * 34} Claimant {'=' * 35}\nClaimant:  '{ONE}'\nStatus:     up\nRing Ready: true\n\n"
        f"{'=' * 30} Ownership Handoff {'=' * 30}\n{pending}\n"
        f"{'=' * 30} Unreachable Nodes {'=' * 30}\n{unreachable}\n"
    )


QUIET = "No pending changes.\n"
ALL = "All nodes are up and reachable\n"
WARNING = "\nWARNING: The cluster state will not converge until all nodes\nare up.\n"


def test_unreachable_nodes_in_a_wrapped_list() -> None:
    lost = f"The following nodes are unreachable: ['{TWO}',\n{' ' * 38}'{THREE}']\n{WARNING}"
    found = parse_ring_status(out(_ring_status(QUIET, lost)), V29)
    assert isinstance(found, RingStatus), found
    assert found.unreachable == (TWO, THREE)


def test_a_pending_change_waits_for_a_wrapped_list() -> None:
    change = (
        f"Owner:      {ONE}\nNext Owner: {TWO}\n\nIndex: 0\n"
        f"  Waiting on: [riak_kv_vnode,\n               riak_pipe_vnode]\n\n{'-' * 79}\n"
    )
    found = parse_ring_status(out(_ring_status(change, ALL)), V29)
    assert isinstance(found, RingStatus), found
    ((partition,),) = (each.partitions for each in found.pending)
    assert partition.waiting_on == ("riak_kv_vnode", "riak_pipe_vnode")


def test_parts_of_another_name_are_not_those_of_ring_status() -> None:
    whole = _ring_status(QUIET, ALL)
    assert isinstance(parse_ring_status(out(whole), V29), RingStatus)
    for was, now in (("Ownership Handoff", "Ownership"), ("Unreachable", "Reachable"), ("Claimant =", "X =")):
        found = parse_ring_status(out(whole.replace(was, now)), V29)
        assert isinstance(found, Unknown)
        assert "its parts are" in found.reason


def test_a_pending_change_that_is_cut_makes_all_unknown() -> None:
    change = f"Owner:      {ONE}\nNext Owner: {TWO}\n\nIndex: 0\n\n"
    rule = f"{'-' * 79}\n\n"
    two = parse_ring_status(out(_ring_status(f"{change}{rule}{change}{rule}", ALL)), V29)
    assert isinstance(two, RingStatus), two
    assert len(two.pending) == 2
    assert isinstance(parse_ring_status(out(_ring_status(f"{change}{rule}{change}", ALL)), V29), Unknown)


def test_nothing_may_follow_the_word_that_all_agree() -> None:
    text = f"TRUE All nodes agree on the ring ['{ONE}','{TWO}']"
    assert parse_ringready(out(f"{text}\nok\n"), V32) == RingReady(agreed=True, nodes=(ONE, TWO))
    for more in (" but one", f" FALSE Node '{ONE}' and '{TWO}' list different partition owners"):
        assert isinstance(parse_ringready(out(f"{text}{more}\nok\n"), V32), Unknown)
        assert isinstance(parse_ringready(out(f"{text}\n{more}\nok\n"), V32), Unknown)


ULIMIT = "!!!!\n!!!! WARNING: ulimit -n is 20000; 65536 is the recommended minimum.\n!!!!\n"
"""As `riak daemon` of 3.2.1 printed it (recorded); other versions print it before any answer."""
ANSWERED = [each for each in recorded() if parser_of(each.command) is not None and each.text.strip()]


def test_a_warning_before_an_answer_does_not_change_it(subtests: pytest.Subtests) -> None:
    """`pid`, `rpc` and `eval` were unknown then, so a node whose account has few open files held the run."""
    for record in ANSWERED:
        with subtests.test(str(record)):
            assert value_of(replace(record, text=f"{ULIMIT}{record.text}")) == value_of(record)


def test_a_warning_in_the_middle_of_an_answer_is_not_left_out() -> None:
    assert parse_pid(out(f"{ULIMIT}1296\n")) == 1296
    assert isinstance(parse_pid(out(f"1296\n{ULIMIT}")), Unknown)


def test_so_it_is_with_answers_that_were_not_recorded(subtests: pytest.Subtests) -> None:
    for parse, answer in [
        (parse_pace.parse_timer, "{ok,10000}"),
        (parse_pace.parse_done, "ok"),
        (parse_pace.parse_forced, "{[ok,ok],[]}"),
        (parse_watched_nodes, f"['{ONE}','{TWO}']"),
        (parse_version, "2.9.10"),
    ]:
        with subtests.test(parse=parse, answer=answer):
            plain = parse(out(f"{answer}\n"))
            assert not isinstance(plain, Unknown), plain
            assert parse(out(f"{ULIMIT}{answer}\n")) == plain
