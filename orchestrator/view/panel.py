"""The layout of the live view: a pure function from a `Screen` to a rich renderable.

No information is in the colour alone, and with `ASCII` glyphs every character is ASCII.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.untrusted import one_line
from orchestrator.view.model import NodeCell, RecoveryCell, Screen
from orchestrator.view.phrases import second_signal
from orchestrator.view.text import counted, duration, listed, size

WIDE = 136
"""From this width on there are two columns; the left one has the whole track of phases."""

_LABEL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Signs of the node phases and of the track, all one column wide."""

    phases: dict[NodePhase, str]
    arrow: str
    full: str
    empty: str
    unicode: bool
    cut: Literal["ellipsis", "crop"]


UNICODE = Glyphs(
    phases={
        NodePhase.PENDING: "·",
        NodePhase.STOPPING: "▼",
        NodePhase.STOPPED: "■",
        NodePhase.STARTING: "▲",
        NodePhase.REJOINED: "◐",
        NodePhase.RECOVERED: "✓",
        NodePhase.FAILED: "✗",
        NodePhase.SKIPPED: "-",
    },
    arrow="→",
    full="━",
    empty="╌",
    unicode=True,
    cut="ellipsis",
)

ASCII = Glyphs(
    phases={
        NodePhase.PENDING: ".",
        NodePhase.STOPPING: "v",
        NodePhase.STOPPED: "#",
        NodePhase.STARTING: "^",
        NodePhase.REJOINED: "o",
        NodePhase.RECOVERED: "+",
        NodePhase.FAILED: "X",
        NodePhase.SKIPPED: "-",
    },
    arrow="->",
    full="#",
    empty=".",
    unicode=False,
    cut="crop",  # the ellipsis is one character that is not ASCII
)

_STYLES = {
    NodePhase.PENDING: "dim",
    NodePhase.STOPPING: "yellow",
    NodePhase.STOPPED: "yellow",
    NodePhase.STARTING: "cyan",
    NodePhase.REJOINED: "cyan",
    NodePhase.RECOVERED: "green",
    NodePhase.FAILED: "bold red",
    NodePhase.SKIPPED: "dim",
}

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

