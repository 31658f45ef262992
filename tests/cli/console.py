"""The program as a user runs it, with a home and a state of its own, and without a terminal.

A second of each start goes into reading the program's modules. So most commands run in this process, with
the streams, variables and folder that a new one would have; `SCRIPT` is the console script.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.cli import program
from orchestrator.config.lookup import URLS

SCRIPT = Path(sys.executable).with_name("orchestrate")
REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600.0


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


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

    @property
    def plan(self) -> dict[str, Any]:
        """The plan among them; empty without one."""
        return next((line for line in self.lines if line["event"] == "plan"), {})

    @property
    def nodes(self) -> list[str]:
        """The nodes of the plan's waves, by name."""
        return sorted(node for wave in self.plan["waves"] for node in wave["nodes"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Runs commands."""

    home: Path  # the user's home; empty at first
    folder: Path  # the working directory
    environment: Mapping[str, str] = field(default_factory=dict)  # over the process's own

    @property
    def state(self) -> Path:
        """The state file that every command of this console uses."""
        return self.home / "state.db"

    @property
    def url(self) -> str:
        """The same, as `--state` takes it."""
        return f"sqlite:///{self.state}"

    def variables(self) -> dict[str, str]:
        inherited = {"PATH", "PYTHONPATH", "LANG", "TMPDIR"}
        kept = {key: value for key, value in os.environ.items() if key in inherited}
        return {**kept, "HOME": str(self.home), "ORCHESTRATE_STATE": self.url, **self.environment}

    def run(
        self,
        *arguments: str,
        before: tuple[str, ...] = (),
        typed: str | None = None,
        seen: bool = False,
    ) -> Said:
        """Run a command to its end.

        Args:
            arguments: of the program.
            before: a command that starts it, such as `env`, with its arguments: it is a process then.
            typed: what a person types on a terminal; None where there is no terminal.
            seen: whether standard error is a terminal.
        """
        if before:
            return self._process([*before, str(SCRIPT), *arguments], arguments)
        out, err = (Terminal() if shown else io.StringIO() for shown in (typed is not None, seen))
        stdin = io.StringIO() if typed is None else Terminal(typed)
        with self._entered(), redirect_stdout(out), redirect_stderr(err):
            was, sys.stdin = sys.stdin, stdin
            try:
                code = program.run(arguments)
            except SystemExit as end:  # of typer, after a TAB
                code = end.code if isinstance(end.code, int) else 0
            finally:
                sys.stdin = was
        return Said(command=arguments, code=code, out=out.getvalue(), err=err.getvalue())

    def script(self, *arguments: str) -> Said:
        """Run it as a process of its own."""
        return self._process([str(SCRIPT), *arguments], arguments)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        variables, folder = dict(os.environ), Path.cwd()
        wanted = self.variables()
        os.environ.clear()
        os.environ.update(wanted)
        os.chdir(self.folder)
        try:
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)

    def _process(self, words: list[str], arguments: tuple[str, ...]) -> Said:
        done = subprocess.run(  # noqa: S603  (the program under test)
            words,
            check=False,
            capture_output=True,
            cwd=self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        return Said(command=arguments, code=done.returncode, out=done.stdout, err=done.stderr)


def pattern(message: str, console: Console) -> str:
    """What fits a line on standard error: … stands for any text, STATE and URLS for what they name."""
    for word, text in (("STATE", str(console.state)), ("URLS", URLS)):
        message = message.replace(word, text)
    return ".*".join(map(re.escape, f"orchestrate: {message}\n".split("…")))
