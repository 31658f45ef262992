"""Machines whose clocks differ, and share a state: which run has pending changes is no question of dates."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import pytest

from orchestrator.config.policy import Overrides
from orchestrator.engine.fold import replay
from orchestrator.errors import UsageError
from orchestrator.model.event import LeaseTaken, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.phase import Outcome
from orchestrator.runs.past_runs import RunPassed, Wanted, find_run, past_run_of
from orchestrator.runs.prepare import prepare
from orchestrator.runs.simulated import OpenStore
from orchestrator.runs.unfinished import NothingDriven, restore_meant, resume_run
from orchestrator.runtime.database import DatabaseUse
from orchestrator.simulation.aftermath import aftermath, settings
from orchestrator.simulation.mishaps import Crash
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation, empty_state

HOUR, DAY = 3600.0, 86_400.0


class Machines:
    """Programs on several machines, each with a clock of its own, that share one state."""

    def __init__(self) -> None:
        self.world, self.state = cluster(3), empty_state()
        self.before = settings(self.world)
        self.programs: list[Simulation] = []

    def program(self, *, ahead: float, shares: bool = True) -> Simulation:
        """A machine whose clock is this far ahead of the world's."""
        number, first = len(self.programs) + 1, next(iter(self.programs), None)
        made = Simulation(
            self.world,
            state=self.state if shares else empty_state(),
            run=f"run-{number}",
            policy=policy(),
            operator=("ann", f"bastion{number}"),
            common=first.common if first else None,
        )
        if first and shares:
            made.own_lease = first.own_lease
        made.fate.clock_ahead = ahead
        self.programs.append(made)
        return made

    def as_found(self) -> bool:
        """Whether every node runs, and all settings have their original values."""
        found = aftermath(self.world, self.before)
        return (found.not_as_found, found.down) == ((), ())


def restart(of: Simulation, *, killed_at: str = "") -> Outcome | None:
    """`orchestrate restart --yes`; None if it was killed, when it came to this point for the first time."""
    pass_by, armed = of.seams.point, bool(killed_at)

    def point(what: str) -> None:
        pass_by(what)
        if armed and what.startswith(killed_at):
            raise Crash(what)

    of.seams.point = point
    try:
        with suppress(Crash), of.connect() as connection:
            return prepare(connection, connection.ports.policy(None, Overrides())).run(None).outcome
        return None
    finally:
        of.seams.point = pass_by


def restore(of: Simulation, run: str | None = None, cluster: str | None = None) -> Outcome | str | None:
    """`orchestrate restore --yes`: the outcome, or the message where nothing was driven."""
    with of.connect() as connection:
        ended = restore_meant(
            connection.state, lambda _past: nullcontext(connection), run=run, cluster=cluster
        )
    return ended.message if isinstance(ended, NothingDriven) else ended.outcome


DOWN = "after stop of"


@pytest.mark.parametrize("ahead", [HOUR, -DAY, 400 * DAY])
@pytest.mark.parametrize("resumes", [False, True], ids=["restored", "resumed"])
def test_a_killed_run_is_taken_up_under_any_clock(ahead: float, *, resumes: bool) -> None:
    """A run finished under a wrong clock; then one under the right clock was killed with a node down."""
    machines = Machines()
    ours = machines.program(ahead=ahead)
    assert restart(ours) is Outcome.DONE
    ours.fate.clock_ahead = 0.0
    assert restart(ours, killed_at=DOWN) is None
    assert not machines.as_found()
    with ours.connect() as connection, connection.state(DatabaseUse.CONTINUE) as store:
        assert {wanted: find_run(store, wanted).run for wanted in Wanted} == dict.fromkeys(Wanted, ours.run)
        if resumes:
            past = past_run_of(store, find_run(store, Wanted.RESUME))
            assert resume_run(connection, store, past).outcome is Outcome.DONE
    assert resumes or restore(ours) is Outcome.RESTORED
    assert machines.as_found()
    assert "nothing to restore" in str(restore(ours))


