"""Hosts are read twice with one script, all at once; what one of them does harms no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.diagnosis.findings import diagnose
from orchestrator.diagnosis.sampler import sample
from orchestrator.hosts.connections.pool import Connections
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import Signs, Syndrome
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostLimits, HostSettings
from orchestrator.model.reading import Reading, Unknown
from orchestrator.redact import Redactor

RHEL6_BEFORE = {
    "pgscan_kswapd_normal": 10,
    "pgscan_direct_dma32": 100,
    "pgscan_direct_normal": 1000,
    "pgsteal_normal": 500,
    "kswapd_steal": 450,
    "compact_stall": 40,
    "compact_fail": 10,
    "nr_free_pages": 1_000_000,
}


class Host:
    """A folder that stands for `/` of a RHEL 6 host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("proc/sys/kernel/random/boot_id", f"boot-of-{path.name}\n")
        self.write("proc/1/stat", "1 (init) S 0 1 1\n")
        self.write("proc/meminfo", "MemTotal:  65806336 kB\nMemFree:  4000000 kB\nBuffers: 9 kB\n")
        self.write("proc/loadavg", "3.10 2.00 1.00 1/900 4000\n")
        self.write(
            "proc/buddyinfo",
            "Node 0, zone      DMA    0    1    1    1    1    0    1    0    1    1    3 \n"
            "Node 0, zone   Normal    1    2    4    2    5    4    3    3    4    2  752 \n",
        )
        self.write("sys/kernel/mm/redhat_transparent_hugepage/enabled", "[always] madvise never\n")
        self.write("sys/kernel/mm/redhat_transparent_hugepage/defrag", "[always] madvise never\n")
        self.write("proc/sys/vm/zone_reclaim_mode", "1\n")
        self.write("proc/sys/vm/min_free_kbytes", "90112\n")
        self.write("sys/block/sda/queue/rotational", "0\n")
        self.write("sys/block/sda/queue/scheduler", "noop deadline [cfq] \n")
        for number in (0, 1):
            (path / f"sys/devices/system/node/node{number}").mkdir(parents=True)
        self.at(1000, RHEL6_BEFORE, cpu="100 0 100 1000 0 0 0", switches=500, sectors=1000)

    def write(self, name: str, text: str) -> None:
        at = self.path / name
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)

    def at(self, uptime: float, vmstat: Mapping[str, int], *, cpu: str, switches: int, sectors: int) -> None:
        """Everything that counts on, at one moment."""
        self.write("proc/uptime", f"{uptime} 9999.00\n")
        self.write("proc/vmstat", "".join(f"{name} {count}\n" for name, count in vmstat.items()))
        cpus = "".join(f"cpu{number} 1 1 1 1 1 1 1\n" for number in range(12))
        self.write("proc/stat", f"cpu  {cpu}\n{cpus}intr 9 9 9\nctxt {switches}\nbtime 1\n")
        self.write("sys/block/sda/stat", f"10 0 {sectors} 9 20 0 0 9 0 500 900\n")

    def settings(self, node: str, **changes: object) -> HostSettings:
        values: dict[str, object] = {"connect": Connect.LOCAL, "root": str(self.path), **changes}
        return HostSettings(node=NodeName(node), address=node, **values)


def sampled(
    settings: list[HostSettings], meanwhile: Callable[[], None] = lambda: None
) -> tuple[Mapping[NodeName, Reading[Signs]], list[str]]:
    told: list[str] = []
    connections = Connections()
    try:
        hosts = sample(
            settings,
            connections,
            seconds=10.0,
            wait=lambda _seconds: meanwhile(),
            report=told.append,
            redact=Redactor(),
        )
    finally:
        connections.close()
    return hosts, told


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "es1")


def _ill(host: Host) -> None:
    """Ten seconds later: direct reclaim without a yield, compaction that fails, cfq at work on an SSD."""
    after = {
        **RHEL6_BEFORE,
        "pgscan_direct_normal": 1000 + 20_000_000,
        "pgsteal_normal": 500 + 1000,
        "compact_stall": 40 + 2000,
        "compact_fail": 10 + 1900,
    }
    host.at(1010, after, cpu="200 0 900 1200 0 0 0", switches=900_500, sectors=1000 + 800_000)


def test_an_ill_host_of_the_oldest_kind_is_read_and_named(host: Host) -> None:
    hosts, told = sampled([host.settings("es1")], lambda: _ill(host))
    diagnosis = diagnose(hosts)
    found = {
        one.syndrome: {number.name: number.value for number in one.numbers} for one in diagnosis.findings
    }
    assert set(found) == {Syndrome.DIRECT_RECLAIM, Syndrome.THP_COMPACTION, Syndrome.IO_SCHEDULER}
    assert found[Syndrome.DIRECT_RECLAIM]["scanned by direct reclaim"] == 2_000_000
    assert found[Syndrome.DIRECT_RECLAIM]["of these freed"] == pytest.approx(0.005)
    assert found[Syndrome.DIRECT_RECLAIM]["vm.zone_reclaim_mode"] == 1
    assert found[Syndrome.THP_COMPACTION]["stalls in compaction"] == 200
    assert found[Syndrome.THP_COMPACTION]["context switches"] == 90_000
    assert found[Syndrome.IO_SCHEDULER]["read and written"] == 40_000
    assert diagnosis.complete
    assert told == ["read 1 of 1 hosts", "read them again"]


