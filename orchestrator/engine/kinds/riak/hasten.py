"""Handoff without its timers (`hasten_handoff`): well under a minute of waiting where minutes are usual.

Nearly all of a restarted node's handoff is waiting (measured on 3.2.1, ring size 64): its vnodes are started
16 at a time every `vnode_management_timer` (10 s), and a vnode is handed off once it was idle for
`vnode_inactivity_timeout` (60 s and more). So the restarted node's timer is set to a second, and handoff
is forced on every node, again and again. That obeys the transfer limit and goes to owners
alone whose service is up. Riak calls it for "support/debug purposes".

Two conditions come with it. A forced handoff would also move partitions to new owners, so it is sent only
while no change of owners is pending. And between two steps of the timer the transfers may be clean while some
vnodes were never started, which may hold data of other nodes: handoff is done once all were started.
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.kinds.riak.settings import holder, is_timer
from orchestrator.engine.state import RunState
from orchestrator.model.action import ForceHandoff, SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import FallbacksHome
from orchestrator.model.observation import ClusterView, Level, Look, SettingsView
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Unknown
from orchestrator.model.riak import Membership, RiakView, Transfers

TIMER_MILLISECONDS: Final = 1000
_PHASES: Final = frozenset({Phase.REASSIGNED, Phase.FINISHING, Phase.STANDING_DOWN})
"""In which handoff is hastened, and in which the timers are restored."""


def reads_too(state: RunState) -> frozenset[Look]:
    """The pace of handoff, for a run that hastens it or has to restore a timer of one that did."""
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
    """The verb that makes every node hand off now; None where it is not wanted, or would move owners."""
    riak = view.riak
    if riak is None or not state.begun.policy.hasten_handoff or not _counted(view, riak):
        return None
    status = riak.cluster
    if isinstance(status, Unknown):
        return None
    still = all(m.membership is Membership.VALID and m.pending_share is None for m in status.members)
    return ForceHandoff() if still and status.ring_ready is not False else None


def _counted(view: ClusterView, riak: RiakView) -> bool:
    """Whether it is known of every node how many vnodes it has not started."""
    known = {name for name, count in riak.unstarted.items() if not isinstance(count, Unknown)}
    return known >= view.members.keys()


def unstarted(state: RunState, riak: RiakView) -> str | None:
    """Why clean transfers may be clean for a moment alone; None where they are done."""
    lost = state.failure_of(ForceHandoff())
    was_forced = ForceHandoff() in state.in_phase.confirmed or (lost is not None and lost.in_doubt)
    for name, count in sorted(riak.unstarted.items()):
        if not isinstance(count, Unknown) and count:
            return f"{name} has not started {count} of its vnodes yet, which may hold data of other nodes"
        if isinstance(count, Unknown) and (was_forced or count.passes):
            return f"the vnodes that {name} has not started are unknown: {count.reason}"
    return None


def home(state: RunState, view: ClusterView, now: Instant) -> FallbacksHome | None:
    """The event that only the wave's own nodes have data to hand off; None otherwise, and after the first."""
    if view.riak is None or state.wave is None or state.in_phase.home:
        return None
    holders = _holders(view.riak)
    if holders is None or holders - set(state.wave.nodes):
        return None
    return FallbacksHome(number=state.wave.number, seconds=now - state.wave_since)


def _holders(riak: RiakView) -> frozenset[NodeName] | None:
    """The nodes that have something to hand off, by those that were asked; None if an answer is missing."""
    if riak.beyond:
        return frozenset(riak.beyond)
    if isinstance(riak.transfers, Unknown) or not riak.transfers:
        return None
    found: set[NodeName] = set()
    for each in riak.transfers.values():
        if not isinstance(each, Transfers) or each.down or any(one.source is None for one in each.active):
            return None
        found.update(line.node for line in each.waiting)
        found.update(one.source for one in each.active if one.source is not None)
    return frozenset(found)
