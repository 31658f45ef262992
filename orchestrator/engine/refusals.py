"""Credentials that a cluster refuses: the events for the journal, from readings and from outcomes of actions.

A login that is refused (401) ends readings and writes. A right that is taken away (403) may end only one of
them: the run needs the reading of the cluster, and everything that restores it. Other requests that are
refused are holds and failed actions, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RunState
from orchestrator.formats import duration
from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    ProbeSettings,
    Purpose,
    SetReplicas,
    WriteSettings,
)
from orchestrator.model.event import ActionConfirmed, ActionFailed, Event
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Instant, Reading, Unauthorized, Unknown
from orchestrator.model.work_event import AccessGranted, AccessRefused

_RESTORES: Final = frozenset({Purpose.REASSIGN, Purpose.RESTORE})
_WRITES: Final = (WriteSettings, ProbeSettings, SetReplicas, ClearVotingExclusions)
"""The next of them that is confirmed shows that the right is back, even if it restores nothing."""


def of_reading(state: RunState, cluster: Reading[ClusterView], now: Instant) -> tuple[Event, ...]:
    """The events that follow from the latest reading of the cluster."""
    known = state.process.refused
    if isinstance(cluster, Unauthorized):
        return () if known is not None else (AccessRefused(refusal=cluster.refusal, reading=True),)
    if known is None or not known.reading or isinstance(cluster, Unknown):
        return ()
    return (AccessGranted(seconds=max(0.0, now - known.since)),)


def of_outcomes(state: RunState, outcomes: Iterable[Event], now: Instant) -> tuple[Event, ...]:
    """The events that follow from the outcomes of actions."""
    known = state.process.refused
    for outcome in outcomes:
        if isinstance(outcome, ActionFailed) and outcome.refusal is not None and known is None:
            login = outcome.refusal.of_login
            if login or _restores(outcome.action):
                return (AccessRefused(refusal=outcome.refusal, reading=login),)
        accepted = isinstance(outcome, ActionConfirmed) and isinstance(outcome.action, _WRITES)
        if accepted and known is not None and not known.reading:
            return (AccessGranted(seconds=max(0.0, now - known.since)),)
    return ()


def too_long(situation: Situation) -> str | None:
    """The refusal of the credentials because of which nothing can be restored; None before its limit."""
    found, late = situation.state.process.refused, situation.over(limits.REFUSED)
    if found is None or late is None:
        return None
    return f"{found.refusal.sentence}, for {duration(late)}; the lease of the run runs out by itself"


def _restores(action: Action) -> bool:
    """Whether the cluster is not as before the run without this action."""
    match action:
        case WriteSettings(purpose=purpose):
            return purpose in _RESTORES
        case SetReplicas(found=found, wanted=wanted):
            return wanted <= found
        case ClearVotingExclusions():
            return True
        case _:
            return False
