"""The place of the state file, and a quick look at its last runs, for completion.

The look is read-only, without waiting and without network. It reads the tables of `tables.py` with Python's
own SQLite, because the library that the state is otherwise read with takes a second to load.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from orchestrator.owners import why_not

SHARED_FOLDER: Final = Path("/var/lib/orchestrate")
FILE: Final = "state.db"
BESIDE: Final = ("-journal", "-wal", "-shm")
"""What SQLite reads beside its file: it would write the pages of a rollback journal into the database."""
VARIABLE: Final = "ORCHESTRATE_STATE"
_SQLITE: Final = "sqlite:///"

_BUSY_SECONDS: Final = 0.2
"""A TAB waits no longer for a commit of a run."""

_LAST: Final = """
SELECT id, cluster, outcome FROM runs
WHERE (:cluster IS NULL OR cluster = :cluster) AND EXISTS (SELECT 1 FROM events WHERE run = runs.id)
ORDER BY (SELECT json_extract(event, '$.ordinal') FROM events
    WHERE run = runs.id AND substr(event, 1, 23) = '{"event":"lease_taken",'
    ORDER BY sequence DESC LIMIT 1) DESC,
    (SELECT at FROM events WHERE run = runs.id ORDER BY sequence DESC LIMIT 1) DESC,
    started DESC, id DESC
LIMIT :limit
"""
"""The order is that of `StateStore.runs`."""
_FIRST_EVENT: Final = "SELECT event FROM events WHERE run = ? ORDER BY sequence LIMIT 1"


def standard_file(
    environment: Mapping[str, str],
    *,
    home: Path,
    only_read: bool,
    shared: Path = SHARED_FOLDER / FILE,
) -> Path:
    """The state file if none is named: the shared one if this account can write it, else that of the account.

    To read only, a readable shared file is enough.
    """
    if usable(shared) or (only_read and os.access(shared, os.R_OK)):
        return shared
    configured = environment.get("XDG_STATE_HOME", "")
    base = Path(configured) if Path(configured).is_absolute() else home / ".local" / "state"
    return base / "orchestrate" / FILE


def file_to_read(given: str | None, environment: Mapping[str, str], *, home: Path) -> Path | None:
    """The state file for a quick look. None if the state is in a database server, or the URL has options."""
    named = given or environment.get(VARIABLE)
    if not named:
        return standard_file(environment, home=home, only_read=True)
    path = named.removeprefix(_SQLITE)
    return Path(path) if named.startswith(_SQLITE) and "?" not in path else None


def reports_folder(database: str | None, environment: Mapping[str, str], *, home: Path) -> Path:
    """The folder of the pages of runs: beside the state file, or where it is usually if there is none.

    Args:
        database: the state file; None if the state is in a database server.
        environment: of the process.
        home: the operator's home.
    """
    file = Path(database) if database else standard_file(environment, home=home, only_read=False)
    return file.parent / "reports"


def usable(file: Path) -> bool:
    """Whether this account can write the file, and the folder for the rollback journal beside it."""
    folder = file.parent
    if not folder.exists():
        return os.access(folder.parent, os.W_OK | os.X_OK)
    return os.access(folder, os.W_OK | os.X_OK) and (not file.exists() or os.access(file, os.R_OK | os.W_OK))


class LastRun(NamedTuple):
    """A run. `outcome` is None if it has not ended."""

    run: str
    cluster: str
    outcome: str | None


def last_runs(file: Path, *, cluster: str | None = None, limit: int) -> list[LastRun]:
    """The last runs of a state file, the latest first. Empty if it cannot be read."""
    try:
        with _opened(file) as state:
            return [LastRun(*row) for row in state.execute(_LAST, {"cluster": cluster, "limit": limit})]
    except sqlite3.Error:
        return []


def nodes_of(file: Path, run: str) -> list[str]:
    """The nodes that a run knew at its begin. Empty if they cannot be read."""
    try:
        with _opened(file) as state:
            row = state.execute(_FIRST_EVENT, (run,)).fetchone()
        return list(json.loads(row[0])["addresses"])
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return []


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    if why_not(file, beside=BESIDE) is not None:
        raise sqlite3.OperationalError("another account can change it")
    uri = f"file:{quote(str(file.absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as state:
        yield state
