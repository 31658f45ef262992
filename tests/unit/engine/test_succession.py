"""A node that a new process resumes keeps every field that the old process did not know alone."""

from __future__ import annotations

from dataclasses import fields, replace

from orchestrator.engine.progress import LostStop, NodeProgress, ShardTaken
from orchestrator.engine.state import RunState
from orchestrator.engine.succession import resumed
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import RunResumed
from orchestrator.model.phase import RESTART, Doubt, Goal, Installing, NodePhase, Verb
from orchestrator.model.work_event import StartFailed

AT = 1000.0
BEFORE = NodeProgress(
    name=NodeName("es1"),
    phase=NodePhase.STOPPED,
    since=1.0,
    life=Incarnation(ephemeral_id="one"),
    boot="b1",
    over=True,
    owed=frozenset({RESTART}),
    unproven=2,
    ready=frozenset({1}),
    ready_since=3.0,
    doubt=Doubt(verb=Verb.STOP, since=990.0, heard=True, accepted=True),
    lost_stop=LostStop(since=990.0, taken={("logs", 0): ShardTaken(started=2)}),
    goal=Goal.BRING_UP,
    start_sent=4.0,
    tries=5,
    reboots=6,
    install=Installing(number=7, ticket="t", since=8.0),
    lost_install=Installing(number=8, ticket="u", since=9.0),
    installs=9,
    returns=10,
    stopped_at=11.0,
    failure="why",
    start_failed=StartFailed(node=NodeName("es1"), why="exited", said=("a line",)),
)
FORGOTTEN = {"ready", "goal", "start_sent", "tries", "reboots", "returns", "start_failed"}
"""What only the process that is gone knew, or counted."""
COUNTS_AGAIN = {"since", "doubt", "lost_stop", "install"}
"""Kept, and counted from the new process on."""


def test_run_resumed_keeps_every_field_of_a_node_it_knows() -> None:
    plain, names = NodeProgress(name=BEFORE.name), [each.name for each in fields(NodeProgress)]
    unset = [name for name in names if getattr(BEFORE, name) == getattr(plain, name)]
    assert unset == ["name"], "a field of the example has its default, so that its loss would not be seen"
    state = RunState(run="r")
    state = replace(state, nodes=type(state.nodes)([BEFORE]))
    (after,) = resumed(state, RunResumed(operator="ann", host="b"), AT).nodes.values()
    for name in names:
        found = getattr(after, name)
        if name in FORGOTTEN:
            assert found == getattr(plain, name), name
        elif name in COUNTS_AGAIN:
            assert getattr(found, "since", found) == AT, name
        else:
            assert found == getattr(BEFORE, name), name
