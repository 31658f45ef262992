"""`orchestrate init`: a cluster file, written from a running cluster. Changes nothing in the cluster."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt


class Store(Enum):
    """The kind of cluster."""

    ELASTICSEARCH = "elasticsearch"
    RIAK = "riak"


Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint", help="HTTP address of one node, with its port: https://es1:9200.", metavar="URL"
    ),
]
NewCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Name of the new file, as later commands take it. Default: the cluster's own name.",
        metavar="NAME",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Path of the new file, instead of the place of --cluster.", metavar="PATH"),
]
Kind = Annotated[Store, typer.Option("--kind", help="Kind of cluster. OpenSearch is elasticsearch too.")]
Username = Annotated[str | None, typer.Option("--username", help="User of the cluster.", metavar="USER")]
_REFERENCE = "env:NAME, file:/path, command:… or keyring:service/user; never the secret itself"
Password = Annotated[
    str | None,
    typer.Option("--password", help=f"Where its password is: {_REFERENCE}.", metavar="REFERENCE"),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help="Where the API key is, as for --password.", metavar="REFERENCE"),
]
Ca = Annotated[
    Path | None, typer.Option("--ca", help="Certificates of the authority to trust, in PEM.", metavar="FILE")
]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        "--fingerprint", help="SHA-256 of the one certificate to trust, instead of --ca.", metavar="SHA256"
    ),
]
Ssh = Annotated[bool, typer.Option("--ssh/--no-ssh", help="Look on the hosts for service manager and unit.")]
SshUser = Annotated[
    str | None, typer.Option("--ssh-user", help="SSH user. Default: as ~/.ssh/config says.", metavar="USER")
]
SshPort = Annotated[
    int | None, typer.Option("--ssh-port", help="SSH port.", metavar="PORT", min=1, max=65535)
]
Identity = Annotated[
    Path | None, typer.Option("--identity", help="Private key for SSH, besides the agent's.", metavar="FILE")
]
KnownHosts = Annotated[
    Path | None,
    typer.Option(
        "--known-hosts", help="Host keys, instead of those that ssh reads. Always strict.", metavar="FILE"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(
    endpoint: Endpoint,
    cluster: NewCluster = None,
    out: Out = None,
    kind: Kind = Store.ELASTICSEARCH,
    username: Username = None,
    password: Password = None,
    api_key: ApiKey = None,
    ca: Ca = None,
    fingerprint: Fingerprint = None,
    ssh: Ssh = True,
    ssh_user: SshUser = None,
    ssh_port: SshPort = None,
    identity: Identity = None,
    known_hosts: KnownHosts = None,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Write a cluster file from a running cluster. Changes nothing in the cluster, overwrites no file.

    On a terminal it asks for what is missing. Without a terminal each answer is an option.
    """
    from orchestrator.cli.work.init import Given, refuse_riak, write_cluster_file

    if kind is Store.RIAK:
        refuse_riak()
    given = Given(
        endpoint=endpoint,
        cluster=cluster,
        out=out,
        username=username,
        password=password,
        api_key=api_key,
        ca=ca,
        fingerprint=fingerprint,
        ssh=ssh,
        ssh_user=ssh_user,
        ssh_port=ssh_port,
        identity=identity,
        known_hosts=known_hosts,
    )
    return write_cluster_file(given, output=output)
