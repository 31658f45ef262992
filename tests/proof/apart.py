"""Runs with and without defects, each in a process of its own, which is a copy of this one.

    python -m tests.proof.apart planted|deleted|scenes|runs|drawn [NAME …]
    python -m tests.proof.apart seeds NAME FIRST COUNT

The first prints a line of JSON for each planted defect, deleted predicate, scene without a defect, recorded
seed without one, or seed of the first forty: `name`, `said` (what broke; null = nothing), `error` (it could
not be run or was not planted), `seconds` (of its processor). The second looks for the seed of a planted
defect: the same for each seed of a drawn run, under its number.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from orchestrator.elasticsearch.rules.predicates import PREDICATES
from tests.proof.deletions import OF_OVERLAP
from tests.proof.planting import ROOT, Defect, plant, planted_defects
from tests.simulation.soak import ALLOCATIONS

_LIMIT_SECONDS: Final = 600
"""Of one run; the longest takes two."""
_DRAWN: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of one run."""

    name: str
    said: str | None = None
    error: str | None = None
    seconds: float = 0.0


def deleted_predicates() -> tuple[Defect, ...]:
    """Each predicate less; with `overlap_recovery` two of them have one more thing to stand against."""
    rules = {rule.name: rule for rule in PREDICATES}
    scenes = {**{name: name for name in rules}, **{scene: rule for scene, (rule, _) in OF_OVERLAP.items()}}
    return tuple(
        Defect(name=scene, says=rules[rule].why, run=scene, without=(f"elasticsearch {rule}",))
        for scene, rule in scenes.items()
    )


KINDS: Final[Mapping[str, Callable[[], tuple[Defect, ...]]]] = {
    "planted": planted_defects,
    "deleted": deleted_predicates,
}


def all_runs(kind: type[int | str]) -> tuple[int | str, ...]:
    """Every seed (`int`) or scene (`str`) by which a defect is shown, once."""
    runs = {defect.run for defects in KINDS.values() for defect in defects()}
    return tuple(sorted(run for run in runs if isinstance(run, kind)))


def _lapse_of(run: int | str, *, ordinary: bool | None = False) -> str | None:
    """What goes wrong in a scene or a drawn run; None when nothing does.

    All is loaded here and now: what was loaded before may be of the program without its defect.
    """
    if isinstance(run, str):
        scene = importlib.import_module("tests.proof.scenes").SCENES[run]
    else:
        scene = partial(importlib.import_module("tests.simulation.wide").live, run, ordinary=ordinary)
    try:
        said = scene()
    except (AssertionError, importlib.import_module("orchestrator.errors").SafetyViolation) as wrong:
        return str(wrong) or "not as it must be"
    return said if isinstance(said, str) else None


def _with(defect: Defect) -> str | None:
    confirm = plant(defect)
    said = _lapse_of(defect.run)
    confirm()
    return said


def _jobs(kind: str) -> Mapping[str, Callable[[], str | None]]:
    if kind in KINDS:
        return {defect.name: partial(_with, defect) for defect in KINDS[kind]()}
    if kind == "drawn":
        return {str(seed): partial(_lapse_of, seed, ordinary=None) for seed in range(_DRAWN)}
    return {str(run): partial(_lapse_of, run) for run in all_runs(int if kind == "runs" else str)}


def _seeds(name: str, first: str, count: str) -> Mapping[str, Callable[[], str | None]]:
    defect = next(one for one in planted_defects() if one.name == name)
    seeds = range(int(first), int(first) + int(count))
    return {str(seed): partial(_with, replace(defect, run=seed)) for seed in seeds}


def _forked(name: str, job: Callable[[], str | None]) -> Ran:
    """Do it in a copy of this process."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_LIMIT_SECONDS)
        os.close(reads)
        result: dict[str, Any] = {}
        try:
            result["said"] = job()
        except BaseException:  # noqa: BLE001  (whatever it is, the parent is told)
            result["error"] = traceback.format_exc()
        with os.fdopen(writes, "w") as out:
            json.dump({**result, "seconds": time.process_time()}, out)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return Ran(name=name, error=f"its process ended with {os.waitstatus_to_exitcode(status)}")
    return Ran(name=name, **json.loads(text))


def ran(kind: str, names: Iterable[str] = ()) -> list[Ran]:
    """All of a kind, in a process that has no threads and nothing else loaded.

    Raises:
        RuntimeError: that process failed.
    """
    done = subprocess.run(  # noqa: S603  (our own module)
        [sys.executable, "-m", "tests.proof.apart", kind, *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return [Ran(**json.loads(line)) for line in done.stdout.splitlines()]


def main(kind: str, *names: str) -> None:
    """Print a line for each run of a kind."""
    importlib.import_module("tests.proof.scenes")
    gc.collect()
    gc.set_threshold(ALLOCATIONS)
    for name, job in (_seeds(*names) if kind == "seeds" else _jobs(kind)).items():
        if kind == "seeds" or not names or name in names:
            sys.stdout.write(json.dumps(asdict(_forked(name, job))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
