"""`orchestrate status`: the progress of a run, its wait and the reason, and all that is not restored.

It needs only the journal, so it works while the run writes, and after the run was killed. If the cluster was
read too (`cluster_now`), it shows which changes were restored after the last record.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engine.left_over import grouped, texts
from orchestrator.engine.memory import ProcessState
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.model.event import Record, RunStarted
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.reading import Instant
from orchestrator.untrusted import one_line, visible
from orchestrator.view.advice import advice
from orchestrator.view.cluster_now import ClusterNow, restoring_lines
from orchestrator.view.feed import Feed
from orchestrator.view.host_words import start_failures
from orchestrator.view.merge_summary import merge_object
from orchestrator.view.phrases import OUTCOMES, hold_object, hold_sentence, work_of
from orchestrator.view.progress import (
    left_to_do,
    merges_in_words,
    not_restored,
    still_recovering,
    wait_of,
)
from orchestrator.view.text import duration, listed, nodes_of, stamp, stamp_seconds

_LEFT_SHOWN = 20
"""Maximum of items that are not restored; JSON has all."""
LAST_RECORDS = 8
"""Number of last events shown."""


def status_text(
    state: RunState,
    records: Sequence[Record],
    *,
    now: Instant,
    alive: bool | None = None,
    suspended: int | None = None,
    restored: bool = False,
    cluster: ClusterNow | None = None,
) -> str:
    """The status of a run, for people.

    Args:
        state: the fold of the run's journal.
        records: the run's records.
        now: the current time.
        alive: whether its process runs; None if unknown.
        suspended: the pid of its process if it is suspended; None otherwise.
        restored: whether another run has restored its changes, which its own journal does not show.
        cluster: its changes compared with the cluster; None if they were not.
    """
    feed = Feed(state.begun.policy.kind)
    shown = [str(line) for one in records for line in feed.lines([one])][-LAST_RECORDS:]
    last = records[-1].at if records else state.in_phase.since
    lines = [
        f"run {state.run} on {state.begun.cluster}{_task(state)}: {_where(state)}",
        f"  began {_began(state, records, now)}",
        f"  last event {duration(now - last)} ago{_alive(state, alive, suspended)}",
        f"  nodes: {_nodes(state)}{_pause_after(state)}",
    ]
    merges = merges_in_words(state)
    if merges:
        lines.append(f"  merges: {merges}")
    if state.wave is not None and state.phase is not Phase.ENDED:
        inside = listed([f"{node.name} {node.phase.value}" for node in state.wave_nodes], 12)
        lines.append(f"  wave {state.wave.number}: {inside}")
    if state.recovering and state.phase is not Phase.ENDED:
        lines.append(f"  beside it: {still_recovering(state, now)}")
    failed = [node.start_failed for node in state.nodes.values() if node.start_failed is not None]
    lines += [f"  {line}" for line in start_failures(failed)]
    lines += _waiting(state, now, alive)
    if state.phase is not Phase.ENDED:  # then the message has it
        lines += _asked(state.process)
    if state.message:
        lines.append(f"  {one_line(state.message, 1000)}")
    left = () if restored else not_restored(state)
    if left and cluster is not None:
        first, *items = restoring_lines(state, cluster)
    else:
        first, items = _not_restored(len(left), alive, restored=restored), [*grouped(left)]
    lines.append(f"  {first}")
    lines += [f"    {item}" for item in items[:_LEFT_SHOWN]]
    if len(items) > _LEFT_SHOWN:
        lines.append(f"    and {len(items) - _LEFT_SHOWN} more")
    if left and cluster is not None and cluster.all_restored:
        lines += _advice(state, (), alive)
        if state.phase is Phase.ENDED or alive is False:
            lines.append(f"  to close the run: {state.command('restore')}")
    else:
        lines += _advice(state, left, alive)
    if suspended is not None and state.phase is not Phase.ENDED:
        lines.append(f"  to continue it: kill -CONT {suspended}")
        lines.append(f"  to have it stand down: kill {suspended}; kill -CONT {suspended}")
    if shown:
        lines += ["", "last events:", *(f"  {line}" for line in shown)]
    return "\n".join(map(visible, lines)) + "\n"


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


def _task(state: RunState) -> str:
    """What an upgrade is to install; empty for any other run."""
    return f", {work_of(state.begun.policy)}" if state.begun.policy.upgrade is not None else ""


def _began(state: RunState, records: Sequence[Record], now: Instant) -> str:
    """The run's begin; and that of its last attempt if there are several."""
    attempt, run = state.process.started, _run_began(state, records)
    again = f"; this attempt {stamp_seconds(attempt)}, {duration(now - attempt)} ago" if attempt > run else ""
    return f"{stamp_seconds(run)}, {duration(now - run)} ago{again}"


