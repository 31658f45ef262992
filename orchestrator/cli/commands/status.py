"""`orchestrate status` and `history`: read from the journal alone, even while the run writes it."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("status")(status)
    app.command("history")(history)


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


def history(
    cluster: opt.AnyCluster = None, output: opt.OutputMode = opt.Output.TEXT, state: opt.State = None
) -> int:
    """Show past runs and their time per node."""
    from orchestrator.cli.work.status import show_history

    return show_history(cluster, output=output, state=state)
