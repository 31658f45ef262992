"""Progress and results of a run's merges, for the status, the summary and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.event import NodeRecovered
from orchestrator.model.merging import LoaderLeftover, MergeTarget
from orchestrator.model.plan import Plan
from orchestrator.view.table import table
from orchestrator.view.units import counted, duration, listed, one_line, size

BY_OPERATIONS: Final = (
    "From version 6 on, a copy that comes back is brought up to date by the operations that it missed: few "
    "bytes are copied, merged or not, and a merge does not make the files of two copies equal. What a "
    "restart after a merge does for files, it does on 0.90 to 5."
)
"""Operation-based recovery: sequence numbers, and retention leases that keep the operations."""

_OPERATIONS_SINCE: Final = 6
_SHOWN: Final = 24
"""Maximum of indices that the summary lists one by one."""


def recovers_by_operations(version: str, distribution: str) -> bool:
    """Whether this server recovers copies by operations; OpenSearch, as a fork of one that does, does too."""
    major = version.partition(".")[0]
    return distribution == "opensearch" or (major.isdigit() and int(major) >= _OPERATIONS_SINCE)


def half_done(state: RunState) -> str:
    """The finished part of a run's work; empty if all or nothing is finished."""
    due = [one for one in state.merging.indices.values() if one.due]
    merged = sum(one.ended for one in due)
    if not (state.unfinished or state.merging.unfinished) or not (state.recovered or merged):
        return ""
    parts = [f"{merged} of {counted(len(due), 'index', 'indices')} merged"] if due else []
    if state.nodes:
        parts.append(f"{state.recovered} of {counted(len(state.nodes), 'node')} restarted")
    return " and ".join(parts)


def left_to_do(state: RunState, *, without: Sequence[str] = ()) -> str:
    """The remaining work of a run: `3 indices and 6 nodes`; empty if there is none."""
    merges = len(state.merging.unfinished)
    nodes = sum(name not in without for name in state.unfinished)
    parts = [counted(merges, "index", "indices")] if merges else []
    parts += [counted(nodes, "node")] if nodes else []
    return " and ".join(parts)


def merges_in_words(state: RunState) -> str:
    """The progress of the merges, such as `3 of 12 indices merged; …; 8 to come`; empty without any."""
    indices = state.merging.indices.values()
    due = [one for one in indices if one.due]
    if not indices:
        return ""
    few = len(indices) - len(due)
    parts = [f"{sum(one.ended for one in due)} of {counted(len(due), 'index', 'indices')} merged"]
    if state.merging.in_hand:
        parts.append("running: " + listed([one.target.index for one in state.merging.in_hand], 3))
    if state.merging.pending:
        parts.append(f"{len(state.merging.pending)} to come")
    if few:
        parts.append(f"{few} with few enough segments before")
    return "; ".join(parts)


def merge_object(one: MergeProgress) -> dict[str, object]:
    """An index of a run, before and after; unknown values are null."""
    end = one.end
    return {
        "index": one.target.index,
        "due": one.due,
        "state": "merged" if one.ended else "merging" if one.in_hand else "pending" if one.pending else "few",
        "segments_before": one.target.segments,
        "segments_after": end.segments if end else None,
        "bytes_before": one.target.bytes,
        "bytes_after": end.bytes if end else None,
        "seconds": round(end.seconds, 3) if end else None,
        "why": end.why if end else "",
    }


def merged_lines(merges: Sequence[MergeProgress]) -> list[str]:
    """The result of each index that was due, for people."""
    due = [one for one in merges if one.due]
    if not merges:
        return []
    lines = [f"{sum(one.ended for one in due)} of {counted(len(due), 'index', 'indices')} merged"]
    if len(due) < len(merges):
        lines[0] += f"; {len(merges) - len(due)} had few enough segments before"
    lines += [f"  {_before_and_after(one)}" for one in due[:_SHOWN]]
    if len(due) > _SHOWN:
        lines.append(f"  and {len(due) - _SHOWN} more")
    return lines


