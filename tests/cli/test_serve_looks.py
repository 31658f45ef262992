"""The looks of `serve` at the state: what of it is open, and which state is read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.work import serve
from orchestrator.errors import JournalError
from orchestrator.runtime.database import DatabaseUse, empty_engine
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.serve.board import METRICS, StateLook
from tests.cli.console import Console
from tests.cli.runs import RUN, ended_run


def looks(console: Console) -> serve.Looks:
    return serve.Looks(context_of(Output.TEXT), console.url, cluster=None, cluster_file=None)


def opened() -> list[str]:
    """What this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return found


def take_the_lock(state: Path) -> None:
    """At once: no other process or thread reads or writes."""
    with closing(sqlite3.connect(state, timeout=0.0, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("COMMIT")


def test_nothing_is_open_between_two_looks(console: Console) -> None:
    ended_run(console)
    reader = looks(console)
    for _ in range(2):
        reader.look([RUN, METRICS])
        assert str(console.state) not in opened()
        take_the_lock(console.state)


def test_no_transaction_is_open_while_a_page_is_made(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_run(console)
    made = list[str]()

    def watched(name: str) -> Callable[..., Any]:
        was = getattr(serve, name)

        def making(*args: Any, **named: Any) -> Any:
            take_the_lock(console.state)
            made.append(name)
            return was(*args, **named)

        return making

    for name in ("run_page", "history_page", "text_of"):
        monkeypatch.setattr(serve, name, watched(name))
    looks(console).look([RUN, METRICS])
    assert sorted(made) == ["history_page", "run_page", "text_of"]


def test_another_state_in_the_place_of_the_first_is_read(console: Console, tmp_path: Path) -> None:
    """A copy was restored, and the run went another way after it."""
    ended_run(console)
    copy = tmp_path / "copy"
    shutil.copy2(console.state, copy)
    with closing(sqlite3.connect(copy)) as other, other:
        (last,) = other.execute("SELECT max(sequence) FROM events").fetchone()
        other.execute("DELETE FROM events WHERE sequence > ?", (last - 3,))
        other.execute("UPDATE runs SET outcome = NULL, exit_code = NULL, ended = NULL")
    reader = looks(console)
    assert _outcome(reader.look([RUN])) == "done"
    copy.replace(console.state)
    assert _outcome(reader.look([RUN])) is None


def _outcome(look: StateLook) -> object:
    return look.runs[RUN].data["report"]["outcome"]


def test_the_usual_state_may_begin_later_but_not_vanish(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def usual(_context: Context, _url: str | None, access: DatabaseUse) -> Iterator[StateStore]:
        there = console.state.exists()
        store = open_store(console.url, {}, access=access) if there else StateStore(empty_engine())
        with closing(store):
            yield store

    monkeypatch.setattr(Context, "state", usual)
    reader = looks(console)
    with suppress(JournalError):
        assert reader.look([]).listing.data["runs"] == []
    ended_run(console)
    assert [run["run"] for run in reader.look([]).listing.data["runs"]] == [RUN]
    console.state.unlink()
    with pytest.raises(JournalError, match="it was there, and is gone"):
        reader.look([])


def test_a_damaged_run_has_no_metrics(console: Console) -> None:
    """And those of others are shown."""
    ended_run(console)
    ended_run(console, cluster="other", run="20261101-0300-aaaa", at=2.0)
    with closing(sqlite3.connect(console.state)) as other, other:
        other.execute("DELETE FROM events WHERE run = ? AND sequence = 3", (RUN,))
    look = looks(console).look([METRICS])
    assert 'cluster="other"' in look.metrics
    assert 'cluster="lab"' not in look.metrics
