"""Shell scripts that are sent to a host; nothing is installed there, and any POSIX shell will do.

Several readings in one round trip, a job that outlives its connection, and a loop that tells of a change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.model.reading import Seconds

ENVIRONMENT: Final = "LC_ALL=C; export LC_ALL"
"""The words of the tools are read by programs here: always the untranslated ones."""
FAST_LOOKS: Final = 50
FAST_SECONDS: Final = 0.1
"""A service stops or starts within seconds as a rule, and every tenth of a second of a restart counts."""
SLOW_SECONDS: Final = 0.5
"""For those that take longer, so that looking costs a busy host little."""
CHANGED: Final = "changed"
SIGN_OF_LIFE: Final = "."

BEGIN = "@@orchestrate-begin"
END = "@@orchestrate-end"
_SECTION = re.compile(rf"^{BEGIN} (\S+)\n(.*?)\n?^{END} \1 (\d{{1,10}})$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one part of a script answered."""

    exit: int
    text: str


def shell(script: str) -> str:
    """A command line that runs a script under `/bin/sh`, whatever the account's login shell is."""
    return f"/bin/sh -c {shlex.quote(f'{ENVIRONMENT}; {script}')}"


def sections(parts: Sequence[tuple[str, str]]) -> str:
    """A script of named parts, each a shell line; a part that fails does not keep the next from running."""
    lines = [
        f"echo '{BEGIN} {name}'; {{ {line}\n}} 2>&1; printf '\\n{END} {name} %d\\n' $?"
        for name, line in parts
    ]
    return "\n".join(lines)


def read_sections(output: str) -> Mapping[str, Section]:
    """The answers by name. Banners and greetings of the host are no part of any; a part cut off is absent."""
    return {
        found[1]: Section(exit=int(found[3]), text=found[2].strip("\n"))
        for found in _SECTION.finditer(output)
    }


def detached(line: str) -> str:
    """A script that runs a line in a session of its own, tells how it ended, and whose end nothing stops.

    Where there is no service manager to hand the work to, the script that stops a node must not die in the
    middle because our connection did: it has no terminal, no pipe to us that could break, and its output goes
    to a file that is unlinked at once. Its standard input stays ours: sudo reads the password there.
    """
    return "\n".join(
        (
            "exec 3<&0",
            'f=$(mktemp "${TMPDIR:-/tmp}/orchestrate.XXXXXX" 2>/dev/null) || f=/dev/null',
            'exec 4>"$f" 5<"$f"; [ "$f" = /dev/null ] || rm -f "$f"',
            "command -v setsid >/dev/null && apart=setsid || apart=nohup",
            f"$apart /bin/sh -c {shlex.quote(line)} <&3 >&4 2>&1 3<&- 4>&- 5<&- &",
            "wait $!; code=$?",
            "head -c 131072 <&5",
            "exit $code",
        )
    )


def limited(line: str, seconds: Seconds) -> str:
    """A script that runs a line and ends it on the host at the limit, where `timeout` is to be had."""
    quoted = shlex.quote(line)
    return (
        "if command -v timeout >/dev/null;"
        f" then timeout -k 5 {max(1, round(seconds))} /bin/sh -c {quoted}; else /bin/sh -c {quoted}; fi"
    )


def watch(mark: str, known: str | None, limit: Seconds) -> str:
    """A script that prints `changed` as soon as a mark is no longer the known one, and ends.

    Service managers tell of changes only to privileged listeners, so this polls, on the host itself: no
    round trip stands between two looks. Each look writes a sign of life; when nobody reads it any more, the
    write ends the script.

    Args:
        mark: shell line that prints what is compared.
        known: the mark of the last reading; None = the first one seen here.
        limit: after which the script ends by itself.
    """
    first = f"known=$({mark})" if known is None else f"known={shlex.quote(known)}"
    looks = FAST_LOOKS + round(max(0.0, limit - FAST_LOOKS * FAST_SECONDS) / SLOW_SECONDS) + 1
    return "\n".join(
        (
            first,
            f"n=0; while [ $n -lt {looks} ]; do",
            f"now=$({mark})",
            f'[ "$now" = "$known" ] || {{ echo {CHANGED}; exit 0; }}',
            f"echo {SIGN_OF_LIFE} || exit 0",
            f"n=$((n+1)); if [ $n -lt {FAST_LOOKS} ]; then s={FAST_SECONDS}; else s={SLOW_SECONDS}; fi",
            "sleep $s 2>/dev/null || sleep 1",
            "done",
        )
    )
