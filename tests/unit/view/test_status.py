"""`status` on a terminal: what is said first and last, and that it fits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Final

import pytest
from rich.cells import cell_len

from orchestrator.model.observation import SettingsView
from orchestrator.model.reading import NOT_READ
from orchestrator.ports import ClusterReadings
from orchestrator.view.cluster_now import compare
from orchestrator.view.status import Reader, status_text
from tests.unit.view.moments import NAMES, Moment, moments

SCREEN: Final = {3: 23, 30: 23, 300: 25}
"""Nodes to the lines that a screen has for them. With many, a wave is more than three nodes."""


def lines_of(moment: Moment, width: int, *, alive: bool) -> list[str]:
    """Of a run that lives, or that was killed three minutes ago and has left all its settings."""
    state = moment.state
    wanted = {key: change.wanted for (_, key), change in state.unrestored.in_order}
    there = SettingsView(persistent={key: value for key, value in wanted.items() if value is not None})
    read = ClusterReadings(cluster=NOT_READ, settings=there)
    found = compare(state, read, at=moment.now, ended=moment.now, unwritten=False)
    return status_text(
        state,
        moment.records,
        now=moment.now + (0.0 if alive else 180.0),
        alive=alive,
        cluster=None if alive else found,
        reader=Reader(width=width, zone=UTC),
    ).splitlines()


@pytest.mark.parametrize("nodes", SCREEN)
def test_it_fits_a_screen_and_ends_with_a_command(nodes: int, subtests: pytest.Subtests) -> None:
    for name in NAMES:
        for alive in (True, False):
            for width in (60, 80, 120):
                with subtests.test(name=name, alive=alive, width=width):
                    lines = lines_of(moments(nodes)[name], width, alive=alive)
                    assert len(lines) <= SCREEN[nodes] + 6 * (width < 80), "\n".join(lines)
                    commands = [line for line in lines if "orchestrate" in line]
                    assert [line for line in lines if cell_len(line) > width and line not in commands] == []
                    assert lines[-1].strip().split(": ")[-1].startswith("orchestrate ")
                    assert (f"KILLED {'3m 0s'} ago: its process is gone" in lines) is not alive


def test_a_run_that_lives_is_not_called_not_restored() -> None:
    lives, killed = ("\n".join(lines_of(moments(3)["down"], 80, alive=alive)) for alive in (True, False))
    assert "To restore  " in lives
    assert "NOT RESTORED" not in lives
    assert "NOT RESTORED: 4 settings, es2" in killed or "NOT RESTORED: " in killed
    assert (
        lives.index("Waiting") < lives.index("Next") < lives.index("To restore") < lives.index("Last events")
    )
    assert "a new restart of this cluster restores it first" in killed


def test_a_killed_run_is_continued_or_only_restored() -> None:
    """Only the restore where no node is left: a run that restores another one has none."""
    moment = moments(3)["down"]
    assert lines_of(moment, 80, alive=False)[-3:] == [
        "Now         continue, or only restore:",
        "    orchestrate resume run-1",
        "    orchestrate restore run-1",
    ]
    begun = replace(moment.state.begun, repairs="run-0")
    alone = replace(moment, state=replace(moment.state, begun=begun))
    assert lines_of(alone, 80, alive=False)[-2:] == [
        "Now         restore:",
        "    orchestrate restore run-1",
    ]


def test_the_zone_of_its_times_is_named_once() -> None:
    text = "\n".join(lines_of(moments(3)["held"], 120, alive=True))
    assert text.count("UTC") == 1
    assert "Z " not in text
