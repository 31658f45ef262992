"""What runs did: one run as a page, JSON or CSV, and the times of past runs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Tabular
from orchestrator.cli.work.status import none_yet
from orchestrator.config.gates import secrets_of
from orchestrator.engine.fold import replay
from orchestrator.errors import ExitCode, OrchestratorError
from orchestrator.model.event import Record, RunStarted
from orchestrator.model.phase import Outcome
from orchestrator.redact import Redactor, cleaned
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.past_runs import Wanted, find_run, histories, is_alive
from orchestrator.runs.report import clean_for, facts_of_run, page_of, write_page
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.untrusted import visible
from orchestrator.view.history import NO_RUNS, history_object, history_text, past_run
from orchestrator.view.node_times import node_lines
from orchestrator.view.report.facts import as_json, rows_of
from orchestrator.view.status import Reader, status_text
from orchestrator.view.summary import summary, summary_lines


def show_report(
    run: str | None,
    *,
    html: Path | None,
    cluster: str | None,
    output: Tabular,
    state: str | None,
    writes: bool = True,
) -> int:
    """Show a run: its nodes and its end, or its figures. Writes its page. Returns the exit code.

    Args:
        run: which one; None for the newest.
        html: the page.
        cluster: whose runs are meant; None for those of all clusters.
        output: text, or figures.
        state: where the runs are recorded.
        writes: whether the page is written without `html` too, beside the state.

    Raises:
        UsageError: there is no such run.
        ConfigError: the page cannot be written.
    """
    context = context_of(output.of_messages)
    if run is None and cluster is None and none_yet(context, state):
        return _no_runs(context, output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, DatabaseUse.READ) as store:
        newest = store.runs(cluster=name, limit=1) if run is None else ()
        entry = newest[0] if newest else find_run(store, Wanted.SHOW, run=run, cluster=name)
        records = store.replay(entry.run)
        redact = redactor(context, store, records, cluster)
        alive = is_alive(entry) if entry.outcome is None else None
        outcome = entry.outcome.value if entry.outcome else None
        now = context.clock.now() if alive else None
        facts = facts_of_run(entry.run, records, redact, outcome=outcome, now=now, alive=alive)
        figures = output in (Tabular.JSON, Tabular.CSV)
        path = html or (page_of(store, entry.run) if writes and not figures else None)
    if path is not None:
        from orchestrator.view.report.page import run_page  # noqa: PLC0415  (JSON and CSV need no templates)

        write_page(path, run_page(facts), folder=path.parent if html is None else None)
    if not figures:
        clean, end = clean_for(redact), _end(entry, records, context, alive=alive)
        context.say(*node_lines(facts, context.columns), *(clean(line) for line in end))
    if path is not None:
        _say_path(path, context, output)
    if output is Tabular.JSON:
        context.say_json(as_json(facts), run=entry.run)
    elif output is Tabular.CSV:
        _say_csv(as_json(rows_of(facts)), context)
    return int(context.end(ExitCode.DONE, run=entry.run))


def _end(
    entry: RunEntry, records: Sequence[Record], context: Context, *, alive: bool | None
) -> Sequence[str]:
    """The end of a run as it was shown then; the status of one without an end in its journal."""
    state = replay(entry.run, records)
    if state.outcome is not None:
        events = [record.event for record in records]
        return summary_lines(summary(state, state.outcome, events, records[-1].at), context.columns)
    restored, reader = entry.outcome is Outcome.RESTORED, Reader(width=context.columns)
    now = context.clock.now()
    return status_text(state, records, now=now, alive=alive, restored=restored, reader=reader).splitlines()


def show_history(cluster: str | None, *, html: Path | None, output: Tabular, state: str | None) -> int:
    """Show past runs. Returns the exit code.

    Raises:
        UsageError: there is none.
        ConfigError: the page cannot be written.
    """
    context = context_of(output.of_messages)
    if cluster is None and none_yet(context, state):
        return _no_runs(context, output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, DatabaseUse.READ) as store:
        past = histories(store, cluster=name)
        runs = [
            found
            for entry, records in past
            if (found := past_run(records, entry.outcome, unwritten=entry.unwritten, alive=is_alive(entry)))
        ]
        if not runs:
            find_run(store, Wanted.SHOW, cluster=name)  # none to show is an error, as for `status`
        if html is not None:
            from orchestrator.view.report.page import history_page  # noqa: PLC0415  (only a page needs templates)

            redact = redactor(context, store, [one for _, records in past for one in records[:1]], cluster)
            links = _links(store, html, [one.run for one in runs])
            write_page(html, history_page(cleaned(history_object(runs), clean_for(redact)), links))
            _say_path(html, context, output)
    if output is Tabular.JSON:
        for line in history_object(runs):
            context.say_json(line)
    elif output is Tabular.CSV:
        _say_csv(_rows(history_object(runs)), context)
    elif html is None:
        context.say(*history_text(runs, width=context.columns).splitlines())
    return int(context.end(ExitCode.DONE, runs=len(runs)))


def _no_runs(context: Context, output: Tabular) -> int:
    if output is Tabular.TEXT:
        context.say(NO_RUNS)
    return int(context.end(ExitCode.DONE, runs=0))


def redactor(context: Context, store: StateStore, records: Iterable[Record], cluster: str | None) -> Redactor:
    """Removes the secrets that the cluster file and the gates of these runs name, as far as they can be read.

    The files that a shared state names are left alone: another account may have named them.
    """
    redact = Redactor()
    begun = [one.event for one in records if isinstance(one.event, RunStarted)]
    files = replace(context.files, warn=lambda _warning: None)
    named = {cluster} if cluster else set() if store.shared else {one.cluster_file for one in begun} - {""}
    for name in sorted(named):
        with suppress(OrchestratorError):  # the page of a run can be read after its cluster file is gone
            ports = FilePorts(files.hosts(name), files, context.clock, redact)
            ports.learn_secrets(one for each in begun for one in secrets_of(each.policy))
    return redact


def _links(store: StateStore, html: Path, runs: Iterable[str]) -> dict[str, str]:
    """The pages of runs that have one, as addresses from the page of past runs."""
    found: dict[str, str] = {}
    for run in runs:
        with suppress(OrchestratorError):
            page = page_of(store, run)
            if page.exists():
                found[run] = quote(os.path.relpath(page, html.resolve().parent))
    return found


def _say_path(path: Path, context: Context, output: Tabular) -> None:
    say = context.note if output in (Tabular.JSON, Tabular.CSV) else context.say
    say(f"report: {path}")


def _rows(runs: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Past runs as rows of a table: one for each node that was timed, one for a run without any."""
    found = list[dict[str, object]]()
    for run in runs:
        of_run = {name: value for name, value in run.items() if name in _OF_RUN}
        times = run["node_seconds"] if isinstance(run["node_seconds"], Mapping) else {}
        found += [{**of_run, "node": node, "node_seconds": took} for node, took in times.items()]
        found += [] if times else [{**of_run, "node": None, "node_seconds": None}]
    return found


_OF_RUN = ("run", "cluster", "version", "strategy", "kind", "started", "outcome", "seconds", "seconds_a_node")


def _say_csv(rows: Sequence[Mapping[str, object]], context: Context) -> None:
    """Write rows with the names of their columns. No cell is a formula for a spreadsheet."""
    table = io.StringIO()
    if rows:
        writer = csv.DictWriter(table, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    context.say(*table.getvalue().splitlines())


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    text = visible(value) if isinstance(value, str) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@")) else text
