"""`orchestrate pause` and `stop`: requests from another terminal, which the run reads between steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from orchestrator.cli import options as opt

if TYPE_CHECKING:
    from orchestrator.model.phase import Request


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pause")(pause)
    app.command("stop")(stop)


def pause(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Pause a run after its current wave or merges. Without a run, asks first."""
    from orchestrator.model.phase import Request

    return _request(
        Request.PAUSE, "pause after the current wave or merges", output, run, cluster, state, yes=yes
    )


def stop(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Stop a run: start its nodes, restore settings. Merges continue."""
    from orchestrator.model.phase import Request

    return _request(Request.STOP, "stand down now", output, run, cluster, state, yes=yes)


def _request(
    request: Request,
    words: str,
    output: opt.Output,
    run: str | None,
    cluster: str | None,
    state: str | None,
    *,
    yes: bool,
) -> int:
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import confirm_run
    from orchestrator.errors import ExitCode
    from orchestrator.runs.find_run import Wanted, find_run, leave_request
    from orchestrator.runtime.database import Access
    from orchestrator.runtime.identity import host_name

    context = context_of(output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, Access.GO_ON) as store:
        entry = find_run(store, Wanted.REQUEST, run=run, cluster=name)
        if run is None and name is None:
            confirm_run(request.name.lower(), entry, store.where, context, yes=yes)
        by = f"{context.operator}@{host_name()}"
        leave_request(store, entry, request, by=by, at=context.clock.now())
    message = (
        f"asked run {entry.run} on {entry.cluster} to {words}; `orchestrate status {entry.run}` shows it"
    )
    if context.output is opt.Output.TEXT:
        context.say(message)
    return int(context.end(ExitCode.DONE, run=entry.run, cluster=entry.cluster, message=message))
