"""The identity of a run: its process (unique among all processes), operator, host and run name."""

from __future__ import annotations

import os
import pwd
import random
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrator.model.reading import Instant

_PROC: Final = Path("/proc")
_LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Characters for run ids: none that is easily confused with another."""
_SUFFIX: Final = 4
_CHANCE: Final = random.SystemRandom()
_LARGEST_PID: Final = 2**31 - 1
"""Of `pid_t`: a system call takes no larger number."""

_IDENTITY: Final = re.compile(
    r"(?P<boot>[^/\n]*)/(?P<namespace>[^/\n]*)/(?P<pid>[0-9]{1,10})/(?P<started>[0-9]{1,20})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """The unique identity of a process on all machines."""

    boot: str  # the kernel's boot id; a different one means another machine, or the same one after a reboot
    # inode of the PID namespace: containers share the boot id of their machine but not its pids
    namespace: str
    pid: int
    started: int  # field 22 of `/proc/<pid>/stat`, in clock ticks since boot; a reused pid has another value

    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.started}"


def current_process(proc: Path = _PROC) -> ProcessIdentity:
    """The identity of this process."""
    pid = os.getpid()
    state = _state_of(pid, proc)
    return ProcessIdentity(
        boot=_boot(proc), namespace=_namespace(proc), pid=pid, started=state.started if state else 0
    )


def parse_identity(text: str) -> ProcessIdentity | None:
    """Parse the identity in a lease or a run; None if it has another form (then nothing can be proven)."""
    found = _IDENTITY.fullmatch(text)
    if found is None or not 0 < int(found["pid"]) <= _LARGEST_PID:
        return None
    return ProcessIdentity(
        boot=found["boot"], namespace=found["namespace"], pid=int(found["pid"]), started=int(found["started"])
    )


def provably_gone(identity: str, proc: Path = _PROC) -> bool:
    """Whether that process has certainly ended; False also means "unknown".

    Provable only in the same boot and the same PID namespace. A pid that `/proc` hides (`hidepid`) exists as
    long as a signal could be sent to it. A zombie has ended, unless other threads of it still run.
    """
    found = _here(identity, proc)
    if found is None:
        return False
    if not _exists(found.pid):
        return True
    state = _state_of(found.pid, proc)
    return state is not None and (state.started != found.started or state.dead)


def provably_alive(identity: str, proc: Path = _PROC) -> bool:
    """Whether that process certainly runs now, on this machine; False also means "unknown"."""
    found = _here(identity, proc)
    if found is None:
        return False
    state = _state_of(found.pid, proc)
    return state is not None and state.started == found.started and not state.dead


def suspended_pid(identity: str, proc: Path = _PROC) -> int | None:
    """The pid of that process if it is suspended (SIGSTOP, Ctrl-Z), on this machine; else None.

    It does nothing until SIGCONT: it reacts neither to requests in the state database nor to SIGTERM.
    """
    found = _here(identity, proc)
    state = None if found is None else _state_of(found.pid, proc)
    if found is None or state is None or state.started != found.started or not state.suspended:
        return None
    return found.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessState:
    started: int
    dead: bool
    suspended: bool


def _here(identity: str, proc: Path) -> ProcessIdentity | None:
    found = parse_identity(identity)
    if found is None or not found.boot or not found.namespace:
        return None
    return found if (found.boot, found.namespace) == (_boot(proc), _namespace(proc)) else None


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""  # then nothing can be proven about this process, which only makes takeovers slower


def _namespace(proc: Path) -> str:
    try:
        return str((proc / "self/ns/pid").readlink()).removeprefix("pid:[").removesuffix("]")
    except OSError:
        return ""  # as above


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _state_of(pid: int, proc: Path) -> _ProcessState | None:
    """None if it cannot be read, which proves nothing about the process."""
    try:
        text = (proc / str(pid) / "stat").read_text("utf-8", errors="replace")
        threads = sum(1 for _ in (proc / str(pid) / "task").iterdir())
    except OSError:
        return None
    after = text[text.rindex(")") + 2 :].split()  # the name in brackets may hold blanks and brackets
    return _ProcessState(
        started=int(after[19]), dead=after[0] in "ZXx" and threads <= 1, suspended=after[0] == "T"
    )


def operator_name(environment: Mapping[str, str]) -> str:
    """The operator: the account, or, under sudo, the account that called it."""
    try:
        account = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        account = f"uid {os.getuid()}"
    caller = environment.get("SUDO_USER", "")
    return f"{caller} (as {account})" if caller and caller != account else account


def host_name() -> str:
    """This machine's own name, for people."""
    return socket.gethostname()


def new_run_id(at: Instant, chance: random.Random = _CHANCE) -> str:
    """A name for a run that sorts by time and is easy to type: `20261121-0413-x7k2`, in UTC."""
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y%m%d-%H%M")
    return f"{stamp}-{''.join(chance.choice(_LETTERS) for _ in range(_SUFFIX))}"
