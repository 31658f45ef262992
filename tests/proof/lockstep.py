"""Whether two commits decide the same: drawn runs, lived by both, compared event by event.

    python -m tests.proof.lockstep BEFORE               # 1,000 runs, in this tree and as of BEFORE
    python -m tests.proof.lockstep BEFORE --first 4000 --runs 500
    python -m tests.proof.lockstep BEFORE --riak        # on Riak clusters; --first counts among these
    python -m tests.proof.lockstep BEFORE --seed 17     # how both live one of them, from where they part

A rebuild of the core is to change no decision. Both commits live the same seed, each in a process of its
own, on its own simulation, whose chance depends on the seed alone: as long as they act alike, they read the
same, and the first act, event or end that differs is the first difference in deciding. Compared is all that
happened in the world (each verb with its time), each event of each run as JSON, and the end. Kills,
take-overs, merges, upgrades, tuning and reboots are drawn among the rest.

Each run that differs is named with what differs: `steps` (another verb, event, order or time), or the fields
of events, such as `run_finished.message`, where all else is equal: that is how a change of wording shows.
Exit status 1 if any run differs or breaks a property. If BEFORE needs packages of its own, name its
interpreter by `--python`.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.lived import AnyLife

ROOT: Final = Path(__file__).resolve().parents[2]
_CHUNK: Final = 50
_AROUND: Final = 3
"""Lines before the first difference that are shown with it."""
_SHOWN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """How a commit lived a seed."""

    seed: int
    end: str  # outcome and attempts, or what was broken
    broken: bool  # a property did not hold, and its life ended there
    trace: str  # the digest of all that happened and was written
    decisions: int  # readings on which it decided


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit's files, and the interpreter for them."""

    path: Path
    python: str

    def lived(self, first: int, runs: int) -> list[Lived]:
        """How it lives these seeds."""
        return [Lived(**json.loads(line)) for line in self._run("--live", str(first), str(runs)).splitlines()]

    def told(self, seed: int) -> list[str]:
        """All that happens in one of them: a line for what the world did, a line of JSON for each event."""
        return self._run("--tell", str(seed)).splitlines()

    def _run(self, *words: str) -> str:
        # This file, on the other tree's modules: that commit may not have it.
        command = [self.python, "-P", str(Path(__file__).resolve()), *words]
        environment = {**os.environ, "PYTHONPATH": str(self.path)}
        done = subprocess.run(  # noqa: S603  (an interpreter)
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.path}: {done.stderr}")
        return done.stdout


def live(first: int, runs: int) -> Iterator[Lived]:
    """Live seeds on the modules that are found first."""
    from tests.simulation.lived import BrokenError  # noqa: PLC0415  (of the tree that this process is for)
    from tests.simulation.play import Watcher  # noqa: PLC0415
    from tests.simulation.wide import life_of  # noqa: PLC0415

    decisions: Counter[int] = Counter()
    waiting = Watcher.waiting

    def counted(*given: object) -> None:
        decisions[seed] += 1
        waiting(*given)

    Watcher.waiting = counted
    for seed in range(first, first + runs):
        life = life_of(seed)
        try:
            told = life.live()
            end, broken = f"{told.outcome.value} after {told.attempts}", False
        except BrokenError as wrong:
            end, broken = str(wrong), True
        trace = blake2b("\n".join(_story(life)).encode(), digest_size=8).hexdigest()
        yield Lived(seed=seed, end=end, broken=broken, trace=trace, decisions=decisions[seed])


def tell(seed: int) -> Iterator[str]:
    """What `Tree.told` reads."""
    from tests.simulation.lived import BrokenError  # noqa: PLC0415
    from tests.simulation.wide import life_of  # noqa: PLC0415

    life = life_of(seed)
    with suppress(BrokenError):  # its end is compared, not its story
        life.live()
    yield from _story(life)


def _story(life: AnyLife) -> Iterator[str]:
    from orchestrator.model.encoding import encode_event  # noqa: PLC0415  (as above)
    from orchestrator.runtime.codec import row, to_text  # noqa: PLC0415  (as above)

    happened = [(at, 0, f"{at:.6f} {what}") for at, what in life.world.story]
    for program in life.programs:
        records = (record for run in program.own_runs for record in program.written(run))
        texts = ((one.at, to_text({**row(one), "event": encode_event(one.event)})) for one in records)
        happened += [(at, 1, text) for at, text in texts]
    yield from (line for _, _, line in sorted(happened, key=lambda one: one[:2]))


