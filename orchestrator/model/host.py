"""How machines are reached, and the facts read from one in one round trip: system, files, services, disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from orchestrator.model.reading import NOT_READ, Reading, Unknown


class InitSystem(Enum):
    """The system that starts services on a host."""

    SYSTEMD = "systemd"
    SYSV = "sysv"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """What the service manager reports of a service."""

    present: bool  # whether the service exists
    running: bool = False
    enabled: bool = False
    masked: bool = False


TOP: Final = "top"
"""The device under a file system, which decides about read-ahead; of a partition, its disk."""
LEAF: Final = "leaf"
"""A disk, or a loop device."""
PATH: Final = "path"
"""A path to a multipath disk: the kernel keeps its scheduler at `none`."""
MULTIPATH: Final = "multipath"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """A whole device from the file system of a data path down to its disks, as the host names it."""

    name: str  # in `/sys/block`
    # `TOP`, `LEAF`, `PATH`, `MULTIPATH`: a disk without layers above it is a top and a leaf
    roles: tuple[str, ...] = (TOP, LEAF)
    # the kernel's report of its disks, which is wrong for many virtual disks; None without a report
    rotational: bool | None = None
    data_paths: tuple[str, ...] = ()  # the data paths that use this device

    @property
    def is_disk(self) -> bool:
        """Whether there is no device below it."""
        return LEAF in self.roles or PATH in self.roles


NOT_TEXT: Final = "\ufffd"
"""Replaces bytes of a file that are not UTF-8."""

FileText: TypeAlias = str | Unknown | None
"""The text of a file; None where the file does not exist; `Unknown` where it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Everything that tunables and people need of a host."""

    init: InitSystem
    cpus: int  # logical; 0 where their number is not known
    memory: int  # bytes; 0 where its size is not known
    # by path, as the tunables requested them; a glob adds every path that it matches. A requested path that
    # is missing here does not exist. A glob whose folder could not be listed is itself a key, with the value
    # `Unknown`.
    files: Mapping[str, FileText] = field(default_factory=dict)
    # by name, as the tunables requested them
    services: Mapping[str, Reading[ServiceFacts]] = field(default_factory=dict)
    tuned: Reading[str | None] = NOT_READ  # the active profile of tuned or ktune; None = none, or no tuned
    devices: Reading[tuple[BlockDevice, ...]] = NOT_READ  # the devices behind the data paths
    mounts: Reading[Mapping[str, str]] = NOT_READ  # the mount point of each data path
    # of the node's unit, as systemd shows them (`LimitNOFILE`); empty if it shows no such unit
    limits: Mapping[str, str] = field(default_factory=dict)
    # soft limits of the node's running process, by their names in `/proc/PID/limits`; empty if it does not
    # run or is not known; `Unknown` if they could not be read
    process_limits: Reading[Mapping[str, str]] = field(default_factory=dict)
    data_paths: tuple[str, ...] = ()
    unit: str = ""  # the node's own service, without `.service`; empty when it is a container or a command

    def text(self, path: str) -> FileText:
        """The text of a file; None when it does not exist (or was not requested).

        If a glob could not be listed, every path that it would match is `Unknown`: an unread file is not an
        absent file.
        """
        if path in self.files:
            return self.files[path]
        unread = (
            text for glob, text in self.files.items() if isinstance(text, Unknown) and fnmatchcase(path, glob)
        )
        return next(unread, None)

    def exact(self, path: str) -> FileText:
        """Like `text`, but `Unknown` where the text is not the exact bytes and could not be restored."""
        found = self.text(path)
        if isinstance(found, str) and (NOT_TEXT in found or "\0" in found):
            return Unknown(reason=f"{path} is no text in UTF-8: its text could not be restored")
        return found

    def matching(self, prefix: str, suffix: str = "") -> tuple[str, ...]:
        """Paths that were read and have this prefix and suffix, in order."""
        return tuple(sorted(path for path in self.files if path.startswith(prefix) and path.endswith(suffix)))


# How machines are reached and services are run: the words of a cluster file.
# ------------------------------------


class Connect(Enum):
    """How commands reach a node's machine."""

    SSH = "ssh"
    OPENSSH = "openssh"
    LOCAL = "local"


class Manager(Enum):
    """The service manager of a node's process."""

    SYSTEMD = "systemd"
    SYSV = "sysv"
    DOCKER = "docker"
    COMMAND = "command"
