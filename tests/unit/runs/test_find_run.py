from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.model.event import GoodReading, RunFinished, RunResumed
from orchestrator.model.phase import Outcome, Request
from orchestrator.runs.find_run import Wanted, find_run, histories, is_missing, leave_request
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import RunEntry, StateStore, open_store

Entry = Callable[..., RunEntry]
Fill = Callable[..., None]


@pytest.fixture
def fill(store: StateStore, entry: Entry) -> Fill:
    """Runs `1`, `2`, … of a cluster, the oldest first, each with the outcome of its last attempt."""
    number = [0]

    def make(cluster: str, *outcomes: Outcome | None) -> None:
        for outcome in outcomes:
            number[0] += 1
            journal = store.create_run(entry(f"20261121-041{number[0]}-xxx{number[0]}", cluster, number[0]))
            journal.append((GoodReading(count=number[0]),), float(number[0]))
            if outcome is not None:
                journal.append((RunFinished(outcome=outcome, exit_code=1, seconds=1.0),), float(number[0]))

    return make


def found(store: StateStore, wanted: Wanted, cluster: str | None = None) -> int:
    return int(find_run(store, wanted, cluster=cluster).run[-1])


@pytest.mark.parametrize(
    "outcome", [o for o in Outcome if o not in (Outcome.DONE, Outcome.RESTORED)] + [None]
)
def test_the_unfinished_run_is_meant(store: StateStore, fill: Fill, outcome: Outcome | None) -> None:
    fill("prod", Outcome.DONE, outcome)
    wanted = [Wanted.RESUME, Wanted.RESTORE, Wanted.SHOW]
    assert {each: found(store, each) for each in wanted} == dict.fromkeys(wanted, 2)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.RESTORED])
def test_a_finished_run_is_not_resumed_and_covers_earlier_ones(
    store: StateStore, fill: Fill, outcome: Outcome
) -> None:
    fill("prod", None, Outcome.FAILED, outcome)
    for wanted in {Wanted.RESUME, Wanted.RESTORE, Wanted.REQUEST} - (
        {Wanted.RESUME} if outcome is Outcome.RESTORED else set()
    ):
        with pytest.raises(UsageError, match="there is no"):
            find_run(store, wanted)


def test_a_restored_run_can_be_resumed_until_another_is_done(store: StateStore, fill: Fill) -> None:
    fill("prod", None, Outcome.RESTORED)
    assert found(store, Wanted.RESUME) == 2
    fill("prod", Outcome.DONE)
    with pytest.raises(UsageError, match="there is no"):
        find_run(store, Wanted.RESUME)


def test_a_run_that_owes_goes_before_a_later_one_that_was_held(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.PAUSED, None, Outcome.HELD)
    assert found(store, Wanted.RESTORE) == 2
    assert found(store, Wanted.REQUEST) == 2


def test_among_runs_that_ended_in_order_the_latest_is_meant(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.PAUSED, Outcome.INTERRUPTED)
    assert found(store, Wanted.RESUME) == 2


def test_several_clusters_are_listed_and_one_can_be_named(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.FAILED)
    fill("test", None)
    for wanted in (Wanted.RESUME, Wanted.RESTORE, Wanted.SHOW):
        with pytest.raises(UsageError, match=r"(?s)--cluster:.*xxx\d .*xxx\d ") as error:
            find_run(store, wanted)
        assert "20261121-0411-xxx1  prod  failed" in str(error.value)
        assert "20261121-0412-xxx2  test  under way or killed" in str(error.value)
    assert found(store, Wanted.RESUME, "prod") == 1
    assert found(store, Wanted.RESUME, "test") == 2
    assert found(store, Wanted.REQUEST) == 2


def test_without_a_run_the_way_without_the_state_file_is_named(store: StateStore) -> None:
    with pytest.raises(
        UsageError, match=r"no unfinished run of cluster prod in state file .*restore --cluster prod"
    ):
        find_run(store, Wanted.RESUME, cluster="prod")
    with pytest.raises(UsageError, match="there is no run under way"):
        find_run(store, Wanted.REQUEST)
    with pytest.raises(UsageError, match="there is no run in"):
        find_run(store, Wanted.SHOW)


def test_to_look_at_the_latest_will_do(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.DONE, Outcome.DONE)
    fill("test", Outcome.DONE)
    assert found(store, Wanted.SHOW) == 3
    assert found(store, Wanted.SHOW, "prod") == 2


