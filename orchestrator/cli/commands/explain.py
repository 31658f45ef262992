"""`orchestrate explain`: explain a name in a message or a file. Reads no cluster and no state."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion

Name = Annotated[
    list[str] | None,
    typer.Argument(
        help="A term, predicate, phase, exit code (number or name), cluster setting, or key of a file.",
        metavar="NAME",
        autocompletion=completion.explained,
        show_default=False,
    ),
]


def explain(name: Name = None) -> int:
    """Explain a name in a message or a file.

    A name is a term, predicate, phase, exit code, cluster setting or key of a file. Without one, lists all.
    """
    from orchestrator.cli.work.explain import show

    return show(" ".join(name) if name else None)
