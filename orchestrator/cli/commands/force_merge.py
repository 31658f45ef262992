"""`orchestrate force-merge`: the merges of `post-bulk-index` alone."""

from __future__ import annotations

from orchestrator.cli import options as opt


def force_merge(
    *,
    cluster: opt.Cluster,
    index: opt.Index,
    max_segments: opt.MaxSegments = None,
    allow_writes: opt.AllowWrites = False,
    dry_run: opt.DryRun = False,
    playbook: opt.Playbook = None,
    disable_predicate: opt.DisablePredicate = None,
    timeout: opt.Timeout = None,
    reason: opt.Reason = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Force-merge indices to a few segments per copy. Restarts nothing."""
    from orchestrator.cli.prompts import start
    from orchestrator.config.merging import MergeFlags

    merge = MergeFlags(patterns=tuple(index), max_segments=max_segments, allow_writes=allow_writes)
    selection = opt.Selection(tune=False, disable_predicate=disable_predicate, timeout=timeout)
    overrides = selection.overrides(reason=reason, merge=merge)
    return start(
        cluster,
        overrides,
        state,
        dry_run=dry_run,
        playbook=playbook,
        yes=yes,
        output=output,
        restarts=False,
    )
