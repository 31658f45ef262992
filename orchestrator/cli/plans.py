"""`orchestrate plan` and `apply`: the dry run as a command of its own, and a saved plan that is run later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.asking import confirm, end_not_due, require_terminal, show_plan
from orchestrator.cli.fresh import prepare, prepare_saved
from orchestrator.cli.saved import load, save
from orchestrator.cli.surroundings import surroundings
from orchestrator.config.policy import Overrides


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan)
    app.command("apply")(apply)


@opt.takes_selection
def plan(
    *,
    cluster: opt.Cluster,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `apply`.")] = None,
    playbook: opt.Playbook = None,
    overrides: Overrides,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show what `restart` would do, step by step. Changes nothing. Exits 3 if something would hold it."""
    around = surroundings(output)
    file = around.cluster(cluster)
    with prepare(file, around, playbook=playbook, overrides=overrides, state_url=state) as fresh:
        if fresh.not_due:
            around.note(fresh.not_due)
        made = fresh.plan()
        if out is not None:
            save(out, made, fresh.started.policy, file.path)
        code = show_plan(made, around)
        if out is not None:
            around.note(f"saved to {out}; `orchestrate apply {out}` runs it")
        return int(code)


def apply(
    saved: Annotated[Path, typer.Argument(metavar="PLAN.JSON", help="A plan saved by `plan --out`.")],
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Run a saved plan, if it still fits the cluster. Exits 7 if not."""
    around = surroundings(output)
    loaded = load(saved)
    if not yes:
        require_terminal(around, "orchestrate plan")
    file = around.cluster(loaded.cluster_file)
    with prepare_saved(file, around, saved=loaded, state_url=state) as (fresh, made):
        if fresh.not_due:
            return int(fresh.settle() or end_not_due(fresh.not_due, fresh.view.name, around))
        if not yes:
            confirm(made, around, "orchestrate plan")
        return int(fresh.run(made))
