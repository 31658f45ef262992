"""`orchestrate history`: past runs and their times, read from the journals alone."""

from __future__ import annotations

from orchestrator.cli import options as opt


def history(
    cluster: opt.AnyCluster = None,
    html: opt.Html = None,
    output: opt.TabularMode = opt.Tabular.TEXT,
    state: opt.State = None,
) -> int:
    """Show past runs and their time per node.

    --html writes a page with the seconds per node over time, by version, which links the pages of the runs.
    """
    from orchestrator.cli.work.report import show_history

    return show_history(cluster, html=html, output=output, state=state)
