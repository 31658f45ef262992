"""`orchestrate notify`: messages about runs, tried out without a run."""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.group import Command, Group

notify: Final = typer.Typer(
    cls=Group,
    help="Try out the messages of runs.",
    add_completion=False,
    rich_markup_mode=None,
)


@notify.callback(invoke_without_command=True)
def _bare(context: typer.Context) -> None:
    """Show the help if no command of the group is given, like the program itself."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@notify.command("test", cls=Command)
def try_out(
    cluster: opt.Cluster, playbook: opt.Playbook = None, output: opt.OutputMode = opt.Output.TEXT
) -> int:
    """Send a test message to every target of cluster file and playbook. Exits 3 if one is not sent."""
    from orchestrator.cli.work.notify import send_tests

    return send_tests(cluster, playbook=playbook, output=output)
