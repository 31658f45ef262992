"""The board of live pages: one look at a time for all viewers, and trouble that is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from orchestrator.errors import JournalError
from orchestrator.serve.board import Board, Shown, StateLook


class State:
    """A state that is looked at: how often, how many at a time, and what for."""

    def __init__(self) -> None:
        self.looks: list[tuple[str, ...]] = []
        self.inside = self.most = 0
        self.fault = ""
        self.goes_on = threading.Event()
        self.goes_on.set()

    def look(self, runs: Collection[str]) -> StateLook:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.goes_on.wait(60.0)
        self.inside -= 1
        self.looks.append(tuple(runs))
        if self.fault:
            raise JournalError(self.fault)
        shown = {run: Shown(html=f"{run} {len(self.looks)}", data={}) for run in runs if run != "none"}
        return StateLook(listing=Shown(html=f"list {len(self.looks)}", data={}), runs=shown)


def kept(board: Board, viewing: Coroutine[Any, Any, None]) -> None:
    """View while the board is kept."""

    async def both() -> None:
        keeping = asyncio.create_task(board.keep_looking())
        try:
            await viewing
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    asyncio.run(both())


def html(board: Board, run: str | None = None) -> str:
    shown = board.shown(run)
    assert shown is not None
    return shown.html


def test_fifty_viewers_share_a_look_and_none_is_taken_unasked() -> None:
    state = State()
    board = Board(state.look, every=0.05)

    async def viewing() -> None:
        await asyncio.sleep(0.2)
        assert state.looks == [], "nobody has asked"
        await asyncio.gather(*(board.fresh("r1") for _ in range(50)))

    kept(board, viewing())
    assert len(state.looks) <= 2, "one may have begun before the run was asked for"
    assert state.most == 1
    assert html(board, "r1").startswith("r1 ")


def test_a_run_is_in_the_look_that_its_viewer_waits_for() -> None:
    state = State()
    board = Board(state.look, every=0.01)

    async def viewing() -> None:
        await board.fresh()
        assert board.shown("r1") is None
        await board.fresh("r1")
        assert "r1" in html(board, "r1")
        await board.fresh("none")
        assert board.shown("none") is None

    kept(board, viewing())


def test_more_runs_than_one_look_takes_are_all_shown() -> None:
    """Viewers of each, at once and for a while: no page is said not to exist, and the look stays small."""
    state = State()
    board = Board(state.look, every=0.01)
    missed: list[str] = []

    async def following(run: str) -> None:
        for _ in range(5):
            await board.fresh(run)
            if board.shown(run) is None:
                missed.append(run)
            await asyncio.sleep(board.every)

    kept(board, viewing=_gathered(following(f"r{number}") for number in range(100)))
    assert missed == []
    assert max(map(len, state.looks)) == 30
    assert not board.trouble


async def _gathered(each: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*each)


def test_trouble_is_said_with_what_was_read_before_and_passes() -> None:
    state = State()
    board = Board(state.look, every=0.01)

    async def viewing() -> None:
        await board.fresh()
        before, state.fault = html(board), "database is locked"
        while not board.trouble:
            await asyncio.sleep(0.02)
            await board.fresh()
        assert board.trouble == "database is locked"
        assert html(board) >= before
        state.fault = ""
        while board.trouble:
            await asyncio.sleep(0.02)
            await board.fresh()
        assert html(board) != before

    kept(board, viewing())


def test_a_look_that_does_not_end_holds_no_viewer_for_ever() -> None:
    state = State()
    board = Board(state.look, every=0.01, late=0.05)

    async def viewing() -> None:
        state.goes_on.clear()
        await board.fresh()
        assert "nothing could be read" in board.trouble
        assert board.shown(None) is None
        state.goes_on.set()
        while board.trouble:
            await asyncio.sleep(0.02)
            await board.fresh()
        assert state.most == 1, "no second look beside one that hangs"

    kept(board, viewing())
