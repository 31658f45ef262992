"""The program, run as a user runs it: a process of its own, with a home and a state of its own.

A second of each start goes into reading the program's modules. Most commands are therefore forked from a
process that has read them once, and differ from the console script in nothing else; `SCRIPT` is the script.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.executable).with_name("orchestrate")
REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600.0
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["orchestrator.cli.program", *(f"orchestrator.cli.work.{name}" for name in ("rehearse", "tune"))]
)


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
        kept = {
            key: value for key, value in os.environ.items() if key in {"PATH", "PYTHONPATH", "LANG", "TMPDIR"}
        }
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
        if not before:
            return self._forked(arguments)
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

    def _forked(self, arguments: tuple[str, ...]) -> Said:
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            process = _FORKS.Process(
                target=_program, args=(arguments, self.variables(), self.folder, out, err)
            )
            process.start()
            process.join(LIMIT_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()
                raise subprocess.TimeoutExpired(arguments, LIMIT_SECONDS, out.read_bytes(), err.read_bytes())
            return Said(command=arguments, code=process.exitcode, out=out.read_text(), err=err.read_text())


def _program(
    arguments: tuple[str, ...], variables: dict[str, str], folder: Path, out: Path, err: Path
) -> None:
    """Be the console script, with the streams, variables, folder and words that a new process would have."""
    from orchestrator.cli.main import main  # noqa: PLC0415  (read already where this runs)
    from orchestrator.cli.program import PROGRAM  # noqa: PLC0415  (as above)

    for number, file in enumerate((Path(os.devnull), out, err)):
        opened = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  (a descriptor, and open until the end)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  (as above)
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115  (as above)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv = [PROGRAM, *arguments]
    main()
