"""`orchestrate diagnose`: sample the hosts and name known syndromes. Changes nothing, needs no rights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt

Diagnosed = Annotated[
    str | None,
    opt.by_name("--cluster", "The cluster: name or path of its file.", completion.clusters),
]
Sample = Annotated[
    str, typer.Option("--sample", help="Duration of the sample: 1s to 10m.", metavar="DURATION")
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Read recorded files instead of hosts: a folder of one host, or a folder per host.",
        metavar="FOLDER",
    ),
]


def diagnose(
    cluster: Diagnosed = None,
    length: Sample = "10s",
    only: opt.Only = None,
    zone: opt.Zone = None,
    records: From = None,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Sample the hosts and list known problems. Changes nothing. Exits 3 if a problem is found."""
    from orchestrator.cli.work.diagnose import diagnose_hosts

    return diagnose_hosts(
        cluster,
        length=length,
        only=tuple(only or ()),
        zone=zone,
        records=records,
        output=output,
        state=state,
    )
