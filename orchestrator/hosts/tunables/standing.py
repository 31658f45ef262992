"""The state of the parts of a tunable, and the verdict on the whole.

A tunable has one part, or one for each disk or kernel file. All tunables join their parts by one rule: a
wrong part that can be changed is drift; a wrong part that cannot be changed or read makes it unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from orchestrator.model.host_facts import HostFacts, InitSystem
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting, Verdict

NOT_LASTING: Final = "not made to last"
UNREAD: Final = "not read"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtBoot:
    """The value that the next boot sets.

    Attributes:
        value: None if no known file or program sets it.
        by: its source: a file, the kernel command line, tuned's profile.
        unsure: why the value may be another one; empty if it is certain.
    """

    value: str | None = None
    by: str = ""
    unsure: str = ""

    def __str__(self) -> str:
        """The text for a table."""
        if self.value is None:
            return NOT_LASTING
        return f"{self.value} by {self.by}" if self.by else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a tunable.

    Attributes:
        of: the disk, size or file; empty if there is only one part.
        running: whether it is right now; None = unknown.
        lasts: whether the next boot makes it right; None = unknown.
        detail: why it is not so, for people.
    """

    of: str = ""
    wanted: str
    found: str
    at_boot: AtBoot
    running: bool | None
    lasts: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A part that the host does not have, with the reason."""

    of: str = ""
    why: str


Standing = Part | Absent


class Changes(Protocol):
    """The two methods of a tunable that name changes."""

    @property
    def name(self) -> str:
        """Of the tunable."""
        ...

    def supported(self, facts: HostFacts) -> str | None:
        """Why the host has no such setting; None if it has."""
        ...

    def apply(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """For the running system."""
        ...

    def persist(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """For the next boot."""
        ...


def why_not_lasting(
    facts: HostFacts, profile: TuningProfile, boot: AtBoot, *, lasting: bool | None
) -> str:  # fmt: skip
    """Why the next boot cannot be made right by any file; empty if it can."""
    if lasting is True or not profile.persist:
        return ""
    if boot.unsure:
        return boot.unsure
    if facts.init is InitSystem.OTHER:
        return "neither systemd nor init scripts start this host: nothing is written for its next boot"
    if boot.by.startswith("tuned") and all(setting.tunable != "tuned" for setting in profile.settings):
        return f"{boot.by} sets it back at every start: the tunable `tuned` overrides that"
    return ""


def judged(
    tunable: Changes,
    facts: HostFacts,
    setting: TuningSetting,
    profile: TuningProfile,
    parts: Sequence[Standing],
) -> TunableState:
    """The state of a whole tunable from its parts and its changes."""
    why = tunable.supported(facts)
    there = [part for part in parts if isinstance(part, Part)]
    reasons = [_reason(part.of, part.detail) for part in there]
    reasons += [_reason(part.of, part.why) for part in parts if isinstance(part, Absent)]
    if why is not None or not there:
        return TunableState(
            tunable=tunable.name,
            wanted=shown(setting),
            running="",
            at_boot="",
            verdict=Verdict.NOT_APPLICABLE,
            detail=why or _said(reasons),
            on_failure=setting.on_failure,
        )
    changes = (*tunable.apply(facts, setting, profile), *tunable.persist(facts, setting, profile))
    verdict = Verdict.DRIFT if changes else _verdict(there, lasting=profile.persist)
    if verdict is Verdict.UNKNOWN and not any(reasons):
        reasons.append(f"no place is known on this host ({facts.init.value}) in which it would last")
    return TunableState(
        tunable=tunable.name,
        wanted=_joined((part.wanted, part.of) for part in there),
        running=_joined((part.found, part.of) for part in there),
        at_boot=_joined((str(part.at_boot), part.of) for part in there),
        verdict=verdict,
        detail=_said(reasons),
        changes=changes,
        on_failure=setting.on_failure,
    )


def _verdict(parts: Iterable[Part], *, lasting: bool) -> Verdict:
    right = all(part.running is True and (part.lasts is True or not lasting) for part in parts)
    return Verdict.OK if right else Verdict.UNKNOWN


def shown(setting: TuningSetting) -> str:
    """The value that a profile wants, for people."""
    if isinstance(setting.wanted, str):
        return setting.wanted
    return ", ".join(f"{kind}: {word}" for kind, word in setting.wanted.items())


def _reason(of: str, why: str) -> str:
    return f"{of}: {why}" if of and why else why


def _said(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _joined(values: Iterable[tuple[str, str]]) -> str:
    """`none (sdb, sdc), mq-deadline (sdd)`: each value once, with its parts unless all have it."""
    by_value: dict[str, list[str]] = {}
    for value, of in values:
        by_value.setdefault(value, []).append(of)
    if len(by_value) == 1 and not any(next(iter(by_value.values()))):
        return next(iter(by_value))
    return ", ".join(
        f"{value} ({', '.join(filter(None, of))})" if any(of) else value for value, of in by_value.items()
    )
