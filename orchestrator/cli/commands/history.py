"""`orchestrate history`: past runs and their times, read from the journals alone."""

from __future__ import annotations

from orchestrator.cli import options as opt


def history(
    cluster: opt.AnyCluster = None, output: opt.OutputMode = opt.Output.TEXT, state: opt.State = None
) -> int:
    """Show past runs and their time per node."""
    from orchestrator.cli.work.status import show_history

    return show_history(cluster, output=output, state=state)
