"""Names of the phases. The legal transitions are one literal table in `engine/phases.py`."""

from __future__ import annotations

from enum import Enum, IntEnum


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
    """What a person requested of an active run, mildest first. A stronger request replaces a milder one."""

    NONE = 0
    PAUSE = 1
    STOP = 2
    INTERRUPT = 3
