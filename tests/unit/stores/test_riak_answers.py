"""Limits, /stats and what a node says of itself: an answer that is odd in one place is no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import LimitSet, NodeStats, ServiceWait, TransferLimits
from orchestrator.stores.riak.parse_limits import parse_limit_set, parse_shown, parse_transfer_limits
from orchestrator.stores.riak.parse_node import parse_pid, parse_ping, parse_versions, parse_wait_for_service
from orchestrator.stores.riak.parse_stats import parse_stats
from tests.fakes.riak_rings import names
from tests.riak_transcripts import STATS
from tests.unit.stores.riak_outputs import V29, V32, out

ONE, TWO, THREE = names(3)
RULE = f"{'-' * 79}\n"
NOTE = (
    "Note: You can change transfer limits with 'riak-admin transfer_limit <limit>'\n"
    "      and 'riak-admin transfer_limit <node> <limit>'\n"
)
TITLE = f"{'=' * 31} Transfer Limit {'=' * 32}\n"
LIMITS = (
    f"{TITLE}Limit        Node\n{RULE}"
    f"    2        '{ONE}'\n(offline)    '{TWO}'\n    8        '{THREE}'\n"
    f"{RULE}{NOTE}"
)


def test_limits_are_told_by_node() -> None:
    assert parse_transfer_limits(out(LIMITS), V29) == TransferLimits(
        limits={ONE: 2, THREE: 8}, offline=(TWO,)
    )


def test_limits_that_are_not_whole_are_unknown(subtests: pytest.Subtests) -> None:
    for text in [
        LIMITS.replace(NOTE, ""),
        LIMITS.replace(NOTE, NOTE[:60]),
        LIMITS.replace(THREE, ONE),
        LIMITS.replace(THREE, TWO),
        LIMITS.replace(TWO, ONE),
        LIMITS.replace(f"{RULE}Note", "Note"),
        LIMITS.replace(f"{RULE}Note", f"{RULE}{RULE}Note"),
        LIMITS.replace(f"Node\n{RULE}", "Node\n"),
        LIMITS.replace("    8  ", " many  "),
        LIMITS.replace(f"'{THREE}'", f"'{THREE}' or so"),
        LIMITS.replace("Limit        Node", "Node         Limit"),
        LIMITS.replace(TITLE, f"{TITLE.strip()} of yesterday\n"),
        f"{TITLE}Limit        Node\n{RULE}(offline)    '{TWO}'\n{RULE}{NOTE}",
    ]:
        with subtests.test(text=text):
            assert text != LIMITS
            assert isinstance(parse_transfer_limits(out(text), V29), Unknown)


def test_what_became_of_a_limit() -> None:
    def became(text: str) -> object:
        return parse_limit_set(out(f"{text}\nok\n"), V32)

    assert became(f"Set transfer limit for '{ONE}' to 8") == LimitSet(limit=8, node=ONE)
    assert became("Setting transfer limit to 8 across the cluster") == LimitSet(limit=8)
    assert became('transfer_limit set to "8"') == LimitSet(limit=8)
    assert became(f"Failed to set transfer limit for '{ONE}'") == LimitSet(
        limit=None, node=ONE, failed=(ONE,)
    )
    some = f"Setting transfer limit to 8 across the cluster\nFailed to set limit for: ['{TWO}']"
    assert became(some) == LimitSet(limit=8, failed=(TWO,))
    for odd in ("", "done", f"Set transfer limit for '{ONE}' to 8\nand more", "Invalid limit: x"):
        assert isinstance(became(odd), Unknown), odd


def test_a_shown_value_is_of_one_node_and_nothing_follows() -> None:
    border = f"+{'-' * 16}+--------------+"
    row = f"|{ONE:^16}|      2       |"
    table = f"{border}\n|{'node':^16}|transfer_limit|\n{border}\n{row}\n{border}\n"
    assert parse_shown(out(f"{table}\nok\n"), V32, "transfer_limit") == (ONE, "2")
    for odd in (f"{table}more\n", table.replace(row, f"{row}\n{row}"), f"{table}{table}"):
        assert isinstance(parse_shown(out(f"{odd}\nok\n"), V32, "transfer_limit"), Unknown)


# /stats ---------------------------------------------------------------------------------------------


def _stats(**changed: Any) -> object:
    return parse_stats(json.dumps({**json.loads(STATS.read_text()), **changed}))


def _ring_of(size: int) -> object:
    return _stats(ring_num_partitions=size, ring_ownership=f"[{{'dev1@127.0.0.1',{size}}}]")


def test_a_ring_has_a_size_that_a_ring_can_have() -> None:
    for size in (1, 65_536):
        found = _ring_of(size)
        assert isinstance(found, NodeStats), found
        assert found.ring_size == size
    for size in (0, -1, 65_537, 1_000_000_000):
        assert isinstance(_ring_of(size), Unknown)


def test_who_owns_nothing_need_be_no_member() -> None:
    """As a node that has left, of which the ring still has a line."""
    owners = json.loads(STATS.read_text())["ring_ownership"].replace("[", "[{'gone@127.0.0.1',0},", 1)
    found = _stats(ring_ownership=owners)
    assert isinstance(found, NodeStats), found
    assert isinstance(_stats(ring_ownership=owners.replace("',0}", "',1}")), Unknown)


def test_what_is_not_told_of_the_machine_is_none() -> None:
    found = _stats(sys_system_version="Erlang", sys_otp_release=25)
    assert isinstance(found, NodeStats), found
    assert (found.schedulers, found.schedulers_online, found.release) == (None, None, None)
    other = _stats(sys_system_version="Erlang [smp:20:16] [async]", sys_otp_release="22")
    assert isinstance(other, NodeStats), other
    assert (other.schedulers, other.schedulers_online, other.release) == (20, 16, "22")


@pytest.mark.parametrize("owners", [None, 16, [], {"dev1@127.0.0.1": 16}])
def test_an_ownership_that_is_no_text_is_unknown(owners: object) -> None:
    found = _stats(ring_ownership=owners)
    assert isinstance(found, Unknown)
    assert "instead of a text" in found.reason


def test_json_in_json_in_json_is_unknown() -> None:
    assert isinstance(parse_stats("[" * 200_000), Unknown)


# One node -------------------------------------------------------------------------------------------


def test_a_good_word_with_a_bad_exit_code_is_none() -> None:
    assert parse_ping(out("pong\n")) is True
    assert isinstance(parse_ping(out("pong\n", 1)), Unknown)
    assert isinstance(parse_ping(out("ping\n")), Unknown)
    assert isinstance(parse_ping(out("Node dev1@127.0.0.1 is not responding to pings\n", None)), Unknown)
    assert parse_pid(out("4711\n")) == 4711
    for odd in (out("4711\n", 1), out("4711 4712\n"), out("-1\n"), out("pid\n"), out("12345678901\n")):
        assert isinstance(parse_pid(odd), Unknown)
    permanent = "* 3.2.1\tpermanent\n"
    assert parse_versions(out(permanent)) == "3.2.1"
    for odd in (out(permanent, 1), out(""), out(f"{permanent}* 3.2.0\tpermanent\n"), out("* 3.2.1\told\n")):
        assert isinstance(parse_versions(odd), Unknown)


def test_a_service_is_up_by_its_last_word_alone() -> None:
    def waited(text: str, exit_code: int | None = 0) -> object:
        return parse_wait_for_service(out(text, exit_code), "riak_kv")

    waits = "riak_kv is not up: [riak_pipe]\n"
    assert waited(f"{waits}\n{waits}riak_kv is up\n") == ServiceWait(
        service="riak_kv", up=True, last="riak_kv is up"
    )
    assert waited(f"{waits}riak_kv is not up: []\n", None) == ServiceWait(
        service="riak_kv", up=False, last="[]"
    )
    assert waited(waits) == ServiceWait(service="riak_kv", up=False, last="[riak_pipe]"), (
        "the packaged script exits 0 when what it runs is ended"
    )
    for odd in (
        f"hello\n{waits}riak_kv is up\n",
        f"riak_kv is up\n{waits}",
        "riak_pipe is up\n",
        "\n",
    ):
        assert isinstance(waited(odd), Unknown), odd
    for odd in ("riak_kv is up\n", f"{waits}riak_kv is up\n", f"hello\n{waits}"):
        assert isinstance(waited(odd, None), Unknown), odd
