"""The program on a simulated cluster, with what only tests do with it.

`connect` is a new process for the functions of `orchestrator.runs`. `begin`, `resume` and the like do the
first half of those functions (the lease is held, the first events are committed), and `drive` does the rest,
so that a test can check, and change the world, in between.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Engine

from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, Record, RestoreBegun, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Seconds
from orchestrator.ports import Reporter
from orchestrator.runs import simulated
from orchestrator.runs.connection import Connection, Watched
from orchestrator.runs.takeover import LeaseHeld, repair
from orchestrator.runs.unfinished import next_attempt
from orchestrator.runtime import tables
from orchestrator.simulation.beginning import start_of
from orchestrator.simulation.fate import Fate

_SPARE: Final[list[Engine]] = []
_WIPED: Final = tuple(table for table in reversed(tables.METADATA.sorted_tables) if table is not tables.meta)


def empty_state() -> Engine:
    """An empty state database in memory; a kept one, if there is one.

    Making the tables, and SQLAlchemy's statements for a new engine, takes as long as a hundred commits.
    """
    if not _SPARE:
        return simulated.empty_state()
    engine = _SPARE.pop()
    with engine.begin() as connection:
        for table in _WIPED:
            connection.execute(table.delete())
    return engine


def give_back(engine: Engine) -> None:
    """Keep a state database that nothing uses any more, for another simulation."""
    _SPARE.append(engine)


class Simulation(simulated.Simulation):
    """A program that tests stop, take over, and look into."""

    _given_back: weakref.finalize[[Engine], Any] | None = None
    # of each process, how much was written of each run before it, and how far its clock was ahead
    _clocks: tuple[tuple[Mapping[str, int], Seconds], ...] = ()

    def _empty_state(self) -> Engine:
        state = empty_state()
        self._given_back = weakref.finalize(self, give_back, state)
        self._given_back.atexit = False
        return state

    @property
    def record(self) -> LeaseRecord:
        """The record that another machine would read in the cluster."""
        if self.leases.in_force is None:
            raise LookupError("there is no lease in the cluster")
        return self.leases.in_force

    @property
    def own_runs(self) -> tuple[str, ...]:
        """Ids of the runs of which it committed anything, in their order."""
        return tuple(run for run, records in self._written.items() if records)

    @property
    def has_begun(self) -> bool:
        """Whether it began a run: a takeover that finds nothing to restore begins none."""
        return self._attempt is not None

    @property
    def deposed(self) -> bool:
        """Whether another program owns the cluster now."""
        return 0 < self.leases.claim < self.world.owner.epoch

    def happened(self, run: str = "") -> list[Record]:
        """What was committed to the journal of a run, each record at the world's time; of the current run."""
        run = run or self.journal.run
        records = self.written(run)
        begins = [(before.get(run, 0), ahead) for before, ahead in self._clocks]
        ends = [*(begin for begin, _ in begins[1:]), len(records)]
        return [
            replace(record, at=record.at - ahead) if ahead else record
            for (begin, ahead), end in zip(begins, ends, strict=False)
            for record in records[begin:end]
        ]

    def _started(self, *given: Any) -> Connection:
        connection = super()._started(*given)
        before = {run: len(written) for run, written in self._written.items()}
        self._clocks = (*self._clocks, (before, self.clock.ahead))
        return connection

    def records(self, run: str) -> tuple[Record, ...]:
        """The journal of a run, as its state has it."""
        return self._store().replay(run)

    def runs(self) -> tuple[str, ...]:
        """Ids of its runs, the latest first."""
        return tuple(entry.run for entry in self._store().runs())

    def close(self) -> None:
        """Close the state, if it is in memory; committed records can still be read from `written`."""
        self._over()
        if self._given_back is not None:
            self._given_back()
            self._given_back = self._state = None

    @contextmanager
    def connect(
        self,
        reporter: Callable[[Watched], AbstractContextManager[Reporter]] | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> Iterator[Connection]:
        """A new process of this program. It lives until the block is left, also by a `Crash`."""
        try:
            with self._started(reporter, tell) as connection:
                yield connection
        finally:
            self._over()

    def begin(self, policy: Policy, *, planned: tuple[tuple[NodeName, ...], ...] = ()) -> RunState:
        """Begin a run over the nodes that the policy selects, in planned waves if any."""
        return self.begin_as(self.start_of(policy, planned))

    def take_over(self, policy: Policy) -> RunState | None:
        """Begin a run that only restores what the record in the cluster lists; None if it lists nothing.

        Raises:
            LeaseError: the program that left it lives, or the lease cannot be read.
            JournalError: the first events cannot be written.
        """
        self._policy = policy
        connection, started = self._started(), self.start_of(policy)
        run, store = connection.process.new_run(), self._store()
        with LeaseHeld(connection, store, run, replace(started, state=store.state)) as held:
            if held.left is not None:
                return self._begun(lambda: repair(held, run, started))
        self._over()
        return None

    def restore(self) -> RunState:
        """A new process only restores what the run changed."""
        connection, past = self._started(), self._past()
        event = RestoreBegun(operator=self.operator, host=self.host, state=self._store().state)
        return self._begun(lambda: next_attempt(connection, self._store(), past, event))

    def start_of(self, policy: Policy, planned: tuple[tuple[NodeName, ...], ...] = ()) -> RunStarted:
        """How a run would begin over the nodes that the policy selects; no time passes."""
        return start_of(self.world, policy, planned, operator=(self.operator, self.host))

    def journalled(self, *events: Event) -> RunState:
        """Commit these events as the process would; the state that they lead to."""
        self.attempt.journal.append(events, self.clock.now())
        self.attempt.state = replay(self.run, self.journal.records)
        return self.attempt.state

    # Other programs -------------------------------------------------------------------------------------

    def elsewhere(self, run: str, *, policy: Policy | None = None) -> Simulation:
        """A program on another machine, after this one: it shares only the cluster and its fate."""
        self._over()
        other = self._other(run, self.fate, policy)
        other.fate.request, other.fate.lease_holder = Request.NONE, None
        other.fate.disk_full_until, other.fate.torn = 0.0, False  # its journal is on a disk of its own
        return other

    def successor(self, run: str) -> Simulation:
        """A program on another machine beside this one, which lives on.

        Each has reads, requests and a disk of its own. `take_over` and `begin` make the cluster its own.
        """
        return self._other(run, None, None)

    def _other(self, run: str, fate: Fate | None, policy: Policy | None) -> Simulation:
        self.common.machines += 1
        return Simulation(
            self.world,
            run=run,
            fate=fate,
            operator=("ben", f"bastion{self.common.machines}"),
            policy=policy or self._policy,
            order=self.order,
            common=self.common,
        )
