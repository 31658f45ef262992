"""Who belongs to the cluster and who answers: what is odd in one member makes the whole table unknown."""

from __future__ import annotations

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.parse_members import parse_cluster_status, parse_member_status
from tests.unit.stores.riak_outputs import LOCATED, OLD_NODES, ONE, TWO, V20, V30, out

MEMBER = "leaving    50.0%      --      'riak2@10.0.0.2'"
RULE = f"{'-' * 79}\n"
HANDING_OVER = OLD_NODES.replace("50.0%      --      'riak1", "50.0%    100.0%    'riak1").replace(
    "50.0%      --      'riak2", "50.0%      0.0%    'riak2"
)


def test_shares_that_are_to_be_are_told() -> None:
    found = parse_member_status(out(HANDING_OVER), V20)
    assert not isinstance(found, Unknown), found
    assert [(each.node, each.ring_share, each.pending_share) for each in found] == [
        (ONE, 50.0, 100.0),
        (TWO, 50.0, 0.0),
    ]


def test_a_membership_that_does_not_add_up_is_unknown(subtests: pytest.Subtests) -> None:
    for text in [
        HANDING_OVER.replace("100.0%", " 80.0%"),
        HANDING_OVER.replace(" 0.0% ", "20.0% "),
        OLD_NODES.replace(MEMBER, f"{MEMBER} and another one"),
        OLD_NODES.replace(MEMBER, f"{MEMBER} (rack"),
        OLD_NODES.replace(f"{RULE}Valid", "Valid"),
        OLD_NODES.replace(f"{RULE}Valid", "-- cut --\nValid"),
        OLD_NODES.replace(f"Node\n{RULE}", "Node\n"),
        OLD_NODES.replace(f"Node\n{RULE}", "Node\n-- cut --\n"),
        OLD_NODES.replace(f"\n{RULE}Valid", f"\n{RULE}{RULE}Valid"),
        f"{OLD_NODES}{OLD_NODES}",
        f"{OLD_NODES}and one more\n",
    ]:
        with subtests.test(text=text):
            assert text not in (OLD_NODES, HANDING_OVER)
            assert isinstance(parse_member_status(out(text), V20), Unknown)


ROW = "|     riak2@10.0.0.2   |valid |  up   | 50.0|  --   | rack b |"


def test_an_odd_member_makes_the_status_unknown(subtests: pytest.Subtests) -> None:
    for was, now in [
        ("|valid |", "|vague |"),
        ("|valid |", "|      |"),
        ("|  up   |", "|  up?  |"),
        ("|  up   |", "|       |"),
        ("| 50.0|", "|  nan|"),
        ("| 50.0|", "| 5e1 |"),
        ("| 50.0|", "| 50  |"),
        ("| 50.0|", "|50.0%|"),
        ("| 50.0|", "|     |"),
        ("| 50.0|", "| 40.0|"),
        ("|  --   |", "|  nan  |"),
        ("|  --   |", "|       |"),
        ("|  --   |", "| 50.0  |"),
        ("riak2@10.0.0.2 ", "riak2          "),
    ]:
        with subtests.test(was=was, now=now):
            assert was in ROW
            assert len(was) == len(now)
            assert not isinstance(parse_cluster_status(out(LOCATED), V30), Unknown)
            text = LOCATED.replace(ROW, ROW.replace(was, now, 1))
            assert text != LOCATED
            assert isinstance(parse_cluster_status(out(text), V30), Unknown)


def test_a_location_that_nobody_has_set_is_none() -> None:
    """Nodes without one are in no zone, and not in one together."""
    wider = LOCATED.replace("--------+\n", "---------+\n").replace("|location|", "|location |")
    wider = wider.replace("| rack a |", "| rack a  |").replace("| rack b |", "|undefined|")
    status = parse_cluster_status(out(wider), V30)
    assert not isinstance(status, Unknown), status
    assert [each.location for each in status.members] == ["rack a", None]


def test_shares_that_are_to_be_must_add_up_in_the_status_too() -> None:
    halves = LOCATED.replace("|  --   |", "| 50.0  |")
    found = parse_cluster_status(out(halves), V30)
    assert not isinstance(found, Unknown), found
    assert [each.pending_share for each in found.members] == [50.0, 50.0]
    fewer = halves.replace("| 50.0|", "|100.0|", 1).replace("| 50.0|", "|  0.0|", 1)
    assert not isinstance(parse_cluster_status(out(fewer), V30), Unknown)
    assert isinstance(parse_cluster_status(out(halves.replace("| 50.0  |", "| 30.0  |", 1)), V30), Unknown)
