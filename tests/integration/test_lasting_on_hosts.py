"""What a boot makes of a host: files as tuning writes them, by hand, against real systemd, udev and tuned.

What is shown here is told in `docs/development/what-lasts.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.mistuned import (
    HUGE_PAGES,
    SCHEDULER,
    TUNED_PROFILE,
    device,
    mistune,
    put,
    reboot,
    scheduler,
    values,
)

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.hostlab.hosts import HostCluster

FLAVOUR = "tuning"
HOST = "es1"
pytestmark = [pytest.mark.docker, pytest.mark.exhaustive, pytest.mark.timeout(1200)]

OURS = "/etc/tuned/profiles/orchestrate/tuned.conf"
THEIRS = f"/etc/tuned/profiles/{TUNED_PROFILE}/tuned.conf"


@pytest.fixture
def host(fresh_host_cluster: HostClusterFactory) -> Iterator[HostCluster]:
    cluster = fresh_host_cluster(FLAVOUR, nodes=1)
    mistune(cluster, HOST)
    thp = "".join(
        f"w {HUGE_PAGES}/{path} - - - - {value}\n"
        for path, value in (("enabled", "never"), ("defrag", "never"), ("khugepaged/defrag", "0"))
    )
    put(cluster, HOST, "/etc/tmpfiles.d/orchestrate-thp.conf", thp)
    put(cluster, HOST, "/etc/sysctl.d/99-orchestrate.conf", "vm.swappiness = 1\nvm.max_map_count = 1048576\n")
    rule = (
        'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", '
        f'KERNEL=="{device(cluster, HOST)}", ATTR{{queue/scheduler}}="none"\n'
    )
    put(cluster, HOST, "/etc/udev/rules.d/99-orchestrate.rules", rule)
    return cluster


def seen(cluster: HostCluster) -> dict[str, str]:
    found = values(cluster, HOST)
    return {
        "enabled": found[f"{HUGE_PAGES}/enabled"],
        "defrag": found[f"{HUGE_PAGES}/defrag"],
        "khugepaged": found[f"{HUGE_PAGES}/khugepaged/defrag"],
        "scheduler": found[scheduler(cluster, HOST)],
        "swappiness": found["/proc/sys/vm/swappiness"],
        "max_map_count": found["/proc/sys/vm/max_map_count"],
    }


RIGHT = {
    "enabled": "never",
    "defrag": "never",
    "khugepaged": "0",
    "scheduler": "none",
    "swappiness": "1",
    "max_map_count": "1048576",
}


def test_udev_tmpfiles_and_sysctls_last_and_tuned_undoes_them(host: HostCluster) -> None:
    theirs = (
        "[main]\nsummary=A vendor's\n[vm]\ntransparent_hugepages=always\n"
        f"[disk]\ndevices={device(host, HOST)}\nelevator={SCHEDULER}\n[sysctl]\nvm.swappiness=55\n"
    )
    put(host, HOST, THEIRS, theirs)
    host.exec(HOST, "systemctl mask --now numad 2>&1")
    reboot(host, HOST)
    # The vendor's profile has the last word on huge pages and schedulers, and not on sysctls.
    assert seen(host) == {**RIGHT, "enabled": "always", "scheduler": SCHEDULER}
    assert host.exec(HOST, "systemctl is-active numad", check=False).stdout.strip() == "inactive"
    host.exec(HOST, "systemctl disable --now tuned 2>&1")
    reboot(host, HOST)
    assert seen(host) == RIGHT


def test_our_profile_lasts_in_the_words_of_the_one_below_it(host: HostCluster) -> None:
    disk = device(host, HOST)
    theirs = (
        "[main]\nsummary=A vendor's\n[vm]\ntransparent_hugepage=always\n"
        f"[disk]\ndevices=loop*\nelevator={SCHEDULER}\n"
    )
    head = f"[main]\nsummary=Ours\ninclude={TUNED_PROFILE}\n"
    data = f"[orchestrate]\ntype=disk\ndevices={disk}\nelevator=none\n"
    put(host, HOST, THEIRS, theirs)
    put(host, HOST, OURS, f"{head}[vm]\ntransparent_hugepages=never\n{data}")
    host.exec(HOST, "tuned-adm profile orchestrate")
    reboot(host, HOST)
    assert (seen(host)["enabled"], seen(host)["scheduler"]) == ("always", SCHEDULER)
    words = "[vm]\ntransparent_hugepages=never\ntransparent_hugepage=never\n"
    put(host, HOST, OURS, f"{head}{words}{data}priority=-1\n")
    reboot(host, HOST)
    assert seen(host) == RIGHT
    others = {
        path: value for path, value in values(host, HOST).items() if "/loop" in path and "scheduler" in path
    }
    assert {value for path, value in others.items() if f"/{disk}/" not in path} == {SCHEDULER}