def _run_began(state: RunState, records: Sequence[Record]) -> Instant:
    began = (one.at for one in records if isinstance(one.event, RunStarted))
    return next(began, state.process.started)


def _asked(process: ProcessState) -> list[str]:
    lines = []
    if process.request is not Request.NONE:
        lines.append(f"  asked to {process.request.name.lower()} by {one_line(process.requested_by)}")
    if process.standing_down is not None:
        lines.append(f"  standing down: {one_line(process.standing_down.reason)}")
    return lines


def _merges(state: RunState) -> tuple[MergeProgress, ...]:
    return tuple(state.merging.indices.values())


def _where(state: RunState) -> str:
    if state.outcome is not None:
        return OUTCOMES[state.outcome]
    return state.phase.value.replace("_", " ")


def _alive(state: RunState, alive: bool | None, suspended: int | None) -> str:  # noqa: FBT001  (as above)
    if state.phase is Phase.ENDED or alive is None:
        return ""
    if suspended is not None:
        return f"; ITS PROCESS {suspended} IS SUSPENDED: nodes that are down stay down"
    return "; its process runs" if alive else "; ITS PROCESS IS GONE"


def _pause_after(state: RunState) -> str:
    """The pause of a run that still comes to it; empty otherwise."""
    count, total = nodes_to_restart(state.begun, paused=state.paused), len(state.nodes)
    coming = count < total and state.phase is not Phase.ENDED
    return f"; a pause after {nodes_of(count, total)}" if coming else ""


def _nodes(state: RunState) -> str:
    counts = []
    for phase in NodePhase:
        names = [node.name for node in state.nodes_in(phase)]
        if names:
            shown = "" if phase is NodePhase.PENDING else f" ({listed(names, 6)})"
            counts.append(f"{len(names)} {phase.value}{shown}")
    return "; ".join(counts) or ("none is restarted" if state.merging.indices else "none selected yet")


def _waiting(state: RunState, now: Instant, alive: bool | None) -> list[str]:  # noqa: FBT001  (as above)
    wait = wait_of(state, None, now)
    if wait is None:
        return []
    if alive is False:  # the process is gone: show its last wait, without a limit
        return [f"  was waiting for {wait.awaited}, since {stamp_seconds(wait.since)}"]
    limit = f", limit in {duration(wait.until - now)}" if wait.until is not None else ""
    return [
        f"  waits for {wait.awaited}: {duration(now - wait.since)}, since {stamp_seconds(wait.since)}{limit}",
        *(f"    {said}" for said in wait.troubles),
        *(f"    held by {hold_sentence(hold)}" for hold in wait.holds),
    ]


def _not_restored(number: int, alive: bool | None, *, restored: bool) -> str:  # noqa: FBT001  (as above)
    """Only the journal is read: a restore with another state file is not in it."""
    if restored:
        return "not restored: nothing; another run has restored what it changed"
    unseen = " (a restore from another state database is not shown)" if number and alive is False else ""
    return f"not restored: {number or 'nothing'}{unseen}"


def _advice(state: RunState, left: Sequence[object], alive: bool | None) -> list[str]:  # noqa: FBT001  (as above)
    """The command to continue with, if the run's process is known to do nothing more by itself."""
    over = state.phase is Phase.ENDED or alive is False
    to_do = left_to_do(state)
    if not over or not (left or to_do):
        return []
    failed = [node.name for node in state.nodes_in(NodePhase.FAILED)]
    step = advice(state.run, failed=failed, left=False, state=state.process.state)
    how = f"{step.first}continue" if step.first else "to continue"
    onwards = [f"  {how} with {to_do}: {step.command}"] if to_do else []
    if failed or not left:
        return onwards
    return [f"  to restore: {state.command('restore')}", *onwards]
