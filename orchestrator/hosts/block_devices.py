"""Maps data paths to exactly the whole disks that carry them. Pure.

The path's mount gives `major:minor`, and /sys/dev/block gives the device. A partition leads to its disk. A
stacked device (LVM, RAID, multipath) leads to every device below it. A device with nothing below it is a
leaf. File systems without such a number are read by their own rules: btrfs by its devices, an overlay by its
writable folder. A loop device is a leaf: the disk under its file carries other files too, so it is not tuned.

A path that cannot be followed to its disks is `Unknown`: a wrong disk would be worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.block_tables import BlockTables, Mount
from orchestrator.model.host_facts import BlockDevice
from orchestrator.model.reading import Reading, Unknown

NO_DISK: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs", "hugetlbfs"})
"""File systems in memory."""
REMOTE: Final = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ceph",
            "9p",
            "virtiofs",
            "lustre",
            "gpfs",
            "beegfs",
            "afs",
        ),
        *("fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.ceph-fuse"),
    }
)
"""File systems whose disks belong to another machine."""
_ANONYMOUS: Final = "0"
_DEPTH: Final = 16
"""Limit of devices on devices: deeper than any real stack, and a way out of a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    name: str
    through: tuple[str, ...] = ()
    multipath: str = ""


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that holds a path without symbolic links; None if mountinfo does not show it.

    It follows the kernel: from each mount to the first mount made on it along the path. A mount hides the
    mounts deeper in the tree that it covers. Of two mounts on one point, the later hides the earlier.
    """
    numbers = {mount.number for mount in mounts if mount.number != mount.parent}
    holder: Mount | None = None
    for _ in mounts:
        above = [
            mount
            for mount in mounts
            if _lies_on(mount, holder, numbers) and f"{path}/".startswith(f"{mount.where.rstrip('/')}/")
        ]
        if not above:
            break
        nearest = min(len(mount.where) for mount in above)
        holder = [mount for mount in above if len(mount.where) == nearest][-1]
    return holder


def _lies_on(mount: Mount, holder: Mount | None, numbers: set[int]) -> bool:
    if holder is None:  # the first mounts are on a parent that this process cannot see
        return mount.parent not in numbers or mount.parent == mount.number
    return mount.parent == holder.number and mount is not holder


def leaf_disks(real: Mapping[str, Reading[str]], tables: BlockTables) -> Reading[tuple[BlockDevice, ...]]:
    """The disks behind data paths, by name.

    Args:
        real: each data path without its symbolic links, as the host resolved it.
        tables: the host's mounts and devices.
    """
    found: dict[str, list[tuple[str, _Leaf]]] = {}
    unread: list[str] = []
    for path, where in real.items():
        leaves = where if isinstance(where, Unknown) else _of_path(where, tables)
        if isinstance(leaves, Unknown):
            unread.append(f"{path}: {leaves.reason}")
            continue
        for leaf in leaves:
            found.setdefault(leaf.name, []).append((path, leaf))
    if unread:
        return Unknown(reason="; ".join(unread))
    return tuple(_device(name, parts, tables) for name, parts in sorted(found.items()))


def mount_points(real: Mapping[str, Reading[str]], tables: BlockTables) -> Reading[Mapping[str, str]]:
    """The mount point of each data path; the arguments are those of `leaf_disks`."""
    found: dict[str, str] = {}
    for path, where in real.items():
        if isinstance(where, Unknown):
            return Unknown(reason=f"{path}: {where.reason}")
        mount = mount_of(where, tables.mounts)
        if mount is None:
            return Unknown(reason=f"{path}: no mount that it lies on is shown")
        found[path] = mount.where
    return found


def _device(name: str, parts: Sequence[tuple[str, _Leaf]], tables: BlockTables) -> BlockDevice:
    return BlockDevice(
        name=name,
        rotational=tables.rotational.get(name),
        data_paths=tuple(dict.fromkeys(path for path, _ in parts)),
        through=tuple(dict.fromkeys(each for _, leaf in parts for each in leaf.through)),
        tops=tuple(dict.fromkeys(_top(leaf, tables) for _, leaf in parts)),
        multipath=next((leaf.multipath for _, leaf in parts if leaf.multipath), ""),
    )


def _top(leaf: _Leaf, tables: BlockTables) -> str:
    """The device under the file system; of a partition, its disk."""
    top = leaf.through[0] if leaf.through else leaf.name
    return tables.disks.get(top, top)


def _of_path(path: str, tables: BlockTables) -> Reading[tuple[_Leaf, ...]]:
    mount = mount_of(path, tables.mounts)
    return Unknown(reason="no mount that it lies on is shown") if mount is None else _of_mount(mount, tables)


def _of_mount(mount: Mount, tables: BlockTables) -> Reading[tuple[_Leaf, ...]]:
    if mount.device.partition(":")[0] != _ANONYMOUS:
        name = tables.names.get(mount.device)
        if name is None:
            return Unknown(
                reason=f"{mount.where} is on device {mount.device}, which /sys/dev/block does not show"
            )
        return _leaves(_Leaf(name=name), tables)
    match mount.fs:
        case fs if fs in NO_DISK or fs in REMOTE:
            return ()
        case "btrfs":
            return _of_btrfs(mount, tables)
        case "overlay":
            return _of_overlay(mount, tables)
        case "zfs":
            return Unknown(
                reason=f"{mount.where} is the ZFS dataset {mount.source}: its pool's disks are unknown"
            )
        case fs:
            return Unknown(reason=f"{mount.where} is {fs}, which shows no block device ({mount.source})")


def _of_btrfs(mount: Mount, tables: BlockTables) -> Reading[tuple[_Leaf, ...]]:
    name = tables.sources.get(mount.source, "")
    if name not in tables.names.values():
        return Unknown(reason=f"{mount.where} is btrfs on {mount.source}, which leads to no known device")
    together = next((names for names in tables.btrfs if name in names), frozenset({name}))
    found: list[_Leaf] = []
    for each in sorted(together):
        leaves = _leaves(_Leaf(name=each), tables)
        if isinstance(leaves, Unknown):
            return leaves
        found += leaves
    return tuple(found)


def _of_overlay(mount: Mount, tables: BlockTables) -> Reading[tuple[_Leaf, ...]]:
    upper = mount.upper
    if upper is None:
        return Unknown(reason=f"{mount.where} is an overlay without a writable folder")
    # A container sees the host's path of its writable folder. Inside the container that may be another place.
    below = mount_of(upper, tables.mounts) if upper in tables.uppers and upper.startswith("/") else None
    if below is None or below.fs == "overlay":
        return Unknown(
            reason=f"{mount.where} is an overlay that writes to {upper}, which cannot be seen from here"
        )
    return _of_mount(below, tables)


def _leaves(at: _Leaf, tables: BlockTables) -> Reading[tuple[_Leaf, ...]]:
    """The whole devices under a device; the device itself if there is nothing below it."""
    if at.name not in tables.names.values():
        return Unknown(reason=f"device {at.name} is not in /sys/dev/block")
    if len(at.through) > _DEPTH:
        return Unknown(reason=f"devices on devices without an end: {' '.join(at.through)}")
    disk = tables.disks.get(at.name)
    below = (disk,) if disk is not None else tables.slaves.get(at.name, ())
    if not below:
        if at.name in tables.stacked:
            return Unknown(reason=f"the devices below {at.name} are not shown")
        return (at,)
    found: dict[str, _Leaf] = {}
    for name in below:
        multipath = at.name if at.name in tables.multipath else at.multipath
        leaves = _leaves(
            _Leaf(name=name, through=(*at.through, at.name), multipath=multipath),
            tables,
        )
        if isinstance(leaves, Unknown):
            return leaves
        for leaf in leaves:
            found.setdefault(leaf.name, leaf)
    return tuple(found.values())
