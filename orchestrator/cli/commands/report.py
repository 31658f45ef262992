"""`orchestrate report`: what a run did, as one page, as JSON or as CSV; read from its journal alone."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt

Reported = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Id of the run, its beginning or its last part. Default: the newest run.",
        autocompletion=completion.runs,
    ),
]


def report(
    run: Reported = None,
    html: opt.Html = None,
    cluster: opt.AnyCluster = None,
    output: opt.TabularMode = opt.Tabular.TEXT,
    state: opt.State = None,
) -> int:
    """Write a page about a run.

    It has a timeline, the health of the cluster, the time and the data of each node, what held the run,
    settings and commands: one file without scripts and requests. Without --html it is in the folder `reports`
    beside the state, where a run with a wave writes it at its end. With --output json or csv and without
    --html, only the figures are printed. Changes nothing else.
    """
    from orchestrator.cli.work.report import show_report

    return show_report(run, html=html, cluster=cluster, output=output, state=state)
