"""A command between two marks in its own output, the second one with its exit code. Pure.

`ssh` exits with the code of the command, and with 255 for faults of its own, which a command may exit with as
well. So the exit code is carried in the output. The first mark proves that the command was begun, and drops
what a login shell prints before it.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from orchestrator.hosts.connection import Captured

_BEGIN, _END = "orchestrate-begin", "orchestrate-end"
_SCRIPT: Final = (
    f"printf '%s-%s\\n' {_BEGIN} {{nonce}}; \"$@\"; code=$?;"
    f" printf '\\n%s-%s %d\\n' {_END} {{nonce}} $code; exit $code"
)
"""The marks are put together on the host: a command that prints process lists prints no mark."""
_LONGEST_CODE: Final = 12


def framed(command: str, nonce: str) -> str:
    """A command line that runs another one under `/bin/sh` between the marks; its input is that of both."""
    words = _words(command)
    plain = command if words is not None else f"/bin/sh -c {shlex.quote(command)}"
    return f"/bin/sh -c {shlex.quote(_SCRIPT.format(nonce=nonce))} orchestrate {plain}"


def _words(command: str) -> list[str] | None:
    """The words of `/bin/sh -c 'SCRIPT'`, which needs no further quotes: quotes in quotes multiply."""
    if not command.startswith("/bin/sh -c "):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words if command == f"/bin/sh -c {shlex.quote(words[-1])}" else None


class Frame:
    """Standard output of a framed command: passes on what is between the marks, however it arrives in pieces.

    Args:
        nonce: of the marks.
        inner: gets what is between them.

    Attributes:
        begun: whether the first mark has been seen.
        exit: the exit code at the second mark; None before.
    """

    def __init__(self, nonce: str, inner: Captured) -> None:
        self._begin = f"{_BEGIN}-{nonce}\n".encode()
        self._mark = f"\n{_END}-{nonce} ".encode()
        self._end = re.compile(re.escape(self._mark) + rb"(\d{1,3})\n")
        self._inner = inner
        self._held = b""
        self.begun = False
        self.exit: int | None = None

    def add(self, data: bytes) -> None:
        """Take bytes that were read."""
        if self.exit is not None:
            return  # of a daemon that keeps the output open
        self._held += data
        if not self.begun:
            at = self._held.find(self._begin)
            if at < 0:
                self._held = self._held[-len(self._begin) :]
                return
            self.begun, self._held = True, self._held[at + len(self._begin) :]
        found = self._end.search(self._held)
        if found is not None:
            self.exit = int(found[1])
        # What could be the beginning of the second mark is held.
        keep = 0 if data == b"" else len(self._mark) + _LONGEST_CODE
        upto = found.start() if found is not None else max(0, len(self._held) - keep)
        self._inner.add(self._held[:upto])
        self._held = self._held[upto:]
