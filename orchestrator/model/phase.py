"""Phases of a run and of a node, and the turn of a node. `engine/phases.py` has the legal transitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Self

from orchestrator.errors import ExitCode
from orchestrator.model.reading import Instant
from orchestrator.names import OUTCOMES


class Phase(Enum):
    """Phase of a run. A wave goes from GATED to SETTLED.

    A run after a bulk load merges its indices before its first wave and waits for their copies (MERGED).
    """

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

    PREPARING = "preparing"
    MERGING = "merging"
    MERGED = "merged"
    GATED = "gated"
    WITHHELD = "withheld"
    DOWN = "down"
    REJOINED = "rejoined"
    REASSIGNED = "reassigned"
    SETTLED = "settled"
    FINISHING = "finishing"
    STANDING_DOWN = "standing_down"
    ENDED = "ended"


class NodePhase(Enum):
    """Phase of one node of the run."""

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

    PENDING = "pending"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    REJOINED = "rejoined"
    RECOVERED = "recovered"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(Enum):
    """How a run ended, with its exit code."""

    DONE = "done", ExitCode.DONE
    HELD = "held", ExitCode.HELD
    FAILED = "failed", ExitCode.FAILED
    INTERRUPTED = "interrupted", ExitCode.INTERRUPTED
    PAUSED = "paused", ExitCode.PAUSED
    NOT_RESTORED = "not_restored", ExitCode.NOT_RESTORED
    RESTORED = "restored", ExitCode.DONE
    DEPOSED = "deposed", ExitCode.LEASED

    exit_code: ExitCode

    def __new__(cls, value: str, exit_code: ExitCode = ExitCode.DEFECT) -> Self:
        """A row; the default is for the types alone: `Outcome("done")` finds its row by the value."""
        outcome = object.__new__(cls)
        outcome._value_, outcome.exit_code = value, exit_code
        return outcome

    @property
    def words(self) -> str:
        """It for people."""
        return OUTCOMES[self.value]

    @classmethod
    def of(cls, code: ExitCode) -> Outcome:
        """The outcome of a command without a run, by its exit code; a defect is a failure."""
        return next((one for one in cls if one.exit_code is code), cls.FAILED)


class Request(IntEnum):
    """What a person requested of an active run, mildest first. A stronger request replaces a milder one."""

    NONE = 0
    PAUSE = 1
    STOP = 2
    INTERRUPT = 3


# One node's turn: its owed work, its current goal, and which verb may still take effect.
# ------------------------------------


class Work(Enum):
    """Kinds of owed work of a node."""

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

    RESTART = "restart"
    HOOK = "hook"
    INSTALL = "install"
    TUNING = "tuning"
    REBOOT = "reboot"
    VERSION = "version"
    UNDO = "undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """One item of owed work."""

    work: Work
    # which hook, for `HOOK` (`while_stopped`) and `UNDO` (`after_recovery`); which step, for `INSTALL`; 0 for
    # all others
    number: int = 0

    def __str__(self) -> str:
        if self.work is Work.INSTALL:
            return step_name(self.number)
        name = _NUMBERED.get(self.work)
        return f"{name} {self.number}" if name else str(self.work.value)


def step_name(number: int) -> str:
    """An install step for people, who count from one as in `step 1 of 2`."""
    return f"install step {number + 1}"


_NUMBERED: Final = {
    Work.HOOK: "hook while_stopped",
    Work.UNDO: "hook after_recovery",
}

RESTART = Owed(work=Work.RESTART)
TUNING = Owed(work=Work.TUNING)
REBOOT = Owed(work=Work.REBOOT)
VERSION = Owed(work=Work.VERSION)


def in_order(owed: frozenset[Owed]) -> tuple[str, ...]:
    """Name owed work in the order in which a turn does it: `restart`, `hook while_stopped 0`."""
    order = list(Work)
    return tuple(str(item) for item in sorted(owed, key=lambda item: (order.index(item.work), item.number)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksOf:
    """Whose `after_recovery` hooks return nodes to service. Names alone, since a hook may hold a secret."""

    run: str  # the run that took the nodes out of service
    playbook: str  # the name of its playbook

    def __str__(self) -> str:
        return f"run {self.run} (playbook {self.playbook})"


class Goal(Enum):
    """The current goal for a node."""

    RESTART = "restart"
    BRING_UP = "bring up"


class Verb(Enum):
    """Verbs that take a node down and may take effect after their connection was lost."""

    STOP = "stop"
    REBOOT = "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A verb that was sent and whose effect has not been seen yet."""

    verb: Verb
    since: Instant  # when it was sent, or when a new process took over the run
    accepted: bool = False  # the host accepted it in this process. False: it may never have arrived.
    # the host accepted it in this process or an earlier one, so it is done once the node is back
    heard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Installing:
    """An install step that was sent and whose end no reading has shown yet."""

    number: int
    ticket: str
    since: Instant  # when it was sent
