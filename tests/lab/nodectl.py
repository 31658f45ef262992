"""`nodectl start|stop|status NODE`: the service manager of a lab, for `manager: command`.

The lab copies this file into its own folder, so it uses the standard library alone and imports nothing of
this package. A node is a folder beside it with a `launch.json`, which holds all that the node needs to start.

A started node has no parent in the lab: it has its own session, and outlives the process that started it. It
is identified by three things together: the process id and start time written into `node.pid` by the process
itself *before* it becomes the server (so a server never runs without a file that names it), and the lab's
folder in its command line. A process that does not match all three is never signalled.

Exit codes: 0 done, or running; 3 not running (`status`); 1 it did not work, with the reason; 2 usage.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

START_LIMIT_SECONDS = 180.0
STOP_LIMIT_SECONDS = 120.0
READY_CHECK_SECONDS = 0.05
"""How often the HTTP port is tried while a node boots; the end of the process is noticed at once."""
NOT_RUNNING = 3
"""Exit code of `status`, the same as in LSB init scripts."""
LOG_TAIL_BYTES = 3000
_STAT_STATE, _STAT_START_TIME = 0, 19
"""Places in /proc/PID/stat counted after the command's closing bracket (proc(5): fields 3 and 22)."""


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None if it is gone or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STAT_STATE] in "ZX" else int(fields[_STAT_START_TIME])


def identity(pid: int) -> dict[str, Any]:
    """What tells a process from all others; start times are only comparable within one boot."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot}


def mentions(pid: int, folder: Path) -> bool:
    """Whether a process's command line names a path under a folder."""
    try:
        return os.fsencode(f"{folder}{os.sep}") in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def running_pid(node: Path) -> int | None:
    """The process id of a node, if the process in its `node.pid` exists and belongs to this lab."""
    try:
        written = json.loads((node / "node.pid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    pid = int(written["pid"])
    return pid if written == identity(pid) and mentions(pid, node.parent) else None


def send_and_wait(node: Path, number: signal.Signals, limit_seconds: float) -> bool:
    """Signal a node's process and wait for its exit.

    A pidfd is opened before the identity is checked, so a process id that was used again in between cannot be
    signalled.
    """
    handle = _opened(node)
    if handle is None:
        return True
    try:
        signal.pidfd_send_signal(handle, number)
        return _exited(handle, limit_seconds)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def _opened(node: Path) -> int | None:
    """A pidfd of a node's process; its identity is checked again once the process is held by it."""
    pid = running_pid(node)
    try:
        handle = None if pid is None else os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if handle is not None and running_pid(node) != pid:
        os.close(handle)
        return None
    return handle


def _exited(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


def start(node: Path, limit_seconds: float) -> int:
    """Start a node and wait until it answers on its HTTP port, as `elasticsearch -d` does."""
    with (node / "nodectl.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two starts at once are one start
        if running_pid(node) is not None:
            return _say(f"{node.name} is already running", 0)
        launch = json.loads((node / "launch.json").read_text(encoding="utf-8"))
        console = node / "console.log"
        offset = console.stat().st_size if console.exists() else 0
        if reason := _spawn(node, launch):
            return _say(f"{node.name} cannot be started: {reason}", 1)
    return _await_ready(node, launch, offset, limit_seconds)


def _spawn(node: Path, launch: dict[str, Any]) -> str:
    """Fork twice, so that the server has no parent here; an empty answer means that it was executed."""
    reading, writing = os.pipe()  # closed by the exec: end of file means that it worked
    first = os.fork()
    if first == 0:
        os.close(reading)
        os.setsid()
        if os.fork() == 0:
            _become_server(node, launch, writing)
        os._exit(0)
    os.close(writing)
    os.waitpid(first, 0)
    with os.fdopen(reading, encoding="utf-8") as answer:
        return answer.read()


def _become_server(node: Path, launch: dict[str, Any], complaints: int) -> None:
    """In the child: write the pid file, drop rights, become the server. Never returns."""
    try:
        _redirect(node, base64.b64decode(launch["stdin"]))
        fresh = node / "node.pid.new"
        fresh.write_text(json.dumps(identity(os.getpid())), encoding="utf-8")
        fresh.replace(node / "node.pid")
        os.chdir(launch["directory"])
        if os.geteuid() == 0 and launch["uid"] != 0:  # the servers refuse to run as root
            os.setgroups([])
            os.setgid(launch["gid"])
            os.setuid(launch["uid"])
        os.umask(0o022)
        os.execve(launch["command"][0], launch["command"], launch["environment"])  # noqa: S606  (no shell is wanted)
    except OSError as error:
        os.write(complaints, str(error).encode())
    finally:
        os._exit(1)


def _redirect(node: Path, stdin: bytes) -> None:
    given = node / "stdin.bin"
    given.write_bytes(stdin)
    source = os.open(given, os.O_RDONLY)
    sink = os.open(node / "console.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for file, target in ((source, 0), (sink, 1), (sink, 2)):
        os.dup2(file, target)


def _await_ready(node: Path, launch: dict[str, Any], offset: int, limit_seconds: float) -> int:
    deadline = time.monotonic() + limit_seconds
    handle = _opened(node)
    if handle is None:
        return _died(node, offset)
    try:
        while not _answers(launch["http_host"], launch["http_port"]):
            if _exited(handle, READY_CHECK_SECONDS):
                return _died(node, offset)
            if time.monotonic() > deadline:
                return _say(f"{node.name} runs but does not answer after {limit_seconds:.0f} s", 1)
    finally:
        os.close(handle)
    return _say(f"{node.name} started", 0)


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) not in (errno.ECONNREFUSED, errno.EAGAIN, errno.ETIMEDOUT)


def _died(node: Path, offset: int) -> int:
    with (node / "console.log").open("rb") as console:
        end = console.seek(0, os.SEEK_END)
        console.seek(max(offset, end - LOG_TAIL_BYTES))
        said = console.read().decode(errors="replace").strip()
    return _say(f"{node.name} died while it started; its last words:\n{said}", 1)


def stop(node: Path, limit_seconds: float) -> int:
    """Ask a node to end (SIGTERM) and wait for it; it is never killed."""
    if send_and_wait(node, signal.SIGTERM, limit_seconds):
        return _say(f"{node.name} is stopped", 0)
    return _say(f"{node.name} still runs {limit_seconds:.0f} s after SIGTERM", 1)


def status(node: Path) -> int:
    """Print whether a node runs."""
    pid = running_pid(node)
    if pid is None:
        return _say(f"{node.name} is not running", NOT_RUNNING)
    return _say(f"{node.name} runs as {pid}", 0)


def _say(line: str, code: int) -> int:
    stream = sys.stderr if code == 1 else sys.stdout
    stream.write(f"{line}\n")
    stream.flush()
    return code


def main(arguments: list[str], lab: Path) -> int:
    """Run one command on one node of the lab in `lab`; returns the exit code."""
    match arguments:
        case ["start" | "stop" | "status" as verb, name] if (lab / name / "launch.json").is_file():
            node = lab / name
            if verb == "start":
                return start(node, START_LIMIT_SECONDS)
            return stop(node, STOP_LIMIT_SECONDS) if verb == "stop" else status(node)
        case ["start" | "stop" | "status", name]:
            known = ", ".join(sorted(path.parent.name for path in lab.glob("*/launch.json")))
            sys.stderr.write(f"no node {name} in {lab}; there are: {known}\n")
        case _:
            sys.stderr.write("usage: nodectl start|stop|status NODE\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
