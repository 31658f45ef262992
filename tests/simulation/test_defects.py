"""A defect of the program in mid-run: everything is put back first, and then the defect is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.engine.fold import replay
from orchestrator.kinds import decide
from orchestrator.model.action import HostAction, RunHook, StartNode, StopNode
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.event import ActionSent
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.model.policy import Hook, Hooks, Policy
from orchestrator.runtime import loop as loop_module
from orchestrator.runtime.database import CommitInDoubt
from orchestrator.runtime.loop import Loop
from tests.simulation.gated import QUEUE
from tests.simulation.loaded import loaded, merged_policy, merging
from tests.simulation.play import Watcher, cluster, phase_of, policy
from tests.simulation.program import Simulation
from tests.simulation.scene import ES2, Before
from tests.simulation.tuned import detune, profile


class DefectError(ValueError):
    """Raised where nobody expects it."""


@dataclass
class Faulty:
    """Raises at the chosen verb of es2, so many times, before or after it is done."""

    simulation: Simulation
    verb: type[HostAction]
    times: int
    done_first: bool = False
    raised: list[HostAction] = field(default_factory=list)

    def plant(self) -> None:
        hosts: Any = self.simulation.hosts

        def look(action: HostAction) -> None:
            if isinstance(action, self.verb) and action.node == ES2 and len(self.raised) < self.times:
                self.raised.append(action)
                if self.done_first:
                    hosts.perform(action)
                raise DefectError("string argument should contain only ASCII characters")

        faulty: Any = Before(hosts, "perform", look)
        self.simulation.hosts = faulty


def _drive(simulation: Simulation, wanted: Policy, *, faults: Callable[[], object] = lambda: None) -> Any:
    """The state at the end of a run that is begun and given these faults."""
    state = simulation.begin(wanted)
    faults()
    watcher = Watcher(simulation, simulation.world.agenda.now + 48 * 3600.0, compare=False)
    return simulation.drive(state, watcher)


@pytest.mark.parametrize("verb", [StopNode, StartNode])
@pytest.mark.parametrize("done_first", [False, True])
@pytest.mark.proves("defect")
def test_everything_is_put_back_before_a_defect_is_told(verb: type[HostAction], *, done_first: bool) -> None:
    world = cluster(3)
    simulation = Simulation(world)
    Faulty(simulation, verb, times=1, done_first=done_first).plant()
    with pytest.raises(DefectError):
        _drive(simulation, policy())
    state = simulation.attempt.state
    assert (state.phase, state.outcome) == (Phase.ENDED, Outcome.FAILED)
    assert "a defect of the program: DefectError" in state.message
    assert world.settings() == cluster(3).settings()
    assert all(node.process for node in world.nodes.values())
    assert world.violations == []


def test_a_defect_that_repeats_ends_the_program_at_once() -> None:
    simulation = Simulation(cluster(3))
    faulty = Faulty(simulation, StartNode, times=99)
    faulty.plant()
    with pytest.raises(DefectError):
        _drive(simulation, policy())
    assert len(faulty.raised) == 8, "one from the stand-down and one without it, for each defect"


RAISING: tuple[tuple[str, str], ...] = (
    ("cluster", "observe"),
    ("cluster", "bulk"),
    ("cluster", "avoid"),
    ("hosts", "observe"),
    ("hosts", "tuning"),
    ("gates", "observe"),
    ("listener", "listen"),
    ("lease", "view"),
    ("lease", "confirm"),
    ("lease", "publish"),
    ("reporter", "events"),
    ("reporter", "waiting"),
    ("asked", "__call__"),
    ("decide", "__call__"),
)
"""Everything that a run reads or asks, its decision, and the views that are shown it."""


@dataclass
class Switch:
    """Raises at one method of one port, from the moment that a run enters a phase on, for ever."""

    simulation: Simulation
    port: str
    method: str
    phase: Phase
    first: int = 0  # events that were written before the run was driven, which are shown first of all
    thrown: bool = False
    raised: int = 0

    def look(self, *_given: object) -> None:
        begins = self.port == "reporter" and len(self.simulation.journal.records) == self.first
        self.thrown = self.thrown or (phase_of(self.simulation) is self.phase and not begins)
        if self.thrown:
            self.raised += 1
            raise DefectError(f"{self.port}.{self.method}")

    def around(self, port: Any) -> Any:
        return Before(port, self.method, self.look)

    @contextmanager
    def during(self, _state: object) -> Iterator[Callable[[], tuple[Request, str]]]:
        yield lambda: (self.look(), (Request.NONE, ""))[1]

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a run that has begun."""
        simulation, attempt = self.simulation, self.simulation.attempt
        self.first = len(simulation.journal.records)
        if self.port == "decide":
            decided = lambda *given: (self.look(), decide(*given))[1]  # noqa: E731
            monkeypatch.setattr(loop_module, "decide", decided)
        elif self.port == "lease":
            attempt.lease = self.around(attempt.lease)
        elif self.port == "asked":
            process = replace(attempt.connection.process, requests=self.during)
            attempt.connection = replace(attempt.connection, process=process)
        elif self.port != "reporter":
            setattr(simulation, self.port, self.around(getattr(simulation, self.port)))


def _everything() -> Policy:
    """A policy under which a run reads all that it can read."""
    hook = Hook(run="true")
    return merged_policy(
        merging(),
        tune=profile(),
        gates=(QUEUE,),
        hooks=Hooks(before_stop=(hook,), while_stopped=(hook,), after_recovery=(hook,)),
    )


