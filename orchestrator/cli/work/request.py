"""A request to a run in another terminal: pause or stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import confirm_run
from orchestrator.errors import ExitCode
from orchestrator.model.phase import Request
from orchestrator.runs.find_run import Wanted, find_run, leave_request
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import host_name

_WORDS: Final[Mapping[Request, str]] = {
    Request.PAUSE: "pause after the current wave or merges",
    Request.STOP: "stand down now",
}


def leave(
    request: Request, run: str | None, *, cluster: str | None, yes: bool, output: Output, state: str | None
) -> int:
    """Write the request into the state, where the run finds it. Returns the exit code."""
    context = context_of(output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, Access.GO_ON) as store:
        entry = find_run(store, Wanted.REQUEST, run=run, cluster=name)
        if run is None and name is None:
            confirm_run(request.name.lower(), entry, store.where, context, yes=yes)
        by = f"{context.operator}@{host_name()}"
        leave_request(store, entry, request, by=by, at=context.clock.now())
    message = (
        f"asked run {entry.run} on {entry.cluster} to {_WORDS[request]}; "
        f"`orchestrate status {entry.run}` shows it"
    )
    if context.output.for_people:
        context.say(message)
    return int(context.end(ExitCode.DONE, run=entry.run, cluster=entry.cluster, message=message))
