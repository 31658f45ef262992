"""A quick look at the last runs in a state file, for completion: read-only, without waiting, without network.

It reads the tables of `tables.py` with Python's own SQLite, because the library that the state is otherwise
read with takes a second to load.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from orchestrator.owners import why_not
from orchestrator.runtime.state_file import BESIDE

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
