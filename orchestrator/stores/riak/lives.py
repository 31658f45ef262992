"""Which process a node is: Riak tells no start time, so its host is asked for it.

A process is known by the boot of its machine, its number and the moment of its start, in clock ticks since
that boot: field 22 of `/proc/PID/stat` (proc(5)). With the moment of the boot (`btime` in `/proc/stat`) it is
a time of the host's own clock, for `--started-before`. That is never what tells two lives apart: the kernel
reckons `btime` back from the clock as it is now, so that a clock that was set moves it.
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
_BOOT_TIME: Final = re.compile(r"btime (\d{1,12})")
_TICKS_PER_SECOND: Final = 100
"""Of the ticks in which the kernel tells processes a time (USER_HZ), wherever Riak runs."""


def life_of(admin: RiakAdmin, node: NodeName) -> Reading[Incarnation]:
    """The process that answers for a node now; two commands on its host.

    Whether it is that node's is for `Contacts.stranger` to say: a process has no name.
    """
    pid = admin.pid(node)
    if isinstance(pid, Unknown):
        return pid
    files = ("/proc/sys/kernel/random/boot_id", f"/proc/{pid}/stat", "/proc/stat")
    output = admin.runner.run(node, Command(argv=("cat", *files), as_root=False))
    return output if isinstance(output, Unknown) else parse_life(output, pid)


def parse_life(output: CommandOutput, pid: int) -> Reading[Incarnation]:
    """Boot id, `/proc/PID/stat` and `/proc/stat`, one after the other; without `btime` no start is told."""
    lines = output.stdout.splitlines()
    boots = [found for line in lines[2:] if (found := _BOOT_TIME.fullmatch(line))]
    # The second field is the program's name in brackets, which may hold blanks and brackets itself.
    whole = len(lines) > 1 and all(line[:1].isalpha() for line in lines[2:])
    fields = lines[1].rpartition(")")[2].split() if whole else []
    start = "".join(fields[_START_FIELD - _AFTER_THE_NAME - 1 :][:1])
    if output.exit != 0 or not fields or not _BOOT.fullmatch(lines[0]) or not start.isdecimal():
        return Unknown(reason=f"when process {pid} began cannot be read from /proc")
    started = int(boots[0][1]) * 1000 + int(start) * 1000 // _TICKS_PER_SECOND if len(boots) == 1 else None
    return Incarnation(ephemeral_id=f"{lines[0]} {pid} {start}", started_at_ms=started)
