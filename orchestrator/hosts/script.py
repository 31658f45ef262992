"""Shell scripts that are sent to a host. Nothing is installed there, and any POSIX shell runs them.

Several readings in one round trip, a job that outlives its connection, and a loop that reports a change. The
longer scripts are files of `shell/`; they take their arguments in variables.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from orchestrator.model.reading import Seconds

ENVIRONMENT: Final = "LC_ALL=C; export LC_ALL"
"""This program parses the output of the tools, so it must always be untranslated."""
FAST_LOOKS: Final = 50
FAST_SECONDS: Final = 0.1
SLOW_SECONDS: Final = 0.5
"""Between two looks of `watch.sh`: the first ones, and the later ones."""
TIMEOUT_EXIT: Final = 124
"""The exit code of a line that was ended at its limit, the same as `timeout` uses."""
LOOK_SECONDS: Final = 30
"""Between two checks of the watchdog."""
_NONCE: Final = (
    "$(head -c 18 /proc/sys/kernel/random/uuid 2>/dev/null || tr -dc a-f0-9 </dev/urandom | head -c 18)"
)
"""Made up on the host for one answer, in a variable of its shell: no file or command line there has it."""
MARK_PREFIX: Final = "@@orchestrate-"
MAKE_MARK: Final = f"orchestrate_mark={MARK_PREFIX}{_NONCE}"
_MARK: Final = "$orchestrate_mark"
_EXIT: Final = re.compile(r"[0-9]{1,10}")
_FIRST_MARK: Final = re.compile(rf"^({MARK_PREFIX}[a-f0-9-]{{18}}) begin ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The answer of one part of a script."""

    exit: int
    text: str


def untranslated(script: str) -> str:
    """A script whose tools do not translate their output."""
    return f"{ENVIRONMENT}; {script}"


def begin_line(mark: str, name: str) -> str:
    """The line before a part of an answer; the answer of an SSH session is one too, `connections/frame`."""
    return f"{mark} begin {name}"


def end_line(mark: str, name: str, code: str) -> str:
    """The line after it, which a line end precedes. `tuning/shell/change.sh` prints both lines too."""
    return f"{mark} end {name} {code}"


def sections(parts: Sequence[tuple[str, str]]) -> str:
    """A script of named parts, each a shell line; a part that fails does not keep the next from running."""
    lines = [
        f'echo "{begin_line(_MARK, name)}"; {{ {line}\n}} 2>&1;'
        f' printf "\\n%s\\n" "{end_line(_MARK, name, "$?")}"'
        for name, line in parts
    ]
    return "\n".join((MAKE_MARK, *lines))


def read_sections(output: str) -> Mapping[str, Section]:
    """The answers by name. Banners and greetings of the host belong to no part; a part cut off is absent."""
    first = _FIRST_MARK.search(output)
    if first is None:
        return {}
    found: dict[str, Section] = {}
    name, text = "", list[str]()
    for line in output[first.start() :].split("\n"):
        words = line.split(" ")
        match words[1:] if words[0] == first[1] else ():
            case ["begin", begun]:
                name, text = begun, []
            case ["end", ended, code] if ended == name and _EXIT.fullmatch(code):
                found[name] = Section(exit=int(code), text="\n".join(text).strip("\n"))
                name = ""
            case _:
                text.append(line)
    return found


@cache
def text(name: str) -> str:
    """A file of `shell/`, without its comments."""
    file = files(__package__).joinpath("shell", name).read_text(encoding="utf-8")
    return re.sub(r"^ *#.*\n|^\n", "", file, flags=re.MULTILINE)


def assigned(**values: str | float) -> str:
    """A line of shell that sets variables."""
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in values.items())


def detached(line: str) -> str:
    """A script that runs a line in its own session and reports how it ended; nothing interrupts the line."""
    return f"{assigned(line=line)}\n{text('detached.sh')}"


def limited(line: str, seconds: Seconds) -> str:
    """A script that runs a line and ends it on the host at the limit, with `TIMEOUT_EXIT`."""
    limit = assigned(limit=max(1, round(seconds)))
    return f"{limit}\nrecord() {{ :; }}\n{bounded(line)}\nrun_bounded\nexit $code"


def bounded(line: str, *, unless: str = "") -> str:
    """The function `run_bounded`; see `bounded.sh`.

    Args:
        line: it gets the standard input of the script.
        unless: a shell line that succeeds where the service runs; see `watchdog.sh`.
    """
    watchdog = f"{text('process.sh')}{text('watchdog.sh')}"
    return f"{assigned(line=line, look=LOOK_SECONDS, unless=unless, watchdog=watchdog)}\n{text('bounded.sh')}"


def watch(mark: str, known: str | None, limit: Seconds) -> str:
    """A script that prints `changed` as soon as a mark is no longer the known one, and ends.

    Args:
        mark: shell line that prints the mark.
        known: the mark of the last reading; None = the first one seen here.
        limit: after which the script ends by itself.
    """
    looks = FAST_LOOKS + round(max(0.0, limit - FAST_LOOKS * FAST_SECONDS) / SLOW_SECONDS) + 1
    first = "unset known" if known is None else assigned(known=known)
    return f"{assigned(mark=mark, looks=looks)}; {first}\n{text('watch.sh')}"
