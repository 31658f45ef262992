"""Turns texts recorded on a host into its signs. The kind of a text is found by its content. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.diagnosis import counters, recorded
from orchestrator.diagnosis.numad_log import read_numad_log
from orchestrator.diagnosis.reading import read_answers, signs_of
from orchestrator.errors import UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import Numad, Signs
from orchestrator.model.reading import Reading, Unknown

READING: Final = "a reading of this program"
_READING: Final = re.compile(r"^@@orchestrate-\S+ begin ", re.MULTILINE)


def _sar(signs: Signs, text: str) -> Signs:
    return replace(signs, reclaim=recorded.read_sar_paging(text))


def _collectl(signs: Signs, text: str) -> Signs:
    found = recorded.read_collectl(text)
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
    return replace(signs, numad=Numad(moves=read_numad_log(text)))


def _buddyinfo(signs: Signs, text: str) -> Signs:
    return replace(signs, zones=counters.read_buddyinfo(text))


def _perf(signs: Signs, text: str) -> Signs:
    return replace(signs, functions=recorded.read_perf(text))


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
