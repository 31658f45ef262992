"""The data of the live view, computed from the run's state, without layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.engine.estimate import remaining
from orchestrator.engine.left_over import texts
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import NOT_BEGUN, RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.model.cluster import Health, NodeName
from orchestrator.model.event import Event, NodeRecovered, WaveFinished, WaveGaveWay
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Instant, Seconds
from orchestrator.view.feed import repeats_request
from orchestrator.view.phrases import product
from orchestrator.view.progress import (
    NOTHING_SEEN,
    Seen,
    Wait,
    merges_in_words,
    still_recovering,
    unrestored,
    wait_of,
)
from orchestrator.view.text import counted

STALE: Seconds = 60.0
"""A reading older than this is not shown as current."""

_AT_REST = frozenset({NodePhase.RECOVERED, NodePhase.FAILED, NodePhase.SKIPPED})
"""Phases of nodes that are finished for this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCell:
    """One node."""

    name: NodeName
    phase: NodePhase
    seconds: Seconds  # time in its current phase
    starts: int = 0
    took: Seconds | None = None  # from its stop to its recovery, if this process saw it
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCell:
    """The progress of recovery. Bytes count only data to copy, not data that was found on disk."""

    moving: tuple[Recovery, ...]  # copies in recovery, the one with most to copy first
    bytes_done: int
    bytes_total: int
    unassigned: int | None  # copies that are not recovering yet; None if not read lately
    initializing: int | None
    health: Health | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCell:
    """One index whose merge is in progress."""

    index: str
    segments: int  # of the copy with the most segments, and `bytes` of all copies, when the run began
    bytes: int
    seconds: Seconds  # since its merge began


