"""`orchestrate report`: a command of a later version, refused with a clear message."""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.cli.group import Command
from orchestrator.errors import NotInThisVersion

report: Final = typer.Typer(add_completion=False, rich_markup_mode=None)


@report.command(
    "report",
    cls=Command,
    hidden=True,
    help="Not in this version: a later one brings it.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _refuse(context: typer.Context) -> None:
    del context
    raise NotInThisVersion("report")
