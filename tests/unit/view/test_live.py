"""The live view: the picture as text, and how it treats terminal and run."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from typing import Any, TextIO

import pytest
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from orchestrator.engine.predicates import hold_in_words
from orchestrator.engine.progress import LostStop, ShardTaken
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import NOT_BEGUN, RunState, WaveBegun
from orchestrator.holds import GATES_OPEN
from orchestrator.model.action import Purpose, SettingChange, StopNode, WriteSettings
from orchestrator.model.cluster import CopyState, Health, NodeName, ShardCopy, ShardId, Zone
from orchestrator.model.event import (
    COULD_NOT_FINISH,
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    BaselineRecorded,
    Event,
    Hold,
    LeaseLost,
    NodeRecovered,
    Requested,
    SettingChanged,
    StandingDown,
    WaveFinished,
    WaveStarted,
    node_phase,
    run_phase,
)
from orchestrator.model.observation import Level, MissingCopy, Observation, Watch
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Kind, Wave
from orchestrator.model.prediction import Forecast, Prediction
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import Upgrade
from orchestrator.view.above import Above, AboveLine
from orchestrator.view.feed import Feed
from orchestrator.view.live import LiveReporter, live_console, wants_live
from orchestrator.view.panel import panel
from orchestrator.view.plan import plan_text
from orchestrator.view.progress import NOTHING_SEEN, CopiesNow, Seen, Wait
from orchestrator.view.reporters import LineReporter
from orchestrator.view.screen import (
    Screen,
    cluster_in_words,
    limit_in_words,
    next_in_words,
    recovery_of,
    titles,
    troubles,
)
from orchestrator.view.signs import SIGNS
from orchestrator.view.summary import headline, summary, summary_lines
from orchestrator.view.text import duration
from orchestrator.view.turns import Turns
from tests.cli.console import Terminal
from tests.unit.view import samples
from tests.unit.view.moments import moments

Views = Callable[[str, Iterator[tuple[str, object]]], None]

WAITS = Decision(watch=Watch(until=0.0, for_people="es2 to come up"))


def picture(
    screen: Screen,
    width: int,
    *,
    height: int | None = None,
    ascii_only: bool = False,
    **console: Any,
) -> str:
    out = samples.Ascii() if ascii_only else io.StringIO()
    options = {"color_system": None, **console}
    Console(file=out, width=width, force_terminal=True, **options).print(panel(screen, width, height=height))
    return out.getvalue()


def down() -> Screen:
    return Screen(predicted(samples.run_state()), WAITS, now=samples.t0 + 120)


def predicted(state: RunState) -> RunState:
    """The same run by a plan that gave each node 160 s."""
    each = Prediction(low=100.0, likely=160.0, high=300.0)
    forecast = Forecast(in_all=each, nodes=dict.fromkeys(state.nodes, each.likely))
    return replace(state, begun=replace(state.begun, forecast=forecast))


def recovering() -> Screen:
    events = [NodeRecovered(node=NodeName(f"es{n:02d}"), seconds=70) for n in range(1, 11)]
    waves = [WaveFinished(number=n, seconds=72) for n in range(1, 11)]
    return Screen(
        samples.large_run(30),
        Decision(watch=Watch(until=0.0, for_people="the copies to be back")),
        now=samples.t0 + 120,
        seen=samples.seen_recovering(),
        turns=Turns(samples.records([*events, *waves])),
    )


@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_is_as_wide_as_asked_and_has_its_step(*, ascii_only: bool) -> None:
    for width in (20, *range(72, 90), 100, 135, 136, 160, 200):
        for screen in (down(), recovering()) if width in {20, 80, 135, 136, 200} else (down(),):
            drawn = picture(screen, width, ascii_only=ascii_only)
            assert {cell_len(line) for line in drawn.splitlines()} == {width}
            assert drawn.isascii() is ascii_only
            step = "start" if screen.state.phase is Phase.DOWN else "recover"
            assert width < 72 or step in drawn, f"{width} columns:\n{drawn}"


def test_the_border_has_the_time_at_any_moment() -> None:
    """A shorter title makes room for it."""
    began = down().state.process.started
    for width in range(48, 100):
        for seconds in (*range(55, 75), 605, 3599, 3600):
            border, *_ = picture(replace(down(), now=began + seconds), width).splitlines()
            assert f" {duration(seconds)} so far " in border, f"{width} columns, {seconds} s"


def test_a_row_of_steps_that_is_cut_says_so() -> None:
    screen = moments(3)["down"].screen
    (whole,) = [line for line in picture(screen, 100).splitlines() if "es3" in line and "recover" in line]
    assert "…" not in whole
    for width in range(44, 100):
        row = next(line for line in picture(screen, width).splitlines() if "es3" in line and "▶" in line)
        assert ("recover" in row) is not ("…" in row), row


def test_a_limit_says_what_happens_and_only_when_it_is_near() -> None:
    far, near = Wait(awaited="es2", holds=(), since=0.0, until=8 * 3600.0, ends=Outcome.FAILED), 3590.0
    screen = Screen(samples.run_state(wave=None), None, now=0.0)
    for wait, now, said in (
        (far, 600.0, ""),
        (far, 8 * 3600.0 - near, ", the run stands down in 59m 50s"),
        (replace(far, ends=None), 8 * 3600.0 - near, ", the wait ends in 59m 50s"),
    ):
        assert limit_in_words(replace(screen, now=now), wait) == f"; {duration(now)} so far{said}"


def test_a_plan_and_its_run_have_one_title() -> None:
    state = samples.run_state()
    for upgrade in (None, Upgrade(target="9.2.0", install=())):
        policy = replace(state.begun.policy, upgrade=upgrade)
        plan = samples.plan(target_version=upgrade and upgrade.target, strategy=policy.strategy)
        live = titles(replace(state, begun=replace(state.begun, policy=policy)))[0]
        first, *_ = plan_text(plan).splitlines()
        assert first.split(" · ")[-1] == live[-1]


def beside() -> Screen:
    """The second node is down while the first still recovers."""
    waves = (Wave(number=1, nodes=(NodeName("es1"),)), Wave(number=2, nodes=(NodeName("es2"),)))
    state = samples.run_state(
        wave=waves[1], recovering=(WaveBegun(wave=waves[0], since=samples.t0 + 10.0, made_room=True),)
    )
    return Screen(state, WAITS, now=samples.t0 + 120, seen=samples.seen_recovering())


def lines_of(*events: Event) -> list[str]:
    """What is written without a terminal, and which of the events scroll by in the live view."""
    out = io.StringIO()
    LineReporter(out, lambda: samples.t0).events(samples.records(events))
    return [*out.getvalue().splitlines(), *(f"above: {line.sign} {line.text}" for line in above(*events))]


def above(*events: Event, kind: Kind = Kind.ELASTICSEARCH) -> list[AboveLine]:
    """The lines above the panel, if all of these were committed in one step."""
    records = samples.records(events)
    return Above(Feed(kind), Turns(records), kind).lines(records)


def views() -> Iterator[tuple[str, object]]:
    now = samples.t0 + 120
    yield "a wave beside one that recovers", picture(beside(), 80, height=24)
    yield "the same, wider", picture(beside(), 140, height=24)
    failed = StandingDown(reason="es2 did not start", outcome=Outcome.FAILED)
    troubled = samples.run_state(standing_down=failed, second_failure="es3 left", request=Request.PAUSE)
    yield "trouble comes first", picture(Screen(troubled, WAITS, now=now), 80)
    phases = {"es1": NodePhase.FAILED, "es2": NodePhase.SKIPPED}
    nodes = {
        name: replace(node, phase=phases.get(name, node.phase), failure="held" if name in phases else None)
        for name, node in samples.run_state().nodes.items()
    }
    yield "a skipped node has not failed", troubles(samples.run_state(nodes=nodes))
    asked = "asked to stop by SIGINT"
    down = StandingDown(reason=asked, outcome=Outcome.INTERRUPTED)
    phase = run_phase(Phase.DOWN, Phase.STANDING_DOWN, why=asked)
    yield "an interruption", lines_of(Requested(request=Request.INTERRUPT, by="SIGINT"), down, phase)
    yield "another signal", lines_of(Requested(request=Request.INTERRUPT, by="SIGTERM"), failed)
    merging = replace(down, reason=f"{asked}; the merge of logs continues in the cluster")
    for why in (down, merging):
        state = samples.run_state(
            phase=Phase.STANDING_DOWN, standing_down=why, request=Request.INTERRUPT, requested_by="SIGINT"
        )
        yield "a run that stands down", picture(Screen(state, WAITS, now=now), 132)
    yield "a merge that continues", lines_of(merging)
    long = "allocation was disabled for 30m 0s: " + "x" * 120
    held = StandingDown(reason=f"held by {long}", outcome=Outcome.HELD, names_hold=True)
    yield "a reason is cut only if a hold has it", lines_of(replace(failed, reason=long), held)
    key, level = "cluster.routing.allocation.enable", Level.PERSISTENT
    change = SettingChange(level=level, key=key, found="all", wanted="primaries")
    write = WriteSettings(changes=(change,), purpose=Purpose.WITHHOLD)
    changed = SettingChanged(level=level, key=key, found="all", wanted="primaries", purpose=Purpose.WITHHOLD)
    joined = node_phase(NodeName("es2"), NodePhase.STARTING, NodePhase.REJOINED)
    sent = (ActionSent(action=write), ActionConfirmed(action=write))
    yield "a setting and a node have one line each", lines_of(changed, *sent, joined)
    yield "a change in doubt", lines_of(ActionFailed(action=write, reason="timed out", in_doubt=True))


def test_what_keeps_a_run_from_beginning_is_at_its_end_alone() -> None:
    evidence = samples.hold.evidence
    down = StandingDown(
        reason=f"{COULD_NOT_FINISH}: {hold_in_words(samples.hold)}", outcome=Outcome.HELD, never_began=True
    )
    shown = "\n".join(one.text for one in above(samples.hold, down))
    assert COULD_NOT_FINISH in shown
    assert evidence not in shown
    assert evidence in "\n".join(one.text for one in above(samples.hold)), "a hold that may pass"


def test_moments_of_a_run_are_shown_as_agreed(golden_views: Views) -> None:
    golden_views("live.txt", views())


def test_every_phase_has_a_picture() -> None:
    for phase in Phase:
        text = picture(Screen(samples.run_state(phase=phase), WAITS, now=samples.t0 + 120), 80)
        assert "1 of 3 nodes" in text
        assert ("es2 to come up" in text) is (phase is not Phase.ENDED)
    state = replace(samples.run_state(nodes={}, wave=None, settings={}), begun=NOT_BEGUN)
    assert "0s so far" in picture(Screen(state, None, now=samples.t0), 40, height=10)


def test_recovery_of_a_fresh_reading_leaves_out_what_was_on_disk() -> None:
    seen = samples.seen_recovering()
    cell = recovery_of(seen, samples.t0 + 120)
    assert cell is not None
    assert (cell.bytes_done, cell.bytes_total, cell.copies) == (3 * 10**9, 12 * 10**9, seen.copies)
    assert [one.shard.number for one in cell.moving] == [0, 1, 2]
    assert recovery_of(seen, samples.t0 + 300) is recovery_of(Seen(), samples.t0) is None


def test_the_last_reading_that_was_one_is_kept() -> None:
    first = Observation(at=samples.t0, recoveries=samples.seen_recovering().recoveries or ())
    second = Observation(at=samples.t0 + 5, recoveries=Unknown(reason="timed out"))
    once = NOTHING_SEEN.after(first)
    assert once.recoveries
    assert once.after(second) == once


def test_health_is_that_of_the_copies_in_the_reading() -> None:
    """It is of each reading: that of an earlier one would be green beside a node that is down."""
    shard = ShardId(index="logs", index_uuid="u1", number=0)
    primary, away = (ShardCopy(shard, one, CopyState.UNASSIGNED) for one in (True, False))
    coming = ShardCopy(shard, False, CopyState.INITIALIZING, samples.ES[0])
    for copies, health, unassigned, recovering in [
        ((), Health.GREEN, 0, 0),
        ((away, coming, coming), Health.YELLOW, 1, 2),
        ((away, primary), Health.RED, 2, 0),
    ]:
        wanted = CopiesNow(health=health, unassigned=unassigned, recovering=recovering)
        assert CopiesNow.of(copies) == wanted


def test_what_the_health_is_said_of() -> None:
    away = CopiesNow(health=Health.YELLOW, unassigned=3, recovering=0)
    taken = {("u1", number): ShardTaken(started=2) for number in range(3)}
    missing = MissingCopy(index="logs", index_uuid="u1", number=7, primary=False, reason="NODE_LEFT", count=2)
    before = BaselineRecorded(missing=(missing,), incarnations={})
    for changes, copies, words in [
        ({"taken": taken}, away, "yellow, as expected: 3 copies wait for es2"),
        (
            {"taken": taken, "baseline": before},
            away,
            "yellow, as expected: 1 copy waits for es2; 2 missing before the run",
        ),
        ({"baseline": before}, replace(away, unassigned=2), "yellow: 2 copies missing before the run"),
        ({}, away, "yellow: 3 copies unassigned"),
        ({"taken": taken}, replace(away, health=Health.RED), "red: 3 copies unassigned"),
        ({}, replace(away, unassigned=0, recovering=1), "yellow; 1 copy recovers"),
        ({}, CopiesNow(health=Health.GREEN, unassigned=0, recovering=0), "green"),
    ]:
        seen = Seen(copies=copies, copies_at=samples.t0)
        assert (
            cluster_in_words(Screen(samples.run_state(**changes), None, now=samples.t0, seen=seen)) == words
        )


def test_who_gets_the_live_view() -> None:
    for term, live in (("xterm", True), ("dumb", False), ("", False), ("unknown", False)):
        assert wants_live(Terminal(), {"TERM": term}) is live
        for ci, shown in (("true", False), ("1", False), ("", live), ("false", live)):
            assert wants_live(Terminal(), {"TERM": term, "CI": ci}) is shown
    assert wants_live(io.StringIO(), {"TERM": "xterm"}) is False


def console_on(stream: TextIO) -> Console:
    return Console(file=stream, width=80, height=24, force_terminal=True, color_system=None)


def until(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether it becomes true: the painter is a thread of its own."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        threading.Event().wait(0.02)
    return true()


def test_events_scroll_and_the_end_is_written_below() -> None:
    out, back = io.StringIO(), NodeRecovered(node=NodeName("es1"), seconds=70.0)
    with LiveReporter(console_on(out), lambda: samples.t0 + 120) as reporter:
        reporter.events(samples.records([back]))
        reporter.waiting(samples.run_state(), WAITS)
        assert until(lambda: "es2 to come up" in out.getvalue())
        reporter.finished(samples.ended_state(), Outcome.DONE)
    assert "es1  back after 1m 10s" in out.getvalue()
    whole = summary(samples.ended_state(), Outcome.DONE, [back], samples.t0 + 120)
    end = [f"✓ prod: {headline(whole)}", *summary_lines(whole, 79)[1:]]
    shown = re.sub(r"\x1b\[[0-9;]*[A-Zm]", "", out.getvalue())
    assert shown.splitlines()[-len(end) :] == end
    assert out.getvalue().count("\x1b[?25l") <= out.getvalue().count("\x1b[?25h")


def test_a_name_cannot_drive_the_terminal() -> None:
    name = "prod\x1b]0;owned\x9b2J" + 70 * "x"
    state = samples.run_state(cluster=name)
    out = io.StringIO()
    with LiveReporter(console_on(out), lambda: samples.t0 + 120) as reporter:
        reporter.events(samples.records([NodeRecovered(node=NodeName("es1\x1b[2J"), seconds=70.0)]))
        reporter.waiting(state, WAITS)
        assert until(lambda: "es2 to come up" in out.getvalue())
        reporter.finished(state, Outcome.DONE)
    said = out.getvalue()
    assert "\x1b]0;" not in said
    assert "\x9b" not in said
    assert r"es1\x1b[2J  back" in said
    assert said.count(r"prod\x1b]0;owned\x9b2J") >= 2, "in the picture, and at the end"
    drawn = [line for line in said.splitlines() if "\\x9b2J" in line and "xx" in line]
    assert cell_len(Text.from_ansi(drawn[0]).plain) <= 80, "no line grows over the edge of the terminal"


def test_lines_above_the_panel_are_in_ascii_where_it_is() -> None:
    out = samples.Ascii()
    with LiveReporter(console_on(out), lambda: samples.t0) as reporter:
        change = StopNode(node=NodeName("es1"))
        reporter.events(samples.records([ActionFailed(action=change, reason="a → b", in_doubt=False)]))
        assert until(lambda: "a > b" in out.getvalue())
    assert out.getvalue().isascii()


def test_it_draws_four_times_a_second_at_most_and_keeps_the_wait() -> None:
    out = io.StringIO()
    with LiveReporter(console_on(out), lambda: samples.t0 + 120) as reporter:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            reporter.waiting(samples.run_state(), Decision())
        assert until(lambda: "for es2 to start" in out.getvalue()), "a decision to read again"
    assert 1 <= out.getvalue().count("To restore") <= 4


def test_an_exception_leaves_the_terminal_as_it_was() -> None:
    out = io.StringIO()

    def interrupted() -> None:
        with LiveReporter(console_on(out), lambda: samples.t0) as reporter:
            reporter.waiting(samples.run_state(), WAITS)
            assert until(lambda: "es2 to come up" in out.getvalue())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert out.getvalue().rfind("\x1b[?25h") > out.getvalue().rfind("\x1b[?25l")
    assert not [thread for thread in threading.enumerate() if thread.name == "live view"]


def test_a_lost_terminal_ends_the_drawing_and_not_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(5, "Input/output error")

    with LiveReporter(console_on(Gone()), lambda: samples.t0) as reporter:
        reporter.waiting(samples.run_state(), WAITS)
        assert until(lambda: reporter.lost is not None)
        reporter.events(samples.records(samples.examples()))
        reporter.finished(samples.ended_state(), Outcome.DONE)
    assert "Input/output error" in str(reporter.lost)


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_run() -> None:
    released, written = threading.Event(), threading.Event()

    class Stopped(io.StringIO):
        def write(self, text: str) -> int:
            released.wait(10)
            written.set()
            return super().write(text)

    with LiveReporter(console_on(Stopped()), lambda: samples.t0) as reporter:
        for _ in range(100):
            reporter.waiting(samples.run_state(), WAITS)
            reporter.events(samples.records(samples.examples()))
    assert not written.is_set(), "the end of the run waited for the terminal"
    released.set()


def turn(name: NodeName, *, seconds: float = 40.0) -> list[Event]:
    """The events of a node's turn, a second apart."""
    phases = [NodePhase.PENDING, NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING]
    started = run_phase(Phase.DOWN, Phase.REJOINED)
    joined = node_phase(name, NodePhase.STARTING, NodePhase.REJOINED)
    back = NodeRecovered(node=name, seconds=seconds, bytes_copied=12 * 10**8)
    over = node_phase(name, NodePhase.REJOINED, NodePhase.RECOVERED)
    return [*(node_phase(name, a, b) for a, b in pairwise(phases)), started, joined, back, over]


