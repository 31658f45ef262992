"""The part of a summary that is about a bulk load: its merges, and what the nodes copied after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.engine.merge_state import MergeProgress
from orchestrator.model.event import NodeRecovered
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, duration, size

BY_OPERATIONS: Final = (
    "From version 6 on, a returning copy replays the operations that it missed. So few bytes are copied, "
    "with or without a merge. A restart after a merge makes the files of two copies equal only before "
    "version 6."
)
"""Operation-based recovery: sequence numbers, and retention leases that keep the operations."""

_OPERATIONS_SINCE: Final = 6

_FEW: Final = "few bytes are copied from version 6 on, with or without a merge"


def recovers_by_operations(version: str, distribution: str) -> bool:
    """Whether this server recovers copies by operations; OpenSearch, as a fork of one that does, does too."""
    major = version.partition(".")[0]
    return distribution == "opensearch" or (major.isdigit() and int(major) >= _OPERATIONS_SINCE)


def merge_object(one: MergeProgress) -> dict[str, object]:
    """An index of a run, before and after; unknown values are null."""
    end = one.end
    state = "merged" if one.ended else "merging" if one.in_progress else "pending" if one.pending else "few"
    return {
        "index": one.target.index,
        "due": one.due,
        "state": state,
        "segments_before": one.target.segments,
        "segments_after": end.segments if end else None,
        "bytes_before": one.target.bytes,
        "bytes_after": end.bytes if end else None,
        "seconds": round(end.seconds, 3) if end else None,
        "why": end.why if end else "",
    }


def merged_rows(merges: Sequence[MergeProgress], most: int) -> list[tuple[str, str]]:
    """The result of each index that was due, for people: labels and texts."""
    due = [one for one in merges if one.due]
    few = len(merges) - len(due)
    lines = [f"{few} had few enough segments before"] if few else []
    lines += [_before_and_after(one) for one in due[:most]]
    if len(due) > most:
        lines.append(f"and {len(due) - most} more")
    return [("" if place else "Indices", line) for place, line in enumerate(lines)]


def _before_and_after(one: MergeProgress) -> str:
    target, end = one.target, one.end
    if end is None:
        how = "its merge continues" if one.in_progress else "not merged"
        return f"{target.index}: {how}, {counted(target.segments, 'segment')} a copy"
    if not end.segments:
        return f"{target.index}: {one_line(end.why) or 'gone'}"
    said = f" ({one_line(end.why)})" if end.why else ""
    took = f", {duration(end.seconds)}" if end.seconds else ""
    return (
        f"{target.index}: {target.segments} → {counted(end.segments, 'segment')} a copy, "
        f"{size(target.bytes)} → {size(end.bytes)}{took}{said}"
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


def recovery_rows(
    recovered: Sequence[NodeRecovered], *, by_operations: bool, most: int
) -> list[tuple[str, str]]:
    """The same for people: in all, then the nodes that copied most."""
    if not recovered:
        return []
    first = sorted(recovered, key=lambda event: event.bytes_copied or 0, reverse=True)[:most]
    lines = [_in_words(_figures(recovered)), *(f"{one.node}: {_in_words(_figures([one]))}" for one in first)]
    if len(recovered) > most:
        lines.append(f"and {counted(len(recovered) - most, 'more node')}")
    if by_operations:
        lines.append(_FEW)
    return [("" if place else "Copies", line) for place, line in enumerate(lines)]


def copied_of(recovered: Sequence[NodeRecovered]) -> str:
    """`1.2 kB of 4.3 GB`: what was copied of all copies on the restarted nodes; empty if none is shown."""
    reused, copied, _ = _figures(recovered).values()
    total = 0 if reused is None or copied is None else reused + copied
    return f"{size(copied or 0)} of {size(total)}" if total else ""


def _in_words(figures: dict[str, int | None]) -> str:
    reused, copied, replayed = figures.values()
    if reused is None or copied is None:
        return "not shown"
    operations = f", {counted(replayed, 'operation')} replayed" if replayed is not None else ""
    return f"{size(reused)} found on disk, {size(copied)} copied{operations}"
