"""Identify the process of a node. Riak does not report a start time, so it is read on the host.

A process is identified by the boot id of its machine, its pid and its start in clock ticks since that boot:
field 22 of `/proc/PID/stat` (proc(5)). With the boot time (`btime` in `/proc/stat`) this gives a time of the
host's clock, for `--started-before`. That time never identifies a process: the kernel computes `btime` from
the current clock, so it changes when the clock is set.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from functools import partial
from typing import Final

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.riak.admin import AdminCommand, RiakAdmin, output_of
from orchestrator.riak.output import CommandOutput, RiakUnreadable, reading

_BOOT: Final = re.compile(r"[0-9a-f-]{36}")
_AFTER_THE_NAME: Final = 2
_START_FIELD: Final = 22
_BOOT_TIME: Final = re.compile(r"btime (\d{1,12})")
_TICKS_PER_SECOND: Final = 100
"""The kernel's clock ticks for processes (USER_HZ), on every platform that runs Riak."""
_ENDED: Final = frozenset({"Z", "X", "x"})
"""States of a process that has ended and still has its pid (proc(5))."""


class Lives:
    """The process of each node, found with as few starts of an Erlang VM as possible. Thread-safe.

    `riak pid` starts a VM on the node, so it runs once per process: as long as `/proc` shows the pid with the
    same start on the same boot, it is the same process. This shortcut is not used for the process from before
    the node's restart: it may still exist while the next one already runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[NodeName, tuple[int, Incarnation]] = {}
        self._outgoing: dict[NodeName, str | None] = {}

    def restarting(self, nodes: Collection[NodeName]) -> None:
        """Set the nodes that are being restarted now; their known processes are the outgoing ones."""
        with self._lock:
            before, found = self._outgoing, self._found
            self._outgoing = {
                node: before[node] if node in before else _identity(found.get(node)) for node in nodes
            }

    def of(self, admin: RiakAdmin, node: NodeName) -> Incarnation:
        """The current process of a node; one command on its host, or two with a VM.

        `Contacts.stranger` checks that the process is that of the node: a process has no name.
        """
        with self._lock:
            known, restarting = self._found.get(node), node in self._outgoing
            outgoing = self._outgoing.get(node)
        # Without a known outgoing process (a run that was resumed), any process may be it.
        believed = not restarting or outgoing not in (None, _identity(known))
        if known is not None and believed:
            again = reading(partial(_process, admin, node, known[0]))
            if isinstance(again, Incarnation) and again.ephemeral_id == known[1].ephemeral_id:
                return again
        pid = admin.pid(node)
        found = _process(admin, node, pid)
        with self._lock:
            self._found[node] = (pid, found)
        return found


def _identity(found: tuple[int, Incarnation] | None) -> str | None:
    return None if found is None else found[1].ephemeral_id


def _process(admin: RiakAdmin, node: NodeName, pid: int) -> Incarnation:
    files = ("/proc/sys/kernel/random/boot_id", f"/proc/{pid}/stat", "/proc/stat")
    return parse_life(output_of(admin.runner, node, AdminCommand(argv=("cat", *files), as_root=False)), pid)


def parse_life(output: CommandOutput, pid: int) -> Incarnation:
    """Parse boot id, `/proc/PID/stat` and `/proc/stat`, in this order; no start time without `btime`."""
    lines = output.stdout.splitlines()
    boots = [found for line in lines[2:] if (found := _BOOT_TIME.fullmatch(line))]
    # The second field is the program's name in brackets, which may hold blanks and brackets itself.
    whole = len(lines) > 1 and all(line[:1].isalpha() for line in lines[2:])
    fields = lines[1].rpartition(")")[2].split() if whole else []
    start = "".join(fields[_START_FIELD - _AFTER_THE_NAME - 1 :][:1])
    if output.exit != 0 or not fields or not _BOOT.fullmatch(lines[0]) or not start.isdecimal():
        raise RiakUnreadable(f"when process {pid} began cannot be read from /proc")
    if fields[0] in _ENDED:
        raise RiakUnreadable(f"process {pid} has ended")
    started = int(boots[0][1]) * 1000 + int(start) * 1000 // _TICKS_PER_SECOND if len(boots) == 1 else None
    return Incarnation(ephemeral_id=f"{lines[0]} {pid} {start}", started_at_ms=started)
