"""Hosts that are set wrong in every way that this machine's kernel knows, and what stands on them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from tests.integration.hostlab import kernel
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.lab.errors import LabError

HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"
WRONG: Mapping[str, str] = {
    f"{HUGE_PAGES}/enabled": "always",
    f"{HUGE_PAGES}/defrag": "always",
    f"{HUGE_PAGES}/khugepaged/defrag": "1",
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/zone_reclaim_mode": "1",
    "/proc/sys/vm/max_map_count": "65530",
    "/proc/sys/net/ipv4/tcp_retries2": "15",
}
"""What the kernel has from its boot on; `tcp_retries2` is each container's own, the rest the machine's."""
SCHEDULER = "bfq"
TUNED_PROFILE = "lab-database"
OTHER_PROFILE = "lab-other"
PROFILE = "[main]\nsummary=What a vendor ships\n[vm]\ntransparent_hugepages=always\n"
MANIFEST = r"""
find /etc -printf '%p %y %m %U:%G %l\n' | sort
find /etc -type f -print0 | sort -z | xargs -0 sha256sum
"""
STOP_SECONDS = 240.0
BOOT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything that tuning may change on a host, and what it must not."""

    files: tuple[str, ...]  # a line each on type, mode, owner, target and content of whatever is below /etc
    values: Mapping[str, str]  # of the kernel, by path; of all block devices
    services: tuple[str, ...]  # what the service manager says of numad and tuned
    tuned: str  # what tuned says of its profile; empty where there is none


def standing(cluster: HostCluster, name: str) -> Standing:
    """How a host stands."""
    systemd = cluster.flavour.init == "systemd"
    shown = "systemctl show numad tuned --property Id,ActiveState,UnitFileState,LoadState"
    services = shown if systemd else "service numad status"
    return Standing(
        files=tuple(cluster.exec(name, MANIFEST).stdout.splitlines()),
        values=values(cluster, name),
        services=tuple(cluster.exec(name, services, check=False).stdout.split()),
        tuned=cluster.exec(name, "tuned-adm active", check=False).stdout.strip(),
    )


def values(cluster: HostCluster, name: str) -> dict[str, str]:
    """Every value of the kernel that a test may change, and `tcp_retries2`; of choices, the chosen one."""
    read = cluster.exec(name, kernel.READ).stdout.splitlines()
    found = {path: kernel.chosen(value) for path, _, value in (line.partition("\t") for line in read)}
    found.pop("loop", None)
    retries = "/proc/sys/net/ipv4/tcp_retries2"
    return {**found, retries: cluster.exec(name, f"cat {retries}").stdout.strip()}


def device(cluster: HostCluster, name: str) -> str:
    """The loop device that carries the node's data (`loop3`)."""
    return cluster.exec(name, "cat", "/var/lib/lab/device").stdout.strip().removeprefix("/dev/")


def scheduler(cluster: HostCluster, name: str) -> str:
    """Where the scheduler of a node's disk is set."""
    return f"/sys/block/{device(cluster, name)}/queue/scheduler"


def boots_with(cluster: HostCluster, name: str, found: Mapping[str, str]) -> None:
    """Let a host's kernel come up with these values, and its disk with the wrong scheduler."""
    lines = "".join(f"{path} {value}\n" for path, value in found.items())
    put(cluster, name, "/var/lib/lab/kernel-at-boot", lines)
    put(cluster, name, "/var/lib/lab/scheduler-at-boot", f"{SCHEDULER}\n")


def put(cluster: HostCluster, name: str, path: str, text: str) -> None:
    """Write a file as root, its folder too."""
    folder, _, _ = path.rpartition("/")
    cluster.exec(name, f"mkdir -p {folder} && printf %s {shlex.quote(text)} > {path}")


def mistune(cluster: HostCluster, name: str) -> None:
    """Make everything wrong on a host, now and from its next boot on."""
    boots_with(cluster, name, WRONG)
    write(cluster, name, {**WRONG, scheduler(cluster, name): SCHEDULER})
    if cluster.flavour.init == "sysv":
        cluster.exec(name, "update-rc.d numad enable 2>&1 && service numad start")
        return
    for profile in (TUNED_PROFILE, OTHER_PROFILE):
        put(cluster, name, f"/etc/tuned/profiles/{profile}/tuned.conf", PROFILE)
    cluster.exec(name, "systemctl enable --now numad tuned 2>&1")
    cluster.exec(name, f"tuned-adm profile {TUNED_PROFILE}")


def write(cluster: HostCluster, name: str, found: Mapping[str, str]) -> None:
    """Write values of the kernel, past the program."""
    cluster.exec(name, "; ".join(f"echo {value} > {path}" for path, value in found.items()))


def reboot(cluster: HostCluster, name: str) -> None:
    """Reboot a host, until everything that tunes at boot has had its turn: tuned, or rc.local.

    Raises:
        LabError: the host does not go down, or does not come up.
    """
    boot, applied = cluster.boot_id(name), applied_by_tuned(cluster, name)
    systemd = cluster.flavour.init == "systemd"
    tuned = systemd and cluster.exec(name, "systemctl is-enabled tuned", check=False).returncode == 0
    cluster.exec(name, "systemctl reboot" if systemd else "reboot", check=False)
    if not wait_until(lambda: _other(cluster, name, boot), seconds=STOP_SECONDS):
        raise LabError(f"{name} does not reboot")
    cluster.wait_host(name)
    early = "lab-data.service systemd-tmpfiles-setup.service numad.service"
    waiting = f"systemctl list-jobs --no-legend {early}" if systemd else "pgrep -x rc"

    def settled() -> bool:
        if cluster.exec(name, waiting, check=False).stdout.strip():
            return False
        if tuned and applied_by_tuned(cluster, name) == applied:
            return False
        # Our unit begins with tuned's, and ends when tuned has applied its profile.
        of_sysv = "pgrep -f [o]rchestrate-tuning/boot.sh"  # without its own shell
        ours = "systemctl is-active orchestrate-tuning" if systemd else of_sysv
        return cluster.exec(name, ours, check=False).stdout.strip() in {"", "inactive"}

    if not wait_until(settled, seconds=BOOT_SECONDS):
        raise LabError(f"{name} does not end its boot")


def applied_by_tuned(cluster: HostCluster, name: str) -> int:
    """How often tuned has applied a profile: its unit counts as started before it has."""
    line = "grep -c 'static tuning from profile' /var/log/tuned/tuned.log"
    return int(cluster.exec(name, line, check=False).stdout.strip() or 0)


def _other(cluster: HostCluster, name: str, before: str) -> bool:
    try:
        return cluster.boot_id(name) not in {before, ""}
    except LabError:  # between two boots there is nothing to ask
        return False


def assert_same(found: Standing, before: Standing, name: str = "") -> None:
    """File by file and value by value."""
    assert sorted(set(found.files) ^ set(before.files)) == [], name
    assert {path: value for path, value in found.values.items() if before.values[path] != value} == {}, name
    assert (found.services, found.tuned) == (before.services, before.tuned), name
    assert found == before
