"""The changes that a journal lists as not restored, compared with what the cluster has now.

The journal of a run whose process is gone is certain until its last record. The cluster shows later changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from functools import partial

from orchestrator.engine.left_over import texts
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.progress import MAY_BE_DOWN
from orchestrator.engine.state import RunState
from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.observation import Level
from orchestrator.model.reading import Instant, Reading, Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.untrusted import one_line
from orchestrator.view.left_behind import count_in_words, unrestored_in_words
from orchestrator.view.progress import not_restored
from orchestrator.view.text import counted, day_and_minute, listed, setting, stamp
from orchestrator.view.turns import in_words


class ChangeState(Enum):
    """The result of comparing one change with the cluster."""

    RESTORED = "restored"
    NOT_RESTORED = "not restored"
    CHANGED = "changed outside this run"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeNow:
    """One change that the journal lists as not restored."""

    listed: str  # the change, in the words of `not_restored`
    name: str  # the setting, index or node
    before: str  # what was there before the run; empty for a node
    found: ChangeState
    now: str  # what the cluster has, for people; the reason where that is unknown

    @property
    def sentence(self) -> str:
        """Its name, what was there before the run, and what the cluster has now."""
        return f"{self.name}: {self.words}"

    @property
    def words(self) -> str:
        """The same without the name."""
        before = f"{self.before} → " if self.before else ""
        match self.found:
            case ChangeState.UNKNOWN:
                return f"{before}unknown: {one_line(self.now, 200)}"
            case ChangeState.RESTORED:
                return f"{self.now}, as before"
            case ChangeState.NOT_RESTORED:
                return f"{before}{self.now}"
            case ChangeState.CHANGED:
                return f"{before}{self.now} (changed outside this run)"

    def as_object(self) -> dict[str, object]:
        """The change for `--output json`."""
        return {"listed": self.listed, "found": self.found.name.lower(), "now": self.now}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNow:
    """What `status` adds to a journal that no process continues."""

    ended: Instant  # the time of the journal's last record
    unwritten: bool = False  # whether it is known that later events could not be written
    at: Instant | None = None  # when the cluster was read; None if it was not
    why_not: str = ""  # why it was not read; empty if it was
    changes: tuple[ChangeNow, ...] = ()  # in the order of `not_restored`; empty if the cluster was not read

    @property
    def all_restored(self) -> bool:
        """Whether the cluster was read, and a restore would have nothing to change."""
        over = (ChangeState.RESTORED, ChangeState.CHANGED)
        return self.at is not None and all(one.found in over for one in self.changes)

    def as_object(self) -> dict[str, object]:
        """The comparison for `--output json`."""
        return {
            "read_at": None if self.at is None else stamp(self.at),
            "why_not": self.why_not or None,
            "changes": [one.as_object() for one in self.changes],
        }


def compare(
    state: RunState, read: Reading[ClusterReadings], *, at: Instant, ended: Instant, unwritten: bool
) -> ClusterNow:
    """Compare every change that the journal lists as not restored with a reading of the cluster.

    Args:
        state: the fold of the run's journal.
        read: its `cluster` and `settings`; `Unknown` if the cluster was not read.
        at: when it was read.
        ended: the time of the journal's last record.
        unwritten: whether it is known that later events could not be written.
    """
    if isinstance(read, Unknown):
        return ClusterNow(ended=ended, unwritten=unwritten, why_not=read.reason)
    changes = zip(texts(not_restored(state)), (*_changed(state), *_down(state)), strict=True)
    compared = tuple(
        ChangeNow(listed=text, name=change.name, before=change.before, found=found, now=now)
        for text, change in changes
        for found, now in [change.now(read)]
    )
    return ClusterNow(ended=ended, unwritten=unwritten, at=at, changes=compared)


def restoring_lines(
    state: RunState, now: ClusterNow, *, lives: bool = False, zone: tzinfo | None = None
) -> list[str]:
    """What is not restored, counted, then the changes that the journal lists.

    Args:
        state: the fold of the run's journal.
        now: the cluster.
        lives: whether the process of the run may restore them.
        zone: the time zone of the reader; None for that of this machine.
    """
    what, since = unrestored_in_words(state), day_and_minute(now.ended, zone)
    still = "will be restored" if lives else "NOT RESTORED"
    last = f"the journal ends at {since}" + (", the state could not be written" if now.unwritten else "")
    if now.at is not None:
        left = _still_left(state, now)
        of = f"{still}: {left}" if left else f"Restored: nothing is left of {what}"
        return [f"{of}; read from the cluster now; {last}", *_grouped((c.name, c.words) for c in now.changes)]
    unread = f"the cluster was not read: {one_line(now.why_not, 400)}"
    if state.outcome is not None:
        return [f"NOT RESTORED when the run ended: {what}; {unread}", *changes_in_words(state)]
    why = "the state could not be written" if now.unwritten else "the last record of the journal"
    return [f"{still}: {what}, as of {since}, {why}; {unread}", *changes_in_words(state)]


def _still_left(state: RunState, now: ClusterNow) -> str:
    """The changes that the cluster still has, or that are unknown, counted; empty for none."""
    still = iter([one.found in (ChangeState.NOT_RESTORED, ChangeState.UNKNOWN) for one in now.changes])
    left = state.unrestored  # in the order of `not_restored`
    settings = sum(next(still) for _ in left.in_order)
    indices = sum(next(still) for _ in left.replicas)
    votes = next(still) if left.excluded else False
    excluded = sorted(left.excluded) if votes else []
    down = [node.name for node in state.nodes.values() if node.phase in MAY_BE_DOWN]
    return count_in_words(settings, indices, excluded, [name for name in down if next(still)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One change that a run has to restore, for people."""

    name: str
    during: str  # what the run set, or what it did to a node
    now: Callable[[ClusterReadings], tuple[ChangeState, str]]  # what the cluster has
    before: str = ""


