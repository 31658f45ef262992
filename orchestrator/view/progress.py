"""How far a run has come: its wait, what is still to do, and what it has not restored yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.engine.left_over import LeftOver, changes_left
from orchestrator.engine.limits import nearest
from orchestrator.engine.progress import GOING_UP_OR_DOWN, MAY_BE_DOWN, Mark, NodeProgress
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.model.cluster import CopyState, Health, Node, NodeName, ShardCopy
from orchestrator.model.event import Hold
from orchestrator.model.observation import Observation, Recovery
from orchestrator.model.phase import VERSION, NodePhase, Outcome, Phase
from orchestrator.model.reading import Instant, Seconds, Unknown
from orchestrator.untrusted import one_line
from orchestrator.view.host_words import AccessLost, Silent, access_lost, silences
from orchestrator.view.phrases import awaited
from orchestrator.view.text import counted, duration, listed
from orchestrator.view.turns import in_words

_LONGEST = 200
"""Characters of what a wait is for: what a cluster or a host said may be in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait as the views show it."""

    awaited: str  # the condition that the run waits for
    holds: tuple[Hold, ...]  # why the run does not continue
    since: Instant  # start of the wait
    until: Instant | None  # when the limit is reached; None without a limit
    ends: Outcome | None = None  # the outcome if the run stands down then
    # who does not answer a reading, or slowly: the wait may be longer because of that
    silent: tuple[Silent, ...] = ()
    refused: AccessLost | None = None  # credentials that the cluster refuses
    doubted: tuple[NodeName, ...] = ()  # nodes that a lost stop or reboot may still take down, at the end

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why the wait may be longer than usual, a sentence each."""
        refused = () if self.refused is None else (self.refused.sentence,)
        lost = (f"a lost command may still stop {listed(self.doubted, 3)}",) if self.doubted else ()
        return (*refused, *(one.sentence for one in self.silent), *lost)

    def stands_down(self, now: Instant, *, within: Seconds | None = None) -> str:
        """The limit in words: `the run stands down in 9m 47s`; empty without one, or a later one."""
        rest = None if self.until is None else self.until - now
        if rest is None or (within is not None and rest > within):
            return ""
        return f"{'the wait ends' if self.ends is None else 'the run stands down'} in {duration(rest)}"

    @property
    def trouble_objects(self) -> dict[str, object]:
        """The same for JSON; only the kinds that there are."""
        found: dict[str, object] = {}
        if self.silent:
            found["silent"] = [one.as_object() for one in self.silent]
        if self.refused is not None:
            found["refused"] = self.refused.as_object()
        return found


def wait_of(state: RunState, decision: Decision | None, now: Instant) -> Wait | None:
    """The wait at `now`, by this state and the decision made on it; None if the run waits for nothing.

    Without a decision, as when only the journal is available, the phase shows the wait.
    """
    holds = decision.holds if decision is not None else state.in_phase.holds
    if state.phase is Phase.ENDED:
        return None
    if decision is not None and decision.watch is None and not holds:
        return None
    said = decision.watch.for_people if decision is not None and decision.watch is not None else ""
    until, ends = nearest(state, now) or (None, None)
    held = state.in_phase.held_since if holds else None
    return Wait(
        awaited=one_line(said, _LONGEST) or awaited(state),
        holds=holds,
        since=state.in_phase.since if held is None else held,
        until=until,
        ends=ends,
        silent=silences(state, now),
        refused=access_lost(state, now),
        doubted=_doubted(state) if state.phase is Phase.STANDING_DOWN else (),
    )


def _doubted(state: RunState) -> tuple[NodeName, ...]:
    """The nodes that are up again as far as it is known, and that a command may still take down."""
    open_ = (node for node in state.nodes.of(Mark.OPEN) if node.phase is not NodePhase.STOPPING)
    return tuple(node.name for node in open_ if node.doubt is not None or node.lost_stop is not None)


def still_recovering(state: RunState, now: Instant) -> str:
    """Unfinished waves that made room for another (`overlap_recovery`); empty if there are none."""
    return listed(
        [
            f"wave {one.wave.number} ({listed(one.wave.nodes, 3)}) still recovers, "
            f"{duration(max(0.0, now - one.since))} so far"
            for one in state.recovering
        ],
        2,
    )


def restarted_in_words(state: RunState) -> str:
    """How many nodes are done: `1 of 3 nodes`, `1 of 2 nodes, then a pause before 5 more`."""
    until = nodes_to_restart(state.begun, paused=state.paused)
    rest = len(state.nodes) - until
    pause = f", then a pause before {rest} more" if rest > 0 else ""
    return f"{state.recovered} of {counted(until, 'node')}{pause}"


