"""The routes, for any ASGI server: pages, the same as JSON, their changes as events, metrics, health."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from base64 import b64decode
from binascii import Error
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.serve.board import METRICS, Board, Shown

_ALIVE: Final = 15.0
"""Seconds after which a viewer without news is sent a sign of life: so no proxy ends the connection, and the
page notices a server that is silent (`SILENT_MS` of its script)."""
_SIGN_OF_LIFE: Final = "event: alive\ndata: {}\n\n"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:;"
    " style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_COMPRESSED: Final = 4096
"""Bytes from which on an answer is compressed."""
_SCRIPT: Final = Path(__file__).with_name("live.js")
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Guard:
    """Answers a request only if it names a configured host and has the token.

    A page of another site can have a browser send requests here, also under a name that its owner points at
    this address. Such a request names that other host.

    Args:
        app: what is guarded.
        hosts: names and addresses by which the server may be called.
        token: None asks for none.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], token: str | None) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        headers = Headers(scope=scope)
        refusal: Response | None = None
        if _host_of(headers.get("host", "")) not in self._hosts:
            refusal = PlainTextResponse("this server is not called by that name: see --host\n", 421)
        elif self._token is not None and not _is_given(headers.get("authorization", ""), self._token):
            asked = {"WWW-Authenticate": 'Basic realm="orchestrate: the token is the password"'}
            refusal = PlainTextResponse("a token is needed\n", 401, headers=asked)
        await (refusal or self._app)(scope, receive, sealed)


def _host_of(header: str) -> str:
    """The name or address in a `Host` header, without its port."""
    name, colon, port = header.lower().rpartition(":")
    return name if colon and port.isdigit() else header.lower()


def _is_given(header: str, token: bytes) -> bool:
    """Whether a header has the token: as a bearer's, or as the password for which a browser asks."""
    kind, _, value = header.partition(" ")
    given = b""
    if kind.lower() == "bearer":
        given = value.strip().encode()
    elif kind.lower() == "basic":
        with suppress(Error, ValueError):
            given = b64decode(value.strip(), validate=True).partition(b":")[2]
    return hmac.compare_digest(given, token)


def application(board: Board, *, hosts: Collection[str], token: str | None = None) -> Starlette:
    """The application. Every route reads, none writes; addresses in pages are relative, for any path prefix.

    Args:
        board: what is shown.
        hosts: names by which the server may be called.
        token: what every request has to carry; None for none.
    """

    @asynccontextmanager
    async def reading(_app: Starlette) -> AsyncIterator[None]:
        reader = asyncio.create_task(board.keep_looking())
        try:
            yield
        finally:
            reader.cancel()

    async def page(request: Request) -> Response:
        shown = await _shown(board, request)
        return HTMLResponse(shown.html) if isinstance(shown, Shown) else shown

    async def data(request: Request) -> Response:
        shown = await _shown(board, request)
        return JSONResponse(shown.data) if isinstance(shown, Shown) else shown

    async def events(request: Request) -> Response:
        shown = await _shown(board, request)
        if isinstance(shown, Response) and not board.trouble_of(_run_of(request)):
            return shown  # there is no such run
        if request.method == "HEAD":  # it would be sent nothing for ever
            return Response(media_type="text/event-stream")
        return StreamingResponse(_events(board, _run_of(request)), media_type="text/event-stream")

    async def metrics(_request: Request) -> Response:
        await board.fresh(METRICS)
        if board.last is None or board.trouble:
            return PlainTextResponse(f"{board.trouble}\n", 503)
        return Response(board.last.metrics, media_type=_METRICS)

    async def health(_request: Request) -> Response:
        await board.fresh()
        bad = board.trouble
        return JSONResponse(
            {"status": "trouble", "said": bad} if bad else {"status": "ok"}, 503 if bad else 200
        )

    async def script(_request: Request) -> Response:
        return Response(_SCRIPT.read_text("utf-8"), media_type="text/javascript")

    def route(path: str, endpoint: Any) -> Route:
        return Route(path, endpoint, methods=["GET"])

    served = Starlette(
        routes=[
            route("/", page),
            route("/events", events),
            route("/runs.json", data),
            route("/runs/{run}", page),
            route("/runs/{run}/events", events),
            route("/runs/{run}/report.json", data),
            route("/live.js", script),
            route("/metrics", metrics),
            route("/healthz", health),
        ],
        middleware=[
            Middleware(Guard, hosts=hosts, token=token),
            # A page of 300 nodes has 300 KB, and is loaded every few seconds; events are left as they are.
            Middleware(GZipMiddleware, minimum_size=_COMPRESSED, compresslevel=5),
        ],
        lifespan=reading,
    )
    # Its redirects are absolute: behind a proxy they lose the path prefix and TLS.
    served.router.redirect_slashes = False
    return served


def _run_of(request: Request) -> str | None:
    return request.path_params.get("run")


async def _shown(board: Board, request: Request) -> Shown | Response:
    """What a request is shown, or why it is shown nothing."""
    run = _run_of(request)
    await board.fresh(run)
    if (shown := board.shown(run)) is not None:
        return shown
    if trouble := board.trouble_of(run):
        return PlainTextResponse(f"the state cannot be read: {trouble}\n", 503)
    return PlainTextResponse("there is no such run\n", 404)


async def _events(board: Board, run: str | None) -> AsyncIterator[str]:
    """An event for each change, with what is wrong. A viewer that does not read gets none meanwhile."""
    sent, at = None, 0.0
    yield f"retry: {int(2000 * board.every)}\n\n"
    while not board.closed:
        await board.fresh(run)
        now = (board.shown(run), board.trouble_of(run))
        changed = now != sent
        if changed or time.monotonic() - at >= _ALIVE:
            sent, at = now, time.monotonic()
            yield f"data: {json.dumps({'trouble': now[1]})}\n\n" if changed else _SIGN_OF_LIFE
        await asyncio.sleep(board.every)  # not oftener than looks are taken
