"""What one round trip to a host tells of it: the system, files, services, and the disks behind its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from orchestrator.model.reading import NOT_READ, Reading, Unknown


class InitSystem(Enum):
    """Who starts services on a host."""

    SYSTEMD = "systemd"
    SYSV = "sysv"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """What the service manager says of a service.

    Attributes:
        present: whether there is such a service at all.
    """

    present: bool
    running: bool = False
    enabled: bool = False
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """A whole disk (or loop device) that carries a data path.

    Attributes:
        name: in `/sys/block`.
        rotational: as the kernel says, which is wrong for many virtual disks; None where it says nothing.
        data_paths: those that it carries a part of.
        through: what stands between, from the file system down (`dm-0`, `md0`, `sda1`).
        multipath: the multipath device (`dm-2`) that it is a path of; empty when of none. The kernel keeps
            the scheduler of such a disk at `none`: the choice is that of the multipath device's own queue.
    """

    name: str
    rotational: bool | None = None
    data_paths: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    multipath: str = ""


NOT_TEXT: Final = "\ufffd"
"""Stands in a text where the file holds bytes that are not UTF-8."""

FileText: TypeAlias = str | Unknown | None
"""The text of a file; None where there is none; `Unknown` where it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Everything that tunables, and people, need to know of a host.

    Attributes:
        kernel: `uname -r`.
        distribution: ID of os-release (`rhel`, `debian`), or told from older files.
        memory: bytes.
        virtualisation: `none`, `kvm`, `docker`, …; empty where it could not be told.
        command_line: the words of the kernel's command line.
        files: by path, as the tunables asked for them: a glob gives every path that it matches. A path that
            was asked for and is not in it does not exist. A glob whose folder could not be listed stands in
            it itself, as `Unknown`.
        not_executable: scripts of the boot that nobody may execute, so that it passes them over.
        services: by name, as the tunables asked for them.
        tuned: the active profile of tuned or ktune; None = none, or no tuned.
        devices: the disks behind the data paths.
        unit: the node's own service, without `.service`; empty when it is a container or a command.
    """

    kernel: str
    distribution: str
    distribution_version: str
    init: InitSystem
    numa_nodes: int
    cpus: int
    memory: int
    virtualisation: str
    command_line: tuple[str, ...]
    files: Mapping[str, FileText] = field(default_factory=dict)
    not_executable: Reading[frozenset[str]] = frozenset()
    services: Mapping[str, Reading[ServiceFacts]] = field(default_factory=dict)
    tuned: Reading[str | None] = NOT_READ
    devices: Reading[tuple[BlockDevice, ...]] = NOT_READ
    data_paths: tuple[str, ...] = ()
    unit: str = ""

    def text(self, path: str) -> FileText:
        """A file as read; None when it does not exist (or was not asked for).

        A glob that could not be listed answers for every path that it would match: what nobody looked for is
        not absent.
        """
        if path in self.files:
            return self.files[path]
        unread = (
            text for glob, text in self.files.items() if isinstance(text, Unknown) and fnmatchcase(path, glob)
        )
        return next(unread, None)

    def exact(self, path: str) -> FileText:
        """As `text`, but `Unknown` where the text is not the file's very bytes, and could not be put back."""
        found = self.text(path)
        if isinstance(found, str) and (NOT_TEXT in found or "\0" in found):
            return Unknown(reason=f"{path} is no text in UTF-8: its text could not be restored")
        return found

    def matching(self, prefix: str, suffix: str = "") -> tuple[str, ...]:
        """Paths that were read and begin and end so, in order."""
        return tuple(sorted(path for path in self.files if path.startswith(prefix) and path.endswith(suffix)))
