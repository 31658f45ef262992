"""Progress of the merges, in bytes and segments, and the time that they should still take."""

from __future__ import annotations

from typing import Final

from orchestrator.engine.situation import Situation
from orchestrator.model.merging import BulkIndex, BulkView
from orchestrator.model.reading import Seconds

_THOUSAND: Final = 1000
_SHOWN: Final = 2
"""Indices that one line names; more would hide the figures."""


def size(count: int) -> str:
    """Bytes in decimal units, as in evidence: `512 B`, `1.2 GB`."""
    amount, units = float(count), ["B", "kB", "MB", "GB"]
    while amount >= _THOUSAND and len(units) > 1:
        amount /= _THOUSAND
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def merged_bytes(index: BulkIndex, max_segments: int) -> int:
    """Bytes of the copies that have few enough segments."""
    return sum(copy.bytes for copy in index.copies if copy.segments <= max_segments)


def seconds_left(situation: Situation, bulk: BulkView) -> Seconds | None:
    """The remaining time, at the rate since the first merge of this process; None without a rate."""
    merging, most = situation.state.merging, _most(situation)
    asked = [one.asked_at for one in merging.indices.values() if one.asked_at is not None]
    if not asked:
        return None
    done = left = 0
    for uuid, one in merging.indices.items():
        index = bulk.indices.get(uuid)
        if not one.due or index is None:
            continue
        there = index.bytes if one.ended else merged_bytes(index, most)
        left += index.bytes - there
        done += there if one.asked_at is not None else 0
    spent = situation.now - min(asked)
    return left / (done / spent) if done and spent > 0 else None


def progress(situation: Situation, bulk: BulkView) -> str:
    """The merges in progress and how far they are, in one line."""
    merging, most = situation.state.merging, _most(situation)
    due = [one for one in merging.indices.values() if one.due]
    named = []
    for one in merging.in_hand[:_SHOWN]:
        index = bulk.indices.get(one.target.index_uuid)
        if index is None:
            continue
        there = sum(copy.segments <= most for copy in index.copies)
        named.append(
            f"{index.name} ({there} of {len(index.copies)} copies, {index.segments} segments at most)"
        )
    more = len(merging.in_hand) - len(named)
    names = ", ".join(named) + (f" and {more} more" if more > 0 and named else "")
    read = [index for one in due if (index := bulk.indices.get(one.target.index_uuid)) is not None]
    there = sum(merged_bytes(index, most) for index in read)
    total = sum(index.bytes for index in read)
    ended = sum(one.ended for one in due)
    left = seconds_left(situation, bulk)
    rest = f", about {left:.0f} s left" if left is not None else ""
    return f"{names or 'merges'}; {ended} of {len(due)} indices merged, {size(there)} of {size(total)}{rest}"


def _most(situation: Situation) -> int:
    return situation.policy.merge.max_segments if situation.policy.merge else 0
