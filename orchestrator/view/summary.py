"""The summary of a run: the last lines of every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from orchestrator.engine.estimate import whole_turns
from orchestrator.engine.left_over import grouped, recorded, texts
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.model.action import NOT_ABSENT
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    COULD_NOT_FINISH,
    Event,
    Hold,
    NodeRecovered,
    RestoreBegun,
    RunFinished,
    RunResumed,
    SettingRestored,
    StandingDown,
    StoodDown,
)
from orchestrator.model.phase import VERSION, NodePhase, Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.prediction import Prediction
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.work_event import StartFailed
from orchestrator.view.advice import advice
from orchestrator.view.host_words import start_failures
from orchestrator.view.merge_summary import (
    merge_object,
    merged_lines,
    recovers_by_operations,
    recovery_lines,
    recovery_object,
)
from orchestrator.view.phrases import (
    OUTCOMES,
    hold_object,
    hold_sentence,
    prediction_object,
    prediction_words,
)
from orchestrator.view.progress import not_restored
from orchestrator.view.text import counted, duration, listed


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
    left: tuple[str, ...]  # changes that are not restored, one item each; `left_lines`: the same for people
    message: str  # what to do next, for people
    # pending nodes that run again, but whose copies are not yet confirmed
    unchecked: tuple[NodeName, ...] = ()
    # pending nodes that run again with their copies, but still need `after_recovery` hooks
    unserved: tuple[NodeName, ...] = ()
    repairs: bool = False  # whether the run only restored the settings of another run
    resumed: bool = False  # whether this run was resumed
    restarted_now: int = 0  # number of nodes that were restarted in this attempt
    merges: tuple[MergeProgress, ...] = ()  # the indices of the run, in its order; empty for a restart alone
    recovered: tuple[NodeRecovered, ...] = ()  # figures of the nodes that this process saw recover
    by_operations: bool = False  # whether this server's copies recover by operations
    kind: Kind = Kind.ELASTICSEARCH  # kind of cluster, which has its own words
    simulated: bool = False  # the run is a rehearsal, which cannot be resumed
    # what was predicted for the whole run at its beginning; None where there are merges
    predicted: Prediction | None = None
    # settings that were absent and cannot be absent again, with the value written
    no_longer_absent: tuple[str, ...] = ()
    target: str = ""  # the version that an upgrade installs; empty for any other run
    not_upgraded: tuple[NodeName, ...] = ()  # nodes that still need it, or a step of it
    start_failures: tuple[StartFailed, ...] = ()  # why nodes did not start
    refused: bool = False  # whether the cluster refused its credentials at the end
    down: StandingDown | None = None  # why it stood down, with which `message` begins; None if it did not
    state: str = ""  # the state database, as after `--state`; empty for the usual place
    left_lines: tuple[str, ...] = ()


def summary(state: RunState, outcome: Outcome, events: Sequence[Event], now: Instant) -> Summary:
    """The end of a run, from its last state and the events that this process committed."""
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
        left_lines=grouped(left),
        message=(finished.message if finished else "") or state.message,
        down=state.process.standing_down,
        unchecked=tuple(name for name in back if name not in checked),
        unserved=tuple(name for name in back if name in checked),
        repairs=state.begun.repairs is not None,
        resumed=any(isinstance(event, _AGAIN) for event in events),
        restarted_now=sum(isinstance(event, NodeRecovered) for event in _last_attempt(events)),
        merges=tuple(state.merging.indices.values()),
        recovered=tuple(event for event in events if isinstance(event, NodeRecovered)),
        by_operations=recovers_by_operations(state.begun.version, state.begun.distribution),
        kind=state.begun.policy.kind,
        predicted=state.begun.forecast.in_all if state.begun.forecast and not state.begun.indices else None,
        target=state.begun.policy.upgrade.target if state.begun.policy.upgrade else "",
        state=state.process.state,
        refused=state.process.refused is not None,
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


_NOT_SEEN: Final = {
    Kind.ELASTICSEARCH: "their copies not seen to be back yet",
    Kind.RIAK: "not seen to be done with handoff yet",
}
"""Lines about nodes that run again and that the run did not wait for at its end."""


def summary_lines(end: Summary) -> list[str]:
    """The end of a run for people: outcome, counts, duration, and what to do about the rest."""
    lines = [f"{end.cluster or 'run'}: {OUTCOMES[end.outcome]}", f"  {_how_many(end)}"]
    if end.node_seconds:
        slowest = max(end.node_seconds, key=lambda name: end.node_seconds[name])
        usual, worst = median(end.node_seconds.values()), duration(end.node_seconds[slowest])
        lines.append(f"  {duration(usual)} a node (median); slowest {slowest} with {worst}")
    lines += _forecast(end)
    if end.merges:
        lines += [f"  {line}" for line in merged_lines(end.merges)]
        lines += [f"  {line}" for line in recovery_lines(end.recovered, by_operations=end.by_operations)]
    if end.failed:
        lines.append(f"  failed: {listed(end.failed)}")
    lines += [f"  {line}" for line in start_failures(end.start_failures)]
    untouched = [name for name in end.pending if name not in (*end.unchecked, *end.unserved)]
    if end.unchecked and not end.repairs:
        lines.append(f"  restarted, {_NOT_SEEN[end.kind]}: {listed(end.unchecked)}")
    if end.unserved and not end.repairs:
        lines.append(f"  restarted, and their after_recovery hooks are not done: {listed(end.unserved)}")
    if end.target and end.not_upgraded and not end.repairs:
        lines.append(f"  not upgraded to {end.target}: {listed(end.not_upgraded)}")
    elif untouched and not end.repairs:
        lines.append(f"  not restarted: {listed(untouched)}")
    lines += [f"  held by {hold_sentence(hold)}" for hold in end.holds]
    lines += [f"  NOT RESTORED: {item}" for item in end.left_lines or end.left]
    if end.no_longer_absent:
        lines.append(f"  {NOT_ABSENT}: {listed(end.no_longer_absent)}")
    down = end.down if end.holds else None  # the holds already say it
    if down is not None and down.never_began:
        lines.append(f"  {COULD_NOT_FINISH}")
    elif end.message and not (down is not None and down.names_hold):
        lines.append(f"  {end.message}")
    run, there = ("RUN", "a real run would be continued by: ") if end.simulated else (end.run, "")
    step = advice(run, failed=end.failed, left=bool(end.left), refused=end.refused, state=end.state)
    if end.left or (end.failed and end.repairs):
        purpose = f"{step.first}{'repair' if step.restores else 'continue'}: "
        lines.append(f"  {there or purpose}{step.command}")
    elif (end.pending or end.failed or _merges_left(end)) and not end.repairs:
        held = end.outcome is Outcome.HELD and end.holds
        first = "correct what holds it, then " if held else ""
        first = step.first or ("repair the cause, then " if end.outcome is Outcome.FAILED else first)
        if held and not end.failed and any(hold.ways for hold in end.holds):
            lines.append("  this run keeps its policy: begin another run, with what the hold names")
        else:
            lines.append(f"  {there or f'{first}continue: '}{step.command}")
            lines += [f"  {_KEEPS}"] if held else []
    return lines


def _forecast(end: Summary) -> list[str]:
    """What was predicted of a run that one attempt has done."""
    if end.predicted is None or end.outcome is not Outcome.DONE or end.resumed:
        return []
    return [f"  predicted: {prediction_words(end.predicted)}"]


_KEEPS: Final = "it keeps its policy: a change of the playbook, of `expect` or of an option needs another run"
"""After the command that continues a held run: not everything that a hold names can be changed in it."""


def _merges_left(end: Summary) -> bool:
    return any(one.pending or one.in_progress for one in end.merges)


def _how_many(end: Summary) -> str:
    """Nodes, and the duration of this attempt: a resumed run has earlier attempts."""
    ending = f"exit code {int(end.exit_code)}, run {end.run}"
    if end.repairs:
        return f"restored in {duration(end.seconds)}, {ending}"
    if end.merges and not (end.restarted or end.failed or end.pending):
        return f"no node was to be restarted; {duration(end.seconds)}, {ending}"
    total = counted(len(end.restarted) + len(end.failed) + len(end.pending), "node")
    turned = f"upgraded to {end.target}" if end.target else "restarted"
    if end.resumed:
        done = f"{len(end.restarted)} of {total} {turned}, {end.restarted_now} of them in this attempt"
        return f"{done}, which took {duration(end.seconds)}; {ending}"
    return f"{len(end.restarted)} of {total} {turned} in {duration(end.seconds)}, {ending}"
