"""Texts recorded on a host, and the signs in them. The kind of a text is found by its content. Pure.

Columns of `sar -B`, `collectl -scm` and `perf top` are found by their names. The words and times around the
numbers depend on the user's language, so they are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from orchestrator.diagnosis import counters
from orchestrator.diagnosis.reading import read_answers, signs_of
from orchestrator.errors import UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import CpuUse, Numad, Reclaim, Signs
from orchestrator.model.reading import Reading, Unknown

_SAR_FIRST: Final = "pgpgin/s"
_SAR_NEEDED: Final = ("pgscank/s", "pgscand/s", "pgsteal/s")
_COLLECTL_NEEDED: Final = ("cpu", "sys", "ctxsw")
_NUMBER: Final = re.compile(r"^[0-9]{1,20}(?:[.,][0-9]{1,20})?$")
_ECHO: Final = re.compile(r"^#?\s*echo (\w+) > \S*transparent_hugepage/(enabled|defrag)\s*$", re.MULTILINE)
_PERF_OLD: Final = re.compile(
    r"^\s*[\d.]+\s+([0-9]{1,3}(?:\.[0-9]{1,9})?)%\s+(\S.*?)\s{2,}\S+\s*$", re.MULTILINE
)
"""`perf top` up to about 3.0: samples, share, function, object."""
_PERF_NEW: Final = re.compile(
    r"^\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)%\s+\S+\s+\[[.k]\]\s+(\S.*?)\s*$", re.MULTILINE
)
"""Since then, and in `perf report`: share, object, `[k]` for the kernel or `[.]`, function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A record of collectl."""

    cpu: CpuUse
    switches: float
    # the value written to `enabled` at its beginning; None if the record does not contain it
    huge_pages: str | None
    huge_pages_defrag: str | None


def read_sar_paging(text: str) -> Reading[Reclaim]:
    """`sar -B`: means over its lines, without sar's own mean at the end.

    sar counts all freed pages together: the share of direct reclaim is not included.
    """
    columns: Sequence[str] = ()
    rows = []
    for line in text.splitlines():
        words = line.split()
        if _SAR_FIRST in words:
            columns = words[words.index(_SAR_FIRST) :]
        elif columns and len(words) > len(columns) and not words[0].endswith(":"):
            numbers = [_number(word) for word in words[-len(columns) :]]
            rows.append(dict(zip(columns, numbers, strict=True)))
    if not rows or any(row.get(name) is None for row in rows for name in _SAR_NEEDED):
        return Unknown(reason=f"no `sar -B` with {', '.join(_SAR_NEEDED)}")
    kswapd, direct, stolen = (
        [number for row in rows if (number := row[name]) is not None] for name in _SAR_NEEDED
    )
    return Reclaim(
        scanned_direct=sum(direct) / len(rows),
        scanned_kswapd=sum(kswapd) / len(rows),
        stolen_direct=None,
        stolen=sum(stolen) / len(rows),
        peak_direct=max(direct),
    )


def read_collectl(text: str) -> Reading[Collected]:
    """`collectl -scm`: medians over its lines; `sys` and `cpu` are shares of all CPUs."""
    columns: Sequence[str] = ()
    rows: list[dict[str, float | None]] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#Time"):
            columns = words[1:]
        elif columns and len(words) == len(columns) + 1 and not line.startswith("#"):
            rows.append(dict(zip(columns, map(_number, words[1:]), strict=True)))
    if not rows or any(row.get(name) is None for row in rows for name in _COLLECTL_NEEDED):
        return Unknown(reason=f"no `collectl -scm` with {', '.join(_COLLECTL_NEEDED)}")
    busy, system, switches = (
        [number for row in rows if (number := row[name]) is not None] for name in _COLLECTL_NEEDED
    )
    written = {file: word for word, file in _ECHO.findall(text)}
    return Collected(
        cpu=CpuUse(system=median(system) / 100, busy=median(busy) / 100, peak_system=max(system) / 100),
        switches=median(switches),
        huge_pages=written.get("enabled"),
        huge_pages_defrag=written.get("defrag"),
    )


def read_perf(text: str) -> Reading[Mapping[str, float]]:
    """`perf top` or `perf report --stdio`: share of the samples by function."""
    found = [(name, share) for share, name in _PERF_OLD.findall(text)]
    found = found or [(name, share) for share, name in _PERF_NEW.findall(text)]
    if not found:
        return Unknown(reason="no list of functions of `perf top`")
    shares: dict[str, float] = {}
    for name, share in found:
        shares[name] = shares.get(name, 0.0) + float(share) / 100
    return shares


def _number(word: str) -> float | None:
    """A number, also with a decimal comma; None for any other word."""
    return float(word.replace(",", ".")) if _NUMBER.match(word) else None


READING: Final = "a reading of this program"
_READING: Final = re.compile(r"^@@orchestrate-\S+ begin ", re.MULTILINE)


def _sar(signs: Signs, text: str) -> Signs:
    return replace(signs, reclaim=read_sar_paging(text))


def _collectl(signs: Signs, text: str) -> Signs:
    found = read_collectl(text)
    if isinstance(found, Unknown):
        return replace(signs, cpu=found, switches=found)
    return replace(
        signs,
        cpu=found.cpu,
        switches=found.switches,
        huge_pages=signs.huge_pages if found.huge_pages is None else found.huge_pages,
        huge_pages_defrag=signs.huge_pages_defrag
        if found.huge_pages_defrag is None
        else found.huge_pages_defrag,
    )


def _numad(signs: Signs, text: str) -> Signs:
    return replace(signs, numad=Numad(moves=counters.read_numad_log(text)))


def _buddyinfo(signs: Signs, text: str) -> Signs:
    return replace(signs, zones=counters.read_buddyinfo(text))


def _perf(signs: Signs, text: str) -> Signs:
    return replace(signs, functions=read_perf(text))


_KINDS: Final[Mapping[str, tuple[re.Pattern[str], Callable[[Signs, str], Signs]]]] = {
    "sar -B": (re.compile(r"\bpgscand/s\b"), _sar),
    "collectl -scm": (re.compile(r"^#Time\s+cpu\s+sys\b", re.MULTILINE), _collectl),
    "numad's log": (re.compile(r"moved to node\(s\) |Advising pid \d+ "), _numad),
    "/proc/buddyinfo": (re.compile(r"^Node \d+, zone ", re.MULTILINE), _buddyinfo),
    "perf top": (
        re.compile(r"PerfTop:|^# Overhead|^\s*[\d.]+%\s+\S+\s+\[[.k]\] ", re.MULTILINE),
        _perf,
    ),
}
"""How each kind of record is known, and what it adds to the signs."""


def kind_of(text: str) -> str | None:
    """The kind of a recorded text; None if it is of no known kind."""
    if _READING.search(text):  # first: a reading contains buddyinfo and the log too
        return READING
    return next((kind for kind, (mark, _) in _KINDS.items() if mark.search(text)), None)


def signs_of_records(node: NodeName, texts: Mapping[str, str]) -> Reading[Signs]:
    """The signs in the records of one host.

    Args:
        node: the name of the host.
        texts: by file name. Two readings of this program are ordered by their names; of every other kind
            there may be one.

    Raises:
        UsageError: there are two texts of a kind, or a text is of no known kind.
    """
    by_kind: dict[str, list[str]] = {}
    for name, text in sorted(texts.items()):
        kind = kind_of(text)
        if kind is None:
            raise UsageError(f"{node}: {name} is no record of {', '.join((READING, *_KINDS))}")
        by_kind.setdefault(kind, []).append(text)
    readings = by_kind.pop(READING, [])
    if len(readings) not in (0, 2) or any(len(found) > 1 for found in by_kind.values()):
        raise UsageError(
            f"{node}: a folder is one host, with two readings of this program or none, and one record of each"
            " other kind"
        )
    signs: Reading[Signs] = Signs(node=node)
    if readings:
        first, second = (read_answers(text) for text in readings)
        signs = signs_of(node, first, second)
    for kind, (text,) in by_kind.items():
        if isinstance(signs, Unknown):
            return signs
        signs = _KINDS[kind][1](signs, text)
    return signs
