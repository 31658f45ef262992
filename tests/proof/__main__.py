"""What the tests notice: planted defects, deleted predicates and mutants, each with the layer that kills it.

    nice -n 15 python -m tests.proof                       # all, into build/proof.tsv: hours, one process
    nice -n 15 python -m tests.proof --mutants 30          # fewer mutants
    nice -n 15 python -m tests.proof --like BEFORE --table AFTER    # the mutants of another table
    python -m tests.proof --compare BEFORE AFTER           # what is lost; exit status 1 if anything is

The table has a line for each planted defect (`planted/*.toml`), each predicate deleted from its catalogue,
and 150 mutants of `orchestrator/engine`, `merging` and `runtime`: kind, name, layer, seconds, what was said
first. The layers are in the order of their cost, and the first that notices is written down; `-` is a
survivor, which has met all of them. Planted defects and deletions meet only their own run.

A mutant is one changed file in a copy of the tracked files. Before a layer meets its first mutant it is run
without any; tests that fail there, because of the machine, are left out, and the table names them. Each line
is written when it is found. A table that exists is continued, so an interrupted run loses one mutant.

Before a test is cut, or the program rebuilt: make a table at the commit before, and one with `--like` at the
commit after, on the same machine. A mutant is found again by its file, function and text. If the text is
gone, so is the mutant (`gone`), and whoever changed the text says why nothing is lost. Of the others, each
that was killed must still be killed, by whatever layer. To look at a survivor, make its change by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Final

from tests.proof.apart import Ran, ran
from tests.proof.mutants import Mutant, drawn, mutants_of
from tests.proof.planting import ROOT

_SURVIVED: Final = "-"
_GONE: Final = "gone"
_LIMIT_SECONDS: Final = 1800.0
"""Of one layer: a mutant may make a run endless. Whatever does not end is killed."""
_FAST: Final = "not (real or docker or part or slow)"
"""As in `make check`."""
_UNITS: Final = {
    "engine": ("tests/unit/engine",),
    "elasticsearch": (
        "tests/unit/engine",
        "tests/simulation/test_invariants.py",
        "tests/unit/runtime",
    ),
    "riak": ("tests/unit/engine",),
    "runtime": ("tests/unit/runtime",),
}
_LAYERS: Final = ("scenes", "runs", "drawn", "units", "cli", "fast")
"""Scenes and recorded seeds of `apart`, its first forty seeds; the package's unit tests, those of the command
line, and all fast tests."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?|\S+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    kind: str
    name: str
    layer: str
    seconds: float
    said: str


