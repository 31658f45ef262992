"""The commands that begin, continue, end and show runs: their signatures are the command lines.

Quick to load, for help and completion: what a command needs is imported where it begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt

if TYPE_CHECKING:
    from orchestrator.runs.connection import Connection
    from orchestrator.runs.past_runs import PastRun
    from orchestrator.runtime.store import RunEntry, StateStore


@opt.takes_groups
def restart(
    *,
    cluster: opt.Cluster,
    dry_run: opt.DryRun = False,
    steps: opt.Steps = False,
    playbook: opt.Playbook = None,
    selection: opt.SelectionOptions,
    begin: opt.Begin,
) -> int:
    """Restart every node in waves. Cluster settings are restored afterwards.

    For example, restart the nodes of zone b together, without es7:

        orchestrate restart --cluster prod --strategy zone --zone b --exclude es7
    """
    from orchestrator.cli.prompts import start

    return start(cluster, selection, begin, dry_run=dry_run, steps=steps, playbook=playbook)


@opt.takes_groups
def upgrade(
    *,
    cluster: opt.Cluster,
    to: opt.To,
    dry_run: opt.DryRun = False,
    steps: opt.Steps = False,
    playbook: opt.Playbook = None,
    selection: opt.SelectionOptions,
    begin: opt.Begin,
) -> int:
    """Install a version on every node, in waves. Nodes that run the version already are left alone.

    The playbook has the commands that install it (`upgrade.install`).

    For example, install 9.1.0 on 2 nodes, then pause:

        orchestrate upgrade --cluster prod --to 9.1.0 --pause-after 2
    """
    from orchestrator.cli.prompts import start

    return start(cluster, selection, begin, dry_run=dry_run, steps=steps, playbook=playbook, to=to)


@opt.takes_groups
def post_bulk_index(
    *,
    cluster: opt.Cluster,
    index: opt.Index,
    max_segments: opt.MaxSegments = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Restart the nodes after the merges, or not.")
    ] = True,
    allow_writes: opt.AllowWrites = False,
    dry_run: opt.DryRun = False,
    steps: opt.Steps = False,
    playbook: opt.Playbook = None,
    selection: opt.SelectionOptions,
    begin: opt.Begin,
) -> int:
    """Force-merge loaded indices, then restart the nodes. Waits for their copies first. Can be run again.

    For example, merge the indices posts-* to at most 3 segments per copy, then restart the nodes:

        orchestrate post-bulk-index --cluster prod --index 'posts-*' --max-segments 3
    """
    from orchestrator.cli.prompts import start
    from orchestrator.config.merging import MergeFlags

    merge = MergeFlags(patterns=tuple(index), max_segments=max_segments, allow_writes=allow_writes)
    return start(
        cluster,
        selection,
        begin,
        dry_run=dry_run,
        steps=steps,
        playbook=playbook,
        merge=merge,
        restarts=restart,
    )


@opt.takes_groups
def force_merge(
    *,
    cluster: opt.Cluster,
    index: opt.Index,
    max_segments: opt.MaxSegments = None,
    allow_writes: opt.AllowWrites = False,
    dry_run: opt.DryRun = False,
    steps: opt.Steps = False,
    playbook: opt.Playbook = None,
    disable_predicate: opt.DisablePredicate = None,
    timeout: opt.Timeout = None,
    begin: opt.Begin,
) -> int:
    """Force-merge indices to a few segments per copy. Restarts nothing.

    For example, merge the indices logs-2026.10.* and audit to 1 segment per copy:

        orchestrate force-merge --cluster prod --index 'logs-2026.10.*,audit' --max-segments 1
    """
    from orchestrator.cli.prompts import start
    from orchestrator.config.merging import MergeFlags

    merge = MergeFlags(patterns=tuple(index), max_segments=max_segments, allow_writes=allow_writes)
    selection = opt.SelectionOptions(tune=False, disable_predicate=disable_predicate, timeout=timeout)
    return start(
        cluster,
        selection,
        begin,
        dry_run=dry_run,
        steps=steps,
        playbook=playbook,
        merge=merge,
        restarts=False,
    )


@opt.takes_groups
def plan(
    *,
    cluster: opt.Cluster,
    to: opt.OptionalTo = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `apply`.")] = None,
    playbook: opt.Playbook = None,
    selection: opt.SelectionOptions,
    reason: opt.Reason = None,
    steps: opt.Steps = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show the waves of a restart or an upgrade. Changes nothing. Exits 3 if a predicate would hold it.

    For example, save the plan of a restart of all nodes but es7 in plan.json:

        orchestrate plan --cluster prod --exclude es7 --out plan.json
    """
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import note_beforehand, prepared_run, show_plan
    from orchestrator.runs.files import require_place, save_plan
    from orchestrator.view.plan import plan_object

    context = context_of(output)
    file = context.cluster(cluster)
    if out is not None:
        require_place(out, "plan")
    overrides = selection.overrides(reason=reason, to=to)
    with prepared_run(context, file, playbook=playbook, overrides=overrides, state=state) as prepared:
        note_beforehand(prepared, context)
        made = prepared.plan()
        if out is not None:
            save_plan(
                out,
                plan_object(made),
                prepared.started.policy,
                cluster_file=str(file.path.resolve()),
                access=prepared.access,
            )
        code = show_plan(made, context, steps=steps, restores=prepared.left is not None)
        if out is not None:
            context.note(f"saved to {out}; `{context.command('apply', str(out), state=state)}` runs it")
        return int(code)


