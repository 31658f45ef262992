"""The place of the state file. Needs no database library, so that a TAB is quick."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SHARED_FOLDER: Final = Path("/var/lib/orchestrate")
FILE: Final = "state.db"
BESIDE: Final = ("-journal", "-wal", "-shm")
"""What SQLite reads beside its file: it would write the pages of a rollback journal into the database."""
VARIABLE: Final = "ORCHESTRATE_STATE"
_SQLITE: Final = "sqlite:///"


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
