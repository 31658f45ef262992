"""Processes that the tests of the runtime start, kill, race and send signals to; each prints what it did.

Run as `python children.py SOCKET`; each message there is a name and its arguments, with four files.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import event

from orchestrator.errors import JournalError, LeaseError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import GoodReading, Hold
from orchestrator.model.tuning import ValueChange
from orchestrator.runtime import signals as signals_module
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.lease import Claim, Lease, LeaseSite, Terms
from orchestrator.runtime.ledger import Tuning
from orchestrator.runtime.signals import FinalTexts, Signals, last_words
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock


def say(text: str) -> None:
    """One whole line at once, whatever happens to this process next."""
    os.write(1, text.encode() + b"\n")


def append(url: str, run: str, killed_at: str, moment: str, size: str) -> None:
    """Append steps of three events until killed: before or after the commit of step `killed_at`."""
    store = open_store(url, {}, access=DatabaseUse.WRITE)
    journal = store.journal(run)
    step = int(killed_at)
    at = [0]

    def kill(_connection: object) -> None:
        if moment == "before" and at[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(store._engine, "commit", kill)
    while True:
        at[0] += 1
        big = Hold(predicate="p", subject="s", evidence="x" * int(size))
        journal.append((GoodReading(count=at[0]), big, GoodReading(count=at[0])), float(at[0]))
        if moment == "after" and at[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        say(str(at[0]))


def tune(url: str, path: str, moment: str) -> None:
    """Change a value on a "host", which is a file, and be killed before the change or right after it."""
    ledger = open_store(url, {}, access=DatabaseUse.WRITE).ledger("prod")
    change = ValueChange(path=path, found="always", wanted="never")
    ledger.record(Tuning(node=NodeName("es1"), tunable="thp", changes=(change,), operator="anna"), 1.0)
    if moment == "after":
        Path(path).write_text(change.wanted)
    os.kill(os.getpid(), signal.SIGKILL)


def take(url: str, run: str, expiry: str) -> None:
    """Wait for a line, then take the lease; keep it until another line comes."""
    store = open_store(url, {}, access=DatabaseUse.WRITE)
    process = str(current_process()) if float(expiry) >= 90 else f"another-machine/1/{os.getpid()}/1"
    claim = Claim(cluster="prod", run=run, owner=f"{run}@here", process=process)
    terms = Terms(heartbeat=0.1, retry=0.1, expiry=float(expiry), poll=0.05)
    lease = Lease([LeaseSite(name="the state file", port=store.lease("uuid"))], claim, SystemClock(), terms)
    say("ready")
    sys.stdin.readline()
    try:
        taken = lease.acquire()
    except LeaseError as error:
        say(f"refused {error}")
    else:
        lease.start()
        say(f"took {taken.record.epoch} {taken.takeover}")
    sys.stdin.readline()


def signalled(stuck: str, *arguments: str) -> None:
    """Be stuck in some way, and catch signals."""
    clock = SystemClock()
    words = FinalTexts(
        error="\n".join(
            last_words("r1", ["cluster.routing.allocation.enable (persistent) = primaries, found all"])
        ),
        output='{"event": "summary", "exit_code": 8}\n',
    )
    ways: dict[str, Callable[[], None]] = {
        "wait": lambda: clock.wait(60),
        "network": accept,
        "database": lambda: locked(arguments[0]),
        "broken": lambda: clock.wait(60),
    }
    with Signals(clock.wake, lambda: words if stuck != "broken" else FinalTexts(error=1 / 0)) as signals:
        say("ready")
        began = time.monotonic()
        ways[stuck]()
        if signals.asked()[1]:
            say(f"{signals.asked()[0].name} {signals.asked()[1]} {time.monotonic() - began < 30}")
            clock.wait(60)
    say("left in order")


def hasty(stuck: str, *arguments: str) -> None:
    """The same, and signals a tenth of a second apart are no longer one act."""
    vars(signals_module)["SAME_ACT_SECONDS"] = 0.1
    signalled(stuck, *arguments)


def accept() -> None:
    """Wait for a connection that never comes."""
    socket.create_server(("127.0.0.1", 0)).accept()


def locked(file: str) -> None:
    """Wait for a lock of SQLite in C, where no handler of Python runs."""
    sqlite3.connect(file, timeout=60, isolation_level=None).execute("BEGIN IMMEDIATE")


def once(_: str) -> None:
    """Catch signals, and none comes; then the default handlers are back."""
    clock = SystemClock()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Signals(clock.wake, lambda: FinalTexts(error="")) as signals:
        assert not signals.interrupted()
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    say("the same")


def nohup(_: str) -> None:
    """Catch signals where SIGHUP is ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signalled("wait")


def _job(arguments: list[str], files: list[int]) -> int:
    """Do one job in this process, with these files as its own."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    # As from a terminal, also when the tests run under nohup: what is ignored here is ignored by a child.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        globals()[arguments[0]](*arguments[1:])
    except JournalError as error:
        say(f"JournalError {error}")
        return 1
    return 0


def serve(files: socket.socket) -> None:
    """Fork for each job a process that forks again, tells the pid of the job, and then how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, passed, _, _ = socket.recv_fds(files, 65536, 4)
        if not message:
            return
        *of_job, ended = passed
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                os.close(ended)
                os._exit(_job(json.loads(message), of_job))
            for number in of_job:
                os.close(number)
            os.write(ended, f"{child}\n".encode())
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.write(ended, f"{status}\n".encode())
            os._exit(0)
        for number in (*of_job, ended):
            os.close(number)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
