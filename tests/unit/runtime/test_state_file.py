"""Where the state file is, what rights it has, and one clear message for whatever is wrong with it."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from orchestrator.engine.state import NOT_BEGUN
from orchestrator.errors import JournalError, UsageError
from orchestrator.model.action import Done
from orchestrator.model.event import SCHEMA_VERSION, GoodReading, Hold, RunFinished
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.lease_event import LeaseTaken
from orchestrator.model.phase import Outcome
from orchestrator.runtime.database import Access, StateUnwritable, explain, place_of, state_url
from orchestrator.runtime.state_file import usable
from orchestrator.runtime.store import RunEntry, StateStore, open_store

Entry = Callable[..., RunEntry]
RUN = "20261121-0413-x7k2"
BIG = Hold(predicate="p", subject="s", evidence="x" * 100_000)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_typed_goes_before_the_environment(tmp_path: Path) -> None:
    environment = {"ORCHESTRATE_STATE": "sqlite:////tmp/b.db"}
    typed = state_url("sqlite:////tmp/a.db", environment, home=tmp_path, access=Access.WRITE)
    assert typed.database == "/tmp/a.db"
    assert state_url(None, environment, home=tmp_path, access=Access.WRITE).database == "/tmp/b.db"


def test_a_path_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--state.*sqlite:////absolute/path"):
        state_url("/tmp/state.db", {}, home=tmp_path, access=Access.WRITE)
    with pytest.raises(UsageError, match="ORCHESTRATE_STATE"):
        state_url(None, {"ORCHESTRATE_STATE": "x"}, home=tmp_path, access=Access.WRITE)


def test_a_url_of_no_use_is_refused_and_never_repeated(subtests: pytest.Subtests, tmp_path: Path) -> None:
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
        with subtests.test(given=given, says=says):
            for access in Access:
                with pytest.raises(UsageError, match=f"^--state: .*{says}") as caught:
                    state_url(given, {}, home=tmp_path, access=access)
                assert "hunter2" not in str(caught.value)


def test_a_relative_path_is_shown_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///state.db", {}, access=Access.WRITE)
    assert store.where == f"state file {tmp_path}/state.db"
    monkeypatch.chdir("/")
    assert store.runs() == ()
    store.close()


def test_a_database_is_named_without_its_password() -> None:
    url = "postgresql+pg8000://u:hunter2@h/db?password=hunter2"
    engine = create_engine(url, module=sqlite3)  # any driver will do: nothing is connected
    assert place_of(engine) == "state database postgresql+pg8000://u:***@h/db"


def test_without_the_shared_folder_it_is_in_the_home(tmp_path: Path) -> None:
    def found(environment: dict[str, str]) -> str | None:
        shared = tmp_path / "no" / "such" / "state.db"
        return state_url(None, environment, home=tmp_path, access=Access.WRITE, shared=shared).database

    assert found({}) == str(tmp_path / ".local/state/orchestrate/state.db")
    assert found({"XDG_STATE_HOME": "/x/y"}) == "/x/y/orchestrate/state.db"
    assert found({"XDG_STATE_HOME": "x"}) == str(tmp_path / ".local/state/orchestrate/state.db")


def test_the_shared_folder_goes_before_the_home(tmp_path: Path, entry: Entry) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    store = open_store(None, {}, access=Access.WRITE, home=tmp_path, shared=shared / "state.db")
    store.create_run(entry())
    store.close()
    assert mode(shared / "state.db") == 0o660
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_the_home_is_made_private(tmp_path: Path) -> None:
    shared = tmp_path / "no" / "such" / "state.db"
    open_store(None, {}, access=Access.WRITE, home=tmp_path, shared=shared).close()
    made = tmp_path / ".local/state/orchestrate"
    assert (mode(made), mode(made / "state.db")) == (0o700, 0o600)


def test_a_place_is_usable_when_folder_and_file_can_be_written(tmp_path: Path) -> None:
    assert usable(tmp_path / "state.db")
    assert usable(tmp_path / "new folder" / "state.db")
    assert not usable(tmp_path / "no" / "such" / "state.db")


def test_the_file_is_private(store: StateStore, tmp_path: Path, entry: Entry) -> None:
    store.create_run(entry())
    assert mode(tmp_path / "state.db") == 0o600
    assert mode(tmp_path / "state.db-journal") == 0o600


def test_the_pragmas_are_those_that_the_module_argues_for(store: StateStore) -> None:
    with store._engine.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "truncate", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_a_reader_finds_nothing_where_nothing_was_run(tmp_path: Path) -> None:
    shared = tmp_path / "no" / "such" / "state.db"
    for access in (Access.READ, Access.GO_ON):
        store = open_store(None, {}, access=access, home=tmp_path, shared=shared)
        assert store.runs() == ()
        assert list(tmp_path.iterdir()) == []
        store.close()


@pytest.mark.parametrize("access", [Access.READ, Access.GO_ON])
def test_a_typed_file_that_is_to_be_there_and_is_not(url: str, tmp_path: Path, access: Access) -> None:
    with pytest.raises(JournalError, match=r"state\.db: there is no such file"):
        open_store(url, {}, access=access)
    assert list(tmp_path.iterdir()) == []


def test_a_typed_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="folder is not there"):
        open_store(f"sqlite:///{tmp_path}/typo/state.db", {}, access=Access.WRITE)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_what_a_kill_at_the_start_leaves(url: str, tmp_path: Path, entry: Entry) -> None:
    (tmp_path / "state.db").touch()
    store = open_store(url, {}, access=Access.WRITE)
    store.create_run(entry()).append((BIG,), 1.0)
    assert len(store.runs()) == 1
    store.close()


def test_a_file_that_is_no_database(url: str, tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("dear diary\n" * 500)
    for access in Access:
        with pytest.raises(JournalError, match=r"state\.db: opening it failed: it is not an SQLite database"):
            open_store(url, {}, access=access)
    assert (tmp_path / "state.db").read_text().startswith("dear diary")


def test_a_database_of_something_else(url: str, tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "state.db")
    raw.execute("CREATE TABLE recipes (name TEXT)")
    raw.close()
    for access in Access:
        with pytest.raises(JournalError, match=r"something else .it has recipes"):
            open_store(url, {}, access=access)


def test_a_future_version_is_refused_and_left_alone(store: StateStore, url: str, tmp_path: Path) -> None:
    store.close()
    raw = sqlite3.connect(tmp_path / "state.db")
    with raw:
        raw.execute("UPDATE meta SET schema = ?", (SCHEMA_VERSION + 6,))
        raw.execute("DROP TABLE leases")
    raw.close()
    before = (tmp_path / "state.db").read_bytes()
    for access in Access:
        with pytest.raises(
            JournalError, match=rf"later version of orchestrate .schema {SCHEMA_VERSION + 6}, .*use that"
        ):
            open_store(url, {}, access=access)
    assert (tmp_path / "state.db").read_bytes() == before


def test_a_version_that_is_none_is_told(store: StateStore, url: str, tmp_path: Path) -> None:
    store.close()
    with sqlite3.connect(tmp_path / "state.db") as raw:
        raw.execute("UPDATE meta SET schema = 'three'")
    for access in Access:
        with pytest.raises(JournalError, match=r"state\.db has no schema version: it is damaged"):
            open_store(url, {}, access=access)


def test_a_damaged_page_is_found_at_the_start(
    store: StateStore, url: str, tmp_path: Path, entry: Entry
) -> None:
    store.create_run(entry()).append((BIG,) * 3, 1.0)
    store.close()
    file = tmp_path / "state.db"
    data = bytearray(file.read_bytes())
    data[4096 * 3 : 4096 * 12] = os.urandom(4096 * 9)
    file.write_bytes(data)
    with pytest.raises(JournalError, match="damaged"):
        open_store(url, {}, access=Access.WRITE)


def test_a_lock_that_is_kept_is_named(store: StateStore, tmp_path: Path, entry: Entry) -> None:
    journal = store.create_run(entry())
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=50")  # of the pooled connection that append will use
    raw = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="another process has kept it locked"):
        journal.append((GoodReading(count=1),), 1.0)
    raw.execute("ROLLBACK")
    raw.close()
    assert [record.sequence for record in journal.append((GoodReading(count=1),), 2.0)] == [1]


def test_a_full_database_writes_again_when_there_is_room(store: StateStore, entry: Entry) -> None:
    journal = store.create_run(entry())
    journal.append((GoodReading(count=1),), 1.0)
    with store._engine.connect() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 5}")
    with pytest.raises(JournalError, match="no space is left on its disk; free some"):
        journal.append((GoodReading(count=2), BIG), 2.0)
    assert len(store.replay(RUN)) == 1
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert [record.sequence for record in journal.append((GoodReading(count=2), BIG), 3.0)] == [2, 3]


def test_a_lease_is_not_waited_for_on_a_full_disk(store: StateStore) -> None:
    """A watcher would try again for a minute what takes no record then either; and nothing is in doubt."""
    record = LeaseRecord(epoch=1, run=RUN, owner="ann@here", process="b/1/2/3", started="x" * 100_000)
    lease = store.lease("uuid")
    with store._engine.connect() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 5}")
    with pytest.raises(StateUnwritable, match="taking the lease failed: no space is left on its disk"):
        lease.create(record)
    assert lease.read() is None
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert lease.create(record) == Done()


def test_nor_where_a_quota_is_used_up(store: StateStore, tmp_path: Path) -> None:
    """A limit on file size stands for it: SQLite calls either an error of the disk."""
    record = LeaseRecord(epoch=1, run=RUN, owner="ann@here", process="b/1/2/3", started="x" * 100_000)
    lease = store.lease("uuid")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "state.db").stat().st_size + 20_000, hard))
    try:
        with pytest.raises(StateUnwritable, match="taking the lease failed: its disk reports an error"):
            lease.create(record)
        assert lease.read() is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert lease.create(record) == Done()


def test_a_limit_on_file_size_looks_like_a_full_disk(store: StateStore, entry: Entry, tmp_path: Path) -> None:
    journal = store.create_run(entry())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "state.db").stat().st_size + 20_000, hard))
    try:
        with pytest.raises(JournalError, match=r"writing the journal failed: .*(disk|space)"):
            journal.append((BIG,), 1.0)
        assert store.replay(RUN) == ()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(journal.append((BIG,), 2.0)) == 1


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


def test_a_full_disk_stops_the_writer_and_not_the_reader(small_disk: Path, entry: Entry) -> None:
    url = f"sqlite:///{small_disk}/state.db"
    store = open_store(url, {}, access=Access.WRITE)
    journal = store.create_run(entry())
    journal.append((GoodReading(count=1),), 1.0)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        fill(filler)
    with pytest.raises(JournalError, match=r"state\.db: writing the journal failed: .*(space|disk)"):
        journal.append((GoodReading(count=2), BIG), 2.0)
    reader = open_store(url, {}, access=Access.READ)
    assert len(reader.replay(RUN)) == 1
    assert [line.run for line in reader.unfinished()] == [RUN]
    reader.close()
    filler.unlink()
    assert [record.sequence for record in journal.append((GoodReading(count=2), BIG), 3.0)] == [2, 3]
    store.close()


def test_a_full_disk_takes_the_mark_of_a_run(small_disk: Path, entry: Entry) -> None:
    store = open_store(f"sqlite:///{small_disk}/state.db", {}, access=Access.WRITE)
    journal = store.create_run(entry())
    journal.append((NOT_BEGUN,), 1.0)
    assert not store.is_unwritten(RUN)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        fill(filler)
    with pytest.raises(JournalError, match="writing the journal failed"):
        journal.append((BIG,), 2.0)
    reader = open_store(f"sqlite:///{small_disk}/state.db", {}, access=Access.READ)
    assert [line.unwritten for line in reader.runs()] == [True]
    filler.unlink()
    journal.append((BIG,), 3.0)
    assert [line.unwritten for line in reader.runs()] == [False]
    assert sorted(file.name for file in small_disk.iterdir()) == ["state.db", "state.db-journal"]
    reader.close()
    store.close()


def test_a_run_that_another_restored_has_no_mark(store: StateStore, entry: Entry) -> None:
    store.create_run(entry()).append((GoodReading(count=1),), 1.0)
    store.mark_unwritten(RUN)
    taken = LeaseTaken(epoch=2, holder="ben", ordinal=2, takes_over=RUN)
    other = store.create_run(replace(entry(), run="run-2"))
    other.append((taken,), 2.0)
    assert [line.unwritten for line in store.runs() if line.run == RUN] == [True]
    other.append((RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0),), 3.0)
    assert [(line.outcome, line.unwritten) for line in store.runs() if line.run == RUN] == [
        (Outcome.RESTORED, False)
    ]
    store.close_run(RUN, Outcome.RESTORED, 4.0)
    assert not store.is_unwritten(RUN)


def test_a_mark_stays_in_the_folder_of_the_state(tmp_path: Path, store: StateStore) -> None:
    (tmp_path / "state.db-unwritten-").mkdir()
    for run in ("/../../x", "..", "x" * 5000):
        store.mark_unwritten(run)
        store.is_unwritten(run)
    marks = [file.name for file in tmp_path.rglob("*") if file.is_file() and "unwritten" in file.name]
    assert sorted(marks) == ["state.db-unwritten-%2F..%2F..%2Fx", "state.db-unwritten-.."]
    assert not (tmp_path.parent / "x").exists()


READ_ONLY = """
import os, sys
from orchestrator.errors import JournalError
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = open_store(sys.argv[1], {}, access=Access.READ)
print(len(store.runs()), "read")
store.close()
try:
    open_store(sys.argv[1], {}, access=Access.WRITE)
