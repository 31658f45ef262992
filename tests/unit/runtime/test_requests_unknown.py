"""A request of a kind that this program does not know, left by a newer one, counts as the strongest known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert

from orchestrator.model.phase import Request
from orchestrator.runtime import tables
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import RunEntry, open_store


@pytest.mark.parametrize(("kind", "known"), [(2, Request.STOP), (99, Request.INTERRUPT)])
def test_journal_asked_of_an_unknown_kind(
    tmp_path: Path, entry: Callable[[], RunEntry], kind: int, known: Request
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    store, run = open_store(url, {}, access=Access.WRITE), entry()
    journal = store.create_run(run)
    with create_engine(url).begin() as connection:
        connection.execute(insert(tables.requests).values(run=run.run, kind=kind, by="ben", at=1.0))
    assert journal.asked() == (known, "ben")
    store.close()
