"""`orchestrate status`: read from the journal alone, even while the run writes it."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt


def status(
    run: opt.Run = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update the display until the run ends.")] = False,
    cluster: opt.AnyCluster = None,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show the progress of a run, and what it waits for."""
    from orchestrator.cli.work.status import show_status

    return show_status(run, watch=watch, cluster=cluster, output=output, state=state)
