"""Predicted duration of a wave: from this cluster's past runs, else from published times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent, Event, NodeRecovered, Record, RestoreBegun, RunResumed
from orchestrator.model.plan import Prediction, Usual
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Instant, Seconds

NodeTimes = Mapping[NodeName, Sequence[Seconds]]
"""Seconds from stop to recovered in past runs, by node, oldest first."""

PUBLISHED: Final = Usual(
    node=Prediction(low=20.0, likely=90.0, high=600.0),
    rests_on="published times of other clusters: 96 s a node (0.90, SSD) to 10 minutes (6.x, 10 TB a node)",
)
"""For a node of Elasticsearch without past runs; a small one was seen to take 20 s."""

_RECENT: Final = 5
"""Older runs are ignored: data and machines have changed since."""


def idle_times(records: Sequence[Record]) -> tuple[tuple[Instant, Instant], ...]:
    """The start and end of each pause between two attempts at a run."""
    return tuple(
        (before.at, record.at)
        for before, record in pairwise(records)
        if isinstance(record.event, RunResumed | RestoreBegun)
    )


def whole_turns(events: Iterable[Event]) -> dict[NodeName, Seconds]:
    """Seconds from stop to recovered of each node whose turn one process saw from its stop to its recovery.

    If the process ended in between, no process has seen how long the node took: such a turn is left out.
    """
    times: dict[NodeName, Seconds] = {}
    under_way, cut = set[NodeName](), set[NodeName]()
    for event in events:
        match event:
            case ActionSent(action=StopNode(node=node)):
                under_way.add(node)
                cut.discard(node)
            case RunResumed() | RestoreBegun():
                cut |= under_way
                under_way.clear()
            case NodeRecovered(node=node, seconds=seconds):
                under_way.discard(node)
                if node not in cut:
                    times[node] = seconds
            case _:
                pass
    return times


def predict_node(name: NodeName, times: NodeTimes, usual: Usual = PUBLISHED) -> Prediction:
    """One node, from its own last restarts, else from those of its peers, else from the usual time."""
    own = list(times.get(name, ()))[-_RECENT:]
    past = own or [seconds for others in times.values() for seconds in list(others)[-_RECENT:]]
    if not past:
        return usual.node
    return Prediction(low=min(past), likely=median(past), high=2.0 * max(past))


def predict_wave(wave: Wave, times: NodeTimes, usual: Usual = PUBLISHED) -> Prediction:
    """Nodes of a wave restart at once, so the slowest decides."""
    nodes = [predict_node(name, times, usual) for name in wave.nodes]
    return Prediction(
        low=max(node.low for node in nodes),
        likely=max(node.likely for node in nodes),
        high=max(node.high for node in nodes),
    )


def rests_on(times: NodeTimes, usual: Usual) -> str:
    """The basis of predictions from these times, for people."""
    past = sum(len(list(each)[-_RECENT:]) for each in times.values())
    instead = f"; {usual.instead}" if usual.instead else ""
    if not past:
        return f"no restart of this cluster is on record; {usual.rests_on}{instead}"
    nodes = sum(bool(each) for each in times.values())
    restarts = "1 restart" if past == 1 else f"{past} restarts"
    return f"{restarts} of {nodes} of its nodes in earlier runs{instead}"


def total(predictions: Sequence[Prediction]) -> Prediction:
    """Waves go one after the other."""
    return Prediction(
        low=sum(p.low for p in predictions),
        likely=sum(p.likely for p in predictions),
        high=sum(p.high for p in predictions),
    )


def total_overlapped(predictions: Sequence[Prediction]) -> Prediction:
    """The duration of waves that may each begin while earlier waves recover.

    Between none and all of the recoveries overlap with later waves. So only the lower end changes: it is the
    longest wave. The time that a node needs to stop and start is not known apart from its recovery.
    """
    apart = total(predictions)
    longest = max((p.low for p in predictions), default=0.0)
    return Prediction(low=longest, likely=apart.likely, high=apart.high)
