"""A command on this machine, whose exit code is the answer."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.model.gate import CommandGate, GateView
from orchestrator.model.reading import Reading, Seconds, Unknown

_CANNOT_RUN: Final = (126, 127)
"""Exit codes of a shell for a missing command, or one that it may not run."""

_SHOWN: Final = 200
"""Characters of the last line of output that evidence shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a command that ended."""

    exit: int
    output: str = ""  # bounded, and free of secrets


Run = Callable[[str, Seconds], Reading[Ran]]
"""Runs a `/bin/sh` command line with a limit in seconds; `Unknown` if it did not end by itself."""


def ask(gate: CommandGate, run: Run) -> Reading[GateView]:
    """Run the command in its folder."""
    done = run(f"cd -- {shlex.quote(gate.folder)} || exit 126\n{gate.run}", gate.timeout)
    return done if isinstance(done, Unknown) else judge(gate, done)


def judge(gate: CommandGate, done: Ran) -> Reading[GateView]:
    """The state of the gate from the command's result."""
    said = _last_line(done.output)
    if done.exit in _CANNOT_RUN or done.exit < 0:
        how = f"exit code {done.exit}" if done.exit >= 0 else f"killed by signal {-done.exit}"
        return Unknown(reason=f"{gate.run} could not be run in {gate.folder} ({how}){said}")
    return GateView(open=done.exit == 0, evidence=f"exit code {done.exit}{said}")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f": {lines[-1][:_SHOWN]}" if lines else ""
