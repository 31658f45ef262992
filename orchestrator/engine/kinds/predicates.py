"""What a predicate is: a named safety condition, checked before anything is stopped.

Predicates are pure and are asked twice with the same code: when a wave is chosen, and again at the last
reading before its stop, when allocation is disabled already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.engine.state import RunState
from orchestrator.model.event import Hold
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import Observation
from orchestrator.model.policy import Policy, Wave

SUBJECTS: Final = 5
"""Subjects that one hold names; its count says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May this wave be stopped, or this index be merged, by this reading?

    Attributes:
        index: the index that is to be merged; None where it is about the wave.
        first_stop: nothing was stopped yet, so every selected host must be ready, not only the wave's.
        unread_pass: nothing is said yet of hosts that this reading left out: they are read before a stop.
    """

    state: RunState
    policy: Policy
    observation: Observation
    wave: Wave
    first_stop: bool
    index: BulkIndex | None = None
    unread_pass: bool = False


Finding = tuple[str, str]
"""Subject and evidence of a hold."""


class About(Enum):
    """What a predicate is about."""

    CLUSTER = "the cluster: it holds the run"
    WAVE = "the wave: another candidate or a smaller wave may pass where this one does not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """One safety condition.

    Attributes:
        name: public; shown, journalled and given to `--disable-predicate`.
        why: what goes wrong without it, for the catalogue.
        check: yields subject and evidence of each refusal; a reading that is `Unknown` is a refusal.
        may_be_disabled: False for the three on which every other one rests.
        passes_with_time: False when only the operator can help, so that waiting at the start is idle.
        lasting: of one that passes with time, the refusals that do not; None where all may pass.
        about: the cluster, or the wave.
    """

    name: str
    why: str
    check: Callable[[Question], Iterator[Finding]]
    may_be_disabled: bool = True
    passes_with_time: bool = True
    lasting: Callable[[Question], Iterator[Finding]] | None = None
    about: About = About.CLUSTER

    @property
    def about_wave(self) -> bool:
        """Whether another candidate or a smaller wave may pass when this one does not."""
        return self.about is About.WAVE


def holds(predicates: Iterable[Predicate], question: Question) -> tuple[Hold, ...]:
    """One hold for each predicate that is not met, in their order, less what the operator switched off.

    If one of the fundamental predicates is not met, the others are not checked: the reading is not reliable
    enough for them.
    """
    found: list[Hold] = []
    fundamentals_passed = True
    for predicate in predicates:
        if found and predicate.may_be_disabled and not fundamentals_passed:
            break
        findings = [
            (subject, evidence)
            for subject, evidence in predicate.check(question)
            if not (predicate.may_be_disabled and question.policy.disables(predicate.name, subject))
        ]
        if findings:
            fundamentals_passed = fundamentals_passed and predicate.may_be_disabled
            found.append(_hold(predicate.name, findings))
    return tuple(found)


def _hold(name: str, findings: list[Finding]) -> Hold:
    subject, evidence = findings[0]
    subjects = tuple(dict.fromkeys(subject for subject, _ in findings))
    return Hold(
        predicate=name,
        subject=subject,
        evidence=evidence,
        count=len(subjects),
        subjects=subjects[:SUBJECTS],
    )


def aggregated(found: Iterable[Hold]) -> tuple[Hold, ...]:
    """One hold a predicate, merged from the holds of several waves; each named subject counts once."""
    by_name: dict[str, list[Hold]] = {}
    for hold in found:
        by_name.setdefault(hold.predicate, []).append(hold)
    return tuple(_merged(same) for same in by_name.values())


def _merged(same: list[Hold]) -> Hold:
    first = same[0]
    subjects = list(dict.fromkeys(subject for hold in same for subject in hold.subjects))
    unnamed = sum(hold.count - len(hold.subjects) for hold in same)
    return Hold(
        predicate=first.predicate,
        subject=first.subject,
        evidence=first.evidence,
        count=len(subjects) + unnamed,
        subjects=tuple(subjects[:SUBJECTS]),
        also=tuple(dict.fromkeys(name for hold in same for name in hold.also)),
    )
