"""Every limit: how long each wait lasts, from when it counts, and that a view shows the nearest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine import limits, refusals
from orchestrator.engine.limits import Limit
from orchestrator.engine.memory import Absence, Failing, RefusedAccess
from orchestrator.engine.merge_state import Merging
from orchestrator.engine.predicates import Question
from orchestrator.engine.progress import LostStop
from orchestrator.engine.state import RunState
from orchestrator.model.action import (
    Action,
    Flush,
    Moment,
    Purpose,
    RunHook,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.event import ActionFailed, StoodStill
from orchestrator.model.merging import MergePolicy
from orchestrator.model.observation import Level
from orchestrator.model.phase import Doubt, Installing, NodePhase, Phase, Verb
from orchestrator.model.policy import Deadlines, Hook
from orchestrator.model.reading import Refusal, Unauthorized, Unknown
from orchestrator.model.work_event import AccessRefused
from tests.simulation.gated import QUEUE
from tests.states import state_with
from tests.unit.engine.asking import ALLOCATION, ES2, evolved, question, situation_of, wanting, with_node
from tests.unit.engine.merge_steps import IN_HAND

DEADLINES: Final = Deadlines(
    stop=101.0,
    start=211.0,
    rejoin=307.0,
    recover=401.0,
    withheld=503.0,
    hold=601.0,
    gate=701.0,
    reboot=809.0,
    install=1009.0,
    refused=127.0,
)
"""No two of them, nor their sums, are the same."""

LATER: Final = 0.125
"""Seconds after the last moment of a wait."""

AT: Final = question().observation.at
LONG_AGO: Final = AT - 9000.0
KEY: Final = (Level.PERSISTENT, ALLOCATION)
OFF: Final = SettingChange(level=KEY[0], key=ALLOCATION, found="all", wanted="primaries")
LOGIN: Final = Refusal(endpoint="https://es1:9200", credentials="user ops")
HOOK: Final = RunHook(node=ES2, moment=Moment.AFTER_RECOVERY, number=0, hook=Hook(run="pool"))
FAILED: Final = Failing(last=ActionFailed(action=HOOK, reason="no route", in_doubt=False), since=AT)
REBOOTS: Final = Doubt(verb=Verb.REBOOT, since=AT, accepted=True)
INSTALLS: Final = Installing(number=0, ticket="t", since=AT)
LOST: Final = {"phase": NodePhase.RECOVERED, "lost_stop": LostStop(since=AT)}
MERGING: Final = replace(IN_HAND, begun=LONG_AGO, asked=1, asked_at=AT)
MISSING: Final = {"absent": {ES2: Absence(since=AT, readings=1)}}
STOPPING, STOPPED, STARTING = NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING
REJOINED: Final = {"phase": NodePhase.REJOINED}
NODE: Final = (
    "REACH",
    *(
        "STOP",
        "STOPPING",
        "HOST",
        "INSTALL",
        "START",
        "START_IN_DOUBT",
        "JOIN",
        "BACK",
        "LOST_STOP",
        "EFFECT",
    ),
)
HIDDEN: Final = {"HOST", "FAILING", "LAST_COUNT", "REACH", "LEAVING", "UNFOLLOWED", "EXCUSED"}
"""What a view cannot show: only a reading has the reason of the wait."""

REAL: Final = {"TIMEOUT", "WITHHELD"}

Fields = dict[str, Any]
ROWS: Final[tuple[tuple[str, Phase, Fields, Fields, float], ...]] = (
    # the limit, the phase of the run, fields of its state, fields of es2, and how long the wait may last
    ("TIMEOUT", Phase.GATED, {"started": AT}, {}, 907.0),
    ("WITHHELD", Phase.DOWN, {"withheld_since": AT}, {}, 503.0),
    ("REFUSED", Phase.GATED, {"refused": RefusedAccess(refusal=LOGIN, since=AT, reading=True)}, {}, 127.0),
    ("FAILING", Phase.SETTLED, {"failing": (FAILED,)}, {}, 307.0),
    ("HOLD", Phase.GATED, {"holding_since": AT}, {}, 601.0),
    ("GATE", Phase.GATED, {"gates_closed_since": AT}, {}, 701.0),
    ("CALLED_OFF", Phase.GATED, {"called_off_since": AT}, {}, 601.0 + 701.0),
    ("MERGE", Phase.MERGING, {"merging": Merging(indices={"u": MERGING})}, {}, 907.0),
    ("SETTLING", Phase.MERGED, {"since": AT}, {}, 401.0),
    ("LAST_COUNT", Phase.FINISHING, {"since": AT}, {}, 60.0),
    ("STOP", Phase.DOWN, {}, {"phase": STOPPING}, 101.0),
    ("STOPPING", Phase.DOWN, {}, {"phase": STOPPED, "doubt": REBOOTS}, 809.0),
    ("EFFECT", Phase.GATED, {}, {"doubt": REBOOTS}, 809.0),
    ("HOST", Phase.DOWN, {}, {"phase": STOPPED}, 30.0),
    ("INSTALL", Phase.DOWN, {}, {"phase": STOPPED, "install": INSTALLS}, 1009.0),
    ("START", Phase.DOWN, {}, {"phase": STARTING}, 211.0),
    ("START_IN_DOUBT", Phase.DOWN, {}, {"phase": STARTING}, 211.0),
    ("START_IN_DOUBT", Phase.DOWN, {}, {"phase": STARTING, "doubt": replace(REBOOTS, since=AT + 5.0)}, 809.0),
    ("JOIN", Phase.DOWN, {}, {"phase": STARTING}, 211.0 + 307.0),
    ("BACK", Phase.REASSIGNED, {**MISSING, "since": AT + 100.0}, REJOINED, 307.0),
    ("LOST_STOP", Phase.FINISHING, {}, LOST, 101.0),
    ("REACH", Phase.GATED, {}, LOST, 101.0),
    ("LEAVING", Phase.GATED, MISSING, {}, 30.0),
    ("UNFOLLOWED", Phase.STANDING_DOWN, {"since": LONG_AGO}, {}, 30.0),
    ("EXCUSED", Phase.DOWN, {"excused_since": AT}, {}, 60.0),
    ("REJOIN", Phase.REJOINED, {"since": AT}, {"phase": STARTING}, 307.0),
    ("RESTORING", Phase.FINISHING, {"since": AT, "settings": {KEY: OFF}}, {}, 307.0),
    ("RECOVERY", Phase.REASSIGNED, {"since": AT}, REJOINED, 401.0),
    ("SEEN_AGAIN", Phase.SETTLED, {**MISSING, "since": AT}, REJOINED, 307.0),
    ("STANDING_DOWN", Phase.STANDING_DOWN, {"since": LONG_AGO}, {}, 307.0),
)  # fmt: skip


def _asked(**changes: object) -> Question:
    merges = MergePolicy(patterns=("*",), deadline=907.0)
    return wanting(question(), deadlines=DEADLINES, gates=(QUEUE,), merge=merges, **changes)


def _state(name: str, phase: Phase, fields: Fields, of_es2: Fields) -> RunState:
    asked = _asked(timeout=907.0 if name == "TIMEOUT" else None)
    nodes = with_node(asked.state, ES2, **{"since": AT, **of_es2}).nodes
    older = {"since": LONG_AGO, "started": LONG_AGO, "acted_at": LONG_AGO, "wave": asked.wave}
    return situation_of(asked, phase, **{**older, "nodes": nodes, **fields}).state


def _about(name: str, state: RunState) -> object:
    if name in NODE:
        return state.nodes[ES2]
    return {"FAILING": HOOK, "MERGE": MERGING, "LEAVING": ES2}.get(name)


def test_a_wait_lasts_as_long_as_is_written_here(subtests: pytest.Subtests) -> None:
    for name, phase, fields, of_es2, seconds in ROWS:
        with subtests.test(name, of_es2=of_es2):
            state, limit = _state(name, phase, fields, of_es2), getattr(limits, name)
            for later, over in ((0.0, None), (LATER, seconds)):
                assert limit.over(state, _about(name, state), AT + seconds + later) == over
                ends = limit.ends if isinstance(limit, limits.Deadline) else None
                shown = limits.nearest(state, AT + seconds + later) == (AT + seconds, ends)
                assert shown is (name not in HIDDEN and over is None)


def test_a_standstill_makes_each_limit_later(subtests: pytest.Subtests) -> None:
    """But `--timeout` and that of disabled allocation."""
    for name, phase, fields, of_es2, seconds in ROWS:
        with subtests.test(name, of_es2=of_es2):
            state, limit = _state(name, phase, fields, of_es2), getattr(limits, name)
            about, end = _about(name, state), AT + seconds
            slept = evolved(state, StoodStill(nodes=(), seconds=100.0), at=AT + 140.0)
            late = seconds if name in REAL else None
            assert limit.over(slept, about, end + LATER) == limit.over(slept, about, end + 100.0) == late
            assert limit.over(slept, about, end + 100.0 + LATER) == seconds


def test_a_standstill_is_recorded_while_a_limit_counts(subtests: pytest.Subtests) -> None:
    """Not for one that is over already, nor for one that began since the last reading but 30 s."""
    for name, phase, fields, of_es2, _ in ROWS:
        with subtests.test(name, of_es2=of_es2):
            state = _state(name, phase, fields, of_es2)
            counts = name not in REAL | {"HOST", "LAST_COUNT"}
            assert limits.are_paused(state, AT + 1.0, AT + 70.0) is counts
            assert not limits.are_paused(state, AT - 70.0, AT + 30.0)
            assert not limits.are_paused(state, AT + 9000.0, AT + 9070.0)


def test_a_standstill_is_recorded_for_waits_over_phases() -> None:
    for fields, of_es2 in (({"called_off_since": AT}, {}), ({}, {"doubt": REBOOTS}), ({}, {})):
        state = _state("", Phase.WITHHELD, fields, of_es2)
        assert limits.are_paused(state, AT + 1.0, AT + 70.0) is bool(fields or of_es2)


def test_overlap_alone_counts_recovery_from_the_latest_return() -> None:
    """The run may wait again for an earlier wave, and then enters the phase again."""
    state = _state("recovery", Phase.REASSIGNED, {"since": AT}, {**REJOINED, "since": AT - 50.0})
    overlap = state_with(state, policy=_asked(overlap_recovery=True).policy)
    assert [limits.RECOVERY.since(each, None) for each in (state, overlap)] == [AT, AT - 50.0]


def test_every_limit_has_its_wait_here() -> None:
    named = {name for name, found in vars(limits).items() if isinstance(found, Limit)}
    assert named - {"UNHEARD_STOP"} == {row[0] for row in ROWS}
    assert len(limits.LIMITS) == len(named)


def test_how_long_a_verb_in_doubt_may_take_effect() -> None:
    """A stop that was not heard counts as lost for as long as an accepted one."""
    state = _state("", Phase.GATED, {}, {})
    for verb, accepted, seconds, unheard in (
        (Verb.STOP, False, 30.0, 101.0),
        (Verb.STOP, True, 101.0, None),
        (Verb.REBOOT, False, 30.0, None),
        (Verb.REBOOT, True, 809.0, None),
    ):
        doubt = Doubt(verb=verb, since=AT, accepted=accepted, heard=accepted)
        node = replace(state.nodes[ES2], doubt=doubt)
        assert limits.EFFECT.most(state, node) == seconds
        assert limits.UNHEARD_STOP.over(state, node, AT + 9000.0) == unheard
    assert limits.UNHEARD_STOP.since(state, state.nodes[ES2]) is None


def test_which_limit_is_the_nearest() -> None:
    """One that is over is not shown; a run that finishes has none but that of restoring."""
    state = _state("", Phase.DOWN, {}, {"phase": STARTING})
    shown = [limits.nearest(state, AT + passed) for passed in (210.0, 300.0)]
    assert shown == [(AT + 211.0, limits.START.ends), (AT + 211.0 + 307.0, limits.JOIN.ends)]
    finishing = _state("TIMEOUT", Phase.FINISHING, {"started": AT, "withheld_since": AT}, {})
    assert limits.nearest(finishing, AT) is None
    assert [f"`{name}`" in limits.in_words(Phase.GATED) for name in ("hold", "gate")] == [True, True]
    assert limits.in_words(Phase.ENDED) == ""


def test_what_counts_as_a_refusal(subtests: pytest.Subtests) -> None:
    """A reading that fails for another reason ends none; a lacking right counts where it restores."""
    fresh, lacks = RunState(run="r"), replace(LOGIN, status=403, call="PUT /x")
    refused = state_with(fresh, refused=RefusedAccess(refusal=LOGIN, since=AT, reading=True))
    login, timed_out = Unauthorized(reason="401", refusal=LOGIN), Unknown(reason="timed out", passes=True)
    told = AccessRefused(refusal=LOGIN, reading=True)
    for state, reading, news in (
        (refused, timed_out, ()),
        (fresh, timed_out, ()),
        (refused, login, ()),
        (fresh, login, (told,)),
    ):
        assert refusals.of_reading(state, reading, AT + 9.0) == news

    def of(action: Action, refusal: Refusal) -> tuple[object, ...]:
        failed = ActionFailed(action=action, reason="403", in_doubt=False, refusal=refusal)
        return refusals.of_outcomes(fresh, (failed,), AT)

    for action, counts in (
        *((WriteSettings(changes=(), purpose=each), each is not Purpose.WITHHOLD) for each in
          (Purpose.RESTORE, Purpose.REASSIGN, Purpose.WITHHOLD)),
        (SetReplicas(index="a", index_uuid="u", found=1, wanted=0), True),
        (SetReplicas(index="a", index_uuid="u", found=0, wanted=1), False),
        (Flush(), False),
    ):  # fmt: skip
        with subtests.test(action=action):
            assert of(action, lacks) == ((AccessRefused(refusal=lacks, reading=False),) if counts else ())
            assert of(action, LOGIN) == (told,), "a login that is refused counts everywhere"
