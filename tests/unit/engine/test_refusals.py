"""What counts as a refusal of the credentials, when it ends, and what a standstill adds to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine import limits, refusals
from orchestrator.engine.fold import evolve
from orchestrator.engine.left_over import left_over, texts
from orchestrator.engine.state import RefusedAccess, RunState
from orchestrator.model.action import Action, Flush, Purpose, RetryFailed, SetReplicas, WriteSettings
from orchestrator.model.event import ActionFailed, Event, Record, StoodStill
from orchestrator.model.host_event import AccessRefused
from orchestrator.model.phase import NodePhase
from orchestrator.model.reading import Refusal, Unauthorized, Unknown
from tests.simulation.play import cluster, run
from tests.states import state_with

T0 = 1_800_000_000.0
LOGIN = Refusal(endpoint="https://es1:9200", credentials="user ops")
RIGHT = Refusal(endpoint="https://es1:9200", credentials="user ops", status=403, call="PUT /x")
ADDED = SetReplicas(index="a", index_uuid="u", found=0, wanted=1)


def _refused(*, reading: bool = True) -> RunState:
    known = RefusedAccess(refusal=LOGIN, since=T0, reading=reading)
    return state_with(RunState(run="r"), refused=known)


def _failed(action: Action, refusal: Refusal) -> tuple[Event, ...]:
    return (ActionFailed(action=action, reason="403", in_doubt=False, refusal=refusal),)


def test_a_reading_that_fails_for_another_reason_ends_no_refusal() -> None:
    timed_out = Unknown(reason="timed out", passes=True)
    assert refusals.of_reading(_refused(), timed_out, T0 + 9.0) == ()
    assert refusals.of_reading(RunState(run="r"), timed_out, T0) == ()
    again = Unauthorized(reason="401", refusal=LOGIN)
    assert refusals.of_reading(_refused(), again, T0 + 9.0) == ()
    assert refusals.of_reading(RunState(run="r"), again, T0) == (AccessRefused(refusal=LOGIN, reading=True),)


@pytest.mark.parametrize(
    ("action", "counts"),
    [
        (WriteSettings(changes=(), purpose=Purpose.PUT_BACK), True),
        (WriteSettings(changes=(), purpose=Purpose.REASSIGN), True),
        (SetReplicas(index="a", index_uuid="u", found=1, wanted=0), True),
        (WriteSettings(changes=(), purpose=Purpose.WITHHOLD), False),
        (ADDED, False),
        (Flush(), False),
        (RetryFailed(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_lacking_right_counts_where_something_is_restored(action: Action, *, counts: bool) -> None:
    found = refusals.of_outcomes(RunState(run="r"), _failed(action, RIGHT), T0)
    assert found == ((AccessRefused(refusal=RIGHT, reading=False),) if counts else ())
    (login,) = refusals.of_outcomes(RunState(run="r"), _failed(action, LOGIN), T0)
    assert login == AccessRefused(refusal=LOGIN, reading=True), "a login that is refused counts everywhere"


def test_a_standstill_does_not_count_towards_the_limit() -> None:
    still = Record(run="r", sequence=1, at=T0 + 1000.0, event=StoodStill(nodes=(), seconds=900.0))
    limit = limits.refused(evolve(_refused(), still))
    assert limit is not None
    assert limit.since == T0 + 900.0


def test_a_node_that_runs_and_was_not_seen_is_listed_as_started() -> None:
    _, state = run(cluster(3))
    names = [*state.nodes][:2]
    starting = {name: replace(state.nodes[name], phase=NodePhase.STARTING) for name in names}
    state = state_with(state, nodes={**state.nodes, **starting})
    assert texts(left_over(state, running=names[:1])) == (
        f"node {names[0]} was started, and not seen in the cluster",
        f"node {names[1]} is starting",
    )
