"""The live view's moment: a run's state, its last decision and readings, and what they say in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import cached_property

from rich.cells import cell_len

from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.progress import GOING_UP_OR_DOWN, MAY_BE_DOWN, NodeProgress
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import NOT_BEGUN, RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.holds import GATES_OPEN
from orchestrator.model.cluster import Health, NodeName
from orchestrator.model.event import Hold
from orchestrator.model.observation import Recovery
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.policy import Strategy
from orchestrator.model.prediction import Prediction
from orchestrator.model.reading import Instant, Seconds
from orchestrator.untrusted import one_line
from orchestrator.view.feed import repeats_request
from orchestrator.view.left_behind import changes_counted
from orchestrator.view.phrases import RunTitle, second_signal
from orchestrator.view.progress import NOTHING_SEEN, CopiesNow, Seen, Wait, wait_of
from orchestrator.view.text import counted, duration, listed, size
from orchestrator.view.turns import (
    Meter,
    Turns,
    TurnStep,
    current_step,
    in_step,
    rounded,
    share_done,
    steps_of,
    time_left,
)

_NAMED = 3
"""So many nodes have their names in a sentence; more are counted."""

STALE: Seconds = 60.0
"""A reading older than this is not shown as current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryNow:
    """The progress of recovery. Bytes count only data to copy, not data that was found on disk."""

    moving: tuple[Recovery, ...]  # copies in recovery, the one with most to copy first
    bytes_done: int
    bytes_total: int
    copies: CopiesNow | None  # None if they were not read lately


@dataclass(frozen=True)  # not slotted, so that derived values can be cached
class Screen:
    """What the live view shows at one moment.

    Args:
        state: at the last decision.
        decision: the last one; None if only the journal is known.
        now: the current time.
        seen: the latest readings.
        turns: when the steps of the nodes began, by the records so far.
        meter: of the views of this run so far.
        zone: the time zone of the reader; None for that of this machine.
    """

    state: RunState
    decision: Decision | None
    now: Instant
    seen: Seen = NOTHING_SEEN
    turns: Turns = field(default_factory=Turns)
    meter: Meter = field(default_factory=Meter)
    zone: tzinfo | None = None

    def since(self, at: Instant) -> Seconds:
        """How long ago that was."""
        return max(0.0, self.now - at)

    def zone_of(self, name: NodeName) -> str:
        """The zone of a node; empty if it was not read."""
        node = self.seen.members.get(name)
        return (node.zone(self.state.begun.policy.zone_attribute) if node is not None else None) or ""

    @cached_property
    def wait(self) -> Wait | None:
        """What the run waits for."""
        return wait_of(self.state, self.decision, self.now)

    @cached_property
    def share(self) -> float:
        """How much of the restarts is done, from 0 to 1."""
        return self.meter.shown(share_done(self.state, self.turns, self.now))

    @cached_property
    def left(self) -> Prediction | None:
        """Seconds to the end; None if there is no basis for an estimate."""
        return time_left(self.state, self.turns, self.now)

    def steps(self, node: NodeProgress) -> tuple[TurnStep, ...]:
        """The steps of a node's turn."""
        return steps_of(self.state, node, self.turns, self.now)

    def in_step(self, node: NodeProgress) -> Seconds:
        """How long a node has been in its step."""
        return in_step(self.state, node, self.turns, self.now)


def titles(state: RunState) -> tuple[tuple[str, ...], ...]:
    """The parts of a title, in forms from long to short: cluster, server, what the run does and how."""
    begun, policy = state.begun, state.begun.policy
    if begun is NOT_BEGUN:
        return ((),)
    indices = state.merging.indices
    restarts = bool(state.nodes) or not indices
    title = RunTitle.of(
        begun,
        kind=policy.kind,
        strategy=policy.strategy,
        target=policy.upgrade.target if policy.upgrade else None,
        reboots=policy.reboot,
        restarts=restarts,
        merges=len(indices) if merging_now(state) or not restarts else None,
    )
    if begun.repairs is not None:
        title = replace(title, work=f"restoring what run {begun.repairs} changed", how="")
    name, server, what, whole = title.cluster, title.server, title.work, title.whole
    return ((name, server, whole), (name, server, what), (name, whole), (name, what), (name,))


