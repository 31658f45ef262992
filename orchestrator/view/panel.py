"""The layout of the live view: a pure function from a `Screen` to a rich renderable.

No information is in the colour alone, and with `ASCII` glyphs every character is ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from orchestrator.engine.left_over import texts
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.reading import Seconds
from orchestrator.untrusted import one_line
from orchestrator.view.model import RecoveryNow, Screen, recovery_of
from orchestrator.view.phrases import second_signal
from orchestrator.view.progress import merges_in_words, still_recovering, unrestored
from orchestrator.view.text import counted, duration, listed, size

WIDE = 136
"""From this width on there are two columns; the left one has the whole track of phases."""

_LABEL = 9


_LOOKS: Final[Mapping[NodePhase, tuple[str, str, str]]] = {
    NodePhase.PENDING: ("·", ".", "dim"),
    NodePhase.STOPPING: ("▼", "v", "yellow"),
    NodePhase.STOPPED: ("■", "#", "yellow"),
    NodePhase.STARTING: ("▲", "^", "cyan"),
    NodePhase.REJOINED: ("◐", "o", "cyan"),
    NodePhase.RECOVERED: ("✓", "+", "green"),
    NodePhase.FAILED: ("✗", "X", "bold red"),
    NodePhase.SKIPPED: ("-", "-", "dim"),
}
"""Phase of a node to its sign, its sign in ASCII, and its style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The signs of the panel; those of the node phases are one column wide."""

    arrow: str
    full: str
    empty: str
    unicode: bool
    cut: Literal["ellipsis", "crop"]

    def sign(self, phase: NodePhase) -> str:
        """The sign of a node's phase."""
        return _LOOKS[phase][0 if self.unicode else 1]


UNICODE = Glyphs(arrow="→", full="━", empty="╌", unicode=True, cut="ellipsis")
# The ellipsis is one character that is not ASCII.
ASCII = Glyphs(arrow="->", full="#", empty=".", unicode=False, cut="crop")

