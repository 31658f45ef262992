"""`orchestrate post-bulk-index` and `force-merge`: called by a pipeline after a bulk load."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from orchestrator.cli import options as opt

Index = Annotated[
    list[str],
    typer.Option(
        "--index",
        help="Loaded indices: a name, glob, alias or data stream (repeatable).",
        metavar="PATTERN",
    ),
]
MaxSegments = Annotated[
    int | None,
    typer.Option(
        "--max-segments",
        help="Maximum segments per copy. Default: that of the playbook, or 5.",
        metavar="N",
    ),
]
AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="Also merge indices that are being written to.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("post-bulk-index")(post_bulk_index)
    app.command("force-merge")(force_merge)


@opt.takes_selection
def post_bulk_index(
    *,
    cluster: opt.Cluster,
    index: Index,
    max_segments: MaxSegments = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Restart the nodes after the merges, or not.")
    ] = True,
    allow_writes: AllowWrites = False,
    dry_run: DryRun = False,
    playbook: opt.Playbook = None,
    overrides: opt.Selection,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Force-merge loaded indices, wait for their copies, then restart the nodes. Can be run again."""
    from orchestrator.config.merging import MergeFlags

    merge = MergeFlags(patterns=tuple(index), max_segments=max_segments, allow_writes=allow_writes)
    return _run(
        cluster,
        replace(overrides, merge=merge),
        state,
        restarts=restart,
        dry_run=dry_run,
        playbook=playbook,
        yes=yes,
        output=output,
    )


def force_merge(
    *,
    cluster: opt.Cluster,
    index: Index,
    max_segments: MaxSegments = None,
    allow_writes: AllowWrites = False,
    dry_run: DryRun = False,
    playbook: opt.Playbook = None,
    disable_predicate: opt.DisablePredicate = None,
    reason: opt.Reason = None,
    timeout: opt.Timeout = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Force-merge indices to a few segments per copy. Restarts nothing."""
    from orchestrator.config.merging import MergeFlags
    from orchestrator.config.policy import Overrides

    merge = MergeFlags(patterns=tuple(index), max_segments=max_segments, allow_writes=allow_writes)
    overrides = Overrides(
        merge=merge,
        tune=False,
        disable_predicate=tuple(disable_predicate or ()),
        reason=reason,
        timeout=timeout,
    )
    return _run(
        cluster,
        overrides,
        state,
        restarts=False,
        dry_run=dry_run,
        playbook=playbook,
        yes=yes,
        output=output,
    )


def _run(
    cluster: str,
    overrides: opt.Selection,
    state: str | None,
    *,
    restarts: bool,
    dry_run: bool,
    playbook: str | None,
    yes: bool,
    output: opt.Output,
) -> int:
    """Like `restart`. If there is nothing to do, it ends in seconds and takes no lease."""
    from orchestrator.cli.context import context_of
    from orchestrator.cli.prompts import carry_out, prepared_run
    from orchestrator.config.policy import require_segments

    context = context_of(output)
    file = context.cluster(cluster)
    require_segments(file)
    asks = not (yes or dry_run)
    with prepared_run(
        context, file, playbook=playbook, overrides=overrides, state=state, asks=asks, restarts=restarts
    ) as prepared:
        return carry_out(prepared, context, dry_run=dry_run, yes=yes)
