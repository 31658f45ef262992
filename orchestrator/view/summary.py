"""The summary of a run: the last lines of every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from orchestrator.engine.estimate import whole_turns
from orchestrator.engine.left_over import grouped, recorded, texts
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.progress import MAY_BE_DOWN, NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.kinds import kind_of
from orchestrator.model.action import NOT_ABSENT, StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionSent,
    Event,
    Hold,
    NodeRecovered,
    PhaseEntered,
    ReplicasRestored,
    RestoreBegun,
    RunFinished,
    RunResumed,
    SettingRestored,
    StandingDown,
    StoodDown,
    WaveStarted,
)
from orchestrator.model.phase import VERSION, NodePhase, Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.prediction import Prediction
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.work_event import StartFailed
from orchestrator.untrusted import one_line
from orchestrator.view.advice import Advice, advice
from orchestrator.view.health import health_in_words
from orchestrator.view.host_words import said_lines, together
from orchestrator.view.merge_summary import (
    copied_of,
    merge_object,
    merged_rows,
    recovers_by_operations,
    recovery_object,
    recovery_rows,
)
from orchestrator.view.phrases import hold_object, hold_sentence, prediction_object
from orchestrator.view.progress import not_restored
from orchestrator.view.signs import sign
from orchestrator.view.text import counted, duration, hung, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run at its end."""

    run: str
    cluster: str
    outcome: Outcome
    exit_code: int
    restarted: tuple[NodeName, ...]  # nodes that run again with all their copies, in the run's order
    failed: tuple[NodeName, ...]  # nodes whose restart failed
    pending: tuple[NodeName, ...]  # nodes that were not restarted
    seconds: Seconds  # of this attempt
    node_seconds: Mapping[NodeName, Seconds]  # from each node's stop to its recovery, if one process saw both
    holds: tuple[Hold, ...]
    left: tuple[str, ...]  # changes that are not restored, one item each
    message: str  # why it ended, for people; empty if there is nothing to say
    # pending nodes that run again, but whose copies are not yet confirmed
    unchecked: tuple[NodeName, ...] = ()
    # pending nodes that run again with their copies, but still need `after_recovery` hooks
    unserved: tuple[NodeName, ...] = ()
    restores: str = ""  # the run whose changes this attempt only restored; empty if it restarts nodes
    settings_restored: int = 0  # in this attempt, of settings and numbers of replicas
    # the nodes that this attempt started, and how long each was down where that is known
    started: Mapping[NodeName, Seconds | None] = field(default_factory=dict)
    back: tuple[NodeName, ...] = ()  # the nodes that this attempt, which only restores, saw to be back
    sent_starts: tuple[NodeName, ...] = ()  # the nodes that it sent a start
    resumed: bool = False  # whether this run was resumed
    restarted_now: int = 0  # number of nodes that were restarted in this attempt
    merges: tuple[MergeProgress, ...] = ()  # the indices of the run, in its order; empty for a restart alone
    recovered: tuple[NodeRecovered, ...] = ()  # figures of the nodes that this process saw recover
    by_operations: bool = False  # whether this server's copies recover by operations
    kind: Kind = Kind.ELASTICSEARCH  # kind of cluster, which has its own words
    simulated: bool = False  # the run is a rehearsal, which cannot be resumed
    next: Advice | None = None  # what a person does next; None for nothing
    replaced_by: str = ""  # the run that took over; empty if none did
    down_now: tuple[NodeName, ...] = ()  # nodes that the run stopped and that are not seen to run
    before: tuple[str, ...] = ()  # what was restored of other runs before this one began
    page: str = ""  # the file with its report; empty if it has none
    # what was predicted for the whole run at its beginning; None where there are merges
    predicted: Prediction | None = None
    # settings that were absent and cannot be absent again, with the value written
    no_longer_absent: tuple[str, ...] = ()
    target: str = ""  # the version that an upgrade installs; empty for any other run
    not_upgraded: tuple[NodeName, ...] = ()  # nodes that still need it, or a step of it
    start_failures: tuple[StartFailed, ...] = ()  # why nodes did not start
    down: StandingDown | None = None  # why it stood down, with which `message` begins; None if it did not
    left_lines: tuple[str, ...] = ()  # the same for people, without the nodes that failed
    health: str = ""  # that of the cluster before and after; empty if it was green, or is not known


