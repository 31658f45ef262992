"""`orchestrate serve`: live pages of runs, read-only, over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt

Listen = Annotated[
    str,
    typer.Option(
        "--listen", help="Address and port. One that is not loopback needs --token.", metavar="HOST:PORT"
    ),
]
Host = Annotated[
    list[str] | None,
    typer.Option(
        "--host", help="A further name by which the server is called, behind a proxy.", metavar="NAME"
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", help="What every request has to carry: env:NAME or file:PATH.", metavar="REFERENCE"
    ),
]


def serve(
    listen: Listen = "127.0.0.1:8765",
    host: Host = None,
    token: Token = None,
    cluster: opt.AnyCluster = None,
    state: opt.State = None,
) -> int:
    """Serve live pages of runs to browsers.

    Changes nothing, and needs no cluster: what is shown is what runs have recorded. A browser asks for the
    token as a password; programs send it as `Authorization: Bearer TOKEN`. Ends with Ctrl-C.
    """
    from orchestrator.cli.work.serve import serve_pages

    return serve_pages(listen, hosts=tuple(host or ()), token=token, cluster=cluster, state=state)
