"""The corpus: a few seeds whose runs meet whatever hundreds of drawn runs meet, chosen by greedy cover.

    python -m tests.simulation.corpus --runs 600 --rings 200

It lives that many seeds and writes `tests/data/corpus.json`: seeds that meet everything in any phase of a run
(`make check` lives these), then seeds that add what is met in other phases (`make test`). They are in the
order in which they were chosen, each with the number of things that no seed before it met. Choose anew when
something is drawn that was not drawn before, or when the drawing changes.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from orchestrator.model.event import ActionSent, Hold, PhaseEntered
from tests.simulation.chance_riak import FIRST
from tests.simulation.lived import AnyLife
from tests.simulation.soak import ALLOCATIONS
from tests.simulation.wide import life_of, tell

FILE: Final = Path(__file__).parents[1] / "data/corpus.json"

Met = frozenset[tuple[str, ...]]
"""What a run met: mishaps, also by phase; events; verbs by phase; predicates that held it; its outcome."""
_IN_ANY_PHASE: Final = 2
"""So many words has what is met in any phase: its kind and its name."""


def met_by(life: AnyLife) -> Met:
    """What the run of this seed meets; it is lived to its end.

    Raises:
        BrokenError: it breaks a property.
    """
    told = tell(life)
    met: set[tuple[str, ...]] = {("outcome", told.outcome.value)}
    met |= {("mishap", kind) for kind in told.happened}
    met |= {("mishap", kind, phase) for kind, phase in life.met()}
    for program in life.programs:
        for run in program.own_runs:
            phase = ""
            for record in program.written(run):
                match record.event:
                    case PhaseEntered(node=None, to=to):
                        phase = to
                    case ActionSent(action=action):
                        met.add(("verb", type(action).__name__, phase))
                    case Hold(predicate=predicate):
                        met.add(("hold", predicate))
                    case _:
                        pass
                met.add(("event", type(record.event).__name__))
    return frozenset(met)


def cover(lives: Mapping[int, Met], met: Met = frozenset()) -> dict[int, int]:
    """The seeds that together meet all that is not `met` yet; each with how much it adds."""
    wanted, chosen = set[tuple[str, ...]]().union(*lives.values()) - met, dict[int, int]()
    while wanted:
        best = max(lives, key=lambda seed: (len(lives[seed] & wanted), -seed))
        chosen[best] = len(lives[best] & wanted)
        wanted -= lives[best]
    return chosen


def in_two(lives: Mapping[int, Met]) -> tuple[dict[int, int], dict[int, int]]:
    """The seeds that meet everything in any phase, and those that add what is met in other phases."""
    in_any = {seed: frozenset(one for one in met if len(one) == _IN_ANY_PHASE) for seed, met in lives.items()}
    few = cover(in_any)
    return few, cover(lives, frozenset[tuple[str, ...]]().union(*(lives[seed] for seed in few)))


def seeds(*, whole: bool) -> tuple[int, ...]:
    """The chosen seeds; `whole`: also those for every phase of a run."""
    few, more = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(int(seed) for seed in (*few, *(more if whole else ())))


def _lived(wanted: Iterable[int]) -> dict[int, Met]:
    found = {}
    for number, seed in enumerate(wanted, 1):
        found[seed] = met_by(life_of(seed))
        sys.stderr.write(f"\r{number} runs")
    sys.stderr.write("\n")
    return found


def main() -> int:
    """Choose, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.corpus")
    parser.add_argument("--runs", type=int, default=600, help="seeds to choose from")
    parser.add_argument("--rings", type=int, default=200, help="the same, on Riak clusters")
    parser.add_argument("--also", type=int, nargs="*", default=(), help="more seeds to choose from")
    wanted = parser.parse_args()
    gc.set_threshold(ALLOCATIONS)
    every = sorted({*range(wanted.runs), *range(FIRST, FIRST + wanted.rings), *wanted.also})
    lives = _lived(every)
    of_indices = in_two({seed: met for seed, met in lives.items() if seed < FIRST})
    of_rings = in_two({seed: met for seed, met in lives.items() if seed >= FIRST})
    chosen = [one | other for one, other in zip(of_indices, of_rings, strict=True)]
    FILE.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    few, more = chosen
    sys.stdout.write(f"{len(few)} seeds, and {len(more)} more for every phase\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
