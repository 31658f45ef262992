"""The layout of the live view: a pure function from a `Screen` to a rich renderable.

First what happens now, what it waits for and until when; then what is next, what will be restored, and on the
border how to end the run. No information is in a colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from orchestrator.engine.progress import NodeProgress
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.next_command import next_command
from orchestrator.steps import DISABLE
from orchestrator.untrusted import one_line, visible
from orchestrator.view.cluster_now import changed_in_words
from orchestrator.view.progress import Wait, merges_in_words, restarted_in_words, still_recovering
from orchestrator.view.screen import (
    Screen,
    allocation_in_words,
    asked_in_words,
    cluster_in_words,
    ending_hint,
    hold_of_thing,
    in_zone,
    limit_in_words,
    merging_now,
    next_in_words,
    recovery_of,
    restoring_in_words,
    slowest,
    titles,
    to_restore,
    troubles,
)
from orchestrator.view.signs import ONE_COLUMN, in_encoding, sign
from orchestrator.view.text import counted, duration, listed, size
from orchestrator.view.turns import StepState, TurnStep, current_step, in_words, left_in_words, rounded

WIDE = 136
"""From this width on there are two columns: the nodes, and what is waited for and comes next."""

_LABEL = 11
_SIGN = {StepState.OVER: "done", StepState.NOW: "now", StepState.TO_COME: "to come"}
_AT_REST = {NodePhase.RECOVERED: "done", NodePhase.FAILED: "failed", NodePhase.SKIPPED: "skipped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Maximum of lines for each list."""

    nodes: int  # nodes of the wave, a line each
    signs: int  # for the signs of all nodes
    holds: int
    moving: int  # copies that recover
    owed: int  # changes to restore
    trouble: int
    trouble_lines: int = 2


_TALL = _Room(nodes=12, signs=12, holds=6, moving=6, owed=6, trouble=4, trouble_lines=4)
_USUAL = _Room(nodes=4, signs=6, holds=2, moving=0, owed=0, trouble=2)
_SMALL = _Room(nodes=2, signs=2, holds=1, moving=0, owed=0, trouble=1)


def _room(width: int, height: int | None) -> _Room:
    if height is None or height >= 36:  # noqa: PLR2004  (all lists at their longest still fit)
        return _TALL
    if height >= 24 or (width >= WIDE and height >= 18):  # noqa: PLR2004  (the usual terminal: 80x24)
        return _USUAL
    return _SMALL


_Row = tuple[str | Text, RenderableType]


def panel(screen: Screen, width: int, *, height: int | None = None, hint: bool = True) -> RenderableType:
    """The picture at this width.

    Args:
        screen: what it shows.
        width: in columns.
        height: of the terminal; None for no limit.
        hint: whether Ctrl-C ends the run that is shown; the border says how, or that it does not.
    """
    state = screen.state
    ending = ending_hint(state, width - 8) if hint else WATCHING if state.phase is not Phase.ENDED else ""
    so_far = f"{duration(screen.since(state.process.started))} so far"
    picture = Panel(
        inside(screen, width, height=height, frame=_FRAME),
        title=_border([f" {sign('to come')[0]} ".join(parts) for parts in titles(state)], so_far, width),
        title_align="left",
        subtitle=_border([ending], one_line(state.run), width),
        subtitle_align="left" if ending else "right",
        box=box.ROUNDED,
        width=width,
    )
    return Visible(picture)


class Visible:
    """A picture whose foreign characters, as in a node's name, cannot control the terminal or widen lines."""

    def __init__(self, picture: RenderableType) -> None:
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._picture, options, pad=False):
            shown = (in_encoding(visible(part.text), options.encoding, ONE_COLUMN) for part in line)
            clean = [Segment(text, part.style) for text, part in zip(shown, line, strict=True)]
            width = min(Segment.get_line_length(clean), options.max_width)
            yield from Segment.adjust_line_length(clean, width, pad=False)
            yield Segment.line()


WATCHING = "Ctrl-C: leave; the run continues"
"""What Ctrl-C does where another process works on the run."""

_FRAME = 4
"""Columns of the border, and of the blanks inside of it."""


