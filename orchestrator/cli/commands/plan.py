"""`orchestrate plan` and `apply`: the dry run as its own command, and a saved plan that is run later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt


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
    overrides: opt.Selection,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show each step of a restart. Changes nothing. Exits 3 if a predicate would hold the restart."""
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import note_beforehand, prepared_run, show_plan
    from orchestrator.runs.files import require_place, save_plan
    from orchestrator.view.plan import plan_object

    context = context_of(output)
    file = context.cluster(cluster)
    if out is not None:
        require_place(out, "plan")
    with prepared_run(context, file, playbook=playbook, overrides=overrides, state=state) as prepared:
        note_beforehand(prepared, context)
        made = prepared.plan()
        if out is not None:
            save_plan(out, plan_object(made), prepared.started.policy, str(file.path.resolve()))
        code = show_plan(made, context)
        if out is not None:
            context.note(f"saved to {out}; `orchestrate apply {out}` runs it")
        return int(code)


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
    if not yes:
        require_terminal(context, "orchestrate plan")
    with context.connect(context.cluster(loaded.cluster_file), state) as connection:
        prepared, made = prepare_saved(connection, loaded)
        if prepared.not_due:
            return end_without_nodes(prepared, prepared.not_due, context)
        if not yes:
            confirm(made, context, "orchestrate plan")
        return int(exit_code(prepared.run(made)))
