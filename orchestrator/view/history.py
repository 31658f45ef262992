"""`orchestrate history`: past runs, seconds per node over time, and the trend in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from statistics import median
from typing import Final

from rich.cells import cell_len

from orchestrator.engine.estimate import cut_turns, last_of_run, seconds_of, whole_turns
from orchestrator.engine.fold import replay
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import NodeRecovered, Record, RestoreBegun, RunFinished, RunStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.prediction import Prediction
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.work_event import IndexMerged
from orchestrator.untrusted import one_line, visible
from orchestrator.view.left_behind import unrestored_in_words
from orchestrator.view.phrases import prediction_object
from orchestrator.view.signs import sign
from orchestrator.view.text import (
    counted,
    day_and_minute,
    duration,
    listed,
    stamp,
    table,
    wrapped,
    zone_name,
)

NO_RUNS: Final = "No runs yet."
"""What is shown where no run has begun: no error."""
_COLUMNS = 6
"""Maximum of runs side by side in the table of nodes."""

_MOST_NODES = 12
"""More nodes than these are shown as signs."""
_NAMED = 3
_SLOW = 1.5
"""A node is slow if it took so many times the median of its run."""
SLOW_SIGN, TIMED_SIGN, OTHER_SIGN = (sign(name)[0] for name in ("attention", "done", "to come"))
_USUAL_WIDTH = 80
_INDENT = "  "

_NOTABLE = 0.05
"""A change of less than a twentieth is no trend."""
_ENOUGH: Final = 5
"""Earlier runs like the last one that a trend needs: the times of fewer differ by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInHistory:
    """A past or current run."""

    run: str
    cluster: str
    version: str
    strategy: str
    started: Instant
    seconds: Seconds  # of all its attempts, without the time between them
    outcome: Outcome | None  # of its last attempt; None while it is unfinished
    exit_code: int | None
    selected: int  # number of nodes to restart
    restarted: int  # number of nodes that were restarted
    node_seconds: Mapping[NodeName, Seconds]  # from each node's stop to its recovery, if one process saw both
    reason: str
    # the same of the other nodes, over several attempts and with the time between them
    cut_seconds: Mapping[NodeName, Seconds] = field(default_factory=dict)
    merged: int = 0  # number of merged indices
    to_merge: int | None = None  # number of indices to merge; None for a restart only
    # for the whole run when it began; None for an older build's run, or with merges
    predicted: Prediction | None = None
    target: str | None = None  # the version of an upgrade; None for a restart
    unwritten: bool = False  # whether its last events could not be written, so that its outcome is unknown
    reboot: bool = False  # whether it rebooted every host
    alive: bool | None = None  # whether its process runs; None if that is not known
    left: str = ""  # the changes that no run has restored, in words; empty for a run in progress
    first: str = ""  # how it ended before it was restored: `killed`; empty if it was not restored
    canary: bool = False  # whether its prediction ends at a pause (`--pause-after`), before its last nodes

    @property
    def kind(self) -> str:
        """What its nodes were down for: `upgrade`, `reboot` or `restart`."""
        return "upgrade" if self.target else "reboot" if self.reboot else "restart"

    def is_like(self, other: RunInHistory) -> bool:
        """Whether its times can be compared with another's: the same work and strategy, on the same nodes."""
        same_work = (self.kind, self.strategy) == (other.kind, other.strategy)
        return same_work and self.node_seconds.keys() == other.node_seconds.keys()

    @property
    def a_node(self) -> Seconds | None:
        """Median seconds per node, so that one node that hung for an hour has no effect."""
        return median(self.node_seconds.values()) if self.node_seconds else None


