"""What the engine does where the servers lack something: `null` resets, a voting configuration."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.kinds.elasticsearch.settings import MINIMUM_MASTERS
from orchestrator.engine.kinds.predicates import Question
from orchestrator.engine.run import decide
from orchestrator.engine.situation import Decision
from orchestrator.model.action import WriteSettings
from orchestrator.model.allocation import ALLOCATION, DISABLING
from orchestrator.model.event import SettingRestored
from orchestrator.model.observation import Level, Observation, SettingsView
from tests.states import state_with
from tests.unit.engine.asking import findings, question, seeing, viewing
from tests.unit.engine.stepping import read, until


def _restoring(settings: SettingsView) -> Decision:
    """The decision while allocation is to be restored, with allocation found absent before."""
    simulation, state = until("restore_allocation")
    seen = read(simulation)
    assert isinstance(seen, Observation)
    debt = state.unrestored.settings[Level.PERSISTENT, ALLOCATION]
    unrestored = replace(
        state.unrestored,
        settings={**state.unrestored.settings, (Level.PERSISTENT, ALLOCATION): replace(debt, found=None)},
    )
    state = state_with(state, unrestored=unrestored, confirmed=())
    return decide(state, replace(seen, settings=settings), simulation.world.agenda.now)


def _writes(decision: Decision) -> list[object]:
    return [
        change.wanted
        for action in decision.actions
        if isinstance(action, WriteSettings)
        for change in action.changes
        if change.key == ALLOCATION
    ]


OLD = SettingsView(persistent={ALLOCATION: "primaries"}, files={ALLOCATION: "all"}, resets=False)


def test_an_absent_setting_gets_its_effective_value_before_five() -> None:
    assert _writes(_restoring(OLD)) == ["all"]
    assert _writes(_restoring(replace(OLD, files={ALLOCATION: "new_primaries"}))) == ["new_primaries"], (
        "from elasticsearch.yml"
    )
    assert _writes(_restoring(replace(OLD, resets=True))) == [None]


def test_an_unknown_effective_value_is_not_written() -> None:
    decision = _restoring(replace(OLD, files={}))
    assert _writes(decision) == []
    assert not [event for event in decision.events if isinstance(event, SettingRestored)]


def test_a_flag_that_others_set_holds_the_run() -> None:
    """Before 1.0 flags disable allocation; on 1.x they still do."""
    asked = question()
    settings = asked.observation.settings
    assert isinstance(settings, SettingsView)
    for key in sorted(DISABLING - {ALLOCATION}):
        for value, held in [("true", True), ("1", True), ("false", False), ("off", False)]:
            seen: Question = seeing(asked, settings=replace(settings, transient={key: value}))
            said = [subject for subject, _ in findings(seen, "no_other_maintenance")]
            assert (key in said) is held, (key, value)
            seen = seeing(asked, settings=replace(settings, files={**settings.files, key: value}))
            assert (key in [subject for subject, _ in findings(seen, "no_other_maintenance")]) is held


def test_before_seven_minimum_master_nodes_decides_on_a_stop() -> None:
    def asked(minimum: str, **more: object) -> list[str]:
        six = question()
        counted = viewing(six, voting_by_count=True)
        settings = six.observation.settings
        assert isinstance(settings, SettingsView)
        seen: Question = seeing(counted, settings=replace(settings, files={MINIMUM_MASTERS: minimum}, **more))
        return [said for _, said in findings(seen, "master_quorum_survives")]

    assert asked("4") == []
    assert asked("3") == []
    assert "below a majority of 5" in asked("2")[0], "two masters are possible"
    assert "below a majority of 5" in asked("1")[0]
    assert "elect a master" in asked("5")[0], "four of five would be left"
    assert asked("1", persistent={MINIMUM_MASTERS: "3"}) == [], "the cluster's setting is over the files'"
