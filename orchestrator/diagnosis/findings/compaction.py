"""Transparent huge pages: page faults wait while memory is compacted for a block of 2 MB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.model.diagnosis import Compaction, Confidence, CpuUse, Finding, Number, Signs, Syndrome
from orchestrator.model.reading import NOT_READ, Reading, Unknown

TUNABLE: Final = "transparent_hugepage.enabled"
STALLS: Final = 10.0
"""Direct compactions a second. Each stops one thread for about a millisecond or more. A host without huge
pages has none, a host that uses them on request (madvise) a few a minute."""
RAISED_SYSTEM: Final = 0.10
"""Share of all CPU time. The incident's hosts had 3 to 7 % with huge pages off."""
HEAVY_SYSTEM: Final = 0.30
"""With huge pages on, those hosts had 36 to 98 %: without other evidence, only a clear distance counts."""
MOST_FAIL: Final = 0.5
"""If more than half of the compactions fail, all that work is wasted."""
PROFILE_COMPACTION: Final = 0.01
"""Share of a profile within compaction's own functions (the record: 2.5 %; they wait for a lock, so the lock
has the largest share)."""
PROFILE_LOCK: Final = 0.20
"""Share of a profile in spin locks (the record: 95.4 %)."""
_FUNCTIONS: Final = (
    "compact_zone",
    "compaction_alloc",
    "isolate_migratepages",
    "isolate_freepages",
    "migrate_pages",
    "get_pageblock_flags",
    "get_pfnblock_flags",
)
_OFF: Final = frozenset({"never", ""})


def find(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host, from the counters; without counters, from a profile or the system share."""
    if not isinstance(signs.huge_pages, Unknown) and signs.huge_pages in _OFF:
        return ()
    profile = () if isinstance(signs.functions, Unknown) else _profile(signs.functions)
    if isinstance(signs.compaction, Unknown):
        if signs.compaction is not NOT_READ:
            return signs.compaction
        return _from_record(signs, profile)
    if isinstance(signs.cpu, Unknown):
        return signs.cpu
    seen, cpu = signs.compaction, signs.cpu
    if seen.stalls < STALLS or cpu.system < RAISED_SYSTEM:
        return ()
    sure = cpu.system >= HEAVY_SYSTEM or seen.failures >= MOST_FAIL * seen.stalls or bool(profile)
    numbers = (*_counters(seen), *_system(signs, cpu), *profile)
    why = (
        "processes wait in compaction, and the kernel's share of the CPUs or the failures show what it costs"
        if sure
        else "processes are waiting in compaction; its cost is still moderate"
    )
    return (_finding(signs, Confidence.CERTAIN if sure else Confidence.LIKELY, why, numbers),)


def _from_record(signs: Signs, profile: tuple[Number, ...]) -> Reading[tuple[Finding, ...]]:
    """Without counters: a profile shows compaction itself; system CPU and the setting only support it."""
    cpu = signs.cpu
    if profile:
        numbers = (*profile, *(() if isinstance(cpu, Unknown) else _system(signs, cpu)))
        why = "the profile shows compaction's own functions, and the lock that they wait for"
        return (_finding(signs, Confidence.CERTAIN, why, numbers),)
    if isinstance(cpu, Unknown):
        return () if not isinstance(signs.functions, Unknown) else cpu
    if isinstance(signs.huge_pages, Unknown) or signs.huge_pages != "always" or cpu.system < HEAVY_SYSTEM:
        return ()
    why = (
        "huge pages are on and the kernel has most of the CPUs; a count of compactions would make it certain"
    )
    return (_finding(signs, Confidence.LIKELY, why, _system(signs, cpu)),)


def _finding(signs: Signs, confidence: Confidence, why: str, numbers: tuple[Number, ...]) -> Finding:
    return Finding(
        syndrome=Syndrome.THP_COMPACTION,
        nodes=(signs.node,),
        confidence=confidence,
        why=why,
        numbers=numbers,
        advice="Set transparent_hugepage.enabled and transparent_hugepage.defrag to never, while the node"
        " is down (mappings that exist keep their pages). defrag alone already takes the stalls away.",
        tunable=TUNABLE,
    )


def _counters(seen: Compaction) -> tuple[Number, ...]:
    return (
        Number(name="stalls in compaction", value=seen.stalls, unit="/s", usual=f"below {STALLS:g}"),
        Number(name="of these failed", value=seen.failures, unit="/s", usual="0"),
        Number(name="huge page faults that got small pages", value=seen.huge_fallbacks, unit="/s", usual="0"),
    )


def _system(signs: Signs, cpu: CpuUse) -> tuple[Number, ...]:
    numbers = [
        Number(
            name="system share of the CPUs",
            value=100 * cpu.system,
            unit="%",
            usual=f"below {100 * RAISED_SYSTEM:.0f}",
        )
    ]
    if cpu.peak_system > cpu.system:
        numbers.append(Number(name="at its worst", value=100 * cpu.peak_system, unit="%", usual=""))
    if not isinstance(signs.switches, Unknown):
        numbers.append(Number(name="context switches", value=signs.switches, unit="/s", usual=""))
    return tuple(numbers)


def _profile(functions: Mapping[str, float]) -> tuple[Number, ...]:
    """The shares of a profile that show compaction; empty if they do not."""
    own = sum(share for name, share in functions.items() if name.lstrip("_").startswith(_FUNCTIONS))
    lock = sum(share for name, share in functions.items() if "spin_lock" in name)
    if own < PROFILE_COMPACTION or own + lock < PROFILE_LOCK:
        return ()
    return (
        Number(name="profile: in spin locks", value=100 * lock, unit="%", usual="below 5"),
        Number(name="profile: in compaction", value=100 * own, unit="%", usual="0"),
    )
