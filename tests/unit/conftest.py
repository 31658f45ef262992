"""A state database in a temporary folder, and a run in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import RunEntry, StateStore, open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def store(url: str) -> Iterator[StateStore]:
    opened = open_store(url, {}, access=DatabaseUse.WRITE)
    yield opened
    opened.close()


@pytest.fixture
def entry() -> Callable[..., RunEntry]:
    def make(run: str = "20261121-0413-x7k2", cluster: str = "prod", started: float = 1000.0) -> RunEntry:
        return RunEntry(
            run=run,
            cluster=cluster,
            cluster_uuid="",
            kind="elasticsearch",
            started=started,
            host="bastion1",
            operator="anna",
            process="boot/1/2/3",
        )

    return make
