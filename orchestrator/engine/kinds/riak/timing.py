"""Predicted duration of a Riak restart without past runs: mostly Riak's own timers.

Measured on five nodes of 3.2.1 with a ring of 64 partitions: 200 to 250 s a node. A transfer of a hint took
0.09 s; the rest is Riak's waiting (read in the source of riak_core).
"""

from __future__ import annotations

from typing import Final

from orchestrator.engine.kinds.riak.hasten import TICK_SECONDS, TIMER_MILLISECONDS, impossible, ticks_of
from orchestrator.engine.kinds.riak.settings import timer_key
from orchestrator.model.observation import ClusterView, SettingsView
from orchestrator.model.policy import Policy
from orchestrator.model.prediction import Prediction, Usual
from orchestrator.model.reading import NOT_READ, Reading, Seconds, Unknown

_UP_AGAIN_SECONDS: Final[Seconds] = 45.0
"""Stop 6 to 11, start 4 to 7, until it counts as back 25 to 29."""
_INACTIVE_SECONDS: Final[Seconds] = 60.0
"""`vnode_inactivity_timeout`: a vnode hands off after so long without a message, and up to as long again."""
_HASTENED_SECONDS: Final[Seconds] = 15.0
"""From then on, with `hasten_handoff`: all was clean 34 s after the stop, by a loop that did nothing else."""
_USUAL_RING: Final = 64
"""Partitions of a ring whose size was not read: Riak's own default."""


def usual_restart(
    view: ClusterView | None, policy: Policy, settings: Reading[SettingsView] = NOT_READ
) -> Usual:
    """The time of a node from its stop until handoff is done, without a past run to go by.

    Args:
        view: a reading of the cluster, for the size of its ring; None where there is none.
        policy: whether handoff is to be hastened; where it cannot be, it takes its usual time.
        settings: the timers that were read; a node whose timer was not is not hastened.
    """
    read = view.riak.ring_size if view is not None and view.riak is not None else None
    size = read or _USUAL_RING
    ticks = ticks_of(size)
    never = _not_hastened(view, settings) if policy.hasten_handoff and view is not None else None
    if policy.hasten_handoff and never is None:
        low = _UP_AGAIN_SECONDS + ticks * TIMER_MILLISECONDS / 1000
        likely = low + _HASTENED_SECONDS
        return Usual(
            node=Prediction(low=low, likely=likely, high=likely + _INACTIVE_SECONDS),
            rests_on=f"hastened handoff: {ticks:.0f} s to start the vnodes of a ring of {size} partitions, "
            f"{_UP_AGAIN_SECONDS:.0f} s to stop and start; large data takes longer",
        )
    rolling = ticks * TICK_SECONDS
    low = _UP_AGAIN_SECONDS + rolling + _INACTIVE_SECONDS
    likely = low + _INACTIVE_SECONDS
    ring = "a ring of" if read else "the usual ring of"
    idle = f"{_INACTIVE_SECONDS:.0f} to {2 * _INACTIVE_SECONDS:.0f} s"
    return Usual(
        # A handoff that is refused at the transfer limit waits once more, as long as the first time.
        node=Prediction(low=low, likely=likely, high=likely + 2 * 2 * _INACTIVE_SECONDS),
        rests_on=f"Riak's default timers: {rolling:.0f} s to start the vnodes of {ring} {size} partitions, "
        f"{idle} without a message until a vnode hands off, {_UP_AGAIN_SECONDS:.0f} s to stop and start; "
        "large data takes longer",
        instead=f"handoff is not hastened: {never}" if never is not None else "",
    )


def _not_hastened(view: ClusterView, settings: Reading[SettingsView]) -> str | None:
    """Why the time of a hastened restart cannot be promised; None where nothing is known to be against it."""
    unread = [
        node.name
        for node in view.nodes
        if not isinstance(settings, Unknown) and timer_key(node.name) not in settings.transient
    ]
    untimed = f"vnode_management_timer of {', '.join(unread)} cannot be read" if unread else None
    return impossible(view.version) or untimed