def test_a_node_that_is_back_has_its_steps_in_its_line() -> None:
    begun = WaveStarted(wave=Wave(number=1, nodes=(NodeName("es2"),)), incarnations={})
    for kind, recovers in ((Kind.ELASTICSEARCH, "recover"), (Kind.RIAK, "handoff")):
        (line,) = above(begun, *turn(NodeName("es2")), kind=kind)
        assert line.text == (
            f"es2  back after 40s: stop 1s, work 1s, start and join 2s, {recovers} 2s; 1.2 GB copied"
        )
        assert (line.sign, line.bad) == ("done", False)


def test_a_burst_is_one_line() -> None:
    names = [NodeName(f"es{number}") for number in range(1, 6)]
    stops = [node_phase(name, NodePhase.STOPPING, NodePhase.STOPPED, why=f"of {name}") for name in names]
    back = [NodeRecovered(node=name, seconds=40.0 + place) for place, name in enumerate(names)]
    hooks = [ActionSent(action=replace(samples.hook, node=name)) for name in names]
    for zone, where in ((Zone("b"), "zone b: "), (None, "wave 3: ")):
        begun = WaveStarted(wave=Wave(number=3, nodes=tuple(names), zone=zone), incarnations={})
        lines = [line.text for line in above(begun, *stops, *back, *hooks)]
        assert lines[:2] == [f"{where}5 stopped", f"{where}5 back after 40s to 44s, the slowest is es5"]
        assert lines[2].startswith(f"{where}es1, es2, es3 and 2 more: run hook ")
        assert len(lines) == 3
        few = above(begun, *stops[:3], *back[:3], *hooks[:3])
        assert len(few) == 6, "three nodes have a line each; their stops are in the panel"


