"""A script that any login shell starts, between two lines in its output, the second with its exit code. Pure.

sshd gives a command line to the account's login shell, and each shell reads quotes, backslashes, `!`, `$`,
`~` and line breaks in its own way, and csh no long words. So the line has none of them: the script is in
arguments in which such characters are written as `%` and two hexadecimal digits, and `/bin/sh` decodes it.
The lines are those of any part of an answer, `script.begin_line` and `end_line`. The first proves that the
script was begun. On both streams, what a login shell prints before it and after the second is not the
script's. The mark in them is made here, and not on the host as for the parts of a script: a login shell may
print anything before the first. The exit code is in the output: that of `ssh` may be its own, and a login
shell may end with 0 although it ran nothing.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.hosts.connection import Captured, CommandResult, Streams
from orchestrator.hosts.script import MARK_PREFIX, begin_line, end_line

_NAME: Final = "script"
"""Of the part of the output that is the script's."""
_UNDECODED: Final = 126
_DECODE: Final = (
    "awk -v s=%s -v c=%c -v h=0123456789abcdef -v p=%"
    ' "BEGIN { n = split(ARGV[1], t, p); printf s, t[1]; for (i = 2; i <= n; i++) printf c s,'
    " (index(h, substr(t[i], 1, 1)) - 1) * 16 + index(h, substr(t[i], 2, 1)) - 1, substr(t[i], 3) }"
    '" "$*"'
)
"""It is in every POSIX system and in BusyBox; `base64` and `xxd` are not."""
_SCRIPT: Final = (
    f"LC_ALL=C; export LC_ALL; n=$1; shift; script=$(IFS=; {_DECODE}) || exit {_UNDECODED};"
    f' m={MARK_PREFIX}$n; begin="{begin_line("$m", _NAME)}"; echo "$begin" >&2; echo "$begin";'
    ' /bin/sh -c "$script"; code=$?;'
    f' end="{end_line("$m", _NAME, "$code")}"; {{ echo; echo "$end"; }} >&2; echo; echo "$end"; exit $code'
)
"""The marks are put together on the host: a command that prints process lists prints no mark."""
_LONGEST_CODE: Final = 12
_LONGEST_WORD: Final = 4000
"""The C shell takes no word of more than 8 KiB: "Word too long."."""
_ENCODED: Final = re.compile(rb"[^ -~]|['\\!%$~]")
_NOT_BEGUN: Final = "the login shell of the account did not run `/bin/sh`"


def framed(script: str, nonce: str) -> str:
    """A command line that runs a script under `/bin/sh` between the marks; its input is that of both."""
    encoded = _ENCODED.sub(lambda found: b"%%%02x" % found[0][0], script.encode()).decode()
    words = (encoded[at : at + _LONGEST_WORD] for at in range(0, len(encoded), _LONGEST_WORD))
    return " ".join((f"/bin/sh -c '{_SCRIPT}' orchestrate {nonce}", *(f"'{word}'" for word in words)))


class Frame:
    """The output of a framed command: passes on what is between the marks, however it arrives in pieces.

    Args:
        nonce: of the marks.
        streams: get what is between them.

    Attributes:
        stdout: takes standard output.
        stderr: takes standard error.
    """

    def __init__(self, nonce: str, streams: Streams) -> None:
        self._streams = streams
        self.stdout, self.stderr = _Between(nonce, streams.stdout), _Between(nonce, streams.stderr)

    @property
    def begun(self) -> bool:
        """Whether the first mark has been seen."""
        return self.stdout.begun

    @property
    def exit(self) -> int | None:
        """The exit code at the second mark; None before."""
        return self.stdout.exit

    def end(self) -> None:
        """Pass on what is held: no more output arrives.

        Standard error without a mark is what `ssh` itself says, or of a login shell that redirects it.
        """
        self.stdout.add(b"")
        self.stderr.add(b"")
        if not self.stderr.begun:
            self._streams.stderr.add(self.stderr.before().encode())

    def before(self) -> str:
        """What came on standard error before the first mark, of the login shell or of `ssh` itself."""
        return self.stderr.before()

    def not_begun(self, code: int) -> CommandResult:
        """The result of a login shell that ended without the first mark: the script was certainly not run.

        Args:
            code: of the login shell, not 0: that proves nothing, as where its startup file closes the output.
        """
        said = " ".join(f"{self.stdout.before()} {self.stderr.before()}".split())
        why = f"{_NOT_BEGUN}: {said or 'it printed nothing'}"
        return CommandResult(exit=code, stdout="", stderr=why)


class _Between:
    """One stream."""

    def __init__(self, nonce: str, inner: Captured) -> None:
        mark = f"{MARK_PREFIX}{nonce}"
        self._begin = f"{begin_line(mark, _NAME)}\n".encode()
        self._mark = f"\n{end_line(mark, _NAME, '')}".encode()
        self._end = re.compile(re.escape(self._mark) + rb"(\d{1,3})\n")
        self._inner = inner
        self._before = Captured()
        self._held = b""
        self.begun = False
        self.exit: int | None = None

    def add(self, data: bytes) -> None:
        """Take bytes that were read; none at the end."""
        if self.exit is not None:
            return  # of a daemon that keeps the output open
        self._held += data
        if not self.begun:
            at = self._held.find(self._begin)
            if at < 0:
                self._before.add(self._held[: -len(self._begin)])
                self._held = self._held[-len(self._begin) :]
                return
            self._before.add(self._held[:at])
            self.begun, self._held = True, self._held[at + len(self._begin) :]
        found = self._end.search(self._held)
        if found is not None:
            self.exit = int(found[1])
        # What could be the beginning of the second mark is held.
        keep = 0 if data == b"" else len(self._mark) + _LONGEST_CODE
        upto = found.start() if found is not None else max(0, len(self._held) - keep)
        self._inner.add(self._held[:upto])
        self._held = self._held[upto:]

    def before(self) -> str:
        """What came before the first mark, or so far."""
        return self._before.text() + ("" if self.begun else self._held.decode(errors="replace"))
