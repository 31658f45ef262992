"""A connection to a machine: runs commands, bounds their output, and returns faults as data.

A command has one of three results, because the safe next step differs:

- `CommandResult`: the command ran to its end, with any exit code.
- `Unreachable`: the command was certainly **not** sent. It is safe to try again.
- `Lost`: the command was sent, and its end is unknown: the connection was lost, or a limit ran out.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias

from orchestrator.model.reading import Seconds

KEPT_BYTES: Final = 64 * 1024
"""Kept of each output stream: enough for any message, small enough for the journal of a year of runs."""
LEFT_OUT: Final = re.compile(r"… \d+ bytes left out …")
"""Marks in an output where bytes were left out."""
_MARGIN_SECONDS: Final = 5.0


class Trouble(Enum):
    """Why a machine was not reached; each reason has its own remedy."""

    RESOLVE = "does not resolve"
    REFUSED = "connection refused"
    NO_ANSWER = "no answer"
    CLOSED = "connection closed"
    UNKNOWN_KEY = "unknown host key"
    CHANGED_KEY = "changed host key"
    REVOKED_KEY = "revoked host key"
    AUTHENTICATION = "authentication failed"
    PROTOCOL = "SSH protocol error"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """A command that ran to its end."""

    exit: int  # its exit code
    stdout: str
    stderr: str = ""
    truncated: int = 0  # bytes of output that were read and discarded because the limit was reached


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKey:
    """A server's host key that is in none of these files."""

    name: str  # of the server in these files; `host` and `port` are what is connected to
    host: str
    port: int
    shown: str  # kind and fingerprint of the key
    files: tuple[str, ...]


