"""The mark of a run whose last events could not be written: an empty file beside the state file.

A full disk still takes an empty file, and a locked database does not prevent one. A database server has none.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine

from orchestrator.runtime.database import file_of


class UnwrittenMark:
    """The mark of one run. Where it cannot be made or removed, nothing happens: it is only a hint.

    Args:
        engine: the state database.
        run: the run's id; whatever it holds, the mark is in the folder of the state file.
    """

    def __init__(self, engine: Engine, run: str) -> None:
        state = file_of(engine)
        self._file = None if state is None else Path(f"{state}-unwritten-{quote(run, safe='')}")

    def set(self) -> None:
        """Note that events of the run could not be written."""
        if self._file is not None:
            with suppress(OSError):
                self._file.touch(mode=0o600, exist_ok=False)

    def clear(self) -> None:
        """Note that all its events are written."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def is_set(self) -> bool:
        """Whether events of the run could not be written, and were not written later."""
        try:
            return self._file is not None and self._file.is_file()
        except OSError:  # a name that is too long
            return False
