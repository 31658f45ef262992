"""Facts read from a host in one round trip: system, files, services and the disks behind its data."""

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
    """What the service manager reports of a service.

    Attributes:
        present: whether the service exists.
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
        rotational: the kernel's report, which is wrong for many virtual disks; None without a report.
        data_paths: the data paths that use this disk.
        tops: the whole devices under the file systems (`dm-0`), which decide about read-ahead; the disk
        itself
            where there is no layer between.
        through: the layers between file system and disk, from the top (`dm-0`, `md0`, `sda1`).
        multipath: the multipath device (`dm-2`) of which this disk is a path; empty if there is none. The
            kernel keeps the scheduler of such a disk at `none`; set it on the multipath device instead.
    """

    name: str
    rotational: bool | None = None
    data_paths: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    tops: tuple[str, ...] = ()
    multipath: str = ""


NOT_TEXT: Final = "\ufffd"
"""Replaces bytes of a file that are not UTF-8."""

FileText: TypeAlias = str | Unknown | None
"""The text of a file; None where the file does not exist; `Unknown` where it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Everything that tunables and people need of a host.

    Attributes:
        kernel: `uname -r`.
        distribution: ID of os-release (`rhel`, `debian`), or derived from older files.
        memory: bytes.
        virtualisation: `none`, `kvm`, `docker`, …; empty where it is not known.
        command_line: the words of the kernel's command line.
        files: by path, as the tunables requested them; a glob adds every path that it matches. A requested
            path that is missing here does not exist. A glob whose folder could not be listed is itself a key,
            with the value `Unknown`.
        services: by name, as the tunables requested them.
        tuned: the active profile of tuned or ktune; None = none, or no tuned.
        devices: the disks behind the data paths.
        mounts: the mount point of each data path.
        limits: of the node's unit, as systemd shows them (`LimitNOFILE`); empty if it shows no such unit.
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
    services: Mapping[str, Reading[ServiceFacts]] = field(default_factory=dict)
    tuned: Reading[str | None] = NOT_READ
    devices: Reading[tuple[BlockDevice, ...]] = NOT_READ
    mounts: Reading[Mapping[str, str]] = NOT_READ
    limits: Mapping[str, str] = field(default_factory=dict)
    data_paths: tuple[str, ...] = ()
    unit: str = ""

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
