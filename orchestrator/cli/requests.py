"""`orchestrate pause` and `stop`: asked from another terminal, heeded by the run between its steps."""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.surroundings import Surroundings, surroundings
from orchestrator.errors import ExitCode
from orchestrator.model.phase import Request
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import host_name, operator_name
from orchestrator.runtime.runs import Wanted, find_run, leave_request
from orchestrator.runtime.store import open_store

_WORDS: Final = {Request.PAUSE: "pause after the wave or the merges in hand", Request.STOP: "stand down now"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pause")(pause)
    app.command("stop")(stop)


def pause(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.NeverAsks = True,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Let a run finish the wave or the merges in hand and then pause. Never asks."""
    del yes
    return _ask(Request.PAUSE, surroundings(output), run, cluster, state)


def stop(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.NeverAsks = True,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Let a run stand down now: nodes up, settings back; a merge goes on by itself. Never asks."""
    del yes
    return _ask(Request.STOP, surroundings(output), run, cluster, state)


def _ask(
    request: Request, around: Surroundings, run: str | None, cluster: str | None, state: str | None
) -> int:
    name = around.cluster(cluster).spec.name if cluster else None
    store = open_store(state, around.environment, access=Access.GO_ON, home=around.home)
    try:
        entry = find_run(store, Wanted.REQUEST, run=run, cluster=name)
        by = f"{operator_name(around.environment)}@{host_name()}"
        leave_request(store, entry, request, by=by, at=around.clock.now())
    finally:
        store.close()
    message = (
        f"asked run {entry.run} on {entry.cluster} to {_WORDS[request]}; "
        f"`orchestrate status {entry.run}` shows it"
    )
    if around.output is opt.Output.TEXT:
        around.say(message)
    return int(around.end(ExitCode.DONE, run=entry.run, cluster=entry.cluster, message=message))
