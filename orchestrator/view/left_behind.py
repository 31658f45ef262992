"""What a run that no process continues has left: whose it is, since when, and what restores it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.engine.progress import MAY_BE_DOWN
from orchestrator.engine.state import RunState
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Instant, Seconds
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, duration, listed


def unrestored_in_words(state: RunState) -> str:
    """What a run has not restored, counted: `5 settings, es2`; empty if all is restored."""
    nodes = listed([node.name for node in state.nodes.values() if node.phase in MAY_BE_DOWN], 3)
    return ", ".join(filter(None, (changes_counted(state), nodes)))


def changes_counted(state: RunState) -> str:
    """The same without the nodes."""
    left = state.unrestored
    return count_in_words(len(left.settings), len(left.replicas), sorted(left.excluded))


def count_in_words(
    settings: int, indices: int, excluded: Collection[str], nodes: Collection[str] = ()
) -> str:
    """Changes of each kind, counted: `5 settings, es2`."""
    parts = [counted(settings, "setting")] if settings else []
    parts += [f"replicas of {counted(indices, 'index', 'indices')}"] if indices else []
    parts += [f"the vote of {listed(excluded, 3)}"] if excluded else []
    return ", ".join([*parts, *([listed(nodes, 3)] if nodes else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """The pending changes of a run whose process is gone."""

    run: str
    owner: str  # `user@host` of its process; empty where another run has taken its record over since
    what: str  # the changes, counted
    killed: Seconds | None = None  # how long ago its last event was; None where its journal is not here
    ended: bool = False  # whether it ended by itself, with changes that it could not restore

    @classmethod
    def of(cls, left: LeaseRecord, *, last: Instant | None, now: Instant, ended: bool) -> LeftBehind:
        """From its record, and the time of the last event in its journal."""
        nodes = dict.fromkeys([*(one.node for one in left.in_hand), *left.out_of_service])
        return cls(
            run=left.debtor,
            owner="" if left.left_by else left.owner,  # a run that took over carries the record on
            what=count_in_words(len(left.debts), len(left.replicas), left.excluded, nodes),
            killed=None if last is None else max(0.0, now - last),
            ended=ended,
        )

    @property
    def whose(self) -> str:
        """`left by run 20261128-0300-bqy9 of ann@bastion (killed 3m ago)`."""
        of = f" of {one_line(self.owner, 80)}" if self.owner else ""
        how = "ended" if self.ended else "killed"
        since = "" if self.killed is None else f" ({how} {duration(self.killed)} ago)"
        return f"left by run {self.run}{of}{since}"

    def sentence(self, restorer: str) -> str:
        """All of it, and what restores it: `5 settings, es2: left by run … (killed 3m ago); … it first`."""
        return f"{self.what}: {self.whose}; {restorer} restores it first"
