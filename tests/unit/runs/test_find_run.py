"""Which run a command means, by what the state database has of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from orchestrator.errors import JournalError, UsageError
from orchestrator.model.event import LeaseTaken, Record, RunFinished, RunResumed
from orchestrator.model.phase import Outcome, Request
from orchestrator.runs.past_runs import RunPassed, Wanted, find_run, leave_request
from orchestrator.runtime import codec
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import RunEntry, StateStore, open_store

Entry = Callable[..., RunEntry]
Fill = Callable[..., None]


def filled(store: StateStore, entry: Entry) -> Fill:
    """Writes runs `1`, `2`, … of a cluster, the oldest first, each with the outcome of its last attempt.

    Each begins under a clock that is slower than that of the run before it: no date shows the order.
    """
    number = [0]

    def make(cluster: str, *outcomes: Outcome | None) -> None:
        for outcome in outcomes:
            number[0] += 1
            journal = store.create_run(entry(f"20261121-041{number[0]}-xxx{number[0]}", cluster, number[0]))
            journal.append((LeaseTaken(epoch=1, holder="o", ordinal=number[0]),), 9.0 - number[0])
            if outcome is not None:
                journal.append((RunFinished(outcome=outcome, exit_code=1, seconds=1.0),), 9.0 - number[0])

    return make


@pytest.fixture
def fill(store: StateStore, entry: Entry) -> Fill:
    return filled(store, entry)


def found(store: StateStore, wanted: Wanted, cluster: str | None = None) -> int:
    return int(find_run(store, wanted, cluster=cluster).run[-1])


DONE, FAILED, HELD, PAUSED = Outcome.DONE, Outcome.FAILED, Outcome.HELD, Outcome.PAUSED
RESTORED, INTERRUPTED = Outcome.RESTORED, Outcome.INTERRUPTED
RESUME, RESTORE, SHOW, REQUEST = Wanted.RESUME, Wanted.RESTORE, Wanted.SHOW, Wanted.REQUEST
NONE: Final = "there is no"


def test_which_run_of_a_cluster_is_meant(subtests: pytest.Subtests, tmp_path: Path, entry: Entry) -> None:
    """One that is finished is not resumed, and covers earlier ones; one that owes goes before a held one."""
    ended = r"the latest, .* on prod, has ended \(done\)"
    unfinished = [outcome for outcome in Outcome if outcome not in (DONE, RESTORED)]
    cases: list[tuple[tuple[Outcome | None, ...], Wanted, int | str]] = [
        *(((DONE, one), wanted, 2) for one in (*unfinished, None) for wanted in (RESUME, RESTORE, SHOW)),
        *(((INTERRUPTED, FAILED, DONE), wanted, NONE) for wanted in (RESUME, RESTORE, REQUEST)),
        *(((INTERRUPTED, FAILED, RESTORED), wanted, NONE) for wanted in (RESTORE, REQUEST)),
        ((FAILED, RESTORED), RESUME, 2),
        ((FAILED, RESTORED, DONE), RESUME, NONE),
        ((PAUSED, None, HELD), RESTORE, 2),
        ((PAUSED, None, HELD), REQUEST, 2),
        ((PAUSED, INTERRUPTED), RESUME, 2),
        *(((DONE,), wanted, ended) for wanted in (RESUME, RESTORE, REQUEST)),
        ((PAUSED, DONE), RESTORE, NONE),
        ((PAUSED, DONE), RESUME, r"20261121-0411-xxx1 .paused, .* resume 20261121-0411-xxx1 --state \S+`"),
        ((), REQUEST, "there is no run under way"),
        ((), SHOW, "there is no run in"),
    ]
    for number, (outcomes, wanted, meant) in enumerate(cases):
        with subtests.test(outcomes=outcomes, wanted=wanted):
            store = open_store(f"sqlite:///{tmp_path}/{number}.db", {}, access=DatabaseUse.WRITE)
            filled(store, entry)("prod", *outcomes)
            if isinstance(meant, int):
                assert found(store, wanted) == meant
            else:
                with pytest.raises(UsageError, match=meant):
                    find_run(store, wanted)
            store.close()


def test_a_run_is_named_in_part(store: StateStore, fill: Fill) -> None:
    fill("prod", DONE, None)
    for typed in ("20261121-0411-xxx1", "20261121-0411", "xxx1"):
        assert find_run(store, RESUME, run=typed).run == "20261121-0411-xxx1"
    with pytest.raises(UsageError, match="there is no run nope"):
        find_run(store, RESUME, run="nope")
    with pytest.raises(UsageError, match=r"(?s)more than one run:.*xxx2.*xxx1"):
        find_run(store, RESUME, run="2026")
    with pytest.raises(UsageError, match="one of cluster prod, not of test"):
        find_run(store, RESUME, run="xxx1", cluster="test")


def test_a_request_is_left_only_for_a_run_under_way(store: StateStore, fill: Fill) -> None:
    fill("prod", None, Outcome.PAUSED)
    under_way, ended = (find_run(store, Wanted.SHOW, run=run) for run in ("xxx1", "xxx2"))
    leave_request(store, under_way, Request.STOP, by="ben", at=5.0, gone=lambda _: False)
    assert store.journal(under_way.run).asked() == (Request.STOP, "ben")
    with pytest.raises(UsageError, match=r"its process is gone; `orchestrate resume \S*xxx1 --state \S+db`"):
        leave_request(store, under_way, Request.PAUSE, by="ben", at=5.0, gone=lambda _: True)
    with pytest.raises(UsageError, match=r"it has ended .paused."):
        leave_request(store, ended, Request.PAUSE, by="ben", at=5.0)
    assert store.journal(ended.run).asked()[0] is Request.NONE


@pytest.mark.parametrize("wanted", Wanted)
@pytest.mark.parametrize("killed", [False, True])
def test_a_resumed_run_is_newer_than_one_done_in_between(
    store: StateStore, fill: Fill, wanted: Wanted, *, killed: bool
) -> None:
    fill("prod", Outcome.PAUSED, Outcome.DONE)
    run = find_run(store, Wanted.SHOW, run="xxx1").run
    taken = LeaseTaken(epoch=1, holder="o", ordinal=store.next_ordinal())
    store.journal(run).append((RunResumed(operator="o", host="h"), taken), 0.0)
    if killed or wanted is Wanted.REQUEST:
        assert find_run(store, wanted).run == run
        return
    ended = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=1.0)
    store.journal(run).append((ended,), 10.0)
    assert find_run(store, wanted).run == run


@pytest.mark.parametrize("left", [None, Outcome.NOT_RESTORED])
@pytest.mark.parametrize("wanted", [Wanted.RESUME, Wanted.RESTORE])
def test_a_later_run_without_them_hides_no_changes(
    store: StateStore, fill: Fill, left: Outcome | None, wanted: Wanted
) -> None:
    fill("prod", left, Outcome.DONE)
    with pytest.raises(RunPassed) as refused:
        find_run(store, wanted)
    assert refused.value.entry.run == "20261121-0411-xxx1"
    first, both, other, write, look = refused.value.lines
    assert "a later run is finished" in first
    assert ("xxx1" in both, "xxx2" in other) == (True, True)
    assert f"`{store.command(wanted.name.lower(), '20261121-0411-xxx1')}`" in write
    assert f"`{store.command('status', '20261121-0412-xxx2')}`" in look
    with pytest.raises(UsageError, match="there is no run under way"):
        find_run(store, Wanted.REQUEST)


@pytest.mark.parametrize("numbered", [set(), {1}, {2}, {1, 2}])
def test_runs_of_an_earlier_version_have_no_order(
    store: StateStore, entry: Entry, numbered: set[int]
) -> None:
    """Run 1 is done, run 2 was killed; the dates say the opposite. A number comes after none."""
    for number in (1, 2):
        journal = store.create_run(entry(f"20261121-041{number}-xxx{number}", "prod", 9.0 - number))
        ordinal = number if number in numbered else None
        journal.append((LeaseTaken(epoch=1, holder="o", ordinal=ordinal),), 9.0 - number)
        if number == 1:
            journal.append((RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0),), 9.0 - number)
    if 2 in numbered:
        assert found(store, Wanted.RESTORE) == 2
        return
    with pytest.raises(RunPassed, match="may be later" if not numbered else "a later run"):
        find_run(store, Wanted.RESTORE)


def test_a_run_is_closed_by_name_until_it_works_again(store: StateStore, fill: Fill) -> None:
    """Run 1 was killed; run 2 took over its changes and was killed; run 3 took over those, and was done."""
    fill("prod", None)
    for number, outcome in ((2, None), (3, Outcome.DONE)):
        fill("prod", outcome)
        before = f"20261121-041{number - 1}-xxx{number - 1}"
        journal = store.journal(f"20261121-041{number}-xxx{number}")
        taken = LeaseTaken(epoch=1, holder="o", ordinal=store.next_ordinal(), takes_over=before)
        journal.append((taken,), 0.0)
        if number == 2:
            assert found(store, Wanted.RESTORE) == 2
    with pytest.raises(UsageError, match="there is no"):
        find_run(store, Wanted.RESTORE)
    assert [entry.outcome for entry in store.runs()] == [Outcome.DONE, Outcome.RESTORED, Outcome.RESTORED]
    again = LeaseTaken(epoch=1, holder="o", ordinal=store.next_ordinal())
    store.journal("20261121-0411-xxx1").append((RunResumed(operator="o", host="h"), again), 0.0)
    assert found(store, Wanted.RESTORE) == 1


def test_a_journal_that_cannot_be_read_hides_no_other_run(
    store: StateStore, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("prod", Outcome.DONE, None)
    read = codec.record_of

    def damaged(run: str, *rest: object) -> Record:
        if run.endswith("xxx1"):
            raise JournalError("damaged")
        return read(run, *rest)

    monkeypatch.setattr(codec, "record_of", damaged)
    assert found(store, Wanted.RESTORE) == 2
