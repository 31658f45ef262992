"""Who belongs to the cluster and who answers: what is odd in one member makes the whole table unknown."""

from __future__ import annotations

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.parse_members import parse_cluster_status, parse_member_status
from tests.unit.stores.test_riak_versions import LOCATED, NODES_14, ONE, TWO, V14, V30, out

MEMBER = "leaving    50.0%      --      'riak2@10.0.0.2'"
RULE = f"{'-' * 79}\n"
HANDING_OVER = NODES_14.replace("50.0%      --      'riak1", "50.0%    100.0%    'riak1").replace(
    "50.0%      --      'riak2", "50.0%      0.0%    'riak2"
)


def test_shares_that_are_to_be_are_told() -> None:
    found = parse_member_status(out(HANDING_OVER), V14)
    assert not isinstance(found, Unknown), found
    assert [(each.node, each.ring_share, each.pending_share) for each in found] == [
        (ONE, 50.0, 100.0),
        (TWO, 50.0, 0.0),
    ]


@pytest.mark.parametrize(
    "text",
    [
        HANDING_OVER.replace("100.0%", " 80.0%"),
        HANDING_OVER.replace(" 0.0% ", "20.0% "),
        NODES_14.replace(MEMBER, f"{MEMBER} and another one"),
        NODES_14.replace(MEMBER, f"{MEMBER} (rack"),
        NODES_14.replace(f"{RULE}Valid", "Valid"),
        NODES_14.replace(f"{RULE}Valid", "-- cut --\nValid"),
        NODES_14.replace(f"Node\n{RULE}", "Node\n"),
        NODES_14.replace(f"Node\n{RULE}", "Node\n-- cut --\n"),
        NODES_14.replace(f"\n{RULE}Valid", f"\n{RULE}{RULE}Valid"),
        f"{NODES_14}{NODES_14}",
        f"{NODES_14}and one more\n",
    ],
)
def test_a_membership_that_is_not_whole_or_does_not_add_up_is_unknown(text: str) -> None:
    assert text not in (NODES_14, HANDING_OVER)
    assert isinstance(parse_member_status(out(text), V14), Unknown)


ROW = "|     riak2@10.0.0.2   |valid |  up   | 50.0|  --   | rack b |"


@pytest.mark.parametrize(
    ("was", "now"),
    [
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
    ],
)
def test_a_member_of_whom_anything_is_odd_makes_the_status_unknown(was: str, now: str) -> None:
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
