"""A Riak cluster of the double on this machine: a node is a process, and each has an sshd of its own.

The cluster file has one `riak` command for all machines, and here all machines are one. So the command is a
script that finds its node by a variable, which each node's sshd sets for its sessions.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.sshd import Sshd, make_key
from tests.riak_nodes import RiakCommand, RiakNode, riak_nodes

VARIABLE = "RIAK_LAB_FOLDER"
CLAIMANT = "dev1@127.0.0.1"
LOOK_SECONDS = 0.01
"""Between two looks at the processes; a node of the double is down for longer than fifty of them."""
READY_SECONDS = 60.0
SILENT = "silent"
"""A file of the lab's folder: as long as it is there, no command answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process of a node: its number, and the clock tick of its start."""

    pid: int
    start: int


@dataclass(slots=True, kw_only=True)
class Watch:
    """What was seen of the processes while it looked."""

    lives: dict[str, list[Life]] = field(default_factory=dict)  # of each node, in order
    most_down: frozenset[str] = frozenset()  # the largest set of nodes that were down at once

    def see(self, nodes: tuple[RiakNode, ...]) -> None:
        """Look once."""
        found = {node.name: life_of(node) for node in nodes}
        for name, life in found.items():
            known = self.lives.setdefault(name, [])
            if life is not None and life not in known:
                known.append(life)
        down = frozenset(name for name, life in found.items() if life is None)
        self.most_down = max(self.most_down, down, key=len)

    def starts(self) -> dict[str, int]:
        """How often each node was started since the first look."""
        return {name: len(lives) - 1 for name, lives in self.lives.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakProcesses:
    """The running cluster."""

    folder: Path  # of its own
    nodes: tuple[RiakNode, ...]  # all of them
    servers: tuple[Sshd, ...]  # the sshd of each, in the same order
    command: Path  # the one `riak` of the cluster file
    key: Path  # what logs in

    def cluster_document(self) -> dict[str, Any]:
        """The content of its cluster file."""
        return {
            "kind": "riak",
            "name": "lab",
            "endpoints": [f"http://127.0.0.1:{node.http}" for node in self.nodes],
            "expect": {"nodes": len(self.nodes)},
            "hosts": {
                "connect": "ssh",
                "identity": str(self.key),
                "known_hosts": str(self.folder / "known_hosts"),
                "sudo": False,
                "data": [str(self.folder)],
                "overrides": {
                    node.name: {"port": server.port}
                    for node, server in zip(self.nodes, self.servers, strict=True)
                },
            },
            # All nodes are on this machine: its own folder keeps two labs apart.
            "riak": {"command": str(self.command), "lease_directory": str(self.leases)},
        }

    @property
    def leases(self) -> Path:
        """Where the record of the lease is."""
        return self.folder / "leases"

    def limits(self) -> Mapping[str, int]:
        """The transfer limit of each node, as the claimant prints it."""
        said = self.nodes[0].riak("admin", "transfer-limit").stdout
        return {name: int(limit) for limit, name in re.findall(r"(\d+) +'(\S+)'", said)}

    def limit(self, **limits: int) -> None:
        """Set the limits of nodes, by the first part of their names."""
        for short, limit in limits.items():
            done = self.nodes[0].riak("admin", "transfer-limit", f"{short}@127.0.0.1", str(limit))
            assert done.returncode == 0, done.stdout

    def up(self) -> Mapping[str, bool]:
        """Whether each node's process runs."""
        return {node.name: node.alive for node in self.nodes}

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Return when every node runs and nothing is left to hand off; fail after so long."""
        limit = time.monotonic() + seconds
        while not all(self.up().values()) or not self._clean():
            assert time.monotonic() < limit, self.nodes[0].riak("admin", "transfers").stdout
            time.sleep(0.1)

    def _clean(self) -> bool:
        return self.nodes[0].riak("admin", "transfers").stdout.startswith("No transfers active\n")

    @contextmanager
    def silent(self) -> Iterator[Path]:
        """No command of Riak answers in the block; each is noted in a file, made by the first."""
        mark, asked = self.folder / SILENT, self.folder / "asked"
        asked.unlink(missing_ok=True)
        mark.touch()
        try:
            yield asked
        finally:
            mark.unlink()

    @contextmanager
    def watched(self) -> Iterator[Watch]:
        """Look at the processes all the time."""
        watch, over = Watch(), threading.Event()
        watch.see(self.nodes)

        def look() -> None:
            while not over.wait(LOOK_SECONDS):
                watch.see(self.nodes)

        thread = threading.Thread(target=look, name="watch")
        thread.start()
        try:
            yield watch
        finally:
            over.set()
            thread.join()


def life_of(node: RiakNode) -> Life | None:
    """The process that a node is now."""
    try:
        pid = int((node.folder / "state" / "pid").read_text())
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):  # gone, or its number is being written
        return None
    return Life(pid=pid, start=int(fields[19])) if fields[0] != "Z" and node.alive else None


@contextmanager
def riak_processes(
    folder: Path,
    count: int = 5,
    *,
    pace: float,
    ring_size: int = 64,
    locations: Sequence[str] = (),
    command: RiakCommand = RiakCommand.RELEASE,
) -> Iterator[RiakProcesses]:
    """So many nodes that are one cluster and run, each behind an sshd; all is ended with the block."""
    (folder / "leases").mkdir(parents=True, exist_ok=True)
    key = make_key(folder / "id_ed25519")
    script = folder / "riak"
    script.write_text(
        "#!/bin/sh\n"
        f'[ -e "{folder}/{SILENT}" ] && echo "$@" >> "{folder}/asked"\n'
        f'while [ -e "{folder}/{SILENT}" ]; do sleep 0.1; done\n'
        f'exec "${VARIABLE}/bin/riak" "$@"\n'
    )
    script.chmod(0o755)
    with riak_nodes(
        folder / "nodes", count, pace=pace, ring_size=ring_size, locations=locations, command=command
    ) as nodes:
        servers = tuple(
            Sshd(
                folder=folder / f"sshd-{number}",
                client_key=key,
                environment={VARIABLE: str(node.folder)},
            )
            for number, node in enumerate(nodes)
        )
        lab = RiakProcesses(folder=folder, nodes=nodes, servers=servers, command=script, key=key)
        try:
            for server in servers:
                server.start()
            (folder / "known_hosts").write_text("".join(server.known() for server in servers))
            for node in nodes:
                started = node.riak("start")
                assert started.returncode == 0, started.stdout
                assert node.alive, (node.folder / "state" / "log").read_text()
            lab.wait_ready()
            yield lab
        finally:
            for server in servers:
                server.stop()
