from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import InvalidRequestError

from orchestrator.errors import DeposedError, ExitCode, JournalError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    Event,
    GoodReading,
    LeaseTaken,
    RunFinished,
    RunResumed,
    RunStarted,
)
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Kind, Policy
from orchestrator.ports import Journal
from orchestrator.runtime import journal as journal_module
from orchestrator.runtime import tables
from orchestrator.runtime.database import CommitInDoubt, DatabaseUse, committing
from orchestrator.runtime.store import RunEntry, StateStore, open_store
from orchestrator.runtime.waiting import RequestWatch

Entry = Callable[..., RunEntry]
RUN = "20261121-0413-x7k2"
STARTED = RunStarted(
    cluster="prod",
    cluster_uuid="u-1",
    version="9.1.0",
    policy=Policy(kind=Kind.ELASTICSEARCH, cluster="prod"),
    nodes=(NodeName("es1"),),
    operator="ben",
    host="bastion2",
)
STEP: tuple[Event, ...] = (LeaseTaken(epoch=1, holder="anna"), GoodReading(count=1))
END = RunFinished(outcome=Outcome.FAILED, exit_code=4, seconds=3.0)


def test_a_step_is_committed_and_read_back(store: StateStore, entry: Entry) -> None:
    journal: Journal = store.create_run(entry())
    first = journal.append(STEP, 1001.5)
    second = journal.append((STARTED,), 1002.25)
    assert [record.sequence for record in (*first, *second)] == [1, 2, 3]
    assert store.replay(RUN) == (*first, *second)
    assert store.replay(RUN, after=2) == tuple(second)


def test_two_processes_on_one_run_do_not_both_write(store: StateStore, entry: Entry) -> None:
    """A process that was stopped for a while wakes up after another has resumed its run."""
    first = store.create_run(entry())
    first.append(STEP, 1.0)
    second = store.journal(RUN)
    second.append(STEP, 2.0)
    with pytest.raises(JournalError, match="another process took over run"):
        first.append(STEP, 3.0)
    with pytest.raises(JournalError, match="another process"):
        first.append(STEP, 4.0)
    assert [record.at for record in store.replay(RUN)] == [1.0, 1.0, 2.0, 2.0]


def test_damage_of_a_journal_is_named(store: StateStore, entry: Entry, tmp_path: Path) -> None:
    store.create_run(entry()).append((*STEP, *STEP), 1.0)
    for damage, words in (
        ("DELETE FROM events WHERE sequence = 2", r"event 2 of run .* is missing"),
        (
            """UPDATE events SET event = '{"event": "lease_' WHERE sequence = 1""",
            f"run {RUN}, event 1: .*damaged",
        ),
    ):
        with closing(sqlite3.connect(tmp_path / "state.db")) as raw, raw:
            raw.execute(damage)
        raw.close()
        with pytest.raises(JournalError, match=words):
            store.replay(RUN)


def test_the_line_of_a_run_follows_its_events(store: StateStore, entry: Entry) -> None:
    journal = store.create_run(entry())
    journal.append((STARTED,), 1.0)
    (line,) = store.runs()
    assert (line.cluster_uuid, line.operator, line.host, line.outcome) == ("u-1", "ben", "bastion2", None)
    assert line.unfinished
    journal.append((END,), 9.0)
    (line,) = store.runs()
    assert (line.outcome, line.exit_code, line.ended, line.unfinished) == (Outcome.FAILED, 4, 9.0, True)
    journal.append((RunResumed(operator="carl", host="bastion3"),), 10.0)
    (line,) = store.runs()
    assert (line.operator, line.outcome, line.exit_code, line.ended) == ("carl", None, None, None)
    journal.append((RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0),), 11.0)
    assert store.unfinished() == ()


def test_runs_are_listed_newest_first_and_by_cluster(store: StateStore, entry: Entry) -> None:
    for number, cluster in enumerate(("prod", "test", "prod")):
        store.create_run(entry(f"run-{number}", cluster, 1000.0 + number)).append(STEP, 1.0)
    assert [line.run for line in store.runs()] == ["run-2", "run-1", "run-0"]
    assert [line.run for line in store.runs(cluster="prod")] == ["run-2", "run-0"]
    assert [line.run for line in store.runs(limit=1)] == ["run-2"]
    assert [line.run for line in store.unfinished(cluster="test")] == ["run-1"]


def test_a_run_that_never_began_is_none(store: StateStore, entry: Entry) -> None:
    # Killed before its first commit, or a restore that found nothing: it must not hide the run that is meant.
    store.create_run(entry("run-1", "prod", 1.0)).append(STEP, 1.0)
    store.create_run(entry("run-2", "prod", 2.0))
    assert [line.run for line in store.runs()] == ["run-1"]
    assert [line.run for line in store.unfinished(cluster="prod")] == ["run-1"]


def test_the_strongest_request_counts_until_the_run_is_resumed(store: StateStore, entry: Entry) -> None:
    journal = store.create_run(entry())
    assert journal.asked()[0] is Request.NONE
    store.leave_request(RUN, Request.STOP, by="ben@bastion2", at=1.0)
    store.leave_request(RUN, Request.PAUSE, by="carl", at=2.0)
    assert journal.asked() == (Request.STOP, "ben@bastion2")
    journal.append((RunResumed(operator="o", host="h"),), 3.0)
    assert journal.asked()[0] is Request.NONE


def test_a_request_of_an_unknown_kind_is_the_strongest_known(store: StateStore, entry: Entry) -> None:
    """A newer program left it."""
    for kind, known in ((2, Request.STOP), (99, Request.INTERRUPT)):
        journal = store.create_run(entry(f"run-{kind}"))
        with store._engine.begin() as connection:
            connection.execute(insert(tables.requests).values(run=f"run-{kind}", kind=kind, by="ben", at=1.0))
        assert journal.asked() == (known, "ben")


