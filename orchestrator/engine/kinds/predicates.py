"""What a predicate is: a named safety rule, asked before anything is stopped.

Predicates are pure and are asked twice with the same code: when a wave is chosen, and again at the last
reading before its stop, when allocation is withheld already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from orchestrator.engine.state import RunState
from orchestrator.model.event import Hold
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import Observation
from orchestrator.model.policy import Policy, Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May this wave be stopped, or this index be merged, by this reading?

    Attributes:
        index: the index that is to be merged; None where it is about the wave.
        first_stop: nothing was stopped yet, so every selected host must be ready, not only the wave's.
    """

    state: RunState
    policy: Policy
    observation: Observation
    wave: Wave
    first_stop: bool
    index: BulkIndex | None = None


Finding = tuple[str, str]
"""Subject and evidence of a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """One rule.

    Attributes:
        name: public; shown, journalled and given to `--disable-predicate`.
        why: what goes wrong without it, for the catalogue.
        check: yields subject and evidence of each refusal; a reading that is `Unknown` is a refusal.
        may_be_disabled: False for the three on which every other one rests.
        passes_with_time: False when only the operator can mend it, so that waiting at the start is idle.
        of_the_set: it is about the nodes of a wave together, so a smaller wave may pass where this does not.
    """

    name: str
    why: str
    check: Callable[[Question], Iterator[Finding]]
    may_be_disabled: bool = True
    passes_with_time: bool = True
    of_the_set: bool = False


def holds(predicates: Iterable[Predicate], question: Question) -> tuple[Hold, ...]:
    """Every refusal, in the order of the predicates, less those that the operator has switched off.

    When one of the fundamental rules refuses, the others are not asked: they would speak of a reading that
    is not to be believed.
    """
    found: list[Hold] = []
    fundamentals_passed = True
    for predicate in predicates:
        if found and predicate.may_be_disabled and not fundamentals_passed:
            break
        for subject, evidence in predicate.check(question):
            if predicate.may_be_disabled and question.policy.disables(predicate.name, subject):
                continue
            fundamentals_passed = fundamentals_passed and predicate.may_be_disabled
            found.append(Hold(predicate=predicate.name, subject=subject, evidence=evidence))
    return tuple(found)