def apply(
    saved: Annotated[Path, typer.Argument(metavar="PLAN.JSON", help="A plan saved by `plan --out`.")],
    steps: opt.Steps = False,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Run a saved plan. Exits 7 if it no longer fits the cluster.

    For example, run the plan in plan.json without a question:

        orchestrate apply plan.json --yes
    """
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import confirm, end_without_nodes, require_terminal
    from orchestrator.runs.attempt import RestoreFailed, exit_code
    from orchestrator.runs.files import load_plan
    from orchestrator.runs.prepare import prepare_saved

    context = context_of(output)
    loaded = load_plan(saved)
    look = context.command("plan", "--cluster", loaded.cluster_file, state=state)
    if not yes:
        require_terminal(context, look)
        context.require_state(state)
    with context.connect(context.ports(context.cluster(loaded.cluster_file)), state) as connection:
        prepared, made = prepare_saved(connection, loaded, asks=not yes)
        if prepared.not_due:
            try:
                prepared = prepared.restored(agreed=made)
            except RestoreFailed as failed:
                return int(exit_code(failed.state))
            return end_without_nodes(prepared, context)
        if not yes:
            confirm(prepared, made, context, look, steps=steps)
        return int(exit_code(prepared.run(made)))


Skip = Annotated[
    list[str] | None,
    opt.by_node("--skip", "Leave out these nodes (repeatable)."),
]
AcceptAlert = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-alert",
        help="Continue although this alert fires: its name, or all that the gate shows of it (repeatable).",
        metavar="ALERT",
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Start failed nodes again, after they were repaired.")
]


def resume(
    run: opt.Run = None,
    retry_failed: RetryFailed = False,
    skip: Skip = None,
    accept_alert: AcceptAlert = None,
    cluster: opt.AnyCluster = None,
    accept_recorded_commands: opt.AcceptRecorded = False,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Resume a stopped, paused or killed run. Its original policy applies.

    For example, resume the unfinished run without es7, which is still broken:

        orchestrate resume --skip es7
    """
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import agrees_to_recorded, ask, require_terminal
    from orchestrator.errors import ExitCode
    from orchestrator.model.phase import Outcome
    from orchestrator.runs.attempt import exit_code
    from orchestrator.runs.past_runs import Wanted, find_run, past_run_of
    from orchestrator.runs.unfinished import NothingDriven, resume_run
    from orchestrator.runtime.database import DatabaseUse
    from orchestrator.untrusted import visible
    from orchestrator.view.progress import left_to_do

    context = context_of(output)
    file = context.cluster(cluster) if cluster else None
    with context.state(state, DatabaseUse.CONTINUE) as store:
        entry = find_run(store, Wanted.RESUME, run=run, cluster=file.spec.name if file else None)
        if entry.outcome is Outcome.DONE:
            message = f"run {entry.run} is over: it ended done, so there is nothing to resume"
            done = NothingDriven(code=ExitCode.DONE, message=message, cluster=entry.cluster, run=entry.run)
            return context.ended(done)
        past = past_run_of(store, entry)
        skipped = past.require_nodes(skip or ())
        accepted = past.require_alerts(accept_alert or ())
        failed = [name for name in past.failed if name not in skipped]
        if failed and not retry_failed:
            context.warn(
                f"{', '.join(failed)} failed: --retry-failed starts them again, --skip NODE leaves them out"
            )
        if not yes:
            require_terminal(context, store.command("status", entry.run))
            past.require_free(store)
            left = left_to_do(past.state, without=skipped) or "0 nodes"
            ask(f"Resume run {entry.run} on {visible(entry.cluster)}, to do: {left}?", context)
        agrees = agrees_to_recorded(context, accepted=accept_recorded_commands, yes=yes)
        ports = context.ports(file or context.cluster(past.cluster_file))
        with context.connect(ports, state, agrees) as connection:
            ended = resume_run(
                connection, store, past, retry_failed=retry_failed, skip=skipped, accept_alerts=accepted
            )
        return int(exit_code(ended))


InServiceNodes = Annotated[
    list[str] | None,
    opt.by_node(
        "--in-service",
        "With --cluster: an operator has put these nodes into service (repeatable).",
    ),
]


def restore(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    playbook: opt.Playbook = None,
    in_service: InServiceNodes = None,
    accept_recorded_commands: opt.AcceptRecorded = False,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restore settings, and start nodes that a run left down.

    Stops no node. Without RUN and --cluster, it shows the run that it found, and asks. With --cluster it
    needs no state: it then uses the record that the run left in the cluster. If hooks of that run took nodes
    out of service, name its playbook (--playbook).

    For example, restore what a dead run left on prod, without its state:

        orchestrate restore --cluster prod
    """
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import agrees_to_recorded, ask, confirm_run, has_terminal
    from orchestrator.runs.past_runs import RunPassed
    from orchestrator.runs.takeover import InService
    from orchestrator.runs.unfinished import restore_meant

    context = context_of(output)
    file = context.cluster(cluster) if cluster else None

    agrees = agrees_to_recorded(context, accepted=accept_recorded_commands, yes=yes)

    def reach(past: PastRun | None) -> Connection:
        to = file or context.cluster(past.cluster_file if past else "")
        return context.connect(context.ports(to), state, agrees)

    def confirm(entry: RunEntry, store: StateStore) -> None:
        confirm_run("restore", entry, store, context, yes=yes)

    def ended(run: str | None) -> int:
        return context.ended(
            restore_meant(
                lambda access: context.open_state(state, access),
                reach,
                run=run,
                cluster=file.spec.name if file else None,
                serving=InService(playbook=playbook, by_hand=in_service or ()),
                confirm=confirm,
            )
        )

    try:
        return ended(run)
    except RunPassed as passed:
        if yes or not has_terminal(context):
            raise
        context.note(*passed.lines)
        ask(f"Restore run {passed.entry.run}?", context)
        return ended(passed.entry.run)


def pause(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Pause a run after its current wave or merges. Without a run, asks first.

    For example, pause the run on prod:

        orchestrate pause --cluster prod
    """
    from orchestrator.cli.prompts import request
    from orchestrator.model.phase import Request

    return request(Request.PAUSE, run, cluster=cluster, yes=yes, output=output, state=state)


def stop(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Stop a run: start its nodes, restore settings. Merges continue.

    For example, stop the run on prod:

        orchestrate stop --cluster prod
    """
    from orchestrator.cli.prompts import request
    from orchestrator.model.phase import Request

    return request(Request.STOP, run, cluster=cluster, yes=yes, output=output, state=state)


def status(
    run: opt.Run = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update the display until the run ends.")] = False,
    cluster: opt.AnyCluster = None,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show the progress of a run, and what it waits for.

    If a run is killed, or ended without restoring all its changes, status also reads the cluster, for at most
    3 s: each change is shown with the value that the cluster has now. Changes nothing.

    For example, watch the run on prod until it ends:

        orchestrate status --cluster prod --watch
    """
    from orchestrator.cli.work.status import show_status

    return show_status(run, watch=watch, cluster=cluster, output=output, state=state)


Shown = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Show one run: its id, the beginning or the last part of it. Default: a list of all runs.",
        autocompletion=completion.runs,
    ),
]


def history(
    run: Shown = None,
    cluster: opt.AnyCluster = None,
    html: opt.Html = None,
    output: opt.TabularMode = opt.Tabular.TEXT,
    state: opt.State = None,
) -> int:
    """Show past runs and their time per node, or one of them.

    --html writes a page with the seconds per node over time, by version, which links the pages of the runs.
    With RUN the output is that of `report`; its page is written with --html alone.

    For example, write the page runs.html about past runs on prod:

        orchestrate history --cluster prod --html runs.html
    """
    from orchestrator.cli.work.report import show_history, show_report

    if run is not None:
        return show_report(run, html=html, cluster=cluster, output=output, state=state, writes=False)
    return show_history(cluster, html=html, output=output, state=state)


Reported = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Id of the run, its beginning or its last part. Default: the newest run.",
        autocompletion=completion.runs,
    ),
]