except JournalError as error:
    print(error)
"""


def test_an_account_that_may_only_read_learns_why(entry: Entry) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders shut other accounts out
        folder = Path(name)
        url = f"sqlite:///{folder}/state.db"
        store = open_store(url, {}, access=Access.WRITE)
        store.create_run(entry()).append((BIG,), 1.0)
        store.close()
        folder.chmod(0o755)
        (folder / "state.db").chmod(0o444)
        done = subprocess.run(  # noqa: S603  (this interpreter, our own script)
            [sys.executable, "-c", READ_ONLY, url], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.stdout.startswith("1 read\n"), done.stderr
    assert "may only be read by this account" in done.stdout


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"driver of postgresql\+\w+ is not installed.*psycopg"):
        open_store("postgresql+pg8000://u:secret@h/db", {}, access=Access.WRITE, home=tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            'connection failed: connection to server at "::1", port 1 failed: refused\n\tIs it up?\n',
            "refused",
        ),
        (
            'connection to server at "db" (::1), port 5432 failed: FATAL:  database "x" does not exist\n',
            'database "x" does not exist',
        ),
        ("could not open relation\nHINT:  Ask the administrator.", "could not open relation"),
        ("", "RuntimeError"),
    ],
)
def test_the_words_of_a_driver_are_shown_without_its_advice(error: str, words: str) -> None:
    assert explain(RuntimeError(error)) == words


@pytest.mark.parametrize("url", ["postgresql+pg8000://u:secret@h/db", "nodb://u:secret@h/db"])
def test_an_unusable_database_shows_no_words_of_the_library(tmp_path: Path, url: str) -> None:
    with pytest.raises(JournalError) as caught:
        open_store(url, {}, access=Access.WRITE, home=tmp_path)
    assert "postgresql+psycopg://HOST/NAME" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("secret", "No module", "plugin", "sqlalchemy"))


@pytest.mark.parametrize("access", list(Access))
def test_a_directory_is_no_state_file(tmp_path: Path, access: Access) -> None:
    with pytest.raises(JournalError) as caught:
        open_store(f"sqlite:///{tmp_path}", {}, access=access)
    assert str(caught.value) == f"state file {tmp_path}: it is a directory; name a file"


def test_a_file_that_is_closed_to_this_account_is_told_in_words() -> None:
    closed = PermissionError(13, "Permission denied", "/var/lib/orchestrate/state.db")
    assert explain(closed) == "Permission denied (/var/lib/orchestrate/state.db)"
    with pytest.raises(sqlite3.OperationalError) as error:
        sqlite3.connect("file:/nowhere/state.db?mode=ro", uri=True).execute("SELECT 1")
    assert explain(error.value).startswith("it cannot be opened; it or its folder is missing or closed to")
