"""A wave right after its settings were restored: which reading counts, and how many must agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.engine.situation import Situation
from orchestrator.kinds import decide
from orchestrator.model.action import Purpose, SettingChange, WriteSettings
from orchestrator.model.cluster import CopyState
from orchestrator.model.event import GoodReading, PhaseEntered, SettingRestored, TakenDown
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.reading import NOT_READ
from tests.unit.engine.asking import (
    ALLOCATION,
    ES2,
    evolved,
    question,
    situation_of,
    view_of,
    with_copy,
    with_node,
)

KEY: Final = (Level.PERSISTENT, ALLOCATION)
OFF: Final = SettingChange(level=KEY[0], key=ALLOCATION, found="all", wanted="primaries")
WRITTEN: Final = (WriteSettings(changes=(OFF.undone(),), purpose=Purpose.REASSIGN),)


def _back(change: SettingChange = OFF, **fields: object) -> Situation:
    """es2 is back, and allocation was disabled for it."""
    asked = question()
    nodes = with_node(asked.state, ES2, phase=NodePhase.REJOINED, owed=frozenset()).nodes
    times = dict.fromkeys(("since", "started", "acted_at"), asked.observation.at)
    debts = {"settings": {KEY: change}, "withheld": frozenset({KEY}), **fields}
    back = situation_of(asked, Phase.REASSIGNED, wave=asked.wave, resumed=True, nodes=nodes, **times, **debts)
    taken = back.kind.taken(back.state, view_of(back), NOT_READ, asked.wave)
    return replace(back, state=evolved(back.state, TakenDown(number=1, indices=taken)))


def test_a_reading_from_before_the_last_verb_restores_nothing() -> None:
    """An old reading may be of the moment before somebody wrote our value once more."""
    asked = _back(confirmed=WRITTEN)
    for ago, counts in ((1.0, False), (0.0, True)):
        seen = replace(asked.seen, at=asked.seen.at - ago)
        events = decide(asked.state, seen, asked.now).events
        assert (SettingRestored in {type(event) for event in events}) is counts


def test_a_wave_has_recovered_by_readings_that_agree() -> None:
    """As many as the policy says, in a row: one that differs begins the count anew."""
    asked = _back(settings={}, withheld=frozenset())
    state, enough = asked.state, asked.policy.settle_consecutive
    recovers = with_copy(view_of(asked), lambda copy: not copy.primary and copy.node == ES2,
        state=CopyState.INITIALIZING)  # fmt: skip
    assert enough > 1
    said = []
    for number, recovered in enumerate([*[True] * (enough - 1), False, *[True] * enough], start=1):
        seen = replace(asked.seen, at=asked.now + number)
        seen = seen if recovered else replace(seen, cluster=recovers)
        events = decide(state, seen, seen.at).events
        state = evolved(state, *events, at=seen.at)
        said += [event.count for event in events if isinstance(event, GoodReading)]
        said += [event.to for event in events if isinstance(event, PhaseEntered)]
    assert said == [*range(1, enough), 0, *range(1, enough), "settled"]


def test_an_absent_setting_gets_its_effective_value_before_five() -> None:
    """From there on it can be absent again; a value that is not known is not written."""
    asked = _back(replace(OFF, found=None))
    for files, resets, written in (
        ({ALLOCATION: "all"}, False, ["all"]),
        ({ALLOCATION: "new_primaries"}, False, ["new_primaries"]),
        ({ALLOCATION: "all"}, True, [None]),
        ({}, False, []),
    ):
        settings = SettingsView(persistent={ALLOCATION: "primaries"}, files=files, resets=resets)
        decision = decide(asked.state, replace(asked.seen, settings=settings), asked.now)
        writes = [action for action in decision.actions if isinstance(action, WriteSettings)]
        assert [change.wanted for write in writes for change in write.changes] == written
        assert not [event for event in decision.events if isinstance(event, SettingRestored)]