def inside(screen: Screen, width: int, *, height: int | None = None, frame: int = 0) -> RenderableType:
    """The lines inside of the border; the arguments are as of `panel`. Without a border, `frame` is 0."""
    room, inner = _room(width, height), max(16, width - frame)
    half = inner // 2 - 1
    left, right = (inner - half - 3, half) if width >= WIDE else (inner, inner)
    urgent = Table.grid(padding=(0, 1, 0, 0))
    for line in troubles(screen.state)[: room.trouble]:
        cut = one_line(line, room.trouble_lines * (inner - 2))
        urgent.add_row(Text.assemble(sign("attention")), Text(cut, style="bold"))
    nodes = [
        *_progress(screen, left),
        *_merges(screen, left, room),
        *_nodes(screen, left, room),
    ]
    rest = _rows([*_waiting(screen, room), *_cluster(screen, room), *_coming(screen, room)])
    body: RenderableType = Group(*nodes, *([rest] if rest.row_count else []))
    if width >= WIDE:
        body = Table.grid(padding=(0, 3, 0, 0))
        body.add_column(width=left)
        body.add_column(width=right)
        body.add_row(Group(*nodes), rest)
    return Group(*([urgent] if urgent.row_count else []), body)


def _border(lefts: Sequence[str], right: str, width: int) -> Text:
    """Two texts on a border, at its ends: of the left ones the first that fits, else the last alone."""
    for left in filter(None, lefts):
        gap = width - 8 - cell_len(left) - cell_len(right)
        if gap > 0:
            return Text(f"{left} {'─' * gap} {right}")
    return Text(lefts[-1] or right)


def _rows(rows: Iterable[_Row]) -> Table:
    """Labels, and beside them texts with a hanging indent."""
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=_LABEL, no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for label, content in rows:
        grid.add_row(label, content)
    return grid


def _cut(text: Text) -> Text:
    """A text that is cut at the end of its line."""
    text.overflow, text.no_wrap = "ellipsis", True
    return text


# How far the run is ------------------------------------


def _progress(screen: Screen, width: int) -> list[RenderableType]:
    state = screen.state
    if restoring := restoring_in_words(state):
        return [Text(restoring)]
    if not state.nodes or merging_now(state):
        return []
    words = f"{restarted_in_words(state)}   {_time_left(screen)}"
    return _bar(words.rstrip(), screen.share, width)


def _time_left(screen: Screen) -> str:
    left = screen.left
    if left is None:
        return "the run ends early" if screen.state.phase is Phase.STANDING_DOWN else ""
    if screen.wait is not None and screen.wait.holds:
        return f"{duration(rounded(left.likely))} of work remains"
    return left_in_words(left, screen.now, screen.zone)


def _bar(words: str, share: float, width: int) -> list[RenderableType]:
    """A text over a bar, which is readable without colour and full only when all is done.

    The bar has a line of its own: so it has enough columns to be seen moving.
    """
    full, half = divmod(int(min(1.0, max(0.0, share)) * 2 * width), 2)
    bar = (sign("bar", full), sign("half", half), sign("rest", width - full - half))
    return [Text(words), Text.assemble(*bar)]


def _merges(screen: Screen, width: int, room: _Room) -> list[RenderableType]:
    """The merges before the first wave: their number and size, and a line for each that is in progress."""
    state, due = screen.state, merging_now(screen.state)
    if not due:
        return []
    total, done = sum(one.target.bytes for one in due), sum(one.target.bytes for one in due if one.ended)
    first, *others = (part for part in merges_in_words(state).split("; ") if not part.startswith("running"))
    rows: list[_Row] = []
    for one in [one for one in state.merging.in_progress if one.begun is not None][: max(1, room.moving)]:
        target, took = one.target, duration(screen.since(one.begun or 0.0))
        segments = f"from {counted(target.segments, 'segment')} a copy, {size(target.bytes)}, {took} so far"
        rows.append(("Merge", _cut(Text(f"{target.index}: {segments}"))))
    rows += [("", Text("; ".join(others)))] if others else []
    words = f"{first}   {size(done)} of {size(total)}"
    return [*_bar(words, done / total if total else 0.0, width), _rows(rows)]


