"""Where the state file is, what rights it has, and one clear message for whatever is wrong with it."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import create_engine, make_url, text

from orchestrator.engine.state import NOT_BEGUN
from orchestrator.errors import JournalError, UsageError
from orchestrator.model.action import Done
from orchestrator.model.event import SCHEMA_VERSION, GoodReading, Hold, LeaseTaken, RunFinished
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Outcome
from orchestrator.next_command import without_password
from orchestrator.runtime.database import DatabaseUse, StateUnwritable, explain, place_of, state_url
from orchestrator.runtime.state_file import usable
from orchestrator.runtime.store import RunEntry, StateMissing, StateStore, open_store

Entry = Callable[..., RunEntry]
RUN: Final = "20261121-0413-x7k2"
BIG: Final = Hold(predicate="p", subject="s", evidence="x" * 100_000)
RECORD: Final = LeaseRecord(epoch=1, run=RUN, owner="ann@here", process="b/1/2/3", started="x" * 100_000)
ONE, TWO = GoodReading(count=1), GoodReading(count=2)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Where it is ------------------------------------


def test_state_url_by_option_then_environment_then_folder(tmp_path: Path) -> None:
    """The shared folder goes before the home."""

    def found(typed: str | None = None, **environment: str) -> str | None:
        shared = tmp_path / "no" / "such" / "state.db"
        url = state_url(typed, environment, home=tmp_path, access=DatabaseUse.WRITE, shared=shared)
        return url.database

    at_home = str(tmp_path / ".local/state/orchestrate/state.db")
    other = "sqlite:////tmp/b.db"
    assert found("sqlite:////tmp/a.db", ORCHESTRATE_STATE=other) == "/tmp/a.db"
    assert found(ORCHESTRATE_STATE=other) == "/tmp/b.db"
    assert found() == found(XDG_STATE_HOME="x") == at_home
    assert found(XDG_STATE_HOME="/x/y") == "/x/y/orchestrate/state.db"
    assert usable(tmp_path / "state.db")
    assert usable(tmp_path / "new folder" / "state.db")
    assert not usable(tmp_path / "no" / "such" / "state.db")


def test_a_url_of_no_use_is_refused_and_never_repeated(subtests: pytest.Subtests, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--state.*sqlite:////absolute/path"):
        state_url("/tmp/state.db", {}, home=tmp_path, access=DatabaseUse.WRITE)
    with pytest.raises(UsageError, match="ORCHESTRATE_STATE"):
        state_url(None, {"ORCHESTRATE_STATE": "x"}, home=tmp_path, access=DatabaseUse.WRITE)
    for given, says in [
        ("postgresql//u:hunter2@h/db", "no SQLAlchemy URL"),
        ("postgresql://u:p@ss:hunter2@h/db", "no SQLAlchemy URL"),
        ("postgresql://u:hunter2@h:port/db", "no SQLAlchemy URL"),
        ("postgresql://u:hunter2@hunter2@h/db", "written %40"),
        ("sqlite://hunter2.db", "neither a host"),
        ("sqlite+aiosqlite:////tmp/hunter2.db", "nor another driver"),
        ("sqlite:////tmp/hunter2.db?mode=ro", "no options"),
        ("sqlite://", "in memory"),
        ("sqlite:///", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ]:
        with subtests.test(given=given):
            for access in DatabaseUse:
                with pytest.raises(UsageError, match=f"^--state: .*{says}") as caught:
                    state_url(given, {}, home=tmp_path, access=access)
                assert "hunter2" not in str(caught.value)


def test_a_hidden_password_is_completed_from_the_environment(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for whole in (
        "postgresql+psycopg://u:hunter2@h/db",
        "postgresql://h/db?user=u&password=hunter2",
        "postgresql+psycopg://:a%2Fb@h/db",
    ):
        shown = without_password(whole)
        with subtests.test(shown):
            url = state_url(shown, {"ORCHESTRATE_STATE": whole}, home=tmp_path, access=DatabaseUse.WRITE)
            assert url == make_url(whole)
            for environment in (
                {},
                {"ORCHESTRATE_STATE": shown},
                {"ORCHESTRATE_STATE": whole.replace("h/db", "h/db2")},
            ):
                with pytest.raises(UsageError, match=r"--state: its password is `\*\*\*`: write it, or"):
                    state_url(shown, environment, home=tmp_path, access=DatabaseUse.WRITE)
            with pytest.raises(UsageError, match=r"^ORCHESTRATE_STATE: its password"):
                state_url(None, {"ORCHESTRATE_STATE": shown}, home=tmp_path, access=DatabaseUse.WRITE)


def test_a_database_is_named_whole_and_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///state.db", {}, access=DatabaseUse.WRITE)
    assert store.where == f"state file {tmp_path}/state.db"
    monkeypatch.chdir("/")
    assert store.runs() == ()
    store.close()
    url = "postgresql+pg8000://u:hunter2@h/db?password=hunter2"
    engine = create_engine(url, module=sqlite3)  # any driver will do: nothing is connected
    assert place_of(engine) == "state database postgresql+pg8000://u:***@h/db"


def test_the_rights_of_the_state_file(store: StateStore, tmp_path: Path, entry: Entry) -> None:
    store.create_run(entry())
    assert [mode(tmp_path / name) for name in ("state.db", "state.db-journal")] == [0o600, 0o600]
    shared, home = tmp_path / "shared", tmp_path / "home"
    for folder in (shared, home):
        folder.mkdir()
    shared.chmod(0o2770)
    opened = open_store(None, {}, access=DatabaseUse.WRITE, home=home, shared=shared / "state.db")
    opened.create_run(entry())
    opened.close()
    assert (mode(shared / "state.db"), list(home.iterdir())) == (0o660, [])
    open_store(
        None, {}, access=DatabaseUse.WRITE, home=home, shared=tmp_path / "no" / "such" / "state.db"
    ).close()
    made = home / ".local/state/orchestrate"
    assert (mode(made), mode(made / "state.db")) == (0o700, 0o600)


def test_the_pragmas_are_those_that_the_module_argues_for(store: StateStore) -> None:
    with store._engine.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "truncate", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_a_database_without_tables_is_no_state_yet(url: str, tmp_path: Path) -> None:
    """A new one of PostgreSQL is such: a first run reads it before it writes."""
    with closing(sqlite3.connect(tmp_path / "state.db")) as new:
        new.execute("PRAGMA user_version = 1")
    with pytest.raises(StateMissing, match="no run was begun with it yet"):
        open_store(url, {}, access=DatabaseUse.READ)
    open_store(url, {}, access=DatabaseUse.WRITE).close()
    store = open_store(url, {}, access=DatabaseUse.READ)
    assert store.runs() == ()
    store.close()


def test_a_file_is_made_by_a_writer_alone(url: str, tmp_path: Path, entry: Entry) -> None:
    """An empty one is what a kill at the start leaves."""
    for access in (DatabaseUse.READ, DatabaseUse.CONTINUE):
        store = open_store(None, {}, access=access, home=tmp_path, shared=tmp_path / "no" / "such" / "s.db")
        assert store.runs() == ()
        store.close()
        with pytest.raises(JournalError, match=r"state\.db: there is no such file"):
            open_store(url, {}, access=access)
    with pytest.raises(JournalError, match="folder is not there"):
        open_store(f"sqlite:///{tmp_path}/typo/state.db", {}, access=DatabaseUse.WRITE)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "state.db").touch()
    store = open_store(url, {}, access=DatabaseUse.WRITE)
    store.create_run(entry()).append((BIG,), 1.0)
    assert len(store.runs()) == 1
    store.close()


# What is wrong with it ------------------------------------


def _refused(url: str, says: str) -> None:
    """However it is opened, and nothing of it is changed."""
    file = Path(url.removeprefix("sqlite:///"))
    before = file.read_bytes() if file.is_file() else b""
    for access in DatabaseUse:
        with pytest.raises(JournalError, match=says):
            open_store(url, {}, access=access)
    assert (file.read_bytes() if file.is_file() else b"") == before


def _sql(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute(statement, values)
    raw.close()


def test_a_file_that_is_not_a_state_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    _refused(f"sqlite:///{tmp_path}", f"^state file {tmp_path}: it is a directory; name a file$")
    file.write_text("dear diary\n" * 500)
    _refused(url, r"state\.db: opening it failed: it is not an SQLite database")
    file.unlink()
    _sql(file, "CREATE TABLE recipes (name TEXT)")
    _refused(url, r"something else .it has recipes")


def test_another_version_is_refused_and_left_alone(store: StateStore, url: str, tmp_path: Path) -> None:
    store.close()
    later = SCHEMA_VERSION + 6
    _sql(tmp_path / "state.db", "UPDATE meta SET schema = ?", later)
    _sql(tmp_path / "state.db", "DROP TABLE leases")
    _refused(url, rf"later version of orchestrate .schema {later}, .*use that")
    _sql(tmp_path / "state.db", "UPDATE meta SET schema = 'three'")
    _refused(url, r"state\.db has no schema version: it is damaged")


def test_a_lock_that_is_kept_is_named(store: StateStore, tmp_path: Path, entry: Entry) -> None:
    journal = store.create_run(entry())
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=50")  # of the pooled connection that append will use
    raw = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="another process has kept it locked"):
        journal.append((ONE,), 1.0)
    raw.execute("ROLLBACK")
    raw.close()
    assert [record.sequence for record in journal.append((ONE,), 2.0)] == [1]


# No room ------------------------------------


def test_a_full_disk_is_named_and_written_to_again_later(store: StateStore, entry: Entry) -> None:
    """A lease is not waited for: a watcher would try for a minute what takes no record then either."""
    journal, lease = store.create_run(entry()), store.lease("uuid")
    with store._engine.connect() as connection:
        pages: Any = connection.execute(text("PRAGMA page_count")).scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 5}")
    with pytest.raises(JournalError, match=r"writing the journal failed: .*(space|disk)"):
        journal.append((ONE, BIG), 2.0)
    with pytest.raises(StateUnwritable, match=r"taking the lease failed: .*no space is left on its disk"):
        lease.create(RECORD)
    assert (store.replay(RUN), lease.read()) == ((), None)
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert [record.sequence for record in journal.append((ONE, BIG), 3.0)] == [1, 2]
    assert lease.create(RECORD) == Done()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 512 KiB; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(  # noqa: S603  (fixed words and our own folder)
        ["/bin/mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["/bin/umount", str(folder)], check=True)  # noqa: S603  (as above)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as out:
        while True:
            out.write(b"x" * 4096)


def test_a_full_disk_stops_the_writer_and_marks_its_run(small_disk: Path, entry: Entry) -> None:
    """A reader goes on, and sees the mark."""
    url = f"sqlite:///{small_disk}/state.db"
    store = open_store(url, {}, access=DatabaseUse.WRITE)
    journal = store.create_run(entry())
    journal.append((NOT_BEGUN,), 1.0)
    assert not store.is_unwritten(RUN)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        fill(filler)
    with pytest.raises(JournalError, match=r"state\.db: writing the journal failed: .*(space|disk)"):
        journal.append((BIG,), 2.0)
    reader = open_store(url, {}, access=DatabaseUse.READ)
    assert len(reader.replay(RUN)) == 1
    assert [(line.run, line.unwritten) for line in reader.unfinished()] == [(RUN, True)]
    filler.unlink()
    assert [record.sequence for record in journal.append((TWO, BIG), 3.0)] == [2, 3]
    assert [line.unwritten for line in reader.runs()] == [False]
    assert sorted(file.name for file in small_disk.iterdir()) == ["state.db", "state.db-journal"]
    reader.close()
    store.close()


def test_a_run_that_another_restored_has_no_mark(store: StateStore, entry: Entry) -> None:
    store.create_run(entry()).append((ONE,), 1.0)
    store.mark_unwritten(RUN)
    other = store.create_run(replace(entry(), run="run-2"))
    other.append((LeaseTaken(epoch=2, holder="ben", ordinal=2, takes_over=RUN),), 2.0)
    assert [line.unwritten for line in store.runs() if line.run == RUN] == [True]
    other.append((RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0),), 3.0)
    ends = [(line.outcome, line.unwritten) for line in store.runs() if line.run == RUN]
    assert ends == [(Outcome.RESTORED, False)]
    store.close_run(RUN, Outcome.RESTORED, 4.0)
    assert not store.is_unwritten(RUN)


# Rights and drivers ------------------------------------

READ_ONLY: Final = """
import os, sys
from orchestrator.errors import JournalError
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = open_store(sys.argv[1], {}, access=DatabaseUse.READ)
print(len(store.runs()), "read")
store.close()
try:
    open_store(sys.argv[1], {}, access=DatabaseUse.WRITE)
