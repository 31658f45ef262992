"""One node's automaton: what each reading shows, what follows in each cell, how often and how long."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from orchestrator.engine import late_stop
from orchestrator.engine.grid import GRIDS, NODE_STEPS, Move, Sight
from orchestrator.engine.memory import Absence
from orchestrator.engine.progress import GOING_UP_OR_DOWN, LostStop, NodeProgress
from orchestrator.engine.sight import sight
from orchestrator.engine.situation import Situation
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import RebootHost, StartNode
from orchestrator.model.event import Deposed, RunResumed
from orchestrator.model.observation import HostView
from orchestrator.model.phase import REBOOT, RESTART, Goal, NodePhase, Verb
from tests.simulation.play import policy
from tests.states import state_with
from tests.unit.engine.asking import ES2, ES5, evolved
from tests.unit.engine.cells import (
    LIVES,
    LONG,
    OWED,
    SERVICES,
    after_turn,
    cell,
    doubt,
    effect,
    node_in,
    now,
    situation,
    turned,
)

PENDING, STOPPING, STOPPED = NodePhase.PENDING, NodePhase.STOPPING, NodePhase.STOPPED
STARTING, REJOINED, FAILED = NodePhase.STARTING, NodePhase.REJOINED, NodePhase.FAILED
CELLS: Final = tuple(product(NodePhase, Sight, Goal))
RESUMED: Final = RunResumed(operator="ann", host="bastion")

# What a reading shows ------------------------------------

_OPEN = doubt()
_ACCEPTED = doubt(60.0, accepted=True)
_REBOOT = doubt(60.0, verb=Verb.REBOOT, accepted=True)
_CLOSED = doubt(31.0)
DOUBTS: Final = (None, _OPEN, _CLOSED, _ACCEPTED, _REBOOT)

SIGHTS: Final = (
    # The lines of `sight` in their order: each goes before all that are below it.
    # service, member list, doubt; the sight of a node that goes up or down, and of any other one
    ("stops", "new", _OPEN, Sight.STOPPING, Sight.STOPPING),
    ("gone", "new", _OPEN, Sight.AWAY, Sight.AWAY),
    ("failed", "same", None, Sight.AWAY, Sight.AWAY),
    ("gone", "absent", _REBOOT, Sight.DOUBT, Sight.DOUBT),
    ("runs", "same", _OPEN, Sight.DOUBT, Sight.DOUBT),
    ("runs", "new", _OPEN, Sight.DOUBT, Sight.DOUBT),
    ("silent", "no master", _OPEN, Sight.DOUBT, Sight.DOUBT),
    ("runs", "same", _ACCEPTED, Sight.DOUBT, Sight.DOUBT),
    # An accepted stop is done once the node lives another life.
    ("runs", "new", _ACCEPTED, Sight.NEW, Sight.NEW),
    # A stop whose connection was lost is awaited for 30 s.
    ("runs", "same", _CLOSED, Sight.SAME, Sight.SAME),
    ("runs", "same", None, Sight.SAME, Sight.SAME),
    # Of one that goes up or down, a life counts only while the host says that the service runs.
    ("starts", "same", None, Sight.UNKNOWN, Sight.SAME),
    ("silent", "same", None, Sight.UNKNOWN, Sight.SAME),
    ("runs", "new", _CLOSED, Sight.NEW, Sight.NEW),
    ("silent", "new", None, Sight.NEW, Sight.NEW),
    ("silent", "new", _CLOSED, Sight.UNKNOWN, Sight.NEW),
    # Lives that cannot be compared show neither.
    ("runs", "vague", None, Sight.COMING, Sight.COMING),
    ("silent", "vague", None, Sight.UNKNOWN, Sight.UNKNOWN),
    ("runs", "absent", None, Sight.COMING, Sight.COMING),
    ("starts", "absent", None, Sight.COMING, Sight.COMING),
    ("runs", "no master", None, Sight.COMING, Sight.COMING),
    ("silent", "absent", None, Sight.LEFT, Sight.LEFT),
    ("silent", "no master", None, Sight.UNKNOWN, Sight.UNKNOWN),
)


def _sees(node: NodeProgress, service: str, member: str) -> Sight:
    return sight(situation(node, service, member), node)


def test_the_sight_of_a_reading() -> None:
    wrong = []
    for (service, member, open_, moving, elsewhere), phase in product(SIGHTS, NodePhase):
        wanted = moving if phase in GOING_UP_OR_DOWN else elsewhere
        found = _sees(node_in(phase, doubt=open_), service, member)
        wrong += [] if found is wanted else [(phase.value, service, member, open_, found.name)]
    assert wrong == []


def test_the_sight_of_a_node_in_doubt() -> None:
    """Another boot of its host ends every doubt; a doubt is judged by the moment of the reading."""
    for open_ in (_OPEN, _ACCEPTED, _REBOOT):
        node = node_in(STARTING, doubt=open_, boot="a boot before")
        assert (_sees(node, "runs", "absent"), _sees(node, "gone", "absent")) == (Sight.COMING, Sight.AWAY)
    node = node_in(STOPPING, doubt=doubt(40.0))
    asked = situation(node, "runs", "same")
    assert sight(asked, node) is Sight.SAME
    assert sight(replace(asked, seen=replace(asked.seen, at=now() - 15.0)), node) is Sight.DOUBT


def test_a_new_process_finds_each_node_in_the_same_cell() -> None:
    wrong = []
    for phase, service, member, open_ in product(NodePhase, SERVICES, (*LIVES, "no master"), DOUBTS):
        if phase is STOPPING and open_ is _REBOOT:
            continue  # a reboot is sent only to a node that is stopped
        asked = situation(node_in(phase, doubt=open_), service, member)
        before = sight(asked, asked.state.nodes[ES2])
        state = evolved(asked.state, RESUMED, at=asked.now)
        after = sight(replace(asked, state=state), state.nodes[ES2])
        if state.nodes[ES2].phase is not phase or after not in (before, Sight.DOUBT):
            wrong.append((phase.value, service, member, open_, before.name, after.name))
    assert wrong == []


# What follows in each cell ------------------------------------

DATA: Final = Path(__file__).parents[2] / "data"
RECORDED: Final = DATA / "cells.txt"
REWRITE: Final = "ORCHESTRATE_REWRITE_GOLDEN"
BY_THE_RUN: Final = {Move.STOP, Move.REJOIN, Move.FINISH, Move.UNDO, Move.OURS, Move.OURS_OR_FLIP}
HEAD: Final = (
    "What a reading leads a node to: phases entered, then the verb, or the move that the run makes; - = none",
    "",
    "phase | sight | RESTART, at once | RESTART, late | BRING_UP, at once | BRING_UP, late",
)


def _does(phase: NodePhase, shown: Sight, goal: Goal, since: float) -> str:
    asked = cell(phase, shown, goal, since=since)
    move = after_turn(asked)[1]
    return effect(turned(asked)) or (move.name if move in BY_THE_RUN else "-")


def test_the_grid_has_the_cells_that_are_recorded() -> None:
    """Each of the 128, and the steps that follow: recorded apart, since a grid is read from a text."""
    cells = [
        f"{phase.value} | {shown.name} | {' | '.join(GRIDS[goal][phase][shown].name for goal in Goal)}"
        for phase, shown in product(NodePhase, Sight)
    ]
    steps = [
        f"{phase.value} | {' '.join(new.value for new in NodePhase if new in NODE_STEPS[phase])}"
        for phase in NodePhase
    ]
    head, then = "phase | sight | RESTART | BRING_UP", "phase | phases that may follow"
    assert (DATA / "node_grid.txt").read_text() == "\n".join((head, *cells, "", then, *steps, ""))


def test_every_cell_does_as_recorded() -> None:
    """At once and once every limit is over, of the phase and of being absent."""
    for phase, shown, goal in CELLS:
        asked = cell(phase, shown, goal)
        assert sight(asked, asked.state.nodes[ES2]) is shown
    hows = tuple(product(Goal, (0.0, LONG)))
    lines = [
        " | ".join((phase.value, shown.name, *(_does(phase, shown, *how) for how in hows)))
        for phase, shown in product(NodePhase, Sight)
    ]
    text = "\n".join((*HEAD, *lines, ""))
    if os.environ.get(REWRITE):
        RECORDED.write_text(text)
    assert text == RECORDED.read_text(), f"run with {REWRITE}=1 and read the diff"


def test_a_cycle_of_moves_is_a_defect_and_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRIDS[Goal.RESTART][REJOINED], Sight.AWAY, Move.TO_REJOINED)
    with pytest.raises(SafetyViolation, match="cycle"):
        turned(situation(node_in(REJOINED), "gone", "absent"))


def test_a_service_that_ends_without_its_process_is_no_stop() -> None:
    """As where a signal ends `docker run`, and not its container."""
    node = node_in(STOPPING)
    assert effect(turned(situation(node, "gone", "absent"))).startswith(">stopped")
    assert effect(turned(situation(node, "gone", "no master"))).startswith(">stopped")
    assert effect(turned(situation(node, "gone", "new"))).startswith(">stopped")
    for service in ("gone", "failed"):
        assert effect(turned(situation(node, service, "same"))) == ""
        late = turned(situation(node_in(STOPPING, since=LONG), service, "same"))
        assert effect(late) == "flip"
        assert f"its service has ended ({service}), and the cluster still has its process" in str(late.flip)
        back = turned(situation(node, service, "same", goal=Goal.BRING_UP))
        assert effect(back) == ">stopped >starting start"


# Nodes that a lost stop took down ------------------------------------

REACH: Final = policy().deadlines.stop


def _missed(asked: Situation, ago: float) -> Situation:
    return replace(asked, state=state_with(asked.state, absent={ES2: Absence(since=now() - ago, readings=3)}))


def test_a_node_down_by_a_lost_stop_is_ours() -> None:
    """By when it was first missed. A host's word is enough: there may be no master to list it."""
    for ago, is_it in ((1.0, False), (5.0, True)):
        late = node_in(PENDING, lost_stop=LostStop(since=now() - REACH - 3.0))
        asked = _missed(situation(late, "silent", "absent"), ago)
        assert late_stop.took_down(asked, late, sight(asked, late)) is is_it, ago
    lost = node_in(PENDING, lost_stop=LostStop(since=now() - 60.0))
    asked_of = {service: situation(lost, service, "no master") for service in SERVICES}
    said = [one for one, asked in asked_of.items() if late_stop.took_down(asked, lost, sight(asked, lost))]
    assert said == ["stops", "gone", "failed"]


