"""`orchestrate init`: a cluster file, written from a running cluster. Changes nothing in the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.model.host import Connect


class Store(Enum):
    """The kind of cluster."""

    ELASTICSEARCH = "elasticsearch"
    RIAK = "riak"


_REFERENCE = "env:NAME, file:/path, command:… or keyring:service/user; never the secret itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options."""

    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint", help="HTTP address of one node, with its port: https://es1:9200.", metavar="URL"
        ),
    ]
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Name of the new file, as later commands take it. Default: the cluster's own name.",
            metavar="NAME",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Path of the new file, instead of the place of --cluster.", metavar="PATH"
        ),
    ] = None
    username: Annotated[
        str | None, typer.Option("--username", help="User of the cluster.", metavar="USER")
    ] = None
    password: Annotated[
        str | None,
        typer.Option("--password", help=f"Where its password is: {_REFERENCE}.", metavar="REFERENCE"),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", help="Where the API key is, as for --password.", metavar="REFERENCE"),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option("--ca", help="Certificates of the authority to trust, in PEM.", metavar="FILE"),
    ] = None
    fingerprint: Annotated[
        str | None,
        typer.Option(
            "--fingerprint",
            help="SHA-256 of the one certificate to trust, instead of --ca.",
            metavar="SHA256",
        ),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict/--no-strict",
            help="Whether certificates of trusted authorities must keep the form of RFC 5280.",
        ),
    ] = True
    ssh: Annotated[
        bool, typer.Option("--ssh/--no-ssh", help="Look on the hosts for service manager and unit.")
    ] = True
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="systemd unit of the nodes, where the hosts show none.", metavar="UNIT"),
    ] = None
    connect: Annotated[
        Connect | None,
        typer.Option(
            "--connect",
            help="How the hosts are reached: docs/how-to/reach-hosts.md. Default: ssh, or"
            " openssh where that alone reaches them.",
        ),
    ] = None
    ssh_user: Annotated[
        str | None,
        typer.Option("--ssh-user", help="SSH user. Default: as ~/.ssh/config says.", metavar="USER"),
    ] = None
    ssh_port: Annotated[
        int | None, typer.Option("--ssh-port", help="SSH port.", metavar="PORT", min=1, max=65535)
    ] = None
    identity: Annotated[
        Path | None,
        typer.Option("--identity", help="Private key for SSH, besides the agent's.", metavar="FILE"),
    ] = None
    known_hosts: Annotated[
        Path | None,
        typer.Option(
            "--known-hosts", help="Host keys, instead of those that ssh reads. Always strict.", metavar="FILE"
        ),
    ] = None


@opt.takes_groups
def init(
    *,
    given: Given,
    kind: Annotated[
        Store, typer.Option("--kind", help="Kind of cluster. OpenSearch is elasticsearch too.")
    ] = Store.ELASTICSEARCH,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Write a cluster file from a running cluster. Changes nothing in the cluster, overwrites no file.

    On a terminal it asks for what is missing. Elsewhere, give each answer as an option. If something is not
    found, the file has the usual value, marked as ASSUMED.
    """
    from orchestrator.cli.work.init import refuse_riak, write_cluster_file

    if kind is Store.RIAK:
        refuse_riak()
    return write_cluster_file(given, output=output)
