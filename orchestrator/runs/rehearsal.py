"""Drives the real loop over a simulated cluster that begins with a reading of the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from orchestrator.engine.estimate import PastTimes
from orchestrator.engine.fold import evolve
from orchestrator.engine.plan import make_plan
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError, LeaseError, SafetyViolation
from orchestrator.kinds import kind_of
from orchestrator.model.action import action_name
from orchestrator.model.event import Record, RunStarted
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome
from orchestrator.model.plan import Plan
from orchestrator.model.reading import Instant, Seconds
from orchestrator.ports import Reporter
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.aftermath import Aftermath, aftermath, settings
from orchestrator.simulation.glance import glance
from orchestrator.simulation.invariants import JournalStep
from orchestrator.simulation.merge_invariants import broken
from orchestrator.simulation.mirror import mirrored
from orchestrator.simulation.mishaps import Crash, Trip, What
from orchestrator.simulation.nights import night
from orchestrator.view.rehearsed import Befallen

MOST_TURNS: Final = 500_000
"""Decisions; a run of a hundred nodes takes some twenty thousand."""
_TAKEN_UP_AFTER: Final[Seconds] = 60.0
"""From a kill to `orchestrate resume`: an operator has to see it first."""
_RESUMED_TIMES: Final = 60
"""How often that is tried: without a master, or on a full disk, no run begins."""


class Rehearsal:
    """One rehearsal.

    Args:
        started: how the run would begin.
        seen: a reading of the real cluster with the parts that a plan needs.
        seed: of the mishaps; 0 = none.

    Raises:
        UsageError: a part of the cluster could not be read.
    """

    def __init__(self, started: RunStarted, seen: Observation, seed: int) -> None:
        self._started = started
        self._world = mirrored(started, seen, seed=seed)
        self._night = night(seed, self._world, started.nodes)
        self._before, self._began = settings(self._world), self._world.agenda.now
        self._simulation = Simulation(
            self._world,
            plan=self._night.plan,
            trips=self._night.trips,
            run=f"rehearsal-{seed}",
            operator=(started.operator, started.host),
        )
        self._killed: list[Befallen] = []
        self._shown = 0
        self._off = bool(started.policy.disabled_predicates)
        self._broken: list[str] = []

    def now(self) -> Instant:
        """The simulated time, as the program's clock has it."""
        return self._simulation.clock.now()

    @property
    def run(self) -> str:
        """The run's id."""
        return self._simulation.run

    @property
    def simulated(self) -> Seconds:
        """How much simulated time has passed."""
        return self._world.agenda.now - self._began

    @property
    def kills(self) -> int:
        """How often the program was killed so far."""
        return len(self._killed)

    @property
    def mishaps(self) -> tuple[str, ...]:
        """What has gone wrong so far."""
        return tuple(mishap.words for mishap in self._mishaps())

    @property
    def against_rules(self) -> tuple[str, ...]:
        """Violations of the program's own rules so far, if some of the rules are switched off."""
        return (*self._broken, *self._world.violations) if self._off else ()

    def plan(self) -> Plan:
        """The plan for the simulated cluster: a comparison with the real plan shows what it lacks."""
        return make_plan(
            kind_of(self._started.policy.kind),
            self._started,
            glance(self._world, self._started),
            describe=action_name,
            times=PastTimes(),
        )

    def news(self) -> Sequence[Befallen]:
        """What has gone wrong since the last call."""
        happened = sorted((*self._mishaps(), *self._killed), key=attrgetter("at"))
        new, self._shown = happened[self._shown :], len(happened)
        return new

    def _mishaps(self) -> list[Befallen]:
        words = self._night.words
        return [
            Befallen(at=at, words=words[what], names=_named_by(what))
            for at, what in self._simulation.fate.befell
            if what in words
        ]

    def play(self, reporter: Reporter, *, most_turns: int = MOST_TURNS) -> RunState:
        """From the beginning to the end, over every kill; the state in which it ended.

        Args:
            reporter: receives all records of the journal, and every wait.
            most_turns: the number of decisions after which the rehearsal counts as endless.

        Raises:
            SafetyViolation: the program broke a rule of its own, by the ground truth or by its journal, and
                no rule is switched off.
        """
        simulation, kills = self._simulation, list(self._night.kills)
        follower = Follower(simulation, reporter, self._wrong, most_turns)
        state = simulation.begin_as(self._started)
        while True:
            seams = simulation.seams
            seams.crash_at = len(seams.passed) + kills.pop(0) if kills else None
            try:
                follower.follow()
                state = simulation.drive(state, follower)
                break
            except Crash as kill:
                seams.crash_at = None
                follower.follow()
                words = f"the program is killed {_where(kill)}; a minute later: resume"
                self._killed.append(Befallen(at=self.now(), words=words, kills=True))
                self._world.agenda.advance(_TAKEN_UP_AFTER)
                state = self._resumed()
        if self._world.violations and not self._off:
            raise _defect(self._world.violations)
        return state

    def _wrong(self, wrong: Sequence[str]) -> None:
        """What no step may do. With rules switched off the operator has accepted it."""
        if not self._off:
            raise _defect(wrong)
        self._broken += wrong

    def aftermath(self) -> Aftermath:
        """What the run has left."""
        return aftermath(self._world, self._before)

    def _resumed(self) -> RunState:
        """Resume; if that is not possible yet, a minute later, as an operator would."""
        for _ in range(_RESUMED_TIMES):
            try:
                return self._simulation.resume()
            except (LeaseError, JournalError):
                self._world.agenda.advance(_TAKEN_UP_AFTER)
        return self._simulation.resume()


