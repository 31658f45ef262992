"""What is wanted of a host's kernel and services, what was found there, and the changes between the two.

A tunable never acts. It reads facts and names *changes*; each change knows what it found, so its inverse is a
value too: it can be journalled before anything is done, and undone by any later program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

Wanted: TypeAlias = str | Mapping[str, str]
"""What a profile wants of a tunable: a word, or a word by kind of device (`ssd`, `rotational`)."""


class OnFailure(Enum):
    """What a tunable that cannot be set does to a run. Either way the node is started."""

    STOP = "stop"
    WARN = "warn"


class Reload(Enum):
    """Who has to be told that a file was written or taken away."""

    NOBODY = "nobody"
    SYSTEMD = "systemd"
    UDEV = "udev"


class Verdict(Enum):
    """How a tunable stands on a host.

    `OK` and `DRIFT` are about the running system and, where the profile persists, the next boot.
    `NOT_APPLICABLE` says that the host has no such thing (no SSD behind the data, no numad installed): fine.
    `UNKNOWN` says that it could not be read: never taken for fine.
    """

    OK = "ok"
    DRIFT = "drift"
    NOT_APPLICABLE = "not_applicable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSetting:
    """One line of a profile.

    Attributes:
        why: the reason for the value, for people.
        source: who says so.
    """

    tunable: str
    wanted: Wanted
    on_failure: OnFailure = OnFailure.WARN
    why: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningProfile:
    """What is wanted of every host of a cluster, in the order of the profile.

    Attributes:
        persist: whether it is made to last over a boot.
        devices: what a block device is where the kernel is wrong about it, by name: `ssd` or `rotational`.
    """

    name: str
    applies_to: str
    settings: tuple[TuningSetting, ...]
    persist: bool = True
    devices: Mapping[str, str] = field(default_factory=dict)

    def on_failure(self, tunable: str) -> OnFailure:
        """What this tunable does to a run when it cannot be set."""
        found = (setting.on_failure for setting in self.settings if setting.tunable == tunable)
        return next(found, OnFailure.WARN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A value of the running kernel, at a path under /proc/sys or /sys. It does not outlive a boot."""

    path: str
    found: str
    wanted: str
    change: Literal["value"] = "value"

    def undone(self) -> ValueChange:
        """The change that puts back what was found."""
        return ValueChange(path=self.path, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A whole file of ours: its text, or None where there is none."""

    path: str
    found: str | None
    wanted: str | None
    reload: Reload = Reload.NOBODY
    change: Literal["file"] = "file"

    def undone(self) -> FileChange:
        """The change that puts back what was found."""
        return FileChange(path=self.path, found=self.wanted, wanted=self.found, reload=self.reload)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChange:
    """Our marked lines at the end of a file that others write too (`/etc/sysctl.conf`, rc.local, riak.conf).

    Attributes:
        name: in the markers, so that each tunable has lines of its own.
        found: the lines between our markers; None where there are none.
    """

    path: str
    name: str
    found: str | None
    wanted: str | None
    change: Literal["block"] = "block"

    def undone(self) -> BlockChange:
        """The change that puts back what was found."""
        return BlockChange(path=self.path, name=self.name, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMode:
    """Whether a service runs, starts at boot, and may be started at all."""

    running: bool
    enabled: bool
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """A service that is stopped and kept from starting, or the other way round."""

    service: str
    found: ServiceMode
    wanted: ServiceMode
    change: Literal["service"] = "service"

    def undone(self) -> ServiceChange:
        """The change that puts back what was found."""
        return ServiceChange(service=self.service, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedChange:
    """The active profile of tuned (or ktune on RHEL 6); None = none."""

    found: str | None
    wanted: str | None
    change: Literal["tuned"] = "tuned"

    def undone(self) -> TunedChange:
        """The change that puts back what was found."""
        return TunedChange(found=self.wanted, wanted=self.found)


Change: TypeAlias = ValueChange | FileChange | BlockChange | ServiceChange | TunedChange
"""Told apart by their `change` wherever they are written down."""


def subject_of(change: Change) -> str:
    """What is changed, as the ledger keeps it apart and people read it."""
    match change:
        case ValueChange(path=path) | FileChange(path=path):
            return path
        case BlockChange(path=path, name=name):
            return f"{path} [{name}]"
        case ServiceChange(service=service):
            return f"service {service}"
        case TunedChange():
            return "tuned profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunableState:
    """One tunable on one host, as read, and what would make it right.

    Attributes:
        wanted: as people read it, with the device where there is one (`none (sdb)`).
        at_boot: what the next boot will make of it, as far as it can be told.
        detail: why, where the verdict alone does not say it.
        changes: in the order in which they have to be made; empty unless the verdict is `DRIFT`.
    """

    tunable: str
    wanted: str
    running: str
    at_boot: str
    verdict: Verdict
    detail: str = ""
    changes: tuple[Change, ...] = ()
    on_failure: OnFailure = OnFailure.WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTuning:
    """How a host stands to a profile, tunable by tunable in the profile's order."""

    states: tuple[TunableState, ...]

    @property
    def drifted(self) -> tuple[TunableState, ...]:
        """Those that there is something to do about."""
        return tuple(state for state in self.states if state.verdict is Verdict.DRIFT)

    @property
    def unread(self) -> tuple[TunableState, ...]:
        """Those that could not be read."""
        return tuple(state for state in self.states if state.verdict is Verdict.UNKNOWN)
