"""`python -m tests.simulation.soak`: whole runs by the thousand, over all cores, any range of seeds.

python -m tests.simulation.soak --runs 100000            # all of it
python -m tests.simulation.soak --first 40000 --runs 60000   # what was left when it was interrupted
python -m tests.simulation.soak --seed 17                # one run, told in full, with its trace's digest
python -m tests.simulation.soak --seed 17 --shrink       # its shortest list of mishaps, as a test to paste
python -m tests.simulation.soak --riak --runs 10000      # runs on Riak clusters, whose seeds begin far above
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, fields, is_dataclass
from multiprocessing import get_context
from typing import Final

from orchestrator.model.phase import Phase
from orchestrator.simulation.mishaps import How, OfMachine, OfProgram, SettingMeddled, What
from orchestrator.simulation.riak_mishaps import OfRiak
from tests.simulation.balanced import BALANCED, PROXIED
from tests.simulation.chance import Chance
from tests.simulation.chance_riak import FIRST
from tests.simulation.lived import BrokenError
from tests.simulation.nights import HOWS
from tests.simulation.node_mishaps import DiesAgain, HostRefuses, RebootHangs
from tests.simulation.program_mishaps import (
    CredentialsRefused,
    EndpointsDisagree,
    GateShut,
    SegmentsUnreadable,
    SettingsRefused,
    StaleReadings,
)
from tests.simulation.shrink import scene, shrunk
from tests.simulation.thawed import thaw
from tests.simulation.wide import life_of, tell
from tests.simulation.wide_riak import PASSED


def _kinds(of: type) -> frozenset[str]:
    """Names of the mishaps of this kind."""
    below = of.__subclasses__()
    return frozenset({of.__name__} if is_dataclass(of) else ()).union(*map(_kinds, below))


EVERY_MISHAP: Final[frozenset[str]] = (_kinds(What) - _kinds(OfRiak)) | {
    *(f"verb {how.value}" for how in How),
    "the program is killed",
    "another machine takes over",
    "a machine has another clock",
    "a refusal is named",
    "a refusal passes in time",
    "a refusal ends a run",
    "two processes at a time",
    BALANCED,
    PROXIED,
}
"""Every kind of mishap by the name under which it is counted."""

_ON_INDICES_ALONE: Final = {
    kind.__name__ for kind in (SegmentsUnreadable, StaleReadings, EndpointsDisagree, CredentialsRefused)
}
_ON_RINGS_TOO: Final = {
    kind.__name__ for kind in (DiesAgain, HostRefuses, RebootHangs, SettingMeddled, SettingsRefused, GateShut)
}

ON_RINGS: Final[frozenset[str]] = (
    _kinds(OfMachine)
    | _kinds(OfRiak)
    | (_kinds(OfProgram) - _ON_INDICES_ALONE)
    | _ON_RINGS_TOO
    | {*(f"verb {how.value}" for how in HOWS), "the program is killed", "another machine takes over", PASSED}
)
"""Those that befall runs on Riak clusters."""

_CHUNK = 20
ALLOCATIONS = 50_000
"""Between two collections: what a run makes is nearly all free of cycles."""
_SIZES = (5, 9, 20, 60)
_SHRUNK = 3
"""So many failing seeds are shrunk at the end: each costs a hundred runs at most."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of a range of seeds."""

    runs: int = 0
    attempts: int = 0
    nodes: int = 0
    happened: Counter[str] = field(default_factory=Counter)  # mishaps by kind, as often as they came about
    # mishaps by kind, as often as they were drawn; `met`, by kind and phase of the run
    drawn: Counter[str] = field(default_factory=Counter)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)  # runs by the largest number of nodes of their class
    outcomes: Counter[str] = field(default_factory=Counter)  # runs by how their last attempt ended
    overlapped: int = 0  # runs in which a wave stopped while copies of others recovered; `beside`, such waves
    beside: int = 0
    # runs in which nodes of one machine went in one wave; `reboots`, of a machine with several
    together: int = 0
    reboots: int = 0
    waited: int = 0  # runs in which a gate was found closed, or could not be read
    # mishaps by kind, as often as they met the rule that is about them
    ruled: Counter[str] = field(default_factory=Counter)
    # seeds whose run broke a property, with what it said
    broken: dict[int, str] = field(default_factory=dict)
    worked: float = 0.0  # seconds of processor time
    seconds: float = 0.0  # that passed, on so many `workers`
    workers: int = 1
    undone: int = 0  # every seed below it was lived

    def add(self, other: Tally) -> None:
        """Count another range in; time passes for all of them together."""
        self.broken |= other.broken
        for each in fields(self):
            if each.name not in ("broken", "seconds", "workers", "undone"):
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def some(first: int, runs: int) -> Tally:
    """Live these seeds, one after the other."""
    tally, began = Tally(), time.process_time()
    for seed in range(first, first + runs):
        tally.runs += 1
        life = life_of(seed)
        tally.drawn += life.drawn_kinds()
        try:
            told = tell(life)
        except BrokenError as broken:
            tally.broken[seed] = str(broken)
            continue
        except Exception as defect:  # noqa: BLE001  (whatever it is, it is told with its seed)
            tally.broken[seed] = f"defect: {type(defect).__name__}: {defect}"
            continue
        finally:
            tally.met += life.met()
        tally.attempts += told.attempts
        tally.nodes += told.nodes
        tally.happened += told.happened
        tally.sizes[next(size for size in _SIZES if told.nodes <= size)] += 1
        tally.outcomes[told.outcome.value] += 1
        tally.overlapped += told.overlapped > 0
        tally.beside += told.overlapped
        tally.together += told.together > 0
        tally.reboots += told.reboots
        tally.waited += told.waited > 0
        tally.ruled += told.ruled
    tally.worked = time.process_time() - began
    return tally


