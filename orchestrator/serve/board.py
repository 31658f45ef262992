"""What all viewers are shown: one reader looks at the state, at most once a second, and only for viewers.

A state in SQLite has no write-ahead log: an open read holds back the run's commits and heartbeats. So no
viewer reads it. Each asks this board, which has one look taken at a time, in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.errors import OrchestratorError

EVERY: Final = 1.0
"""Seconds between two looks."""
_LATE: Final = 10.0
"""A look that takes so many seconds more is said to be late."""
_KEPT: Final = 300.0
"""A run that nobody has asked for so long, in seconds, is not looked at."""
_MOST: Final = 30
"""Runs that one look takes: their journals are in memory. If more are asked for, they take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the viewers of one page get."""

    html: str  # the page; a page with the same text has not changed
    data: Any  # the same for programs, ready for JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLook:
    """What one look at the state found."""

    listing: Shown  # all runs
    # those that were asked for, if they exist and can be read; `faults`: why others cannot
    runs: Mapping[str, Shown] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    metrics: str = ""  # for Prometheus, if they were asked for


METRICS: Final = "*"
"""Asked for like a run; no run has this name."""


class Board:
    """The last look, and what is wrong since.

    Args:
        look: reads the list and these runs, and perhaps `METRICS`. It is called in a thread, never twice at a
            time. The viewers are shown its `OrchestratorError`, with what was read before.
        every: seconds between two looks.
        late: seconds after which a look that has not ended is trouble.

    Attributes:
        last: None before the first look.
        trouble: why there is no newer one; empty if all is well.
        closed: whether viewers are to leave.
    """

    def __init__(
        self, look: Callable[[Collection[str]], StateLook], *, every: float = EVERY, late: float = _LATE
    ) -> None:
        self._look, self.every, self._late = look, every, late
        self._asked: dict[str, float] = {}
        self._waiting = Counter[str]()
        self._taken: frozenset[str] = frozenset()
        self._begun = self._ended = 0
        self._over = float("-inf")
        self._wanted, self._news = asyncio.Event(), asyncio.Condition()
        self.last: StateLook | None = None
        self.trouble = ""
        self.closed = False

    async def keep_looking(self) -> None:
        """Look whenever a viewer wants it, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._begun += 1
            runs = self._runs()
            try:
                self.last = await asyncio.to_thread(self._look, runs)
                self.trouble = ""
            except OrchestratorError as error:
                self.trouble = str(error)
            except Exception as defect:  # noqa: BLE001  (said to every viewer; the next look may be better)
                self.trouble = f"a defect of this program: {type(defect).__name__}: {defect}"
            self._ended, self._over, self._taken = self._begun, time.monotonic(), frozenset(runs)
            if not self._waiting.keys() <= self._taken:
                self._wanted.set()
            async with self._news:
                self._news.notify_all()
            await asyncio.sleep(self.every)  # another process writes the state, and tells no one

    def _runs(self) -> list[str]:
        """The runs of the next look: those that have been waited for longest, then those asked for last."""
        since = time.monotonic() - _KEPT

        def turn(run: str) -> tuple[bool, float]:
            return (False, self._asked[run]) if run in self._waiting else (True, -self._asked[run])

        taken = sorted((run for run, at in self._asked.items() if at >= since), key=turn)[:_MOST]
        self._asked = {run: at for run, at in self._asked.items() if run in taken or run in self._waiting}
        return taken

    async def fresh(self, run: str | None = None) -> None:
        """Wait for a look that is new enough, and of which this run is a part; or for trouble."""
        now = time.monotonic()
        if run is not None and run not in self._waiting:
            self._asked[run] = now
        if self.has(run) and now - self._over < self.every:
            return
        next_one = self._begun + 1
        self._waiting.update(() if run is None else (run,))
        self._wanted.set()
        try:
            async with asyncio.timeout(self._late + self.every), self._news:
                await self._news.wait_for(lambda: self._ended >= next_one and self.has(run))
        except TimeoutError:
            if self._ended < next_one:
                self.trouble = self.trouble or f"nothing could be read for {self._late:.0f} s"
        finally:
            self._waiting -= Counter(() if run is None else (run,))

    def has(self, run: str | None) -> bool:
        """Whether a run was a part of the last look."""
        return run is None or run in self._taken

    def trouble_of(self, run: str | None) -> str:
        """What is wrong with the page of a run, or of the list; empty if nothing is."""
        fault = self.last.faults.get(run, "") if self.last is not None and run is not None else ""
        crowd = "" if self.has(run) else f"more than {_MOST} runs are asked for at a time"
        return self.trouble or fault or crowd

    def close(self) -> None:
        """Let viewers that wait for news go."""
        self.closed = True

    def shown(self, run: str | None) -> Shown | None:
        """The page of a run, or of the list; None if there is no such run, or no look yet."""
        if self.last is None:
            return None
        return self.last.listing if run is None else self.last.runs.get(run)
