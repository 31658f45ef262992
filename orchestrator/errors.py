"""The exceptions of the program and the exit codes that they lead to.

Faults of the world (a node that will not start, a cluster that does not answer) are data: `UNKNOWN`
readings, failed actions, holds. An exception is for a fault after which the program cannot continue::

    OrchestratorError
    ├── ConfigError          what the user wrote is wrong: file, line and key are named        exit 2
    ├── UsageError           the command line asks for what cannot be done; no cluster answers     exit 2
    ├── NotInThisVersion     a command, strategy or key of a later version                     exit 2
    ├── JournalError         the state cannot be read or written                               exit 2
    │   └── DeposedError     another process resumed or restored this run                      exit 6
    ├── LeaseError           another run holds the cluster                                     exit 6
    ├── PlanMismatch         the saved plan no longer fits the cluster                         exit 7
    ├── NotRestored          settings or nodes are left as listed                              exit 8
    └── SafetyViolation      the program was about to break one of its own rules: a defect     exit 1
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What a script or a pipeline reads of a run; fixed by contract."""

    DONE = 0
    DEFECT = 1
    USAGE = 2
    HELD = 3
    FAILED = 4
    INTERRUPTED = 5
    LEASED = 6
    PLAN_MISMATCH = 7
    NOT_RESTORED = 8
    PAUSED = 9


def how_to_add(extra: str) -> str:
    """What to do if the packages of an extra are missing.

    It names the checkout: an index of packages may have another project of the name `orchestrator`.
    """
    return f"install orchestrate again with it: `pipx install --force '.[{extra}]'` in its checkout"


class OrchestratorError(Exception):
    r"""The root: a message says what, where and what to do.

    Args:
        message: one line. A line break inside it comes from a value that it names, and is shown as `\n`.
        more: further lines.

    Attributes:
        lines: all of them.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.DEFECT

    def __init__(self, message: str, *more: str) -> None:
        super().__init__("\n".join((message, *more)))
        self.lines = (message, *more)


class UsageError(OrchestratorError):
    """The command line asks for something that cannot be done, or the cluster cannot be reached."""

    exit_code = ExitCode.USAGE


class NotInThisVersion(UsageError):  # noqa: N818  (reads as the sentence that the user is shown)
    """A command, a strategy or a key that a later version brings: refused, never ignored."""

    def __init__(self, *what: str) -> None:
        first, *more = (f"{one}: not in this version" for one in what)
        super().__init__(first, *more)


class ConfigError(OrchestratorError):
    """A file that the user wrote is wrong.

    Attributes:
        message: what is wrong, without the place.
        others: further faults of the same file.
        file: the file's path as the user gave it, or None when there is no file.
        line: one-based, or None when the fault is of the whole file.
        key: dotted path of the key, such as `hosts.service.unit`.
    """

    exit_code = ExitCode.USAGE

    def __init__(
        self,
        message: str,
        *others: ConfigError,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        prefix = " ".join(part for part in (f"{where}:" if where else "", f"{key}:" if key else "") if part)
        super().__init__(f"{prefix} {message}".strip(), *map(str, others))
        self.message, self.others = message, others
        self.file, self.line, self.key = file, line, key


class JournalError(OrchestratorError):
    """The state file cannot be opened, read or written."""

    exit_code = ExitCode.USAGE


class DeposedError(JournalError):
    """Another process resumed or restored this run: its journal and its pending changes are that process's.

    Attributes:
        run: the run that took over; the same one where it was resumed.
        owner: `user@host` of the process that took over.
        epoch: of that process's lease; 0 where the journal does not show it.
    """

    exit_code = ExitCode.LEASED

    def __init__(self, message: str, *, run: str, owner: str, epoch: int = 0) -> None:
        super().__init__(message)
        self.run, self.owner, self.epoch = run, owner, epoch


class LeaseError(OrchestratorError):
    """Another run holds the lease on this cluster: who, since when, from where."""

    exit_code = ExitCode.LEASED


class PlanMismatch(OrchestratorError):  # noqa: N818  (the contract's word for it)
    """A saved plan does not fit the cluster any more: what differs."""

    exit_code = ExitCode.PLAN_MISMATCH


class NotRestored(OrchestratorError):  # noqa: N818  (the contract's word for it)
    """Settings or nodes are left as listed; the message holds the command that repairs them."""

    exit_code = ExitCode.NOT_RESTORED


class SafetyViolation(OrchestratorError):  # noqa: N818  (names what happened, not a class of errors)
    """The program was about to break one of its own invariants: a defect, to be reported."""

    exit_code = ExitCode.DEFECT
