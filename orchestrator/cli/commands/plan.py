"""`orchestrate plan`: the dry run as its own command. The plan can be saved for `apply`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt


@opt.takes_groups
def plan(
    *,
    cluster: opt.Cluster,
    to: opt.OptionalTo = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `apply`.")] = None,
    playbook: opt.Playbook = None,
    selection: opt.Selection,
    reason: opt.Reason = None,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Show each step of a restart or an upgrade. Changes nothing. Exits 3 if a predicate would hold it."""
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import note_beforehand, prepared_run, show_plan
    from orchestrator.runs.files import require_place, save_plan
    from orchestrator.view.plan import plan_object

    context = context_of(output)
    file = context.cluster(cluster)
    if out is not None:
        require_place(out, "plan")
    overrides = selection.overrides(reason=reason, to=to)
    with prepared_run(context, file, playbook=playbook, overrides=overrides, state=state) as prepared:
        note_beforehand(prepared, context)
        made = prepared.plan()
        if out is not None:
            save_plan(
                out,
                plan_object(made),
                prepared.started.policy,
                cluster_file=str(file.path.resolve()),
                access=prepared.access,
            )
        code = show_plan(made, context)
        if out is not None:
            context.note(f"saved to {out}; `{context.command('apply', str(out), state=state)}` runs it")
        return int(code)
