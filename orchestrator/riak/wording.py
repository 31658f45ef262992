"""Interpret the output of a node's service commands when Riak itself answers. Pure.

The packaged `/usr/sbin/riak` of 3.2.0 and 3.2.1, called as root, exits 0 for everything (recorded). So the
text decides. For other command lines of the cluster file, such as a script of the operator, the exit code
decides, unless a line of Riak in the output contradicts it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Reading, Unknown
from orchestrator.riak.output import CommandOutput, reading
from orchestrator.riak.parse_node import PONG, StartReport, Stop, parse_ping, parse_start, parse_stop

_SHELL: Final = re.compile(r"[^\w@%+:,./ =-]")
"""Characters that make a line more than one command."""
_VERBS: Final = frozenset({"ping", "stop", "start", "daemon"})
_LETTERS_WITH_VALUE: Final = frozenset("CDghpRrTtUu")
"""Short options of sudo 1.9 with a value: the rest of the same word, else the next word."""
_WORDS_WITH_VALUE: Final = frozenset(
    f"--{name}"
    for name in (
        "chdir",
        "chroot",
        "close-from",
        "command-timeout",
        "group",
        "host",
        "other-user",
        "prompt",
        "role",
        "type",
        "user",
    )
)
"""Its long options with a value: after `=`, else the next word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakWording:
    """Reads the output of `riak`; `Wording` of the hosts."""

    program: tuple[str, ...]  # the words of `riak.command` for the node
    running: str = PONG
    stopped: str = "not responding to pings|did not respond to ping!|^Node is not running!"

    def decides(self, line: str) -> bool:
        """Whether a line is a command of Riak itself, which always prints one of these texts at its end."""
        if _SHELL.search(line):
            return False
        *program, verb = _without_sudo(line.split()) or [""]
        is_riak = len(program) == 1 and program[0].rpartition("/")[2] == "riak"
        return verb in _VERBS and (is_riak or tuple(program) == self.program)

    def state(self, line: str, exit_code: int, text: str) -> Reading[ServiceState] | None:
        """The state of the service from a status command; None if the exit code decides."""
        output = CommandOutput(exit=exit_code, stdout=text)
        answers = reading(lambda: parse_ping(output))
        if isinstance(answers, Unknown):
            lies = exit_code != 0 and PONG in text.split()
            return answers if self.decides(line) or lies else None
        return ServiceState.RUNNING if answers else ServiceState.STOPPED

    def stop(self, line: str, exit_code: int, text: str) -> ActionResult | None:
        """The result of a finished stop; None if the exit code decides."""
        said = text.strip()
        found = reading(lambda: parse_stop(CommandOutput(exit=exit_code, stdout=text)))
        if found is Stop.REFUSED:
            return Refused(reason=said)
        if not self.decides(line):
            return None
        match found:
            case Stop.STOPPED:
                return Done(output=said)
            case Stop.WAS_DOWN:
                return InDoubt(reason=f"{said}: `riak stop` stopped nothing")
            case Stop.SILENT:
                return InDoubt(reason="`riak stop` printed nothing, as it does of a node that is down")
            case Unknown(reason=reason):
                return InDoubt(reason=reason)

    def start(self, line: str, exit_code: int, text: str) -> ActionResult | None:
        """The result of a finished start; None if the exit code decides."""
        said = text.strip()
        match reading(lambda: parse_start(CommandOutput(exit=exit_code, stdout=text))):
            case StartReport.REFUSED:
                return Refused(reason=said)
            case StartReport.NOT_YET:
                return InDoubt(reason=said)
            case StartReport.WAS_RUNNING:
                return Done(output=said)
            case StartReport.STARTED:
                return Done(output=said) if self.decides(line) else None
            case Unknown(reason=reason):
                # A good text with a bad exit code proves nothing, nor does an unknown text with exit code 0.
                by_text = reading(lambda: parse_start(CommandOutput(exit=0, stdout=text)))
                good = bool(said) and by_text is StartReport.STARTED
                return InDoubt(reason=reason) if self.decides(line) and (good or exit_code == 0) else None


def _without_sudo(words: list[str]) -> list[str]:
    if not words or words[0].rpartition("/")[2] != "sudo":
        return words
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option, *rest = rest
        if option == "--":
            break
        if _takes_next(option):
            rest = rest[1:]
    return rest


def _takes_next(option: str) -> bool:
    """Whether the value of an option of sudo is the next word."""
    if option.startswith("--"):
        return option in _WORDS_WITH_VALUE
    letters = option[1:]  # `-nu riak` is `-n -u riak`, and `-uriak` has its value
    at = next((at for at, letter in enumerate(letters) if letter in _LETTERS_WITH_VALUE), None)
    return at is not None and at == len(letters) - 1
