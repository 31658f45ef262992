"""What a predicate is: a named safety condition, checked before anything is stopped.

Predicates are pure, and the same code is asked wherever the answer counts: before the first stop of a run for
every planned wave (`beginning`), when a wave is chosen (`admit`), whether a wave may make room for the next
(`recover`), and again at the last reading before a stop, when allocation is disabled already (`stop`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from orchestrator.engine.state import RunState
from orchestrator.holds import in_words
from orchestrator.model.event import Hold
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import Observation
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.reading import Unknown, Unsupported

_ADDRESS: Final = re.compile(r"\b\d+(?:\.\d+){3}\b|(?<![\w:])[0-9a-f]*(?::[0-9a-f]*){2,7}(?![\w:])")
SUBJECTS: Final = 5
"""Subjects that one hold names; its count says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May this wave be stopped, or this index be merged, by this reading?"""

    state: RunState
    policy: Policy
    observation: Observation
    wave: Wave
    first_stop: bool  # nothing was stopped yet, so every selected host must be ready, not only the wave's
    index: BulkIndex | None = None  # the index that is to be merged; None where it is about the wave
    # nothing is said yet of hosts that this reading left out: they are read before a stop
    unread_pass: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPolicy:
    """Evidence that stays while the run keeps its policy: only another run passes it."""

    evidence: str  # as of any hold
    # what the other run needs, such as `a higher max_unavailable in the playbook`; empty = only with the
    # predicate disabled for the subject
    way: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersFirst:
    """Evidence against a node that only has to wait for other nodes: those may be of any rank."""

    evidence: str


Evidence = str | Unknown | ByPolicy | OthersFirst
"""Evidence of a hold; a reading that failed is evidence, too."""

Finding = tuple[str, Evidence]
"""Subject and evidence of a hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """One safety condition."""

    # yields subject and evidence of each refusal; a reading that is `Unknown` is a refusal
    check: Callable[[Question], Iterator[Finding]]
    why: str  # what goes wrong without it, for the catalogue
    then: str  # what a person does when it holds a run, for the catalogue
    name: str = ""  # that of its check: public; shown, journalled and given to `--disable-predicate`
    may_be_disabled: bool = True  # False where others rest on it, and for the versions of an upgrade
    # False when only the operator can help, so that waiting at the start is idle
    passes_with_time: bool = True
    # of one that passes with time, the refusals that do not; None where all may pass
    lasting: Callable[[Question], Iterator[Finding]] | None = None
    # True: another candidate or a smaller wave may pass where this one does not; else it holds the run
    about_wave: bool = False
    own_reasons: bool = False  # each subject has its own evidence, and a hold has all of them
    of_upgrade: bool = False  # it holds nothing but an upgrade
    of_absence: bool = False  # it is not met while a member is away
    by_recovery: bool = False  # a running recovery may be why it is not met: it passes again when that ends
    # it is about what is not read while a wave recovers: GATED checks it, before the next stop
    unread_in_recovery: bool = False
    remedy: str = "have more nodes of this kind"  # what makes room for a whole machine that it holds

    def __post_init__(self) -> None:
        # Kept, since `lasting` is asked in place of the check, under the same name.
        object.__setattr__(self, "name", self.name or self.check.__name__)


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
            found.append(_hold(predicate, findings))
    return tuple(found)


def _hold(predicate: Predicate, findings: list[Finding]) -> Hold:
    evidence: dict[str, str] = {}
    ways = dict.fromkeys(way for subject, said in findings if (way := _way(predicate, subject, said)))
    for subject, said in findings:
        evidence.setdefault(subject, evidence_of(said))
    return _of_subjects(
        predicate.name,
        evidence,
        len(evidence),
        own_reasons=predicate.own_reasons,
        others_first=all(isinstance(said, OthersFirst) for _, said in findings),
        ways=tuple(ways),
    )


def evidence_of(said: Evidence) -> str:
    """The evidence of a finding, for people."""
    match said:
        case Unknown():
            return said.reason
        case ByPolicy() | OthersFirst():
            return said.evidence
        case _:
            return said


def _way(predicate: Predicate, subject: str, said: Evidence) -> str:
    """With what another run passes a finding that no change of cluster and hosts clears; else empty."""
    if isinstance(said, ByPolicy) and said.way:
        return said.way
    if not predicate.may_be_disabled or not isinstance(said, Unsupported | ByPolicy):
        return ""
    return disabling(predicate.name, subject)


