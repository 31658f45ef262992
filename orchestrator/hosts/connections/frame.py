"""A script that any login shell starts, between two marks in its output, the second with its exit code. Pure.

sshd gives a command line to the account's login shell, and each shell reads quotes, backslashes, `!` and line
breaks in its own way. So the line has none of them: the script is an argument in which such characters are
written as `%` and two hexadecimal digits, and `/bin/sh` decodes it. The first mark proves that the script was
begun, and drops what a login shell prints before it. The exit code is in the output: that of `ssh` may be its
own, and a login shell may end with 0 although it ran nothing.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.hosts.connection import Captured, CommandResult, Streams

_BEGIN, _END = "orchestrate-begin", "orchestrate-end"
_UNDECODED: Final = 126
_DECODE: Final = (
    "awk -v s=%s -v c=%c -v h=0123456789abcdef -v p=%"
    ' "BEGIN { n = split(ARGV[1], t, p); printf s, t[1]; for (i = 2; i <= n; i++) printf c s,'
    " (index(h, substr(t[i], 1, 1)) - 1) * 16 + index(h, substr(t[i], 2, 1)) - 1, substr(t[i], 3) }"
    '" "$2"'
)
"""It is in every POSIX system and in BusyBox; `base64` and `xxd` are not."""
_SCRIPT: Final = (
    f"LC_ALL=C; export LC_ALL; script=$({_DECODE}) || exit {_UNDECODED};"
    f' echo {_BEGIN}-$1; /bin/sh -c "$script"; code=$?; echo; echo "{_END}-$1 $code"; exit $code'
)
"""The marks are put together on the host: a command that prints process lists prints no mark."""
_LONGEST_CODE: Final = 12
_ENCODED: Final = re.compile(rb"[^ -~]|['\\!%]")
_NOT_BEGUN: Final = "the login shell of the account did not run `/bin/sh`"


def framed(script: str, nonce: str) -> str:
    """A command line that runs a script under `/bin/sh` between the marks; its input is that of both."""
    encoded = _ENCODED.sub(lambda found: b"%%%02x" % found[0][0], script.encode()).decode()
    return f"/bin/sh -c '{_SCRIPT}' orchestrate {nonce} '{encoded}'"


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
        self._before = Captured()
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
                self._before.add(self._held[: -len(self._begin)])
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

    def not_begun(self, streams: Streams, code: int) -> CommandResult:
        """The result of a login shell that ended without the first mark: the script was certainly not run.

        Args:
            streams: of the command.
            code: of the login shell, not 0: that proves nothing, as where its startup file closes the output.
        """
        self._before.add(self._held)
        said = " ".join(f"{self._before.text()} {streams.stderr.text()}".split())
        why = f"{_NOT_BEGUN}: {said or 'it printed nothing'}"
        return CommandResult(exit=code, stdout="", stderr=why)