def _begin_work() -> None:
    gc.set_threshold(ALLOCATIONS)
    thaw()


def soak(
    first: int, runs: int, *, workers: int, progress: Callable[[Tally], None] = lambda _tally: None
) -> Tally:
    """Live these seeds over so many processes; `progress` is told after each part."""
    whole, began = Tally(workers=workers, undone=first), time.monotonic()
    parts = range(first, first + runs, _CHUNK)
    with ProcessPoolExecutor(
        max_workers=workers,
        mp_context=get_context("fork"),
        initializer=_begin_work,
    ) as pool:
        under_way: dict[Future[Tally], int] = {}
        for start in (*parts, None):
            if start is not None:
                under_way[pool.submit(some, start, min(_CHUNK, first + runs - start))] = start
            while len(under_way) >= 2 * workers or (start is None and under_way):
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for part in done:
                    whole.add(part.result())
                    del under_way[part]
                whole.undone = min(under_way.values(), default=first + whole.runs)
                whole.seconds = time.monotonic() - began
                progress(whole)
    return whole


def report(tally: Tally, every: Iterable[str] = EVERY_MISHAP) -> str:
    """The tally, for people, with how often `every` mishap came about."""
    pace, mean = tally.runs / max(tally.worked, 0.001), tally.nodes / max(1, sum(tally.sizes.values()))
    sizes = ", ".join(f"{tally.sizes[size]} of up to {size}" for size in _SIZES)
    lines = [
        f"{tally.runs} runs of {mean:.1f} nodes on average ({sizes}), {tally.attempts} attempts,",
        f"in {tally.seconds:.0f} s on {tally.workers} processes; {pace:.1f} runs a second a core",
        "ended: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.outcomes.items())),
        f"{tally.overlapped} runs stopped a wave while copies of others recovered, {tally.beside} such waves",
        f"{tally.together} runs took whole machines of several nodes; {tally.reboots} of these were rebooted",
        f"{tally.waited} runs met a gate that was not open",
        *_table(tally, every),
    ]
    if tally.broken:
        lines.append(f"{len(tally.broken)} broke a property:")
        lines += [
            f"  {said[:300]}\n    python -m tests.simulation.soak --seed {seed}"
            for seed, said in sorted(tally.broken.items())
        ]
    else:
        lines.append("no property was broken")
    return "\n".join(lines)


