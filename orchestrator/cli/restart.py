"""`orchestrate restart`: the rolling restart; with `--dry-run`, its plan."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.carrying_out import carry_out
from orchestrator.cli.fresh import prepare
from orchestrator.cli.surroundings import surroundings
from orchestrator.config.policy import Overrides


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("restart")(restart)


@opt.takes_selection
def restart(
    *,
    cluster: opt.Cluster,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan (as `plan` does) and change nothing.")
    ] = False,
    playbook: opt.Playbook = None,
    overrides: Overrides,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restart every node, wave by wave; settings are left as found."""
    around = surroundings(output)
    file = around.cluster(cluster)
    asks = not (yes or dry_run)
    with prepare(file, around, playbook=playbook, overrides=overrides, state_url=state, asks=asks) as fresh:
        return carry_out(fresh, around, dry_run=dry_run, yes=yes)