except JournalError as error:
    print(error)
"""


def test_an_account_that_may_only_read_learns_why(entry: Entry) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders shut other accounts out
        folder = Path(name)
        url = f"sqlite:///{folder}/state.db"
        store = open_store(url, {}, access=DatabaseUse.WRITE)
        store.create_run(entry()).append((BIG,), 1.0)
        store.close()
        folder.chmod(0o755)
        (folder / "state.db").chmod(0o444)
        done = subprocess.run(  # noqa: S603  (this interpreter, our own script)
            [sys.executable, "-c", READ_ONLY, url], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.stdout.startswith("1 read\n"), done.stderr
    assert "may only be read by this account" in done.stdout


def test_an_unusable_database_shows_no_words_of_the_library(tmp_path: Path) -> None:
    for url in ("postgresql+pg8000://u:secret@h/db", "nodb://u:secret@h/db"):
        with pytest.raises(JournalError, match=r"postgresql\+psycopg://HOST/NAME") as caught:
            open_store(url, {}, access=DatabaseUse.WRITE, home=tmp_path)
        assert not any(word in str(caught.value) for word in ("secret", "No module", "plugin", "sqlalchemy"))


def test_the_missing_extra_of_postgresql_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "orchestrator.runtime.postgres", raising=False)
    monkeypatch.delattr("orchestrator.runtime.postgres", raising=False)
    with pytest.raises(JournalError, match=r"extra `postgres`: install orchestrate again .*\.\[postgres\]"):
        open_store("postgresql+psycopg://u:secret@h/db", {}, access=DatabaseUse.WRITE, home=tmp_path)


SIMULATED: Final = """
from tests.simulation.program import empty_state, give_back
give_back(empty_state())
kept = empty_state(), empty_state()
"""


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python warns of open databases since 3.13")
def test_simulations_leave_no_database_open() -> None:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", SIMULATED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  (our own)
    assert done.stderr == ""


def test_the_words_of_a_driver_are_shown_without_its_advice(subtests: pytest.Subtests) -> None:
    at = "connection to server at"
    for error, words in [
        (f'connection failed: {at} "::1", port 1 failed: refused\n\tIs it up?\n', "refused"),
        (
            f'{at} "db" (::1), port 5432 failed: FATAL:  database "x" does not exist\n',
            'database "x" does not exist',
        ),
        ("could not open relation\nHINT:  Ask the administrator.", "could not open relation"),
        ("", "RuntimeError"),
    ]:
        with subtests.test(words):
            assert explain(RuntimeError(error)) == words
    closed = PermissionError(13, "Permission denied", "/var/lib/orchestrate/state.db")
    assert explain(closed) == "Permission denied (/var/lib/orchestrate/state.db)"
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect("file:/nowhere/state.db?mode=ro", uri=True).execute("SELECT 1")
    assert explain(caught.value).startswith("it cannot be opened; it or its folder is missing or closed to")
