"""A cluster that is not green: what a plan and the end of a run say of it, in one line each."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.cluster import Health
from orchestrator.model.event import BaselineRecorded, ClusterSampled, Event
from orchestrator.model.observation import MissingCopy
from orchestrator.view.health import health_in_words, missing_in_words
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.summary import summary, summary_lines
from tests.simulation.play import cluster, plan_of, play, policy
from tests.simulation.program import Simulation


def missing(index: str = "wide", **more: Any) -> MissingCopy:
    usual: dict[str, Any] = {
        "index_uuid": "u",
        "number": 0,
        "primary": False,
        "reason": "REPLICA_ADDED",
        "count": 2,
    }
    return MissingCopy(index=index, **(usual | more))


def sampled(health: Health) -> ClusterSampled:
    return ClusterSampled(read=0.0, health=health, unassigned=9, recovering=9)


def baseline(*copies: MissingCopy) -> BaselineRecorded:
    return BaselineRecorded(missing=copies, incarnations={})


def test_missing_copies_are_named_with_their_reason() -> None:
    assert missing_in_words([missing()]) == (
        "yellow: 2 copies of wide are not assigned (no node since the replica was added)"
    )
    many = [missing(f"i{number}", reason="NODE_LEFT", count=1) for number in range(5)]
    assert (
        missing_in_words(many)
        == "yellow: 5 copies of i0, i1, i2 and 2 more are not assigned (their node left)"
    )
    assert (
        missing_in_words([missing(primary=True, count=1, reason="")]) == "red: 1 copy of wide is not assigned"
    )
    assert "(A_NEW_REASON)" in missing_in_words([missing(reason="A_NEW_REASON")])
    assert missing_in_words([]) == ""


def test_health_before_and_after_is_compared(subtests: pytest.Subtests) -> None:
    green, yellow, red = (sampled(health) for health in (Health.GREEN, Health.YELLOW, Health.RED))
    words = missing_in_words([missing()])
    cases: list[tuple[list[Event], str]] = [
        ([baseline(), green, yellow, green], ""),
        ([baseline(missing()), yellow, yellow], f"as before the run, {words}"),
        ([baseline(missing()), yellow, green], f"green; before the run {words}"),
        ([baseline(), green, yellow], "yellow at the last reading; before the run green"),
        ([baseline(missing()), yellow, red], f"red at the last reading; before the run {words}"),
        ([baseline(missing())], f"before the run {words}"),
        ([baseline(), yellow, green], "green; before the run yellow"),
        ([baseline()], ""),
        ([], ""),
    ]
    for number, (events, said) in enumerate(cases):
        with subtests.test(case=number):
            assert health_in_words(events) == said


def test_a_plan_and_an_end_say_that_the_cluster_is_yellow() -> None:
    """An index with more copies than nodes stays as it was; nothing is said of a green cluster."""
    for replicas, said in ((1, False), (4, True)):
        world = cluster()
        world.add_index("wide", shards=1, replicas=replicas)
        plan = plan_of(world, policy())
        words = "yellow: 2 copies of wide are not assigned"
        assert (words in " ".join(plan_text(plan, width=80).split())) is said
        assert ("missing_copies" in plan_object(plan)) is said
        simulation, told = Simulation(world), list[Event]()
        state = play(simulation, simulation.begin(policy()), told=told)
        assert state.outcome is not None
        end = summary(state, state.outcome, told, simulation.clock.now())
        assert (words in " ".join(" ".join(summary_lines(end, 80)).split())) is said