_USUAL = _Room(nodes=2, holds=2, moving=1, owed=1, trouble=2)

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
    if width >= WIDE:
        half = inner // 2 - 1
        left = inner - half - 3
        columns = Table.grid(padding=(0, 3, 0, 0))
        columns.add_column(width=left)
        columns.add_column(width=half)
        columns.add_row(
            _rows(
                [
                    *_progress(screen, left, glyphs),
                    *_merges(screen, left, room, glyphs),
                    *_nodes(screen, left, room, glyphs),
                ]
            ),
            _rows([*_waiting(screen, room), *_recovery(screen, half, room, glyphs), *_owed(screen, room)]),
        )
        body: RenderableType = columns
    else:
        body = _rows(
            [
                *_progress(screen, inner, glyphs),
                *_merges(screen, inner, room, glyphs),
                *_nodes(screen, inner, room, glyphs),
                *_waiting(screen, room),
                *_recovery(screen, inner, room, glyphs),
                *_owed(screen, room),
            ]
        )
    trouble = [Text(f"! {one_line(line)}", style="bold red") for line in screen.trouble[: room.trouble]]
    return Panel(
        Group(*trouble, body),
        title=Text.assemble((screen.cluster, "bold"), f"  {screen.what}"),
        title_align="left",
        subtitle=Text(f"run {screen.run}", style="dim"),
        subtitle_align="right",
        box=box.ROUNDED if glyphs.unicode else box.ASCII,
        width=width,
        border_style="red" if screen.trouble else "dim",
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
    total = len(screen.nodes)
    times = f"{duration(screen.elapsed)} so far"
    if screen.left:  # an exceeded estimate is not shown
        times += f", about {duration(screen.left)} to go"
    rows: list[_Row] = [("Time", Text(times))]
    if total:  # a run with only merges restarts no node
        until = screen.to_restart
        pause = f", then a pause before {total - until} more" if until < total else ""
        done = (f"{screen.done} of {counted(until, 'node')}", "bold")
        rows = [
            ("Done", Text.assemble(done, f"{pause}   {times}")),
            ("", _bar(min(1.0, screen.done / until), width - _LABEL - 1, glyphs)),
        ]
    rows.append(("Phase", _track(screen.phase, width - _LABEL - 1, glyphs)))
    if screen.request is not Request.NONE:
        after = "this wave" if screen.merges is None else "the current merges"
        stopping = f"to stop, by {screen.requested_by}: nodes are started, settings are restored"
        asked = {
            Request.PAUSE: f"to pause after {after}",
            Request.STOP: stopping,
            Request.INTERRUPT: f"{stopping}; {second_signal(screen.requested_by)}",
        }
        rows.append(("Asked", Text(one_line(asked[screen.request]), style="bold yellow")))
    return rows


def _merges(screen: Screen, width: int, room: _Room, glyphs: Glyphs) -> list[_Row]:
    """The merges before the first wave: their number and size, and a line for each that is in progress."""
    cell = screen.merges
    if cell is None:
        return []
    rows: list[_Row] = [
        ("Merges", Text(cell.words, overflow=glyphs.cut, no_wrap=True)),
        ("", _bar(cell.share, width - _LABEL - 1, glyphs)),
    ]
    shown = cell.in_hand[: room.moving]
    rows += [
        (
            "",
            Text(
                f"{one.index}: from {counted(one.segments, 'segment')} a copy, {size(one.bytes)}, "
                f"{duration(one.seconds)} so far",
                style="dim",
                overflow=glyphs.cut,
                no_wrap=True,
            ),
        )
        for one in shown
    ]
    return rows


def _bar(share: float, width: int, glyphs: Glyphs) -> Text:
    """A bar that is readable without colour; full only when all is done."""
    width = max(4, width)
    full = int(min(1.0, max(0.0, share)) * width)
    return Text.assemble((glyphs.full * full, "green"), (glyphs.empty * (width - full), "dim"))


def _track(phase: Phase, width: int, glyphs: Glyphs) -> Text:
    """The wave's phases with the current one in brackets; only the current one if they do not fit."""
    if phase not in _TRACK:
        return Text(phase.value.replace("_", " "), style="bold")
    for arrow in (f" {glyphs.arrow} ", glyphs.arrow):
        steps = [
            Text(f"[{step.value}]", style="bold") if step is phase else Text(step.value, style="dim")
            for step in _TRACK
        ]
        track = Text(arrow, style="dim").join(steps)
        if track.cell_len <= width:
            return track
    return Text(f"[{phase.value}]", style="bold")


def _nodes(screen: Screen, width: int, room: _Room, glyphs: Glyphs) -> list[_Row]:
    if not screen.nodes:
        return []
    counts = Text()
    for phase in NodePhase:
        count = sum(node.phase is phase for node in screen.nodes)
        if count:
            counts.append(f"{glyphs.phases[phase]} {count} {phase.value}   ", style=_STYLES[phase])
    counts.rstrip()
    rows: list[_Row] = [("Nodes", counts)]
    strip = _strip(screen, width - _LABEL - 1, room.nodes, glyphs) if len(screen.nodes) > 1 else None
    if room.nodes and strip is not None:
        rows.append(("", strip))
    if screen.wave is not None:
        zone = f", zone {screen.wave.zone}" if screen.wave.zone else ""
        why = f": {one_line(screen.wave.why)}" if screen.wave.why else ""
        since = Text(f"{duration(screen.wave_seconds)} so far{zone}{why}", overflow=glyphs.cut, no_wrap=True)
        rows.append((f"Wave {screen.wave.number}", since))
        rows += [("", line) for line in _wave_lines(screen.wave_cells, max(1, room.nodes * 2), glyphs)]
    if screen.beside:
        rows.append(("Beside", Text(screen.beside, overflow=glyphs.cut, no_wrap=True)))
    return rows


def _wave_lines(cells: tuple[NodeCell, ...], most: int, glyphs: Glyphs) -> list[Text]:
    """A line for each node of the wave; if these are too many, one for each phase."""
    if len(cells) <= most:
        return [_node_line(cell, glyphs) for cell in cells]
    by_phase: dict[NodePhase, list[NodeCell]] = {}
    for cell in cells:
        by_phase.setdefault(cell.phase, []).append(cell)
    return [
        Text.assemble(
            (f"{glyphs.phases[phase]} {len(found)} {phase.value} ", _STYLES[phase]),
            f"for up to {duration(max(cell.seconds for cell in found))}: {listed([c.name for c in found])}",
            overflow=glyphs.cut,
            no_wrap=True,
        )
        for phase, found in by_phase.items()
    ][:most]


def _node_line(cell: NodeCell, glyphs: Glyphs) -> Text:
    line = Text(f"{glyphs.phases[cell.phase]} {cell.name} ", style=_STYLES[cell.phase])
    line.append(f"{cell.phase.value} for {duration(cell.seconds)}", style="default")
    if cell.starts > 1:
        line.append(f", start sent {cell.starts} times", style="yellow")
    return line


def _strip(screen: Screen, width: int, lines: int, glyphs: Glyphs) -> Text | None:
    """Every node with its sign and, if all names fit, its name; None if not even the signs fit."""
    named = max(len(node.name) for node in screen.nodes) + 4
    if len(screen.nodes) > max(1, (width + 2) // named) * lines:
        return _signs(screen, glyphs) if len(screen.nodes) <= width * lines else None
    a_line = max(1, (width + 2) // named)
    strip = Text()
    for place, node in enumerate(screen.nodes):
        if place and place % a_line == 0:
            strip.append("\n")
        cell = f"{glyphs.phases[node.phase]} {node.name}"
        last = place % a_line == a_line - 1
        strip.append(cell if last else cell.ljust(named), style=_STYLES[node.phase])
    return strip


def _signs(screen: Screen, glyphs: Glyphs) -> Text:
    """One sign a node: finished nodes first, then those that are being restarted, then pending ones."""
    strip = Text()
    phases = (NodePhase.RECOVERED, NodePhase.SKIPPED, NodePhase.FAILED, *reversed(NodePhase))
    for phase in dict.fromkeys(phases):
        count = sum(node.phase is phase for node in screen.nodes)
        strip.append(glyphs.phases[phase] * count, style=_STYLES[phase])
    return strip


def _waiting(screen: Screen, room: _Room) -> list[_Row]:
    if screen.wait is None:
        return []
    wait = screen.wait
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
    cell = screen.recovery
    if cell is None:
        return []
    rows: list[_Row] = [("Recovery", Text(_recovery_words(cell)))]
    if cell.bytes_total:
        bar = _bar(cell.bytes_done / cell.bytes_total, width - _LABEL - 1, glyphs)
        rows.append(("", bar))
    rows += [("", _moving_line(one, glyphs)) for one in cell.moving[: room.moving]]
    return rows


def _recovery_words(cell: RecoveryCell) -> str:
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
    return Text(f"{one.shard} {way}: {one.stage}{amount}", style="dim", overflow=glyphs.cut, no_wrap=True)


def _owed(screen: Screen, room: _Room) -> list[_Row]:
    """The changes that the run will restore."""
    rows: list[_Row] = []
    if screen.withheld is not None:
        rows.append(("Disabled", Text(f"allocation, for {duration(screen.withheld)}", style="yellow")))
    if screen.unrestored:
        count = len(screen.unrestored)
        rows.append(("To undo", Text(f"{counted(count, 'change')} to restore at the end")))
        shown = screen.unrestored[: room.owed if room is _TALL else 0]
        rows += [("", Text(item, style="dim")) for item in shown]
    return rows