def _left_behind(
    port: str, method: str, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, list[str]]:
    """How often it raised, and what is wrong with the cluster ten minutes after such a run."""
    world = detune(loaded())
    simulation = Simulation(world)
    state = simulation.begin(_everything())
    switch = Switch(simulation, port, method, phase)
    watcher: Any = Watcher(simulation, world.agenda.now + 48 * 3600.0, compare=False)
    raised: BaseException | None = None
    with monkeypatch.context() as patched:
        switch.plant(patched)
        try:
            simulation.drive(state, switch.around(watcher) if port == "reporter" else watcher)
        except DefectError as defect:
            raised = defect
    world.agenda.until(lambda: False, 600.0)
    wrong = [f"{node.name} is down" for node in world.nodes.values() if not node.process]
    if world.effective(ALLOCATION) != loaded().effective(ALLOCATION):
        wrong.append(f"{ALLOCATION} is {world.effective(ALLOCATION)}")
    if switch.raised and not (raised and simulation.run in "".join(raised.__notes__)):
        wrong.append(f"the defect does not name the run: {raised!r}")
    return switch.raised, [*wrong, *world.violations]


@pytest.mark.proves("defect")
def test_no_defect_leaves_a_node_down_or_allocation_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each kind of reading, in each phase, for ever: what needs no reading is done without one."""
    wrong, met = [], 0
    for port, method in RAISING:
        for phase in Phase:
            raised, left = _left_behind(port, method, phase, monkeypatch)
            met += bool(raised)
            wrong += [f"{port}.{method} from {phase.value} on: {what}" for what in left]
    assert wrong == []
    assert met > len(RAISING) * 4, "most points are never met: the test has lost its run"


def test_no_node_starts_unseen_beside_a_hook_that_may_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's port raised, so that its end is not known; and nothing can be read any more."""
    simulation = Simulation(cluster(3))
    hosts, faulty = simulation.hosts, Faulty(simulation, RunHook, times=1)
    faulty.plant()
    wanted = policy(hooks=Hooks(while_stopped=(Hook(run="apt-get install"),)))
    switch = Switch(simulation, "cluster", "observe", Phase.STANDING_DOWN)
    with pytest.raises(DefectError) as raised:
        _drive(simulation, wanted, faults=lambda: switch.plant(monkeypatch))
    assert faulty.raised
    assert not [action for action in hosts.sent if isinstance(action, StartNode)]
    assert "es2 was not started: a hook or an install step may still run there" in "".join(
        raised.value.__notes__
    )


def test_a_commit_in_doubt_sends_nothing_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each commit in turn, done or not: the journal tells what was lived, and the cluster is restored."""
    wrong, commit, doubted = [], 1, True
    original = Loop.turn
    while doubted:
        simulation = Simulation(cluster(3))
        state = simulation.begin(policy())
        journal: Any = Doubtful(simulation.attempt.journal, commit, done=commit % 2 == 0)
        simulation.attempt.journal = journal
        early, done = list[str](), (simulation.cluster.sent, simulation.hosts.sent)

        def counted(
            loop: Loop, seen: Observation, journal: Any = journal, early: Any = early, done: Any = done
        ) -> None:
            before = (journal.doubted, sum(map(len, done)))
            original(loop, seen)
            to_send = journal.doubted != before[0] and any(isinstance(e, ActionSent) for e in journal.doubted)
            if to_send and sum(map(len, done)) != before[1]:
                early.append("something was sent by a reading from before the doubt")

        monkeypatch.setattr(Loop, "turn", counted)
        world = simulation.world
        watcher = Watcher(simulation, world.agenda.now + 48 * 3600.0, compare=False)
        state = simulation.drive(state, watcher)
        doubted = bool(journal.doubted)
        down = [node.name for node in world.nodes.values() if not node.process]
        told = replay(simulation.run, simulation.journal.records)
        if down or world.violations or journal.unwritten or world.settings() != cluster(3).settings():
            wrong.append(f"commit {commit}: {state.outcome}, {state.message}, {down}, {world.violations}")
        left = (*told.unrestored.settings, *told.process.in_flight)
        wrong += [f"commit {commit}: {what}" for what in early]
        if (told.phase, told.outcome, left) != (Phase.ENDED, state.outcome, ()):
            wrong.append(f"commit {commit}: the journal tells of another run: {told}")
        commit += 1
    assert wrong == []
    assert commit > 40


class Doubtful:
    """A journal whose so-many-th commit is in doubt, and which says so twice before it settles the doubt."""

    def __init__(self, inner: Any, at: int, *, done: bool) -> None:
        self._inner, self._at, self._done = inner, at, done
        self.doubted: tuple[Any, ...] = ()
        self.unwritten = 0
        self._written: Any = ()

    def append(self, events: Any, at: float) -> Any:
        self._at -= 1
        if self._at == 0:
            self.doubted = tuple(events)
            self._written = self._inner.append(events, at) if self._done else ()
            self.unwritten = len(self.doubted)
            raise CommitInDoubt("the connection broke at a commit")
        if self.unwritten:
            assert tuple(events[: self.unwritten]) == self.doubted, "its events come first, as they were"
            rest = events[len(self._written) :]
            self.unwritten = 0
            return [*self._written, *(self._inner.append(rest, at) if rest else ())]
        return self._inner.append(events, at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
