"""The script that makes the changes of one tunable on a host, in order, and how its answers are read. Pure.

Each change is read back before the next begins; the first failure ends the script. A change that is already
there counts as made, so the same script may be sent again after a crash.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, assert_never

from orchestrator.hosts import script, sudo
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.script import Section
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, TuneHost
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    ServiceChange,
    TunedChange,
    ValueChange,
    subject_of,
)
from orchestrator.redact import end_of
from orchestrator.tuning.blocks import BEGIN, END
from orchestrator.tuning.boot import FOLDER, is_part, is_shared, shell_text

SUDOERS: Final = f"{sudo.PAGE} (host tuning)"
_BEFORE_SUDO: Final = re.compile(r"^.*?: (?=sudo: |Sorry, )")
_STARTED: Final = "tuning"
_FAILED: Final = "as root: "
"""Before the first command that failed as root, as in `shell/change.sh`."""
TURN_SECONDS: Final = 60
"""How long to wait for another program's changes of the same host."""


class ChangeCode(IntEnum):
    """Exit codes of the shell functions that make a change."""

    MADE = 0  # it was made and read back
    NOTHING = 1  # it was not made, and everything is unchanged
    HALF = 2  # something was altered, but it does not read as wanted
    ALREADY = 10  # the value was already as wanted


def tuning_script(settings: HostSettings, changes: Sequence[Change]) -> str:
    """The command line that makes these changes; it reads a password from its standard input."""
    return script.untranslated(
        "\n".join(
            (
                shell_text("head.sh"),
                f"root={shlex.quote(settings.root)} sudo={settings.sudo.value} turn={TURN_SECONDS}",
                sudo.READ_FIRST if settings.sudo is Sudo.PASSWORD else "",
                "exec </dev/null",
                *map(shell_text, ("value.sh", "change.sh", "files.sh")),
                script.MAKE_MARK,
                "begin_changes",
                *(
                    f"change {number} {_guard(change, changes)}{call(change)}"
                    for number, change in enumerate(changes, 1)
                ),
            )
        )
    )


def call(change: Change) -> str:
    """The call of the shell function that makes a change, quoted for the shell."""
    match change:
        case ValueChange(path=path, wanted=wanted):
            words = ["set_value", path, " ".join(wanted.split())]
        case FileChange(path=path, reload=reload):
            own = "yes" if is_own_folder(path.rpartition("/")[0]) else "no"
            words = ["put_file", path, reload.value, own, _spec(change.found), _spec(change.wanted)]
        case BlockChange(path=path, name=name):
            marks = (BEGIN.format(name=name), END.format(name=name))
            words = ["put_block", path, *marks, _spec(_lines(change.found)), _spec(_lines(change.wanted))]
        case ServiceChange(service=service, wanted=mode):
            states = (mode.running, mode.enabled, mode.masked)
            words = ["set_service", service, *("yes" if state else "no" for state in states)]
        case TunedChange(wanted=profile):
            words = ["set_tuned", *(profile or "").split()]
        case _:
            assert_never(change)
    return shlex.join(words)


def _guard(change: Change, beside: Sequence[Change]) -> str:
    """Of the removal of what all parts share: the call that looks for another part first, on the host itself.

    Another cluster may have installed its part since the host was read. Parts that the same script removes do
    not count.
    """
    removed = is_shared(change) and (
        (isinstance(change, FileChange) and change.wanted is None)
        or (isinstance(change, ServiceChange) and not change.wanted.enabled)
    )
    parts = [
        one.path for one in beside if is_part(one) and isinstance(one, FileChange) and one.wanted is None
    ]
    return f"{shlex.join(['unless_needed', ' '.join(parts)])} " if removed else ""


def is_own_folder(folder: str) -> bool:
    """Whether only this program fills a folder: the script makes it if missing and removes it if empty."""
    unit = folder.startswith("/etc/systemd/system/") and folder.endswith(".d")
    return unit or folder == FOLDER or folder.startswith(("/etc/tuned/", "/etc/tune-profiles/"))


def describe_changes(settings: HostSettings, changes: Sequence[Change]) -> str:
    """The commands, one per change, as an operator would type them."""
    return "; ".join(_typed(settings, change) for change in changes) or "(nothing to change)"


