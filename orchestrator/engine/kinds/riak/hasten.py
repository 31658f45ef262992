"""Handoff without its timers (`hasten_handoff`): it takes well under a minute instead of minutes.

Nearly all of a restarted node's handoff is waiting (measured on 3.2.1, ring size 64): its vnodes are started
16 at a time every `vnode_management_timer` (10 s), and a vnode is handed off once it was idle for
`vnode_inactivity_timeout` (60 s and more). So the restarted node's timer is set to a second, and handoff
is forced on every node, again and again. That obeys the transfer limit and goes only to owners whose
service is up. Riak calls it for "support/debug purposes".

Two conditions come with it. A forced handoff would also move partitions to new owners, so it is sent only
while no change of owners is pending. And between two ticks of the timer the transfers may be clean while some
vnodes were never started. These may hold data of other nodes, so handoff is done once all were started.

If it cannot be forced, the wave waits for its transfers as usual, and the run says so (`NotHastened`).
After a force the wait lasts until Riak's own timer has started every vnode: then clean transfers are final.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.engine.kinds.riak.settings import holder, is_timer, timer_key
from orchestrator.engine.kinds.riak.waiting import Held, held, less
from orchestrator.engine.state import RunState
from orchestrator.model.action import ForceHandoff, SettingChange, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import FallbacksHome
from orchestrator.model.observation import ClusterView, Level, Look, SettingsView
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.model.riak import Membership, RiakView, Transfers
from orchestrator.model.work_event import NotHastened

TIMER_MILLISECONDS: Final = 1000
TICK_SECONDS: Final[Seconds] = 10.0
"""`vnode_management_timer`, unless it is shortened."""
_MODULES: Final = 2
"""`riak_kv` and `riak_pipe` have a vnode each for every partition."""
_ROLLING_START: Final = 16
"""`vnode_rolling_start`: a node that has started starts so many vnodes at each tick, to look for hints."""
_LARGEST_RING: Final = 1024
"""Partitions of a ring whose size was not read; a smaller number could end the wait too early."""
_LEEWAY_SECONDS: Final[Seconds] = 60.0
"""For the first tick, and for a slow host; handoff that takes less time needs no force."""
_FAILING_SECONDS: Final[Seconds] = 30.0
"""After a force was accepted, failures for less than this are not reported."""
_VERSION: Final = re.compile(r"3\.2(?!\d)")
"""Versions whose vnode manager's own record has been read in the source."""
_PHASES: Final = frozenset({Phase.REASSIGNED, Phase.FINISHING, Phase.STANDING_DOWN})
"""Phases in which handoff is hastened, and phases in which the timers are restored."""


def impossible(version: str) -> str | None:
    """Why handoff of this version of Riak cannot be hastened; None where it can be."""
    return (
        None if _VERSION.match(version.strip()) else f"only Riak 3.2 can be hastened, and this is {version}"
    )


def ticks_of(partitions: int) -> float:
    """How often a vnode manager starts vnodes until all of a ring of this size are started."""
    return partitions * _MODULES / _ROLLING_START


def planned_too(policy: Policy) -> frozenset[Look]:
    """The timers, for the plan of a run that shortens them."""
    return frozenset({Look.PACE}) if policy.hasten_handoff else frozenset()


def reads_too(state: RunState) -> frozenset[Look]:
    """The pace of handoff, for a run that hastens it, or that restores a timer of such a run."""
    unrestored = any(is_timer(key) for _, key in state.unrestored.settings)
    paced = state.begun.policy.hasten_handoff or unrestored
    return frozenset({Look.PACE}) if paced and state.phase in _PHASES else frozenset()


def timer_changes(state: RunState, settings: SettingsView, policy: Policy) -> tuple[SettingChange, ...]:
    """The timers of nodes that were restarted, shortened; never made longer."""
    if not policy.hasten_handoff:
        return ()
    return tuple(
        SettingChange(level=Level.TRANSIENT, key=key, found=value, wanted=str(TIMER_MILLISECONDS))
        for key, value in sorted(settings.transient.items())
        if is_timer(key) and holder(key) in state.forgetful
        if isinstance(value, str) and value.isdecimal() and int(value) > TIMER_MILLISECONDS
    )


def forced(state: RunState, view: ClusterView) -> ForceHandoff | None:
    """The verb that forces handoff on every node; None if it is not wanted, or would move owners."""
    riak = view.riak
    if riak is None or not state.begun.policy.hasten_handoff:
        return None
    return ForceHandoff() if next(against(view, riak), None) is None else None


def against(view: ClusterView, riak: RiakView) -> Iterator[str]:
    """Why handoff is not forced by this reading."""
    yield from _uncounted(view, riak)
    status = riak.cluster
    if isinstance(status, Unknown):
        yield f"`cluster status` cannot be read: {status.reason}"
    elif any(m.membership is not Membership.VALID or m.pending_share is not None for m in status.members):
        yield "partitions are to change their owner, and forcing handoff would move these too"
    elif status.ring_ready is False:
        yield "the ring is not ready"


def _uncounted(view: ClusterView, riak: RiakView) -> Iterator[str]:
    """The members with an unknown number of vnodes that are not started, each with the reason."""
    never = impossible(view.version)
    if never is not None:
        yield never
    for name in sorted(view.members):
        count = riak.unstarted.get(name, Unknown(reason="it was not read"))
        if isinstance(count, Unknown):
            yield _uncounted_of(name, count)


def _uncounted_of(name: NodeName, count: Unknown) -> str:
    return f"the vnodes that {name} has not started are unknown: {count.reason}"


