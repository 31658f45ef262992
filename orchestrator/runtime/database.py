"""The state database: its location, how it is opened, and messages for its failures.

All SQLite-specific code is in this module; connections to PostgreSQL are in `postgres`. The rest is
SQLAlchemy Core.

**A rollback journal (`TRUNCATE`), not WAL.** The journal must be readable even when everything else fails. A
WAL database cannot be read on a full disk, by an account without write rights, or from a network home. With a
rollback journal all data is in one file that can be copied. `TRUNCATE` and not `DELETE`, because with
`synchronous=FULL` a deleted journal may reappear after a power cut and undo the last commit
(https://www.sqlite.org/pragma.html#pragma_synchronous). The cost: a reader and a commit wait for each other,
for a few milliseconds, since readers fetch all rows and then release the file.

**Rights.** The file holds host names and hook commands, and no secrets. Its mode is 0600, in a folder of our
own with 0700. In a folder that is shared with a group (group-writable and setgid) its mode is 0660, so that a
colleague can repair a run: `install -d -m 2770 -g operators /var/lib/orchestrate`.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from orchestrator.errors import JournalError, UsageError, how_to_add
from orchestrator.model.reading import Seconds
from orchestrator.next_command import HIDDEN, hides_password, next_command, without_password
from orchestrator.owners import verdict_on, why_not
from orchestrator.runtime.state_file import BESIDE, FILE, SHARED_FOLDER, VARIABLE, standard_file, usable

BUSY_SECONDS: Final[Seconds] = 10.0
"""How long one statement waits for another process's lock."""
_WRITES: Final = "orchestrate_writes"
_PRIVATE: Final = 0o600
_GROUP: Final = 0o660
_FOR_A_GROUP: Final = 0o2020


class DatabaseUse(Enum):
    """The purpose of opening the database. CONTINUE writes, but creates nothing: it is for existing runs."""

    WRITE = "write"
    CONTINUE = "continue"
    READ = "read"


def state_url(
    given: str | None,
    environment: Mapping[str, str],
    *,
    home: Path,
    access: DatabaseUse,
    shared: Path = SHARED_FOLDER / FILE,
) -> URL:
    """Choose the database: the given one, `ORCHESTRATE_STATE`, the shared file if it is writable, XDG.

    To read only, a readable shared file is enough. A given URL with `***` as its password, as messages have
    it, is completed from `ORCHESTRATE_STATE`: no password is in the list of processes then.

    Raises:
        UsageError: the given value is not a SQLAlchemy URL, or not a usable one.
    """
    whole = environment.get(VARIABLE, "")
    named = given or whole
    if hides_password(named):
        if named != without_password(whole) or named == whole:
            raise UsageError(
                f"{'--state' if given else VARIABLE}: its password is `{HIDDEN}`: write it, or put the whole"
                f" URL into {VARIABLE}"
            )
        named = whole
    if named:
        try:
            return _checked(named)
        except ValueError as error:
            raise UsageError(f"{'--state' if given else VARIABLE}: {error}") from None
    file = standard_file(environment, home=home, only_read=access is DatabaseUse.READ, shared=shared)
    return URL.create("sqlite", database=str(file))


def named_state(given: str | None, environment: Mapping[str, str]) -> str:
    """The state that a command was given, as after `--state`; empty if none was.

    A password is hidden: a URL with one is left to `ORCHESTRATE_STATE`, or has to be completed.
    """
    named = given or environment.get(VARIABLE, "")
    with suppress(ValueError):
        named = _checked(named).render_as_string(hide_password=False)
    shown = without_password(named)
    return shown if given or shown == named else ""


def _checked(named: str) -> URL:
    """Parse a URL from the user; a file gets its absolute path, for clear messages.

    Raises:
        ValueError: the problem with it. The message never repeats the value, which may hold a password.
    """
    form = "a file is written sqlite:////absolute/path/state.db"
    try:
        url = make_url(named)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise ValueError(f"this is no SQLAlchemy URL; {form}") from None
    if "@" in (url.host or ""):
        raise ValueError("an `@` in a name or a password is written %40")
    if url.get_backend_name() != "sqlite":
        return url
    if url.host or url.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise ValueError(f"SQLite takes neither a host nor another driver; {form}")
    if url.query:
        raise ValueError(f"a state file takes no options behind a `?`; {form}")
    if not url.database or url.database == ":memory:":
        raise ValueError(f"a database in memory is gone when the command ends; {form}")
    return url.set(database=str(Path(url.database).absolute()))


def open_engine(url: URL, access: DatabaseUse, *, make_folder: bool) -> Engine:
    """An engine on the database; nothing is read yet.

    Args:
        url: the database.
        access: READ opens a file read-only if this account may not write it.
        make_folder: create the file's folder (for the default places, not for one that the user typed).

    Raises:
        JournalError: the driver is missing, or the file or its folder cannot be created.
    """
    if url.get_backend_name() != "sqlite":
        return _server_engine(url)
    file = Path(url.database or "")
    _require_file(file)
    require_trusted(file)
    if access is DatabaseUse.READ and not usable(file):
        text = "file:" + quote(str(file.absolute()))
        url = URL.create("sqlite", database=text, query={"mode": "ro", "uri": "true"})
    else:
        _prepare(file, make_folder=make_folder)
        require_trusted(file)  # it may be made by another account in the meantime
    return _listened(create_engine(url, connect_args={"timeout": BUSY_SECONDS}))