def test_a_colleague_restores_by_the_shared_state() -> None:
    """The run that finished is of a machine a day ahead, the killed one of another."""
    machines = Machines()
    fast, slow = machines.program(ahead=DAY), machines.program(ahead=-HOUR)
    assert restart(fast) is Outcome.DONE
    assert restart(slow, killed_at=DOWN) is None
    machines.world.agenda.advance(10 * 60.0)
    assert restore(fast) is Outcome.RESTORED
    assert machines.as_found()


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_who_took_over_is_restored_and_not_the_run_before_it(ahead: float) -> None:
    """The run that took the changes over was killed too, under another clock: they are its own by name."""
    machines = Machines()
    ours, theirs = machines.program(ahead=0.0), machines.program(ahead=ahead)
    assert restart(ours, killed_at=DOWN) is None
    dead = ours.run
    machines.world.agenda.advance(10 * 60.0)
    assert restart(theirs, killed_at="after restore_allocation of") is None
    heir = theirs.run
    records = [record.event for record in theirs.records(heir)]
    assert [event.takes_over for event in records if isinstance(event, LeaseTaken)] == [dead]
    assert [event.takes_over for event in records if isinstance(event, RestoreBegun)] == [dead]
    machines.world.agenda.advance(10 * 60.0)
    with ours.connect() as connection, connection.state(DatabaseUse.READ) as store:
        assert find_run(store, Wanted.RESTORE).run == heir
    assert restore(ours) is Outcome.RESTORED
    assert machines.as_found()
    assert "nothing to restore" in str(restore(ours))
    with ours.connect() as connection, connection.state(DatabaseUse.READ) as store:
        outcomes = {entry.run: entry.outcome for entry in store.runs()}
    assert (outcomes[dead], outcomes[heir]) == (Outcome.RESTORED, Outcome.RESTORED)


@pytest.mark.parametrize("ahead", [DAY, -DAY])
@pytest.mark.parametrize("named", [False, True])
def test_values_of_a_passed_run_are_written_only_by_name(ahead: float, *, named: bool) -> None:
    """It was restored from another machine's state; then a run here was done, and settings were changed."""
    machines = Machines()
    ours, elsewhere = machines.program(ahead=0.0), machines.program(ahead=0.0, shares=False)
    assert restart(ours, killed_at=DOWN) is None
    dead = ours.run
    machines.world.agenda.advance(10 * 60.0)
    assert restore(elsewhere, cluster="prod") is Outcome.RESTORED
    ours.own_lease.records.clear()
    ours.fate.clock_ahead = ahead
    assert restart(ours) is Outcome.DONE
    later, written = ours.run, ours.records(dead)
    with pytest.raises(RunPassed) as refused:
        restore(ours, cluster="prod" if named else None)
    assert [line for line in refused.value.lines if f"restore {dead}`" in line]
    assert [line for line in refused.value.lines if f"status {later}`" in line]
    assert ours.records(dead) == written
    with (
        ours.connect() as connection,
        connection.state(DatabaseUse.READ) as store,
        pytest.raises(UsageError, match=f"resume {dead}`"),
    ):
        find_run(store, Wanted.RESUME)
    assert restore(ours, run=dead) is Outcome.RESTORED
    assert "nothing to restore" in str(restore(ours))


def test_each_process_advises_commands_with_its_own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state file was moved after the kill, and the restore was killed too."""
    ours = Machines().program(ahead=0.0)
    opened, place = ours._store, ["sqlite:////mnt/one/state.db"]

    def store() -> OpenStore:
        found = opened()
        found.state = place[0]
        return found

    monkeypatch.setattr(ours, "_store", store)
    assert restart(ours, killed_at=DOWN) is None
    assert replay(ours.run, ours.records(ours.run)).command("resume").endswith(" --state " + place[0])
    place[0] = "sqlite:////mnt/two/state.db"
    assert restore(ours) is Outcome.RESTORED
    with ours.connect() as connection, connection.state(DatabaseUse.CONTINUE) as found:
        ended = resume_run(connection, found, past_run_of(found, find_run(found, Wanted.RESUME)))
    assert ended.command("status") == f"orchestrate status {ours.run} --state {place[0]}"
    moved = [
        event.state for event in (r.event for r in ours.records(ours.run)) if isinstance(event, _BEGINNINGS)
    ]
    assert moved == ["sqlite:////mnt/one/state.db", place[0], place[0]]


_BEGINNINGS = (RunStarted, RestoreBegun, RunResumed)
