"""A link that is dropped is gone, whatever its closing says."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from orchestrator.hosts.connections.ssh.link import Link


class Dead:
    """A transport over a channel of another one that has died."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def close(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [EOFError(), OSError("socket is closed")], ids=repr)
def test_closing_what_is_dead_fails_nothing(error: Exception) -> None:
    link: Any = object.__new__(Link)
    link._lock, link._transport = threading.RLock(), Dead(error)
    link.drop()
    assert link._transport is None
