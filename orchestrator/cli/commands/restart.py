"""`orchestrate restart`: the rolling restart; with `--dry-run`, its plan."""

from __future__ import annotations

from orchestrator.cli import options as opt


@opt.takes_groups
def restart(
    *,
    cluster: opt.Cluster,
    dry_run: opt.DryRun = False,
    playbook: opt.Playbook = None,
    selection: opt.Selection,
    reason: opt.Reason = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restart every node in waves. Cluster settings are restored afterwards."""
    from orchestrator.cli.prompts import start

    overrides = selection.overrides(reason=reason)
    return start(cluster, overrides, state, dry_run=dry_run, playbook=playbook, yes=yes, output=output)
