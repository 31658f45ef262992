"""`orchestrate tune`: how hosts stand to a tuning profile, without a restart: checked, applied, reverted."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt


class CheckOutput(Enum):
    """Output format of `tune check`."""

    TEXT = "text"
    JSON = "json"
    SCRIPT = "script"


Profile = Annotated[
    str | None,
    opt.by_name(
        "--profile",
        "Tuning profile, by name or path. Default: `tune` of the playbook, else the profile of the kind.",
        completion.profiles,
    ),
]
CheckOutputMode = Annotated[
    CheckOutput,
    typer.Option("--output", help="A table, one JSON object per line, or a shell script of the changes."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Check, apply and revert the tuning of hosts, without a restart.")
    group.callback(invoke_without_command=True)(_bare)
    group.command("check")(check)
    group.command("apply")(apply)
    group.command("revert")(revert)
    app.add_typer(group, name="tune")


def _bare(context: typer.Context) -> None:
    """Show the help if no command of the group is given, like the program itself."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def check(
    cluster: opt.Cluster,
    profile: Profile = None,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    output: CheckOutputMode = CheckOutput.TEXT,
) -> int:
    """Compare hosts with a tuning profile. Changes nothing. Exits 3 on drift, 4 without a host."""
    from orchestrator.cli.work.tune import check_hosts

    return check_hosts(
        cluster,
        profile,
        opt.nodes(only, exclude),
        output=opt.Output.JSON if output is CheckOutput.JSON else opt.Output.TEXT,
        script=output is CheckOutput.SCRIPT,
    )


def apply(
    cluster: opt.Cluster,
    profile: Profile = None,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Apply a tuning profile to the hosts, now and at every boot. `tune revert` reverts it."""
    from orchestrator.cli.work.tune import apply_profile

    return apply_profile(cluster, profile, opt.nodes(only, exclude), yes=yes, output=output, state=state)


def revert(
    cluster: opt.Cluster,
    only: opt.Only = None,
    exclude: opt.Exclude = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restore original values that `tune apply` and restarts changed. Exits 3 if one was changed since."""
    from orchestrator.cli.work.tune import revert_hosts

    return revert_hosts(cluster, opt.nodes(only, exclude), yes=yes, output=output, state=state)
