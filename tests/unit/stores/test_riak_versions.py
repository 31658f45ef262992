"""What other versions print than the recorded one, as their sources have it; and the ring, put together."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Transfers
from orchestrator.stores.riak.dialect import dialect_of
from orchestrator.stores.riak.parse_members import parse_cluster_status, parse_member_status
from orchestrator.stores.riak.parse_node import (
    parse_ping,
    parse_start,
    parse_version,
    parse_versions,
)
from orchestrator.stores.riak.parse_ring import (
    parse_partitions,
    parse_ring_status,
    parse_ringready,
    ring_of,
)
from orchestrator.stores.riak.parse_transfers import parse_transfers
from tests.unit.stores.riak_outputs import (
    LOCATED,
    OLD_NODES,
    ONE,
    RING,
    STATS,
    TWO,
    V20,
    V29,
    V30,
    V32,
    dialect,
    out,
    owned,
    partitions_text,
)


def test_dialects(subtests: pytest.Subtests) -> None:
    """Whether the return term is printed, and how a command begins."""
    for version, told in [
        ("2.0.0", (False, ("riak-admin",))),
        ("2.2.3", (False, ("riak-admin",))),
        ("2.9.10", (False, ("riak-admin",))),
        ("3.0.16", (False, ("riak", "admin"))),
        ("3.2.0", (True, ("riak", "admin"))),
        ("3.2.1\n", (True, ("riak", "admin"))),
        ("3.4.0", (True, ("riak", "admin"))),
    ]:
        with subtests.test(version=version, told=told):
            found = dialect(version)
            assert (found.returns_term, found.admin) == told


def test_a_version_that_is_not_known_has_no_dialect(subtests: pytest.Subtests) -> None:
    for version in ["", "1.3.2", "1.4.12", "riak", "x3.2", "3"]:
        with subtests.test(version=version):
            assert dialect_of(version) is None


def test_quoted_names_and_locations_of_members() -> None:
    quoted = parse_member_status(out(OLD_NODES), V20)
    assert [each.node for each in quoted] == [ONE, TWO]  # type: ignore[union-attr]  # fails loudly if Unknown
    located = OLD_NODES.replace("'riak1@10.0.0.1'", "riak1@10.0.0.1 (rack a)").replace("'", "")
    first, second = parse_member_status(out(located), V30)  # type: ignore[misc]  # fails loudly if Unknown
    assert (first.node, first.location, second.location) == (ONE, "rack a", None)


def test_members_that_do_not_add_up_are_unknown(subtests: pytest.Subtests) -> None:
    for damage in [
        OLD_NODES.replace("valid      50.0%      --      'riak1@10.0.0.1'\n", ""),
        OLD_NODES.replace("Valid:1", "Valid:2"),
        OLD_NODES.replace("valid      50.0%", "(legacy)   50.0%"),
        OLD_NODES.replace("riak2@10.0.0.2", "riak1@10.0.0.1"),
        OLD_NODES.replace("50.0%      --      'riak1", "50.0%     40.0%    'riak1"),
        OLD_NODES.replace("leaving    50.0%", "leaving    30.0%"),
        OLD_NODES.replace("riak2@10.0.0.2", "riak2"),
    ]:
        with subtests.test(damage=damage):
            assert damage != OLD_NODES
            assert isinstance(parse_member_status(out(damage), V20), Unknown)


def test_locations_of_cluster_status() -> None:
    status = parse_cluster_status(out(LOCATED), V30)
    assert not isinstance(status, Unknown)
    assert [each.location for each in status.members] == ["rack a", "rack b"]


def test_a_cluster_status_that_is_cut_or_odd_is_unknown(subtests: pytest.Subtests) -> None:
    for was, now in [
        ("|     riak2@10.0.0.2   |valid |  up   | 50.0|  --   | rack b |\n", ""),
        ("|     riak2@10.0.0.2   |", "|     riak2@10.0.0.223|"),  # cut to fit a screen: no blank after it
        ("| avail |", "| avai  |"),
        ("(C) riak1@10.0.0.1 ", "    riak1@10.0.0.1 "),
        ("    riak2@10.0.0.2 ", "(C) riak2@10.0.0.2 "),
        ("    riak2@10.0.0.2 ", "    riak1@10.0.0.1 "),
        ("Ring ready: true", "Ring ready: perhaps"),
        ("Key: (C)", "Key: (D)"),
    ]:
        with subtests.test(was=was, now=now):
            assert was in LOCATED
            assert isinstance(parse_cluster_status(out(LOCATED.replace(was, now)), V30), Unknown)


def test_a_node_that_is_down_says_so_in_every_version(subtests: pytest.Subtests) -> None:
    for silent in [
        out("", 1, "Node did not respond to ping!\n"),
        out("Node did not respond to ping!\n", 1),
        out("", 1, "Node is not running!\n"),
        out("Node riak1@10.0.0.1 is not responding to pings\n", 1),
        out("Node 'riak1@10.0.0.1' not responding to pings.\n", 1),
    ]:
        for version in [V20, V29, V30, V32]:
            with subtests.test(silent=silent, version=version):
                found = parse_transfers(silent, version)
                assert isinstance(found, Unknown)
                assert "respond" in found.reason or "not running" in found.reason
                assert parse_ping(silent) is False


def test_ringready_false_exits_with_one_before_3_2() -> None:
    text = "FALSE ['riak2@10.0.0.2'] down.  All nodes need to be up to check.\n"
    for version in (V20, V29, V30):
        found = parse_ringready(out(text, 1), version)
        assert (found.agreed, found.down) == (False, (TWO,))  # type: ignore[union-attr]  # fails loudly
    apart = "FALSE Node 'riak1@10.0.0.1' and 'riak2@10.0.0.2' list different partition owners\nerror\n"
    differing = parse_ringready(out(apart), V32)
    assert differing.differing == (ONE, TWO)  # type: ignore[union-attr]  # fails loudly if Unknown
    assert isinstance(parse_ringready(out(text + "ok\n"), V32), Unknown), "FALSE, and yet ok"
    assert isinstance(parse_ringready(out("TRUE All nodes agree on the ring []", 0), V32), Unknown)
    assert isinstance(parse_ringready(out("Ringready failed, see log for details\nerror\n"), V32), Unknown)


def test_a_change_of_owner_with_a_node_down_is_pending() -> None:
    rule = "-" * 79
    text = (
        f"{'=' * 34} Claimant {'=' * 35}\nClaimant:  'riak1@10.0.0.1'\n"
        "Status:     up\nRing Ready: true\n\n"
        f"{'=' * 30} Ownership Handoff {'=' * 30}\n"
        "Owner:      riak1@10.0.0.1\nNext Owner: riak2@10.0.0.2\n\n"
        "!!! riak2@10.0.0.2 is DOWN !!!\n\n"
        "Index: 0\nIndex: 91343852333181432387730302044767688728495783936\n\n"
        f"{rule}\n\n{'=' * 30} Unreachable Nodes {'=' * 30}\nAll nodes are up and reachable\n\n"
    )
    found = parse_ring_status(out(text), V29)
    assert not isinstance(found, Unknown)
    assert [len(each.partitions) for each in found.pending] == [2]
    for damage in (text.replace(rule, ""), text.replace("Index: 0\n", "Index: zero\n")):
        assert isinstance(parse_ring_status(out(damage), V29), Unknown)
    lone = text[: text.index("Index: 0")] + text[text.index(f"\n{rule}") :]
    assert isinstance(parse_ring_status(out(lone), V29), Unknown), "a change without a partition"


def test_without_a_return_term_the_form_must_be_whole(subtests: pytest.Subtests) -> None:
    for text in [
        "Transfers failed, see log for details\n\nActive Transfers:\n\n\n",
        "No transfers active\n\nActive Transfers:\n",
        "No transfers active\n\nActive Transfers:\n\n",
        "\nActive Transfers:\n\n\n",
        "No transfers active\nNo transfers active\n\nActive Transfers:\n\n\n",
        "No transfers active\n'riak1@10.0.0.1' waiting to handoff 1 partitions\n\nActive Transfers:\n\n\n",
        "No transfers active\n\nActive Transfers:\n\n\nNode riak1 could not be contacted\n",
        "No transfers active\n\nActive Transfers:\n\nsomething moves\n\n",
        "No transfers active\nNodes ['riak1@10.0.0.1'] are currently down.\n\nActive Transfers:\n\n\n",
    ]:
        with subtests.test(text=text):
            assert isinstance(parse_transfers(out(text), V29), Unknown)


def test_the_form_of_clean_transfers_before_3_2() -> None:
    assert parse_transfers(out("No transfers active\n\nActive Transfers:\n\n\n"), V29) == Transfers()
    said = "Attempting to restart script through sudo -H -u riak\n"
    assert parse_transfers(out(f"{said}No transfers active\n\nActive Transfers:\n\n\n"), V20) == Transfers()


def test_active_transfers_of_old_nodes_and_with_long_names() -> None:
    old = (
        "No transfers active\n\nActive Transfers:\n\n"
        "vnode type: riak_kv_vnode\npartition: 0\ntarget node: 'riak2@10.0.0.2'\n\n\n"
    )
    found = parse_transfers(out(old), V20)
    assert not isinstance(found, Unknown)
    assert not found.clean
    assert (found.active[0].kind, found.active[0].target) == ("unknown", TWO)
    long = "riak1@node-with-quite-a-long-name.example.net"
    picture = "\n".join(
        [
            "                           unknown",
            f"{long[:25]:>25}  =======>  {TWO.center(25)}",
            f"{long[25:50]:<25} {'':>10} {'':<25}",
            f"{'|' + ' ' * 43 + '|   0%':^62}",
            "                           unknown",
        ]
    )
    text = (
        "No transfers active\n\nActive Transfers:\n\ntransfer type: repair\nvnode type: riak_kv_vnode\n"
        "source partition: 5\ntarget partition: 0\nstarted: 2026-11-21 01:34:04 [2.29 s ago]\n"
        "last update: no updates seen\ntotal size: unknown\nobjects transferred: unknown\n\n"
        f"{picture}\n\n\n"
    )
    repair = parse_transfers(out(text), V29)
    assert not isinstance(repair, Unknown)
    (active,) = repair.active
    assert (active.kind, active.source, active.target, active.percent) == ("repair", long, TWO, 0)
    assert not repair.clean


def test_a_start_with_another_word_is_unknown() -> None:
    assert isinstance(parse_start(out("Node 'riak1@10.0.0.1' failed to start\n")), Unknown)
    assert isinstance(parse_start(out("", None)), Unknown)


def test_the_ring_from_cluster_partitions_of_every_node() -> None:
    read: dict[NodeName, Any] = {}
    for node, indices in owned().items():
        found = parse_partitions(out(partitions_text(node, indices)), V32)
        assert not isinstance(found, Unknown), found
        read[found[0]] = found[1]
    assert ring_of(read, STATS) == RING


def test_a_node_that_lists_part_of_its_partitions_makes_no_ring() -> None:
    """A whole table with a row too few looks whole; /stats counts what is missing."""
    for node, indices in owned().items():
        fewer = {**owned(), node: indices - {max(indices)}}
        assert isinstance(ring_of(fewer, STATS), Unknown)
        assert isinstance(
            ring_of({key: each for key, each in owned().items() if key != node}, STATS), Unknown
        )


def test_a_ring_whose_partitions_overlap_or_are_none_is_unknown() -> None:
    whole = owned()
    swapped = {**whole, ONE: whole[ONE] - {min(whole[ONE])} | {min(whole[TWO])}}
    assert isinstance(ring_of(swapped, STATS), Unknown), "one partition with two owners"
    shifted = {node: frozenset(index + 1 for index in indices) for node, indices in whole.items()}
    assert isinstance(ring_of(shifted, STATS), Unknown)


def test_partitions_that_are_cut_are_unknown() -> None:
    text = partitions_text(ONE, owned()[ONE])
    assert all(isinstance(parse_partitions(out(text[:end]), V32), Unknown) for end in range(len(text) - 1))
    older = partitions_text(ONE, owned()[ONE], end="")
    whole = parse_partitions(out(older), V29)
    assert not isinstance(whole, Unknown)
    cuts = [parse_partitions(out(older[:end]), V29) for end in range(len(older))]
    assert all(isinstance(cut, Unknown) or cut == whole for cut in cuts)


def test_the_release_is_told_by_another_word_before_3_0() -> None:
    assert parse_version(out("2.2.3\n")) == "2.2.3"
    assert parse_version(out("2.9.10p6\n")) == "2.9.10p6"
    for odd in (out("2.2.3\n", 1), out(""), out("Usage: riak { start | stop }"), out("2.2.3\n2.2.4\n")):
        assert isinstance(parse_version(odd), Unknown)
    assert isinstance(parse_version(out("2.2.3\n", None)), Unknown), "cut"
    assert parse_versions(out("Installed versions:\n* 3.0.16\tpermanent\n")) == "3.0.16"