def require_writable(
    url: str | None, environment: Mapping[str, str], *, home: Path, shared: Path = SHARED_FOLDER / FILE
) -> None:
    """Refuse a state file that cannot be made or written. Creates nothing; a database server is not asked.

    Raises:
        JournalError: what is wrong with it.
        UsageError: the URL is not valid.
    """
    found = state_url(url, environment, home=home, access=DatabaseUse.WRITE, shared=shared)
    if found.get_backend_name() != "sqlite":
        return
    file = Path(found.database or "")
    _require_file(file)
    if url or environment.get(VARIABLE):
        _require_folder(file)
    nearest = next(each for each in file.absolute().parents if each.exists())
    if not usable(file) if nearest == file.absolute().parent else not os.access(nearest, os.W_OK | os.X_OK):
        raise JournalError(f"state file {file}: {_WORDS[sqlite3.SQLITE_READONLY]}; name another with --state")


def _require_file(file: Path) -> None:
    if file.is_dir():
        raise JournalError(f"state file {file}: it is a directory; name a file")


def _require_folder(file: Path) -> None:
    """Require the folder of a file that an operator has named: it is not made."""
    if not file.absolute().parent.is_dir():
        raise JournalError(f"state file {file}: its folder is not there; make it first, or name another")


def require_trusted(file: Path) -> None:
    """Refuse a state file, or one that SQLite reads with it, if an account that is not trusted can change it.

    Raises:
        JournalError: one can; the message has the command that repairs it.
    """
    why = why_not(file, beside=BESIDE)
    if why is not None:
        raise JournalError(f"state file {file}: {why}; {WITHOUT_IT}")


def is_shared(url: URL) -> bool:
    """Whether others can write the database: on a server, or in a folder that a group shares."""
    return url.get_backend_name() != "sqlite" or verdict_on(Path(url.database or "")).shared


def empty_engine() -> Engine:
    """A database in memory, for reads without any state file, and for simulations.

    It has one connection, which any thread may use.
    """
    return _listened(
        create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    )


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that will write: SQLite takes the lock at once, so that its reads stay valid."""
    with engine.connect() as connection:
        connection.execution_options(**{_WRITES: True})
        with connection.begin():
            yield connection


class CommitInDoubt(JournalError):  # noqa: N818  (names a state, not a class of errors)
    """The connection to the database server failed, perhaps at the commit, which may be done or not.

    A server may be back in a moment, so a caller can try again.
    """


@contextmanager
def committing(engine: Engine) -> Iterator[Connection]:
    """One transaction that will write, like `writing`.

    Raises:
        CommitInDoubt: the connection to a server failed. What was not committed is undone there. A file of
            SQLite has no connection that could break.
    """
    with ExitStack() as opened:
        with _doubting(engine, "cannot be reached"):
            connection = opened.enter_context(engine.connect())
        connection.execution_options(**{_WRITES: True})
        with _doubting(engine, "the connection broke", whole=False):
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                # A rollback on a broken connection fails too; the first error is raised.
                with suppress(DBAPIError):
                    transaction.rollback()
                raise
        with _doubting(engine, "the connection broke at a commit, which may have been done"):
            transaction.commit()


@contextmanager
def _doubting(engine: Engine, what: str, *, whole: bool = True) -> Iterator[None]:
    """Raise `CommitInDoubt` for an error of a server; if not `whole`, only if its connection has failed."""
    try:
        yield
    except DBAPIError as error:
        if engine.dialect.name == "sqlite" or not (whole or error.connection_invalidated):
            raise
        raise CommitInDoubt(f"{place_of(engine)}: {what}: {explain(error)}") from error


class StateUnwritable(JournalError):  # noqa: N818  (names a state, not a class of errors)
    """The database cannot be written now, and nothing was written. A retry does not help."""


@contextmanager
def telling(where: str, doing: str) -> Iterator[None]:
    """Turn a failure of the database into a `JournalError` that says what, where and what to do."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        kind = StateUnwritable if _UNWRITABLE.intersection(_codes(error)) else JournalError
        raise kind(f"{where}: {doing} failed: {explain(error)}") from error


def file_of(engine: Engine) -> Path | None:
    """The state file; None for a database server, and for a database in memory."""
    url = engine.url
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    given = url.database.removeprefix("file:")
    return Path(given if given == url.database else unquote(given))


def place_of(engine: Engine) -> str:
    """The database in words, without a password."""
    url = engine.url
    if url.get_backend_name() == "sqlite":
        return f"state file {(url.database or 'in memory').removeprefix('file:')}"
    # The options may hold a password too.
    return f"state database {url.set(query={}).render_as_string(hide_password=True)}"


