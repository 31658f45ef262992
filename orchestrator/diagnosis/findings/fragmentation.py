"""Fragmented free memory: gigabytes are free, but only in small blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.model.diagnosis import Compaction, Confidence, Finding, FreeZone, Number, Signs, Syndrome
from orchestrator.model.reading import Reading, Unknown

TUNABLE: Final = "vm.min_free_kbytes"
LARGE_ORDER: Final = 4
"""Blocks of 16 pages (64 kB of 4 kB pages) and more. The kernel itself calls an allocation above order 3
costly (PAGE_ALLOC_COSTLY_ORDER), and stops trying early."""
LARGE_SHARE: Final = 0.05
"""Of the free memory of a zone. The record of the incident has 2.0 and 2.1 %, the record after tuning 27 and
44 %, a freshly booted machine more than 90 %."""
ENOUGH: Final = 256 * 1024 * 1024
"""Bytes free in the zone. Below it the kernel works at its watermarks, where small blocks are normal. The
incident's zones had 2.2 and 2.4 GB free."""
_SMALL_ZONES: Final = frozenset({"DMA", "DMA32"})
"""The first 16 MB and 4 GB, kept for old devices; they count only if there is no other zone."""
_MB: Final = 1_000_000


def find(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host, over all its zones."""
    if isinstance(signs.zones, Unknown):
        return signs.zones
    crumbled = [
        zone
        for zone in _main_zones(signs.zones)
        if zone.pages() * signs.page >= ENOUGH and _large_share(zone) < LARGE_SHARE
    ]
    if not crumbled:
        return ()
    failing = _failing(signs.compaction)
    numbers: list[Number] = []
    for zone in crumbled:
        where = f"node {zone.numa_node} {zone.zone}"
        large = signs.page * 2**LARGE_ORDER // 1024
        numbers += [
            Number(name=f"free in {where}", value=zone.pages() * signs.page / _MB, unit="MB", usual=""),
            Number(
                name=f"of it in blocks of {large} kB and more",
                value=100 * _large_share(zone),
                unit="%",
                usual=f"{100 * LARGE_SHARE:.0f} and more",
            ),
        ]
    if not isinstance(signs.min_free, Unknown):
        numbers.append(Number(name=TUNABLE, value=signs.min_free / 1024, unit="kB", usual=""))
    numbers += failing
    return (
        Finding(
            syndrome=Syndrome.FRAGMENTATION,
            nodes=(signs.node,),
            confidence=Confidence.CERTAIN if failing else Confidence.LIKELY,
            why="allocations of large blocks fail meanwhile"
            if failing
            else "memory is fragmented; no failing allocation of a large block was seen with it",
            numbers=tuple(numbers),
            advice="Raise vm.min_free_kbytes, so that the kernel keeps larger blocks together."
            " Fragmented memory is joined while the node is down (its heap is freed), or by writing"
            " 1 to /proc/sys/vm/compact_memory, which stalls the host for seconds.",
            tunable=TUNABLE,
        ),
    )


def _main_zones(zones: Sequence[FreeZone]) -> Sequence[FreeZone]:
    main = [zone for zone in zones if zone.zone not in _SMALL_ZONES]
    return main or [zone for zone in zones if zone.zone != "DMA"]


def _large_share(zone: FreeZone) -> float:
    free = zone.pages()
    return zone.pages(from_order=LARGE_ORDER) / free if free else 1.0


def _failing(compaction: Reading[Compaction]) -> list[Number]:
    """The number of failures, if there were any."""
    if isinstance(compaction, Unknown) or compaction.failures <= 0:
        return []
    return [Number(name="failed compactions", value=compaction.failures, unit="/s", usual="0")]
