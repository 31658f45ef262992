"""What a recording of a run would notice: each defect of a bar and of a sign, from screens made by hand."""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, NodeRecovered, PhaseEntered, Record, WaveStarted
from orchestrator.model.policy import Wave
from tests.lab.recorded import NOW, OVER, Recording, bar_of, seconds_of
from tests.lab.terminal import Look

ES1 = NodeName("es1")
STOPPING, STOPPED, STARTING, REJOINED, RECOVERED = 11.0, 12.0, 13.0, 20.0, 25.0


def entered(at: float, before: str, after: str) -> tuple[float, Event]:
    return at, PhaseEntered(from_=before, to=after, node=ES1)


JOURNAL: tuple[tuple[float, Event], ...] = (
    (10.0, WaveStarted(wave=Wave(number=1, nodes=(ES1,)), incarnations={})),
    entered(STOPPING, "pending", "stopping"),
    entered(STOPPED, "stopping", "stopped"),
    entered(STARTING, "stopped", "starting"),
    entered(REJOINED, "starting", "rejoined"),
    (RECOVERED, NodeRecovered(node=ES1, seconds=14.0)),
)


def look(at: float, full: int, steps: str = "", more: str = "") -> Look:
    """A screen with a bar of 20, and the steps of the only node."""
    bar = "━" * full + "╌" * (20 - full)
    return Look(
        at=at, lines=("╭─ demo ─╮", f"│ 0 of 1 node  {bar}  10s to 1m 40s left (21:39) │", steps, more)
    )


def recording(*looks: Look) -> Recording:
    records = [
        Record(run="r1", sequence=number, at=at, event=event) for number, (at, event) in enumerate(JOURNAL, 1)
    ]
    return Recording(looks, records, [ES1])


def steps(text: str) -> str:
    return f"│ es1  zone a   {text} │"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("1m 0s to 1m 40s left (08:46)", (60, 100)),
        ("about 4m 28s left", (268, 268)),
        ("about 4m 10s left (08:50), 10s to 25m 0s", (10, 1500)),
        ("2h 5m left", (7500, 7500)),
    ],
)
def test_the_time_left_is_read(text: str, left: tuple[float, float]) -> None:
    assert seconds_of(text) == left


def test_half_a_character_is_a_move() -> None:
    half = Look(at=1.0, lines=(f"│ 0 of 1 node  {'━' * 5}╸{'╌' * 14} │",))
    found = bar_of(half)
    assert found is not None
    assert (found.share, found.left) == (11 / 40, "")


def test_a_bar_that_stands_still_is_noticed_but_not_in_a_hold() -> None:
    stood = recording(look(1, 1), look(2, 2), look(7, 2), look(8, 3))
    assert stood.standstill() == 5.0
    held = "│ HELD  8m 2s   snapshot nightly is running │"
    assert recording(look(1, 1), look(2, 2, more=held), look(7, 2, more=held), look(8, 2)).standstill() == 1.0


def test_a_bar_that_goes_back_is_noticed() -> None:
    assert [bar.at for bar in recording(look(1, 3), look(2, 4), look(3, 3)).went_back()] == [3]


def test_moves_count_only_between_stop_and_recovery() -> None:
    jumps = recording(look(9, 0), look(10.5, 1), look(STOPPING, 2), look(24, 2), look(26, 20))
    assert jumps.moves(ES1) == 0
    assert recording(look(STOPPING, 2), look(15, 3), look(24, 4), look(26, 20)).moves(ES1) == 2


@pytest.mark.parametrize(
    ("sign", "event"),
    [
        (f"{NOW} stop", STOPPING),
        (f"{OVER} stop 1s", STOPPED),
        (f"{NOW} start and join", STARTING),
        (f"{OVER} join 7s", REJOINED),
        (f"{NOW} recover", REJOINED),
        (f"{OVER} recover 5s", RECOVERED),
    ],
)
def test_a_sign_ahead_of_its_event_is_noticed(sign: str, event: float) -> None:
    early, late = recording(look(event - 0.1, 1, steps(sign))), recording(look(event + 0.1, 1, steps(sign)))
    assert [(one.ahead, one.event) for one in early.signs()] == [(True, event)]
    assert [(one.ahead, one.event) for one in late.signs()] == [(False, event)]
    assert any(line.endswith("AHEAD") for line in early.lines())


def test_a_node_that_reads_as_done_before_it_is_is_noticed() -> None:
    assert [one.ahead for one in recording(look(24, 1, "12:00:00 ✓ es1  back after 14s")).signs()] == [True]


def test_a_step_that_no_event_shows_is_ahead() -> None:
    other = Recording([look(1, 1, steps(f"{OVER} stop"))], [], [ES1])
    assert [(one.ahead, one.event) for one in other.signs()] == [(True, None)]
