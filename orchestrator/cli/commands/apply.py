"""`orchestrate apply`: run a saved plan, if it still fits the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt


def apply(
    saved: Annotated[Path, typer.Argument(metavar="PLAN.JSON", help="A plan saved by `plan --out`.")],
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Run a saved plan. Exits 7 if it no longer fits the cluster."""
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import confirm, end_without_nodes, require_terminal
    from orchestrator.runs.attempt import exit_code
    from orchestrator.runs.files import load_plan
    from orchestrator.runs.planning import prepare_saved

    context = context_of(output)
    loaded = load_plan(saved)
    look = context.command("plan", "--cluster", loaded.cluster_file, state=state)
    if not yes:
        require_terminal(context, look)
    with context.connect(context.cluster(loaded.cluster_file), state) as connection:
        prepared, made = prepare_saved(connection, loaded)
        if prepared.not_due:
            return end_without_nodes(prepared, prepared.not_due, context)
        if not yes:
            confirm(made, context, look)
        return int(exit_code(prepared.run(made)))
