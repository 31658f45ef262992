"""Mishaps of a night on real hosts: a command with the moment of each line, what befalls it, what is left.

How long it takes until a line names a mishap is measured and shown in a table, and is no condition of a test:
a busy machine is slow. What is said, in which order, and what is left are.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import urllib3

from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.mistuned import put
from tests.integration.operating import Operator, leases, lives, settings
from tests.lab.client import Access, LabClient

FAST_CLOCK = ("env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", "+3600s")
"""Starts a program whose clock is an hour fast. Monotonic clocks stay true: with a faked one Python hangs."""
OTHER_MACHINE = (
    *("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", 'hostname bastion2 && exec "$0" "$@"'),
)
"""Starts a program of which nobody on this machine can tell whether it still runs."""
TYPO = "indices.breaker.totl.limit"
"""A setting that no server has."""
CONFIGURATION = "/etc/node/elasticsearch.yml"
UNAUTHORIZED = 401
REJECTED_SECONDS = 60.0
"""Nodes read their users every five seconds; a busy machine takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of output.

    Attributes:
        at: when it was read, by the monotonic clock.
    """

    at: float
    text: str


class Typed:
    """A command that runs while something befalls it. Use as a context manager: it ends with the block.

    Args:
        operator: who types it.
        words: the command without the program's name.
    """

    def __init__(self, operator: Operator, *words: str) -> None:
        self.began = time.monotonic()
        self._said: list[Line] = []
        self._process = operator.begin(*words)
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.append(Line(at=time.monotonic(), text=line.rstrip("\n")))

    @property
    def lines(self) -> tuple[Line, ...]:
        """What it has said so far."""
        return tuple(self._said)

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(line.text for line in self.lines)

    def find(self, pattern: str, *, since: float = 0.0) -> Line | None:
        """The first line since a moment in which the pattern is found."""
        return next((line for line in self.lines if line.at >= since and re.search(pattern, line.text)), None)

    def wait_for(self, pattern: str, *, since: float = 0.0, seconds: float = 300.0) -> Line:
        """The same, waiting for it; fails if the command ends without it, or takes too long."""
        limit = time.monotonic() + seconds
        while True:
            ended = not self._reader.is_alive()
            if (found := self.find(pattern, since=since)) is not None:
                return found
            assert not ended, f"ended without {pattern}:\n{self.text}"
            assert time.monotonic() < limit, f"no {pattern} within {seconds:.0f} s:\n{self.text}"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._process.kill()
        self.end()

    def end(self, seconds: float = 900.0) -> int:
        """Wait for its end and its last line; the exit code. Fails if that takes longer."""
        assert wait_until(lambda: self._process.poll() is not None, seconds=seconds), (
            f"not ended after {seconds:.0f} s:\n{self.text}"
        )
        self._reader.join()
        return int(self._process.returncode)


def advised(text: str, verb: str) -> list[str]:
    """The words of the one command with this verb that a text advises, as typed behind the program's name."""
    found = {each.strip(" .,;") for each in re.findall(rf"orchestrate ({verb} [^\n`;]*)", text)}
    assert len(found) == 1, f"not one command to {verb} but {sorted(found)}:\n{text}"
    return shlex.split(found.pop())


def killed_at_stop(operator: Operator, file: Path, victim: str) -> str:
    """Type `restart`, and kill it once it has stopped the node's service; the run's id, by the state."""
    with Typed(operator, "restart", "--cluster", str(file), "--yes", "--output", "plain") as night:
        night.wait_for(f"{victim}: stop the service - accepted")
        night.kill()
    with closing(sqlite3.connect(operator.folder / "state.db")) as state:
        (only,) = state.execute("SELECT id FROM runs WHERE outcome IS NULL").fetchall()
    return str(only[0])


def left(cluster: HostCluster, before: Mapping[str, Mapping[str, Any]]) -> str:
    """What is other than before: nodes that are down, cluster settings, lease records."""
    now = settings(cluster)
    found = [f"{name} is down" for name in cluster.names if name not in lives(cluster)]
    for level, wanted in before.items():
        found += [
            f"{key} ({level}): {now[level].get(key)}, was {wanted.get(key)}"
            for key in sorted(wanted.keys() | now[level].keys())
            if wanted.get(key) != now[level].get(key)
        ]
    found += [f"lease record {record}" for record in leases(cluster)]
    return "; ".join(found) or "nothing"