def report(
    run: Reported = None,
    html: opt.Html = None,
    cluster: opt.AnyCluster = None,
    output: opt.TabularMode = opt.Tabular.TEXT,
    state: opt.State = None,
) -> int:
    """Show one run, node by node, and write its page.

    The page has a timeline, the health of the cluster, the time and the data of each node, what held the run,
    settings and commands: one file without scripts and requests. Without --html it is in the folder `reports`
    beside the state, where a run with a wave writes it at its end. With --output json or csv and without
    --html, only the figures are printed. Changes nothing else.

    For example, write the page run.html about the run whose id ends in r3cn:

        orchestrate report r3cn --html run.html
    """
    from orchestrator.cli.work.report import show_report

    return show_report(run, html=html, cluster=cluster, output=output, state=state)


Listen = Annotated[
    str,
    typer.Option(
        "--listen", help="Address and port. One that is not loopback needs --token.", metavar="HOST:PORT"
    ),
]
Host = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        help="Further names by which the server is called, behind a proxy (repeatable).",
        metavar="NAME,…",
        callback=opt.separated,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", help="What every request has to carry: env:NAME or file:PATH.", metavar="REFERENCE"
    ),
]


def serve(
    listen: Listen = "127.0.0.1:8765",
    host: Host = None,
    token: Token = None,
    cluster: opt.AnyCluster = None,
    state: opt.State = None,
) -> int:
    """Serve live pages of runs to browsers.

    Changes nothing, and needs no cluster: what is shown is what runs have recorded. A browser asks for the
    token as a password; programs send it as `Authorization: Bearer TOKEN`. Ends with Ctrl-C.

    For example, serve pages at 0.0.0.0:8765 to programs and people who have the token of
    file:/etc/orchestrate/token:

        orchestrate serve --listen 0.0.0.0:8765 --token file:/etc/orchestrate/token
    """
    from orchestrator.cli.work.serve import serve_pages

    return serve_pages(listen, hosts=tuple(host or ()), token=token, cluster=cluster, state=state)