# The nodes ------------------------------------


def _nodes(screen: Screen, width: int, room: _Room) -> list[RenderableType]:
    state, wave = screen.state, screen.state.wave_nodes
    found: list[RenderableType] = []
    if len(state.nodes) > max(room.nodes, len(wave)) and room.signs and len(state.nodes) > _FEW:
        found.append(_signs(screen, width, room))
    if state.wave is not None and len(wave) <= room.nodes:
        names = max(cell_len(node.name) for node in wave) if wave else 0
        found += [_node_line(screen, node, min(names, width // 3), width) for node in wave]
    elif state.wave is not None:
        found.append(_rows(_wave_rows(screen, wave)))
    if beside := still_recovering(state, screen.now):
        found.append(_rows([("Beside", _cut(Text(beside)))]))
    return found


_FEW = 12
"""Up to so many nodes, the signs of all nodes would show no more than the numbers do."""


def _node_line(screen: Screen, node: NodeProgress, names: int, width: int) -> Text:
    """A node of the wave with its steps, as many as fit: those that are over go first, then those to come.

    A `…` is in the place of those to come.
    """
    wave = screen.state.wave
    zone = in_zone(wave.zone if wave is not None else None)
    head = Text(f"{node.name.ljust(names)}{f'  {zone}' if zone else ''}   ")
    steps = list(screen.steps(node))
    if node.phase is NodePhase.FAILED or not steps:
        name = _AT_REST.get(node.phase, "to come")
        return _cut(head + Text.assemble(sign(name), f" {in_words(screen.state, node)}"))
    parts, more = [_step(step, node) for step in steps], list[Text]()
    while len(parts) > 1 and Text("   ").join([head, *parts, *more]).cell_len - 3 > width:
        over = [place for place, step in enumerate(steps) if step.state is StepState.OVER]
        long = [place for place in over if steps[place].name == DISABLE]
        drops = (*long, *over, len(parts) - 1)[0]
        more = more if over else [Text("…")]
        del parts[drops], steps[drops]
    return _cut(head + Text("   ").join([*parts, *more]))


def _step(step: TurnStep, node: NodeProgress) -> Text:
    took = f" {duration(step.seconds)}" if step.seconds is not None and step.seconds >= 1.0 else ""
    again = f" (sent {node.tries} times)" if step.state is StepState.NOW and node.tries > 1 else ""
    return Text.assemble(sign(_SIGN[step.state]), f" {step.name}{took}{again}")


def _wave_rows(screen: Screen, wave: Sequence[NodeProgress]) -> list[_Row]:
    """A wave of many nodes: how many are in each step, and by name those that keep it."""
    state = screen.state
    counts: dict[str, list[NodeProgress]] = {}
    for node in wave:
        counts.setdefault(in_words(state, node), []).append(node)
    parts = [
        Text.assemble(sign(_sign_of(screen, found[0])), f" {len(found)} {step}")
        for step, found in counts.items()
    ]
    number = state.wave.number if state.wave is not None else 0
    so_far = Text(f"   {duration(screen.since(state.wave_since))} so far")
    rows: list[_Row] = [(f"Wave {number}", Text("   ").join(parts) + so_far)]
    behind = slowest(screen, wave)
    if behind is not None:
        step, seconds, names = behind
        rows.append(("Slowest", Text(f"{listed(names, 3)}: {step} for {duration(seconds)}")))
    return rows


def _sign_of(screen: Screen, node: NodeProgress) -> str:
    if node.phase in _AT_REST:
        return _AT_REST[node.phase]
    return "now" if current_step(screen.state, node) else "to come"


def _signs(screen: Screen, width: int, room: _Room) -> Table:
    """A sign for each node, a row for each zone where it is known; numbers if not even the signs fit."""
    by_zone: dict[str, list[str]] = {}
    for node in screen.state.nodes.values():
        by_zone.setdefault(screen.zone_of(node.name), []).append(_sign_of(screen, node))
    by_zone = dict(sorted(by_zone.items()))
    across = width - _LABEL - 1
    if sum(-(-len(signs) // across) for signs in by_zone.values()) > room.signs:
        by_zone = (
            by_zone
            if len(by_zone) <= room.signs
            else {"": [one for each in by_zone.values() for one in each]}
        )
        return _rows((in_zone(zone) or "nodes", _counts(signs)) for zone, signs in by_zone.items())
    return _rows((in_zone(zone) or "nodes", _runs(signs)) for zone, signs in by_zone.items())


_IN_ORDER = ("done", "skipped", "failed", "now", "to come")


def _runs(signs: Sequence[str]) -> Text:
    """Finished nodes first, then those that are being restarted, then those to come."""
    return Text.assemble(*(sign(name, signs.count(name)) for name in _IN_ORDER if name in signs))


def _counts(signs: Sequence[str]) -> Text:
    parts = [Text.assemble(sign(name), f" {signs.count(name)}") for name in _IN_ORDER if name in signs]
    return Text("   ").join(parts)


# What is waited for, and what comes ------------------------------------


def _waiting(screen: Screen, room: _Room) -> list[_Row]:
    rows: list[_Row] = []
    if asked := asked_in_words(screen.state):
        rows.append(("Asked", Text(asked, style="bold")))
    wait = screen.wait
    if wait is None:
        return rows
    if wait.holds:
        return [*rows, *_held(screen, wait, room)]
    rows.append(("Waiting", Text(f"for {one_line(wait.awaited)}{limit_in_words(screen, wait)}")))
    return [*rows, *(("", Text(one_line(said), style="bold")) for said in wait.troubles[: room.holds])]


def _held(screen: Screen, wait: Wait, room: _Room) -> list[_Row]:
    """What holds the run, in words of the thing that is waited for, and what happens at the limit."""
    said = [one_line(line, 300) for line in map(hold_of_thing, wait.holds)]
    first = Text.assemble((f"{duration(screen.since(wait.since))}  ", "bold"), said[0])
    rows: list[_Row] = [(Text("HELD", style="bold"), first)]
    rows += [("", Text(line)) for line in said[1 : room.holds]]
    if len(said) > room.holds:
        rows.append(("", Text(f"and {counted(len(said) - room.holds, 'more hold', 'more holds')}")))
    rows += [("", Text(one_line(trouble), style="bold")) for trouble in wait.troubles[: room.holds]]
    if limit := limit_in_words(screen, wait):
        rows.append(("", Text(limit)))
    return rows


def _cluster(screen: Screen, room: _Room) -> list[_Row]:
    rows: list[_Row] = []
    if words := cluster_in_words(screen):
        rows.append(("Cluster", Text(words, style="bold" if words.startswith("red") else "")))
        cell = recovery_of(screen.seen, screen.now)
        rows += [("", _moving_line(one)) for one in (cell.moving if cell else ())[: room.moving]]
    if allocation := allocation_in_words(screen):
        rows.append(("Allocation", Text(allocation)))
    return rows


def _moving_line(one: Recovery) -> Text:
    way = f"{one.source} → {one.target}" if one.source else f"{one.target}, own disk"
    copy = max(one.bytes_copied, one.bytes_total - one.bytes_reused)
    amount = f" {size(one.bytes_copied)} of {size(copy)}" if copy else ""
    return _cut(Text(f"{one.shard} {way}: {one.stage}{amount}"))


def _coming(screen: Screen, room: _Room) -> list[_Row]:
    """What is next, what will be restored, and where to read about a hold."""
    rows: list[_Row] = []
    if words := next_in_words(screen):
        rows.append(("Next", Text(words)))
    if words := to_restore(screen.state):
        rows.append(("To restore", Text(words)))
        rows += [("", Text(item)) for item in changed_in_words(screen.state)[: room.owed]]
    wait = screen.wait
    if wait is not None and wait.holds:
        names = [*dict.fromkeys(hold.predicate for hold in wait.holds)][: room.holds]
        rows += [
            ("" if place else "More", Text(next_command("explain", name))) for place, name in enumerate(names)
        ]
    return rows
