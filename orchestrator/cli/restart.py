"""`orchestrate restart`: the rolling restart; with `--dry-run`, its plan."""

from __future__ import annotations

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.asking import confirm, require_terminal, show_plan
from orchestrator.cli.fresh import prepare
from orchestrator.cli.surroundings import surroundings
from orchestrator.config.policy import Overrides


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("restart")(restart)


def restart(
    cluster: opt.Cluster,
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Print the plan (as `plan` does) and change nothing."
    ),
    playbook: opt.Playbook = None,
    strategy: opt.Strategy = None,
    max_unavailable: opt.MaxUnavailable = None,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    zone: opt.Zone = None,
    started_before: opt.StartedBefore = None,
    tune: opt.Tune = None,
    reboot: opt.Reboot = False,
    pause_after: opt.PauseAfter = None,
    disable_predicate: opt.DisablePredicate = None,
    reason: opt.Reason = None,
    timeout: opt.Timeout = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restart every node, wave by wave; settings are left as found."""
    overrides = Overrides(
        strategy=strategy,
        max_unavailable=max_unavailable,
        only=tuple(only or ()),
        exclude=tuple(exclude or ()),
        zone=zone,
        started_before=started_before,
        tune=tune,
        reboot=reboot,
        pause_after=pause_after,
        disable_predicate=tuple(disable_predicate or ()),
        reason=reason,
        timeout=timeout,
    )
    around = surroundings(output)
    if not (yes or dry_run):
        require_terminal(around)
    file = around.cluster(cluster)
    with prepare(file, around, playbook=playbook, overrides=overrides, state_url=state) as fresh:
        if dry_run:
            return int(show_plan(fresh.plan(), around))
        if not yes:
            confirm(fresh.plan(), around)
        return int(fresh.run())
