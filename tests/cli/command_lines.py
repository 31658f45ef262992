"""The commands of the program, without those that only group others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from orchestrator.cli.program import app


def leaves(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its words, without groups."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", {})
    if not inner:
        yield name.strip(), command
    for each, one in inner.items():
        yield from leaves(one, f"{name} {each}")


LEAVES = dict(leaves())
"""Each by its words, such as `tune check`."""