def past_run(
    records: Sequence[Record],
    outcome: Outcome | None = None,
    *,
    unwritten: bool = False,
    alive: bool | None = None,
) -> RunInHistory | None:
    """A summary of a run's journal; None if the run never began.

    Args:
        records: the journal.
        outcome: outcome of a run without an end in its journal, since another run restored its settings.
        unwritten: whether its last events could not be written.
        alive: whether its process runs; None if that is not known.
    """
    begun = next((one for one in records if isinstance(one.event, RunStarted)), None)
    if begun is None or not isinstance(begun.event, RunStarted):
        return None
    last = last_of_run(records).event
    ended = last if isinstance(last, RunFinished) else None
    forecast = begun.event.forecast
    how = ended.outcome if ended else outcome
    unrestored = how is Outcome.NOT_RESTORED if how else alive is False and not unwritten
    return RunInHistory(
        run=begun.run,
        cluster=begun.event.cluster,
        version=begun.event.version,
        strategy=begun.event.policy.strategy.value,
        started=begun.at,
        seconds=seconds_of(records),
        predicted=None if forecast is None or begun.event.indices else forecast.in_all,
        outcome=how,
        unwritten=unwritten,
        alive=alive,
        first=_before_its_restore(records, ended) if how is Outcome.RESTORED else "",
        left=unrestored_in_words(replay(begun.run, records)) if unrestored else "",
        exit_code=ended.exit_code if ended else None,
        selected=len(begun.event.nodes),
        restarted=len({one.event.node for one in records if isinstance(one.event, NodeRecovered)}),
        node_seconds=whole_turns(one.event for one in records),
        cut_seconds=cut_turns(records),
        reason=begun.event.policy.reason or "",
        target=begun.event.policy.upgrade.target if begun.event.policy.upgrade else None,
        reboot=begun.event.policy.reboot,
        canary=nodes_to_restart(begun.event) < len(begun.event.nodes),
        merged=len({one.event.index_uuid for one in records if isinstance(one.event, IndexMerged)}),
        to_merge=None if begun.event.policy.merge is None else sum(t.due for t in begun.event.indices),
    )


def _before_its_restore(records: Sequence[Record], ended: RunFinished | None) -> str:
    """How the attempt before a restore ended; `killed` for one without an end. Empty if there was none."""
    if ended is None:
        return "killed"  # another run has restored it
    restores = [
        place
        for place, one in enumerate(records)
        if isinstance(one.event, RestoreBegun) and one.event.takes_over is None
    ]
    if not restores:
        return ""
    last = last_of_run(records[: restores[-1]]).event
    before = last.outcome if isinstance(last, RunFinished) else None
    return "killed" if before is None else "" if before is Outcome.RESTORED else before.words


def history_object(runs: Sequence[RunInHistory]) -> list[dict[str, object]]:
    """One object per run for `--output json`, the oldest first; each has `run`."""
    return [
        {
            "event": "past_run",
            "run": one.run,
            "cluster": one.cluster,
            "version": one.version,
            "strategy": one.strategy,
            "kind": one.kind,
            "started": stamp(one.started),
            "seconds": round(one.seconds, 3),
            **({} if one.predicted is None else {"predicted_seconds": prediction_object(one.predicted)}),
            "outcome": one.outcome.value if one.outcome else None,
            "exit_code": one.exit_code,
            **({"unwritten": True} if one.unwritten else {}),
            **({"not_restored": one.left} if one.left else {}),
            "nodes_selected": one.selected,
            "nodes_restarted": one.restarted,
            "seconds_a_node": None if one.a_node is None else round(one.a_node, 3),
            "node_seconds": _rounded(one.node_seconds),
            **({"node_seconds_over_attempts": _rounded(one.cut_seconds)} if one.cut_seconds else {}),
            "reason": one.reason,
            **({} if one.target is None else {"target_version": one.target}),
            **(
                {}
                if one.to_merge is None
                else {"indices_to_merge": one.to_merge, "indices_merged": one.merged}
            ),
        }
        for one in runs
    ]


def _rounded(times: Mapping[NodeName, Seconds]) -> dict[NodeName, Seconds]:
    return {name: round(seconds, 3) for name, seconds in times.items()}


def history_text(
    runs: Sequence[RunInHistory], *, width: int | None = None, zone: tzinfo | None = None
) -> str:
    """Past runs as tables, a section per cluster, the oldest run first.

    Args:
        runs: of all clusters.
        width: of the terminal; None where lines are not broken.
        zone: the time zone of the reader; None for that of this machine.
    """
    if not runs:
        return f"{NO_RUNS}\n"
    sections = []
    for cluster in sorted({one.cluster for one in runs}):
        own = [one for one in runs if one.cluster == cluster]
        times = f"{cluster}, times in {zone_name(own[-1].started, zone)}"
        parts = [times, "", *_runs(own, width, zone), "", *_unknown(own), *_per_node(own, width, zone)]
        parts += [*wrapped(_OF_CUT, width), ""] if any(one.cut_seconds for one in _timed(own)) else []
        parts += [line for said in trend(own) for line in wrapped(said, width)]
        sections.append("\n".join(map(visible, parts)).rstrip())
    return "\n\n".join(sections) + "\n"