_NOTHING: Final[Mapping[NodeName, Instant]] = {}


def summary(
    state: RunState,
    outcome: Outcome,
    events: Sequence[Event],
    now: Instant,
    *,
    before: Sequence[str] = (),
    stopped: Mapping[NodeName, Instant] = _NOTHING,
    page: str = "",
    simulated: bool = False,
) -> Summary:
    """The end of a run, from its last state and the events that this process committed.

    Args:
        state: the last one.
        outcome: how it ended.
        events: those of earlier attempts first.
        now: the end, where no event has it.
        before: what was restored of other runs before this one began.
        stopped: when another run, whose changes this one restores, stopped its nodes.
        page: the file that its report is written to.
        simulated: whether it is a rehearsal.
    """
    finished = next((event for event in reversed(events) if isinstance(event, RunFinished)), None)
    stood_down = next((event for event in reversed(events) if isinstance(event, StoodDown)), None)
    names: dict[NodePhase, list[NodeName]] = {}
    for node in state.nodes.values():
        names.setdefault(node.phase, []).append(node.name)
    restarted = tuple(names.get(NodePhase.RECOVERED, []))
    failed = tuple(names.get(NodePhase.FAILED, []))
    skipped = names.get(NodePhase.SKIPPED, [])
    handled = {*restarted, *failed, *skipped}
    left = recorded(state, stood_down.left) if stood_down and stood_down.left else not_restored(state)
    # A node whose wave is finished has its copies; it is not RECOVERED until its hooks have run.
    checked = {name for name, node in state.nodes.items() if node.undo}
    checked -= {node.name for node in (*state.wave_nodes, *state.recovering_nodes)}
    back = names.get(NodePhase.REJOINED, [])
    attempt = _last_attempt(events)
    deposed, restores = state.process.deposed, state.process.restoring
    return Summary(
        run=state.run,
        cluster=state.begun.cluster,
        outcome=outcome,
        exit_code=finished.exit_code if finished else outcome.exit_code,
        restarted=restarted,
        failed=failed,
        pending=tuple(name for name in state.nodes if name not in handled),
        seconds=finished.seconds if finished else max(0.0, now - state.process.started),
        node_seconds=whole_turns(events),
        holds=state.in_phase.holds or (state.process.held_by if outcome is Outcome.HELD else ()),
        left=texts(left),
        left_lines=grouped([one for one in left if one.name not in failed]),
        message=(finished.message if finished else "") or state.message,
        down=state.process.standing_down,
        unchecked=tuple(name for name in back if name not in checked),
        unserved=tuple(name for name in back if name in checked),
        restores=(state.begun.repairs or state.run) if restores else "",
        settings_restored=len({_restored_by(event) for event in attempt} - {None}),
        started=_started(state, events, attempt, stopped) if restores else {},
        back=tuple(node.name for node in _came_back(state, attempt)) if restores else (),
        sent_starts=tuple(_starts(attempt, ActionSent)) if restores else (),
        resumed=any(isinstance(event, _AGAIN) for event in events),
        restarted_now=sum(isinstance(event, NodeRecovered) for event in attempt),
        health="" if restores else health_in_words(events),
        merges=tuple(state.merging.indices.values()),
        recovered=tuple(event for event in events if isinstance(event, NodeRecovered)),
        by_operations=recovers_by_operations(state.begun.version, state.begun.distribution),
        kind=state.begun.policy.kind,
        predicted=state.begun.forecast.in_all if state.begun.forecast and not state.begun.indices else None,
        target=state.begun.policy.upgrade.target if state.begun.policy.upgrade else "",
        next=advice(state, outcome=outcome, run="RUN" if simulated else ""),
        replaced_by=deposed.successor if deposed is not None else "",
        down_now=tuple(node.name for node in state.nodes_in(*MAY_BE_DOWN)),
        before=tuple(before),
        page=page if any(isinstance(event, WaveStarted) for event in events) else "",
        simulated=simulated,
        not_upgraded=tuple(node.name for node in state.nodes.values() if VERSION in node.owed),
        start_failures=tuple(node.start_failed for node in state.nodes.values() if node.start_failed),
        no_longer_absent=tuple(
            dict.fromkeys(
                f"{event.key} = {event.value}"
                for event in events
                if isinstance(event, SettingRestored) and event.note == NOT_ABSENT
            )
        ),
    )


