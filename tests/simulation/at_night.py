"""Refused credentials, hosts that answer late, and machines with other clocks, in runs left to chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from orchestrator.model.cluster import NodeName
from orchestrator.simulation.mishaps import Mishap, What
from orchestrator.simulation.node_mishaps import HostAnswersLate
from orchestrator.simulation.program_mishaps import CredentialsRefused

_VERBS = ("set_allocation", "flush", "stop", "stop", "start", "restore_allocation", "restore_settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class AtNight:
    """What a seed adds to a run.

    Attributes:
        skew: seconds by which the clock of each other machine is ahead of that of the first.
    """

    plan: tuple[Mishap, ...] = ()
    skew: float = 0.0


def by_chance(seed: int, names: Sequence[NodeName]) -> AtNight:
    """In one run of four, by dice of its own, so that all else of a seed stays."""
    dice = Random(f"at night {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    skew = dice.choice((0.0, 0.0, 0.0, 40.0, -3600.0, 86_400.0))
    if dice.random() >= 0.25:
        return AtNight(skew=skew)
    return AtNight(plan=tuple(_mishap(dice, names) for _ in range(dice.choice((1, 1, 2)))), skew=skew)


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
