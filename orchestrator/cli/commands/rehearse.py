"""`orchestrate rehearse`: the same run on a simulated copy of the cluster, with faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt


@opt.takes_groups
def rehearse(
    *,
    cluster: Annotated[
        str | None,
        opt.by_name("--cluster", "The cluster: name or path of its file. Only read.", completion.clusters),
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", help="A file written by `--save`, instead of a cluster.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", help="Seed of the faults: equal seeds give equal faults; 0 means none.", min=0
        ),
    ] = 1,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Save what was read, for a later rehearsal with `--snapshot`."),
    ] = None,
    to: opt.OptionalTo = None,
    playbook: opt.Playbook = None,
    selection: opt.Selection,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Simulate a restart or an upgrade, with faults. The cluster itself is only read.

    The exit code is that of the simulated run: 0 done, 3 held, 4 a node failed, and so on.
    """
    from orchestrator.cli.work.rehearse import rehearse_cluster, rehearse_snapshot
    from orchestrator.errors import UsageError

    if (cluster is None) == (snapshot is None):
        raise UsageError("name either a cluster (--cluster) or a snapshot of one (--snapshot)")
    if snapshot is None:
        return rehearse_cluster(
            str(cluster),
            seed,
            save=save,
            playbook=playbook,
            overrides=selection.overrides(to=to),
            output=output,
        )
    if selection != opt.Selection() or any(given is not None for given in (to, playbook, save)):
        raise UsageError(
            "a snapshot holds its run as it would begin, flags included: give --seed alone with it, "
            "or make another one with `rehearse --cluster … --save`"
        )
    return rehearse_snapshot(snapshot, seed, output=output)
