"""Runs as they are put together for real, on a simulated cluster: real lease and journal, two programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import cast

import pytest

from orchestrator.engine.estimate import PastTimes
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, JournalError, LeaseError, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, HoldsCleared, Record, RestoreBegun, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import (
    Hook,
    Hooks,
    Kind,
    Policy,
)
from orchestrator.runs import (
    Connection,
    Overrides,
    Run,
    Summary,
    past_runs,
    rehearse,
    restart,
    restore,
    resume,
)
from orchestrator.runs.connection import ClusterPorts, PolicySource, Watched
from orchestrator.runs.prepare import prepare
from orchestrator.runs.unfinished import NothingDriven, restore_meant
from orchestrator.simulation.aftermath import aftermath, settings
from orchestrator.simulation.mishaps import Crash, How, Trip
from orchestrator.view.progress import NOTHING_SEEN
from tests.simulation.gated import SCRIPT
from tests.simulation.play import cluster, killed, lives, play, policy
from tests.simulation.program import Simulation
from tests.simulation.scene import EVERY
from tests.simulation.tuned import profile


def begun(nodes: int = 3, **wanted: object) -> Simulation:
    return Simulation(cluster(nodes), policy=policy(**wanted))


def run_on(of: Simulation, *, seams: int | None = None) -> Outcome | None:
    """A new run of this program; killed after so many further seams."""
    passed = of.seams
    passed.crash_at = None if seams is None else len(passed.passed) + seams
    try:
        with of.connect() as connection:
            source = connection.ports.policy(None, Overrides())
            return prepare(connection, source).run(None).outcome
    finally:
        passed.crash_at = None


def repair(of: Simulation) -> RunState | NothingDriven:
    """`restore --cluster` on this program's machine."""
    with of.connect() as connection:
        return restore_meant(connection.state, lambda _past: connection, cluster=connection.ports.name)


def summary_of(run: Iterable[object]) -> Summary:
    *_, last = run
    assert isinstance(last, Summary)
    return last


def as_found(of: Simulation, before: object) -> None:
    world = of.world
    left = aftermath(world, before)
    assert (left.not_as_found, left.down) == ((), ())
    assert of.leases.records == {}
    assert world.violations == []


def test_a_run_of_the_api_yields_its_journal_then_its_summary() -> None:
    of = begun()
    before = settings(of.world)
    with of.connect() as connection, restart(connection) as run:
        *records, summary = run
    assert isinstance(summary, Summary)
    assert (summary.outcome, summary.exit_code) == (Outcome.DONE, ExitCode.DONE)
    assert tuple(records) == of.records(summary.run)
    assert set(lives(of.world).values()) == {2}
    as_found(of, before)


@pytest.mark.parametrize(
    "wanted",
    [{}, {"tune": profile()}, {"gates": (SCRIPT,)}, {"reboot": True}],
    ids=["plain", "tune", "gate", "reboot"],
)
def test_a_run_without_a_plan_is_predicted_too(wanted: dict[str, object]) -> None:
    """And the next one by what this one took."""
    of, forecasts = begun(**wanted), []
    for run in ("run-1", "run-1-2"):
        assert run_on(of) is Outcome.DONE
        event = of.records(run)[0].event
        assert isinstance(event, RunStarted)
        assert event.forecast is not None
        assert event.forecast.nodes.keys() == of.world.nodes.keys()
        forecasts.append(event.forecast)
    first, second = forecasts
    assert (first.measured, second.measured) == (False, True)
    took = of.records("run-1-2")[-1].at - of.records("run-1-2")[0].at
    assert second.in_all.low <= took <= second.in_all.high
    assert second.in_all.likely == pytest.approx(took, rel=0.25)


