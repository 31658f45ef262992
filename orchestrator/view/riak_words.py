"""What a run on Riak says in words of its own: of vnodes and handoff, not of copies and allocation."""

from __future__ import annotations

from orchestrator.model.event import BaselineRecorded, Event, NodeRecovered, SecondFailure
from orchestrator.view.units import counted, duration, one_line


def of_riak(event: Event) -> str | None:
    """What is told otherwise of Riak, which has vnodes and hand-offs where others have copies."""
    match event:
        case BaselineRecorded(incarnations=incarnations):
            return f"baseline: {counted(len(incarnations), 'node')} up"
        case NodeRecovered(node=node, seconds=seconds):
            return f"{node}: back with all its vnodes after {duration(seconds)}; nothing waits for handoff"
        case SecondFailure(what=what):
            return f"second failure: {one_line(what)}; ours are started, limits are put back, no new wave"
        case _:
            return None
