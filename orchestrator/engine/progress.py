"""The progress of a run's nodes. The few that a reading may move are found without a look at all others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain
from typing import Final

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.phase import REBOOT, RESTART, Doubt, Goal, Installing, NodePhase, Owed, Work
from orchestrator.model.reading import Instant
from orchestrator.model.work_event import StartFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTaken:
    """A shard of which the run took copies down."""

    # its started copies in the whole cluster at the last reading before the stop; where an earlier wave still
    # recovers, before that one's, if they were more
    started: int
    open: bool = True  # whether its index was open

    def after(self, earlier: ShardTaken | None, *, most: int) -> ShardTaken:
        """What two waves took down: the first may have found more copies, of which `most` are wanted now."""
        if earlier is None or earlier.open is not self.open:
            return self  # somebody closed or opened the index in between
        started = min(earlier.started, most)
        return replace(self, started=started) if started > self.started else self


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStop:
    """A stop that is not known to be done and may still come."""

    # when it was taken as not done, or when it was sent, if its node is back or another stop followed; the
    # beginning of a process that takes the run over
    since: Instant
    # what its wave was to take down when it was sent: missing if it is done late
    taken: Mapping[tuple[str, int], ShardTaken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgress:
    """One node of the run."""

    name: NodeName
    phase: NodePhase = NodePhase.PENDING
    # when it entered its phase, settled its last item there, or a new process took over the run
    since: Instant = 0.0
    # the last life accounted for: the baseline's, then that of each return. None = never read.
    life: Incarnation | None = None
    boot: str | None = None  # its host's boot id in that life, where it could be read
    over: bool = False  # its host has reported since that the process of that life is gone
    owed: frozenset[Owed] = frozenset()  # the work that it still needs
    # the `while_stopped` hook that ran last, until a reading after it shows the node down
    unproven: int | None = None
    # `before_stop` hooks that this process ran in this life, not undone; a stop needs them all
    ready: frozenset[int] = frozenset()
    ready_since: Instant | None = None  # when the first of them was sent; None while none has to be undone
    doubt: Doubt | None = None  # a stop or reboot that was sent and may still take effect
    # a stop that may still be done; None for none. All about it is in `late_stop`.
    lost_stop: LostStop | None = None
    goal: Goal = Goal.RESTART  # `BRING_UP` from a rescue or a late stop until it is back
    start_sent: Instant = 0.0  # when a start was last sent in this phase; 0 = not yet
    tries: int = 0  # starts in this phase that the host answered while the process was gone
    reboots: int = 0  # how often its host was asked to reboot in this wave
    install: Installing | None = None  # the install step whose end no reading has shown yet
    # the install step that was given up last: one that was in doubt may still be done
    lost_install: Installing | None = None
    installs: int = 0  # install steps that were begun for it, by every process of the run
    returns: int = 0  # how often it came back with work owed, in this attempt at the run
    # when its stop was last sent, for figures and for what its memory forgot
    stopped_at: Instant | None = None
    failure: str | None = None  # why it is FAILED, or was skipped, in one line
    # the first start that failed in this phase, or before it is FAILED
    start_failed: StartFailed | None = None

    @property
    def undo(self) -> tuple[int, ...]:
        """Numbers of the `after_recovery` hooks that it still needs, in order."""
        return tuple(sorted(item.number for item in self.owed if item.work is Work.UNDO))

    @property
    def work(self) -> frozenset[Owed]:
        """Its owed work without `after_recovery` hooks: the work for another turn."""
        return frozenset(item for item in self.owed if item.work is not Work.UNDO)


GOING_UP_OR_DOWN: Final = frozenset({NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING})
"""Phases in which a node is being restarted now."""

MAY_BE_DOWN: Final = GOING_UP_OR_DOWN | {NodePhase.FAILED}
"""Phases in which a node may be down because of the run, so that it has to be started."""

FINAL_NODE_PHASES: Final = frozenset({NodePhase.RECOVERED, NodePhase.SKIPPED})
"""Phases in which nothing more is to be done for a node."""


class Mark(Enum):
    """What sets a node apart from most others of a run."""

    __hash__ = object.__hash__  # a key of many dicts; Enum's own hash is a slow Python call

    OPEN = auto()
    """A stop or a reboot of it may still take effect."""
    AWAKE = auto()
    """A reading may move it, whatever it shows: it is in a turn, or OPEN, or waits and owes no restart."""
    REBOOTS = auto()
    """It owes a reboot."""
    INSTALLS = auto()
    """An install step was sent, and no reading has shown its end."""
    UNDOES = auto()
    """It owes `after_recovery` hooks."""


_Part = NodePhase | Mark


def _parts(node: NodeProgress) -> tuple[_Part, ...]:
    parts: list[_Part] = [node.phase]
    open_ = node.doubt is not None or node.lost_stop is not None
    if node.phase is NodePhase.PENDING:
        awake = RESTART not in node.owed
    else:
        awake = node.phase not in FINAL_NODE_PHASES
    if open_:
        parts.append(Mark.OPEN)
    if open_ or awake:
        parts.append(Mark.AWAKE)
    if node.install is not None:
        parts.append(Mark.INSTALLS)
    if REBOOT in node.owed:
        parts.append(Mark.REBOOTS)
    if any(item.work is Work.UNDO for item in node.owed):
        parts.append(Mark.UNDOES)
    return tuple(parts)


_BLOCK: Final = 128
"""Nodes in a block: an event copies its block and the list of blocks, and so not ten thousand nodes."""


class Nodes(Mapping[NodeName, NodeProgress]):
    """The nodes of a run, in its order, and those of each phase and with each mark.

    It does not change: `changed` makes another one.

    Args:
        nodes: in the order of the run.
    """

    __slots__ = ("_blocks", "_joined", "_listed", "_place")

    def __init__(self, nodes: Iterable[NodeProgress] = ()) -> None:
        every = list({node.name: node for node in nodes}.values())
        self._place = {node.name: place for place, node in enumerate(every)}
        self._blocks = [tuple(every[at : at + _BLOCK]) for at in range(0, len(every), _BLOCK)]
        self._listed: dict[_Part, list[tuple[NodeProgress, ...]]] = {}
        for part in dict.fromkeys(part for node in every for part in _parts(node)):
            self._listed[part] = [
                tuple(node for node in block if part in _parts(node)) for block in self._blocks
            ]
        self._joined: dict[_Part, tuple[NodeProgress, ...]] = {}

    @property
    def names(self) -> Collection[NodeName]:
        """Their names: the same object for all states of a run."""
        return self._place

    def changed(self, *nodes: NodeProgress) -> Nodes:
        """These nodes with others in the place of those of the same names.

        Raises:
            KeyError: one of them is none of the run's.
        """
        after, place = object.__new__(Nodes), self._place
        after._place, after._blocks = place, self._blocks.copy()
        after._listed, after._joined = self._listed.copy(), self._joined.copy()
        for node in nodes:
            number, at = divmod(place[node.name], _BLOCK)
            block = after._blocks[number]
            before, now = _parts(block[at]), _parts(node)
            after._blocks[number] = (*block[:at], node, *block[at + 1 :])
            for part in {*before, *now}:
                lists = after._listed.get(part, [()] * len(after._blocks)).copy()
                listed = lists[number]
                here = bisect_left(listed, place[node.name], key=lambda one: place[one.name])
                put = (node,) if part in now else ()
                lists[number] = (*listed[:here], *put, *listed[here + (part in before) :])
                after._listed[part] = lists
                after._joined.pop(part, None)
        return after

    def of(self, *parts: _Part) -> tuple[NodeProgress, ...]:
        """The nodes in one of these phases, or with one of these marks, in the order of the run."""
        found = [listed for part in parts if (listed := self._of(part))]
        if len(found) <= 1:
            return found[0] if found else ()
        return self.in_order({node.name: node for listed in found for node in listed}.values())

    def _of(self, part: _Part) -> tuple[NodeProgress, ...]:
        """The same object as long as none of them changes: results about them are remembered."""
        if part not in self._joined:
            self._joined[part] = tuple(chain.from_iterable(self._listed.get(part, ())))
        return self._joined[part]

    def in_order(self, nodes: Iterable[NodeProgress]) -> tuple[NodeProgress, ...]:
        """Some of these nodes in the order of the run."""
        return tuple(sorted(nodes, key=lambda node: self._place[node.name]))

    def __getitem__(self, name: NodeName) -> NodeProgress:
        number, at = divmod(self._place[name], _BLOCK)
        return self._blocks[number][at]

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, name: object) -> bool:
        return name in self._place

    def keys(self) -> KeysView[NodeName]:
        """Their names."""
        return self._place.keys()