@pytest.mark.parametrize("typed", ["20261121-0411-xxx1", "20261121-0411", "xxx1"])
def test_a_run_is_named_in_part(store: StateStore, fill: Fill, typed: str) -> None:
    fill("prod", Outcome.DONE, None)
    assert find_run(store, Wanted.RESUME, run=typed).run == "20261121-0411-xxx1"


def test_a_run_that_is_not_there_or_not_clear_is_refused(store: StateStore, fill: Fill) -> None:
    fill("prod", None, None)
    with pytest.raises(UsageError, match="there is no run nope"):
        find_run(store, Wanted.RESUME, run="nope")
    with pytest.raises(UsageError, match=r"(?s)more than one run:.*xxx2.*xxx1"):
        find_run(store, Wanted.RESUME, run="2026")
    with pytest.raises(UsageError, match="one of cluster prod, not of test"):
        find_run(store, Wanted.RESUME, run="xxx1", cluster="test")


def test_a_request_is_left_only_for_a_run_under_way(store: StateStore, fill: Fill) -> None:
    fill("prod", None, Outcome.PAUSED)
    under_way, ended = (find_run(store, Wanted.SHOW, run=run) for run in ("xxx1", "xxx2"))
    leave_request(store, under_way, Request.STOP, by="ben", at=5.0, gone=lambda _: False)
    assert store.journal(under_way.run).asked() == (Request.STOP, "ben")
    with pytest.raises(UsageError, match=r"its process is gone; `orchestrate resume .*xxx1`"):
        leave_request(store, under_way, Request.PAUSE, by="ben", at=5.0, gone=lambda _: True)
    with pytest.raises(UsageError, match=r"it has ended .paused."):
        leave_request(store, ended, Request.PAUSE, by="ben", at=5.0)
    assert store.journal(ended.run).request() is Request.NONE


def test_histories_come_oldest_first(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.DONE, Outcome.FAILED)
    fill("test", None)
    assert [records[0].run[-1] for _, records in histories(store)] == ["1", "2", "3"]
    assert [records[0].run[-1] for _, records in histories(store, cluster="prod")] == ["1", "2"]
    assert [records[0].run[-1] for _, records in histories(store, limit=1)] == ["3"]
    assert [entry.run for entry, records in histories(store)] == [r[0].run for _, r in histories(store)]


def test_a_resumed_run_is_under_way_again(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.PAUSED)
    run = find_run(store, Wanted.RESUME).run
    store.journal(run).append((RunResumed(operator="o", host="h"),), 9.0)
    assert find_run(store, Wanted.REQUEST).run == run


@pytest.mark.parametrize("wanted", Wanted)
@pytest.mark.parametrize("killed", [False, True])
def test_a_resumed_run_is_newer_than_one_done_in_between(
    store: StateStore, fill: Fill, wanted: Wanted, *, killed: bool
) -> None:
    fill("prod", Outcome.PAUSED, Outcome.DONE)
    run = find_run(store, Wanted.SHOW, run="xxx1").run
    store.journal(run).append((RunResumed(operator="o", host="h"),), 9.0)
    if killed or wanted is Wanted.REQUEST:
        assert find_run(store, wanted).run == run
        return
    ended = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=1.0)
    store.journal(run).append((ended,), 10.0)
    assert find_run(store, wanted).run == run


def test_an_older_run_with_nodes_left_is_named(store: StateStore, fill: Fill) -> None:
    fill("prod", Outcome.PAUSED, Outcome.DONE)
    with pytest.raises(UsageError, match=r"20261121-0411-xxx1 .paused, .* resume 20261121-0411-xxx1`"):
        find_run(store, Wanted.RESUME)
    with pytest.raises(UsageError) as error:
        find_run(store, Wanted.RESTORE)
    assert "xxx1" not in str(error.value)


@pytest.mark.parametrize("wanted", [Wanted.RESUME, Wanted.RESTORE, Wanted.REQUEST])
def test_the_latest_run_is_named_if_all_are_done(store: StateStore, fill: Fill, wanted: Wanted) -> None:
    fill("prod", Outcome.DONE)
    with pytest.raises(UsageError, match=r"the latest, .* on prod, has ended \(done\)"):
        find_run(store, wanted)


@pytest.mark.parametrize("named", [True, False])
def test_a_state_is_missing_until_something_was_written(tmp_path: Path, *, named: bool) -> None:
    url = f"sqlite:///{tmp_path}/named.db" if named else None

    def opened(access: Access) -> StateStore:
        return open_store(url, {}, access=access, home=tmp_path, shared=tmp_path / "none" / "x" / "state.db")

    assert is_missing(opened)
    assert list(tmp_path.iterdir()) == []
    opened(Access.WRITE).close()
    assert not is_missing(opened)