def test_numad_is_read_from_its_log_and_the_processes(host: Host) -> None:
    host.write("var/log/numad.log", "PID 7 moved to node(s) 0 in 20.10 seconds\n")
    host.write("proc/77/stat", "77 (numad) S 1 77 77\n")
    (finding,) = diagnose(
        sampled([host.settings("es1")], lambda: host.write("proc/uptime", "1010 1"))[0]
    ).findings
    assert finding.syndrome is Syndrome.NUMAD_MOVES
    assert "numad runs still" in finding.why


def test_one_host_that_is_gone_is_told_and_the_others_are_read(host: Host) -> None:
    limits = HostLimits(connect=2.0, banner=2.0, auth=2.0, command=5.0)
    gone = HostSettings(
        node=NodeName("es2"), address="127.0.0.1", port=1, ssh_config=(), use_agent=False, limits=limits
    )
    hosts, told = sampled([host.settings("es1"), gone], lambda: _ill(host))
    assert isinstance(hosts[NodeName("es2")], Unknown)
    assert not isinstance(hosts[NodeName("es1")], Unknown)
    assert told[0] == "read 1 of 2 hosts"

    def meanwhile() -> None:
        raise AssertionError("without any host nobody waits")

    assert isinstance(sampled([gone], meanwhile)[0][NodeName("es2")], Unknown)


ENDLESS = "pgscan_direct 1\n" * 600_000
"""More than an answer may have."""


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("proc/uptime", None, "uptime"),
        ("proc/vmstat", ENDLESS, "read once, and not a second time: its answer was too long"),
    ],
    ids=["gone", "too long"],
)
def test_a_host_that_is_not_read_twice_is_not_half_read(
    host: Host, tmp_path: Path, file: str, text: str | None, reason: str
) -> None:
    other = Host(tmp_path / "es2")

    def meanwhile() -> None:
        _ill(host)
        if text is None:
            (other.path / file).unlink()
        else:
            other.write(file, text)

    hosts, _ = sampled([host.settings("es1"), other.settings("es2")], meanwhile)
    lost = hosts[NodeName("es2")]
    assert isinstance(lost, Unknown)
    assert reason in lost.reason
    assert not isinstance(hosts[NodeName("es1")], Unknown)


@pytest.mark.parametrize(
    ("lost", "syndrome"),
    [
        ("proc/vmstat", Syndrome.DIRECT_RECLAIM),
        ("proc/stat", Syndrome.THP_COMPACTION),
        ("proc/buddyinfo", Syndrome.FRAGMENTATION),
        ("proc/1/stat", Syndrome.BUSY_WAIT),
    ],
)
def test_what_cannot_be_read_on_a_host_is_not_taken_for_healthy(
    host: Host, lost: str, syndrome: Syndrome
) -> None:
    def meanwhile() -> None:
        _ill(host)
        (host.path / lost).unlink()

    diagnosis = diagnose(sampled([host.settings("es1")], meanwhile)[0])
    assert syndrome in {one.syndrome for one in diagnosis.unexamined}
    assert not diagnosis.complete


def test_an_answer_of_megabytes_is_no_reading(host: Host) -> None:
    host.write("proc/vmstat", ENDLESS)
    reading = sampled([host.settings("es1")])[0][NodeName("es1")]
    assert isinstance(reading, Unknown)
    assert "too long" in reading.reason


def test_the_data_paths_say_which_disk_is_the_datas(host: Host) -> None:
    # The tree has no mounts: with data paths that lead nowhere no disk is judged, and that is told.
    hosts, _ = sampled([host.settings("es1", data=("/srv/data",))], lambda: _ill(host))
    diagnosis = diagnose(hosts)
    assert Syndrome.IO_SCHEDULER in {one.syndrome for one in diagnosis.unexamined}
    assert Syndrome.IO_SCHEDULER not in {one.syndrome for one in diagnosis.findings}


def test_this_machine_is_read_whole() -> None:
    here = HostSettings(node=NodeName("here"), address="here", connect=Connect.LOCAL)

    def meanwhile() -> None:
        until = time.monotonic() + 1.5  # two readings that lie too close together are none
        while time.monotonic() < until:
            sum(number * number for number in range(100_000))  # work, for the counters to move

    hosts, _ = sampled([here], meanwhile)
    diagnosis = diagnose(hosts)
    assert diagnosis.complete
    assert diagnosis.unrecorded == ()
