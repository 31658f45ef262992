"""The wanted settings of a host's kernel and services, the values found, and the changes between them.

A tunable never acts. It reads facts and names *changes*. Each change contains the value found, so its inverse
is a value too. It can be journalled before anything is done, and any later program can undo it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

Wanted: TypeAlias = str | Mapping[str, str]
"""The wanted value of a tunable: a word, or a word by kind of device (`ssd`, `rotational`)."""


class OnFailure(Enum):
    """What happens to a run when a tunable cannot be set. In either case the node is started."""

    STOP = "stop"
    WARN = "warn"


class Reload(Enum):
    """What has to be reloaded after a file was written or removed."""

    NONE = "nobody"  # the word in ledgers
    SYSTEMD = "systemd"
    INIT = "init"


BOOT: Final = "boot"
"""The script and the unit that set the values at each boot: a row of its own, beside the tunables."""


class Verdict(Enum):
    """Result of comparing a tunable with the host.

    `OK` and `DRIFT` are about the running system. The next boot has a verdict of its own, in the row `BOOT`.
    `NOT_APPLICABLE`: the host has no such thing (no SSD behind the data, no numad installed). This is fine.
    `UNKNOWN`: it could not be read. This never counts as fine.
    """

    OK = "ok"
    DRIFT = "drift"
    NOT_APPLICABLE = "not_applicable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSetting:
    """One line of a profile."""

    tunable: str
    wanted: Wanted
    on_failure: OnFailure = OnFailure.WARN
    why: str = ""  # the reason for the value, for people
    source: str = ""  # the document that recommends it


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningProfile:
    """The wanted settings of every host of a cluster, in the order of the profile."""

    name: str
    applies_to: str
    settings: tuple[TuningSetting, ...]
    persist: bool = True  # whether the settings have to survive a boot
    # kind of a block device (`ssd` or `rotational`) by name, where the kernel reports the wrong kind
    devices: Mapping[str, str] = field(default_factory=dict)

    def on_failure(self, tunable: str) -> OnFailure:
        """What happens to a run when this tunable cannot be set."""
        found = (setting.on_failure for setting in self.settings if setting.tunable == tunable)
        return next(found, OnFailure.WARN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A value of the running kernel, at a path under /proc/sys or /sys. A boot resets it."""

    path: str
    found: str
    wanted: str
    change: Literal["value"] = "value"

    def undone(self) -> ValueChange:
        """The change that restores the original value."""
        return ValueChange(path=self.path, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A whole file that the program owns: its text, or None where the file does not exist."""

    path: str
    found: str | None
    wanted: str | None
    reload: Reload = Reload.NONE
    change: Literal["file"] = "file"

    def undone(self) -> FileChange:
        """The change that restores the original file."""
        return FileChange(path=self.path, found=self.wanted, wanted=self.found, reload=self.reload)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChange:
    """The program's marked lines at the end of a shared file (riak.conf)."""

    path: str
    name: str  # part of the markers, so that each tunable has its own lines
    found: str | None  # the lines between our markers; None where there are none
    wanted: str | None
    change: Literal["block"] = "block"

    def undone(self) -> BlockChange:
        """The change that restores the original lines."""
        return BlockChange(path=self.path, name=self.name, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMode:
    """Whether a service runs, starts at boot, and may be started."""

    running: bool
    enabled: bool
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """A service that is stopped and kept from starting, or the reverse."""

    service: str
    found: ServiceMode
    wanted: ServiceMode
    change: Literal["service"] = "service"

    def undone(self) -> ServiceChange:
        """The change that restores the original mode."""
        return ServiceChange(service=self.service, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedChange:
    """The active profile of tuned (or ktune on RHEL 6); None = none."""

    found: str | None
    wanted: str | None
    change: Literal["tuned"] = "tuned"

    def undone(self) -> TunedChange:
        """The change that restores the original profile."""
        return TunedChange(found=self.wanted, wanted=self.found)


Change: TypeAlias = ValueChange | FileChange | BlockChange | ServiceChange | TunedChange
"""Distinguished by their `change` field in every serialized form."""


def subject_of(change: Change) -> str:
    """What is changed: the ledger's key, and readable for people."""
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
    """The reading of one tunable on one host, and the changes that would correct it."""

    tunable: str
    wanted: str  # for people, with the device where there is one (`none (sdb)`)
    running: str
    at_boot: str  # whether our unit sets it at the next boot, or what the tunable's own file or service says
    verdict: Verdict
    detail: str = ""  # the reason, where the verdict alone is not enough
    # in the order in which they have to be made; empty unless the verdict is `DRIFT`
    changes: tuple[Change, ...] = ()
    on_failure: OnFailure = OnFailure.WARN
    overridden: bool = False  # another node of the host sets another value after ours at the next boot
    # right from the node's next start on; its running process has an older value. No change can correct that,
    # so the verdict is that of the next start.
    restart_needed: bool = False

    @property
    def former(self) -> str:
        """The value before a change; of the next boot's script, which does not run now, its state there."""
        return self.running or self.at_boot


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTuning:
    """A host compared with a profile, one tunable at a time in the profile's order."""

    states: tuple[TunableState, ...]
    # text of the node's part of the boot script, by path; empty if nothing has to last
    part: Mapping[str, str] = field(default_factory=dict)

    @property
    def drifted(self) -> tuple[TunableState, ...]:
        """Tunables that need a change."""
        return tuple(state for state in self.states if state.changes)

    @property
    def restart_needed(self) -> tuple[TunableState, ...]:
        """Tunables that are right from the node's next start on; its running process has another value."""
        return tuple(state for state in self.states if state.restart_needed)

    @property
    def unread(self) -> tuple[TunableState, ...]:
        """Tunables that could not be read."""
        return tuple(state for state in self.states if state.verdict is Verdict.UNKNOWN)

    @property
    def overridden(self) -> tuple[TunableState, ...]:
        """Tunables that another node of the host sets to another value at the next boot."""
        return tuple(state for state in self.states if state.overridden)
