"""The commands beside runs: cluster files, rehearsals, hosts and their tuning, messages, meanings of names.

Quick to load, for help and completion: what a command needs is imported where it begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt
from orchestrator.cli.group import Command, group
from orchestrator.next_command import next_command


class Store(Enum):
    """The kind of cluster."""

    ELASTICSEARCH = "elasticsearch"
    RIAK = "riak"


class Reached(Enum):
    """How hosts are reached, as in a cluster file."""

    SSH = "ssh"
    OPENSSH = "openssh"
    LOCAL = "local"


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
        Reached | None,
        typer.Option(
            "--connect",
            help=f"How the hosts are reached: `{next_command('explain', 'reach-hosts')}`. Default: ssh, or"
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

    For example, write the cluster file prod from https://es1:9200, as user ops with the password in
    env:ES_PASSWORD:

        orchestrate init --endpoint https://es1:9200 --cluster prod --username ops --password env:ES_PASSWORD
    """
    from orchestrator.cli.work.init import refuse_riak, write_cluster_file

    if kind is Store.RIAK:
        refuse_riak()
    return write_cluster_file(given, output=output)


def validate(
    cluster: opt.Cluster,
    playbook: opt.Playbook = None,
    reboot: Annotated[bool, typer.Option("--reboot", help="Also check what --reboot needs.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show every check, also those that pass.")
    ] = False,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Check files, credentials, hosts, sudo and services. Exits 3 if a check fails.

    Writes a test record of the lease into the cluster (on Riak a file on each host), and removes it.

    For example, check prod, and what a reboot of its hosts needs:

        orchestrate validate --cluster prod --reboot
    """
    from orchestrator.cli.work.validate import check_cluster

    return check_cluster(cluster, playbook=playbook, reboot=reboot, verbose=verbose, output=output)


notify: Final = group("Try out the messages of runs.")


@notify.command("test", cls=Command)
def try_out(
    cluster: opt.Cluster, playbook: opt.Playbook = None, output: opt.OutputMode = opt.Output.TEXT
) -> int:
    """Send a test message to every target of cluster file and playbook. Exits 3 if one is not sent.

    For example, send a test message to every target of prod:

        orchestrate notify test --cluster prod
    """
    from orchestrator.cli.work.notify import send_tests

    return send_tests(cluster, playbook=playbook, output=output)


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
        typer.Option("--seed", help="Invent mishaps: equal numbers give equal mishaps; 0 means none.", min=0),
    ] = 0,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Save what was read, for a later rehearsal with `--snapshot`."),
    ] = None,
    to: opt.OptionalTo = None,
    playbook: opt.Playbook = None,
    selection: opt.SelectionOptions,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every event and wait of the run.")] = False,
    output: opt.OutputMode = opt.Output.TEXT,
) -> int:
    """Simulate a restart or an upgrade. The cluster itself is only read.

    Without --seed the run meets no mishap. With one, some happen, such as a node that does not come back. The
    exit code is that of the simulated run: 0 done, 3 held, 4 a node failed, and so on.

    For example, simulate an upgrade of prod to 9.1.0 with the mishaps of seed 7:

        orchestrate rehearse --cluster prod --to 9.1.0 --seed 7
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
            verbose=verbose,
            output=output,
        )
    if selection != opt.SelectionOptions() or any(given is not None for given in (to, playbook, save)):
        raise UsageError(
            "a snapshot holds its run as it would begin, flags included: give --seed alone with it, "
            "or make another one with `rehearse --cluster … --save`"
        )
    return rehearse_snapshot(snapshot, seed, verbose=verbose, output=output)


class CheckOutput(Enum):
    """Output format of `tune check`."""

    TEXT = "text"
    PLAIN = "plain"
    JSON = "json"
    SCRIPT = "script"


Profile = Annotated[
    str | None,
    opt.by_name(
        "--profile",
        "Tuning profile, by name or path. Default: `tune` of the playbook, else the profile of the kind; of"
        " hosts without a cluster `tune` of their file.",
        completion.profiles,
    ),
]
CheckOutputMode = Annotated[
    CheckOutput,
    typer.Option("--output", help="A table, a plain one, JSON lines, or the boot script as it is installed."),
]


tune: Final = group("Check, apply and revert the tuning of hosts.")


@tune.command("check", cls=Command)
@opt.takes_groups
def check(
    *,
    cluster: opt.Cluster,
    profile: Profile = None,
    nodes: opt.NodeOptions,
    output: CheckOutputMode = CheckOutput.TEXT,
    state: opt.State = None,
) -> int:
    """Compare hosts with a tuning profile. Changes nothing. Exits 3 on drift, 4 if a host is out of reach.

    For example, compare only the hosts of es1 and es2 with the profile elasticsearch:

        orchestrate tune check --cluster prod --only es1,es2 --profile elasticsearch
    """
    from orchestrator.cli.work.tune import check_hosts

    return check_hosts(
        cluster,
        profile,
        nodes,
        output=opt.Output.TEXT if output is CheckOutput.SCRIPT else opt.Output(output.value),
        script=output is CheckOutput.SCRIPT,
        state=state,
    )


@tune.command("apply", cls=Command)
@opt.takes_groups
def apply(
    *,
    cluster: opt.Cluster,
    profile: Profile = None,
    nodes: opt.NodeOptions,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Apply a tuning profile to the hosts, now and at every boot. `tune revert` reverts it.

    For example, tune the hosts of zone a:

        orchestrate tune apply --cluster prod --zone a
    """
    from orchestrator.cli.work.tune import apply_profile

    return apply_profile(cluster, profile, nodes, yes=yes, output=output, state=state)


@tune.command("revert", cls=Command)
@opt.takes_groups
def revert(
    *,
    cluster: opt.Cluster,
    nodes: opt.NodeOptions,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restore original values that `tune apply` and restarts changed. Exits 3 if one was changed since.

    For example, restore the original values on the host of es7 only:

        orchestrate tune revert --cluster prod --only es7
    """
    from orchestrator.cli.work.tune import revert_hosts

    return revert_hosts(cluster, nodes, yes=yes, output=output, state=state)


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
    """Sample the hosts and list known problems. Changes nothing. Exits 3 if a problem is found.

    For example, sample the hosts of zone b for 1m:

        orchestrate diagnose --cluster prod --zone b --sample 1m
    """
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


Name = Annotated[
    list[str] | None,
    typer.Argument(
        help="A name in a message, in JSON or in a file; or words of a message.",
        metavar="NAME|WORD",
        autocompletion=completion.explained,
        show_default=False,
    ),
]


def explain(name: Name = None) -> int:
    """Explain a name in a message or a file, or find it by words.

    A name is a term, command, predicate, phase, exit code, event, cluster setting, key of a file, or page of
    the docs. Words list every name, message and text that has them. Without a name, lists all.

    For example, find every name and message about a snapshot:

        orchestrate explain snapshot
    """
    from orchestrator.cli.work.explain import show

    return show(" ".join(name).replace(",", " ") if name else None)
