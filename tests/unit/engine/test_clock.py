"""The watched clock: of the time between two readings 30 s count at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.clock import STANDSTILL_SECONDS, UNWATCHED_SECONDS, WatchedClock
from orchestrator.engine.memory import Absence
from orchestrator.engine.progress import LostStop
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RunState
from orchestrator.kinds import decide
from orchestrator.model.action import SettingChange
from orchestrator.model.event import RunFinished, RunResumed, StandingDown, StoodStill
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.reading import Unknown
from tests.unit.engine.asking import ALLOCATION, ES2, evolved, question, situation_of, with_node

AT: Final = question().observation.at
HOUR: Final = 3600.0
OFF: Final = SettingChange(level=Level.PERSISTENT, key=ALLOCATION, found="all", wanted="primaries")


def _slept(state: RunState, seconds: float, at: float = AT) -> RunState:
    """The state after a reading at that moment, and none for so long before."""
    return evolved(state, StoodStill(nodes=(), seconds=seconds - UNWATCHED_SECONDS), at=at)


def test_of_a_time_without_a_reading_half_a_minute_counts() -> None:
    clock = WatchedClock().paused(1000.0, 570.0)  # the readings are at 400 and 1000
    for since, at, passed in (
        (350.0, 1000.0, 80.0),
        (400.0, 1000.0, 30.0),
        (420.0, 1000.0, 30.0),
        (985.0, 1000.0, 15.0),
        (1000.0, 1100.0, 100.0),
        (350.0, 1100.0, 180.0),
    ):
        assert clock.passed(since, at) == passed, (since, at)
    assert clock.paused(2000.0, 970.0).passed(350.0, 2000.0) == 80.0 + 30.0


def _long_held(now: float) -> Situation:
    asked = situation_of(question(), holding_since=AT - 10.0)
    return replace(asked, seen=replace(asked.seen, cluster=Unknown(reason="timed out")), now=now)


def test_a_suspension_within_a_reading_ends_no_wait() -> None:
    """What is later than the reading counts like what is before the next one."""
    held, late = _long_held(AT + HOUR + 10.0), _long_held(AT + 2.0)
    late = replace(
        late, state=replace(late.state, in_phase=replace(late.state.in_phase, holding_since=AT - HOUR))
    )
    for situation, ends in ((held, False), (late, True)):
        events = decide(situation.state, situation.seen, situation.now).events
        assert any(isinstance(event, StandingDown) for event in events) is ends


def test_settings_are_restored_after_a_suspension() -> None:
    """At the end of a run nothing else is waited for, and the limit of that is later all the same."""
    debts = {(OFF.level, OFF.key): OFF}
    before = situation_of(question(), Phase.FINISHING, since=AT - HOUR, settings=debts)
    nodes = [replace(node, phase=NodePhase.RECOVERED) for node in before.state.nodes.values()]
    state = replace(before.state, nodes=before.state.nodes.changed(*nodes))
    events = decide(state, replace(before.seen, before=AT - HOUR + 5.0), AT).events
    assert [
        type(event) for event in events if isinstance(event, StoodStill | StandingDown | RunFinished)
    ] == [StoodStill]


def test_a_long_standstill_ends_what_was_known_by_watching() -> None:
    """A lost stop may have been done, and a member may have been back; a short one changes neither."""
    lost = with_node(question().state, ES2, lost_stop=LostStop(since=AT - HOUR))
    process = replace(lost.process, absent={"es9": Absence(since=AT - HOUR, readings=3)})
    state, long = replace(lost, process=process), STANDSTILL_SECONDS + UNWATCHED_SECONDS
    for slept, stop, absence in (
        (long, AT - HOUR, Absence(since=AT - HOUR, readings=3)),
        (HOUR - 10.0, AT, Absence(since=AT, readings=0)),
    ):
        after = _slept(state, slept)
        found = after.nodes[ES2].lost_stop
        assert found is not None
        assert (found.since, after.process.absent["es9"]) == (stop, absence)


def test_a_standstill_ends_where_the_next_reading_began() -> None:
    """A slow reading is watched: a lost stop whose time ended in it had not ended before the standstill."""
    reach = question().policy.deadlines.stop
    lost = with_node(question().state, ES2, lost_stop=LostStop(since=AT - HOUR))
    read = AT - HOUR + reach - 5.0 + 600.0
    slept = StoodStill(nodes=(), seconds=600.0 - UNWATCHED_SECONDS, read=read)
    after = evolved(lost, slept, at=read + 20.0).nodes[ES2].lost_stop
    assert after == LostStop(since=read + 20.0)


def test_a_new_process_has_a_new_clock() -> None:
    state = _slept(situation_of(question(), Phase.DOWN, withheld_since=AT - HOUR).state, 600.0)
    assert state.process.clock.pauses
    resumed = evolved(state, RunResumed(operator="", host=""), at=AT + 5.0)
    assert resumed.process.clock == WatchedClock()
    assert limits.WITHHELD.since(resumed, None) == AT + 5.0
