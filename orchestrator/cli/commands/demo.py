"""`orchestrate demo`: restart real nodes on this machine in waves, under load, and verify the result."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.lab.distributions import DEMONSTRATED

_SERVERS = ", ".join(each.name for each in DEMONSTRATED)


def demo(
    version: Annotated[
        str, typer.Option(help=f"Which server: {_SERVERS}.", metavar="VERSION")
    ] = DEMONSTRATED[0].version,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Restart three real nodes on this machine, under load. Counts the documents of each index."""
    from orchestrator.cli.work.demo import show_restart

    return show_restart(version, output=output)