def test_a_damaged_journal_of_an_earlier_run_bars_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its times are lost for the prediction."""
    of = begun()
    assert run_on(of) is Outcome.DONE

    def damaged(_records: object) -> PastTimes:
        raise JournalError("the journal is damaged")

    monkeypatch.setattr(past_runs, "times_of", damaged)
    assert run_on(of) is Outcome.DONE
    event = of.records("run-1-2")[0].event
    assert isinstance(event, RunStarted)
    assert event.forecast is not None
    assert not event.forecast.measured


def held_until_asked(of: Simulation, run: Run) -> None:
    """Let no time pass in the simulation, once the run is at work, before a request has come."""

    def wait() -> None:
        while run._request is Request.NONE:
            time.sleep(0.001)

    of.world.agenda.after(5.0, wait)


def test_a_run_that_is_left_stands_down_before_the_block_ends() -> None:
    of = begun()
    before = settings(of.world)
    with of.connect() as connection:
        with restart(connection) as run:
            held_until_asked(of, run)
            next(run)
        assert aftermath(of.world, before).down == ()
        ended = summary_of(resume(connection))
    assert ended.resumed
    assert ended.outcome is Outcome.DONE
    as_found(of, before)


def test_a_run_that_is_left_has_its_summary_afterwards() -> None:
    of = begun()
    with of.connect() as connection, restart(connection) as run:
        held_until_asked(of, run)
        for item in run:
            assert not isinstance(item, Summary)
            break
    assert run.summary is not None
    assert run.summary.outcome is Outcome.INTERRUPTED
    assert run.error is None
    assert list(run) == []


def test_only_a_run_that_began_has_a_summary() -> None:
    of = begun()
    with of.connect() as connection:
        with restart(connection) as never:
            pass
        run = restart(connection)
        assert summary_of(run) == run.summary
    assert (never.summary, never.error) == (None, None)


def test_a_connection_closed_first_lets_its_run_stand_down() -> None:
    """Without a `with` of its own the run is at work until then; it needs the cluster to the end."""
    of = begun()
    before = settings(of.world)
    with of.connect() as connection:
        run = restart(connection)
        held_until_asked(of, run)
        for _ in run:
            break
    assert run.summary is not None
    assert run.summary.outcome is Outcome.INTERRUPTED
    assert aftermath(of.world, before).down == ()
    assert of.leases.records == {}


def broken_run(connection: Connection) -> Run:
    """One record, and a state that cannot be written once the run is to stop."""

    def work(to: Connection) -> RunState:
        with to.process.reporter(
            Watched(kind=Kind.ELASTICSEARCH, past=(), seen=lambda: NOTHING_SEEN)
        ) as told:
            told.events([Record(run="run-1", sequence=1, at=0.0, event=HoldsCleared())])
        with to.process.requests(lambda: None) as asked:
            while asked()[0] is Request.NONE:
                time.sleep(0.001)
        raise JournalError("the disk is full")

    return Run(connection, work)


def read_by_a_program_that_fails(run: Run) -> None:
    with run:
        next(run)
        raise ZeroDivisionError


def test_an_error_after_a_run_was_left_is_raised_by_the_block() -> None:
    of = begun()
    with of.connect() as connection:
        with pytest.raises(JournalError, match="the disk is full"), broken_run(connection) as run:
            next(run)
        assert isinstance(run.error, JournalError)
        run = broken_run(connection)
        with pytest.raises(ZeroDivisionError) as raised:
            read_by_a_program_that_fails(run)
        assert raised.value.__notes__ == ["the run itself ended with JournalError: the disk is full"]
        assert isinstance(run.error, JournalError)


def test_a_stronger_request_that_comes_at_the_same_time_counts() -> None:
    with begun().connect() as connection:
        run = restart(connection)
    stop = threading.Thread(target=run.stop)

    class Slow(int):
        """A request that is compared while another one comes."""

        def __gt__(self, other: int) -> bool:
            stop.start()
            stop.join(0.2)
            return super().__gt__(other)

    run._ask(cast("Request", Slow(Request.PAUSE)))
    stop.join()
    assert run._request is Request.STOP


def test_a_run_pauses_when_the_program_that_reads_it_asks() -> None:
    of = begun()
    with of.connect() as connection, restart(connection) as run:
        held_until_asked(of, run)
        next(run)
        run.pause()
        ended = summary_of(run)
    assert ended.outcome is Outcome.PAUSED
    assert len(ended.restarted) < 3


def test_a_refusal_is_raised_where_the_run_is_read() -> None:
    of = begun()
    of.leases.records[1] = LeaseRecord(
        epoch=1, run="theirs", owner="ben", process="bastion/1/9/1", started=""
    )
    of.common.alive.add("bastion/1/9/1")
    with of.connect() as connection:
        run = restart(connection)
        with pytest.raises(LeaseError, match="another run holds the lease"):
            next(run)
        assert list(run) == []


def _seams() -> list[str]:
    """Every point at which an undisturbed run could be killed."""
    of = begun()
    run_on(of)
    return of.seams.passed


SEAMS = _seams()
HOOK = Hook(run="say {node}")
HOOKS = Hooks(before_stop=(HOOK,), after_recovery=(HOOK,))


def test_killed_as_it_begins_a_run_is_resumed_or_restored() -> None:
    """Wherever `test_crashes.py` does not kill: by `resume`, and by `restore` on another machine."""
    assert len(SEAMS) > 50
    for point, elsewhere in product(range(1, 13), (False, True)):
        of = begun()
        before = settings(of.world)
        with pytest.raises(Crash):
            run_on(of, seams=point)
        if elsewhere:
            of = of.elsewhere("run-2")
            end = repair(of)
            assert isinstance(end, NothingDriven) or end.outcome is Outcome.RESTORED, point
        else:
            with of.connect() as connection:
                ended = summary_of(resume(connection)) if of.runs() else summary_of(restart(connection))
            assert (ended.outcome, set(lives(of.world).values())) == (Outcome.DONE, {2}), point
        as_found(of, before)


def test_another_machine_puts_nodes_of_a_killed_run_into_service() -> None:
    """Also those that are up: the ones not stopped yet, and the ones whose copies are on their way."""
    killed: set[str] = set()
    undisturbed = begun(hooks=HOOKS)
    run_on(undisturbed)
    for point, passed in list(enumerate(undisturbed.seams.passed, start=1))[::EVERY]:
        of = begun(hooks=HOOKS)
        with pytest.raises(Crash):
            run_on(of, seams=point)
        if out_of_service(of):
            killed.add(passed)
        repair(of.elsewhere("run-2"))
        assert out_of_service(of) == [], (point, passed)
    assert len(killed) > 3


class Books:
    """Ports with several playbooks: by name, and the one of the cluster file for None."""

    def __init__(self, ports: ClusterPorts, books: Mapping[str | None, Policy]) -> None:
        self._ports, self._books = ports, books

    def __getattr__(self, name: str) -> object:
        return getattr(self._ports, name)

    def policy(self, playbook: str | None, overrides: Overrides) -> PolicySource:
        del overrides
        return PolicySource(build=lambda _nodes: self._books[playbook])


@contextmanager
def shelf(of: Simulation, said: list[str]) -> Iterator[Connection]:
    """A process whose cluster file names a playbook without hooks; `drains` is the one with them."""
    books = {None: policy(playbook="plain"), "drains": policy(playbook="drains", hooks=HOOKS)}
    with of.connect(tell=said.append) as connection:
        yield replace(connection, ports=cast("ClusterPorts", Books(connection.ports, books)))


def killed_while_stopped() -> tuple[Simulation, Simulation, object]:
    """A run with hooks that was killed with es1 down, another machine, and the settings before the run."""
    of = begun(hooks=HOOKS, playbook="drains")
    before = settings(of.world)
    with pytest.raises(Crash):
        run_on(of, seams=1 + next(n for n, what in enumerate(SEAMS) if what.startswith("after stop of")))
    assert out_of_service(of)
    return of, of.elsewhere("run-2"), before


def out_of_service(of: Simulation) -> list[str]:
    return [node.name for node in of.world.nodes.values() if node.to_undo]


def test_a_restore_without_the_hooks_of_the_run_keeps_them_owed() -> None:
    of, other, before = killed_while_stopped()
    (dead,) = of.runs()
    (name,) = out_of_service(of)
    said: list[str] = []
    with shelf(other, said) as connection:
        ended = summary_of(restore(connection))
    assert (ended.outcome, ended.exit_code) == (Outcome.NOT_RESTORED, ExitCode.NOT_RESTORED)
    (left,) = ended.left
    assert left.startswith(
        f"{name} out of service: the after_recovery hooks of run {dead} (playbook drains) did not run"
    )
    assert any(f"{name}: taken out of service by run {dead} (playbook drains)" in line for line in said)
    everything_else = aftermath(other.world, before)
    assert (everything_else.not_as_found, everything_else.down) == ((), ())
    assert (other.record.out_of_service, other.record.debts, other.record.in_hand) == ((name,), (), ())
    with shelf(other, said) as connection:
        assert summary_of(restore(connection)).left == ended.left, "by the journal of the restore, as before"
    with shelf(other, said) as connection:
        assert summary_of(restore(connection, playbook="drains")).outcome is Outcome.RESTORED
    assert out_of_service(of) == []
    as_found(other, before)
    with shelf(other, said) as connection:
        assert "nothing to restore" in summary_of(restore(connection)).message


def test_with_a_node_out_of_service_another_playbook_is_refused() -> None:
    of, other, before = killed_while_stopped()
    (name,) = out_of_service(of)
    for _ in range(2):
        with shelf(other, []) as connection:
            ended = summary_of(restart(connection))
        assert ended.outcome is Outcome.NOT_RESTORED
        assert name in ended.left[0]
    assert "run run-1 (playbook drains)" in ended.left[0], "not the run that could not restore it"
    with shelf(other, []) as connection:
        assert summary_of(restart(connection, playbook="drains")).outcome is Outcome.DONE
    assert out_of_service(of) == []
    as_found(other, before)


def test_the_machine_with_the_hooks_runs_them_after_a_restore() -> None:
    of, other, before = killed_while_stopped()
    with shelf(other, []) as connection:
        assert summary_of(restore(connection)).outcome is Outcome.NOT_RESTORED
    other.close()
    with of.connect() as connection:
        assert summary_of(resume(connection)).outcome is Outcome.DONE
    assert out_of_service(of) == []
    as_found(of, before)


def test_a_node_put_into_service_by_people_is_in_service() -> None:
    of, other, before = killed_while_stopped()
    (name,) = out_of_service(of)
    with shelf(other, []) as connection:
        assert summary_of(restore(connection)).outcome is Outcome.NOT_RESTORED
    of.world.nodes[NodeName(name)].to_undo.clear()
    with shelf(other, []) as connection:
        assert summary_of(restore(connection, in_service=[name])).outcome is Outcome.RESTORED
    as_found(other, before)


def test_a_run_of_the_state_is_restored_by_its_own_hooks() -> None:
    of, _, before = killed_while_stopped()
    said: list[str] = []
    with shelf(of, said) as connection:
        (run,) = of.runs()
        with pytest.raises(UsageError, match="--playbook"):
            summary_of(restore(connection, run, playbook="drains"))
        assert summary_of(restore(connection, playbook="drains")).outcome is Outcome.RESTORED
    assert any("with its original policy" in line for line in said)
    assert out_of_service(of) == []
    as_found(of, before)


def test_a_new_run_elsewhere_first_restores_what_a_dead_one_left() -> None:
    of = begun()
    before = settings(of.world)
    at = next(n for n, what in enumerate(SEAMS, start=1) if what.startswith("after stop of"))
    with pytest.raises(Crash):
        run_on(of, seams=at)
    (dead,) = of.runs()
    other = of.elsewhere("run-2")
    assert run_on(other) is Outcome.DONE
    new, repairing = other.runs()
    begins = [record.event for record in other.records(repairing) if isinstance(record.event, RunStarted)]
    assert [event.repairs for event in begins] == [dead]
    assert any(isinstance(record.event, RestoreBegun) for record in other.records(repairing))
    assert len(other.records(new)) > len(other.records(repairing))
    as_found(other, before)


def test_a_restore_that_failed_first_is_judged_by_its_journal() -> None:
    """Its run, and no attempt of the killed process: that one's journal ended long before."""
    of = Simulation(cluster(3), trips=[Trip(verb="hook_after_recovery", how=How.UNACKNOWLEDGED)])
    state = of.begin(policy(hooks=HOOKS))
    of.seams.crash_at = 1 + next(n for n, what in enumerate(SEAMS) if what.startswith("after stop of"))
    assert killed(of, state)
    of.world.agenda.advance(100.0)
    other = of.elsewhere("run-2")
    taken = other.take_over(policy(hooks=HOOKS))
    assert taken is not None
    other.seams.crash_at = len(other.seams.passed) + 1
    assert killed(other, taken), "before its record is in the cluster"
    other.seams.crash_at = None
    of.world.agenda.advance(900.0)
    told: list[Event] = []
    first = other.restore()
    assert (first.run, first.outcome) == ("run-2-2", Outcome.FAILED), first.message
    assert play(other, first, told=told) == first
    assert told == [record.event for record in other.journal.records]
    assert other.journal.run == first.run
    assert play(other, other.restore()).outcome is Outcome.RESTORED
    assert of.world.violations == []


def test_two_programs_that_live_are_never_at_work_together() -> None:
    of = begun()
    other, refused = of.elsewhere("run-2"), list[LeaseError]()
    world = of.world

    def comes() -> None:
        with other.connect() as connection:
            source = connection.ports.policy(None, Overrides())
            try:
                prepare(connection, source).run(None)
            except LeaseError as error:
                refused.append(error)

    for seconds in (5.0, 25.0, 45.0):
        world.agenda.after(seconds, comes)
    assert run_on(of) is Outcome.DONE
    assert len(refused) == 3
    assert other.runs() == ()
    assert set(lives(world).values()) == {2}


def test_nothing_to_restore_is_done_and_drives_nothing() -> None:
    of = begun()
    with of.connect() as connection:
        ended = summary_of(restore(connection))
    assert (ended.exit_code, ended.run) == (ExitCode.DONE, "")
    assert "nothing to restore" in ended.message


def test_a_rehearsal_of_the_api_touches_only_its_own_simulation() -> None:
    of = begun()
    before = lives(of.world)
    with of.connect() as connection:
        ended = summary_of(rehearse(connection, seed=0))
    assert ended.outcome is Outcome.DONE
    assert lives(of.world) == before
