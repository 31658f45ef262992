"""A text of an attacker, and each place where a command could bring it out."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from orchestrator.untrusted import visible
from tests.cli.console import Console, Said

PASSWORD = "s3cretPass!"  # noqa: S105  (an example)
FORGED = "FORGED: all checks passed"
_COMMANDS = "b:1 -oProxyCommand=touch${IFS}PWNED `touch PWNED`"
EVIL = f"\n{FORGED}\r\x1b]0;PWNED\x07\u202eevil\u2066\u200b\x85\u2028 {_COMMANDS}"
HOSTILE = f"{EVIL} {PASSWORD}"
"""What a cluster may answer, which has been sent the password."""


def evil(console: Console, said: Said) -> list[str]:
    """What of the hostile text came out, and where."""
    found = []
    for name, text in (("output", said.out), ("errors", said.err)):
        lines = text.split("\n")
        found += [f"{name}: {line!r}" for line in lines if visible(line) != line or PASSWORD in line]
        found += [f"{name} forged: {line!r}" for line in lines if line.startswith(FORGED)]
    if "json" in said.command:
        found += [f"json: {line}" for line in said.out.splitlines() if PASSWORD in str(json.loads(line))]
    arguments = console.home / "arguments"
    if arguments.exists():
        found += [f"argument: {one!r}" for one in arguments.read_text().split("\n") if "PWNED" in one]
        arguments.unlink()
    found += [f"file: {one}" for place in (console.folder, console.home) for one in place.rglob("*PWNED*")]
    if console.state.exists():
        with closing(sqlite3.connect(console.state)) as state, state:
            rows = state.execute("select event from events").fetchall()
        found += [f"journal: {text[:300]!r}" for (text,) in rows if PASSWORD in text]
    return found
