"""The `riak` command, and `riak-double` for what only the double can do.

What the node answers comes by the short way, `short.py`; here is the rest.

`riak-double faults NAME=VALUE...` sets what is wrong (without words: nothing is), `riak-double report` prints
what the node tells its peers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

from . import peers
from .faults import FaultError, Faults, read_faults, write_faults
from .lasting import seconds_of
from .settings import OPEN_FILES, Own, read_own, read_riaks, unset_name
from .short import UNRECORDED, unrecorded

WAIT_SECONDS = 3.0
"""Between two readings of `wait-for-service`: eight lines in 30 s, three in 10 s."""
QUERY_SECONDS = 0.75
"""What each of these readings took."""
DEPRECATED = (
    "riak start is deprecated, and scripts should be change to use riak daemon where riak cannot be started"
    " as a service.  Riak starting .."
)
"""Of 3.x; its middle is from the public source (`start_message`), the rest was recorded."""
KILL_SECONDS = 10.0
"""Real seconds that a process has to end in once it was told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One call of the program."""

    own: Own  # the double's settings
    faults: Faults  # what is wrong
    began: float  # on the monotonic clock

    @property
    def name(self) -> str:
        """The node's, which before its first start is not the one in riak.conf."""
        started_before = (self.own.state / "generated.conf").exists()
        return read_riaks(self.own).name if started_before else unset_name()

    def answers(self) -> bool:
        """Whether the node here answers."""
        return peers.ask(self.own.here, "report") is not None

    def sleep(self, seconds: float) -> None:
        """So many seconds of the recording."""
        time.sleep(seconds * self.own.pace)

    def last(self, word: str) -> None:
        """Go on until the command has taken as long as it did when it was recorded."""
        left = seconds_of(word) * self.own.pace - (time.monotonic() - self.began)
        time.sleep(max(0.0, left))

    def loop(self) -> NoReturn:
        """Never return."""
        while True:
            self.sleep(1)

    def down(self) -> int:
        """Say that the node does not answer."""
        say(f"{self.not_responding}\n")
        return 1

    @property
    def not_responding(self) -> str:
        """What is said of a node that does not answer."""
        return f"Node {self.name} is not responding to pings"


def say(text: str, *, stream: TextIO | None = None) -> None:
    """Print this and no line end of its own, at once."""
    print(text, end="", file=stream or sys.stdout, flush=True)


def main() -> int:
    """Do what the words say; the exit code."""
    sys.stdout.reconfigure(errors="surrogateescape")
    began = time.monotonic()
    program, words = Path(sys.argv[0]).name, sys.argv[1:]
    own = read_own()
    try:
        if program == "riak-double":
            return _double(own, words)
        command = Command(own=own, faults=read_faults(own.home), began=began)
    except FaultError as error:
        say(f"riak-double: {error}\n", stream=sys.stderr)
        return UNRECORDED
    if program == "riak-admin":  # of older versions
        say(unrecorded(" ".join([program, *words])), stream=sys.stderr)
        return UNRECORDED
    code = _run(command, words)
    command.last(words[0] if words else "")
    return code


def _run(command: Command, words: list[str]) -> int:
    match words:
        case ["daemon" | "start" as word]:
            return _start(command, word)
        case ["stop"]:
            return _stop(command)
        case ["admin", "wait-for-service", service, *node] if len(node) < 2:
            return _wait(command, service, *node)
        case ["versions"]:
            say("Installed versions:\n* 3.2.1\tpermanent\n")
            return 0
        case ["admin" | "ping" | "pid" | "rpc", *_]:
            return command.down()  # the short way was tried before this one
        case _:
            say(unrecorded(" ".join(words)), stream=sys.stderr)
            return UNRECORDED


def _start(command: Command, word: str) -> int:
    """`riak daemon`; `riak start` starts a node likewise, after its own words."""
    fault = command.faults.get("start") if word == "start" else ""
    if fault == "loops-down":
        command.loop()
    if command.answers() or _process(command.own):
        say("Node is already running!\n")
        return 1
    import resource  # noqa: PLC0415  (only here: a command that is asked often should be quick)

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if word == "start":
        say(f"{DEPRECATED}\n")
    if 0 <= limit < OPEN_FILES:
        say(f"!!!!\n!!!! WARNING: ulimit -n is {limit}; {OPEN_FILES} is the recommended minimum.\n!!!!\n")
    _spawn(command.own)
    # The node answers when the recorded command returns: so it does here, however slow the machine is.
    while _process(command.own) and not command.answers():
        time.sleep(0.02)
    if fault == "loops":
        command.loop()
    return 0


def _spawn(own: Own) -> None:
    """Start the node's process, in a session of its own, and note its number."""
    import subprocess  # noqa: PLC0415  (as above)

    (own.state / "generated.conf").mkdir(parents=True, exist_ok=True)
    launcher = Path(__file__).resolve().parent.parent / "riak-double-node"
    with (own.state / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  (the double's own program)
            [sys.executable, "-E", "-S", str(launcher)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
        log.write(f"started as process {process.pid}\n".encode())
    own.note_pid(process.pid)


def _process(own: Own) -> int:
    """The number of the node's process, or 0 if there is none."""
    file = own.state / "pid"
    number = int(file.read_text(encoding="utf-8")) if file.exists() else 0
    try:
        words = Path(f"/proc/{number}/cmdline").read_bytes()
        state = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return 0
    # Between the system call that starts a program and its first page there are no words to read.
    ours = not words or b"riak-double-node" in words
    return number if ours and state != "Z" else 0


def _stop(command: Command) -> int:
    """`riak stop`: without a word and with 1 where the node does not answer."""
    if command.faults.get("stop") == "hangs":
        command.loop()
    if not command.answers():
        return 1
    number = _process(command.own)
    peers.ask(command.own.here, "stop", {})
    if not _gone(command.own, number):
        return 1
    command.last("stop")
    say("ok\n")
    return 0


def _gone(own: Own, number: int) -> bool:
    limit = time.monotonic() + KILL_SECONDS
    while number and _process(own) == number:
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def _wait(command: Command, service: str, *node: str) -> int:
    """`wait-for-service`: it has no limit of its own."""
    while True:
        if command.faults.get("wait-for-service") == "never":
            shown = "[]"
        elif not command.answers():
            shown = command.not_responding
        else:
            name = node[0] if node else read_riaks(command.own).name
            found = peers.ask(command.own.here, "services", {"name": name}, seconds=30) or []
            if service in found:
                say(f"{service} is up\n")
                return 0
            shown = f"[{','.join(found)}]"
        command.last("")
        say(f"{service} is not up: {shown}\n")
        command.sleep(WAIT_SECONDS + QUERY_SECONDS)


def _double(own: Own, words: Sequence[str]) -> int:
    """What only a double can do."""
    match words:
        case ["faults", *pairs] if all("=" in pair for pair in pairs):
            write_faults(own.home, dict(pair.split("=", 1) for pair in pairs))
        case ["report"]:
            found = peers.ask(own.here, "report")
            say(f"{json.dumps(found)}\n")
            return int(found is None)
        case _:
            say("riak-double: faults [NAME=VALUE...] | report\n", stream=sys.stderr)
            return 2
    return 0