def _before_and_after(one: MergeProgress) -> str:
    target, end = one.target, one.end
    if end is None:
        how = "its merge continues" if one.in_hand else "not merged"
        return f"{target.index}: {how}, {counted(target.segments, 'segment')} a copy"
    if not end.segments:
        return f"{target.index}: {one_line(end.why) or 'gone'}"
    said = f" ({one_line(end.why)})" if end.why else ""
    took = f", {duration(end.seconds)}" if end.seconds else ""
    return (
        f"{target.index}: {target.segments} -> {counted(end.segments, 'segment')} a copy, "
        f"{size(target.bytes)} -> {size(end.bytes)}{took}{said}"
    )


def recovery_object(recovered: Sequence[NodeRecovered], *, by_operations: bool) -> dict[str, object]:
    """Reused against copied bytes of the restarted nodes, each and in all; null is "not shown"."""
    return {
        **_figures(recovered),
        "by_node": {event.node: _figures([event]) for event in recovered},
        "note": BY_OPERATIONS if by_operations else "",
    }


def _figures(recovered: Sequence[NodeRecovered]) -> dict[str, int | None]:
    return {
        "bytes_reused": _sum([event.bytes_reused for event in recovered]),
        "bytes_copied": _sum([event.bytes_copied for event in recovered]),
        "operations_replayed": _sum([event.operations_replayed for event in recovered]),
    }


def _sum(figures: Sequence[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def recovery_lines(recovered: Sequence[NodeRecovered], *, by_operations: bool) -> list[str]:
    """The same for people: in all, and node by node."""
    if not recovered:
        return []
    told = [(event.node, _figures([event])) for event in recovered]
    lines = [f"copies at the restarts: {_in_words(_figures(recovered))}"]
    lines += [f"  {node}: {_in_words(figures)}" for node, figures in told]
    return [*lines, BY_OPERATIONS] if by_operations else lines


def _in_words(figures: dict[str, int | None]) -> str:
    reused, copied, replayed = figures.values()
    if reused is None or copied is None:
        return "not shown"
    operations = f", {counted(replayed, 'operation')} replayed" if replayed is not None else ""
    return f"{size(reused)} found on disk, {size(copied)} copied{operations}"


def planned_object(plan: Plan) -> dict[str, object]:
    """The merges of a plan; empty for a restart only."""
    if plan.max_segments is None:
        return {}
    return {
        "max_segments": plan.max_segments,
        "merges": [
            {"index": one.index, "segments": one.segments, "bytes": one.bytes, "due": one.due}
            for one in plan.merges
        ],
        "leftovers": [
            {
                "index": one.index,
                "setting": one.setting,
                "found": one.found,
                "put_right": one.put_right,
                "wanted": one.wanted,
            }
            for one in plan.leftovers
        ],
    }


def planned_lines(plan: Plan) -> list[str]:
    """The same for people."""
    if plan.max_segments is None:
        return []
    most = counted(plan.max_segments, "segment")
    rows = [(one.index, str(one.segments), size(one.bytes), _what(one)) for one in plan.merges]
    return [
        f"Merges to at most {most} a copy, in this order, before any stop (not in the prediction):",
        *table(
            ("  INDEX", "SEGMENTS", "BYTES", ""), [(f"  {row[0]}", *row[1:]) for row in rows], numbers=(1, 2)
        ),
        *(f"  {line}" for line in leftover_lines(plan.leftovers)),
    ]


def _what(target: MergeTarget) -> str:
    return "to be merged" if target.due else "few enough already"


def leftover_lines(leftovers: Sequence[LoaderLeftover]) -> list[str]:
    """Settings of bulk loaders, a line for each, with its change."""
    by_fate: dict[tuple[str, str, bool, str | None], list[str]] = {}
    for one in leftovers:
        by_fate.setdefault((one.setting, one.found, one.put_right, one.wanted), []).append(one.index)
    lines = []
    for (setting, found, put_right, wanted), indices in by_fate.items():
        name = setting.removeprefix("index.")
        if put_right:
            fate = f"set to {'the default' if wanted is None else wanted} after the merge"
        else:
            fate = "not put right: the playbook's force_merge.put_right says nothing of it"
        lines.append(f"found: {name} {found} on {listed(indices, 5)}; {fate}")
    return lines
