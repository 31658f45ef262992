"""The table of a node: what a reading can show of it (`Sight`), and the next move in each of its phases.

There is one grid for each goal: a row for each phase, a column for each sight. Together they are complete,
and no other code decides about a node. The steps that are legal follow from them: a move names the phases
that a node may enter by it.

A rescue and a stand-down have no code of their own. They change the goal to `BRING_UP`: no node is stopped,
no hook runs, no host is tuned, and every node that is down is started. Skipped work stays owed, and the node
gets another turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from orchestrator.errors import SafetyViolation
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import Goal, NodePhase

_PENDING, _STOPPING, _STOPPED = NodePhase.PENDING, NodePhase.STOPPING, NodePhase.STOPPED
_STARTING, _REJOINED = NodePhase.STARTING, NodePhase.REJOINED
_RECOVERED, _FAILED, _SKIPPED = NodePhase.RECOVERED, NodePhase.FAILED, NodePhase.SKIPPED


class Sight(Enum):
    """What a reading shows of a node. The first one that fits, in this order, is the sight."""

    __hash__ = object.__hash__  # the key of a table: that of Enum is a call in Python

    STOPPING = "the host says that its service is stopping"
    AWAY = "the host says that its process is gone, and no reboot is awaited"
    DOUBT = "a stop or a reboot was sent that may still take effect"
    SAME = "a member, with the process that the run has recorded"
    NEW = "a member, with another process"
    COMING = "its service runs or starts, and the node is not a member yet"
    LEFT = "not a member, and its host does not answer"
    UNKNOWN = "the reading does not show it"


class Move(Enum):
    """The next move, and the phases that a node may enter by it.

    A move that is named after a phase enters it, and the grid is read again in the same decision. STOP,
    REJOIN, FINISH, UNDO and OURS need the whole run, which makes them.
    """

    __hash__ = object.__hash__  # the key of a table: that of Enum is a call in Python

    REST = ("do nothing; only the limits of the run apply",)
    # SKIPPED: the run begins without a node whose wave could never be admitted.
    STOP = (
        "a candidate: the run stops it when its wave may go; enter REJOINED if no work is owed",
        _STOPPING,
        _REJOINED,
        _SKIPPED,
    )
    TO_STOPPED = ("enter STOPPED", _STOPPED)
    TO_STARTING = ("enter STARTING: it came up by itself, or it is only brought up", _STARTING)
    TO_REJOINED = ("enter REJOINED, and record its process: it was restarted outside this run", _REJOINED)
    WORK = ("do the owed work: hooks, install steps, tuning, then the reboot; then enter STARTING", _STARTING)
    START = (
        "send a start, again after 5 s; enter FAILED after three starts, or at `deadlines.start`",
        _FAILED,
    )
    REJOIN = ("enter REJOINED once enough readings agree", _REJOINED)
    FINISH = (
        "wait for its copies, run `after_recovery` hooks; enter RECOVERED, or PENDING if work is owed",
        _RECOVERED,
        _PENDING,
    )
    UNDO = ("run `after_recovery` hooks if `before_stop` hooks ran",)
    UNDONE = (
        "the stop was not done: enter PENDING, or REJOINED if no work is owed",
        _PENDING,
        _REJOINED,
    )
    OURS = (
        "if a lost stop of this run took it down: enter STARTING, once its host or enough readings show it",
        _STARTING,
    )
    OURS_OR_FLIP = ("as `ours`; if no stop of this run took it down: a second failure", _STARTING)
    AWAIT_STOP = ("wait `deadlines.stop`, then stand down",)
    AWAIT_DOUBT = ("wait for the effect of the command; at its limit stand down",)
    AWAIT_HOST = ("wait 30 s for its host, then enter STARTING", _STARTING)
    AWAIT_START = ("wait for the effect of the command; at its limit enter FAILED", _FAILED)
    AWAIT_JOIN = (
        "wait `start` and `rejoin`, then enter FAILED; the run stands down before, after `rejoin`",
        _FAILED,
    )
    AWAIT_RETURN = ("wait `deadlines.rejoin`, then stand down",)

    def __init__(self, says: str, *enters: NodePhase) -> None:
        self.says = says
        self.enters = frozenset(enters)


_RESTART: Final = """
          stopping     away         doubt        same       new         coming       left         unknown
