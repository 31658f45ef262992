"""`orchestrate upgrade`: a rolling restart that installs a version; with `--dry-run`, its plan."""

from __future__ import annotations

from orchestrator.cli import options as opt


@opt.takes_groups
def upgrade(
    *,
    cluster: opt.Cluster,
    to: opt.To,
    dry_run: opt.DryRun = False,
    playbook: opt.Playbook = None,
    selection: opt.Selection,
    reason: opt.Reason = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Install a version on every node, in waves. Nodes that run the version already are left alone.

    The playbook has the commands that install it (`upgrade.install`).
    """
    from orchestrator.cli.prompts import start

    overrides = selection.overrides(reason=reason, to=to)
    return start(cluster, overrides, state, dry_run=dry_run, playbook=playbook, yes=yes, output=output)
