"""`orchestrate pause` and `stop`: asked from another terminal, heeded by the run between its steps."""

from __future__ import annotations

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.surroundings import surroundings
from orchestrator.errors import ExitCode
from orchestrator.model.phase import Request
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import host_name, operator_name
from orchestrator.runtime.runs import Wanted, find_run, leave_request
from orchestrator.runtime.store import open_store


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pause")(pause)
    app.command("stop")(stop)


def pause(
    run: opt.Run = None, cluster: opt.AnyCluster = None, yes: opt.NeverAsks = True, state: opt.State = None
) -> int:
    """Let a run finish the wave in hand and then pause. Never asks."""
    del yes
    return _ask(Request.PAUSE, "pause after the wave in hand", run, cluster, state)


def stop(
    run: opt.Run = None, cluster: opt.AnyCluster = None, yes: opt.NeverAsks = True, state: opt.State = None
) -> int:
    """Let a run stand down now: nodes up, settings back. Never asks."""
    del yes
    return _ask(Request.STOP, "stand down now", run, cluster, state)


def _ask(request: Request, what: str, run: str | None, cluster: str | None, state: str | None) -> int:
    around = surroundings(opt.Output.TEXT)
    name = around.cluster(cluster).spec.name if cluster else None
    store = open_store(state, around.environment, access=Access.WRITE, home=around.home)
    try:
        entry = find_run(store, Wanted.REQUEST, run=run, cluster=name)
        by = f"{operator_name(around.environment)}@{host_name()}"
        leave_request(store, entry, request, by=by, at=around.clock.now())
    finally:
        store.close()
    around.out.write(
        f"asked run {entry.run} on {entry.cluster} to {what}; `orchestrate status {entry.run}` shows it\n"
    )
    return int(ExitCode.DONE)