def whole(connection: Connection) -> str | None:
    """The damage that SQLite finds in the file; None if there is none (or it is not SQLite)."""
    if connection.dialect.name != "sqlite":
        return None
    found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    return None if found == "ok" else str(found)


WITHOUT_IT: Final = (
    f"without it `{next_command('restore', '--cluster', 'NAME')}` works from the record in the cluster"
)
"""The remedy if the state file is lost while a run has pending changes."""

_READ_ONLY: Final = "25006"
_FULL: Final = "53100"
_NO_RIGHT: Final = "42501"
_WORDS: Final[Mapping[int | str, str]] = {
    sqlite3.SQLITE_FULL: "no space is left on its disk; free some, then try again",
    sqlite3.SQLITE_BUSY: f"another process has kept it locked for {BUSY_SECONDS:.0f} s",
    sqlite3.SQLITE_LOCKED: "another connection keeps it locked",
    sqlite3.SQLITE_READONLY: "it may only be read by this account (or its file system is read-only)",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; it or its folder is missing or closed to this account",
    sqlite3.SQLITE_IOERR: "its disk reports an error (a full disk or a limit on file size can look so too)",
    sqlite3.SQLITE_CORRUPT: f"it is damaged; move it away; {WITHOUT_IT}",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite database; name another file with --state, or move it away; "
    f"{WITHOUT_IT}",
    _READ_ONLY: "the server takes no writes now (a standby, or set to read-only); name the primary server, "
    "or make it writable",
    _FULL: "no space is left on the server's disk; free some there, then try again",
    _NO_RIGHT: "this database account may not do that; make it the owner of the database",
    "55P03": "another session has kept a row locked",
    "53300": "the server has no connection left; end some, or raise `max_connections` there",
}
"""By SQLite's error code, or PostgreSQL's (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""


_UNWRITABLE: Final[frozenset[int | str]] = frozenset(
    {
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_WRITE),
        *(_READ_ONLY, _FULL, _NO_RIGHT),
    }
)
"""Errors after which the transaction is certainly rolled back, and a retry would fail too.

A quota or a limit on file size causes SQLite's last one.
"""


def explain(error: Exception) -> str:
    """The cause in plain words, and what to do."""
    cause = _cause(error)
    words = next((_WORDS[code] for code in _codes(error) if code in _WORDS), None)
    if words:
        return f"{words} ({cause})"
    if isinstance(cause, OSError) and cause.strerror:
        return f"{cause.strerror} ({cause.filename})" if cause.filename else cause.strerror
    return _said(cause)


_AROUND: Final = re.compile(r"^(?:connection failed: )?(?:connection to server .*? failed: )?(?:FATAL: +)?")
"""What PostgreSQL's driver writes before the cause; the server is named already."""


def _said(cause: BaseException) -> str:
    """The cause as a driver says it, without the advice that follows on further lines."""
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return _AROUND.sub("", " ".join(lines[0].split())) if lines else type(cause).__name__


def _cause(error: Exception) -> BaseException:
    """The driver's message."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _codes(error: Exception) -> tuple[int | str, ...]:
    """The database's codes of an error, the exact one last; none for other errors.

    SQLite's low byte is the error, the rest its subtype (https://www.sqlite.org/rescode.html).
    """
    cause = _cause(error)
    lite, server = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    if isinstance(lite, int):
        return (lite & 0xFF, lite)
    return (server,) if isinstance(server, str) else ()


_SERVER: Final = "postgresql+psycopg"


def _server_engine(url: URL) -> Engine:
    """An engine on a database server.

    Raises:
        JournalError: it is no PostgreSQL, or the extra is not installed.
    """
    if url.drivername != _SERVER:
        raise JournalError(
            f"the state cannot be kept in {url.drivername}; it can be in SQLite (sqlite:////path/state.db) "
            f"or in PostgreSQL, written {_SERVER}://HOST/NAME"
        )
    try:
        from orchestrator.runtime import postgres  # noqa: PLC0415  (an extra, for those who share a state)
    except ModuleNotFoundError as error:
        raise JournalError(
            f"a state in PostgreSQL needs the extra `postgres`: {how_to_add('postgres')}"
        ) from error
    return postgres.engine_on(url)


def _prepare(file: Path, *, make_folder: bool) -> None:
    """Create the file with its final rights; SQLite gives the rollback journal the same rights."""
    folder = file.absolute().parent
    with telling(f"state file {file}", "making it"):
        if make_folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            _require_folder(file)
        try:
            made = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _PRIVATE)
        except FileExistsError:
            return
        except PermissionError:
            if file.exists():
                return  # opened with the rights of this account
            raise
        try:
            if folder.stat().st_mode & _FOR_A_GROUP == _FOR_A_GROUP:
                os.fchmod(made, _GROUP)
        finally:
            os.close(made)


def _listened(engine: Engine) -> Engine:
    event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _begun)
    return engine


def _connected(connection: Any, _record: object) -> None:
    """Set up each new connection; `isolation_level=None` leaves BEGIN to us, see `_begun`."""
    connection.isolation_level = None
    for pragma in ("foreign_keys=ON", "synchronous=FULL", "journal_mode=TRUNCATE"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _begun(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
