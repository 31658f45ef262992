"""Merges after a bulk load, with or without the restart that follows them."""

from __future__ import annotations

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import carry_out, prepared_run
from orchestrator.config.policy import Overrides, require_segments


def merge_and_restart(
    cluster: str,
    overrides: Overrides,
    state: str | None,
    *,
    restarts: bool,
    dry_run: bool,
    playbook: str | None,
    yes: bool,
    output: Output,
) -> int:
    """Like `restart`. If there is nothing to do, it ends in seconds and takes no lease.

    Returns:
        The exit code.
    """
    context = context_of(output)
    file = context.cluster(cluster)
    require_segments(file)
    asks = not (yes or dry_run)
    with prepared_run(
        context, file, playbook=playbook, overrides=overrides, state=state, asks=asks, restarts=restarts
    ) as prepared:
        return carry_out(prepared, context, dry_run=dry_run, yes=yes)
