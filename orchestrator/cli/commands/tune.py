"""`orchestrate tune`: how hosts stand to a tuning profile, without a restart: checked, applied, reverted."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import typer

from orchestrator.cli import completion
from orchestrator.cli import options as opt
from orchestrator.cli.group import Command, Group


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


tune: Final = typer.Typer(
    cls=Group,
    help="Check, apply and revert the tuning of hosts.",
    add_completion=False,
    rich_markup_mode=None,
)


@tune.callback(invoke_without_command=True)
def _bare(context: typer.Context) -> None:
    """Show the help if no command of the group is given, like the program itself."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@tune.command("check", cls=Command)
@opt.takes_groups
def check(
    *,
    cluster: opt.Cluster,
    profile: Profile = None,
    nodes: opt.Nodes,
    output: CheckOutputMode = CheckOutput.TEXT,
    state: opt.State = None,
) -> int:
    """Compare hosts with a tuning profile. Changes nothing. Exits 3 on drift, 4 if a host is out of reach."""
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
    nodes: opt.Nodes,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Apply a tuning profile to the hosts, now and at every boot. `tune revert` reverts it."""
    from orchestrator.cli.work.tune import apply_profile

    return apply_profile(cluster, profile, nodes, yes=yes, output=output, state=state)


@tune.command("revert", cls=Command)
@opt.takes_groups
def revert(
    *,
    cluster: opt.Cluster,
    nodes: opt.Nodes,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Restore original values that `tune apply` and restarts changed. Exits 3 if one was changed since."""
    from orchestrator.cli.work.tune import revert_hosts

    return revert_hosts(cluster, nodes, yes=yes, output=output, state=state)
