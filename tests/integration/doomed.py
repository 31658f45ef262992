"""The program, as a process that dies by its own SIGKILL at a chosen seam, or is raced by a new index.

It is the program's own composition with a journal and an executor that know when to die: nothing in the
package knows of it. What it is told stands in one variable, as JSON:

- `seam`: it dies at the N-th seam that it passes. Seams are `before` (events inserted, their transaction not
  committed), `after` (committed, not acted on) and `acted` (done, not yet recorded). Absent: it lives.
- `at`: it dies after the commit of events of which one contains this text.
- `among`: places, of which it dies at the first that it passes; `waves` had finished before it began, and the
  run was in this `phase`.
- `names`: what to call nodes, by their names: which node comes when depends on the elected master.
- `trace`: a file that gets one line for each seam as it is passed, so that it is known where a run died.
- `foreign`: the process gives itself an identity of another machine, so that nobody can prove it dead.
- `expiry`: seconds after which a lease that shows no sign of life may be taken over, for whoever watches.
- `race`: `node`, `endpoint` and `moment`: just before that action an index is made whose only primary is on
  the node. Before `flush` the last reading is still to come; before `stop` no reading can see it.
- `silences`: seconds, by the names of `around/silence.py`, such as `LEASE_SECONDS`: minutes are too long.

With `--serve` it takes orders instead, and forks a process for each: see `nursery.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from sqlalchemy import Engine, event

from orchestrator.around import silence
from orchestrator.cli import prompts  # noqa: F401  (read once, not by each process that is forked)
from orchestrator.cli.program import run
from orchestrator.model.action import Action, Flush, StopNode, action_name, action_target
from orchestrator.model.event import ActionConfirmed, ActionFailed, Event, Record
from orchestrator.runs import connection, takeover
from orchestrator.runtime import loop, store
from orchestrator.runtime.executor import Executor
from orchestrator.runtime.identity import ProcessIdentity
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.lease import Lease, Terms

VARIABLE = "ORCHESTRATE_TEST_DOOM"
RACED_INDEX = "just-made"
_MOMENTS = {"flush": Flush, "stop": StopNode}
RUN_ENTERS = "phase_entered  "
"""How the entry of a run, not of a node, into a phase is told."""
ELSEWHERE = ProcessIdentity(boot="another-machine", namespace="1", pid=4711, started=1)


class Place(NamedTuple):
    """One event or action of a run: at which kind of seam it is told, in which words, and in which wave.

    Nodes of a wave go each at its own pace, so what is told at one seam together differs from run to run;
    each event and action for itself does not.
    """

    kind: str
    told: str
    waves: int


def finished(kind: str, detail: Sequence[str]) -> bool:
    """Whether the end of a wave is committed at a seam."""
    return kind == "after" and any(each.startswith("wave_finished") for each in detail)


def phase_after(phase: str, passed: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The phase of a run by the journal, when these seams were passed since it was in `phase`."""
    for seam, detail in passed:
        for each in detail if seam.startswith("after") else ():
            phase = each.removeprefix(RUN_ENTERS) if each.startswith(RUN_ENTERS) else phase
    return phase