def _named_by(what: What | Trip) -> frozenset[str]:
    """The node, index, snapshot or setting that a mishap is about; of a verb that is lost, its target."""
    of = (what.target,) if isinstance(what, Trip) else (getattr(what, name, None) for name in _ABOUT)
    return frozenset(name for name in of if name)


_ABOUT: Final = ("node", "index", "name", "key", "holder", "to")
"""Fields of mishaps that name what they befall."""


def _where(kill: Crash) -> str:
    """The point at which it was: `after the commit of phase_entered, action_sent`, each name once."""
    when, commit, names = str(kill).partition(" of ")
    return when + commit + ", ".join(dict.fromkeys(names.split(", ")))


def _defect(wrong: Sequence[str]) -> SafetyViolation:
    return SafetyViolation(f"the rehearsal broke a rule of the program's own: {'; '.join(wrong)}")


class Follower:
    """Reports each record of the journal exactly once, and checks each step against the invariants.

    A process that is killed right after a commit has not reported it. The follower reports those records too.

    Args:
        wrong: called with what is wrong with a step.
        most_turns: the number of decisions after which the rehearsal counts as endless.
    """

    def __init__(
        self,
        simulation: Simulation,
        reporter: Reporter,
        wrong: Callable[[Sequence[str]], None],
        most_turns: int = MOST_TURNS,
    ) -> None:
        self._simulation, self._reporter, self._wrong = simulation, reporter, wrong
        self._most_turns = most_turns
        self._followed, self._read, self._turns = RunState(run=simulation.run), 0, 0

    def follow(self) -> None:
        """Report and check the records that were committed since the last call."""
        new = self._simulation.journal.records[self._read :]
        self._read += len(new)
        for record in new:
            before, self._followed = self._followed, evolve(self._followed, record)
            wrong = broken(JournalStep(before=before, record=record, after=self._followed))
            if wrong:
                self._wrong(wrong)
        if new:
            self._reporter.events(new)

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        del records  # the journal has them
        self.follow()

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made.

        Raises:
            SafetyViolation: the run makes decisions without end.
        """
        self.follow()
        self._turns += 1
        if self._turns > self._most_turns:
            raise SafetyViolation(f"the rehearsal does not end: {self._turns} decisions, in {state.phase}")
        self._reporter.waiting(state, decision)

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        self.follow()
        self._reporter.finished(state, outcome)
