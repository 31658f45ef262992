"""Shell scripts that are sent to a host. Nothing is installed there, and any POSIX shell runs them.

Several readings in one round trip, a job that outlives its connection, and a loop that reports a change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.model.reading import Seconds

ENVIRONMENT: Final = "LC_ALL=C; export LC_ALL"
"""This program parses the output of the tools, so it must always be untranslated."""
FAST_LOOKS: Final = 50
FAST_SECONDS: Final = 0.1
"""A service usually stops or starts within seconds, and every tenth of a second of a restart counts."""
SLOW_SECONDS: Final = 0.5
"""For slower services, so that the polling costs a busy host little."""
TIMEOUT_EXIT: Final = 124
"""The exit code of a line that was ended at its limit, the same as `timeout` uses."""
KILL_SECONDS: Final = 5
"""Between SIGTERM and SIGKILL at the limit."""
LOOK_SECONDS: Final = 30
"""Between two checks of the watchdog."""
CHANGED: Final = "changed"
SIGN_OF_LIFE: Final = "."

LOOK_AT_PROCESS: Final = r"""
# When a process began, in $begun; empty when it is gone, or a zombie.
look_at_process() {
    begun=''
    { read -r stat </proc/"$1"/stat; } 2>/dev/null || return 0
    # shellcheck disable=SC2086  # its fields
    set -- ${stat##*") "}
    case $1 in Z|X) return 0 ;; esac
    begun=${20}
}
"""
"""A pid alone does not identify a process: pids are used again."""

NONCE: Final = (
    "$(head -c 18 /proc/sys/kernel/random/uuid 2>/dev/null || tr -dc a-f0-9 </dev/urandom | head -c 18)"
)
"""Made up on the host for one answer, in a variable of its shell: no file or command line there has it."""
MARK: Final = '"$orchestrate_mark"'
"""Begins each line between the parts of an answer: `MARK begin NAME`, and `MARK end NAME EXIT`."""
MAKE_MARK: Final = f"orchestrate_mark=@@orchestrate-{NONCE}"
_EXIT: Final = re.compile(r"[0-9]{1,10}")
_FIRST_MARK: Final = re.compile(r"^(@@orchestrate-[a-f0-9-]{18}) begin ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The answer of one part of a script."""

    exit: int
    text: str


def untranslated(script: str) -> str:
    """A script whose tools do not translate their output."""
    return f"{ENVIRONMENT}; {script}"


def sections(parts: Sequence[tuple[str, str]]) -> str:
    """A script of named parts, each a shell line; a part that fails does not keep the next from running."""
    lines = [
        f"echo {MARK} begin {name}; {{ {line}\n}} 2>&1; printf '\\n%s end {name} %d\\n' {MARK} $?"
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


def detached(line: str) -> str:
    """A script that runs a line in its own session and reports how it ended; nothing interrupts the line.

    Without a service manager to take the job, the script that stops a node must not die half-way when the
    connection is lost. So it has no terminal, no pipe to this program that could break, and its output goes
    to a file that is unlinked at once. It keeps its standard input: sudo reads the password there.
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
    """A script that runs a line and ends it on the host at the limit, with `TIMEOUT_EXIT`."""
    return f"limit={max(1, round(seconds))}\n{bounded(line)}\nexit $code"


def bounded(line: str, *, closing: str = "", each_look: str = "", started: str = "") -> str:
    """Lines of a script that run a line, end it after `$limit` seconds, and leave its exit code in `$code`.

    The shell itself keeps the limit: `timeout` is not everywhere, older ones have no `-k`, and those of older
    BusyBoxes take other arguments. The line runs in a session of its own, `$work`, so that all of its
    processes are ended. If a trap interrupts the wait, the line continues.

    Args:
        line: it gets the standard input of the script.
        closing: redirections that close what the line must not inherit.
        each_look: lines of the watchdog at each of its looks, `LOOK_SECONDS` apart. The script's process id
            is in `$script`, and `look_at_process` gives `$script_began` for it if it still runs.
        started: lines to run when the line is at work, in `$work`.
    """
    watchdog = "\n".join(
        (
            LOOK_AT_PROCESS,
            "left=$1 work=$2 script=$3",
            'look_at_process "$script"; script_began=$begun',
            'look_at_process "$work"; work_began=$begun',
            # If the script was killed, no process ends this watchdog: it ends with the line.
            'is_at_work() { look_at_process "$work"; [ -n "$begun" ] && [ "$begun" = "$work_began" ]; }',
            'end() { is_at_work || exit 0; kill "$1" "-$work" || kill "$1" "$work"; }',
            'while [ "$left" -gt 0 ]; do',
            f'step={LOOK_SECONDS}; [ "$left" -gt "$step" ] || step=$left',
            'sleep "$step"; left=$((left - step))',
            "is_at_work || exit 0",
            each_look,
            "done",
            "end -TERM",
            f"sleep {KILL_SECONDS}",
            "end -KILL",
        )
    )
    apart = f"</dev/null >/dev/null 2>&1 6<&- {closing}"
    return "\n".join(
        (
            "exec 6<&0",
            "command -v setsid >/dev/null && apart=setsid || apart=",
            "read -r began rest </proc/uptime",
            f"$apart /bin/sh -c {shlex.quote(line)} <&6 6<&- {closing} &",
            "work=$!",
            f"$apart /bin/sh -c {shlex.quote(watchdog)} watchdog $limit $work $$ {apart} &",
            "watchdog=$!",
            started,
            "wait $work; code=$?",
            "read -r ended rest </proc/uptime",
            "{ kill -KILL -$watchdog || kill -KILL $watchdog; wait $watchdog; } 2>/dev/null",
            "began=${began%.*}${began#*.} ended=${ended%.*}${ended#*.}",
            f"if [ $((ended - began)) -ge $((limit * 100)) ]; then code={TIMEOUT_EXIT}; fi",
        )
    )


def watch(mark: str, known: str | None, limit: Seconds) -> str:
    """A script that prints `changed` as soon as a mark is no longer the known one, and ends.

    Service managers report changes only to privileged listeners, so this polls, on the host itself: no round
    trip is needed between two checks. Each check writes a sign of life. If the reader is gone, the write
    fails and ends the script.

    Args:
        mark: shell line that prints the mark.
        known: the mark of the last reading; None = the first one seen here.
        limit: after which the script ends by itself.
    """
    first = "known=$now" if known is None else f"known={shlex.quote(known)}"
    looks = FAST_LOOKS + round(max(0.0, limit - FAST_LOOKS * FAST_SECONDS) / SLOW_SECONDS) + 1
    return "\n".join(
        (
            # As `read_sections` has it, without an empty line at its beginning: Docker's errors have one.
            "nl='\n'",
            f"look() {{ now=$({mark})",
            'while [ "${now#"$nl"}" != "$now" ]; do now=${now#"$nl"}; done; }',
            "look",
            first,
            f"n=0; while [ $n -lt {looks} ]; do",
            f'[ "$now" = "$known" ] || {{ echo {CHANGED}; exit 0; }}',
            f"echo {SIGN_OF_LIFE} || exit 0",
            f"n=$((n+1)); if [ $n -lt {FAST_LOOKS} ]; then s={FAST_SECONDS}; else s={SLOW_SECONDS}; fi",
            "sleep $s 2>/dev/null || sleep 1",
            "look",
            "done",
        )
    )
