"""Direct reclaim that finds nothing: processes wait and scan millions of pages to free a few.

With `vm.zone_reclaim_mode` on, the kernel scans the local NUMA node before it uses free memory of another
node.
"""

from __future__ import annotations

from typing import Final

from orchestrator.model.diagnosis import Confidence, Finding, Number, Reclaim, Signs, Syndrome
from orchestrator.model.reading import Reading, Unknown

ZONE_RECLAIM: Final = "vm.zone_reclaim_mode"
MIN_FREE: Final = "vm.min_free_kbytes"
SCANNED: Final = 10_000.0
"""Pages a second, 40 MB of 4 kB pages. The incident's quietest minute had 35 276, its mean was 1.2 million;
with zone reclaim off there were none."""
LOW_YIELD: Final = 0.30
"""sar(1) on %vmeff: below 30 % the virtual memory is in difficulty. Healthy minutes of the record: 91 %."""
NO_YIELD: Final = 0.01
"""The incident's minutes had 0.00 to 0.18 %: pages are scanned, and none is freed."""
_BACKGROUND: Final = 0.01
"""Of the direct scans. If kswapd scans less than that, memory as a whole was not short (kswapd is woken
first), so the cause can only be reclaim of a single zone."""


def find(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host."""
    seen = signs.reclaim
    if isinstance(seen, Unknown):
        return seen
    share = seen.yield_share
    if seen.scanned_direct < SCANNED or share is None or share >= LOW_YIELD:
        return ()
    advice, tunable = _remedy(signs, seen)
    hopeless = share < NO_YIELD
    numbers = [
        Number(
            name="scanned by direct reclaim",
            value=seen.scanned_direct,
            unit="pages/s",
            usual=f"below {SCANNED:.0f}",
        ),
        Number(name="of these freed", value=100 * share, unit="%", usual=f"{100 * LOW_YIELD:.0f} and more"),
        Number(
            name="scanned by kswapd", value=seen.scanned_kswapd, unit="pages/s", usual="more than directly"
        ),
    ]
    if seen.peak_direct > seen.scanned_direct:
        numbers.append(
            Number(name="at its worst", value=seen.peak_direct, unit="pages/s", usual=f"below {SCANNED:.0f}")
        )
    if not isinstance(signs.zone_reclaim_mode, Unknown):
        numbers.append(Number(name=ZONE_RECLAIM, value=signs.zone_reclaim_mode, unit="", usual="0"))
    return (
        Finding(
            syndrome=Syndrome.DIRECT_RECLAIM,
            nodes=(signs.node,),
            confidence=Confidence.CERTAIN if hopeless else Confidence.LIKELY,
            why="processes scan memory themselves and free almost nothing"
            if hopeless
            else f"few pages are freed, but too many to be certain (below {100 * NO_YIELD:g} %)",
            numbers=tuple(numbers),
            advice=advice,
            tunable=tunable,
        ),
    )


def _remedy(signs: Signs, seen: Reclaim) -> tuple[str, str | None]:
    """The remedy, depending on the known state of zone reclaim."""
    mode = signs.zone_reclaim_mode
    if not isinstance(mode, Unknown):
        if mode:
            return (
                "Set vm.zone_reclaim_mode to 0: memory of the other NUMA node is far cheaper.",
                ZONE_RECLAIM,
            )
        advice = (
            "Zone reclaim is off already, so memory is truly short: a smaller heap, fewer processes, or a"
            " larger vm.min_free_kbytes, so that kswapd begins before processes must."
        )
        return advice, MIN_FREE
    if seen.scanned_kswapd < _BACKGROUND * seen.scanned_direct:
        return (
            "Set vm.zone_reclaim_mode to 0: that kswapd rests while processes scan fits nothing else.",
            ZONE_RECLAIM,
        )
    return "Look at vm.zone_reclaim_mode first (it should be 0), then at what uses the memory.", None