def test_a_failure_is_bold_and_nothing_of_it_is_grouped() -> None:
    failed = [
        ActionFailed(action=StopNode(node=name), reason=f"no route to {name}", in_doubt=False)
        for name in samples.ES
    ]
    lines = above(*failed, LeaseLost(reason="x"))
    assert all(line.bad and line.sign == "failed" for line in lines)


@pytest.mark.parametrize("moment", ["down", "recovering", "held"])
def test_colour_is_on_signs_alone(moment: str) -> None:
    """The text has the terminal's own colour; what is bad is bold."""
    signs = {sign for two in SIGNS.values() for sign in two[:2]} | {" "}
    out = Console(width=120, color_system="256", force_terminal=True, file=io.StringIO())
    failed = StandingDown(reason="es2 did not start", outcome=Outcome.FAILED)
    ends = Screen(samples.run_state(standing_down=failed), WAITS, now=samples.t0)
    for screen in (moments(30)[moment].screen, ends):
        found = [part for line in out.render_lines(panel(screen, 119)) for part in line]
        assert any(part.style and part.style.color for part in found)
        for part in found:
            colour = part.style.color if part.style is not None else None
            assert colour is None or colour.is_default or set(part.text) <= signs, part


def test_a_terminal_of_sixteen_colours_gets_none() -> None:
    for term, no_colour in (("xterm-256color", False), ("linux", True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERM", term)
            patch.delenv("COLORTERM", raising=False)
            assert live_console(io.StringIO(), {"TERM": term}).no_color is no_colour


def test_a_hold_says_what_it_waits_for_and_what_ends_it() -> None:
    hold = Hold(
        predicate="no_running_snapshot", subject="snapshot r/nightly", evidence="is running, 61% done"
    )
    shards = Hold(predicate="no_worse_than_baseline", subject="[logs][0]", evidence="2 copies away", count=7)
    gate = Hold(predicate=GATES_OPEN, subject="queue", evidence="9 messages")
    state = samples.held_state(holds=(hold, shards, gate), gates_closed_since=samples.t0 + 110)
    shown = picture(Screen(state, None, now=samples.t0 + 160), 80)
    rows = [" ".join(line.strip("│ ").split()) for line in shown.splitlines()]
    assert rows[3:8] == [
        "HELD 1m 0s snapshot r/nightly is running, 61% done",
        "[logs][0] and 6 more: 2 copies away",
        "gate queue is closed: 9 messages",
        "the run ends with code 3 if this lasts 59m 0s more",
        "Next es2, then 1 more node",
    ]
    assert rows[-4:-1] == [
        "More orchestrate explain no_running_snapshot",
        "orchestrate explain no_worse_than_baseline",
        "orchestrate explain gates_open",
    ]
    small = picture(Screen(state, None, now=samples.t0 + 160), 60, height=20)
    assert "and 2 more holds" in small


def test_the_last_nodes_of_a_large_wave_are_named() -> None:
    names = [NodeName(f"es{number:02}") for number in range(1, 31)]
    phases = dict.fromkeys(names, NodePhase.REJOINED) | dict.fromkeys(names[:2], NodePhase.STARTING)
    wave = Wave(number=1, nodes=tuple(names), zone=Zone("b"))
    state = samples.run_state(nodes=samples.nodes_in(phases), wave=wave)
    shown = picture(Screen(state, WAITS, now=samples.t0 + 190), 80, height=24)
    assert "Wave 1      ▶ 2 start   ▶ 28 recover   1m 50s so far" in shown
    assert "Slowest     es01, es02: start for 1m 30s" in shown


def test_what_comes_next() -> None:
    a, b, c = samples.ES
    pending = samples.nodes_in(dict.fromkeys(samples.ES, NodePhase.PENDING))
    seen, done, left = Seen(master=c), samples.RECOVERED, samples.PENDING
    for changes, planned, words in [
        ({}, (), "es1, then 2 more nodes"),
        ({}, ((a, b), (c,)), "es1, es2, then 1 more node"),
        (
            {"nodes": samples.nodes_in({a: done, b: done, c: left})},
            (),
            "es3, the elected master, last",
        ),
        ({"request": Request.PAUSE}, (), "a pause, as requested"),
        (
            {"nodes": samples.nodes_in({a: done})},
            (),
            "restore the settings, then end",
        ),
        ({"phase": Phase.STANDING_DOWN}, (), ""),
    ]:
        state = samples.run_state(**{"nodes": pending, "wave": None, **changes})
        state = replace(state, begun=replace(state.begun, planned=planned))
        assert next_in_words(Screen(state, None, now=samples.t0, seen=seen)) == words


def test_a_reason_with_many_names_is_said_once_and_leaves_room() -> None:
    moment = moments(300)["down"]
    names = ", ".join(f"es{number:03}" for number in range(50))
    second = f"members are missing: {names}"
    down = StandingDown(reason=f"second failure: {second}", outcome=Outcome.FAILED)
    process = replace(moment.state.process, second_failure=second, standing_down=down)
    for width, height in ((60, 20), (80, 24), (120, 40)):
        screen = replace(moment.screen, state=replace(moment.state, process=process))
        drawn = picture(screen, width - 1, height=height).splitlines()
        assert len(drawn) <= height - 2
        assert "\n".join(drawn).count("es001") <= 1
    (line,) = above(down)
    assert len(line.text) <= 240


def test_a_run_that_restores_says_what_it_restores() -> None:
    late = {
        name: replace(node, lost_stop=LostStop(since=samples.t0))
        for name, node in samples.run_state().nodes.items()
    }
    for changes in ({"repairs": "run-0"}, {"restoring": True}):
        state = samples.run_state(phase=Phase.STANDING_DOWN, nodes=late, **changes)
        shown = picture(Screen(state, WAITS, now=samples.t0 + 120), 80)
        assert "restoring 1 node and 1 setting" in shown
        assert "a lost command may still stop es1, es2, es3" in shown
        assert "ends early" not in shown
    assert "everything is restored" in picture(
        Screen(samples.ended_state(repairs="run-0"), None, now=samples.t0 + 120), 80
    )
    started = replace(samples.started, repairs="run-0")
    listed = [
        SettingChanged(level=Level.PERSISTENT, key="a", found=None, wanted="b", purpose=Purpose.RESTORE)
    ]
    stop = node_phase(NodeName("es1"), NodePhase.PENDING, NodePhase.STOPPING, why="in progress in run run-0")
    assert [type(line.at) for line in above(started, *listed, stop)] == [float], (
        "the first line names the run"
    )


def test_a_resized_terminal_is_drawn_again() -> None:
    """The lines above are written again, since the terminal has wrapped the old ones to an unknown number."""
    out = io.StringIO()
    console = console_on(out)
    with LiveReporter(console, lambda: samples.t0 + 120, zone=UTC) as reporter:
        reporter.events(samples.records([NodeRecovered(node=NodeName("es1"), seconds=70.0)]))
        reporter.waiting(samples.run_state(), WAITS)
        assert until(lambda: "To restore" in out.getvalue())
        console.size = ConsoleDimensions(60, 20)
        reporter.waiting(samples.run_state(), WAITS)
        assert until(lambda: "To restore" in out.getvalue().partition("\x1b[2J")[2])
    after = Text.from_ansi(out.getvalue().partition("\x1b[2J\x1b[H")[2]).plain
    assert "08:00:01 UTC ✓ es1  back after 1m 10s" in after
    assert max(map(cell_len, after.splitlines())) == 59
