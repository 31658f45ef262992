"""`orchestrate validate`: check everything that a run needs. Removes what it writes for that."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt


def validate(
    cluster: opt.Cluster,
    playbook: opt.Playbook = None,
    reboot: Annotated[bool, typer.Option("--reboot", help="Also check what --reboot needs.")] = False,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Check files, credentials, hosts, sudo and services. Exits 3 if a check fails.

    Writes a test record of the lease into the cluster (on Riak a file on each host), and removes it.
    """
    from orchestrator.cli.work.validate import check_cluster

    return check_cluster(cluster, playbook=playbook, reboot=reboot, output=output)
