"""`orchestrate stop`: a request from another terminal, which the run reads between steps."""

from __future__ import annotations

from orchestrator.cli import options as opt


def stop(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.YesToOne = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Stop a run: start its nodes, restore settings. Merges continue."""
    from orchestrator.cli.prompts import request
    from orchestrator.model.phase import Request

    return request(Request.STOP, run, cluster=cluster, yes=yes, output=output, state=state)