class Fate:
    """Counts the seams that this process passes, and ends it at the chosen one."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._seam = told.get("seam")
        self._at = told.get("at")
        self._among = {Place(*place) for place in told.get("among", ())}
        self._waves = int(told.get("waves", 0))
        self._phase = str(told.get("phase", ""))
        self._names: dict[str, str] = told.get("names", {})
        self._trace = Path(told.get("trace", os.devnull))
        self._passed = {"append": 0, "perform": 0, "any": 0}

    def begins(self, what: str) -> int:
        """Count one more append or perform."""
        self._passed[what] += 1
        return self._passed[what]

    def passes(self, kind: str, number: int, detail: Sequence[str]) -> None:
        """Write the seam down; die if it is the one."""
        detail = [self._renamed(each) for each in detail]
        with self._trace.open("a", encoding="utf-8") as trace:
            trace.write(json.dumps([f"{kind}:{number}", list(detail)]) + "\n")
        if self.begins("any") == self._seam or self._is_at(kind, detail):
            os.kill(os.getpid(), signal.SIGKILL)
        self._waves += finished(kind, detail)
        self._phase = phase_after(self._phase, [(kind, detail)])

    def _renamed(self, told: str) -> str:
        """By the names given; a reading, of which a wave has several, by the phase that it is for."""
        if told == "good_reading":
            return f"{told} {self._phase}"
        return " ".join(self._names.get(word, word) for word in told.split(" "))

    def _is_at(self, kind: str, detail: Sequence[str]) -> bool:
        if any(Place(kind, each, self._waves) in self._among for each in detail):
            return True
        return self._at is not None and kind == "after" and any(self._at in each for each in detail)


class DoomedJournal(SqlJournal):
    """A journal whose process may die before or after a commit."""

    def __init__(self, engine: Engine, run: str, **terms: Any) -> None:
        super().__init__(engine, run, **terms)
        self._under_way: tuple[int, list[str]] | None = None
        event.listen(engine, "commit", self._committing)

    def append(self, events: Sequence[Event], at: float) -> Sequence[Record]:
        names = [_told(each) for each in events]
        number = FATE.begins("append")
        self._under_way = (number, names)
        records = super().append(events, at)
        self._under_way = None
        FATE.passes("after", number, names)
        return records

    def _summarise(self, connection: Any, record: Record) -> None:
        super()._summarise(connection, record)
        connection.info["journal"] = True

    def _committing(self, connection: Any) -> None:
        """Before the database's commit; the lease's heartbeat commits on connections of its own."""
        if connection.info.pop("journal", False) and self._under_way is not None:
            FATE.passes("before", *self._under_way)


class DoomedExecutor(Executor):
    """An executor whose process may die with everything done and nothing told; it may be raced, once."""

    def perform(self, actions: Sequence[Action]) -> tuple[ActionConfirmed | ActionFailed, ...]:
        race = TOLD.get("race")
        if race and any(isinstance(action, _MOMENTS[race["moment"]]) for action in actions):
            del TOLD["race"]
            _make_index(**race)
        number = FATE.begins("perform")
        done = super().perform(actions)
        FATE.passes("acted", number, [f"{action_name(action)} {action_target(action)}" for action in actions])
        return done


def _make_index(*, node: str, endpoint: str, moment: str) -> None:
    del moment
    settings = {"number_of_shards": 1, "number_of_replicas": 0, "routing.allocation.require._name": node}
    request = Request(  # noqa: S310  (an address of the test's own cluster)
        f"{endpoint}/{RACED_INDEX}?wait_for_active_shards=1",
        data=json.dumps({"settings": {"index": settings}}).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310  (as above)
        answer.read()


def _told(each: Event) -> str:
    what = getattr(each, "to", None) or getattr(each, "key", None)
    action = getattr(each, "action", None)
    what = what or (f"{action_name(action)} {action_target(action)}" if action is not None else "")
    return f"{each.event} {getattr(each, 'node', None) or ''} {what}".strip()


TOLD: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
FATE = Fate(TOLD)


def serve() -> None:
    """For each order on standard input a process of its own, forked; its exit code on standard output."""
    global TOLD, FATE  # noqa: PLW0603  (what a process is told from its beginning)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child:
            sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
            sys.stdout.flush()
            continue
        with Path(os.devnull).open("rb") as nothing, Path(order["out"]).open("wb") as out:
            for stream, number in ((nothing, 0), (out, 1), (out, 2)):
                os.dup2(stream.fileno(), number)
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        TOLD = json.loads(os.environ[VARIABLE])
        FATE = Fate(TOLD)
        compose()
        sys.exit(run(order["words"]))


def compose() -> None:
    """Put the doomed parts where the program composes itself."""
    _put(store, SqlJournal=DoomedJournal)
    _put(loop, Executor=DoomedExecutor)
    if "expiry" in TOLD:
        end = float(TOLD["expiry"])
        terms = Terms(heartbeat=end / 6, retry=end / 12, lost_after=end * 2 / 3, expiry=end, poll=0.2)
        _put(takeover, Lease=lambda places, who, clock, _terms: Lease(places, who, clock, terms))
    _put(silence, **TOLD.get("silences", {}))
    # Pages of runs whose state is on a server would go where this machine's own are.
    _put(store, reports_folder=lambda *_, **_given: Path(os.environ["HOME"]) / "reports")
    if TOLD.get("foreign"):
        _put(connection, current_process=lambda: ELSEWHERE)


def _put(module: ModuleType, **parts: object) -> None:
    for name, part in parts.items():
        if not hasattr(module, name):
            raise AttributeError(f"{module.__name__} is not composed of a {name}")
        setattr(module, name, part)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as from a terminal, also when the tests run under nohup
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or in the background
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        compose()
        sys.exit(run(sys.argv[1:]))