def half_done(state: RunState) -> str:
    """The finished part of a run's work; empty if all or nothing is finished."""
    due = [one for one in state.merging.indices.values() if one.due]
    merged = sum(one.ended for one in due)
    partly = [node.name for node in state.nodes.values() if node.installs and VERSION in node.owed]
    begun = state.recovered or merged or partly
    if not (state.unfinished or state.merging.unfinished) or not begun:
        return ""
    parts = [f"{merged} of {counted(len(due), 'index', 'indices')} merged"] if due else []
    if state.nodes:
        parts.append(f"{state.recovered} of {counted(len(state.nodes), 'node')} restarted")
    if partly:
        parts.append(f"an unfinished install on {listed(partly)}")
    return " and ".join(parts)


def left_to_do(state: RunState, *, without: Sequence[str] = ()) -> str:
    """The remaining work of a run: `es2 (in progress: join) and 6 more nodes`; empty if there is none.

    That is also after a pure restore. For a node that has rejoined without owed work the run only waits; with
    owed work it is restarted again.
    """
    if state.begun.repairs is not None:
        return ""
    merges = len(state.merging.unfinished)
    nodes = [state.nodes[name] for name in state.unfinished if name not in without]
    begun: dict[str, list[NodeName]] = {}
    for node in filter(_in_progress, nodes):
        begun.setdefault(in_words(state, node), []).append(node.name)
    rest = len(nodes) - sum(map(len, begun.values()))
    parts = [f"{listed(names, 3)} (in progress: {step})" for step, names in begun.items()]
    parts += [counted(merges, "index", "indices")] if merges else []
    parts += [counted(rest, "more node" if begun else "node")] if rest else []
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _in_progress(node: NodeProgress) -> bool:
    return node.phase in GOING_UP_OR_DOWN or (node.phase is NodePhase.REJOINED and not node.work)


def merges_in_words(state: RunState) -> str:
    """The progress of the merges, such as `3 of 12 indices merged; …; 8 to come`; empty without any."""
    indices = state.merging.indices.values()
    due = [one for one in indices if one.due]
    if not indices:
        return ""
    few = len(indices) - len(due)
    parts = [f"{sum(one.ended for one in due)} of {counted(len(due), 'index', 'indices')} merged"]
    if state.merging.in_progress:
        parts.append("running: " + listed([one.target.index for one in state.merging.in_progress], 3))
    if state.merging.pending:
        parts.append(f"{len(state.merging.pending)} to come")
    if few:
        parts.append(f"{few} with few enough segments before")
    return "; ".join(parts)


def not_restored(state: RunState) -> tuple[LeftOver, ...]:
    """What the run has not restored yet, including nodes that it may have left down."""
    down = [
        LeftOver(name=node.name, one=f"node {{}}: {_phase(node)}", many=f"nodes {{}}: {_phase(node)}")
        for node in state.nodes.values()
        if node.phase in MAY_BE_DOWN
    ]
    return (*changes_left(state), *down)


def _phase(node: NodeProgress) -> str:
    return node.phase.value + (f" ({node.failure})" if node.failure else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesNow:
    """The copies that do not serve requests, and the health that follows from them."""

    health: Health
    unassigned: int
    recovering: int

    @classmethod
    def of(cls, copies: Sequence[ShardCopy]) -> CopiesNow:
        """Of all copies that are not started."""
        health = Health.RED if any(copy.primary for copy in copies) else Health.YELLOW
        unassigned = sum(copy.state is CopyState.UNASSIGNED for copy in copies)
        return cls(
            health=health if copies else Health.GREEN,
            unassigned=unassigned,
            recovering=len(copies) - unassigned,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The latest readings of the cluster for the views; None before the first."""

    recoveries: tuple[Recovery, ...] | None = None
    recoveries_at: Instant = 0.0  # when `recoveries` was read
    copies: CopiesNow | None = None  # of Elasticsearch alone
    copies_at: Instant = 0.0  # when `copies` was read
    members: Mapping[NodeName, Node] = field(default_factory=dict)  # each as it was last seen
    master: NodeName | None = None

    def after(self, seen: Observation) -> Seen:
        """These, with what this reading has of them. They are replaced as a whole, for another thread."""
        found = self
        if not isinstance(seen.recoveries, Unknown):
            found = replace(found, recoveries=seen.recoveries, recoveries_at=seen.at)
        if not isinstance(seen.cluster, Unknown):
            members = {**found.members, **seen.cluster.members}
            found = replace(found, members=members, master=seen.cluster.master)
            if seen.cluster.riak is None:
                copies = CopiesNow.of(seen.cluster.not_started)
                found = replace(found, copies=copies, copies_at=seen.at)
        return found


NOTHING_SEEN = Seen()