def differences(before: list[str], after: list[str]) -> set[str]:
    """`steps`, or the fields of events in which two stories of the same steps differ."""
    found = set()
    for was, now in zip_longest(before, after):
        if was == now:
            continue
        if was is None or now is None or not was.startswith("{") or not now.startswith("{"):
            return {"steps"}
        old, new = json.loads(was), json.loads(now)
        old_event, new_event = old.pop("event"), new.pop("event")
        kind = old_event["event"]
        if (old, kind) != (new, new_event["event"]):
            return {"steps"}
        names = {*old_event, *new_event}
        found |= {f"{kind}.{name}" for name in names if old_event.get(name) != new_event.get(name)}
    return found


def say(text: str) -> None:
    """Print this line."""
    sys.stdout.write(f"{text}\n")


def parting(before: list[str], after: list[str]) -> list[str]:
    """The first lines in which two stories differ, with a few before them; none if they do not."""
    for number, pair in enumerate(zip([*before, ""], [*after, ""], strict=False)):
        if pair[0] != pair[1]:
            begin = max(0, number - _AROUND)
            lines = before[begin : begin + _SHOWN], after[begin : begin + _SHOWN]
            return [*difflib.unified_diff(*lines, "before", "after", lineterm="", n=_AROUND)]
    return []


def _tree_of(commit: str, folder: Path, python: str) -> Tree:
    words = ("git", "-C", str(ROOT), "archive", commit)
    packed = subprocess.run(words, capture_output=True, check=False)  # noqa: S603  (git)
    if packed.returncode != 0:
        sys.stderr.write(packed.stderr.decode())
        raise SystemExit(2)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return Tree(folder, python)


def compare(before: Tree, after: Tree, first: int, runs: int) -> int:
    """Live the seeds in both and say what differs; how many runs do, or were not compared to their end."""
    differ, broken, decisions, done, kinds = 0, 0, 0, 0, Counter[str]()
    with ThreadPoolExecutor(2) as pool:
        for begin in range(first, first + runs, _CHUNK):
            count = min(_CHUNK, first + runs - begin)
            old, new = pool.map(lambda tree: tree.lived(begin, count), (before, after))  # noqa: B023  (used up here)
            for was, now in zip(old, new, strict=True):
                done, decisions = done + 1, decisions + was.decisions
                broken += was.broken or now.broken
                if was != now:
                    differ += 1
                    told = pool.map(lambda tree: tree.told(was.seed), (before, after))  # noqa: B023  (as above)
                    found = sorted(differences(*told))
                    kinds.update(found)
                    say(f"seed {was.seed}: {was.end}; now {now.end}: {', '.join(found) or 'the end alone'}")
            sys.stderr.write(f"{done} of {runs} runs, {decisions} decisions, {differ} differ\n")
    say(f"{done} runs, {decisions} decisions: {differ} runs differ")
    if broken:
        say(f"{broken} broke a property, and were compared up to there alone")
    for kind, count in kinds.most_common():
        say(f"{count:6} {kind}")
    return differ + broken


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.lockstep")
    parser.add_argument("before", nargs="?", help="the commit to compare this tree with")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="only this one, from where they part")
    parser.add_argument("--riak", action="store_true", help="on Riak clusters; --first counts among these")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of BEFORE")
    parser.add_argument("--live", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tell", type=int, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.live or wanted.tell is not None:
        # Without `__init__.py` a package has parts wherever the path leads: nothing of another tree is taken.
        import tests  # noqa: PLC0415

        tests.__path__ = [str(Path.cwd() / "tests")]
    if wanted.live:
        for lived in live(*wanted.live):
            say(json.dumps({name: getattr(lived, name) for name in Lived.__slots__}))
        return 0
    if wanted.tell is not None:
        for line in tell(wanted.tell):
            say(line)
        return 0
    if wanted.before is None:
        parser.error("name the commit to compare this tree with")
    from tests.simulation.chance_riak import FIRST  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        before, after = _tree_of(wanted.before, Path(folder), wanted.python), Tree(ROOT, sys.executable)
        if wanted.seed is not None:
            found = parting(before.told(wanted.seed), after.told(wanted.seed))
            say("\n".join(found) or "both live it alike")
            return 1 if found else 0
        first = wanted.first + (FIRST if wanted.riak else 0)
        return 1 if compare(before, after, first, wanted.runs) else 0


if __name__ == "__main__":
    sys.exit(main())