def troubles(state: RunState) -> tuple[str, ...]:
    """The most urgent facts: a lost lease, a second failure, a stand-down."""
    lines = []
    down = state.process.standing_down
    if down is not None and not repeats_request(down, state.process.requested_by):  # its row has it
        lines.append(f"Standing down ({down.outcome.value}): {down.reason}")
    second = state.process.second_failure
    if second is not None and not (down is not None and second in down.reason):
        lines.append(f"Second failure: {second}")
    if state.process.lease_lost is not None:
        lines.append(f"Lease lost: {state.process.lease_lost}")
    for node in state.nodes_in(NodePhase.FAILED, NodePhase.SKIPPED):
        if node.failure:
            what = "was skipped" if node.phase is NodePhase.SKIPPED else "failed"
            lines.append(f"{node.name} {what}: {node.failure}")
    return tuple(lines)


# The cluster ------------------------------------


def recovery_of(seen: Seen, now: Instant) -> RecoveryNow | None:
    """The progress of recovery in the latest readings; None if they are old."""
    known = seen.recoveries if seen.recoveries is not None and now - seen.recoveries_at <= STALE else ()
    copies = seen.copies if seen.copies is not None and now - seen.copies_at <= STALE else None
    moving = tuple(
        sorted(
            (one for one in known if not one.done),
            key=lambda one: (one.bytes_reused + one.bytes_copied - one.bytes_total, str(one.shard)),
        )
    )
    if copies is None and not moving:
        return None
    return RecoveryNow(
        moving=moving,
        bytes_done=sum(one.bytes_copied for one in moving),
        bytes_total=sum(max(one.bytes_copied, one.bytes_total - one.bytes_reused) for one in moving),
        copies=copies,
    )


def cluster_in_words(screen: Screen) -> str:
    """The health of the cluster and what recovers: `yellow, as expected: 6 copies wait for es3`."""
    cell = recovery_of(screen.seen, screen.now)
    if cell is None:
        return ""
    parts = [] if cell.copies is None else [_copies(screen.state, cell.copies)]
    if number := len(cell.moving) if cell.copies is None else cell.copies.recovering:
        parts.append(counted(number, "copy recovers", "copies recover"))
    if cell.bytes_total:
        parts.append(f"{size(cell.bytes_done)} of {size(cell.bytes_total)} copied")
    return "; ".join(parts)


def _copies(state: RunState, copies: CopiesNow) -> str:
    """The health, and the copies without a place. Those that the wave took down are expected to be away."""
    away, base = copies.unassigned, state.baseline
    before = min(away, sum(copy.count for copy in base.missing) if base else 0)
    down = [node.name for node in state.wave_nodes if node.phase in GOING_UP_OR_DOWN]
    name = copies.health.value
    if not away:
        return name
    if away == before:
        return f"{name}: {counted(before, 'copy', 'copies')} missing before the run"
    expected = down or state.phase is Phase.REASSIGNED
    if copies.health is not Health.YELLOW or not expected or away - before > len(state.taken):
        return f"{name}: {counted(away, 'copy', 'copies')} unassigned"
    waits = "waits" if away - before == 1 else "wait"
    missing = f"; {before} missing before the run" if before else ""
    who = listed(down) if len(down) <= _NAMED else counted(len(down), "node")
    what = f"{waits} for {who}" if down else f"{waits} to recover"
    return f"{name}, as expected: {counted(away - before, 'copy', 'copies')} {what}{missing}"


# What is waited for ------------------------------------


