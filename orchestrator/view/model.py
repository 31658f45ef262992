"""The live view's moment: a run's state, its last decision and readings, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.engine.estimate import remaining
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import NOT_BEGUN, RunState
from orchestrator.model.cluster import Health
from orchestrator.model.event import Event, NodeRecovered, WaveFinished, WaveGaveWay
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.reading import Instant, Seconds
from orchestrator.view.feed import repeats_request
from orchestrator.view.phrases import product
from orchestrator.view.progress import NOTHING_SEEN, Seen, Wait, wait_of
from orchestrator.view.text import counted

STALE: Seconds = 60.0
"""A reading older than this is not shown as current."""

_AT_REST = frozenset({NodePhase.RECOVERED, NodePhase.FAILED, NodePhase.SKIPPED})
"""Phases of nodes that are finished for this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryNow:
    """The progress of recovery. Bytes count only data to copy, not data that was found on disk."""

    moving: tuple[Recovery, ...]  # copies in recovery, the one with most to copy first
    bytes_done: int
    bytes_total: int
    unassigned: int | None  # copies that are not recovering yet; None if not read lately
    initializing: int | None
    health: Health | None


@dataclass(frozen=True, slots=True)
class Screen:
    """What the live view shows at one moment.

    Args:
        state: at the last decision.
        decision: the last one.
        now: the current time.
        seen: the latest readings of recovery.
        events: those so far, for the pace.
    """

    state: RunState
    decision: Decision | None
    now: Instant
    seen: Seen = NOTHING_SEEN
    events: Sequence[Event] = ()

    def since(self, at: Instant) -> Seconds:
        """How long ago that was."""
        return max(0.0, self.now - at)

    def in_phase(self, node: NodeProgress) -> Seconds:
        """How long a node has been in its phase."""
        return self.since(node.since or self.state.process.started)

    @property
    def wait(self) -> Wait | None:
        """What the run waits for."""
        return wait_of(self.state, self.decision, self.now)

    @property
    def left(self) -> Seconds | None:
        """Estimated seconds to the end; None if there is no basis for an estimate."""
        return seconds_left(self.state, self.events, now=self.now)

    @property
    def what(self) -> str:
        """What the run does, and to which server."""
        return _what(self.state)

    @property
    def trouble(self) -> tuple[str, ...]:
        """The most urgent facts: a lost lease, a second failure, a stand-down."""
        return _trouble(self.state)


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


def recovery_of(seen: Seen, now: Instant) -> RecoveryNow | None:
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
    return RecoveryNow(
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
        under_way = [node for node in state.wave_nodes if node.phase not in _AT_REST]
        spent = now - state.wave_since if under_way else 0.0
        return a_node * (to_do - len(under_way)) + max(0.0, a_node * len(under_way) - spent)
    return None
