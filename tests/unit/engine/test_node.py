"""One node's automaton: what each reading shows, what follows in each cell, and that each cell matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Final

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.node import TABLE, Move, is_ours, move_of, rejoined, was_ours
from orchestrator.engine.progress import GOING_UP_OR_DOWN, NodeProgress
from orchestrator.engine.sight import Sight, sight
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import Absence
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import RebootHost, RunHook, StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import PhaseEntered, Record, RunResumed
from orchestrator.model.observation import HostView
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, Policy
from orchestrator.model.turn import REBOOT, RESTART, Goal, Verb
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.mishaps import Asked, Mishap, NodeDies, RestartedByHand
from tests.simulation.play import StuckError, cluster, killed, lives, play, policy, run
from tests.states import state_with
from tests.unit.engine.asking import ES2
from tests.unit.engine.cells import (
    LIVES,
    LONG,
    SERVICES,
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
RECOVERED, SKIPPED = NodePhase.RECOVERED, NodePhase.SKIPPED
Cell = tuple[NodePhase, Sight, Goal]
Row = tuple[NodePhase, Sight]

ROWS: Final = tuple(product(NodePhase, Sight))
CELLS: Final = tuple(product(NodePhase, Sight, Goal))

# What a reading shows ------------------------------------------------------------------------------------

IN_HAND = "in hand"
ELSEWHERE = "elsewhere"
_OPEN = doubt()
_ACCEPTED = doubt(60.0, accepted=True)
_REBOOT = doubt(60.0, verb=Verb.REBOOT, accepted=True)
_CLOSED = doubt(31.0)

SIGHTS: Final = (
    # The lines of `sight` in their order: each goes before all that are below it.
    # service, member list, doubt, in hand, elsewhere
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
    # In hand a life counts only while the host says that the service runs.
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


def test_what_a_reading_shows() -> None:
    wrong = []
    for service, member, open_, in_hand, elsewhere in SIGHTS:
        for phase in NodePhase:
            node = node_in(phase, doubt=open_)
            wanted = in_hand if phase in GOING_UP_OR_DOWN else elsewhere
            found = sight(situation(node, service, member), node)
            if found is not wanted:
                wrong.append(f"{phase.value}, {service}, {member}, {open_}: {found.name}, not {wanted.name}")
    assert wrong == []


def test_a_host_in_another_boot_ends_every_doubt() -> None:
    for open_ in (_OPEN, _ACCEPTED, _REBOOT):
        node = node_in(STARTING, doubt=open_, boot="a boot before")
        assert sight(situation(node, "runs", "absent"), node) is Sight.COMING
        assert sight(situation(node, "gone", "absent"), node) is Sight.AWAY


def test_a_life_that_its_host_saw_end_is_only_in_an_old_list() -> None:
    """Also for the process that takes the run up after a kill; until the node is back in another life."""
    asked = situation(node_in(STOPPING), "gone", "same")
    ended = [event for event in turned(asked).events if isinstance(event, PhaseEntered)]
    state = asked.after(*ended).state
    resumed = RunResumed(operator="ann", host="bastion")
    for after in (state, evolve(state, Record(run="run-1", sequence=99, at=asked.now, event=resumed))):
        node = after.nodes[ES2]
        assert sight(situation(node, "runs", "same"), node) is Sight.COMING
        assert sight(situation(node, "silent", "same"), node) is Sight.UNKNOWN
    back = node_in(STARTING, over=True)
    rejoin = rejoined(situation(back, "runs", "new"), back)
    assert not situation(back, "runs", "new").after(rejoin).state.nodes[ES2].over


def test_a_doubt_is_judged_by_the_moment_of_the_reading() -> None:
    """A program that stood still after the reading has learnt nothing of the time since."""
    node = node_in(STOPPING, doubt=doubt(40.0))
    asked = situation(node, "runs", "same")
    assert sight(asked, node) is Sight.SAME
    earlier = replace(asked, seen=replace(asked.seen, at=now() - 15.0))
    assert sight(earlier, node) is Sight.DOUBT


# What follows --------------------------------------------------------------------------------------------

Both = tuple[str, str]
_NOTHING: Both = ("", "")

AT_ONCE: Final[Mapping[NodePhase, Mapping[Sight, Both]]] = {
    # sight: (goal RESTART, goal BRING_UP): phases entered, then the verb. Those left out do nothing.
    PENDING: {Sight.NEW: (">rejoined", "")},
    STOPPING: {
        Sight.STOPPING: ("", ">starting start"),
        Sight.AWAY: (">stopped hook_while_stopped", ">stopped >starting start"),
        Sight.DOUBT: ("", ">starting"),
        Sight.SAME: (">pending", ">pending"),
        Sight.NEW: (">starting", ">starting"),
        Sight.COMING: ("", ">starting"),
        Sight.LEFT: ("", ">starting start"),
        Sight.UNKNOWN: ("", ">starting start"),
    },
    STOPPED: {
        Sight.STOPPING: ("", ">starting start"),
        Sight.AWAY: ("hook_while_stopped", ">starting start"),
        Sight.DOUBT: ("", ">starting"),
        Sight.SAME: ("", ">starting >pending"),
        Sight.NEW: (">starting", ">starting"),
        Sight.COMING: (">starting", ">starting"),
        Sight.LEFT: ("", ">starting start"),
        Sight.UNKNOWN: ("", ">starting start"),
    },
    STARTING: {
        Sight.STOPPING: ("start", "start"),
        Sight.AWAY: ("start", "start"),
        Sight.SAME: (">pending", ">pending"),
        Sight.LEFT: ("start", "start"),
        Sight.UNKNOWN: ("start", "start"),
    },
    REJOINED: {
        Sight.AWAY: ("", ">starting start"),
        Sight.NEW: (">rejoined", ">rejoined"),
        Sight.LEFT: ("", ">starting start"),
    },
    RECOVERED: {},
    FAILED: {Sight.NEW: (">rejoined", ">rejoined")},
    SKIPPED: {},
}
"""On the first reading of a phase."""

LATE: Final[Mapping[NodePhase, Mapping[Sight, Both]]] = {
    PENDING: AT_ONCE[PENDING],
    STOPPING: {
        **AT_ONCE[STOPPING],
        **dict.fromkeys((Sight.STOPPING, Sight.LEFT, Sight.UNKNOWN), ("flip", ">starting start")),
        **dict.fromkeys((Sight.DOUBT, Sight.COMING), ("flip", ">starting")),
    },
    STOPPED: {
        **AT_ONCE[STOPPED],
        Sight.STOPPING: ("flip", ">starting start"),
        Sight.SAME: (">starting >pending", ">starting >pending"),
        Sight.LEFT: (">starting start", ">starting start"),
        Sight.UNKNOWN: (">starting start", ">starting start"),
    },
    STARTING: {
        **dict.fromkeys(Sight, (">failed flip", ">failed flip")),
        Sight.SAME: (">pending", ">pending"),
        Sight.NEW: _NOTHING,
    },
    REJOINED: {
        **dict.fromkeys((Sight.STOPPING, Sight.DOUBT, Sight.COMING, Sight.UNKNOWN), ("flip", "")),
        Sight.AWAY: ("flip", ">starting start"),
        Sight.LEFT: ("flip", ">starting start"),
        Sight.NEW: (">rejoined", ">rejoined"),
    },
    RECOVERED: {},
    FAILED: AT_ONCE[FAILED],
    SKIPPED: {},
}
"""Once every limit is over, of the phase and of being absent: a wait that has no entry of its own goes on."""

WAITS_ON: Final[Mapping[Row, str]] = {
    (STOPPED, Sight.DOUBT): "the doubt itself ends: 30 s, `deadlines.stop` or `deadlines.reboot`",
    (STARTING, Sight.NEW): "the run counts readings that agree, and has `deadlines.rejoin`",
    (REJOINED, Sight.SAME): "the run waits for its copies, and has `deadlines.recover`",
}
"""Rows of nodes that the run has in hand, where time alone changes nothing, and what ends them."""


def _differences(*, only: Row | None = None) -> Iterator[str]:
    for phase, shown, goal in CELLS:
        if only is not None and (phase, shown) != only:
            continue
        for grid, since in ((AT_ONCE, 0.0), (LATE, LONG)):
            wanted = grid[phase].get(shown, _NOTHING)[goal is Goal.BRING_UP]
            told = turned(cell(phase, shown, goal, since=since))
            if effect(told) != wanted:
                yield f"{phase.value} {shown.name} {goal.name} {since:.0f} s: {effect(told)!r}"


def test_the_table_is_complete_and_every_cell_does_as_written() -> None:
    assert len(CELLS) == 128
    assert [(phase, shown) for phase in TABLE for shown in TABLE[phase]] == list(ROWS)
    not_reached = [
        (phase, shown, goal)
        for phase, shown, goal in CELLS
        if sight(
            cell(phase, shown, goal), node_in(phase, doubt=cell(phase, shown, goal).state.nodes[ES2].doubt)
        )
        is not shown
    ]
    assert not_reached == []
    assert list(_differences()) == []


def _rows_of(*moves: Move) -> set[Cell]:
    return {(phase, shown, goal) for phase, shown, goal in CELLS if move_of(phase, shown, goal) in moves}


def test_each_verb_that_takes_a_node_down_is_in_one_cell() -> None:
    assert _rows_of(Move.STOP) == {(PENDING, Sight.SAME, Goal.RESTART)}
    assert _rows_of(Move.WORK) == {(STOPPED, Sight.AWAY, Goal.RESTART)}


def test_bringing_up_starts_what_is_down_and_does_nothing_else() -> None:
    wrong = []
    for phase, shown in ROWS:
        for since in (0.0, LONG):
            told = turned(cell(phase, shown, Goal.BRING_UP, since=since))
            verbs = {type(action) for action in told.actions}
            gave_up = effect(told).startswith(">failed")
            if verbs - {StartNode} or (told.flip and not gave_up):
                wrong.append(f"{phase.value} {shown.name}: {effect(told)}")
            entered = sum(isinstance(event, PhaseEntered) for event in told.events)
            down = shown in (Sight.AWAY, Sight.LEFT, Sight.UNKNOWN) and phase in GOING_UP_OR_DOWN
            if down and not gave_up and not (verbs == {StartNode} and entered <= 2):
                wrong.append(f"{phase.value} {shown.name} is left down: {effect(told)!r}")
    assert wrong == []


def test_every_wait_of_a_node_in_hand_has_an_end() -> None:
    in_hand = (STOPPING, STOPPED, STARTING, REJOINED)
    endless = {
        (phase, shown)
        for phase, shown in ROWS
        if phase in in_hand and not effect(turned(cell(phase, shown, Goal.RESTART, since=LONG)))
    }
    work = {(STOPPED, Sight.AWAY)}
    assert endless - work == set(WAITS_ON)
    for verb, limit in ((Verb.STOP, 30.0), (Verb.STOP, 900.0), (Verb.REBOOT, 1800.0)):
        accepted = limit > 30.0
        still, over = (doubt(limit + late, verb=verb, accepted=accepted) for late in (-1.0, 1.0))
        policy_ = replace(
            cell(STOPPED, Sight.SAME, Goal.RESTART).policy, deadlines=Deadlines(stop=900.0, reboot=1800.0)
        )
        for open_, wanted in ((still, Sight.DOUBT), (over, Sight.SAME)):
            node = node_in(STOPPED, doubt=open_)
            asked = situation(node, "runs", "same")
            assert sight(replace(asked, state=state_with(asked.state, policy=policy_)), node) is wanted


def test_nothing_is_done_under_a_node_whose_host_does_not_answer() -> None:
    """An unknown host shows no node as stopped, does no work on it, and takes no stop for undone."""
    wrong = []
    doubts = (None, _OPEN, _CLOSED, _ACCEPTED, _REBOOT)
    for phase, member, open_, goal in product(NodePhase, (*LIVES, "no master"), doubts, Goal):
        told = turned(situation(node_in(phase, doubt=open_), "silent", member, goal=goal))
        steps = [event.to for event in told.events if isinstance(event, PhaseEntered)]
        if {"stopped", "pending"} & set(steps) or told.move in (Move.WORK, Move.UNDONE):
            wrong.append(f"{phase.value} {member} {open_}: {effect(told)}")
    assert wrong == []


def test_a_new_process_finds_each_node_in_the_same_cell() -> None:
    wrong = []
    doubts = (None, _OPEN, _CLOSED, _ACCEPTED, _REBOOT)
    for phase, service, member, open_ in product(NodePhase, SERVICES, (*LIVES, "no master"), doubts):
        if phase is STOPPING and open_ is _REBOOT:
            continue  # a reboot is sent only to a node that is stopped
        asked = situation(node_in(phase, doubt=open_), service, member)
        before = sight(asked, asked.state.nodes[ES2])
        resumed = RunResumed(operator="ann", host="bastion")
        state = evolve(asked.state, Record(run="run-1", sequence=99, at=asked.now, event=resumed))
        node = state.nodes[ES2]
        after = sight(replace(asked, state=state), node)
        if node.phase is not phase or after not in (before, Sight.DOUBT):
            wrong.append(f"{phase.value} {service} {member} {open_}: {before.name}, then {after.name}")
    assert wrong == []


# Deletion ------------------------------------------------------------------------------------------------


def _is_ours(phase: NodePhase, shown: Sight, goal: Goal) -> bool:
    asked = cell(phase, shown, goal)
    node = replace(asked.state.nodes[ES2], doubt=doubt(60.0))
    absent = {ES2: Absence(since=now() - 5.0, readings=3)}
    asked = replace(asked, state=state_with(asked.state, nodes={ES2: node}, absent=absent))
    return is_ours(asked, node)


OURS: Final = frozenset(
    (phase, shown)
    for phase in (PENDING, RECOVERED, SKIPPED)
    for shown in (Sight.STOPPING, Sight.AWAY, Sight.LEFT)
)


def test_a_node_down_by_a_lost_stop_is_ours() -> None:
    found = {(phase, shown) for phase, shown, goal in CELLS if _is_ours(phase, shown, goal)}
    assert found == OURS | {(REJOINED, Sight.AWAY), (REJOINED, Sight.LEFT)}
    for phase, shown in OURS:
        assert _is_ours(phase, shown, Goal.BRING_UP), "a run that stands down starts it too"


def test_a_missed_node_is_ours_by_when_it_was_first_missed() -> None:
    reach = policy().deadlines.stop
    for first, ours in ((1.0, False), (5.0, True)):
        asked = situation(node_in(PENDING, lost_at=now() - reach - 3.0), "silent", "absent")
        absent = {ES2: Absence(since=now() - first, readings=3)}
        asked = replace(asked, state=state_with(asked.state, absent=absent))
        assert is_ours(asked, asked.state.nodes[ES2]) is ours, first


def test_a_hosts_word_is_enough_for_a_node_down_by_a_lost_stop() -> None:
    """The stop of the last master but one leaves no member list that could say it."""
    for service, ours in (
        ("gone", True),
        ("failed", True),
        ("stops", True),
        ("runs", False),
        ("silent", False),
    ):
        asked = situation(node_in(PENDING, lost_at=now() - 60.0), service, "no master")
        assert is_ours(asked, asked.state.nodes[ES2]) is ours, service


def test_a_node_up_again_was_ours_in_reach_of_a_lost_stop() -> None:
    """Its copies are awaited as those of a wave; one that is restarted later has nothing to do with us."""
    reach = policy().deadlines.stop
    for lost_at, ours in ((now() - 5.0, True), (now() - reach - 5.0, False), (None, False)):
        found = set()
        for phase, shown, goal in CELLS:
            asked = cell(phase, shown, goal)
            node = replace(asked.state.nodes[ES2], lost_at=lost_at)
            asked = replace(asked, state=state_with(asked.state, nodes={ES2: node}))
            if was_ours(asked, node):
                found.add((phase, shown, goal))
        assert found == ({(PENDING, Sight.NEW, Goal.RESTART)} if ours else set()), lost_at


WITHOUT_AN_EFFECT: Final[Mapping[Cell, str]] = {
    (STOPPED, Sight.DOUBT, Goal.RESTART): "AWAIT_DOUBT: the doubt ends at its own limit, with another sight",
}
"""Cells that only name a move."""

_SHORT: Final = Deadlines(hold=30.0, start=60.0, stop=60.0)
_HOOK: Final = Hook(run="say {node}")
_HOOKS: Final = Hooks(before_stop=(_HOOK,), after_recovery=(_HOOK,))
_DEPOOLED: Final = Mishap(what=Asked(request=Request.INTERRUPT), verb="hook_before_stop", target=ES2)
_RESTARTED: Final = Mishap(what=NodeDies(node=ES2, back_after=0.0), verb="hook_before_stop", target=ES2)


def _ends_restarted() -> bool:
    world = cluster(3)
    _, state = run(world, wanted=policy(deadlines=_SHORT))
    return state.outcome is Outcome.DONE and set(lives(world).values()) == {2}


def _stands_down(*plan: Mishap) -> bool:
    """An interrupted run is over within a minute, with every node in service."""
    world = cluster(3)
    _, state = run(world, plan=plan, wanted=policy(hooks=_HOOKS, deadlines=_SHORT))
    in_service = all(node.joined and not node.to_undo for node in world.nodes.values())
    soon = world.agenda.now - state.process.started < 60.0
    return state.outcome is Outcome.INTERRUPTED and in_service and soon


def _skipped(shown: Sight, goal: Goal) -> bool:
    """A node that is skipped out of service is put into service, at the end or by a stand-down."""
    wanted = policy(hooks=_HOOKS, deadlines=_SHORT)
    interrupted = Mishap(what=Asked(request=Request.INTERRUPT), verb="stop", target="es3", after=1.0)
    simulation = Simulation(cluster(3), plan=[interrupted] if goal is Goal.BRING_UP else [])
    simulation.seams.crash_at = 1 + _seams(wanted).index(f"after hook_before_stop of {ES2}")
    assert killed(simulation, simulation.begin(wanted))
    simulation.seams.crash_at = None
    if shown is Sight.NEW:
        simulation.fate.befall(RestartedByHand(node=ES2))
        simulation.world.agenda.advance(60.0)
    began = simulation.world.agenda.now
    play(simulation, simulation.resume(skip=[ES2]))
    took = simulation.world.agenda.now - began
    return not simulation.world.nodes[ES2].to_undo and (goal is Goal.RESTART or took < 60.0)


@cache
def _seams(wanted: Policy) -> tuple[str, ...]:
    simulation, _ = run(cluster(3), wanted=wanted)
    return tuple(simulation.seams.passed)


BY_THE_RUN: Final[Mapping[Cell, Callable[[], bool]]] = {
    (PENDING, Sight.SAME, Goal.RESTART): _ends_restarted,
    (STARTING, Sight.NEW, Goal.RESTART): _ends_restarted,
    (REJOINED, Sight.SAME, Goal.RESTART): _ends_restarted,
    (PENDING, Sight.SAME, Goal.BRING_UP): lambda: _stands_down(_DEPOOLED),
    (PENDING, Sight.NEW, Goal.BRING_UP): lambda: _stands_down(_DEPOOLED, _RESTARTED),
    (STARTING, Sight.NEW, Goal.BRING_UP): lambda: _stands_down(replace(_DEPOOLED, verb="stop")),
    (REJOINED, Sight.SAME, Goal.BRING_UP): lambda: _stands_down(replace(_DEPOOLED, verb="stop")),
    **{
        (SKIPPED, shown, goal): partial(_skipped, shown, goal)
        for shown in (Sight.SAME, Sight.NEW)
        for goal in Goal
    },
}
"""Cells whose move the run makes: a run that ends well by it."""


def _noticed(one: Cell) -> bool:
    phase, shown, goal = one
    if next(_differences(only=(phase, shown)), None) is not None:
        return True
    if (phase, shown) in OURS:
        return not _is_ours(phase, shown, goal)
    return one in BY_THE_RUN and not _ends_well(BY_THE_RUN[one])


def _ends_well(scene: Callable[[], bool]) -> bool:
    try:
        return scene()
    except StuckError:
        return False


def test_a_run_ends_well_by_the_moves_that_it_makes_itself(subtests: pytest.Subtests) -> None:
    for case, scene in zip(
        [str(number) for number in range(len(BY_THE_RUN))], BY_THE_RUN.values(), strict=True
    ):
        with subtests.test(case):
            assert scene()


def test_every_cell_that_is_made_to_rest_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(_noticed((phase, shown, Goal.RESTART)) for phase, shown in ROWS)
    unnoticed = set()
    for phase, shown, goal in CELLS:
        restart, bring_up = TABLE[phase][shown]
        if move_of(phase, shown, goal) is Move.REST:
            continue
        row = (Move.REST, bring_up) if goal is Goal.RESTART else (restart, Move.REST)
        with monkeypatch.context() as patch:
            patch.setitem(TABLE[phase], shown, row)
            if not _noticed((phase, shown, goal)):
                unnoticed.add((phase, shown, goal))
    assert unnoticed == set(WITHOUT_AN_EFFECT)


# Tries, limits and what goes before ------------------------------------------------------------------------


def _effect(node: NodeProgress, service: str, member: str, **changed: object) -> str:
    asked = situation(node, service, member)
    return effect(turned(replace(asked, **changed)))


def test_only_starts_that_a_host_answered_count() -> None:
    for service, counts in (("gone", True), ("failed", True), ("silent", False), ("stops", False)):
        (start,) = turned(situation(node_in(STARTING), service, "absent")).actions
        assert isinstance(start, StartNode)
        assert start.counts is counts, service
    assert _effect(node_in(STARTING, tries=2), "gone", "absent") == "start"
    assert _effect(node_in(STARTING, tries=3), "gone", "absent") == ">failed flip"
    soon = node_in(STARTING, since=20.0, tries=3, start_sent=now() - 4.0)
    assert _effect(soon, "gone", "absent") == "", "the third one has its five seconds too"
    again = node_in(STARTING, since=20.0, tries=1, start_sent=now() - 6.0)
    assert _effect(again, "gone", "absent") == "start"


def test_a_node_is_never_given_up_before_a_start_had_its_time() -> None:
    """A doubt may outlast the limit of a start, and so may a time in which nobody looked."""
    for sent in (0.0, now() - LONG - 1.0):
        assert _effect(node_in(STARTING, since=LONG, start_sent=sent), "gone", "absent") == "start", sent
    soon = node_in(STARTING, since=LONG, start_sent=now() - 4.0)
    assert _effect(soon, "gone", "absent") == "", "it has its five seconds"
    assert _effect(replace(soon, start_sent=now() - 6.0), "gone", "absent") == ">failed flip"


def test_a_limit_of_a_node_counts_to_the_moment_of_the_reading() -> None:
    """A program that stood still after the reading has learnt nothing of the time since."""
    for phase, service in (
        (STARTING, "starts"),
        (STARTING, "gone"),
        (STOPPING, "silent"),
        (STOPPED, "stops"),
    ):
        node = node_in(phase, since=LONG, start_sent=now() - LONG)
        asked = situation(node, service, "absent")
        assert "flip" in effect(turned(asked))
        earlier = replace(asked.seen, at=now() - LONG + 10.0)
        assert "flip" not in effect(turned(replace(asked, seen=earlier))), phase


def test_no_work_is_begun_while_another_member_is_missing() -> None:
    asked = cell(STOPPED, Sight.AWAY, Goal.RESTART)
    node, state = asked.state.nodes[ES2], asked.state
    for since, wanted in ((20.0, ""), (31.0, ">starting start")):
        node = node_in(STOPPED, since=since)
        state = state_with(
            asked.state, nodes=asked.state.nodes.changed(node), absent={"es5": Absence(since=0.0)}
        )
        assert effect(turned(replace(asked, state=state))) == wanted
    bare = replace(node, owed=frozenset({RESTART}))
    state = replace(state, nodes=state.nodes.changed(bare))
    assert effect(turned(replace(asked, state=state))) == ">starting start", "nothing to do: it is started"


def test_no_work_begins_while_a_node_down_by_a_lost_stop_starts() -> None:
    asked = cell(STOPPED, Sight.AWAY, Goal.RESTART)
    other = NodeName("es5")
    for goal, wanted in ((Goal.BRING_UP, ""), (Goal.RESTART, "hook_while_stopped")):
        late = replace(node_in(STARTING, goal=goal), name=other)
        state = replace(asked.state, nodes=asked.state.nodes.changed(late))
        assert effect(turned(replace(asked, state=state))) == wanted, goal


def test_owed_work_is_in_order_hook_then_reboot_then_start() -> None:
    owed = node_in(STOPPED, owed=frozenset({RESTART, REBOOT, *node_in(STOPPED).owed}))
    (hook,) = turned(situation(owed, "gone", "absent")).actions
    assert isinstance(hook, RunHook)
    (reboot,) = turned(situation(replace(owed, owed=frozenset({RESTART, REBOOT})), "gone", "absent")).actions
    assert reboot == RebootHost(node=ES2)
    assert _effect(replace(owed, owed=frozenset({RESTART})), "gone", "absent") == ">starting start"
    third = replace(owed, owed=frozenset({RESTART, REBOOT}), reboots=3)
    assert _effect(third, "gone", "absent") == "flip", "told three times, and the same boot each time"


def test_a_stop_that_was_never_done_leaves_nothing_to_do() -> None:
    assert _effect(node_in(STOPPING), "runs", "same") == ">pending"
    assert _effect(node_in(STOPPING, owed=frozenset()), "runs", "same") == ">rejoined"


def test_a_node_that_owes_nothing_has_no_turn() -> None:
    """A run that only restored what another one left is resumed: its nodes are up, and none is stopped."""
    nothing = turned(situation(node_in(PENDING, owed=frozenset()), "runs", "same"))
    assert (nothing.node.phase, nothing.flip, nothing.actions) == (REJOINED, None, ())
    owing = turned(situation(node_in(PENDING, owed=frozenset({RESTART})), "runs", "same"))
    assert (owing.node.phase, owing.move, owing.events) == (PENDING, Move.STOP, ())


def test_a_node_whose_life_is_new_has_that_life_accounted_for() -> None:
    told = turned(situation(node_in(PENDING), "runs", "new"))
    assert told.node.life == LIVES["new"]
    assert RESTART not in told.node.owed
    assert told.sight is Sight.SAME, "the table is asked again in the same decision"


def test_a_cycle_of_moves_is_a_defect_and_no_endless_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Sight.AWAY
    monkeypatch.setitem(TABLE[REJOINED], here, (Move.TO_REJOINED, Move.TO_REJOINED))
    with pytest.raises(SafetyViolation, match="cycle"):
        turned(situation(node_in(REJOINED), "gone", "absent"))


def test_the_host_of_a_node_that_fails_is_quoted() -> None:
    asked: Situation = cell(STARTING, Sight.COMING, Goal.RESTART, since=LONG)
    host = asked.seen.host(ES2)
    assert isinstance(host, HostView)
    told = turned(asked)
    assert told.flip is not None
    assert host.detail in told.flip
    assert told.overdue