class Table:
    """The table, on disk line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        self.lines = {(r[0], r[1]): Line(r[0], r[1], r[2], float(r[3]), r[4]) for r in rows}

    def add(self, kind: str, name: str, layer: str, seconds: float, said: str) -> None:
        """Write a line down, and show it."""
        said = " ".join(said.split())
        self.lines[kind, name] = Line(kind, name, layer, seconds, said)
        with self._path.open("a") as table:
            table.write(f"{kind}\t{name}\t{layer}\t{seconds:.1f}\t{said}\n")
        sys.stdout.write(f"{kind} {name}: {layer} ({seconds:.0f} s) {said[:100]}\n")
        sys.stdout.flush()


class Tree:
    """A copy of the repository, in which files are changed and tests run."""

    def __init__(self, root: Path, table: Table) -> None:
        self._root, self._table = root, table
        listing = ["git", "ls-files", "-z"]
        tracked = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603  (constant)
        for name in tracked.stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)

    def killer_of(self, mutant: Mutant) -> tuple[str, str]:
        """The first layer that notices, and what it says."""
        path = self._root / mutant.path
        before = path.read_text()
        for layer in _LAYERS:
            left_out = self._without(layer, mutant.path)
            try:
                path.write_text(mutant.source)
                said = self._noticed(layer, mutant.path, left_out)
            finally:
                path.write_text(before)
            if said is not None:
                return layer, said
        return _SURVIVED, ""

    def _without(self, layer: str, path: str) -> list[str]:
        """What fails in a layer without any mutant; the layer is run for it once."""
        name = f"{layer} {path.split('/')[1]}" if layer == "units" else layer
        known = self._table.lines.get(("layer", name))
        if known is None:
            began, failing = time.monotonic(), list[str]()
            if layer in ("units", "cli", "fast"):
                done = self._pytest(layer, path, [], "-rfE", "--tb=no")
                failing = sorted(set(_FAILED.findall(done[1])))
            elif said := self._noticed(layer, path, []):
                raise RuntimeError(f"layer {layer} fails without a mutant: {said}")
            self._table.add("layer", name, _SURVIVED, time.monotonic() - began, " | ".join(failing))
            known = self._table.lines["layer", name]
        return known.said.split(" | ") if known.said else []

    def _noticed(self, layer: str, path: str, left_out: Sequence[str]) -> str | None:
        if layer in ("units", "cli", "fast"):
            status, out = self._pytest(layer, path, left_out, "-x", "-rfE", "--tb=line")
            nothing = status in (0, 5)  # all passed, or none is left
            return None if nothing else next(iter(_FAILED.findall(out)), out[-200:])
        status, out = self._python(["-m", "tests.proof.apart", layer], until='"said": "|"error": "')
        found = [Ran(**json.loads(line)) for line in out.splitlines() if line.startswith("{")]
        bad = next((each for each in found if each.said or each.error), None)
        if bad is not None:
            return f"{bad.name}: {bad.said or (bad.error or '').strip().splitlines()[-1]}"
        return None if status == 0 else out[-200:] or "it does not end"

    def _pytest(self, layer: str, path: str, left_out: Iterable[str], *options: str) -> tuple[int, str]:
        where = {"units": _UNITS[path.split("/")[1]], "cli": ("tests/cli",), "fast": ()}[layer]
        less = [f"--deselect={name}" for name in left_out]
        return self._python(
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", _FAST, *options, *less, *where]
        )

    def _python(self, args: Sequence[str], until: str | None = None) -> tuple[int, str]:
        """The status and the output of a process in the copy; it is ended at a line that has `until`."""
        out: list[str] = []
        with subprocess.Popen(  # noqa: S603  (our own modules)
            [sys.executable, *args],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(self._root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            limit = Timer(_LIMIT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
            limit.start()
            for line in process.stdout:
                out.append(line)
                if until is not None and re.search(until, line):
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            status = process.wait()
            limit.cancel()
        return status, "".join(out)


def proven(table: Table, names: Sequence[str], mutants: Mapping[str, Mutant]) -> None:
    """Add what the table lacks."""
    for kind in ("planted", "deleted"):
        for each in ran(kind) if not any(line.kind == kind for line in table.lines.values()) else ():
            layer = "its own run" if each.said else _SURVIVED
            table.add(kind, each.name, layer, each.seconds, each.said or each.error or "")
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder), table)
        for name in names:
            if ("mutant", name) in table.lines:
                continue
            began = time.monotonic()
            layer, said = tree.killer_of(mutants[name]) if name in mutants else (_GONE, "")
            table.add("mutant", name, layer, time.monotonic() - began, said)


def compared(before: Table, after: Table) -> int:
    """Print the counts and what is lost; how much is."""
    for table in (before, after):
        for kind in ("planted", "deleted", "mutant"):
            layers = [line.layer for line in table.lines.values() if line.kind == kind]
            counts = ", ".join(f"{layer} {layers.count(layer)}" for layer in dict.fromkeys(layers))
            sys.stdout.write(f"{kind}: {len(layers)}: {counts}\n")
    lost = 0
    for key, line in before.lines.items():
        now = after.lines.get(key)
        if (
            line.kind != "layer"
            and line.layer != _SURVIVED
            and (now is None or now.layer in (_SURVIVED, _GONE))
        ):
            lost += 1
            state = "not in the second table" if now is None else "gone" if now.layer == _GONE else "survives"
            sys.stdout.write(f"LOST ({state}): {line.kind} {line.name}; it was killed by {line.layer}\n")
    return lost


def main() -> int:
    """Make or compare tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--table", type=Path, default=ROOT / "build" / "proof.tsv")
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--like", type=Path, help="a table whose mutants are to be met")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    given = parser.parse_args()
    if given.compare:
        return int(compared(*map(Table, given.compare)) > 0)
    mutants = mutants_of(ROOT)
    names = drawn(mutants, given.mutants)
    if given.like:
        names = [line.name for line in Table(given.like).lines.values() if line.kind == "mutant"]
    proven(Table(given.table), names, mutants)
    return 0


if __name__ == "__main__":
    sys.exit(main())
