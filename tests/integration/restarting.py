"""One `orchestrate restart`, or another such command, on local processes, from files to JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.lab.nodes import LabCluster
from tests.integration.racing import VARIABLE

PROGRAM = (sys.executable, "-c", "from orchestrator.cli.main import main; main()")
RACE = Path(__file__).with_name("racing.py")


def restart(
    lab: LabCluster,
    folder: Path,
    *words: str,
    playbook: Mapping[str, Any] | None = None,
    race: Mapping[str, str] | None = None,
    seconds: float = 400.0,
) -> tuple[int, list[dict[str, Any]]]:
    """Run `orchestrate restart` to its end; the exit code and every JSON line."""
    return orchestrate(lab, folder, "restart", *words, playbook=playbook, race=race, seconds=seconds)


def orchestrate(
    lab: LabCluster,
    folder: Path,
    command: str,
    *words: str,
    playbook: Mapping[str, Any] | None = None,
    race: Mapping[str, str] | None = None,
    seconds: float = 400.0,
) -> tuple[int, list[dict[str, Any]]]:
    """Run a command that changes the cluster to its end; the exit code and every JSON line."""
    book, file = folder / "book.yml", folder / "lab.yml"
    content = {"kind": "elasticsearch", "settle": {"consecutive": 2}, "deadlines": {"hold": "15s"}}
    book.write_text(json.dumps({**content, **(playbook or {})}), encoding="utf-8")
    file.write_text(json.dumps({**lab.cluster_document(), "playbook": str(book)}), encoding="utf-8")
    program = PROGRAM if race is None else (sys.executable, str(RACE))
    done = subprocess.run(  # noqa: S603  (the program under test)
        [*program, command, "--cluster", str(file), "--yes", "--output", "json", *words],
        env={
            **os.environ,
            "HOME": str(folder),
            "ORCHESTRATE_STATE": f"sqlite:///{folder}/state.db",
            VARIABLE: json.dumps({"endpoint": lab.endpoints[0], **(race or {})}),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    return done.returncode, lines


def held_by(lines: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Predicate and subject of every hold in a run's output."""
    return {(line["predicate"], line["subject"]) for line in lines if line["event"] == "hold"}


def events(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The events of one name."""
    return [line for line in lines if line["event"] == name]
