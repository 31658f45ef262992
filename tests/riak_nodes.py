"""Nodes of the double of Riak as processes on loopback: `with riak_nodes(folder, 3, pace=0.05) as nodes:`.

Each has a folder of its own with `bin/riak`, `etc/riak.conf` and `faults`. Whatever happens, the processes
are ended: by their numbers at the end of the `with`, and by themselves when the process that made them dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.ports import free_ports

LAUNCHER = Path(__file__).parent / "doubles" / "riak-double"
PYTHON = Path(sys.executable).resolve()
"""By name: looking for `python3` may go through a shell script that takes longer than the command."""
COMMAND_SECONDS = 60.0
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}


class RiakCommand(Enum):
    """Which `riak` the double stands for: the release's own, or the packaged one, which always exits 0."""

    RELEASE = "release"
    PACKAGED = "packaged"


RIAK_COMMANDS = tuple(RiakCommand)
"""Whatever the program reads of Riak, it reads with each of them: for parametrised tests and fixtures."""


def name_of(command: RiakCommand) -> str:
    """Of a test's parameter."""
    return command.value


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakNode:
    """One node."""

    name: str  # such as `dev1@127.0.0.1`
    folder: Path  # with `bin`, `etc`, `state`, `double.conf` and `faults`
    http: int  # the port of `/ping` and `/stats`

    @property
    def command(self) -> Path:
        """The node's `riak`."""
        return self.folder / "bin" / "riak"

    def riak(self, *words: str, seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run `riak WORDS`; exit code 124 if it had to be ended after so many real seconds."""
        return self._run("riak", words, seconds)

    def double(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run what only the double can do: `faults NAME=VALUE...`, `report`."""
        return self._run("riak-double", words, COMMAND_SECONDS)

    def faults(self, **values: str) -> None:
        """Have these go wrong from now on, and nothing else; `_` stands for `-`."""
        done = self.double("faults", *(f"{name.replace('_', '-')}={value}" for name, value in values.items()))
        assert done.returncode == 0, done.stderr

    def printing(self, lines: int, *words: str) -> str:
        """Run `riak WORDS` until it has printed so many lines, then end it; what it printed.

        A command that ends before it has printed them fails the test.
        """
        with subprocess.Popen(  # noqa: S603  (the double's own program)
            [str(self.command), *words], stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None
                said = [process.stdout.readline() for _ in range(lines)]
                assert process.poll() is None, f"it ended by itself with {process.returncode}: {said}"
            finally:
                os.killpg(process.pid, signal.SIGKILL)
        return "".join(said)

    def _run(self, program: str, words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "bin" / program), *words]
        with subprocess.Popen(  # noqa: S603  (the double's own program)
            command,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                return subprocess.CompletedProcess(command, 124, out, err)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an HTTP request."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.http}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()

    def stats(self) -> dict[str, Any]:
        """What `/stats` says."""
        found: dict[str, Any] = json.loads(self.get("/stats")[1])
        return found

    @property
    def pid(self) -> int:
        """The number of the node's process as last started, 0 before."""
        file = self.folder / "state" / "pid"
        return int(file.read_text()) if file.exists() else 0

    @property
    def alive(self) -> bool:
        """Whether that process runs, by the machine's own list."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False
        return state != "Z" and (not words or b"riak-double-node" in words)

    def end(self) -> None:
        """End its process, whatever it is in."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        limit = time.monotonic() + 10
        while self.alive and time.monotonic() < limit:
            time.sleep(0.01)


@contextmanager
def riak_nodes(
    folder: Path,
    count: int,
    *,
    pace: float = 0.05,
    ring_size: int = 16,
    locations: Sequence[str] = (),
    command: RiakCommand = RiakCommand.RELEASE,
) -> Iterator[tuple[RiakNode, ...]]:
    """So many nodes, none of them started.

    Args:
        folder: an empty one.
        count: how many.
        pace: real seconds for a second of the recording.
        ring_size: partitions.
        locations: of each node in turn; none by default.
        command: whose exit codes `riak` has.
    """
    names = [f"dev{number + 1}@127.0.0.1" for number in range(count)]
    ports = free_ports(2 * count)
    addresses = "".join(
        f"address.{name} = 127.0.0.1:{port}\n" for name, port in zip(names, ports, strict=False)
    )
    places = "".join(f"location.{name} = {place}\n" for name, place in zip(names, locations, strict=False))
    nodes = []
    for number, name in enumerate(names):
        node = RiakNode(name=name, folder=folder / f"dev{number + 1}", http=ports[count + number])
        for part in ("bin", "etc", "links", "state"):
            (node.folder / part).mkdir(parents=True)
        (node.folder / "etc" / "riak.conf").write_text(
            f"nodename = {name}\nlistener.http.internal = 127.0.0.1:{node.http}\nring_size = {ring_size}\n"
            "erlang.schedulers.total = 2\nerlang.schedulers.online = 2\n"
        )
        (node.folder / "double.conf").write_text(
            f"pace = {pace}\nbind = 127.0.0.1\nport = {ports[number]}\n"
            f"etc = {node.folder / 'etc'}\nstate = {node.folder / 'state'}\nparent = {os.getpid()}\n"
            f"command = {command.value}\n" + places + addresses + f"members = {', '.join(names)}\n"
        )
        for program in ("riak", "riak-double"):
            # The double goes by the name that it is called by; who calls needs no environment for it.
            link = node.folder / "links" / program
            link.symlink_to(LAUNCHER)
            path = node.folder / "bin" / program
            path.write_text(f'#!/bin/sh\nRIAK_DOUBLE_HOME={node.folder} exec {PYTHON} -E -S {link} "$@"\n')
            path.chmod(0o755)
        nodes.append(node)
    try:
        yield tuple(nodes)
    finally:
        for node in nodes:
            node.end()


def wait_until(check: Callable[[], bool], what: str) -> None:
    """Wait up to a minute for it."""
    limit = time.monotonic() + 60
    while not check():
        assert time.monotonic() < limit, what
        time.sleep(0.05)
