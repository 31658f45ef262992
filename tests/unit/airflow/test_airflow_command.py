"""The command lines that Airflow's tasks start, against the program's own flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import typer

from orchestrator.airflow.command import Selection, post_bulk_index, restart, stop
from orchestrator.cli.program import app

FULL = Selection(
    cluster="prod",
    state="sqlite:////var/lib/orchestrate/state.db",
    playbook="night",
    only=("es1", "es2"),
    exclude=("es-old*",),
    strategy="zone",
    max_unavailable="10%",
    zone="a",
    started_before="30d",
    due=("config", "version:9.1.0"),
    timeout="5h",
    reason="airflow: loads.settle",
    arguments=("--no-tune",),
)


def _parsed(words: Sequence[str]) -> dict[str, Any]:
    """What the program itself reads in a command line, without running it."""
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]  # a group
    read: dict[str, Any] = command.make_context(words[0], list(words[1:])).params
    return read


def test_only_what_is_said_is_passed_on() -> None:
    assert restart(Selection(cluster="prod")) == ["restart", "--cluster=prod", "--yes", "--output=json"]


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (restart(FULL), "cluster", FULL.cluster),
        (restart(Selection(cluster="-x")), "cluster", "-x"),
        (stop("20270101-0000-abcd"), "run", "20270101-0000-abcd"),
    ],
)
def test_the_program_understands_it(words: list[str], name: str, value: str) -> None:
    assert _parsed(words)[name] == value


def test_the_program_understands_the_step_after_a_load() -> None:
    words = post_bulk_index(
        FULL, index=["posts-*", "-odd"], max_segments=3, restarts=False, allow_writes=True
    )
    expected = ["--index=posts-*", "--index=-odd", "--max-segments=3", "--no-restart", "--allow-writes"]
    assert words[:6] == ["post-bulk-index", *expected]
    assert words[6:] == restart(FULL)[1:]
    read = _parsed(words)
    assert (list(read["index"]), read["max_segments"]) == (["posts-*", "-odd"], 3)


@pytest.mark.parametrize("index", [[], [""], ["posts-*", ""]])
def test_no_index_is_refused_before_anything_starts(index: list[str]) -> None:
    with pytest.raises(ValueError, match="pattern of an index"):
        post_bulk_index(Selection(cluster="prod"), index=index)