def unknown_keys(keys: Sequence[UnknownKey]) -> str:
    """What is the matter with servers whose keys are not known, and the remedy for all of them."""
    shown = dict.fromkeys(f"{key.name} shows {key.shown}" for key in keys)
    scans: dict[tuple[int, str], list[str]] = {}
    for key in keys:
        scans.setdefault((key.port, key.files[0]), []).append(key.host)
    commands = [
        f"`ssh-keyscan -p {port} {' '.join(dict.fromkeys(hosts))} >> {file}`"
        for (port, file), hosts in scans.items()
    ]
    names = list(dict.fromkeys(key.name for key in keys))
    subject = (
        f"the host key of {names[0]} is" if len(names) == 1 else f"the host keys of {', '.join(names)} are"
    )
    return (
        f"{subject} in none of {', '.join(keys[0].files)}: {'; '.join(shown)}. Compare that with"
        f" `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host's console, then run"
        f" {' and '.join(commands)}; `hosts.known_hosts` names another file"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """The command was certainly not sent."""

    trouble: Trouble
    reason: str  # the fault, the place and the remedy, for people
    key: UnknownKey | None = None  # the host key that is the matter, if it is only unknown

    @property
    def passes(self) -> bool:
        """Whether waiting may help. Keys, accounts and settings need a person to change them."""
        return self.trouble in (Trouble.RESOLVE, Trouble.REFUSED, Trouble.NO_ANSWER, Trouble.CLOSED)

    @property
    def of_the_way(self) -> bool:
        """Whether another way to the machine may have it: `ssh` follows more of the SSH configuration.

        Not of a changed or revoked key: somebody has to look at it first.
        """
        return self.trouble in (
            Trouble.SETTINGS,
            Trouble.UNKNOWN_KEY,
            Trouble.AUTHENTICATION,
            Trouble.PROTOCOL,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The command was sent; only a new reading shows whether it took effect."""

    reason: str
    timed_out: bool  # the limit ran out; otherwise the connection was lost
    output: str = ""  # the output received until then

    @property
    def passes(self) -> bool:
        """Whether waiting may help a reading: connections are made again."""
        return True


class HostError(Exception):
    """There is no answer of a host, and nothing was changed there.

    Attributes:
        fault: the same error as data.
    """

    def __init__(self, fault: Unreachable | Lost) -> None:
        super().__init__(fault.reason)
        self.fault = fault


Ended: TypeAlias = CommandResult | Lost
Outcome: TypeAlias = CommandResult | Unreachable | Lost


class Job(Protocol):
    """A running command that the caller does not wait for."""

    def poll(self) -> Ended | None:
        """How it ended; None while it runs."""
        ...

    def wait(self, timeout: Seconds) -> Ended | None:
        """Wait until it ends, at most this long."""
        ...

    def output(self) -> str:
        """The output so far, bounded."""
        ...

    def close(self) -> None:
        """Stop listening. A detached command continues on the machine."""
        ...


class HostConnection(Protocol):
    """Runs commands on one machine. Thread-safe; kept for a whole run and made again when it drops."""

    def run(
        self, command: str, *, timeout: Seconds, stdin: str | None = None, keep: int = KEPT_BYTES
    ) -> Outcome:
        """Run a command line under `/bin/sh` to its end, at most `timeout` seconds long.

        `keep` is how many bytes of its standard output are kept.
        """
        ...

    def start(
        self,
        command: str,
        *,
        timeout: Seconds,
        stdin: str | None = None,
        ended: Callable[[], None] | None = None,
        keep: int = KEPT_BYTES,
    ) -> Job | Unreachable:
        """Start a command that keeps running; `ended` is called from another thread as soon as it has ended.

        After `timeout` seconds the result is `Lost`.
        """
        ...

    def drop(self) -> None:
        """Forget the connection; the next command makes a new one."""
        ...

    def close(self) -> None:
        """Close it for good."""
        ...


class Captured:
    """Output as it arrives: the head and tail are kept, the bytes between are counted. Thread-safe.

    Args:
        keep: number of bytes to keep.
    """

    def __init__(self, keep: int = KEPT_BYTES) -> None:
        self._keep, self._head_bytes = keep, keep * 3 // 4
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Add bytes that were read."""
        with self._lock:
            room = max(0, self._head_bytes - len(self._head))
            self._head += data[:room]
            self._tail += data[room:]
            excess = len(self._tail) - (self._keep - self._head_bytes)
            if excess > 0:
                del self._tail[:excess]
                self._dropped += excess

    @property
    def dropped(self) -> int:
        """Bytes that were discarded."""
        return self._dropped

    def text(self) -> str:
        """The kept output, with a line that gives the number of missing bytes."""
        with self._lock:
            head = bytes(self._head).decode(errors="replace")
            tail = bytes(self._tail).decode(errors="replace")
            dropped = self._dropped
        if not dropped:
            return head + tail
        # Without the words at the gap: half of a secret is not recognized.
        head, tail = re.sub(r"\S+\Z", "", head), re.sub(r"\A\S+", "", tail)
        return f"{head}\n… {dropped} bytes left out …\n{tail}"


class Streams:
    """The two output streams of one command.

    Args:
        keep: bytes of standard output to keep; standard error always keeps `KEPT_BYTES`.
    """

    def __init__(self, keep: int = KEPT_BYTES) -> None:
        self.stdout = Captured(keep)
        self.stderr = Captured()

    def result(self, exit_code: int) -> CommandResult:
        """The result of a command that ended by itself."""
        return CommandResult(
            exit=exit_code,
            stdout=self.stdout.text(),
            stderr=self.stderr.text(),
            truncated=self.stdout.dropped + self.stderr.dropped,
        )

    def lost(self, reason: str, *, timed_out: bool) -> Lost:
        """The result of a command whose end is unknown."""
        return Lost(reason=reason, timed_out=timed_out, output=self.text())

    def text(self) -> str:
        """Both streams, standard output first."""
        return "\n".join(part for part in (self.stdout.text().strip(), self.stderr.text().strip()) if part)


class ThreadedJob:
    """A job with its own thread that reads the output, so that a full pipe never blocks the command.

    Args:
        work: reads until the command ends or its limit runs out; raises nothing.
        abort: makes `work` end soon.
        ended: called when the job has ended.
        streams: what `work` reads into now.
    """

    def __init__(
        self,
        work: Callable[[], Ended],
        abort: Callable[[], None],
        ended: Callable[[], None] | None,
        streams: Callable[[], Streams],
    ) -> None:
        self._streams = streams
        self._over = threading.Event()
        self._end: Ended | None = None
        self._work, self._abort, self._ended = work, abort, ended
        # A daemon thread: a peer that hangs must never keep the program from exiting.
        threading.Thread(target=self._listen, name="job", daemon=True).start()

    def _listen(self) -> None:
        try:
            self._end = self._work()
        finally:
            if self._end is None:  # a defect in `work`: a waiting caller still needs an end
                self._end = self._streams().lost("the reading of its output failed", timed_out=False)
            self._over.set()
            if self._ended is not None:
                self._ended()

    def poll(self) -> Ended | None:
        """How it ended; None while it runs."""
        return self._end if self._over.is_set() else None

    def wait(self, timeout: Seconds) -> Ended | None:
        """Wait until it ends, at most this long."""
        self._over.wait(timeout)
        return self.poll()

    def output(self) -> str:
        """The output so far, bounded."""
        return self._streams().text()

    def close(self) -> None:
        """Stop listening."""
        if not self._over.is_set():
            self._abort()


def end_of(job: Job | Unreachable, timeout: Seconds) -> Outcome:
    """How a job with a limit of `timeout` seconds ended.

    The job ends by itself at that limit. The margin is for a machine too busy to schedule it.
    """
    if isinstance(job, Unreachable):
        return job
    return job.wait(timeout + _MARGIN_SECONDS) or Lost(reason="its reading hangs", timed_out=True)
