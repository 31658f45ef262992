"""Hosts for the lease of a Riak cluster: a folder each, worked on by real shells, with faults."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading, Unknown
from orchestrator.riak.admin import AdminCommand
from orchestrator.riak.lease import RiakLease
from orchestrator.riak.lease_files import Folder
from orchestrator.riak.output import CommandOutput

CLUSTER = "ring"
FOLDER = "/var/tmp"
SHELL = ("/bin/sh", "-c")


@dataclass(slots=True)
class LeaseHosts:
    """The machines of a cluster's nodes."""

    base: Path  # the folders of the machines are in it
    machines: dict[NodeName, str]  # which machine a node is on
    down: set[str] = field(default_factory=set)  # machines that do not answer
    shell: Sequence[str] = SHELL  # what runs the scripts
    # called before each command, with the node and the verb
    before: Callable[[NodeName, str], None] = lambda _node, _verb: None
    asked: list[tuple[NodeName, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, node: NodeName, command: AdminCommand) -> CommandOutput | Unknown:
        """A `Runner`."""
        assert not command.as_root
        assert command.argv[:2] == SHELL
        script, name, verb, folder, *words = command.argv[2:]
        assert folder == FOLDER
        with self._lock:
            self.asked.append((node, verb))
        self.before(node, verb)
        machine = self.machines[node]
        if machine in self.down:
            return Unknown(reason="no route to host")
        argv = [*self.shell, script, name, verb, str(self.folder(machine)), *words]
        done = subprocess.run(argv, capture_output=True, check=False, timeout=60)  # noqa: S603  (our own script)
        return CommandOutput(
            exit=done.returncode,
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
        )

    def folder(self, machine: str) -> Path:
        """Where a machine keeps its files."""
        path = self.base / machine
        if not path.exists():
            path.mkdir(exist_ok=True)
        return path

    def file(self, machine: str, number: int = 1, cluster: str = CLUSTER) -> Path:
        """One file of the lease."""
        return self.folder(machine) / Path(Folder(path=FOLDER, cluster=cluster).file(number)).name

    def files(self, machine: str) -> list[str]:
        """Everything in the folder of a machine, hidden files too."""
        return sorted(path.name for path in self.folder(machine).iterdir())

    def lease(self, cluster: str = CLUSTER, *, clock: Callable[[], float] = lambda: 0.0) -> RiakLease:
        """A program's own look at them; unless the clock goes on, it waits for every answer."""
        members: Reading[Sequence[NodeName]] = list(self.machines)
        return RiakLease(self, lambda: members, Folder(path=FOLDER, cluster=cluster), clock=clock)

    def seen_by(self, *down: str) -> LeaseHosts:
        """The same machines from elsewhere, where these do not answer."""
        return replace(self, down=set(down), asked=[], _lock=threading.Lock())


def lease_hosts(base: Path, count: int = 5) -> LeaseHosts:
    """So many nodes, each on a machine of its own: `m1` has `riak@m1`."""
    return LeaseHosts(base=base, machines={NodeName(f"riak@m{n}"): f"m{n}" for n in range(1, count + 1)})
