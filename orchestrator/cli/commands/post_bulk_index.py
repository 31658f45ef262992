"""`orchestrate post-bulk-index`: called by a pipeline after a bulk load."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt


@opt.takes_groups
def post_bulk_index(
    *,
    cluster: opt.Cluster,
    index: opt.Index,
    max_segments: opt.MaxSegments = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Restart the nodes after the merges, or not.")
    ] = True,
    allow_writes: opt.AllowWrites = False,
    dry_run: opt.DryRun = False,
    playbook: opt.Playbook = None,
    selection: opt.Selection,
    reason: opt.Reason = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Force-merge loaded indices, then restart the nodes. Waits for their copies first. Can be run again."""
    from orchestrator.cli.prompts import start
    from orchestrator.config.merging import MergeFlags

    merge = MergeFlags(patterns=tuple(index), max_segments=max_segments, allow_writes=allow_writes)
    overrides = selection.overrides(reason=reason, merge=merge)
    return start(
        cluster,
        overrides,
        state,
        dry_run=dry_run,
        playbook=playbook,
        yes=yes,
        output=output,
        restarts=restart,
    )
