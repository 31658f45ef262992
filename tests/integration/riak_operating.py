"""What an operator of Riak does, on hosts: writes files, runs the program; what is true there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.hostlab.hosts import wait_until
from tests.integration.riaklab.hosts import RiakHosts

PROGRAM = (sys.executable, "-m", "orchestrator")
RUN_SECONDS = 1500.0
LOG = "/var/lib/riak-double/log"
DEADLINES = {
    "stop": "60s",
    "start": "60s",
    "rejoin": "60s",
    "recover": "5m",
    "hold": "60s",
}
"""Those of a machine with much else to do; a test sets the one that it runs into."""


def member(host: str) -> str:
    """The name of the node of a host."""
    return f"riak@{host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakOperator:
    """Somebody with a cluster file, a playbook, a state database and the program.

    Attributes:
        folder: of the operator's own.
        lab: the hosts.
        user: who logs in; `tuner` may do all that root may.
    """

    folder: Path
    lab: RiakHosts
    user: str = "deploy"

    @property
    def file(self) -> Path:
        """The cluster file."""
        return self.folder / "ring.yml"

    def write(
        self,
        *,
        deadlines: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        **playbook: Any,
    ) -> None:
        """Write cluster file and playbook (JSON is YAML); hosts with a unit say so by overrides."""
        lab = self.lab
        book = self.folder / "book.yml"
        content = {"kind": "riak", "settle": {"consecutive": 2}, **playbook}
        content["deadlines"] = {**DEADLINES, **(deadlines or {})}
        book.write_text(json.dumps(content), encoding="utf-8")
        units = [name for name in lab.names if name not in lab.plain]
        by_unit = {"service": {"manager": "systemd", "unit": "riak"}}
        document = {
            "kind": "riak",
            "name": "ring",
            "endpoints": [lab.endpoint(name) for name in lab.names[:3:2]],
            "playbook": str(book),
            "hosts": {
                "user": self.user,
                "identity": str(lab.identity),
                "known_hosts": str(lab.known_hosts),
                "sudo": True,
                "nodes": {host.name: host.address for host in lab.hosts},
                "overrides": {**dict.fromkeys(units, by_unit), **(overrides or {})},
            },
        }
        self.file.write_text(json.dumps(document), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The process's variables."""
        state = f"sqlite:///{self.folder}/state.db"
        return {**os.environ, "HOME": str(self.folder), "ORCHESTRATE_STATE": state}

    def orchestrate(self, command: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """Run a command to its end; the exit code, and every JSON line."""
        with self.begun(command, *words) as run:
            return run.end()

    @contextmanager
    def begun(self, command: str, *words: str) -> Iterator[Begun]:
        """Start a command and let it run; it is ended with the block."""
        out = self.folder / f"{command}.jsonl"
        with out.open("wb") as stream:
            process = subprocess.Popen(  # noqa: S603  (the program under test)
                self._argv(command, *words),
                env=self.environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        try:
            yield Begun(process=process, out=out)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _argv(self, command: str, *words: str) -> list[str]:
        return [*PROGRAM, command, "--cluster", str(self.file), "--yes", "--output", "json", *words]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A command that runs.

    Attributes:
        process: its process.
        out: what it prints.
    """

    process: subprocess.Popen[bytes]
    out: Path

    def lines(self) -> list[dict[str, Any]]:
        """What it has said so far, but for a line that is being written."""
        return _lines(self.out.read_text(encoding="utf-8").rpartition("\n")[0])

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Wait for its end; the exit code, and every JSON line; it has said something."""
        code = self.process.wait(RUN_SECONDS)
        lines = self.lines()
        assert lines, self.out.read_text(encoding="utf-8")
        print(told(self.out.stem, code, lines))  # noqa: T201  (with `-s`: what was seen is part of what is shown)
        return code, lines


def told(command: str, code: int, lines: list[dict[str, Any]]) -> str:
    """A line for people on how a command ended."""
    shown = ("outcome", "seconds", "restarted", "failed", "pending", "left", "message")
    summary = {key: value for key, value in lines[-1].items() if key in shown and value not in (None, "", [])}
    held = sorted({line["predicate"] for line in lines if line["event"] == "hold"})
    return f"\n  {command}: exit {code} {summary}{f'; held by {held}' if held else ''}"


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def limits(lab: RiakHosts, *, down: str = "") -> dict[str, int]:
    """The transfer limit of every node, by what each one tells its peers, past the program under test."""
    reports = {
        name: json.loads(lab.exec(name, "riak-double", "report").stdout) for name in lab.names if name != down
    }
    return {name: report["transfer_limit"] for name, report in reports.items()}


def starts(lab: RiakHosts) -> dict[str, int]:
    """How many processes each node has been, by the double's own log."""
    logs = {name: lab.exec(name, "cat", LOG).stdout for name in lab.names}
    return {name: len(re.findall(r"(?m)^started as process \d+$", log)) for name, log in logs.items()}


def pids(lab: RiakHosts) -> dict[str, str]:
    """The process of every node, by Riak's own command; empty where it is down."""
    told = {name: lab.riak(name, "pid") for name in lab.names}
    said = {name: done.stdout.strip() for name, done in told.items()}
    return {name: text if text.isdecimal() else "" for name, text in said.items()}


def commands_left(lab: RiakHosts, name: str, words: str) -> list[str]:
    """Processes of `riak WORDS` on a host, the shells and sudo around it included."""
    listed = lab.exec(name, "ps", "-eo", "pid=,args=").stdout.splitlines()
    return [line for line in listed if re.search(rf"riak(-admin)? {words}", line)]


def at_rest(lab: RiakHosts) -> bool:
    """Every node is up, runs its partitions and has nothing to hand off, as two nodes see it."""
    return (
        all(
            lab.riak(name, "admin transfers").stdout.startswith("No transfers active\n")
            for name in lab.names[:2]
        )
        and "down!" not in lab.riak(lab.names[0], "admin cluster status").stdout
    )


def wait_for(check: Any, *, seconds: float, what: str) -> None:
    """Wait until it is so; the test fails when it is not in time."""
    assert wait_until(check, seconds=seconds), what
