"""numad moved the pages of a running store between NUMA nodes: the store pauses during the move."""

from __future__ import annotations

from typing import Final

from orchestrator.model.diagnosis import Confidence, Finding, Number, PageMove, Signs, Syndrome
from orchestrator.model.reading import Reading, Seconds, Unknown

TUNABLE: Final = "numad"
SLOW_MOVE: Final[Seconds] = 1.0
"""A shorter move is not visible among a JVM's own pauses; the recorded moves of the incident took 4.8 and
177 s."""
RECENT: Final[Seconds] = 7 * 86400.0
"""Older moves do not explain a problem today: a process may live longer, but its pages have settled."""
STORES: Final = frozenset({"java", "beam.smp", "beam"})
"""The names of the stores' processes; moves of any other process affect that process first."""


def find(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per host, with the longest move."""
    if isinstance(signs.numad, Unknown):
        return signs.numad
    moves = [move for move in signs.numad.moves if move.seconds >= SLOW_MOVE and _is_recent(move)]
    if not moves:
        return ()
    longest = max(moves, key=lambda move: move.seconds)
    of_stores = [move for move in moves if move.command in STORES]
    who = f"{longest.command or 'process'} {longest.pid}"
    if of_stores:
        confidence, why = Confidence.CERTAIN, "numad's own log names the process and the seconds"
    else:
        confidence, why = Confidence.LIKELY, "the log names no process of a store among those moved"
    running = {
        True: "numad runs still",
        False: "numad does not run any more",
        None: "whether numad runs is not known",
    }
    return (
        Finding(
            syndrome=Syndrome.NUMAD_MOVES,
            nodes=(signs.node,),
            confidence=confidence,
            why=f"{why}; {running[signs.numad.running]}",
            numbers=(
                Number(name="page moves", value=len(moves), unit="", usual="none"),
                Number(
                    name=f"longest move ({who} to NUMA node {longest.to_nodes})",
                    value=longest.seconds,
                    unit="s",
                    usual=f"below {SLOW_MOVE:g}",
                ),
                Number(name="all moves", value=sum(move.seconds for move in moves), unit="s", usual="none"),
            ),
            advice="Stop numad and keep it from starting, while the node is down: stopping it does not bring"
            " back the pages that it has moved.",
            tunable=TUNABLE,
        ),
    )


def _is_recent(move: PageMove) -> bool:
    """A move without a date, as in a record, counts."""
    return move.age is None or move.age <= RECENT
