"""Connections of live pages: who does not ask is let go, and who is answered is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from orchestrator.serve import server

PATIENT = 60.0
WHOLE = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def _slow(_request: Request) -> Response:
    async def parts() -> AsyncIterator[str]:
        for number in range(10):
            yield f"{number}\n"
            await asyncio.sleep(server.ASKING / 4)

    return StreamingResponse(parts())


async def _said(asked: bytes, *, dripped: bytes = b"") -> bytes:
    """What a client gets until the server ends the connection."""
    config = uvicorn.Config(Starlette(routes=[Route("/", _slow)]), http=server.Connection, lifespan="off")
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    listening = await loop.create_server(lambda: server.Connection(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())

    async def drip() -> None:
        while True:
            writer.write(dripped)
            await asyncio.sleep(server.ASKING / 10)

    writer.write(asked)
    dripping = asyncio.create_task(drip())
    try:
        return await asyncio.wait_for(reader.read(), PATIENT)
    except ConnectionError:
        return b""
    finally:
        dripping.cancel()
        writer.close()
        listening.close()


@pytest.mark.parametrize("asked", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nA: "])
@pytest.mark.parametrize("dripped", [b"", b"x"])
def test_who_asks_for_nothing_takes_no_place(
    monkeypatch: pytest.MonkeyPatch, asked: bytes, dripped: bytes
) -> None:
    monkeypatch.setattr(server, "ASKING", 0.2)
    assert b"200 OK" not in asyncio.run(_said(asked, dripped=dripped))


@pytest.mark.parametrize(
    ("asked", "dripped"),
    [
        (WHOLE, b""),
        (WHOLE + b"GET / HT", b"x"),
        (WHOLE.replace(b"\r\n\r\n", b"\r\nContent-Length: 999999\r\n\r\n"), b"x"),
    ],
)
def test_an_answer_may_take_longer(monkeypatch: pytest.MonkeyPatch, asked: bytes, dripped: bytes) -> None:
    monkeypatch.setattr(server, "ASKING", 0.2)
    assert b"9\n" in asyncio.run(_said(asked, dripped=dripped))
