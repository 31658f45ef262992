"""Commands of the contract that are not implemented yet. They are refused with a clear message."""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.errors import NotInThisVersion

COMMANDS: Final = ("report",)


def register(app: typer.Typer) -> None:
    """Add each of them, hidden, with any arguments. The help says that it comes in a later version."""
    for name in COMMANDS:
        app.command(
            name,
            hidden=True,
            help="Not in this version: a later one brings it.",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(_refusal(name))


def _refusal(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202  (typer reads the inner signature)
    def refuse(context: typer.Context) -> None:
        del context
        raise NotInThisVersion(name)

    return refuse
