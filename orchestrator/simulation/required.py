"""The readings that a simulated cluster requires."""

from __future__ import annotations

from typing import TypeVar

from orchestrator.errors import UsageError
from orchestrator.model.reading import Reading, Unknown

_T = TypeVar("_T")


def require(read: Reading[_T], what: str) -> _T:
    """Return the value that was read.

    Raises:
        UsageError: it was not read. An unknown value cannot be rehearsed.
    """
    if isinstance(read, Unknown):
        raise UsageError(f"cannot be rehearsed: {what} could not be read: {read.reason}")
    return read