def unstarted(state: RunState, riak: RiakView) -> str | None:
    """Why clean transfers may be clean only for a moment; None if they are done.

    Without an answer they may be so only after a force, until `given_up`. A force that a former process of
    the run sent is not on record in this phase.
    """
    lost, here = state.failure_of(ForceHandoff()), state.in_phase
    perhaps = (lost is not None and lost.in_doubt) or (state.process.resumed and here.before is None)
    was_forced = ForceHandoff() in here.confirmed or perhaps
    for name, count in sorted(riak.unstarted.items()):
        if not isinstance(count, Unknown) and count:
            return f"{name} has not started {count} of its vnodes yet, which may hold data of other nodes"
        if isinstance(count, Unknown) and (was_forced or count.passes) and not here.usual_pace:
            return _uncounted_of(name, count)
    return None


def given_up(state: RunState, view: ClusterView, now: Instant) -> NotHastened | None:
    """While handoff is waited for: that this is done at Riak's own pace; None otherwise, or if said.

    At once where it cannot be hastened. Otherwise once it could not be forced for as long as Riak itself
    takes to start every vnode: none that was not started at the last force is left then.
    """
    if view.riak is None or not state.begun.policy.hasten_handoff or state.in_phase.usual_pace:
        return None
    never = impossible(view.version)
    if never is not None:
        return NotHastened(nodes=_restarted(state), why=never)
    known = state.baseline.partitions if state.baseline else None
    longest = ticks_of(known or _LARGEST_RING) * TICK_SECONDS + _LEEWAY_SECONDS
    if now - max(state.in_phase.since, state.process.acted_at) <= longest:
        return None
    why = next(against(view, view.riak), None)
    return NotHastened(nodes=_restarted(state), why=why) if why is not None else None


def missed(
    state: RunState, view: ClusterView, settings: Reading[SettingsView], now: Instant
) -> NotHastened | None:
    """When handoff of a wave is done: that it was not or only partly hastened; None otherwise or if said."""
    if view.riak is None or not state.begun.policy.hasten_handoff or state.in_phase.usual_pace:
        return None
    why = next(_uncounted(view, view.riak), None) or _not_forced(state, now)
    if why is not None:
        return NotHastened(nodes=_restarted(state), why=why)
    slow = {} if isinstance(settings, Unknown) else _slow_timers(state, settings)
    return NotHastened(nodes=tuple(slow), why=next(iter(slow.values()))) if slow else None


def _not_forced(state: RunState, now: Instant) -> str | None:
    """That forcing handoff was never accepted in this phase, or has failed for a while since."""
    failure, since = state.failure_of(ForceHandoff()), state.failing_since(ForceHandoff())
    once, waited = ForceHandoff() in state.in_phase.confirmed, now - state.in_phase.since
    if failure is not None and since is not None:
        passing = once and now - since < _FAILING_SECONDS
        return None if passing else f"it could not be forced: {failure.reason}"
    if once or waited <= _LEEWAY_SECONDS:
        return None
    return f"it was never forced in the {waited:.0f} s until it was done"


def _slow_timers(state: RunState, settings: SettingsView) -> dict[NodeName, str]:
    """The restarted nodes whose vnode manager keeps its usual time, each with the reason."""
    writes = (one for one in state.in_phase.failed if isinstance(one.action, WriteSettings))
    failed = next((f": {one.reason}" for one in writes), "")
    slow: dict[NodeName, str] = {}
    for name in _restarted(state):
        value = settings.at(Level.TRANSIENT, timer_key(name))
        if value is None and (Level.TRANSIENT, timer_key(name)) not in state.unrestored.settings:
            slow[name] = "its vnodes start at their usual pace: its vnode_management_timer cannot be read"
        elif isinstance(value, str) and value.isdecimal() and int(value) > TIMER_MILLISECONDS:
            slow[name] = f"its vnodes start at their usual pace, every {value} ms{failed}"
    return slow


def _restarted(state: RunState) -> tuple[NodeName, ...]:
    return tuple(node.name for node in state.wave_nodes if node.phase is NodePhase.REJOINED)


def shortfall(state: RunState) -> str:
    """The nodes after whose restart handoff was not hastened, for a run's last message; empty if none."""
    nodes_of: dict[str, list[NodeName]] = {}
    for name, why in state.unhastened.items():
        nodes_of.setdefault(why, []).append(name)
    said = "; ".join(f"{', '.join(names)} ({why})" for why, names in nodes_of.items())
    return f"handoff was not hastened after the restart of {said}" if said else ""


def home(state: RunState, view: ClusterView, now: Instant) -> FallbacksHome | None:
    """The event that only the wave's own nodes have data to hand off; None otherwise, and after the first."""
    if view.riak is None or state.wave is None or state.in_phase.home:
        return None
    holders = _holders(view.riak, held(state.handoff.left))
    if holders is None or holders - set(state.wave.nodes):
        return None
    return FallbacksHome(number=state.wave.number, seconds=now - state.wave_since)


def _holders(riak: RiakView, before: Held) -> frozenset[NodeName] | None:
    """The nodes that have something to hand off, by the nodes that were read; None without every answer.

    Without what waited before the stop.
    """
    if riak.beyond:
        return frozenset(riak.beyond)
    if isinstance(riak.transfers, Unknown) or not riak.transfers:
        return None
    found: set[NodeName] = set()
    for each in riak.transfers.values():
        if not isinstance(each, Transfers) or each.down or any(one.source is None for one in each.active):
            return None
        found.update(line.node for line in less(each, riak, before).waiting)
        found.update(one.source for one in each.active if one.source is not None)
    return frozenset(found)