def _restored_by(event: Event) -> object:
    """What an event says to be restored; None for an event that says nothing of that."""
    match event:
        case SettingRestored():
            return event.key, event.level
        case ReplicasRestored():
            return event.index_uuid
        case _:
            return None


def _started(
    state: RunState, events: Sequence[Event], attempt: Sequence[Event], stopped: Mapping[NodeName, Instant]
) -> dict[NodeName, Seconds | None]:
    """The nodes that this attempt started, and how long each was down where that is known.

    A start does nothing to a node that runs. So it is the cause only if the process was seen to be gone
    before, or if no other start of it was sent since its stop.
    """
    earlier = _starts(events[: len(events) - len(attempt)], ActionSent)
    accepted, found = _starts(attempt, ActionConfirmed), dict[NodeName, Seconds | None]()
    for node in _came_back(state, attempt):
        at = stopped.get(node.name, None if node.name in earlier else node.stopped_at)
        if accepted.get(node.name, False) or (at is not None and node.name in accepted):
            whole = at is not None and node.phase is NodePhase.REJOINED
            found[node.name] = max(0.0, node.since - at) if whole and at is not None else None
    return found


def _starts(events: Sequence[Event], kind: type[ActionSent | ActionConfirmed]) -> Mapping[NodeName, bool]:
    """The nodes with an event of this kind about a start, and whether the process was seen to be gone."""
    found: dict[NodeName, bool] = {}
    for event in events:
        if isinstance(event, kind) and isinstance(event.action, StartNode):
            found[event.action.node] = found.get(event.action.node, False) or event.action.counts
    return found


def _came_back(state: RunState, attempt: Sequence[Event]) -> list[NodeProgress]:
    """The nodes that were seen to be back in this attempt, and still are."""
    names = (event.node for event in attempt if isinstance(event, PhaseEntered) and event.to in _BACK)
    nodes = [state.nodes[name] for name in dict.fromkeys(names) if name is not None]
    return [node for node in nodes if node.phase.value in _BACK]


_BACK: Final = frozenset({NodePhase.REJOINED.value, NodePhase.RECOVERED.value})
_AGAIN: Final = (RunResumed, RestoreBegun)
"""The events with which a later attempt at a run begins."""


def _last_attempt(events: Sequence[Event]) -> Sequence[Event]:
    """The events of the last attempt: those of a process that resumed a run include earlier attempts."""
    begins = [place for place, event in enumerate(events) if isinstance(event, _AGAIN)]
    return events[begins[-1] :] if begins else events


def summary_object(end: Summary) -> dict[str, object]:
    """The summary as a JSON object.

    A finished restore is `done` here: it has no separate outcome.
    """
    outcome = Outcome.DONE if end.outcome is Outcome.RESTORED else end.outcome
    return {
        "event": "summary",
        "outcome": outcome.value,
        "exit_code": int(end.exit_code),
        "cluster": end.cluster,
        "nodes_restarted": len(end.restarted),
        "restarted": list(end.restarted),
        "failed": list(end.failed),
        "pending": list(end.pending),
        "seconds": round(end.seconds, 3),
        **({} if end.predicted is None else {"predicted_seconds": prediction_object(end.predicted)}),
        "node_seconds": {name: round(seconds, 3) for name, seconds in end.node_seconds.items()},
        "holds": [hold_object(hold) for hold in end.holds],
        "left": list(end.left),
        "message": end.message,
        **_start_failures_object(end),
        **_merges_object(end),
    }


