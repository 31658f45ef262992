"""Facts of three kinds of host as a reading gives them, each with the defaults that slow large heaps down."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.host import (
    BlockDevice,
    FileText,
    HostFacts,
    InitSystem,
    ServiceFacts,
)
from orchestrator.model.tuning import TuningProfile, TuningSetting, Wanted

THP = "/sys/kernel/mm/transparent_hugepage"
THP_RHEL6 = "/sys/kernel/mm/redhat_transparent_hugepage"
UNTUNED = {
    "/proc/sys/vm/zone_reclaim_mode": "1\n",
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/vm/min_free_kbytes": "90112\n",
    "/proc/sys/vm/max_map_count": "65530\n",
    "/proc/sys/vm/nr_hugepages": "0\n",
    "/proc/sys/net/ipv4/tcp_retries2": "15\n",
    "/proc/meminfo": "MemTotal: 134217728 kB\nHugepagesize:       2048 kB\n",
    "/etc/elasticsearch/jvm.options.d/": "",
    "/etc/riak/riak.conf": "nodename = riak@10.0.0.1\n",
}
NUMAD = ServiceFacts(present=True, running=True, enabled=True)
NO_BOOT = {
    name: ServiceFacts(present=False) for name in ("orchestrate-tuning", "orchestrate-tuning.path", "ktune")
}
LIMITS = {"LimitNOFILE": "65535", "LimitMEMLOCK": "65536"}


def rhel6() -> HostFacts:
    """CentOS 6: init scripts, ktune, its own folder of huge pages, one queue a disk."""
    return HostFacts(
        init=InitSystem.SYSV,
        cpus=24,
        memory=128 << 30,
        files={
            **{path: text for path, text in UNTUNED.items() if "elasticsearch" not in path},
            **_queue("sdb", "noop deadline [cfq]"),
            f"{THP_RHEL6}/enabled": "[always] madvise never\n",
            f"{THP_RHEL6}/defrag": "[always] madvise never\n",
            f"{THP_RHEL6}/khugepaged/defrag": "[yes] no\n",
            "/etc/sysctl.conf": "net.ipv4.ip_forward = 0\n",
            "/etc/rc.d/rc.local": "#!/bin/sh\ntouch /var/lock/subsys/local\n",
            "/etc/rc.local": "#!/bin/sh\ntouch /var/lock/subsys/local\n",
            "/etc/security/limits.conf": "# <domain> <type> <item> <value>\n",
        },
        services={"numad": NUMAD, "tuned": NUMAD, **NO_BOOT},
        tuned="enterprise-storage",
        devices=(BlockDevice(name="sdb", rotational=True, data_paths=("/data",)),),
        mounts={"/data": "/data"},
        data_paths=("/data",),
        unit="elasticsearch",
    )


def rhel7() -> HostFacts:
    """RHEL 7: systemd, tuned's profile for servers, still one queue a disk."""
    return HostFacts(
        init=InitSystem.SYSTEMD,
        cpus=16,
        memory=128 << 30,
        files={
            **UNTUNED,
            **_queue("sdb", "noop [deadline] cfq"),
            f"{THP}/enabled": "[always] madvise never\n",
            f"{THP}/defrag": "[always] madvise never\n",
            f"{THP}/khugepaged/defrag": "1\n",
            "/etc/sysctl.conf": "# nothing\n",
        },
        services={"numad": NUMAD, "tuned": NUMAD, **NO_BOOT},
        tuned="throughput-performance",
        devices=(BlockDevice(name="sdb", rotational=False, data_paths=("/data",)),),
        mounts={"/data": "/data"},
        limits=LIMITS,
        data_paths=("/data",),
        unit="elasticsearch",
    )


def current() -> HostFacts:
    """A current kernel: many queues, huge pages by size, no tuned; an SSD and a disk that turns."""
    sizes = {
        f"{THP}/hugepages-{size}kB/enabled": "always inherit madvise [never]\n" for size in (16, 64, 1024)
    }
    return HostFacts(
        init=InitSystem.SYSTEMD,
        cpus=32,
        memory=256 << 30,
        files={
            **UNTUNED,
            **_queue("nvme0n1", "none mq-deadline kyber [bfq]"),
            **_queue("sdc", "none mq-deadline kyber [bfq]"),
            **sizes,
            f"{THP}/hugepages-2048kB/enabled": "always [inherit] madvise never\n",
            f"{THP}/enabled": "[always] madvise never\n",
            f"{THP}/defrag": "always defer defer+madvise [madvise] never\n",
            f"{THP}/khugepaged/defrag": "1\n",
        },
        services={"numad": NUMAD, "tuned": ServiceFacts(present=False), **NO_BOOT},
        tuned=None,
        devices=(
            BlockDevice(name="nvme0n1", rotational=False, data_paths=("/data/fast",)),
            BlockDevice(name="sdc", rotational=True, data_paths=("/data/slow",)),
        ),
        mounts={"/data/fast": "/data/fast", "/data/slow": "/data/slow"},
        limits=LIMITS,
        data_paths=("/data/fast", "/data/slow"),
        unit="elasticsearch",
    )


KINDS = {"RHEL 6": rhel6, "RHEL 7, single queue": rhel7, "current kernel": current}


def _queue(disk: str, scheduler: str) -> dict[str, FileText]:
    folder = f"/sys/block/{disk}/queue"
    return {
        f"{folder}/scheduler": f"{scheduler}\n",
        f"{folder}/read_ahead_kb": "4096\n",
        f"{folder}/nr_requests": "128\n",
    }


def with_files(facts: HostFacts, **files: FileText) -> HostFacts:
    """The same host with other files; names are paths (`**{"/etc/x": "text"}`), None takes one away."""
    return replace(facts, files={**facts.files, **files})


def setting(tunable: str, wanted: Wanted) -> TuningSetting:
    """One line of a profile."""
    return TuningSetting(tunable=tunable, wanted=wanted)


def profile(
    *settings: TuningSetting, persist: bool = True, devices: dict[str, str] | None = None
) -> TuningProfile:
    """A profile of these lines."""
    return TuningProfile(
        name="test", applies_to="elasticsearch", settings=settings, persist=persist, devices=devices or {}
    )
