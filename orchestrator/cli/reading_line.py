"""A sign of life while a cluster and its hosts are read: the last line of a terminal, removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

from rich.live import Live
from rich.spinner import Spinner

from orchestrator.untrusted import visible
from orchestrator.view.live import live_console, wants_live

_A_SECOND: Final = 8
"""Pictures a second."""


class ReadingLine:
    """Shows what is read. Where the terminal cannot move its cursor, as in a CI job, it shows nothing."""

    def __init__(self) -> None:
        self._live: Live | None = None

    @contextmanager
    def during(self, text: str, stream: TextIO, environment: Mapping[str, str]) -> Iterator[None]:
        """Show this text in a block; inside of another block, that of the outer one stays."""
        if self._live is not None or not wants_live(stream, environment):
            yield
            return
        console = live_console(stream, environment)
        live = Live(
            Spinner("line", visible(text)),
            console=console,
            transient=True,
            refresh_per_second=_A_SECOND,
            redirect_stdout=False,  # what else is written goes through `aside`
            redirect_stderr=False,
        )
        self._live = live
        try:
            with self._shown(live):
                yield
        finally:
            self._live = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the line away in a block, in which something else is written."""
        if (live := self._live) is None or not live.is_started:
            yield
            return
        live.stop()
        yield
        self._start(live)

    @contextmanager
    def _shown(self, live: Live) -> Iterator[None]:
        self._start(live)
        try:
            yield
        finally:
            live.stop()

    def _start(self, live: Live) -> None:
        live.start(refresh=True)
        live.console.show_cursor(show=True)  # a killed program could not show it again