def _start_failures_object(end: Summary) -> dict[str, object]:
    """Why nodes did not start; empty if all did."""
    failures = [{"node": one.node, "why": one.why, "said": list(one.said)} for one in end.start_failures]
    return {"start_failures": failures} if failures else {}


def _merges_object(end: Summary) -> dict[str, object]:
    """Additional lines of a run after a bulk load; empty for a restart only."""
    if not end.merges:
        return {}
    return {
        "nothing_to_do": False,
        "indices_merged": sum(one.due and one.ended for one in end.merges),
        "merges": [merge_object(one) for one in end.merges],
        "recovery": recovery_object(end.recovered, by_operations=end.by_operations),
    }


def refusal_object(message: str, exit_code: ExitCode) -> dict[str, object]:
    """The summary of a command refused before a run began: usage, lease, an outdated plan."""
    return {
        "event": "summary",
        "outcome": "refused",
        "exit_code": int(exit_code),
        "nodes_restarted": 0,
        "seconds": 0.0,
        "holds": [],
        "left": [],
        "message": message,
    }


# For people ------------------------------------

_SHOWN: Final = (8, 3, 1)
"""Maxima of rows of a kind: the first with which the end fits. JSON and the report have all."""
_SMALL, _LARGE, _FEW = 24, 40, 12
"""Lines of a screen for a few nodes, for more, and how many are few."""
_REASON: Final = 120
"""Characters of a reason, for each row of a kind, of which it has two at least."""
_COLUMN: Final = 14
"""Columns of the labels; the name of a node may be longer."""
_NAMED: Final = 3
_WIDEST: Final = 79
"""Columns into which several short facts are put, where the output is no terminal."""
_GAP: Final = " " * 4
_GOOD: Final = frozenset({Outcome.DONE, Outcome.RESTORED, Outcome.PAUSED})
VERDICTS: Final = {True: sign("done")[0], False: sign("failed")[0]}
"""The first character of an end: of a good one, and of any other."""
Row = tuple[str, str]
"""A label and its text; a row without a label belongs to the one before."""


def summary_lines(end: Summary, width: int | None = None) -> list[str]:
    """The end of a run for people: the verdict, what it left, and as the last line the command to type.

    It fits a screen: of long lists the first few are shown.

    Args:
        end: of the run.
        width: columns of the terminal; None where lines are not broken.
    """
    few = len(end.restarted) + len(end.failed) + len(end.pending) <= _FEW
    lines: list[str] = []
    for most in _SHOWN:
        lines = _lines(end, width, most)
        if len(lines) <= (_SMALL if few else _LARGE):
            break
    return lines


def _lines(end: Summary, width: int | None, most: int) -> list[str]:
    """The same with at most so many rows of a kind."""
    rows = [
        *_causes(end, most),
        *_cut([("NOT RESTORED", item) for item in end.left_lines], most),
        *_facts(end, width),
        *_merged(end, most),
        *(("First", said) for said in end.before),
        *([("Run", end.run)] if end.restores != end.run else []),
        *([("Report", end.page)] if end.page else []),
    ]
    column = min(_COLUMN, max([8, *(len(label) for label, _ in rows)]))
    lines = hung(f"{VERDICTS[end.outcome in _GOOD]} {end.cluster or 'run'}: ", headline(end), width)
    for label, text in rows:
        lines += hung(f"  {label:<{column}}  ", text, width)
    if end.next is None:
        return lines
    return [*lines, *end.next.lines(width, column=column, simulated=end.simulated)]