def _table(tally: Tally, every: Iterable[str]) -> list[str]:
    """How often each kind of mishap was drawn, came about, and met each phase of a run."""
    phases = [phase.value for phase in Phase]
    head = f"{'mishap':32}{'drawn':>8}{'came':>8}{'met rule':>10}"
    head += "".join(f"{phase[:9]:>10}" for phase in phases)
    lines = ["what was drawn, came about, and in which phase of a run:", head]
    for name in sorted(every):
        met = "".join(f"{tally.met[name, phase]:10}" for phase in phases)
        ruled = tally.ruled.get(name, "")
        lines.append(f"{name[:31]:32}{tally.drawn[name]:8}{tally.happened[name]:8}{ruled:>10}{met}")
    return lines


def shortest(seed: int) -> str:
    """The run of that seed with as few mishaps as break the same rule, as a test to paste."""
    drawn = life_of(seed).means
    if not isinstance(drawn, Chance):
        return f"seed {seed} is one on a Riak cluster, which is not shrunk"
    try:
        return scene(shrunk(drawn))
    except ValueError as whole:
        return str(whole)


def told_in_full(seed: int) -> tuple[str, bool]:
    """One run with all that happened, and whether every property held."""
    life = life_of(seed)
    try:
        end, held = str(life.live()), True
        life.judge_replay()
    except BrokenError as broken:
        end, held = str(broken), False
    lines = [str(life.means)]
    happened = [(at, 0, what) for at, what in life.world.story]
    for program in life.programs:
        happened += [
            (record.at, 1, f"{run} {str(record.event)[:400]}")
            for run in program.own_runs
            for record in program.happened(run)
        ]
    happened.sort(key=lambda entry: entry[:2])
    lines += [f"{at - 1_000_000:10.2f} {'    ' if of_run else ''}{what}" for at, of_run, what in happened]
    return "\n".join([*lines, end, f"trace {life.trace()}"]), held


def main() -> int:
    """Exit 1 when a property was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="only this one, told in full")
    parser.add_argument("--shrink", action="store_true", help="with --seed: its shortest list of mishaps")
    parser.add_argument("--riak", action="store_true", help="on Riak clusters; --first counts among these")
    wanted = parser.parse_args()
    first, every = (FIRST + wanted.first, ON_RINGS) if wanted.riak else (wanted.first, EVERY_MISHAP)
    if wanted.seed is not None and wanted.shrink:
        sys.stdout.write(shortest(wanted.seed) + "\n")
        return 1
    if wanted.seed is not None:
        told, held = told_in_full(wanted.seed)
        sys.stdout.write(told + "\n")
        return 0 if held else 1
    latest, broken = Tally(undone=first), set[int]()

    def progress(tally: Tally) -> None:
        nonlocal latest
        latest = tally
        for seed in sorted(tally.broken.keys() - broken):
            broken.add(seed)
            sys.stderr.write(f"\n--seed {seed}: {tally.broken[seed][:300]}\n")
        done = f"{tally.runs} of {wanted.runs} runs, {tally.seconds:.0f} s, {len(tally.broken)} broken"
        sys.stderr.write(f"\r{done}   ")
        sys.stderr.flush()

    for ending in (signal.SIGINT, signal.SIGTERM):  # in the background SIGINT is ignored unless asked for
        signal.signal(ending, signal.default_int_handler)
    try:
        soak(first, wanted.runs, workers=wanted.workers, progress=progress)
    except KeyboardInterrupt:
        left = first + wanted.runs - latest.undone
        begin = latest.undone - first + wanted.first
        sys.stderr.write(f"\ninterrupted; what is left: --first {begin} --runs {left}")
    sys.stderr.write("\n")
    sys.stdout.write(report(latest, every) + "\n")
    for seed in sorted(latest.broken)[:_SHRUNK]:
        sys.stdout.write(f"\n# {latest.broken[seed][:160]}\n{shortest(seed)}\n")
    return 1 if latest.broken else 0


if __name__ == "__main__":
    sys.exit(main())
