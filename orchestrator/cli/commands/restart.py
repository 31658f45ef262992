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
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import carry_out, prepared_run

    context = context_of(output)
    file = context.cluster(cluster)
    asks = not (yes or dry_run)
    overrides = selection.overrides(reason=reason)
    with prepared_run(
        context, file, playbook=playbook, overrides=overrides, state=state, asks=asks
    ) as prepared:
        return carry_out(prepared, context, dry_run=dry_run, yes=yes)