@dataclass(frozen=True, slots=True, kw_only=True)
class MergesCell:
    """The progress of a run's merges."""

    words: str
    share: float  # share of the bytes to merge that is merged; from 0 to 1
    in_hand: tuple[MergeCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """All data that the live view shows at one moment."""

    run: str
    cluster: str
    what: str
    phase: Phase
    phase_seconds: Seconds
    now: Instant
    elapsed: Seconds
    left: Seconds | None  # estimated seconds to the end; None if there is no basis for an estimate
    nodes: tuple[NodeCell, ...]
    to_restart: int  # number of nodes until the pause of the run, or its end
    wave: Wave | None
    wave_cells: tuple[NodeCell, ...]
    wave_seconds: Seconds
    beside: str  # earlier waves that still recover; empty if there are none
    wait: Wait | None
    recovery: RecoveryCell | None
    withheld: Seconds | None  # how long allocation has been disabled; None while it is enabled
    unrestored: tuple[str, ...]  # changes of settings that the run has not restored yet, one item each
    request: Request
    requested_by: str
    trouble: tuple[str, ...]  # the most urgent facts: a lost lease, a second failure, a stand-down
    # progress of the merges before the first wave; None if there are none or all are finished
    merges: MergesCell | None = None

    @property
    def done(self) -> int:
        """Nodes that run again with all their copies."""
        return sum(node.phase is NodePhase.RECOVERED for node in self.nodes)


def screen_of(
    state: RunState,
    decision: Decision | None,
    *,
    now: Instant,
    seen: Seen = NOTHING_SEEN,
    events: Sequence[Event] = (),
) -> Screen:
    """The screen at `now`.

    Args:
        state: the state at the last decision.
        decision: the last decision.
        now: the current time.
        seen: the latest readings of recovery.
        events: the events so far, for the pace.
    """
    took = {event.node: event.seconds for event in events if isinstance(event, NodeRecovered)}
    cells = {
        node.name: NodeCell(
            name=node.name,
            phase=node.phase,
            seconds=max(0.0, now - (node.since or state.process.started)),
            starts=node.tries,
            took=took.get(node.name),
            failure=node.failure,
        )
        for node in state.nodes.values()
    }
    withheld_since = state.unrestored.withheld_since
    return Screen(
        run=state.run,
        cluster=state.begun.cluster,
        what=_what(state),
        phase=state.phase,
        phase_seconds=max(0.0, now - state.in_phase.since),
        now=now,
        elapsed=max(0.0, now - state.process.started),
        left=seconds_left(state, events, now=now),
        nodes=tuple(cells.values()),
        to_restart=nodes_to_restart(state.begun, paused=state.paused),
        wave=state.wave,
        wave_cells=tuple(cells[node.name] for node in state.wave_nodes),
        wave_seconds=max(0.0, now - state.wave_since),
        beside=still_recovering(state, now),
        wait=wait_of(state, decision, now),
        recovery=recovery_of(seen, now),
        withheld=None if withheld_since is None else max(0.0, now - withheld_since),
        unrestored=texts(unrestored(state)),
        request=state.process.request,
        requested_by=state.process.requested_by,
        trouble=_trouble(state),
        merges=_merges(state, now),
    )


def _what(state: RunState) -> str:
    begun, policy = state.begun, state.begun.policy
    if begun is NOT_BEGUN:
        return ""
    server = f"{product(begun.distribution, policy.kind)} {begun.version}"
    if begun.repairs is not None:
        return f"{server}, restoring the changes of run {begun.repairs} left"
    how = "reboot of every host" if policy.reboot else "restart"
    number = len(state.merging.indices)
    first = f"merge of {counted(number, 'index', 'indices')}" if number else ""
    if first and not state.nodes:
        return f"{server}, {first}"
    then = f"{first}, then " if first else ""
    return f"{server}, {then}rolling {how}, strategy {policy.strategy.value}"


def _merges(state: RunState, now: Instant) -> MergesCell | None:
    due = [one for one in state.merging.indices.values() if one.due]
    if state.merging.settled or not due:
        return None
    total = sum(one.target.bytes for one in due)
    done = sum(one.target.bytes for one in due if one.ended)
    return MergesCell(
        words=merges_in_words(state),
        share=done / total if total else 0.0,
        in_hand=tuple(
            MergeCell(
                index=one.target.index,
                segments=one.target.segments,
                bytes=one.target.bytes,
                seconds=max(0.0, now - one.begun),
            )
            for one in state.merging.in_progress
            if one.begun is not None
        ),
    )


def _trouble(state: RunState) -> tuple[str, ...]:
    lines = []
    down = state.process.standing_down
    if down is not None and not repeats_request(down, state.process.requested_by):  # its row has it
        lines.append(f"Standing down ({down.outcome.value}): {down.reason}")
    if state.process.second_failure is not None:
        lines.append(f"Second failure: {state.process.second_failure}")
    if state.process.lease_lost is not None:
        lines.append(f"Lease lost: {state.process.lease_lost}")
    for node in state.nodes.values():
        if node.failure:
            what = "was skipped" if node.phase is NodePhase.SKIPPED else "failed"
            lines.append(f"{node.name} {what}: {node.failure}")
    return tuple(lines)


def recovery_of(seen: Seen, now: Instant) -> RecoveryCell | None:
    """The progress of recovery in the latest readings; None if they are old or nothing is left to recover."""
    known = seen.recoveries if seen.recoveries is not None and now - seen.recoveries_at <= STALE else ()
    health = seen.health if seen.health is not None and now - seen.health_at <= STALE else None
    moving = tuple(
        sorted(
            (one for one in known if not one.done),
            key=lambda one: (one.bytes_reused + one.bytes_copied - one.bytes_total, str(one.shard)),
        )
    )
    missing = health.unassigned_shards + health.initializing_shards if health else 0
    if not moving and not missing:
        return None
    return RecoveryCell(
        moving=moving,
        bytes_done=sum(one.bytes_copied for one in moving),
        bytes_total=sum(max(one.bytes_copied, one.bytes_total - one.bytes_reused) for one in moving),
        unassigned=health.unassigned_shards if health else None,
        initializing=health.initializing_shards if health else None,
        health=health.status if health else None,
    )


def seconds_left(state: RunState, events: Sequence[Event], *, now: Instant) -> Seconds | None:
    """Estimated seconds to the end: by the plan and the pace so far, without a plan by the pace alone.

    The time since the start of the current wave is subtracted. If that wave takes longer than estimated, the
    time of the later waves remains.
    """
    to_do = sum(node.phase not in _AT_REST for node in state.nodes.values())
    # A plan has no estimate for merges.
    planned = None if state.merging.indices else remaining(state, events, now)
    if planned is not None:
        return planned
    waves = [event.seconds for event in events if isinstance(event, WaveFinished)]
    back = sum(isinstance(event, NodeRecovered) for event in events)
    if not to_do or state.phase in (Phase.STANDING_DOWN, Phase.ENDED):
        return None
    if back and any(isinstance(event, WaveGaveWay) for event in events):
        # Waves overlap, so their seconds do not add up: use the elapsed time per finished node.
        return (now - state.process.started) / back * to_do
    if waves and back:
        a_node = sum(waves) / back
        in_hand = [node for node in state.wave_nodes if node.phase not in _AT_REST]
        spent = now - state.wave_since if in_hand else 0.0
        return a_node * (to_do - len(in_hand)) + max(0.0, a_node * len(in_hand) - spent)
    return None
