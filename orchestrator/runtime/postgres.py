"""Connections to PostgreSQL, as the state of several machines: how they are made, set up and limited.

It needs the extra `postgres` (psycopg 3), so only `database` imports it, and only for such a state.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import URL, Engine, create_engine, event

from orchestrator.model.reading import Seconds

_RV = TypeVar("_RV")

ANSWER_SECONDS: Final[Seconds] = 10.0
"""How long one statement or commit waits for the server's answer."""
_CONNECT_SECONDS: Final = 5
"""How long to try each address of the server."""
_PAUSE_SECONDS: Final[Seconds] = 15.0
"""After a server that did not answer, how long connections to it fail at once.

A run that stands down writes a dozen times, and a node is down meanwhile. A server that refuses connections
is tried each time: that takes no time, and it may be back in a second.
"""
_SESSION: Final = ("SET idle_in_transaction_session_timeout = '30s'", "SET lock_timeout = '8s'")
"""Set in each session.

A machine that loses its power in a transaction keeps the locks of its rows until the server ends that
session. Without a limit of our own, the server notices a vanished client after two hours. A lock that another
session holds ends a statement before `ANSWER_SECONDS` do, so that the message names the lock.
"""
_ENCODING: Final = "utf8"
"""Of the connection. With the server's own, psycopg returns bytes from a database in SQL_ASCII."""
_TABLES_LOCK: Final = 7_163_020_145
"""The number of the advisory lock under which the tables are made: any number that others hardly use."""


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not answer within `ANSWER_SECONDS`.

    A server that hangs (its disk, a stopped process) still acknowledges packets: no limit of TCP ends a call.
    """

    def wait(self, gen: Generator[Any, Any, _RV], *rest: Any, **named: Any) -> _RV:
        """Wait for the end of one exchange with the server; each call of the driver goes through here."""
        return super().wait(self._limited(gen), *rest, **named)

    def _limited(self, gen: Generator[Any, Any, _RV]) -> Generator[Any, Any, _RV]:
        """The same exchange, ended at the limit. The driver looks in every 0.1 s, with nothing ready."""
        until = time.monotonic() + ANSWER_SECONDS
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server has not answered for {ANSWER_SECONDS:.0f} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def engine_on(url: URL) -> Engine:
    """An engine on a database of a server; nothing is read yet. Values in the URL override our limits."""
    usual = {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "client_encoding": _ENCODING,
        "application_name": "orchestrate",
    }
    connect = {key: value for key, value in usual.items() if key not in url.query}
    engine = create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED", connect_args=connect)
    event.listen(engine, "do_connect", _Connector())
    event.listen(engine, "connect", _connected)
    return engine


class _Connector:
    """Makes the connections of one engine."""

    def __init__(self) -> None:
        self._silent_until = 0.0

    def __call__(self, _dialect: Any, _record: Any, words: Any, named: Any) -> LimitedConnection:
        """A new connection; at once an error if the server did not answer a moment ago."""
        if time.monotonic() < self._silent_until:
            raise psycopg.OperationalError("the server does not answer")
        try:
            return LimitedConnection.connect(*words, **named)
        except psycopg.errors.ConnectionTimeout:
            self._silent_until = time.monotonic() + _PAUSE_SECONDS
            raise


def _connected(connection: Any, _record: object) -> None:
    """Set up each new connection, outside of any transaction."""
    connection.autocommit = True
    for statement in _SESSION:
        connection.execute(statement)
    connection.autocommit = False
