"""`orchestrate status`: read from the journal, even while the run writes it, and later from the cluster."""

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
    """Show the progress of a run, and what it waits for.

    If a run is killed, or ended without restoring all its changes, status also reads the cluster, for at most
    3 s: each change is shown with the value that the cluster has now. Changes nothing.
    """
    from orchestrator.cli.work.status import show_status

    return show_status(run, watch=watch, cluster=cluster, output=output, state=state)
