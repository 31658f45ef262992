"""A host's block devices and mounts as tables, from the texts of sysfs and /proc/self/mountinfo. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_LINK: Final = re.compile(r"(\d+:\d+) -> (\S.*)$")
_MARKER: Final = re.compile(r"(\d+:\d+)/(partition|dm|md|slaves)(?:/(.+))?")
_VALUE: Final = re.compile(r"/sys/block/([^/:]+)/(dm/uuid|queue/rotational):(.*)")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_MULTIPATH: Final = "mpath-"
_HEAD_FIELDS: Final = 6
_TAIL_FIELDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo, see proc_pid_mountinfo(5).

    Attributes:
        device: `major:minor`; with major number 0, the mount has no block device of its own.
        where: the mount point.
        source: the mounted source, as the file system writes it.
        options: of the file system, as they are written.
    """

    number: int
    parent: int
    device: str
    where: str
    fs: str
    source: str
    options: str = ""

    @property
    def upper(self) -> str | None:
        """The writable folder of an overlay; None if it has none."""
        for option in self.options.split(","):  # a comma in a value is written as an octal number
            name, _, value = option.partition("=")
            if name == "upperdir":
                return re.sub(r"\\(.)", r"\1", _plain(value))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTables:
    """The kernel's block devices and mounts. Devices are named as in /sys/block.

    Attributes:
        names: by `major:minor`.
        disks: the whole device of each partition.
        slaves: the devices below each stacked device.
        stacked: devices made by device-mapper or md: there is always a device below them.
        multipath: devices of device-mapper that join several paths to one disk.
        rotational: the kernel's flag; a device without a request queue is missing here.
        btrfs: the devices of each btrfs file system.
        sources: device names of the mount sources whose mounts show no number.
        uppers: writable folders of overlays that are visible where the tables were read.
    """

    mounts: tuple[Mount, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, str] = field(default_factory=dict)
    slaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stacked: frozenset[str] = frozenset()
    multipath: frozenset[str] = frozenset()
    rotational: Mapping[str, bool] = field(default_factory=dict)
    btrfs: tuple[frozenset[str], ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    uppers: frozenset[str] = frozenset()


def read_mounts(text: str) -> tuple[Mount, ...]:
    """The mounts in the order in which they were made; lines that cannot be parsed are left out."""
    return tuple(mount for line in text.split("\n") if (mount := _mount(line)) is not None)


def _mount(line: str) -> Mount | None:
    head, dash, tail = line.partition(" - ")
    first, last = head.split(" "), tail.split(" ")
    if not dash or len(first) < _HEAD_FIELDS or len(last) < _TAIL_FIELDS:
        return None
    if not first[0].isdigit() or not first[1].isdigit():
        return None
    return Mount(
        number=int(first[0]),
        parent=int(first[1]),
        device=first[2],
        where=_plain(first[4]),
        fs=last[0],
        source=_plain(last[1]),
        options=" ".join(last[_TAIL_FIELDS:]),
    )


def _plain(text: str) -> str:
    """A field with the kernel's octal numbers turned into blanks, line ends and backslashes."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def read_tables(
    *,
    mounts: str,
    links: str,
    markers: Sequence[str],
    values: str,
    btrfs: Sequence[str],
    sources: Sequence[str],
    uppers: Sequence[str],
) -> BlockTables:
    """The tables of one host.

    Args:
        mounts: /proc/self/mountinfo.
        links: `ls -l /sys/dev/block`.
        markers: `M:m/partition`, `M:m/dm`, `M:m/md` and `M:m/slaves/NAME`, as far as they exist.
        values: lines of `grep`, path and value: dm/uuid and queue/rotational of everything in /sys/block.
        btrfs: `UUID/devices/NAME`.
        sources: lines of a mount source and the path that it leads to.
        uppers: the writable folders of overlays that are visible.
    """
    targets = {found[1]: found[2].split("/") for line in links.split("\n") if (found := _LINK.search(line))}
    names = {number: target[-1] for number, target in targets.items()}
    marked = [match for line in markers if (match := _MARKER.fullmatch(line)) and match[1] in names]
    slaves: dict[str, list[str]] = {}
    for match in marked:
        if match[2] == "slaves" and match[3]:
            slaves.setdefault(names[match[1]], []).append(match[3])
    told = [match for line in values.split("\n") if (match := _VALUE.search(line))]
    return BlockTables(
        mounts=read_mounts(mounts),
        names=names,
        disks={
            names[match[1]]: targets[match[1]][-2]
            for match in marked
            if match[2] == "partition" and len(targets[match[1]]) > 1
        },
        slaves={name: tuple(sorted(below)) for name, below in slaves.items()},
        stacked=frozenset(names[match[1]] for match in marked if match[2] in ("dm", "md")),
        multipath=frozenset(
            match[1] for match in told if match[2] == "dm/uuid" and match[3].startswith(_MULTIPATH)
        ),
        rotational={
            match[1]: match[3].strip() == "1"
            for match in told
            if match[2] == "queue/rotational" and match[3].strip() in ("0", "1")
        },
        btrfs=_file_systems(btrfs),
        sources={
            _plain(source): path.rpartition("/")[2]
            for source, _, path in (line.partition(" ") for line in sources)
            if path
        },
        uppers=frozenset(uppers),
    )


def _file_systems(lines: Sequence[str]) -> tuple[frozenset[str], ...]:
    devices: dict[str, set[str]] = {}
    for line in lines:
        uuid, _, name = line.partition("/devices/")
        if name:
            devices.setdefault(uuid, set()).add(name)
    return tuple(frozenset(names) for _, names in sorted(devices.items()))