def _typed(settings: HostSettings, change: Change) -> str:
    prefix, root = sudo.prefix(settings.sudo), settings.root
    match change:
        case ValueChange(path=path, wanted=wanted):
            return f"printf %s {shlex.quote(wanted)} | {prefix}tee {shlex.quote(root + path)}"
        case FileChange(path=path, wanted=None):
            return f"{prefix}rm -f {shlex.quote(root + path)}"
        case FileChange(path=path, wanted=text):
            return f"printf %s {shlex.quote(text or '')} | {prefix}tee {shlex.quote(root + path)}"
        case BlockChange(path=path, name=name, wanted=wanted):
            verb = "without" if wanted is None else "with"
            lines = "" if wanted is None else f" ({'; '.join(wanted.splitlines())})"
            return f"{prefix}tee {shlex.quote(root + path)}  # {verb} the lines of orchestrate {name}{lines}"
        case ServiceChange(service=service, wanted=mode):
            boot = "masked" if mode.masked else "enabled" if mode.enabled else "disabled"
            return (
                f"{prefix}systemctl or service: {service} {'started' if mode.running else 'stopped'}, {boot}"
            )
        case TunedChange(wanted=profile):
            return f"{prefix}tuned-adm profile {profile}" if profile else f"{prefix}tuned-adm off"
        case _:
            assert_never(change)


def read_outcome(settings: HostSettings, action: TuneHost, result: CommandResult) -> ActionResult:
    """The result of a script that ran to its end.

    Returns:
        `Done`: every change is made and read back. `Refused`: certainly nothing was altered, now or before.
        `InDoubt`: a part was made, or a change does not read as written, or the answer was cut off.
    """
    answers = script.read_sections(result.stdout)
    if _STARTED not in answers:
        said = end_of(result.stderr.strip() or result.stdout.strip(), 500) or "no output"
        if result.truncated:
            return InDoubt(
                reason=f"{action.tunable}: the answer is not that of this program's script: {said}"
            )
        return Refused(
            reason=f"{action.tunable}: no script could be run on the host (exit {result.exit}): {said}"
        )
    made = there = 0
    for number, change in enumerate(action.changes, 1):
        answer = answers.get(f"change-{number}")
        if answer is None:
            reason = f"the host's answer ends before {_place(action, number, change)}"
            return InDoubt(reason=f"{action.tunable}: {reason}; {_before(made, there)}")
        match answer.exit:
            case ChangeCode.MADE:
                made += 1
            case ChangeCode.ALREADY:
                there += 1
            case code:
                reason = f"{_place(action, number, change)}: {_why(settings, answer)}; {_before(made, there)}"
                nothing = code == ChangeCode.NOTHING and made == there == 0
                return (Refused if nothing else InDoubt)(reason=f"{action.tunable}: {reason}")
    return Done(output=f"{_before(made, there)} and read back: {', '.join(map(subject_of, action.changes))}")


def _place(action: TuneHost, number: int, change: Change) -> str:
    return f"change {number} of {len(action.changes)} ({subject_of(change)})"


def _before(made: int, there: int) -> str:
    said = f"{made} {'change' if made == 1 else 'changes'} made"
    return f"{said}, {there} made before" if there else said


def _why(settings: HostSettings, answer: Section) -> str:
    text, _, failed = answer.text.rstrip().rpartition(f"\n{_FAILED}")
    said = text if failed and text else answer.text
    refusal = sudo.refusal(said) if settings.sudo is not Sudo.OFF else None
    if refusal is None:
        return " ".join(said.split()) or "failed without a message"
    words = _BEFORE_SUDO.sub("", refusal)
    command = f" `{failed}`" if failed and text else ""
    return f"sudo refused{command}: {words}; copy the sudoers files that {SUDOERS} names"


def _spec(text: str | None) -> str:
    return "-" if text is None else f"={text}"


def _lines(text: str | None) -> str | None:
    """The lines of a block between its markers, each with its newline."""
    return text if text is None or not text or text.endswith("\n") else f"{text}\n"
