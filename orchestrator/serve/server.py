"""The server: its address, and its end by a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.errors import UsageError

_VIEWERS: Final = 300
"""Connections at a time; a further one is refused with 503."""
ASKING: Final = 10.0
"""Seconds that a client has for a request, until its head is whole; the library has no limit for that."""
_LEAVING: Final = 3
"""Seconds that viewers have to leave after a signal."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Address:
    """Where a server listens.

    Args:
        listen: `HOST:PORT`; IPv6 as `[::1]:8765`.

    Raises:
        UsageError: it is something else.
    """

    def __init__(self, listen: str) -> None:
        host, colon, port = listen.rpartition(":")
        self.named, self.host = host.lower(), host.removeprefix("[").removesuffix("]")
        if not (colon and self.host and port.isdigit() and int(port) < 1 << 16):
            raise UsageError(f"--listen {listen}: write HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765")
        self.port = int(port)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def names(self) -> frozenset[str]:
        """The names by which browsers call it."""
        return _LOCAL | {self.named} if self.is_loopback else frozenset({self.named})

    def bind(self) -> socket.socket:
        """A socket that listens there.

        Raises:
            UsageError: it cannot.
        """
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise UsageError(f"--listen {self.named}:{self.port}: {error.strerror or error}") from None


class ViewerConnection(H11Protocol):
    """A connection whose client has so long to ask: one that asks for nothing takes the place of a viewer."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is here."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """A part of a request, or all of it."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has left."""
        super().connection_lost(exc)
        self._heard()

    def _wait(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]  # None at first
            self._heard()
        elif self._late is None:
            self._late = self.loop.call_later(ASKING, self.transport.close)

    def _heard(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    """Signals are this program's own: uvicorn's would end it as if it had been interrupted."""

    def __init__(self, config: uvicorn.Config, said: Callable[[], None]) -> None:
        super().__init__(config)
        self._said = said

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        if self.started:
            self._said()


def run(
    app: ASGIApp, listening: socket.socket, *, said: Callable[[], None], leave: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        app: what is served.
        listening: where.
        said: called once it answers.
        leave: called by a signal: viewers that wait for news are to be let go.
    """
    # No access log: it has addresses of people and nothing that the operator of a cluster needs. A warning is
    # about a client: anyone could fill a disk with them.
    config = uvicorn.Config(
        app,
        http=ViewerConnection,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_VIEWERS,
        timeout_graceful_shutdown=_LEAVING,
    )
    server = _Server(config, said)

    def end() -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # who does not leave is cut off
        server.should_exit = True
        leave()

    async def serving() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        await server.serve(sockets=[listening])

    asyncio.run(serving())