def _runs(runs: Sequence[RunInHistory], width: int | None, zone: tzinfo | None) -> list[str]:
    """A row for each run, with fewer columns on a narrow terminal: the id of a run has its date."""
    rows = [
        {
            "RUN": one.run,
            "BEGAN": day_and_minute(one.started, zone),
            "VERSION": one.version,
            "STRATEGY": one.strategy,
            "NODES": f"{one.restarted}/{one.selected}",
            "A NODE": _a_node(one),
            "TOOK": duration(one.seconds),
            "PREDICTED": _predicted(one),
            "OUTCOME": outcome_in_words(one),
            "REASON": one_line(
                "; ".join(part for part in (_upgrade(one), _merges(one), one.reason) if part), 60
            ),
        }
        for one in runs
    ]
    shown = [name for name in rows[0] if any(row[name] for row in rows)]
    drop = [name for name in _DROPPED if name in shown]
    while width is not None and drop and _least_width(shown, rows) > width:
        shown.remove(drop.pop(0))
    numbers = [place for place, name in enumerate(shown) if name in _NUMBERS]
    cells = [[row[name] for name in shown] for row in rows]
    return table(shown, cells, numbers=numbers, width=width)


def _a_node(one: RunInHistory) -> str:
    """The median; of several attempts at every node that with the time between them."""
    if one.a_node is None and one.cut_seconds:
        return f"{duration(median(one.cut_seconds.values()))}{_CUT}"
    return "-" if one.a_node is None else duration(one.a_node)


def _of_node(one: RunInHistory, name: NodeName) -> str:
    """How long a node took in a run."""
    if name in one.cut_seconds:
        return f"{duration(one.cut_seconds[name])}{_CUT}"
    return duration(one.node_seconds[name]) if name in one.node_seconds else "-"


_CUT: Final = "*"
_OF_CUT: Final = f"{_CUT} over several attempts, with the time between them; not part of any median or trend"


_NUMBERS: Final = frozenset({"NODES", "A NODE", "TOOK", "PREDICTED"})
_DROPPED: Final = ("PREDICTED", "STRATEGY", "VERSION", "A NODE", "REASON", "BEGAN", "TOOK")
"""Columns that a narrow terminal does not show, the first of them first."""
_REASON_COLUMNS: Final = 24
"""The reason is wrapped where it is wider than this."""


def _least_width(shown: Sequence[str], rows: Sequence[Mapping[str, str]]) -> int:
    widths = [max(cell_len(visible(text)) for text in (name, *(row[name] for row in rows))) for name in shown]
    last = min(widths[-1], _REASON_COLUMNS) if shown[-1] == "REASON" else widths[-1]
    return sum(width + 2 for width in widths[:-1]) + last


def outcome_in_words(one: RunInHistory) -> str:
    """How a run ended: `done`, `NOT RESTORED: 5 settings, es2`, or that it is under way."""
    if one.outcome is None and one.unwritten:
        return "unknown"
    if one.outcome is None and one.alive is None:
        return "under way or killed"
    if one.outcome is None and one.alive:
        return "under way"
    if one.outcome in (None, Outcome.NOT_RESTORED) and one.left:
        return f"NOT RESTORED: {one.left}"
    if one.outcome is None:
        return "killed, nothing to restore"
    return f"{one.first}, then {one.outcome.words}" if one.first else one.outcome.words


def _unknown(runs: Sequence[RunInHistory]) -> list[str]:
    """Why outcomes are unknown."""
    names = [one.run for one in runs if one.unwritten]
    why = "outcome unknown, the state could not be written; `status` reads the cluster"
    return [f"{why}: {listed(names)}", ""] if names else []


def _predicted(one: RunInHistory) -> str:
    """The likely duration, and by how much a run that was done took longer or shorter."""
    if one.predicted is None:
        return "-"
    likely = one.predicted.likely
    if one.outcome is not Outcome.DONE or one.canary or not likely:
        return duration(likely)
    return f"{duration(likely)} ({(one.seconds - likely) / likely:+.0%})"


