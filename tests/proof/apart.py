"""Runs with and without defects, each in a process of its own, which is a copy of this one.

    python -m tests.proof.apart planted|deleted|sound [NAME …]
    python -m tests.proof.apart seeds NAME FIRST COUNT

The first prints a line of JSON for each: `name`, `said` (what broke; null = nothing), `error` (it could not
be run or was not planted), `seconds` (of its processor). The second looks for the seed of a planted defect:
the same for each seed of a drawn run, under its number.
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from tests.proof.deletions import OF_OVERLAP
from tests.proof.planting import ROOT, Defect, plant, planted_defects
from tests.simulation.soak import ALLOCATIONS

_LIMIT_SECONDS: Final = 600
"""Of one run; the longest takes two."""


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


def all_runs() -> tuple[int | str, ...]:
    """Every seed and scene by which a defect is shown, once; scenes first, which are quick."""
    runs = {defect.run for defects in KINDS.values() for defect in defects()}
    return tuple(sorted(runs, key=lambda run: (isinstance(run, int), run)))


def _lapse_of(run: int | str) -> str | None:
    """Loaded here and now: what was loaded before may be of the program without its defect."""
    said: str | None = importlib.import_module("tests.proof.scenes").lapse_of(run)
    return said


def _with(defect: Defect) -> str | None:
    confirm = plant(defect)
    said = _lapse_of(defect.run)
    confirm()
    return said


def _jobs(kind: str, names: Collection[str]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    if kind == "sound":
        for run in all_runs():
            if not names or str(run) in names:
                yield str(run), lambda run=run: _lapse_of(run)  # type: ignore[misc]  # a default binds the loop's value
        return
    for defect in KINDS[kind]():
        if not names or defect.name in names:
            yield defect.name, lambda defect=defect: _with(defect)  # type: ignore[misc]  # as above


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


def _seeds(name: str, first: str, count: str) -> Iterator[tuple[str, Callable[[], str | None]]]:
    defect = next(one for one in planted_defects() if one.name == name)
    for seed in range(int(first), int(first) + int(count)):
        yield str(seed), lambda seed=seed: _with(replace(defect, run=seed))  # type: ignore[misc]  # as above


def main(kind: str, *names: str) -> None:
    """Print a line for each run of a kind."""
    importlib.import_module("tests.proof.scenes")
    gc.collect()
    gc.set_threshold(ALLOCATIONS)
    for name, job in _seeds(*names) if kind == "seeds" else _jobs(kind, names):
        sys.stdout.write(json.dumps(asdict(_forked(name, job))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
