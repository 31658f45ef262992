"""Block devices and mounts of a host tree, as sysfs and /proc/self/mountinfo show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.fakes.host_tree import HostTree

SINGLE_QUEUE = "noop deadline [cfq]"
MULTI_QUEUE = "[none] mq-deadline kyber bfq"
_MAJORS = {"sd": 8, "md": 9, "loop": 7, "dm": 253, "nvme": 259, "vd": 254}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """One line of mountinfo."""

    number: int
    parent: int
    device: str
    root: str
    where: str
    options: str
    fs: str
    source: str

    def line(self) -> str:
        where, root, source, options = map(_escaped, (self.where, self.root, self.source, self.options))
        numbers = f"{self.number} {self.parent} {self.device}"
        return f"{numbers} {root} {where} rw,relatime shared:1 - {self.fs} {source} {options}\n"


@dataclass(slots=True)
class BlockTree:
    """Builds devices on devices and mounts them; every method that makes one returns its kernel name."""

    tree: HostTree
    numbers: dict[str, str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    mounts: list[Mounted] = field(default_factory=list)

    def disk(
        self,
        name: str,
        *,
        rotational: bool = True,
        scheduler: str = MULTI_QUEUE,
        read_ahead_kb: int = 128,
        nr_requests: int = 128,
        home: str | None = None,
    ) -> str:
        """A whole device with a request queue.

        Args:
            name: in /sys/block.
            rotational: what the kernel says.
            scheduler: the line of queue/scheduler.
            read_ahead_kb: of the queue.
            nr_requests: of the queue.
            home: the device's folder under /sys/devices, where it is not the usual one.
        """
        home = home or f"/sys/devices/pci0000:00/{name}-host/block/{name}"
        self._device(name, home)
        self.tree.link(f"/sys/block/{name}", home)
        self.tree.folder(f"{home}/slaves")
        self.tree.folder(f"{home}/holders")
        for key, value in {
            "rotational": int(rotational),
            "scheduler": scheduler,
            "read_ahead_kb": read_ahead_kb,
            "nr_requests": nr_requests,
        }.items():
            self.tree.write(f"{home}/queue/{key}", f"{value}\n")
        return name

    def partition(self, disk: str, number: int = 1) -> str:
        """A partition: `sda1`, `nvme0n1p1`."""
        name = f"{disk}{'p' if disk[-1].isdigit() else ''}{number}"
        self._device(name, f"{self.homes[disk]}/{name}")
        self.tree.write(f"{self.homes[disk]}/{name}/partition", f"{number}\n")
        return name

    def mapped(self, label: str, on: Sequence[str], *, uuid: str) -> str:
        """A device-mapper device: `/dev/mapper/LABEL`, on other devices."""
        name = self._stacked(
            f"dm-{sum(1 for each in self.numbers if each.startswith('dm-'))}", on, scheduler="none"
        )
        self.tree.write(f"{self.homes[name]}/dm/uuid", f"{uuid}\n")
        self.tree.write(f"{self.homes[name]}/dm/name", f"{label}\n")
        self.tree.link(f"/dev/mapper/{label}", f"/dev/{name}")
        return name

    def lvm(self, label: str, on: Sequence[str]) -> str:
        """A logical volume."""
        return self.mapped(label, on, uuid=f"LVM-{label * 3}")

    def multipath(self, label: str, on: Sequence[str], *, scheduler: str = MULTI_QUEUE) -> str:
        """A multipath device; its components are paths to one disk."""
        name = self.mapped(label, on, uuid=f"mpath-{label}")
        self.tree.write(f"{self.homes[name]}/queue/scheduler", f"{scheduler}\n")
        return name

    def md(self, name: str, on: Sequence[str]) -> str:
        """A software RAID."""
        self._stacked(name, on, scheduler="none")
        self.tree.write(f"{self.homes[name]}/md/level", "raid1\n")
        return name

    def loop(self, name: str, backing: str) -> str:
        """A loop device over a file."""
        self.disk(name, home=f"/sys/devices/virtual/block/{name}", scheduler=MULTI_QUEUE)
        self.tree.write(f"{self.homes[name]}/loop/backing_file", f"{backing}\n")
        return name

    def mount(
        self,
        device: str,
        where: str,
        *,
        fs: str = "ext4",
        source: str | None = None,
        root: str = "/",
        options: str = "rw",
    ) -> None:
        """Mount a device; `root` is the part of it that is mounted (a bind mount)."""
        number, source = self.numbers[device], source or f"/dev/{device}"
        self._mount(number, where, fs=fs, source=source, options=options, root=root)

    def mount_without_device(
        self, where: str, *, fs: str, source: str, options: str = "rw", root: str = "/"
    ) -> None:
        """Mount something that has no block device number of its own: tmpfs, nfs, overlay, btrfs, zfs."""
        number = f"0:{40 + len(self.mounts)}"
        self._mount(number, where, fs=fs, source=source, options=options, root=root)

    def btrfs(self, where: str, devices: Sequence[str], *, uuid: str, source: str | None = None) -> None:
        """A btrfs over several devices."""
        for name in devices:
            self.tree.link(f"/sys/fs/btrfs/{uuid}/devices/{name}", self.homes[name])
        self.mount_without_device(where, fs="btrfs", source=source or f"/dev/{devices[0]}", root="/@data")

    def overlay(self, where: str, upper: str) -> None:
        """An overlay with its writable folder."""
        options = f"rw,lowerdir=/lower,upperdir={upper},workdir=/work"
        self.mount_without_device(where, fs="overlay", source="overlay", options=options)

    def build(self, line: str) -> None:
        """A line of `tests/data/tuning/disks.txt`: one of these methods, or of the tree's, and its words."""
        verb, *words = line.split()
        made: dict[str, Callable[..., object]] = {
            "disk": self.disk,
            "nvme": lambda name: self.disk(
                name, home=f"/sys/devices/virtual/nvme-subsystem/{name[:5]}/{name}"
            ),
            "partition": lambda disk, number="1": self.partition(disk, int(number)),
            "md": lambda name, *on: self.md(name, on),
            "lvm": lambda label, *on: self.lvm(label, on),
            "multipath": lambda label, *on: self.multipath(label, on),
            "mapped": lambda label, *on: self.mapped(label, on, uuid=f"part1-{label}"),
            "slave": lambda above, below: self.tree.link(
                f"{self.homes[above]}/slaves/{below}", self.homes[below]
            ),
            "loop": self.loop,
            "btrfs": lambda where, uuid, *on: self.btrfs(where, on, uuid=uuid),
            "overlay": self.overlay,
            "mount": self.mount,
            "bind": lambda device, where, root: self.mount(device, where, root=root),
            "bare": lambda where, fs, source: self.mount_without_device(where, fs=fs, source=source),
            "folder": self.tree.folder,
            "link": self.tree.link,
            "outside": lambda path, target: self.tree.at(path).symlink_to(target),
            "unnumbered": lambda disk: self.tree.remove(f"/sys/dev/block/{self.numbers[disk]}"),
        }
        made[verb](*words)

    def _stacked(self, name: str, on: Sequence[str], *, scheduler: str) -> str:
        home = f"/sys/devices/virtual/block/{name}"
        self.disk(name, home=home, scheduler=scheduler)
        for below in on:
            self.tree.link(f"{home}/slaves/{below}", self.homes[below])
            self.tree.link(f"{self.homes[below]}/holders/{name}", home)
        return name

    def _device(self, name: str, home: str) -> None:
        kind = re.match(r"[a-z]+", name)
        major = _MAJORS.get(kind[0][:2] if kind and kind[0][:2] in _MAJORS else kind[0] if kind else "", 240)
        number = f"{major}:{len(self.numbers)}"
        self.numbers[name], self.homes[name] = number, home
        self.tree.write(f"{home}/dev", f"{number}\n")
        self.tree.write(f"/dev/{name}", "")
        self.tree.link(f"/sys/dev/block/{number}", home)
        self.tree.link(f"/sys/class/block/{name}", home)

    def _mount(self, device: str, where: str, *, fs: str, source: str, options: str, root: str) -> None:
        made = Mounted(
            number=20 + len(self.mounts),
            parent=self._holder(where),
            device=device,
            root=root,
            where=where,
            options=options,
            fs=fs,
            source=source,
        )
        self.mounts.append(made)
        self.tree.folder(where)
        self.tree.write("/proc/self/mountinfo", "".join(mounted.line() for mounted in self.mounts))

    def _holder(self, where: str) -> int:
        """The mount that a path lies on now: every mount was made over what was there before it."""
        holder = 1
        while True:
            above = [
                mounted
                for mounted in self.mounts
                if mounted.parent == holder and f"{where}/".startswith(mounted.where.rstrip("/") + "/")
            ]
            if not above:
                return holder
            holder = min(above, key=lambda mounted: len(mounted.where)).number


def _escaped(text: str) -> str:
    return re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", text)
