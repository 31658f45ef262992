"""Every screen of the program, of runs with any number of nodes, on a terminal of any size.

Runs are simulated. Commands run in this process as a person types them, in a home of their own.
`python -m tests.unit.view.screens` prints a table of their lines, and a screen by its name, nodes and size.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import cache, partial, partialmethod
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from rich.console import Console as TerminalConsole
from rich.live import Live
from rich.style import Style

from orchestrator.cli import context, program
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune import show_states
from orchestrator.config.tuning import load_profile
from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, PhaseEntered, Record, RunStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Request
from orchestrator.model.policy import Strategy
from orchestrator.runs.connection import Connection
from orchestrator.runs.files import save_snapshot
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock
from orchestrator.simulation import tuning
from orchestrator.simulation.mishaps import (
    Crash,
    How,
    Mishap,
    PersonAsked,
    SettingMeddled,
    StartsFail,
    Trip,
    What,
)
from orchestrator.tuning.registry import RULES
from orchestrator.view.live import LiveReporter, live_console
from orchestrator.view.reporters import Reporters
from tests.cli.runs import DEAD_PROCESS, RUN, entry, leave, record_of
from tests.cli.small_cluster import SmallCluster
from tests.simulation.play import policy
from tests.simulation.program import Simulation
from tests.simulation.readings import read
from tests.unit.view.moments import NAMES, SITUATIONS, Moment, moments, situation, wanted_of, world_of
from tests.unit.view.terminal import Answer, Device, Seen, device, seen

SIZES: Final = ((60, 20), (80, 24), (120, 40))
COUNTS: Final = (3, 30, 300)
PROFILE: Final = Path(__file__).parents[3] / "configs" / "tuning" / "elasticsearch.yml"
SPEED: Final = "indices.recovery.max_bytes_per_sec"
ENABLE: Final = "cluster.routing.allocation.enable"

Draw = Callable[[Device], None]
"""Writes a screen to a device, whose size and variables are those of the process."""


def look(draw: Draw, width: int, height: int, **variables: str) -> Seen:
    """How a screen looks on a terminal of this size, in colour unless `NO_COLOR` is among the variables."""
    with on_terminal(width, height, **variables) as made:
        draw(made)
    return seen(bytes(made.written), width, height)


@contextmanager
def on_terminal(width: int, height: int, **variables: str) -> Iterator[Device]:
    """A terminal, and the variables of a process on it."""
    usual = {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": str(height)}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    # A style of rich keeps the codes of the first terminal that it was drawn on: here one of another test.
    Style.parse.cache_clear()
    Style._add.cache_clear()
    with (
        device(width, height) as made,
        patch.dict(os.environ, {**kept, **usual, **variables}, clear=True),
    ):
        yield made


# Runs ---------------------------------------------------------------------------------------------------


def befalls(what: What, verb: str = "stop", after: float = 1.0) -> Mishap:
    """It happens so long after the first such verb."""
    return Mishap(what=what, verb=verb, after=after)


class _Kills(Reporters):
    """Kills the program once a node is stopped."""

    def events(self, records: Sequence[Record]) -> None:
        if any(isinstance(one.event, PhaseEntered) and one.event.to == "stopped" for one in records):
            raise Crash


class Run:
    """A simulated run that has ended, or was killed while a node was down."""

    def __init__(self, nodes: int, *plan: Mishap, trips: Sequence[Trip] = (), killed: bool = False) -> None:
        self.simulation = Simulation(world_of(nodes), plan=plan, trips=trips)
        self.state = self.simulation.begin(wanted_of(nodes))
        with suppress(Crash):
            self.state = self.simulation.drive(self.state, _Kills() if killed else Reporters())

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(self.simulation.journal.records)

    @property
    def now(self) -> float:
        return self.simulation.world.agenda.now


def _second(nodes: int) -> str:
    """A node of the first wave: the elected master, which is the first one, goes last."""
    return f"es{2:0{len(str(nodes))}}"


@cache
def ended(nodes: int, how: str) -> tuple[RunState, tuple[Record, ...], float]:
    """State, records and end of a run that ended so."""
    second = _second(nodes)
    match how:
        case "done":
            run = Run(nodes)
        case "done with a warning":
            run = Run(nodes, befalls(SettingMeddled(key=ENABLE, value="all", level=Level.PERSISTENT)))
        case "held":
            world_holds = befalls(Snapshot())
            run = Run(nodes, world_holds)
        case "failed":
            run = Run(nodes, Mishap(what=StartsFail(node=second, times=99)))
        case "stood down":
            run = Run(nodes, befalls(PersonAsked(request=Request.STOP)))
        case "paused":
            run = Run(nodes, befalls(PersonAsked(request=Request.PAUSE)))
        case "not restored":
            refused = (
                Trip(verb="restore_settings", how=How.REFUSED, times=10_000),
                Trip(verb="restore_allocation", how=How.REFUSED, times=10_000),
            )
            run = Run(nodes, befalls(PersonAsked(request=Request.STOP)), trips=refused)
        case "killed and restored":
            run = Run(nodes, killed=True)
            other = run.simulation.elsewhere("run-2")
            state = other.take_over(wanted_of(nodes))
            assert state is not None
            state = other.drive(state, Reporters())
            return state, tuple(other.journal.records), other.world.agenda.now
        case "restored by hand":
            run = Run(nodes, killed=True)
            state = run.simulation.restore()
            run.state = run.simulation.drive(state, Reporters())
        case _:
            raise LookupError(how)
    return run.state, run.records, run.now


class Snapshot(What):
    """A snapshot that does not end."""

    def befall(self, fate: Any) -> None:
        fate.world.begin_snapshot("repo/nightly")


OUTCOMES: Final = (
    *("done", "done with a warning", "held", "failed", "stood down", "paused", "not restored"),
    *("killed and restored", "restored by hand"),
)


# Screens of a run ----------------------------------------------------------------------------------------


@contextmanager
def live_view(moment: Moment, made: Device) -> Iterator[tuple[TerminalConsole, Callable[[], None]]]:
    """The live view at a moment: its console, and a function that draws it."""
    console = live_console(made.out, os.environ)
    reporter = LiveReporter(console, lambda: moment.now, seen=lambda: moment.seen)
    reporter.events(moment.records)
    reporter.waiting(moment.state, moment.decision)
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as drawn:
        yield console, lambda: reporter._draw(drawn)


def _live(home: Home, made: Device, name: str) -> None:
    """The lines of events, and the panel below them."""
    moment = moments(home.nodes).get(name) or situation(home.nodes, name)
    with live_view(moment, made) as (_console, draw):
        draw()
        made.mark()


def _summary(home: Home, made: Device, how: str) -> None:
    """The end of a run."""
    state, records, now = ended(home.nodes, how)
    reporter = LiveReporter(live_console(made.out, os.environ), lambda: now)
    reporter.events(records)
    assert state.outcome is not None
    reporter.finished(state, state.outcome)


# Screens of commands -------------------------------------------------------------------------------------


class _Server(SmallCluster):
    """The cluster of a home; `down`: nodes that are not in it."""

    down: frozenset[str] = frozenset()

    def _there(self) -> dict[str, str]:
        return {node: name for node, name in self.nodes.items() if name not in self.down}


class Home:
    """A home with a cluster file, in which commands run."""

    def __init__(self, nodes: int) -> None:
        self._kept = ExitStack()
        folder = Path(self._kept.enter_context(tempfile.TemporaryDirectory(prefix="home")))
        self.folder, self.nodes = folder, nodes
        self._runs: tuple[tuple[str, str, Sequence[Record]], ...] | None = None
        self.names = tuple(world_of(nodes).nodes)
        self.server = self._kept.enter_context(_Server(self.names))
        self.server.zones = {name: str(node.zone) for name, node in world_of(nodes).nodes.items()}

    def close(self) -> None:
        self._kept.close()

    @property
    def state(self) -> Path:
        """The state of its commands."""
        return self.folder / "state.db"

    def _variables(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "ORCHESTRATE_STATE": f"sqlite:///{self.state}"}

    def file(self, **keys: Any) -> str:
        """The cluster file."""
        return self.server.write_file(self.folder, **keys)

    def run(
        self, made: Device, *arguments: str, now: float | None = None, to: Simulation | None = None
    ) -> None:
        """Type a command, and look at the screen when it asks.

        Args:
            made: the terminal.
            arguments: of the program.
            now: the time; None is that of the machine.
            to: a simulated cluster that the command finds instead of the one of the file.
        """
        with ExitStack() as around:
            around.enter_context(patch.dict(os.environ, self._variables()))
            around.enter_context(patch("orchestrator.hosts.management.SCRIPT", "(exit 0)"))
            around.enter_context(redirect_stdout(made.out))
            around.enter_context(redirect_stderr(made.out))
            around.enter_context(patch.object(sys, "stdin", Answer("n\n", made.mark)))
            if to is not None:
                around.enter_context(patch.object(context.Context, "connect", partialmethod(_connected, to)))
                now = to.world.agenda.now
            around.enter_context(
                patch.object(SystemClock, "wait", partial(_leaves, made, draws="--watch" in arguments))
            )
            if now is not None:
                around.enter_context(patch.object(SystemClock, "now", lambda _self: now))
            folder = Path.cwd()
            os.chdir(self.folder)
            try:
                program.run(arguments)
            finally:
                os.chdir(folder)

    def keep(self, *runs: tuple[str, str, Sequence[Record]]) -> None:
        """Keep these runs in a new state: id, process and records of each. Writing them takes longest."""
        if self._runs == runs:
            return
        self._runs = runs
        self.state.unlink(missing_ok=True)
        with open_store(f"sqlite:///{self.state}", {}, access=DatabaseUse.WRITE) as store:
            for run, process, records in runs:
                journal = store.create_run(replace(entry(run, process), started=records[0].at))
                for at, events in groupby(records, key=lambda record: record.at):
                    journal.append([self._here(record.event) for record in events], at)

    def _here(self, event: Event) -> Event:
        if isinstance(event, RunStarted):
            return replace(event, cluster="lab", cluster_file=self.file(), cluster_uuid="uuid")
        return event


def _leaves(made: Device, *_: Any, draws: bool) -> None:
    """A person looks while a command waits, and ends it. `draws`: its panel comes from a thread."""
    if draws:
        made.until("╯")
    made.mark()
    raise KeyboardInterrupt


def _connected(
    here: context.Context, simulation: Simulation, _ports: Any, _state: str | None = None, _agrees: Any = None
) -> Connection:
    return simulation._started(partial(context._reporter, here), here.note)


def _planned(home: Home, made: Device, *words: str, **wanted: Any) -> None:
    """A plan or a question about a simulated cluster."""
    world = world_of(home.nodes)
    if wanted.pop("held", False):
        world.begin_snapshot("repo/nightly")
    by = Strategy.NODE if wanted else None
    chosen = policy(reason="kernel update") if by else wanted_of(home.nodes)
    home.run(made, *words, "--cluster", home.file(name="prod"), to=Simulation(world, policy=chosen))


@cache
def _killed(nodes: int) -> tuple[Simulation, float]:
    run = Run(nodes, killed=True)
    return run.simulation, run.now


def _after_a_kill(home: Home, made: Device, *words: str) -> None:
    """The same about a cluster in which a run was killed three minutes ago, while a node was down."""
    simulation, at = _killed(home.nodes)
    simulation.world.agenda.now = at + 180.0
    home.run(made, *words, "--cluster", home.file(name="prod"), to=simulation)


def _rehearsed(home: Home, made: Device, seed: int) -> None:
    path = home.folder / "prod.snapshot"
    if not path.exists():
        save_snapshot(path, *read(world_of(home.nodes), wanted_of(home.nodes)))
    home.run(made, "rehearse", "--snapshot", path.name, "--seed", str(seed), now=0.0)


def _status(home: Home, made: Device, name: str, *words: str, alive: bool = True) -> None:
    """The status of a run that came to a moment."""
    moment = moments(home.nodes).get(name) or situation(home.nodes, name)
    home.keep((RUN, str(current_process()) if alive else DEAD_PROCESS, moment.records))
    changed = replay(RUN, moment.records).unrestored.settings.values()
    home.server.settings["persistent"] = {change.key: change.wanted for change in changed}
    home.run(made, "status", *words, now=moment.now + 120.0 * (not alive))
    home.server.settings["persistent"] = {}


def _history(home: Home, made: Device, *hows: str) -> None:
    runs = [
        (f"20261101-030{n}-abc{n}", "boot/1/2/3", ended(home.nodes, how)[1]) for n, how in enumerate(hows)
    ]
    home.keep(*runs)
    home.run(made, "history", now=2e6)


def _ended_status(home: Home, made: Device, how: str) -> None:
    state, records, now = ended(home.nodes, how)
    home.keep((RUN, "boot/1/2/3", records))
    home.server.down = frozenset(node.name for node in state.nodes_in(NodePhase.FAILED))
    home.run(made, "status", now=now + 60.0)
    home.server.down = frozenset()


def _validated(home: Home, made: Device, *, bad: int = 0, left: bool = False) -> None:
    """Some hosts take no connection; or a killed run has left its record."""
    overrides = {name: {"connect": "ssh", "port": 1} for name in home.names[:bad]}
    file = home.file(name="lab", hosts={"overrides": overrides} if bad else {})
    if left:
        change = SettingChange(level=Level.PERSISTENT, key=SPEED, found=None, wanted="100mb")
        leave(home.server, record_of(RUN, DEAD_PROCESS, debts=(change,)))
    home.run(made, "validate", "--cluster", file)
    home.server.templates.clear()


def _nothing_due(home: Home, made: Device) -> None:
    home.server.started = 4_000_000_000_000
    home.run(made, "restart", "--cluster", home.file(), "--started-before", "2020-01-01T00:00Z")
    home.server.started = 1


def _tuned(home: Home, made: Device) -> None:
    """`tune check` where one host has drifted."""
    world = world_of(home.nodes)
    world.nodes[NodeName(_second(home.nodes))].kernel["vm.swappiness"] = "60"
    found = tuning.read(world.nodes.values(), load_profile(PROFILE, rules=RULES))
    with redirect_stdout(made.out):
        show_states(found, context.context_of(Output.TEXT))


def _typed(home: Home, made: Device, *words: str) -> None:
    home.keep()
    home.run(made, *words)


Makes = Callable[[Home, Device], None]

SCREENS: Final[Mapping[str, Makes]] = {
    "plan": lambda home, made: _planned(home, made, "plan"),
    "plan, node by node": lambda home, made: _planned(home, made, "plan", one_by_one=True),
    "plan, held": lambda home, made: _planned(home, made, "plan", held=True),
    "plan after a kill": lambda home, made: _after_a_kill(home, made, "plan"),
    "question": lambda home, made: _planned(home, made, "restart"),
    "question, held": lambda home, made: _planned(home, made, "restart", held=True),
    "question after a kill": lambda home, made: _after_a_kill(home, made, "restart"),
    **{f"live, {name}": partial(_live, name=name) for name in (*NAMES, *SITUATIONS)},
    **{f"summary, {how}": partial(_summary, how=how) for how in OUTCOMES},
    "status, a wave in progress": lambda home, made: _status(home, made, "down"),
    "status, held": lambda home, made: _status(home, made, "held"),
    "status --watch": lambda home, made: _status(home, made, "down", "--watch"),
    "status, killed": lambda home, made: _status(home, made, "down", alive=False),
    "status, done": lambda home, made: _ended_status(home, made, "done"),
    "status, failed": lambda home, made: _ended_status(home, made, "failed"),
    "status, no runs": lambda home, made: _typed(home, made, "status"),
    "history": lambda home, made: _history(home, made, "done", "failed", "done"),
    "history, no runs": lambda home, made: _typed(home, made, "history"),
    "validate": _validated,
    "validate, two hosts not ready": lambda home, made: _validated(home, made, bad=2),
    "validate after a kill": lambda home, made: _validated(home, made, left=True),
    "tune check": _tuned,
    "rehearse": lambda home, made: _rehearsed(home, made, 0),
    "rehearse, mishaps": lambda home, made: _rehearsed(home, made, 1),
}
"""What a run or a command about a cluster shows, by name."""

WITHOUT_NODES: Final[Mapping[str, Makes]] = {
    "summary, nothing to do": _nothing_due,
    "help": lambda home, made: _typed(home, made, "--help"),
    "help of restart": lambda home, made: _typed(home, made, "restart", "--help"),
    "explain a predicate": lambda home, made: _typed(home, made, "explain", "no_running_snapshot"),
    "explain a word": lambda home, made: _typed(home, made, "explain", "snapshot"),
}
"""Screens that are equal for any number of nodes."""


@contextmanager
def home_of(nodes: int) -> Iterator[Home]:
    """A home, and the cluster of its file."""
    made = Home(nodes)
    try:
        yield made
    finally:
        made.close()


def main(*given: str) -> None:
    """Write the table, or a screen."""
    write = sys.stdout.write
    if given:
        name, nodes, size, *variables = given
        width, height = map(int, size.split("x"))
        with home_of(int(nodes)) as home:
            makes = partial({**SCREENS, **WITHOUT_NODES}[name], home)
            write(look(makes, width, height, **dict(one.split("=", 1) for one in variables)).text + "\n")
        return
    heads = [(f"{width}x{height}", nodes) for width, height in SIZES for nodes in COUNTS]
    write(f"{'screen':30}" + "".join(f"{f'{size} {nodes}':>11}" for size, nodes in heads) + "\n")
    with ExitStack() as kept:
        homes = {nodes: kept.enter_context(home_of(nodes)) for nodes in COUNTS}
        for name, makes in {**SCREENS, **WITHOUT_NODES}.items():
            write(f"{name:30}")
            for size in SIZES:
                for nodes in COUNTS if name in SCREENS else COUNTS[:1]:
                    write(f"{len(look(partial(makes, homes[nodes]), *size).lines):11}")
                    sys.stdout.flush()
            write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
