"""Refused credentials, hosts that answer late, and machines with other clocks, in runs left to chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    LeaseLost,
    Record,
    RestoreBegun,
    RunFinished,
    RunResumed,
    RunStarted,
    StandingDown,
)
from orchestrator.model.work_event import AccessGranted, AccessRefused
from orchestrator.simulation.mishaps import Mishap, SnapshotAborted, What
from tests.simulation.node_mishaps import HostAnswersLate
from tests.simulation.program_mishaps import CredentialsRefused

_VERBS = ("set_allocation", "flush", "stop", "stop", "start", "restore_allocation", "restore_settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class AtNight:
    """What a seed adds to a run."""

    plan: tuple[Mishap, ...] = ()
    skew: float = 0.0  # seconds by which the clock of each other machine is ahead of that of the first


def by_chance(seed: int, names: Sequence[NodeName]) -> AtNight:
    """In one run of four, by dice of its own, so that all else of a seed stays."""
    dice = Random(f"at night {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    skew = dice.choice((0.0, 0.0, 0.0, 40.0, -3600.0, 86_400.0))
    often = dice.choice((1, 1, 2)) if dice.random() < 0.25 else 0
    plan = tuple(_mishap(dice, names) for _ in range(often))
    return AtNight(plan=(*plan, *_aborted(seed, names)), skew=skew)


def _aborted(seed: int, names: Sequence[NodeName]) -> tuple[Mishap, ...]:
    """In one run of ten."""
    dice = Random(f"aborted {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() >= 0.1:
        return ()
    what = SnapshotAborted(node=dice.choice(names), seconds=dice.choice((20.0, 200.0, 900.0)))
    return (Mishap(what=what, after=dice.uniform(0.0, 200.0)),)


def _mishap(dice: Random, names: Sequence[NodeName]) -> Mishap:
    what: What
    if dice.random() < 0.6:
        seconds = dice.choice((5.0, 30.0, 90.0, 110.0, 200.0, 1500.0))
        what = CredentialsRefused(seconds=seconds, writes=dice.random() < 0.4)
    else:
        takes = dice.choice((3.0, 12.0, 25.0))
        what = HostAnswersLate(node=dice.choice(names), seconds=dice.choice((60.0, 600.0)), takes=takes)
    if dice.random() < 0.3:
        return Mishap(what=what, after=dice.uniform(0.0, 200.0))
    return Mishap(
        what=what, verb=dice.choice(_VERBS), nth=dice.randint(1, 4), after=dice.choice((0.0, 0.05, 2.0, 9.0))
    )


NAMED_SECONDS = 60.0
"""Within this time a refusal of every call is named: a run that waits for copies reads every 15 s."""
_SLACK_SECONDS = 120.0
"""A decision may come this much later than its limit: readings of hosts that hang follow each other."""


def broken_rule(
    records: Sequence[Record], refused_at: Sequence[float], still: float, happened: Counter[str]
) -> str | None:
    """What the journal of an attempt shows against the rules of refused credentials; None if it keeps them.

    Args:
        records: of the attempt, by the world's time.
        refused_at: when the cluster began to refuse every call for at least `NAMED_SECONDS`.
        still: seconds for which the machine of the program was suspended.
        happened: counts refusals that were named, that passed, and that ended a run.
    """
    limit, since, login = 0.0, None, False
    named: list[float] = []
    for record in records:
        match record.event:
            case RunStarted(policy=policy):
                limit = policy.deadlines.refused
            case AccessRefused(reading=login):
                since = record.at
                named.append(record.at)
                happened["a refusal is named"] += 1
            case LeaseLost(reason=reason) if " refused " in reason:
                named.append(record.at)
            case AccessGranted():
                since = None
                happened["a refusal passes in time"] += 1
            case StandingDown(reason=reason) if since is not None:
                happened["a refusal ends a run"] += " refused " in reason or " may not " in reason
                since = None
            case RunFinished() | RunResumed() | RestoreBegun():
                since = None
            case ActionSent(action=StopNode(node=node)) if since is not None and login:
                return f"{node} is stopped while the credentials are refused"
            case _:
                if since is not None and record.at - since > limit + still + _SLACK_SECONDS:
                    return f"the run goes on {record.at - since:.0f} s after its credentials were refused"
    last = records[-1].at if records else 0.0
    for at in refused_at:
        known = any(at - _SLACK_SECONDS <= one <= at + NAMED_SECONDS + still for one in named)
        if not known and last > at + NAMED_SECONDS + still:
            return f"the credentials are refused from {at:.0f} on, and nothing says so"
    return None
