"""Names of the phases. The legal steps between them are one literal table in `engine/phases.py`."""

from __future__ import annotations

from enum import Enum, IntEnum


class Phase(Enum):
    """Where a run is: a wave in hand goes from GATED to SETTLED.

    A run after a bulk load merges its indices before its first wave, and lets their copies settle (MERGED).
    """

    __hash__ = object.__hash__  # many sets and tables of them: that of Enum is a call in Python

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
    """Where one node of the run is."""

    __hash__ = object.__hash__  # many sets and tables of them: that of Enum is a call in Python

    PENDING = "pending"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    REJOINED = "rejoined"
    RECOVERED = "recovered"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(Enum):
    """How a run ended; each has its exit code."""

    DONE = "done"
    HELD = "held"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    NOT_RESTORED = "not_restored"
    RESTORED = "restored"
    DEPOSED = "deposed"


class Request(IntEnum):
    """What somebody asked of a run under way, mildest first; a stronger one replaces a milder."""

    NONE = 0
    PAUSE = 1
    STOP = 2
    INTERRUPT = 3