_TRACK = (Phase.GATED, Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.REASSIGNED, Phase.SETTLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Maximum of lines for each list."""

    nodes: int
    holds: int
    moving: int
    owed: int
    trouble: int


_TALL = _Room(nodes=8, holds=6, moving=6, owed=6, trouble=4)

_USUAL = _Room(nodes=2, holds=2, moving=1, owed=0, trouble=2)

_SMALL = _Room(nodes=0, holds=1, moving=0, owed=0, trouble=1)


def _room(width: int, height: int | None) -> _Room:
    if height is None or height >= 36:  # noqa: PLR2004  (all lists at their longest still fit)
        return _TALL
    if height >= 24 or (width >= WIDE and height >= 18):  # noqa: PLR2004  (the usual terminal: 80x24)
        return _USUAL
    return _SMALL


def panel(
    screen: Screen, width: int, *, height: int | None = None, glyphs: Glyphs = UNICODE
) -> RenderableType:
    """The picture at this width; `height` is that of the terminal, None for no limit."""
    room = _room(width, height)
    inner = max(16, width - 4)
    half = inner // 2 - 1
    left, right = (inner - half - 3, half) if width >= WIDE else (inner, inner)
    turns = [
        *_progress(screen, left, glyphs),
        *_merges(screen, left, room, glyphs),
        *_nodes(screen, left, room, glyphs),
    ]
    cluster = [*_waiting(screen, room), *_recovery(screen, right, room, glyphs), *_owed(screen, room)]
    body = _rows([*turns, *cluster])
    if width >= WIDE:
        body = Table.grid(padding=(0, 3, 0, 0))
        body.add_column(width=left)
        body.add_column(width=right)
        body.add_row(_rows(turns), _rows(cluster))
    state, troubles = screen.state, screen.trouble
    trouble = [Text(f"! {one_line(line)}", style="bold red") for line in troubles[: room.trouble]]
    return Panel(
        Group(*trouble, body),
        title=Text.assemble((state.begun.cluster, "bold"), f"  {screen.what}"),
        title_align="left",
        subtitle=Text(f"run {state.run}", style="dim"),
        subtitle_align="right",
        box=box.ROUNDED if glyphs.unicode else box.ASCII,
        width=width,
        border_style="red" if troubles else "dim",
    )


_Row = tuple[str, RenderableType]


def _rows(rows: list[_Row]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=_LABEL, style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for label, content in rows:
        grid.add_row(label, content)
    return grid


def _progress(screen: Screen, width: int, glyphs: Glyphs) -> list[_Row]:
    state, left, total = screen.state, screen.left, len(screen.state.nodes)
    times = f"{duration(screen.since(state.process.started))} so far"
    if left:  # an exceeded estimate is not shown
        times += f", about {duration(left)} to go"
    rows: list[_Row] = [("Time", Text(times))]
    if total:  # a run with only merges restarts no node
        until = nodes_to_restart(state.begun, paused=state.paused)
        pause = f", then a pause before {total - until} more" if until < total else ""
        done = (f"{state.recovered} of {counted(until, 'node')}", "bold")
        rows = [
            ("Done", Text.assemble(done, f"{pause}   {times}")),
            ("", _bar(min(1.0, state.recovered / until), width - _LABEL - 1, glyphs)),
        ]
    rows.append(("Phase", _track(state.phase, width - _LABEL - 1, glyphs)))
    request, by = state.process.request, state.process.requested_by
    if request is not Request.NONE:
        after = "the current merges" if _merging(state) else "this wave"
        stopping = f"to stop, by {by}: nodes are started, settings are restored"
        asked = {
            Request.PAUSE: f"to pause after {after}",
            Request.STOP: stopping,
            Request.INTERRUPT: f"{stopping}; {second_signal(by)}",
        }
        rows.append(("Asked", Text(one_line(asked[request]), style="bold yellow")))
    return rows


def _merges(screen: Screen, width: int, room: _Room, glyphs: Glyphs) -> list[_Row]:
    """The merges before the first wave: their number and size, and a line for each that is in progress."""
    state, due = screen.state, _merging(screen.state)
    if not due:
        return []
    total = sum(one.target.bytes for one in due)
    done = sum(one.target.bytes for one in due if one.ended)
    running = [(one.target, one.begun) for one in state.merging.in_progress if one.begun is not None]
    lines = [
        f"{target.index}: from {counted(target.segments, 'segment')} a copy, {size(target.bytes)}, "
        f"{duration(screen.since(begun))} so far"
        for target, begun in running[: room.moving]
    ]
    return [
        ("Merges", _cut(merges_in_words(state), glyphs)),
        ("", _bar(done / total if total else 0.0, width - _LABEL - 1, glyphs)),
        *(("", _cut(line, glyphs, style="dim")) for line in lines),
    ]


def _merging(state: RunState) -> list[MergeProgress]:
    """The indices to merge before the first wave; none once all are settled."""
    return [] if state.merging.settled else [one for one in state.merging.indices.values() if one.due]


def _cut(text: str, glyphs: Glyphs, style: str = "") -> Text:
    """A text that is cut at the end of its line."""
    return Text(text, style=style, overflow=glyphs.cut, no_wrap=True)


def _bar(share: float, width: int, glyphs: Glyphs) -> Text:
    """A bar that is readable without colour; full only when all is done."""
    width = max(4, width)
    full = int(min(1.0, max(0.0, share)) * width)
    return Text.assemble((glyphs.full * full, "green"), (glyphs.empty * (width - full), "dim"))


def _track(phase: Phase, width: int, glyphs: Glyphs) -> Text:
    """The wave's phases with the current one in brackets; only the current one if they do not fit."""
    if phase not in _TRACK:
        return Text(phase.value.replace("_", " "), style="bold")
    steps = [
        Text(f"[{step.value}]", style="bold") if step is phase else Text(step.value, style="dim")
        for step in _TRACK
    ]
    tracks = (Text(arrow, style="dim").join(steps) for arrow in (f" {glyphs.arrow} ", glyphs.arrow))
    fits = (track for track in tracks if track.cell_len <= width)
    return next(fits, Text(f"[{phase.value}]", style="bold"))


def _nodes(screen: Screen, width: int, room: _Room, glyphs: Glyphs) -> list[_Row]:
    state = screen.state
    if not state.nodes:
        return []
    counts = Text()
    for phase in NodePhase:
        count = len(state.nodes_in(phase))
        if count:
            counts.append(f"{glyphs.sign(phase)} {count} {phase.value}   ", style=_LOOKS[phase][2])
    counts.rstrip()
    rows: list[_Row] = [("Nodes", counts)]
    strip = _strip(state, width - _LABEL - 1, room.nodes, glyphs) if len(state.nodes) > 1 else None
    if room.nodes and strip is not None:
        rows.append(("", strip))
    if state.wave is not None:
        zone = f", zone {state.wave.zone}" if state.wave.zone else ""
        why = f": {one_line(state.wave.why)}" if state.wave.why else ""
        since = f"{duration(screen.since(state.wave_since))} so far{zone}{why}"
        rows.append((f"Wave {state.wave.number}", _cut(since, glyphs)))
        rows += [("", line) for line in _wave_lines(screen, max(1, room.nodes * 2), glyphs)]
    if beside := still_recovering(state, screen.now):
        rows.append(("Beside", _cut(beside, glyphs)))
    return rows


def _wave_lines(screen: Screen, most: int, glyphs: Glyphs) -> list[Text]:
    """A line for each node of the wave; if these are too many, one for each phase."""
    nodes = screen.state.wave_nodes
    if len(nodes) <= most:
        return [_node_line(node, screen.in_phase(node), glyphs) for node in nodes]
    by_phase: dict[NodePhase, list[NodeProgress]] = {}
    for node in nodes:
        by_phase.setdefault(node.phase, []).append(node)
    return [
        Text.assemble(
            (f"{glyphs.sign(phase)} {len(found)} {phase.value} ", _LOOKS[phase][2]),
            f"for up to {duration(max(map(screen.in_phase, found)))}: {listed([n.name for n in found])}",
            overflow=glyphs.cut,
            no_wrap=True,
        )
        for phase, found in by_phase.items()
    ][:most]


def _node_line(node: NodeProgress, seconds: Seconds, glyphs: Glyphs) -> Text:
    line = Text(f"{glyphs.sign(node.phase)} {node.name} ", style=_LOOKS[node.phase][2])
    line.append(f"{node.phase.value} for {duration(seconds)}", style="default")
    if node.tries > 1:
        line.append(f", start sent {node.tries} times", style="yellow")
    return line


def _strip(state: RunState, width: int, lines: int, glyphs: Glyphs) -> Text | None:
    """Every node with its sign and, if all names fit, its name; None if not even the signs fit."""
    named = max(len(node.name) for node in state.nodes.values()) + 4
    if len(state.nodes) > max(1, (width + 2) // named) * lines:
        return _signs(state, glyphs) if len(state.nodes) <= width * lines else None
    a_line = max(1, (width + 2) // named)
    strip = Text()
    for place, node in enumerate(state.nodes.values()):
        if place and place % a_line == 0:
            strip.append("\n")
        cell = f"{glyphs.sign(node.phase)} {node.name}"
        last = place % a_line == a_line - 1
        strip.append(cell if last else cell.ljust(named), style=_LOOKS[node.phase][2])
    return strip


def _signs(state: RunState, glyphs: Glyphs) -> Text:
    """One sign a node: finished nodes first, then those that are being restarted, then pending ones."""
    strip = Text()
    phases = (NodePhase.RECOVERED, NodePhase.SKIPPED, NodePhase.FAILED, *reversed(NodePhase))
    for phase in dict.fromkeys(phases):
        count = len(state.nodes_in(phase))
        strip.append(glyphs.sign(phase) * count, style=_LOOKS[phase][2])
    return strip


def _waiting(screen: Screen, room: _Room) -> list[_Row]:
    wait = screen.wait
    if wait is None:
        return []
    text = Text(f"for {one_line(wait.awaited)}: {duration(screen.now - wait.since)} so far")
    if wait.until is not None:
        text.append(f", limit in {duration(wait.until - screen.now)}", style="dim")
    rows: list[_Row] = [("Waiting", text)]
    rows += [("", Text(said, style="bold yellow")) for said in wait.troubles[: room.holds]]
    for place, hold in enumerate(wait.holds[: room.holds]):
        line = Text.assemble((hold.predicate, "bold yellow"), f" ({one_line(hold.subject, 60)}): ")
        line.append(one_line(hold.evidence, 200))
        rows.append(("Held by" if place == 0 else "", line))
    if len(wait.holds) > room.holds:
        rows.append(
            ("", Text(f"and {counted(len(wait.holds) - room.holds, 'more hold', 'more holds')}", style="dim"))
        )
    return rows


def _recovery(screen: Screen, width: int, room: _Room, glyphs: Glyphs) -> list[_Row]:
    cell = recovery_of(screen.seen, screen.now)
    if cell is None:
        return []
    rows: list[_Row] = [("Recovery", Text(_recovery_words(cell)))]
    if cell.bytes_total:
        bar = _bar(cell.bytes_done / cell.bytes_total, width - _LABEL - 1, glyphs)
        rows.append(("", bar))
    rows += [("", _moving_line(one, glyphs)) for one in cell.moving[: room.moving]]
    return rows


def _recovery_words(cell: RecoveryNow) -> str:
    parts = [f"cluster {cell.health.value}"] if cell.health is not None else []
    if cell.unassigned is not None and cell.initializing is not None:
        parts.append(
            f"{counted(cell.unassigned, 'copy', 'copies')} unassigned, {cell.initializing} on the way"
        )
    else:
        parts.append(f"{counted(len(cell.moving), 'copy', 'copies')} on the way")
    if cell.bytes_total:
        parts.append(f"{size(cell.bytes_done)} of {size(cell.bytes_total)} copied")
    return "; ".join(parts)


def _moving_line(one: Recovery, glyphs: Glyphs) -> Text:
    way = f"{one.source} {glyphs.arrow} {one.target}" if one.source else f"{one.target}, own disk"
    copy = max(one.bytes_copied, one.bytes_total - one.bytes_reused)
    amount = f" {size(one.bytes_copied)} of {size(copy)}" if copy else ""
    return _cut(f"{one.shard} {way}: {one.stage}{amount}", glyphs, style="dim")


def _owed(screen: Screen, room: _Room) -> list[_Row]:
    """The changes that the run will restore."""
    rows: list[_Row] = []
    withheld, left = screen.state.unrestored.withheld_since, texts(unrestored(screen.state))
    if withheld is not None:
        rows.append(("Disabled", Text(f"allocation, for {duration(screen.since(withheld))}", style="yellow")))
    if left:
        rows.append(("To undo", Text(f"{counted(len(left), 'change')} to restore at the end")))
        rows += [("", Text(item, style="dim")) for item in left[: room.owed]]
    return rows
