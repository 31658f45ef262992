"""`orchestrate pause`: a request from another terminal, which the run reads between steps."""

from __future__ import annotations

from orchestrator.cli import options as opt


def pause(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Pause a run after its current wave or merges. Without a run, asks first."""
    from orchestrator.cli.prompts import request
    from orchestrator.model.phase import Request

    return request(Request.PAUSE, run, cluster=cluster, yes=yes, output=output, state=state)
