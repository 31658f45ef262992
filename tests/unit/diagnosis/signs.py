"""Signs of a host with nothing wrong, to be made ill in one place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.diagnosis.findings import diagnose
from orchestrator.diagnosis.records import signs_of_records
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import (
    Compaction,
    CpuUse,
    Diagnosis,
    DiskUse,
    ErlangUse,
    Finding,
    FreeZone,
    Numad,
    Reclaim,
    Signs,
    ThreadUse,
)
from orchestrator.model.reading import Reading

DATA = Path(__file__).parents[2] / "data"
WELL = Signs(
    node=NodeName("es1"),
    machine="boot-1",
    seconds=10.0,
    cpus=12,
    numa_nodes=2,
    memory=64 << 30,
    load=3.0,
    cpu=CpuUse(system=0.05, busy=0.6, peak_system=0.05),
    switches=12_000.0,
    reclaim=Reclaim(scanned_direct=0, scanned_kswapd=120, stolen_direct=0, stolen=110, peak_direct=0),
    compaction=Compaction(stalls=0, failures=0, huge_faults=0, huge_fallbacks=0),
    zones=(FreeZone(numa_node=0, zone="Normal", blocks=(0,) * 10 + (1000,)),),
    numad=Numad(moves=(), running=False),
    disks=(
        DiskUse(
            name="sda",
            scheduler="none",
            offered=("none", "mq-deadline"),
            rotational=False,
            busy=0.3,
            kib=9000.0,
            carries_data=True,
        ),
    ),
    erlang=(),
    huge_pages="always",
    huge_pages_defrag="always",
    zone_reclaim_mode=0,
    min_free=90 << 20,
)


def schedulers(count: int, *, cpu: float, sleeps: float) -> ErlangUse:
    return ErlangUse(
        pid=812,
        schedulers=tuple(
            ThreadUse(name=f"{number}_scheduler", cpu=cpu, sleeps=sleeps) for number in range(1, count + 1)
        ),
    )


def found(**ill: Any) -> tuple[Finding, ...]:
    """What is found on a host that is ill in these parts."""
    return diagnose({WELL.node: replace(WELL, **ill)}).findings


def recorded(kind: str, name: str) -> Reading[Signs]:
    folder = DATA / kind / name
    return signs_of_records(
        NodeName(name), {path.name: path.read_text() for path in sorted(folder.iterdir())}
    )


def of_record(kind: str, name: str) -> Diagnosis:
    return diagnose({NodeName(name): recorded(kind, name)})
