"""What `restart` and the commands after a load do with what was prepared: show it, or do it."""

from __future__ import annotations

from orchestrator.cli.asking import confirm, end_not_due, show_plan
from orchestrator.cli.fresh import Fresh
from orchestrator.cli.surroundings import Surroundings


def carry_out(fresh: Fresh, around: Surroundings, *, dry_run: bool, yes: bool) -> int:
    """Show the plan, or run it; where nothing is due, say so. The exit code.

    Args:
        fresh: what was prepared.
        around: the process.
        dry_run: only show the plan.
        yes: nobody is asked, and no plan is shown.

    Raises:
        UsageError: there is no terminal to ask on.
        typer.Abort: the answer is no.
    """
    if dry_run:
        if fresh.not_due:
            around.note(fresh.not_due)
        return int(show_plan(fresh.plan(), around))
    if fresh.not_due:
        return int(fresh.settle() or end_not_due(fresh.not_due, fresh.view.name, around))
    fresh.tell_of_unfinished()
    if yes:
        return int(fresh.run(None))
    plan = fresh.plan()
    confirm(plan, around)
    return int(fresh.run(plan))