def hold_of_thing(hold: Hold) -> str:
    """A hold in words of what is waited for: `snapshot nightly is running`, `gate queue is closed: …`."""
    if hold.predicate == GATES_OPEN:
        return f"gate {hold.subject} is closed: {hold.evidence}"
    more = f" and {hold.count - 1} more" if hold.count > 1 else ""
    verb = hold.evidence.split(" ", 1)[0] in _VERBS
    return f"{hold.subject}{more}{' ' if verb and not more else ': '}{hold.evidence}"


_VERBS = frozenset({"is", "has", "runs", "does", "did", "was"})
"""Evidence that begins with one of these is a sentence about its subject."""


def limit_in_words(screen: Screen, wait: Wait) -> str:
    """Until when the run waits, and what happens then; empty without a limit that is near."""
    if wait.holds:
        rest = None if wait.until is None else duration(wait.until - screen.now)
        ends = "" if wait.ends is None else f"the run ends with code {int(wait.ends.exit_code)} "
        return "" if rest is None else f"{ends or 'the wait ends '}if this lasts {rest} more"
    usual = usual_in_words(screen)
    so_far = "" if screen.state.wave is not None else f"{duration(screen.since(wait.since))} so far"
    limit = wait.stands_down(screen.now, within=_NEAR)
    said = ", ".join(one for one in (so_far, usual, limit) if one)
    return f"; {said}" if said else ""


_NEAR: Seconds = 3600.0
"""A later limit says nothing about a wait: that of a recovery is hours, and most take minutes."""


def usual_in_words(screen: Screen) -> str:
    """What is waited for took this long on other nodes of this run, or is predicted; empty if unknown."""
    state = screen.state
    step = next((step for node in state.wave_nodes if (step := current_step(state, node))), None)
    usual = None if step is None else screen.turns.usual(step)
    if usual is not None and usual >= 1.0:
        return f"others took {duration(usual)}"
    forecast = state.begun.forecast
    whole = sum(forecast.nodes.get(node.name, 0.0) for node in state.wave_nodes) if forecast and step else 0.0
    what = "a node" if len(state.wave_nodes) == 1 else "a wave"
    return f"{what} takes about {duration(whole)}" if whole and screen.turns.waves_measured == 0 else ""


def merging_now(state: RunState) -> list[MergeProgress]:
    """The indices to merge before the first wave; none once all are settled."""
    return [] if state.merging.settled else [one for one in state.merging.indices.values() if one.due]


# What comes ------------------------------------


def next_in_words(screen: Screen) -> str:
    """The nodes of the next wave, and why they are next if that is known; else what ends the run."""
    state = screen.state
    if state.phase in (Phase.STANDING_DOWN, Phase.ENDED) or state.begun.repairs is not None:
        return ""
    if state.process.request is Request.PAUSE:
        return "a pause, as requested"
    wave = frozenset(state.wave.nodes) if state.wave is not None else frozenset[NodeName]()
    pending = [node.name for node in state.nodes_in(NodePhase.PENDING) if node.name not in wave]
    until = nodes_to_restart(state.begun, paused=state.paused)
    room = until - (len(state.nodes) - len(pending))
    if until < len(state.nodes) and room <= 0:
        return f"a pause before {counted(len(pending), 'more node', 'more nodes')}"
    if not pending:
        return "restore the settings, then end" if state.unrestored.anything else "the end"
    first = _next_wave(screen, pending)
    rest = len(pending) - len(first)
    zones = {screen.zone_of(name) for name in first}
    zone = in_zone(zones.pop()) if len(zones) == 1 else ""
    if len(first) > 1:
        words = f"{zone}, {counted(len(first), 'node')}" if zone else listed(first, 3)
    else:
        master = ", the elected master" if first[0] == screen.seen.master else ""
        words = f"{first[0]}{f' in {zone}' if zone else ''}{master}"
    words += f", then {counted(rest, 'more node', 'more nodes')}" if rest else ", last"
    held = screen.wait is not None and screen.wait.holds and (left := screen.left)
    return f"{words}; {duration(rounded(left.likely))} of work once it clears" if held and left else words