def _upgrade(one: RunInHistory) -> str:
    return "" if one.target is None else f"upgrade to {one.target}"


def _merges(one: RunInHistory) -> str:
    if one.to_merge is None:
        return ""
    return f"{one.merged} of {counted(one.to_merge, 'index', 'indices')} merged"


def _timed(runs: Sequence[RunInHistory]) -> Sequence[RunInHistory]:
    """The last runs that timed a node."""
    return [one for one in runs if one.node_seconds or one.cut_seconds][-_COLUMNS:]


def _per_node(runs: Sequence[RunInHistory], width: int | None, zone: tzinfo | None) -> list[str]:
    """Each node's time in the last runs, the latest to the right. Many nodes are signs, run by run."""
    last = _timed(runs)
    names = sorted({name for one in last for name in (*one.node_seconds, *one.cut_seconds)})
    if len(names) > _MOST_NODES:
        return [*_signs(last, names, width), ""]
    if not names:
        return []
    days = [day_and_minute(one.started, zone) for one in last]
    days = (
        [day[:10] for day in days] if len({day[:10] for day in days}) == len(days) else [d[5:] for d in days]
    )
    while (
        width is not None and len(days) > 1 and max(map(len, names)) + sum(len(d) + 2 for d in days) > width
    ):
        last, days = last[1:], days[1:]
    rows = [(name, *(_of_node(one, name) for one in last)) for name in names]
    head = ("NODE", *days)
    return [*table(head, rows, numbers=range(1, len(head))), ""]


def _signs(runs: Sequence[RunInHistory], names: Sequence[NodeName], width: int | None) -> list[str]:
    """A sign for each node in the last runs, and the slowest by name."""
    across = (width or _USUAL_WIDTH) - len(_INDENT)
    key = f"{SLOW_SIGN} slow, {TIMED_SIGN} as others, {OTHER_SIGN} not timed"
    lines = wrapped(f"{counted(len(names), 'node')} in the order of their names: {key}", width)
    for one in runs:
        usual = one.a_node or 0.0
        slow = {name for name, took in one.node_seconds.items() if took > _SLOW * usual}
        signs = "".join(
            SLOW_SIGN if name in slow else TIMED_SIGN if name in one.node_seconds else OTHER_SIGN
            for name in names
        )
        longest = sorted(one.node_seconds, key=lambda name: -one.node_seconds[name])[:_NAMED]
        said = ", ".join(f"{name} {duration(one.node_seconds[name])}" for name in longest)
        lines += wrapped(f"{one.run}  slowest: {said}", width)
        lines += [_INDENT + signs[at : at + across] for at in range(0, len(signs), across)]
    return lines


def trend(runs: Sequence[RunInHistory]) -> list[str]:
    """The last run compared with earlier ones like it, and its slowest node, in words."""
    timed = [one for one in runs if one.a_node is not None]
    if not timed or timed[-1].a_node is None:
        return []
    latest = timed[-1].a_node
    earlier = timed[:-1]
    before = [one.a_node for one in earlier if one.a_node is not None and one.is_like(timed[-1])]
    lines, took = [], f"{duration(latest)} a node (median)"
    if earlier and not before:
        lines.append(
            f"last run: {took}; no earlier {timed[-1].kind} of the same nodes with"
            f" strategy {timed[-1].strategy} to compare it with"
        )
    elif before:
        usual = median(before)
        like = f"median of {counted(len(before), 'earlier run')} like it: {duration(usual)}"
        change = (latest - usual) / usual if usual else 0.0
        if len(before) < _ENOUGH:
            lines.append(f"last run: {took}; {like} (a trend needs {_ENOUGH} of them)")
        elif abs(change) < _NOTABLE:
            lines.append(f"trend: {took}, as before ({like})")
        else:
            lines.append(f"trend: {took}, {abs(change):.0%} {'slower' if change > 0 else 'faster'} ({like})")
    slowest = max(timed[-1].node_seconds, key=lambda name: timed[-1].node_seconds[name])
    lines.append(f"slowest in the last run: {slowest}, {duration(timed[-1].node_seconds[slowest])}")
    return lines