# Tries, limits and owed work ------------------------------------


def test_a_start_is_tried_three_times_and_each_has_its_time(subtests: pytest.Subtests) -> None:
    """Those count that a host answered. A doubt, or a time in which nobody looked, may outlast its limit."""
    for service, counts in (("gone", True), ("failed", True), ("silent", False), ("stops", False)):
        (start,) = turned(situation(node_in(STARTING), service, "absent")).actions
        assert start == StartNode(node=ES2, counts=counts)
    for tries, since, sent_ago, wanted in [
        (2, 0.0, None, "start"),
        (3, 0.0, None, ">failed flip"),
        (3, 20.0, 4.0, ""),
        (1, 20.0, 6.0, "start"),
        (0, LONG, None, "start"),
        (0, LONG, LONG + 1.0, "start"),
        (0, LONG, 4.0, ""),
        (0, LONG, 6.0, ">failed flip"),
    ]:
        with subtests.test(tries=tries, since=since, sent_ago=sent_ago):
            sent = 0.0 if sent_ago is None else now() - sent_ago
            node = node_in(STARTING, since=since, tries=tries, start_sent=sent)
            assert effect(turned(situation(node, "gone", "absent"))) == wanted


def test_a_start_that_a_run_taken_over_may_not_send_ends(subtests: pytest.Subtests) -> None:
    """It starts what is seen down. For the rest it waits within the limit, and not for what is theirs."""
    for service, in_hand, since, wanted in [
        ("gone", (), 20.0, "start"),
        ("silent", (), 20.0, ""),
        ("silent", (), LONG, ">failed flip"),
        ("stops", (), LONG, ">failed flip"),
        ("gone", (ES2,), LONG, ""),
        ("silent", (ES2,), LONG, ""),
    ]:
        with subtests.test(service=service, in_hand=in_hand, since=since):
            deposed = Deposed(successor="run-2", owner="ben@c", epoch=2, in_hand=in_hand)
            asked = situation(node_in(STARTING, since=since), service, "absent", goal=Goal.BRING_UP)
            assert effect(turned(replace(asked, state=state_with(asked.state, deposed=deposed)))) == wanted


