"""`orchestrate resume`: continue a run that was stopped, paused or killed."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt

Skip = Annotated[
    list[str] | None,
    opt.by_node("--skip", "Leave out this node (repeatable)."),
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
    """Resume a stopped, paused or killed run. Its original policy applies."""
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import agrees_to_recorded, ask, require_terminal
    from orchestrator.errors import ExitCode
    from orchestrator.model.phase import Outcome
    from orchestrator.runs.attempt import exit_code
    from orchestrator.runs.find_run import Wanted, find_run
    from orchestrator.runs.recorded import past_run_of
    from orchestrator.runs.unfinished import NothingDriven, resume_run
    from orchestrator.runtime.database import Access
    from orchestrator.untrusted import visible
    from orchestrator.view.progress import left_to_do

    context = context_of(output)
    file = context.cluster(cluster) if cluster else None
    with context.state(state, Access.GO_ON) as store:
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
            left = left_to_do(past.state, without=skipped) or "0 nodes"
            ask(f"Resume run {entry.run} on {visible(entry.cluster)}, to do: {left}?", context)
        agrees = agrees_to_recorded(context, accepted=accept_recorded_commands, yes=yes)
        file = file or context.cluster(past.cluster_file)
        with context.connect(file, state, agrees) as connection:
            ended = resume_run(
                connection, store, past, retry_failed=retry_failed, skip=skipped, accept_alerts=accepted
            )
        return int(exit_code(ended))