def headline(end: Summary) -> str:
    """What was done, in how long, and how it ended."""
    code = "" if end.exit_code == 0 else f" (code {int(end.exit_code)})"
    if end.restores:
        return _restore_in_words(end, code)
    if end.down is not None and end.down.never_began and end.outcome is Outcome.HELD:
        return f"not begun: what holds it does not pass by waiting{code}"
    took = f"in {duration(end.seconds)}"
    done = f"{_how_many(end)} {took}{_forecast(end)}"
    if end.outcome is Outcome.DONE:
        return f"{done}, with a warning" if end.message or end.no_longer_absent else done
    return f"{done}, then {_ending(end)}{code}"


def _ending(end: Summary) -> str:
    if end.outcome is Outcome.FAILED and end.failed:
        return f"{listed(end.failed, _NAMED)} failed"
    if end.outcome is Outcome.DEPOSED and end.replaced_by not in ("", end.run):
        return f"run {end.replaced_by} took over"
    return _ENDINGS[end.outcome]


_ENDINGS: Final = {
    **{one: one.words for one in Outcome},
    Outcome.FAILED: "it stood down",
    Outcome.NOT_RESTORED: "ended NOT RESTORED",
    Outcome.DEPOSED: "another process took over",
}
"""How a run that restarts nodes ended, after what it had done by then."""


def restored_in_words(end: Summary) -> str:
    """What an attempt restored: `5 settings as before; es2 started (it was down for 2m 32s)`."""
    parts = [f"{counted(end.settings_restored, 'setting')} as before"] if end.settings_restored else []
    if end.started:
        down = next(iter(end.started.values())) if len(end.started) == 1 else None
        known = "" if down is None else f" (it was down for {duration(down)})"
        parts.append(f"{listed(end.started)} started{known}")
    for sent, also in ((False, ", not started by this restore"), (True, "")):
        back = [name for name in end.back if name not in end.started]
        if names := [name for name in back if (name in end.sent_starts) is sent]:
            parts.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} in the cluster{also}")
    return "; ".join(parts)


def _restore_in_words(end: Summary, code: str) -> str:
    after, done = f"after run {end.restores}", restored_in_words(end)
    if end.outcome in _GOOD:
        return f"restored {after}: {done or 'nothing was left to restore'}"
    how = f"{listed(end.failed, _NAMED)} failed" if end.failed else _ENDINGS[end.outcome]
    return f"restore {after}: {f'{done}; then ' if done else ''}{how}{code}"


def _how_many(end: Summary) -> str:
    """Indices and nodes; of a resumed run, how many nodes in this attempt."""
    total = len(end.restarted) + len(end.failed) + len(end.pending)
    due = [one for one in end.merges if one.due]
    merged = f"{sum(one.ended for one in due)} of {counted(len(due), 'index', 'indices')} merged"
    parts = [merged] if end.merges else []
    if total or not parts:
        turned = f"upgraded to {end.target}" if end.target else "restarted"
        now = f", {end.restarted_now} of them in this attempt," if end.resumed else ""
        again = f" ({listed(end.unchecked, _NAMED)} stopped and started again)" if end.unchecked else ""
        parts.append(f"{len(end.restarted)} of {counted(total, 'node')} {turned}{now}{again}")
    return ", ".join(parts)


def _forecast(end: Summary) -> str:
    """What was predicted of a run that one attempt has done."""
    if end.predicted is None or end.outcome is not Outcome.DONE or end.resumed:
        return ""
    return f" (predicted {duration(end.predicted.low)} to {duration(end.predicted.high)})"


def _cut(rows: Sequence[Row], most: int) -> list[Row]:
    """Rows of one kind; those beyond the limit are counted."""
    more = [("", f"and {len(rows) - most} more")] if len(rows) > most else []
    return [*rows[:most], *more]


