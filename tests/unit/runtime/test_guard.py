"""What may be sent at all, whatever a decision wants."""

from __future__ import annotations

from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Flush,
    InDoubt,
    Purpose,
    RebootHost,
    Refused,
    SetReplicas,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Deposed
from orchestrator.model.observation import LeaseView
from orchestrator.model.reading import Unknown
from orchestrator.runtime.guard import barred, unsent

ES1, ES2 = NodeName("es1"), NodeName("es2")
HELD = LeaseView(held=True, holder="us", refreshed=1.0)
UNREAD = Unknown(reason="the lease in the cluster could not be read: timed out")
DISRUPTIVE: tuple[Action, ...] = (
    WriteSettings(changes=(), purpose=Purpose.WITHHOLD),
    WriteSettings(changes=(), purpose=Purpose.RAISE_LIMITS),
    SetReplicas(index="a", index_uuid="u", found=0, wanted=1),
    ExcludeFromVoting(node=ES1),
    StopNode(node=ES1),
)
RESTORES: tuple[Action, ...] = (
    WriteSettings(changes=(), purpose=Purpose.REASSIGN),
    WriteSettings(changes=(), purpose=Purpose.RESTORE),
    SetReplicas(index="a", index_uuid="u", found=1, wanted=0),
    ClearVotingExclusions(),
)
STARTS: tuple[Action, ...] = (StartNode(node=ES1), StartNode(node=ES2))
ALL = (*DISRUPTIVE, RebootHost(node=ES1), *RESTORES, *STARTS, Flush())


def kept(**changes: object) -> list[Action]:
    """What is not sent of all actions."""
    known = {"deposed": None, "lease": HELD, "record": Done(), **changes}
    return [ALL[number] for number in barred(ALL, **known)]


def test_with_the_lease_and_its_record_everything_is_sent() -> None:
    assert kept() == []


def test_without_its_record_nothing_lasting_is_sent() -> None:
    """Starts and restores of the same decision are sent: they wait for nothing."""
    for record in (Refused(reason="no master"), InDoubt(reason="timed out")):
        assert kept(record=record) == list(DISRUPTIVE)


def test_after_a_possible_takeover_only_starts_are_sent() -> None:
    assert kept(lease=UNREAD) == [*DISRUPTIVE, RebootHost(node=ES1), *RESTORES]


def test_a_deposed_process_only_starts_its_own_nodes() -> None:
    deposed = Deposed(successor="run-2", owner="ben@bastion2", epoch=2, in_hand=(ES2,))
    assert [action for action in ALL if action not in kept(deposed=deposed)] == [StartNode(node=ES1)]


def test_an_action_that_was_not_sent_says_so() -> None:
    failed = unsent(StopNode(node=ES1), "the record could not be written")
    assert (failed.unsent, failed.in_doubt, failed.passes) == (True, False, True)
    assert failed.reason == "not sent: the record could not be written"
