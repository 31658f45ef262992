"""Gates in simulated runs: three of them, and what closes them in runs left to chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from orchestrator.model.gate import (
    AlertmanagerGate,
    CommandGate,
    Gate,
    HttpAccess,
    RabbitQueueGate,
)
from orchestrator.model.policy import Policy
from orchestrator.simulation.mishaps import Mishap
from tests.simulation import program_mishaps

QUEUE: Final = RabbitQueueGate(
    name="rabbitmq_queue ingest", at=HttpAccess(url="http://mq:15672"), queue="ingest", max_messages=100
)
SCRIPT: Final = CommandGate(name="command ok-to-continue.sh", run="./ok-to-continue.sh", folder="/etc/x")
ALERTS: Final = AlertmanagerGate(
    name="alertmanager", at=HttpAccess(url="http://alerts:9093"), matchers=('cluster="prod"',)
)

SHARE: Final = 0.15
"""Of the runs have gates."""

_VERBS: Final = ("flush", "flush", "set_allocation", "stop", "start", "restore_allocation", "force_merge")
"""After which one closes: often between the choice of a wave and its last reading, or with nodes down."""

_LIMIT: Final = 600.0
_SHUT: Final = (1.0, 30.0, 300.0, 3000.0)
"""Seconds: for a reading, for a while, and for longer than a run waits; then the world has healed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What a seed means for gates: those of its playbook, if any, and what closes them."""

    gates: tuple[Gate, ...] = ()
    plan: tuple[Mishap, ...] = ()

    def wanted(self, policy: Policy) -> Policy:
        """The policy with these gates, and a limit that ends within the run."""
        if not self.gates:
            return policy
        return replace(policy, gates=self.gates, deadlines=replace(policy.deadlines, gate=_LIMIT))


def by_chance(seed: int) -> Gated:
    """By dice of its own, so that all else of a seed stays."""
    dice = Random(f"gates {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() >= SHARE:
        return Gated()
    gates: tuple[Gate, ...] = dice.choice(((QUEUE,), (ALERTS,), (SCRIPT, QUEUE)))
    return Gated(gates=gates, plan=tuple(_mishap(dice, gates) for _ in range(dice.choice((1, 2, 2, 3, 5)))))


def _mishap(dice: Random, gates: tuple[Gate, ...]) -> Mishap:
    shut = program_mishaps.GateShut(
        name=dice.choice(gates).name, seconds=dice.choice(_SHUT), readable=dice.random() < 0.7
    )
    if dice.random() < 0.3:
        return Mishap(what=shut, after=dice.uniform(0.0, 120.0))
    after = dice.choice((0.0, 0.05, 0.5, 5.0))
    return Mishap(what=shut, verb=dice.choice(_VERBS), nth=dice.randint(1, 4), after=after)
