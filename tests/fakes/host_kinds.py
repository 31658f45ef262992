"""Hosts of the kinds that are out there, each with the defaults that slow large heaps down.

On each, `sda` (`vda`) holds the system and `sdb` (`nvme0n1`, `vdb`) the data at `/data`: `/data/es` is the
node's data path. numad runs on the physical ones, and tuned's usual profile is active.
"""

from __future__ import annotations

from pathlib import Path

from tests.fakes.block_tree import MULTI_QUEUE, SINGLE_QUEUE, BlockTree
from tests.fakes.host_tree import THP, THP_RHEL6, HostTree

UNTUNED = {
    "vm.zone_reclaim_mode": 1,
    "vm.swappiness": 60,
    "vm.min_free_kbytes": 90112,
    "vm.max_map_count": 65530,
    "net.ipv4.tcp_retries2": 15,
}
DATA = "/data/es"


def rhel6(path: Path) -> HostTree:
    """CentOS 6: init scripts, run levels, ktune, its own folder of huge pages, one request queue a disk."""
    tree = HostTree(path)
    tree.machine(cpus=24, memory=128 << 30)
    tree.sysv()
    tree.hugepages(
        THP_RHEL6, enabled="[always] madvise never", defrag="[always] madvise never", khugepaged="[yes] no"
    )
    tree.sysctls(UNTUNED)
    _disks(tree, system="sda", data="sdb", scheduler=SINGLE_QUEUE, rotational=True)
    tree.service("numad")
    tree.service("elasticsearch")
    tree.tuned(
        "enterprise-storage",
        {
            "enterprise-storage": {
                f"{THP_RHEL6}/enabled": "always",
                "/sys/block/sdb/queue/scheduler": "deadline",
            },
            "latency-performance": {"/sys/block/sdb/queue/scheduler": "deadline"},
        },
    )
    return tree


def rhel7(path: Path) -> HostTree:
    """RHEL 7: systemd, tuned, still one request queue a disk."""
    tree = HostTree(path)
    tree.machine(cpus=16, memory=128 << 30)
    tree.systemd()
    tree.hugepages(THP, enabled="[always] madvise never", defrag="[always] madvise never", khugepaged="1")
    tree.sysctls(UNTUNED)
    _disks(tree, system="sda", data="sdb", scheduler="noop [deadline] cfq", rotational=False)
    tree.service("numad")
    tree.service("elasticsearch")
    tree.tuned(
        "throughput-performance",
        {
            "throughput-performance": {f"{THP}/enabled": "always"},
            "latency-performance": {f"{THP}/enabled": "never"},
        },
    )
    return tree


def debian(path: Path) -> HostTree:
    """A current Debian kernel: many request queues, huge pages by size."""
    tree = HostTree(path)
    tree.machine(cpus=32, memory=256 << 30)
    tree.systemd()
    _current_hugepages(tree)
    tree.sysctls(UNTUNED)
    _disks(
        tree,
        system="sda",
        data="nvme0n1",
        scheduler=MULTI_QUEUE.replace("[none]", "none").replace("bfq", "[bfq]"),
    )
    tree.service("numad")
    tree.service("elasticsearch")
    return tree


def virtual_machine(path: Path) -> HostTree:
    """A KVM guest with virtio disks, which call themselves rotational; neither numad nor tuned."""
    tree = HostTree(path)
    tree.machine(cpus=4, memory=16 << 30)
    tree.systemd()
    _current_hugepages(tree)
    tree.sysctls({**UNTUNED, "vm.zone_reclaim_mode": 0})
    _disks(tree, system="vda", data="vdb", scheduler="none [mq-deadline]", rotational=True)
    tree.service("elasticsearch")
    return tree


KINDS = {"rhel6": rhel6, "rhel7": rhel7, "debian": debian, "virtual_machine": virtual_machine}


def _current_hugepages(tree: HostTree) -> None:
    tree.hugepages(
        THP,
        enabled="[always] madvise never",
        defrag="always defer defer+madvise [madvise] never",
        khugepaged="1",
        sizes=(64, 1024, 2048),
    )
    tree.write(f"{THP}/shmem_enabled", "always within_size advise [never] deny force\n")
    tree.write(f"{THP}/hugepages-2048kB/enabled", "always [inherit] madvise never\n")


def _disks(tree: HostTree, *, system: str, data: str, scheduler: str, rotational: bool = False) -> None:
    blocks = BlockTree(tree)
    blocks.disk(system, scheduler=scheduler)
    blocks.mount(blocks.partition(system), "/")
    blocks.disk(data, rotational=rotational, scheduler=scheduler)
    blocks.mount(blocks.partition(data), "/data", fs="xfs")
    tree.folder(DATA)
    tree.data = (DATA,)