@contextmanager
def dropped(cluster: HostCluster, name: str, port: int) -> Iterator[None]:
    """Drop every packet from this machine to one port of a host."""
    if os.geteuid() != 0:
        pytest.fail("dropping packets needs root")
    address = cluster.host(name).address
    rule = ("OUTPUT", "-d", address, "-p", "tcp", "--dport", str(port), "-j", "DROP")
    docker.run(("iptables", "--wait", "-I", *rule))
    try:
        yield
    finally:
        docker.run(("iptables", "--wait", "-D", *rule))


def fill(folder: Path) -> float:
    """Fill the file system of a folder with a file `fill`; the moment at which it is full."""
    file = folder / "fill"
    docker.run(("dd", "if=/dev/zero", f"of={file}", "bs=4k"), check=False)
    assert shutil.disk_usage(folder).free == 0, file
    return time.monotonic()


@contextmanager
def misspelt(cluster: HostCluster, name: str) -> Iterator[None]:
    """Write a setting that no server has into the node's configuration, until the block ends."""
    right = cluster.exec(name, "cat", CONFIGURATION).stdout
    put(cluster, name, CONFIGURATION, f"{right}{TYPO}: 70%\n")
    try:
        yield
    finally:
        put(cluster, name, CONFIGURATION, right)


@contextmanager
def readable_journal(cluster: HostCluster, name: str) -> Iterator[None]:
    """The program's account may read the journal of the host, until the block ends."""
    cluster.exec(name, "usermod", "--append", "--groups", "systemd-journal", cluster.ssh_user)
    try:
        yield
    finally:
        cluster.exec(name, "gpasswd", "--delete", cluster.ssh_user, "systemd-journal")


@contextmanager
def usual_logs(cluster: HostCluster, name: str) -> Iterator[None]:
    """Logs that everybody may read are where packages of the server have them, until the block ends."""
    cluster.exec(name, "ln", "-s", "/var/log/node", "/var/log/elasticsearch")
    try:
        yield
    finally:
        cluster.exec(name, "rm", "/var/log/elasticsearch")


@contextmanager
def rotation(cluster: HostCluster) -> Iterator[Rotation]:
    """Lets the password be changed in the block; at its end the first one is the right one again."""
    try:
        yield Rotation(cluster)
    finally:
        first = cluster.keys.orchestrator_password
        cluster.change_password(first)
        assert wait_until(
            lambda: all(_accepts(cluster, each, first) for each in cluster.endpoints), seconds=300
        )


class Rotation:
    """Another password for the program's user."""

    password = "another-password"  # noqa: S105  (dies with the lab)

    def __init__(self, cluster: HostCluster) -> None:
        self._cluster = cluster

    def change(self) -> float:
        """Change it on every host; the moment at which the first node refuses the old one."""
        old = self._cluster.keys.orchestrator_password
        up = [each for each in self._cluster.endpoints if _accepts(self._cluster, each, old)]
        assert up, "no node is up that could refuse anything"
        self._cluster.change_password(self.password)
        refused = wait_until(
            lambda: any(_accepts(self._cluster, each, old) is False for each in up), seconds=REJECTED_SECONDS
        )
        assert refused, "the nodes did not read their users again"
        return time.monotonic()


def _accepts(cluster: HostCluster, endpoint: str, password: str) -> bool | None:
    """Whether a node takes the password; None if it does not answer."""
    user = cluster.orchestrator.user
    client = LabClient(Access(endpoints=(endpoint,), user=user, password=password, ca=str(cluster.ca)))
    try:
        return client.send(endpoint, "GET", "/_security/_authenticate", seconds=5.0).status != UNAUTHORIZED
    except urllib3.exceptions.HTTPError:
        return None
    finally:
        client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """What is shown of one mishap.

    Attributes:
        what: the mishap.
        seconds: from the mishap to the first line that names it; None if no line has to.
        line: that line.
        left: what is left on the cluster afterwards.
    """

    what: str
    seconds: float | None
    line: str
    left: str


def table(mishaps: Sequence[Mishap]) -> list[str]:
    """The lines of the table of a night."""
    shown = []
    for each in mishaps:
        seconds = "-" if each.seconds is None else f"{each.seconds:.1f} s"
        shown += [f"{seconds:>7}  {each.what}; left: {each.left}", f"         {each.line}"]
    return shown
