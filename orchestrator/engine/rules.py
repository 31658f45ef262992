"""Asking the rules about a wave, and cutting the next one by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.engine.kinds.predicates import Predicate, Question, holds
from orchestrator.engine.machines import machines_of
from orchestrator.engine.steps import Situation
from orchestrator.engine.waves import next_wave
from orchestrator.model.event import Hold
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Wave


def refusals(situation: Situation, rules: tuple[Predicate, ...], wave: Wave) -> tuple[Hold, ...]:
    """What these rules say against a wave by this reading."""
    state = situation.state
    first = not state.waves_begun and state.phase is not Phase.WITHHELD
    question = Question(
        state=state, policy=situation.policy, observation=situation.seen, wave=wave, first_stop=first
    )
    return tuple(_with_advice(rules, question, hold) for hold in holds(rules, question))


_MEND: Final = {
    "every_shard_keeps_started_copies": "give the index more replicas",
    "no_recovery_on_candidates": "let the recovery end",
    "one_zone_at_a_time": "give them one zone",
    "budget_not_exceeded": "allow as many with `max_unavailable`",
}
"""What makes room for a whole machine, by the rule against it; elsewhere it takes more nodes."""


def _with_advice(rules: tuple[Predicate, ...], question: Question, hold: Hold) -> Hold:
    """The refusal; where nodes go together though each might go alone, with their machine and the way out."""
    rule = next(rule for rule in rules if rule.name == hold.predicate)
    for machine in question.wave.machines:
        alone = [replace(question, wave=Wave(number=question.wave.number, nodes=(name,))) for name in machine]
        together = replace(
            question, wave=Wave(number=question.wave.number, nodes=machine, machines=(machine,))
        )
        refused = [_refuses(rule, asked, hold) for asked in (together, *alone)]
        if refused[0] and not any(refused[1:]):
            mend = _MEND.get(hold.predicate, "have more nodes of this kind")
            way = "restart without `--reboot`" if question.policy.reboot else "set `hosts.together: never`"
            why = f"{', '.join(machine)} go together, being on one machine: {mend}, or {way}"
            return replace(hold, evidence=f"{hold.evidence}; {why}")
    return hold


def _refuses(rule: Predicate, question: Question, hold: Hold) -> bool:
    return any(subject == hold.subject for subject, _ in rule.check(question))


def refused_as_a_set(situation: Situation, wave: Wave) -> tuple[Hold, ...]:
    """What the rules about sets of nodes say against a wave: a smaller one may pass."""
    return refusals(situation, tuple(rule for rule in situation.kind.predicates if rule.of_the_set), wave)


def next_wave_of(situation: Situation) -> Wave | None:
    """The next wave by the run's strategy; None without a reading, and when no node is left.

    While waves before it recover, it is cut as if they had: cut around each copy on its way, a zone would go
    in many waves of few nodes. Whether it may stop by now, all rules decide on what is really there.
    """
    view = situation.view
    if view is None:
        return None
    asked = situation
    if situation.state.recovering:
        asked = replace(situation, seen=replace(situation.seen, cluster=view.recovered))
    pending = [node.name for node in situation.state.nodes.values() if node.phase is NodePhase.PENDING]
    whole = situation.policy.goes_by_machine
    machines = machines_of(situation.state, situation.seen).among(pending) if whole else ()
    return next_wave(situation.state, view, lambda wave: refused_as_a_set(asked, wave), machines)