pending   ours         ours         rest         stop       to_rejoined rest         ours         rest
stopping  await_stop   to_stopped   await_stop   undone     to_starting await_stop   await_stop   await_stop
stopped   await_doubt  work         await_doubt  await_host to_starting to_starting  await_host   await_host
starting  start        start        await_start  undone     rejoin      await_join   start        start
rejoined  await_return ours_or_flip await_return finish     to_rejoined await_return ours_or_flip await_return
recovered ours         ours         rest         rest       rest        rest         ours         rest
failed    rest         rest         rest         rest       to_rejoined rest         rest         rest
skipped   ours         ours         rest         undo       undo        rest         ours         rest
"""
"""The goal of a node in its turn: it is stopped, worked on and started."""

_BRING_UP: Final = """
          stopping    away        doubt       same        new         coming      left        unknown
pending   ours        ours        rest        undo        undo        rest        ours        rest
stopping  to_starting to_stopped  to_starting undone      to_starting to_starting to_starting to_starting
stopped   to_starting to_starting to_starting to_starting to_starting to_starting to_starting to_starting
starting  start       start       await_start undone      rejoin      await_join  start       start
rejoined  rest        to_starting rest        undo        to_rejoined rest        to_starting rest
recovered ours        ours        rest        rest        rest        rest        ours        rest
failed    rest        rest        rest        rest        to_rejoined rest        rest        rest
skipped   ours        ours        rest        undo        undo        rest        ours        rest
"""
"""The goal after a rescue, a late stop, and in a stand-down."""


def _parsed(grid: str) -> Mapping[NodePhase, Mapping[Sight, Move]]:
    """The moves of a grid by phase and sight.

    Raises:
        ValueError: it is not complete, or names a phase twice.
        KeyError: it names a sight or a move that does not exist.
    """
    head, *rows = (line.split() for line in grid.strip().splitlines())
    sights = [Sight[name.upper()] for name in head]
    cells = {
        NodePhase(phase): dict(zip(sights, (Move[name.upper()] for name in moves), strict=True))
        for phase, *moves in rows
    }
    if not (set(cells) == set(NodePhase) and len(cells) == len(rows) and set(sights) == set(Sight)):
        raise ValueError("a grid of a node needs a row for each phase, and a column for each sight")
    return cells


GRIDS: Final = {Goal.RESTART: _parsed(_RESTART), Goal.BRING_UP: _parsed(_BRING_UP)}
"""The move for each goal, phase and sight."""


def move_of(phase: NodePhase, sight: Sight, goal: Goal) -> Move:
    """The cell of the table."""
    return GRIDS[goal][phase][sight]


def _moves_in(phase: NodePhase) -> frozenset[Move]:
    return frozenset(move for grid in GRIDS.values() for move in grid[phase].values())


PHASES_WITH: Final = {move: tuple(phase for phase in NodePhase if move in _moves_in(phase)) for move in Move}
"""The phases in which a grid has each move."""


# Legal steps ------------------------------------


NODE_STEPS: Final[Mapping[NodePhase, frozenset[NodePhase]]] = {
    phase: frozenset(entered for move in _moves_in(phase) for entered in move.enters) for phase in NodePhase
}
"""The phases that may follow by a move."""

NODE_STEPS_BY_COMMAND: Final[Mapping[NodePhase, Mapping[NodePhase, str]]] = {
    _FAILED: {
        _STOPPED: "resume --retry-failed",
        _SKIPPED: "resume --skip",
        _STARTING: "restore",
    },
    _PENDING: {_SKIPPED: "resume --skip"},
}
"""Steps that follow from the command with which a later process continues, and from no reading."""


def check_node_step(node: NodeName, old: NodePhase, new: NodePhase) -> None:
    """Refuse a step that no move makes.

    Raises:
        SafetyViolation: the step is not in the table.
    """
    if new not in NODE_STEPS[old]:
        raise SafetyViolation(f"node {node} may not go from {old.value} to {new.value}")