def disabling(name: str, subject: str) -> str:
    """The flag that disables a predicate for a subject, as it can be typed."""
    return f"--disable-predicate {shlex.quote(f'{name}={subject}')}"


def _of_subjects(
    name: str,
    evidence: Mapping[str, str],
    count: int,
    *,
    own_reasons: bool,
    others_first: bool,
    also: tuple[str, ...] = (),
    ways: tuple[str, ...] = (),
) -> Hold:
    named = dict(islice(evidence.items(), SUBJECTS))
    subject = next(iter(named))
    return Hold(
        predicate=name,
        subject=subject,
        evidence=named[subject],
        count=count,
        subjects=tuple(named),
        also=also,
        reasons=tuple(named.values()) if own_reasons else (),
        ways=ways[:SUBJECTS],
        others_first=others_first,
    )


def by_reason(hold: Hold) -> Mapping[str, Sequence[str]]:
    """The subjects of a hold by their evidence; those with the same one together."""
    if not hold.reasons:
        return {hold.evidence: hold.subjects}
    return by_same_reason(zip(hold.subjects, hold.reasons, strict=True))


def hold_in_words(hold: Hold, shown: Callable[[str], str] = str) -> str:
    """A hold in one line: `predicate (subjects): evidence`, or each evidence with its subjects.

    Args:
        hold: to be named.
        shown: makes a text that came from outside fit to be shown.
    """
    reasons = by_reason(hold)
    if len(reasons) > 1:
        said = [f"{', '.join(map(shown, names))}: {shown(reason)}" for reason, names in reasons.items()]
        said += [f"and {hold.count - len(hold.subjects)} more"] if hold.count > len(hold.subjects) else []
        return f"{hold.predicate}: {'; '.join(said)}"
    return in_words(hold.predicate, [*map(shown, hold.subjects)], hold.count, shown(hold.evidence))


def hold_in_brief(hold: Hold) -> str:
    """The same for a reason, which is shown shortened: the first subject, and the evidence of that one."""
    return f"{hold_by_name(hold)}: {hold.evidence}"


def hold_by_name(hold: Hold) -> str:
    """`predicate (subject and 2 more)`, without evidence."""
    more = f" and {hold.count - 1} more" if hold.count > 1 else ""
    return f"{hold.predicate} ({hold.subject}{more})"


Name = TypeVar("Name", bound=str)


def by_same_reason(reasons: Iterable[tuple[Name, str]]) -> Mapping[str, Sequence[Name]]:
    """Names by their reason, in its words for the first of them; each name once a reason.

    Two reasons are the same if they differ only in the name itself and in addresses: each host has its own.
    """
    found: dict[str, list[Name]] = {}
    words: dict[str, str] = {}
    for name, reason in reasons:
        node = re.escape(name.removeprefix("host of "))
        same = _ADDRESS.sub("", re.sub(rf"(?<![\w.-]){node}(?![\w-])", "", reason))
        first = reason if reason in found else words.setdefault(same, reason)
        names = found.setdefault(first, [])
        if name not in names:
            names.append(name)
    return found


def aggregated(found: Iterable[Hold]) -> tuple[Hold, ...]:
    """One hold a predicate, merged from the holds of several waves; each named subject counts once."""
    by_name: dict[str, list[Hold]] = {}
    for hold in found:
        by_name.setdefault(hold.predicate, []).append(hold)
    return tuple(_merged(same) for same in by_name.values())


def _merged(same: list[Hold]) -> Hold:
    evidence: dict[str, str] = {}
    for hold in same:
        reasons = hold.reasons or (hold.evidence,) * len(hold.subjects)
        for subject, reason in zip(hold.subjects, reasons, strict=True):
            evidence.setdefault(subject, reason)
    unnamed = sum(hold.count - len(hold.subjects) for hold in dict.fromkeys(same))
    return _of_subjects(
        same[0].predicate,
        evidence,
        len(evidence) + unnamed,
        own_reasons=any(hold.reasons for hold in same),
        others_first=all(hold.others_first for hold in same),
        also=tuple(dict.fromkeys(name for hold in same for name in hold.also)),
        ways=tuple(dict.fromkeys(way for hold in same for way in hold.ways)),
    )
