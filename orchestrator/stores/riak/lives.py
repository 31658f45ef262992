"""Which process a node is: Riak tells no start time, so its host is asked for it.

A process is known by the boot of its machine, its number and the moment of its start, in clock ticks since
that boot: field 22 of `/proc/PID/stat` (proc(5)).
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.reading import Reading, Unknown
from orchestrator.stores.riak.admin import Command, RiakAdmin
from orchestrator.stores.riak.output import CommandOutput

_BOOT: Final = re.compile(r"[0-9a-f-]{36}")
_AFTER_THE_NAME: Final = 2
_START_FIELD: Final = 22


def life_of(admin: RiakAdmin, node: NodeName) -> Reading[Incarnation]:
    """The process that answers for a node now; two commands on its host.

    Whether it is that node's is for `Contacts.stranger` to say: a process has no name.
    """
    pid = admin.pid(node)
    if isinstance(pid, Unknown):
        return pid
    files = ("/proc/sys/kernel/random/boot_id", f"/proc/{pid}/stat")
    output = admin.runner.run(node, Command(argv=("cat", *files), as_root=False))
    return output if isinstance(output, Unknown) else parse_life(output, pid)


def parse_life(output: CommandOutput, pid: int) -> Reading[Incarnation]:
    """Boot id and `/proc/PID/stat`, one after the other."""
    lines = output.stdout.splitlines()
    # The second field is the program's name in brackets, which may hold blanks and brackets itself.
    fields = lines[1].rpartition(")")[2].split() if len(lines) == 2 else []  # noqa: PLR2004  (two files)
    start = "".join(fields[_START_FIELD - _AFTER_THE_NAME - 1 :][:1])
    if output.exit != 0 or not fields or not _BOOT.fullmatch(lines[0]) or not start.isdecimal():
        return Unknown(reason=f"when process {pid} began cannot be read from /proc")
    return Incarnation(ephemeral_id=f"{lines[0]} {pid} {start}")