def test_a_request_wakes_the_run(store: StateStore, entry: Entry) -> None:
    woken = threading.Event()
    watch = RequestWatch(store.create_run(entry()).asked, woken.set, seconds=0.01)
    watch.start()
    assert watch.asked() == (Request.NONE, "")
    store.leave_request(RUN, Request.PAUSE, by="ben", at=1.0)
    assert woken.wait(10)
    assert watch.asked() == (Request.PAUSE, "ben")
    watch.stop()


def test_a_reader_looks_while_the_run_writes(store: StateStore, url: str, entry: Entry) -> None:
    journal = store.create_run(entry())
    done, steps, most = threading.Event(), 0, 10_000
    seen: list[int] = []
    troubles: list[BaseException] = []

    def read() -> None:
        reader = open_store(url, {}, access=DatabaseUse.READ)
        try:
            while not done.is_set():
                seen.append(len(reader.replay(RUN)))
        except BaseException as error:  # noqa: BLE001  (handed to the test below)
            troubles.append(error)
        finally:
            reader.close()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    while steps < most and len(set(seen)) < 3:  # however seldom a busy machine lets the readers look
        journal.append(STEP, float(steps))
        steps += 1
    done.set()
    for thread in threads:
        thread.join(30)
    assert troubles == []
    assert len(store.replay(RUN)) == 2 * steps
    assert all(count % 2 == 0 for count in seen), "a reader saw half a step"
    assert len(set(seen)) >= 3, "the readers saw nothing of the run going on"


class Server:
    """A database server whose connection breaks at commits: before they arrive, or after they are done."""

    def __init__(self, *breaks: str) -> None:
        self.breaks = list(breaks)

    @contextmanager
    def committing(self, engine: Engine) -> Iterator[Connection]:
        how = self.breaks.pop(0) if self.breaks else "whole"
        if how == "unreachable":
            raise JournalError("connection refused")
        try:
            with committing(engine) as connection:
                yield connection
                if how == "before":
                    connection.rollback()
        except InvalidRequestError:  # of a commit without a transaction: nothing was committed
            raise CommitInDoubt("the connection broke at a commit") from None
        if how == "after":
            raise CommitInDoubt("the connection broke at a commit")


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_commit_in_doubt_is_looked_into_and_gone_on_from(
    store: StateStore, entry: Entry, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    journal = store.create_run(entry())
    journal.append((STARTED,), 1.0)
    monkeypatch.setattr(journal_module, "committing", Server(how).committing)
    assert [record.sequence for record in journal.append(STEP, 2.0)] == [2, 3]
    assert [record.sequence for record in journal.append(STEP, 3.0)] == [4, 5]
    assert [record.at for record in store.replay(RUN)] == [1.0, 2.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_commit_in_doubt_is_checked_when_the_server_is_back(
    store: StateStore, entry: Entry, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its events come first in the next call; those that are there keep the moment that they were given."""
    journal = store.create_run(entry())
    journal.append((STARTED,), 1.0)
    server = Server(how, "unreachable", "unreachable", "after")
    monkeypatch.setattr(journal_module, "committing", server.committing)
    with pytest.raises(CommitInDoubt):
        journal.append(STEP, 2.0)
    with pytest.raises(JournalError, match="refused"):
        journal.append((*STEP, END), 3.0)
    assert [(r.sequence, r.at) for r in journal.append((*STEP, END), 4.0)] == [(2, 2.0), (3, 2.0), (4, 4.0)]
    assert [record.sequence for record in store.replay(RUN)] == [1, 2, 3, 4]
    (line,) = store.runs()
    assert line.outcome is Outcome.FAILED


def test_a_record_of_another_process_is_no_commit_in_doubt(
    store: StateStore, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = store.create_run(entry())
    journal.append((STARTED,), 1.0)
    monkeypatch.setattr(journal_module, "committing", Server("before", "unreachable").committing)
    with pytest.raises(CommitInDoubt):
        journal.append(STEP, 2.0)
    store.journal(RUN, process="another").append((RunResumed(operator="ben", host="b2"), *STEP), 2.0)
    with pytest.raises(DeposedError, match="ben@b2 resumed or restored it") as error:
        journal.append(STEP, 2.0)
    assert (error.value.owner, error.value.epoch, error.value.exit_code) == ("ben@b2", 1, ExitCode.LEASED)


def test_a_run_that_another_run_restored_is_written_to_no_more(store: StateStore, entry: Entry) -> None:
    journal = store.create_run(entry())
    journal.append((STARTED,), 1.0)
    taken = LeaseTaken(epoch=2, holder="ben", ordinal=1, takes_over=RUN)
    store.create_run(entry("run-2", "prod", 2000.0)).append((STARTED, taken), 2.0)
    store.create_run(entry("run-3", "prod", 3000.0)).append((STARTED,), 9.0)
    store.close_run(RUN, Outcome.RESTORED, 3.0)
    with pytest.raises(DeposedError, match="restored it with run run-2"):
        journal.append(STEP, 4.0)
    (line,) = [line for line in store.runs() if line.run == RUN]
    assert line.outcome is Outcome.RESTORED


def test_a_process_that_was_replaced_writes_no_more(store: StateStore, entry: Entry, url: str) -> None:
    journal = store.create_run(entry())
    journal.append((STARTED,), 1.0)
    raw = sqlite3.connect(url.removeprefix("sqlite:///"))
    with raw:
        raw.execute("UPDATE runs SET process = 'another'")
    raw.close()
    with pytest.raises(DeposedError):
        journal.append(STEP, 2.0)
