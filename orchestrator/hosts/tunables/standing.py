"""The state of the parts of a tunable, and the verdict on the whole.

A tunable has one part, or one for each disk or kernel file. All tunables join their parts by one rule: a
wrong part that can be changed is drift; a wrong part that cannot be changed or read makes it unknown. The
verdict is about the running system; the next boot has a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a tunable.

    Attributes:
        of: the disk, size or file; empty if there is only one part.
        at_boot: what its own file or service says of the next boot; empty for what the boot script sets.
        running: whether it is right; None = unknown.
        detail: why it is not so, for people.
    """

    of: str = ""
    wanted: str
    found: str
    at_boot: str = ""
    running: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A part that the host does not have, with the reason."""

    of: str = ""
    why: str


Standing = Part | Absent


class Changes(Protocol):
    """The methods of a tunable that name changes."""

    @property
    def name(self) -> str:
        """Of the tunable."""
        ...

    def supported(self, facts: HostFacts) -> str | None:
        """Why the host has no such setting; None if it has."""
        ...

    def apply(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """The changes that make it right."""
        ...


def absent(setting: TuningSetting, why: str) -> TunableState:
    """The state of a tunable that the host does not have."""
    return TunableState(
        tunable=setting.tunable,
        wanted=shown(setting),
        running="",
        at_boot="",
        verdict=Verdict.NOT_APPLICABLE,
        detail=why,
        on_failure=setting.on_failure,
    )


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
        return absent(setting, why or _said(reasons))
    changes = tunable.apply(facts, setting, profile)
    right = all(part.running is True for part in there)
    verdict = Verdict.DRIFT if changes else Verdict.OK if right else Verdict.UNKNOWN
    if verdict is Verdict.UNKNOWN and not any(reasons):
        reasons.append("it is not as wanted, and this program cannot change it")
    return TunableState(
        tunable=tunable.name,
        wanted=_joined((part.wanted, part.of) for part in there),
        running=_joined((part.found, part.of) for part in there),
        at_boot=_joined((part.at_boot, part.of) for part in there if part.at_boot),
        verdict=verdict,
        detail=_said(reasons),
        changes=changes,
        on_failure=setting.on_failure,
    )


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