def _causes(end: Summary, most: int) -> list[Row]:
    """Why it ended: the nodes that failed with what they said, the holds, and the reason."""
    rows: list[Row] = []
    down = end.down if end.holds else None  # the holds already say it
    named = down is not None and (down.names_hold or down.never_began or end.message.startswith("held for "))
    if end.message and not named:
        label, why = _reason(end)
        rows.append((label, one_line(why, _REASON * max(2, most))))
    failures = [one for _, one in together(end.start_failures)]
    for failed in failures[:most]:
        if (failed.node,) != end.failed:
            rows.append((failed.node, f"the service did not start: {one_line(failed.why)}"))
        rows += [("", line) for line in said_lines(failed)[-max(1, most // len(failures)) :]]
    if len(failures) > most:
        rows.append(("", f"and {len(failures) - most} more"))
    return [*rows, *_cut([("Held by", hold_sentence(hold, ways=False)) for hold in end.holds], most)]


def _reason(end: Summary) -> Row:
    """The reason; that of the only node that failed, behind its name."""
    if end.outcome is Outcome.DONE:
        return "Warning", end.message
    if len(end.failed) == 1:
        name = end.failed[0]
        for begins in (f"{name} failed: ", f"{name}: ", f"{name} "):
            if end.message.startswith(begins):
                return name, end.message.removeprefix(begins)
    return "Why", end.message


def _facts(end: Summary, width: int | None) -> list[Row]:
    """Short facts, several in a line."""
    facts: list[Row] = []
    if end.outcome is Outcome.DEPOSED:
        facts.append(("Settings", "are left to the run that took over"))
    elif not end.left_lines and not (end.restores and end.outcome in _GOOD):
        facts += [("Settings", _settings(end)), ("Nodes down", _down(end))]
    if not end.restores:
        facts += _pending(end)
        facts += [("Health", end.health)] if end.health else []
        facts += _copied(end)
        facts += _times(end)
    rows: list[Row] = []
    for label, text in facts:
        fact = f"{label}  {text}"
        room = min(width or _WIDEST, _WIDEST) - 12
        if rows and len(rows[-1][0]) + len(rows[-1][1]) + len(_GAP) + len(fact) <= room:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]}{_GAP}{fact}")
        else:
            rows.append((label, text))
    return rows


def _settings(end: Summary) -> str:
    if not end.no_longer_absent:
        return "as before"
    what = "could not be unset, so the effective value is written"
    return f"as before, except {listed(end.no_longer_absent)} ({what})"


def _down(end: Summary) -> str:
    """Of a node that failed it is only known if its service ended."""
    ended = {name for one in end.start_failures for name in (one.node,)}
    sure = [name for name in end.down_now if name in ended]
    perhaps = [name for name in end.down_now if name not in ended]
    parts = [listed(sure)] if sure else []
    parts += [f"perhaps {listed(perhaps)}"] if perhaps else []
    return ", ".join(parts) or "none"


def _pending(end: Summary) -> list[Row]:
    untouched = [name for name in end.pending if name not in (*end.unchecked, *end.unserved)]
    rows: list[Row] = []
    if end.target and end.not_upgraded:
        rows.append(("Not upgraded", listed(end.not_upgraded)))
    elif untouched:
        rows.append(("Not restarted", listed(untouched)))
    if end.unchecked:
        rows.append(("Not checked", f"{listed(end.unchecked)}: {kind_of(end.kind).words.unchecked}"))
    if end.unserved:
        rows.append(("Hooks", f"{listed(end.unserved)}: restarted, after_recovery hooks not done"))
    return rows


def _copied(end: Summary) -> list[Row]:
    """What the restarted nodes copied of all that they hold; a run with merges says it for each node."""
    total = copied_of(end.recovered)
    return [] if end.merges or not total else [("Copied", total)]


def _times(end: Summary) -> list[Row]:
    if not end.node_seconds:
        return []
    slowest = max(end.node_seconds, key=lambda name: end.node_seconds[name])
    worst = duration(end.node_seconds[slowest])
    if len(end.node_seconds) == 1:
        return [("A node", worst)]
    return [("A node", f"median {duration(median(end.node_seconds.values()))}, slowest {slowest} {worst}")]


def _merged(end: Summary, most: int) -> list[Row]:
    if not end.merges:
        return []
    copied = recovery_rows(end.recovered, by_operations=end.by_operations, most=most)
    return [*merged_rows(end.merges, most), *copied]
