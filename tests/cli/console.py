"""The console script, run as a user runs it: a process of its own, with a home and a state of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.executable).with_name("orchestrate")
REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one command printed, and its exit code."""

    command: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as `--output json` writes it."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def message(self) -> str:
        """What was said on standard error, without the program's name and without warnings."""
        kept = [line for line in self.err.splitlines() if not line.startswith("warning: ")]
        return "\n".join(kept).removeprefix("orchestrate: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Runs the console script without a terminal.

    Attributes:
        home: the user's home; empty at first.
        environment: over the process's own.
        folder: the working directory.
    """

    home: Path
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The state file that every command of this console uses."""
        return self.home / "state.db"

    def variables(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key in {"PATH", "LANG", "TMPDIR"}}
        return {
            **kept,
            "HOME": str(self.home),
            "ORCHESTRATE_STATE": f"sqlite:///{self.state}",
            **self.environment,
        }

    def run(self, *arguments: str, before: tuple[str, ...] = ()) -> Said:
        """Run it to its end.

        Args:
            arguments: of the program.
            before: a command that starts it, such as `env`, with its arguments.
        """
        done = subprocess.run(  # noqa: S603  (the program under test)
            [*before, str(SCRIPT), *arguments],
            check=False,
            capture_output=True,
            cwd=self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        return Said(command=arguments, code=done.returncode, out=done.stdout, err=done.stderr)
