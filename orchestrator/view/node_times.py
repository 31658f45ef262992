"""The nodes of a run as a table for a terminal, from the facts of its report."""

from __future__ import annotations

from typing import Final

from orchestrator.formats import counted, duration
from orchestrator.steps import DONE, RECOVER, STOP, step_of_node
from orchestrator.view.report.facts import Facts
from orchestrator.view.text import table, wrapped

_MOST: Final = 12
"""Of more nodes than these the slowest are shown; the page has all."""
_SLOWEST: Final = 8


def node_lines(facts: Facts, width: int | None) -> list[str]:
    """A row for each node that was stopped: how long it was down, its recovery, and its share of the run.

    Args:
        facts: of the run.
        width: columns of the terminal; None where lines are not broken.
    """
    timed = [(node, times) for node in facts["nodes"] if (times := _times(node)) is not None]
    shown = timed
    if len(timed) > _MOST:
        shown = sorted(timed, key=lambda one: -sum(one[1]))[:_SLOWEST]
    rows: list[tuple[str, ...]] = [
        (
            node["node"],
            duration(down),
            duration(recovery) if recovery else "-",
            f"{duration(down + recovery)}{'*' if _is_cut(node) else ''}",
            _share(down + recovery, facts["seconds"]),
            "" if (step := step_of_node(node["phase"])) == DONE else step,
        )
        for node, (down, recovery) in shown
    ]
    if not rows:
        return []
    head: tuple[str, ...] = ("NODE", "DOWN", "RECOVERY", "IN ALL", "OF THE RUN", "NOW AT")
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    lines = table(head, rows, numbers=range(1, 5), width=width)
    if len(timed) > len(shown):
        more = f"the slowest {len(shown)} of {counted(len(timed), 'node')}; --output csv has each"
        lines += wrapped(more, width)
    if any(_is_cut(node) for node, _ in shown):
        lines += wrapped("* over several attempts, with the time between them", width)
    return [*lines, ""]


def _times(node: Facts) -> tuple[float, float] | None:
    """Seconds from its last stop to its return, and from then to its recovery; None if it was not stopped."""
    turns = node["turns"]
    stops = [place for place, turn in enumerate(turns) if turn["step"] == STOP]
    if not stops:
        return None
    last = turns[stops[-1] :]
    ended = last[-1]["ended"]
    back = next((turn["began"] for turn in last if turn["step"] == RECOVER), ended)
    return back - last[0]["began"], ended - back


def _is_cut(node: Facts) -> bool:
    """Whether its turn went over several attempts."""
    stops = [turn["attempt"] for turn in node["turns"] if turn["step"] == STOP]
    return bool(stops) and node["turns"][-1]["attempt"] != stops[-1]


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / whole:.0%}" if whole else "-"
