"""Connections of live pages: who does not ask is let go, and who is answered is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from orchestrator.serve import server

WHOLE = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
PARTS = 10


class Hours(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward, so that no limit passes because the machine is slow."""

    ahead = 0.0

    def time(self) -> float:
        """Seconds, with those that were skipped."""
        return super().time() + self.ahead


async def _talk(asked: bytes, dripped: bytes) -> bytes:
    loop, answered = cast("Hours", asyncio.get_running_loop()), asyncio.Event()
    if b"\r\n\r\n" not in asked:
        answered.set()

    async def leap() -> None:
        loop.ahead += server.ASKING / 2
        await asyncio.sleep(0.01)

    async def slow(_request: Request) -> Response:
        async def parts() -> AsyncIterator[str]:
            for number in range(PARTS):
                yield f"{number}\n"
                await leap()
            answered.set()

        return StreamingResponse(parts())

    config = uvicorn.Config(
        Starlette(routes=[Route("/", slow)]), http=server.ViewerConnection, lifespan="off"
    )
    config.load()
    state = ServerState()
    listening = await loop.create_server(lambda: server.ViewerConnection(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())

    async def drip() -> None:
        while True:
            writer.write(dripped)
            await (leap() if answered.is_set() else asyncio.sleep(0.01))

    writer.write(asked)
    dripping = asyncio.create_task(drip())
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        dripping.cancel()
        writer.close()
        listening.close()


def said(asked: bytes, *, dripped: bytes = b"") -> bytes:
    """What a client gets until the server ends the connection.

    Time passes in leaps of half a limit: between the parts of an answer, and while there is no request.
    """
    with asyncio.Runner(loop_factory=Hours) as runner:
        return runner.run(_talk(asked, dripped))


@pytest.mark.parametrize("asked", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nA: "])
@pytest.mark.parametrize("dripped", [b"", b"x"])
def test_who_asks_for_nothing_takes_no_place(asked: bytes, dripped: bytes) -> None:
    assert b"200 OK" not in said(asked, dripped=dripped)


@pytest.mark.parametrize(
    ("asked", "dripped"),
    [
        (WHOLE, b""),
        (WHOLE + b"GET / HT", b"x"),
        (WHOLE.replace(b"\r\n\r\n", b"\r\nContent-Length: 999999\r\n\r\n"), b"x"),
    ],
)
def test_an_answer_may_take_longer(asked: bytes, dripped: bytes) -> None:
    assert f"{PARTS - 1}\n".encode() in said(asked, dripped=dripped)
