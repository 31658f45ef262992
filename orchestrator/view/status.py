"""`orchestrate status`: the progress of a run, its wait and the reason, and all that is not restored.

It needs only the journal, so it works while the run writes, and after the run was killed. If the cluster was
read too (`cluster_now`), it shows which changes were restored after the last record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from io import StringIO
from itertools import groupby
from operator import attrgetter

from rich.cells import cell_len
from rich.console import Console

from orchestrator.engine.left_over import texts
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.reading import Instant, Seconds
from orchestrator.untrusted import one_line, visible
from orchestrator.view.above import Above, AboveLine
from orchestrator.view.advice import advice, closing
from orchestrator.view.cluster_now import ClusterNow, changes_in_words, restoring_lines
from orchestrator.view.feed import Feed
from orchestrator.view.host_words import start_failures
from orchestrator.view.left_behind import unrestored_in_words
from orchestrator.view.merge_summary import merge_object
from orchestrator.view.panel import inside
from orchestrator.view.phrases import hold_object, hold_sentence
from orchestrator.view.progress import (
    merges_in_words,
    not_restored,
    restarted_in_words,
    still_recovering,
    wait_of,
)
from orchestrator.view.screen import Screen, asked_in_words, titles, troubles
from orchestrator.view.signs import SIGNS
from orchestrator.view.text import (
    day_and_minute,
    duration,
    listed,
    stamp,
    time_of_day,
    wrapped,
    zone_name,
)
from orchestrator.view.turns import Turns, in_words

_LEFT_SHOWN = 20
"""Maximum of items that are not restored; JSON has all."""
LAST_RECORDS = 4
"""Number of last events shown."""
_WIDTH = 100
"""Columns of a status that is shown on no terminal."""
_LABEL = 12
_DAY: Seconds = 12 * 3600.0
"""An event that is older has its date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Where a status is read."""

    width: int | None = None  # columns of the terminal; None for a pipe or a file
    zone: tzinfo | None = None  # time zone; None for that of this machine


def status_text(
    state: RunState,
    records: Sequence[Record],
    *,
    now: Instant,
    alive: bool | None = None,
    suspended: int | None = None,
    restored: bool = False,
    cluster: ClusterNow | None = None,
    reader: Reader = Reader(),
) -> str:
    """The status of a run, for people: what the live view shows, the last events, and what to do at the end.

    Args:
        state: the fold of the run's journal.
        records: the run's records.
        now: the current time.
        alive: whether its process runs; None if unknown.
        suspended: the pid of its process if it is suspended; None otherwise.
        restored: whether another run has restored its changes, which its own journal does not show.
        cluster: its changes compared with the cluster; None if they were not.
        reader: where it is read.
    """
    going = state.phase is not Phase.ENDED and alive is not False and not restored
    parts = [
        _head(state, records, now, _process(state, records, now, alive, suspended), reader),
        _view(state, records, now, reader) if going else _stopped(state, records, now, reader),
        _unrestored(state, restored=restored, cluster=cluster, reader=reader, lives=going),
        _end(state, suspended, going=going, restored=restored, cluster=cluster, width=reader.width),
    ]
    room = max(2, _FITS - sum(len(part) + 1 for part in parts if part))
    parts.insert(3, _last_events(state, records, now, reader, room))
    return "\n\n".join("\n".join(map(visible, part)) for part in parts if part) + "\n"


_FITS = 23
"""Lines of a usual terminal above its next prompt: the last events take what is left of them."""


def _head(
    state: RunState, records: Sequence[Record], now: Instant, process: str, reader: Reader
) -> list[str]:
    """What the run is, when it began, and whether its process runs. The zone is that of all times."""
    began, attempt = _run_began(state, records), state.process.started
    zone = zone_name(began, reader.zone)
    first_day = day_and_minute(began, reader.zone)
    whose = [f" by {one_line(who, 80)}" for who in _people(records)] or [""]
    since = f"began {first_day} {zone}{whose[0]}, {duration(now - began)} ago"
    if attempt > began:
        again = day_and_minute(attempt, reader.zone).removeprefix(first_day[: -len("HH:MM")])
        by = whose[-1] if whose[-1] != whose[0] else ""
        since += f"; this attempt {again}{by}, {duration(now - attempt)} ago"
    # The first words of a line are the program's own: no name of a cluster can look like another line.
    forms = [f"run {state.run} on {' · '.join(parts)}" for parts in titles(state)]
    title = next((form for form in forms if cell_len(form) <= (reader.width or _WIDTH)), forms[0])
    urgent = process[:1].isupper()
    first = [title, since, process] if urgent else [title, "; ".join(filter(None, (since, process)))]
    return [line for text in first for line in wrapped(text, reader.width)]


def _people(records: Sequence[Record]) -> list[str]:
    """Who began each attempt: `ann@bastion`."""
    begins = (one.event for one in records)
    return [
        f"{event.operator}@{event.host}"
        for event in begins
        if isinstance(event, RunStarted | RunResumed | RestoreBegun)
    ]


def _process(
    state: RunState,
    records: Sequence[Record],
    now: Instant,
    alive: bool | None,  # noqa: FBT001  (as `status_text`)
    suspended: int | None,
) -> str:
    """Whether the process of a run runs, and when it was heard of last."""
    ago = f" {duration(now - records[-1].at)} ago" if records else ""
    if state.phase is Phase.ENDED:
        return f"ended{ago}" if ago else ""
    if alive is False:
        return f"KILLED{ago}: its process is gone"
    if suspended is not None:
        return f"ITS PROCESS {suspended} IS SUSPENDED: nodes that are down stay down"
    said = "its process runs" if alive else "whether its process runs is not known here"
    return f"last event{ago}; {said}" if ago else said


def _view(state: RunState, records: Sequence[Record], now: Instant, reader: Reader) -> list[str]:
    """The lines of the live view, without its border."""
    screen = Screen(state, None, now=now, turns=Turns(records), zone=reader.zone)
    width = (reader.width or _WIDTH) - len(_INDENT)
    out = StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False)
    console.print(inside(screen, width, height=_FITS))
    lines = [f"{_INDENT}{line}".rstrip() for line in out.getvalue().splitlines()]
    return [*lines, *_start_failures(state)]


_INDENT = "  "


def _stopped(state: RunState, records: Sequence[Record], now: Instant, reader: Reader) -> list[str]:
    """A run that no process continues: how far it came, and where it was."""
    rows = [("Ended", state.outcome.words)] if state.outcome is not None else []
    if state.nodes and state.begun.repairs is None:
        rows.append(("Restarted", restarted_in_words(state)))
    if merges := merges_in_words(state):
        rows.append(("Merges", merges))
    by_step: dict[str, list[str]] = {}
    for node in state.nodes_in(*_ON_THE_WAY):
        by_step.setdefault(in_words(state, node), []).append(node.name)
    rows += [("Last step", f"{listed(names, 6)}: {step}") for step, names in by_step.items()]
    if state.recovering and state.phase is not Phase.ENDED:
        rows.append(("Beside", still_recovering(state, records[-1].at if records else now)))
    wait = wait_of(state, None, now)
    if wait is not None:
        rows.append(("It waited", f"for {one_line(wait.awaited)}"))
        rows += [("", f"held by {hold_sentence(hold)}") for hold in wait.holds]
    if asked := asked_in_words(state):
        rows.append(("Asked", asked))
    lines = [line for label, text in rows for line in _row(label, text, reader.width)]
    for trouble in troubles(state):
        lines += wrapped(one_line(trouble), reader.width, first="! ", then="  ")
    for line in _start_failures(state):
        text = line.lstrip()
        lines += wrapped(text, reader.width, first=line[: len(line) - len(text)])
    if state.message:
        lines += _row("Why", one_line(state.message, _LONGEST), reader.width)
    return lines


_ON_THE_WAY = tuple(phase for phase in NodePhase if phase not in (NodePhase.PENDING, NodePhase.RECOVERED))


def _row(label: str, text: str, width: int | None) -> list[str]:
    return wrapped(text, width, first=f"{label:<{_LABEL}}", then=" " * _LABEL)


def _start_failures(state: RunState) -> list[str]:
    failed = [node.start_failed for node in state.nodes.values() if node.start_failed is not None]
    return [f"{_INDENT}{line}" for line in start_failures(failed)]


def _unrestored(
    state: RunState, *, restored: bool, cluster: ClusterNow | None, reader: Reader, lives: bool
) -> list[str]:
    """The changes that no run restores. A run in progress shows its own in its view."""
    left, width = () if restored else not_restored(state), reader.width
    if lives and cluster is None:
        return []
    if restored:
        return _row("Restored", "another run has restored what it changed", width)
    if not left:
        return _row("Restored", "nothing is left", width)
    if cluster is not None:
        first, *items = restoring_lines(state, cluster, lives=lives, zone=reader.zone)
    else:
        unseen = "" if state.phase is Phase.ENDED else " (a restore from another state database is not shown)"
        first, items = f"NOT RESTORED: {unrestored_in_words(state)}{unseen}", changes_in_words(state)
    lines = wrapped(first, width)
    for item in items[:_LEFT_SHOWN]:
        lines += wrapped(item, width, first="  ")
    more = len(items) - _LEFT_SHOWN
    return [*lines, *([f"  and {more} more"] if more > 0 else [])]


def _last_events(
    state: RunState, records: Sequence[Record], now: Instant, reader: Reader, room: int
) -> list[str]:
    """The last events that the view does not show, in so many lines; at least one."""
    kind, turns = state.begun.policy.kind, Turns()
    above, found = Above(Feed(kind), turns, kind), deque[AboveLine](maxlen=LAST_RECORDS)
    for _, together in groupby(records, key=attrgetter("at")):
        step = list(together)
        for record in step:
            turns.see(record)
        found.extend(above.lines(step))
    lines: list[str] = []
    for one in reversed(found):
        time = (day_and_minute if now - one.at > _DAY else time_of_day)(one.at, reader.zone)
        sign = SIGNS[one.sign][0] if one.sign else " "
        first = f"{_INDENT}{time} {sign} "
        event = wrapped(one_line(one.text, _LONGEST), reader.width, first=first, then=" " * len(first))
        if lines and len(lines) + len(event) >= room:
            break
        lines = [*event, *lines]
    return ["Last events", *lines] if lines else []


_LONGEST = 1000


def _end(
    state: RunState,
    suspended: int | None,
    *,
    going: bool,
    restored: bool,
    cluster: ClusterNow | None,
    width: int | None,
) -> list[str]:
    """What a person can do now. The last line is a command."""
    if going and suspended is not None:
        return [
            f"to continue it: kill -CONT {suspended}",
            f"to have it stand down: kill {suspended}; kill -CONT {suspended}",
        ]
    if going:
        return [f"to follow it: {state.command('status')} --watch", f"to end it: {state.command('stop')}"]
    left = () if restored else not_restored(state)
    if left and cluster is not None and cluster.all_restored:
        return (advice(state, restored=True) or closing(state)).lines(width, column=_LABEL - 2, margin="")
    first = (
        ["a new restart of this cluster restores it first"] if left and state.begun.repairs is None else []
    )
    step = advice(state, restored=restored)
    return [*first, *([] if step is None else step.lines(width, column=_LABEL - 2, margin=""))]


def status_object(
    state: RunState,
    records: Sequence[Record],
    *,
    now: Instant,
    alive: bool | None = None,
    restored: bool = False,
    cluster: ClusterNow | None = None,
) -> dict[str, object]:
    """The status as an object for `--output json`, which begins with `ts` and `run`."""
    wait = wait_of(state, None, now)
    return {
        "event": "status",
        "cluster": state.begun.cluster,
        "version": state.begun.version,
        "phase": state.phase.value,
        "phase_since": stamp(state.in_phase.since),
        "run_started": stamp(_run_began(state, records)),
        "started": stamp(state.process.started),
        "seconds": round(max(0.0, now - state.process.started), 3),
        "alive": alive,
        "outcome": state.outcome.value if state.outcome else None,
        "wave": {"number": state.wave.number, "zone": state.wave.zone, "nodes": list(state.wave.nodes)}
        if state.wave and state.phase is not Phase.ENDED
        else None,
        "recovering": [
            {"number": one.wave.number, "zone": one.wave.zone, "nodes": list(one.wave.nodes)}
            for one in state.recovering
        ],
        "nodes": {
            node.name: {
                "phase": node.phase.value,
                "since": stamp(node.since),
                "failure": node.failure,
                **({"said": list(said)} if (said := node.start_failed and node.start_failed.said) else {}),
            }
            for node in state.nodes.values()
        },
        "waiting_for": wait.awaited if wait else None,
        "waiting_since": stamp(wait.since) if wait else None,
        "waiting_until": stamp(wait.until) if wait and wait.until is not None else None,
        "holds": [hold_object(hold) for hold in state.in_phase.holds],
        **(wait.trouble_objects if wait else {}),
        "request": state.process.request.name.lower(),
        "standing_down": down.reason if (down := state.process.standing_down) else None,
        "not_put_back": [] if restored else list(texts(not_restored(state))),
        **({} if cluster is None else {"unwritten": cluster.unwritten, "cluster_now": cluster.as_object()}),
        "last_sequence": records[-1].sequence if records else None,
        "last_event_at": stamp(records[-1].at) if records else None,
        "message": state.message,
        **({"merges": [merge_object(one) for one in merges]} if (merges := _merges(state)) else {}),
    }


def _run_began(state: RunState, records: Sequence[Record]) -> Instant:
    began = (one.at for one in records if isinstance(one.event, RunStarted))
    return next(began, state.process.started)


def _merges(state: RunState) -> tuple[MergeProgress, ...]:
    return tuple(state.merging.indices.values())