def in_zone(zone: str | None) -> str:
    """A zone in words: `zone b`; empty for none."""
    return f"zone {one_line(zone)}" if zone else ""


def _next_wave(screen: Screen, pending: Sequence[NodeName]) -> list[NodeName]:
    """The nodes of the next wave: by the plan, without one by the strategy."""
    state = screen.state
    planned = next((names for names in state.begun.planned if pending[0] in names), pending[:1])
    if not state.begun.planned and state.begun.policy.strategy is Strategy.ZONE:
        zone = screen.zone_of(pending[0])
        return [name for name in pending if zone and screen.zone_of(name) == zone] or [*planned]
    return [name for name in planned if name in pending]


def to_restore(state: RunState) -> str:
    """The changes that the run restores: `5 settings, at the end`; empty if there are none."""
    what, ends = changes_counted(state), state.phase in (Phase.FINISHING, Phase.STANDING_DOWN)
    return f"{what}, {'now' if ends else 'at the end'}" if what else ""


def restoring_in_words(state: RunState) -> str:
    """What a run that only restores has left: `restoring 1 node and 7 settings`; empty for any other run."""
    if state.begun.repairs is None and not state.process.restoring:
        return ""
    down = len(state.nodes_in(*MAY_BE_DOWN))
    left = [*filter(None, (counted(down, "node") if down else "", changes_counted(state)))]
    return f"restoring {' and '.join(left)}" if left else "everything is restored"


def allocation_in_words(screen: Screen) -> str:
    """How long allocation has been disabled, and its limit; empty while it is enabled."""
    since, most = screen.state.unrestored.withheld_since, screen.state.begun.policy.deadlines.withheld
    if since is None:
        return ""
    return f"disabled for {duration(screen.since(since))} (limit {duration(most)})"


def asked_in_words(state: RunState) -> str:
    """A request to the run, and what follows from it; empty without one."""
    by = one_line(state.process.requested_by)
    match state.process.request:
        case Request.NONE:
            return ""
        case Request.PAUSE:
            return f"to pause after {'the current merges' if merging_now(state) else 'this wave'}"
        case Request.STOP:
            return f"to stop, by {by}: nodes are started, settings are restored"
        case Request.INTERRUPT:
            return f"to stop, by {by}: nodes are started, settings are restored; {second_signal(by)}"


def ending_hint(state: RunState, width: int) -> str:
    """What Ctrl-C does now, and twice, if there is room: `Ctrl-C: start es3, end; twice: restore nothing`."""
    if state.phase is Phase.ENDED:
        return ""
    if state.process.request is Request.INTERRUPT:
        return "Ctrl-C again: end at once, restore nothing"
    if state.process.standing_down is not None:
        return ""
    down = [node.name for node in state.nodes_in(*MAY_BE_DOWN)]
    steps = [f"start {down[0] if len(down) == 1 else counted(len(down), 'node')}"] if down else []
    steps += ["restore"] if state.unrestored.anything else []
    once = f"Ctrl-C: {', '.join([*steps, 'end'])}"
    both = f"{once}; twice: restore nothing"
    return both if steps and cell_len(both) <= width else once


def slowest(screen: Screen, nodes: Sequence[NodeProgress]) -> tuple[str, Seconds, list[NodeName]] | None:
    """The step that keeps the last nodes of a wave, their longest time in it, and their names.

    None while most of them are in it: then it is not they that are slow.
    """
    at: dict[str, list[NodeProgress]] = {}
    for node in nodes:
        at.setdefault(current_step(screen.state, node) or "", []).append(node)
    behind = [(step, found) for step, found in at.items() if step and 2 * len(found) < len(nodes)]
    if not behind:
        return None
    step, found = max(behind, key=lambda one: max(map(screen.in_step, one[1])))
    return step, max(map(screen.in_step, found)), [node.name for node in _longest_first(screen, found)]


def _longest_first(screen: Screen, nodes: Iterable[NodeProgress]) -> list[NodeProgress]:
    return sorted(nodes, key=screen.in_step, reverse=True)
