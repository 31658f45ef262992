"""What every tunable has, and how the state of its parts becomes a verdict. Pure: facts in, changes out.

A tunable has one part, or one for each disk or kernel file. All tunables join their parts by one rule: a
part with changes is drift; a wrong part that cannot be changed or read makes the tunable unknown. The verdict
is about the running system; the next boot has a row of its own. `tuning/tuner.py` reads and acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.model.host import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    Change,
    FileChange,
    Reload,
    TunableState,
    TuningProfile,
    TuningSetting,
    Verdict,
)
from orchestrator.tuning.values import is_number


@dataclass(frozen=True, slots=True, kw_only=True)
class FactReads:
    """The facts that a tunable needs beyond those of every host."""

    # absolute paths and globs (`*`, `?`, `[…]`). `{unit}` is replaced by the node's own service, without
    # `.service`; without such a service, the paths with `{unit}` are left out. A path that ends in `/` checks
    # for a folder: the text of an existing folder is empty.
    files: tuple[str, ...] = ()
    services: tuple[str, ...] = ()  # names of services to check, without `.service`
    queue: tuple[str, ...] = ()  # files in `/sys/block/NAME/queue` of every device behind the data
    tuned: bool = False  # the active profile of tuned or ktune


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a tunable."""

    of: str = ""  # the disk, size or file; empty if there is only one part
    wanted: str
    found: str
    # what its own file or service says of the next boot; empty for what the boot script sets
    at_boot: str = ""
    running: bool | None  # whether it is right; None = unknown
    detail: str = ""  # why it is not so, for people
    # it is not right in the running process, but will be after the node's next start
    after_restart: bool = False
    # that make it right; none if it is, or if this program cannot make it so
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A part that the host does not have, or the whole tunable, with the reason."""

    of: str = ""
    why: str


class Tunable(ABC):
    """One setting of a host that can be made right."""

    name: str  # in profiles, tables and the journal
    allowed: range | tuple[str, ...]  # the words that a profile may want, where `valid` needs no more

    @property
    @abstractmethod
    def reads(self) -> FactReads:
        """The facts to read for it."""

    def valid(self, setting: TuningSetting) -> str | None:
        """The fault in a profile's value; None if it is valid. Called when the profile is loaded."""
        return self.fault(setting.wanted)

    def fault(self, wanted: object) -> str | None:
        """Why a value is not allowed; None if it is."""
        allowed = self.allowed
        if not isinstance(allowed, range):
            some = f"one of {', '.join(allowed)}" if len(allowed) > 1 else allowed[0]
            return None if wanted in allowed else f"must be {some}"
        if isinstance(wanted, str) and is_number(wanted) and int(wanted) in allowed:
            return None
        steps = f", in steps of {allowed.step} (a page)" if allowed.step > 1 else ""
        return f"must be a whole number from {allowed[0]} to {allowed[-1]}{steps}"

    @abstractmethod
    def parts(
        self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile
    ) -> Iterable[Part | Absent]:
        """Its parts on a host, with their changes, in the order in which they have to be made."""

    def line(self, _setting: TuningSetting) -> str:
        """Its line of the boot script; empty for what a file or service of its own sets at boot."""
        return ""

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """Its state now, with the changes that would make it right."""
        parts = tuple(self.parts(facts, setting, profile))
        there = [part for part in parts if isinstance(part, Part)]
        reasons = [_reason(part.of, part.detail) for part in there]
        reasons += [_reason(part.of, part.why) for part in parts if isinstance(part, Absent)]
        if not there:
            return unchanged(setting, Verdict.NOT_APPLICABLE, _said(reasons))
        changes = tuple(change for part in there for change in part.changes)
        right = all(part.running is True or part.after_restart for part in there)
        verdict = Verdict.DRIFT if changes else Verdict.OK if right else Verdict.UNKNOWN
        if verdict is Verdict.UNKNOWN and not any(reasons):
            reasons.append("it is not as wanted, and this program cannot change it")
        return TunableState(
            tunable=self.name,
            wanted=_joined((part.wanted, part.of) for part in there),
            running=_joined((part.found, part.of) for part in there),
            at_boot=_joined((part.at_boot, part.of) for part in there if part.at_boot),
            verdict=verdict,
            detail=_said(reasons),
            changes=changes,
            on_failure=setting.on_failure,
            restart_needed=right and any(part.after_restart for part in there),
        )


def unchanged(setting: TuningSetting, verdict: Verdict, why: str) -> TunableState:
    """The state of a tunable that the host does not have, or that could not be read."""
    return TunableState(
        tunable=setting.tunable,
        wanted=shown(setting),
        running="",
        at_boot="",
        verdict=verdict,
        detail=why,
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


def header(name: str) -> str:
    """The first line of every file of this program."""
    return f"# Written by orchestrate for {name}; `orchestrate tune revert` takes it away again.\n"


def own_file(facts: HostFacts, path: str, text: str, reload: Reload = Reload.NONE) -> FileChange | None:
    """The change that writes a file of this program; None if the file there cannot be restored later.

    Other files are never changed, but for the program's own lines in Riak's.
    """
    found = facts.exact(path)
    if isinstance(found, Unknown):
        return None
    return FileChange(path=path, found=found, wanted=text, reload=reload)