def changes_in_words(state: RunState) -> list[str]:
    """The changes that the journal lists, nodes of the same phase as one."""
    return [*changed_in_words(state), *_grouped((one.name, one.during) for one in _down(state))]


def changed_in_words(state: RunState) -> list[str]:
    """Those of settings, replicas and voters."""
    return _grouped((one.name, f"{one.before} → {one.during}") for one in _changed(state))


def _grouped(changes: Iterable[tuple[str, str]]) -> list[str]:
    """Names and what is so of them: what is so of several is one line with their names."""
    return [f"{listed(names, 12)}: {said}" for said, names in by_same_reason(changes).items()]


def _changed(state: RunState) -> Iterator[_Change]:
    """In the order of `unrestored`."""
    for (level, key), change in state.unrestored.in_order:
        at = "" if level is Level.PERSISTENT else f" ({level.value})"
        yield _Change(
            name=f"{key}{at}",
            during=setting(change.wanted),
            now=partial(_setting, change),
            before=setting(change.found),
        )
    for added in state.unrestored.replicas.values():
        yield _Change(
            name=f"index {added.index}",
            during=counted(added.wanted, "replica"),
            now=partial(_replicas, added),
            before=counted(added.found, "replica"),
        )
    if excluded := state.unrestored.excluded:
        yield _Change(
            name=f"voting of {listed(sorted(excluded))}",
            during="excluded",
            now=partial(_voters, excluded),
            before="none excluded",
        )


def _down(state: RunState) -> Iterator[_Change]:
    """The nodes that may be down, which `not_restored` has after these."""
    for node in state.nodes.values():
        if node.phase in MAY_BE_DOWN:
            why = f" ({one_line(node.failure)})" if node.failure else ""
            during = f"{in_words(state, node)}{why}"
            yield _Change(name=node.name, during=during, now=partial(_node, node.name))


def _setting(change: SettingChange, read: ClusterReadings) -> tuple[ChangeState, str]:
    settings = read.settings
    if isinstance(settings, Unknown):
        return ChangeState.UNKNOWN, settings.reason
    value = settings.at(change.level, change.key)
    if value == settings.restored(change.key, change.found):
        return ChangeState.RESTORED, setting(value)
    return (ChangeState.NOT_RESTORED if value == change.wanted else ChangeState.CHANGED), setting(value)


def _replicas(added: ReplicasAdded, read: ClusterReadings) -> tuple[ChangeState, str]:
    view = read.cluster
    if isinstance(view, Unknown):
        return ChangeState.UNKNOWN, view.reason
    index = view.metadata.get(added.index_uuid)
    if index is None:
        return ChangeState.CHANGED, "the index does not exist"
    found = {added.found: ChangeState.RESTORED, added.wanted: ChangeState.NOT_RESTORED}.get(
        index.replicas, ChangeState.CHANGED
    )
    return found, counted(index.replicas, "replica")


def _voters(excluded: frozenset[NodeName], read: ClusterReadings) -> tuple[ChangeState, str]:
    view = read.cluster
    if isinstance(view, Unknown):
        return ChangeState.UNKNOWN, view.reason
    still = sorted(excluded & set(view.voting_exclusions))
    return (
        (ChangeState.NOT_RESTORED, f"{listed(still)} excluded")
        if still
        else (ChangeState.RESTORED, "none excluded")
    )


def _node(name: NodeName, read: ClusterReadings) -> tuple[ChangeState, str]:
    view = read.cluster
    if isinstance(view, Unknown):
        return ChangeState.UNKNOWN, view.reason
    there = view.node(name) is not None
    return (
        (ChangeState.RESTORED, "a member of the cluster")
        if there
        else (ChangeState.NOT_RESTORED, "not a member")
    )