def test_a_limit_of_a_node_counts_to_the_moment_of_the_reading() -> None:
    """A program that stood still after the reading has learnt nothing of the time since."""
    for phase, service in (
        (STARTING, "starts"),
        (STARTING, "gone"),
        (STOPPING, "silent"),
        (STOPPED, "stops"),
    ):
        asked = situation(node_in(phase, since=LONG, start_sent=now() - LONG), service, "absent")
        assert "flip" in effect(turned(asked))
        earlier = replace(asked, seen=replace(asked.seen, at=now() - LONG + 10.0))
        assert "flip" not in effect(turned(earlier)), phase
    coming = cell(STARTING, Sight.COMING, Goal.RESTART, since=LONG)
    host, told = coming.seen.host(ES2), turned(coming)
    assert isinstance(host, HostView)
    assert told.flip is not None
    assert (host.detail in told.flip, told.overdue) == (True, True), "its host is quoted"


def test_owed_work_is_in_order_hook_then_reboot_then_start(subtests: pytest.Subtests) -> None:
    """None begins while another member is missing, or one that a lost stop took down starts."""
    reboot, bare = frozenset({RESTART, REBOOT}), frozenset({RESTART})
    missing = {ES5: Absence(since=0.0)}
    late = {goal: replace(node_in(STARTING, goal=goal), name=ES5) for goal in Goal}
    for what, node, absent, beside, wanted in [
        ("all of it", node_in(STOPPED, owed=OWED | reboot), {}, (), "hook_while_stopped"),
        ("a reboot", node_in(STOPPED, owed=reboot), {}, (), "reboot"),
        ("nothing more", node_in(STOPPED, owed=bare), {}, (), ">starting start"),
        ("three reboots in the same boot", node_in(STOPPED, owed=reboot, reboots=3), {}, (), "flip"),
        ("a member is missing", node_in(STOPPED, since=20.0), missing, (), ""),
        ("a member is missing for long", node_in(STOPPED, since=31.0), missing, (), ">starting start"),
        ("nothing to do beside it", node_in(STOPPED, owed=bare), missing, (), ">starting start"),
        ("another one is brought up", node_in(STOPPED), {}, (late[Goal.BRING_UP],), ""),
        ("another one starts", node_in(STOPPED), {}, (late[Goal.RESTART],), "hook_while_stopped"),
    ]:
        with subtests.test(what):
            asked = situation(node, "gone", "absent")
            state = state_with(asked.state, absent=absent)
            state = replace(state, nodes=state.nodes.changed(*beside))
            assert effect(turned(replace(asked, state=state))) == wanted
    (sent,) = turned(situation(node_in(STOPPED, owed=reboot), "gone", "absent")).actions
    assert sent == RebootHost(node=ES2)


def test_a_node_without_owed_work_has_no_turn() -> None:
    """A stop that was never done leaves nothing to do; a life that is new is accounted for at once."""
    for phase, owed, wanted in (
        (STOPPING, OWED, ">pending"),
        (STOPPING, frozenset(), ">rejoined"),
        (PENDING, frozenset(), ">rejoined"),
        (PENDING, frozenset({RESTART}), ""),
    ):
        assert effect(turned(situation(node_in(phase, owed=owed), "runs", "same"))) == wanted
    node, move = after_turn(situation(node_in(PENDING), "runs", "new"))
    assert (node.life, RESTART in node.owed, move) == (LIVES["new"], False, Move.FINISH)
